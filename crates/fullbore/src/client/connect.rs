//! From the origin of a URL to a connection: TCP or a transport of the caller's, and TLS.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fullbore_proto::Config;
use http::Uri;
use http::uri::Scheme;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::handshake_observed;
use super::connector;
use super::dial::Dialer;
use super::handle::Handle;
use super::http1;
#[cfg(feature = "proxy")]
use super::proxy;
use crate::error::{Error, ErrorKind};
use crate::observer::Observer;
use crate::settings::HttpVersions;
use crate::tcp::OverTcp;

/// How long a cleartext origin of which nothing is known may take to send SETTINGS before it is tried in HTTP/1.1. A server
/// of HTTP/2 sends them at once: three seconds are enough for a lost packet on a long path.
const PATIENCE: Duration = Duration::from_secs(3);

/// The origin of a URL, by which connections are pooled. For a lookup it borrows from the URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin<'a> {
    tls: bool,
    host: Cow<'a, str>,
    port: u16,
}

impl<'a> Origin<'a> {
    pub(super) fn of(uri: &'a Uri) -> Result<Self, Error> {
        let invalid = |why: String| Error::invalid_url(&uri.to_string(), why);
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) => return Err(invalid(format!("{scheme}:// is neither http:// nor https://"))),
            None => {
                return Err(invalid(
                    "it has no scheme; begin it with http:// or https://".to_owned(),
                ));
            }
        };
        let host = match uri.host() {
            Some(host) if !host.is_empty() => host,
            _ => return Err(invalid("it has no host".to_owned())),
        };
        // `Uri` takes any digits for a port, and then has none.
        let port = uri.port_u16();
        if port.is_none() && names_port(uri, host) {
            return Err(invalid("its port is no number from 0 to 65535".to_owned()));
        }
        // The brackets of an IPv6 address belong to the URL.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Origin {
            tls,
            host: Cow::Borrowed(address.unwrap_or(host)),
            port: port.unwrap_or(if tls { 443 } else { 80 }),
        })
    }

    /// The URL of the origin, with its port.
    fn uri(&self) -> Result<Uri, Error> {
        let text = self.to_string();
        let parsed = Uri::try_from(text.as_str());
        parsed.map_err(|error| Error::with_source(ErrorKind::InvalidUrl, text, error))
    }

    /// Whether the version is agreed on in the TLS handshake.
    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// The origin with a name of its own.
    pub(super) fn into_owned(self) -> Origin<'static> {
        Origin {
            host: Cow::Owned(self.host.into_owned()),
            ..self
        }
    }
}

/// Whether a URL has something behind the colon that follows its host.
fn names_port(uri: &Uri, host: &str) -> bool {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let named = authority.rsplit_once('@').map_or(authority, |(_, named)| named);
    named.len() > host.len() + 1
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// What connecting needs.
pub(super) struct Connector {
    pub(super) config: Arc<Config>,
    pub(super) versions: HttpVersions,
    /// Those of `http://`.
    pub(super) cleartext_versions: HttpVersions,
    /// How long an HTTP/1.1 connection stays open without a request.
    pub(super) idle_timeout: Duration,
    /// How long the body of an HTTP/1.1 request waits for 100 (Continue).
    pub(super) continue_timeout: Duration,
    pub(super) http1_totals: Arc<http1::Totals>,
    pub(super) dialer: Dialer,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
    /// Takes the place of name resolution and TCP.
    pub(super) transports: Option<connector::Connector>,
    #[cfg(feature = "proxy")]
    pub(super) proxies: Option<proxy::Routes>,
}

/// A version of HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    #[default]
    Http2,
    /// HTTP/2, to an origin of which nothing is known.
    PerhapsHttp2,
    /// HTTP/1.1, to an origin that was silent on the preface of HTTP/2.
    PerhapsHttp1,
}

/// An open connection.
pub(super) struct Opened {
    pub(super) handle: Handle,
    /// Whether ALPN, or its absence, decided on the version.
    pub(super) agreed: bool,
}

impl Connector {
    /// Opens a connection to the origin, and spawns its task. Without TLS it speaks the version `presumed`. Over TLS
    /// it offers HTTP/1.1 alone if that is `presumed`, and otherwise every version that is allowed.
    pub(super) async fn connect(
        &self,
        origin: &Origin<'_>,
        presumed: HttpVersion,
        observer: Arc<dyn Observer>,
    ) -> Result<Opened, Error> {
        if let Some(transports) = &self.transports {
            let io = transports.connect(origin.uri()?).await?;
            return self.connect_over(io, origin, presumed, observer).await;
        }
        #[cfg(feature = "proxy")]
        if let Some(route) = self.route(origin)? {
            let io = self.reach(&route).await?;
            if !origin.tls && presumed == HttpVersion::Http1 && route.forwards() {
                let handle = self.start_http1(io, Some(route.forwarding()), observer);
                return Ok(Opened {
                    handle,
                    agreed: false,
                });
            }
            let tunnel = route.tunnel(io, &origin.host, origin.port, &self.dialer).await?;
            return self.connect_over(tunnel, origin, presumed, observer).await;
        }
        let io = self.dialer.dial(&origin.host, origin.port).await?;
        self.connect_over(io, origin, presumed, observer).await
    }

    /// The versions that requests to the origin may have.
    pub(super) fn versions_for(&self, origin: &Origin<'_>) -> HttpVersions {
        match origin.tls {
            true => self.versions,
            false => self.cleartext_versions,
        }
    }

    /// Whether requests to the origin can have no other version than HTTP/1.1: an HTTP proxy forwards them. Most proxies
    /// tunnel only to the port of https.
    pub(super) fn is_forwarded(&self, origin: &Origin<'_>) -> bool {
        #[cfg(feature = "proxy")]
        if !origin.tls && self.cleartext_versions.has_http1() && self.transports.is_none() {
            let route = self.route(origin).ok().flatten();
            return route.is_some_and(|route| route.forwards());
        }
        let _ = origin;
        false
    }

    /// Whether a proxy leads to the origin.
    pub(super) fn uses_proxy(&self, origin: &Origin<'_>) -> bool {
        #[cfg(feature = "proxy")]
        return self.transports.is_none() && matches!(self.route(origin), Ok(Some(_)));
        #[cfg(not(feature = "proxy"))]
        {
            let _ = origin;
            false
        }
    }

    /// The proxy for the origin, if it has one.
    #[cfg(feature = "proxy")]
    fn route(&self, origin: &Origin<'_>) -> Result<Option<proxy::Route>, Error> {
        match &self.proxies {
            None => Ok(None),
            Some(proxies) => Ok(proxies.to(&origin.uri()?)),
        }
    }

    /// Connects to a proxy.
    #[cfg(feature = "proxy")]
    async fn reach(&self, route: &proxy::Route) -> Result<Box<dyn connector::Transport>, Error> {
        let io = route.dial(&self.dialer).await?;
        if !route.has_tls() {
            return Ok(Box::new(io));
        }
        #[cfg(feature = "tls")]
        {
            // The certificate of this side is for servers.
            let config = HttpVersions::Http1.offered_by(crate::tls::anonymous(self.tls_config()?));
            let stream = tls_handshake(config, route.host(), route.port(), io).await;
            let stream = stream.map_err(|error| route.unreachable(error))?;
            Ok(Box::new(stream))
        }
        #[cfg(not(feature = "tls"))]
        Err(without_tls())
    }

    async fn connect_over<T>(
        &self,
        io: T,
        origin: &Origin<'_>,
        presumed: HttpVersion,
        observer: Arc<dyn Observer>,
    ) -> Result<Opened, Error>
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match origin.tls {
            true => self.connect_tls(origin, io, presumed, observer).await,
            false => Ok(self.start_cleartext(io, presumed, observer)),
        }
    }

    fn start_cleartext<T>(&self, io: T, version: HttpVersion, observer: Arc<dyn Observer>) -> Opened
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Opened {
            handle: match version {
                HttpVersion::Http1 => self.start_http1(io, None, observer),
                HttpVersion::PerhapsHttp1 => {
                    // Both together take no longer than a server may take that speaks HTTP/2 alone.
                    let rest = self.config.preface_timeout().saturating_sub(PATIENCE);
                    self.start_http1_within(io, None, Some(rest.max(PATIENCE)), observer)
                }
                HttpVersion::Http2 => self.start_http2(io, Arc::clone(&self.config), observer),
                HttpVersion::PerhapsHttp2 => {
                    let mut config = Config::clone(&self.config);
                    config.set_preface_timeout(config.preface_timeout().min(PATIENCE));
                    self.start_http2(io, Arc::new(config), observer)
                }
            },
            agreed: false,
        }
    }

    fn start_http1<T>(
        &self,
        io: T,
        forwarding: Option<http1::Forwarding>,
        observer: Arc<dyn Observer>,
    ) -> Handle
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.start_http1_within(io, forwarding, None, observer)
    }

    /// As [`Self::start_http1`]; the first response may take so long to begin.
    fn start_http1_within<T>(
        &self,
        io: T,
        forwarding: Option<http1::Forwarding>,
        first: Option<Duration>,
        observer: Arc<dyn Observer>,
    ) -> Handle
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(tcp) = io.tcp() {
            self.dialer.tcp.buffers.limit_http1(tcp);
        }
        let totals = Arc::clone(&self.http1_totals);
        Handle::Http1(http1::connect(
            io,
            &self.config,
            http1::Waits {
                idle: self.idle_timeout,
                for_continue: self.continue_timeout,
                for_first: first,
            },
            totals,
            forwarding,
            observer,
        ))
    }

    fn start_http2<T>(&self, io: T, config: Arc<Config>, observer: Arc<dyn Observer>) -> Handle
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(tcp) = io.tcp() {
            observer.over_tcp(tcp);
        }
        let (sender, mut connection) = handshake_observed(io, config, Some(observer));
        connection.send_slices();
        connection.report_tcp(T::tcp);
        if let Some(time) = self.dialer.tcp.buffers.adaptive_unsent() {
            connection.limit_unsent(T::tcp, time);
        }
        tokio::spawn(async move {
            // Every stream has the error already.
            let _ = connection.await;
        });
        Handle::Http2(sender)
    }

    #[cfg(feature = "tls")]
    async fn connect_tls<T>(
        &self,
        origin: &Origin<'_>,
        io: T,
        presumed: HttpVersion,
        observer: Arc<dyn Observer>,
    ) -> Result<Opened, Error>
    where
        T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let host = &origin.host;
        let config = match presumed {
            HttpVersion::Http1 | HttpVersion::PerhapsHttp1 => {
                HttpVersions::Http1.offered_by(self.tls_config()?)
            }
            HttpVersion::Http2 | HttpVersion::PerhapsHttp2 => self.tls_config()?,
        };
        let mut stream = tls_handshake(config, host, origin.port, io).await?;
        stream.get_mut().1.set_buffer_limit(Some(crate::tls::SEALED));
        let handle = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => {
                let mut config = Config::clone(&self.config);
                config.set_record_size(crate::tls::RECORD);
                self.start_http2(stream, Arc::new(config), observer)
            }
            _ if self.versions == HttpVersions::Http2 => {
                let text = format!("{host} did not select h2 in the TLS handshake (ALPN)");
                return Err(Error::new(ErrorKind::NotHttp2, text));
            }
            // A server without ALPN does not know HTTP/2 (RFC 9113 section 3.2).
            _ => self.start_http1(stream, None, observer),
        };
        Ok(Opened { handle, agreed: true })
    }

    #[cfg(feature = "tls")]
    fn tls_config(&self) -> Result<Arc<tokio_rustls::rustls::ClientConfig>, Error> {
        match &self.tls {
            Some(config) => Ok(Arc::clone(config)),
            None => {
                let config = crate::tls::client_config(crate::tls::Roots::Platform)?;
                Ok(self.versions.offered_by(Arc::new(config)))
            }
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn connect_tls<T>(
        &self,
        _: &Origin<'_>,
        _: T,
        _: HttpVersion,
        _: Arc<dyn Observer>,
    ) -> Result<Opened, Error> {
        Err(without_tls())
    }
}

#[cfg(feature = "tls")]
async fn tls_handshake<T>(
    config: Arc<tokio_rustls::rustls::ClientConfig>,
    host: &str,
    port: u16,
    io: T,
) -> Result<tokio_rustls::client::TlsStream<T>, Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    use tokio_rustls::rustls::pki_types::ServerName;

    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        let text = format!("{host} is not a valid name for TLS");
        Error::with_source(ErrorKind::InvalidUrl, text, error)
    })?;
    let connected = tokio_rustls::TlsConnector::from(config).connect(name, io).await;
    connected.map_err(|error| crate::tls::handshake_error(host, port, error))
}

#[cfg(not(feature = "tls"))]
fn without_tls() -> Error {
    Error::new(
        ErrorKind::Config,
        "https:// needs the feature `tls` of the crate fullbore",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_a_port_has_that_of_its_scheme() {
        let origin = |url: &str| {
            let uri = url.parse::<Uri>().expect("a URL");
            let origin = Origin::of(&uri).expect("an origin");
            (origin.is_tls(), origin.to_string())
        };
        assert_eq!(
            origin("https://example.com/"),
            (true, "https://example.com:443".into())
        );
        assert_eq!(
            origin("http://example.com/"),
            (false, "http://example.com:80".into())
        );
        assert_eq!(
            origin("http://example.com:443/"),
            (false, "http://example.com:443".into())
        );
        assert_eq!(origin("https://[::1]/"), (true, "https://[::1]:443".into()));
        assert_eq!(
            origin("http://user@example.com:/"),
            (false, "http://example.com:80".into())
        );
    }

    #[test]
    fn a_port_that_is_none_does_not_lead_to_that_of_the_scheme() {
        for url in [
            "http://example.com:65536/",
            "https://user@[::1]:99999/",
            "http://127.0.0.1:080000",
        ] {
            let uri = url.parse::<Uri>().expect("`Uri` takes it");
            let error = Origin::of(&uri).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
        }
    }
}
