//! RFC 9113 sections 6.1 to 6.4, 5.3.1 and 7: DATA, HEADERS, PRIORITY, RST_STREAM and their form.

use fullbore_proto::{Config, ErrorCode, Event, ReadState};

use crate::support::frames::{self, END_HEADERS, END_STREAM, PADDED, WITH_PRIORITY};
use crate::support::peer::Faced;

fn server() -> Faced {
    Faced::server(Config::default())
}

/// A server with a request whose body is on its way.
fn uploading() -> Faced {
    let mut faced = server();
    faced.says(&frames::post(1));
    faced.events();
    faced
}

#[test]
fn data_on_stream_0_is_a_connection_error() {
    let mut faced = uploading();
    faced.says(&frames::data(0, 0, b"x"));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn padding_of_data_is_dropped() {
    let mut faced = uploading();
    faced.says(&frames::data(1, PADDED, b"\x05hello\0\0\0\0\0"));
    faced.says(&frames::data(1, PADDED, b"\x00 all"));
    faced.says(&frames::data(1, PADDED, b"\x00"));
    faced.says(&frames::data(1, PADDED | END_STREAM, b"\x03\0\0\0"));
    assert_eq!(faced.reads(1), (b"hello all".to_vec(), ReadState::End));
    faced.lives();
}

#[test]
fn padding_as_long_as_the_payload_of_data_or_longer_is_a_connection_error() {
    for payload in [&b"\x01"[..], b"\x06hello", b"\xff"] {
        let mut faced = uploading();
        faced.says(&frames::data(1, PADDED, payload));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn padded_data_without_a_pad_length_is_a_frame_size_error() {
    let mut faced = uploading();
    faced.says(&frames::data(1, PADDED, b""));
    faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn headers_on_stream_0_is_a_connection_error() {
    let mut faced = server();
    faced.says(&frames::get(0));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn padding_and_priority_fields_of_headers_are_dropped() {
    let mut payload = vec![3, 0, 0, 0, 7, 200];
    payload.extend(frames::request_block("GET"));
    payload.extend([0, 0, 0]);
    let mut faced = server();
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM | PADDED | WITH_PRIORITY,
        &payload,
    ));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.lives();
}

#[test]
fn padding_longer_than_the_payload_of_headers_is_a_connection_error() {
    let mut payload = vec![200];
    payload.extend(frames::request_block("GET"));
    let mut faced = server();
    faced.says(&frames::headers(1, END_HEADERS | PADDED, &payload));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn headers_too_short_for_what_its_flags_announce_is_a_frame_size_error() {
    for (flags, payload) in [(PADDED, &b""[..]), (WITH_PRIORITY, b"\0\0\0\x01")] {
        let mut faced = server();
        faced.says(&frames::headers(1, END_HEADERS | flags, payload));
        faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn a_stream_that_depends_on_itself_is_a_stream_error() {
    let mut payload = vec![0, 0, 0, 1, 16];
    payload.extend(frames::request_block("GET"));
    let mut faced = server();
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM | WITH_PRIORITY,
        &payload,
    ));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    assert!(faced.events().is_empty());
    let mut faced = uploading();
    faced.says(&frames::priority(1, 1));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn an_idle_stream_that_depends_on_itself_cannot_be_reset_and_ends_the_connection() {
    let mut faced = server();
    faced.says(&frames::priority(9, 9));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn priority_is_ignored_on_streams_of_every_state() {
    let mut faced = uploading();
    faced.says(&frames::get(3));
    faced.answers(3);
    faced.heard();
    for stream in [1, 3, 5, 2, 0x7fff_ffff] {
        faced.says(&frames::priority(stream, 0x8000_0007));
    }
    // Naming a stream in PRIORITY does not use up those below it.
    faced.says(&frames::get(5));
    faced.lives();
    assert_eq!(faced.events().len(), 2);
}

#[test]
fn priority_on_stream_0_is_a_connection_error() {
    let mut faced = server();
    faced.says(&frames::priority(0, 1));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn priority_of_another_length_than_five_is_a_stream_error() {
    for length in [4, 6] {
        let mut faced = uploading();
        faced.says(&frames::frame(0x2, 0, 1, &vec![0; length]));
        faced.reset_with(1, ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn rst_stream_on_stream_0_is_a_connection_error() {
    let mut faced = server();
    faced.says(&frames::reset(0, ErrorCode::CANCEL));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn rst_stream_of_another_length_than_four_is_a_connection_error() {
    for length in [0, 3, 5] {
        let mut faced = uploading();
        faced.says(&frames::frame(0x3, 0, 1, &vec![0; length]));
        faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn rst_stream_ends_the_stream_whatever_its_code() {
    for code in [0, 2, 8, 0xff, u32::MAX] {
        let mut faced = uploading();
        faced.says(&frames::reset(1, ErrorCode(code)));
        let events = faced.events();
        assert!(
            matches!(&events[..], [Event::Reset(error)] if error.code == ErrorCode(code)),
            "{events:?}"
        );
        assert!(
            faced
                .connection
                .send_response(crate::support::peer::id(1), &http::Response::new(()), true)
                .is_err()
        );
        faced.lives();
    }
}

#[test]
fn rst_stream_is_not_answered_by_rst_stream() {
    let mut faced = uploading();
    faced.says(&frames::reset(1, ErrorCode::PROTOCOL_ERROR));
    faced.says(&frames::reset(1, ErrorCode::PROTOCOL_ERROR));
    faced.connection.release(crate::support::peer::id(1));
    faced.says(&frames::reset(1, ErrorCode::PROTOCOL_ERROR));
    faced.lives();
    assert_eq!(faced.connection.stream_count(), 0);
}
