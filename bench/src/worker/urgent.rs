//! Urgent requests beside bulk ones on the same connection. The case `urgent` reads its line.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use fullbore::Client;
use fullbore::settings::TcpBuffers;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::runtime::Builder;

use super::{Failure, print_line, tls};

/// The priority of the bulk streams, and of the urgent ones (RFC 9218).
const BULK: &str = "u=7, i";
const URGENT: &str = "u=0";

/// What a bulk upload hands over at once.
const PIECE: Bytes = Bytes::from_static(&[b'x'; 64 << 10]);

/// What an urgent upload sends: as much as an urgent download receives.
const SMALL: Bytes = Bytes::from_static(b"123456789");

#[derive(Args, Clone)]
pub(crate) struct Urgent {
    /// Without a path; the bulk is at the path that `--bulk` names, the urgent at `/9`
    base: String,
    /// The path of the bulk
    #[arg(long)]
    bulk: String,
    /// How many bulk streams there are
    #[arg(long)]
    streams: u32,
    /// How many urgent requests there are, one after the other
    #[arg(long)]
    requests: u32,
    /// No urgent request begins later than so many seconds after the first one
    #[arg(long)]
    longest: u64,
    /// How long the bulk alone moves before, in milliseconds
    #[arg(long)]
    fill_ms: u64,
    /// How long to wait between two urgent requests, in milliseconds
    #[arg(long)]
    pause_ms: u64,
    /// Upload
    #[arg(long)]
    up: bool,
    /// Leave to the kernel what waits unsent
    #[arg(long)]
    unlimited: bool,
}

impl Urgent {
    /// Prints the median and the worst time of an urgent request, in seconds, how many there were, the bytes a second of the
    /// bulk, and all its bytes.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), Failure> {
        let buffers = TcpBuffers {
            unsent: self.unlimited.then_some(0),
            ..TcpBuffers::default()
        };
        let client = Client::builder().max_connections(1).tcp_buffers(buffers);
        let client = client.tls_config(tls::config()?).build()?;
        let moved = Arc::new(AtomicU64::new(0));
        self.urgent(&client).await?;
        for _ in 0..self.streams {
            let (part, client, moved) = (self.clone(), client.clone(), Arc::clone(&moved));
            tokio::spawn(async move {
                if let Err(failure) = part.bulk(&client, &moved).await {
                    eprintln!("bulk: {failure}");
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(self.fill_ms)).await;
        let (begun, before) = (Instant::now(), moved.load(Relaxed));
        let mut took = Vec::new();
        for _ in 0..self.requests {
            if begun.elapsed() > Duration::from_secs(self.longest) {
                break;
            }
            let asked = Instant::now();
            self.urgent(&client).await?;
            took.push(asked.elapsed().as_secs_f64());
            tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
        }
        let rate = (moved.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
        took.sort_by(f64::total_cmp);
        let worst = took.last().copied().unwrap_or_default();
        let median = took.get(took.len() / 2).copied().unwrap_or_default();
        let (count, moved) = (took.len(), moved.load(Relaxed));
        print_line(&format!("{median} {worst} {count} {rate} {moved}"))
    }

    async fn urgent(&self, client: &Client) -> Result<(), Failure> {
        let url = format!("{}/9", self.base);
        let response = match self.up {
            true => {
                let request = Request::put(url).header("priority", URGENT);
                client.request(request.body(Full::new(SMALL))?).await?
            }
            false => {
                let request = Request::get(url).header("priority", URGENT);
                client.request(request.body(Empty::<Bytes>::new())?).await?
            }
        };
        let status = response.status();
        response.into_body().collect().await?;
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("the server answered {status}").into()),
        }
    }

    /// Moves bulk for ever.
    async fn bulk(&self, client: &Client, moved: &Arc<AtomicU64>) -> Result<(), Failure> {
        let url = format!("{}/{}", self.base, self.bulk);
        loop {
            if self.up {
                let request = Request::put(&url).header("priority", BULK);
                client.request(request.body(Endless(Arc::clone(moved)))?).await?;
                return Err("the server answered an upload that has not ended".into());
            }
            let request = Request::get(&url).header("priority", BULK);
            let mut body = client
                .request(request.body(Empty::<Bytes>::new())?)
                .await?
                .into_body();
            while let Some(frame) = body.frame().await {
                let length = frame?.data_ref().map_or(0, Bytes::len);
                moved.fetch_add(length as u64, Relaxed);
            }
        }
    }
}

/// A body without an end, which counts what was taken of it.
struct Endless(Arc<AtomicU64>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.0.fetch_add(PIECE.len() as u64, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(PIECE))))
    }
}
