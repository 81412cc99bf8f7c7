//! Whatever two ends do to each other, over whatever path.

use proptest::prelude::*;

use super::scenario::{Play, scenarios};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_every_run_ends_and_all_credit_returns(scenario in scenarios()) {
        let mut play = Play::new(scenario);
        play.run();
        play.assert_all_arrived();
        play.pair.assert_nothing_leaked();
        play.assert_time_is_accounted_for();
        play.assert_budgets_are_whole();
    }
}
