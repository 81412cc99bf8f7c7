//! RFC 9113 section 4.3 and RFC 7541: header blocks that cannot be decoded end the connection.

use fullbore_proto::{Config, ErrorCode, Event, FrameType};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, id};

#[track_caller]
fn is_compression_error(suffix: &[u8]) {
    let block = [&frames::request_block("GET")[..], suffix].concat();
    let mut server = Faced::server(Config::default());
    server.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    server.ended_with(ErrorCode::COMPRESSION_ERROR);
    // The same on streams that nobody waits for, and for a client.
    let mut server = Faced::server(config(|config| config.set_max_concurrent_streams(0)));
    server.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    server.ended_with(ErrorCode::COMPRESSION_ERROR);
    let mut client = Faced::client_with_request(Config::default(), true);
    let block = [&frames::response_block("200", &[])[..], suffix].concat();
    client.says(&frames::headers(1, END_HEADERS, &block));
    client.ended_with(ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn an_invalid_index_is_a_compression_error() {
    is_compression_error(&[0x80]);
    is_compression_error(&[0x80 | 62]);
    is_compression_error(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    is_compression_error(&[0x40 | 62, 1, b'a']);
}

#[test]
fn a_block_that_ends_in_a_field_is_a_compression_error() {
    is_compression_error(&[0x00]);
    is_compression_error(&[0x00, 5, b'a']);
    is_compression_error(&[0x00, 1, b'a', 5, b'b']);
    is_compression_error(&[0xff]);
}

#[test]
fn an_integer_that_never_ends_is_a_compression_error() {
    is_compression_error(&[
        0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
    ]);
}

#[test]
fn a_size_update_past_the_limit_or_behind_a_field_is_a_compression_error() {
    is_compression_error(&[0x20]);
    let mut faced = Faced::server(Config::default());
    // 5,000 with a prefix of five bits.
    let block = [&[0x3f, 0xe9, 0x26][..], &frames::request_block("GET")].concat();
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    faced.ended_with(ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn size_updates_within_the_limit_may_begin_a_block() {
    let mut faced = Faced::server(Config::default());
    let block = [&[0x20, 0x3f, 0xe1, 0x1f][..], &frames::request_block("GET")].concat();
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
}

#[test]
fn bad_padding_and_the_end_of_string_symbol_of_huffman_are_compression_errors() {
    // "a" is 00011: padded by zeros, by more than seven bits, and followed by the symbol EOS.
    is_compression_error(&[0x00, 0x81, 0x18, 0x00]);
    is_compression_error(&[0x00, 0x82, 0x1f, 0xff, 0x00]);
    is_compression_error(&[0x00, 0x85, 0x1f, 0xff, 0xff, 0xff, 0xff, 0x00]);
}

#[test]
fn every_representation_of_a_field_is_understood() {
    let fields: [&[u8]; 8] = [
        &[0x40 | 58, 2, b'm', b'e'],
        &[0x7e],
        &[0x00, 1, b'x', 1, b'y'],
        &[0x10, 1, b'x', 1, b'y'],
        &[0x0f, 0x2b, 1, b'y'],
        &[0x40, 1, b'x', 1, b'y'],
        &[0x00, 0x81, 0xf3, 0x81, 0xf5],
        &[0x80 | 62],
    ];
    let mut faced = Faced::server(Config::default());
    let block = [
        &[0x82, 0x86, 0x84, 0x41, 1, b'h'][..],
        fields[0],
        fields[2],
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        fields[7],
    ]
    .concat();
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    let events = faced.events();
    let [Event::Request { request, .. }] = &events[..] else {
        panic!("{events:?} {:?}", faced.connection.error())
    };
    assert_eq!(request.uri(), "http://h/");
    assert_eq!(request.headers()["user-agent"], "me");
    assert_eq!(request.headers().get_all("x").iter().count(), 5);
}

#[test]
fn the_next_block_behind_settings_begins_with_the_size_update_whatever_block_it_is() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced.heard();
    // SETTINGS_HEADER_TABLE_SIZE = 0.
    faced.says(&frames::settings(&[(1, 0)]));
    faced.heard();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x", "y".parse().unwrap());
    faced.connection.send_trailers(id(1), trailers).unwrap();
    let heard = faced.heard_of(FrameType::HEADERS);
    assert_eq!(heard.len(), 1);
    assert!(heard[0].payload.starts_with(&[0x20]), "{heard:?}");
}

#[test]
fn the_table_stays_right_across_blocks_that_are_refused() {
    // Each block enters a field and then uses it, in a stream that is malformed, refused, or fine.
    let mut faced = Faced::server(config(|config| config.set_max_concurrent_streams(1)));
    let enter = [0x40, 1, b'x', 1, b'1'];
    let malformed = [&frames::block(&[(":method", "GET")])[..], &enter].concat();
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &malformed));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    let uses = [
        &frames::request_block("GET")[..],
        &[0x80 | 62, 0x40, 1, b'y', 1, b'2'],
    ]
    .concat();
    faced.says(&frames::headers(3, END_HEADERS | END_STREAM, &uses));
    let refused = [
        &frames::request_block("GET")[..],
        &[0x80 | 63, 0x40, 1, b'z', 1, b'3'],
    ]
    .concat();
    faced.says(&frames::headers(5, END_HEADERS | END_STREAM, &refused));
    faced.reset_with(5, ErrorCode::REFUSED_STREAM);
    faced.answers(3);
    faced.events();
    let all = [
        &frames::request_block("GET")[..],
        &[0x80 | 62, 0x80 | 63, 0x80 | 64],
    ]
    .concat();
    faced.says(&frames::headers(7, END_HEADERS | END_STREAM, &all));
    let events = faced.events();
    let [Event::Request { request, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    let fields: Vec<_> = ["z", "y", "x"]
        .iter()
        .map(|&name| request.headers()[name].as_bytes())
        .collect();
    assert_eq!(fields, [b"3", b"2", b"1"]);
}
