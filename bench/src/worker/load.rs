//! Requests for one URL on one connection for some seconds: the rate and the median latency. The case `responses` reads its
//! line; the Java programs print the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fullbore::Client;
use fullbore::tls::{Roots, client_config};
use http::Uri;
use tokio::task::JoinSet;

use super::client::Fetcher;
use super::{Failure, print_line};

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Library {
    Fullbore,
    Reqwest,
}

#[derive(Args, Clone)]
pub(crate) struct Load {
    library: Library,
    url: Uri,
    /// How many bytes each response must have
    #[arg(long)]
    bytes: u64,
    /// The receive window, of a stream and of the connection
    #[arg(long)]
    window: u32,
    /// How many requests are under way at once
    #[arg(long)]
    at_once: usize,
    /// For how long nothing is counted
    #[arg(long)]
    warm_up_ms: u64,
    /// For how long it is
    #[arg(long)]
    measure_ms: u64,
}

impl Load {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let mut fetcher = self.fetcher()?;
        // One connection before all others: the first request opens it.
        fetcher.fetch(&self.url).await?;
        let from = Instant::now() + Duration::from_millis(self.warm_up_ms);
        let until = from + Duration::from_millis(self.measure_ms);
        let mut tasks = JoinSet::new();
        for _ in 0..self.at_once {
            let (mut fetcher, load) = (fetcher.clone(), self.clone());
            tasks.spawn(async move { load.fetch_between(&mut fetcher, from, until).await });
        }
        let mut micros = Vec::new();
        while let Some(done) = tasks.join_next().await {
            micros.extend(done??);
        }
        micros.sort_unstable();
        let median = micros.get(micros.len() / 2).ok_or("no request ended in time")?;
        let rate = micros.len() as f64 / Duration::from_millis(self.measure_ms).as_secs_f64();
        print_line(&format!("{rate:.1} {median}"))
    }

    fn fetcher(&self) -> Result<Fetcher, Failure> {
        Ok(match self.library {
            Library::Fullbore => Fetcher::Fullbore(
                Client::builder()
                    .stream_window(self.window)
                    .connection_window(self.window)
                    .max_connections(1)
                    .tls_config(Arc::new(client_config(Roots::InsecureAcceptAny)?))
                    .build()?,
            ),
            Library::Reqwest => Fetcher::reqwest(self.window)?,
        })
    }

    /// The microseconds of each request that ended in that time.
    async fn fetch_between(
        &self,
        fetcher: &mut Fetcher,
        from: Instant,
        until: Instant,
    ) -> Result<Vec<u64>, Failure> {
        let mut micros = Vec::new();
        loop {
            let begun = Instant::now();
            if begun >= until {
                return Ok(micros);
            }
            let bytes = fetcher.fetch(&self.url).await?;
            if bytes != self.bytes {
                return Err(format!("{bytes} bytes, not {}", self.bytes).into());
            }
            let ended = Instant::now();
            if ended >= from && ended < until {
                micros.push(u64::try_from((ended - begun).as_micros())?);
            }
        }
    }
}
