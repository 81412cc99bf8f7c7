//! Which streams' windows are due for a WINDOW_UPDATE, and how large those windows are.

use crate::flow::WindowSize;
use crate::id::Key;
use crate::stream::{Phase, RefillListing, Stream};

/// The windows of streams that are to be refilled.
#[derive(Debug)]
pub(super) struct Refills {
    listed: Vec<Key>,
    /// How many of them are due without a write to join.
    due: usize,
    /// The window that streams begin with, as our SETTINGS say.
    initial: WindowSize,
    /// The largest window that a stream has grown to.
    largest: WindowSize,
}

impl Refills {
    pub(super) fn new(initial: WindowSize) -> Self {
        Refills {
            listed: Vec::new(),
            due: 0,
            initial,
            largest: initial,
        }
    }

    /// Whether a window is due without a write to join.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// Puts a stream on the list when its window is due, or nearly: never after END_STREAM (law 2).
    pub(super) fn list(&mut self, key: Key, stream: &mut Stream) {
        let half = &mut stream.receive;
        if half.refill == RefillListing::Due || half.phase == Phase::Done || !stream.state.can_receive() {
            return;
        }
        if half.window.refill_due(false) {
            if half.refill == RefillListing::None {
                self.listed.push(key);
            }
            half.refill = RefillListing::Due;
            self.due += 1;
        } else if half.refill == RefillListing::None && half.window.refill_due(true) {
            half.refill = RefillListing::InCompany;
            self.listed.push(key);
        }
    }

    /// The streams that are listed. One that was closed meanwhile may be among them.
    pub(super) fn take(&mut self) -> Vec<Key> {
        self.due = 0;
        core::mem::take(&mut self.listed)
    }

    /// The window that streams begin with.
    #[inline]
    pub(super) fn initial(&self) -> WindowSize {
        self.initial
    }

    /// The largest window that a stream has grown to.
    pub(super) fn largest(&self) -> WindowSize {
        self.largest
    }

    /// A stream's window has grown.
    pub(super) fn note_size(&mut self, size: WindowSize) {
        self.largest = self.largest.max(size);
    }

    pub(super) fn clear(&mut self) {
        self.listed.clear();
        self.due = 0;
    }

    /// Gives back memory that only a busy connection needs.
    pub(super) fn trim(&mut self) {
        self.listed.shrink_to_fit();
    }
}
