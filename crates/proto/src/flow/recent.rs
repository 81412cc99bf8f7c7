//! The latest refills of a receive window, from which follows what the peer knew of it.

use core::time::Duration;
use std::collections::VecDeque;

use crate::time::Time;

/// A round trip. When all credit from before it is used up, nothing more arrives until it is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) since: Time,
    /// What was advertised before it.
    pub(super) until: u64,
}

/// The latest refills. DATA that a refill allows arrives a round trip later.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// The latest refills, oldest first: when each was sent, and what was advertised before it.
    before: VecDeque<(Time, u64)>,
}

/// The refills that are remembered. A round trip has four or five of a quarter of the window each, or 32 of a window that
/// limits the path. A reader that takes the rest in small parts adds as many.
const MOST_RECENT: usize = 64;

/// Refills within this fraction of a round trip count as one, at the time of the first.
const MERGED_DIVISOR: u32 = 32;

impl Recent {
    pub(super) fn push(&mut self, now: Time, advertised: u64, round_trip: Duration) {
        let merges = |&(at, _): &(Time, u64)| now.since(at) < round_trip / MERGED_DIVISOR;
        if self.before.back().is_some_and(merges) {
            return;
        }
        if self.before.len() == MOST_RECENT {
            self.before.pop_front();
        }
        self.before.push_back((now, advertised));
    }

    /// The refills that the peer did not know at `since`, oldest first: when each was sent, and what was advertised
    /// before it.
    pub(super) fn unknown(
        &self,
        since: Time,
        round_trip: Duration,
    ) -> impl Iterator<Item = (Time, u64)> + '_ {
        let known = self.before.partition_point(|&(at, _)| at + round_trip <= since);
        self.before.range(known..).copied()
    }
}
