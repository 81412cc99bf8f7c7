//! No deadlock: whatever such a peer does, every run completes with every octet right, or ends with the error that
//! RFC 9113 names.

use std::time::Duration;

use fullbore_proto::{ErrorCode, Role};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::peer::{Change, Habits, Refilling, Wrong};
use super::run::{Deed, Exchange, Plan, Run};
use crate::random::scenario::{configs, spread};
use crate::support::app::Pace;
use crate::support::config;

/// A peer that refills a window when nothing is left of it, up to `to`.
fn when_empty(to: u32) -> Refilling {
    Refilling { below: 0, to }
}

fn habits() -> Habits {
    Habits {
        initial_window: 65_535,
        max_streams: None,
        settings_after: Duration::ZERO,
        stream: when_empty(65_535),
        connection: when_empty(65_535),
        refill_after: Duration::ZERO,
        holds_back: false,
        ack_after: Duration::ZERO,
        applies_late: false,
        piece: 16_384,
        padding: None,
        answers_early: false,
    }
}

/// Four exchanges, of which each side sends so much.
fn plan(role: Role, length: u32, habits: Habits) -> Plan {
    let exchange = |index| Exchange {
        at: Duration::from_millis(index),
        upload: length,
        download: length,
    };
    Plan {
        role,
        config: config(|_| ()),
        pace: Pace::Eager,
        chunk: 64 << 10,
        delay: Duration::from_millis(5),
        cut: 16_384,
        habits,
        exchanges: (0..4).map(exchange).collect(),
        deeds: Vec::new(),
        resets_all_after: None,
    }
}

fn is_borne(plan: Plan) {
    let mut run = Run::new(plan);
    run.run();
    run.assert_right();
}

const ROLES: [Role; 2] = [Role::Client, Role::Server];

#[test]
fn a_peer_that_refills_only_windows_that_are_empty_is_served() {
    for role in ROLES {
        for (stream, connection) in [
            (65_535, 65_535),
            (1_000, 65_535),
            (100_000, 5_000),
            (16_384, 16_385),
        ] {
            let habits = Habits {
                initial_window: stream,
                stream: when_empty(stream),
                connection: when_empty(connection),
                refill_after: Duration::from_millis(50),
                ..habits()
            };
            is_borne(plan(role, 200_000, habits));
        }
    }
}

#[test]
fn a_peer_that_gives_one_octet_at_a_time_is_served() {
    for role in ROLES {
        for (stream, connection) in [(1, 65_535), (65_535, 1), (1, 1)] {
            let habits = Habits {
                initial_window: stream,
                stream: when_empty(stream),
                connection: when_empty(connection),
                ..habits()
            };
            is_borne(plan(role, 70_000, habits));
        }
    }
}

#[test]
fn a_peer_whose_settings_put_windows_below_zero_is_served_once_it_raises_them() {
    for role in ROLES {
        for holds_back in [false, true] {
            let habits = Habits {
                holds_back,
                connection: when_empty(1 << 20),
                ..habits()
            };
            let mut plan = plan(role, 300_000, habits);
            let sizes = [0, 30_000, 1, 65_535, 0];
            plan.deeds = sizes
                .into_iter()
                .enumerate()
                .map(|(index, size)| {
                    let at = Duration::from_millis(10 + 30 * index as u64);
                    (at, Deed::Change(Change::InitialWindow(size)))
                })
                .collect();
            is_borne(plan);
        }
    }
}

#[test]
fn a_peer_that_allows_no_streams_for_a_while_gets_them_all_later() {
    let mut plan = plan(
        Role::Client,
        100_000,
        Habits {
            max_streams: Some(0),
            ..habits()
        },
    );
    plan.deeds = [2, 0, 1, 0]
        .into_iter()
        .enumerate()
        .map(|(index, count)| {
            let at = Duration::from_millis(10 + 30 * index as u64);
            (at, Deed::Change(Change::MaxStreams(count)))
        })
        .collect();
    is_borne(plan);
}

#[test]
fn a_peer_that_is_slow_to_acknowledge_and_pads_every_frame_is_served() {
    for role in ROLES {
        for applies_late in [false, true] {
            for stream_window in [1_000, 48 << 20] {
                let habits = Habits {
                    ack_after: Duration::from_secs(3),
                    applies_late,
                    padding: Some(255),
                    piece: 700,
                    ..habits()
                };
                let mut plan = plan(role, 150_000, habits);
                plan.config.set_adaptive(false);
                plan.config
                    .set_stream_window(fullbore_proto::WindowSize::new(stream_window).unwrap());
                is_borne(plan);
            }
        }
    }
}

#[test]
fn a_peer_that_resets_all_streams_is_borne_at_every_point() {
    for role in ROLES {
        let habits = Habits {
            initial_window: 3_000,
            stream: when_empty(3_000),
            connection: when_empty(10_000),
            piece: 4_000,
            answers_early: true,
            ..habits()
        };
        let mut plan = plan(role, 20_000, habits);
        let mut whole = Run::new(plan.clone());
        whole.run();
        whole.assert_right();
        assert!(whole.spoken > 10, "{}", whole.spoken);
        for point in 0..whole.spoken {
            plan.resets_all_after = Some(point);
            is_borne(plan.clone());
        }
    }
}

#[test]
fn what_no_peer_may_do_ends_the_connection_with_the_error_that_the_rfc_names() {
    let codes = [
        (Wrong::ConnectionWindowOverflow, ErrorCode::FLOW_CONTROL_ERROR),
        (Wrong::InitialWindowTooLarge, ErrorCode::FLOW_CONTROL_ERROR),
        (Wrong::MaxFrameSizeTooSmall, ErrorCode::PROTOCOL_ERROR),
        (Wrong::EmptyUpdate, ErrorCode::PROTOCOL_ERROR),
        (Wrong::LongFrame, ErrorCode::FRAME_SIZE_ERROR),
    ];
    for role in ROLES {
        for (wrong, code) in codes {
            assert_eq!(wrong.code(), code);
            let mut plan = plan(role, 200_000, habits());
            plan.deeds = vec![(Duration::from_millis(40), Deed::Err(wrong))];
            is_borne(plan);
        }
    }
}

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most * 1_000).prop_map(Duration::from_micros)
}

fn refilling() -> impl Strategy<Value = Refilling> {
    prop_oneof![
        3 => spread(1 << 18).prop_map(when_empty),
        1 => Just(when_empty(1)),
        1 => (spread(1 << 18), spread(1 << 18)).prop_map(|(below, more)| Refilling { below, to: below + more }),
    ]
}

fn any_habits() -> impl Strategy<Value = Habits> {
    let initial = prop_oneof![Just(0), spread(1 << 18)];
    let first = (
        initial,
        option::of(0u32..4),
        prop_oneof![Just(Duration::ZERO), millis(200)],
    );
    let windows = (refilling(), refilling(), millis(100), any::<bool>());
    let acks = (millis(2_000), any::<bool>());
    let frames = (spread(1 << 17), option::of(any::<u8>()), any::<bool>());
    (first, windows, acks, frames).prop_map(|(first, windows, acks, frames)| Habits {
        initial_window: first.0,
        max_streams: first.1,
        settings_after: first.2,
        stream: windows.0,
        connection: windows.1,
        refill_after: windows.2,
        holds_back: windows.3,
        ack_after: acks.0,
        applies_late: acks.1,
        piece: frames.0,
        padding: frames.1,
        answers_early: frames.2,
    })
}

fn deeds() -> impl Strategy<Value = Deed> {
    let frame_size = prop_oneof![Just(16_384u32), 16_384u32..100_000];
    let wrongs = prop_oneof![
        Just(Wrong::ConnectionWindowOverflow),
        Just(Wrong::InitialWindowTooLarge),
        Just(Wrong::MaxFrameSizeTooSmall),
        Just(Wrong::EmptyUpdate),
        Just(Wrong::LongFrame),
    ];
    prop_oneof![
        4 => Just(Deed::Change(Change::InitialWindow(0))),
        8 => spread(1 << 18).prop_map(|size| Deed::Change(Change::InitialWindow(size))),
        4 => frame_size.prop_map(|size| Deed::Change(Change::MaxFrameSize(size))),
        4 => (0u32..5).prop_map(|count| Deed::Change(Change::MaxStreams(count))),
        2 => Just(Deed::Change(Change::Ping)),
        8 => (0usize..8).prop_map(Deed::Reset),
        1 => wrongs.prop_map(Deed::Err),
    ]
}

fn plans() -> impl Strategy<Value = Plan> {
    let pace = prop_oneof![
        2 => Just(Pace::Eager),
        1 => (spread(1 << 18), 1u64..5_000).prop_map(|(bytes, every)| Pace::Slow {
            bytes: u64::from(bytes) + 500,
            every: Duration::from_micros(every),
        }),
    ];
    let lengths = || prop_oneof![1 => Just(0), 5 => spread(1 << 18)];
    let exchange = (millis(300), lengths(), lengths());
    let exchange = exchange.prop_map(|(at, upload, download)| Exchange { at, upload, download });
    let configs = configs().prop_map(|mut config| {
        // The peer compresses nothing, and announces no smaller table (RFC 7541 section 4.2).
        config.set_header_table_size(4_096);
        config
    });
    let ours = (any::<bool>(), configs, pace, spread(100_000));
    let way = (millis(50), spread(30_000));
    let acts = (vec(exchange, 1..8), vec((millis(500), deeds()), 0..12));
    (ours, way, any_habits(), acts).prop_map(|(ours, way, habits, acts)| Plan {
        role: if ours.0 { Role::Client } else { Role::Server },
        config: ours.1,
        pace: ours.2,
        chunk: u64::from(ours.3),
        delay: way.0,
        cut: way.1 as usize,
        habits,
        exchanges: acts.0,
        deeds: acts.1,
        resets_all_after: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_run_completes_with_every_octet_or_ends_with_the_error_that_the_rfc_names(plan in plans()) {
        is_borne(plan);
    }
}
