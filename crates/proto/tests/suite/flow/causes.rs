//! Law 8: the verdict names what limits a transfer, and never blames a peer that was ready.

use std::time::Duration;

use fullbore_proto::frame::FrameType;
use fullbore_proto::{Cause, Config, Direction, Refill, Role, Stall, Time, Verdict, WindowSize};

use crate::support::app::Pace;
use crate::support::pair::{End, Pair};
use crate::support::path::PathConfig;
use crate::support::peer::Faced;
use crate::support::{config, fixed, frames};

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

fn windows(stream: u32, connection: u32) -> Config {
    fixed(|config| {
        config.set_stream_window(WindowSize::new(stream).unwrap());
        config.set_connection_window(WindowSize::new(connection).unwrap());
    })
}

/// A path of 100 ms, with so many nanoseconds a byte, that gives a segment at a time.
fn path(nanos_per_byte: u64) -> PathConfig {
    PathConfig {
        nanos_per_byte,
        read_size: 1_460,
        ..PathConfig::delay_millis(50)
    }
}

#[track_caller]
fn verdict(end: &End, role: Role, direction: Direction, now: Time) -> Verdict {
    let report = end.connection.report(now);
    Verdict::of(role, direction, &[report]).expect("it was busy")
}

/// What each end names after two seconds of a download.
fn of_a_download(client: Config, path: PathConfig) -> [Verdict; 2] {
    let mut pair = Pair::new(client, Config::default(), path).with_apps();
    pair.client.app().compares = false;
    pair.server.app().compares = false;
    pair.most_steps = 100_000_000;
    pair.run();
    pair.get(1 << 50);
    pair.run_for(Duration::from_secs(2));
    [
        verdict(&pair.client, Role::Client, Direction::Receiving, pair.now),
        verdict(&pair.server, Role::Server, Direction::Sending, pair.now),
    ]
}

#[test]
fn a_window_that_allows_less_than_the_path_is_named_by_both_ends_whatever_its_size() {
    // Without a limit to the rate, and at 1 Gbit/s.
    for nanos_per_byte in [0, 8] {
        for window in [128 * KIB, 256 * KIB, MIB, 2 * MIB, 8 * MIB] {
            for (config, cause) in [
                (windows(window, 64 * MIB), Cause::StreamWindow),
                (windows(64 * MIB, window), Cause::ConnectionWindow),
            ] {
                for verdict in of_a_download(config.clone(), path(nanos_per_byte)) {
                    let case = format!("{window} B at {nanos_per_byte} ns a byte: {verdict}");
                    assert_eq!(verdict.cause, cause, "{case}");
                    assert!(verdict.percent > 70.0 || nanos_per_byte == 8, "{case}");
                    if cause == Cause::StreamWindow {
                        assert_eq!(verdict.stream_window, u64::from(window), "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_is_named_although_its_data_comes_without_a_pause() {
    // 20 MB/s over 100 ms is 2 MB on the way.
    let [client, _] = of_a_download(windows(2_000_000, 64 * MIB), path(50));
    assert_eq!(client.cause, Cause::StreamWindow, "{client}");
    let [client, _] = of_a_download(windows(64 * MIB, 2_000_000), path(50));
    assert_eq!(client.cause, Cause::ConnectionWindow, "{client}");
}

#[test]
fn a_path_that_leaves_a_part_of_the_window_unused_is_named_itself() {
    // 10 MB/s over 100 ms is 1 MB on the way.
    for window in [1_300_000, 2_000_000, 8_000_000] {
        for config in [windows(window, 64 * MIB), windows(64 * MIB, window)] {
            let [client, _] = of_a_download(config, path(100));
            assert_eq!(client.cause, Cause::Path, "{window} B: {client}");
        }
    }
    let [client, _] = of_a_download(Config::default(), path(100));
    assert_eq!(client.cause, Cause::Path, "{client}");
}

#[test]
fn a_reader_that_keeps_a_window_full_is_named_although_data_comes_without_a_pause() {
    let mut pair = Pair::new(windows(MIB, 64 * MIB), Config::default(), path(8)).with_apps();
    pair.run();
    // 5 MB/s, half of what the window allows.
    pair.client.app().pace = Pace::Slow {
        bytes: 10_000,
        every: Duration::from_millis(2),
    };
    pair.get(1 << 50);
    pair.run_for(Duration::from_secs(3));
    let verdict = verdict(&pair.client, Role::Client, Direction::Receiving, pair.now);
    assert_eq!(verdict.cause, Cause::ThisSide, "{verdict}");
}

#[test]
fn a_handler_that_reads_for_long_what_came_at_once_is_named_with_its_time() {
    // The whole body is within the window, and nobody reads it for 65 s.
    let mut pair = Pair::new(Config::default(), windows(16 * MIB, 16 * MIB), path(0)).with_apps();
    pair.server.app().pace = Pace::Never;
    pair.run();
    pair.post(4_000_000, 0);
    pair.run_for(Duration::from_secs(65));
    let report = pair.server.connection.report(pair.now);
    assert!(
        report.receiving.spent(Stall::Application) > Duration::from_secs(64),
        "{report:?}"
    );
    let verdict = verdict(&pair.server, Role::Server, Direction::Receiving, pair.now);
    assert_eq!(verdict.cause, Cause::ThisSide, "{verdict}");
}

#[test]
fn an_upload_to_a_server_that_refills_at_half_is_held_by_its_window() {
    // The whole window leaves at once. Then a round trip passes until half of it is back.
    for refill in [Refill::Fraction { divisor: 2 }, Refill::HalfRest] {
        let mut server = windows(64 * KIB, 64 * KIB);
        server.set_stream_refill(refill);
        server.set_connection_refill(refill);
        let mut pair = Pair::new(Config::default(), server, path(8)).with_apps();
        pair.run();
        pair.post(1 << 50, 0);
        pair.run_for(Duration::from_secs(5));
        let verdict = verdict(&pair.client, Role::Client, Direction::Sending, pair.now);
        let windows = [Cause::StreamWindow, Cause::ConnectionWindow];
        assert!(windows.contains(&verdict.cause), "{refill:?}: {verdict}");
    }
}

#[test]
fn the_window_that_an_upload_had_is_the_largest_that_was_granted_not_that_of_settings() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(4, 16_384)]));
    faced.says(&frames::window_update(0, 16 << 20));
    let stream = faced.opens("PUT", false);
    faced.says(&frames::window_update(1, 1_500_000));
    let body = bytes::Bytes::from(vec![7; 3_000_000]);
    faced.connection.send_data(stream, body, false).unwrap();
    faced.heard();
    faced.connection.socket_idle(faced.now);
    faced.now = faced.now + Duration::from_secs(1);
    let report = faced.connection.report(faced.now);
    assert_eq!(report.stream_send_window, 16_384);
    assert_eq!(report.largest_stream_send_window, 16_384 + 1_500_000);
    assert_eq!(report.largest_send_window, 65_535 + (16 << 20));
    let verdict = Verdict::of(Role::Client, Direction::Sending, &[report]).unwrap();
    assert_eq!(
        (verdict.cause, verdict.stream_window),
        (Cause::StreamWindow, 1_516_384)
    );
}

/// How often the client asked whether its uploads have crossed the path.
fn asked(pair: &Pair) -> usize {
    let word = u32::from_be_bytes(*b"drai");
    let pings = pair.client.tap.of(FrameType::PING);
    pings.filter(|seen| seen.word == word).count()
}

#[test]
fn an_upload_in_the_buffers_of_the_path_is_on_its_way_and_does_not_wait_for_the_server() {
    // The socket takes all at once, and the path carries it at 1 MB/s.
    let path = PathConfig {
        buffer: 1 << 40,
        ..path(1_000)
    };
    let server = config(|config| config.set_stream_window(WindowSize::from_mebibytes(48)));
    let mut pair = Pair::new(Config::default(), server, path).with_apps();
    pair.server.app().answers_late = true;
    pair.run();
    pair.post(10_000_000, 0);
    pair.run_for(Duration::from_secs(15));
    let ledger = pair.client.connection.sending_ledger(pair.now);
    let peer = ledger.spent(Stall::Peer);
    assert!(peer <= Duration::from_millis(110), "a round trip: {ledger:?}");
    let verdict = verdict(&pair.client, Role::Client, Direction::Sending, pair.now);
    assert_eq!(verdict.cause, Cause::Path, "{verdict}");
    assert_eq!(asked(&pair), 1);
}

#[test]
fn a_response_that_overtakes_the_answer_to_the_ping_behind_an_upload_tells_as_much() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(4, 16 << 20)]));
    faced.says(&frames::window_update(0, 16 << 20));
    let stream = faced.opens("PUT", false);
    let body = bytes::Bytes::from(vec![7; 3_000_000]);
    faced.connection.send_data(stream, body, true).unwrap();
    let pings = faced.heard_of(FrameType::PING);
    assert!(
        pings.iter().any(|ping| ping.payload[..] == *b"drained?"),
        "{pings:?}"
    );
    faced.connection.socket_idle(faced.now);
    // Something else is sent meanwhile, as a PING of the keep-alive is.
    faced.now = faced.now + Duration::from_secs(4);
    faced.says(&frames::ping(0, b"are you?"));
    assert_eq!(faced.heard_of(FrameType::PING).len(), 1);
    faced.connection.socket_idle(faced.now);
    faced.now = faced.now + Duration::from_secs(1);
    let block = frames::response_block("200", &[]);
    faced.says(&frames::headers(1, 5, &block));
    // The owner has its response, and asks at once.
    let ledger = faced.connection.sending_ledger(faced.now);
    assert_eq!(ledger.spent(Stall::Peer), Duration::ZERO, "{ledger:?}");
    assert!(
        ledger.spent(Stall::Moving) >= Duration::from_secs(5),
        "{ledger:?}"
    );
}

#[test]
fn a_server_that_has_the_whole_upload_and_is_silent_is_waited_for() {
    let mut pair = Pair::new(Config::default(), Config::default(), path(8)).with_apps();
    pair.server.app().answers_late = true;
    pair.server.app().pace = Pace::Never;
    pair.run();
    pair.post(4_000_000, 0);
    pair.run_for(Duration::from_secs(10));
    let verdict = verdict(&pair.client, Role::Client, Direction::Sending, pair.now);
    assert_eq!(verdict.cause, Cause::Peer, "{verdict}");
    assert!(verdict.percent > 90.0, "{verdict}");
}

#[test]
fn small_uploads_are_followed_by_no_ping() {
    let mut pair = Pair::new(Config::default(), Config::default(), path(8)).with_apps();
    pair.run();
    for _ in 0..10 {
        pair.post(100_000, 10);
        pair.run();
    }
    assert_eq!(asked(&pair), 0);
    pair.post(48_577, 10);
    pair.run();
    assert_eq!(asked(&pair), 1, "they are more than 1 MiB");
    assert_eq!(pair.client.connection.stream_count(), 0);
}
