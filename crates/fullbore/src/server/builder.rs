//! The settings of a server, and their builder.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;

use super::admission::{ConnectionLimits, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS};
use super::peer::{Accepted, Ended, OnConnect, OnEnd};
use crate::error::Error;
use crate::settings::{Http2Options, HttpVersions, http2_options};

/// The limit on a TLS handshake, unless one is set.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The limit on a graceful shutdown, unless one is set.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a [`Server`](crate::Server), from [`Server::builder`](crate::Server::builder).
///
/// ```
/// # async fn run() -> Result<(), fullbore::Error> {
/// let server = fullbore::Server::builder()
///     .max_concurrent_streams(100)
///     .bind("127.0.0.1:0")
///     .await?;
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    pub(super) options: Http2Options,
    pub(super) versions: HttpVersions,
    pub(super) drain_timeout: Duration,
    pub(super) handshake_timeout: Duration,
    pub(super) peer_addresses: bool,
    pub(super) upload_addresses: bool,
    pub(super) on_connect: Option<OnConnect>,
    pub(super) on_end: Option<OnEnd>,
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "only Linux sends by reference")
    )]
    pub(super) sending_files: bool,
    max_connections: Option<usize>,
    max_total_streams: Option<u64>,
    limits: Option<ConnectionLimits>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ServerConfig>>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        ServerBuilder {
            options: Http2Options::default(),
            versions: HttpVersions::default(),
            drain_timeout: DRAIN_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            peer_addresses: false,
            upload_addresses: false,
            on_connect: None,
            on_end: None,
            sending_files: false,
            max_connections: None,
            max_total_streams: None,
            limits: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// Options of HTTP/2, which a [`ClientBuilder`](crate::ClientBuilder) has too.
impl ServerBuilder {
    http2_options!();
}

/// Options of a server.
impl ServerBuilder {
    /// Sets the versions of HTTP. Default: HTTP/2 and HTTP/1.1.
    pub fn http_versions(mut self, versions: HttpVersions) -> Self {
        self.versions = versions;
        self
    }

    /// Serves over TLS. The ALPN protocols of the configuration say which versions are offered: `h2` and `http/1.1`, as those
    /// of [`tls::server_config`](crate::tls::server_config). Those that [`Self::http_versions`] leaves out are removed.
    /// With `send_half_rtt_data` SETTINGS leave before the client has finished the handshake, as `server_config` explains. Do not
    /// set it for clients that have to show a certificate: SETTINGS then leave when they have, and the round trip seems longer.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: Arc<tokio_rustls::rustls::ServerConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Limits the connections of all clients. Default: 16,384. At the limit, a connection that is idle or makes the
    /// least progress is closed for a new one: see [`ConnectionLimits`].
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = Some(connections);
        self
    }

    /// Limits the open streams of all clients together; each takes some KiB. Default: 65,536, of which one address has
    /// at most half. A request beyond it is refused with REFUSED_STREAM: see [`ConnectionLimits`].
    pub fn max_total_streams(mut self, streams: u64) -> Self {
        self.max_total_streams = Some(streams);
        self
    }

    /// Shares limits with other servers, in place of [`Self::max_connections`] and [`Self::max_total_streams`].
    pub fn connection_limits(mut self, limits: ConnectionLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Limits the open streams of each client connection (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113 section 5.1.2).
    /// Default: 10,000.
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.options.config.set_max_concurrent_streams(streams);
        self
    }

    /// Limits the time for the TLS handshake, then for the client's first octets, and then for the SETTINGS of an HTTP/2 client.
    /// Default: 10 s each. SETTINGS of the server that leave within the handshake ([`Self::tls_config`]) begin the last one.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self.options.config.set_preface_timeout(timeout);
        self
    }

    /// Limits the time that a connection has no request. Then it is closed gracefully. Default: 180 s. `None` means no
    /// limit.
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.config.set_idle_timeout(timeout);
        self
    }

    /// Limits the time that a graceful shutdown waits for requests in progress. Then
    /// [`Server::serve`](crate::Server::serve) drops them and returns
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). Default: 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Adds the peer's address, as [`PeerAddr`](crate::server::PeerAddr), to the extensions of each request. Default:
    /// off, because it costs three allocations for each request.
    pub fn peer_addresses(mut self, wanted: bool) -> Self {
        self.peer_addresses = wanted;
        self
    }

    /// Adds the peer's address, as [`PeerAddr`](crate::server::PeerAddr), to the extensions of each request that has a
    /// body. Default: off.
    pub fn upload_addresses(mut self, wanted: bool) -> Self {
        self.upload_addresses = wanted;
        self
    }

    /// Calls `hook` once for each connection, after the TLS handshake. Each request of the connection then has in its
    /// extensions what the hook put there: clones, which cost some allocations for each request. Default: none.
    ///
    /// Handlers of other libraries find in the extensions what they look for, such as `tonic`'s `TcpConnectInfo`. For
    /// `axum::extract::ConnectInfo` see also [`Server::serve_make_service`](crate::Server::serve_make_service).
    ///
    /// ```
    /// use axum::extract::ConnectInfo;
    ///
    /// let builder = fullbore::Server::builder().on_connect(|connection, extensions| {
    ///     if let Some(peer) = connection.peer_addr() {
    ///         extensions.insert(ConnectInfo(peer));
    ///     }
    /// });
    /// ```
    pub fn on_connect(
        mut self,
        hook: impl Fn(&Accepted<'_>, &mut Extensions) + Send + Sync + 'static,
    ) -> Self {
        self.on_connect = Some(OnConnect(Arc::new(hook)));
        self
    }

    /// Calls `hook` once for each connection that was served, when it has ended, for statistics of a server. Default:
    /// none.
    ///
    /// ```
    /// let builder = fullbore::Server::builder().on_end(|connection| {
    ///     println!("{:?}: {} octets sent", connection.peer_addr, connection.sent_bytes);
    /// });
    /// ```
    pub fn on_end(mut self, hook: impl Fn(&Ended<'_>) + Send + Sync + 'static) -> Self {
        self.on_end = Some(OnEnd(Arc::new(hook)));
        self
    }

    /// Sends ranges of files ([`FileRange`](crate::body::FileRange)) by reference, without a copy: on Linux, over HTTP/2 on
    /// TCP without TLS. Default: off; the driver reads them just before it writes them.
    ///
    /// It takes a fifth to a half less processor time for files of 256 KiB and more. In return, a file must not change while
    /// it is sent: [`FileRange`](crate::body::FileRange) says what a client may receive of a file that does.
    pub fn sending_files(mut self, wanted: bool) -> Self {
        self.sending_files = wanted;
        self
    }

    /// Checks the settings and adds what follows from them. Returns the limits on connections.
    pub(super) fn finish(&mut self) -> Result<ConnectionLimits, Error> {
        self.options.finish()?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            self.options.config.set_record_size(crate::tls::RECORD);
            offer(tls, self.versions)?;
        }
        let limits = match (self.limits.take(), self.max_connections, self.max_total_streams) {
            (Some(limits), None, None) => limits,
            (Some(_), ..) => {
                let text = "set max_connections and max_total_streams in the shared ConnectionLimits, not beside them";
                return Err(Error::config(text));
            }
            (None, connections, streams) => ConnectionLimits::new(
                connections.unwrap_or(DEFAULT_MAX_CONNECTIONS),
                streams.unwrap_or(DEFAULT_MAX_TOTAL_STREAMS),
            ),
        };
        match limits.max_connections() {
            0 => Err(Error::config("max_connections is 0; use 1 or more")),
            _ => Ok(limits),
        }
    }
}

/// Removes the ALPN protocols of versions that are not served.
#[cfg(feature = "tls")]
fn offer(tls: &mut Arc<tokio_rustls::rustls::ServerConfig>, versions: HttpVersions) -> Result<(), Error> {
    let served = |protocol: &[u8]| match protocol {
        b"h2" => versions.has_http2(),
        b"http/1.1" => versions.has_http1(),
        _ => true,
    };
    if tls.alpn_protocols.iter().all(|protocol| served(protocol)) {
        return Ok(());
    }
    let tls = Arc::make_mut(tls);
    tls.alpn_protocols.retain(|protocol| served(protocol));
    match tls.alpn_protocols.is_empty() {
        true => Err(Error::config(
            "the ALPN protocols of the TLS configuration are all of versions that http_versions leaves out; add h2 or \
             http/1.1",
        )),
        false => Ok(()),
    }
}
