//! Law 5: a reader that stalls costs memory, never another stream's credit.

use std::time::Duration;

use fullbore_proto::{Config, MemoryBudget, Scheduling, Stall, WindowSize};

use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::{config, fixed};

/// How many octets 99 streams receive in three seconds over a gigabit of 100 ms, when a hundredth is there whose reader
/// never reads, and when there is none.
fn received_beside(client: &dyn Fn() -> Config, scheduling: Scheduling, stalled: bool) -> u64 {
    let server = config(|config| config.set_scheduling(scheduling));
    let path = PathConfig {
        nanos_per_byte: 8,
        ..PathConfig::delay_millis(50)
    };
    let mut pair = Pair::new(client(), server, path).with_apps();
    pair.client.app().compares = false;
    pair.run();
    if stalled {
        // It has all of the path until its window is full.
        let stream = pair.get(1 << 50);
        pair.client.app().stalled.push(stream);
        pair.run_for(Duration::from_secs(1));
    }
    for _ in 0..99 {
        pair.get(1 << 50);
    }
    pair.run_for(Duration::from_secs(1));
    let before = pair.client.app().received;
    pair.run_for(Duration::from_secs(3));
    pair.client.app().received - before
}

/// The part of their speed that 99 streams keep.
#[track_caller]
fn share_kept(client: &dyn Fn() -> Config) -> f64 {
    let shares = [Scheduling::InOrder, Scheduling::Fair].map(|scheduling| {
        let with = received_beside(client, scheduling, true);
        let without = received_beside(client, scheduling, false);
        with as f64 / without as f64
    });
    shares[0].min(shares[1])
}

fn windows(stream: u32, connection: u32) -> impl Fn() -> Config {
    move || {
        fixed(|config| {
            config.set_stream_window(WindowSize::from_mebibytes(stream));
            config.set_connection_window(WindowSize::from_mebibytes(connection));
        })
    }
}

#[test]
fn at_the_defaults_the_other_streams_keep_their_speed() {
    let share = share_kept(&|| config(|_| ()));
    assert!(share >= 0.9, "{share}");
}

#[test]
fn with_a_small_budget_the_other_streams_keep_their_speed() {
    for mebibytes in [256, 64, 24] {
        let budget = || MemoryBudget::new(mebibytes << 20);
        let share = share_kept(&|| config(|config| config.set_budget(Some(budget()))));
        assert!(share >= 0.9, "{share} with {mebibytes} MiB");
    }
}

#[test]
fn where_the_budget_sets_the_speed_they_lose_what_the_stalled_one_holds_and_no_more() {
    // A gigabit over 100 ms asks for 12.5 MB. Windows take seven eighths of these 8 MiB, and the stream that stalls holds
    // what streams opened with: three quarters of an eighth.
    let budget = || MemoryBudget::new(8 << 20);
    let share = share_kept(&|| config(|config| config.set_budget(Some(budget()))));
    let held = 0.75 / 7.0;
    assert!(share >= 1.0 - held - 0.01, "{share}");
}

#[test]
fn with_fixed_windows_the_other_streams_keep_their_speed_if_what_is_left_is_enough_for_the_path() {
    let share = share_kept(&windows(32, 64));
    assert!(share >= 0.9, "{share}");
}

#[test]
fn with_fixed_windows_the_other_streams_have_what_is_left_of_the_connection_s() {
    // 4 MiB a round trip of 100 ms at most, whatever the path carries, since credit that is not there cannot be given
    // (RFC 9113 section 5.2.1): 126 MB in three seconds.
    for scheduling in [Scheduling::InOrder, Scheduling::Fair] {
        let received = received_beside(&windows(32, 36), scheduling, true);
        assert!((60_000_000..=126_000_000).contains(&received), "{received}");
    }
}

#[test]
fn with_a_fixed_window_as_large_as_the_connection_s_a_stalled_reader_stops_all_and_is_named() {
    let mut pair = Pair::new(windows(4, 4)(), config(|_| ()), PathConfig::delay_millis(50)).with_apps();
    pair.run();
    let stream = pair.get(1 << 50);
    pair.client.app().stalled.push(stream);
    pair.run_for(Duration::from_secs(1));
    let other = pair.get(1_000);
    pair.run_for(Duration::from_secs(9));
    assert_eq!(pair.client.app().talk(other).received, 0);
    let ledger = pair.client.connection.receiving_ledger(pair.now);
    assert!(
        ledger.spent(Stall::Application) > Duration::from_secs(8),
        "{ledger:?}"
    );
    // Once it reads, all goes on.
    let now = pair.now;
    pair.client.app().stalled.clear();
    let app = pair.client.app.as_mut().unwrap();
    app.catch_up(&mut pair.client.connection, now);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.app().talk(other).received, 1_000);
}
