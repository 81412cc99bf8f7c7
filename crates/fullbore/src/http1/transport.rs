//! The transport of an HTTP/1.1 connection. hyper reads and writes through one handle, [`HyperIo`]; the connection's future
//! has the other one, [`Transport`], which counts, reads ahead, and still has the transport when hyper is done with it.
//!
//! Both handles are used by the same task, so the lock is free, until an upgraded connection gives hyper's to another task.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};
use tokio_util::io::poll_read_buf;

use crate::cell::register;
use crate::linger::wake_after_sockets;
use crate::slices::poll_write_slices;

/// How much is read ahead while hyper does not read: whatever a client says during its request's response, one packet.
const AHEAD: usize = 1_460;

/// What hyper may read and write in one turn of the connection, in bytes: a slab and a write list of HTTP/2. Then every other
/// connection has its turn. hyper itself yields after 16 rounds, and before the runtime polls sockets.
const READ_TURN: usize = 256 << 10;
const WRITE_TURN: usize = 512 << 10;

/// Slices that together have at most so many bytes are written as one.
const SHORT_WRITE: usize = 512;

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
    io: Option<Take<T>>,
    /// How much is read at once.
    read_most: u64,
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
    /// Whether the heads that hyper has parsed are forgotten when it reads more.
    forgets: bool,
    /// The end of the last empty line in `noted`.
    parsed: usize,
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
            io: Some(io.take(u64::MAX)),
            read_most: u64::MAX,
            ahead: read,
            traffic,
            read_turn: READ_TURN,
            write_turn: WRITE_TURN,
            noted: Vec::new(),
            most_noted,
            notes: true,
            forgets: false,
            parsed: 0,
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

    /// Forgets what was noted of requests whenever hyper reads more: it has parsed all complete heads by then.
    pub(crate) fn forget_parsed(&self) {
        lock(&self.shared).forgets = true;
    }

    /// Reads at most so many bytes at once. hyper's buffer grows until reads do not fill it.
    pub(crate) fn limit_reads(&self, bytes: u64) {
        lock(&self.shared).read_most = bytes;
    }

    /// A turn of the connection ends, and the next one begins when it is polled.
    pub(crate) fn end_turn(&self) -> Traffic {
        let mut shared = lock(&self.shared);
        shared.read_turn = READ_TURN;
        shared.write_turn = WRITE_TURN;
        shared.traffic
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
        match poll_read_buf(Pin::new(io.get_mut()), cx, &mut read) {
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
        io.map(Take::into_inner)
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
    /// how much of it to forget. Nothing more is noted until [`Self::note_head`].
    pub(crate) fn with_noted<R>(&self, look: impl FnOnce(&[u8]) -> (R, usize)) -> R {
        let mut shared = lock(&self.shared);
        let (result, forget) = look(&shared.noted);
        shared.notes = false;
        shared.forget(forget);
        result
    }

    /// What hyper is given from now on belongs to a head.
    pub(crate) fn note_head(&self) {
        lock(&self.shared).notes = true;
    }
}

/// The bytes of all slices in `memory`, if it has the room.
fn gather<'a>(slices: &[IoSlice<'_>], memory: &'a mut [MaybeUninit<u8>]) -> Option<ReadBuf<'a>> {
    let mut gathered = ReadBuf::uninit(memory);
    for slice in slices {
        if slice.len() > gathered.remaining() {
            return None;
        }
        gathered.put_slice(slice);
    }
    Some(gathered)
}

/// The slices up to the one that ends the turn.
fn of_turn<'a>(slices: &'a [IoSlice<'a>], turn: usize) -> &'a [IoSlice<'a>] {
    let mut left = turn;
    let begins_in_turn = |slice: &&IoSlice<'_>| {
        let begins = left > 0;
        left = left.saturating_sub(slice.len());
        begins
    };
    let count = slices.iter().take_while(begins_in_turn).count();
    &slices[..count]
}

/// The end of the last empty line in `noted`, which has none that ends in its first `before` bytes.
fn end_of_heads(noted: &[u8], before: usize) -> usize {
    let is_end = |end: usize| noted[..end].ends_with(b"\n\r\n") || noted[..end].ends_with(b"\n\n");
    let ends = before + 1..=noted.len();
    ends.rev().find(|end| is_end(*end)).unwrap_or_default()
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    // The transport's own code may panic within the lock. The rest of the state is sound between any two steps.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: AsyncRead> Shared<T> {
    fn io(&mut self) -> io::Result<&mut T> {
        let io = self.io.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(io.get_mut())
    }
}

impl<T> Shared<T> {
    fn note(&mut self, read: &[u8]) {
        if self.forgets && (self.parsed > 0 || self.has_gap) {
            self.forget(self.parsed);
        }
        let before = self.noted.len();
        let room = self.most_noted.saturating_sub(before);
        self.has_gap |= read.len() > room;
        self.noted.extend_from_slice(&read[..read.len().min(room)]);
        if self.forgets {
            self.parsed = end_of_heads(&self.noted, before);
        }
    }

    /// Forgets the beginning of what was noted, and all of it if it has a gap.
    fn forget(&mut self, count: usize) {
        self.parsed = self.parsed.saturating_sub(count);
        let has_gap = std::mem::take(&mut self.has_gap);
        if count < self.noted.len() && !has_gap {
            self.noted.drain(..count);
            return;
        }
        self.parsed = 0;
        if self.noted.capacity() > KEPT_NOTE {
            self.noted = Vec::new();
        } else {
            self.noted.clear();
        }
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
                false => {
                    let io = shared.io.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                    io.set_limit(shared.read_most);
                    Pin::new(io).poll_read(cx, buffer)
                }
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HyperIo<T> {
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
        let slices = of_turn(slices, shared.write_turn);
        let io = Pin::new(shared.io()?);
        // `send` costs the operating system less than `writev`, by more than such a copy.
        let mut short = [MaybeUninit::uninit(); SHORT_WRITE];
        let written = match gather(slices, &mut short) {
            Some(gathered) => io.poll_write(cx, gathered.filled()),
            None => poll_write_slices(io, cx, slices),
        };
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::slices::Calls;

    /// What is noted after each of these reads.
    async fn notes(reads: &[&[u8]]) -> Vec<Vec<u8>> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (transport, mut io) = Transport::new(near, Bytes::new(), 32);
        transport.forget_parsed();
        let mut notes = Vec::new();
        for octets in reads {
            far.write_all(octets).await.expect("room in the pipe");
            let mut read = vec![0; octets.len()];
            io.read_exact(&mut read).await.expect("what was written");
            assert_eq!(read, *octets);
            notes.push(lock(&transport.shared).noted.clone());
        }
        notes
    }

    #[tokio::test]
    async fn heads_are_forgotten_when_more_is_read() {
        for end in ["\r\n\r\n", "\n\n", "\r\n\n"] {
            let heads = [format!("a{end}"), format!("b{end}c"), format!("d{end}")];
            let reads: Vec<_> = heads.iter().map(String::as_bytes).collect();
            let together = format!("cd{end}").into_bytes();
            let expected = vec![reads[0].to_vec(), reads[1].to_vec(), together];
            assert_eq!(notes(&reads).await, expected, "{end:?}");
        }
        let split: [&[u8]; 4] = [b"a\r", b"\n\r", b"\nb", b"c"];
        let expected: [&[u8]; 4] = [b"a\r", b"a\r\n\r", b"a\r\n\r\nb", b"bc"];
        assert_eq!(notes(&split).await, expected);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_forgotten_with_what_was_before_it() {
        let long = [b'x'; 40];
        let notes = notes(&[b"ab", &long, b"c\n\n", b"d"]).await;
        assert_eq!(notes[1].len(), 32);
        assert_eq!(notes[2..], [b"c\n\n".to_vec(), b"d".to_vec()]);
    }

    #[tokio::test]
    async fn reads_are_no_longer_than_their_limit() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (transport, mut io) = Transport::new(near, Bytes::new(), 0);
        far.write_all(&[b'a'; 3_000]).await.expect("room in the pipe");
        let mut memory = [0; 4_096];
        for (limit, bytes) in [(1_000, 1_000), (1_500, 1_500), (1_000, 500)] {
            transport.limit_reads(limit);
            assert_eq!(io.read(&mut memory).await.expect("what was written"), bytes);
        }
    }

    #[tokio::test]
    async fn short_slices_are_written_as_one() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (transport, mut io) = Transport::new(Calls::of(near), Bytes::new(), 0);
        for (length, plain, vectored) in [(12, 1, 0), (SHORT_WRITE - 4, 2, 0), (SHORT_WRITE, 2, 1)] {
            let body = vec![b'b'; length];
            let slices = [IoSlice::new(b"head"), IoSlice::new(&body)];
            let written = io.write_vectored(&slices).await.expect("room in the pipe");
            assert_eq!(written, 4 + length);
            let mut read = vec![0; written];
            far.read_exact(&mut read).await.expect("what was written");
            assert!(read.starts_with(b"headb") && read.ends_with(b"b"));
            let calls = lock(&transport.shared);
            let calls = calls.io.as_ref().expect("nobody took it").get_ref();
            assert_eq!((calls.plain, calls.vectored), (plain, vectored));
        }
        assert_eq!(transport.traffic().sent, 12 + 2 * SHORT_WRITE as u64 + 8);
    }
}
