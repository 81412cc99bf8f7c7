//! Reading: slabs for the engine, and the end of the transport.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use fullbore_proto::ErrorCode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use super::rounds::MOST;
use super::{Accept, Driver};
use crate::error::{Error, ErrorKind};

/// The first read asks for this much, so that an idle connection costs little.
pub(super) const SMALLEST_READ: usize = 8 << 10;

/// A slab: what one read asks for once reads come back full.
pub(super) const SLAB: usize = 256 << 10;

/// More frames than this in one read are work for a millisecond or so, and a peer may have any amount of them ready: the next
/// read is a small one, and other tasks of this thread have a turn before it. The same follows a read of which the engine
/// leaves a part, since a frame in it took much work.
const MANY_FRAMES: u64 = 256;

/// A turn parses at least so many requests, also when it begins fewer. A reset takes back a request that has not begun, so that a
/// client that cancels many costs less (`crowded` in the tests).
const LEAST_PARSED: u32 = 4;

/// So many lists leave before such a read rather than one, if there are as many: of 10,000 requests that come at once each read
/// brings some 300, which take as long to answer as a gigabit takes to carry one list.
pub(super) const LISTS_BEFORE_READ: u32 = 4;

/// For so many turns a transport that had nothing more is not asked again, unless the task is woken meanwhile. Handles on other
/// threads may keep a connection in its turns.
const DRAINED: u8 = 4;

thread_local! {
    /// A slab of [`SMALLEST_READ`] that nothing refers to, for the next connection of this thread that reads. A connection
    /// that only receives requests holds no slab between its reads, and each read fills the same lines of the cache.
    static SPARE_SLAB: RefCell<BytesMut> = RefCell::default();
}

/// The detail of the error when a peer closes the transport before its SETTINGS.
const NO_SETTINGS: &str = "it closed the connection before it sent SETTINGS";

/// What a read brought.
pub(super) enum Read {
    /// Bytes, which the engine has parsed.
    Some,
    /// The clean end of the transport.
    End,
}

/// What was read and has not been parsed, and the memory to read into.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    pub(super) slab: BytesMut,
    pub(super) unparsed: Bytes,
    /// How much the next read asks for.
    pub(super) size: usize,
    /// For how many turns the transport is not asked: it had nothing more, and wakes the task when it has.
    drained: u8,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        ReadBuffer {
            slab: BytesMut::new(),
            unparsed: Bytes::new(),
            size: SMALLEST_READ,
            drained: 0,
        }
    }
}

impl ReadBuffer {
    /// The transport is asked in the next turn.
    pub(super) fn wake(&mut self) {
        self.drained = 0;
    }

    /// Frees the slab; the next read is a small one.
    pub(super) fn shrink(&mut self) {
        self.slab = BytesMut::new();
        self.size = SMALLEST_READ;
    }

    /// Takes the slab of the thread, if this has none.
    fn borrow(&mut self) {
        if self.slab.capacity() == 0 && !self.is_grown() {
            self.slab = SPARE_SLAB.take();
        }
    }

    /// Leaves the slab to the thread, unless it is a long one or data in it has not been read. Data would keep alive what
    /// other connections read next to it.
    fn give_back(&mut self) {
        if self.is_grown() || !self.unparsed.is_empty() || self.slab.capacity() > SMALLEST_READ {
            return;
        }
        self.unparsed = Bytes::new();
        if self.slab.is_empty() && self.slab.try_reclaim(SMALLEST_READ) {
            SPARE_SLAB.set(mem::take(&mut self.slab));
        }
    }

    /// Whether reads have come back full.
    pub(super) fn is_grown(&self) -> bool {
        self.size > SMALLEST_READ
    }

    /// Reads a slab; whether the transport has ended, which `ends` says of an error. Over TLS a read returns one record at
    /// most, so that this goes on until the slab is full or nothing is there.
    fn poll_fill<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
        ends: impl Fn(&io::Error) -> bool,
    ) -> Poll<io::Result<bool>> {
        if self.drained > 0 {
            self.drained -= 1;
            return Poll::Pending;
        }
        let mut end = false;
        self.borrow();
        while self.slab.len() < self.size {
            if self.slab.capacity() == self.slab.len() {
                if !self.slab.is_empty() {
                    break;
                }
                self.slab.reserve(self.size);
            }
            match poll_read_buf(Pin::new(&mut *io), cx, &mut self.slab) {
                Poll::Ready(Ok(0)) => end = true,
                Poll::Ready(Ok(_)) => continue,
                Poll::Ready(Err(error)) if ends(&error) => end = true,
                other if self.slab.is_empty() => {
                    self.drained = if other.is_pending() { DRAINED } else { 0 };
                    self.give_back();
                    return other.map_ok(|_| false);
                }
                // It comes again.
                Poll::Ready(Err(_)) => {}
                Poll::Pending => self.drained = DRAINED,
            }
            break;
        }
        self.unparsed = self.slab.split().freeze();
        Poll::Ready(Ok(end))
    }
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Reads one slab and has the engine parse it, or what is left of the one before. Events that the last turn left in the
    /// engine are delivered before a further read.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, Error>> {
        let left_over = !self.input.unparsed.is_empty();
        if self.turn.leaves_events() {
            self.parse(left_over, cx);
            return Poll::Ready(Ok(Read::Some));
        }
        if !self.connection.wants_read() {
            return Poll::Pending;
        }
        let mut end = false;
        if !left_over {
            // Over TLS a client may end its half without close_notify. The requests before it are authentic.
            let server = !self.is_client();
            let ends = |error: &io::Error| server && error.kind() == io::ErrorKind::UnexpectedEof;
            end = match ready!(self.input.poll_fill(&mut self.io, cx, ends)) {
                Ok(end) => end,
                Err(error) => return Poll::Ready(Err(self.transport_error(error))),
            };
        }
        if !self.input.unparsed.is_empty() {
            self.parse(left_over, cx);
        }
        if end && self.input.unparsed.is_empty() && self.connection.error().is_none() {
            if self.answers_half_closed(cx) {
                return Poll::Ready(Ok(Read::Some));
            }
            return Poll::Ready(self.transport_ended().map(|()| Read::End));
        }
        Poll::Ready(Ok(Read::Some))
    }

    /// Has the engine parse what was read, and delivers what came of it.
    fn parse(&mut self, left_over: bool, cx: &mut Context<'_>) {
        let now = self.now();
        self.renew_date(now);
        let octets = self.input.unparsed.len();
        let frames = self.connection.frames_received();
        let requests = self.rounds.begin(now);
        if octets > 0 && self.connection.wants_read() && self.connection.event_count() < MOST as usize {
            self.idle.received(octets);
            let input = &mut self.input.unparsed;
            // The engine keeps an error: its GOAWAY leaves first, then `ended` reports it.
            let parsed = self
                .connection
                .receive_some(input, requests.max(LEAST_PARSED), now);
            if parsed.is_err() {
                // What follows an error is not read (RFC 9113 section 5.4.1).
                input.clear();
            }
        }
        if let Some(minimum) = self.connection.round_trip().minimum() {
            self.mailbox
                .observe(|observer| observer.round_trip_measured(minimum));
        }
        let connection = &mut self.connection;
        self.mailbox.observe(|observer| {
            if observer.wants_round_trip() && connection.measure_round_trip(now) {
                observer.round_trip_asked();
            }
        });
        // The frame that is parsed next may reset the last request.
        let parses_on = !self.input.unparsed.is_empty() && self.connection.wants_read();
        self.deliver_until(requests, parses_on.into(), cx);
        let input = &mut self.input;
        let many = self.connection.frames_received() - frames > MANY_FRAMES;
        if many || !input.unparsed.is_empty() || self.turn.leaves_events() {
            self.rounds.leave(now);
            input.shrink();
            self.turn.yield_to_sockets(LISTS_BEFORE_READ);
        } else if !left_over && octets >= input.size {
            input.size = (input.size * 4).min(SLAB);
            // There may be any amount more, which concerns no handler of this connection.
            self.turn.yield_to_sockets(0);
        }
        self.input.give_back();
    }

    /// The peer has ended its half of the transport: whether something is left to be sent to it. Requests that are complete are
    /// still answered.
    fn answers_half_closed(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_client() || !self.connection.peer_settings_received() {
            return false;
        }
        let unsent = self.connection.wants_transmit() || self.out.has_remaining() || self.unflushed;
        if !unsent && !self.connection.has_unfinished_streams() {
            return false;
        }
        let now = self.now();
        self.truncated = self.connection.end_of_transport(now);
        self.deliver_events(cx);
        unsent || self.connection.has_unfinished_streams()
    }

    /// The transport ended: whether cleanly.
    pub(super) fn transport_ended(&self) -> Result<(), Error> {
        if self.connection.peer_settings_received()
            && !self.truncated
            && !self.connection.has_unfinished_streams()
        {
            return Ok(());
        }
        if !self.connection.peer_settings_received() {
            return Err(Error::unanswered(ErrorKind::NotHttp2, NO_SETTINGS, None));
        }
        Err(self.closed_early(None))
    }

    /// The peer closed the transport early, perhaps after a GOAWAY with a reason.
    pub(super) fn closed_early(&self, source: Option<io::Error>) -> Error {
        let goaway = self.peer_goaway.as_deref();
        Error::incomplete(goaway.filter(|goaway| goaway.code != ErrorCode::NO_ERROR), source)
    }

    pub(super) fn transport_error(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => match self.connection.peer_settings_received() {
                true => self.closed_early(Some(error)),
                false => Error::unanswered(ErrorKind::NotHttp2, NO_SETTINGS, Some(error.into())),
            },
            #[cfg(feature = "tls")]
            _ => crate::tls::connection_error(error),
            #[cfg(not(feature = "tls"))]
            _ => Error::io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn read(buffer: &mut ReadBuffer, mut octets: &[u8]) -> *const u8 {
        let mut cx = Context::from_waker(Waker::noop());
        let filled = buffer.poll_fill(&mut octets, &mut cx, |_| false);
        assert!(matches!(filled, Poll::Ready(Ok(true))), "{filled:?}");
        buffer.unparsed.as_ptr()
    }

    #[test]
    fn connections_of_a_thread_read_into_one_slab_unless_data_in_it_is_held() {
        let (mut one, mut other) = (ReadBuffer::default(), ReadBuffer::default());
        let slab = read(&mut one, b"first");
        one.unparsed.clear();
        one.give_back();
        assert_eq!(one.slab.capacity(), 0);
        assert_eq!(read(&mut other, b"second"), slab);
        let held = other.unparsed.split_to(3);
        other.unparsed.clear();
        other.give_back();
        assert_ne!(other.slab.capacity(), 0);
        assert_ne!(read(&mut one, b"third"), slab);
        assert_eq!(held, "sec");
        // What comes next to it is read where it was read.
        assert_eq!(read(&mut other, b"fourth"), slab.wrapping_add(6));
    }

    #[test]
    fn what_has_not_been_parsed_stays_where_it_is() {
        let (mut one, mut other) = (ReadBuffer::default(), ReadBuffer::default());
        read(&mut one, b"first");
        one.give_back();
        read(&mut other, b"second");
        assert_eq!(one.unparsed, "first");
    }

    #[test]
    fn a_slab_that_has_grown_belongs_to_its_connection() {
        let mut buffer = ReadBuffer {
            size: SLAB,
            ..ReadBuffer::default()
        };
        read(&mut buffer, b"much");
        buffer.unparsed.clear();
        buffer.give_back();
        assert_ne!(buffer.slab.capacity(), 0);
        buffer.size = SMALLEST_READ;
        buffer.give_back();
        assert_ne!(buffer.slab.capacity(), 0, "it is too long for the thread");
    }
}
