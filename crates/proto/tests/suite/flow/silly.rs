//! Laws 6 and 7: no tiny frames off a full queue, and yet no deadlock with a peer that refills only an empty window.

use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, FrameType, Priority, Refill, Transmit, WindowSize};

use crate::support::fixed;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

/// A server that has a megabyte to send on each of these streams, to a peer with these windows.
fn sending(stream_window: u32, connection_update: u32, streams: &[u32]) -> Faced {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, stream_window)]));
    if connection_update > 0 {
        faced.says(&frames::window_update(0, connection_update));
    }
    for &stream in streams {
        faced.says(&frames::get(stream));
        let response = http::Response::new(());
        faced
            .connection
            .send_response(id(stream), &response, false)
            .unwrap();
        let body = Bytes::from(vec![0; 1 << 20]);
        faced.connection.send_data(id(stream), body, true).unwrap();
    }
    faced
}

fn lengths(faced: &mut Faced) -> Vec<usize> {
    let heard = faced.heard_of(FrameType::DATA);
    heard.iter().map(|frame| frame.payload.len()).collect()
}

fn wait(faced: &mut Faced) {
    faced.now = faced.connection.next_deadline().expect("nothing is held back");
    faced.connection.handle_timeout(faced.now);
}

#[test]
fn a_tiny_frame_off_a_full_queue_waits_for_the_rest_of_the_batch() {
    let mut faced = sending(100_000, 1 << 20, &[1]);
    assert_eq!(lengths(&mut faced), [16_384; 6]);
    // 1,696 bytes of the window are left, and a little more comes: still tiny.
    faced.says(&frames::window_update(1, 300));
    assert_eq!(lengths(&mut faced), [0usize; 0]);
    faced.says(&frames::window_update(1, 20_000));
    assert_eq!(lengths(&mut faced), [16_384, 5_612]);
}

#[test]
fn a_tiny_frame_waits_no_longer_than_was_said() {
    let mut faced = sending(100_000, 1 << 20, &[1]);
    assert_eq!(lengths(&mut faced), [16_384; 6]);
    let start = faced.now;
    assert!(!faced.connection.wants_transmit());
    wait(&mut faced);
    assert_eq!(faced.now.since(start), Duration::from_millis(1));
    assert_eq!(lengths(&mut faced), [1_696]);
    assert_eq!(faced.connection.next_deadline(), None);
}

#[test]
fn more_credit_that_is_tiny_too_does_not_begin_the_wait_anew() {
    let mut faced = sending(100_000, 1 << 20, &[1]);
    lengths(&mut faced);
    let start = faced.now;
    for _ in 0..5 {
        faced.now = faced.now + Duration::from_micros(200);
        faced.says(&frames::window_update(1, 1));
        faced.connection.handle_timeout(faced.now);
    }
    assert_eq!(faced.now.since(start), Duration::from_millis(1));
    assert_eq!(lengths(&mut faced), [1_701]);
}

#[test]
fn the_connections_window_cuts_no_tiny_frames_either() {
    let mut faced = sending(1 << 20, 33_769, &[1, 3]);
    assert_eq!(lengths(&mut faced), [16_384; 6], "99,304 in all");
    assert!(!faced.connection.wants_transmit());
    wait(&mut faced);
    assert_eq!(lengths(&mut faced), [1_000]);
    assert!(!faced.connection.wants_transmit());
}

#[test]
fn credit_of_the_connection_ends_the_wait_for_it() {
    let mut faced = sending(1 << 20, 33_769, &[1]);
    assert_eq!(lengths(&mut faced), [16_384; 6]);
    assert!(!faced.connection.wants_transmit(), "1,000 bytes are held back");
    faced.says(&frames::window_update(0, 20_000));
    assert_eq!(lengths(&mut faced), [16_384, 4_616]);
}

#[test]
fn a_frame_of_another_stream_restarts_the_wait_for_the_connections_window() {
    let mut faced = sending(1 << 20, 33_769, &[1]);
    assert_eq!(
        lengths(&mut faced),
        [16_384; 6],
        "1,000 bytes of the window are left"
    );
    let start = faced.now;
    faced.now = start + Duration::from_micros(600);
    faced.says(&frames::get(3));
    let urgent = Priority::new(0, false).unwrap();
    let response = http::Response::new(());
    faced.connection.prioritize(id(3), urgent).unwrap();
    faced.connection.send_response(id(3), &response, false).unwrap();
    let body = Bytes::from_static(&[0; 100]);
    faced.connection.send_data(id(3), body, true).unwrap();
    assert_eq!(lengths(&mut faced), [100]);
    faced.now = start + Duration::from_millis(1);
    faced.connection.handle_timeout(faced.now);
    assert_eq!(lengths(&mut faced), [0usize; 0]);
    wait(&mut faced);
    assert_eq!(faced.now.since(start), Duration::from_micros(1_600));
    assert_eq!(lengths(&mut faced), [900]);
}

#[test]
fn a_stream_that_is_held_back_holds_no_other() {
    let mut faced = sending(17_384, 1 << 20, &[1, 3]);
    // 3,616 are left of each.
    let heard = faced.heard_of(FrameType::DATA);
    let frames: Vec<_> = heard
        .iter()
        .map(|frame| (frame.stream(), frame.payload.len()))
        .collect();
    assert_eq!(frames, [(1, 16_384), (3, 16_384)]);
    wait(&mut faced);
    let heard = faced.heard_of(FrameType::DATA);
    let frames: Vec<_> = heard
        .iter()
        .map(|frame| (frame.stream(), frame.payload.len()))
        .collect();
    assert_eq!(frames, [(1, 1_000), (3, 1_000)]);
}

#[test]
fn the_end_of_a_body_is_never_held_back() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced
        .connection
        .send_data(id(1), Bytes::from(vec![0; 16_385]), true)
        .unwrap();
    assert_eq!(lengths(&mut faced), [16_384, 1]);
}

#[test]
fn a_window_that_was_never_larger_is_used_at_once() {
    let mut faced = sending(100, 0, &[1]);
    assert_eq!(lengths(&mut faced), [100]);
    faced.says(&frames::window_update(1, 50));
    assert_eq!(lengths(&mut faced), [50]);
}

#[test]
fn a_hold_that_is_over_leaves_no_trace_on_the_next_one() {
    // The connection's window holds a frame back; its stream is reset; the next tiny one waits its full time again.
    let mut faced = sending(1 << 20, 33_769, &[1]);
    assert_eq!(lengths(&mut faced), [16_384; 6]);
    faced.says(&frames::reset(1, fullbore_proto::ErrorCode::CANCEL));
    faced.connection.release(id(1));
    faced.now = faced.now + Duration::from_secs(1);
    faced.connection.handle_timeout(faced.now);
    faced.says(&frames::get(3));
    let response = http::Response::new(());
    faced.connection.send_response(id(3), &response, false).unwrap();
    faced
        .connection
        .send_data(id(3), Bytes::from(vec![0; 1 << 20]), true)
        .unwrap();
    assert_eq!(lengths(&mut faced), [0usize; 0]);
    wait(&mut faced);
    assert_eq!(lengths(&mut faced), [1_000]);
}

#[test]
fn a_peer_that_refills_only_an_empty_window_is_served_to_the_end() {
    for refill in [Refill::Remaining(0), Refill::Fraction { divisor: 1 }] {
        for window in [1, 10, 5_000, 65_535, 100_000] {
            let client = fixed(|config| {
                config.set_stream_window(WindowSize::new(window).unwrap());
                config.set_stream_refill(refill);
                config.set_connection_window(WindowSize::new(70_001).unwrap());
                config.set_connection_refill(refill);
            });
            let mut pair = Pair::new(client, Config::default(), PathConfig::delay_millis(2)).with_apps();
            pair.run();
            let length = u64::from(window.min(3_000)) * 100;
            let streams: Vec<_> = (0..5).map(|_| pair.get(length)).collect();
            pair.run();
            for stream in streams {
                let talk = pair.client.app().talk(stream);
                assert!(talk.ended && talk.received == length, "{window}, {refill:?}");
            }
            pair.assert_nothing_leaked();
        }
    }
}

#[test]
fn a_long_transfer_has_no_run_of_tiny_frames() {
    // Windows, chunks and reads that do not fit each other, as an odd buffer against 65,535.
    for window in [65_535, 65_536, 100_000, 1_000_003] {
        let client = fixed(|config| {
            config.set_stream_window(WindowSize::new(window).unwrap());
            config.set_connection_window(WindowSize::new(2 * window).unwrap());
        });
        let path = PathConfig {
            nanos_per_byte: 80,
            cuts: Some((5_000, 3)),
            ..PathConfig::delay_millis(3)
        };
        let mut pair = Pair::new(client, Config::default(), path).with_apps();
        pair.server.app().chunk = 49_999;
        pair.run();
        let stream = pair.get(20_000_000);
        pair.run();
        let lengths = pair.server.tap.data_lengths(stream.value());
        let runs = lengths
            .windows(3)
            .filter(|three| three.iter().all(|&length| length < 2_048))
            .count();
        let average = lengths.iter().sum::<u32>() / lengths.len() as u32;
        assert_eq!(runs, 0, "{window}: tiny frames in a row");
        // What a fixed window that the path waits for is refilled by, at least.
        assert!(average > (window / 32).clamp(2_048, 8_192), "{window}: {average}");
        pair.assert_nothing_leaked();
    }
}

#[test]
fn credit_is_spent_by_the_stream_that_sends_and_kept_for_none() {
    // Streams that were promised nothing and have nothing to send take nothing of the connection's window.
    let mut faced = Faced::server(Config::default());
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::get(stream));
        let response = http::Response::new(());
        faced
            .connection
            .send_response(id(stream), &response, false)
            .unwrap();
    }
    let body = Bytes::from(vec![0; 65_535]);
    faced.connection.send_data(id(7), body, true).unwrap();
    assert_eq!(lengths(&mut faced).iter().sum::<usize>(), 65_535);
    assert_eq!(faced.connection.send_window_remaining(), 0);
}

#[test]
fn a_frame_of_2048_octets_is_not_tiny_and_one_of_an_octet_less_is() {
    let full = 6 * 16_384;
    let mut faced = sending(full + 2_048, 1 << 20, &[1]);
    assert_eq!(
        lengths(&mut faced),
        [16_384, 16_384, 16_384, 16_384, 16_384, 16_384, 2_048]
    );
    let mut faced = sending(full + 2_047, 1 << 20, &[1]);
    assert_eq!(lengths(&mut faced), [16_384; 6]);
    wait(&mut faced);
    assert_eq!(lengths(&mut faced), [2_047]);
}

#[test]
fn a_frame_of_a_quarter_of_the_largest_window_is_not_tiny() {
    for (window, quarter) in [(4_000, 1_000), (400, 100)] {
        let mut faced = sending(window, 1 << 20, &[1]);
        assert_eq!(lengths(&mut faced), [window as usize]);
        faced.says(&frames::window_update(1, quarter - 1));
        assert_eq!(lengths(&mut faced), [0usize; 0], "{window}");
        faced.says(&frames::window_update(1, 1));
        assert_eq!(lengths(&mut faced), [quarter as usize], "{window}");
    }
}

#[test]
fn a_write_goes_by_1024_streams_whose_frames_would_be_tiny() {
    for (held, written) in [(1_023, true), (1_024, false)] {
        let streams: Vec<u32> = (0..=held).map(|n| 2 * n + 1).collect();
        // A frame has left of each, and 1,000 bytes of its window are left.
        let mut faced = sending(17_384, 1 << 30, &streams);
        faced.heard();
        let (&last, others) = streams.split_last().unwrap();
        let mut octets: Vec<u8> = Vec::new();
        for &stream in others {
            octets.extend(frames::window_update(stream, 1));
        }
        octets.extend(frames::window_update(last, 16_384));
        faced.connection.receive(octets.into(), faced.now).unwrap();
        let mut out = Transmit::new();
        faced.connection.transmit(&mut out, faced.now);
        assert_eq!(out.remaining() > 0, written, "{held}");
        assert!(!lengths(&mut faced).is_empty() || written);
    }
}
