//! From octets to frames: the preface, the heads, payloads in place, and DATA piece by piece while it arrives.

use bytes::{Buf, Bytes};

use super::Connection;
use crate::error::{ConnectionError, ErrorCode, Fault, LONG_BODY, Side, StreamError};
use crate::frame::{self, Flags, Frame, FrameError, HEAD_LENGTH, Head, Kind, ResetStream};
use crate::id::{Key, StreamId};
use crate::role::Role;
use crate::stream::{Cause, Past, State};
use crate::time::Time;

/// What a client sends before its first frame (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// So many streams gone through, or entries moved, take about a quarter of a millisecond: what follows waits for another call of
/// [`Connection::receive_some`].
const MUCH_WORK: u64 = 2_048;

/// What a request counts as: 64 of them are much work. The owner runs their handlers before it calls again, and a read of 8 KiB
/// brings some 330: 3 ms of files in memory, for which every other connection of the thread would wait.
pub(super) const WORK_OF_A_REQUEST: u64 = MUCH_WORK / 64;

/// Where in the stream of octets the reader stands. Octets of a frame that straddles two slabs wait in `partial`,
/// never more than a head and one payload.
#[derive(Debug)]
pub(super) struct Reader {
    expect: Expect,
    partial: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Expect {
    /// The rest of the client's preface, of which so many octets have come.
    Preface(usize),
    /// The SETTINGS frame that a connection begins with.
    FirstHead,
    Head,
    Payload(Head),
    /// The pad length of a padded DATA frame.
    PadLength(Head),
    Data(DataFrame),
}

/// A DATA frame that is arriving.
#[derive(Debug, Clone, Copy)]
struct DataFrame {
    /// The stream that takes it; none when it is discarded.
    key: Option<Key>,
    payload: usize,
    padding: usize,
    end_stream: bool,
}

impl Reader {
    pub(super) fn new(role: Role) -> Self {
        Reader {
            expect: match role {
                Role::Server => Expect::Preface(0),
                Role::Client => Expect::FirstHead,
            },
            partial: Vec::new(),
        }
    }
}

impl Reader {
    /// Whether the octets of a frame other than DATA have begun to come, and there are more to come.
    pub(super) fn is_within_frame(&self) -> bool {
        !self.partial.is_empty() || matches!(self.expect, Expect::Payload(_) | Expect::PadLength(_))
    }
}

impl Connection {
    /// Takes in octets from the transport, in whatever pieces they come. A DATA payload is handed on as a slice of
    /// `input`.
    ///
    /// # Errors
    /// The connection has ended: the peer broke a rule, or a limit on it. GOAWAY waits to be transmitted; events that
    /// came before are still there; nothing more is to be received.
    pub fn receive(&mut self, mut input: Bytes, now: Time) -> Result<(), ConnectionError> {
        loop {
            self.receive_some(&mut input, now)?;
            if input.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`Self::receive`], for an owner that shares its thread with others: what is left in `input` then is to be received
    /// by another call, after others have had their turn. That is so only behind 64 requests, and behind a frame that took much
    /// work ([`Self::work`]): each takes less than a millisecond.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_some(&mut self, input: &mut Bytes, now: Time) -> Result<(), ConnectionError> {
        self.see(now);
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.stats.received_bytes += input.len() as u64;
        let work = self.work() + MUCH_WORK;
        self.note_heard();
        if let (Expect::Data(data), false) = (self.reader.expect, input.is_empty()) {
            // A slow link takes long for one frame, and data flows all the while.
            self.account_receiving();
            if let Some(key) = data.key {
                self.account_stream_receiving(key);
            }
        }
        while !input.is_empty() && self.work() < work {
            if let Err(error) = self.step(input) {
                self.fail(error.clone());
                return Err(error);
            }
        }
        self.stats.received_bytes -= input.len() as u64;
        self.note_batch_end();
        self.balance();
        Ok(())
    }

    /// One preface, head, payload or piece of one.
    fn step(&mut self, input: &mut Bytes) -> Result<(), ConnectionError> {
        match self.reader.expect {
            Expect::Preface(seen) => self.step_preface(seen, input),
            Expect::FirstHead | Expect::Head => match self.take_head(input) {
                Some(head) => self.on_head(head, input),
                None => Ok(()),
            },
            Expect::Payload(head) => self.step_payload(head, input),
            Expect::PadLength(head) => {
                let padding = usize::from(input.get_u8());
                self.on_data_head(head, Some(padding), input)
            }
            Expect::Data(data) => self.step_data(data, input),
        }
    }

    fn step_preface(&mut self, seen: usize, input: &mut Bytes) -> Result<(), ConnectionError> {
        let count = input.len().min(PREFACE.len() - seen);
        if input[..count] != PREFACE[seen..seen + count] {
            return Err(ConnectionError::protocol(
                "the connection does not begin with the preface of HTTP/2 (is it HTTP/1.1?)",
            ));
        }
        input.advance(count);
        self.reader.expect = match seen + count {
            all if all == PREFACE.len() => Expect::FirstHead,
            some => Expect::Preface(some),
        };
        Ok(())
    }

    /// The next head, once its nine octets are there.
    fn take_head(&mut self, input: &mut Bytes) -> Option<Head> {
        let partial = &mut self.reader.partial;
        if partial.is_empty() {
            if let Some(octets) = input.first_chunk::<HEAD_LENGTH>() {
                let head = Head::parse(octets);
                input.advance(HEAD_LENGTH);
                return Some(head);
            }
        }
        let count = input.len().min(HEAD_LENGTH - partial.len());
        partial.extend_from_slice(&input[..count]);
        input.advance(count);
        let head = Head::parse(partial.first_chunk::<HEAD_LENGTH>()?);
        partial.clear();
        Some(head)
    }

    fn on_head(&mut self, head: Head, input: &mut Bytes) -> Result<(), ConnectionError> {
        if matches!(self.reader.expect, Expect::FirstHead) {
            let settings = head.kind == Kind::SETTINGS && !head.flags.has(Flags::ACK);
            if !settings {
                return Err(ConnectionError::protocol(
                    "the first frame is not SETTINGS (does the peer speak HTTP/2?)",
                ));
            }
        }
        self.stats.received_frames.add(head.kind);
        if let Some(block) = &self.block {
            if head.kind != Kind::CONTINUATION || head.stream != Some(block.stream) {
                let error = "a header block was interrupted by another frame";
                return Err(ConnectionError::protocol(error).on(block.stream));
            }
        }
        if head.length > self.config.max_frame_size {
            return Err(ConnectionError::peer(
                ErrorCode::FRAME_SIZE_ERROR,
                "a frame is longer than SETTINGS_MAX_FRAME_SIZE allows",
            ));
        }
        if head.kind == Kind::DATA {
            self.note_whole();
            if head.flags.has(Flags::PADDED) && head.length > 0 {
                self.reader.expect = Expect::PadLength(head);
                return Ok(());
            }
            return self.on_data_head(head, None, input);
        }
        self.reader.expect = Expect::Payload(head);
        if head.length == 0 {
            self.reader.expect = Expect::Head;
            return self.on_frame(head, &[]);
        }
        Ok(())
    }

    /// The payload of a frame other than DATA: in place when all of it is there.
    fn step_payload(&mut self, head: Head, input: &mut Bytes) -> Result<(), ConnectionError> {
        let length = head.length as usize;
        if self.reader.partial.is_empty() && input.len() >= length {
            let payload = input.split_to(length);
            self.reader.expect = Expect::Head;
            return self.on_frame(head, &payload);
        }
        let count = input.len().min(length - self.reader.partial.len());
        self.reader.partial.extend_from_slice(&input[..count]);
        input.advance(count);
        if self.reader.partial.len() < length {
            return Ok(());
        }
        let mut payload = core::mem::take(&mut self.reader.partial);
        self.reader.expect = Expect::Head;
        self.on_frame(head, &payload)?;
        payload.clear();
        self.reader.partial = payload;
        Ok(())
    }

    fn on_frame(&mut self, head: Head, payload: &[u8]) -> Result<(), ConnectionError> {
        match frame::parse(head, payload) {
            Ok(frame) => {
                let result = self.on_parsed(frame);
                self.note_whole();
                self.absorb(result)
            }
            Err(FrameError {
                code,
                stream: Some(stream),
                reason,
            }) => self.absorb(self.frame_fault(stream, code, reason)),
            Err(error) => Err(ConnectionError {
                stream: head.stream,
                ..ConnectionError::peer(error.code, error.reason)
            }),
        }
    }

    /// An error that is confined to a stream; on a stream that is idle, which cannot be reset, it is the connection's.
    fn frame_fault(&self, stream: StreamId, code: ErrorCode, reason: &'static str) -> Result<(), Fault> {
        if self.is_idle(stream) {
            return Err(ConnectionError::peer(code, reason).on(stream).into());
        }
        Err(StreamError::local(stream, code, reason).into())
    }

    fn on_parsed(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        match frame {
            Frame::Headers(headers) => self.on_headers(headers),
            Frame::Continuation(continuation) => self.on_continuation(continuation),
            Frame::Settings(settings) => Ok(self.on_settings(settings)?),
            Frame::WindowUpdate(update) => self.on_window_update(update),
            Frame::Ping(ping) => Ok(self.on_ping(ping)?),
            Frame::Reset(reset) => Ok(self.on_reset(reset)?),
            Frame::GoAway(go_away) => Ok(self.on_go_away(go_away)?),
            Frame::Priority(fields) => {
                self.count_priority()?;
                if fields.on_itself {
                    return self.frame_fault(
                        fields.stream,
                        ErrorCode::PROTOCOL_ERROR,
                        "a stream that depends on itself",
                    );
                }
                Ok(())
            }
            Frame::PriorityUpdate(update) => self.on_priority_update(update),
            Frame::PushPromise => {
                Err(ConnectionError::protocol("PUSH_PROMISE, although SETTINGS_ENABLE_PUSH is 0").into())
            }
            Frame::Unknown => Ok(self.count_priority()?),
        }
    }

    pub(super) fn count_priority(&mut self) -> Result<(), ConnectionError> {
        let reason = "too many PRIORITY, PRIORITY_UPDATE or unknown frames";
        self.guards.priorities.charge(self.now, reason)
    }

    /// Ends the stream that an error is confined to; passes on an error of the connection.
    #[inline]
    pub(super) fn absorb(&mut self, result: Result<(), Fault>) -> Result<(), ConnectionError> {
        match result {
            Ok(()) => Ok(()),
            Err(fault) => self.absorb_fault(fault),
        }
    }

    #[cold]
    fn absorb_fault(&mut self, fault: Fault) -> Result<(), ConnectionError> {
        match fault {
            Fault::Connection(error) => Err(error),
            Fault::Stream(error) => {
                // A refusal is no error of the peer's, who may not know our limits yet.
                let (guard, reason) = match error.code {
                    ErrorCode::REFUSED_STREAM => {
                        (&mut self.guards.refused_streams, "too many streams refused")
                    }
                    _ => (&mut self.guards.provoked_resets, "too many streams with errors"),
                };
                guard.charge(self.now, reason)?;
                self.owed += 13;
                self.reset_with(error);
                Ok(())
            }
        }
    }

    /// A DATA frame begins (RFC 9113 section 6.1). Its whole length counts for flow control at once. What has come of its
    /// payload follows in the same step.
    fn on_data_head(
        &mut self,
        head: Head,
        pad_length: Option<usize>,
        input: &mut Bytes,
    ) -> Result<(), ConnectionError> {
        let Some(stream) = head.stream else {
            return Err(ConnectionError::protocol("DATA on stream 0"));
        };
        let length = head.length as usize;
        let framing = pad_length.map_or(0, |padding| padding + 1);
        if pad_length.is_none() && head.flags.has(Flags::PADDED) {
            let error = "padded DATA without a pad length";
            return Err(ConnectionError::peer(ErrorCode::FRAME_SIZE_ERROR, error).on(stream));
        }
        if framing > length {
            let error = "the padding of DATA is longer than its payload";
            return Err(ConnectionError::protocol(error).on(stream));
        }
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol("DATA on a stream that is idle").on(stream));
        }
        if self.receive_window.receive(head.length, 0).is_err() {
            return Err(ConnectionError::peer(
                ErrorCode::FLOW_CONTROL_ERROR,
                "more DATA than the connection's window allows",
            )
            .on(stream));
        }
        self.stats.received_data_bytes += length as u64;
        self.account_receiving();
        let end_stream = head.flags.has(Flags::END_STREAM);
        if length == framing && !end_stream {
            let reason = "too many DATA frames without data";
            self.guards.empty_data.charge(self.now, reason)?;
        }
        let payload = length - framing;
        let key = match self.admit_data(stream, head.length, payload, framing) {
            Ok(key) => key,
            Err(error) => {
                self.absorb(Err(error))?;
                None
            }
        };
        let data = DataFrame {
            key,
            payload,
            padding: pad_length.unwrap_or(0),
            end_stream,
        };
        // Padding and its length are consumed as they come; the payload by who reads or discards it.
        self.credit_connection(framing as u64);
        self.step_data(data, input)
    }

    /// Whether the stream takes this DATA; none when it is to be dropped without a word.
    fn admit_data(
        &mut self,
        id: StreamId,
        length: u32,
        payload: usize,
        framing: usize,
    ) -> Result<Option<Key>, Fault> {
        let grace = self.stream_window_grace();
        let Some((key, stream)) = self.streams.by_id(id) else {
            return match self.closed.past(id) {
                Past::Reset(Side::Local) | Past::Forgotten => Ok(None),
                Past::Reset(Side::Peer) => {
                    let reason = "DATA on a stream that the peer had reset";
                    Err(StreamError::local(id, ErrorCode::STREAM_CLOSED, reason).into())
                }
                Past::Finished | Past::Skipped => Err(data_on_closed(id).into()),
            };
        };
        match stream.state {
            State::Open | State::HalfClosedLocal => {}
            State::Closed(Cause::Reset { by: Side::Local, .. }) => return Ok(None),
            State::Closed(Cause::Finished) => return Err(data_on_closed(id).into()),
            _ => {
                let reason = "DATA on a stream that the peer had ended";
                return Err(StreamError::local(id, ErrorCode::STREAM_CLOSED, reason).into());
            }
        }
        let half = &mut stream.receive;
        let error = |code, reason| Err(StreamError::local(id, code, reason).into());
        if half.phase != crate::stream::Phase::Body {
            return error(ErrorCode::PROTOCOL_ERROR, "DATA before HEADERS");
        }
        stream.settle_receiving(&self.receive_window, self.stats.round_trip.minimum(), self.now);
        let half = &mut stream.receive;
        if half.window.receive(length, grace).is_err() {
            return error(
                ErrorCode::FLOW_CONTROL_ERROR,
                "more DATA than the stream's window allows",
            );
        }
        if half.bodiless && payload > 0 {
            return error(ErrorCode::PROTOCOL_ERROR, "a body where there can be none");
        }
        if let Some(expected) = half.expected {
            match expected.checked_sub(payload as u64) {
                Some(rest) => half.expected = Some(rest),
                None => return error(ErrorCode::PROTOCOL_ERROR, LONG_BODY),
            }
        }
        half.window.consume(framing as u64);
        self.list_refill(key);
        if framing > 0 {
            // Who counts released bytes by `stream_release_until_due` has to ask it again.
            self.announce(key);
        }
        Ok(Some(key))
    }

    /// As much of a DATA frame as has come.
    fn step_data(&mut self, mut data: DataFrame, input: &mut Bytes) -> Result<(), ConnectionError> {
        let count = input.len().min(data.payload);
        if count > 0 {
            let piece = input.split_to(count);
            data.payload -= count;
            self.deliver(data.key, piece);
        }
        let padding = input.len().min(data.padding);
        input.advance(padding);
        data.padding -= padding;
        self.continue_data(data)
    }

    fn continue_data(&mut self, data: DataFrame) -> Result<(), ConnectionError> {
        if data.payload + data.padding > 0 {
            self.reader.expect = Expect::Data(data);
            return Ok(());
        }
        self.reader.expect = Expect::Head;
        match (data.key, data.end_stream) {
            (Some(key), true) => {
                let result = self.receive_end(key);
                self.absorb(result)
            }
            _ => Ok(()),
        }
    }

    /// Hands a piece to the stream's queue; what nobody will read is consumed here (law 3).
    fn deliver(&mut self, key: Option<Key>, piece: Bytes) {
        let bytes = piece.len() as u64;
        if let Some(key) = key {
            match self.streams.get_mut(key) {
                Some(stream) if stream.state.can_receive() && !stream.receive.discard => {
                    stream.receive.queue.push(piece);
                    return self.announce(key);
                }
                Some(stream) => {
                    stream.receive.window.consume(bytes);
                    self.list_refill(key);
                    self.drop_rest(key, bytes);
                }
                None => {}
            }
        }
        self.credit_connection(bytes);
    }

    /// RST_STREAM of the peer (RFC 9113 section 6.4).
    fn on_reset(&mut self, reset: ResetStream) -> Result<(), ConnectionError> {
        if self.is_idle(reset.stream) {
            let error = "RST_STREAM on a stream that is idle";
            return Err(ConnectionError::protocol(error).on(reset.stream));
        }
        self.guards
            .peer_resets
            .charge(self.now, "too many streams reset")?;
        self.closed_by_peer(reset);
        Ok(())
    }
}

fn data_on_closed(id: StreamId) -> ConnectionError {
    ConnectionError::peer(ErrorCode::STREAM_CLOSED, "DATA on a stream that is closed").on(id)
}
