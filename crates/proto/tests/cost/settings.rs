//! SETTINGS_INITIAL_WINDOW_SIZE concerns every stream (RFC 9113 section 6.9.2), and is the one field that has the engine
//! go through them all: once a frame, and at a price.

use bytes::Bytes;
use fullbore_proto::ErrorCode;

use super::crowd::{CROWDS, Counting, Wait, server};
use crate::support::frames;

const WAITS: [Wait; 4] = [Wait::Bodies, Wait::Turn, Wait::IncrementalTurn, Wait::Windows];

/// A frame of so many values, in turn a large one and none, of which the last is `last`.
fn flood(values: u32, last: u32) -> Vec<u8> {
    let values = (1..=values).rev().map(|left| match left % 2 {
        1 => (4, last),
        _ => (4, 65_535 - last),
    });
    frames::settings(&values.collect::<Vec<_>>())
}

#[test]
fn a_frame_full_of_initial_windows_has_the_streams_gone_through_once() {
    let counting = Counting::begin();
    for streams in CROWDS {
        for wait in WAITS {
            let mut faced = server(streams, wait);
            let last = match wait {
                Wait::Windows => 65_535,
                _ => 0,
            };
            let (cost, result) = counting.frames(&mut faced, [flood(99, last)]);
            assert_eq!(result, Ok(()));
            let each = cost.touched / u64::from(streams);
            assert!(
                cost.work <= 2 * u64::from(streams),
                "{wait:?} {streams}: {cost:?}"
            );
            assert!((1..=160).contains(&each), "{wait:?} {streams}: {cost:?}");
        }
    }
}

#[test]
fn changes_of_the_initial_window_are_paid_for_by_the_streams_that_they_concern() {
    let counting = Counting::begin();
    for streams in CROWDS {
        for wait in WAITS {
            let mut faced = server(streams, wait);
            let frames = (0..2_000).map(|index| flood(1, index % 2 * 65_535));
            let (cost, result) = counting.frames(&mut faced, frames);
            let error = result.expect_err("nobody may do that for ever");
            assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
            // 128 streams for each of the 1,000 tokens, 2 octets of SETTINGS for each stream at least.
            assert!(cost.work <= 2 * 128_000, "{wait:?} {streams}: {cost:?}");
            // Who follows the path, as some clients do, doubles its windows as often as they can be.
            let often = cost.frames - 1;
            assert!(often >= 12, "{wait:?} {streams}: {cost:?}");
        }
    }
}

#[test]
fn what_comes_behind_much_work_waits_for_another_call_and_nothing_is_lost() {
    let _alone = Counting::begin();
    let mut faced = server(10_000, Wait::Windows);
    let before = faced.connection.stats();
    let octets: Vec<u8> = (0..10u32)
        .flat_map(|index| flood(1, index % 2 * 65_535))
        .collect();
    let length = octets.len();
    let mut input = Bytes::from(octets);
    let mut calls = Vec::new();
    while !input.is_empty() {
        let (work, left) = (faced.connection.work(), input.len());
        faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
        calls.push((faced.connection.work() - work, left - input.len()));
    }
    // The first value is what the window is already: nothing is to be done for it.
    assert_eq!(calls.len(), 9);
    assert!(calls.iter().all(|&(work, _)| work <= 2 * 10_000), "{calls:?}");
    assert_eq!(calls[1].1, 15, "a frame");
    let stats = faced.connection.stats();
    assert_eq!(stats.received_bytes - before.received_bytes, length as u64);
    assert_eq!(stats.received_frames.total() - before.received_frames.total(), 10);
}

#[test]
fn a_call_ends_behind_a_frame_for_which_2048_streams_were_visited() {
    let _alone = Counting::begin();
    let ping = frames::ping(0, b"12345678");
    for (streams, left) in [(2_047, 0), (2_048, ping.len())] {
        let mut faced = server(streams, Wait::Bodies);
        let mut input = Bytes::from([flood(1, 0), ping.clone()].concat());
        faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
        assert_eq!(input.len(), left, "{streams}");
    }
}

#[test]
fn what_took_little_work_is_received_at_once() {
    let _alone = Counting::begin();
    let mut faced = server(1_000, Wait::Bodies);
    let octets: Vec<u8> = (0..1_000)
        .flat_map(|index| frames::data(2 * index + 1, 0, b"x"))
        .collect();
    let mut input = Bytes::from(octets);
    faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
    assert!(input.is_empty());
}
