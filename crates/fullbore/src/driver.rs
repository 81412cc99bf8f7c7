//! The driver of one connection: it owns the transport and the engine, and nothing else touches them.
//!
//! A turn reads a slab, collects what handles left, yields once so that woken handlers join the batch, builds one list and
//! writes it. The driver writes after each read, also when more waits to be read. `client` and `server` create drivers;
//! handles reach them through cells and the mailbox. The modules below are steps of a turn, as methods of [`Driver`];
//! `turn`, `rounds`, `idle` and `files` do not know the driver.

/// Calls a method of the connection's trace, if it has one. Without the feature `tracing` this is nothing.
macro_rules! report {
    ($driver:expr, $($call:tt)+) => {
        #[cfg(feature = "tracing")]
        if let Some(trace) = &mut $driver.trace {
            trace.$($call)+;
        }
    };
}

mod begun;
mod closing;
mod collect;
mod deliver;
#[cfg(target_os = "linux")]
mod files;
mod idle;
mod read;
mod rounds;
mod sent;
mod spare;
mod timer;
#[cfg(feature = "tracing")]
mod trace;
mod turn;
mod unanswered;
mod unsent;
mod write;

pub(crate) use self::begun::Begun;
pub(crate) use self::deliver::received_length;
pub(crate) use self::unanswered::Unanswered;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, Report, StreamMap, Time, Transmit, prefetch};
use http::{HeaderValue, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use self::closing::Closing;
use self::collect::Collected;
use self::idle::{Activity, IdleTimer};
use self::read::{Read, ReadBuffer};
use self::rounds::Rounds;
use self::sent::CountedBody;
use self::timer::Timer;
use self::turn::Turn;
use self::unsent::Unsent;
use self::write::{WriteFiles, WriteSlices};
use crate::body::Incoming;
use crate::cell::{Cell, Mailbox};
use crate::error::{Error, PeerGoAway};
use crate::linger::{Discard, LINGER};
use crate::slices::{poll_send_slices, poll_write_slices};
use crate::tcp::{self, TcpBelow};
use crate::turns::wake_after_sockets;

/// The most slabs that a client reads after a write that failed: 8 MiB or more, which is what the kernel holds for a socket at most.
const LAST_READS: u32 = 32;

/// What a server does with requests; a client receives none.
pub(crate) trait Accept {
    /// Begins to answer a request, within the driver's turn. The stream is reset if that panics.
    fn accept(&mut self, request: Request<Incoming>, unanswered: &mut Unanswered<'_>, cx: &mut Context<'_>);

    /// The value of the `date` field, and for how long it stays right.
    fn date(&self) -> Option<(HeaderValue, Duration)> {
        None
    }

    /// Polls the woken handlers that live in the driver; whether handlers live there. Called in each turn before the driver
    /// collects what handles left.
    fn poll_handlers(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

/// A client receives no request.
pub(crate) struct NoAccept;

impl Accept for NoAccept {
    fn accept(&mut self, _: Request<Incoming>, _: &mut Unanswered<'_>, _: &mut Context<'_>) {}
}

/// The task of one connection.
pub(crate) struct Driver<T, A> {
    io: T,
    accept: A,
    connection: Connection,
    mailbox: Arc<Mailbox>,
    cells: StreamMap<Arc<Cell>>,
    /// The bodies whose senders want to know how much has left.
    counted: Vec<CountedBody>,
    /// The origin of the engine's time.
    origin: Instant,
    /// When [`Self::collect`] began last.
    looked: Time,
    turn: Turn,
    input: ReadBuffer,
    rounds: Rounds,
    out: Transmit,
    /// How many bytes of a list are read from files for the next write.
    fetch_size: usize,
    /// The TCP connection below the transport, if there may be one.
    tcp: TcpBelow<T>,
    /// What may wait unsent below the transport, if that is limited.
    unsent: Option<Unsent<T>>,
    /// How lists with file ranges are written, where the transport can send these by reference.
    write_files: Option<WriteFiles<T>>,
    write_slices: WriteSlices<T>,
    /// A way to read and discard that costs less than decryption.
    discard: Option<Discard<T>>,
    /// The count of sent HEADERS frames when the last list was made.
    headers_sent: u64,
    /// Something was written that has not been flushed.
    unflushed: bool,
    /// Until when the engine's `date` field is right.
    dated_until: Time,
    timer: Option<Timer>,
    /// How long a connection that has failed tries to send its GOAWAY.
    goaway_timer: Option<Pin<Box<Sleep>>>,
    /// The GOAWAY of the peer.
    peer_goaway: Option<Box<PeerGoAway>>,
    /// Whether the peer ended the transport within a message, while others are still answered.
    truncated: bool,
    /// A write has failed: its error, and how many reads may still follow.
    last_reads: Option<Box<(Error, u32)>>,
    idle: IdleTimer,
    stage: Stage,
    #[cfg(feature = "tracing")]
    trace: Option<Box<trace::Trace>>,
}

/// The life of a connection.
enum Stage {
    Open,
    /// Everything has been sent. The streams are told, and the transport is closed so that the peer can read it.
    Closing(Closing),
    Closed,
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    pub(crate) fn client(io: T, config: Arc<Config>, mailbox: Arc<Mailbox>, accept: A) -> Self {
        Self::new(io, Begun::client(config), mailbox, accept)
    }

    pub(crate) fn server(io: T, config: Arc<Config>, mailbox: Arc<Mailbox>, accept: A) -> Self {
        Self::new(io, Begun::server(config), mailbox, accept)
    }

    /// Continues a connection of which [`Begun::take_first`] may have taken something.
    pub(crate) fn new(io: T, begun: Begun, mailbox: Arc<Mailbox>, accept: A) -> Self {
        let Begun {
            connection,
            origin,
            out,
        } = begun;
        Driver {
            #[cfg(feature = "tracing")]
            trace: trace::Trace::new(connection.role(), origin),
            io,
            accept,
            connection,
            mailbox,
            cells: StreamMap::default(),
            counted: Vec::new(),
            origin,
            looked: Time::ZERO,
            turn: Turn::default(),
            input: ReadBuffer::default(),
            rounds: Rounds::default(),
            out,
            fetch_size: write::FETCH,
            tcp: |_| None,
            unsent: None,
            write_files: None,
            write_slices: poll_write_slices,
            discard: None,
            headers_sent: 0,
            unflushed: false,
            dated_until: Time::ZERO,
            timer: None,
            goaway_timer: None,
            peer_goaway: None,
            truncated: false,
            last_reads: None,
            idle: IdleTimer::default(),
            stage: Stage::Open,
        }
    }

    /// The engine, for a server of several connections.
    pub(crate) fn engine(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The time as the engine knows it.
    pub(crate) fn now(&self) -> Time {
        let nanos = self.origin.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The state of the connection, and of TCP below it if it has carried enough.
    pub(crate) fn report(&self) -> Report {
        let mut report = self.connection.report(self.now());
        if report.stats.received_bytes.max(report.stats.sent_bytes) >= tcp::LEAST_BYTES {
            let ended = || self.mailbox.last_report().and_then(|last| last.tcp);
            report.tcp = (self.tcp)(&self.io).and_then(tcp::info).or_else(ended);
        }
        report
    }

    /// Reads the clock, for [`Self::last_looked`].
    fn look(&mut self) -> Time {
        self.looked = self.now();
        self.looked
    }

    /// When what handles left was collected last: in each poll of a connection that is open.
    pub(crate) fn last_looked(&self) -> Instant {
        self.origin + self.looked.since(Time::ZERO)
    }

    /// Runs the connection until it must wait.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // With many connections nothing of this one is in the processor's cache. It comes while the kernel reads the socket.
        prefetch(self);
        prefetch(&*self.mailbox);
        self.connection.prefetch();
        if !self.is_client() {
            self.rounds.count();
        }
        loop {
            match &mut self.stage {
                Stage::Open => match self.poll_open(cx) {
                    Poll::Ready(result) => self.close(result),
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Closing(_) => {
                    let ended = self.end_streams();
                    // Handlers see that their streams have failed.
                    self.accept.poll_handlers(cx);
                    if !ended {
                        wake_after_sockets(cx);
                        return Poll::Pending;
                    }
                    return self.poll_closing(cx);
                }
                Stage::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Runs turns until the connection must wait.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.last_reads.is_some() {
            self.input.wake();
            return self.poll_last_reads(cx);
        }
        self.mailbox.begin_turn(cx.waker());
        self.turn.wake();
        self.input.wake();
        loop {
            if self.turn.begin() {
                match self.poll_read(cx) {
                    Poll::Ready(Ok(Read::Some)) => self.turn.set_read(true, false),
                    Poll::Ready(Ok(Read::End)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    // An engine that does not want to read may want to once a write has left.
                    Poll::Pending => self.turn.set_read(false, self.connection.wants_read()),
                }
            }
            if !self.turn.is_settled() {
                if let ControlFlow::Break(poll) = self.run_turn(cx) {
                    return poll;
                }
            }
            if self.turn.is_last() {
                report!(self, stalls(&self.connection));
                self.free_idle_memory(cx);
                if self.mailbox.end_turn() && self.wake_when_due() {
                    self.rounds.rest();
                    return Poll::Pending;
                }
                self.mailbox.begin_turn(cx.waker());
                self.turn.unsettle();
            }
        }
    }

    /// A turn after its read; breaks off when it yields, and when the connection is over.
    fn run_turn(&mut self, cx: &mut Context<'_>) -> ControlFlow<Poll<Result<(), Error>>> {
        if self.accept.poll_handlers(cx) {
            self.turn.handlers_ran();
        }
        let Collected { some: collected, all } = self.collect();
        // A stream that was dropped before it was opened ends without a frame.
        self.deliver_events(cx);
        if self.turn.yields(cx, || self.connection.wants_transmit()) {
            // Handles that this batch has woken run first: their answers leave in the same write.
            return ControlFlow::Break(Poll::Pending);
        }
        let written = match self.poll_write(cx) {
            Ok(written) => written,
            Err(_) if self.connection.is_half_closed() && self.transport_ended().is_ok() => {
                // Everything was answered, and the peer does not read the rest.
                return ControlFlow::Break(Poll::Ready(Ok(())));
            }
            Err(error) => {
                // What a server has not read are requests, which it could not answer.
                let reads = if self.is_client() { LAST_READS } else { 0 };
                self.last_reads = Some(Box::new((error, reads)));
                if reads == 0 {
                    return ControlFlow::Break(self.poll_last_reads(cx));
                }
                // The runtime may not have noticed yet that there is something to read.
                wake_after_sockets(cx);
                return ControlFlow::Break(Poll::Pending);
            }
        };
        // After the write, which may hold a frame back: no turn ends without a timer for that.
        let fired = self.poll_timer(cx);
        if let Some(result) = self.ended() {
            return ControlFlow::Break(Poll::Ready(result));
        }
        if let Some(error) = self.connection.error() {
            // A peer that reads nothing does not hold the connection open by that.
            let wait = || Box::pin(tokio::time::sleep(LINGER));
            let timer = self.goaway_timer.get_or_insert_with(wait);
            if timer.as_mut().poll(cx).is_ready() {
                let settled = self.connection.peer_settings_received();
                return ControlFlow::Break(Poll::Ready(Err(Error::from_connection(error, settled))));
            }
        }
        let ending = self.end_unwanted();
        if !all {
            // Handles on other threads may list their streams as fast as this takes them off the list.
            self.turn.yield_to_sockets(0);
        }
        if self.turn.yields(cx, || self.connection.wants_transmit()) {
            // Handles that have room now fill it before the next write, which would be a short one without them.
            return ControlFlow::Break(Poll::Pending);
        }
        self.turn.set_done(
            collected || written.some || fired || ending,
            written.all && !fired && !ending,
        );
        ControlFlow::Continue(())
    }

    /// After a write that failed: a peer that closed early may have answered before, and its answer can still be read, a slab in
    /// each turn of the connection.
    fn poll_last_reads(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let reads = self.last_reads.as_ref().is_some_and(|last| last.1 > 0);
        if reads && matches!(self.poll_read(cx), Poll::Ready(Ok(Read::Some))) {
            if let Some(last) = &mut self.last_reads {
                last.1 -= 1;
            }
            wake_after_sockets(cx);
            return Poll::Pending;
        }
        let Some((error, _)) = self.last_reads.take().map(|last| *last) else {
            return Poll::Ready(Ok(()));
        };
        let settled = self.connection.peer_settings_received();
        Poll::Ready(Err(match self.connection.error() {
            // It says more about a peer that does not speak HTTP/2.
            Some(answer) if !settled => Error::from_connection(answer, settled),
            _ if settled && error.is_unanswered() => self.closed_early(None),
            _ => error,
        }))
    }

    /// Frees what only a busy connection needs, once it is idle.
    fn free_idle_memory(&mut self, cx: &mut Context<'_>) {
        let quiet = self.connection.stream_count() == 0;
        match self.idle.poll(cx, quiet, self.last_looked()) {
            Activity::Nothing => {
                self.input.shrink();
                if self.cells.is_empty() {
                    self.cells = StreamMap::default();
                }
                // A peer that neither sends nor reads gets the rest of the list when it reads again.
                if !self.out.has_remaining() {
                    self.out = Transmit::new();
                }
                self.connection.trim();
                self.dated_until = Time::ZERO;
            }
            // A peer that sends little, but often, does not keep what a burst took.
            Activity::Little if self.input.is_grown() => self.input.shrink(),
            // Something else than the peer woke the connection, such as a timer, and the read found nothing.
            _ if self.idle.is_idle() => self.input.slab = bytes::BytesMut::new(),
            _ => {}
        }
    }

    /// The result of the connection, once it is over and everything has been written.
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
            None if self.truncated => Err(Error::incomplete(None, None)),
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
        report!(self, shutdown());
        self.connection.shutdown(self.now());
        true
    }

    fn is_client(&self) -> bool {
        self.connection.role() == fullbore_proto::Role::Client
    }

    /// Fires what the engine's deadline asks for, and sets the timer to the next one.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut fired = false;
        let looked = self.last_looked();
        loop {
            let Some(deadline) = self.connection.next_deadline() else {
                self.timer = None;
                return fired;
            };
            let at = self.origin + deadline.since(Time::ZERO);
            let timer = match &mut self.timer {
                Some(timer) if timer.deadline() == at => timer,
                Some(timer) => {
                    timer.reset(at);
                    timer
                }
                None => self.timer.insert(Timer::at(at)),
            };
            if timer.poll(cx, looked).is_pending() {
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

impl<T, A> Driver<T, A> {
    /// Parses what was read from the transport before, in place of the first read.
    pub(crate) fn begin_with(&mut self, read: Bytes) {
        self.input.unparsed = read;
    }

    /// Writes several slices over TCP by `sendmsg`.
    pub(crate) fn send_slices(&mut self)
    where
        T: AsyncWrite + Unpin + 'static,
    {
        self.write_slices = poll_send_slices;
    }

    /// Has no more wait unsent than the path takes within `time`. `socket` finds the TCP connection below the transport.
    pub(crate) fn limit_unsent(&mut self, socket: TcpBelow<T>, time: Duration) {
        self.unsent = Some(Unsent::new(socket, time));
    }

    /// Reports say what the kernel knows of the TCP connection below the transport.
    pub(crate) fn report_tcp(&mut self, tcp: TcpBelow<T>) {
        self.tcp = tcp;
    }
}

#[cfg(feature = "tls")]
impl<T, A> Driver<tokio_rustls::server::TlsStream<T>, A>
where
    T: AsyncRead + Unpin,
{
    /// Does not decrypt what a peer sends after an error: the rest of a flood cost as much as all before it.
    pub(crate) fn discard_undecrypted(&mut self) {
        self.discard =
            Some(|stream, cx, sink| tokio_util::io::poll_read_buf(Pin::new(stream.get_mut().0), cx, sink));
    }
}

#[cfg(target_os = "linux")]
impl<A> Driver<tokio::net::TcpStream, A> {
    /// Sends file ranges by reference from now on.
    pub(crate) fn send_files(&mut self) {
        self.write_files = Some(WriteFiles {
            write: files::write,
            at_once: 0,
        });
    }
}

impl<T, A> Drop for Driver<T, A> {
    /// Tells all streams that the connection is gone.
    fn drop(&mut self) {
        let error = Error::connection_gone();
        self.mailbox.close(&error);
        for (_, cell) in self.cells.drain() {
            cell.fail(error.clone());
        }
        if let Stage::Closing(closing) = &mut self.stage {
            for (_, cell) in closing.untold.drain(..) {
                cell.fail(error.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;
