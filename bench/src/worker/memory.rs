//! Servers that answer from memory: `/N` has a body of N bytes. fullbore and hyper run the same handler, so that they differ in
//! HTTP/2 and the runtime only. For the cases `servers`, `clients` and `memory`.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use fullbore::body::Chunk;
use fullbore::tls::server_config;
use fullbore::{Incoming, Server};
use fullbore_files::{Files, Log, Settings, Uploads};
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming as Received;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::Service;

use super::{Failure, print_line};
use crate::heap::Heap;

/// What a long body hands over at once.
const PIECE: Bytes = Bytes::from_static(&[b'x'; 256 << 10]);

/// What hyper lets a client send ahead: its own default is 1 MiB.
const WINDOW: u32 = (16 << 20) - 1;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Library {
    /// fullbore on tokio's current thread
    Fullbore,
    /// The same with the files behind `fullbore serve`
    Files,
    /// hyper on tokio's current thread
    Hyper,
    /// The same with the files behind `fullbore serve`
    HyperFiles,
    /// hyper on tokio's multi-thread runtime with one worker
    HyperWorker,
    /// hyper-util's server of HTTP/1.1 and HTTP/2, on tokio's current thread
    Auto,
    /// The same with a timer, and so with hyper's limit of 30 s on the time of a head
    AutoLimited,
    /// `auto` with the files behind `fullbore serve`
    AutoFiles,
}

#[derive(Args, Clone)]
pub(crate) struct Memory {
    library: Library,
    /// How many streams a client may have open at once
    #[arg(long)]
    max_streams: u32,
    /// The folder of the files
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Tell whoever connects to a port of its own what has been allocated
    #[arg(long)]
    heap: bool,
    /// The certificate chain, PEM; without it in the clear
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long)]
    key: Option<PathBuf>,
}

impl Memory {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(Arc::new(server_config(
                &std::fs::read(cert)?,
                &std::fs::read(key)?,
            )?)),
            _ => None,
        };
        if self.heap {
            tell_heap()?;
        }
        match self.library {
            Library::Fullbore => current_thread()?.block_on(self.fullbore(tls, tower::service_fn(answer))),
            Library::Files => {
                let files = Log::new(Files::open_with_ranges(&self.root, Self::settings())?, None);
                current_thread()?.block_on(self.fullbore(tls, files))
            }
            Library::Hyper | Library::Auto | Library::AutoLimited => {
                current_thread()?.block_on(self.hyper(tls, tower::service_fn(answer)))
            }
            Library::HyperFiles | Library::AutoFiles => {
                current_thread()?.block_on(self.hyper(tls, Files::open(&self.root, Self::settings())?))
            }
            Library::HyperWorker => {
                let worker = Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()?;
                let streams = self.clone();
                // On the worker, not on this thread: a wake-up between the two is no part of a request.
                worker.block_on(
                    worker.spawn(async move { streams.hyper(tls, tower::service_fn(answer)).await }),
                )?
            }
        }
    }

    fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.uploads = Uploads::Discard;
        settings
    }

    async fn fullbore<S, B>(&self, tls: Option<Arc<ServerConfig>>, service: S) -> Result<(), Failure>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
        S::Future: Send + 'static,
        S::Error: Into<Failure>,
        B: http_body::Body<Data: Into<Chunk> + Send> + Send + Unpin + 'static,
        B::Error: Into<Failure>,
    {
        let mut builder = Server::builder().max_concurrent_streams(self.max_streams);
        if let Some(tls) = tls {
            builder = builder.tls_config(tls);
        }
        let server = builder.bind("127.0.0.1:0").await?;
        print_line(&format!("listening on {}", server.local_addr()?))?;
        Ok(server.serve(service).await?)
    }

    async fn hyper<S, B>(&self, tls: Option<Arc<ServerConfig>>, service: S) -> Result<(), Failure>
    where
        S: Service<Request<Received>, Response = Response<B>, Error: Into<Failure>, Future: Send + 'static>
            + Clone
            + Send
            + 'static,
        B: http_body::Body<Data: Send, Error: Into<Failure>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        print_line(&format!("listening on {}", listener.local_addr()?))?;
        let tls = tls.map(TlsAcceptor::from);
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let (tls, settings, service) = (tls.clone(), self.clone(), service.clone());
            // A connection that fails is its client's loss, who tells of it.
            tokio::spawn(async move {
                match tls {
                    Some(tls) => settings.hyper_serve(tls.accept(socket).await?, service).await,
                    None => settings.hyper_serve(socket, service).await,
                }
            });
        }
    }

    async fn hyper_serve<T, S, B>(&self, io: T, service: S) -> Result<(), Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
        S: Service<Request<Received>, Response = Response<B>, Error: Into<Failure>, Future: Send + 'static>
            + Clone,
        B: http_body::Body<Data: Send, Error: Into<Failure>> + Send + 'static,
    {
        let service = service_fn(move |request| service.clone().call(request));
        if let Library::Auto | Library::AutoLimited | Library::AutoFiles = self.library {
            let mut builder = auto::Builder::new(TokioExecutor::new());
            if let Library::AutoLimited = self.library {
                builder.http1().timer(TokioTimer::new());
            }
            builder
                .http2()
                .max_concurrent_streams(self.max_streams)
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW);
            return builder.serve_connection(TokioIo::new(io), service).await;
        }
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .max_concurrent_streams(self.max_streams)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        Ok(builder.serve_connection(TokioIo::new(io), service).await?)
    }
}

/// A line for each connection to a port of its own: allocations, their bytes, and bytes that are live.
fn tell_heap() -> Result<(), Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    print_line(&format!("heap on {}", listener.local_addr()?))?;
    std::thread::spawn(move || {
        for asks in listener.incoming() {
            let Heap {
                allocations,
                bytes,
                live,
            } = Heap::now();
            // Who has asked and gone needs no answer.
            let _ = asks.and_then(|mut asks| writeln!(asks, "{allocations} {bytes} {live}"));
        }
    });
    Ok(())
}

fn current_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Reads and forgets the body of a PUT; no other request of the cases has one.
async fn answer<B>(request: Request<B>) -> Result<Response<Pieces>, Infallible>
where
    B: http_body::Body + Unpin,
{
    if request.method() == Method::PUT {
        let mut body = request.into_body();
        // A body that breaks off is its client's loss, who tells of it.
        while let Some(Ok(_)) = body.frame().await {}
        return Ok(Response::new(Pieces { left: 0 }));
    }
    let name = request.uri().path().trim_start_matches('/');
    let left = name.parse().unwrap_or(0);
    Ok(Response::new(Pieces { left }))
}

/// A body of so many bytes.
struct Pieces {
    left: u64,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let now = self.left.min(PIECE.len() as u64);
        self.left -= now;
        Poll::Ready((now > 0).then(|| Ok(Frame::data(PIECE.slice(..now as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
