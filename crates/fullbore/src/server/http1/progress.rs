//! How far the request of a connection is. Its service, both bodies and the connection itself share this.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::cell::register;
use crate::error::Error;
use crate::http1::{BodyWatch, Meter};

/// The state that is shared. The connection's task writes all of it, but for the end of a request's body: see [`Meter`].
#[derive(Debug, Default)]
pub(super) struct Progress {
    meter: Arc<Meter>,
    /// The requests that have begun in this turn.
    turn: AtomicU32,
    responded: AtomicBool,
    tunnel: AtomicBool,
    /// Why the connection was ended.
    cause: Mutex<Option<Error>>,
    piece: Mutex<Piece>,
}

/// The requests of one turn of the connection. Then every other connection has its turn.
const REQUESTS_OF_TURN: u32 = 16;

/// A piece of a file.
#[derive(Debug, Default)]
struct Piece {
    /// The transport has not taken the last one.
    is_held: bool,
    /// Woken when it has.
    reader: Option<Waker>,
}

/// How far the request is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Now {
    /// The number of requests so far.
    pub(super) requests: u64,
    /// The response is not complete.
    pub(super) answers: bool,
    /// The body of the request is not complete.
    pub(super) receives: bool,
    /// The body was dropped or has failed before its end.
    pub(super) unread: bool,
    /// The head of the response has been made.
    pub(super) responded: bool,
    /// The connection becomes a tunnel, by 101 or a 2xx to CONNECT.
    pub(super) tunnel: bool,
}

impl Now {
    /// Whether a request is in progress.
    pub(super) fn is_busy(self) -> bool {
        self.answers || self.receives || self.tunnel
    }
}

impl Progress {
    pub(super) fn new(meter: &Arc<Meter>) -> Self {
        Progress {
            meter: Arc::clone(meter),
            ..Progress::default()
        }
    }

    pub(super) fn now(&self) -> Now {
        let exchange = self.meter.exchange();
        Now {
            requests: exchange.requests,
            answers: exchange.answers,
            receives: exchange.receives,
            unread: exchange.unread,
            responded: self.responded.load(Ordering::Relaxed),
            tunnel: self.tunnel.load(Ordering::Relaxed),
        }
    }

    /// A turn of the connection ends, and the next one begins when it is polled.
    pub(super) fn end_turn(&self) -> Now {
        self.turn.store(0, Ordering::Relaxed);
        self.now()
    }

    /// Whether another request may be answered in this turn.
    pub(super) fn takes_turn(&self) -> bool {
        let turn = self.turn.load(Ordering::Relaxed).saturating_add(1);
        self.turn.store(turn, Ordering::Relaxed);
        turn <= REQUESTS_OF_TURN
    }

    /// A request begins. Returns its number, and whether it may be answered in this turn.
    pub(super) fn begin(&self, receives: bool) -> (u64, bool) {
        self.responded.store(false, Ordering::Relaxed);
        self.tunnel.store(false, Ordering::Relaxed);
        (self.meter.begin(receives), self.takes_turn())
    }

    /// The head of the response has been made. Returns how far the request is.
    pub(super) fn respond(&self, tunnel: bool) -> Now {
        self.responded.store(true, Ordering::Relaxed);
        if tunnel {
            self.tunnel.store(true, Ordering::Relaxed);
            self.meter.let_take();
        }
        self.now()
    }

    /// The response of a request has left hyper's queue of frames, or failed.
    pub(super) fn answered(&self, request: u64) {
        self.meter.answered(request);
    }

    /// Passes what was noted of the request's head to `look`: [`Meter::with_noted`].
    pub(super) fn with_noted<R>(&self, look: impl FnOnce(&[u8]) -> (R, usize)) -> R {
        self.meter.with_noted(look)
    }

    /// Ready when the transport has taken the last piece of a file, and the next one may be read: [`Self::hold_piece`].
    pub(super) fn poll_piece(&self, cx: &Context<'_>) -> Poll<()> {
        let mut piece = self.piece();
        if piece.is_held {
            register(&mut piece.reader, cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A piece of a file is read.
    pub(super) fn hold_piece(&self) {
        self.piece().is_held = true;
    }

    /// The piece is not needed any more.
    pub(super) fn drop_piece(&self) {
        let mut piece = self.piece();
        piece.is_held = false;
        let reader = piece.reader.take();
        drop(piece);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Ends the connection for the reader of the request's body.
    pub(super) fn fail(&self, cause: Error) {
        self.lock_cause().get_or_insert(cause);
    }

    fn piece(&self) -> MutexGuard<'_, Piece> {
        self.piece.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_cause(&self) -> MutexGuard<'_, Option<Error>> {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the body of a request.
pub(super) struct RequestWatch {
    pub(super) request: u64,
    pub(super) progress: Arc<Progress>,
}

impl BodyWatch for RequestWatch {
    fn ended(self: Box<Self>, complete: bool) {
        self.progress.meter.received_body(self.request, complete);
    }

    fn cause(&self) -> Option<Error> {
        self.progress.lock_cause().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_requests_are_answered_in_a_turn() {
        let progress = Progress::default();
        let in_one_turn = || (0..20).filter(|_| progress.begin(false).1).count();
        assert_eq!(in_one_turn(), 16);
        assert!(!progress.takes_turn(), "a request that waits takes none either");
        assert_eq!(progress.end_turn().requests, 20);
        assert!(progress.takes_turn());
        assert_eq!(in_one_turn(), 15, "it has taken one of the next");
    }

    #[test]
    fn the_connection_is_busy_until_the_response_has_left() {
        let progress = Progress::default();
        assert!(!progress.now().is_busy());
        let (first, _) = progress.begin(false);
        assert!(progress.now().is_busy());
        assert!(!progress.now().responded && progress.respond(false).responded);
        let (second, _) = progress.begin(false);
        assert!(!progress.now().responded, "the second one is not");
        progress.answered(first);
        assert!(
            progress.now().is_busy(),
            "the first response tells nothing of the second"
        );
        progress.answered(second);
        assert!(!progress.now().is_busy());
    }

    #[test]
    fn a_tunnel_is_busy_after_its_response() {
        let progress = Progress::default();
        let (request, _) = progress.begin(false);
        assert!(progress.respond(true).tunnel);
        progress.answered(request);
        assert!(progress.now().is_busy());
    }

    #[test]
    fn readers_learn_what_ended_the_connection_first() {
        let progress = Progress::default();
        progress.fail(Error::new(crate::ErrorKind::Timeout, "the body took too long"));
        progress.fail(Error::incomplete(None, None));
        let cause = progress.lock_cause().clone().expect("a cause");
        assert_eq!(cause.kind(), crate::ErrorKind::Timeout);
    }
}
