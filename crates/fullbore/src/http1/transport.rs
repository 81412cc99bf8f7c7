//! The transport of an HTTP/1.1 connection. hyper reads and writes through one handle, [`HyperIo`]; the connection's future
//! has the other one, [`Transport`], which counts, reads ahead, and still has the transport when hyper is done with it.
//!
//! Both handles are used by the same task, so the lock is free, until an upgraded connection gives hyper's to another task.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::cell::register;
use crate::linger::wake_after_sockets;

/// How much is read ahead while hyper does not read: whatever a client says during its request's response, one packet.
const AHEAD: usize = 1_460;

/// What hyper may read and write in one turn of the connection, in bytes: a slab and a write list of HTTP/2. Then every other
/// connection has its turn. hyper itself yields after 16 rounds, and before the runtime polls sockets.
const READ_TURN: usize = 256 << 10;
const WRITE_TURN: usize = 512 << 10;

/// A note with more capacity than this is freed.
const KEPT_NOTE: usize = 2 << 10;

/// The connection's handle.
pub(crate) struct Transport<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

/// hyper's handle.
pub(crate) struct HyperIo<T> {
    shared: Arc<Mutex<Shared<T>>>,
    vectored: bool,
}

struct Shared<T> {
    /// None once the connection has taken it back.
    io: Option<T>,
    /// What was read and not passed on to hyper.
    ahead: Bytes,
    traffic: Traffic,
    /// What may still be read and written in this turn.
    read_turn: usize,
    write_turn: usize,
    /// What hyper was given of the next head, up to `most_noted` bytes.
    noted: Vec<u8>,
    most_noted: usize,
    notes: bool,
    /// Something was not noted for lack of room.
    has_gap: bool,
    /// Woken when hyper's handle is dropped.
    owner: Option<Waker>,
    /// Woken when the connection takes the transport back.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What has passed through a transport.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// Bytes that were received.
    pub(crate) received: u64,
    /// Bytes that the transport has taken.
    pub(crate) sent: u64,
    /// hyper waits for bytes.
    pub(crate) awaits_read: bool,
    /// hyper waits until the transport takes more.
    pub(crate) awaits_write: bool,
    /// The peer has ended its half.
    pub(crate) ended: bool,
    /// The transport has failed while hyper did not read.
    pub(crate) failed: bool,
    /// hyper has dropped its handle.
    pub(crate) released: bool,
}

impl<T> Transport<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Handles of a transport from which `read` was read before. [`Self::with_noted`] is given up to `most_noted` bytes.
    pub(crate) fn new(io: T, read: Bytes, most_noted: usize) -> (Self, HyperIo<T>) {
        let vectored = io.is_write_vectored();
        let traffic = Traffic {
            received: read.len() as u64,
            ..Traffic::default()
        };
        let shared = Arc::new(Mutex::new(Shared {
            io: Some(io),
            ahead: read,
            traffic,
            read_turn: READ_TURN,
            write_turn: WRITE_TURN,
            noted: Vec::new(),
            most_noted,
            notes: true,
            has_gap: false,
            owner: None,
            reader: None,
            writer: None,
        }));
        let transport = Transport {
            shared: Arc::clone(&shared),
        };
        (transport, HyperIo { shared, vectored })
    }

    pub(crate) fn traffic(&self) -> Traffic {
        lock(&self.shared).traffic
    }

    /// A turn of the connection begins.
    pub(crate) fn begin_turn(&self) {
        let mut shared = lock(&self.shared);
        shared.read_turn = READ_TURN;
        shared.write_turn = WRITE_TURN;
    }

    /// The connection becomes a tunnel, whose reader and writer are other tasks.
    pub(crate) fn end_turns(&self) {
        let mut shared = lock(&self.shared);
        shared.read_turn = usize::MAX;
        shared.write_turn = usize::MAX;
    }

    /// Reads ahead, if hyper does not read: notices that the peer has ended its half.
    pub(crate) fn poll_ahead(&self, cx: &mut Context<'_>) {
        let mut shared = lock(&self.shared);
        let shared = &mut *shared;
        let Some(io) = &mut shared.io else { return };
        if shared.traffic.ended || shared.traffic.awaits_read || !shared.ahead.is_empty() {
            return;
        }
        let mut read = BytesMut::with_capacity(AHEAD);
        match poll_read_buf(Pin::new(io), cx, &mut read) {
            Poll::Ready(Ok(0)) => shared.traffic.ended = true,
            Poll::Ready(Err(_)) => shared.traffic.failed = true,
            Poll::Ready(Ok(count)) => {
                shared.traffic.received += count as u64;
                shared.ahead = read.freeze();
            }
            Poll::Pending => {}
        }
    }

    /// Has the task woken when hyper's handle is dropped.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        register(&mut lock(&self.shared).owner, cx);
    }

    /// Takes the transport back. For hyper's handle it has failed then.
    pub(crate) fn take(&self) -> Option<T> {
        let mut shared = lock(&self.shared);
        let io = shared.io.take();
        let users = [shared.reader.take(), shared.writer.take()];
        drop(shared);
        for user in users.into_iter().flatten() {
            user.wake();
        }
        io
    }
}

impl<T> Transport<T> {
    /// Another handle, for the service of the connection.
    pub(crate) fn share(&self) -> Self {
        Transport {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Passes to `look` what hyper was given of the head that it has parsed, and perhaps of what follows. `look` also returns
    /// how much of it to forget. `goes_on` says whether the bytes that follow belong to a head.
    pub(crate) fn with_noted<R>(&self, goes_on: bool, look: impl FnOnce(&[u8]) -> (R, usize)) -> R {
        let mut shared = lock(&self.shared);
        let (result, forget) = look(&shared.noted);
        shared.notes = goes_on;
        let has_gap = std::mem::take(&mut shared.has_gap);
        if forget < shared.noted.len() && !has_gap {
            shared.noted.drain(..forget);
        } else if shared.noted.capacity() > KEPT_NOTE {
            shared.noted = Vec::new();
        } else {
            shared.noted.clear();
        }
        result
    }

    /// What hyper is given from now on belongs to a head.
    pub(crate) fn note_head(&self) {
        lock(&self.shared).notes = true;
    }
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // The transport's own code may panic within the lock. The rest of the state is sound between any two steps.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Shared<T> {
    fn io(&mut self) -> io::Result<&mut T> {
        self.io.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn note(&mut self, read: &[u8]) {
        let room = self.most_noted.saturating_sub(self.noted.len());
        self.has_gap |= read.len() > room;
        self.noted.extend_from_slice(&read[..read.len().min(room)]);
    }

    /// Notes what a call for a writing task returned.
    fn waits<R>(&mut self, cx: &Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.traffic.awaits_write = polled.is_pending();
        if polled.is_pending() {
            register(&mut self.writer, cx);
        }
        polled
    }

    /// Counts what a write returned.
    fn wrote(&mut self, cx: &Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.traffic.sent += *count as u64;
            self.write_turn = self.write_turn.saturating_sub(*count);
        }
        self.waits(cx, written)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HyperIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.shared);
        let shared = &mut *shared;
        let before = buffer.filled().len();
        if shared.ahead.is_empty() {
            if shared.read_turn == 0 {
                wake_after_sockets(cx);
                return Poll::Pending;
            }
            let read = match shared.traffic.ended {
                true => Poll::Ready(Ok(())),
                false => Pin::new(shared.io()?).poll_read(cx, buffer),
            };
            shared.traffic.awaits_read = read.is_pending();
            if read.is_pending() {
                register(&mut shared.reader, cx);
            }
            ready!(read)?;
            let count = buffer.filled().len() - before;
            shared.read_turn = shared.read_turn.saturating_sub(count);
            shared.traffic.received += count as u64;
            shared.traffic.ended |= count == 0 && buffer.remaining() > 0;
        } else {
            let count = shared.ahead.len().min(buffer.remaining());
            buffer.put_slice(&shared.ahead[..count]);
            shared.ahead.advance(count);
            shared.traffic.awaits_read = false;
            if shared.ahead.is_empty() {
                shared.ahead = Bytes::new();
            }
        }
        if shared.notes {
            shared.note(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HyperIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.shared);
        if shared.write_turn == 0 {
            wake_after_sockets(cx);
            return Poll::Pending;
        }
        let written = Pin::new(shared.io()?).poll_write(cx, bytes);
        shared.wrote(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.shared);
        if shared.write_turn == 0 {
            wake_after_sockets(cx);
            return Poll::Pending;
        }
        let written = Pin::new(shared.io()?).poll_write_vectored(cx, slices);
        shared.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.shared);
        let flushed = Pin::new(shared.io()?).poll_flush(cx);
        shared.waits(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = lock(&self.shared);
        let shut = Pin::new(shared.io()?).poll_shutdown(cx);
        shared.waits(cx, shut)
    }
}

impl<T> Drop for HyperIo<T> {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.traffic.released = true;
        let owner = shared.owner.take();
        drop(shared);
        if let Some(owner) = owner {
            owner.wake();
        }
    }
}
