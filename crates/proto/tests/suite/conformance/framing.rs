//! RFC 9113 sections 4.1, 4.2 and 5.5: the head of a frame, its size, and what is not known.

use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event, ReadState};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::Faced;

#[test]
fn frames_of_unknown_type_are_ignored() {
    let mut faced = Faced::server(Config::default());
    for kind in [0x0a, 0x0b, 0x0c, 0x16, 0xff] {
        faced.says(&frames::frame(kind, 0xff, 0, b"whatever"));
        faced.says(&frames::frame(kind, 0, 1, b""));
        faced.says(&frames::frame(kind, 0, 0x7fff_ffff, &[0; 16_384]));
    }
    assert!(faced.events().is_empty());
    faced.lives();
}

#[test]
fn undefined_flags_are_ignored() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::ping(0xfe, b"12345678"));
    let heard = faced.heard();
    assert_eq!(
        (heard[0].header.frame_type, heard[0].header.flags.0),
        (FrameType::PING, frames::ACK)
    );
    faced.says(&frames::headers(
        1,
        0xd2 | END_HEADERS | END_STREAM,
        &frames::request_block("GET"),
    ));
    assert!(matches!(faced.events()[..], [Event::Request { end: true, .. }]));
    faced.says(&frames::frame(0x8, 0xff, 0, &1u32.to_be_bytes()));
    faced.lives();
}

#[test]
fn the_reserved_bit_is_ignored() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::frame(0x6, 0, 0x8000_0000, b"12345678"));
    assert_eq!(faced.heard()[0].header.frame_type, FrameType::PING);
    faced.says(&frames::headers(0x8000_0001, 5, &frames::request_block("GET")));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.says(&frames::window_update(0, 0x8000_0001));
    faced.lives();
}

#[test]
fn a_frame_of_sixteen_kibibytes_is_accepted() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, END_STREAM, &[7; 16_384]));
    let (body, state) = faced.reads(1);
    assert_eq!((body.len(), state), (16_384, ReadState::End));
    faced.lives();
}

#[test]
fn a_frame_longer_than_allowed_is_a_frame_size_error_of_the_connection() {
    for kind in [0x0, 0x1, 0x4, 0x6, 0x9, 0x20] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::post(1));
        faced.says(&frames::frame(kind, 0, 1, &[0; 16_385]));
        faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn the_size_of_a_frame_is_judged_by_its_head_alone() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn longer_frames_are_accepted_where_settings_allow_them() {
    let mut faced = Faced::server(config(|config| config.set_max_frame_size(50_000)));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[7; 50_000]));
    assert_eq!(faced.reads(1).0.len(), 50_000);
    faced.says(&frames::data(1, 0, &[7; 50_001]));
    faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn frames_come_in_whatever_pieces() {
    let all = [
        frames::post(1),
        frames::data(1, 0, b"hello "),
        frames::frame(0x0, frames::PADDED, 1, b"\x03all\0\0\0"),
        frames::ping(0, b"12345678"),
        frames::data(1, END_STREAM, b" of it"),
        frames::priority(9, 7),
        frames::get(3),
    ]
    .concat();
    for size in 1..40 {
        let mut faced = Faced::server(Config::default());
        for piece in all.chunks(size) {
            faced.says(piece);
        }
        assert_eq!(faced.reads(1), (b"hello all of it".to_vec(), ReadState::End));
        let requests = faced
            .events()
            .iter()
            .filter(|event| matches!(event, Event::Request { .. }))
            .count();
        assert_eq!(requests, 2, "in pieces of {size}");
        faced.lives();
    }
}

#[test]
fn an_unknown_frame_within_a_header_block_is_a_connection_error() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::headers(1, END_STREAM, &frames::request_block("GET")));
    faced.says(&frames::frame(0x16, 0, 1, b""));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}
