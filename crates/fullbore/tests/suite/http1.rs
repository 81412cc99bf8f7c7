//! HTTP/1.1 on the server's side, by peers that speak in raw octets.

mod bodies;
mod connections;
mod limits;
mod malformed;
mod messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::serve_connection_auto;
use fullbore::{BoxError, Config, Error, Incoming};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::support::{Chunks, Reply, empty, full, pattern, service, soon};

/// What the handlers have seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Requests that reached a handler.
    begun: AtomicUsize,
    /// Handlers that have not ended.
    running: AtomicUsize,
    /// Bodies that failed.
    failed: AtomicUsize,
}

impl Seen {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

struct Running(Arc<Seen>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(seen: Arc<Seen>, request: Request<Incoming>) -> Result<Reply, BoxError> {
    seen.begun.fetch_add(1, Ordering::SeqCst);
    seen.running.fetch_add(1, Ordering::SeqCst);
    let running = Running(Arc::clone(&seen));
    let response = |status: StatusCode, body| {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Ok(response)
    };
    match request.uri().path() {
        "/hang" => {
            let _running = running;
            std::future::pending().await
        }
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            response(StatusCode::OK, full("slow"))
        }
        "/panic" => panic!("a handler"),
        "/late-panic" => {
            let body = futures_util::stream::once(async {
                // The head of the response is sent before.
                tokio::task::yield_now().await;
                panic!("a body")
            });
            response(StatusCode::OK, StreamBody::new(body).boxed_unsync())
        }
        "/fail" => Err("a handler".into()),
        "/refuse" => response(StatusCode::PAYLOAD_TOO_LARGE, full("no")),
        "/trailers" => {
            let body = Chunks::new(10, 5).with_trailer("x-sum", "5").boxed_unsync();
            let mut response = Response::new(body);
            response
                .headers_mut()
                .insert("trailer", "x-sum".parse().expect("a value"));
            *response.version_mut() = http::Version::HTTP_3;
            Ok(response)
        }
        "/empty" => response(StatusCode::NO_CONTENT, empty()),
        "/unchanged" => response(StatusCode::NOT_MODIFIED, empty()),
        "/long" => response(StatusCode::OK, Chunks::new(64 << 20, 64 << 10).boxed_unsync()),
        "/chunks" => response(StatusCode::OK, Chunks::new(10, 5).boxed_unsync()),
        "/echo" => response(
            StatusCode::OK,
            request.into_body().map_err(BoxError::from).boxed_unsync(),
        ),
        _ => match request.into_body().collect().await {
            Ok(body) => {
                let trailers = body.trailers().map_or(0, http::HeaderMap::len);
                let length = body.to_bytes().len();
                response(StatusCode::OK, full(format!("{length} and {trailers}")))
            }
            Err(error) => {
                seen.failed.fetch_add(1, Ordering::SeqCst);
                response(StatusCode::BAD_REQUEST, full(error.to_string()))
            }
        },
    }
}

/// A connection, and what its handlers have seen.
pub(crate) struct Raw {
    io: DuplexStream,
    seen: Arc<Seen>,
    served: JoinHandle<Result<(), Error>>,
}

impl Raw {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let (io, far) = tokio::io::duplex(64 << 10);
        let seen = Arc::new(Seen::default());
        let service = {
            let seen = Arc::clone(&seen);
            service(move |request| answer(Arc::clone(&seen), request))
        };
        let served = tokio::spawn(serve_connection_auto(far, service, config));
        Raw { io, seen, served }
    }

    async fn say(&mut self, text: impl AsRef<[u8]>) {
        self.io.write_all(text.as_ref()).await.expect("the pipe has room");
    }

    /// All that is still said, until the server closes its half.
    async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        soon(self.io.read_to_end(&mut rest)).await.expect("an end");
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Says something and ends its half; what the server said until it closed the other.
    async fn ask(mut self, text: impl AsRef<[u8]>) -> String {
        self.say(text).await;
        self.io.shutdown().await.expect("our half ends");
        self.rest().await
    }

    /// A head, and so many octets behind it.
    async fn hear(&mut self, body: usize) -> (String, Vec<u8>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.io.read_u8()).await.expect("a head"));
        }
        let mut octets = vec![0; body];
        soon(self.io.read_exact(&mut octets)).await.expect("a body");
        (String::from_utf8_lossy(&head).into_owned(), octets)
    }

    /// How the connection ended.
    async fn served(self) -> Result<(), Error> {
        drop(self.io);
        soon(self.served).await.expect("no panic")
    }
}

/// The status lines of all that was said.
fn statuses(said: &str) -> Vec<u16> {
    let lines = said.split("HTTP/1.1 ").skip(1);
    lines.filter_map(|line| line.get(..3)?.parse().ok()).collect()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

fn upload(length: usize) -> Bytes {
    let mut all = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    all.extend_from_slice(&pattern(0, length));
    all.into()
}
