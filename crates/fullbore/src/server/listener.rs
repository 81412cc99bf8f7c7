//! A listening server: accept, TLS, one task a connection, and a graceful end.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fullbore_proto::{Config, ErrorCode, KeepAlive, MemoryBudget, Refill};
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::connection::{ServeConnection, serve_connection};
use super::shares::{DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS, Guest, Shares};
use crate::body::Incoming;
use crate::error::{BoxError, Error, ErrorKind};
use crate::file::Chunk;
use crate::settings::{Engine, TcpBuffers};

/// How long a TLS handshake may take unless told otherwise.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a graceful end waits for what is under way, unless told otherwise.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the server looks whether memory or streams are short.
const LOOK: Duration = Duration::from_secs(1);

/// How long a connection that gives way may take to say so.
const GIVE_WAY: Duration = Duration::from_millis(250);

/// How long accepting pauses when too many connections are about to give way.
const CROWDED_PAUSE: Duration = Duration::from_millis(5);

/// Why a connection without a request gives way, and one with requests.
const UNUSED: &str = "the server has as many connections as it may have, and this one was not used";
const SHORT: &str =
    "the server is short of connections, streams or memory, and this connection made the least progress";

/// How long accepting pauses when the system has no more descriptors or memory to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The address of the peer, in the extensions of every request of a [`Server`] that was [asked for
/// it](Server::peer_addresses).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

thread_local! {
    /// The peer whose request a service is being handed on this thread.
    static CALLER: Cell<Option<SocketAddr>> = const { Cell::new(None) };
}

impl PeerAddr {
    /// The peer whose request a [`Server`] is handing to a service on this thread: to be asked for within
    /// [`Service::call`], before that returns. Unlike [`Server::peer_addresses`] it costs a request nothing.
    pub fn current() -> Option<PeerAddr> {
        CALLER.get().map(PeerAddr)
    }
}

/// A server that listens on a TCP address.
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
pub struct Server {
    listener: TcpListener,
    engine: Engine,
    drain_timeout: Duration,
    peer_addresses: bool,
    sending_files: bool,
    max_connections: usize,
    max_total_streams: u64,
    shares: Option<Shares>,
    handshake_timeout: Duration,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    upload_addresses: bool,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
}

impl Server {
    /// Listens on an address; port 0 takes a free one, see [`Self::local_addr`].
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when that is not possible.
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| Error::io("cannot listen on that address", error))?;
        Ok(Self::from_listener(listener))
    }

    /// Listens on an address on which others that ask for it this way listen too (`SO_REUSEPORT`): the system gives each
    /// new connection to one of them. With one server and one current-thread runtime on each core nothing is shared
    /// between cores; few connections may meet on one of them while others have none. They should have one
    /// [`Self::memory_budget`] and one [`Self::shares`] together, or each has its own.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] when that is not possible; always on systems other than Linux, which do not share
    /// connections out.
    pub async fn bind_shared(address: SocketAddr) -> Result<Self, Error> {
        let listener = listen_shared(address);
        let listener = listener.map_err(|error| Error::io("cannot share that address", error))?;
        Ok(Self::from_listener(listener))
    }

    /// Listens on what the caller has bound.
    pub fn from_listener(listener: TcpListener) -> Self {
        Server {
            listener,
            engine: Engine::default(),
            drain_timeout: DRAIN_TIMEOUT,
            peer_addresses: false,
            sending_files: false,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_total_streams: DEFAULT_MAX_TOTAL_STREAMS,
            shares: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            shutdown: None,
            upload_addresses: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// All settings of the engine at once; what was set before is replaced.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.engine.config = config;
        self
    }

    /// The receive window of each stream in bytes, 1..=2^31-1: what an upload may have under way. Windows that are set do
    /// not follow the path ([`Config::adaptive`] is off). Unless set they open at 48 MiB, or less when the memory
    /// budget is short of room, and follow it.
    #[must_use]
    pub fn stream_window(mut self, bytes: u32) -> Self {
        self.engine.set_stream_window(bytes);
        self
    }

    /// The receive window of each connection in bytes, 65,535..=2^31-1, as it is from then on; see
    /// [`Self::stream_window`]. 64 MiB unless set.
    #[must_use]
    pub fn connection_window(mut self, bytes: u32) -> Self {
        self.engine.set_connection_window(bytes);
        self
    }

    /// The budget for the memory that windows promise, over all connections of this server and whatever else shares it:
    /// credit outstanding plus bytes buffered never pass it. 512 MiB of its own unless set.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.engine.config.budget = Some(budget);
        self
    }

    /// How many connections there may be at once, of all clients. 16,384 unless set. When all are taken a connection that is
    /// not used, or makes the least progress, ends by GOAWAY for a newcomer: see [`Shares`].
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// How many streams all clients together may have open at once; each takes some KiB. 65,536 unless set, of which one
    /// address has half at most: see [`Shares`]. A request beyond it is refused with REFUSED_STREAM.
    #[must_use]
    pub fn max_total_streams(mut self, streams: u64) -> Self {
        self.max_total_streams = streams;
        self
    }

    /// What bounds connections and streams of this server and of others together, in place of
    /// [`Self::max_connections`] and [`Self::max_total_streams`].
    #[must_use]
    pub fn shares(mut self, shares: Shares) -> Self {
        self.shares = Some(shares);
        self
    }

    /// The sizes of the kernel's buffers of each connection. The kernel's own choice unless set.
    #[must_use]
    pub fn tcp_buffers(mut self, buffers: TcpBuffers) -> Self {
        self.engine.tcp_buffers = buffers;
        self
    }

    /// When windows are refilled, for streams and for the connection apart. A quarter unless set, and
    /// a thirty-second of a fixed window that the path waits for.
    #[must_use]
    pub fn refill(mut self, stream: Refill, connection: Refill) -> Self {
        self.engine.set_refill(stream, connection);
        self
    }

    /// How many streams a client may have open at once. 10,000 unless set.
    #[must_use]
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.engine.config.max_concurrent_streams = streams;
        self
    }

    /// Serves over TLS. The configuration is to have `h2` among its ALPN protocols, as that of
    /// [`crate::tls::server_config`] has.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_config(mut self, config: Arc<tokio_rustls::rustls::ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Ends gracefully when `signal` does: no more connections are accepted, and each open one is told and drained.
    #[must_use]
    pub fn graceful_shutdown(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = Some(Box::pin(signal));
        self
    }

    /// How long a graceful end waits for what is under way before it drops the rest. 30 s unless set.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Whether each request has the peer's address, as [`PeerAddr`], among its extensions. Off unless set: it takes three
    /// allocations a request, which a service that has no use for it need not pay.
    #[must_use]
    pub fn peer_addresses(mut self, wanted: bool) -> Self {
        self.peer_addresses = wanted;
        self
    }

    /// Whether ranges of files ([`FileRange`](crate::FileRange)) go to the socket by reference, without a copy, when many
    /// octets leave at once: over TCP without TLS, on Linux. Off unless set: they are read just before they are written.
    ///
    /// It takes a little less processor time. In return a file must not change while it is sent: [`FileRange`](crate::FileRange)
    /// says what a client may receive of one that does.
    #[must_use]
    pub fn sending_files(mut self, wanted: bool) -> Self {
        self.sending_files = wanted;
        self
    }

    /// The same for requests with a body only, which costs nothing for others: for services that bound what one address
    /// may upload. Off unless set.
    #[must_use]
    pub fn upload_addresses(mut self, wanted: bool) -> Self {
        self.upload_addresses = wanted;
        self
    }

    /// How long a client may take for the TLS handshake, and then for its preface and SETTINGS. 10 s each unless set.
    #[must_use]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self.engine.config.preface_timeout = timeout;
        self
    }

    /// How long a client may keep a connection without a request, before it is ended gracefully; none for ever. 180 s
    /// unless set.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.idle_timeout = timeout;
        self
    }

    /// When a client that says nothing is asked by PING whether it is there; see [`KeepAlive`]. After 60 s with requests
    /// under way unless set.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.engine.config.keep_alive = keep_alive;
        self
    }

    /// How long a frame of a header block, or all of one, may take to arrive. 30 s unless set.
    #[must_use]
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.engine.config.header_timeout = timeout;
        self
    }

    /// How long the body of a request may come to a halt although its window is open, before the stream is reset; none
    /// for ever, which is so unless set, since a stream of messages may be silent for hours.
    #[must_use]
    pub fn body_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.body_timeout = timeout;
        self
    }

    /// How many bytes a second of a request's body have to arrive at least, as the mean over each
    /// [`Self::body_timeout`] in which its window was open, before the stream is reset. Time in which the handler does
    /// not read, so that the window is closed, does not count. 0, which is so unless set: one byte within the timeout is
    /// enough.
    #[must_use]
    pub fn body_rate(mut self, bytes_per_second: u32) -> Self {
        self.engine.config.body_rate = bytes_per_second;
        self
    }

    /// How long a client may take for each KiB of a response, by keeping windows closed or by not reading, before the
    /// stream or the connection ends; none for ever. 300 s unless set.
    #[must_use]
    pub fn send_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.send_timeout = timeout;
        self
    }

    /// Serves until the graceful end, or for ever.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a setting is not possible, [`ErrorKind::Timeout`] when the graceful end took longer
    /// than its limit. A connection's own errors are its own.
    pub async fn serve<S, B>(mut self, service: S) -> Result<(), Error>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Into<Chunk> + Send,
        B::Error: Into<BoxError>,
    {
        self.engine.finish()?;
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.engine.config.record_size = crate::tls::RECORD;
        }
        let config = Arc::new(self.engine.config.clone());
        let own = || Shares::new(self.max_connections, self.max_total_streams);
        let shares = self.shares.take().unwrap_or_else(own);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let tracker = TaskTracker::new();
        let (stop, stopped) = watch::channel(false);
        let mut signal = self
            .shutdown
            .take()
            .unwrap_or_else(|| Box::pin(std::future::pending()));
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut signal => break,
                _ = look.tick(), if shares.connections() > 0 => {
                    shares.relieve(&config);
                    continue;
                }
                () = tokio::time::sleep(CROWDED_PAUSE), if shares.is_crowded() => continue,
                accepted = self.listener.accept(), if !shares.is_crowded() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let service = WithPeer {
                        service: service.clone(),
                        address: peer,
                        peer: self.peer_addresses.then_some(PeerAddr(peer)),
                        uploader: self.upload_addresses.then_some(PeerAddr(peer)),
                    };
                    if let Some(guest) = shares.admit(peer.ip(), &config) {
                        self.start(&tracker, stream, service, guest, stopped.clone());
                    }
                }
                // The peer is gone already, or the system is short of something: the others go on.
                Err(error) if is_connection_error(&error) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(self.listener);
        stop.send_replace(true);
        tracker.close();
        tokio::time::timeout(self.drain_timeout, tracker.wait())
            .await
            .map_err(|_| {
                let text = "the graceful end took longer than its limit; what was still under way is dropped";
                Error::new(ErrorKind::Timeout, text)
            })
    }

    /// Starts the task of one connection. The connection lies in a box of its own, so that the task has no room for it
    /// twice.
    fn start<S, B>(
        &self,
        tracker: &TaskTracker,
        stream: TcpStream,
        service: S,
        guest: Guest,
        stopped: watch::Receiver<bool>,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: Body + Send + 'static,
        B::Data: Into<Chunk> + Send,
        B::Error: Into<BoxError>,
    {
        self.engine.tcp_buffers.apply(&stream);
        let config = guest.config();
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls.clone() {
            let handshake = Box::pin(tokio_rustls::TlsAcceptor::from(tls).accept(stream));
            let handshake = tokio::time::timeout(self.handshake_timeout, handshake);
            tracker.spawn(async move {
                // There is nobody to tell of a handshake that failed: the peer has its alert, or is gone.
                let shaken = tokio::select! {
                    shaken = handshake => shaken,
                    () = poll_fn(|cx| guest.poll_told(cx)) => return,
                };
                if let Ok(Ok(mut stream)) = shaken {
                    stream.get_mut().1.set_buffer_limit(Some(crate::tls::SEALED));
                    let connection = serve_connection(stream, service, config).leaving_sealed();
                    run(Box::pin(connection), guest, stopped).await;
                }
            });
            return;
        }
        let connection = serve_connection(stream, service, config);
        #[cfg(target_os = "linux")]
        let connection = match self.sending_files {
            true => connection.sending_files(),
            false => connection,
        };
        tracker.spawn(run(Box::pin(connection), guest, stopped));
    }
}

#[cfg(target_os = "linux")]
fn listen_shared(address: SocketAddr) -> std::io::Result<TcpListener> {
    use tokio::net::TcpSocket;

    /// As tokio's own listeners.
    const BACKLOG: u32 = 1_024;

    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(not(target_os = "linux"))]
fn listen_shared(_: SocketAddr) -> std::io::Result<TcpListener> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Why a connection is not simply served any more.
enum Turn {
    Ended,
    /// It gives way to others.
    GivesWay,
    /// What was waited for beside it has come.
    Other,
}

/// Serves one connection until it ends, telling it when the server stops, and when it is to give way.
async fn run<T, S, B>(
    mut connection: Pin<Box<ServeConnection<T, S>>>,
    mut guest: Guest,
    mut stopped: watch::Receiver<bool>,
) where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    let stop = async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let mut turn = serve_beside(&mut connection, &mut guest, stop).await;
    if let Turn::Other = turn {
        connection.graceful_shutdown();
        // The other end of the channel goes when the time to drain is over, or with the server itself.
        turn = serve_beside(&mut connection, &mut guest, gone(&mut stopped)).await;
    }
    if let Turn::GivesWay = turn {
        match guest.is_idle() {
            true => connection.give_way(ErrorCode::NO_ERROR, UNUSED),
            false => connection.give_way(ErrorCode::ENHANCE_YOUR_CALM, SHORT),
        }
        let _ = tokio::time::timeout(GIVE_WAY, &mut connection).await;
    }
    // Its place is free once all that it holds is.
    drop(connection);
    drop(guest);
}

/// Serves a connection until it ends, has to give way, or `other` is ready.
async fn serve_beside<T, S, B>(
    connection: &mut Pin<Box<ServeConnection<T, S>>>,
    guest: &mut Guest,
    other: impl Future<Output = ()>,
) -> Turn
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    let mut other = pin!(other);
    poll_fn(|cx| {
        let polled = connection.as_mut().poll(cx);
        connection.stand(guest);
        if polled.is_ready() {
            return Poll::Ready(Turn::Ended);
        }
        if guest.poll_told(cx).is_ready() {
            return Poll::Ready(Turn::GivesWay);
        }
        other.as_mut().poll(cx).map(|()| Turn::Other)
    })
    .await
}

/// Waits until the server is gone.
async fn gone(stopped: &mut watch::Receiver<bool>) {
    while stopped.changed().await.is_ok() {}
}

/// An error of one connection that was being accepted, not of the listener.
fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}

/// A service that is told the peer's address.
#[derive(Clone)]
struct WithPeer<S> {
    service: S,
    address: SocketAddr,
    /// For every request.
    peer: Option<PeerAddr>,
    /// For those with a body.
    uploader: Option<PeerAddr>,
}

impl<S> Service<Request<Incoming>> for WithPeer<S>
where
    S: Service<Request<Incoming>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        let uploader = self.uploader.filter(|_| !request.body().is_end_stream());
        if let Some(peer) = self.peer.or(uploader) {
            request.extensions_mut().insert(peer);
        }
        CALLER.set(Some(self.address));
        let answer = self.service.call(request);
        CALLER.set(None);
        answer
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("listener", &self.listener)
            .field("config", &self.engine.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_has_the_limits_that_are_stated_unless_told_otherwise() {
        let server = Server::bind("127.0.0.1:0").await.expect("a port");
        assert_eq!(server.max_connections, 16_384);
        assert_eq!(server.max_total_streams, 65_536);
        assert_eq!(server.drain_timeout, Duration::from_secs(30));
        assert!(!server.peer_addresses && !server.upload_addresses && !server.sending_files);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_shared_address_can_be_listened_on_again_at_once() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind_shared(any).await.expect("a port");
        let address = server.local_addr().expect("an address");
        assert_eq!(address.ip(), any.ip());
        let beside = Server::bind_shared(address).await.expect("the same port");
        assert_eq!(beside.local_addr().expect("an address"), address);
        let socket = socket2::SockRef::from(&server.listener);
        assert!(socket.reuse_address().expect("the option"));
        assert!(socket.reuse_port().expect("the option"));
    }
}
