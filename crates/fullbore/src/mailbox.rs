//! The meeting point of a connection's handles and its driver: the list of streams that have something for the driver, and
//! the count of bytes that readers have consumed.
//!
//! Handles take no lock that the whole connection shares. The list is a lock-free queue, on which a stream stands at most
//! once; the count is an atomic. A handle wakes the driver only when it sleeps and a stream was listed, or when a
//! WINDOW_UPDATE of the connection is due. `cell` says what is listed.

use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use fullbore_proto::{Report, WindowSize};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::observer::Observer;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex, MutexGuard, Ordering, SegQueue};

/// A request of a handle that concerns the whole connection.
pub(crate) enum ConnectionCommand {
    Report(oneshot::Sender<Report>),
    /// Grow the receive window.
    GrowWindow(WindowSize, oneshot::Sender<Result<(), Error>>),
}

/// A stream on the list.
pub(crate) trait Listed {
    fn connection_ended(&self, error: Error);
}

/// The mailbox of one connection, whose streams are of type `S`.
pub(crate) struct Mailbox<S: Listed> {
    listed: SegQueue<Arc<S>>,
    /// Rare, so that a lock will do.
    commands: Mutex<Vec<ConnectionCommand>>,
    /// The report at the end of the connection.
    last_report: OnceLock<Box<Report>>,
    /// Whether the driver is running or has been woken. It looks at the list before it sleeps.
    awake: AtomicBool,
    waker: AtomicWaker,
    /// Bytes that readers have consumed and whose credit the driver has not released.
    consumed: AtomicU64,
    /// The value of `consumed` that wakes the driver.
    wake_at: AtomicU64,
    /// Handles that may open streams.
    openers: AtomicUsize,
    /// Whether the owner asked for a graceful shutdown.
    shutdown: AtomicBool,
    /// Whether a command came, or one of the two above changed, since the driver looked at them.
    changed: AtomicBool,
    /// Whether new streams are refused, as far as the driver knows.
    closing: AtomicBool,
    /// Whether the driver has ended.
    closed: AtomicBool,
    /// The pool that this connection belongs to.
    observer: Option<Arc<dyn Observer>>,
}

impl<S: Listed> Mailbox<S> {
    pub(crate) fn new() -> Arc<Self> {
        Self::observed(None)
    }

    /// A mailbox whose driver also reports to `observer`.
    pub(crate) fn observed(observer: Option<Arc<dyn Observer>>) -> Arc<Self> {
        Arc::new(Mailbox {
            listed: SegQueue::default(),
            commands: Mutex::default(),
            last_report: OnceLock::new(),
            awake: AtomicBool::new(true),
            waker: AtomicWaker::default(),
            consumed: AtomicU64::default(),
            wake_at: AtomicU64::new(u64::MAX),
            openers: AtomicUsize::default(),
            shutdown: AtomicBool::default(),
            changed: AtomicBool::default(),
            closing: AtomicBool::default(),
            closed: AtomicBool::default(),
            observer,
        })
    }

    /// Lists a stream for the driver. The caller makes sure that it is listed once.
    pub(crate) fn post(&self, stream: Arc<S>) {
        self.listed.push(stream);
        self.wake();
        if self.closed.load(Ordering::SeqCst) {
            self.fail_listed(&Error::connection_gone());
        }
    }

    /// Sends a command to the driver. When the driver has ended, the sender of the answer is dropped.
    pub(crate) fn command(&self, command: ConnectionCommand) {
        self.commands().push(command);
        self.change();
        if self.closed.load(Ordering::SeqCst) {
            self.commands().clear();
        }
    }

    /// The report at the end of the connection.
    pub(crate) fn last_report(&self) -> Option<Report> {
        self.last_report.get().map(|report| **report)
    }

    /// Asks for the report of the connection, when this is called; that of its end, if it has ended.
    pub(crate) fn report(self: &Arc<Self>) -> impl Future<Output = Option<Report>> + use<S> {
        let (answer, answered) = oneshot::channel();
        self.command(ConnectionCommand::Report(answer));
        let mailbox = Arc::clone(self);
        async move { answered.await.ok().or_else(|| mailbox.last_report()) }
    }

    /// A reader has consumed `bytes`: their credit for the connection returns.
    pub(crate) fn consume(&self, bytes: u64) {
        let before = self.consumed.fetch_add(bytes, Ordering::SeqCst);
        let wake_at = self.wake_at.load(Ordering::SeqCst);
        if before < wake_at && before + bytes >= wake_at {
            self.wake();
        }
    }

    /// Asks the driver for a graceful shutdown.
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

    /// Whether a new stream may be opened.
    pub(crate) fn takes_new_streams(&self) -> bool {
        !self.is_closing() && !self.closed.load(Ordering::Acquire)
    }

    /// Wakes the driver, or makes it run one more turn when it is about to sleep.
    fn change(&self) {
        self.changed.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // Most callers find the driver awake and only read the flag, whose cache line the driver reads too. What they left
        // came before this load, and the driver clears the flag before its last look: one of the two sees the other.
        if !self.awake.load(Ordering::SeqCst) && !self.awake.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// The driver's side.
impl<S: Listed> Mailbox<S> {
    /// Takes the next listed stream.
    pub(crate) fn take(&self) -> Option<Arc<S>> {
        // Loads alone tell that it is empty. `pop` has a fence.
        match self.listed.is_empty() {
            true => None,
            false => self.listed.pop(),
        }
    }

    /// Takes the commands, if anything but the list has changed since the last call. Call it before you look at what else may
    /// have changed: shutdown and openers.
    pub(crate) fn take_commands(&self) -> Vec<ConnectionCommand> {
        match self.changed.load(Ordering::SeqCst) && self.changed.swap(false, Ordering::SeqCst) {
            true => std::mem::take(&mut *self.commands()),
            false => Vec::new(),
        }
    }

    fn commands(&self) -> MutexGuard<'_, Vec<ConnectionCommand>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_last_report(&self, report: Report) {
        // The first is the one of the end.
        let _ = self.last_report.set(Box::new(report));
    }

    /// Takes the count of bytes that readers have consumed since the last call.
    pub(crate) fn take_consumed(&self) -> u64 {
        match self.consumed.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.consumed.swap(0, Ordering::SeqCst),
        }
    }

    /// Sets how many consumed bytes wake the driver; false when there are as many already.
    #[must_use]
    pub(crate) fn wake_at(&self, bytes: u64) -> bool {
        self.wake_at.store(bytes, Ordering::SeqCst);
        self.consumed.load(Ordering::SeqCst) < bytes
    }

    /// The driver runs: no handle needs to wake it.
    pub(crate) fn begin_turn(&self, waker: &Waker) {
        self.waker.register(waker);
        self.awake.store(true, Ordering::SeqCst);
    }

    /// The driver is about to sleep; false when something came meanwhile.
    #[must_use]
    pub(crate) fn end_turn(&self) -> bool {
        self.awake.store(false, Ordering::SeqCst);
        self.listed.is_empty() && !self.changed.load(Ordering::SeqCst)
    }

    /// Whether no stream waits to be opened, and none can come any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        // In this order: a handle that is dropped has listed its stream before.
        self.openers.load(Ordering::Acquire) == 0 && self.listed.is_empty()
    }

    pub(crate) fn wants_shutdown(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }

    pub(crate) fn set_closing(&self) {
        if !self.closing.swap(true, Ordering::SeqCst) {
            self.observe(|observer| observer.closing());
        }
    }

    /// Whether the pool has requests that wait for a stream.
    pub(crate) fn has_requests_waiting(&self) -> bool {
        self.observer
            .as_ref()
            .is_some_and(|observer| observer.requests_wait())
    }

    /// The pool's view of the connection, if it belongs to one.
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// Reports to the pool, if there is one.
    pub(crate) fn observe(&self, report: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer {
            report(observer.as_ref());
        }
    }

    /// The driver ends: streams that are listed, or listed later, fail.
    pub(crate) fn close(&self, error: &Error) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.observe(|observer| observer.closed(error));
        }
        self.fail_listed(error);
        self.commands().clear();
    }

    fn fail_listed(&self, error: &Error) {
        while let Some(stream) = self.listed.pop() {
            stream.connection_ended(error.clone());
        }
    }
}
