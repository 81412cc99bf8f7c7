//! Where the handles of a connection leave word for its driver: the list of streams that have something for it, and the
//! count of bytes that readers have consumed.
//!
//! Handles never take a lock that the whole connection shares. The list is a lock-free queue, on which a stream stands
//! at most once; the count is an atomic. The driver is woken when the list was empty and it sleeps, or when the count
//! makes a WINDOW_UPDATE due.

use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use fullbore_proto::{Report, WindowSize};
use tokio::sync::oneshot;

use crate::cell::Cell;
use crate::error::Error;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex, MutexGuard, Ordering, SegQueue};
use crate::watch::Watch;

/// What a handle asks of the connection as a whole.
pub(crate) enum Command {
    /// How it stands.
    Report(oneshot::Sender<Report>),
    /// A larger receive window.
    GrowWindow(WindowSize, oneshot::Sender<Result<(), Error>>),
}

/// The meeting point of all handles of one connection with its driver.
#[derive(Default)]
pub(crate) struct Mailbox {
    listed: SegQueue<Arc<Cell>>,
    /// Asked so seldom that a lock will do.
    commands: Mutex<Vec<Command>>,
    /// How the connection stood when it ended.
    last_report: OnceLock<Box<Report>>,
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
    /// Whoever pools this connection with others.
    watch: Option<Arc<dyn Watch>>,
}

impl Mailbox {
    pub(crate) fn new() -> Arc<Self> {
        Self::watched(None)
    }

    /// One whose driver also tells `watch`.
    pub(crate) fn watched(watch: Option<Arc<dyn Watch>>) -> Arc<Self> {
        Arc::new(Mailbox {
            due: AtomicU64::new(u64::MAX),
            awake: AtomicBool::new(true),
            watch,
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

    /// Asks something of the connection as a whole. When the driver is gone the answer never comes.
    pub(crate) fn command(&self, command: Command) {
        self.commands().push(command);
        self.wake();
        if self.closed.load(Ordering::SeqCst) {
            self.commands().clear();
        }
    }

    /// How the connection stood when it ended, once it has.
    pub(crate) fn last_report(&self) -> Option<Report> {
        self.last_report.get().map(|report| **report)
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
        self.set_closing();
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
        // Most find it awake, and leave the mark alone, which the driver reads too. What they have left came before, and the
        // driver takes its mark away before it looks a last time: one of the two sees the other.
        if !self.awake.load(Ordering::SeqCst) && !self.awake.swap(true, Ordering::SeqCst) {
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

    /// What handles have asked.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut *self.commands())
    }

    fn commands(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_last_report(&self, report: Report) {
        // The first is the one of the end.
        let _ = self.last_report.set(Box::new(report));
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
        let quiet = self.listed.is_empty() && self.commands().is_empty();
        quiet && !self.changed.swap(false, Ordering::SeqCst)
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
        if !self.closing.swap(true, Ordering::SeqCst) {
            self.tell(|watch| watch.closing());
        }
    }

    /// Whether whoever pools this connection keeps requests back for want of streams.
    pub(crate) fn keeps_requests_back(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.requests_wait())
    }

    /// Why the connection cannot be had, as whoever pools it knows.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.watch.as_ref()?.failure()
    }

    /// Tells whoever pools this connection.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Watch)) {
        if let Some(watch) = &self.watch {
            what(watch.as_ref());
        }
    }

    /// The driver ends: whoever is on the list, or comes later, is told why.
    pub(crate) fn close(&self, error: &Error) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.tell(|watch| watch.closed(error));
        }
        self.fail_listed(error);
        self.commands().clear();
    }

    fn fail_listed(&self, error: &Error) {
        while let Some(cell) = self.listed.pop() {
            cell.fail(error.clone());
        }
    }
}
