//! A client of reqwest, with everything at its defaults.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use tokio::task::JoinSet;

use crate::{Failure, Threads};

#[derive(Args, Clone)]
pub(crate) struct Client {
    /// With `{}` where the number of the request is to stand
    url: String,
    #[command(flatten)]
    threads: Threads,
    #[arg(long, default_value_t = 1)]
    requests: usize,
    /// How many tasks make them, each one after another
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// The bytes that each response has
    #[arg(long)]
    bytes: usize,
    /// How many bytes each request sends by PUT
    #[arg(long)]
    upload: Option<usize>,
}

impl Client {
    /// Prints the seconds.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.threads.runtime()?.block_on(self.clone().load())
    }

    async fn load(self) -> Result<(), Failure> {
        let client = reqwest::Client::builder().http2_prior_knowledge().build()?;
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        // Memory that is touched for the first time is no part of a transfer.
        let body = self.upload.map(|bytes| Bytes::from(vec![b'x'; bytes]));
        let begun = Instant::now();
        for _ in 0..self.at_once {
            let (client, next, task) = (client.clone(), Arc::clone(&next), self.clone());
            let body = body.clone();
            tasks.spawn(async move { task.fetch(&client, body.as_ref(), &next).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        println!("{}", begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Makes requests until all are made.
    async fn fetch(
        &self,
        client: &reqwest::Client,
        body: Option<&Bytes>,
        next: &AtomicUsize,
    ) -> Result<(), Failure> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return Ok(());
            }
            let url = self.url.replace("{}", &number.to_string());
            let request = match body {
                None => client.get(url),
                Some(body) => client.put(url).body(body.clone()),
            };
            let mut response = request.send().await?.error_for_status()?;
            let mut bytes = 0;
            while let Some(chunk) = response.chunk().await? {
                bytes += chunk.len();
            }
            if bytes != self.bytes {
                return Err(format!("{bytes} bytes, not {}", self.bytes).into());
            }
        }
    }
}
