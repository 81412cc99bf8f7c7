//! RFC 9113 sections 5.2 and 6.9: flow-control windows, on both sides of the rule.

use bytes::{Buf, Bytes};
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event, Scheduling, Transmit, WindowSize};

use crate::support::frames;
use crate::support::peer::{Faced, id};
use crate::support::{config, fixed};

fn uploading(config: Config) -> Faced {
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    faced.events();
    faced
}

#[test]
fn an_update_of_0_for_the_connection_is_a_connection_error() {
    let mut faced = uploading(Config::default());
    faced.says(&frames::window_update(0, 0));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn an_update_of_0_for_a_stream_is_a_stream_error() {
    let mut faced = uploading(Config::default());
    faced.says(&frames::window_update(1, 0));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn an_update_of_another_length_than_four_is_a_connection_error() {
    for stream in [0, 1] {
        for length in [0, 3, 5] {
            let mut faced = uploading(Config::default());
            faced.says(&frames::frame(0x8, 0, stream, &vec![1; length]));
            faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
        }
    }
}

#[test]
fn a_window_of_the_connection_over_the_limit_is_a_connection_error() {
    let mut faced = uploading(Config::default());
    faced.says(&frames::window_update(0, i32::MAX as u32 - 65_535));
    faced.lives();
    faced.says(&frames::window_update(0, 1));
    faced.ended_with(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_window_of_a_stream_over_the_limit_is_a_stream_error() {
    let mut faced = uploading(Config::default());
    faced.says(&frames::window_update(1, i32::MAX as u32 - 65_535));
    faced.lives();
    faced.says(&frames::window_update(1, 1));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn no_more_is_sent_than_the_smaller_of_both_windows() {
    for (stream_window, updates, sent) in [
        (0, 0, 0),
        (5_000, 0, 5_000),
        (200_000, 0, 65_535),
        (200_000, 50_000, 115_535),
    ] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::settings(&[(4, stream_window)]));
        if updates > 0 {
            faced.says(&frames::window_update(0, updates));
        }
        faced.says(&frames::get(1));
        let response = http::Response::new(());
        faced.connection.send_response(id(1), &response, false).unwrap();
        faced
            .connection
            .send_data(id(1), Bytes::from(vec![0; 1 << 20]), true)
            .unwrap();
        faced.now = faced.now + std::time::Duration::from_secs(1);
        faced.connection.handle_timeout(faced.now);
        let mut total = 0;
        for _ in 0..3 {
            total += faced
                .heard_of(FrameType::DATA)
                .iter()
                .map(|frame| frame.payload.len())
                .sum::<usize>();
            faced.now = faced.now + std::time::Duration::from_secs(1);
            faced.connection.handle_timeout(faced.now);
        }
        assert_eq!(total, sent, "window {stream_window}, updates {updates}");
    }
}

#[test]
fn an_empty_frame_that_ends_the_stream_needs_no_window() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 0)]));
    faced.says(&frames::get(1));
    faced.heard();
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced.connection.send_data(id(1), Bytes::new(), true).unwrap();
    let heard = faced.heard_of(FrameType::DATA);
    assert!(heard.len() == 1 && heard[0].payload.is_empty());
}

/// DATA of so many octets in all, in frames that are allowed.
fn body(stream: u32, length: usize) -> Vec<u8> {
    let octets = vec![0; length];
    octets
        .chunks(16_384)
        .flat_map(|chunk| frames::data(stream, 0, chunk))
        .collect()
}

#[test]
fn more_data_than_the_streams_window_is_a_stream_error() {
    let mut faced = uploading(fixed(|config| {
        config.set_stream_window(WindowSize::new(100_000).unwrap())
    }));
    faced.says(&body(1, 100_000));
    faced.lives();
    faced.says(&frames::data(1, 0, b"x"));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn more_data_than_the_connections_window_is_a_connection_error() {
    let mut faced = uploading(fixed(|config| {
        config.set_stream_window(WindowSize::new(1 << 20).unwrap());
        config.set_connection_window(WindowSize::new(100_000).unwrap());
    }));
    faced.says(&body(1, 100_000));
    faced.lives();
    faced.says(&frames::data(1, 0, b"x"));
    faced.ended_with(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn padding_counts_against_both_windows() {
    let mut faced = uploading(fixed(|config| {
        config.set_stream_window(WindowSize::new(1_000).unwrap())
    }));
    let mut payload = vec![255];
    payload.resize(900, 0);
    faced.says(&frames::data(1, frames::PADDED, &payload));
    faced.lives();
    let remaining = faced.connection.receive_window_remaining();
    assert_eq!(remaining, (64 << 20) - 900);
    faced.says(&frames::data(1, 0, &[0; 800]));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn until_the_peer_knows_a_smaller_window_it_may_use_the_default_one() {
    let config = fixed(|config| config.set_stream_window(WindowSize::new(1_000).unwrap()));
    let mut faced = Faced::silent_server(config.clone());
    faced.says(frames::PREFACE);
    faced.says(&frames::settings(&[]));
    faced.says(&frames::post(1));
    faced.says(&body(1, 65_535));
    faced.lives();
    faced.says(&frames::data(1, 0, b"x"));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);

    let mut faced = Faced::silent_server(config);
    faced.says(frames::PREFACE);
    faced.says(&frames::settings(&[]));
    faced.says(&frames::post(1));
    faced.says(&body(1, 60_000));
    faced.says(&frames::settings_ack());
    faced.lives();
    // Its window is negative now, until what it has sent is read.
    faced.reads(1);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert_eq!(
        updates.iter().map(|frame| frame.word(0)).collect::<Vec<_>>(),
        [60_000]
    );
    faced.says(&body(1, 1_000));
    faced.lives();
    faced.says(&frames::data(1, 0, b"x"));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_larger_window_counts_from_the_moment_it_was_advertised() {
    let mut faced = Faced::silent_server(Config::default());
    faced.says(frames::PREFACE);
    faced.says(&frames::settings(&[]));
    faced.says(&frames::post(1));
    faced.says(&body(1, 1 << 20));
    faced.lives();
}

#[test]
fn padding_that_is_credited_has_the_owner_ask_anew_what_it_is_to_report() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.events();
    let readable = |faced: &mut Faced| {
        let events = faced.events();
        events
            .iter()
            .filter(|event| matches!(event, Event::Readable(stream) if *stream == id(1)))
            .count()
    };
    let before = faced.connection.stream_release_until_due(id(1)).unwrap();
    faced.says(&frames::data(1, frames::PADDED, &[&[99][..], &[0; 99]].concat()));
    assert_eq!(readable(&mut faced), 1, "padding alone");
    let after = faced.connection.stream_release_until_due(id(1)).unwrap();
    assert_eq!(after + 100, before);
    faced.reads(1);
    faced.says(&frames::data(1, frames::PADDED, &[0]));
    assert_eq!(readable(&mut faced), 1, "the length of no padding is padding too");
    faced.reads(1);
    faced.says(&frames::data(1, 0, b""));
    assert_eq!(readable(&mut faced), 0, "nothing was credited");
}

#[test]
fn a_refill_that_waits_for_company_does_not_leave_alone() {
    let config = crate::support::fixed(|config| config.set_stream_window(WindowSize::new(1 << 20).unwrap()));
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    for _ in 0..10 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    faced.reads(1);
    assert!(faced.heard().is_empty(), "less than a quarter of the window");
    let mut out = Transmit::new();
    faced.connection.transmit(&mut out, faced.now);
    assert_eq!(out.remaining(), 0, "a write of nothing is no company");
    faced.says(&frames::ping(0, b"together"));
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert_eq!(updates.len(), 1, "{updates:?}");
    assert_eq!((updates[0].stream(), updates[0].word(0)), (1, 163_840));
}

#[test]
fn a_window_that_is_raised_to_the_size_it_has_is_not_refilled() {
    let size = WindowSize::from_mebibytes(1);
    let mut faced = uploading(fixed(|config| {
        config.set_stream_window(size);
        config.set_connection_window(size);
    }));
    faced.says(&frames::data(1, 0, &[0; 1_000]));
    faced.reads(1);
    faced.connection.grow_stream_receive_window(id(1), size).unwrap();
    faced.connection.grow_receive_window(size).unwrap();
    assert_eq!(faced.heard(), []);
    // By an octet more, all that was consumed is advertised with it.
    let larger = WindowSize::new(size.bytes() + 1).unwrap();
    faced
        .connection
        .grow_stream_receive_window(id(1), larger)
        .unwrap();
    faced.connection.grow_receive_window(larger).unwrap();
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(1, 1_001), (0, 1_001)]);
}

#[test]
fn what_is_given_back_at_rest_is_no_body_that_waits_for_a_window() {
    for scheduling in [Scheduling::InOrder, Scheduling::Fair] {
        let mut faced = Faced::server(config(|config| config.set_scheduling(scheduling)));
        for stream in [1, 3] {
            faced.says(&frames::get(stream));
            let response = http::Response::new(());
            faced
                .connection
                .send_response(id(stream), &response, false)
                .unwrap();
            let body = Bytes::from(vec![7; 50_000]);
            faced.connection.send_data(id(stream), body, true).unwrap();
        }
        faced.heard();
        assert_eq!(faced.connection.stats().sent_data_bytes, 65_535);
        faced.connection.trim();
        faced.says(&frames::window_update(0, 50_000));
        faced.heard();
        assert_eq!(faced.connection.stats().sent_data_bytes, 100_000);
        faced.connection.trim();
        faced.lives();
    }
}
