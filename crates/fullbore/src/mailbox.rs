//! Where the handles of a connection leave word for its driver: the list of streams that have something for it, and the
//! count of bytes that readers have consumed.
//!
//! Handles never take a lock that the whole connection shares. The list is a lock-free queue, on which a stream stands
//! at most once; the count is an atomic. The driver is woken when the list was empty and it sleeps, or when the count
//! makes a WINDOW_UPDATE due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use crossbeam_queue::SegQueue;

use crate::cell::Cell;
use crate::error::Error;

/// The meeting point of all handles of one connection with its driver.
#[derive(Default)]
pub(crate) struct Mailbox {
    listed: SegQueue<Arc<Cell>>,
    /// Whether the driver is at work or has been woken: then it will look at the list by itself.
    awake: AtomicBool,
    waker: AtomicWaker,
    /// Bytes consumed by all readers since the connection began.
    consumed: AtomicU64,
    /// The value of `consumed` at which the driver wants to know.
    due: AtomicU64,
    /// Handles that may open streams.
    openers: AtomicUsize,
    /// Whether the owner asked for a graceful end.
    shutdown: AtomicBool,
    /// Whether the driver has not looked yet at a change of the two above.
    changed: AtomicBool,
    /// Whether new streams may be opened, as far as the driver knows.
    closing: AtomicBool,
    /// Whether the driver is gone.
    closed: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Mailbox {
            due: AtomicU64::new(u64::MAX),
            awake: AtomicBool::new(true),
            ..Self::default()
        })
    }

    /// A stream has something for the driver. The cell has made sure that it stands on the list once.
    pub(crate) fn post(&self, cell: Arc<Cell>) {
        self.listed.push(cell);
        self.wake();
        if self.closed.load(Ordering::SeqCst) {
            self.fail_listed(&Error::connection_gone());
        }
    }

    /// A reader is done with bytes: the connection's share of their credit.
    pub(crate) fn consume(&self, bytes: u64) {
        let before = self.consumed.fetch_add(bytes, Ordering::SeqCst);
        let due = self.due.load(Ordering::SeqCst);
        if before < due && before + bytes >= due {
            self.wake();
        }
    }

    /// Asks the driver for a graceful end.
    pub(crate) fn shut_down(&self) {
        self.shutdown.store(true, Ordering::SeqCst);
        self.closing.store(true, Ordering::SeqCst);
        self.change();
    }

    pub(crate) fn add_opener(&self) {
        self.openers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_opener(&self) {
        if self.openers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.change();
        }
    }

    /// Whether either side has begun to end the connection.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether a new stream has a chance.
    pub(crate) fn takes_new_streams(&self) -> bool {
        !self.is_closing() && !self.closed.load(Ordering::Acquire)
    }

    /// Wakes the driver, or makes it turn once more when it is at work and may have looked already.
    fn change(&self) {
        self.changed.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// The driver's side.
impl Mailbox {
    /// The next stream that has something.
    pub(crate) fn take(&self) -> Option<Arc<Cell>> {
        self.listed.pop()
    }

    /// Bytes consumed by all readers since the connection began.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::SeqCst)
    }

    /// Sets at which count the driver wants to be woken; false when that many are consumed already.
    #[must_use]
    pub(crate) fn set_due(&self, due: u64) -> bool {
        self.due.store(due, Ordering::SeqCst);
        self.consumed() < due
    }

    /// The driver is at work: nobody needs to wake it.
    pub(crate) fn begin_turn(&self, waker: &Waker) {
        self.waker.register(waker);
        self.awake.store(true, Ordering::SeqCst);
    }

    /// The driver is about to sleep; false when something came meanwhile.
    #[must_use]
    pub(crate) fn end_turn(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        self.listed.is_empty() && !self.changed.swap(false, Ordering::SeqCst)
    }

    /// Whether no stream waits to be opened, and none can come any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        // In this order: what the last handle has posted before it went is on the list.
        self.openers.load(Ordering::Acquire) == 0 && self.listed.is_empty()
    }

    pub(crate) fn wants_shutdown(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }

    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// The driver ends: whoever is on the list, or comes later, is told why.
    pub(crate) fn close(&self, error: &Error) {
        self.closed.store(true, Ordering::SeqCst);
        self.fail_listed(error);
    }

    fn fail_listed(&self, error: &Error) {
        while let Some(cell) = self.listed.pop() {
            cell.fail(error.clone());
        }
    }
}
