//! The transport of an HTTP/1.1 connection. hyper reads and writes through one handle, [`HyperIo`], which has the transport; the
//! connection's future has the other one, [`Transport`], which gets the transport back when hyper is done with it.
//!
//! An upgraded connection gives hyper's handle to another task. The transport then lies between the two, behind a lock, so
//! that the connection can still close it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::meter::{AWAITS_READ, AWAITS_WRITE, ENDED, ENDLESS, FAILED, Meter, RELEASED, TAKEABLE, Traffic};
use super::target::Targets;
use crate::cell::register;
use crate::slices::poll_send_slices;
use crate::tcp;
use crate::tcp::TcpBelow;
use crate::turns::wake_after_sockets;

/// How much is read ahead while hyper does not read: whatever a client says during its request's response, one packet.
const AHEAD: usize = 1_460;

/// What hyper may read and write in one turn of the connection, in bytes: a slab and a write list of HTTP/2. Then every other
/// connection has its turn. hyper itself yields after 16 rounds, and before the runtime polls sockets.
const READ_TURN: usize = 256 << 10;
pub(crate) const WRITE_TURN: usize = 512 << 10;

/// Slices that together have at most so many bytes are written as one.
const SHORT_WRITE: usize = 4 << 10;

/// The connection's handle.
pub(crate) struct Transport<T> {
    meter: Arc<Meter>,
    between: Arc<Mutex<Between<T>>>,
}

/// hyper's handle. What every request needs comes first, so that it is on one line of the processor's cache.
#[repr(C)]
pub(crate) struct HyperIo<T> {
    meter: Arc<Meter>,
    /// The turn of the connection, and what may still be read and written in it.
    turn: u64,
    read_turn: usize,
    write_turn: usize,
    /// How much is read at once.
    read_most: usize,
    vectored: bool,
    /// What was read and not passed on to hyper.
    ahead: Option<Box<Bytes>>,
    /// None while the transport lies between the handles.
    io: Option<T>,
    between: Arc<Mutex<Between<T>>>,
    /// Of a server.
    targets: Option<Targets>,
    /// The TCP connection below, of a server that has not begun to record what this connection waits for.
    tcp: Option<TcpBelow<T>>,
}

/// What lies between the two handles.
struct Between<T> {
    io: Option<T>,
    /// Woken when hyper's handle is dropped.
    owner: Option<Waker>,
    /// Woken when the connection takes the transport back.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Who waits for the transport.
#[derive(Clone, Copy)]
enum User {
    Reader,
    Writer,
}

impl<T> Transport<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Handles of a transport from which `read` was read before. [`Meter::with_noted`] is given up to `most_noted` bytes.
    pub(crate) fn new(io: T, read: Bytes, most_noted: usize) -> (Self, HyperIo<T>) {
        let meter = Arc::new(Meter::new(read.len() as u64, most_noted));
        let between = Arc::new(Mutex::new(Between {
            io: None,
            owner: None,
            reader: None,
            writer: None,
        }));
        let transport = Transport {
            meter: Arc::clone(&meter),
            between: Arc::clone(&between),
        };
        let io = HyperIo {
            vectored: io.is_write_vectored(),
            io: Some(io),
            read_most: usize::MAX,
            ahead: Some(read).filter(|read| !read.is_empty()).map(Box::new),
            turn: meter.turn(),
            read_turn: READ_TURN,
            write_turn: WRITE_TURN,
            meter,
            between,
            targets: None,
            tcp: None,
        };
        (transport, io)
    }

    /// What the connection shares with its service.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.meter.traffic()
    }

    /// Has the task woken when hyper's handle is dropped.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        register(&mut lock(&self.between).owner, cx);
    }

    /// Takes the transport back: when hyper's handle is dropped, or after [`Meter::let_take`]. For the handle it has failed then.
    pub(crate) fn take(&self) -> Option<T> {
        let mut between = lock(&self.between);
        let io = between.io.take();
        let users = [between.reader.take(), between.writer.take()];
        drop(between);
        for user in users.into_iter().flatten() {
            user.wake();
        }
        io
    }
}

/// Writes slices of at most [`SHORT_WRITE`] bytes as one: `send` costs the operating system less than `writev`, by more than such
/// a copy.
#[inline(never)]
fn write_short<T: AsyncWrite>(
    io: Pin<&mut T>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let mut short = [MaybeUninit::uninit(); SHORT_WRITE];
    let mut short = ReadBuf::uninit(&mut short);
    for slice in slices {
        short.put_slice(slice);
    }
    io.poll_write(cx, short.filled())
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

fn lock<T>(between: &Mutex<Between<T>>) -> MutexGuard<'_, Between<T>> {
    // The transport's own code may panic within the lock. The rest of the state is sound between any two steps.
    between.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> HyperIo<T> {
    /// Forgets what was noted of requests whenever hyper reads more: it has parsed all complete heads by then.
    pub(crate) fn forget_parsed(&self) {
        self.meter.forget_parsed();
    }

    /// Percent-encodes what `http::Uri` does not take in the target of a request.
    pub(crate) fn encode_targets(&mut self) {
        self.targets = Some(Targets::default());
    }

    /// Records what the connection waits for, once it carries much, with what TCP below says of it.
    pub(crate) fn record(&mut self, tcp: TcpBelow<T>) {
        self.tcp = Some(tcp);
    }

    /// The transport is full, or much has come: the connection carries much.
    #[cold]
    fn begin_record(&mut self) {
        let record = self.meter.begin_record();
        let tcp = self.tcp.take().zip(self.io.as_ref());
        if let Some(ends) = tcp.and_then(|(tcp, io)| tcp::Ends::of(tcp(io)?)) {
            record.set_ends(ends);
        }
    }

    /// Encodes the target of a request that begins in what was read, behind `before`.
    #[inline]
    fn encode_target(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        let Some(targets) = &mut self.targets else {
            return;
        };
        if let Some(encoded) = targets.encode(&buffer.filled()[before..], self.meter.is_idle()) {
            self.replace_read(buffer, before, encoded);
        }
    }

    /// Gives hyper `encoded` in place of what was read, and what has no room the next time.
    #[cold]
    fn replace_read(&mut self, buffer: &mut ReadBuf<'_>, before: usize, mut encoded: Vec<u8>) {
        buffer.set_filled(before);
        let now = encoded.len().min(buffer.remaining());
        buffer.put_slice(&encoded[..now]);
        encoded.drain(..now);
        if let Some(ahead) = self.ahead.take() {
            encoded.extend_from_slice(&ahead);
        }
        self.ahead = Some(encoded)
            .filter(|rest| !rest.is_empty())
            .map(|rest| Box::new(rest.into()));
    }

    /// Reads at most so many bytes at once. hyper's buffer grows until reads do not fill it.
    pub(crate) fn limit_reads(&mut self, bytes: usize) {
        self.read_most = bytes;
    }

    /// Looks whether another turn has begun.
    fn look_at_turn(&mut self) {
        let turn = self.meter.turn();
        if turn != self.turn {
            self.begin_turn(turn);
        }
    }

    fn begin_turn(&mut self, turn: u64) {
        self.turn = turn;
        (self.read_turn, self.write_turn) = match turn & ENDLESS {
            0 => (READ_TURN, WRITE_TURN),
            _ => (usize::MAX, usize::MAX),
        };
        if turn & TAKEABLE != 0 {
            self.give_up();
        }
    }

    /// Puts the transport between the handles.
    fn give_up(&mut self) {
        if let Some(io) = self.io.take() {
            lock(&self.between).io = Some(io);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> HyperIo<T> {
    /// Calls the transport for its reader or its writer.
    fn call<R>(
        &mut self,
        user: User,
        cx: &mut Context<'_>,
        call: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Some(io) = &mut self.io {
            return call(Pin::new(io), cx);
        }
        let mut between = lock(&self.between);
        let io = between.io.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let polled = call(Pin::new(io), cx);
        if polled.is_pending() {
            let waker = match user {
                User::Reader => &mut between.reader,
                User::Writer => &mut between.writer,
            };
            register(waker, cx);
        }
        polled
    }

    /// Writes by `call` within the turn.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        call: impl FnOnce(Pin<&mut T>, &mut Context<'_>, usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.look_at_turn();
        let turn = self.write_turn;
        if turn == 0 {
            self.read_ahead(cx);
            wake_after_sockets(cx);
            return Poll::Pending;
        }
        let written = self.call(User::Writer, cx, |io, cx| call(io, cx, turn));
        if let Poll::Ready(Ok(count)) = &written {
            self.meter.send(*count);
            self.write_turn = turn.saturating_sub(*count);
        }
        self.waits(cx, written)
    }

    /// Notes what a call for a writing task returned.
    fn waits<R>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.meter.set(AWAITS_WRITE, polled.is_pending());
        if polled.is_pending() {
            if self.tcp.is_some() {
                self.begin_record();
            }
            self.read_ahead(cx);
        }
        polled
    }

    /// Reads ahead while a server answers and hyper does not read: notices that the peer has ended its half.
    fn read_ahead(&mut self, cx: &mut Context<'_>) {
        if !self.meter.is_only_answering() {
            return;
        }
        if self.meter.bits() & (AWAITS_READ | ENDED | FAILED) != 0 || self.ahead.is_some() {
            return;
        }
        let mut memory = [MaybeUninit::uninit(); AHEAD];
        let mut read = ReadBuf::uninit(&mut memory);
        match self.call(User::Reader, cx, |io, cx| io.poll_read(cx, &mut read)) {
            Poll::Ready(Ok(())) if read.filled().is_empty() => self.meter.set(ENDED, true),
            Poll::Ready(Ok(())) => {
                self.meter.receive(read.filled().len());
                self.ahead = Some(Box::new(Bytes::copy_from_slice(read.filled())));
            }
            Poll::Ready(Err(_)) => self.meter.set(FAILED, true),
            Poll::Pending => {}
        }
    }

    /// Reads from the transport, no more than is read at once.
    fn read_some(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = self.read_most;
        self.call(User::Reader, cx, |io, cx| match buffer.remaining() > most {
            false => io.poll_read(cx, buffer),
            true => Pin::new(&mut io.get_mut().take(most as u64)).poll_read(cx, buffer),
        })
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for HyperIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Some(ahead) = &mut this.ahead {
            let count = ahead.len().min(buffer.remaining());
            buffer.put_slice(&ahead.split_to(count));
            if ahead.is_empty() {
                this.ahead = None;
            }
            this.meter.set(AWAITS_READ, false);
        } else {
            this.look_at_turn();
            if this.read_turn == 0 {
                wake_after_sockets(cx);
                return Poll::Pending;
            }
            let read = match this.meter.bits() & ENDED {
                0 => this.read_some(cx, buffer),
                _ => Poll::Ready(Ok(())),
            };
            this.meter.set(AWAITS_READ, read.is_pending());
            if read.is_pending() && this.tcp.is_some() && this.meter.has_received(tcp::LEAST_BYTES) {
                this.begin_record();
            }
            ready!(read)?;
            let count = buffer.filled().len() - before;
            this.read_turn = this.read_turn.saturating_sub(count);
            this.meter.receive(count);
            if count == 0 && buffer.remaining() > 0 {
                this.meter.set(ENDED, true);
            }
        }
        this.encode_target(buffer, before);
        this.meter.note(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> AsyncWrite for HyperIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, |io, cx, _| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(cx, |io, cx, turn| {
            let length: usize = slices.iter().map(|slice| slice.len()).sum();
            if length <= SHORT_WRITE {
                return write_short(io, cx, slices);
            }
            let slices = if length <= turn {
                slices
            } else {
                of_turn(slices, turn)
            };
            poll_send_slices(io, cx, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.look_at_turn();
        let flushed = this.call(User::Writer, cx, |io, cx| io.poll_flush(cx));
        this.meter.set(AWAITS_WRITE, flushed.is_pending());
        this.read_ahead(cx);
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = this.call(User::Writer, cx, |io, cx| io.poll_shutdown(cx));
        this.waits(cx, shut)
    }
}

impl<T> Drop for HyperIo<T> {
    fn drop(&mut self) {
        self.give_up();
        self.meter.set(RELEASED, true);
        let owner = lock(&self.between).owner.take();
        if let Some(owner) = owner {
            owner.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::http1::BodyEnd;
    use crate::slices::Calls;

    #[tokio::test]
    async fn reads_are_no_longer_than_their_limit() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (_transport, mut io) = Transport::new(near, Bytes::new(), 0);
        far.write_all(&[b'a'; 3_000]).await.expect("room in the pipe");
        let mut memory = [0; 4_096];
        for (limit, bytes) in [(1_000, 1_000), (1_500, 1_500), (1_000, 500)] {
            io.limit_reads(limit);
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
            let calls = io.io.as_ref().expect("nobody took it");
            assert_eq!((calls.plain, calls.vectored), (plain, vectored));
        }
        assert_eq!(transport.traffic().sent, 12 + 2 * SHORT_WRITE as u64 + 8);
    }

    #[tokio::test]
    async fn a_taken_transport_fails_for_the_reader_that_waits() {
        let (near, mut far) = tokio::io::duplex(64);
        let (transport, mut io) = Transport::new(near, Bytes::new(), 0);
        assert!(transport.take().is_none(), "hyper's handle has it");
        transport.meter().let_take();
        io.write_all(b"a").await.expect("room in the pipe");
        let reader = tokio::spawn(async move { io.read_u8().await.map_err(|error| error.kind()) });
        assert_eq!(far.read_u8().await.expect("what was written"), b'a');
        tokio::task::yield_now().await;
        drop(transport.take().expect("it lies between the handles"));
        let read = reader.await.expect("no panic");
        assert_eq!(read, Err(io::ErrorKind::NotConnected));
        assert!(transport.traffic().released);
    }

    #[tokio::test]
    async fn a_dropped_handle_gives_the_transport_back() {
        let (near, mut far) = tokio::io::duplex(64);
        let (transport, io) = Transport::new(near, Bytes::new(), 0);
        drop(io);
        let mut near = transport.take().expect("nobody else has it");
        near.write_all(b"a").await.expect("room in the pipe");
        assert_eq!(far.read_u8().await.expect("what was written"), b'a');
    }

    #[tokio::test]
    async fn what_arrives_during_a_response_is_read_ahead_once() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let (transport, mut io) = Transport::new(near, Bytes::new(), 0);
        far.write_all(&[b'a'; AHEAD + 10])
            .await
            .expect("room in the pipe");
        io.flush().await.expect("nothing waits");
        assert_eq!(transport.traffic().received, 0, "no request is in progress");
        let (receiving, _) = transport.meter().begin(true);
        io.flush().await.expect("nothing waits");
        assert_eq!(transport.traffic().received, 0, "hyper reads its body");
        transport.meter().received_body(receiving, BodyEnd::Complete);
        for _ in 0..2 {
            io.flush().await.expect("nothing waits");
            assert_eq!(transport.traffic().received, AHEAD as u64);
        }
        let mut all = vec![0; AHEAD + 10];
        io.read_exact(&mut all).await.expect("what was written");
        assert_eq!(transport.traffic().received, AHEAD as u64 + 10);
        drop(far);
        io.flush().await.expect("nothing waits");
        assert!(transport.traffic().ended);
    }
}
