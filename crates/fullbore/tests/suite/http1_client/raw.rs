//! A server of HTTP/1.1 by hand.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fullbore::settings::HttpVersions;
use fullbore::{Client, ClientBuilder, Error};
use http::Response;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A response without a body.
pub(super) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What servers of HTTP/1.1 say to the preface of HTTP/2.
pub(super) const BAD: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// One connection, seen from the server.
pub(super) struct Raw<T = TcpStream> {
    pub(super) io: T,
    read: Vec<u8>,
}

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    /// The request line and the fields, in lower case.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn is_preface(&self) -> bool {
        self.head.starts_with("pri * http/2.0")
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Raw<T> {
    pub(super) fn new(io: T) -> Self {
        Raw { io, read: Vec::new() }
    }

    /// The next request with its body; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Asked> {
        let mut asked = self.next_head().await?;
        let length = asked
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if let Some(length) = length {
            while self.read.len() < length {
                self.fill().await?;
            }
            asked.body = self.read.drain(..length).collect();
        } else if asked.head.contains("transfer-encoding: chunked") {
            while !self.read.ends_with(b"0\r\n\r\n") {
                self.fill().await?;
            }
            asked.body = std::mem::take(&mut self.read);
        }
        Some(asked)
    }

    /// The head of the next request; its body is not read.
    pub(super) async fn next_head(&mut self) -> Option<Asked> {
        loop {
            if let Some(end) = self.read.windows(4).position(|octets| octets == b"\r\n\r\n") {
                let head = self.read.drain(..end + 4).collect();
                let head = String::from_utf8(head).expect("text").to_lowercase();
                let body = Vec::new();
                return Some(Asked { head, body });
            }
            self.fill().await?;
        }
    }

    /// What was read and is not part of a request yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.read
    }

    /// Takes up to so many octets of what was read. Returns their number.
    pub(super) fn take_read(&mut self, most: usize) -> usize {
        let taken = most.min(self.read.len());
        self.read.drain(..taken);
        taken
    }

    async fn fill(&mut self) -> Option<()> {
        match self.io.read_buf(&mut self.read).await {
            Ok(1..) => Some(()),
            _ => None,
        }
    }

    pub(super) async fn say(&mut self, text: &str) {
        // A client that has gone is seen by the next read.
        let _ = self.io.write_all(text.as_bytes()).await;
    }

    /// Answers every request with nothing, and counts them.
    pub(super) async fn serve(&mut self, requests: &AtomicUsize) {
        while let Some(asked) = self.next().await {
            if asked.is_preface() {
                return self.say(BAD).await;
            }
            requests.fetch_add(1, Ordering::SeqCst);
            self.say(OK).await;
        }
    }
}

/// A server that does as `serve` says with each connection, by its number from 0.
pub(super) struct Site {
    pub(super) url: String,
    accepted: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Site {
    pub(super) async fn start<F, S>(serve: F) -> Site
    where
        F: Fn(usize, Raw) -> S + Send + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let number = counter.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(number, Raw::new(stream)));
            }
        });
        Site {
            url,
            accepted,
            _task: task,
        }
    }

    /// A server that says this to the first request of each connection, and then closes.
    pub(super) async fn says(answer: impl Into<String>) -> Site {
        let answer = answer.into();
        Self::start(move |_, mut raw| {
            let answer = answer.clone();
            async move {
                if raw.next().await.is_some() {
                    raw.say(&answer).await;
                }
            }
        })
        .await
    }

    /// The connections that were accepted.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A client of HTTP/1.1 alone, which asks for no content coding.
pub(super) fn http1() -> ClientBuilder {
    Client::builder()
        .http_versions(HttpVersions::Http1)
        .decompression(false)
}

pub(super) fn client() -> Client {
    http1().build().unwrap()
}

/// The status and the whole body of a GET.
pub(super) async fn fetch(client: &Client, url: &str) -> Result<Response<Bytes>, Error> {
    let (parts, body) = client.get(url).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

/// Waits for something that comes to be true by itself.
pub(super) async fn until(mut what: impl FnMut() -> bool) {
    crate::support::soon(async {
        while !what() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}
