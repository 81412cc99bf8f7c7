//! Proxies: which one leads to an origin, and the way through it.
//!
//! An HTTP proxy tunnels (CONNECT, RFC 9110 section 9.3.6), or forwards requests in HTTP/1.1, which `http1` sends. A SOCKS5
//! proxy always tunnels (RFC 1928). `connect` decides which, and adds TLS.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use http::{Method, Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_socks::Error as SocksError;
use tokio_socks::tcp::Socks5Stream;

use super::connector::Transport;
use super::dial::Dialer;
use super::http1::{Forwarding, reader_of_responses};
use crate::error::{Error, ErrorKind};

/// The ports of proxies whose URL names none: as in curl, 443 with TLS and 1080 otherwise.
const DEFAULT_PORT: u16 = 1080;
const DEFAULT_TLS_PORT: u16 = 443;

/// The informational responses to CONNECT. A proxy has a reason for one at most; without a limit it could send them for as
/// long as a connection may take to open.
const MOST_INFORMATIONAL: u32 = 8;

/// The proxies of a client: one for `http://`, one for `https://`, and the hosts that need none. For
/// [`ClientBuilder::proxies`](crate::ClientBuilder::proxies).
///
/// The URL of a proxy is `http://`, `https://` (TLS to the proxy), `socks5://` (names are resolved here) or `socks5h://` (by
/// the proxy), with its host and port, and a name and password if it needs them. Without a scheme it is `http://`.
#[derive(Clone, Default)]
pub struct Proxies {
    http: String,
    https: String,
    except: Vec<Exception>,
}

/// Hosts that need no proxy: a name with those below it, an address, a network, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    hosts: String,
    /// Only this port.
    port: Option<u16>,
}

impl Exception {
    fn parse(text: &str) -> Self {
        let port = |text: &str| text.parse().ok();
        let of = |hosts: String, port| Exception { hosts, port };
        if let Some((address, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            return match rest.strip_prefix(':').and_then(port) {
                Some(port) => of(address.to_owned(), Some(port)),
                // It may have the length of a prefix: `[2001:db8::]/32`.
                None => of(format!("{address}{rest}"), None),
            };
        }
        let (hosts, port) = match text.split_once(':') {
            Some((hosts, rest)) if port(rest).is_some() => (hosts, port(rest)),
            _ => (text, None),
        };
        // `*.example` is written for `.example`.
        let hosts = match hosts.strip_prefix('*') {
            Some(below) if below.starts_with('.') => below,
            _ => hosts,
        };
        of(hosts.trim_end_matches('.').to_owned(), port)
    }
}

impl Proxies {
    /// One proxy for all URLs.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the URL is not that of a proxy.
    ///
    /// ```
    /// use fullbore::client::Proxies;
    ///
    /// assert!(Proxies::all("socks5h://localhost:1080").is_ok());
    /// assert!(Proxies::all("ftp://proxy.example").is_err());
    /// ```
    pub fn all(url: &str) -> Result<Self, Error> {
        let url = checked(url).map_err(Error::config)?;
        Ok(Proxies {
            http: url.clone(),
            https: url,
            except: Vec::new(),
        })
    }

    /// The proxies that the environment names, as curl reads it: `http_proxy`, `https_proxy`, `all_proxy` for both, and
    /// `no_proxy`, in lower or upper case. HTTP_PROXY is ignored in upper case, since a client's field `Proxy` may set it in
    /// CGI programs.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], with the variable, when a URL is not that of a proxy.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let first = |names: &[&'static str]| {
            let set = names.iter().map(|&name| (name, value(name).unwrap_or_default()));
            set.into_iter().find(|(_, value)| !value.is_empty())
        };
        let url = |names: &[&'static str]| match first(names) {
            None => Ok(String::new()),
            Some((name, url)) => {
                checked(&url).map_err(|why| Error::config(format!("the variable {name}: {why}")))
            }
        };
        Ok(Proxies {
            http: url(&["http_proxy", "all_proxy", "ALL_PROXY"])?,
            https: url(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?,
            except: Vec::new(),
        }
        .except(&first(&["no_proxy", "NO_PROXY"]).unwrap_or_default().1))
    }

    /// Sets the hosts that are reached without a proxy, in place of those of the environment: names, which also stand for the
    /// names below them, addresses, networks such as `10.0.0.0/8`, or `*`, with commas or spaces between them. With a port, as
    /// in `host:8080`, only that port is meant.
    #[must_use]
    pub fn except(mut self, list: &str) -> Self {
        let hosts = list.split([',', ' ', '\t']).filter(|host| !host.is_empty());
        self.except = hosts.map(Exception::parse).collect();
        self
    }

    /// Sets the hosts that are reached without a proxy to those of `other`, such as those of the environment.
    #[must_use]
    pub fn with_exceptions_of(mut self, other: &Proxies) -> Self {
        self.except.clone_from(&other.except);
        self
    }

    /// `None` if no origin has a proxy.
    pub(super) fn routes(self) -> Option<Routes> {
        if self.needs_none(None) || (self.http.is_empty() && self.https.is_empty()) {
            return None;
        }
        let ports = self.except.iter().filter_map(|exception| exception.port);
        Some(Routes {
            by_port: ports.map(|port| (port, self.matcher(Some(port)))).collect(),
            matcher: self.matcher(None)?,
        })
    }

    /// Whether every host is reached without a proxy. The matcher does not take `*` for addresses.
    fn needs_none(&self, port: Option<u16>) -> bool {
        self.exceptions(port).any(|hosts| hosts == "*")
    }

    /// The hosts that need no proxy on this port; with `None`, those that need none on any.
    fn exceptions(&self, port: Option<u16>) -> impl Iterator<Item = &str> {
        let of_port = move |exception: &&Exception| exception.port.is_none() || exception.port == port;
        self.except
            .iter()
            .filter(of_port)
            .map(|exception| exception.hosts.as_str())
    }

    /// `None` if every host is reached without a proxy.
    fn matcher(&self, port: Option<u16>) -> Option<Matcher> {
        if self.needs_none(port) {
            return None;
        }
        let except: Vec<_> = self.exceptions(port).collect();
        let matcher = Matcher::builder().http(&self.http).https(&self.https);
        Some(matcher.no(except.join(",")).build())
    }
}

/// The URLs may have passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies")
            .field("except", &self.except)
            .finish_non_exhaustive()
    }
}

/// The URL of a proxy, with its scheme. The matcher would ignore one that it cannot read.
fn checked(url: &str) -> Result<String, String> {
    let url = url.trim();
    let url = match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    };
    let shown = match url.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map_or("http", |(scheme, _)| scheme);
            format!("{scheme}://***@{host}")
        }
        None => url.clone(),
    };
    let wrong = |why: &str| Err(format!("the proxy {shown}: {why}"));
    let Ok(uri) = url.parse::<Uri>() else {
        return wrong(
            "no valid URL; write it as http://host:port, with @, : and / in a password as %40, %3A and %2F",
        );
    };
    match uri.scheme_str() {
        Some("http" | "https" | "socks5" | "socks5h") => {}
        Some("socks" | "socks4" | "socks4a") => return wrong("SOCKS4 is not supported; try socks5://"),
        _ => return wrong("its scheme is none of http, https, socks5 and socks5h"),
    }
    if uri.host().is_none_or(str::is_empty) {
        return wrong("it has no host; write it as http://host:port");
    }
    let authority = uri
        .authority()
        .map(|authority| authority.as_str())
        .unwrap_or_default();
    let (credentials, server) = authority.rsplit_once('@').unwrap_or(("", authority));
    if credentials.contains('@') {
        return wrong("write @ in a name or password as %40");
    }
    let names_port = server
        .rsplit_once(']')
        .map_or(server, |(_, rest)| rest)
        .contains(':');
    if uri.port_u16() == Some(0) || (names_port && uri.port_u16().is_none()) {
        return wrong("its port is no number from 1 to 65535");
    }
    Ok(url)
}

/// Notifies when there are more informational responses than a request may have.
fn limit_informational(request: &mut Request<String>) -> Arc<Notify> {
    let too_many = Arc::new(Notify::new());
    let (notified, seen) = (Arc::clone(&too_many), AtomicU32::new(0));
    hyper::ext::on_informational(request, move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) >= MOST_INFORMATIONAL {
            notified.notify_one();
        }
    });
    too_many
}

/// Which proxy leads to which origin.
pub(super) struct Routes {
    matcher: Matcher,
    /// For the ports on which further hosts need no proxy; `None` where none does.
    by_port: HashMap<u16, Option<Matcher>>,
}

impl Routes {
    /// The proxy for a URL.
    pub(super) fn to(&self, url: &Uri) -> Option<Route> {
        let default = match url.scheme_str() {
            Some("https") => 443,
            _ => 80,
        };
        let matcher = match self.by_port.get(&url.port_u16().unwrap_or(default)) {
            Some(matcher) => matcher.as_ref()?,
            None => &self.matcher,
        };
        // `example.org.` is the same host as `example.org`.
        let name = url.host().and_then(|host| host.strip_suffix('.'));
        let without_dot = name.and_then(|name| {
            let url = Uri::builder().scheme(url.scheme()?.clone()).authority(name);
            url.path_and_query("/").build().ok()
        });
        matcher.intercept(without_dot.as_ref().unwrap_or(url)).map(Route)
    }
}

/// A proxy for an origin.
pub(super) struct Route(Intercept);

/// The kinds of proxies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Https,
    /// Names are resolved here.
    Socks5,
    /// Names are resolved by the proxy.
    Socks5h,
}

impl Route {
    fn kind(&self) -> Kind {
        match self.0.uri().scheme_str() {
            Some("https") => Kind::Https,
            Some("socks5") => Kind::Socks5,
            Some("socks5h") => Kind::Socks5h,
            _ => Kind::Http,
        }
    }

    /// Whether TLS leads to the proxy itself.
    pub(super) fn has_tls(&self) -> bool {
        self.kind() == Kind::Https
    }

    /// Whether the proxy forwards requests to `http://` origins.
    pub(super) fn forwards(&self) -> bool {
        matches!(self.kind(), Kind::Http | Kind::Https)
    }

    pub(super) fn host(&self) -> &str {
        let host = self.0.uri().host().unwrap_or_default();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        address.unwrap_or(host)
    }

    pub(super) fn port(&self) -> u16 {
        let default = match self.has_tls() {
            true => DEFAULT_TLS_PORT,
            false => DEFAULT_PORT,
        };
        self.0.uri().port_u16().unwrap_or(default)
    }

    fn has_credentials(&self) -> bool {
        self.0.basic_auth().is_some() || self.0.raw_auth().is_some()
    }

    /// Its URL without credentials.
    fn shown(&self) -> String {
        let scheme = self.0.uri().scheme_str().unwrap_or("http");
        format!("{scheme}://{}", authority(self.host(), self.port()))
    }

    /// Connects to the proxy.
    pub(super) async fn dial(&self, dialer: &Dialer) -> Result<TcpStream, Error> {
        let dialed = dialer.dial(self.host(), self.port()).await;
        dialed.map_err(|error| self.unreachable(error))
    }

    /// TCP or TLS to the proxy failed.
    pub(super) fn unreachable(&self, error: Error) -> Error {
        let text = format!("the proxy {} cannot be reached", self.shown());
        Error::proxy(error.kind(), text, Some(error.into()))
    }

    /// What the requests that the proxy forwards need.
    pub(super) fn forwarding(&self) -> Forwarding {
        Forwarding {
            proxy: self.shown(),
            authorization: self.0.basic_auth().cloned(),
        }
    }

    /// Opens a tunnel to a server over a connection with the proxy.
    pub(super) async fn tunnel(
        &self,
        io: Box<dyn Transport>,
        host: &str,
        port: u16,
        dialer: &Dialer,
    ) -> Result<Box<dyn Transport>, Error> {
        match self.kind() {
            Kind::Http | Kind::Https => self.connect(io, &authority(host, port)).await,
            Kind::Socks5h => self.socks(io, host, port, None).await,
            Kind::Socks5 => {
                let addresses = dialer.resolve(host, port).await?;
                self.socks(io, host, port, addresses.first().copied()).await
            }
        }
    }

    /// CONNECT.
    async fn connect(&self, io: Box<dyn Transport>, target: &str) -> Result<Box<dyn Transport>, Error> {
        let is_no_proxy = |error: hyper::Error| {
            let text = format!(
                "{} did not answer as an HTTP proxy; check its URL and port",
                self.shown()
            );
            Error::proxy(ErrorKind::Proxy, text, Some(error.into()))
        };
        let invalid = |error: http::Error| Error::with_source(ErrorKind::InvalidUrl, target, error);
        let handshake = reader_of_responses().handshake(TokioIo::new(io)).await;
        let (mut sender, connection) = handshake.map_err(is_no_proxy)?;
        // Ends with this call: the tunnel is taken from it by then.
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The request has the error.
            let _ = connection.with_upgrades().await;
        });
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(target)
            .header(HOST, target);
        if let Some(credentials) = self.0.basic_auth() {
            let mut credentials: HeaderValue = credentials.clone();
            credentials.set_sensitive(true);
            request = request.header(PROXY_AUTHORIZATION, credentials);
        }
        let mut request = request.body(String::new()).map_err(invalid)?;
        let too_many = limit_informational(&mut request);
        let response = tokio::select! {
            biased;
            () = too_many.notified() => {
                let text = format!("{} sent more than {MOST_INFORMATIONAL} informational responses", self.shown());
                return Err(Error::proxy(ErrorKind::Proxy, text, None));
            }
            response = sender.send_request(request) => response.map_err(is_no_proxy)?,
        };
        if !response.status().is_success() {
            return Err(self.refused(target, response.status()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(is_no_proxy)?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    /// A proxy's answer to CONNECT that opens no tunnel.
    fn refused(&self, target: &str, status: StatusCode) -> Error {
        let proxy = self.shown();
        let (kind, text) = match status {
            // tinyproxy answers wrong credentials with 401.
            StatusCode::PROXY_AUTHENTICATION_REQUIRED | StatusCode::UNAUTHORIZED => {
                let why = format!("status {}", status.as_u16());
                (ErrorKind::Proxy, self.unauthorized(&why))
            }
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => (
                ErrorKind::Connect,
                format!("the proxy {proxy} cannot reach {target} (status {status})"),
            ),
            _ => (
                ErrorKind::Proxy,
                format!(
                    "{proxy} refused a tunnel to {target} (status {status}); ask its operator, or name the host in no_proxy"
                ),
            ),
        };
        Error::proxy(kind, text, None)
    }

    fn unauthorized(&self, why: &str) -> String {
        let proxy = self.shown();
        match self.has_credentials() {
            true => format!("{proxy} did not accept the name and password in its URL ({why})"),
            false => {
                let scheme = proxy.split("://").next().unwrap_or_default();
                format!(
                    "{proxy} needs a name and password ({why}); put them in its URL: {scheme}://user:password@{}",
                    authority(self.host(), self.port())
                )
            }
        }
    }

    async fn socks(
        &self,
        io: Box<dyn Transport>,
        host: &str,
        port: u16,
        resolved: Option<SocketAddr>,
    ) -> Result<Box<dyn Transport>, Error> {
        let named = (resolved.map(|address| address.ip().to_string()), port);
        let target = (named.0.as_deref().unwrap_or(host), port);
        let opened = match self.0.raw_auth() {
            Some((name, password)) => {
                Socks5Stream::connect_with_password_and_socket(io, target, name, password).await
            }
            None => Socks5Stream::connect_with_socket(io, target).await,
        };
        match opened {
            Ok(stream) => Ok(stream.into_inner()),
            Err(error) => Err(self.socks_error(&authority(host, port), error)),
        }
    }

    /// The reasons of RFC 1928 section 6, and of what is no SOCKS5 proxy.
    fn socks_error(&self, target: &str, error: SocksError) -> Error {
        let proxy = self.shown();
        let unreachable = |why: &str| {
            let text = format!("the proxy {proxy} cannot reach {target} ({why})");
            (ErrorKind::Connect, text)
        };
        let (kind, text) = match &error {
            SocksError::AuthorizationRequired | SocksError::NoAcceptableAuthMethods => {
                (ErrorKind::Proxy, self.unauthorized("SOCKS authentication method"))
            }
            SocksError::PasswordAuthFailure(_) => {
                (ErrorKind::Proxy, self.unauthorized("SOCKS authentication"))
            }
            SocksError::InvalidAuthValues(_) => (
                ErrorKind::Proxy,
                format!("{proxy}: SOCKS needs a name and a password of 1 to 255 octets each"),
            ),
            SocksError::ConnectionNotAllowedByRuleset => (
                ErrorKind::Proxy,
                format!(
                    "{proxy} refused a connection to {target}; ask its operator, or name the host in no_proxy"
                ),
            ),
            SocksError::CommandNotSupported => (
                ErrorKind::Proxy,
                format!("{proxy} opens no connections for its clients (SOCKS command not supported)"),
            ),
            SocksError::AddressTypeNotSupported => (
                ErrorKind::Proxy,
                match self.kind() {
                    Kind::Socks5h => {
                        format!("{proxy} resolves no names; use socks5:// to resolve them on this side")
                    }
                    _ => format!("{proxy} does not support the kind of address that {target} has"),
                },
            ),
            SocksError::NetworkUnreachable => unreachable("network unreachable"),
            SocksError::HostUnreachable => unreachable("host unreachable"),
            SocksError::ConnectionRefused => unreachable("connection refused"),
            SocksError::TtlExpired => unreachable("time to live expired"),
            SocksError::GeneralSocksServerFailure | SocksError::UnknownError => {
                unreachable("general failure")
            }
            SocksError::Io(cause) if cause.kind() != io::ErrorKind::UnexpectedEof => {
                return Error::proxy(
                    ErrorKind::Proxy,
                    format!("the connection with {proxy} broke"),
                    Some(error.into()),
                );
            }
            _ => (
                ErrorKind::Proxy,
                format!("{proxy} did not answer as a SOCKS5 proxy; check its URL and port"),
            ),
        };
        Error::proxy(kind, text, None)
    }
}

/// A host and its port, as CONNECT and messages name them.
fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy for a URL, without credentials, and its value of `Proxy-Authorization`.
    fn route(proxies: Proxies, url: &str) -> Option<(String, Option<String>)> {
        let route = proxies.routes()?.to(&url.parse().ok()?)?;
        let basic = route.forwarding().authorization;
        let basic = basic.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Some((route.shown(), basic))
    }

    fn of(variables: &[(&str, &str)]) -> Result<Proxies, Error> {
        Proxies::from_variables(|name| {
            let found = variables.iter().find(|(other, _)| *other == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn the_environment_is_read_as_curl_reads_it() {
        let to = |variables, url| route(of(variables).expect("valid"), url).map(|(proxy, _)| proxy);
        let proxy = |text: &str| Some(text.to_owned());
        let both: &[_] = &[("http_proxy", "a:1"), ("HTTPS_PROXY", "socks5h://b")];
        assert_eq!(to(both, "http://h/"), proxy("http://a:1"));
        assert_eq!(to(both, "https://h/"), proxy("socks5h://b:1080"));
        let all: &[_] = &[("ALL_PROXY", "https://c/"), ("https_proxy", "")];
        assert_eq!(to(all, "http://h/"), proxy("https://c:443"));
        assert_eq!(to(all, "https://h/"), proxy("https://c:443"));
        // A client of a CGI program can set it.
        assert_eq!(to(&[("HTTP_PROXY", "a:1")], "http://h/"), None);
        assert_eq!(to(&[], "https://h/"), None);
        let upper: &[_] = &[("all_proxy", "a:1"), ("NO_PROXY", "h")];
        assert_eq!(to(upper, "https://h/"), None);
        let lower: &[_] = &[("all_proxy", "a:1"), ("NO_PROXY", "h"), ("no_proxy", "i")];
        assert_eq!(to(lower, "https://h/"), proxy("http://a:1"));
        let error = of(&[("https_proxy", "ftp://a")]).expect_err("no proxy");
        assert!(error.to_string().contains("https_proxy"), "{error}");
    }

    #[test]
    fn hosts_that_need_no_proxy_are_names_those_below_them_addresses_and_networks() {
        let proxies = Proxies::all("p:1").expect("valid");
        let list = "localhost, .internal.example one.example. 10.0.0.0/8,[::1],192.0.2.7";
        let proxies = proxies.except(list);
        for (url, is_direct) in [
            ("http://localhost:8080/", true),
            ("https://a.internal.example/", true),
            ("https://ONE.example/", true),
            ("https://a.one.example/", true),
            ("https://none.example/", false),
            ("https://example/", false),
            ("http://10.1.2.3/", true),
            ("http://11.1.2.3/", false),
            ("http://[::1]:80/", true),
            ("http://192.0.2.7/", true),
            ("http://192.0.2.8/", false),
            ("http://localhost./", true),
            ("https://a.one.example.:8443/", true),
        ] {
            assert_eq!(route(proxies.clone(), url).is_none(), is_direct, "{url}");
        }
        let none = proxies.except("*");
        assert_eq!(route(none.clone(), "https://none.example/"), None);
        assert_eq!(route(none, "https://192.0.2.8/"), None);
    }

    #[test]
    fn an_exception_with_a_port_is_for_that_port_and_a_star_before_a_name_is_for_those_below_it() {
        let proxies = Proxies::all("p:1").expect("valid");
        let list = "one.example:8080,*.two.example,[2001:db8::1]:81 [2001:db8:1::]/48,2001:db8:2::1,192.0.2.7:80 none:x";
        let proxies = proxies.except(list);
        for (url, is_direct) in [
            ("http://one.example:8080/", true),
            ("http://a.one.example:8080/", true),
            ("http://one.example/", false),
            ("https://one.example:8443/", false),
            ("http://two.example:8080/", true),
            ("https://a.two.example/", true),
            ("http://atwo.example/", false),
            ("http://[2001:db8::1]:81/", true),
            ("http://[2001:db8::1]/", false),
            ("http://[2001:db8:1::7]/", true),
            ("http://[2001:db8:2::1]/", true),
            ("http://192.0.2.7/", true),
            ("https://192.0.2.7/", false),
            ("http://none/", false),
        ] {
            assert_eq!(route(proxies.clone(), url).is_none(), is_direct, "{url}");
        }
        let some = proxies.except("*:81");
        assert!(route(some.clone(), "http://192.0.2.8:81/").is_none());
        assert!(route(some, "http://192.0.2.8/").is_some());
    }

    #[test]
    fn credentials_are_decoded_for_the_proxy_and_never_shown() {
        let proxies = Proxies::all("http://us%40er:p%3Ass@h:3128").expect("valid");
        assert!(!format!("{proxies:?}").contains("ss@h"), "{proxies:?}");
        let (shown, basic) = route(proxies, "http://a/").expect("a proxy");
        assert_eq!(shown, "http://h:3128");
        // us@er:p:ss
        assert_eq!(basic.as_deref(), Some("Basic dXNAZXI6cDpzcw=="));
        for wrong in ["http://user:pa ss@h", "ftp://user:pass@h", "http://user:pa@ss@h"] {
            let error = Proxies::all(wrong).expect_err(wrong);
            assert!(!error.to_string().contains("ss@"), "{error}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_proxy_is_refused() {
        for wrong in [
            "",
            "http://",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "socks4://h",
            "quic://h",
            "http://[::1",
            "a b",
        ] {
            let error = Proxies::all(wrong).expect_err(wrong);
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}");
        }
        for right in ["h", "h:3128", "HTTP://h", "http://[::1]:8080", "socks5://u:p@h"] {
            assert!(Proxies::all(right).is_ok(), "{right}");
        }
    }
}
