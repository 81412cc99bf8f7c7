//! Law 8: what a transfer waited for is told, and the times add up.

use std::time::Duration;

use fullbore_proto::{Config, Connection, Ledger, Stall, Time, WindowSize};

use crate::support::app::Pace;
use crate::support::fixed;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;

/// The part of `wait` that each end spent in `state`, sending at the server and receiving at the client, after a second
/// of warming up.
fn shares(pair: &mut Pair, state: Stall) -> (f64, f64) {
    let wait = Duration::from_secs(4);
    let ledgers = |pair: &Pair| -> [Ledger; 2] {
        let sending = |connection: &Connection| connection.sending_ledger(pair.now);
        [
            sending(&pair.server.connection),
            pair.client.connection.receiving_ledger(pair.now),
        ]
    };
    pair.run_for(Duration::from_secs(1));
    let before = ledgers(pair);
    pair.run_for(wait);
    let after = ledgers(pair);
    for ledger in after {
        let all: Duration = Stall::ALL.iter().map(|&state| ledger.spent(state)).sum();
        assert_eq!(all, pair.now.since(Time::ZERO), "a moment in no state, or in two");
    }
    let share = |index: usize| {
        // What is not settled yet may be judged anew, and so be less than before.
        let spent = |ledger: Ledger| ledger.spent(state).as_secs_f64();
        (spent(after[index]) - spent(before[index])) / wait.as_secs_f64()
    };
    (share(0), share(1))
}

fn windows(stream: u32, connection: u32) -> Config {
    fixed(|config| {
        config.set_stream_window(WindowSize::new(stream).unwrap());
        config.set_connection_window(WindowSize::new(connection).unwrap());
    })
}

fn pair(client: Config, server: Config) -> Pair {
    let path = PathConfig {
        nanos_per_byte: 8,
        ..PathConfig::delay_millis(50)
    };
    let mut pair = Pair::new(client, server, path).with_apps();
    pair.run();
    pair
}

#[test]
fn a_small_window_of_a_stream_is_named() {
    let mut pair = pair(windows(65_535, 16 << 20), Config::default());
    pair.get(1 << 50);
    let (sending, receiving) = shares(&mut pair, Stall::StreamWindow);
    assert!(sending > 0.9 && receiving > 0.9, "{sending} and {receiving}");
}

#[test]
fn a_small_window_of_the_connection_is_named() {
    let mut pair = pair(windows(16 << 20, 65_535), Config::default());
    pair.get(1 << 50);
    pair.get(1 << 50);
    let (sending, receiving) = shares(&mut pair, Stall::ConnectionWindow);
    assert!(sending > 0.9 && receiving > 0.9, "{sending} and {receiving}");
}

#[test]
fn a_path_that_is_full_is_told_as_moving() {
    let mut pair = pair(windows(32 << 20, 64 << 20), Config::default());
    pair.get(1 << 50);
    let (_, receiving) = shares(&mut pair, Stall::Moving);
    assert!(receiving > 0.99, "{receiving}");
    let (sending, _) = shares(&mut pair, Stall::Socket);
    assert!(sending > 0.5, "the sender waits for its socket: {sending}");
}

#[test]
fn a_slow_path_on_which_one_frame_takes_long_is_told_as_moving() {
    // 2.5 MB/s, a segment each 0.6 ms and a frame each 6.5 ms.
    let path = PathConfig {
        nanos_per_byte: 400,
        read_size: 1_460,
        ..PathConfig::delay_millis(50)
    };
    let mut pair = Pair::new(Config::default(), Config::default(), path).with_apps();
    pair.run();
    pair.get(1 << 50);
    let (_, receiving) = shares(&mut pair, Stall::Moving);
    assert!(receiving > 0.99, "{receiving}");
}

#[test]
fn a_reader_that_takes_a_window_at_once_and_then_rests_is_told_apart_from_its_window() {
    // It rests for 100 ms, and what it lets in then takes a round trip of 100 ms.
    let spent = |state| {
        let mut pair = pair(windows(1 << 18, 16 << 20), Config::default());
        pair.client.app().pace = Pace::Slow {
            bytes: 1 << 20,
            every: Duration::from_millis(100),
        };
        pair.get(1 << 50);
        shares(&mut pair, state).1
    };
    let (application, window) = (spent(Stall::Application), spent(Stall::StreamWindow));
    assert!((0.45..=0.51).contains(&application), "{application}");
    assert!((0.45..=0.51).contains(&window), "{window}");
}

#[test]
fn too_few_streams_are_named() {
    let server = fixed(|config| config.set_max_concurrent_streams(5));
    let mut pair = pair(Config::default(), server);
    for _ in 0..10_000 {
        pair.get(1_000);
    }
    let wait = pair.now + Duration::from_secs(3);
    let before = pair
        .client
        .connection
        .sending_ledger(pair.now)
        .spent(Stall::StreamCount);
    pair.run_until(wait);
    let spent = pair
        .client
        .connection
        .sending_ledger(pair.now)
        .spent(Stall::StreamCount)
        - before;
    assert!(spent > Duration::from_millis(2_900), "{spent:?}");
}

#[test]
fn a_slow_reader_is_named_as_the_application() {
    let mut pair = pair(windows(1 << 20, 4 << 20), Config::default());
    pair.client.app().pace = Pace::Slow {
        bytes: 10_000,
        every: Duration::from_millis(100),
    };
    pair.get(1 << 50);
    let (_, receiving) = shares(&mut pair, Stall::Application);
    assert!(receiving > 0.8, "{receiving}");
}

#[test]
fn a_peer_that_takes_its_time_is_named() {
    let mut pair = pair(Config::default(), Config::default());
    pair.server.app = None;
    pair.get(0);
    let (_, receiving) = shares(&mut pair, Stall::Peer);
    assert!(receiving > 0.95, "{receiving}");
}

#[test]
fn a_connection_without_streams_is_idle() {
    let mut pair = pair(Config::default(), Config::default());
    let (sending, receiving) = shares(&mut pair, Stall::Idle);
    assert_eq!((sending, receiving), (1.0, 1.0));
}
