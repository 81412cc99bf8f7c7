//! Very many connections under one memory budget, most of whose bytes nobody reads: a server and what floods it, and a
//! client process that never reads what it asked for. `part` runs them; the case `budget` reads their lines and watches
//! how much memory each process has.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use fullbore::client::{SendRequest, handshake};
use fullbore::{Config, Incoming, MemoryBudget, Server};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Failure, say};

/// What a reader uploads.
const UPLOAD: Bytes = Bytes::from_static(&[0; 1 << 20]);
/// For how long connections stay idle, so that the case can see what they cost.
const IDLE: Duration = Duration::from_secs(2);
/// How long the flood goes on before the readers begin.
const FLOOD: Duration = Duration::from_secs(5);
/// What a reader may take: it gets its turn among very many.
const READER: Duration = Duration::from_secs(30);

#[derive(Args, Clone)]
pub(crate) struct BudgetServer {
    /// The memory that all windows together may promise, in bytes
    #[arg(long)]
    budget: u64,
}

impl BudgetServer {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let server = Server::bind("127.0.0.1:0").await?;
        say(&format!("listening on {}", server.local_addr()?))?;
        let server = server.memory_budget(MemoryBudget::new(self.budget));
        Ok(server.serve(tower::service_fn(answer)).await?)
    }
}

/// `/never` does not look at its body, and does not answer; anything else reads it.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let never = request.uri().path() == "/never";
    let body = request.into_body();
    if never {
        pending::<()>().await;
    }
    let bytes = drain(body).await.unwrap_or(0);
    Ok(Response::new(Full::from(bytes.to_string())))
}

async fn drain(mut body: Incoming) -> Result<usize, Failure> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(bytes)
}

#[derive(Args, Clone)]
struct Crowd {
    /// Where the server listens
    server: SocketAddr,
    /// How many connections are never read
    #[arg(long)]
    connections: usize,
    /// How many streams each of them has
    #[arg(long)]
    streams: usize,
    /// How many more connections have one stream, which is read
    #[arg(long)]
    readers: usize,
}

#[derive(Args, Clone)]
pub(crate) struct BudgetUploads {
    #[command(flatten)]
    crowd: Crowd,
}

#[derive(Args, Clone)]
pub(crate) struct BudgetDownloads {
    #[command(flatten)]
    crowd: Crowd,
    /// The memory that all windows together may promise, in bytes
    #[arg(long)]
    budget: u64,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body without an end.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(http_body::Frame::data(UPLOAD.slice(..16_384)))))
    }
}

impl BudgetUploads {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let upload = |uri, body| Request::put(uri).body(body);
        let flood = |uri: Uri| upload(uri, Endless.boxed_unsync());
        let one = |uri: Uri| upload(uri, Full::new(UPLOAD).boxed_unsync());
        self.crowd
            .come(&Config::default(), "never", flood, "read", one)
            .await
    }
}

impl BudgetDownloads {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let mut config = Config::default();
        config.budget = Some(MemoryBudget::new(self.budget));
        let get = |uri: Uri| Request::get(uri).body(Empty::new().boxed_unsync());
        self.crowd.come(&config, "body", get, "body", get).await
    }
}

impl Crowd {
    /// Connects, is idle, floods, and reads: `start`, `idle` and `flooding` are printed when each of these begins, then
    /// how many readers came to their end and how many streams were refused. Goes on until it is ended.
    async fn come(
        &self,
        config: &Config,
        unread: &str,
        flood: impl Fn(Uri) -> http::Result<Request<Body>>,
        read: &str,
        one: impl Fn(Uri) -> http::Result<Request<Body>>,
    ) -> Result<(), Failure> {
        let uri = |name: &str| format!("http://{}/{name}", self.server).parse::<Uri>();
        say("start")?;
        sleep(Duration::from_millis(500)).await;
        let mut crowd = Vec::new();
        for _ in 0..self.connections + self.readers {
            crowd.push(connect(self.server, config, uri("idle")?).await?);
        }
        say("idle")?;
        sleep(IDLE).await;

        let (readers, flooded) = crowd.split_at(self.readers);
        let mut unread_streams = JoinSet::new();
        for connection in flooded {
            for _ in 0..self.streams {
                let response = connection.send(flood(uri(unread)?)?);
                unread_streams.spawn(async move {
                    let response = response.await?;
                    // What came is kept, and not looked at.
                    pending::<()>().await;
                    drop(response);
                    Ok::<_, Failure>(())
                });
            }
        }
        say("flooding")?;
        sleep(FLOOD).await;

        let begun = Instant::now();
        let mut reading = JoinSet::new();
        for connection in readers {
            let response = connection.send(one(uri(read)?)?);
            reading.spawn(timeout(READER, async move {
                drain(response.await?.into_body()).await
            }));
        }
        let (mut ended, mut last) = (0, None);
        while let Some(done) = reading.join_next().await {
            match done? {
                Ok(Ok(_)) => ended += 1,
                Ok(Err(failure)) => last = Some(super::in_full(failure.as_ref())),
                Err(_) => last = Some("too slow".to_owned()),
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let mut refused = 0;
        while let Some(failed) = unread_streams.try_join_next() {
            refused += usize::from(failed?.is_err());
        }
        let last = last.unwrap_or_else(|| "none failed".to_owned());
        say(&format!("readers {ended} {seconds:.3} {refused} {last}"))?;
        pending().await
    }
}

/// A connection that has had a request already.
async fn connect(server: SocketAddr, config: &Config, idle: Uri) -> Result<SendRequest, Failure> {
    let socket = TcpStream::connect(server).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) = handshake(socket, config.clone());
    tokio::spawn(connection);
    let response = sender
        .send(Request::get(idle).body(Empty::<Bytes>::new())?)
        .await?;
    drain(response.into_body()).await?;
    Ok(sender)
}
