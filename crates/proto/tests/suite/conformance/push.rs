//! RFC 9113 sections 6.6 and 8.4: push is refused.

use fullbore_proto::{Config, ErrorCode};

use crate::support::frames::{self, END_HEADERS};
use crate::support::peer::Faced;

fn push_promise(stream: u32) -> Vec<u8> {
    let mut payload = 2u32.to_be_bytes().to_vec();
    payload.extend(frames::request_block("GET"));
    frames::frame(0x5, END_HEADERS, stream, &payload)
}

#[test]
fn push_promise_to_a_client_that_refused_it_is_a_connection_error() {
    for stream in [0, 1, 3] {
        let mut faced = Faced::client_with_request(Config::default(), true);
        faced.says(&push_promise(stream));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn push_promise_to_a_server_is_a_connection_error() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    faced.says(&push_promise(1));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn frames_on_streams_that_a_server_would_open_are_connection_errors() {
    for frame in [
        frames::headers(2, END_HEADERS, &frames::response_block("200", &[])),
        frames::data(2, 0, b"x"),
        frames::window_update(2, 1),
        frames::reset(2, ErrorCode::CANCEL),
    ] {
        let mut faced = Faced::client_with_request(Config::default(), true);
        faced.says(&frame);
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}
