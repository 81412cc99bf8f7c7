//! The answer of `--redirect-http`: the same URL with https.
//!
//! The host is the one that the client names. It must be one for which the certificate is valid, so that nobody can have this
//! server send clients to a host of theirs.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HOST, LOCATION};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode};

use super::certificate::Certificate;
use super::text::text;

/// The longest path and query, in bytes: as much as every server is to take (RFC 9110 section 4.1).
const TARGET_BYTES: usize = 8_000;

/// Redirects to a port of https.
pub(super) struct Redirect {
    pub(super) certificate: Arc<Certificate>,
    pub(super) port: u16,
}

impl Redirect {
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Bytes> {
        match self.location(request) {
            Ok(location) => {
                let mut response = text(StatusCode::PERMANENT_REDIRECT, "this server speaks https\n");
                response.headers_mut().insert(LOCATION, location);
                response
            }
            Err(status) => text(
                status,
                match status {
                    StatusCode::MISDIRECTED_REQUEST => {
                        "the certificate of this server is not valid for this host, or the target is no http URL\n"
                    }
                    StatusCode::URI_TOO_LONG => "the path and query are too long\n",
                    _ => "the request names no host\n",
                },
            ),
        }
    }

    fn location<B>(&self, request: &Request<B>) -> Result<HeaderValue, StatusCode> {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        let uri = request.uri();
        let named = || Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok();
        let authority = uri.authority().cloned().or_else(named).ok_or(BAD)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        if authority.as_str().contains('@') || !path.starts_with('/') {
            return Err(BAD);
        }
        // The redirect repeats it, and with HPACK a request repeats a long one for one byte.
        if path.len() > TARGET_BYTES {
            return Err(StatusCode::URI_TOO_LONG);
        }
        if uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP) {
            return Err(StatusCode::MISDIRECTED_REQUEST);
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if !self.certificate.is_valid_for(bare.unwrap_or(host)) {
            return Err(StatusCode::MISDIRECTED_REQUEST);
        }
        let location = match self.port {
            443 => format!("https://{host}{path}"),
            port => format!("https://{host}:{port}{path}"),
        };
        HeaderValue::try_from(location.into_bytes()).map_err(|_| BAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::certificate::Source;

    fn redirect(port: u16) -> Redirect {
        let names = ["files.example", "192.0.2.7", "::1"].map(str::to_owned).to_vec();
        let source = Source::SelfSigned { names, kept: None };
        let (certificate, _) = Certificate::load(source, None).unwrap();
        Redirect { certificate, port }
    }

    fn answer(port: u16, uri: &str, host: &str) -> (u16, String) {
        let request = Request::get(uri).header(HOST, host).body(()).unwrap();
        let response = redirect(port).answer(&request);
        let location = response.headers().get(LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), location.unwrap_or_default())
    }

    #[test]
    fn the_url_stays_the_same_but_for_the_scheme_and_the_port() {
        for (port, uri, host, location) in [
            (443, "/a?b=c", "files.example", "https://files.example/a?b=c"),
            (443, "/", "files.example:80", "https://files.example/"),
            (8443, "/", "files.example:8080", "https://files.example:8443/"),
            (8443, "/", "[::1]:8080", "https://[::1]:8443/"),
            (
                443,
                "http://files.example/a",
                "files.example",
                "https://files.example/a",
            ),
            (
                443,
                "//evil.example/",
                "192.0.2.7",
                "https://192.0.2.7//evil.example/",
            ),
        ] {
            assert_eq!(
                answer(port, uri, host),
                (308, location.to_owned()),
                "{uri} {host}"
            );
        }
    }

    #[test]
    fn a_host_that_the_certificate_does_not_name_is_refused() {
        for (uri, host, status) in [
            ("/", "evil.example", 421),
            ("http://evil.example/", "files.example", 421),
            ("/", "evil.example@files.example", 400),
            ("/", "files.example/evil", 400),
            ("/", "", 400),
            ("*", "files.example", 400),
            ("ftp://files.example/", "files.example", 421),
            (&format!("/{}", "a".repeat(8_000)), "files.example", 414),
        ] {
            assert_eq!(answer(443, uri, host), (status, String::new()), "{uri} {host}");
        }
    }
}
