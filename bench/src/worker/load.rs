//! The same URL again and again on one connection, so many requests at once: how many a second, and how long the middle
//! one took. `worker` runs it, the case `responses` reads its line; the Java programs print the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fullbore::Client;
use fullbore::tls::{Roots, client_config};
use http_body_util::BodyExt;
use tokio::task::JoinSet;

use super::{Failure, print_line};

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Library {
    Fullbore,
    Reqwest,
}

#[derive(Args, Clone)]
pub(crate) struct Load {
    library: Library,
    url: String,
    /// How many bytes each response must have
    #[arg(long)]
    bytes: usize,
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

/// A client of one of the libraries.
#[derive(Clone)]
enum Fetcher {
    Fullbore(Client),
    Reqwest(reqwest::Client),
}

impl Fetcher {
    /// Fetches the URL and tells how many bytes came.
    async fn fetch(&self, url: &str) -> Result<usize, Failure> {
        let mut bytes = 0;
        match self {
            Fetcher::Fullbore(client) => {
                let mut body = client.get(url).await?.into_body();
                while let Some(frame) = body.frame().await {
                    bytes += frame?.data_ref().map_or(0, bytes::Bytes::len);
                }
            }
            Fetcher::Reqwest(client) => {
                let mut response = client.get(url).send().await?;
                while let Some(chunk) = response.chunk().await? {
                    bytes += chunk.len();
                }
            }
        }
        Ok(bytes)
    }
}

impl Load {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let fetcher = self.fetcher()?;
        // One connection before all others: the first request opens it.
        fetcher.fetch(&self.url).await?;
        let from = Instant::now() + Duration::from_millis(self.warm_up_ms);
        let until = from + Duration::from_millis(self.measure_ms);
        let mut tasks = JoinSet::new();
        for _ in 0..self.at_once {
            let (fetcher, load) = (fetcher.clone(), self.clone());
            tasks.spawn(async move { load.fetch_between(&fetcher, from, until).await });
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
            Library::Reqwest => Fetcher::Reqwest(
                reqwest::Client::builder()
                    .http2_prior_knowledge()
                    .http2_initial_stream_window_size(self.window)
                    .http2_initial_connection_window_size(self.window)
                    .build()?,
            ),
        })
    }

    /// The microseconds of each request that ended in that time.
    async fn fetch_between(
        &self,
        fetcher: &Fetcher,
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
