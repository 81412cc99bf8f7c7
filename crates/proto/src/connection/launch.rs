//! Requests that leave: at once, or when the peer allows another stream.

use core::time::Duration;

use http::Request;

use super::Connection;
use super::ledgers::Ledgers;
use super::writer::Writer;
use crate::message;
use crate::stream::{Phase, State, Stream};
use crate::time::Time;

/// So many requests that waited leave at once. A server lets ten thousand of them go by one entry of SETTINGS.
const LAUNCHES_AT_ONCE: u32 = 512;

impl Connection {
    /// Opens the requests that waited, as far as the peer's limit allows now, and as many as take about a millisecond: the
    /// next write is followed by more.
    pub(super) fn open_waiting(&mut self) {
        // A peer that has sent GOAWAY would not process them. `on_go_away` ends them.
        if self.shutdown.peer_goes() || self.shutdown.has_failed() {
            return;
        }
        let round_trip = self.pings.minimum();
        let max_frame_size = self.settings.max_frame_size();
        let most = self.streams.active().saturating_add(LAUNCHES_AT_ONCE);
        while self.streams.active() < self.settings.max_concurrent_streams().min(most) {
            let Some(mut stream) = self.streams.pop_waiting() else {
                return;
            };
            // Each stream that waits keeps its request, and is taken off the list once.
            let Some(request) = stream.send.waiting.take() else {
                continue;
            };
            stream.settle_receiving(self.flow.window(), round_trip, self.now);
            stream.note_opened();
            self.deadlines.allow();
            launch(
                &mut stream,
                &request,
                &mut self.writer,
                &self.ledgers,
                max_frame_size,
                round_trip,
                self.now,
            );
            stream.reschedule(&self.ledgers, self.now);
        }
        self.watch_waiting();
    }
}

/// Writes a request's HEADERS. END_STREAM may travel with them. Otherwise the stream is to be rescheduled when
/// something is queued.
pub(super) fn launch(
    stream: &mut Stream,
    request: &Request<()>,
    writer: &mut Writer,
    ledgers: &Ledgers,
    max_frame_size: u32,
    round_trip: Option<Duration>,
    now: Time,
) {
    let half = &stream.send;
    let end = half.phase == Phase::Done && half.queue.is_empty() && half.trailers.is_none();
    stream.state = State::Open;
    writer.head(stream.id, end, max_frame_size, |encoder, out| {
        message::encode_request(encoder, request, out);
    });
    stream.refill(writer, now, round_trip);
    match end {
        // The response is still to come, so that this closes no stream.
        true => stream.note_end_sent(ledgers, now),
        false => ledgers.note_stream_sending(stream, now),
    }
}
