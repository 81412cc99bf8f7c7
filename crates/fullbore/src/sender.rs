//! The sending half of a stream: passes a message of the caller to the driver.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore_proto::{ErrorCode, Payload};
use http::{HeaderMap, Response};
use http_body::{Body, Frame};

use crate::cell::{Cell, StreamCommand, register};
use crate::content_length::Length;
use crate::error::{BoxError, Error};
use crate::file::Chunk;

/// A body that gives so many chunks without a byte, one after the other, has its next turn when other tasks had theirs.
pub(crate) const MANY_EMPTY: u32 = 64;

/// What a body gives when it is polled.
pub(crate) type PolledFrame<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

/// The only handle that sends on a stream. Dropping it before the end resets the stream.
pub(crate) struct Sender {
    cell: Arc<Cell>,
    finished: bool,
    /// What is left of the length of the body.
    length: Length,
}

impl Sender {
    pub(crate) fn new(cell: Arc<Cell>) -> Self {
        Sender {
            cell,
            finished: false,
            length: Length::UNKNOWN,
        }
    }

    /// Where the stream's handles and the driver meet.
    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// Has the body checked against a length: one that differs resets the stream.
    pub(crate) fn announce(&mut self, length: Length) {
        self.length = length;
    }

    /// Sends the head of a response. `end` completes the message.
    pub(crate) fn send_response(&mut self, response: Response<()>, end: bool) {
        self.queue(StreamCommand::Response(response, end), 0, end);
    }

    pub(crate) fn send_data(&mut self, data: impl Into<Payload>, end: bool) {
        let data = data.into();
        let bytes = data.len();
        self.queue(StreamCommand::Data(data, end), bytes, end);
    }

    pub(crate) fn send_trailers(&mut self, trailers: HeaderMap) {
        self.queue(StreamCommand::Trailers(Box::new(trailers)), 0, true);
    }

    pub(crate) fn reset(&mut self, code: ErrorCode) {
        self.queue(StreamCommand::Reset(code), 0, true);
    }

    /// Resets the stream with an error for its reader. The error is set before the driver sees the reset, whose own
    /// error would say less.
    pub(crate) fn reset_for(&mut self, code: ErrorCode, error: &Error) {
        let mut state = self.cell.lock();
        if state.error.is_none() {
            state.outbound.commands.push_back(StreamCommand::Reset(code));
            state.error = Some(error.clone());
        }
        self.finished = true;
        state.outbound.finished = true;
        let reader = state.inbound.reader.take();
        drop(state);
        self.cell.post();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Sends the head of a response and the first chunk of its body.
    fn send_response_with(&mut self, response: Response<()>, data: Payload, end: bool) {
        let mut state = self.cell.lock();
        if state.error.is_none() {
            let outbound = &mut state.outbound;
            outbound.queued += data.len();
            outbound
                .commands
                .push_back(StreamCommand::Response(response, false));
            outbound.commands.push_back(StreamCommand::Data(data, end));
        }
        if end {
            self.finished = true;
            state.outbound.finished = true;
        }
        drop(state);
        self.cell.post();
    }

    /// Queues a command and notifies the driver.
    fn queue(&mut self, command: StreamCommand, bytes: usize, end: bool) {
        let mut state = self.cell.lock();
        if state.error.is_none() {
            state.outbound.commands.push_back(command);
            state.outbound.queued += bytes;
        }
        if end {
            self.finished = true;
            state.outbound.finished = true;
        }
        drop(state);
        self.cell.post();
    }

    /// Waits until more of a body may be queued.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.cell.lock();
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        if state.outbound.has_room() {
            return Poll::Ready(Ok(()));
        }
        state.outbound.full = true;
        register(&mut state.outbound.writer, cx);
        Poll::Pending
    }

    /// Whether [`Self::poll_body`] waits for the peer rather than for the body.
    pub(crate) fn waits_for_room(&self) -> bool {
        let state = self.cell.lock();
        state.outbound.full && state.error.is_none()
    }

    /// Waits for the stream to fail.
    pub(crate) fn poll_failed(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let mut state = self.cell.lock();
        if let Some(error) = &state.error {
            return Poll::Ready(error.clone());
        }
        register(&mut state.outbound.writer, cx);
        Poll::Pending
    }

    /// Sends a body by reference, no faster than it leaves. A `head` precedes it, together with its first chunk if that is
    /// ready.
    pub(crate) fn poll_body<B>(
        &mut self,
        cx: &mut Context<'_>,
        head: Option<Response<()>>,
        body: Pin<&mut B>,
    ) -> Poll<Result<(), Error>>
    where
        B: Body,
        B::Data: Into<Chunk>,
        B::Error: Into<BoxError>,
    {
        self.poll_body_from(cx, head, None, body)
    }

    /// As [`Self::poll_body`], for a body that was polled once, and gave `first`.
    pub(crate) fn poll_body_from<B>(
        &mut self,
        cx: &mut Context<'_>,
        mut head: Option<Response<()>>,
        mut first: Option<PolledFrame<B>>,
        mut body: Pin<&mut B>,
    ) -> Poll<Result<(), Error>>
    where
        B: Body,
        B::Data: Into<Chunk>,
        B::Error: Into<BoxError>,
    {
        let mut empty = 0;
        loop {
            if empty == MANY_EMPTY {
                cx.waker().wake_by_ref();
                return self.poll_failed(cx).map(Err);
            }
            if head.is_none() {
                ready!(self.poll_room(cx))?;
            }
            let polled = first.take().unwrap_or_else(|| body.as_mut().poll_frame(cx));
            let has_chunk = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
            let head = match has_chunk {
                true => head.take(),
                false => {
                    if let Some(head) = head.take() {
                        self.send_response(head, false);
                    }
                    None
                }
            };
            let Poll::Ready(frame) = polled else {
                // A body that waits for its source is dropped when its stream fails.
                return self.poll_failed(cx).map(Err);
            };
            let Some(frame) = frame else {
                self.count(0, true)?;
                self.send_data(Bytes::new(), true);
                return Poll::Ready(Ok(()));
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Err(self.body_failed(error.into()))),
            };
            match frame.into_data() {
                Ok(data) => {
                    let end = body.is_end_stream();
                    let data = data.into().into_payload();
                    empty = if data.is_empty() { empty + 1 } else { 0 };
                    self.count(data.len(), end)?;
                    match head {
                        Some(head) if end || !data.is_empty() => self.send_response_with(head, data, end),
                        Some(head) => self.send_response(head, false),
                        None if end || !data.is_empty() => self.send_data(data, end),
                        None => {}
                    }
                    if end {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(frame) => {
                    empty += 1;
                    if let Ok(trailers) = frame.into_trailers() {
                        self.count(0, true)?;
                        self.send_trailers(trailers);
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }

    /// Counts a part of the body, and resets the stream if it has not the announced length. What was sent before may be all
    /// that was announced, so that END_STREAM must not follow.
    fn count(&mut self, bytes: usize, ends: bool) -> Result<(), Error> {
        let counted = self.length.count(bytes, ends);
        if let Err(error) = &counted {
            self.reset_for(ErrorCode::INTERNAL_ERROR, error);
        }
        counted
    }

    /// The body failed: resets the stream.
    fn body_failed(&mut self, error: BoxError) -> Error {
        let error = Error::body(error);
        self.reset_for(ErrorCode::INTERNAL_ERROR, &error);
        error
    }
}

impl Drop for Sender {
    /// A handler or a body has panicked, or its runtime has shut down. If the stream failed before, that is why it is dropped.
    fn drop(&mut self) {
        if !self.finished {
            self.reset_for(ErrorCode::INTERNAL_ERROR, &Error::body_dropped());
        }
    }
}
