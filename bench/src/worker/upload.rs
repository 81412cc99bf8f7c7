//! An upload on a connection that is already open, so that the server's windows are known when it begins. The case `paths`
//! reads its line.

use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use fullbore::Client;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};

use super::{Failure, print_line};

#[derive(Args, Clone)]
pub(crate) struct Upload {
    url: String,
    /// How many bytes to upload
    #[arg(long)]
    bytes: usize,
}

impl Upload {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let client = Client::builder().max_connections(1).build()?;
        // Whatever the answer is, the connection is open when it has come.
        let first = Request::head(&self.url).body(Empty::<Bytes>::new())?;
        client.request(first).await?.into_body().collect().await?;

        let body = Full::new(Bytes::from(vec![0; self.bytes]));
        let begun = Instant::now();
        let response = client.request(Request::put(&self.url).body(body)?).await?;
        let status = response.status();
        response.into_body().collect().await?;
        let seconds = begun.elapsed().as_secs_f64();
        match status.is_success() {
            true => print_line(&seconds.to_string()),
            false => Err(format!("the server answered {status}").into()),
        }
    }
}
