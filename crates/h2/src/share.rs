//! The handles that clients and servers share: of bodies both ways, of credit, and of PING.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;

use crate::bodies::{COPY_BELOW, Outbox};
use crate::error::Error;
use crate::failure::UserError;
use crate::handle::Handle;
use crate::reason::Reason;
use crate::state::{Shared, State};
use crate::stream::Asker;

/// The most bytes that a window may hold.
const MAX_WINDOW: usize = (1 << 31) - 1;

/// The sending half of a stream: the body of a request or a response, its trailers, or a reset.
///
/// [`Self::send_data`] takes any amount and never waits. To hold no more than can leave, reserve capacity first and wait until
/// some is there: [`Self::reserve_capacity`], [`Self::poll_capacity`].
///
/// When the last handle of an incomplete stream is dropped, the stream is reset with CANCEL.
#[derive(Debug)]
pub struct SendStream<B> {
    handle: Handle,
    outbox: Arc<Outbox<B>>,
}

impl<B: Buf> SendStream<B> {
    pub(crate) fn new(handle: Handle, outbox: Arc<Outbox<B>>) -> Self {
        SendStream { handle, outbox }
    }

    /// Asks for capacity to send `capacity` bytes beyond what is queued. The number replaces an earlier one; 0 gives all of it
    /// back.
    ///
    /// Capacity counts at once as far as both flow-control windows and the send buffer allow. The rest follows as they do:
    /// see [`Self::poll_capacity`].
    pub fn reserve_capacity(&mut self, capacity: usize) {
        let mut state = self.handle.lock();
        state.reserve_capacity(self.handle.id(), capacity);
    }

    /// The bytes that may be sent at once: never more than were reserved.
    pub fn capacity(&self) -> usize {
        self.handle.lock().capacity(self.handle.id())
    }

    /// Waits until the capacity is larger than it was when last seen, and returns it. It is never 0. None once the body cannot
    /// continue: its end was sent, or the stream was reset.
    pub fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<usize, Error>>> {
        self.handle.lock().poll_capacity(self.handle.id(), cx)
    }

    /// Sends a part of the body; with `end_of_stream` it is the last.
    ///
    /// What the windows do not allow is kept, without a limit.
    ///
    /// # Errors
    /// The stream has ended, or its end was sent before.
    pub fn send_data(&mut self, data: B, end_of_stream: bool) -> Result<(), Error> {
        let id = self.handle.id();
        let length = data.remaining();
        let is_short = length < COPY_BELOW;
        if !is_short {
            // A buffer that cannot be sent does not wait for the connection to drop it.
            self.handle.lock().check_data(id, length)?;
        }
        // Not under the mutex: copying and dropping are the user's code.
        let payload = self.outbox.put(data);
        let mut state = self.handle.lock();
        if is_short {
            state.check_data(id, length)?;
        }
        state.send_data(id, payload, end_of_stream)
    }

    /// Sends the trailers, which end the stream after all data.
    ///
    /// # Errors
    /// The stream has ended, its end was sent before, or a field is not allowed in trailers.
    pub fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), Error> {
        self.handle.lock().send_trailers(self.handle.id(), trailers)
    }

    /// Ends the stream at once with RST_STREAM. Data that has not left is dropped.
    pub fn send_reset(&mut self, reason: Reason) {
        self.handle.lock().send_reset(self.handle.id(), reason);
    }

    /// Waits until either side resets the stream. Pending for ever if it ends otherwise.
    ///
    /// # Errors
    /// The transport failed.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, Error>> {
        self.handle.poll(|stream| stream.poll_reset(cx, Asker::Body))
    }

    /// The identifier of the stream.
    pub fn stream_id(&self) -> StreamId {
        StreamId::of(self.handle.id())
    }
}

/// The identifier of a stream (RFC 9113 section 5.1.1).
#[derive(Debug, Clone, Copy, Eq, PartialEq, Hash)]
pub struct StreamId(u32);

impl StreamId {
    pub(crate) fn of(id: fullbore_proto::StreamId) -> Self {
        StreamId(id.value())
    }

    /// The number.
    pub fn as_u32(&self) -> u32 {
        self.0
    }
}

impl From<StreamId> for u32 {
    fn from(id: StreamId) -> Self {
        id.0
    }
}

/// The receiving half of a stream: the body of a request or a response, and its trailers.
///
/// Bytes that were handed out count against the windows until [`FlowControl::release_capacity`]. When the handle is dropped,
/// what it has not handed out is released, and what still arrives is discarded.
#[must_use = "streams do nothing unless polled"]
pub struct RecvStream {
    flow_control: FlowControl,
}

impl RecvStream {
    pub(crate) fn new(handle: Handle) -> Self {
        let flow_control = FlowControl { handle };
        RecvStream { flow_control }
    }

    /// The next part of the body. None at its end; trailers may follow.
    pub async fn data(&mut self) -> Option<Result<Bytes, Error>> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// The trailers, once the body was read. None if there are none.
    pub async fn trailers(&mut self) -> Result<Option<HeaderMap>, Error> {
        poll_fn(|cx| self.poll_trailers(cx)).await
    }

    /// As [`Self::data`].
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        self.flow_control.handle.poll(|stream| stream.poll_data(cx))
    }

    /// As [`Self::trailers`].
    #[doc(hidden)]
    pub fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, Error>> {
        self.flow_control.handle.poll(|stream| stream.poll_trailers(cx))
    }

    /// Whether the message is complete and all of it was read. Then [`Self::data`] returns None at once.
    ///
    /// False does not mean that there is more: the end may be under way.
    pub fn is_end_stream(&self) -> bool {
        let handle = &self.flow_control.handle;
        let mut state = handle.lock();
        state.stream(handle.id()).is_none_or(|stream| stream.is_at_end())
    }

    /// The handle that returns credit. Clones of it may outlive the body.
    pub fn flow_control(&mut self) -> &mut FlowControl {
        &mut self.flow_control
    }

    /// The identifier of the stream.
    pub fn stream_id(&self) -> StreamId {
        self.flow_control.stream_id()
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for RecvStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_data(cx)
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream")
            .field("handle", &self.flow_control.handle)
            .finish()
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.flow_control.handle.release(State::discard);
    }
}

/// Returns credit to the peer for bytes that a [`RecvStream`] has handed out.
///
/// ```no_run
/// # async fn example(mut body: h2::RecvStream) -> Result<(), h2::Error> {
/// while let Some(chunk) = body.data().await {
///     let chunk = chunk?;
///     // Once the bytes take no more memory, the peer may send others.
///     body.flow_control().release_capacity(chunk.len())?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlowControl {
    handle: Handle,
}

impl FlowControl {
    /// The identifier of the stream.
    pub fn stream_id(&self) -> StreamId {
        StreamId::of(self.handle.id())
    }

    /// The bytes that the peer may send besides those that were received and not released. Negative after the window was
    /// lowered below them.
    pub fn available_capacity(&self) -> isize {
        let capacity = self.handle.lock().available_capacity(self.handle.id());
        isize::try_from(capacity).unwrap_or(isize::MAX)
    }

    /// The bytes that were received and not released.
    pub fn used_capacity(&self) -> usize {
        let bytes = self.handle.lock().used_capacity(self.handle.id());
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Releases bytes, of the stream and of the connection.
    ///
    /// # Errors
    /// `sz` is more than [`Self::used_capacity`].
    pub fn release_capacity(&mut self, sz: usize) -> Result<(), Error> {
        if sz > MAX_WINDOW {
            return Err(UserError::ReleaseCapacityTooBig.into());
        }
        let mut state = self.handle.lock();
        state.release_capacity(self.handle.id(), sz as u64)
    }
}

/// Sends PING and waits for the answer. A connection hands out one such handle.
pub struct PingPong {
    shared: Arc<Shared>,
}

impl PingPong {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        PingPong { shared }
    }

    /// Sends PING and waits for the answer.
    ///
    /// # Errors
    /// An earlier PING is not answered yet, or the connection has ended.
    pub async fn ping(&mut self, ping: Ping) -> Result<Pong, Error> {
        self.send_ping(ping)?;
        poll_fn(|cx| self.poll_pong(cx)).await
    }

    /// Sends PING. [`Self::poll_pong`] waits for the answer.
    #[doc(hidden)]
    pub fn send_ping(&mut self, ping: Ping) -> Result<(), Error> {
        let Ping { _private: () } = ping;
        self.shared.lock().send_ping()
    }

    /// Waits for the answer to PING.
    #[doc(hidden)]
    pub fn poll_pong(&mut self, cx: &mut Context<'_>) -> Poll<Result<Pong, Error>> {
        let answer = self.shared.lock().poll_pong(cx);
        answer.map_ok(|()| Pong { _private: () })
    }
}

impl fmt::Debug for PingPong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PingPong").finish_non_exhaustive()
    }
}

/// A PING to be sent (RFC 9113 section 6.7).
pub struct Ping {
    _private: (),
}

impl Ping {
    /// A PING whose data this crate chooses.
    pub fn opaque() -> Ping {
        Ping { _private: () }
    }
}

impl fmt::Debug for Ping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ping").finish()
    }
}

/// The answer to a PING.
pub struct Pong {
    _private: (),
}

impl fmt::Debug for Pong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pong").finish()
    }
}
