//! RFC 9113 sections 6.7, 6.8, 5.4.1 and RFC 9218 section 7.1: PING, GOAWAY, PRIORITY_UPDATE.

use bytes::{Buf, Bytes};
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event, Transmit};

use crate::support::frames::{self, ACK};
use crate::support::peer::Faced;

fn both() -> [Faced; 2] {
    [
        Faced::server(Config::default()),
        Faced::client_with_request(Config::default(), true),
    ]
}

#[test]
fn ping_is_answered_with_the_same_octets() {
    for mut faced in both() {
        faced.says(&frames::ping(0, b"\x00\x01\x02\x03\x04\x05\x06\xff"));
        let heard = faced.heard();
        assert_eq!(heard.len(), 1);
        assert_eq!(
            (heard[0].header.frame_type, heard[0].header.flags.0),
            (FrameType::PING, ACK)
        );
        assert_eq!(heard[0].payload, b"\x00\x01\x02\x03\x04\x05\x06\xff");
    }
}

#[test]
fn the_answer_to_ping_is_not_answered() {
    for mut faced in both() {
        faced.says(&frames::ping(ACK, b"12345678"));
        assert!(faced.heard().is_empty());
        faced.lives();
    }
}

#[test]
fn ping_leaves_ahead_of_data() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let stream = crate::support::peer::id(1);
    let response = http::Response::new(());
    faced.connection.send_response(stream, &response, false).unwrap();
    faced
        .connection
        .send_data(stream, Bytes::from(vec![0; 50_000]), true)
        .unwrap();
    let received = faced
        .connection
        .receive(frames::ping(0, b"12345678").into(), faced.now);
    received.unwrap();
    let kinds: Vec<_> = faced
        .heard()
        .iter()
        .map(|frame| frame.header.frame_type)
        .collect();
    let expected = [
        FrameType::HEADERS,
        FrameType::PING,
        FrameType::DATA,
        FrameType::DATA,
        FrameType::DATA,
        FrameType::DATA,
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn ping_on_a_stream_is_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::frame(0x6, 0, 1, b"12345678"));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn ping_of_another_length_than_eight_is_a_connection_error() {
    for length in [0, 6, 7, 9, 16] {
        for mut faced in both() {
            faced.says(&frames::frame(0x6, 0, 0, &vec![0; length]));
            faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
        }
    }
}

#[test]
fn goaway_on_a_stream_is_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::frame(0x7, 0, 1, &[0; 8]));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn goaway_shorter_than_eight_octets_is_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::frame(0x7, 0, 0, &[0; 7]));
        faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn goaway_is_told_with_any_code_and_ends_nothing_by_itself() {
    for code in [0, 1, 11, 0xff] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::post(1));
        faced.events();
        let payload = [&[0x80, 0, 0, 3][..], &u32::to_be_bytes(code), b"debug"].concat();
        faced.says(&frames::frame(0x7, 0xff, 0, &payload));
        let events = faced.events();
        let [
            Event::GoAway {
                last_stream,
                code: told,
                debug,
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!((*last_stream, told.0, &debug[..]), (3, code, &b"debug"[..]));
        faced.says(&frames::data(1, frames::END_STREAM, b"x"));
        assert_eq!(faced.reads(1).0, b"x");
        faced.lives();
    }
}

#[test]
fn after_a_connection_error_the_goaway_names_the_last_stream_that_was_seen() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    faced.says(&frames::get(7));
    faced.says(&frames::data(0, 0, b""));
    let heard = faced.heard();
    let last = heard.last().unwrap();
    assert_eq!((last.header.frame_type, last.word(0)), (FrameType::GOAWAY, 7));
    assert!(last.payload.len() > 8, "no word for a person");
}

#[test]
fn nothing_is_received_after_a_connection_error() {
    let mut faced = Faced::server(Config::default());
    let wrong = frames::frame(0x6, 0, 0, b"short");
    let result = faced.tries(&[frames::get(1), wrong, frames::get(3)].concat());
    let error = result.unwrap_err();
    assert!(
        matches!(faced.events()[..], [Event::Request { .. }]),
        "what came before is there"
    );
    assert_eq!(faced.tries(&frames::get(5)), Err(error));
    assert!(faced.events().is_empty());
}

#[test]
fn priority_update_of_a_client_is_taken_and_of_a_server_is_an_error() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    faced.says(&frames::priority_update(1, "u=0, i"));
    faced.says(&frames::priority_update(1, "\u{ff}nonsense="));
    faced.says(&frames::priority_update(99, "u=0"));
    faced.lives();
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::priority_update(1, "u=0"));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn priority_update_of_a_wrong_form_is_a_connection_error() {
    for (frame, code) in [
        (frames::priority_update(0, "u=0"), ErrorCode::PROTOCOL_ERROR),
        (frames::priority_update(2, "u=0"), ErrorCode::PROTOCOL_ERROR),
        (
            frames::frame(0x10, 0, 1, &[0, 0, 0, 1]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (frames::frame(0x10, 0, 0, &[0, 0, 1]), ErrorCode::FRAME_SIZE_ERROR),
    ] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frame);
        faced.ended_with(code);
    }
    // An empty value says the defaults (RFC 9218 section 4).
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::priority_update(1, ""));
    faced.lives();
}

#[test]
fn one_write_takes_all_that_a_failed_connection_sends_however_many_streams_had_data() {
    let mut faced = Faced::server(Config::default());
    for n in 0..1_100 {
        let stream = 2 * n + 1;
        let octets = frames::get(stream);
        faced.connection.receive(octets.into(), faced.now).unwrap();
        let stream = crate::support::peer::id(stream);
        let response = http::Response::new(());
        faced.connection.send_response(stream, &response, false).unwrap();
        let body = Bytes::from_static(b"body");
        faced.connection.send_data(stream, body, true).unwrap();
    }
    faced
        .connection
        .abort(ErrorCode::INTERNAL_ERROR, "over", faced.now);
    let mut out = Transmit::new();
    faced.connection.transmit(&mut out, faced.now);
    assert!(!faced.connection.wants_transmit());
    assert_eq!(faced.connection.stats().sent_data_bytes, 0);
    let written = out.copy_to_bytes(out.remaining());
    let go_away = [&frames::go_away(2_199, ErrorCode::INTERNAL_ERROR)[..], b"over"].concat();
    assert_eq!(written[written.len() - 12..], go_away[9..]);
}

#[test]
fn an_update_that_was_due_is_not_sent_by_a_connection_that_has_failed() {
    let mut faced = Faced::server(crate::support::fixed(|config| {
        config.set_stream_window(fullbore_proto::WindowSize::from_mebibytes(1));
    }));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 16_384]).repeat(20));
    faced.reads(1);
    assert!(faced.connection.wants_transmit(), "an update is due");
    let wrong = frames::frame(0x6, 0, 1, b"12345678");
    faced.connection.receive(wrong.into(), faced.now).unwrap_err();
    let mut out = Transmit::new();
    faced.connection.transmit(&mut out, faced.now);
    assert!(!faced.connection.wants_transmit());
    assert_eq!(out.chunk()[3], FrameType::GOAWAY.0);
    assert_eq!(faced.connection.stats().stream_refills, 0);
}

#[test]
fn of_the_debug_data_of_a_goaway_256_octets_are_told() {
    for (length, told) in [(0, 0), (256, 256), (257, 256)] {
        let mut faced = Faced::server(Config::default());
        let payload = [vec![0; 8], vec![b'd'; length]].concat();
        faced.says(&frames::frame(0x7, 0, 0, &payload));
        let events = faced.events();
        assert!(matches!(&events[..], [Event::GoAway { debug, .. }] if *debug == vec![b'd'; told]));
    }
}
