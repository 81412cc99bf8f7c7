//! The server that is attacked, and somebody else who uses it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fullbore::rustls::pki_types::ServerName;
use fullbore::settings::{Limit, PeerLimit};
use fullbore::tls::{self, Roots};
use fullbore::{BoxError, Client, Config, Error, Incoming, Server, ServerBuilder};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::attacks::attacker::Attacker;
use crate::support::{Chunks, Produced, Reply, empty, full, service, soon};

/// A transport, cleartext or TLS.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// What the handlers of a server have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Handlers that were called.
    pub(crate) begun: AtomicUsize,
    /// Those that have not ended.
    pub(crate) running: AtomicUsize,
    /// Octets that long bodies have given.
    pub(crate) produced: Produced,
}

/// The server.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    tls: Option<Vec<u8>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
    bystander: Client,
}

/// Each limit so low that a test reaches it, and none that time refills: counts are exact.
pub(crate) const LIMIT: u32 = 50;

/// The default settings with all limits on events at [`LIMIT`].
pub(crate) fn limited() -> Config {
    let limit = Limit::new(LIMIT, 0);
    let mut config = Config::default();
    config.set_limit(PeerLimit::PeerResets, limit);
    config.set_limit(PeerLimit::RefusedStreams, limit);
    config.set_limit(PeerLimit::ProvokedResets, limit);
    config.set_limit(PeerLimit::EmptyData, limit);
    config.set_limit(PeerLimit::Pings, limit);
    config.set_limit(PeerLimit::Settings, limit);
    config.set_limit(PeerLimit::WindowUpdates, limit);
    config.set_limit(PeerLimit::Informational, limit);
    config.set_limit(PeerLimit::Priorities, limit);
    config
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
    match request.uri().path() {
        "/hang" => {
            let _running = running;
            std::future::pending().await
        }
        "/long" => {
            let body = Chunks::new(1 << 30, 1 << 10).counted(&seen.produced);
            Ok(Response::new(body.boxed_unsync()))
        }
        "/echo" => Ok(Response::new(
            request.into_body().map_err(BoxError::from).boxed_unsync(),
        )),
        "/cookie" => {
            let cookie = request.headers().get("cookie").map_or(0, http::HeaderValue::len);
            Ok(Response::new(full(cookie.to_string())))
        }
        "/none" => Ok(Response::new(empty())),
        _ => {
            // Bodies are read to their ends, as by a handler that wants them.
            let _ = request.into_body().collect().await;
            Ok(Response::new(full("hello")))
        }
    }
}

impl Site {
    pub(crate) async fn start(tls: bool, config: Config) -> Self {
        Self::start_with(tls, |server| server.config(|defaults| *defaults = config)).await
    }

    pub(crate) async fn start_with(tls: bool, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let mut server = change(Server::builder());
        let mut client = Client::builder();
        let mut certificate = None;
        if tls {
            let signed = tls::self_signed(&["localhost", "127.0.0.1"]).expect("a certificate");
            let (pem, key) = (signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
            let config = tls::server_config(pem, key).expect("a configuration");
            server = server.tls_config(Arc::new(config));
            let config = tls::client_config(Roots::Pem(pem.to_vec())).expect("a configuration");
            client = client.tls_config(Arc::new(config));
            certificate = Some(pem.to_vec());
        }
        let server = server.bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let service = {
            let seen = Arc::clone(&seen);
            service(move |request| answer(Arc::clone(&seen), request))
        };
        let server = server.graceful_shutdown(async {
            let _ = stopped.await;
        });
        let site = Site {
            address,
            seen,
            tls: certificate,
            stop: Some(stop),
            task: tokio::spawn(server.serve(service)),
            bystander: client.build().expect("a client"),
        };
        site.answers().await;
        site
    }

    /// Where a path is to be had.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// The client of somebody else.
    pub(crate) fn bystander(&self) -> &Client {
        &self.bystander
    }

    /// Somebody else gets answers.
    pub(crate) async fn answers(&self) {
        for _ in 0..3 {
            let response = soon(self.bystander.get(self.url("/"))).await.expect("an answer");
            let body: Bytes = soon(response.into_body().collect())
                .await
                .expect("a body")
                .to_bytes();
            assert_eq!(body, "hello");
        }
    }

    /// A raw connection, of which nothing is said yet.
    pub(crate) async fn transport(&self) -> Box<dyn Transport> {
        self.transport_from(Ipv4Addr::LOCALHOST.into()).await
    }

    /// One from this address.
    pub(crate) async fn transport_from(&self, address: IpAddr) -> Box<dyn Transport> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind((address, 0).into())
            .expect("an address of the loopback");
        let stream = socket.connect(self.address).await.expect("a connection");
        stream.set_nodelay(true).expect("small writes leave at once");
        match &self.tls {
            Some(certificate) => Box::new(over_tls(stream, certificate).await),
            None => Box::new(stream),
        }
    }

    /// A raw connection over TLS, of a server that has it.
    pub(crate) async fn sealed(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        over_tls(stream, self.tls.as_ref().expect("a server with TLS")).await
    }

    /// An attacker who has exchanged SETTINGS.
    pub(crate) async fn attacker(&self) -> Attacker {
        let mut attacker = Attacker::new(self.transport().await);
        attacker.greet(&[]).await;
        attacker
    }

    /// Asks for a graceful end.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// No handler is left, however it was attacked.
    pub(crate) async fn is_free(&self) {
        soon(async {
            while self.seen.running.load(Ordering::SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn over_tls(stream: TcpStream, certificate: &[u8]) -> TlsStream<TcpStream> {
    let config = tls::client_config(Roots::Pem(certificate.to_vec())).expect("a configuration");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.expect("a handshake")
}
