//! What is checked before it is sent, and what is then written.

use super::*;
use crate::hpack::{Decoder, Encoder, FieldLimits};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};

/// The lines of a field block.
fn lines(block: &[u8]) -> Vec<(String, String)> {
    let limits = FieldLimits {
        max_bytes: 65_536,
        max_fields: 100,
    };
    let mut section = FieldSection::new();
    Decoder::new(4096).decode(block, &limits, &mut section).unwrap();
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    section
        .fields()
        .iter()
        .map(|field| (text(field.name.as_bytes()), text(field.value.as_bytes())))
        .collect()
}

/// The lines that a request is sent as, once it passed its check.
#[track_caller]
fn sent(request: &Request<()>) -> Vec<(String, String)> {
    check_request(request, false, usize::MAX).unwrap();
    let mut block = Vec::new();
    encode_request(&mut Encoder::new(4096), request, &mut block);
    lines(&block)
}

#[track_caller]
fn assert_sent(request: &Request<()>, expected: &[(&str, &str)]) {
    let sent = sent(request);
    let sent: Vec<(&str, &str)> = sent
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(sent, expected);
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

fn get_with_field(name: &'static str, value: &'static str) -> Request<()> {
    let mut request = get("https://example.com/");
    request
        .headers_mut()
        .append(name, HeaderValue::from_static(value));
    request
}

#[test]
fn a_request_is_sent_with_its_pseudo_headers_first() {
    let mut request = get("https://example.com:8443/a?b");
    request.headers_mut().insert("x-a", HeaderValue::from_static("1"));
    assert_sent(
        &request,
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "example.com:8443"),
            (":path", "/a?b"),
            ("x-a", "1"),
        ],
    );
}

#[test]
fn what_is_no_secret_is_sent_again_as_an_octet_a_field() {
    let mut request = get_with_field("x-a", "1");
    *request.method_mut() = Method::CONNECT;
    let protocol = crate::message::Protocol::from_static("websocket");
    request.extensions_mut().insert(protocol);
    let mut response = Response::new(());
    response
        .headers_mut()
        .insert("x-b", HeaderValue::from_static("2"));
    let date = HeaderValue::from_static("Mon, 23 Nov 2026 10:00:00 GMT");
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("x-c"),
        HeaderValue::from_static("3"),
    )]);
    let mut encoder = Encoder::new(4096);
    let mut lengths = || {
        let mut blocks = [const { Vec::new() }; 3];
        encode_request(&mut encoder, &request, &mut blocks[0]);
        encode_response(&mut encoder, &response, Some(&date), &mut blocks[1]);
        encode_trailers(&mut encoder, &trailers, &mut blocks[2]);
        blocks.map(|block| block.len())
    };
    lengths();
    // Five pseudo-header fields and one more, the status and two more, and one.
    assert_eq!(lengths(), [6, 3, 1]);
}

#[test]
fn a_request_that_was_sent_is_received_as_it_was() {
    let mut request = get("https://example.com/a?b=c");
    request.headers_mut().append("x-a", HeaderValue::from_static("1"));
    request.headers_mut().append("x-a", HeaderValue::from_static("2"));
    let mut secret = HeaderValue::from_static("secret");
    secret.set_sensitive(true);
    request.headers_mut().append("x-b", secret);
    let mut block = Vec::new();
    encode_request(&mut Encoder::new(4096), &request, &mut block);

    let limits = FieldLimits {
        max_bytes: 65_536,
        max_fields: 100,
    };
    let mut section = FieldSection::new();
    Decoder::new(4096).decode(&block, &limits, &mut section).unwrap();
    let received = receive_request(&mut section, false).unwrap();
    assert_eq!(
        (received.method(), received.uri()),
        (request.method(), request.uri())
    );
    assert_eq!(received.headers(), request.headers());
    assert!(received.headers()["x-b"].is_sensitive());
    assert!(!received.headers()["x-a"].is_sensitive());
}

#[test]
fn an_empty_path_is_sent_as_a_slash() {
    assert!(sent(&get("https://example.com")).contains(&(":path".into(), "/".into())));
    assert!(sent(&get("https://example.com?a")).contains(&(":path".into(), "/?a".into())));
}

#[test]
fn options_of_the_server_itself_is_sent_as_a_star() {
    let mut parts = get("https://example.com").into_parts().0;
    parts.method = Method::OPTIONS;
    let mut uri = parts.uri.into_parts();
    uri.path_and_query = Some("*".parse().unwrap());
    parts.uri = Uri::from_parts(uri).unwrap();
    let mut request = Request::from_parts(parts, ());
    assert!(sent(&request).contains(&(":path".into(), "*".into())));
    *request.method_mut() = Method::GET;
    assert_eq!(
        check_request(&request, false, usize::MAX),
        Err(InvalidMessage::Path)
    );
}

#[test]
fn host_is_left_out_since_the_authority_says_it() {
    for host in ["example.com", "Example.com", "example.com:443"] {
        let sent = sent(&get_with_field("host", host));
        assert_eq!(sent.len(), 4);
        assert!(sent.contains(&(":authority".into(), "example.com".into())));
    }
}

#[test]
fn a_host_that_differs_cannot_be_sent() {
    assert_eq!(
        check_request(&get_with_field("host", "example.org"), false, usize::MAX),
        Err(InvalidMessage::Host)
    );
    let mut request = get_with_field("host", "example.com");
    request
        .headers_mut()
        .append("host", HeaderValue::from_static("example.com"));
    assert_eq!(
        check_request(&request, false, usize::MAX),
        Err(InvalidMessage::Host)
    );
}

#[test]
fn a_relative_uri_cannot_be_sent() {
    assert_eq!(
        check_request(&get("/a"), false, usize::MAX),
        Err(InvalidMessage::RelativeUri)
    );
    assert_eq!(
        check_request(&get("example.com"), false, usize::MAX),
        Err(InvalidMessage::RelativeUri)
    );
}

#[test]
fn userinfo_cannot_be_sent() {
    assert_eq!(
        check_request(&get("https://user:secret@example.com/"), false, usize::MAX),
        Err(InvalidMessage::UserInfo)
    );
}

#[test]
fn connect_is_sent_with_an_authority_alone() {
    let request = Request::connect("example.com:443").body(()).unwrap();
    assert_sent(
        &request,
        &[(":method", "CONNECT"), (":authority", "example.com:443")],
    );
    let request = Request::connect("/a").body(()).unwrap();
    assert_eq!(
        check_request(&request, false, usize::MAX),
        Err(InvalidMessage::ConnectWithoutAuthority)
    );
}

#[test]
fn extended_connect_is_sent_with_all_pseudo_headers() {
    let mut request = Request::connect("https://example.com/chat").body(()).unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    assert_sent(
        &request,
        &[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "example.com"),
            (":path", "/chat"),
        ],
    );
    let mut relative = request.clone();
    *relative.uri_mut() = Uri::from_static("example.com:443");
    assert_eq!(
        check_request(&relative, false, usize::MAX),
        Err(InvalidMessage::RelativeUri)
    );
    *request.method_mut() = Method::GET;
    assert_eq!(
        check_request(&request, false, usize::MAX),
        Err(InvalidMessage::ProtocolWithoutConnect)
    );
}

#[test]
fn connection_specific_fields_cannot_be_sent() {
    for name in [
        "connection",
        "proxy-connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ] {
        let error = Err(InvalidMessage::ConnectionSpecificField(name.parse().unwrap()));
        let request = get_with_field(name, "x");
        assert_eq!(check_request(&request, false, usize::MAX), error);
        assert_eq!(check_trailers(request.headers(), usize::MAX), error);
        let mut response = Response::new(());
        *response.headers_mut() = request.headers().clone();
        assert_eq!(check_response(&response, usize::MAX), error);
    }
}

#[test]
fn te_can_be_sent_as_trailers_alone() {
    assert_eq!(
        check_request(&get_with_field("te", "trailers"), false, usize::MAX),
        Ok(())
    );
    assert_eq!(
        check_request(&get_with_field("te", "gzip"), false, usize::MAX),
        Err(InvalidMessage::Te)
    );
}

#[test]
fn outer_white_space_cannot_be_sent() {
    let error = InvalidMessage::FieldValue("x".parse().unwrap());
    assert_eq!(
        check_request(&get_with_field("x", " a"), false, usize::MAX),
        Err(error.clone())
    );
    assert_eq!(
        check_request(&get_with_field("x", "a\t"), false, usize::MAX),
        Err(error)
    );
    assert_eq!(check_request(&get_with_field("x", ""), false, usize::MAX), Ok(()));
}

#[test]
fn a_content_length_that_is_none_cannot_be_sent() {
    assert_eq!(
        check_request(&get_with_field("content-length", "five"), false, usize::MAX),
        Err(InvalidMessage::ContentLength)
    );
    assert_eq!(
        check_request(&get_with_field("content-length", "5"), false, usize::MAX),
        Ok(())
    );
}

#[test]
fn a_response_is_sent_with_its_status_first() {
    let mut response = Response::new(());
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response
        .headers_mut()
        .insert("server", HeaderValue::from_static("x"));
    check_response(&response, usize::MAX).unwrap();
    let mut block = Vec::new();
    encode_response(&mut Encoder::new(4096), &response, None, &mut block);
    assert_eq!(
        lines(&block),
        [(":status".into(), "404".into()), ("server".into(), "x".into())]
    );
}

#[test]
fn a_response_without_a_date_is_given_one() {
    let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
    for own in [None, Some("Mon, 07 Nov 1994 08:49:37 GMT")] {
        let mut response = Response::new(());
        if let Some(own) = own {
            response
                .headers_mut()
                .insert("date", HeaderValue::from_static(own));
        }
        let mut block = Vec::new();
        encode_response(&mut Encoder::new(4096), &response, Some(&date), &mut block);
        let expected = own.unwrap_or("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(
            lines(&block),
            [(":status".into(), "200".into()), ("date".into(), expected.into())]
        );
    }
}

#[test]
fn switching_protocols_cannot_be_sent() {
    let response = Response::builder().status(101).body(()).unwrap();
    assert_eq!(
        check_response(&response, usize::MAX),
        Err(InvalidMessage::SwitchingProtocols)
    );
}

#[test]
fn trailers_are_sent_as_they_are() {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    check_trailers(&trailers, usize::MAX).unwrap();
    let mut block = Vec::new();
    encode_trailers(&mut Encoder::new(4096), &trailers, &mut block);
    assert_eq!(lines(&block), [("grpc-status".into(), "0".into())]);
}

#[test]
fn every_reason_says_what_to_do() {
    for reason in [
        InvalidMessage::RelativeUri,
        InvalidMessage::ConnectWithoutAuthority,
        InvalidMessage::UserInfo,
        InvalidMessage::Host,
        InvalidMessage::ProtocolWithoutConnect,
        InvalidMessage::SwitchingProtocols,
        InvalidMessage::ConnectionSpecificField(http::header::UPGRADE),
        InvalidMessage::FieldValue(http::header::ACCEPT),
    ] {
        assert!(reason.to_string().contains(": "), "{reason}");
    }
}

#[test]
fn what_is_much_larger_than_the_peer_accepts_is_refused() {
    let request = get_with_field("x-long", "12345678");
    // The name, the value and 32 octets for each field, those with a colon too (RFC 9113 section 6.5.2).
    let size: usize = [
        ":methodGET",
        ":schemehttps",
        ":authorityexample.com",
        ":path/",
        "x-long12345678",
    ]
    .iter()
    .map(|field| field.len() + 32)
    .sum();
    assert_eq!(check_request(&request, false, size), Ok(()));
    assert_eq!(
        check_request(&request, false, size - 1),
        Err(InvalidMessage::TooLarge)
    );
    assert!(fits(&request, size) && !fits(&request, size - 1));
    // The authority takes the place of this one.
    let mut with_host = get_with_field("x-long", "12345678");
    with_host
        .headers_mut()
        .insert("host", HeaderValue::from_static("example.com"));
    assert!(fits(&with_host, size) && !fits(&with_host, size - 1));
    assert_eq!(check_trailers(request.headers(), 46), Ok(()));
    assert_eq!(
        check_trailers(request.headers(), 45),
        Err(InvalidMessage::TooLarge)
    );
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers = request.headers().clone();
    let response = Response::from_parts(head, ());
    let size = 46 + ":status200".len() + 32;
    assert_eq!(check_response(&response, size), Ok(()));
    assert_eq!(check_response(&response, size - 1), Err(InvalidMessage::TooLarge));
}
