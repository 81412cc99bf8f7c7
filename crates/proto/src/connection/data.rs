//! DATA (RFC 9113 section 6.1), processed as it arrives, and the end of a message.

use core::time::Duration;

use bytes::{Buf, Bytes};

use super::Connection;
use super::flow_control::FlowControl;
use super::reader::DataFrame;
use super::streams::{AfterEnd, ClosedBy, Entry};
use crate::error::{ConnectionError, ErrorCode, Fault, Side, StreamError};
use crate::event::Events;
use crate::frame::{Flags, FrameHeader};
use crate::id::{Key, StreamId};
use crate::stream::{Cause, Content, Discards, Phase, StreamState};
use crate::time::Time;

impl Connection {
    /// A DATA frame begins. Its whole length counts for flow control at once. Then processes what has arrived of its
    /// payload.
    pub(super) fn on_data_header(
        &mut self,
        header: FrameHeader,
        pad_length: Option<usize>,
        input: &mut Bytes,
    ) -> Result<(), ConnectionError> {
        let (stream, framing) = check_framing(header, pad_length)?;
        let length = header.length as usize;
        if self.streams.is_unopened(stream) {
            return Err(data_on_idle(stream));
        }
        if self.flow.receive(header.length, self.now).is_err() {
            if self.streams.is_idle(stream) {
                return Err(data_on_idle(stream));
            }
            return Err(ConnectionError::violation(
                ErrorCode::FLOW_CONTROL_ERROR,
                "DATA beyond the connection's flow-control window",
            )
            .on(stream));
        }
        self.update_receiving_ledger();
        let end_stream = header.flags.has(Flags::END_STREAM);
        if length == framing && !end_stream {
            self.guards.empty_data(self.now)?;
        }
        let payload = length - framing;
        let key = match self.admit_data(stream, header.length, payload, framing) {
            Ok(key) => key,
            Err(error) => {
                self.handle_result(Err(error))?;
                None
            }
        };
        let data = DataFrame {
            key,
            payload,
            padding: pad_length.unwrap_or(0),
            end_stream,
        };
        // Padding is consumed on arrival, the payload when it is read or discarded.
        self.flow.consume(framing as u64);
        self.step_data(data, input)
    }

    /// The stream that receives the DATA. None if it is to be discarded silently.
    fn admit_data(
        &mut self,
        id: StreamId,
        length: u32,
        payload: usize,
        framing: usize,
    ) -> Result<Option<Key>, Fault> {
        let grace = self.settings.window_grace();
        self.store_fresh(id);
        let Some(mut stream) = self.streams.by_id(id) else {
            return match self.streams.closed_by(id) {
                ClosedBy::Reset(Side::Local) | ClosedBy::Unknown => Ok(None),
                ClosedBy::Reset(Side::Peer) => {
                    let detail = "DATA on a stream that the peer had reset";
                    Err(StreamError::violation(id, ErrorCode::STREAM_CLOSED, detail).into())
                }
                ClosedBy::EndStream | ClosedBy::LaterStream => Err(data_on_closed(id).into()),
            };
        };
        match stream.state {
            StreamState::Open | StreamState::HalfClosedLocal => {}
            StreamState::Closed(Cause::Reset { by: Side::Local, .. }) => return Ok(None),
            StreamState::Closed(Cause::Finished) => return Err(data_on_closed(id).into()),
            StreamState::Waiting => return Err(data_on_idle(id).into()),
            StreamState::HalfClosedRemote | StreamState::Closed(_) => {
                let detail = "DATA after END_STREAM";
                return Err(StreamError::violation(id, ErrorCode::STREAM_CLOSED, detail).into());
            }
        }
        if stream.receive.phase != Phase::Body {
            return Err(StreamError::protocol(id, "DATA before HEADERS").into());
        }
        stream.settle_receiving(self.flow.window(), self.pings.minimum(), self.now);
        let half = &mut stream.receive;
        half.window.note_arrival(self.now);
        if half.window.receive(length, grace).is_err() {
            let detail = "DATA beyond the stream's flow-control window";
            return Err(StreamError::violation(id, ErrorCode::FLOW_CONTROL_ERROR, detail).into());
        }
        if half.content == Content::None && payload > 0 {
            return Err(StreamError::protocol(id, "DATA in a response that has no body").into());
        }
        if let Some(expected) = half.expected {
            match expected.checked_sub(payload as u64) {
                Some(rest) => half.expected = Some(rest),
                None => {
                    return Err(StreamError::content_length(id, "DATA exceeds it").into());
                }
            }
        }
        half.window.consume(framing as u64);
        stream.list_refill();
        if framing > 0 {
            // The owner has to call `stream_release_until_due` again.
            stream.announce(&mut self.events);
        }
        Ok(Some(stream.key()))
    }

    /// Processes what has arrived of a DATA frame.
    pub(super) fn step_data(
        &mut self,
        mut data: DataFrame,
        input: &mut Bytes,
    ) -> Result<(), ConnectionError> {
        let piece = input.split_to(input.len().min(data.payload));
        data.payload -= piece.len();
        let padding = input.len().min(data.padding);
        input.advance(padding);
        data.padding -= padding;
        self.reader.expect_data(data);
        let end = data.end_stream && data.payload + data.padding == 0;
        // The stream may have been reset and removed since the frame began.
        let Some(mut stream) = data.key.and_then(|key| self.streams.get(key)) else {
            self.flow.consume(piece.len() as u64);
            return Ok(());
        };
        if !piece.is_empty() {
            if stream.state.can_receive() && !stream.receive.is_discarded() {
                stream.receive.queue.push(piece);
                stream.announce(&mut self.events);
            } else {
                // Nobody will read it, so it is consumed here (law 3).
                let bytes = piece.len() as u64;
                let id = stream.id;
                if drop_data(&mut stream, bytes) {
                    self.reset_after_response(id);
                    self.flow.consume(bytes);
                    return Ok(());
                }
                self.flow.consume(bytes);
            }
        }
        if !end {
            return Ok(());
        }
        let (flow, events) = (&self.flow, &mut self.events);
        match end_receiving(&mut stream, flow, events, self.pings.minimum(), self.now) {
            Ok(after) => {
                self.follow_up(after);
                Ok(())
            }
            Err(fault) => self.handle_result(Err(fault)),
        }
    }
}

/// The stream of a DATA frame, and how many bytes of its payload are padding and pad length.
fn check_framing(
    header: FrameHeader,
    pad_length: Option<usize>,
) -> Result<(StreamId, usize), ConnectionError> {
    let Some(stream) = header.stream else {
        return Err(ConnectionError::protocol("DATA on stream 0"));
    };
    let framing = pad_length.map_or(0, |padding| padding + 1);
    if pad_length.is_none() && header.flags.has(Flags::PADDED) {
        let error = "padded DATA without a pad length";
        return Err(ConnectionError::violation(ErrorCode::FRAME_SIZE_ERROR, error).on(stream));
    }
    if framing > header.length as usize {
        let error = "the padding of DATA is longer than its payload";
        return Err(ConnectionError::protocol(error).on(stream));
    }
    Ok((stream, framing))
}

/// Discards bytes of a message that nobody reads. Returns whether they exceed the limit for the rest of an answered
/// request.
fn drop_data(stream: &mut Entry<'_>, bytes: u64) -> bool {
    stream.receive.window.consume(bytes);
    stream.list_refill();
    let Discards::Rest(left) = &mut stream.receive.discards else {
        return false;
    };
    let exceeds = bytes > *left;
    *left = left.saturating_sub(bytes);
    exceeds
}

/// END_STREAM arrived with DATA, trailers or a response.
pub(super) fn end_receiving(
    stream: &mut Entry<'_>,
    flow: &FlowControl,
    events: &mut Events,
    round_trip: Option<Duration>,
    now: Time,
) -> Result<AfterEnd, Fault> {
    stream.settle_receiving(flow.window(), round_trip, now);
    if !stream.state.can_receive() {
        return Ok(AfterEnd::Nothing);
    }
    if stream.receive.expected.unwrap_or(0) != 0 {
        return Err(StreamError::short_body(stream.id).into());
    }
    stream.receive.phase = Phase::Done;
    stream.state = stream.state.after_receive_end();
    if !stream.receive.is_discarded() {
        stream.announce(events);
    }
    Ok(stream.after_end())
}

fn data_on_idle(id: StreamId) -> ConnectionError {
    ConnectionError::protocol("DATA on an idle stream").on(id)
}

fn data_on_closed(id: StreamId) -> ConnectionError {
    ConnectionError::violation(ErrorCode::STREAM_CLOSED, "DATA on a closed stream").on(id)
}
