//! From a request of this library to one of HTTP/1.1 (RFC 9112 section 3), and from hyper's errors to its own.

use http::header::{
    CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use http_body::Body;

use super::Forwarding;
use super::outgoing::Outgoing;
use crate::connection_fields::is_coded;
use crate::error::{Error, ErrorKind};

/// The request as it leaves: an origin-form target, or the absolute form for a proxy that forwards it, and `Host` first.
///
/// # Errors
/// [`ErrorKind::InvalidMessage`]: HTTP/1.1 cannot carry the request, or its framing would be ambiguous.
pub(super) fn request(
    head: &Request<()>,
    body: Outgoing,
    forwarding: Option<&Forwarding>,
) -> Result<Request<Outgoing>, Error> {
    check(head, &body)?;
    let mut headers = HeaderMap::with_capacity(head.headers().len() + 3);
    if !head.headers().contains_key(HOST) {
        headers.insert(HOST, host(head.uri())?);
    }
    for (name, value) in head.headers() {
        // hyper adds what fits the body.
        if name != TRANSFER_ENCODING {
            headers.append(name, value.clone());
        }
    }
    if headers.contains_key(TE) {
        // RFC 9110 section 10.1.4: TE is for the next hop only.
        headers.append(http::header::CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(authorization) = forwarding.and_then(|forwarding| forwarding.authorization.clone()) {
        headers.insert(PROXY_AUTHORIZATION, authorization);
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method().clone();
    *request.uri_mut() = target(head, forwarding.is_some())?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok(request)
}

fn check(head: &Request<()>, body: &Outgoing) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::InvalidMessage, text));
    if head.extensions().get::<fullbore_proto::Protocol>().is_some() {
        return invalid("extended CONNECT (RFC 8441) exists only in HTTP/2, and the server speaks HTTP/1.1");
    }
    if *head.method() == Method::CONNECT && !body.is_empty() {
        return invalid("a tunnel over HTTP/1.1 is an upgrade: send CONNECT without a body");
    }
    // A request that is passed on may say `chunked`, which is how its body came.
    if is_coded(head.headers()) {
        return invalid(
            "transfer-encoding may say \"chunked\" and nothing else: the client frames the body itself",
        );
    }
    let mut lengths = head.headers().get_all(CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(()),
        (Some(length), None) => match number(length) {
            Some(1..) if body.is_empty() => invalid("content-length announces a body, and there is none"),
            Some(0) if body.size_hint().lower() > 0 => invalid("content-length is 0, and there is a body"),
            Some(_) => Ok(()),
            None => invalid("content-length is no number"),
        },
        (Some(_), Some(_)) => invalid("content-length occurs twice"),
    }
}

/// The value of `content-length`, which is digits and nothing else.
fn number(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let digits = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The length of the body that the head announces.
pub(super) fn announced(head: &Request<()>) -> Option<u64> {
    number(head.headers().get(CONTENT_LENGTH)?)
}

/// Whether the body waits for 100 (Continue).
pub(super) fn expects_continue(head: &Request<()>) -> bool {
    let value = head.headers().get(EXPECT);
    value.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn target(head: &Request<()>, is_absolute: bool) -> Result<Uri, Error> {
    let mut parts = http::uri::Parts::default();
    match (head.method(), head.uri().authority()) {
        (&Method::CONNECT, authority) => parts.authority = authority.cloned(),
        _ => {
            let path = head.uri().path_and_query().cloned();
            parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
            if is_absolute {
                parts.scheme = Some(Scheme::HTTP);
                parts.authority = without_credentials(head.uri()).parse().ok();
            }
        }
    }
    Uri::from_parts(parts)
        .map_err(|error| Error::with_source(ErrorKind::InvalidUrl, head.uri().to_string(), error))
}

/// The authority without a name and password, which belong in no message (RFC 9110 section 4.2.4).
fn without_credentials(uri: &Uri) -> &str {
    let authority = uri
        .authority()
        .map(http::uri::Authority::as_str)
        .unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

fn host(uri: &Uri) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(without_credentials(uri))
        .map_err(|error| Error::with_source(ErrorKind::InvalidUrl, uri.to_string(), error))
}

/// The error of a response whose length is given in two ways, which may be an attempt to split it (RFC 9112 section 6.3).
pub(super) fn ambiguous(headers: &HeaderMap) -> Option<Error> {
    let both = headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH);
    both.then(|| {
        let text = "the response has both content-length and transfer-encoding";
        Error::new(ErrorKind::Protocol, text)
    })
}

/// What an error of hyper means. `answered` says whether an octet of the response arrived.
pub(super) fn error(error: hyper::Error, answered: bool) -> Error {
    let error = Error::from_hyper(error);
    match answered || !error.is_closed() {
        true => error,
        false => Error::unanswered(ErrorKind::Closed, "the server did not answer", Some(error.into())),
    }
}

/// Whether a response begins as HTTP/2 does: with SETTINGS (RFC 9113 section 3.4) or GOAWAY, on stream 0. The number says
/// how many octets need not be kept.
pub(super) fn is_http2(octets: &[u8]) -> (bool, usize) {
    (matches!(octets, [0, _, _, 4 | 7, 0, 0, 0, 0, 0, ..]), 0)
}

/// Whether a response begins as an alert of TLS does (RFC 8446 section 5.1).
pub(super) fn is_tls(octets: &[u8]) -> bool {
    matches!(octets, [21, 3, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: Method, uri: &str, fields: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    #[test]
    fn the_target_is_in_origin_form_and_host_comes_first() {
        for (uri, target, host) in [
            ("http://one.example", "/", "one.example"),
            ("http://one.example:8080/a?b=c", "/a?b=c", "one.example:8080"),
            ("https://user:secret@[::1]:4433?x", "/?x", "[::1]:4433"),
        ] {
            let fields = [("accept", "a"), ("accept", "b")];
            let sent = request(&head(Method::GET, uri, &fields), Outgoing::empty(), None).expect("valid");
            assert_eq!(sent.uri().to_string(), target);
            assert_eq!(sent.version(), Version::HTTP_11);
            let names: Vec<_> = sent.headers().keys().map(http::HeaderName::as_str).collect();
            assert_eq!(names, ["host", "accept"]);
            assert_eq!(sent.headers()[HOST], host);
            assert_eq!(sent.headers().get_all("accept").iter().count(), 2);
        }
    }

    #[test]
    fn a_host_field_of_the_caller_stays_and_te_is_named_in_connection() {
        let fields = [("host", "two.example"), ("te", "trailers")];
        let sent = request(
            &head(Method::GET, "http://one.example/", &fields),
            Outgoing::empty(),
            None,
        )
        .expect("valid");
        assert_eq!(sent.headers()[HOST], "two.example");
        assert_eq!(sent.headers()["connection"], "te");
    }

    #[test]
    fn a_proxy_that_forwards_gets_the_whole_url_without_the_users_name_and_its_own_credentials() {
        let forwarding = Forwarding {
            authorization: Some(HeaderValue::from_static("Basic eDp5")),
        };
        for (uri, target) in [
            (
                "http://user:secret@one.example:8080/a?b",
                "http://one.example:8080/a?b",
            ),
            ("http://[::1]", "http://[::1]/"),
        ] {
            let head = head(Method::GET, uri, &[]);
            let sent = request(&head, Outgoing::empty(), Some(&forwarding)).expect("valid");
            assert_eq!(sent.uri().to_string(), target);
            assert_eq!(sent.headers()[PROXY_AUTHORIZATION], "Basic eDp5");
        }
    }

    #[test]
    fn connect_has_the_authority_as_its_target() {
        let sent = request(
            &head(Method::CONNECT, "http://one.example:443/", &[]),
            Outgoing::empty(),
            None,
        );
        assert_eq!(sent.expect("valid").uri().to_string(), "one.example:443");
    }

    #[test]
    fn how_the_body_of_a_request_came_that_is_passed_on_is_left_out() {
        let fields = [("transfer-encoding", "Chunked"), ("accept", "a")];
        let head = head(Method::POST, "http://one.example/", &fields);
        let sent = request(&head, Outgoing::empty(), None).expect("valid");
        assert!(!sent.headers().contains_key(TRANSFER_ENCODING));
        assert_eq!(sent.headers()["accept"], "a");
    }

    #[test]
    fn a_framing_that_could_be_read_in_two_ways_is_refused() {
        for fields in [
            &[("transfer-encoding", "gzip, chunked")][..],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "x")],
            &[("content-length", "1"), ("content-length", "1")],
            &[("content-length", "1, 1")],
            &[("content-length", "+1")],
            &[("content-length", "")],
            // There is no body.
            &[("content-length", "1")],
        ] {
            let refused = request(
                &head(Method::POST, "http://one.example/", fields),
                Outgoing::empty(),
                None,
            );
            let error = refused.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{fields:?}");
        }
        for (body, fits) in [("", true), ("there is one", false)] {
            let sent = request(
                &head(Method::POST, "http://one.example/", &[("content-length", "0")]),
                Outgoing::new(body.to_owned()),
                None,
            );
            assert_eq!(sent.is_ok(), fits, "{body:?}");
        }
    }
}
