//! The driver: it owns the transport and the engine of one connection, and is the only one that touches them.
//!
//! One turn reads a slab, applies it, takes in what the handles ask, yields once so that woken handlers join the batch,
//! builds one list and writes it. It never reads until there is nothing to read before it writes. `client` and `server`
//! make one; handles reach it through cells and the mailbox.

mod apply;
mod deliver;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod pages;
mod rest;
mod transport;

pub(crate) use self::deliver::content_length;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use fullbore_proto::{Config, Connection, ErrorCode, StreamId, StreamMap, Time, Transmit};
use http::{HeaderValue, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};
#[cfg(feature = "tls")]
use tokio_util::io::poll_read_buf;

use crate::body::Incoming;
use crate::cell::{Cell, Mailbox};
use crate::error::{Error, PeerGoAway};
use crate::sender::Sender;

use self::transport::Read;

/// What a server does with a request; a client has none.
pub(crate) trait Accept {
    /// Begins to answer. Called within the driver's turn.
    fn accept(&mut self, request: Request<Incoming>, sender: Sender, cx: &mut Context<'_>);

    /// The time of day, for what is answered, and how long that stays right.
    fn date(&self) -> Option<(HeaderValue, Duration)> {
        None
    }

    /// Has handlers that live in the driver go on, those that were woken; whether that is where they live. Called in each
    /// turn, before wishes are taken.
    fn go_on(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    /// Nothing has come for a while: memory that is kept for the next request can go.
    fn rest(&mut self) {}
}

/// A client accepts nothing.
pub(crate) struct NoAccept;

impl Accept for NoAccept {
    fn accept(&mut self, _: Request<Incoming>, mut sender: Sender, _: &mut Context<'_>) {
        sender.reset(ErrorCode::REFUSED_STREAM);
    }
}

/// How a transport writes lists on which payloads lie in files.
struct WriteFiles<T> {
    /// Writes what is next on the list, and advances it.
    write: fn(&T, &mut Context<'_>, &mut Transmit, &mut usize) -> Poll<std::io::Result<Written>>,
    /// The number that `write` keeps from one time to the next.
    at_once: usize,
    /// Whether the list is one for it, rather than one to be read.
    by_reference: bool,
}

/// What a transport that writes files has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no transport does"))]
enum Written {
    /// So many octets, of which the list has been advanced.
    Octets(usize),
    /// Nothing: what is next is to be read.
    ToBeRead,
}

/// How octets of a peer that has been thrown out are read that nobody will look at.
type Discard<T> = fn(&mut T, &mut Context<'_>, &mut BytesMut) -> Poll<std::io::Result<usize>>;

/// The task of one connection.
pub(crate) struct Driver<T, A> {
    io: T,
    accept: A,
    connection: Connection,
    mailbox: Arc<Mailbox>,
    cells: StreamMap<Arc<Cell>>,
    /// Cells of streams that are over, for those that come.
    spare_cells: Vec<Arc<Cell>>,
    /// When the engine's time began.
    origin: Instant,
    slab: BytesMut,
    /// What of the last read is still to be applied: others have their turn before.
    unapplied: Bytes,
    /// How much the next read asks for.
    read_size: usize,
    out: Transmit,
    /// How much of a list is read from files for the next write.
    fetch_size: usize,
    /// The transport took no more since the task was last woken.
    write_blocked: bool,
    /// How lists are written on which payloads may lie in files, where the transport can do that.
    write_files: Option<WriteFiles<T>>,
    /// A way to read that costs less than to read what is meant by it.
    discard: Option<Discard<T>>,
    /// How many HEADERS frames had been sent when the last list was made.
    headers_sent: u64,
    /// Something was written that has not been flushed.
    unflushed: bool,
    /// Until when the engine knows the time of day.
    dated_until: Time,
    timer: Option<Pin<Box<Sleep>>>,
    /// How long a connection that has failed tries to say so.
    last_words: Option<Pin<Box<Sleep>>>,
    /// How many lists are to be written before the next turn, when that is more than one.
    lists_first: u32,
    /// Handlers were woken and have had no chance to answer yet.
    yield_first: bool,
    /// The peer may have any amount more ready, and other sockets are looked at before it.
    others_first: bool,
    /// Readers that were woken and have had none either.
    woken: Woken,
    /// The write came before the read in this turn.
    read_put_off: bool,
    /// What the peer said when it ended the connection.
    peer_goes: Option<Box<PeerGoAway>>,
    /// Whether the peer ended the transport within a message, though others are still answered.
    cut_short: bool,
    rest: rest::Rest,
    stage: Stage,
}

/// What came of a step: whether there was something to do, and whether nothing is left of it.
#[derive(Debug, Clone, Copy)]
struct Done {
    some: bool,
    all: bool,
}

/// The readers that a batch has woken.
#[derive(Debug, Default)]
enum Woken {
    #[default]
    Nobody,
    /// That of one stream, and whether its message is whole.
    One(StreamId, bool),
    Several,
}

/// How far the connection has come.
enum Stage {
    Open,
    /// All has been said: what is left is to tell the streams, and to close the transport so that the peer can read it.
    Closing(Result<(), Error>, Vec<(StreamId, Arc<Cell>)>, transport::Linger),
    Closed,
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    pub(crate) fn client(io: T, config: Arc<Config>, mailbox: Arc<Mailbox>, accept: A) -> Self {
        Self::new(io, Connection::client(config, Time::ZERO), mailbox, accept)
    }

    pub(crate) fn server(io: T, config: Arc<Config>, mailbox: Arc<Mailbox>, accept: A) -> Self {
        Self::new(io, Connection::server(config, Time::ZERO), mailbox, accept)
    }

    fn new(io: T, connection: Connection, mailbox: Arc<Mailbox>, accept: A) -> Self {
        Driver {
            io,
            accept,
            connection,
            mailbox,
            cells: StreamMap::default(),
            spare_cells: Vec::new(),
            origin: Instant::now(),
            slab: BytesMut::new(),
            unapplied: Bytes::new(),
            read_size: transport::SMALLEST_READ,
            out: Transmit::new(),
            fetch_size: transport::FETCH,
            write_blocked: false,
            write_files: None,
            discard: None,
            headers_sent: 0,
            unflushed: false,
            dated_until: Time::ZERO,
            timer: None,
            last_words: None,
            lists_first: 0,
            yield_first: false,
            others_first: false,
            woken: Woken::Nobody,
            read_put_off: false,
            peer_goes: None,
            cut_short: false,
            rest: rest::Rest::default(),
            stage: Stage::Open,
        }
    }

    /// The engine, for whoever serves several connections.
    pub(crate) fn engine(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The time as the engine knows it.
    pub(crate) fn now(&self) -> Time {
        let nanos = self.origin.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Runs the connection until it must wait.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match &mut self.stage {
                Stage::Open => match self.poll_open(cx) {
                    Poll::Ready(result) => self.close(result),
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Closing(..) => {
                    let told = self.tell_streams();
                    // Handlers see that their streams have failed.
                    self.accept.go_on(cx);
                    if !told {
                        wake_behind_sockets(cx);
                        return Poll::Pending;
                    }
                    return self.poll_closing(cx);
                }
                Stage::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Turns, one after the other.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.mailbox.begin_turn(cx.waker());
        self.write_blocked = false;
        // Whether all has been seen to that handles, the engine and its timers ask for.
        let mut settled = false;
        loop {
            // After a yield the write comes first, but not twice in a row; the read that was put off counts as progress, so
            // that no turn ends without the transport having been asked.
            let mut progress = core::mem::take(&mut self.yield_first);
            self.read_put_off = progress && !self.read_put_off;
            let mut asked = false;
            if !self.read_put_off {
                match self.poll_read(cx) {
                    Poll::Ready(Ok(Read::Some)) => progress = true,
                    Poll::Ready(Ok(Read::End)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    // Whoever does not want to read may want to once a write has left.
                    Poll::Pending => asked = self.connection.wants_read(),
                }
            }
            // When the turn before left nothing to do, and the transport has nothing new, there is still nothing.
            if !(asked && settled) {
                match self.see_to_all(cx) {
                    ControlFlow::Break(poll) => return poll,
                    ControlFlow::Continue(done) => {
                        progress |= done.some;
                        settled = done.all;
                    }
                }
            }
            if !progress || (asked && settled) {
                self.rest(cx);
                if self.mailbox.end_turn() && self.wake_when_due() {
                    return Poll::Pending;
                }
                self.mailbox.begin_turn(cx.waker());
                settled = false;
            }
        }
    }

    /// A turn behind its read; breaks off when it yields, or when the connection is over.
    fn see_to_all(&mut self, cx: &mut Context<'_>) -> ControlFlow<Poll<Result<(), Error>>, Done> {
        if self.accept.go_on(cx) {
            // Whoever reads has had a turn by that.
            self.woken = Woken::Nobody;
        }
        let wished = self.take_wishes();
        // A stream that was given up before its turn ends without a frame.
        self.deliver_events(cx);
        if self.yields() {
            // Those that this batch has woken speak first: their answers leave in the same write.
            self.give_way(cx);
            return ControlFlow::Break(Poll::Pending);
        }
        let written = match self.poll_write(cx) {
            Ok(written) => written,
            Err(_) if self.connection.is_half_closed() && self.transport_ended().is_ok() => {
                // All was answered, and nobody is there to hear the rest.
                return ControlFlow::Break(Poll::Ready(Ok(())));
            }
            Err(error) => {
                // A peer that closed early may have answered first, and what it said is still here to be read.
                while let Poll::Ready(Ok(Read::Some)) = self.poll_read(cx) {}
                return ControlFlow::Break(Poll::Ready(Err(error)));
            }
        };
        // Behind the write, which may hold a frame back: no turn ends without a timer for that.
        let fired = self.poll_timer(cx);
        if let Some(result) = self.ended() {
            return ControlFlow::Break(Poll::Ready(result));
        }
        if let Some(error) = self.connection.error() {
            // A peer that reads nothing does not hold the connection open by that.
            let wait = || Box::pin(tokio::time::sleep(transport::LINGER));
            let timer = self.last_words.get_or_insert_with(wait);
            if timer.as_mut().poll(cx).is_ready() {
                let settled = self.connection.peer_settings_received();
                return ControlFlow::Break(Poll::Ready(Err(Error::from_connection(error, settled))));
            }
        }
        let ending = self.end_unwanted();
        if self.yields() {
            // Those that have room now fill it before the next write, which would be a short one without them.
            self.give_way(cx);
            return ControlFlow::Break(Poll::Pending);
        }
        ControlFlow::Continue(Done {
            some: wished || written.some || fired || ending,
            all: written.all && !fired && !ending,
        })
    }

    /// Whether others have their turn before this one goes on.
    ///
    /// One reader who has all of its message, and who meets no write to join, is not waited for: what it says next wakes the
    /// driver, which runs behind it on the same thread. A task that yields is put where other threads may take it, and tokio
    /// wakes one that sleeps to do so: requests that follow one another cost a third to a half more by that.
    fn yields(&mut self) -> bool {
        self.yield_first |= match core::mem::take(&mut self.woken) {
            Woken::Nobody => false,
            Woken::One(_, whole) => !whole || self.connection.wants_transmit(),
            Woken::Several => true,
        };
        self.yield_first
    }

    /// Has others run before the next turn: the tasks that are ready, and where the peer may go on for long, whoever waits for
    /// a socket too.
    fn give_way(&mut self, cx: &mut Context<'_>) {
        match core::mem::take(&mut self.others_first) {
            true => wake_behind_sockets(cx),
            false => cx.waker().wake_by_ref(),
        }
    }

    /// Whether the connection has come to its end, and everything that was to be said has been written.
    fn ended(&mut self) -> Option<Result<(), Error>> {
        let over = self.connection.error().is_some() || self.connection.is_drained();
        if !over || self.out.has_remaining() || self.connection.wants_transmit() || self.unflushed {
            return None;
        }
        Some(match self.connection.error() {
            Some(error) => {
                let settled = self.connection.peer_settings_received();
                Err(Error::from_connection(error, settled))
            }
            None if self.cut_short => Err(Error::closed()),
            None => Ok(()),
        })
    }

    /// Begins the end of a connection on which nobody can open a stream any more; whether it did.
    fn end_unwanted(&mut self) -> bool {
        let wanted = !self.is_client() || self.connection.stream_count() > 0 || !self.mailbox.is_abandoned();
        if wanted || self.connection.is_shutting_down() || self.connection.error().is_some() {
            return false;
        }
        self.mailbox.set_closing();
        self.connection.shutdown(self.now());
        true
    }

    fn is_client(&self) -> bool {
        self.connection.role() == fullbore_proto::Role::Client
    }

    /// Fires what the engine's deadline asks for, and sets the timer to the next one.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut fired = false;
        loop {
            let Some(deadline) = self.connection.next_deadline() else {
                self.timer = None;
                return fired;
            };
            let at = self.origin + deadline.since(Time::ZERO);
            let timer = match &mut self.timer {
                Some(timer) if timer.deadline() == at => timer,
                Some(timer) => {
                    timer.as_mut().reset(at);
                    timer
                }
                None => self.timer.insert(Box::pin(tokio::time::sleep_until(at))),
            };
            if timer.as_mut().poll(cx).is_pending() {
                return fired;
            }
            // The clock of the timer is coarser than ours: never call before the deadline.
            let now = self.now().max(deadline);
            self.connection.handle_timeout(now);
            fired = true;
            if self.connection.next_deadline() == Some(deadline) {
                return fired;
            }
        }
    }
}

#[cfg(feature = "tls")]
impl<A> Driver<tokio_rustls::server::TlsStream<tokio::net::TcpStream>, A> {
    /// What a peer sends that has been thrown out is not opened: a flood that was under way cost as much as all before it.
    pub(crate) fn leave_sealed(&mut self) {
        self.discard = Some(|stream, cx, sink| poll_read_buf(Pin::new(stream.get_mut().0), cx, sink));
    }
}

/// Wakes this task once the runtime has looked at all sockets. A task that only wakes itself is among the next to run, and tokio
/// looks at sockets after 61 of those: a peer that always has more ready would keep all others waiting for so many turns.
fn wake_behind_sockets(cx: &mut Context<'_>) {
    let yielding = std::pin::pin!(tokio::task::yield_now());
    // It is pending the first time, and has seen to the waker then.
    let _ = yielding.poll(cx);
}

#[cfg(target_os = "linux")]
impl<A> Driver<tokio::net::TcpStream, A> {
    /// From now on payloads may lie in files.
    pub(crate) fn send_files(&mut self) {
        self.write_files = Some(WriteFiles {
            write: files::write,
            at_once: 0,
            by_reference: false,
        });
    }
}

impl<T, A> Drop for Driver<T, A> {
    /// Whoever still waits for the connection is told that it is gone.
    fn drop(&mut self) {
        let error = Error::connection_gone();
        self.mailbox.close(&error);
        for (_, cell) in self.cells.drain() {
            cell.fail(error.clone());
        }
        if let Stage::Closing(_, untold, _) = &mut self.stage {
            for (_, cell) in untold.drain(..) {
                cell.fail(error.clone());
            }
        }
    }
}
