//! The settings of a pooled client, and their builder.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fullbore_proto::KeepAlive;
use http::{HeaderMap, HeaderValue, Uri, header};
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use crate::client::connect::Connector;
use crate::client::connector;
use crate::client::dial::{AddressFamily, Dialer, TcpOptions};
use crate::client::front::Front;
use crate::client::http1::Totals;
#[cfg(feature = "proxy")]
use crate::client::proxy::Proxies;
use crate::error::{BoxError, Error, ErrorKind};
use crate::settings::{Http2Options, HttpVersions, http2_options};

/// The limit on connecting, unless one is set: name resolution, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections to an origin, unless a number is set. Of 10,000 files of 10 KB over 100 ms, from a server that
/// allows 100 streams, eight reach 6.2 times the speed of one, and six only 5.0.
const MAX_CONNECTIONS: u32 = 8;

/// The silence after which a server with open streams is probed by PING, unless [`KeepAlive`] is set.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The silence after which the kernel probes a server, unless one is set. The same, so that it acts where no PING is sent:
/// on idle connections.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How often a request that the peer did not process is sent again, unless a number is set.
const MAX_REPEATS: u32 = 3;

/// The pause before the first repeat, unless one is set.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// The idle HTTP/1.1 connections to an origin that are kept, unless a number is set: as many as browsers use.
const MAX_IDLE_HTTP1: u32 = 6;

/// How long further connections may be idle, unless a limit is set.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a body waits for 100 (Continue).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of a [`Client`](crate::Client), from [`Client::builder`](crate::Client::builder).
#[must_use]
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    options: Http2Options,
    connect_timeout: Duration,
    max_connections: u32,
    spreads_requests: bool,
    max_waiting: Option<u32>,
    pool_idle_timeout: Duration,
    continue_timeout: Duration,
    max_repeats: u32,
    repeat_pause: Duration,
    front: Front,
    #[cfg(feature = "cookies")]
    keeps_cookies: bool,
    tcp_keep_alive: Option<Duration>,
    connector: Option<connector::Connector>,
    family: AddressFamily,
    fixed_addresses: HashMap<(String, u16), Vec<IpAddr>>,
    #[cfg(feature = "proxy")]
    proxies: Option<Proxies>,
    versions: HttpVersions,
    /// Those of `http://`, if they are others.
    cleartext_versions: Option<HttpVersions>,
    max_idle_http1: u32,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

/// What all origins of a client share.
pub(super) struct Settings {
    pub(super) connector: Connector,
    pub(super) connect_timeout: Duration,
    pub(super) max_connections: usize,
    pub(super) spreads_requests: bool,
    pub(super) max_waiting: usize,
    pub(super) idle_timeout: Duration,
    pub(super) stream_wait_timeout: Option<Duration>,
    pub(super) max_repeats: u32,
    pub(super) repeat_pause: Duration,
    pub(super) front: Front,
    pub(super) max_idle_http1: usize,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        ClientBuilder {
            options: Http2Options::default(),
            connect_timeout: CONNECT_TIMEOUT,
            max_connections: MAX_CONNECTIONS,
            spreads_requests: false,
            max_waiting: None,
            pool_idle_timeout: POOL_IDLE_TIMEOUT,
            continue_timeout: CONTINUE_TIMEOUT,
            max_repeats: MAX_REPEATS,
            repeat_pause: REPEAT_PAUSE,
            front: Front::default(),
            #[cfg(feature = "cookies")]
            keeps_cookies: false,
            tcp_keep_alive: Some(TCP_KEEP_ALIVE),
            connector: None,
            family: AddressFamily::Any,
            fixed_addresses: HashMap::new(),
            #[cfg(feature = "proxy")]
            proxies: None,
            versions: HttpVersions::default(),
            cleartext_versions: None,
            max_idle_http1: MAX_IDLE_HTTP1,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// Options of HTTP/2, which a [`ServerBuilder`](crate::ServerBuilder) has too.
impl ClientBuilder {
    http2_options!();
}

/// Options of a client.
impl ClientBuilder {
    /// Sets the TLS configuration. Its ALPN protocols are replaced by those of [`Self::http_versions`]. Default:
    /// [`Roots::Platform`].
    ///
    /// [`Roots::Platform`]: crate::tls::Roots::Platform
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: Arc<tokio_rustls::rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Limits the time for connecting: name resolution, TCP and TLS together. Default: 30 s.
    ///
    /// A host with several addresses gets attempts that race, 250 ms after each other, and the families of addresses
    /// take turns (RFC 8305).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Limits the connections to each origin that take requests. Default: 8. At least 1.
    ///
    /// Over HTTP/1.1 each request needs a connection of its own until its response was read, so the limit is one on
    /// requests. The others wait in order.
    ///
    /// Over HTTP/2 a client opens one connection to an origin. It opens more when requests wait because the peer allows no more
    /// streams (RFC 9113 section 5.1.2) and the round trip is 5 ms or more: 100 streams of 10 KB over 100 ms carry
    /// 10 MB/s, whatever the windows allow. A connection that the peer is closing does not count.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// let client = fullbore::Client::builder().max_connections(1).build()?;
    /// # Ok(()) }
    /// ```
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Whether many requests to an origin are spread over further connections of HTTP/2, where losses, TCP's buffers, or a
    /// shaper's limit on each flow hold one back. Default: false, because RFC 9113 section 9.1 asks clients to open one
    /// connection to an origin.
    ///
    /// If it is set, a connection over a long path gets no more requests at once than fill the path for some round trips. The
    /// others wait in the pool. When the rate of the connection has settled, or fell because packets were lost, further
    /// ones take requests from there, up to [`Self::max_connections`]. They are closed again if they do not make the whole
    /// faster. Requests that were sent stay where they are. If no exchange ends for 5 s while hardly anything comes, requests are
    /// held back no longer.
    pub fn spread_requests(mut self, spreads: bool) -> Self {
        self.spreads_requests = spreads;
        self
    }

    /// Limits the time from the call of a request to the head of its response: the wait for a connection and a stream,
    /// the request with its body, all repeats and their pauses. Then the request fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), and its stream is reset. It does not cover the body of the
    /// response ([`Self::body_timeout`] does). Default: no limit.
    ///
    /// The default limits end a request whose connection is dead. They do not end one whose server is only slow.
    pub fn request_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.front.head_timeout = timeout;
        self
    }

    /// Limits the time of a [`RequestBuilder`](crate::client::RequestBuilder)'s requests, in place of
    /// [`Self::request_timeout`]: from sending to the end of the response's body. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.front.timeout = Some(timeout);
        self
    }

    /// Limits the redirects that a [`RequestBuilder`](crate::client::RequestBuilder)'s request follows; one more is an error
    /// ([`ErrorKind::Redirect`]). 0 follows none, and the redirect is the response. Default: 10. Feature `redirect`.
    ///
    /// After 301 and 302 a POST becomes a GET, and after 303 all but HEAD. 307 and 308 send the request again; if its body is
    /// a stream, the redirect is the response. Once a redirect leads to another origin (scheme, host or port), the fields
    /// `authorization`, `cookie`, `proxy-authorization`, `www-authenticate` and `host`, and all values that are marked as
    /// sensitive, are not sent any more.
    #[cfg(feature = "redirect")]
    #[cfg_attr(docsrs, doc(cfg(feature = "redirect")))]
    pub fn max_redirects(mut self, redirects: u32) -> Self {
        self.front.max_redirects = Some(redirects);
        self
    }

    /// Whether a [`RequestBuilder`](crate::client::RequestBuilder)'s request asks for the content codings of the features
    /// `gzip`, `brotli`, `deflate` and `zstd`, and decodes them. A request that has `accept-encoding` or `range` gets its
    /// response as it comes. Default: true.
    ///
    /// A short body may become a long one: read what comes from a stranger by
    /// [`Response::chunk`](crate::client::Response::chunk), and stop where it is too much.
    #[cfg(feature = "__decode")]
    #[cfg_attr(
        docsrs,
        doc(cfg(any(feature = "gzip", feature = "brotli", feature = "deflate", feature = "zstd")))
    )]
    pub fn decompression(mut self, decompression: bool) -> Self {
        self.front.keeps_codings = !decompression;
        self
    }

    /// Whether the client keeps the cookies that servers set, and sends them in a
    /// [`RequestBuilder`](crate::client::RequestBuilder)'s requests that have none of their own. Default: false. Feature
    /// `cookies`.
    ///
    /// It keeps 3,000 cookies at most, and 50 for a URL. None is for a whole top-level domain, but there is no list of public suffixes: do not use one client for
    /// sites below the same suffix that do not trust each other.
    #[cfg(feature = "cookies")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cookies")))]
    pub fn cookie_store(mut self, cookies: bool) -> Self {
        self.keeps_cookies = cookies;
        self
    }

    /// Sets `user-agent` of all requests. Default: none.
    ///
    /// ```
    /// let client = fullbore::Client::builder().user_agent("probe/1.0").build();
    /// ```
    pub fn user_agent<V>(mut self, value: V) -> Self
    where
        HeaderValue: TryFrom<V, Error: Into<http::Error>>,
    {
        match value.try_into() {
            Ok(value) => {
                self.front.default_headers.insert(header::USER_AGENT, value);
            }
            Err(error) => {
                let error: http::Error = error.into();
                let fault = Error::with_source(ErrorKind::Config, "user_agent cannot be sent", error);
                self.options.refuse(fault);
            }
        }
        self
    }

    /// Sets header fields of all requests. A request that has a field of the same name keeps its own. A further call adds
    /// to them. Default: none.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use http::header::{HeaderMap, HeaderValue, USER_AGENT};
    ///
    /// let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static("probe/1.0"))]);
    /// let client = fullbore::Client::builder().default_headers(headers).build()?;
    /// # Ok(()) }
    /// ```
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        self.front.default_headers.extend(headers);
        self
    }

    /// Sets the silence after which the kernel probes the server of a TCP connection (SO_KEEPALIVE). The connection ends
    /// when a minute of probes is not answered. They also find dead connections that are idle, for which no PING is
    /// sent. Default: 60 s. `None` turns the probes off.
    pub fn tcp_keep_alive(mut self, silence: Option<Duration>) -> Self {
        self.tcp_keep_alive = silence;
        self
    }

    /// Selects the addresses that the client connects to. Default: all of a host.
    pub fn address_family(mut self, family: AddressFamily) -> Self {
        self.family = family;
        self
    }

    /// Sets the addresses of a host, for one port, in place of name resolution. An empty host stands for all hosts that have
    /// no addresses of their own here. The name stays the one in requests and certificates.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// let builder = fullbore::Client::builder();
    /// let client = builder.resolve("staging.example", 443, ["192.0.2.7".parse().unwrap()]).build()?;
    /// # Ok(()) }
    /// ```
    pub fn resolve(mut self, host: &str, port: u16, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses = addresses.into_iter().collect();
        self.fixed_addresses
            .insert((host.to_ascii_lowercase(), port), addresses);
        self
    }

    /// Sets the proxies. Default: none; the environment is not read. [`Self::connect_timeout`] covers what they need.
    ///
    /// An `https://` origin is reached through a tunnel, in which TLS decides on the version of HTTP. Requests to an `http://`
    /// origin are forwarded by an HTTP proxy, in HTTP/1.1, unless the client speaks only HTTP/2.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use fullbore::client::Proxies;
    ///
    /// let proxies = Proxies::all("http://user:password@proxy.example:3128")?.except("localhost, .internal.example");
    /// let client = fullbore::Client::builder().proxies(proxies).build()?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "proxy")]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = Some(proxies);
        self
    }

    /// Replaces name resolution, TCP and proxies: to a Unix socket, or through a tunnel of another kind. The
    /// connector gets the URL of the origin, always with its port, such as `https://example.com:443/`, and returns a
    /// transport to it. For `https://` the client adds TLS. [`Self::connect_timeout`] covers the connector.
    ///
    /// Options of TCP are the connector's own ([`TcpBuffers::apply`](crate::settings::TcpBuffers::apply)), and
    /// [`Self::tcp_keep_alive`] and [`Self::congestion_control`] have no effect.
    ///
    /// ```
    /// # #[cfg(unix)]
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use http::Uri;
    /// use tokio::net::UnixStream;
    ///
    /// let socket = tower::service_fn(|_: Uri| UnixStream::connect("/run/app.sock"));
    /// let client = fullbore::Client::builder().connector(socket).build()?;
    /// # Ok(()) }
    /// # #[cfg(not(unix))]
    /// # fn main() {}
    /// ```
    pub fn connector<C>(mut self, connector: C) -> Self
    where
        C: Service<Uri> + Clone + Send + 'static,
        C::Response: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send,
    {
        self.connector = Some(connector::Connector::new(connector));
        self
    }

    /// Limits the time from the end of the request to the head of its response. Then the request fails with
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout), up to a quarter later. Default: no limit, because a long
    /// poll is silent for minutes.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use std::time::Duration;
    ///
    /// let client = fullbore::Client::builder()
    ///     .response_timeout(Some(Duration::from_secs(60)))
    ///     .body_timeout(Some(Duration::from_secs(60)))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn response_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.config.set_response_timeout(timeout);
        self
    }

    /// Limits the time that requests wait while the peer allows no stream at all and none of the origin is open. Then
    /// they fail with [`ErrorKind::Timeout`](crate::ErrorKind::Timeout). Default: 30 s. `None` means no limit.
    ///
    /// The limit covers all repeats of a request and the pauses between them, and starts again when the origin
    /// answers a request. It acts up to a sixteenth later, or at the end of a pause. It does not cover the wait for
    /// other requests.
    pub fn stream_wait_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.config.set_stream_wait_timeout(timeout);
        self
    }

    /// Limits how often the client sends a request again that the peer did not process (RFC 9113 section 8.7), while
    /// the origin answers no other request. When an origin refuses more often than this in a row, the requests that wait
    /// for it fail. Default: 3. With 0 no request is sent again.
    ///
    /// While the origin answers others, a request is sent again up to 32 times in all.
    pub fn max_repeats(mut self, repeats: u32) -> Self {
        self.max_repeats = repeats;
        self
    }

    /// Sets the pause before the first repeat of a refused request. Each pause is twice the one before, up to 10 s, of
    /// which at least half is waited, at random. Default: 100 ms.
    pub fn repeat_pause(mut self, pause: Duration) -> Self {
        self.repeat_pause = pause;
        self
    }

    /// Closes connections that were not needed for this long: HTTP/2 connections beyond the first to an origin, and
    /// all HTTP/1.1 connections. Default: 30 s. 0 is an error of [`Self::build`].
    pub fn pool_idle_timeout(mut self, timeout: Duration) -> Self {
        self.pool_idle_timeout = timeout;
        self
    }

    /// Sets how long the body of a request with `expect: 100-continue` waits for 100 (Continue) over HTTP/1.1, before it is
    /// sent without one: servers that do not know the expectation send none (RFC 9110 section 10.1.1). Default: 1 s, as
    /// curl's.
    pub fn continue_timeout(mut self, timeout: Duration) -> Self {
        self.continue_timeout = timeout;
        self
    }

    /// Sets the versions of HTTP that the client speaks. Default: both.
    ///
    /// Over TLS the server selects one (ALPN). If it selects none, the client speaks HTTP/1.1. With `http://` the
    /// client begins in HTTP/2 with prior knowledge (RFC 9113 section 3.3), sends the request in HTTP/1.1 if the
    /// server does not answer in HTTP/2, and remembers what the origin speaks.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use fullbore::settings::HttpVersions;
    ///
    /// let client = fullbore::Client::builder().http_versions(HttpVersions::Http1).build()?;
    /// # Ok(()) }
    /// ```
    pub fn http_versions(mut self, versions: HttpVersions) -> Self {
        self.versions = versions;
        self
    }

    /// Sets the versions of HTTP that the client speaks with `http://`. Default: those of [`Self::http_versions`].
    ///
    /// [`HttpVersions::Http1`] is for servers that are not known: few of them speak HTTP/2 in cleartext. A redirect to
    /// `https://` negotiates the version again.
    ///
    /// ```
    /// # fn main() -> Result<(), fullbore::Error> {
    /// use fullbore::settings::HttpVersions;
    ///
    /// let client = fullbore::Client::builder().cleartext_versions(HttpVersions::Http1).build()?;
    /// # Ok(()) }
    /// ```
    pub fn cleartext_versions(mut self, versions: HttpVersions) -> Self {
        self.cleartext_versions = Some(versions);
        self
    }

    /// Sets the versions for all URLs.
    pub(super) fn only_versions(mut self, versions: HttpVersions) -> Self {
        self.versions = versions;
        self.cleartext_versions = None;
        self
    }

    /// Limits the requests to each origin that wait for a connection, or for a stream of one. A further request fails at once
    /// with [`ErrorKind::Busy`](crate::ErrorKind::Busy). Default: none.
    ///
    /// Requests wait while the connections of [`Self::max_connections`] are in use, and while the first connection is opened. A
    /// server that sends requests on sets a limit: whoever sends faster than the origin answers would fill its memory.
    pub fn max_waiting_requests(mut self, requests: Option<u32>) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Limits the HTTP/1.1 connections to each origin that are kept without a request. Default: 6.
    pub fn max_idle_http1_connections(mut self, connections: u32) -> Self {
        self.max_idle_http1 = connections;
        self
    }

    /// Checks the settings.
    pub(super) fn checked(mut self) -> Result<Self, Error> {
        self.options.finish()?;
        if self.max_connections == 0 {
            return Err(Error::config("max_connections is 0; use 1 or more"));
        }
        if self.pool_idle_timeout.is_zero() {
            return Err(Error::config("pool_idle_timeout is 0; use 1 ms or more"));
        }
        #[cfg(feature = "cookies")]
        {
            self.front.cookies = self.keeps_cookies.then(Arc::default);
        }
        Ok(self)
    }

    /// The default settings, which need no check.
    pub(super) fn defaults() -> Self {
        let mut builder = Self::default();
        builder.options.complete();
        builder
    }

    pub(super) fn settings(&self, http1_totals: Arc<Totals>) -> Settings {
        let this = self.clone();
        let mut config = this.options.config;
        if config.keep_alive() == KeepAlive::ByRole {
            config.set_keep_alive(KeepAlive::WithStreams(KEEP_ALIVE));
        }
        Settings {
            stream_wait_timeout: config.stream_wait_timeout(),
            max_waiting: this
                .max_waiting
                .and_then(|requests| usize::try_from(requests).ok())
                .unwrap_or(usize::MAX),
            max_idle_http1: usize::try_from(this.max_idle_http1).unwrap_or(usize::MAX),
            connector: Connector {
                config: Arc::new(config),
                versions: this.versions,
                cleartext_versions: this.cleartext_versions.unwrap_or(this.versions),
                idle_timeout: this.pool_idle_timeout,
                continue_timeout: this.continue_timeout,
                http1_totals,
                dialer: Dialer {
                    tcp: TcpOptions {
                        buffers: this.options.tcp_buffers,
                        congestion_control: this.options.congestion_control,
                        keep_alive: this.tcp_keep_alive,
                    },
                    family: this.family,
                    fixed: this.fixed_addresses,
                },
                #[cfg(feature = "proxy")]
                proxies: this.proxies.and_then(Proxies::routes),
                #[cfg(feature = "tls")]
                tls: this.tls.map(|config| this.versions.offered_by(config)),
                transports: this.connector,
            },
            connect_timeout: this.connect_timeout,
            max_connections: usize::try_from(this.max_connections).unwrap_or(usize::MAX),
            spreads_requests: this.spreads_requests && this.max_connections > 1,
            idle_timeout: this.pool_idle_timeout,
            max_repeats: this.max_repeats,
            repeat_pause: this.repeat_pause,
            front: this.front,
        }
    }
}
