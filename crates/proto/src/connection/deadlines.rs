//! What the limits on time have to know, and when to look at them next.
//!
//! Nothing here is kept up to date while data flows. One coarse time, `next_check`, says when to look. Between two looks it only
//! moves nearer, so that the owner's timer is seldom set anew.

use core::time::Duration;

use crate::time::{ProgressMark, Time};

/// What counts as progress of what the peer has to take, in bytes: a window opened octet by octet is none.
pub(super) const LEAST_PROGRESS: u64 = 1_024;

/// The state of the limits on time.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// When to look next.
    next_check: Option<Time>,
    /// Since when a frame other than DATA, or a header block, has been arriving.
    arriving: Option<Time>,
    /// When the connection had a stream last.
    busy: Time,
    /// Since when requests wait although no stream is open: the peer allows none.
    denied: Option<Time>,
    /// How many octets the transport had taken when that last was progress.
    taken: ProgressMark,
    /// How many octets of the last write the transport has not taken.
    unsent: u64,
}

impl Deadlines {
    pub(super) fn new(now: Time) -> Self {
        Deadlines {
            next_check: None,
            arriving: None,
            busy: now,
            denied: None,
            taken: ProgressMark::new(now),
            unsent: 0,
        }
    }

    /// When to look next.
    pub(super) fn next(&self) -> Option<Time> {
        self.next_check
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_check.is_some_and(|check| check <= now)
    }

    /// Looks at `at`, or before.
    pub(super) fn check_by(&mut self, at: Time) {
        self.next_check = Some(self.next_check.map_or(at, |check| check.min(at)));
    }

    /// Looks at `at`, and not before.
    pub(super) fn set_next_check(&mut self, at: Option<Time>) {
        self.next_check = at;
    }

    /// A frame or a header block is whole.
    #[inline]
    pub(super) fn frame_ends(&mut self) {
        self.arriving = None;
    }

    /// A frame or a header block is not whole at the end of a batch: it has `limit` from the first such batch on.
    pub(super) fn frame_continues(&mut self, limit: Duration, now: Time) {
        if self.arriving.is_none() {
            self.arriving = Some(now);
            self.check_by(now + limit);
        }
    }

    /// Until when the frame that is arriving has to be whole.
    pub(super) fn frame_deadline(&self, limit: Duration) -> Option<Time> {
        Some(self.arriving? + limit)
    }

    /// The connection has a stream.
    #[inline]
    pub(super) fn note_use(&mut self, now: Time) {
        self.busy = now;
    }

    /// Until when a connection may have no stream.
    pub(super) fn idle_deadline(&self, limit: Duration) -> Time {
        self.busy + limit
    }

    /// Requests wait although no stream is open; since when.
    pub(super) fn deny(&mut self, now: Time) -> Time {
        *self.denied.get_or_insert(now)
    }

    /// The peer allows a stream, or no request waits.
    pub(super) fn allow(&mut self) {
        self.denied = None;
    }

    /// Until when requests may wait although no stream is open.
    pub(super) fn denied_deadline(&self, limit: Option<Duration>) -> Option<Time> {
        Some(self.denied? + limit?)
    }

    /// The transport has so many octets of the last write left to take.
    pub(super) fn hold(&mut self, unsent: u64) {
        self.unsent = unsent;
    }

    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Since when the peer has taken too little of what waits for it, if anything does: `taken` octets so far.
    pub(super) fn stuck_since(&mut self, waits: bool, taken: u64, now: Time) -> Time {
        self.taken.waiting_since(waits, taken, LEAST_PROGRESS, now)
    }
}
