//! Which streams have something to send: those that have their turn by the schedule, those whose next frame is held back, and
//! those that lack only END_STREAM or trailers.

use std::collections::BTreeSet;

use crate::id::Key;
use crate::priority::Priority;
use crate::schedule::{Schedule, Scheduling};
use crate::stream::{Stream, StreamState};
use crate::time::Time;

/// The streams that have something to send.
#[derive(Debug)]
pub(super) struct Sending {
    schedule: Schedule,
    /// Streams that lack only END_STREAM or trailers, which need no credit.
    ends: Vec<Key>,
    /// Streams whose next frame is held back because their window would cut it tiny (law 6), by since when.
    held: BTreeSet<(Time, Key)>,
    /// How many streams have data that waits for their own windows.
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

    /// Whether no stream has data that its own window allows.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.schedule.is_empty()
    }

    /// The stream whose frame is next.
    #[inline]
    pub(super) fn first(&self) -> Option<Key> {
        self.schedule.peek()
    }

    /// Takes the first stream out of the schedule.
    pub(super) fn skip(&mut self) {
        self.schedule.served(false);
    }

    /// How many entries of the schedule were moved for others.
    #[inline]
    pub(super) fn moved(&self) -> u64 {
        self.schedule.moved()
    }

    /// Whether data waits for windows of streams.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked > 0 || !self.held.is_empty()
    }

    #[inline]
    pub(super) fn has_ends(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The streams that lack only END_STREAM or trailers. A stream that was closed meanwhile may be among them.
    pub(super) fn take_ends(&mut self) -> Vec<Key> {
        core::mem::take(&mut self.ends)
    }

    /// Puts a stream where it belongs after its queue, its window or its state changed.
    pub(super) fn reschedule(&mut self, key: Key, stream: &mut Stream) {
        if stream.state == StreamState::Waiting || stream.state.is_closed() {
            return;
        }
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
            // More credit or data has come: whether the frame is tiny is judged again, but its time goes on.
            self.held.remove(&(since, key));
        }
        if stream.only_end_is_missing() {
            self.ends.push(key);
        }
    }

    /// A stream is scheduled by another priority from now on.
    pub(super) fn set_priority(&mut self, key: Key, stream: &mut Stream, priority: Priority) {
        let old = core::mem::replace(&mut stream.priority, priority);
        if let Some(turn) = stream.send.scheduled {
            self.schedule.remove(turn, old);
            stream.send.scheduled = Some(self.schedule.insert(key, priority));
        }
    }

    /// The frame of the first stream is held back.
    pub(super) fn hold(&mut self, key: Key, stream: &mut Stream, since: Time) {
        stream.send.scheduled = self.schedule.served(false);
        self.held.insert((since, key));
    }

    /// Since when the first of the frames has been held back.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.held.first().map(|&(since, _)| since)
    }

    /// The first stream whose frame is held back.
    pub(super) fn pop_held(&mut self) -> Option<Key> {
        self.held.pop_first().map(|(_, key)| key)
    }

    /// A frame of the first stream has left. Whether the stream has more that its window allows.
    #[inline]
    pub(super) fn served(&mut self, stream: &mut Stream) -> bool {
        let half = &mut stream.send;
        let ready = !half.queue.is_empty() && half.credit.usable() > 0;
        half.scheduled = self.schedule.served(ready);
        half.window_blocked = !ready && !half.queue.is_empty();
        self.blocked += usize::from(half.window_blocked);
        ready
    }

    /// Takes out a stream that is closed. Whether the schedule has become empty by that.
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

    /// Takes out all streams. What was to end may still be listed: those streams are not found any more.
    pub(super) fn clear(&mut self) {
        self.schedule.clear();
        self.held.clear();
        self.blocked = 0;
    }

    /// Gives back memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.schedule.trim();
        self.ends.shrink_to_fit();
    }
}
