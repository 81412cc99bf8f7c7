//! Law 2: few updates, none without use, and none after the end.

use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::FrameType;
use fullbore_proto::{Config, Refill, Transmit, WindowSize};

use crate::support::app::Pace;
use crate::support::fixed;
use crate::support::frames::{self, END_STREAM};
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

#[test]
fn at_the_defaults_there_is_at_most_one_update_a_mebibyte() {
    let path = PathConfig {
        nanos_per_byte: 8,
        ..PathConfig::delay_millis(50)
    };
    let mut pair = Pair::new(Config::default(), Config::default(), path).with_apps();
    pair.run();
    pair.get(256 << 20);
    pair.run();
    let updates = pair.client.tap.of(FrameType::WINDOW_UPDATE).count();
    assert!(updates <= 256 / 2, "{updates} for 256 MiB");
    pair.assert_nothing_leaked();
}

#[test]
fn no_batch_has_two_updates_for_one_window_and_none_is_small() {
    for pace in [
        Pace::Eager,
        Pace::Slow {
            bytes: 7_000,
            every: Duration::from_micros(100),
        },
    ] {
        for window in [10_000, 65_535, 1 << 20] {
            let path = PathConfig {
                nanos_per_byte: 8,
                cuts: Some((3_000, u64::from(window))),
                ..PathConfig::delay_millis(1)
            };
            let client = fixed(|config| {
                config.set_stream_window(WindowSize::new(window).unwrap());
                config.set_connection_window(WindowSize::new(2 * window).unwrap());
            });
            let mut pair = Pair::new(client, Config::default(), path).with_apps();
            pair.client.app().pace = pace;
            pair.run();
            let first = pair.client.tap.of(FrameType::WINDOW_UPDATE).count();
            for _ in 0..4 {
                pair.get(1_000_000);
            }
            pair.run();
            let updates: Vec<_> = pair.client.tap.of(FrameType::WINDOW_UPDATE).skip(first).collect();
            assert!(!updates.is_empty());
            // At least a thirty-second, and 2,048 bytes, when the path waits for the window, but for the last of what the
            // peer has used up.
            for update in &updates {
                assert!(update.word >= 1_024, "{update:?}");
            }
            let least = |window: u32| (window / 4).min((window / 32).clamp(2_048, 16_384));
            let rest = updates
                .iter()
                .filter(|update| match update.stream() {
                    0 => update.word < least((2 * window).max(65_535)),
                    _ => update.word < least(window),
                })
                .count();
            assert!(
                rest <= 4 * 1_000_000 / window as usize,
                "{rest} of {}",
                updates.len()
            );
            let mut targets: Vec<_> = updates
                .iter()
                .map(|update| (update.write, update.stream()))
                .collect();
            let all = targets.len();
            targets.dedup();
            targets.sort_unstable();
            targets.dedup();
            assert_eq!(targets.len(), all, "two updates for a window in one write");
            pair.assert_nothing_leaked();
        }
    }
}

#[test]
fn updates_leave_ahead_of_everything_else_of_their_write() {
    let mut pair = Pair::new(Config::default(), Config::default(), PathConfig::delay_millis(5)).with_apps();
    pair.run();
    pair.get(100 << 20);
    pair.post(100 << 20, 0);
    pair.run();
    let mut last = None;
    for seen in &pair.client.tap.frames {
        if seen.is(FrameType::WINDOW_UPDATE) {
            assert_ne!(last, Some((seen.write, FrameType::DATA)), "an update behind DATA");
        }
        last = Some((seen.write, seen.header.frame_type));
    }
    pair.assert_nothing_leaked();
}

#[test]
fn a_stream_is_silent_once_its_end_has_come() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    for _ in 0..640 {
        faced.says(&frames::data(1, 0, &[0; 16_000]));
    }
    faced.says(&frames::data(1, END_STREAM, b"end"));
    assert_eq!(faced.reads(1).0.len(), 640 * 16_000 + 3);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert!(updates.iter().all(|frame| frame.stream() == 0), "{updates:?}");
}

#[test]
fn a_stream_is_silent_once_it_is_reset() {
    for ours in [false, true] {
        let mut faced = Faced::server(Config::default());
        faced.says(&frames::post(1));
        for _ in 0..640 {
            faced.says(&frames::data(1, 0, &[0; 16_000]));
        }
        match ours {
            true => faced
                .connection
                .reset(id(1), fullbore_proto::ErrorCode::CANCEL)
                .unwrap(),
            false => faced.says(&frames::reset(1, fullbore_proto::ErrorCode::CANCEL)),
        }
        faced.reads(1);
        let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
        assert!(updates.iter().all(|frame| frame.stream() == 0), "{updates:?}");
    }
}

#[test]
fn a_flood_of_single_bytes_draws_less_than_one_update_for_16_kib() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(4))
    }));
    faced.says(&frames::post(1));
    let read: Vec<u8> = (0..1_000).flat_map(|_| frames::data(1, 0, b"x")).collect();
    let rounds = 1_500;
    let mut drawn = 0;
    for _ in 0..rounds {
        faced.says(&read);
        faced.reads(1);
        drawn += faced
            .heard()
            .iter()
            .map(|frame| 9 + frame.payload.len())
            .sum::<usize>();
    }
    let bytes = rounds * 1_000;
    assert!(drawn * 16_384 < 13 * bytes, "{drawn} octets for {bytes}");
    assert!(drawn > 0);
}

#[test]
fn a_threshold_in_bytes_refills_when_so_much_remains() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(4));
        config.set_stream_refill(Refill::Remaining(160_000));
    }));
    faced.says(&frames::post(1));
    let mut received = 0;
    let updates = loop {
        faced.says(&frames::data(1, 0, &[0; 16_000]));
        faced.reads(1);
        received += 16_000;
        let mut updates = faced.heard_of(FrameType::WINDOW_UPDATE);
        updates.retain(|update| update.stream() == 1);
        if !updates.is_empty() {
            break updates;
        }
    };
    // One update for 4 MB; the frame that brought it about is not read yet.
    assert_eq!(updates.len(), 1);
    assert_eq!((updates[0].stream(), updates[0].word(0)), (1, received - 16_000));
    assert!((4 << 20) - received <= 160_000 && (4 << 20) - received > 160_000 - 16_000);
}

#[test]
fn a_threshold_above_the_window_refills_with_each_worthwhile_gain() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::new(100_000).unwrap());
        config.set_stream_refill(Refill::Remaining(1 << 20));
    }));
    faced.says(&frames::post(1));
    let mut increments = Vec::new();
    for _ in 0..100 {
        faced.says(&frames::data(1, 0, &[0; 4_000]));
        faced.reads(1);
        increments.extend(
            faced
                .heard_of(FrameType::WINDOW_UPDATE)
                .iter()
                .map(|frame| frame.word(0)),
        );
    }
    assert_eq!(increments, [20_000; 20]);
}

#[test]
fn an_eighth_is_refilled_in_the_company_of_another_write() {
    let window = 1 << 20;
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::new(window).unwrap());
    }));
    faced.says(&frames::post(1));
    for _ in 0..8 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    faced.reads(1);
    assert!(faced.heard().is_empty(), "an eighth alone makes no write");
    faced.says(&frames::ping(0, b"12345678"));
    let heard = faced.heard();
    let update = heard
        .iter()
        .find(|frame| frame.header.frame_type == FrameType::WINDOW_UPDATE)
        .unwrap();
    assert_eq!((update.stream(), update.word(0)), (1, window / 8));
}

#[test]
fn data_that_waits_for_a_closed_window_is_no_company() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(1));
    }));
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    let body = Bytes::from(vec![7; 100_000]);
    faced.connection.send_data(id(1), body, true).unwrap();
    faced.says(&frames::settings(&[(4, 1 << 20)]));
    faced.says(&frames::post(3));
    faced.heard();
    assert_eq!(faced.connection.stats().sent_data_bytes, 65_535);
    for _ in 0..8 {
        faced.says(&frames::data(3, 0, &[0; 16_384]));
    }
    faced.reads(3);
    let mut out = Transmit::new();
    faced.connection.transmit(&mut out, faced.now);
    assert!(!out.has_remaining(), "an eighth alone makes no write");
}

#[test]
fn data_that_nobody_reads_is_refilled_with_its_own_frame() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_max_frame_size(1 << 20);
        config.set_stream_window(WindowSize::from_mebibytes(1));
    }));
    faced.says(&frames::post(1));
    faced.connection.discard(id(1));
    faced.says(&frames::data(1, 0, &vec![0; 1 << 18]));
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(1, 1 << 18)]);
}

#[test]
fn how_much_is_to_be_released_before_an_update_is_told() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::new(1 << 20).unwrap());
    }));
    faced.says(&frames::post(1));
    for _ in 0..32 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    let due = faced.connection.stream_release_until_due(id(1)).unwrap();
    assert_eq!(due, 1 << 18);
    faced.connection.release_credit(id(1), due - 1);
    assert!(!faced.connection.wants_transmit());
    faced.connection.release_credit(id(1), 1);
    assert!(faced.connection.wants_transmit());
    assert_eq!(faced.heard_of(FrameType::WINDOW_UPDATE).len(), 1);
}

/// Releases what is said to be due but for an octet, and then that.
#[track_caller]
fn update_is_due_after(config: Config, octets: usize, expected: u64) {
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &vec![0; octets]));
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    let until_due = |faced: &Faced| faced.connection.stream_release_until_due(id(1));
    assert_eq!(until_due(&faced), Some(expected));
    faced.connection.release_credit(id(1), expected - 1);
    assert_eq!(until_due(&faced), Some(1));
    assert_eq!(faced.heard(), []);
    faced.connection.release_credit(id(1), 1);
    assert_eq!(until_due(&faced), Some(1), "it is due");
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(1, expected as u32)]);
}

#[test]
fn the_last_octet_before_an_update_is_told_whatever_the_refill() {
    let with = |window: u32, refill| {
        fixed(|config| {
            config.set_max_frame_size(1 << 20);
            config.set_stream_window(WindowSize::new(window).unwrap());
            config.set_stream_refill(refill);
        })
    };
    update_is_due_after(with(1 << 20, Refill::Fraction { divisor: 4 }), 300_000, 262_144);
    update_is_due_after(with(1 << 20, Refill::Fraction { divisor: 8 }), 300_000, 131_072);
    // A large one begins as if the path waited for it.
    update_is_due_after(with(2 << 20, Refill::default()), 600_000, 65_536);
    update_is_due_after(with((2 << 20) - 1, Refill::default()), 600_000, 524_287);
    update_is_due_after(with(100_000, Refill::Remaining(1 << 20)), 20_000, 16_384);
    update_is_due_after(with(10_000, Refill::Remaining(1 << 20)), 5_000, 2_500);
}

#[test]
fn a_window_of_which_a_refill_s_share_is_left_to_others_waits_for_it() {
    let size = WindowSize::from_mebibytes(1);
    let mut faced = Faced::server(fixed(|config| {
        config.set_max_frame_size(1 << 20);
        config.set_stream_window(size);
        config.set_connection_window(size);
    }));
    // Stream 1 is not read: a quarter is left, of which stream 3 uses a half.
    faced.says(&frames::post(1));
    faced.says(&frames::post(3));
    faced.says(&frames::data(1, 0, &vec![0; 3 << 18]));
    faced.says(&frames::data(3, 0, &vec![0; 1 << 17]));
    faced.reads(3);
    assert_eq!(faced.heard(), []);
    // An octet less is left: half of that is enough.
    faced.says(&frames::data(1, 0, &[0]));
    let mut updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    updates.retain(|update| update.stream() == 0);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(0, 1 << 17)]);
}

#[test]
fn how_much_is_to_be_released_before_an_update_of_the_connection_is_told() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_connection_window(WindowSize::new(1 << 20).unwrap());
        config.set_stream_window(WindowSize::new(1 << 22).unwrap());
    }));
    faced.says(&frames::post(1));
    for _ in 0..32 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    let mut chunks = Default::default();
    faced.connection.read(id(1), &mut chunks).unwrap();
    let due = faced.connection.connection_release_until_due();
    assert_eq!(due, 1 << 18);
    faced.connection.release_connection_credit(due - 1);
    assert_eq!(faced.connection.connection_release_until_due(), 1);
    assert!(!faced.connection.wants_transmit());
    faced.connection.release_connection_credit(1);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(0, 1 << 18)]);
}
