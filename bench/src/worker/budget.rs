//! Very many connections under one memory budget, most of them with bytes that nobody reads: a server and its clients, and a
//! client process that reads nothing. The case `budget` reads their lines and watches their memory.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use fullbore::client::{SendRequest, handshake};
use fullbore::settings::MemoryBudget;
use fullbore::{Config, Incoming, Server};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Failure, drain, print_line};

/// What a reader uploads: once, or so often when it is under way before the flood comes.
const UPLOAD: Bytes = Bytes::from_static(&[0; 1 << 20]);
const LONG_UPLOAD: usize = 32;
/// For how long connections stay idle, so that the case can see what they cost.
const IDLE: Duration = Duration::from_secs(2);
/// How long the readers that are under way have had when the flood begins.
const HEAD_START: Duration = Duration::from_millis(200);
/// How long the flood goes on before the other readers begin.
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
        let builder = Server::builder().memory_budget(MemoryBudget::new(self.budget));
        let server = builder.bind("127.0.0.1:0").await?;
        print_line(&format!("listening on {}", server.local_addr()?))?;
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
    /// How many more connections have one stream, which is read: half of them before the others begin, and half after
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

/// A body of so many chunks.
struct Chunks(usize);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.checked_sub(1).map(|left| {
            self.0 = left;
            Ok(http_body::Frame::data(UPLOAD))
        }))
    }
}

impl BudgetUploads {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let upload = |uri, body| Request::put(uri).body(body);
        let flood = |uri: Uri| upload(uri, Endless.boxed_unsync());
        let long = |uri: Uri| upload(uri, Chunks(LONG_UPLOAD).boxed_unsync());
        let short = |uri: Uri| upload(uri, Chunks(1).boxed_unsync());
        let names = ["never", "read", "read"];
        self.crowd
            .come(&Config::default(), names, flood, long, short)
            .await
    }
}

impl BudgetDownloads {
    pub(super) async fn run(&self) -> Result<(), Failure> {
        let mut config = Config::default();
        config.budget = Some(MemoryBudget::new(self.budget));
        let get = |uri: Uri| Request::get(uri).body(Empty::new().boxed_unsync());
        let names = ["body", "long", "body"];
        self.crowd.come(&config, names, get, get, get).await
    }
}

impl Crowd {
    /// Connects, is idle, reads, floods, and reads again: `start`, `idle` and `flooding` are printed when each of these
    /// begins, then how many readers of either kind came to their end and how many streams were refused. Goes on until it
    /// is ended. `names` are what is asked for: unread, by the first readers, by the others.
    async fn come(
        &self,
        config: &Config,
        names: [&str; 3],
        flood: impl Fn(Uri) -> http::Result<Request<Body>>,
        long: impl Fn(Uri) -> http::Result<Request<Body>>,
        short: impl Fn(Uri) -> http::Result<Request<Body>>,
    ) -> Result<(), Failure> {
        let [unread, first, other] = names;
        let uri = |name: &str| format!("http://{}/{name}", self.server).parse::<Uri>();
        print_line("start")?;
        sleep(Duration::from_millis(500)).await;
        let mut crowd = Vec::new();
        for _ in 0..self.connections + self.readers {
            crowd.push(connect(self.server, config, uri("idle")?).await?);
        }
        print_line("idle")?;
        sleep(IDLE).await;

        let (readers, flooded) = crowd.split_at(self.readers);
        let (early, late) = readers.split_at(self.readers / 2);
        let mut under_way = JoinSet::new();
        for connection in early {
            let response = connection.send(long(uri(first)?)?);
            under_way.spawn(timeout(READER, async move {
                drain(response.await?.into_body()).await
            }));
        }
        sleep(HEAD_START).await;
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
        print_line("flooding")?;
        sleep(FLOOD).await;

        let begun = Instant::now();
        let mut reading = JoinSet::new();
        for connection in late {
            let response = connection.send(short(uri(other)?)?);
            reading.spawn(timeout(READER, async move {
                drain(response.await?.into_body()).await
            }));
        }
        let (finished, why) = ends(&mut under_way).await?;
        let (let_in, why_not) = ends(&mut reading).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut refused = 0;
        while let Some(failed) = unread_streams.try_join_next() {
            refused += usize::from(failed?.is_err());
        }
        let last = why.or(why_not).unwrap_or_else(|| "none failed".to_owned());
        print_line(&format!(
            "readers {finished} {let_in} {seconds:.3} {refused} {last}"
        ))?;
        pending().await
    }
}

/// How many of them came to their end, and why the last that did not has failed.
async fn ends(
    readers: &mut JoinSet<Result<Result<u64, Failure>, tokio::time::error::Elapsed>>,
) -> Result<(usize, Option<String>), Failure> {
    let (mut ended, mut last) = (0, None);
    while let Some(done) = readers.join_next().await {
        match done? {
            Ok(Ok(_)) => ended += 1,
            Ok(Err(failure)) => last = Some(super::in_full(failure.as_ref())),
            Err(_) => last = Some("too slow".to_owned()),
        }
    }
    Ok((ended, last))
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
