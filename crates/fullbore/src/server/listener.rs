//! A listening server: accept, TLS, one task for each connection, and graceful shutdown.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fullbore_proto::Config;
use futures_util::future::BoxFuture;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs};
#[cfg(feature = "tls")]
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::accept::{Listener, tcp_listener, waits_for_sockets};
use super::admission::{Admission, ConnectionLimits, Permit};
use super::auto::Prepare;
use super::builder::ServerBuilder;
#[cfg(feature = "tls")]
use super::handshakes::{InTurn, handshake};
use super::http_service::HttpService;
use super::memory::most_memory;
use super::peer::{Accepted, Added, OnConnect, WithPeer};
use super::serving::serve;
use crate::alarm::{Alarm, Alarms};
use crate::error::{BoxError, Error};
#[cfg(feature = "tls")]
use crate::linger::Linger;
#[cfg(feature = "tls")]
use crate::settings::HttpVersions;
use crate::settings::keep_alive;
#[cfg(feature = "tls")]
use crate::tls::BelowTls;

/// How often the server checks whether memory or streams are scarce.
const SCARCITY_CHECK: Duration = Duration::from_secs(1);

/// How long accepting pauses while too many evicted connections are closing.
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// How long accepting pauses when the system has no file descriptors or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The address that stands for all peers without one of IP: nobody connects over TCP from it.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A server that listens on a TCP address, or on any other [`Listener`], and speaks HTTP/2 and HTTP/1.1. It serves any
/// [`tower_service::Service`], such as an `axum::Router`.
///
/// ```no_run
/// # async fn run() -> Result<(), fullbore::Error> {
/// use axum::routing::get;
///
/// let app = axum::Router::new().route("/", get(|| async { "hello" }));
/// let server = fullbore::Server::bind("127.0.0.1:0").await?;
/// println!("listening on http://{}", server.local_addr().unwrap());
/// server.serve(app).await
/// # }
/// ```
#[must_use = "a server does nothing until `serve` is called"]
pub struct Server<L = TcpListener> {
    listener: L,
    settings: ServerBuilder,
    limits: ConnectionLimits,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ServerBuilder {
    /// Listens on an address. Port 0 takes a free port, which [`Server::local_addr`] tells.
    ///
    /// # Errors
    /// [`ErrorKind::Bind`](crate::ErrorKind::Bind) when the address cannot be bound, and as [`Self::build`].
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<Server, Error> {
        self.build(listen(address).await?)
    }

    /// Listens on an address together with other servers (`SO_REUSEPORT`, Linux). The kernel gives each new
    /// connection to one of them. With one server and one current-thread runtime for each core, the cores share
    /// nothing, but a small number of connections may be spread unevenly. Give the same [`Self::memory_budget`] and
    /// [`Self::connection_limits`] to all of them. Otherwise each server has its own.
    ///
    /// # Errors
    /// [`ErrorKind::Bind`](crate::ErrorKind::Bind) when the address cannot be bound, and always on systems other than
    /// Linux, which do not spread connections. Also as [`Self::build`].
    pub async fn bind_shared(self, address: SocketAddr) -> Result<Server, Error> {
        self.build(listen_shared(address).map_err(|error| Error::bind_to(address, error))?)
    }

    /// Checks the settings and makes a server of a listener: a [`TcpListener`], a `tokio::net::UnixListener`, or any
    /// other [`Listener`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when a setting is out of range or contradicts another.
    pub fn build<L: Listener>(mut self, listener: L) -> Result<Server<L>, Error> {
        let limits = self.finish()?;
        if let (Some(control), Some(listener)) = (&self.options.congestion_control, tcp_listener(&listener)) {
            control.apply(&SockRef::from(listener)).map_err(Error::bind)?;
        }
        Ok(Server {
            listener,
            limits,
            settings: self,
            shutdown: None,
        })
    }
}

impl Server {
    /// Returns a builder, which has all settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Listens on an address with the default settings: short for `Server::builder().bind(address)`.
    ///
    /// # Errors
    /// [`ErrorKind::Bind`](crate::ErrorKind::Bind) when the address cannot be bound.
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self, Error> {
        Self::builder().bind(address).await
    }
}

impl<L: Listener> Server<L> {
    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// When the system does not tell it.
    pub fn local_addr(&self) -> std::io::Result<L::Address> {
        self.listener.local_addr()
    }

    /// Returns the most memory that the server takes, in bytes, whatever its clients do: the sum of its limits. Servers that
    /// share [limits](ServerBuilder::connection_limits) and a [budget](ServerBuilder::memory_budget) share it too.
    ///
    /// Not in it: what handlers keep, chunks of bodies longer than 64 KiB, read buffers of connections whose client is fast (up to
    /// 256 KiB each), the kernel's buffers, and WebSockets over HTTP/2.
    ///
    /// ```
    /// # async fn run() -> Result<(), fullbore::Error> {
    /// let server = fullbore::Server::builder().max_connections(500).max_total_streams(2_000);
    /// let server = server.bind("127.0.0.1:0").await?;
    /// assert!(server.most_memory() < 1 << 30);
    /// # Ok(()) }
    /// ```
    pub fn most_memory(&self) -> u64 {
        most_memory(&self.settings.options.config, &self.limits)
    }

    /// Shuts down gracefully when `signal` completes. The server accepts no more connections, closes idle ones (over HTTP/2 by
    /// GOAWAY), and serves the requests in progress for up to [`ServerBuilder::drain_timeout`]. A peer that has not finished its TLS
    /// handshake, or the head of its first request, has [`Config::shutdown_grace`](crate::Config::shutdown_grace) for it.
    pub fn graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = Some(Box::pin(signal));
        self
    }

    /// Serves until the graceful shutdown is over. Without one it never returns. Errors of a connection end only that
    /// connection.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when requests were still in progress after
    /// [`ServerBuilder::drain_timeout`].
    pub async fn serve<S>(self, service: S) -> Result<(), Error>
    where
        S: HttpService,
    {
        self.serve_made(move |_| Made::Ready(service.clone())).await
    }

    /// As [`Self::serve`], with a service for each connection, which `make` makes of the peer's address. An error of
    /// `make` closes the connection.
    ///
    /// This gives `axum::extract::ConnectInfo` to the handlers of an `axum::Router`:
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), fullbore::Error> {
    /// use std::net::SocketAddr;
    ///
    /// use axum::extract::ConnectInfo;
    /// use axum::routing::get;
    ///
    /// let hello = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { format!("hello {peer}") };
    /// let app = axum::Router::new().route("/", get(hello));
    /// let server = fullbore::Server::bind("127.0.0.1:0").await?;
    /// server.serve_make_service(app.into_make_service_with_connect_info::<SocketAddr>()).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_make_service<M, S>(self, make: M) -> Result<(), Error>
    where
        M: Service<L::Address, Response = S> + Clone + Send + 'static,
        M::Error: Into<BoxError>,
        M::Future: Send,
        S: HttpService,
    {
        self.serve_made(move |address: &L::Address| {
            let (mut make, address) = (make.clone(), address.clone());
            Made::Later(Box::pin(async move {
                poll_fn(|cx| make.poll_ready(cx)).await.map_err(Into::into)?;
                make.call(address).await.map_err(Into::into)
            }))
        })
        .await
    }

    async fn serve_made<S>(mut self, make: impl Fn(&L::Address) -> Made<S>) -> Result<(), Error>
    where
        S: HttpService,
    {
        let config = Arc::new(self.settings.options.config.clone());
        let limits = self.limits.clone();
        let alarms = waits_for_sockets(&self.listener).then(Alarms::start).flatten();
        let mut check = Alarm::after(SCARCITY_CHECK, alarms.as_ref());
        let tracker = TaskTracker::new();
        let admission = Admission::new(limits.clone(), Arc::clone(&config));
        let mut signal = self
            .shutdown
            .take()
            .unwrap_or_else(|| Box::pin(std::future::pending()));
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut signal => break,
                () = poll_fn(|cx| check.poll(cx)), if limits.connections() > 0 => {
                    limits.evict_stalled(&config);
                    check = Alarm::after(SCARCITY_CHECK, alarms.as_ref());
                    continue;
                }
                () = tokio::time::sleep(CLOSING_PAUSE), if limits.has_many_closing() => continue,
                accepted = poll_fn(|cx| self.listener.poll_accept(cx)), if !limits.has_many_closing() => accepted,
            };
            match accepted {
                Ok((io, address)) => {
                    let peer = L::peer(&address);
                    let group = peer.map_or(NO_ADDRESS, |peer| peer.ip());
                    if let Some(permit) = admission.admit(group) {
                        let arrival = self.arrival(&io, peer, make(&address));
                        self.start(&tracker, io, arrival, permit, alarms.clone());
                    }
                }
                // The peer has gone already, or the system lacks a resource: other connections continue.
                Err(error) if is_connection_error(&error) => {}
                Err(_) => tokio::select! {
                    () = &mut signal => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                },
            }
        }
        drop(self.listener);
        admission.shut_down();
        tracker.close();
        let limit = self.settings.drain_timeout;
        match tokio::time::timeout(limit, tracker.wait()).await {
            Err(_) if admission.has_requests() => Err(Error::timeout(
                "requests were still in progress at the end of the graceful shutdown",
                limit,
            )),
            // Connections without a request are no reason to report anything.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// What is known of a connection before it is served.
    fn arrival<S>(&self, io: &L::Io, peer: Option<SocketAddr>, made: Made<S>) -> Arrival<S> {
        let settings = &self.settings;
        let hook = settings.on_connect.clone();
        Arrival {
            made,
            added: Added {
                address: peer,
                to_all: settings.peer_addresses,
                to_uploads: settings.upload_addresses,
                extensions: None,
            },
            local: L::tcp(io)
                .filter(|_| hook.is_some())
                .and_then(|stream| stream.local_addr().ok()),
            hook,
        }
    }

    /// Starts the task of one connection. The connection has a box of its own: otherwise the task reserves memory for
    /// it twice.
    fn start<S>(
        &self,
        tracker: &TaskTracker,
        io: L::Io,
        mut arrival: Arrival<S>,
        permit: Permit,
        alarms: Option<Alarms>,
    ) where
        S: HttpService,
    {
        if let Some(stream) = L::tcp(&io) {
            self.settings.options.tcp_buffers.apply(stream);
            // A listener of tokio's has passed it on.
            if let (Some(control), None) = (
                &self.settings.options.congestion_control,
                tcp_listener(&self.listener),
            ) {
                let _ = control.apply(&SockRef::from(stream));
            }
        }
        let unsent = self.settings.options.tcp_buffers.adaptive_unsent();
        let versions = self.settings.versions;
        let hook = self.settings.on_end.clone();
        let end = hook.map(|hook| Box::new((hook, arrival.added.address)));
        #[cfg(feature = "tls")]
        if let Some(tls) = self.settings.tls.clone() {
            let handshake = InTurn::new(handshake(BelowTls(io), tls, permit.config()));
            let handshake = tokio::time::timeout(self.settings.handshake_timeout, handshake);
            let arriving = Box::pin(async move {
                let finished = handshake.await;
                #[cfg(feature = "tracing")]
                super::trace::handshake(arrival.added.address, &finished);
                let (stream, begun) = match finished.ok()? {
                    Ok(accepted) => accepted,
                    Err((_, io)) => {
                        // Our alert says what was wrong. A socket that is closed with unread bytes resets the connection, and
                        // the peer may see that first.
                        let mut io = io?;
                        let mut linger = Linger::new();
                        poll_fn(|cx| linger.poll(&mut io, None, cx)).await;
                        return None;
                    }
                };
                arrival.describe(&stream.get_ref().0.0, Some(stream.get_ref().1));
                Some((stream, begun, arrival.service().await?))
            });
            tracker.spawn(async move {
                let arrived = tokio::select! {
                    arrived = arriving => arrived,
                    () = permit.given_up() => return,
                };
                if let Some((mut stream, begun, service)) = arrived {
                    let tls = stream.get_mut().1;
                    tls.set_buffer_limit(Some(crate::tls::SEALED));
                    let versions = negotiated(tls.alpn_protocol(), versions);
                    let prepare = Prepare {
                        http2: |connection| connection.leaving_sealed(),
                        http1: |stream: &TlsStream<BelowTls<L::Io>>, config| {
                            probe::<L>(&stream.get_ref().0.0, config)
                        },
                        tcp: |stream: &TlsStream<BelowTls<L::Io>>| L::tcp(&stream.get_ref().0.0),
                        unsent,
                        alarms,
                        begun,
                    };
                    serve(stream, service, versions, prepare, permit, end).await;
                }
            });
            return;
        }
        let prepare: Prepare<L::Io, WithPeer<S>> = Prepare {
            #[cfg(target_os = "linux")]
            http2: match self.settings.sending_files {
                true => |connection| connection.sending_files_over_tcp(),
                false => |connection| connection,
            },
            #[cfg(not(target_os = "linux"))]
            http2: |connection| connection,
            http1: |io, config| probe::<L>(io, config),
            tcp: L::tcp,
            unsent,
            alarms,
            begun: None,
        };
        #[cfg(feature = "tls")]
        arrival.describe(&io, None);
        #[cfg(not(feature = "tls"))]
        arrival.describe(&io);
        if let Made::Ready(service) = arrival.made {
            let added = arrival.added;
            tracker.spawn(serve(
                io,
                WithPeer { service, added },
                versions,
                prepare,
                permit,
                end,
            ));
            return;
        }
        tracker.spawn(async move {
            let service = tokio::select! {
                service = arrival.service() => service,
                () = permit.given_up() => return,
            };
            if let Some(service) = service {
                serve(io, service, versions, prepare, permit, end).await;
            }
        });
    }
}

/// Has the kernel probe a silent peer, if it has one.
fn probe<L: Listener>(io: &L::Io, config: &Config) {
    if let Some(stream) = L::tcp(io) {
        keep_alive(stream, config);
    }
}

/// The service of a connection.
enum Made<S> {
    /// The one of all connections.
    Ready(S),
    /// Of its own.
    Later(BoxFuture<'static, Result<S, BoxError>>),
}

/// A connection that was accepted and is not served yet.
struct Arrival<S> {
    made: Made<S>,
    added: Added,
    hook: Option<OnConnect>,
    /// For the hook.
    local: Option<SocketAddr>,
}

impl<S> Arrival<S> {
    /// Calls the hook.
    fn describe(
        &mut self,
        io: &dyn Any,
        #[cfg(feature = "tls")] tls: Option<&tokio_rustls::rustls::ServerConnection>,
    ) {
        if let Some(hook) = self.hook.take() {
            self.added.extensions = hook.extensions(&Accepted {
                peer: self.added.address,
                local: self.local,
                io,
                #[cfg(feature = "tls")]
                tls,
            });
        }
    }

    /// The service of the connection, unless it cannot be made.
    async fn service(self) -> Option<WithPeer<S>> {
        let service = match self.made {
            Made::Ready(service) => service,
            Made::Later(made) => made.await.ok()?,
        };
        Some(WithPeer {
            service,
            added: self.added,
        })
    }
}

/// The version that the TLS handshake has chosen. Without ALPN the first octets decide.
#[cfg(feature = "tls")]
fn negotiated(protocol: Option<&[u8]>, versions: HttpVersions) -> HttpVersions {
    match protocol {
        Some(b"h2") => HttpVersions::Http2,
        Some(b"http/1.1") => HttpVersions::Http1,
        _ => versions,
    }
}

/// How many connections may wait to be accepted; the system may allow fewer (`net.core.somaxconn`). tokio's own listeners
/// have 1,024, and a SYN beyond it is sent again after a second at the earliest: of 8,000 clients that connected at once, 4,109
/// were connected after 2 s.
const BACKLOG: u32 = 4_096;

/// Listens on the first of the addresses that can be bound.
async fn listen(addresses: impl ToSocketAddrs) -> Result<TcpListener, Error> {
    let mut failed = None;
    for address in tokio::net::lookup_host(addresses).await.map_err(Error::bind)? {
        match listen_on(address, false) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(Error::bind_to(address, error)),
        }
    }
    Err(failed.unwrap_or_else(|| Error::bind(std::io::ErrorKind::InvalidInput.into())))
}

fn listen_on(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Elsewhere it would let another program take the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuseport(shared)?;
    #[cfg(not(target_os = "linux"))]
    let _ = shared;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(target_os = "linux")]
fn listen_shared(address: SocketAddr) -> std::io::Result<TcpListener> {
    listen_on(address, true)
}

#[cfg(not(target_os = "linux"))]
fn listen_shared(_: SocketAddr) -> std::io::Result<TcpListener> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Whether an error of accept concerns one connection rather than the listener.
fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

impl<L: fmt::Debug> fmt::Debug for Server<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listener", &self.listener)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_has_the_stated_defaults() {
        let server = Server::bind("127.0.0.1:0").await.expect("a port");
        assert_eq!(server.limits.max_connections(), 16_384);
        assert_eq!(server.limits.streams().limit(), 65_536);
        assert_eq!(server.most_memory() >> 20, 11_682, "docs/guide/memory.md");
        let settings = &server.settings;
        assert_eq!(settings.drain_timeout, Duration::from_secs(30));
        assert!(!settings.peer_addresses && !settings.upload_addresses && !settings.sending_files);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn connections_have_the_congestion_control_of_the_server_when_they_are_accepted() {
        let another = crate::congestion::another();
        let server = Server::builder().congestion_control(&another);
        let server = server.bind("127.0.0.1:0").await.expect("a port");
        let _peer = std::net::TcpStream::connect(server.local_addr().expect("an address"));
        let (accepted, _) = server.listener.accept().await.expect("a connection");
        assert_eq!(crate::congestion::of(&SockRef::from(&accepted)), another);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_shared_address_can_be_listened_on_again_at_once() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::builder().bind_shared(any).await.expect("a port");
        let address = server.local_addr().expect("an address");
        assert_eq!(address.ip(), any.ip());
        let second = Server::builder()
            .bind_shared(address)
            .await
            .expect("the same port");
        assert_eq!(second.local_addr().expect("an address"), address);
        let socket = socket2::SockRef::from(&server.listener);
        assert!(socket.reuse_address().expect("the option"));
        assert!(socket.reuse_port().expect("the option"));
    }
}
