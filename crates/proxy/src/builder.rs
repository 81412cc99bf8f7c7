//! How a proxy is built.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fullbore::settings::{FirstWindows, WindowSize};
use fullbore::{BoxError, Client, ClientBuilder};
use http::HeaderValue;
use ipnet::IpNet;

use crate::instances::Instances;
use crate::origin::{InvalidOrigin, Target};
use crate::proxy::Proxy;
use crate::settings::{Failure, InstanceChange, OriginHost, Settings};

/// An application is near: a lost SYN is sent again after one second and after three.
const CONNECT: Duration = Duration::from_secs(5);

/// As nginx's `proxy_read_timeout`.
const FIRST_OCTET: Duration = Duration::from_secs(60);

/// Node closes an idle connection after 5 s, and a request that meets the end of one may have to fail.
const IDLE: Duration = Duration::from_secs(4);

/// Over HTTP/1.1 each request under way has one. The ports towards one address are some 28,000.
const CONNECTIONS: u32 = 512;

/// So many requests wait for one of these connections, or while the first is opened: eight for each. Each holds a stream of its
/// client and a few KiB, and one more would wait for eight others at least.
const WAITING: u32 = 4_096;

/// The windows towards an origin, which is near: a window of 256 KiB carries a gigabyte a second over a quarter of a
/// millisecond. They grow for an origin that is far, while the client keeps up.
const WINDOW: u32 = 256 << 10;

/// That of a connection, for as many streams as read slowly.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The settings of a [`Proxy`], from [`Proxy::builder`].
pub struct ProxyBuilder {
    targets: Vec<Result<Target, InvalidOrigin>>,
    client: ClientBuilder,
    settings: Settings,
}

impl Proxy {
    /// A proxy to one origin with the default settings.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn to(origin: &str) -> Result<Self, BuildError> {
        Self::builder().to(origin).build()
    }

    /// Returns a builder, which has all settings.
    pub fn builder() -> ProxyBuilder {
        ProxyBuilder::new()
    }
}

impl ProxyBuilder {
    fn new() -> Self {
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .response_timeout(Some(FIRST_OCTET))
            .pool_idle_timeout(IDLE)
            .max_connections(CONNECTIONS)
            .max_waiting_requests(Some(WAITING))
            .max_idle_http1_connections(CONNECTIONS)
            .max_repeats(1)
            // A stream of messages may be silent for hours.
            .body_timeout(None)
            .config(|config| {
                let windows = WindowSize::new(WINDOW).zip(WindowSize::new(CONNECTION_WINDOW));
                config.set_first_windows(
                    windows.map(|(stream, connection)| FirstWindows { stream, connection }),
                );
            });
        Self {
            targets: Vec::new(),
            client,
            settings: Settings {
                https: false,
                host: OriginHost::OfClient,
                trusted: Vec::new(),
                on_failure: None,
                on_change: None,
            },
        }
    }

    /// Adds an instance of the application: `http://`, `h2c://` or `https://` with a host, or `unix:` with the path of a socket.
    /// All instances have to be equal.
    pub fn to(mut self, origin: &str) -> Self {
        self.targets.push(Target::parse(origin));
        self
    }

    /// Whether clients reach the server by `https://`, which `x-forwarded-proto` and `forwarded` say. Default: false.
    pub fn https(mut self, https: bool) -> Self {
        self.settings.https = https;
        self
    }

    /// Sets the `host` that the origin sees. Default: the client's.
    pub fn origin_host(mut self, host: HeaderValue) -> Self {
        self.settings.host = OriginHost::Always(host);
        self
    }

    /// Believes the proxies of a network, whose `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host` and `forwarded` are
    /// extended in place of being replaced. Default: none.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = fullbore_proxy::Proxy::builder().trusted_proxy("10.0.0.0/8".parse()?);
    /// # Ok(()) }
    /// ```
    pub fn trusted_proxy(mut self, network: IpNet) -> Self {
        self.settings.trusted.push(network);
        self
    }

    /// Changes the client that sends the requests.
    ///
    /// | setting | here |
    /// |---|---|
    /// | [`connect_timeout`](ClientBuilder::connect_timeout) | 5 s |
    /// | [`response_timeout`](ClientBuilder::response_timeout) | 60 s |
    /// | [`pool_idle_timeout`](ClientBuilder::pool_idle_timeout) | 4 s; Node closes after 5 |
    /// | [`max_connections`](ClientBuilder::max_connections) | 512 to each instance |
    /// | [`max_waiting_requests`](ClientBuilder::max_waiting_requests) | 4,096 for each instance; a further one is 503 |
    /// | [`max_repeats`](ClientBuilder::max_repeats) | 1 |
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use std::time::Duration;
    ///
    /// let proxy = fullbore_proxy::Proxy::builder()
    ///     .to("http://127.0.0.1:3000")
    ///     .client(|client| client.response_timeout(Some(Duration::from_secs(600))))
    ///     .build();
    /// # Ok(()) }
    /// ```
    pub fn client(mut self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        self.client = change(self.client);
        self
    }

    /// Calls `hook` with each request that the origin did not answer, and each response that broke off. It must not block.
    pub fn on_failure(mut self, hook: impl Fn(&Failure<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_failure = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` when one of several instances is left out, and when it answers again. It must not block.
    pub fn on_instance(mut self, hook: impl Fn(&InstanceChange<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_change = Some(Arc::new(hook));
        self
    }

    /// Makes the proxy. It connects when the first request comes.
    ///
    /// # Errors
    /// The URL of an origin is invalid, there is none, or a setting of the client is out of range.
    pub fn build(self) -> Result<Proxy, BuildError> {
        if self.targets.is_empty() {
            return Err(BuildError("there is no origin; name one with `to`".into()));
        }
        let mut origins = Vec::with_capacity(self.targets.len());
        for target in self.targets {
            let target = target.map_err(|error| BuildError(error.into()))?;
            let origin = target.origin(self.client.clone());
            origins.push(origin.map_err(|error| BuildError(error.into()))?);
        }
        Ok(Proxy::new(Instances::new(origins), Arc::new(self.settings)))
    }
}

/// Why a proxy cannot be built.
#[derive(Debug)]
pub struct BuildError(BoxError);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Debug for ProxyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBuilder")
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}
