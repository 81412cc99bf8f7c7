//! One budget over many connections (law 5): whatever they and their readers do, nothing passes it, and all of it comes
//! back.

use std::time::Duration;

use fullbore_proto::{ErrorCode, MemoryBudget};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::random::scenario::{Play, Scenario, scenarios, spread};
use crate::support::app::Pace;
use crate::support::config;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;

/// How long connections live side by side, and in what slices each has its turn.
const TOGETHER: Duration = Duration::from_millis(400);
const SLICE: Duration = Duration::from_millis(5);

/// Budgets from one that no connection can lease from to one that is enough for all.
fn budgets() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0u64..65_535,
        2 => 65_535u64..300_000,
        2 => spread(1 << 24).prop_map(u64::from),
    ]
}

/// Scenarios that share a budget, and when each connection breaks, if it does.
fn crowds() -> impl Strategy<Value = (u64, Vec<(Scenario, Option<Duration>)>)> {
    let breaks = option::weighted(0.2, (0u64..400).prop_map(Duration::from_millis));
    (budgets(), vec((scenarios(), breaks), 2..6))
}

/// Plays all of them side by side, and then each to its end.
fn share(limit: u64, crowd: Vec<(Scenario, Option<Duration>)>) {
    let budget = MemoryBudget::new(limit);
    let mut plays: Vec<_> = crowd
        .into_iter()
        .map(|(mut scenario, breaks)| {
            scenario.share(&budget);
            (Some(Play::new(scenario)), breaks)
        })
        .collect();
    let mut now = Duration::ZERO;
    while now < TOGETHER {
        now += SLICE;
        for (play, breaks) in &mut plays {
            if breaks.is_some_and(|at| at <= now) {
                *play = None;
            }
            if let Some(play) = play {
                play.run_until(now);
            }
        }
    }
    let mut whole: Vec<_> = plays.into_iter().filter_map(|(play, _)| play).collect();
    for play in &mut whole {
        play.run();
        play.assert_all_arrived();
        play.pair.assert_nothing_leaked();
    }
    drop(whole);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_budget_below_a_first_window_refuses_bodies_and_nothing_else() {
    let budget = MemoryBudget::new(65_534);
    let server = config(|config| config.set_budget(Some(budget.clone())));
    let mut pair = Pair::new(config(|_| ()), server, PathConfig::delay_millis(10)).with_apps();
    pair.client.app().pace = Pace::Eager;
    let uploads: Vec<_> = (0..20).map(|_| pair.post(100_000, 10)).collect();
    let downloads: Vec<_> = (0..20).map(|_| pair.get(1 << 20)).collect();
    pair.run();
    for stream in uploads {
        let reset = pair.client.app().talk(stream).reset.clone();
        let reset = reset.expect("a body was taken without memory for it");
        assert_eq!(reset.code, ErrorCode::REFUSED_STREAM);
    }
    for stream in downloads {
        let talk = pair.client.app().talk(stream);
        assert!(talk.ended && talk.received == 1 << 20, "{talk:?}");
    }
    pair.assert_nothing_leaked();
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_connection_that_got_nothing_takes_bodies_once_another_has_gone() {
    let budget = MemoryBudget::new(100_000);
    let of_budget = || config(|config| config.set_budget(Some(budget.clone())));
    let pair = |server| Pair::new(config(|_| ()), server, PathConfig::delay_millis(10)).with_apps();
    let mut first = pair(of_budget());
    let mut second = pair(of_budget());
    // An idle connection holds nothing; one whose upload goes on holds what all connections begin with.
    assert_eq!(first.server.connection.leased(), 0);
    first.server.app().pace = Pace::Never;
    first.post(1 << 20, 0);
    first.run_for(Duration::from_secs(1));
    assert_eq!(first.server.connection.leased(), 65_535);
    assert_eq!(second.server.connection.leased(), 0);
    let refused = second.post(50_000, 0);
    second.run();
    assert!(second.client.app().talk(refused).reset.is_some());
    drop(first);
    let taken = second.post(50_000, 0);
    second.run();
    let talk = second.server.app().talk(taken);
    assert!(talk.ended && talk.received == 50_000, "{talk:?}");
    second.assert_nothing_leaked();
    drop(second);
    assert_eq!(budget.leased(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_crowd_of_connections_passes_its_budget_and_all_of_it_comes_back((limit, crowd) in crowds()) {
        share(limit, crowd);
    }
}
