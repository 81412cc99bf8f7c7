//! What is known of an HTTP/1.1 connection: its bytes, whom it waits for, its turn, and how far its request is. The transport,
//! the service, the bodies and the connection's future share it.
//!
//! One task runs all of them, but for the body of a request, which a handler may pass to another task, and an upgraded
//! connection. So one task writes each of these values, and loads and stores do where a lock would cost two locked instructions
//! a request for each use.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::noted::Noted;

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
    /// The body was dropped or has failed before its end.
    pub(crate) unread: bool,
}

/// The bits of [`Exchange`], below the number of requests.
const ANSWERS: u64 = 1;
const RECEIVES: u64 = 2;
const UNREAD: u64 = 4;
/// The request has a body, whose reader may be another task.
const HAS_BODY: u64 = 8;
const NUMBER_SHIFT: u32 = 4;

/// Turns are counted above two bits: the transport may be taken from hyper's handle, and has no turns any more.
pub(super) const TAKEABLE: u64 = 1;
pub(super) const ENDLESS: u64 = 2;
const NEXT_TURN: u64 = 4;

#[derive(Debug, Default)]
pub(crate) struct Meter {
    received: AtomicU64,
    sent: AtomicU64,
    traffic: AtomicU8,
    turn: AtomicU64,
    exchange: AtomicU64,
    /// What hyper reads belongs to a head.
    notes: AtomicBool,
    noted: Mutex<Noted>,
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

    pub(super) fn send(&self, count: usize) {
        add(&self.sent, count);
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// A turn of the connection ends, and the next one begins when it is polled.
    pub(crate) fn end_turn(&self) {
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

    /// A request begins. Returns its number.
    pub(crate) fn begin(&self, receives: bool) -> u64 {
        let number = (self.exchange.load(Ordering::Relaxed) >> NUMBER_SHIFT) + 1;
        let body = if receives { RECEIVES | HAS_BODY } else { 0 };
        self.exchange
            .store((number << NUMBER_SHIFT) | ANSWERS | body, Ordering::Relaxed);
        number
    }

    /// The response of a request has left hyper's queue of frames, or failed.
    pub(crate) fn answered(&self, request: u64) {
        self.change(request, |exchange| exchange & !ANSWERS);
    }

    /// The body of a request has ended. What hyper is given from now on belongs to a head.
    pub(crate) fn received_body(&self, request: u64, complete: bool) {
        let unread = if complete { 0 } else { UNREAD };
        self.change(request, |exchange| (exchange & !(RECEIVES | UNREAD)) | unread);
        self.notes.store(true, Ordering::Release);
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
        }
    }

    /// A response is in progress, and hyper does not read.
    pub(super) fn is_only_answering(&self) -> bool {
        self.exchange.load(Ordering::Relaxed) & (ANSWERS | RECEIVES) == ANSWERS
    }

    /// Forgets what was noted of requests whenever hyper reads more: it has parsed all complete heads by then.
    pub(super) fn forget_parsed(&self) {
        self.noted().forgets = true;
    }

    /// hyper was given `read`.
    pub(super) fn note(&self, read: &[u8]) {
        if self.notes.load(Ordering::Acquire) {
            self.noted().note(read);
        }
    }

    /// Passes to `look` what hyper was given of the head that it has parsed, and perhaps of what follows. `look` also returns
    /// how much of it to forget. Nothing more is noted until [`Self::received_body`].
    pub(crate) fn with_noted<R>(&self, look: impl FnOnce(&[u8]) -> (R, usize)) -> R {
        let mut noted = self.noted();
        let (result, forget) = look(noted.bytes());
        self.notes.store(false, Ordering::Release);
        noted.forget(forget);
        result
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let first = meter.begin(true);
        assert_eq!(meter.exchange(), exchange(1, true, true, false));
        assert!(!meter.is_only_answering());
        meter.received_body(first, false);
        assert_eq!(meter.exchange(), exchange(1, true, false, true));
        assert!(meter.is_only_answering());
        meter.answered(first);
        assert_eq!(meter.exchange(), exchange(1, false, false, true));
        let second = meter.begin(true);
        meter.answered(first);
        meter.received_body(first, false);
        assert_eq!(meter.exchange(), exchange(2, true, true, false));
        meter.answered(second);
        meter.received_body(second, true);
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
