//! Which stream sends next, by the urgency and incremental parameters of RFC 9218.
//!
//! The schedule holds the streams that have both DATA and stream window.

mod ranked;

use core::num::NonZeroU64;

use crate::id::Key;
use crate::invariant::infallible;
use crate::prefetch::prefetch;
use crate::priority::Priority;

pub(crate) use self::ranked::Ranked;

/// How streams of one urgency that are not incremental share the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// One after the other, in the order of their identifiers, as RFC 9218 section 10 recommends: each body is
    /// complete as early as possible.
    #[default]
    InOrder,
    /// One frame each in turn, as if all were incremental: no stream waits for the end of another.
    Fair,
}

/// Urgencies of RFC 9218: 0 to 7, most urgent first.
const URGENCIES: usize = 8;

/// The position of a stream in the schedule. The stream keeps it, so that it is found without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn(NonZeroU64);

#[derive(Debug, Default)]
struct Level {
    /// Ordered by identifier. A new stream is the last, and the first one leaves first.
    in_order: Ranked,
    /// Ordered by turn. A stream that has had its turn is the last.
    in_turn: Ranked,
    /// Whether it is the turn of `in_turn`, when there are both kinds.
    turn: bool,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.in_turn.is_empty() && self.in_order.is_empty()
    }
}

/// The streams that may send DATA.
#[derive(Debug)]
pub(crate) struct Schedule {
    scheduling: Scheduling,
    /// Empty before the first stream and after [`Self::trim`].
    levels: Vec<Level>,
    /// A bit for each level that holds a stream.
    occupied: u8,
    /// The number of the next turn.
    next_turn: NonZeroU64,
    /// How many entries were moved for others that were inserted or removed.
    moved: u64,
}

impl Schedule {
    pub(crate) fn new(scheduling: Scheduling) -> Self {
        Schedule {
            scheduling,
            levels: Vec::new(),
            occupied: 0,
            next_turn: NonZeroU64::MIN,
            moved: 0,
        }
    }

    /// Has the processor fetch the level of most streams.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(level) = self.levels.get(usize::from(Priority::DEFAULT_URGENCY)) {
            prefetch(level);
            level.in_order.prefetch();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    pub(crate) fn clear(&mut self) {
        self.levels = Vec::new();
        self.occupied = 0;
    }

    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            self.levels = Vec::new();
        }
    }

    /// Inserts a stream that is not in the schedule. The caller keeps the turn.
    pub(crate) fn insert(&mut self, key: Key, priority: Priority) -> Turn {
        let (index, in_turn) = self.place(priority);
        if self.levels.is_empty() {
            self.levels.resize_with(URGENCIES, Level::default);
        }
        let turn = match in_turn {
            true => self.take_turn(),
            false => Turn(NonZeroU64::from(key.id())),
        };
        let level = &mut self.levels[index];
        let streams = match in_turn {
            true => &mut level.in_turn,
            false => &mut level.in_order,
        };
        self.moved += streams.insert(turn.0.get(), key) as u64;
        self.occupied |= 1 << index;
        turn
    }

    pub(crate) fn remove(&mut self, turn: Turn, priority: Priority) {
        let (index, in_turn) = self.place(priority);
        let Some(level) = infallible(self.levels.get_mut(index), "a stream with a turn has a level") else {
            return;
        };
        let streams = match in_turn {
            true => &mut level.in_turn,
            false => &mut level.in_order,
        };
        self.moved += streams.remove(turn.0.get()) as u64;
        if level.is_empty() {
            self.occupied &= !(1 << index);
        }
    }

    /// The stream whose frame is next.
    #[inline]
    pub(crate) fn peek(&self) -> Option<Key> {
        let level = self.levels.get(self.occupied.trailing_zeros() as usize)?;
        let in_order = level.in_order.first();
        if level.in_turn.is_empty() {
            return in_order;
        }
        let in_turn = level.in_turn.first();
        match (in_order, in_turn) {
            (Some(_), Some(key)) if level.turn => Some(key),
            (Some(key), _) => Some(key),
            (None, key) => key,
        }
    }

    /// A frame of the stream that [`Self::peek`] returned was built, and other streams of its level follow. The
    /// stream stays only if it is `ready` for another frame; then this returns its new turn.
    #[inline]
    pub(crate) fn served(&mut self, ready: bool) -> Option<Turn> {
        let index = self.occupied.trailing_zeros() as usize;
        let level = self.levels.get_mut(index)?;
        if ready && level.in_turn.is_empty() {
            // The usual case: the first stays the first.
            level.turn = !level.turn;
            return level.in_order.first().map(|key| Turn(NonZeroU64::from(key.id())));
        }
        let mut stays = None;
        if level.in_order.is_empty() || (level.turn && !level.in_turn.is_empty()) {
            if let Some(key) = level.in_turn.pop_first() {
                if ready {
                    let turn = Turn(self.next_turn);
                    self.next_turn = self.next_turn.saturating_add(1);
                    level.in_turn.insert(turn.0.get(), key);
                    stays = Some(turn);
                }
            }
        } else if ready {
            stays = level.in_order.first().map(|key| Turn(NonZeroU64::from(key.id())));
        } else {
            level.in_order.pop_first();
        }
        level.turn = !level.turn;
        if level.is_empty() {
            self.occupied &= !(1 << index);
        }
        stays
    }

    fn take_turn(&mut self) -> Turn {
        let turn = Turn(self.next_turn);
        // No connection sends 2^64 frames.
        self.next_turn = self.next_turn.saturating_add(1);
        turn
    }

    fn place(&self, priority: Priority) -> (usize, bool) {
        let index = usize::from(priority.urgency()).min(URGENCIES - 1);
        let in_turn = priority.incremental() || self.scheduling == Scheduling::Fair;
        (index, in_turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::keys;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority::new(urgency, incremental).unwrap()
    }

    fn serve(schedule: &mut Schedule, frames: usize) -> Vec<u32> {
        (0..frames)
            .map(|_| {
                let key = schedule.peek().unwrap();
                schedule.served(true);
                key.id().value()
            })
            .collect()
    }

    #[test]
    fn streams_that_are_not_incremental_leave_in_the_order_of_their_identifiers() {
        let keys = keys(3);
        let mut schedule = Schedule::new(Scheduling::InOrder);
        let turns: Vec<Turn> = keys
            .iter()
            .rev()
            .map(|&key| schedule.insert(key, Priority::default()))
            .collect();
        assert_eq!(serve(&mut schedule, 3), [1, 1, 1]);
        schedule.remove(turns[2], Priority::default());
        assert_eq!(serve(&mut schedule, 2), [3, 3]);
        schedule.served(false);
        let turn = schedule.insert(keys[1], Priority::default());
        schedule.insert(keys[0], Priority::default());
        schedule.remove(turn, Priority::default());
        assert_eq!(serve(&mut schedule, 1), [1]);
        schedule.served(false);
        assert_eq!(serve(&mut schedule, 1), [5]);
    }

    #[test]
    fn incremental_streams_take_turns() {
        let keys = keys(3);
        let mut schedule = Schedule::new(Scheduling::InOrder);
        for &key in &keys {
            schedule.insert(key, priority(3, true));
        }
        assert_eq!(serve(&mut schedule, 5), [1, 3, 5, 1, 3]);
    }

    #[test]
    fn fair_scheduling_gives_everyone_turns() {
        let keys = keys(2);
        let mut schedule = Schedule::new(Scheduling::Fair);
        for &key in &keys {
            schedule.insert(key, Priority::default());
        }
        assert_eq!(serve(&mut schedule, 4), [1, 3, 1, 3]);
    }

    #[test]
    fn the_more_urgent_go_first_and_mixed_kinds_alternate() {
        let keys = keys(4);
        let mut schedule = Schedule::new(Scheduling::InOrder);
        let least = schedule.insert(keys[0], priority(7, false));
        for key in [keys[1], keys[2]] {
            schedule.insert(key, priority(0, true));
        }
        let first = schedule.insert(keys[3], priority(0, false));
        assert_eq!(serve(&mut schedule, 6), [7, 3, 7, 5, 7, 3]);
        schedule.remove(first, priority(0, false));
        for _ in 0..2 {
            assert!(schedule.served(false).is_none());
        }
        assert_eq!(serve(&mut schedule, 1), [1]);
        schedule.remove(least, priority(7, false));
        assert!(schedule.is_empty() && schedule.peek().is_none());
    }

    #[test]
    fn a_kind_that_comes_in_takes_every_other_frame_counted_from_the_first() {
        for (before, expected) in [(0, [1, 3, 1]), (1, [3, 1, 3]), (2, [1, 3, 1])] {
            let keys = keys(2);
            let mut schedule = Schedule::new(Scheduling::InOrder);
            schedule.insert(keys[0], priority(3, false));
            serve(&mut schedule, before);
            schedule.insert(keys[1], priority(3, true));
            assert_eq!(serve(&mut schedule, 3), expected, "behind {before}");
        }
    }

    #[test]
    fn a_stream_that_had_its_turn_is_taken_out_by_its_new_one() {
        let keys = keys(3);
        let mut schedule = Schedule::new(Scheduling::Fair);
        for &key in &keys {
            schedule.insert(key, Priority::default());
        }
        let turn = schedule.served(true).unwrap();
        assert_eq!(serve(&mut schedule, 1), [3]);
        schedule.remove(turn, Priority::default());
        assert_eq!(serve(&mut schedule, 4), [5, 3, 5, 3]);
    }
}
