//! Frames written by hand, with the types of the engine.

pub(crate) use fullbore_testing::frames::*;

use fullbore_proto::ErrorCode;

/// The opaque data of the PING that follows the first GOAWAY of a graceful shutdown.
pub(crate) const SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

pub(crate) fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    fullbore_testing::frames::reset(stream, code.0)
}

pub(crate) fn go_away(last_stream: u32, code: ErrorCode) -> Vec<u8> {
    fullbore_testing::frames::go_away(last_stream, code.0)
}

/// A GET without a body.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &request_block("GET"))
}

/// The header of a POST whose body follows.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    headers(stream, END_HEADERS, &request_block("POST"))
}

/// The pseudo-header fields of a request.
pub(crate) fn pseudo(method: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "example.com"),
        (":path", "/"),
    ]
}

pub(crate) fn request_block(method: &str) -> Vec<u8> {
    request_block_with(method, &[])
}

/// A request's field block with these fields behind the pseudo-header fields.
pub(crate) fn request_block_with(method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    fullbore_testing::frames::request_block(method, "example.com", "/", fields)
}
