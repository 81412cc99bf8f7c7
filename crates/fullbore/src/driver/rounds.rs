//! How many requests a connection begins, other frames it takes, or streams it ends, before every other connection of the thread
//! has its turn.
//!
//! What a request costs depends on its handler, and how long the others wait also depends on how many connections do the same.
//! So the time from one such turn to the next is measured: in it every other connection has had one turn. Each turn also has a
//! cost of its own: the runtime polls the sockets, and the responses so far leave in a short write. So turns are longer while no
//! other connection has any.

use std::time::Duration;

use fullbore_proto::Time;

use crate::turns::Taken;

/// The most at once. A response of a small file takes 10 us, so that this is less than a millisecond of them.
pub(super) const MOST: u32 = 64;

/// The least at once.
const LEAST: u32 = 1;

/// A round takes at most about this long, unless there are very many connections that begin requests without end.
const LONG: Duration = Duration::from_micros(250);

/// The same while no other connection of the thread has turns. The first request of another one waits about that long. With
/// [`LONG`], a proxy spends 1.6 times as much processor time on each of 100 requests at once.
const LONG_ALONE: Duration = Duration::from_millis(1);

/// How long after its last turn another connection still counts: a client that sends a request each second finds short rounds.
const LATELY: Duration = Duration::from_secs(2);

/// The rounds of a connection that has more to do than one turn allows.
#[derive(Debug)]
pub(super) struct Rounds {
    at_once: u32,
    /// When the last turn began, if a round began with it.
    begun: Option<Time>,
    /// The turns of this connection and of others.
    taken: Taken,
    /// What [`Taken::by_others`] was when the last turn began.
    by_others: u32,
    /// When another connection was last seen to have had a turn between two of this one.
    shared: Option<Time>,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds {
            at_once: MOST,
            begun: None,
            taken: Taken::default(),
            by_others: 0,
            shared: None,
        }
    }
}

impl Rounds {
    /// The connection is polled, and may begin requests.
    pub(super) fn count(&mut self) {
        self.taken.count();
    }

    /// A turn begins; how much it may do.
    pub(super) fn begin(&mut self, now: Time) -> u32 {
        if let Some(begun) = self.begun.take() {
            if self.taken.by_others() != self.by_others {
                self.shared = Some(now);
            }
            // A client's connection is not counted, and its rounds are always short.
            let is_shared = !self.taken.any() || self.shared.is_some_and(|at| now.since(at) < LATELY);
            let long = if is_shared { LONG } else { LONG_ALONE };
            let round = now.since(begun);
            if round > long {
                self.at_once = (self.at_once / 2).max(LEAST);
            } else if round < long / 4 {
                self.at_once = (self.at_once * 2).min(MOST);
            }
        }
        self.at_once
    }

    /// The turn that began at `now` has left something to the next one, or its peer may have more ready.
    pub(super) fn leave(&mut self, now: Time) {
        self.begun = Some(now);
        self.by_others = self.taken.by_others();
    }

    /// The connection waits for its peer: the time until the next turn is no round.
    pub(super) fn rest(&mut self) {
        self.begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What turns may do whose rounds take so many microseconds, and in which another connection has a turn or none.
    fn turns(rounds: &[(u64, bool)]) -> Vec<u32> {
        let (mut state, mut now) = (Rounds::default(), Time::ZERO);
        let mut other = Taken::default();
        let mut turns = vec![state.begin(now)];
        for &(round, is_shared) in rounds {
            state.leave(now);
            if is_shared {
                other.count();
            }
            state.count();
            now = now + Duration::from_micros(round);
            turns.push(state.begin(now));
        }
        turns
    }

    fn shared(rounds: &[u64]) -> Vec<u32> {
        turns(&rounds.iter().map(|&round| (round, true)).collect::<Vec<_>>())
    }

    fn alone(rounds: &[u64]) -> Vec<u32> {
        turns(&rounds.iter().map(|&round| (round, false)).collect::<Vec<_>>())
    }

    #[test]
    fn long_rounds_have_short_turns_and_short_rounds_long_ones() {
        assert_eq!(shared(&[251; 7]), [64, 32, 16, 8, 4, 2, 1, 1]);
        assert_eq!(shared(&[251, 251, 62, 62, 62]), [64, 32, 16, 32, 64, 64]);
        assert_eq!(shared(&[251, 250, 63, 150]), [64, 32, 32, 32, 32]);
    }

    #[test]
    fn rounds_are_longer_while_no_other_connection_has_turns() {
        assert_eq!(alone(&[1_000; 3]), [64; 4]);
        assert_eq!(alone(&[1_001; 7]), [64, 32, 16, 8, 4, 2, 1, 1]);
        assert_eq!(alone(&[1_001, 1_001, 250, 249, 249]), [64, 32, 16, 16, 32, 64]);
    }

    #[test]
    fn a_client_has_the_rounds_of_many() {
        let (mut client, later) = (Rounds::default(), Time::ZERO + Duration::from_micros(251));
        client.leave(Time::ZERO);
        assert_eq!(client.begin(later), MOST / 2);
    }

    #[test]
    fn another_connection_that_had_a_turn_lately_counts() {
        let first = [(900, true), (900, false), (900, false)];
        assert_eq!(turns(&first), [64, 32, 16, 8]);
        // The second round ends two seconds after the first.
        assert_eq!(
            turns(&[(251, true), (1_999_999, false), (249, false)]),
            [64, 32, 16, 32]
        );
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
