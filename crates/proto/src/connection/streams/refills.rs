//! The stream windows that are due for a WINDOW_UPDATE, and the sizes of stream windows.

use core::time::Duration;

use crate::connection::writer::Writer;
use crate::flow::WindowSize;
use crate::id::Key;
use crate::stream::{Phase, RefillListing, Stream};
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Refills {
    listed: Vec<Key>,
    /// How many of them are due even without another write.
    due: u32,
    /// The initial window of streams, as in our SETTINGS.
    initial: WindowSize,
    /// The largest window that a stream has grown to.
    largest: WindowSize,
    /// The largest send window that the peer has granted to a stream by WINDOW_UPDATE, in bytes.
    granted: u32,
}

impl Refills {
    pub(super) fn new(initial: WindowSize) -> Self {
        Refills {
            listed: Vec::new(),
            due: 0,
            initial,
            largest: initial,
            granted: 0,
        }
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due > 0
    }

    /// Lists a stream if its window is due, or nearly due, but never after END_STREAM (law 2). A window that may grow is due
    /// when its reader is to be judged.
    pub(super) fn list(&mut self, key: Key, stream: &mut Stream) {
        let half = &mut stream.receive;
        if half.refill == RefillListing::Due || half.phase == Phase::Done || !stream.state.can_receive() {
            return;
        }
        if half.window.refill_due(false) || half.window.proof_due(0) {
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

    pub(super) fn take(&mut self) -> Vec<Key> {
        self.due = 0;
        core::mem::take(&mut self.listed)
    }

    #[inline]
    pub(super) fn initial(&self) -> WindowSize {
        self.initial
    }

    pub(super) fn largest(&self) -> WindowSize {
        self.largest
    }

    pub(super) fn set_initial(&mut self, size: WindowSize) {
        self.initial = size;
        self.note_size(size);
    }

    pub(super) fn note_size(&mut self, size: WindowSize) {
        self.largest = self.largest.max(size);
    }

    #[inline]
    pub(super) fn note_granted(&mut self, window: usize) {
        self.granted = self.granted.max(u32::try_from(window).unwrap_or(u32::MAX));
    }

    pub(super) fn largest_granted(&self) -> u32 {
        self.granted
    }

    /// The connection has failed, and writes no WINDOW_UPDATE: none is due. Streams may still be listed; a lookup of these
    /// fails.
    pub(super) fn clear(&mut self) {
        self.due = 0;
    }
}

impl Stream {
    /// Writes a WINDOW_UPDATE for all credit that is available, unless the peer does not know the stream or has ended it.
    pub(in crate::connection) fn refill(
        &mut self,
        writer: &mut Writer,
        now: Time,
        round_trip: Option<Duration>,
    ) {
        if !self.state.can_receive() {
            return;
        }
        if let Some(increment) = self.receive.window.refill(now, round_trip) {
            writer.window_update(Some(self.id), increment);
        }
    }
}
