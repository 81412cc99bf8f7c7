//! Receives bytes and passes frames to their handlers.

use bytes::{Buf, Bytes};

use super::Connection;
use super::reader::{Begun, Expected};
use super::streams::{MUCH_WORK, WORK_OF_A_REQUEST};
use crate::error::{ConnectionError, ErrorCode, Fault, StreamError};
use crate::frame::{self, Frame, FrameError, FrameHeader, FrameType};
use crate::id::StreamId;
use crate::time::Time;

impl Connection {
    /// Receives bytes from the transport, in pieces of any size. DATA payloads become slices of `input`.
    ///
    /// # Errors
    /// The connection has failed. GOAWAY is queued, events from before the error are still there, and the connection
    /// receives nothing more.
    pub fn receive(&mut self, mut input: Bytes, now: Time) -> Result<(), ConnectionError> {
        loop {
            self.receive_some(&mut input, u32::MAX, now)?;
            if input.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`Self::receive`], for an owner that shares its thread with other connections. The call stops after
    /// `requests`, from 1 to 64, or 16 other frames for each (32 without a payload), and after a frame that took much
    /// work ([`Self::work`]). Then `input` is not empty, and the owner calls again after it has served the others. Each
    /// call takes less than a millisecond.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_some(
        &mut self,
        input: &mut Bytes,
        requests: u32,
        now: Time,
    ) -> Result<(), ConnectionError> {
        self.advance_time(now);
        if let Some(error) = self.shutdown.error() {
            return Err(error.clone());
        }
        let before = input.len();
        let most = u64::from(requests.max(1)).saturating_mul(WORK_OF_A_REQUEST);
        let most = most.min(MUCH_WORK);
        let work = self.work() + most;
        self.pings.note_received(self.now);
        if let (Expected::Data(data), false) = (self.reader.expected(), input.is_empty()) {
            // A frame takes long over a slow link, and data flows during that time.
            self.update_receiving_ledger();
            if let Some(mut stream) = data.key.and_then(|key| self.streams.get(key)) {
                stream.settle_receiving(self.flow.window(), self.pings.minimum(), self.now);
            }
        }
        // A step takes a frame header or a payload. Frames that are no work of the owner, such as refused requests, take time too.
        let mut steps = 0;
        while !input.is_empty() && self.work() < work && steps < most {
            steps += 1;
            if let Err(error) = self.step(input) {
                // The bytes after the error count as received too.
                self.reader.note_received(before);
                self.fail(error.clone());
                return Err(error);
            }
        }
        self.reader.note_received(before - input.len());
        self.note_batch_end();
        self.balance();
        Ok(())
    }

    /// Processes a preface, a frame header, or a payload, or a part of one.
    fn step(&mut self, input: &mut Bytes) -> Result<(), ConnectionError> {
        match self.reader.expected() {
            Expected::Preface(seen) => self.reader.take_preface(seen, input),
            Expected::FirstFrameHeader | Expected::FrameHeader => {
                match self.reader.take_frame_header(input) {
                    Some(header) => self.on_frame_header(header, input),
                    None => Ok(()),
                }
            }
            Expected::Payload(header) => match self.reader.take_payload(header, input) {
                Some(payload) => {
                    self.on_frame(header, &payload)?;
                    self.reader.recycle(payload);
                    Ok(())
                }
                None => Ok(()),
            },
            Expected::PadLength(header) => {
                let padding = usize::from(input.get_u8());
                self.on_data_header(header, Some(padding), input)
            }
            Expected::Data(data) => self.step_data(data, input),
        }
    }

    fn on_frame_header(&mut self, header: FrameHeader, input: &mut Bytes) -> Result<(), ConnectionError> {
        let begun = self.reader.begin(header, self.config.max_frame_size)?;
        if header.frame_type == FrameType::DATA {
            self.note_whole();
        }
        match begun {
            Begun::Data => self.on_data_header(header, None, input),
            Begun::Whole => self.on_frame(header, &[]),
            Begun::Octets => Ok(()),
        }
    }

    fn on_frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        match frame::parse(header, payload) {
            Ok(frame) => {
                let result = self.on_parsed(frame);
                self.note_whole();
                self.handle_result(result)
            }
            Err(FrameError {
                code,
                stream: Some(stream),
                reason,
            }) => self.handle_result(self.frame_fault(stream, code, reason)),
            Err(error) => Err(ConnectionError::violation(error.code, error.reason).on(header.stream)),
        }
    }

    /// An error of one stream. On an idle stream, which cannot be reset, it is an error of the connection.
    fn frame_fault(&self, stream: StreamId, code: ErrorCode, reason: &'static str) -> Result<(), Fault> {
        if self.streams.is_idle(stream) {
            return Err(ConnectionError::violation(code, reason).on(stream).into());
        }
        Err(StreamError::violation(stream, code, reason).into())
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
                self.guards.priority(self.now)?;
                if fields.on_itself {
                    return self.frame_fault(
                        fields.stream,
                        ErrorCode::PROTOCOL_ERROR,
                        "a stream depends on itself",
                    );
                }
                Ok(())
            }
            Frame::PriorityUpdate(update) => self.on_priority_update(update),
            Frame::PushPromise => {
                Err(ConnectionError::protocol("PUSH_PROMISE although SETTINGS_ENABLE_PUSH is 0").into())
            }
            Frame::Unknown => Ok(self.guards.priority(self.now)?),
        }
    }

    /// Resets the stream of a stream error. Returns an error of the connection.
    #[inline]
    pub(super) fn handle_result(&mut self, result: Result<(), Fault>) -> Result<(), ConnectionError> {
        match result {
            Ok(()) => Ok(()),
            Err(fault) => self.handle_fault(fault),
        }
    }

    #[cold]
    fn handle_fault(&mut self, fault: Fault) -> Result<(), ConnectionError> {
        match fault {
            Fault::Connection(error) => Err(error),
            Fault::Stream(error) => {
                match error.code {
                    ErrorCode::REFUSED_STREAM => self.guards.refused_stream(self.now)?,
                    _ => self.guards.provoked_reset(self.now)?,
                }
                self.writer.owe_reset();
                self.reset_with(error);
                Ok(())
            }
        }
    }
}
