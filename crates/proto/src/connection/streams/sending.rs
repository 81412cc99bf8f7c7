//! The streams that have something to send: scheduled streams, streams with a held-back frame, and streams that have
//! only END_STREAM or trailers left.

use std::collections::BTreeSet;

use crate::id::Key;
use crate::priority::Priority;
use crate::schedule::{Schedule, Scheduling};
use crate::stream::Stream;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Sending {
    schedule: Schedule,
    /// Streams that have only END_STREAM or trailers left, which need no credit.
    ends: Vec<Key>,
    /// Streams whose next frame is held back because their window would make it tiny (law 6), by the time when that
    /// began.
    held: BTreeSet<(Time, Key)>,
    /// The number of streams that have data and no window.
    blocked: usize,
}

impl Sending {
    pub(super) fn new(scheduling: Scheduling) -> Self {
        Sending {
            schedule: Schedule::new(scheduling),
            ends: Vec::new(),
            held: BTreeSet::new(),
            blocked: 0,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self) {
        self.schedule.prefetch();
    }

    /// Whether no stream has both data and window.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.schedule.is_empty()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        self.schedule.peek()
    }

    pub(super) fn skip(&mut self) {
        self.schedule.served(false);
    }

    #[inline]
    pub(super) fn moved(&self) -> u64 {
        self.schedule.moved()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked > 0 || !self.held.is_empty()
    }

    #[inline]
    pub(super) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    pub(super) fn end(&self, index: usize) -> Option<Key> {
        self.ends.get(index).copied()
    }

    pub(super) fn drop_ends(&mut self, count: usize) {
        self.ends.drain(..count);
    }

    /// Updates the lists after the queue, the window or the state of an open stream changed.
    pub(super) fn reschedule(&mut self, key: Key, stream: &mut Stream) {
        let half = &mut stream.send;
        let ready = !half.queue.is_empty() && half.credit.usable() > 0;
        let blocked = !half.queue.is_empty() && !ready;
        if blocked != half.window_blocked {
            half.window_blocked = blocked;
            match blocked {
                true => self.blocked += 1,
                false => self.blocked -= 1,
            }
        }
        match half.scheduled {
            None if ready => half.scheduled = Some(self.schedule.insert(key, stream.priority)),
            Some(turn) if !ready => {
                half.scheduled = None;
                self.schedule.remove(turn, stream.priority);
            }
            _ => {}
        }
        if let Some(since) = half.held_since.filter(|_| ready) {
            // There is more credit or data: the frame is checked again, but its waiting time continues.
            self.held.remove(&(since, key));
        }
        if stream.only_end_is_missing() {
            self.ends.push(key);
        }
    }

    pub(super) fn set_priority(&mut self, key: Key, stream: &mut Stream, priority: Priority) {
        let old = core::mem::replace(&mut stream.priority, priority);
        if let Some(turn) = stream.send.scheduled {
            self.schedule.remove(turn, old);
            stream.send.scheduled = Some(self.schedule.insert(key, priority));
        }
    }

    pub(super) fn hold(&mut self, key: Key, stream: &mut Stream, since: Time) {
        stream.send.scheduled = self.schedule.served(false);
        self.held.insert((since, key));
    }

    pub(super) fn held_since(&self) -> Option<Time> {
        self.held.first().map(|&(since, _)| since)
    }

    pub(super) fn pop_held(&mut self) -> Option<Key> {
        self.held.pop_first().map(|(_, key)| key)
    }

    /// A frame of the first stream has left. Returns whether the stream still has both data and window.
    #[inline]
    pub(super) fn served(&mut self, stream: &mut Stream) -> bool {
        let half = &mut stream.send;
        let ready = !half.queue.is_empty() && half.credit.usable() > 0;
        half.scheduled = self.schedule.served(ready);
        half.window_blocked = !ready && !half.queue.is_empty();
        self.blocked += usize::from(half.window_blocked);
        ready
    }

    /// Removes a closed stream. Returns whether the schedule became empty.
    pub(super) fn remove(&mut self, key: Key, stream: &mut Stream) -> bool {
        let mut emptied = false;
        if let Some(turn) = stream.send.scheduled.take() {
            self.schedule.remove(turn, stream.priority);
            emptied = self.schedule.is_empty();
        }
        if let Some(since) = stream.send.held_since.take() {
            self.held.remove(&(since, key));
        }
        self.blocked -= usize::from(core::mem::take(&mut stream.send.window_blocked));
        emptied
    }

    /// Removes all streams. `ends` may still list some; a lookup of these fails.
    pub(super) fn clear(&mut self) {
        self.schedule.clear();
        self.held.clear();
        self.blocked = 0;
    }

    pub(super) fn trim(&mut self) {
        self.schedule.trim();
        self.ends.shrink_to_fit();
    }
}
