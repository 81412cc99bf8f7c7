//! Law 1: a window that covers bandwidth times round trip never stops the sender; a smaller one is a rate of its own.

use std::time::Duration;

use fullbore_proto::FrameType;
use fullbore_proto::{Config, Refill, Time, WindowSize};

use crate::support::fixed;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::Faced;

/// 125 MB/s, a gigabit.
const GIGABIT: u64 = 8;
/// A frame of 16,384 octets with its head.
const FRAME: u64 = 16_393;
/// Round trips of the table, in milliseconds.
const ROUND_TRIPS: [u64; 6] = [1, 20, 70, 100, 130, 230];

fn windows(stream: u32) -> Config {
    fixed(|config| {
        config.set_stream_window(WindowSize::new(stream).unwrap());
        config.set_connection_window(WindowSize::new(stream.saturating_mul(4)).unwrap());
    })
}

/// A client with this configuration that downloads without end, once it has done so for `warm`.
fn download(client: Config, round_trip: Duration, nanos_per_byte: u64, warm: Duration) -> Pair {
    download_in_reads(FRAME as usize, client, round_trip, nanos_per_byte, warm)
}

/// The same, with no more than `read_size` octets a read.
fn download_in_reads(
    read_size: usize,
    client: Config,
    round_trip: Duration,
    nanos_per_byte: u64,
    warm: Duration,
) -> Pair {
    let up = PathConfig {
        delay: round_trip / 2,
        ..PathConfig::default()
    };
    let down = PathConfig {
        nanos_per_byte,
        read_size,
        ..up.clone()
    };
    // More is queued than one write takes, so that every frame is full.
    let mut pair = Pair::with_paths(client, fixed(|_| {}), up, down).with_apps();
    pair.server.app().low_water = 4 << 20;
    pair.run();
    pair.get(1 << 50);
    pair.run_for(warm);
    pair
}

/// Octets of the body that come in `wait`.
fn received_in(pair: &mut Pair, wait: Duration) -> u64 {
    let from = pair.now;
    pair.run_for(wait);
    pair.client.app().received_between(from, pair.now)
}

#[test]
fn where_the_window_is_the_limit_a_window_arrives_each_round_trip_and_refill() {
    // A refill of half a window: two circle, each takes the round trip and the time in which it crosses.
    const WINDOW: u64 = 4 << 20;
    let half = WINDOW / 2 / 16_384 * FRAME;
    for round_trip in [70, 100, 130, 230] {
        let cycle = Duration::from_millis(round_trip) + Duration::from_nanos(half * GIGABIT);
        let mut client = windows(WINDOW as u32);
        client.set_stream_refill(Refill::Fraction { divisor: 2 });
        let warm = Duration::from_secs(1);
        let mut pair = download(client, Duration::from_millis(round_trip), GIGABIT, warm);
        for cycles in [1, 3] {
            let received = received_in(&mut pair, cycle * cycles);
            assert_eq!(received, WINDOW * u64::from(cycles), "over {round_trip} ms");
        }
    }
}

#[test]
fn where_the_link_is_the_limit_the_sender_never_pauses() {
    // Three quarters of the window cover the path, and a frame or two on their way in and out.
    for (window, round_trips) in [(4 << 20, &ROUND_TRIPS[..2]), (16 << 20, &ROUND_TRIPS[..4])] {
        for &round_trip in round_trips {
            let covered = (u64::from(window) / 4 * 3 - 2 * 16_384) * FRAME / 16_384 * GIGABIT;
            assert!(
                Duration::from_nanos(covered) >= Duration::from_millis(round_trip),
                "the case is wrong"
            );
            let warm = Duration::from_millis(round_trip * 5);
            let mut pair = download(windows(window), Duration::from_millis(round_trip), GIGABIT, warm);
            let idle = pair.server.path.idle();
            let frames = 5_000;
            let received = received_in(&mut pair, Duration::from_nanos(frames * FRAME * GIGABIT));
            assert_eq!(
                pair.server.path.idle(),
                idle,
                "{window} over {round_trip} ms: the sender paused"
            );
            // All frames are full; the reads begin and end within one.
            let full = frames * 16_384;
            assert!(received.abs_diff(full) < 16_384, "{received} of {full}");
        }
    }
}

#[test]
fn the_table_of_paths() {
    // The rate is that of the link or a window each round trip, whichever is less, and nineteen twentieths of it at least.
    for window in [65_535u32, 4 << 20, 16 << 20] {
        for round_trip in ROUND_TRIPS {
            let round_trip = Duration::from_millis(round_trip);
            let wait = round_trip * 20;
            let warm = Duration::from_millis(700);
            // As packets come: a read is over before much of a window has crossed the link.
            let mut pair = download_in_reads(1_448, windows(window), round_trip, GIGABIT, warm);
            let rate = received_in(&mut pair, wait) as f64 / wait.as_secs_f64();
            let link = 16_384.0 / FRAME as f64 * 1e9 / GIGABIT as f64;
            let most = (f64::from(window) / round_trip.as_secs_f64()).min(link);
            // The wait begins and ends within a burst.
            let slack = f64::from(window) / wait.as_secs_f64();
            let share = rate / most;
            assert!(rate <= most + slack, "{window} over {round_trip:?}: {share:.3}");
            assert!(share >= 0.95, "{window} over {round_trip:?}: {share:.3}");
        }
    }
}

#[test]
fn a_default_connection_fills_a_gigabit_over_a_hundred_milliseconds() {
    let round_trip = Duration::from_millis(100);
    let mut pair = download(Config::default(), round_trip, GIGABIT, Duration::from_millis(500));
    let idle = pair.server.path.idle();
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.server.path.idle(), idle, "the sender paused");
}

#[test]
fn refills_of_half_a_window_need_twice_the_path() {
    // The same window, refilled late: with 1/2 the sender pauses where with 1/4 it does not.
    let round_trip = Duration::from_millis(80);
    let pauses = |refill| {
        let client = fixed(|config| {
            config.set_stream_window(WindowSize::from_mebibytes(16));
            config.set_stream_refill(refill);
        });
        let mut pair = download(client, round_trip, GIGABIT, Duration::from_secs(1));
        let idle = pair.server.path.idle();
        pair.run_for(Duration::from_secs(1));
        pair.server.path.idle() > idle
    };
    assert!(!pauses(Refill::Fraction { divisor: 4 }));
    assert!(pauses(Refill::Fraction { divisor: 2 }));
    assert!(pauses(Refill::Fraction { divisor: 1 }));
    // A threshold that covers the path does as well as a fraction; Mint's 160,000 is for shorter ones.
    assert!(!pauses(Refill::Remaining(11 << 20)));
    assert!(pauses(Refill::Remaining(160_000)));
}

#[test]
fn the_connections_window_limits_all_streams_together() {
    const WINDOW: u64 = 4 << 20;
    let client = fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(16));
        config.set_connection_window(WindowSize::from_mebibytes(4));
        config.set_connection_refill(Refill::Fraction { divisor: 2 });
    });
    let mut pair = download(client, Duration::from_millis(100), GIGABIT, Duration::ZERO);
    for _ in 0..7 {
        pair.get(1 << 50);
    }
    pair.run_for(Duration::from_secs(1));
    let half = WINDOW / 2 / 16_384 * FRAME;
    let cycle = Duration::from_millis(100) + Duration::from_nanos(half * GIGABIT);
    assert_eq!(received_in(&mut pair, cycle * 5), WINDOW * 5);
}

#[test]
fn uploads_run_by_the_windows_of_the_server_all_the_same() {
    let path = PathConfig {
        nanos_per_byte: GIGABIT,
        read_size: FRAME as usize,
        ..PathConfig::delay_millis(40)
    };
    let mut pair = Pair::new(Config::default(), Config::default(), path).with_apps();
    pair.server.app().answers_late = true;
    pair.run();
    pair.post(1 << 50, 0);
    pair.run_for(Duration::from_millis(300));
    let idle = pair.client.path.idle();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.path.idle(), idle, "the sender paused");
}

#[test]
fn a_slow_reader_gets_its_pace_and_holds_no_more_than_its_window() {
    let window = 1 << 20;
    let mut pair = Pair::new(windows(window), Config::default(), PathConfig::delay_millis(10)).with_apps();
    // 10 MB/s.
    pair.client.app().pace = crate::support::app::Pace::Slow {
        bytes: 100_000,
        every: Duration::from_millis(10),
    };
    pair.run();
    pair.get(1 << 50);
    pair.run_for(Duration::from_secs(1));
    let mut most = 0;
    let until = pair.now + Duration::from_secs(1);
    let from = pair.now;
    pair.run_while(|pair| {
        most = most.max(pair.client.connection.unreleased());
        pair.now < until
    });
    assert!(most <= u64::from(window), "{most} held");
    let received = pair.client.app().received_between(from, pair.now);
    assert!(
        received.abs_diff(10_000_000) <= u64::from(window) / 4,
        "{received}"
    );
}

#[test]
fn the_round_trip_is_measured_on_settings() {
    for millis in [1, 50, 230] {
        let mut pair = Pair::new(
            Config::default(),
            Config::default(),
            PathConfig::delay_millis(millis),
        );
        pair.run();
        let measured = pair.client.connection.round_trip().minimum();
        assert_eq!(measured, Some(Duration::from_millis(2 * millis)));
        assert!(pair.now > Time::ZERO);
    }
}

#[test]
fn the_round_trip_is_measured_by_one_ping_at_a_time_for_whoever_asks() {
    let path = PathConfig::delay_millis(50);
    let mut pair = Pair::new(Config::default(), Config::default(), path);
    assert!(
        !pair.client.connection.measure_round_trip(pair.now),
        "nobody is there yet"
    );
    pair.run();
    let pings = |pair: &Pair| pair.client.connection.stats().sent_frames.of(FrameType::PING);
    for count in 1..=3 {
        let asked = pair.now;
        assert!(pair.client.connection.measure_round_trip(asked));
        assert!(!pair.client.connection.measure_round_trip(asked));
        pair.run();
        assert_eq!(pings(&pair), count);
        let measured = pair.client.connection.round_trip().latest();
        assert_eq!(measured, Some(Duration::from_millis(100)));
        assert!(pair.now >= asked + Duration::from_millis(100));
    }
}

#[test]
fn the_answer_to_a_ping_of_ours_says_what_the_round_trip_is_now() {
    let mut faced = Faced::client(Config::default());
    for (asked, millis) in [(1, 70), (2, 30), (3, 90)] {
        faced.now = Time::ZERO + Duration::from_secs(asked);
        assert!(faced.connection.measure_round_trip(faced.now));
        let ping = faced.heard_of(FrameType::PING).remove(0);
        faced.now = faced.now + Duration::from_millis(millis);
        faced.says(&frames::frame(0x6, frames::ACK, 0, &ping.payload));
        let measured = faced.connection.round_trip().latest();
        assert_eq!(measured, Some(Duration::from_millis(millis)));
    }
}
