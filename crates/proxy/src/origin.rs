//! Where requests go: the URL of an origin, and the client for it.

use std::fmt;

use fullbore::client::OriginStats;
use fullbore::settings::HttpVersions;
use fullbore::{Client, ClientBuilder};
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// What is wrong with the URL of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidOrigin {
    url: String,
    why: &'static str,
}

impl fmt::Display for InvalidOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.why)
    }
}

impl std::error::Error for InvalidOrigin {}

/// An origin, as its URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the caller wrote it.
    pub(crate) name: String,
    scheme: Scheme,
    authority: Authority,
    speaks: Speaks,
    /// The path of a Unix socket.
    socket: Option<String>,
}

/// The versions of HTTP that an origin may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
    Either,
}

impl Target {
    /// Parses `http://`, `h2c://`, `https://` with a host, or `unix:` with the path of a socket.
    pub(crate) fn parse(url: &str) -> Result<Self, InvalidOrigin> {
        let invalid = |why| InvalidOrigin {
            url: url.to_owned(),
            why,
        };
        if let Some(path) = url.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return Err(invalid("give the path of the socket, such as unix:/run/app.sock"));
            }
            if cfg!(not(unix)) {
                return Err(invalid("this system has no Unix sockets"));
            }
            return Ok(Self {
                name: url.to_owned(),
                scheme: Scheme::HTTP,
                authority: Authority::from_static("localhost"),
                speaks: Speaks::Either,
                socket: Some(path.to_owned()),
            });
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("expected a URL such as http://127.0.0.1:3000 or unix:/run/app.sock"))?;
        let (scheme, speaks) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Scheme::HTTP, Speaks::Http1),
            "h2c" => (Scheme::HTTP, Speaks::Http2),
            "https" => (Scheme::HTTPS, Speaks::Either),
            _ => return Err(invalid("its scheme is none of http, h2c, https and unix")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains('@') {
            return Err(invalid(
                "leave out the user and the password: the origin sees those of the client",
            ));
        }
        if rest.contains(['/', '?', '#']) {
            return Err(invalid("leave out the path: the origin sees that of the client"));
        }
        let authority = Authority::try_from(rest).map_err(|_| invalid("its host or port is invalid"))?;
        let names_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || (names_port && authority.port_u16().is_none_or(|port| port == 0)) {
            return Err(invalid("its host or port is invalid"));
        }
        Ok(Self {
            name: url.to_owned(),
            scheme,
            authority,
            speaks,
            socket: None,
        })
    }

    /// Connects to this origin.
    pub(crate) fn origin(self, builder: ClientBuilder) -> Result<Origin, fullbore::Error> {
        let builder = match self.socket {
            #[cfg(unix)]
            Some(path) => builder.connector(Socket(std::path::PathBuf::from(path).into())),
            _ => builder,
        };
        let speaking = |versions| builder.clone().http_versions(versions).build();
        let (client, upgrades) = match self.speaks {
            Speaks::Http1 => (speaking(HttpVersions::Http1)?, None),
            Speaks::Http2 => (speaking(HttpVersions::Http2)?, None),
            Speaks::Either => (
                speaking(HttpVersions::Both)?,
                Some(speaking(HttpVersions::Http1)?),
            ),
        };
        Ok(Origin {
            name: self.name,
            scheme: self.scheme,
            authority: self.authority,
            is_http2: self.speaks == Speaks::Http2,
            client,
            upgrades,
        })
    }
}

/// An origin and its connections.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: String,
    scheme: Scheme,
    authority: Authority,
    /// Whether it speaks nothing but HTTP/2.
    pub(crate) is_http2: bool,
    client: Client,
    /// Speaks HTTP/1.1 to an origin that has both versions.
    upgrades: Option<Client>,
}

impl Origin {
    /// Of all its connections.
    pub(crate) fn stats(&self) -> Vec<OriginStats> {
        let mut stats = self.client.stats();
        stats.extend(self.upgrades.iter().flat_map(Client::stats));
        stats
    }

    /// For requests.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// For requests that upgrade their connection.
    pub(crate) fn upgrades(&self) -> &Client {
        self.upgrades.as_ref().unwrap_or(&self.client)
    }

    /// The URL of a request. The path is that of the client, octet by octet.
    pub(crate) fn uri(&self, path: Option<PathAndQuery>) -> Result<Uri, http::Error> {
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
    }
}

/// Connects to a Unix socket.
#[cfg(unix)]
#[derive(Clone, Debug)]
struct Socket(std::sync::Arc<std::path::Path>);

#[cfg(unix)]
impl tower_service::Service<Uri> for Socket {
    type Response = tokio::net::UnixStream;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = std::sync::Arc::clone(&self.0);
        Box::pin(async move { tokio::net::UnixStream::connect(path).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_the_origin_is_and_what_it_speaks() {
        for (url, uri, speaks) in [
            (
                "http://127.0.0.1:3000",
                "http://127.0.0.1:3000/a?b",
                Speaks::Http1,
            ),
            ("HTTP://localhost/", "http://localhost/a?b", Speaks::Http1),
            ("h2c://[::1]:50051", "http://[::1]:50051/a?b", Speaks::Http2),
            ("https://app.example", "https://app.example/a?b", Speaks::Either),
        ] {
            let target = Target::parse(url).expect(url);
            assert_eq!((target.speaks, target.name.as_str()), (speaks, url));
            let builder = Client::builder();
            let origin = target.origin(builder).expect("an origin");
            let path = PathAndQuery::from_static("/a?b");
            assert_eq!(origin.uri(Some(path)).expect("a URL").to_string(), uri);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_unix_socket_has_a_path() {
        for url in ["unix:/run/app.sock", "unix:///run/app.sock"] {
            let target = Target::parse(url).expect(url);
            assert_eq!(target.socket.as_deref(), Some("/run/app.sock"));
            assert_eq!(target.speaks, Speaks::Either);
        }
        assert!(Target::parse("unix:run/app.sock").is_err());
    }

    #[test]
    fn an_url_that_cannot_be_meant_is_refused_with_what_to_do() {
        for (url, says) in [
            ("127.0.0.1:3000", "expected a URL"),
            ("localhost", "expected a URL"),
            ("ftp://h", "scheme"),
            ("http://", "host or port"),
            ("http://:80", "host or port"),
            ("http://h:", "host or port"),
            ("http://h:0", "host or port"),
            ("http://h:65536", "host or port"),
            ("http://h/app", "leave out the path"),
            ("http://h?a", "leave out the path"),
            ("http://u:p@h", "leave out the user"),
        ] {
            let error = Target::parse(url).expect_err(url).to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
    }
}
