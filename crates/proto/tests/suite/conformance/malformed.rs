//! RFC 9113 sections 8.1 to 8.3 and 8.5: malformed messages end their stream with PROTOCOL_ERROR, and the connection
//! lives.

use fullbore_proto::{Config, ErrorCode, Event, ReadState, StreamErrorKind};

use crate::support::config;
use crate::support::frames::{
    self, END_HEADERS, END_STREAM, block, pseudo, request_block_with, response_block,
};
use crate::support::peer::{Faced, id};

/// A request with this block is malformed, whether a body follows or not.
#[track_caller]
fn malformed_request(block: &[u8]) {
    for end in [END_STREAM, 0] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::headers(1, END_HEADERS | end, block));
        faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
        assert!(faced.events().is_empty(), "a malformed request was handed on");
        assert_eq!(faced.connection.stream_count(), 0);
        // What follows on the stream was sent before the peer knew.
        faced.says(&frames::data(1, END_STREAM, b"x"));
        faced.lives();
    }
}

#[track_caller]
fn malformed_response(block: &[u8]) {
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::headers(1, END_HEADERS, block));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    is_malformed(&mut faced);
    malformed_response_that_ends(block);
}

/// The stream of a malformed response that ends it is closed, and nothing is sent on it (RFC 9113 section 5.1).
#[track_caller]
fn malformed_response_that_ends(block: &[u8]) {
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, block));
    is_malformed(&mut faced);
    assert!(faced.heard().is_empty());
    faced.lives();
    // The client has more to say, which the server is to stop.
    let mut faced = Faced::client_with_request(Config::default(), false);
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, block));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[track_caller]
fn is_malformed(faced: &mut Faced) {
    let events = faced.events();
    assert!(matches!(&events[..], [Event::Reset(error)] if error.code == ErrorCode::PROTOCOL_ERROR));
}

/// A request and a response with this field behind their pseudo-headers.
#[track_caller]
fn malformed_field(name: &'static str, value: &'static str) {
    malformed_request(&request_block_with("GET", &[(name, value)]));
    malformed_response(&response_block("200", &[(name, value)]));
}

/// The pseudo-headers of a GET without one.
fn without(name: &str) -> Vec<u8> {
    let mut fields = pseudo("GET");
    fields.retain(|field| field.0 != name);
    block(&fields)
}

#[test]
fn field_names_are_lower_case_tokens() {
    for name in [
        "X-Upper",
        "x y",
        "x\u{0}",
        "caf\u{e9}",
        "",
        "x:y",
        "x\r",
        "\u{7f}",
    ] {
        malformed_field(name, "1");
    }
}

#[test]
fn field_values_have_no_control_characters() {
    for value in ["a\0b", "a\nb", "a\rb", " a\u{7f} "] {
        malformed_field("x", value);
    }
}

#[test]
fn field_values_of_requests_have_no_white_space_at_their_ends_and_those_of_responses_may() {
    for value in [" a", "a ", "\ta", "a\t", " "] {
        malformed_request(&request_block_with("GET", &[("x", value)]));
        let mut faced = Faced::client_with_request(Config::default(), true);
        // The second and the third are indexed.
        for status in ["103", "103", "200"] {
            let block = response_block(status, &[("x", value)]);
            faced.says(&frames::headers(1, END_HEADERS, &block));
        }
        let trailers = block(&[("y", value)]);
        faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &trailers));
        let values = faced.events().into_iter().filter_map(|event| match event {
            Event::Informational { response, .. } | Event::Response { response, .. } => {
                Some(response.headers()["x"].clone())
            }
            _ => None,
        });
        assert!(values.eq([value.trim(); 3]), "{value:?}");
        let read = faced.connection.read(id(1), &mut Default::default()).unwrap();
        assert!(matches!(read, ReadState::Trailers(fields) if fields["y"] == value.trim()));
    }
}

#[test]
fn pseudo_headers_are_known_fit_the_message_and_come_first() {
    malformed_field(":unknown", "1");
    malformed_request(&request_block_with("GET", &[("x", "1"), (":path", "/")]));
    malformed_request(&block(&[
        (":method", "GET"),
        ("x", "1"),
        (":scheme", "http"),
        (":path", "/"),
    ]));
    malformed_request(&request_block_with("GET", &[(":status", "200")]));
    malformed_response(&block(&[("x", "1"), (":status", "200")]));
    malformed_response(&block(&[(":status", "200"), (":path", "/")]));
}

#[test]
fn pseudo_headers_come_once() {
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "example.com"),
    ] {
        let mut fields = pseudo("GET");
        fields.push((name, value));
        malformed_request(&block(&fields));
    }
    malformed_response(&block(&[(":status", "200"), (":status", "200")]));
}

#[test]
fn requests_have_a_method_a_scheme_and_a_path() {
    malformed_request(&without(":method"));
    malformed_request(&without(":scheme"));
    malformed_request(&without(":path"));
    malformed_request(&[]);
    let path = |path: &'static str| {
        let mut fields = pseudo("GET");
        fields[3].1 = path;
        block(&fields)
    };
    for wrong in ["", "index.html", "*", "http://example.com/", "/a b"] {
        malformed_request(&path(wrong));
    }
}

#[test]
fn an_authority_may_be_missing_but_not_contradict_the_host() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM,
        &without(":authority"),
    ));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.lives();
    malformed_request(&request_block_with("GET", &[("host", "other.example")]));
}

#[test]
fn responses_have_a_status_of_three_digits() {
    for status in ["", "20", "2000", "abc", "099", "101"] {
        malformed_response(&response_block(status, &[]));
    }
    malformed_response(&block(&[("x", "1")]));
}

#[test]
fn fields_of_one_connection_are_malformed() {
    for (name, value) in [
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "trailers, deflate"),
        ("te", "gzip"),
    ] {
        malformed_field(name, value);
    }
    let mut faced = Faced::server(Config::default());
    let block = request_block_with("GET", &[("te", "trailers")]);
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    faced.lives();
}

#[test]
fn a_content_length_that_the_body_does_not_match_is_malformed() {
    let with = |length| request_block_with("POST", &[("content-length", length)]);
    // Too little, at the head, in DATA, in several frames, before trailers; and too much.
    malformed_request_with_body(&with("1"), END_STREAM, &[]);
    malformed_request_with_body(&with("5"), 0, &[frames::data(1, END_STREAM, b"four")]);
    let two = [frames::data(1, 0, b"fo"), frames::data(1, END_STREAM, b"ur")];
    malformed_request_with_body(&with("5"), 0, &two);
    let padded = frames::data(1, frames::PADDED | END_STREAM, b"\x01four\0");
    malformed_request_with_body(&with("5"), 0, &[padded]);
    let trailers = frames::headers(1, END_HEADERS | END_STREAM, &block(&[("x", "1")]));
    malformed_request_with_body(&with("5"), 0, &[frames::data(1, 0, b"four"), trailers]);
    malformed_request_with_body(&with("3"), 0, &[frames::data(1, 0, b"four")]);
    malformed_request_with_body(&with("0"), 0, &[frames::data(1, 0, b"f")]);
}

#[track_caller]
fn malformed_request_with_body(block: &[u8], flags: u8, frames: &[Vec<u8>]) {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::headers(1, END_HEADERS | flags, block));
    for frame in frames {
        faced.says(frame);
    }
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    if let Some(Event::Reset(error)) = faced.events().last() {
        assert_eq!(error.kind(), StreamErrorKind::ContentLength);
    }
    faced.connection.release(crate::support::peer::id(1));
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn a_content_length_that_the_body_matches_is_fine() {
    let mut faced = Faced::server(Config::default());
    let block = request_block_with("POST", &[("content-length", "4"), ("content-length", "4")]);
    faced.says(&frames::headers(1, END_HEADERS, &block));
    faced.says(&frames::data(1, 0, b"fo"));
    faced.says(&frames::data(1, 0, b"ur"));
    faced.says(&frames::data(1, END_STREAM, b""));
    assert_eq!(faced.reads(1), (b"four".to_vec(), ReadState::End));
    let block = request_block_with("POST", &[("content-length", "0")]);
    faced.says(&frames::headers(3, END_HEADERS | END_STREAM, &block));
    faced.lives();
}

#[test]
fn a_content_length_that_is_no_number_or_differs_is_malformed() {
    for length in ["", "x", "-1", "+1", "1, 2", "1 2", "99999999999999999999999"] {
        malformed_request(&request_block_with("POST", &[("content-length", length)]));
    }
    malformed_request(&request_block_with(
        "POST",
        &[("content-length", "1"), ("content-length", "2")],
    ));
}

#[test]
fn a_response_of_another_length_than_it_says_is_malformed() {
    let head = response_block("200", &[("content-length", "5")]);
    malformed_response_that_ends(&head);
    for body in [&b"four"[..], b"toolong"] {
        let mut faced = Faced::client_with_request(Config::default(), true);
        faced.says(&frames::headers(1, END_HEADERS, &head));
        faced.says(&frames::data(1, END_STREAM, body));
        faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn what_came_before_the_error_of_a_body_can_be_read() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    let head = response_block("200", &[("content-length", "5")]);
    let all = [
        frames::headers(1, END_HEADERS, &head),
        frames::data(1, 0, b"fo"),
        frames::data(1, END_STREAM, b"u"),
    ];
    faced.says(&all.concat());
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    assert_eq!(faced.reads(1), (b"fou".to_vec(), ReadState::Reset));
    faced.lives();
}

#[test]
fn a_body_where_there_can_be_none_is_malformed() {
    let mut faced = Faced::client(Config::default());
    faced.opens("HEAD", true);
    let head = response_block("200", &[("content-length", "5")]);
    faced.says(&frames::headers(1, END_HEADERS, &head));
    faced.says(&frames::data(1, END_STREAM, b"hello"));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    for status in ["204", "304"] {
        let mut faced = Faced::client_with_request(Config::default(), true);
        faced.says(&frames::headers(1, END_HEADERS, &response_block(status, &[])));
        faced.says(&frames::data(1, END_STREAM, b"hello"));
        faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_second_head_without_end_stream_is_malformed() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::headers(1, END_HEADERS, &block(&[("x", "1")])));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    let mut faced = Faced::client_with_request(Config::default(), true);
    for _ in 0..2 {
        faced.says(&frames::headers(1, END_HEADERS, &response_block("200", &[])));
    }
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn pseudo_headers_in_trailers_are_malformed() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM,
        &frames::request_block("POST"),
    ));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn an_informational_response_that_ends_the_stream_is_malformed() {
    malformed_response_that_ends(&response_block("103", &[]));
}

#[test]
fn connect_has_an_authority_and_nothing_else() {
    let authority = (":authority", "example.com:443");
    malformed_request(&block(&[(":method", "CONNECT")]));
    malformed_request(&block(&[(":method", "CONNECT"), authority, (":scheme", "http")]));
    malformed_request(&block(&[(":method", "CONNECT"), authority, (":path", "/")]));
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::headers(
        1,
        END_HEADERS,
        &block(&[(":method", "CONNECT"), authority]),
    ));
    assert!(matches!(faced.events()[..], [Event::Request { end: false, .. }]));
    faced.lives();
}

#[test]
fn protocol_is_for_connect_where_it_was_allowed() {
    let mut fields = pseudo("CONNECT");
    fields.push((":protocol", "websocket"));
    malformed_request(&block(&fields));
    let allowing = config(|config| config.set_enable_connect_protocol(true));
    let mut faced = Faced::server(allowing);
    faced.says(&frames::headers(1, END_HEADERS, &block(&fields)));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    fields[0].1 = "GET";
    faced.says(&frames::headers(3, END_HEADERS, &block(&fields)));
    faced.reset_with(3, ErrorCode::PROTOCOL_ERROR);
}
