//! The state of the time limits, and when to check them next.
//!
//! Nothing here is updated while data flows. One coarse time, `next_check`, says when to check. Between two checks it
//! only moves earlier, so the owner rarely has to reset its timer.

use core::time::Duration;

use crate::time::{ProgressMark, Time};

/// The bytes that count as progress. A window that opens byte by byte is no progress.
pub(super) const LEAST_PROGRESS: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Deadlines {
    next_check: Option<Time>,
    /// How long after a stream was opened the first limit on it could expire.
    stream_wait: Option<Duration>,
    /// When an incomplete frame other than DATA, or an incomplete header block, began to arrive.
    arriving: Option<Time>,
    /// When the connection last had a stream.
    busy: Time,
    /// Since when requests wait and no stream is open, because the peer allows none.
    denied: Option<Time>,
    /// The progress of the bytes that the transport takes.
    taken: ProgressMark,
    /// The bytes of the last write that the transport has not taken.
    unsent: u32,
    /// The transport takes nothing more, and no write is built for it.
    full: bool,
}

impl Deadlines {
    pub(super) fn new(now: Time) -> Self {
        Deadlines {
            next_check: None,
            stream_wait: None,
            arriving: None,
            busy: now,
            denied: None,
            taken: ProgressMark::new(now),
            unsent: 0,
            full: false,
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.next_check
    }

    pub(super) fn set_stream_wait(&mut self, wait: Option<Duration>) {
        self.stream_wait = wait;
    }

    #[inline]
    pub(super) fn stream_wait(&self) -> Option<Duration> {
        self.stream_wait
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_check.is_some_and(|check| check <= now)
    }

    /// Checks at `at` or earlier.
    pub(super) fn check_by(&mut self, at: Time) {
        self.next_check = Some(self.next_check.map_or(at, |check| check.min(at)));
    }

    pub(super) fn set_next_check(&mut self, at: Option<Time>) {
        self.next_check = at;
    }

    /// A frame or header block is complete.
    #[inline]
    pub(super) fn frame_ends(&mut self) {
        self.arriving = None;
    }

    /// A frame or header block is incomplete at the end of a batch. It has to be complete `limit` after the first
    /// such batch.
    pub(super) fn frame_continues(&mut self, limit: Duration, now: Time) {
        if self.arriving.is_none() {
            self.arriving = Some(now);
            self.check_by(now + limit);
        }
    }

    pub(super) fn frame_deadline(&self, limit: Duration) -> Option<Time> {
        Some(self.arriving? + limit)
    }

    #[inline]
    pub(super) fn note_use(&mut self, now: Time) {
        self.busy = now;
    }

    pub(super) fn idle_deadline(&self, limit: Duration) -> Time {
        self.busy + limit
    }

    /// Requests wait and no stream is open. Returns since when.
    pub(super) fn deny(&mut self, now: Time) -> Time {
        *self.denied.get_or_insert(now)
    }

    pub(super) fn allow(&mut self) {
        self.denied = None;
    }

    pub(super) fn denied_deadline(&self, limit: Option<Duration>) -> Option<Time> {
        Some(self.denied? + limit?)
    }

    pub(super) fn hold(&mut self, unsent: u64) {
        // A list is shorter than that.
        self.unsent = u32::try_from(unsent).unwrap_or(u32::MAX);
        self.full = false;
    }

    /// The transport takes nothing more, and no write is built for it.
    pub(super) fn fill(&mut self) {
        self.full = true;
    }

    /// Whether something waits for the transport.
    pub(super) fn waits_for_transport(&self) -> bool {
        self.unsent > 0 || self.full
    }

    pub(super) fn unsent(&self) -> u64 {
        u64::from(self.unsent)
    }

    /// Since when there was no progress in `taken`, the bytes that the transport has taken. That is `now` unless
    /// something `waits`.
    pub(super) fn stuck_since(&mut self, waits: bool, taken: u64, now: Time) -> Time {
        self.taken.waiting_since(waits, taken, LEAST_PROGRESS, now)
    }
}
