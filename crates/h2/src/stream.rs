//! What a connection knows of one stream besides its engine: what was received and not handed out, what the handles wait for,
//! and what ended it.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};

use crate::error::Error;
use crate::failure::{Failure, Initiator, UserError};
use crate::reason::Reason;

/// The chunks that wait to be read before short ones are copied together.
const MANY_CHUNKS: usize = 64;

/// Chunks below this length are short.
const SHORT_CHUNK: usize = 2_048;

/// The most bytes that are copied together.
const GATHERED_CHUNK: usize = 16_384;

/// How far a message of this endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The response is to be sent.
    Head,
    Body,
    /// The end is queued.
    Ended,
}

/// A head that a client has received.
#[derive(Debug)]
pub(crate) enum Head {
    Response(Response<()>),
    Informational(Response<()>),
}

/// Which handle asks whether the stream was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The one that sends the response.
    Response,
    /// The one that sends the body.
    Body,
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The handles of it.
    pub(crate) handles: u32,
    /// None on most streams of a server.
    fields: Option<Box<Fields>>,
    chunks: VecDeque<Bytes>,
    /// Whether the message of the peer is complete.
    received_all: bool,
    /// Whether the handle that reads the body is gone.
    pub(crate) discards: bool,
    /// Whether there was a chunk.
    has_body: bool,
    /// Bytes that were received and not released.
    in_flight: u64,
    receiver: Option<Waker>,
    pub(crate) sending: Sending,
    /// What is to be sent beyond what is queued.
    pub(crate) reserved: usize,
    /// The capacity that the sender knows of.
    known_capacity: usize,
    sender: Option<Waker>,
    failure: Option<Box<Failure>>,
}

/// The memory of a stream. There may be 100,000 of a connection, and their map is up to half empty.
const _: () = assert!(size_of::<Stream>() <= 120);

/// What was received and not read besides the body, and who waits for the beginning of the stream.
#[derive(Debug, Default)]
struct Fields {
    /// Informational responses come before the final one.
    informational: VecDeque<Response<()>>,
    response: Option<Response<()>>,
    trailers: Option<HeaderMap>,
    /// Who waits until the stream is opened, to send another request. The body's own task may wait at the same time.
    opening: Option<Waker>,
}

impl Stream {
    pub(crate) fn new(sending: Sending) -> Self {
        Stream {
            handles: 0,
            fields: None,
            chunks: VecDeque::new(),
            received_all: false,
            discards: false,
            has_body: false,
            in_flight: 0,
            receiver: None,
            sending,
            reserved: 0,
            known_capacity: 0,
            sender: None,
            failure: None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.failure.is_some() || self.received_all && self.sending == Sending::Ended
    }

    pub(crate) fn can_send_body(&self) -> bool {
        self.failure.is_none() && self.sending == Sending::Body
    }

    pub(crate) fn receive_head(&mut self, head: Head, end: bool) {
        self.received_all |= end;
        let fields = self.fields.get_or_insert_default();
        match head {
            Head::Response(response) => fields.response = Some(response),
            Head::Informational(response) => fields.informational.push_back(response),
        }
        self.wake_receiver();
    }

    /// Takes the chunks that the engine has by `read`. Returns how many bytes that were.
    pub(crate) fn receive_chunks<R>(&mut self, read: impl FnOnce(&mut VecDeque<Bytes>) -> R) -> (R, u64) {
        let before = self.chunks.len();
        let result = read(&mut self.chunks);
        let bytes = self.chunks.range(before..).map(|chunk| chunk.len() as u64).sum();
        self.in_flight += bytes;
        self.has_body |= bytes > 0;
        if self.chunks.len() > MANY_CHUNKS {
            self.gather(before.max(MANY_CHUNKS));
        }
        (result, bytes)
    }

    /// Copies short chunks from `from` on together, so that unread frames of a byte cost little more than a byte.
    fn gather(&mut self, from: usize) {
        let late = self.chunks.split_off(from.min(self.chunks.len()));
        for chunk in late {
            let last = self.chunks.back().map_or(usize::MAX, Bytes::len);
            if chunk.len() >= SHORT_CHUNK || last + chunk.len() > GATHERED_CHUNK {
                self.chunks.push_back(chunk);
                continue;
            }
            let last = self.chunks.pop_back().unwrap_or_default();
            // Without a copy of what was gathered before, unless somebody else holds it.
            let mut gathered = last
                .try_into_mut()
                .unwrap_or_else(|last| BytesMut::from(&last[..]));
            gathered.extend_from_slice(&chunk);
            self.chunks.push_back(gathered.freeze());
        }
    }

    /// A message that ended in DATA without a byte has an empty chunk, unlike one that ended in its head.
    pub(crate) fn receive_empty_body(&mut self) {
        if !self.has_body && !self.received_all && !self.discards {
            self.chunks.push_back(Bytes::new());
        }
    }

    pub(crate) fn receive_end(&mut self, trailers: Option<HeaderMap>) {
        self.received_all = true;
        if trailers.is_some() {
            self.fields.get_or_insert_default().trailers = trailers;
        }
    }

    /// Ends the stream, unless it has ended.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert_with(|| Box::new(failure));
        self.wake_sender();
        self.wake_receiver();
    }

    /// As [`Self::fail`], unless both messages are complete.
    pub(crate) fn fail_open(&mut self, failure: &Failure) {
        if !self.is_closed() {
            self.fail(failure.clone());
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn poll_response(&mut self, cx: &Context<'_>) -> Poll<Result<Response<()>, Error>> {
        if let Some(fields) = &mut self.fields {
            fields.informational.clear();
            if let Some(response) = fields.response.take() {
                // Only the trailers may be left.
                if fields.trailers.is_none() {
                    self.fields = None;
                }
                return Poll::Ready(Ok(response));
            }
        }
        if let Some(failure) = &self.failure {
            return Poll::Ready(Err(Failure::clone(failure).into()));
        }
        if self.received_all {
            let failure = Failure::Reset(Reason::PROTOCOL_ERROR, Initiator::Library);
            return Poll::Ready(Err(failure.into()));
        }
        self.wait_to_receive(cx)
    }

    pub(crate) fn poll_informational(
        &mut self,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Response<()>, Error>>> {
        if let Some(fields) = &mut self.fields {
            if let Some(response) = fields.informational.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if fields.response.is_some() {
                return Poll::Ready(None);
            }
        }
        self.poll_end(cx)
    }

    pub(crate) fn poll_data(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        match self.chunks.pop_front() {
            Some(chunk) => {
                if self.chunks.is_empty() {
                    // Another task may wait for the trailers, which come after the data.
                    self.wake_receiver();
                }
                Poll::Ready(Some(Ok(chunk)))
            }
            None => self.poll_end(cx),
        }
    }

    pub(crate) fn poll_trailers(&mut self, cx: &Context<'_>) -> Poll<Result<Option<HeaderMap>, Error>> {
        if !self.chunks.is_empty() {
            // They come after the data.
            return self.wait_to_receive(cx);
        }
        let fields = self.fields.as_mut();
        if let Some(trailers) = fields.and_then(|fields| fields.trailers.take()) {
            return Poll::Ready(Ok(Some(trailers)));
        }
        match self.poll_end::<()>(cx) {
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
            Poll::Ready(_) => Poll::Ready(Ok(None)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// None after the end of the message, an error if it will not come.
    fn poll_end<T>(&mut self, cx: &Context<'_>) -> Poll<Option<Result<T, Error>>> {
        // What a reset comes after stays complete.
        if self.received_all {
            return Poll::Ready(None);
        }
        match &self.failure {
            Some(failure) => Poll::Ready(Some(Err(Failure::clone(failure).into()))),
            None => self.wait_to_receive(cx),
        }
    }

    /// Whether the message is complete, and all of it was read.
    pub(crate) fn is_at_end(&self) -> bool {
        let is_empty = |fields: &Fields| {
            fields.informational.is_empty() && fields.response.is_none() && fields.trailers.is_none()
        };
        self.received_all && self.chunks.is_empty() && self.fields.as_deref().is_none_or(is_empty)
    }

    fn wait_to_receive<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        wait(&mut self.receiver, cx);
        Poll::Pending
    }

    pub(crate) fn wake_receiver(&mut self) {
        wake(&mut self.receiver);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Releases bytes that were received.
    pub(crate) fn release(&mut self, bytes: u64) -> Result<(), UserError> {
        self.in_flight = self
            .in_flight
            .checked_sub(bytes)
            .ok_or(UserError::ReleaseCapacityTooBig)?;
        Ok(())
    }

    /// Drops what was received and not handed out. Returns how many bytes of it were not released.
    pub(crate) fn drop_unread(&mut self) -> u64 {
        self.fields = None;
        let unread: u64 = self.chunks.drain(..).map(|chunk| chunk.len() as u64).sum();
        let unread = unread.min(self.in_flight);
        self.in_flight -= unread;
        unread
    }

    /// The sender knows of no more than this capacity.
    pub(crate) fn lower_known_capacity(&mut self, capacity: usize) {
        self.known_capacity = self.known_capacity.min(capacity);
    }

    /// The sender has used so much of the capacity that it knows of. What it does not know of yet is still to be told.
    pub(crate) fn use_known_capacity(&mut self, bytes: usize) {
        self.known_capacity = self.known_capacity.saturating_sub(bytes);
    }

    /// The capacity, if it is more than the sender knows of.
    pub(crate) fn take_capacity(&mut self, capacity: usize) -> Option<usize> {
        let rises = capacity > self.known_capacity;
        self.known_capacity = capacity;
        rises.then_some(capacity)
    }

    pub(crate) fn poll_reset(&mut self, cx: &Context<'_>, asker: Asker) -> Poll<Result<Reason, Error>> {
        if let Some(failure) = &self.failure {
            return Poll::Ready(match failure.reason() {
                Some(reason) => Ok(reason),
                None => Err(Failure::clone(failure).into()),
            });
        }
        if self.sending == Sending::Body && asker == Asker::Response {
            return Poll::Ready(Err(UserError::PollResetAfterSendResponse.into()));
        }
        self.wait_to_send(cx)
    }

    pub(crate) fn wait_to_send<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        wait(&mut self.sender, cx);
        Poll::Pending
    }

    /// As [`Self::wait_to_send`], until the stream is opened.
    pub(crate) fn wait_to_open<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        wait(&mut self.fields.get_or_insert_default().opening, cx);
        Poll::Pending
    }

    pub(crate) fn wake_sender(&mut self) {
        wake(&mut self.sender);
        if let Some(fields) = &mut self.fields {
            wake(&mut fields.opening);
        }
    }
}

fn wait(task: &mut Option<Waker>, cx: &Context<'_>) {
    match task {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *task = Some(cx.waker().clone()),
    }
}

fn wake(task: &mut Option<Waker>) {
    if let Some(waker) = task.take() {
        waker.wake();
    }
}
