//! Downloads on one connection, alone or beside a stream that nobody reads. The case `stalled` reads its line.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use fullbore::Client;
use tokio::task::JoinSet;

use super::{Failure, drain, print_line};

/// After so long the unread stream has filled its window, over the longest path of the case too.
const FILL: Duration = Duration::from_millis(1500);

#[derive(Args, Clone)]
pub(crate) struct Stalled {
    server: SocketAddr,
    /// How many streams are read
    #[arg(long)]
    streams: usize,
    /// How many bytes each of them must have
    #[arg(long)]
    bytes: u64,
    /// Have one more stream, which is not
    #[arg(long)]
    beside: bool,
}

impl Stalled {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let client = Client::builder().max_connections(1).build()?;
        let get = |name: &str| {
            let (client, url) = (client.clone(), format!("http://{}/{name}", self.server));
            async move { client.get(&url).await }
        };
        // Both begin with a connection that has moved bytes before.
        drain(get("body").await?.into_body()).await?;
        let unread = match self.beside {
            true => Some(get("long").await?),
            false => None,
        };
        tokio::time::sleep(FILL).await;

        let begun = Instant::now();
        let mut readers = JoinSet::new();
        for _ in 0..self.streams {
            let response = get("body");
            readers.spawn(async move { drain(response.await?.into_body()).await });
        }
        while let Some(done) = readers.join_next().await {
            let bytes = done??;
            if bytes != self.bytes {
                return Err(format!("{bytes} bytes, not {}", self.bytes).into());
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        drop(unread);
        print_line(&seconds.to_string())
    }
}
