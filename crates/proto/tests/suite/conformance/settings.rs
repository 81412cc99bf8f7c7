//! RFC 9113 section 6.5, RFC 8441 section 3 and RFC 9218 section 2.1: SETTINGS.

use bytes::Bytes;
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event};

use crate::support::frames::{self, ACK};
use crate::support::peer::{Faced, id};

fn both() -> [Faced; 2] {
    [
        Faced::server(Config::default()),
        Faced::client_with_request(Config::default(), true),
    ]
}

#[test]
fn an_acknowledgement_with_a_payload_is_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::frame(0x4, ACK, 0, &[0; 6]));
        faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
    }
}

#[test]
fn settings_on_a_stream_are_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::frame(0x4, 0, 1, b""));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn settings_whose_length_is_no_multiple_of_six_are_a_connection_error() {
    for length in [1, 3, 5, 7, 8] {
        for mut faced in both() {
            faced.says(&frames::frame(0x4, 0, 0, &vec![0; length]));
            faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
        }
    }
}

#[test]
fn values_out_of_range_are_connection_errors() {
    for (identifier, value, code) in [
        (2, 2, ErrorCode::PROTOCOL_ERROR),
        (2, u32::MAX, ErrorCode::PROTOCOL_ERROR),
        (4, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
        (4, u32::MAX, ErrorCode::FLOW_CONTROL_ERROR),
        (5, 16_383, ErrorCode::PROTOCOL_ERROR),
        (5, 0, ErrorCode::PROTOCOL_ERROR),
        (5, 1 << 24, ErrorCode::PROTOCOL_ERROR),
        (8, 2, ErrorCode::PROTOCOL_ERROR),
        (9, 2, ErrorCode::PROTOCOL_ERROR),
    ] {
        for mut faced in both() {
            faced.says(&frames::settings(&[(identifier, value)]));
            faced.ended_with(code);
        }
    }
}

#[test]
fn values_at_the_edges_of_their_range_are_taken() {
    for mut faced in both() {
        let edges = [(1, 0), (1, u32::MAX), (2, 0), (3, 0), (3, u32::MAX), (4, 0)];
        faced.says(&frames::settings(&edges));
        faced.says(&frames::settings(&[
            (4, i32::MAX as u32),
            (5, 16_384),
            (5, (1 << 24) - 1),
        ]));
        faced.says(&frames::settings(&[
            (6, 0),
            (6, u32::MAX),
            (8, 0),
            (9, 1),
            (9, 0),
        ]));
        let acknowledged = faced.heard_of(FrameType::SETTINGS).len();
        assert_eq!(acknowledged, 3);
        faced.lives();
    }
}

#[test]
fn unknown_identifiers_are_ignored() {
    for mut faced in both() {
        faced.says(&frames::settings(&[
            (0, 1),
            (7, 7),
            (0xff, u32::MAX),
            (0xffff, 0),
        ]));
        assert!(matches!(faced.events().last(), Some(Event::PeerSettings)));
        assert_eq!(faced.heard_of(FrameType::SETTINGS).len(), 1);
        faced.lives();
    }
}

#[test]
fn a_server_must_not_enable_push_and_a_client_may() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(2, 1)]));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(2, 1)]));
    faced.lives();
}

#[test]
fn extended_connect_once_enabled_stays_so() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(8, 1)]));
    assert!(faced.connection.peer_allows_extended_connect());
    faced.says(&frames::settings(&[(8, 0)]));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn values_are_applied_in_order_and_the_last_counts() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 100), (4, 1)]));
    faced.says(&frames::get(1));
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(1));
}

#[test]
fn an_acknowledgement_of_nothing_is_a_connection_error() {
    for mut faced in both() {
        faced.says(&frames::settings_ack());
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_change_of_the_initial_window_moves_the_window_of_every_open_stream() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 1)]));
    faced.says(&frames::get(1));
    faced.heard();
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced
        .connection
        .send_data(id(1), Bytes::from_static(b"abcde"), true)
        .unwrap();
    let lengths = |faced: &mut Faced| -> Vec<_> {
        let frames = faced.heard_of(FrameType::DATA);
        frames.iter().map(|frame| frame.payload.len()).collect()
    };
    faced.now = faced.now + std::time::Duration::from_millis(1);
    faced.connection.handle_timeout(faced.now);
    assert_eq!(lengths(&mut faced), [1], "DATA of one octet");
    faced.says(&frames::settings(&[(4, 2)]));
    faced.now = faced.now + std::time::Duration::from_millis(1);
    faced.connection.handle_timeout(faced.now);
    assert_eq!(lengths(&mut faced), [1]);
    // Negative: what the peer gives has to make up for it first.
    faced.says(&frames::settings(&[(4, 0)]));
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(-2));
    faced.says(&frames::window_update(1, 2));
    assert_eq!(lengths(&mut faced), [0usize; 0]);
    faced.says(&frames::window_update(1, 3));
    assert_eq!(lengths(&mut faced), [3]);
    faced.lives();
}

#[test]
fn an_initial_window_that_puts_a_stream_over_the_limit_is_a_connection_error() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::window_update(1, i32::MAX as u32 - 65_535));
    faced.lives();
    faced.says(&frames::settings(&[(4, 65_536)]));
    faced.ended_with(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn an_initial_window_that_another_one_in_its_frame_takes_back_is_held_to_the_limit_too() {
    for (values, legal) in [
        ([65_536, 65_535], false),
        ([0, 65_536], false),
        ([0, 65_535], true),
        ([65_535, 0], true),
        ([i32::MAX as u32, 0], false),
    ] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::post(1));
        faced.says(&frames::window_update(1, i32::MAX as u32 - 65_535));
        faced.says(&frames::settings(&values.map(|value| (4, value))));
        match legal {
            true => faced.lives(),
            false => faced.ended_with(ErrorCode::FLOW_CONTROL_ERROR),
        }
    }
}

#[test]
fn every_value_of_a_frame_is_checked_whatever_follows_it() {
    for (values, code) in [
        ([(4, 1 << 31), (4, 1)], ErrorCode::FLOW_CONTROL_ERROR),
        ([(5, 1), (5, 16_384)], ErrorCode::PROTOCOL_ERROR),
        ([(8, 1), (8, 0)], ErrorCode::PROTOCOL_ERROR),
        ([(2, 2), (2, 0)], ErrorCode::PROTOCOL_ERROR),
    ] {
        for mut faced in both() {
            faced.says(&frames::settings(&values));
            faced.ended_with(code);
        }
    }
}

#[test]
fn streams_that_are_closed_have_no_window_that_settings_could_put_over_the_limit() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::window_update(1, i32::MAX as u32 - 65_535));
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    faced.says(&frames::settings(&[(4, 65_536)]));
    faced.lives();
}

#[test]
fn frames_have_16_kib_of_data_though_the_peer_takes_more() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 1 << 20), (5, 30_000)]));
    faced.says(&frames::window_update(0, 1 << 20));
    faced.says(&frames::get(1));
    faced.heard();
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced
        .connection
        .send_data(id(1), Bytes::from(vec![0; 40_000]), true)
        .unwrap();
    let frames = faced.heard_of(FrameType::DATA);
    let lengths: Vec<_> = frames.iter().map(|frame| frame.payload.len()).collect();
    assert_eq!(lengths, [16_384, 16_384, 7_232]);
}

#[test]
fn frame_sizes_out_of_range_count_as_the_nearest_in_it() {
    for (configured, sent) in [(0, 16_384), (100, 16_384), (u32::MAX, (1 << 24) - 1)] {
        let config = crate::support::config(|config| config.set_max_frame_size(configured));
        let mut faced = Faced::silent_server(config);
        let first = faced.heard().swap_remove(0);
        let expected = [&5u16.to_be_bytes()[..], &u32::to_be_bytes(sent)].concat();
        assert!(first.payload.chunks(6).any(|entry| entry == expected));
    }
}
