//! The settings of a pooled client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fullbore_proto::{Config, KeepAlive, MemoryBudget, Refill};

use super::origin::Settings;
use super::{Client, Inner};
use crate::client::connect::Connector;
use crate::error::Error;
use crate::settings::{Engine, TcpBuffers};

/// How long connecting may take unless told otherwise: name, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// How many connections an origin may have unless told otherwise. Of 10,000 files of 10 KB over 100 ms, from a server that
/// allows 100 streams, eight make 6.2 times the speed of one, and six only 5.0.
const MAX_CONNECTIONS: u32 = 8;

/// After how long a silence a server with streams under way is asked by PING unless told otherwise.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How often a request is sent again that the peer has not processed, unless told otherwise.
const MAX_REPEATS: u32 = 3;

/// How long to wait before the first repeat unless told otherwise.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// How long further connections are kept unless told otherwise.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    engine: Engine,
    connect_timeout: Duration,
    max_connections: u32,
    idle_timeout: Duration,
    max_repeats: u32,
    repeat_pause: Duration,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            engine: Engine::default(),
            connect_timeout: CONNECT_TIMEOUT,
            max_connections: MAX_CONNECTIONS,
            idle_timeout: IDLE_TIMEOUT,
            max_repeats: MAX_REPEATS,
            repeat_pause: REPEAT_PAUSE,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ClientBuilder {
    /// All settings of the engine at once; what was set before is replaced.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.engine.config = config;
        self
    }

    /// The receive window of each stream in bytes, 1..=2^31-1, as it is from then on: windows that are
    /// set do not follow the path ([`Config::adaptive`] is off). Unless set they open at 48 MiB, or less when the memory
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

    /// The budget for the memory that windows promise, over all connections of this client and whatever else shares it:
    /// credit outstanding plus bytes buffered never pass it. 512 MiB of its own unless set.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.engine.config.budget = Some(budget);
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

    /// The configuration of TLS. Unless set, certificates are verified as the platform does it.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_config(mut self, config: Arc<tokio_rustls::rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// How long connecting may take: name, TCP and TLS together. 30 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many connections each origin may have that take requests; 0 counts as 1. 8 unless set.
    ///
    /// There is one, until requests wait because the peer allows no more streams at once (RFC 9113 section 5.1.2) and
    /// the round trip, 5 ms or more, is what their streams take: 100 streams of 10 KB over 100 ms are 10 MB/s, whatever
    /// the windows allow. A connection that the peer is ending, with requests still under way, is not counted.
    ///
    /// ```
    /// # fn run() -> Result<(), fullbore::Error> {
    /// let client = fullbore::Client::builder().max_connections(1).build()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// When a server that says nothing is asked by PING whether it is there; see [`KeepAlive`]. Unless set, after 60 s
    /// of silence while streams are open; a server that does not answer within [`Config::keep_alive_timeout`] (60 s) is
    /// gone, and its requests fail with [`crate::ErrorKind::Timeout`]. [`KeepAlive::Never`] turns it off.
    #[must_use]
    pub fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.engine.config.keep_alive = keep_alive;
        self
    }

    /// How long the body of a response may come to a halt although its window is open, before it fails with
    /// [`crate::ErrorKind::Timeout`]; none for ever, which is so unless set.
    #[must_use]
    pub fn body_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.body_timeout = timeout;
        self
    }

    /// How long a server may take for the head of its response once the whole request has left, before the request
    /// fails with [`crate::ErrorKind::Timeout`]. It acts up to a quarter later. None, which is the default, waits for
    /// ever: a long poll is silent for minutes.
    ///
    /// ```
    /// # fn run() -> Result<(), fullbore::Error> {
    /// use std::time::Duration;
    ///
    /// let client = fullbore::Client::builder()
    ///     .response_timeout(Some(Duration::from_secs(60)))
    ///     .body_timeout(Some(Duration::from_secs(60)))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn response_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.response_timeout = timeout;
        self
    }

    /// How long requests wait for a stream while the peer allows none and none of the origin is under way, before they
    /// fail with [`crate::ErrorKind::Timeout`]; none for ever. 30 s unless set. It counts over all repeats of a request
    /// and the pauses between them, and begins anew when the origin answers a request. It acts up to a sixteenth
    /// later, or when the pause is over that a request is in.
    /// Requests that wait behind others have no limit of their own: those in front have theirs.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.engine.config.stream_wait_timeout = timeout;
        self
    }

    /// How often a request is sent again that the peer has proven not to have processed (RFC 9113 section 8.7), and how
    /// often in a row an origin may refuse before the requests that wait for it fail. 3 unless set.
    #[must_use]
    pub fn max_repeats(mut self, repeats: u32) -> Self {
        self.max_repeats = repeats;
        self
    }

    /// How long to wait before the first repeat of a refused request: half of this to all of it, at random, and twice as
    /// much each further time, up to 10 s. 100 ms unless set.
    #[must_use]
    pub fn repeat_pause(mut self, pause: Duration) -> Self {
        self.repeat_pause = pause;
        self
    }

    /// Connections that were not needed for this long, beyond the first to an origin, are closed. 30 s unless set.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// The client.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] when a window that was set is out of range.
    pub fn build(mut self) -> Result<Client, Error> {
        self.engine.finish()?;
        if self.engine.config.keep_alive == KeepAlive::ByRole {
            self.engine.config.keep_alive = KeepAlive::WithStreams(KEEP_ALIVE);
        }
        let queue_timeout = self.engine.config.stream_wait_timeout;
        let connector = Connector {
            config: Arc::new(self.engine.config),
            tcp_buffers: self.engine.tcp_buffers,
            #[cfg(feature = "tls")]
            tls: self.tls,
            #[cfg(test)]
            dial: None,
        };
        Ok(Client {
            inner: Arc::new(Inner::new(Settings {
                connector,
                connect_timeout: self.connect_timeout,
                max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
                idle_timeout: self.idle_timeout,
                queue_timeout,
                max_repeats: self.max_repeats,
                repeat_pause: self.repeat_pause,
            })),
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("config", &self.engine.config)
            .field("connect_timeout", &self.connect_timeout)
            .field("max_connections", &self.max_connections)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_repeats", &self.max_repeats)
            .field("repeat_pause", &self.repeat_pause)
            .finish_non_exhaustive()
    }
}
