//! Writes WINDOW_UPDATE, and adapts the sizes of windows when it does (laws 1 to 4).

use core::time::Duration;

use super::Connection;
use super::flow_control::proof_of_streams;
use crate::flow::Proves;
use crate::id::Key;
use crate::stream::{Phase, RefillListing, Stream};

impl Connection {
    /// Writes WINDOW_UPDATE frames: at most one for each stream and one for the connection (law 2).
    pub(super) fn write_refills(&mut self) {
        if self.shutdown.has_failed() {
            return;
        }
        let leaving = !self.writer.is_empty()
            || self.streams.has_ends()
            || self.streams.refills_due()
            || self.has_data();
        if !leaving && !self.flow.refill_due(false) {
            return;
        }
        let round_trip = self.pings.minimum();
        let initial = self.streams.initial_window();
        let listed = self.streams.take_refills();
        if proof_of_streams(&self.config) != Proves::Nothing {
            self.judge_readers(&listed, round_trip);
        }
        if self.flow.refill_due(leaving) {
            let judged = self.flow.tune(&self.config, self.now, round_trip);
            if judged && self.pings.is_stale(self.now) {
                self.measure_round_trip(self.now);
            }
            self.flow.refill(&mut self.writer, self.now, round_trip);
        }
        for key in listed {
            // The stream may have been removed since it was listed.
            let Some(mut stream) = self.streams.get(key) else {
                continue;
            };
            stream.receive.refill = RefillListing::None;
            if receives(&stream) && stream.receive.window.refill_due(true) {
                let size = self.flow.next_stream_window(
                    &self.config,
                    initial,
                    &mut stream.receive,
                    self.now,
                    round_trip,
                );
                if let Some(size) = size {
                    stream.resize_window(size);
                }
                stream.refill(&mut self.writer, self.now, round_trip);
            }
        }
    }

    /// Lets windows of streams open wide if their readers have taken all that arrived.
    fn judge_readers(&mut self, listed: &[Key], round_trip: Option<Duration>) {
        let initial = self.streams.initial_window();
        for &key in listed {
            let Some(mut stream) = self.streams.get(key) else {
                continue;
            };
            if !receives(&stream) || !stream.receive.window.proof_due(0) {
                continue;
            }
            let window = &mut stream.receive.window;
            let larger = self
                .flow
                .grow_for_reader(&self.config, window, initial, self.now, round_trip);
            if let Some(larger) = larger {
                stream.resize_window(larger);
            }
        }
    }
}

/// Whether the peer may send more of its message.
fn receives(stream: &Stream) -> bool {
    stream.receive.phase != Phase::Done && stream.state.can_receive()
}
