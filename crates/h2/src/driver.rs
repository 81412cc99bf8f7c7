//! Moves octets between the transport and the engine, whenever the connection is polled.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use fullbore_proto::{Role, Transmit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::bodies::{Bodies, Outbox};
use crate::error::Error;
use crate::failure::{Failure, Initiator};
use crate::reason::Reason;
use crate::settings::Settings;
use crate::state::{Shared, State};

/// The most slices of one write.
const MAX_SLICES: usize = 64;

/// The first read of a connection, and the buffer that it keeps while it is idle. Tests of the published crate expect chunks of
/// whole frames.
const FIRST_READ: usize = if cfg!(feature = "unstable") {
    1 << 20
} else {
    8 << 10
};

/// The largest read. Reads double while they are full.
const LARGEST_READ: usize = if cfg!(feature = "unstable") {
    FIRST_READ
} else {
    256 << 10
};

/// Less room than this is not read into.
const LEAST_ROOM: usize = 2 << 10;

/// The most octets that are gathered for a transport without vectored writes.
const GATHERED: usize = 16 << 10;

/// The reads after which a connection gives way to others of its thread.
const MAX_READS: usize = 32;

/// The reads after which replies and credit are written, though the transport has more.
const READS_BEFORE_WRITE: usize = 8;

/// The octets after which replies and credit are written, and readers run: the memory that they let go of is read into again
/// while the processor's caches have it.
const OCTETS_BEFORE_READERS: usize = LARGEST_READ;

thread_local! {
    /// Memory for long reads that nothing refers to, for the next connection of this thread that has them.
    static SPARE: RefCell<BytesMut> = RefCell::default();
}

/// The length of the client's connection preface (RFC 9113 section 3.4).
const PREFACE: usize = 24;

pub(crate) struct Driver<T, B> {
    transport: T,
    shared: Arc<Shared>,
    outbox: Arc<Outbox<B>>,
    bodies: Bodies<B>,
    /// What is written before all lists.
    #[cfg(feature = "unstable")]
    first: bytes::Bytes,
    /// What is being written.
    list: Transmit,
    unflushed: bool,
    /// What was read and not passed on, and room for more.
    room: BytesMut,
    next_read: usize,
    /// What is to be written of a client's connection preface.
    preface_left: usize,
    /// Whether the transport has nothing more to be read.
    input_ended: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Open,
    /// What is listed is written, and the transport is shut down.
    Closing(Reason, Initiator),
    Closed(Reason, Initiator),
}

/// What has come of reading.
#[derive(Debug)]
enum Reading {
    /// The transport has nothing more, and wakes the task when it has.
    Waits,
    /// The transport may have more.
    More,
    /// No more is wanted before something is written.
    Full,
    /// The stage has changed.
    Ended,
}

// No buffer of the user is pinned.
impl<T: Unpin, B> Unpin for Driver<T, B> {}

impl<T, B> Driver<T, B> {
    pub(crate) fn new(transport: T, role: Role, settings: &Settings) -> Self {
        let shared = State::shared(role, settings);
        #[cfg(feature = "unstable")]
        let first = {
            let start = if role == Role::Client { PREFACE } else { 0 };
            shared.lock().first_bytes(settings, start)
        };
        Driver {
            transport,
            #[cfg(feature = "unstable")]
            first,
            shared,
            outbox: Arc::new(Outbox::new()),
            bodies: Bodies::new(),
            list: Transmit::new(),
            unflushed: false,
            room: BytesMut::new(),
            next_read: FIRST_READ,
            preface_left: PREFACE,
            input_ended: false,
            stage: Stage::Open,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox<B>> {
        &self.outbox
    }
}

impl<T, B> Driver<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    /// Writes the octets of a client's connection preface. The SETTINGS that end it are written when the connection is polled.
    pub(crate) fn poll_preface(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.preface_left == PREFACE && !self.is_listed() {
            self.shared.lock().transmit(&mut self.list);
        }
        while self.preface_left > 0 {
            let written = ready!(self.poll_write_some(cx, self.preface_left)).map_err(Error::from_io)?;
            self.preface_left -= written;
        }
        #[cfg(feature = "unstable")]
        self.take_in_what_has_arrived(cx);
        Poll::Ready(Ok(()))
    }

    /// Takes in a server's SETTINGS that have arrived already: tests of the published crate expect their acknowledgement before
    /// the first request.
    #[cfg(feature = "unstable")]
    fn take_in_what_has_arrived(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(1..)) = self.poll_read(cx) {
            if let Some(reason) = self.receive_failed() {
                self.stage = Stage::Closing(reason, Initiator::Library);
                return;
            }
        }
    }

    /// Writes a server's SETTINGS and reads the client's connection preface.
    pub(crate) fn poll_accept_preface(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.poll_write(cx)).map_err(Error::from_io)?;
        while !self.shared.lock().preface_received() {
            if ready!(self.poll_read(cx)).map_err(Error::from_io)? == 0 {
                let error = io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "connection closed before reading preface",
                );
                return Poll::Ready(Err(Error::from_io(error)));
            }
            if let Some(reason) = self.receive_failed() {
                if self.shared.lock().preface_received() {
                    // The connection says GOAWAY, and returns the error.
                    self.stage = Stage::Closing(reason, Initiator::Library);
                    break;
                }
                let failure = Failure::GoAway(bytes::Bytes::new(), reason, Initiator::Library);
                return Poll::Ready(Err(failure.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the transport is neither closed nor about to be.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Drives the connection. Ready when it has ended.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match self.stage {
                Stage::Open => ready!(self.poll_open(cx))?,
                Stage::Closing(reason, initiator) => {
                    let Poll::Ready(closed) = self.poll_close(cx) else {
                        self.drop_input(cx);
                        return Poll::Pending;
                    };
                    self.stage = Stage::Closed(reason, initiator);
                    // The peer may be gone already.
                    if let Err(error) = closed {
                        tracing::debug!(%error, "closing the transport");
                    }
                }
                Stage::Closed(reason, initiator) => return Poll::Ready(self.outcome(reason, initiator)),
            }
        }
    }

    /// Writes what is listed, and shuts the transport down.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_list(cx))?;
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }

    /// Reads and drops what still arrives while the transport takes no more: a peer that does not read because it writes, or
    /// closes too, goes on only when it is read.
    fn drop_input(&mut self, cx: &mut Context<'_>) {
        for _ in 0..MAX_READS {
            if self.input_ended {
                return;
            }
            match self.poll_read(cx) {
                Poll::Pending => return,
                Poll::Ready(read) => self.input_ended = !matches!(read, Ok(1..)),
            }
            self.room.clear();
        }
        cx.waker().wake_by_ref();
    }

    /// What the connection ended with. The peer's error goes before our own, which may be a consequence of it. It is returned
    /// once, so that a server that asks for requests after an error comes to the end.
    fn outcome(&self, reason: Reason, initiator: Initiator) -> Result<(), Error> {
        match self.shared.lock().take_error_of_peer() {
            Some(failure) => Err(failure.into()),
            None if reason == Reason::NO_ERROR => Ok(()),
            None => Err(Failure::GoAway(bytes::Bytes::new(), reason, initiator).into()),
        }
    }

    /// Reads and writes until both would wait, or the connection ends. Ready when the stage has changed.
    ///
    /// What has arrived is taken in before anything is written: it may change what is to be written, and the replies to it go
    /// with that in one write.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.shared.lock();
        state.register(cx);
        let gives_way = state.gives_way();
        drop(state);
        if gives_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut octets = 0;
        for _ in 0..MAX_READS / READS_BEFORE_WRITE {
            let reading = match self.poll_reads(&mut octets, cx) {
                Ok(reading) => reading,
                Err(error) => return Poll::Ready(self.fail(error)),
            };
            if matches!(reading, Reading::Ended) {
                return Poll::Ready(Ok(()));
            }
            self.shared.lock().apply_connection_window();
            match self.poll_write(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(self.fail(error)),
                Poll::Ready(Ok(())) => self.shared.lock().note_written(),
                Poll::Pending => self.shared.lock().note_blocked(),
            }
            if self.closes() {
                return Poll::Ready(Ok(()));
            }
            match reading {
                Reading::Waits => {
                    self.bodies.update(&self.outbox);
                    return Poll::Pending;
                }
                // What was written may have made room for replies.
                Reading::Full if !self.shared.lock().wants_read() => return Poll::Pending,
                _ if octets >= OCTETS_BEFORE_READERS => break,
                _ => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads until the transport has nothing, several reads are done, or no more is wanted.
    fn poll_reads(&mut self, octets: &mut usize, cx: &mut Context<'_>) -> io::Result<Reading> {
        for _ in 0..READS_BEFORE_WRITE {
            if *octets >= OCTETS_BEFORE_READERS {
                break;
            }
            if !self.shared.lock().wants_read() {
                return Ok(Reading::Full);
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    tracing::debug!("the peer closed the transport");
                    self.input_ended = true;
                    self.shared.lock().end_of_transport();
                    self.drop_list();
                    self.stage = Stage::Closing(Reason::NO_ERROR, Initiator::Library);
                    return Ok(Reading::Ended);
                }
                Poll::Ready(Ok(count)) => *octets += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(Reading::Waits),
            }
            if let Some(reason) = self.receive_failed() {
                self.stage = Stage::Closing(reason, Initiator::Library);
                // GOAWAY is written before the transport closes.
                return Ok(Reading::Ended);
            }
        }
        Ok(Reading::More)
    }

    /// Whether the connection ends now: it is done, or the user ended it.
    fn closes(&mut self) -> bool {
        let mut state = self.shared.lock();
        if state.is_done() {
            state.say_goodbye();
        } else if !state.is_aborted() {
            return false;
        }
        drop(state);
        self.stage = Stage::Closing(Reason::NO_ERROR, Initiator::User);
        true
    }

    /// The transport failed.
    fn fail(&mut self, error: io::Error) -> Result<(), Error> {
        tracing::debug!(%error, "the transport failed");
        let mut state = self.shared.lock();
        state.fail(&Failure::io(&error));
        // Peers that are gone without a word are no error if nothing was to be said.
        let in_peace = state.is_server() || state.peer_goes_in_peace();
        drop(state);
        let in_peace = in_peace && !self.list.has_remaining() && error.kind() == io::ErrorKind::UnexpectedEof;
        self.drop_list();
        self.stage = Stage::Closed(Reason::NO_ERROR, Initiator::Library);
        match in_peace {
            true => Ok(()),
            false => Err(Error::from_io(error)),
        }
    }

    fn drop_list(&mut self) {
        #[cfg(feature = "unstable")]
        self.first.clear();
        self.list = Transmit::new();
        self.bodies.update(&self.outbox);
    }

    /// Writes all that there is to write.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_write_list(cx))?;
            self.shared.lock().transmit(&mut self.list);
            self.bodies.update(&self.outbox);
            if !self.list.has_remaining() {
                break;
            }
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.transport).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is listed, and at the end of the connection what was still to be listed.
    fn poll_write_list(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.is_listed() {
                ready!(self.poll_write_some(cx, usize::MAX))?;
            }
            if matches!(self.stage, Stage::Closing(..)) {
                self.shared.lock().transmit(&mut self.list);
            }
            if !self.list.has_remaining() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn is_listed(&self) -> bool {
        #[cfg(feature = "unstable")]
        if self.first.has_remaining() {
            return true;
        }
        self.list.has_remaining()
    }

    /// Writes once; no more than `most` octets, if the first slice has as many.
    fn poll_write_some(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let transport = Pin::new(&mut self.transport);
        #[cfg(feature = "unstable")]
        if self.first.has_remaining() {
            let some = &self.first[..most.min(self.first.len())];
            let written = ready!(transport.poll_write(cx, some))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.first.advance(written);
            self.unflushed = true;
            return Poll::Ready(Ok(written));
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = self.bodies.slices(&self.list, &mut slices);
        let slices = &slices[..count];
        let written = match slices {
            [first, ..] if first.len() >= most => ready!(transport.poll_write(cx, &first[..most]))?,
            [one] => ready!(transport.poll_write(cx, one))?,
            _ if transport.is_write_vectored() => ready!(transport.poll_write_vectored(cx, slices))?,
            _ => ready!(transport.poll_write(cx, &gather(slices)))?,
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.list.advance(written);
        self.unflushed = true;
        Poll::Ready(Ok(written))
    }

    /// Reads once, into memory that nobody has to clear. The octets are in `room` then.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.room.capacity() < LEAST_ROOM {
            if self.next_read > FIRST_READ && self.room.capacity() == 0 {
                self.room = SPARE.take();
            }
            // The same memory, if readers have let go of all that was read into it.
            self.room.reserve(self.next_read);
        }
        let capacity = self.room.capacity();
        let read = pin!(self.transport.read_buf(&mut self.room)).poll(cx);
        if read.is_pending() && self.next_read > FIRST_READ {
            self.next_read = (self.next_read / 2).max(FIRST_READ);
            // An idle connection keeps no large buffer.
            let mut room = std::mem::take(&mut self.room);
            if room.try_reclaim(LARGEST_READ) {
                SPARE.set(room);
            }
        }
        let count = ready!(read)?;
        if count == capacity {
            self.next_read = (2 * self.next_read).min(LARGEST_READ);
        }
        Poll::Ready(Ok(count))
    }

    /// Passes what was read to the engine. Returns the code of the error that ended the connection.
    fn receive_failed(&mut self) -> Option<Reason> {
        let octets = self.room.split().freeze();
        self.shared.lock().receive(octets).err()
    }
}

/// The next octets in one piece, for transports that take one slice at a time.
fn gather(slices: &[IoSlice<'_>]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(GATHERED);
    for slice in slices {
        let room = GATHERED - octets.len();
        octets.extend_from_slice(&slice[..slice.len().min(room)]);
        if slice.len() >= room {
            break;
        }
    }
    octets
}

impl<T, B> Drop for Driver<T, B> {
    fn drop(&mut self) {
        self.shared.lock().abandon();
    }
}

impl<T: fmt::Debug, B> fmt::Debug for Driver<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("transport", &self.transport)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}
