//! Laws 4 and 5: windows that open wide, follow the path, and stay within a budget that many connections share.

use std::time::Duration;

use fullbore_proto::{Config, Connection, FrameType, MemoryBudget, Time, WindowSize};

use crate::support::app::Pace;
use crate::support::config;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

/// A path of a gigabit.
fn gigabit(round_trip: u64) -> PathConfig {
    PathConfig {
        nanos_per_byte: 8,
        ..PathConfig::delay_millis(round_trip / 2)
    }
}

fn small() -> Config {
    config(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(1));
        config.set_connection_window(WindowSize::from_mebibytes(2));
    })
}

#[test]
fn windows_that_are_too_small_for_the_path_grow_until_the_sender_never_pauses() {
    let mut pair = Pair::new(small(), Config::default(), gigabit(100)).with_apps();
    pair.run();
    let stream = pair.get(1 << 50);
    pair.run_for(Duration::from_secs(4));
    let idle = pair.server.path.idle();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.server.path.idle(), idle, "the sender paused");
    let window = pair.client.connection.stream_receive_window_size(stream).unwrap();
    assert!((16 << 20..=64 << 20).contains(&window.bytes()), "{window:?}");
}

#[test]
fn windows_that_are_large_enough_stay_as_they_are() {
    for (round_trip, client) in [(1, small()), (100, Config::default())] {
        let stream_window = client.stream_window();
        let connection_window = client.connection_window();
        let mut pair = Pair::new(client, Config::default(), gigabit(round_trip)).with_apps();
        pair.run();
        let stream = pair.get(1 << 50);
        pair.run_for(Duration::from_secs(3));
        let connection = &pair.client.connection;
        assert_eq!(connection.stream_receive_window_size(stream), Some(stream_window));
        assert_eq!(connection.receive_window_size(), connection_window);
    }
}

#[test]
fn a_window_whose_reader_is_slow_does_not_grow() {
    let mut pair = Pair::new(small(), Config::default(), gigabit(100)).with_apps();
    // 3 MB/s: two round trips are less than three quarters of the window.
    pair.client.app().pace = Pace::Slow {
        bytes: 30_000,
        every: Duration::from_millis(10),
    };
    pair.run();
    let stream = pair.get(1 << 50);
    pair.run_for(Duration::from_secs(5));
    let window = pair.client.connection.stream_receive_window_size(stream).unwrap();
    assert_eq!(window, WindowSize::from_mebibytes(1));
}

#[test]
fn the_round_trip_is_measured_again_every_ten_seconds_of_a_transfer() {
    // 1 MB/s.
    let path = PathConfig {
        nanos_per_byte: 1_000,
        ..PathConfig::delay_millis(50)
    };
    let mut pair = Pair::new(small(), Config::default(), path).with_apps();
    pair.run();
    pair.get(1 << 50);
    pair.run_for(Duration::from_secs(35));
    let pings = pair.client.tap.of(FrameType::PING).count();
    assert_eq!(pings, 3);
}

#[test]
fn windows_grow_no_further_than_was_said() {
    let mut client = small();
    client.set_largest_window(WindowSize::from_mebibytes(4));
    let mut pair = Pair::new(client, Config::default(), gigabit(200)).with_apps();
    pair.run();
    let stream = pair.get(1 << 50);
    pair.run_for(Duration::from_secs(5));
    let connection = &pair.client.connection;
    assert_eq!(connection.receive_window_size(), WindowSize::from_mebibytes(4));
    // A stream has three quarters of it, so that one that stalls leaves some to others.
    let window = connection.stream_receive_window_size(stream).unwrap();
    assert_eq!(window, WindowSize::from_mebibytes(3));
}

#[test]
fn connections_share_a_budget_and_never_pass_it() {
    let budget = MemoryBudget::new(64 << 20);
    let config = config(|config| config.set_budget(Some(budget.clone())));
    let mut connections = Vec::new();
    let mut promised = 0;
    for _ in 0..2_000 {
        let connection = Connection::server(config.clone(), Time::ZERO);
        assert!(budget.leased() <= budget.limit());
        promised += connection.promise().total();
        connections.push(connection);
    }
    assert!(
        !budget.is_scarce(),
        "idle connections have the first half at most"
    );
    let windows: Vec<_> = connections
        .iter()
        .map(|one| one.receive_window_size().bytes())
        .collect();
    assert!(windows[0] >= 8 << 20, "the first opens wide");
    assert!(
        windows.is_sorted_by(|one, next| one >= next),
        "those that follow have less"
    );
    // Those that could lease nothing have what every connection has.
    let floor = windows.iter().filter(|&&window| window == 65_535).count() as u64;
    assert!(promised <= budget.limit() + floor * 65_535);
    drop(connections);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_connection_that_failed_gives_its_memory_back_at_once() {
    let budget = MemoryBudget::new(64 << 20);
    let config = config(|config| config.set_budget(Some(budget.clone())));
    let mut connection = Connection::server(config, Time::ZERO);
    assert!(budget.leased() > 0);
    connection
        .receive(b"not a preface".as_slice().into(), Time::ZERO)
        .unwrap_err();
    assert_eq!(budget.leased(), 0);
    let _ = connection.grow_receive_window(WindowSize::MAX);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_body_for_which_the_budget_has_no_room_is_refused_and_a_request_without_one_is_not() {
    let budget = MemoryBudget::new(100);
    let server = config(|config| config.set_budget(Some(budget.clone())));
    let mut pair = Pair::connected_with(Config::default(), server).with_apps();
    let upload = pair.post(100_000, 10);
    let download = pair.get(100_000);
    pair.run();
    let app = pair.client.app();
    let reset = app.talk(upload).reset.as_ref().unwrap();
    assert_eq!(reset.code, fullbore_proto::ErrorCode::REFUSED_STREAM);
    assert_eq!(app.talk(download).received, 100_000);
    assert_eq!(budget.leased(), 0);
    pair.assert_nothing_leaked();
}

#[test]
fn idle_connections_however_many_leave_room_for_those_in_use() {
    let budget = MemoryBudget::new(64 << 20);
    let shared = config(|config| config.set_budget(Some(budget.clone())));
    let idle: Vec<_> = (0..2_000)
        .map(|_| Connection::server(shared.clone(), Time::ZERO))
        .collect();
    let leased = budget.leased();
    let mut pair = Pair::connected_with(shared.clone(), shared).with_apps();
    assert_eq!(budget.leased(), leased, "late connections lease nothing yet");
    for _ in 0..3 {
        let upload = pair.post(1 << 20, 1 << 20);
        pair.run();
        assert_eq!(pair.server.app().talk(upload).received, 1 << 20);
        assert_eq!(pair.client.app().talk(upload).received, 1 << 20);
        assert!(budget.leased() <= budget.limit());
    }
    pair.assert_nothing_leaked();
    drop(idle);
    drop(pair);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_connection_at_rest_gives_back_what_it_leased_for_its_streams() {
    let budget = MemoryBudget::new(65_535);
    let server = config(|config| config.set_budget(Some(budget.clone())));
    let mut pair = Pair::connected_with(Config::default(), server.clone()).with_apps();
    assert_eq!(budget.leased(), 0);
    let first = pair.post(200_000, 0);
    pair.run();
    assert_eq!(pair.server.app().talk(first).received, 200_000);
    assert_eq!(budget.leased(), 0);
    // Now another connection may have it.
    let mut other = Pair::connected_with(Config::default(), server).with_apps();
    other.server.app().pace = Pace::Never;
    other.post(200_000, 0);
    other.run();
    assert_eq!(budget.leased(), 65_535);
    let refused = pair.post(200_000, 0);
    pair.run();
    assert!(pair.client.app().talk(refused).reset.is_some());
    drop(other);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn pressure_shrinks_the_windows_of_those_that_came_first() {
    let budget = MemoryBudget::new(32 << 20);
    let client = config(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_stream_window(WindowSize::from_mebibytes(2));
        config.set_connection_window(WindowSize::from_mebibytes(4));
    });
    let mut pair = Pair::new(client.clone(), Config::default(), gigabit(20)).with_apps();
    pair.run();
    pair.get(1 << 50);
    pair.run_for(Duration::from_secs(1));
    let before = pair.client.connection.receive_window_size();
    let mut fixed = client.clone();
    fixed.set_adaptive(false);
    let others: Vec<_> = (0..200)
        .map(|_| Connection::client(fixed.clone(), Time::ZERO))
        .collect();
    assert!(budget.is_scarce());
    pair.run_for(Duration::from_secs(2));
    let after = pair.client.connection.receive_window_size();
    assert!(after < before, "{after:?}, before {before:?}");
    assert!(budget.leased() <= budget.limit());
    drop(others);
    pair.run_for(Duration::from_secs(2));
    assert!(pair.client.app().received > 0);
    let again = pair.client.connection.receive_window_size();
    assert!(again > after, "there is room again");
}

#[test]
fn a_connection_without_a_lease_grows_no_window_for_what_it_drops() {
    let budget = MemoryBudget::new(100_000);
    let mut faced = Faced::server(config(|config| config.set_budget(Some(budget.clone()))));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 16_000]));
    faced.connection.release(id(1));
    assert_eq!(faced.connection.leased(), 0);
    // The peer did not know yet.
    faced.says(&frames::data(1, 0, &[0; 16_384]).repeat(3));
    assert_eq!(faced.connection.leased(), 0);
    assert!(faced.connection.promise().total() <= 65_535);
    assert_eq!(faced.connection.error(), None);
}
