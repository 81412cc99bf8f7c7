//! How many requests a connection begins, other frames it takes, or streams it ends, before every other connection of the thread
//! has its turn.
//!
//! What a request costs depends on its handler, and how long the others wait also depends on how many connections do the same.
//! So the time from one such turn to the next is measured: in it every other connection has had one turn.

use std::time::Duration;

use fullbore_proto::Time;

/// The most at once. A response of a small file takes 10 us, so that this is less than a millisecond of them.
pub(super) const MOST: u32 = 64;

/// The least at once.
const LEAST: u32 = 1;

/// A round takes at most about this long, unless there are very many connections that begin requests without end.
const LONG: Duration = Duration::from_micros(250);

/// The rounds of a connection that has more to do than one turn allows.
#[derive(Debug)]
pub(super) struct Rounds {
    at_once: u32,
    /// When the last turn began, if a round began with it.
    begun: Option<Time>,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds {
            at_once: MOST,
            begun: None,
        }
    }
}

impl Rounds {
    /// A turn begins; how much it may do.
    pub(super) fn begin(&mut self, now: Time) -> u32 {
        if let Some(begun) = self.begun.take() {
            let round = now.since(begun);
            if round > LONG {
                self.at_once = (self.at_once / 2).max(LEAST);
            } else if round < LONG / 4 {
                self.at_once = (self.at_once * 2).min(MOST);
            }
        }
        self.at_once
    }

    /// The turn that began at `now` has left something to the next one, or its peer may have more ready.
    pub(super) fn leave(&mut self, now: Time) {
        self.begun = Some(now);
    }

    /// The connection waits for its peer: the time until the next turn is no round.
    pub(super) fn rest(&mut self) {
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What turns may do whose rounds take so many microseconds.
    fn turns(rounds: &[u64]) -> Vec<u32> {
        let (mut state, mut now) = (Rounds::default(), Time::ZERO);
        let mut turns = vec![state.begin(now)];
        for &round in rounds {
            state.leave(now);
            now = now + Duration::from_micros(round);
            turns.push(state.begin(now));
        }
        turns
    }

    #[test]
    fn long_rounds_have_short_turns_and_short_rounds_long_ones() {
        assert_eq!(turns(&[251; 7]), [64, 32, 16, 8, 4, 2, 1, 1]);
        assert_eq!(turns(&[251, 251, 62, 62, 62]), [64, 32, 16, 32, 64, 64]);
        assert_eq!(turns(&[251, 250, 63, 150]), [64, 32, 32, 32, 32]);
    }

    #[test]
    fn a_pause_between_two_reads_is_no_round() {
        let mut rounds = Rounds::default();
        rounds.begin(Time::ZERO);
        let later = Time::ZERO + Duration::from_secs(1);
        assert_eq!(rounds.begin(later), MOST);
        rounds.leave(later);
        rounds.rest();
        assert_eq!(rounds.begin(later + Duration::from_secs(1)), MOST);
    }
}
