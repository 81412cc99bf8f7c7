//! Windows that begin as they are set, and grow by what a budget allows.

use std::time::Duration;

use fullbore_proto::{Config, Connection, FirstWindows, FrameType, MemoryBudget, Time, WindowSize};

use crate::support::app::Pace;
use crate::support::config;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::Faced;

/// A path of a gigabit.
fn gigabit(round_trip: u64) -> PathConfig {
    PathConfig {
        nanos_per_byte: 8,
        ..PathConfig::delay_millis(round_trip / 2)
    }
}

/// Windows of 1 and 2 MiB at first, and a budget of as many MiB.
fn growing(budget: u64) -> (Config, MemoryBudget) {
    let budget = MemoryBudget::new(budget << 20);
    let config = config(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_first_windows(Some(FirstWindows {
            stream: WindowSize::from_mebibytes(1),
            connection: WindowSize::from_mebibytes(2),
        }));
    });
    (config, budget)
}

/// The value of SETTINGS_INITIAL_WINDOW_SIZE, and the WINDOW_UPDATE frames with their streams.
fn said(faced: &mut Faced) -> (Option<u32>, Vec<(u32, u32)>) {
    let heard = faced.heard();
    let settings = heard
        .iter()
        .filter(|frame| frame.header.frame_type == FrameType::SETTINGS)
        .flat_map(|frame| frame.payload.chunks_exact(6))
        .find(|entry| entry[..2] == [0, 4])
        .map(|entry| u32::from_be_bytes(entry[2..].try_into().unwrap()));
    let updates = heard
        .iter()
        .filter(|frame| frame.header.frame_type == FrameType::WINDOW_UPDATE)
        .map(|frame| (frame.stream(), frame.word(0)));
    (settings, updates.collect())
}

#[test]
fn settings_say_the_first_window_and_updates_what_the_budget_adds() {
    let (config, budget) = growing(1_024);
    let mut faced = Faced::new(Connection::client(config, Time::ZERO));
    assert_eq!(said(&mut faced), (Some(1 << 20), vec![(0, (16 << 20) - 65_535)]));
    assert_eq!(budget.leased(), 14 << 20, "what is set costs nothing");
    // The path is unknown.
    faced.opens_loudly("GET");
    assert_eq!(said(&mut faced).1, [(1, 11 << 20)]);
    drop(faced);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn without_a_budget_to_spend_windows_are_as_they_are_set() {
    let (config, budget) = growing(0);
    let mut faced = Faced::new(Connection::client(config, Time::ZERO));
    assert_eq!(said(&mut faced), (Some(1 << 20), vec![(0, (2 << 20) - 65_535)]));
    faced.opens_loudly("GET");
    // Three quarters of the connection's window.
    assert_eq!(said(&mut faced).1, [(1, 1 << 19)]);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn streams_on_a_short_path_have_the_window_of_settings() {
    let (config, _) = growing(1_024);
    let mut faced = Faced::client(config.clone());
    faced.opens_loudly("GET");
    assert_eq!(
        said(&mut faced).1,
        [],
        "the round trip is known, and takes no time"
    );
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    faced.says(&frames::get(3));
    assert_eq!(said(&mut faced).1, []);
}

#[test]
fn a_server_widens_windows_when_the_reader_has_taken_what_came_first() {
    // Of 65,535 bytes, and a tenth of a second after them.
    for (reads, after, updates) in [
        (false, 0, vec![]),
        (true, 4, vec![(0, (14 << 20) + 65_535), (1, (11 << 20) + 65_535)]),
        (true, 100, vec![]),
    ] {
        let (config, budget) = growing(1_024);
        let mut faced = Faced::silent_server(config);
        faced.says(frames::PREFACE);
        faced.says(&frames::settings(&[]));
        faced.heard();
        faced.now = Time::from_nanos(1_000_000_000);
        faced.says(&[frames::post(1), frames::data(1, 0, &[7; 16_384]).repeat(3)].concat());
        faced.says(&frames::data(1, 0, &[7; 16_383]));
        assert_eq!((said(&mut faced).1, budget.leased()), (vec![], 0));
        faced.now = faced.now + Duration::from_millis(after);
        if reads {
            faced.reads(1);
        }
        assert_eq!(said(&mut faced).1, updates, "{reads} {after}");
    }
}

/// A window of 4 MiB for streams where the connection has 64.
fn set_small() -> Config {
    config(|config| config.set_stream_window(WindowSize::from_mebibytes(4)))
}

#[test]
fn a_stream_window_that_was_set_small_opens_wide_for_a_reader_that_takes_a_quarter_at_once() {
    // Bytes taken, and so long after the first.
    for (bytes, after, update) in [
        // The path is unknown: a gigabit over 100 ms, of which the peer has 3 MiB.
        (1 << 20, 4, Some((1, 16_666_667 - (3 << 20)))),
        ((1 << 20) - 1, 4, None),
        (1 << 20, 400, Some((1, 1 << 20))),
    ] {
        let mut faced = Faced::silent_server(set_small());
        faced.says(frames::PREFACE);
        faced.says(&frames::settings(&[]));
        assert_eq!(said(&mut faced), (Some(4 << 20), vec![(0, (64 << 20) - 65_535)]));
        faced.now = Time::from_nanos(1_000_000_000);
        faced.says(&frames::post(1));
        for _ in 0..bytes / 16_384 {
            faced.says(&frames::data(1, 0, &[7; 16_384]));
        }
        faced.says(&frames::data(1, 0, &vec![7; bytes % 16_384]));
        faced.now = faced.now + Duration::from_millis(after);
        faced.reads(1);
        assert_eq!(said(&mut faced).1, Vec::from_iter(update), "{bytes} {after}");
    }
}

#[test]
fn a_stream_window_opens_no_wider_than_the_largest_one() {
    let mut config = set_small();
    config.set_largest_window(WindowSize::from_mebibytes(8));
    let mut pair = Pair::new(Config::default(), config, gigabit(230)).with_apps();
    let stream = pair.post(64 << 20, 0);
    pair.run_for(Duration::from_secs(1));
    let report = pair.server.connection.stream_report(stream, pair.now).unwrap();
    assert_eq!(report.receive_window, 8 << 20);
}

#[test]
fn a_reader_that_takes_what_buffers_hold_and_stops_holds_the_window_that_was_set() {
    let mut pair = Pair::new(Config::default(), set_small(), gigabit(230)).with_apps();
    let stream = pair.post(1 << 30, 0);
    pair.server.app().pace = Pace::Slow {
        bytes: 900_000,
        every: Duration::from_secs(3_600),
    };
    pair.run_for(Duration::from_secs(10));
    let report = pair.server.connection.stream_report(stream, pair.now).unwrap();
    let promise = pair.server.connection.promise();
    assert_eq!(report.receive_window, 4 << 20);
    assert!(promise.buffered <= 4 << 20, "{promise:?}");
}

#[test]
fn an_upload_into_a_window_that_was_set_small_waits_two_round_trips() {
    let size: u64 = 64 << 20;
    let mut pair = Pair::new(Config::default(), set_small(), gigabit(230)).with_apps();
    pair.post(size, 0);
    pair.run_while(|pair| pair.server.app().received < size);
    let least = Duration::from_nanos(8 * size) + Duration::from_millis(115);
    let took = pair.now.since(Time::ZERO);
    // For SETTINGS, and for the proof that the reader keeps up.
    assert!(
        took >= least && took < least + 2 * Duration::from_millis(230),
        "{took:?} of {least:?}"
    );
}

#[test]
fn a_client_widens_the_windows_of_no_other_streams_while_a_reader_lags() {
    let (config, _) = growing(1_024);
    for (unread, update) in [(2 << 20, Some((3, 11 << 20))), ((2 << 20) + 1, None)] {
        let mut faced = Faced::new(Connection::client(config.clone(), Time::ZERO));
        faced.opens("GET", true);
        faced.says(&frames::settings(&[]));
        faced.says(&frames::headers(1, 4, &frames::response_block("200", &[])));
        for _ in 0..unread / 16_384 {
            faced.says(&frames::data(1, 0, &[7; 16_384]));
        }
        faced.says(&frames::data(1, 0, &vec![7; unread % 16_384]));
        faced.heard();
        faced.opens_loudly("GET");
        assert_eq!(said(&mut faced).1, Vec::from_iter(update), "{unread}");
    }
}

#[test]
fn what_nobody_reads_is_what_was_set_and_16_mib() {
    let (config, budget) = growing(1_024);
    let mut faced = Faced::server(config);
    let streams = (0..40).map(|index| 2 * index + 1);
    faced.says(&streams.clone().flat_map(frames::post).collect::<Vec<u8>>());
    let mut received = 0;
    for stream in streams {
        for _ in 0..64 {
            if faced.connection.promise().outstanding >= 16_384 {
                faced.says(&frames::data(stream, 0, &[7; 16_384]));
                received += 16_384;
            }
        }
    }
    assert_eq!(faced.connection.error(), None);
    assert_eq!((received, budget.leased()), (18 << 20, 16 << 20));
    assert_eq!(faced.connection.promise().outstanding, 0);
}

#[test]
fn the_window_of_a_stream_whose_reader_falls_behind_shrinks_to_what_was_set() {
    let (config, _) = growing(1_024);
    let mut pair = Pair::new(Config::default(), config, gigabit(100)).with_apps();
    let stream = pair.post(1 << 30, 0);
    pair.run_for(Duration::from_secs(2));
    let largest = |pair: &Pair| {
        let report = pair.server.connection.stream_report(stream, pair.now);
        report.unwrap().receive_window
    };
    assert!(largest(&pair) >= 12 << 20, "{}", largest(&pair));
    // A megabyte a second.
    pair.server.app().pace = Pace::Slow {
        bytes: 20_000,
        every: Duration::from_millis(20),
    };
    pair.run_for(Duration::from_secs(120));
    assert_eq!(largest(&pair), 1 << 20);
    assert_eq!(pair.server.connection.error(), None);
}

#[test]
fn a_slow_reader_on_a_long_path_holds_no_more_than_what_was_set() {
    let (config, budget) = growing(1_024);
    let mut pair = Pair::new(Config::default(), config, gigabit(100)).with_apps();
    // Three megabytes a second: less than what was set allows.
    pair.server.app().pace = Pace::Slow {
        bytes: 30_000,
        every: Duration::from_millis(10),
    };
    pair.post(1 << 30, 0);
    pair.run_for(Duration::from_secs(5));
    let promise = pair.server.connection.promise();
    assert!(promise.total() <= 4 << 20, "{promise:?}, {budget:?}");
}

#[test]
fn a_first_upload_over_a_long_path_takes_little_more_than_the_path_does() {
    let size: u64 = 64 << 20;
    let (config, _) = growing(512);
    let mut pair = Pair::new(Config::default(), config, gigabit(100)).with_apps();
    pair.post(size, 0);
    pair.run_while(|pair| pair.server.app().received < size);
    let least = Duration::from_nanos(8 * size) + Duration::from_millis(50);
    let took = pair.now.since(Time::ZERO);
    // It begins with 65,535 bytes, and waits a round trip (RFC 9113 section 6.9.2).
    assert!(
        took >= least && took < least + Duration::from_millis(100),
        "{took:?} of {least:?}"
    );
}

#[test]
fn a_first_download_over_a_long_path_takes_little_more_than_the_path_does() {
    let size: u64 = 64 << 20;
    let (config, _) = growing(512);
    let mut pair = Pair::new(config, Config::default(), gigabit(100)).with_apps();
    pair.get(size);
    pair.run_while(|pair| pair.client.app().received < size);
    // The request, the bytes with their frames, and the response on its way.
    let least = Duration::from_nanos(8 * size) + Duration::from_millis(100);
    let took = pair.now.since(Time::ZERO);
    assert!(
        took >= least && took < least.mul_f64(1.0 / 0.95),
        "{took:?} of {least:?}"
    );
}

#[test]
fn a_scarce_budget_takes_back_what_was_added_and_no_more() {
    let (config, budget) = growing(64);
    let mut faced = Faced::client_with_request(config.clone(), true);
    let window = |faced: &Faced| faced.connection.receive_window_size().bytes();
    assert!(window(&faced) > 2 << 20);
    faced.says(&frames::headers(1, 4, &frames::response_block("200", &[])));
    // Others take the rest.
    let mut hoard = config.clone();
    hoard.set_first_windows(None);
    hoard.set_connection_window(WindowSize::from_mebibytes(64));
    let others: Vec<_> = (0..400)
        .map(|_| Connection::client(hoard.clone(), Time::ZERO))
        .collect();
    assert!(budget.leased() > 0 && !others.is_empty());
    for _ in 0..3_000 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
        faced.reads(1);
    }
    assert!(window(&faced) >= 2 << 20);
    assert!(faced.connection.error().is_none());
}

#[test]
fn a_window_that_is_set_later_costs_the_budget_nothing() {
    let (config, budget) = growing(1_024);
    let mut faced = Faced::client(config);
    let size = WindowSize::from_mebibytes(80);
    faced.connection.grow_receive_window(size).unwrap();
    assert_eq!(faced.connection.receive_window_size(), size);
    assert_eq!(budget.leased(), 0);
    let size = WindowSize::from_mebibytes(1);
    faced.connection.shrink_receive_window(size);
    assert_eq!(faced.connection.receive_window_size(), size);
}

#[test]
fn a_request_precedes_the_update_of_its_wide_window() {
    // The path is unknown.
    let mut faced = Faced::new(Connection::client(growing(1_024).0, Time::ZERO));
    faced.heard();
    faced.opens_loudly("GET");
    let heard = faced.heard();
    let types: Vec<_> = heard.iter().map(|frame| frame.header.frame_type).collect();
    assert_eq!(types, [FrameType::HEADERS, FrameType::WINDOW_UPDATE]);
}

#[test]
fn a_budget_adds_a_quarter_of_its_first_half_to_the_first_window_be_it_one_byte() {
    for (limit, more) in [(6, 0), (7, 1), (16, 2)] {
        let mut config = growing(1).0;
        config.set_budget(Some(MemoryBudget::new(limit)));
        let mut connection = Connection::client(config, Time::ZERO);
        assert_eq!(connection.receive_window_size().bytes(), (2 << 20) + more);
        assert_eq!(connection.leased(), u64::from(more));
        // A window that the owner sets costs the budget nothing, however small it was.
        connection.shrink_receive_window(WindowSize::CLOSED);
        connection
            .grow_receive_window(WindowSize::from_mebibytes(3))
            .unwrap();
        assert_eq!(connection.leased(), 0);
    }
}

#[test]
fn a_stream_needs_no_wider_window_if_the_first_one_fills_a_gigabit() {
    // 1 MiB, with a refill at a quarter, in 6.29 ms.
    for (nanos, update) in [(6_291_455, None), (6_291_456, Some((1, 11 << 20)))] {
        let mut faced = Faced::silent_client(growing(1_024).0);
        // The acknowledgement of SETTINGS is the first sample.
        faced.now = faced.now + Duration::from_nanos(nanos);
        let mut faced = faced.greeted();
        let measured = faced.connection.round_trip().minimum();
        assert_eq!(measured, Some(Duration::from_nanos(nanos)));
        faced.opens_loudly("GET");
        assert_eq!(said(&mut faced).1, Vec::from_iter(update), "{nanos}");
        let largest = faced.connection.report(faced.now).largest_stream_receive_window;
        assert_eq!(largest, (1 << 20) + update.map_or(0, |(_, more)| more));
    }
}
