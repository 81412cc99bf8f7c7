//! Programs as users of `h2` write them. `bench/src/peers/h2.rs` builds them twice: with the published crate, and with
//! `crates/h2` in its place.

#![forbid(unsafe_code)]

mod axum;
mod reqwest;
mod tonic;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
enum Program {
    /// A server of axum: a GET of `/N` has a body of N bytes, and one of `/wait` is never answered; a PUT is read to its end
    Axum(axum::Server),
    /// A server of tonic: `bench.Calls/Unary` returns its message, and `Stream` as many messages of 1 MiB as its message says
    Tonic(tonic::Server),
    /// A client of reqwest
    Reqwest(reqwest::Client),
}

/// The runtime of a program.
#[derive(clap::Args, Clone)]
struct Threads {
    /// How many workers tokio's multi-thread runtime has; 0 is its current thread
    #[arg(long, default_value_t = 0)]
    workers: usize,
}

impl Threads {
    fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = match self.workers {
            0 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        builder.worker_threads(self.workers.max(1)).enable_all().build()
    }
}

fn main() -> Result<(), Failure> {
    match Program::parse() {
        Program::Axum(server) => server.run(),
        Program::Tonic(server) => server.run(),
        Program::Reqwest(client) => client.run(),
    }
}
