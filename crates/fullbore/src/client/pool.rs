//! The pooled client: one connection an origin, opened when it is first needed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, DEFAULT_WINDOW, MemoryBudget, Refill, Report};
use http::{Request, Response, Uri};
use http_body::Body;

use super::connect::{Connector, Origin};
use super::connection::SendRequest;
use crate::body::Incoming;
use crate::error::{BoxError, Error, ErrorKind};
use crate::settings::{TcpBuffers, with_budget};

/// How long connecting may take unless told otherwise: name, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes URLs and keeps one connection to each origin, on which requests run in parallel.
///
/// Cheap to clone; clones share the pool. `https://` negotiates `h2` by ALPN, `http://` speaks HTTP/2 with prior
/// knowledge (RFC 9113 section 3.3).
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Connector,
    connect_timeout: Duration,
    origins: Mutex<HashMap<Origin, Slot>>,
}

/// The connection to an origin; the lock is held while one is made, so that a crowd makes one together.
type Slot = Arc<tokio::sync::Mutex<Option<SendRequest>>>;

impl Client {
    /// A client with the defaults.
    ///
    /// # Errors
    /// None today; a default that the system cannot give would be one.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A client with settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Fetches a URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] when it is none of ours, and all that [`Self::request`] may fail with.
    pub async fn get(&self, url: &str) -> Result<Response<Incoming>, Error> {
        let uri: Uri = url.parse().map_err(|error| {
            Error::with_source(
                ErrorKind::InvalidUrl,
                format!("{url} is not a URL: {error}"),
                error,
            )
        })?;
        let mut request = Request::new(Nothing);
        *request.uri_mut() = uri;
        self.request(request).await
    }

    /// Sends a request, whose URI is absolute, and waits for the head of the response. Dropping the future, or the body
    /// of the response, resets the stream.
    ///
    /// # Errors
    /// See [`ErrorKind`]: connecting may fail, the peer may break the protocol or reset the stream, the transport may
    /// end.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let origin = Origin::of(request.uri())?;
        let sender = self.sender(origin).await?;
        sender.send(request).await
    }

    /// Ends the pooled connections gracefully: what is under way goes on.
    pub async fn shutdown(&self) {
        let slots: Vec<Slot> = {
            let mut origins = self.inner.origins.lock().unwrap_or_else(PoisonError::into_inner);
            origins.drain().map(|(_, slot)| slot).collect()
        };
        for slot in slots {
            if let Some(sender) = slot.lock().await.take() {
                sender.shutdown();
            }
        }
    }

    /// How each pooled connection stands: counters, windows, and what it has waited for.
    pub async fn reports(&self) -> Vec<Report> {
        let slots: Vec<Slot> = {
            let origins = self.inner.origins.lock().unwrap_or_else(PoisonError::into_inner);
            origins.values().map(Arc::clone).collect()
        };
        let mut reports = Vec::new();
        for slot in slots {
            let sender = slot.lock().await.clone();
            if let Some(sender) = sender {
                reports.extend(sender.report().await);
            }
        }
        reports
    }

    /// The connection to an origin, made now unless there is one that takes requests.
    async fn sender(&self, origin: Origin) -> Result<SendRequest, Error> {
        let slot = {
            let mut origins = self.inner.origins.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(origins.entry(origin.clone()).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some(sender) = slot.as_ref().filter(|sender| sender.is_open()) {
            return Ok(sender.clone());
        }
        let connect = self.inner.connector.connect(&origin);
        let timeout = self.inner.connect_timeout;
        let sender = tokio::time::timeout(timeout, connect).await.map_err(|_| {
            let text = format!("connecting took longer than {} s", timeout.as_secs_f64());
            Error::new(ErrorKind::Timeout, text)
        })??;
        *slot = Some(sender.clone());
        Ok(sender)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// The settings of a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    config: Config,
    connect_timeout: Duration,
    windows: Result<(), Error>,
    tcp_buffers: TcpBuffers,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            config: Config::default(),
            connect_timeout: CONNECT_TIMEOUT,
            windows: Ok(()),
            tcp_buffers: TcpBuffers::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl ClientBuilder {
    /// All settings of the engine at once; what was set before is replaced.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The receive window of each stream in bytes, 1..=2^31-1, as it is from then on: windows that are
    /// set do not follow the path ([`Config::adaptive`] is off). Unless set they open at 48 MiB, or less when the memory
    /// budget is short of room, and follow it.
    #[must_use]
    pub fn stream_window(mut self, bytes: u32) -> Self {
        match crate::settings::window("a stream", 1, bytes) {
            Ok(window) => self.config.stream_window = window,
            Err(error) => self.windows = Err(error),
        }
        self.config.adaptive = false;
        self
    }

    /// The receive window of each connection in bytes, 65,535..=2^31-1, as it is from then on; see
    /// [`Self::stream_window`]. 64 MiB unless set.
    #[must_use]
    pub fn connection_window(mut self, bytes: u32) -> Self {
        match crate::settings::window("the connection", DEFAULT_WINDOW.bytes(), bytes) {
            Ok(window) => self.config.connection_window = window,
            Err(error) => self.windows = Err(error),
        }
        self.config.adaptive = false;
        self
    }

    /// The budget for the memory that windows promise, over all connections of this client and whatever else shares it:
    /// credit outstanding plus bytes buffered never pass it. 512 MiB of its own unless set.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.config.budget = Some(budget);
        self
    }

    /// The sizes of the kernel's buffers of each connection. The kernel's own choice unless set.
    #[must_use]
    pub fn tcp_buffers(mut self, buffers: TcpBuffers) -> Self {
        self.tcp_buffers = buffers;
        self
    }

    /// When windows are refilled, for streams and for the connection apart. A quarter unless set.
    #[must_use]
    pub fn refill(mut self, stream: Refill, connection: Refill) -> Self {
        self.config.stream_refill = stream;
        self.config.connection_refill = connection;
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

    /// The client.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a window that was set is out of range.
    pub fn build(self) -> Result<Client, Error> {
        self.windows?;
        Ok(Client {
            inner: Arc::new(Inner {
                connector: Connector {
                    config: with_budget(self.config),
                    tcp_buffers: self.tcp_buffers,
                    #[cfg(feature = "tls")]
                    tls: self.tls,
                },
                connect_timeout: self.connect_timeout,
                origins: Mutex::default(),
            }),
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("config", &self.config)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

/// The body of a request without one.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(0)
    }
}
