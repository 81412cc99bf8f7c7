//! Turns: of the tasks of a thread that do much at once, one does so at a time, and every socket that is ready is served between
//! two of them.
//!
//! A TLS handshake takes as much processor time as some hundred requests, most of it in one poll, and reading what a closed
//! connection still receives takes as much as several. Without turns, those that come together run one after another, and every
//! request waits for all of them.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::LocalKey;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// The queue of those that take turns with each other: whoever has the permit has the turn, and others wait for it in order.
pub(crate) type Queue = &'static LocalKey<Arc<Semaphore>>;

/// Makes a [`Queue`], of one turn at a time.
pub(crate) fn queue() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

/// One of those that take turns on a thread.
#[derive(Debug)]
pub(crate) struct Turns {
    queue: Queue,
    /// Waits for a turn on the thread that asked for it first.
    waiting: Option<PollSemaphore>,
}

impl Turns {
    /// Takes turns with all others of this queue.
    pub(crate) fn of(queue: Queue) -> Self {
        Turns { queue, waiting: None }
    }

    /// Does what is to be done in one turn, once it is this one's.
    pub(crate) fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> R,
    ) -> Poll<R> {
        let queue = self.queue;
        let waiting = self
            .waiting
            .get_or_insert_with(|| PollSemaphore::new(queue.with(Arc::clone)));
        // It is never closed.
        let permit = ready!(waiting.poll_acquire(cx));
        self.waiting = None;
        let done = work(cx);
        let end = Waker::from(Arc::new(TurnEnd(Mutex::new(permit))));
        wake_after_sockets(&mut Context::from_waker(&end));
        Poll::Ready(done)
    }
}

/// Passes the turn on when it is woken.
struct TurnEnd(Mutex<Option<OwnedSemaphorePermit>>);

impl Wake for TurnEnd {
    fn wake(self: Arc<Self>) {
        let permit = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(permit);
    }
}

thread_local! {
    /// How many turns connections of servers have taken on this thread. Those of clients do not count: a proxy's connections to
    /// its origins have turns whenever its clients do.
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// How many turns a connection of a server has taken, to tell them from those of the others on its thread.
#[derive(Debug, Default)]
pub(crate) struct Taken(u32);

impl Taken {
    /// The connection is polled.
    pub(crate) fn count(&mut self) {
        self.0 = self.0.wrapping_add(1);
        count();
    }

    /// Whether it has taken any.
    pub(crate) fn any(&self) -> bool {
        self.0 > 0
    }

    /// A number that stays the same while no other connection of this thread takes a turn.
    pub(crate) fn by_others(&self) -> u32 {
        TAKEN.get().wrapping_sub(self.0)
    }
}

/// Counts a turn of a connection that needs no [`Taken`], as over HTTP/1.1.
pub(crate) fn count() {
    TAKEN.set(TAKEN.get().wrapping_add(1));
}

/// Wakes this task once the runtime has polled all sockets. A task that only wakes itself is among the next to run, and tokio
/// polls sockets after 61 of those: a peer that always has more ready would make all others wait for so many turns.
pub(crate) fn wake_after_sockets(cx: &mut Context<'_>) {
    let yielding = pin!(tokio::task::yield_now());
    // The first poll is pending, and registers the waker.
    let _ = yielding.poll(cx);
}
