//! From a request of this library to one of HTTP/1.1 (RFC 9112 section 3), and from hyper's errors to its own.

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, RETRY_AFTER, TE,
    TRANSFER_ENCODING,
};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};

use super::Forwarding;
use super::outgoing::Outgoing;
use crate::connection_fields::is_coded;
use crate::content_length::{self, Length};
use crate::error::{Error, ErrorKind};

/// The request as it leaves: an origin-form target, or the absolute form for a proxy that forwards it, and `Host` first. With
/// it the length of its body.
///
/// # Errors
/// [`ErrorKind::InvalidMessage`]: HTTP/1.1 cannot carry the request, or its framing would be ambiguous.
pub(super) fn request(
    head: &Request<()>,
    body: Outgoing,
    forwarding: Option<&Forwarding>,
) -> Result<(Request<Outgoing>, Length), Error> {
    check(head)?;
    let mut headers = fields(head)?;
    let length = frame(head.method(), &mut headers, &body)?;
    if headers.contains_key(TE) {
        // RFC 9110 section 10.1.4: TE is for the next hop only.
        headers.append(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(authorization) = forwarding.and_then(|forwarding| forwarding.authorization.clone()) {
        headers.insert(PROXY_AUTHORIZATION, authorization);
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method().clone();
    *request.uri_mut() = target(head, forwarding.is_some())?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok((request, length))
}

/// The fields of a request, with `Host` first if it has none.
fn fields(head: &Request<()>) -> Result<HeaderMap, Error> {
    let own = head.headers();
    let has_host = own.contains_key(HOST);
    // A request that is passed on. A copy of the whole map costs a tenth of one that hashes each name again.
    if has_host && !own.contains_key(TRANSFER_ENCODING) {
        return Ok(own.clone());
    }
    let mut headers = HeaderMap::with_capacity(own.len() + 3);
    if !has_host {
        headers.insert(HOST, host(head.uri())?);
    }
    for (name, value) in own {
        // hyper adds what fits the body.
        if name != TRANSFER_ENCODING {
            headers.append(name, value.clone());
        }
    }
    Ok(headers)
}

/// Makes the fields say how long the body is, where hyper does not.
fn frame(method: &Method, headers: &mut HeaderMap, body: &Outgoing) -> Result<Length, Error> {
    if *method == Method::CONNECT {
        if !body.is_empty() {
            let text = "a tunnel over HTTP/1.1 is an upgrade: send CONNECT without a body";
            return Err(Error::new(ErrorKind::InvalidMessage, text));
        }
        // RFC 9110 section 9.3.6: such a request has no content.
        headers.remove(CONTENT_LENGTH);
        return Ok(Length::UNKNOWN);
    }
    let length = content_length::announced(headers, body)?;
    // hyper takes it that GET and HEAD have no body, unless the fields say so.
    let is_silent = matches!(*method, Method::GET | Method::HEAD);
    if is_silent && !length.is_known() && !body.is_empty() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(length)
}

fn check(head: &Request<()>) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::InvalidMessage, text));
    if head.extensions().get::<fullbore_proto::Protocol>().is_some() {
        return invalid("extended CONNECT (RFC 8441) exists only in HTTP/2, and the server speaks HTTP/1.1");
    }
    if head.headers().get_all(HOST).iter().nth(1).is_some() {
        return invalid("the host field is there twice");
    }
    // A request that is passed on may say `chunked`, which is how its body came.
    if is_coded(head.headers()) {
        return invalid(
            "transfer-encoding may say \"chunked\" and nothing else: the client frames the body itself",
        );
    }
    Ok(())
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
    Uri::from_parts(parts).map_err(|error| Error::invalid_url(&head.uri().to_string(), error.to_string()))
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
        .map_err(|error| Error::invalid_url(&uri.to_string(), error.to_string()))
}

/// The error of a response whose length is given in two ways, which may be an attempt to split it (RFC 9112 section 6.3). Of
/// equal lengths one stays. hyper looks at the lengths of responses with a body alone.
pub(super) fn ambiguous(headers: &mut HeaderMap) -> Option<Error> {
    headers.get(CONTENT_LENGTH)?;
    let text = if headers.contains_key(TRANSFER_ENCODING) {
        "the response has both content-length and transfer-encoding"
    } else if content_length::unify(headers).is_ok() {
        return None;
    } else {
        "the response has a content-length that is no number, or several that differ"
    };
    Some(Error::new(ErrorKind::Protocol, text))
}

/// Whether the first response on a connection says that the server takes no further ones, as nginx does with `limit_conn`.
/// One with `retry-after` is about the request.
pub(super) fn turns_away<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE && !response.headers().contains_key(RETRY_AFTER)
}

/// What an error of hyper means. `answered` says whether an octet of the response arrived.
pub(super) fn error(error: hyper::Error, answered: bool) -> Error {
    if let Some(failure) = tls_failure(&error) {
        return failure;
    }
    let error = Error::from_hyper(error);
    match answered || !error.is_closed() {
        true => error,
        false => Error::unanswered(ErrorKind::Closed, "the server did not answer", Some(error.into())),
    }
}

/// The failure of TLS behind an error. Over TLS 1.3 a server says only after the handshake that it does not accept the
/// certificate of this side (RFC 8446 section 4.4.2.4), often before a request is sent.
pub(super) fn tls_failure(error: &hyper::Error) -> Option<Error> {
    #[cfg(feature = "tls")]
    return crate::tls::failure_behind(error);
    #[cfg(not(feature = "tls"))]
    {
        let _ = error;
        None
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

    /// A request without a body, as it leaves.
    fn sent(head: &Request<()>, forwarding: Option<&Forwarding>) -> Request<Outgoing> {
        request(head, Outgoing::empty(), forwarding).expect("valid").0
    }

    #[test]
    fn a_response_has_one_length_or_none() {
        for (lengths, left) in [
            (&[][..], Some(None)),
            (&["5"], Some(Some("5"))),
            (&["5", "5"], Some(Some("5"))),
            (&["5, 5"], Some(Some("5"))),
            (&["5", "6"], None),
            (&["5, 6"], None),
            (&["+5"], None),
            (&[""], None),
            (&["5,"], None),
        ] {
            let mut headers = HeaderMap::new();
            for length in lengths {
                headers.append(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            let error = ambiguous(&mut headers);
            let own = headers
                .get(CONTENT_LENGTH)
                .and_then(|length| length.to_str().ok());
            match left {
                Some(left) => assert_eq!((error.is_none(), own), (true, left), "{lengths:?}"),
                None => assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Protocol)),
            }
        }
    }

    #[test]
    fn the_target_is_in_origin_form_and_host_comes_first() {
        for (uri, target, host) in [
            ("http://one.example", "/", "one.example"),
            ("http://one.example:8080/a?b=c", "/a?b=c", "one.example:8080"),
            ("https://user:secret@[::1]:4433?x", "/?x", "[::1]:4433"),
        ] {
            let fields = [("accept", "a"), ("accept", "b")];
            let sent = sent(&head(Method::GET, uri, &fields), None);
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
        let sent = sent(&head(Method::GET, "http://one.example/", &fields), None);
        assert_eq!(sent.headers()[HOST], "two.example");
        assert_eq!(sent.headers()["connection"], "te");
    }

    #[test]
    fn a_proxy_that_forwards_gets_the_whole_url_without_the_users_name_and_its_own_credentials() {
        let forwarding = Forwarding {
            proxy: "http://p:3128".to_owned(),
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
            let sent = sent(&head, Some(&forwarding));
            assert_eq!(sent.uri().to_string(), target);
            assert_eq!(sent.headers()[PROXY_AUTHORIZATION], "Basic eDp5");
        }
    }

    #[test]
    fn connect_has_the_authority_as_its_target() {
        let fields = [("content-length", "5")];
        let sent = sent(&head(Method::CONNECT, "http://one.example:443/", &fields), None);
        assert_eq!(sent.uri().to_string(), "one.example:443");
        assert!(!sent.headers().contains_key(CONTENT_LENGTH));
    }

    #[test]
    fn how_the_body_of_a_request_came_that_is_passed_on_is_left_out() {
        let fields = [("transfer-encoding", "Chunked"), ("accept", "a")];
        let head = head(Method::POST, "http://one.example/", &fields);
        let sent = sent(&head, None);
        assert!(!sent.headers().contains_key(TRANSFER_ENCODING));
        assert_eq!(sent.headers()["accept"], "a");
    }

    #[test]
    fn a_framing_that_could_be_read_in_two_ways_is_refused() {
        for fields in [
            &[("transfer-encoding", "gzip, chunked")][..],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "x")],
            &[("content-length", "1"), ("content-length", "2")],
            &[("content-length", "1, 2")],
            &[("host", "one.example"), ("host", "one.example")],
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
