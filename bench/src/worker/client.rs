//! Requests for one URL on one connection with the client of one of several libraries. The case `clients` measures the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use fullbore::client::{SendRequest, handshake};
use fullbore::{Client, Config};
use http::{Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Failure, drain, print_line, tls};

/// What hyper and reqwest let a server send ahead: their own default is 2 and 5 MiB.
const WINDOW: u32 = (16 << 20) - 1;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Library {
    /// fullbore's `Client`, which finds a connection for each request
    Fullbore,
    /// fullbore's handle of one connection
    FullboreConnection,
    /// hyper's handle of one connection
    Hyper,
    /// reqwest, in the clear
    Reqwest,
}

#[derive(Args, Clone)]
pub(crate) struct ClientWorker {
    library: Library,
    url: Uri,
    /// How many bytes each response must have
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    requests: u64,
    /// How many tasks make them, each one after another
    #[arg(long)]
    at_once: usize,
    /// How many threads run the tasks; one is tokio's current thread
    #[arg(long, default_value_t = 1)]
    workers: usize,
}

/// A client, to be shared by tasks.
#[derive(Clone)]
pub(super) enum Fetcher {
    Fullbore(Client),
    Connection(Arc<SendRequest>),
    Hyper(http2::SendRequest<Empty<Bytes>>),
    Reqwest(reqwest::Client),
}

impl ClientWorker {
    /// Prints the seconds.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let runtime = match self.workers {
            1 => Builder::new_current_thread().enable_all().build()?,
            workers => Builder::new_multi_thread()
                .worker_threads(workers)
                .enable_all()
                .build()?,
        };
        runtime.block_on(self.clone().load())
    }

    async fn load(self) -> Result<(), Failure> {
        let fetcher = self.fetcher().await?;
        let mut tasks = JoinSet::new();
        let left = Arc::new(AtomicU64::new(self.requests));
        let begun = Instant::now();
        for _ in 0..self.at_once {
            let (left, part, mut fetcher) = (Arc::clone(&left), self.clone(), fetcher.clone());
            tasks.spawn(async move {
                // Never below nothing: whoever finds none left has taken none.
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let bytes = fetcher.fetch(&part.url).await?;
                    if bytes != part.bytes {
                        return Err(Failure::from(format!("{bytes} bytes, not {}", part.bytes)));
                    }
                }
                Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        print_line(&begun.elapsed().as_secs_f64().to_string())
    }

    async fn fetcher(&self) -> Result<Fetcher, Failure> {
        Ok(match self.library {
            Library::Fullbore => {
                let builder = Client::builder().max_connections(1);
                Fetcher::Fullbore(builder.tls_config(tls::config()?).build()?)
            }
            Library::Reqwest => Fetcher::reqwest(WINDOW)?,
            Library::FullboreConnection | Library::Hyper => {
                let socket = TcpStream::connect(self.address()?).await?;
                socket.set_nodelay(true)?;
                match self.url.scheme_str() {
                    Some("https") => {
                        let connector = TlsConnector::from(tls::config()?);
                        let name = ServerName::try_from("localhost")?;
                        self.on(connector.connect(name, socket).await?).await?
                    }
                    _ => self.on(socket).await?,
                }
            }
        })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let authority = self.url.authority().ok_or("the URL names no server")?;
        Ok(authority.as_str().parse()?)
    }

    /// A handle of a connection, which runs as a task of its own.
    async fn on<T>(&self, io: T) -> Result<Fetcher, Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Library::Hyper = self.library {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW);
            let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
            tokio::spawn(connection);
            return Ok(Fetcher::Hyper(sender));
        }
        let (sender, connection) = handshake(io, Config::default());
        tokio::spawn(connection);
        Ok(Fetcher::Connection(Arc::new(sender)))
    }
}

impl Fetcher {
    /// reqwest over cleartext, with this window for each stream and for the connection.
    pub(super) fn reqwest(window: u32) -> Result<Self, Failure> {
        let builder = reqwest::Client::builder()
            .http2_prior_knowledge()
            .http2_initial_stream_window_size(window)
            .http2_initial_connection_window_size(window);
        Ok(Fetcher::Reqwest(builder.build()?))
    }

    /// Fetches the URL and returns the number of bytes that came.
    pub(super) async fn fetch(&mut self, url: &Uri) -> Result<u64, Failure> {
        let request = || Request::get(url.clone()).body(Empty::new());
        match self {
            Fetcher::Fullbore(client) => drain(client.request(request()?).await?.into_body()).await,
            Fetcher::Connection(sender) => drain(sender.send(request()?).await?.into_body()).await,
            Fetcher::Hyper(sender) => {
                sender.ready().await?;
                drain(sender.send_request(request()?).await?.into_body()).await
            }
            Fetcher::Reqwest(client) => {
                let request = reqwest::Request::try_from(Request::get(url.clone()).body("")?)?;
                let mut response = client.execute(request).await?;
                let mut bytes = 0;
                while let Some(chunk) = response.chunk().await? {
                    bytes += chunk.len() as u64;
                }
                Ok(bytes)
            }
        }
    }
}
