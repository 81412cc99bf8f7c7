//! A server that takes its time, and programs that keep the processors busy.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use fullbore::{Incoming, Server};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Sleep, sleep};
use tower::service_fn;

use crate::error::Error;

const THINKS: Duration = Duration::from_secs(3);
/// Between two pieces of this many bytes.
const BETWEEN: Duration = Duration::from_millis(50);
const PIECE: &[u8] = &[7; 60_000];

/// A server in this process. It ends when it is dropped.
pub(super) struct SlowServer {
    pub(super) port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl SlowServer {
    /// Listens in the network namespace of this thread.
    pub(super) fn start(address: IpAddr) -> Result<Self, Error> {
        let failed = |error| Error::Start("a slow server".to_owned(), error);
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        runtime.spawn(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                return;
            };
            if let Ok(server) = Server::builder().build(listener) {
                let _ = server.serve(service_fn(answer)).await;
            }
        });
        Ok(Self {
            port,
            _runtime: runtime,
        })
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Pieces>, Infallible> {
    let path = request.uri().path().to_owned();
    let _ = request.into_body().collect().await;
    let (left, between) = match path.as_str() {
        "/dribble" => (50, BETWEEN),
        "/think" => (30, Duration::ZERO),
        _ => (0, Duration::ZERO),
    };
    if between.is_zero() {
        sleep(THINKS).await;
    }
    Ok(Response::new(Pieces {
        left,
        between,
        next: Box::pin(sleep(between)),
    }))
}

/// A body that comes in pieces.
struct Pieces {
    left: usize,
    between: Duration,
    next: Pin<Box<Sleep>>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if !self.between.is_zero() {
            ready!(self.next.as_mut().poll(cx));
            self.next = Box::pin(sleep(self.between));
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PIECE)))))
    }
}

/// Two threads for each processor that do nothing but take turns with others, until this is dropped.
pub(super) struct Busy {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    pub(super) fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..2 * processors).map(spin).collect();
        Self { ends, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
