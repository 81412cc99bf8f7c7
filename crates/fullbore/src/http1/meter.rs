//! What is known of an HTTP/1.1 connection: its bytes, whom it waits for, its turn, and how far its request is. The transport,
//! the service, the bodies and the connection's future share it.
//!
//! One task runs all of them, but for the body of a request, which a handler may pass to another task, and an upgraded
//! connection. So one task writes each of these values, and loads and stores do where a lock would cost two locked instructions
//! a request for each use.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use http::StatusCode;

use super::body::BodyEnd;
use super::noted::Noted;
use super::record::Record;
use crate::cell::register;
use crate::error::Error;

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

/// The bits of [`Traffic`].
pub(super) const AWAITS_READ: u8 = 1;
pub(super) const AWAITS_WRITE: u8 = 2;
pub(super) const ENDED: u8 = 4;
pub(super) const FAILED: u8 = 8;
pub(super) const RELEASED: u8 = 16;

/// How far the request of a server's connection is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The number of requests so far.
    pub(crate) requests: u64,
    /// The response is not complete.
    pub(crate) answers: bool,
    /// The body of the request is not complete.
    pub(crate) receives: bool,
    /// The body was dropped or has failed before its end, or ended with trailers.
    pub(crate) unread: bool,
    /// The head of the response has been made.
    pub(crate) responded: bool,
    /// The connection becomes a tunnel, by 101 or a 2xx to CONNECT.
    pub(crate) tunnel: bool,
}

impl Exchange {
    /// Whether a request is in progress.
    pub(crate) fn is_busy(self) -> bool {
        self.answers || self.receives || self.tunnel
    }
}

/// The bits of [`Exchange`], below the number of requests.
const ANSWERS: u64 = 1;
const RECEIVES: u64 = 2;
const UNREAD: u64 = 4;
/// The request has a body, whose reader may be another task.
const HAS_BODY: u64 = 8;
const RESPONDED: u64 = 16;
const TUNNEL: u64 = 32;
const NUMBER_SHIFT: u32 = 6;

/// Turns are counted above two bits: the transport may be taken from hyper's handle, and has no turns any more.
pub(super) const TAKEABLE: u64 = 1;
pub(super) const ENDLESS: u64 = 2;
const NEXT_TURN: u64 = 4;

/// The requests of one turn of a server's connection. Then every other connection has its turn.
const REQUESTS_OF_TURN: u32 = 16;

/// A longer read is noted, whatever is in it.
const LONGEST_PLAIN: usize = 4 << 10;

/// A piece of a file.
#[derive(Debug, Default)]
struct Piece {
    /// The transport has not taken the last one.
    is_held: bool,
    /// Woken when it has.
    reader: Option<Waker>,
}

/// What every request needs comes first, so that it is on one line of the processor's cache.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Meter {
    received: AtomicU64,
    sent: AtomicU64,
    exchange: AtomicU64,
    turn: AtomicU64,
    /// The requests that have begun in this turn.
    requests_of_turn: AtomicU32,
    traffic: AtomicU8,
    /// What hyper reads belongs to a head.
    notes: AtomicBool,
    /// The heads that hyper has parsed are forgotten when it reads more.
    forgets: AtomicBool,
    /// Something is noted.
    has_notes: AtomicBool,
    /// No further request is read.
    is_last: AtomicBool,
    noted: Mutex<Noted>,
    piece: Mutex<Piece>,
    /// Why the connection was ended.
    cause: Mutex<Option<Error>>,
    /// The status of a request that no service has seen; 0 if there was none.
    refused: AtomicU16,
    /// What a server's connection waits for, once it carries much.
    record: OnceLock<Box<Record>>,
}

impl Meter {
    /// [`Self::with_noted`] is given up to `most_noted` bytes.
    pub(super) fn new(received: u64, most_noted: usize) -> Self {
        Meter {
            received: AtomicU64::new(received),
            notes: AtomicBool::new(true),
            noted: Mutex::new(Noted::new(most_noted)),
            ..Meter::default()
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let bits = self.bits();
        Traffic {
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            awaits_read: bits & AWAITS_READ != 0,
            awaits_write: bits & AWAITS_WRITE != 0,
            ended: bits & ENDED != 0,
            failed: bits & FAILED != 0,
            released: bits & RELEASED != 0,
        }
    }

    pub(super) fn bits(&self) -> u8 {
        self.traffic.load(Ordering::Acquire)
    }

    /// Sets or clears a bit of the traffic. Only the task that has hyper's handle does this.
    pub(super) fn set(&self, bit: u8, is_set: bool) {
        let before = self.bits();
        let after = if is_set { before | bit } else { before & !bit };
        if after != before {
            self.traffic.store(after, Ordering::Release);
        }
    }

    pub(super) fn receive(&self, count: usize) {
        add(&self.received, count);
    }

    /// Whether so many bytes were received.
    #[inline]
    pub(super) fn has_received(&self, bytes: u64) -> bool {
        self.received.load(Ordering::Relaxed) >= bytes
    }

    pub(super) fn send(&self, count: usize) {
        add(&self.sent, count);
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// A turn of the connection ends, and the next one begins when it is polled.
    pub(crate) fn end_turn(&self) {
        self.requests_of_turn.store(0, Ordering::Relaxed);
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn.wrapping_add(NEXT_TURN), Ordering::Release);
    }

    /// The connection becomes a tunnel, whose reader and writer are other tasks.
    pub(crate) fn end_turns(&self) {
        self.turn.fetch_or(ENDLESS, Ordering::Release);
    }

    /// The connection may take the transport from hyper's handle while that lives. The handle obeys at its next use.
    pub(crate) fn let_take(&self) {
        self.turn.fetch_or(TAKEABLE, Ordering::Release);
    }

    /// A request begins. Returns its number, and whether it may be answered in this turn.
    pub(crate) fn begin(&self, receives: bool) -> (u64, bool) {
        let number = (self.exchange.load(Ordering::Relaxed) >> NUMBER_SHIFT) + 1;
        let body = if receives { RECEIVES | HAS_BODY } else { 0 };
        self.exchange
            .store((number << NUMBER_SHIFT) | ANSWERS | body, Ordering::Relaxed);
        (number, self.takes_turn())
    }

    /// Whether another request may be answered in this turn.
    pub(crate) fn takes_turn(&self) -> bool {
        let requests = self.requests_of_turn.load(Ordering::Relaxed).saturating_add(1);
        self.requests_of_turn.store(requests, Ordering::Relaxed);
        requests <= REQUESTS_OF_TURN
    }

    /// The head of the response has been made. Returns how far the request is.
    pub(crate) fn respond(&self, tunnel: bool) -> Exchange {
        let request = self.exchange.load(Ordering::Relaxed) >> NUMBER_SHIFT;
        let bits = if tunnel { RESPONDED | TUNNEL } else { RESPONDED };
        self.change(request, |exchange| exchange | bits);
        if tunnel {
            self.let_take();
        }
        self.exchange()
    }

    /// The response of a request has left hyper's queue of frames, or failed.
    pub(crate) fn answered(&self, request: u64) {
        self.change(request, |exchange| exchange & !ANSWERS);
    }

    /// The body of a request has ended. What hyper is given from now on belongs to a head.
    pub(crate) fn received_body(&self, request: u64, end: BodyEnd) {
        let unread = if end == BodyEnd::Complete { 0 } else { UNREAD };
        if end == BodyEnd::WithTrailers {
            self.is_last.store(true, Ordering::Release);
        }
        self.change(request, |exchange| (exchange & !(RECEIVES | UNREAD)) | unread);
        self.notes.store(true, Ordering::Release);
    }

    /// Whether what follows the last request on the connection is not to be trusted: see [`BodyEnd::WithTrailers`].
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// Changes the bits of a request that is in progress.
    fn change(&self, request: u64, change: impl Fn(u64) -> u64) {
        let mut exchange = self.exchange.load(Ordering::Relaxed);
        while exchange >> NUMBER_SHIFT == request {
            if exchange & HAS_BODY == 0 {
                self.exchange.store(change(exchange), Ordering::Relaxed);
                return;
            }
            let changed = self.exchange.compare_exchange_weak(
                exchange,
                change(exchange),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => return,
                Err(now) => exchange = now,
            }
        }
    }

    pub(crate) fn exchange(&self) -> Exchange {
        let exchange = self.exchange.load(Ordering::Relaxed);
        Exchange {
            requests: exchange >> NUMBER_SHIFT,
            answers: exchange & ANSWERS != 0,
            receives: exchange & RECEIVES != 0,
            unread: exchange & UNREAD != 0,
            responded: exchange & RESPONDED != 0,
            tunnel: exchange & TUNNEL != 0,
        }
    }

    /// The number of requests, and of the bytes received, if no request is in progress and nothing else is to be measured.
    #[inline]
    pub(crate) fn at_rest(&self) -> Option<(u64, u64)> {
        let exchange = self.exchange.load(Ordering::Relaxed);
        let is_busy = exchange & (ANSWERS | RECEIVES | TUNNEL) != 0;
        if is_busy || self.bits() & (AWAITS_WRITE | FAILED) != 0 {
            return None;
        }
        Some((exchange >> NUMBER_SHIFT, self.received.load(Ordering::Relaxed)))
    }

    /// No request is in progress, and none was left unread: what hyper reads belongs to a head.
    pub(super) fn is_idle(&self) -> bool {
        self.exchange.load(Ordering::Relaxed) & (ANSWERS | RECEIVES | UNREAD | TUNNEL) == 0
    }

    /// A response is in progress, and hyper does not read.
    pub(super) fn is_only_answering(&self) -> bool {
        self.exchange.load(Ordering::Relaxed) & (ANSWERS | RECEIVES) == ANSWERS
    }

    /// Forgets what was noted of requests whenever hyper reads more: it has parsed all complete heads by then.
    pub(super) fn forget_parsed(&self) {
        self.forgets.store(true, Ordering::Relaxed);
        self.noted().forgets = true;
    }

    /// hyper was given `read`.
    pub(super) fn note(&self, read: &[u8]) {
        if !self.notes.load(Ordering::Acquire) {
            return;
        }
        // Most reads of a server are whole heads, of which nothing has to be known.
        let has_notes = self.has_notes.load(Ordering::Relaxed);
        if !has_notes && self.forgets.load(Ordering::Relaxed) && is_plain(read) {
            return;
        }
        let mut noted = self.noted();
        noted.note(read);
        self.has_notes.store(!noted.is_empty(), Ordering::Relaxed);
    }

    /// Passes to `look` what hyper was given of the head that it has parsed, and perhaps of what follows. On a server that may be
    /// nothing if the head has no `transfer-encoding`. `look` also returns how much of it to forget. Nothing more is noted until
    /// [`Self::received_body`].
    pub(crate) fn with_noted<R>(&self, look: impl FnOnce(&[u8]) -> (R, usize)) -> R {
        let mut noted = self.noted();
        let (result, forget) = look(noted.bytes());
        self.notes.store(false, Ordering::Release);
        noted.forget(forget);
        self.has_notes.store(!noted.is_empty(), Ordering::Relaxed);
        result
    }

    /// Ready when the transport has taken the last piece of a file, and the next one may be read: [`Self::hold_piece`].
    pub(crate) fn poll_piece(&self, cx: &Context<'_>) -> Poll<()> {
        let mut piece = self.piece();
        if piece.is_held {
            register(&mut piece.reader, cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A piece of a file is read.
    pub(crate) fn hold_piece(&self) {
        self.piece().is_held = true;
    }

    /// The piece is not needed any more.
    pub(crate) fn drop_piece(&self) {
        let mut piece = self.piece();
        piece.is_held = false;
        let reader = piece.reader.take();
        drop(piece);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// What the connection waits for, if that is recorded.
    #[inline]
    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.get().map(|record| &**record)
    }

    /// The same. From now on it is recorded.
    #[cold]
    pub(crate) fn begin_record(&self) -> &Record {
        self.record.get_or_init(|| {
            let Traffic { sent, received, .. } = self.traffic();
            // What the first request has carried belongs to it.
            let before = match self.exchange().requests {
                0 | 1 => (0, 0),
                _ => (sent, received),
            };
            Box::new(Record::after(before, None))
        })
    }

    /// A request was answered with this status, and no service has seen it.
    pub(crate) fn refuse(&self, status: StatusCode) {
        self.refused.store(status.as_u16(), Ordering::Relaxed);
    }

    /// The status of [`Self::refuse`].
    pub(crate) fn refused(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.refused.load(Ordering::Relaxed)).ok()
    }

    /// Ends the connection for the reader of the request's body.
    pub(crate) fn fail(&self, cause: Error) {
        self.lock_cause().get_or_insert(cause);
    }

    /// What [`Self::fail`] was told first.
    pub(crate) fn cause(&self) -> Option<Error> {
        self.lock_cause().clone()
    }

    fn piece(&self) -> MutexGuard<'_, Piece> {
        self.piece.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_cause(&self) -> MutexGuard<'_, Option<Error>> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a read ends a head that does not name `transfer-encoding`.
fn is_plain(read: &[u8]) -> bool {
    read.len() <= LONGEST_PLAIN && read.ends_with(b"\r\n\r\n") && !names_transfer_encoding(read)
}

/// Looks at the hyphens, which are few.
fn names_transfer_encoding(read: &[u8]) -> bool {
    const NAME: &[u8] = b"transfer-encoding";
    const HYPHEN: usize = b"transfer".len();
    let is_named = |start: usize| {
        let name = read.get(start..start + NAME.len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(NAME))
    };
    memchr::memchr_iter(b'-', read).any(|at| at.checked_sub(HYPHEN).is_some_and(is_named))
}

/// Adds to a counter that no other task writes.
fn add(counter: &AtomicU64, count: usize) {
    let sum = counter.load(Ordering::Relaxed) + count as u64;
    counter.store(sum, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_late_tells_nothing_of_the_next_request() {
        let meter = Meter::default();
        let (first, _) = meter.begin(true);
        assert_eq!(meter.exchange(), exchange(1, true, true, false));
        assert!(!meter.is_only_answering());
        meter.received_body(first, BodyEnd::Incomplete);
        assert_eq!(meter.exchange(), exchange(1, true, false, true));
        assert!(meter.is_only_answering());
        meter.answered(first);
        assert_eq!(meter.exchange(), exchange(1, false, false, true));
        let (second, _) = meter.begin(true);
        meter.answered(first);
        meter.received_body(first, BodyEnd::Incomplete);
        assert_eq!(meter.exchange(), exchange(2, true, true, false));
        meter.answered(second);
        meter.received_body(second, BodyEnd::Complete);
        assert_eq!(meter.exchange(), exchange(2, false, false, false));
        meter.begin(false);
        assert_eq!(meter.exchange(), exchange(3, true, false, false));
    }

    fn exchange(requests: u64, answers: bool, receives: bool, unread: bool) -> Exchange {
        Exchange {
            requests,
            answers,
            receives,
            unread,
            ..Exchange::default()
        }
    }

    #[test]
    fn sixteen_requests_are_answered_in_a_turn() {
        let meter = Meter::default();
        let in_one_turn = || (0..20).filter(|_| meter.begin(false).1).count();
        assert_eq!(in_one_turn(), 16);
        assert!(!meter.takes_turn(), "a request that waits takes none either");
        meter.end_turn();
        assert_eq!(meter.exchange().requests, 20);
        assert!(meter.takes_turn());
        assert_eq!(in_one_turn(), 15, "it has taken one of the next");
    }

    #[test]
    fn the_connection_is_busy_until_the_response_has_left() {
        let meter = Meter::default();
        assert!(!meter.exchange().is_busy());
        let (first, _) = meter.begin(false);
        assert!(meter.exchange().is_busy());
        assert!(!meter.exchange().responded && meter.respond(false).responded);
        let (second, _) = meter.begin(false);
        assert!(!meter.exchange().responded, "the second one is not");
        meter.answered(first);
        let busy = meter.exchange().is_busy();
        assert!(busy, "the first response tells nothing of the second");
        meter.answered(second);
        assert!(!meter.exchange().is_busy());
    }

    #[test]
    fn a_tunnel_is_busy_after_its_response() {
        let meter = Meter::default();
        let (request, _) = meter.begin(false);
        assert!(meter.respond(true).tunnel);
        meter.answered(request);
        assert!(meter.exchange().is_busy());
    }

    #[test]
    fn readers_learn_what_ended_the_connection_first() {
        let meter = Meter::default();
        meter.fail(Error::new(crate::ErrorKind::Timeout, "the body took too long"));
        meter.fail(Error::incomplete(None, None));
        let cause = meter.cause().expect("a cause");
        assert_eq!(cause.kind(), crate::ErrorKind::Timeout);
    }

    /// What is noted after these reads, by a server or by a client.
    fn noted(is_server: bool, reads: &[&str]) -> String {
        let meter = Meter::new(0, 16 << 10);
        if is_server {
            meter.forget_parsed();
        }
        for read in reads {
            meter.note(read.as_bytes());
        }
        meter.with_noted(|noted| (String::from_utf8_lossy(noted).into_owned(), 0))
    }

    #[test]
    fn a_server_notes_nothing_of_whole_heads_without_transfer_encoding() {
        let plain = "GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: deflate\r\n\r\n";
        assert_eq!(noted(true, &[plain]), "");
        assert_eq!(noted(false, &[plain]), plain);
        for name in ["Transfer-Encoding", "TRANSFER-ENCODING", "tRANSfER-encoding"] {
            let chunked = format!("POST / HTTP/1.1\r\n{name}: chunked\r\n\r\n");
            assert_eq!(noted(true, &[&chunked]), chunked);
            assert_eq!(noted(true, &[plain, &chunked]), chunked);
            let together = format!("{plain}{chunked}");
            assert_eq!(noted(true, &[&together]), together);
            for split in 1..chunked.len() {
                let (first, second) = chunked.split_at(split);
                assert_eq!(noted(true, &[first, second]), chunked, "at {split}");
                let behind = format!("{plain}{first}");
                assert_eq!(noted(true, &[&behind, second]), chunked, "at {split}");
            }
        }
    }

    #[test]
    fn the_bits_of_the_traffic_are_independent() {
        let meter = Meter::new(7, 0);
        meter.set(AWAITS_READ, true);
        meter.set(ENDED, true);
        meter.set(AWAITS_READ, false);
        meter.set(AWAITS_WRITE, true);
        meter.receive(3);
        meter.send(5);
        let traffic = meter.traffic();
        assert!(traffic.ended && traffic.awaits_write);
        assert!(!traffic.awaits_read && !traffic.failed && !traffic.released);
        assert_eq!((traffic.received, traffic.sent), (10, 5));
    }
}
