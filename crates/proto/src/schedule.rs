//! Which stream sends next: the urgency and increment of RFC 9218, or plain order and fairness where nobody asked.
//!
//! The schedule holds the streams that have DATA queued and stream window to send it; `connection::send` puts them in,
//! asks for the next one frame by frame, and takes them out. It knows no windows and no frames.

use std::collections::VecDeque;

use crate::priority::Priority;
use crate::stream::Key;

/// How streams of one urgency share the connection when the peer did not ask for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// One after the other in the order of their identifiers, as RFC 9218 section 10 has it for streams that are not
    /// incremental: every body is whole as early as it can be.
    #[default]
    InOrder,
    /// A frame each in turn, whatever the peer said of increments: none waits for another's end.
    Fair,
}

/// Urgencies of RFC 9218: 0 to 7, most urgent first.
const URGENCIES: usize = 8;

#[derive(Debug, Default)]
struct Level {
    /// By their identifiers. A new stream comes behind all others, and the first is the one that leaves, so that a tree would
    /// be slower.
    in_order: VecDeque<Key>,
    in_turn: VecDeque<Key>,
    /// Whose turn it is when both kinds are there.
    turn: bool,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.in_turn.is_empty() && self.in_order.is_empty()
    }

    fn insert_in_order(&mut self, key: Key) {
        let id = key.id();
        if self.in_order.back().is_none_or(|last| last.id() < id) {
            return self.in_order.push_back(key);
        }
        // One that had to wait for its window.
        if let Err(at) = self.in_order.binary_search_by_key(&id, |other| other.id()) {
            self.in_order.insert(at, key);
        }
    }
}

/// The streams that may send DATA.
#[derive(Debug)]
pub(crate) struct Schedule {
    scheduling: Scheduling,
    /// From the first stream until [`Self::trim`]: an idle connection has none.
    levels: Vec<Level>,
    /// A bit for each level that holds a stream.
    occupied: u8,
}

impl Schedule {
    pub(crate) fn new(scheduling: Scheduling) -> Self {
        Schedule {
            scheduling,
            levels: Vec::new(),
            occupied: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Gives back the room for streams while there are none.
    pub(crate) fn trim(&mut self) {
        if self.is_empty() {
            self.levels = Vec::new();
        }
    }

    /// Puts a stream in; the caller knows that it is not in yet.
    pub(crate) fn insert(&mut self, key: Key, priority: Priority) {
        let (index, in_turn) = self.place(priority);
        if self.levels.is_empty() {
            self.levels.resize_with(URGENCIES, Level::default);
        }
        let level = &mut self.levels[index];
        if in_turn {
            level.in_turn.push_back(key);
        } else {
            level.insert_in_order(key);
        }
        self.occupied |= 1 << index;
    }

    /// Takes a stream out, wherever it stands.
    pub(crate) fn remove(&mut self, key: Key, priority: Priority) {
        let (index, in_turn) = self.place(priority);
        let Some(level) = self.levels.get_mut(index) else {
            return;
        };
        if in_turn {
            if let Some(at) = level.in_turn.iter().position(|&other| other == key) {
                level.in_turn.remove(at);
            }
        } else {
            if let Ok(at) = level.in_order.binary_search_by_key(&key.id(), |other| other.id()) {
                level.in_order.remove(at);
            }
        }
        if level.is_empty() {
            self.occupied &= !(1 << index);
        }
    }

    /// The stream whose frame is next; it stays in.
    pub(crate) fn peek(&self) -> Option<Key> {
        let level = self.levels.get(self.occupied.trailing_zeros() as usize)?;
        let in_order = level.in_order.front().copied();
        let in_turn = level.in_turn.front().copied();
        match (in_order, in_turn) {
            (Some(_), Some(key)) if level.turn => Some(key),
            (Some(key), _) => Some(key),
            (None, key) => key,
        }
    }

    /// A frame of the stream that [`Self::peek`] named has left: others of its level have their turn. It stays in only
    /// when it is `ready` for another.
    pub(crate) fn served(&mut self, ready: bool) {
        let index = self.occupied.trailing_zeros() as usize;
        let Some(level) = self.levels.get_mut(index) else {
            return;
        };
        if level.in_order.is_empty() || (level.turn && !level.in_turn.is_empty()) {
            if let Some(key) = level.in_turn.pop_front() {
                if ready {
                    level.in_turn.push_back(key);
                }
            }
        } else if !ready {
            level.in_order.pop_front();
        }
        level.turn = !level.turn;
        if level.is_empty() {
            self.occupied &= !(1 << index);
        }
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
    use crate::flow::{DEFAULT_WINDOW, ReceiveWindow, Refill, SendCredit};
    use crate::stream::{State, Store, Stream, StreamId};
    use crate::time::Time;

    fn keys(count: u32) -> Vec<Key> {
        let mut store = Store::default();
        (0..count)
            .map(|index| {
                let id = StreamId::new(2 * index + 1).unwrap();
                let window = ReceiveWindow::new(1, DEFAULT_WINDOW, Refill::default());
                store.insert(Box::new(Stream::new(
                    id,
                    State::Open,
                    window,
                    SendCredit::new(1),
                    Time::ZERO,
                )))
            })
            .collect()
    }

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
        for &key in keys.iter().rev() {
            schedule.insert(key, Priority::default());
        }
        assert_eq!(serve(&mut schedule, 3), [1, 1, 1]);
        schedule.remove(keys[0], Priority::default());
        assert_eq!(serve(&mut schedule, 2), [3, 3]);
        schedule.served(false);
        schedule.insert(keys[1], Priority::default());
        schedule.insert(keys[0], Priority::default());
        schedule.remove(keys[1], Priority::default());
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
        schedule.insert(keys[0], priority(7, false));
        schedule.insert(keys[1], priority(0, true));
        schedule.insert(keys[2], priority(0, true));
        schedule.insert(keys[3], priority(0, false));
        assert_eq!(serve(&mut schedule, 6), [7, 3, 7, 5, 7, 3]);
        for key in [keys[1], keys[2]] {
            schedule.remove(key, priority(0, true));
        }
        schedule.remove(keys[3], priority(0, false));
        assert_eq!(serve(&mut schedule, 1), [1]);
        schedule.remove(keys[0], priority(7, false));
        assert!(schedule.is_empty() && schedule.peek().is_none());
    }
}
