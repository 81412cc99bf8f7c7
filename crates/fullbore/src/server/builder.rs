//! The settings of a server, and their builder.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use super::admission::{ConnectionLimits, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS};
use crate::error::Error;
use crate::settings::{Http2Options, http2_options};

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
    pub(super) drain_timeout: Duration,
    pub(super) handshake_timeout: Duration,
    pub(super) peer_addresses: bool,
    pub(super) upload_addresses: bool,
    #[cfg_attr(
        not(all(target_os = "linux", feature = "sendfile")),
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
            drain_timeout: DRAIN_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            peer_addresses: false,
            upload_addresses: false,
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
    /// Serves over TLS. The ALPN protocols of the configuration have to contain `h2`, as those of
    /// [`tls::server_config`](crate::tls::server_config) do.
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

    /// Limits the open streams of each client connection. Default: 10,000.
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.options.config.max_concurrent_streams = streams;
        self
    }

    /// Limits the time for the TLS handshake, and then for the client's preface and SETTINGS. Default: 10 s each.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self.options.config.preface_timeout = timeout;
        self
    }

    /// Limits the time that a connection has no request. Then it is closed gracefully. Default: 180 s. `None` means no
    /// limit.
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.config.idle_timeout = timeout;
        self
    }

    /// Limits the time that a graceful shutdown waits for requests in progress. Default: 30 s.
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

    /// Sends long ranges of files ([`FileRange`](crate::FileRange)) by reference, without a copy: with the feature
    /// `sendfile`, over TCP without TLS, on Linux. Default: off; they are read just before they are written.
    ///
    /// It takes a little less processor time. In return, a file must not change while it is sent:
    /// [`FileRange`](crate::FileRange) says what a client may receive of a file that does.
    pub fn sending_files(mut self, wanted: bool) -> Self {
        self.sending_files = wanted;
        self
    }

    /// Checks the settings and adds what follows from them. Returns the limits on connections.
    pub(super) fn finish(&mut self) -> Result<ConnectionLimits, Error> {
        self.options.finish()?;
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            self.options.config.record_size = crate::tls::RECORD;
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
