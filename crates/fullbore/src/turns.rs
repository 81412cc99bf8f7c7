//! Turns: who does much at once does it one at a time on a thread, and every socket that is ready is served between two of them.
//!
//! A TLS handshake takes as much processor time as some hundred requests, most of it in one poll, and to read what a closed
//! connection still receives takes as much as some ten. Without turns, those that come together run one after another, and every
//! request waits for all of them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::LocalKey;

use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

/// Those that take turns with each other: whoever has the permit has the turn, and others wait for it in order.
type Queue = &'static LocalKey<Arc<Semaphore>>;

thread_local! {
    /// TLS handshakes of this thread.
    static HANDSHAKES: Arc<Semaphore> = Arc::new(Semaphore::new(1));
    /// Closed connections of this thread that are read.
    static CLOSED: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// One of those that take turns on a thread.
#[derive(Debug)]
pub(crate) struct Turns {
    queue: Queue,
    /// Waits for a turn on the thread that asked for it first.
    waiting: Option<PollSemaphore>,
}

impl Turns {
    /// Closed connections take turns to be read.
    pub(crate) fn of_closed_connections() -> Self {
        Self::of(&CLOSED)
    }

    fn of(queue: Queue) -> Self {
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

/// Wakes this task once the runtime has polled all sockets. A task that only wakes itself is among the next to run, and tokio
/// polls sockets after 61 of those: a peer that always has more ready would make all others wait for so many turns.
pub(crate) fn wake_after_sockets(cx: &mut Context<'_>) {
    let yielding = pin!(tokio::task::yield_now());
    // The first poll is pending, and registers the waker.
    let _ = yielding.poll(cx);
}

pin_project! {
    /// A TLS handshake that is polled in its turn.
    pub(crate) struct InTurn<F> {
        turns: Turns,
        #[pin]
        handshake: F,
    }
}

impl<F> InTurn<F> {
    pub(crate) fn new(handshake: F) -> Self {
        InTurn {
            turns: Turns::of(&HANDSHAKES),
            handshake,
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let handshake = this.handshake;
        ready!(this.turns.poll(cx, |cx| handshake.poll(cx)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    type Order = Arc<Mutex<Vec<&'static str>>>;

    /// Notes a name each time it is polled, `times` times.
    async fn note(order: Order, name: &'static str, times: usize) {
        let mut polled = 0;
        poll_fn(|cx| {
            order.lock().unwrap().push(name);
            polled += 1;
            cx.waker().wake_by_ref();
            match polled == times {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Has its turn whenever the sockets have been polled, as a task that waits for one.
    async fn other(order: Order) {
        for _ in 0..12 {
            order.lock().unwrap().push("other");
            poll_fn(|cx| {
                wake_after_sockets(cx);
                Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn between_two_handshakes_whoever_has_something_to_read_has_its_turn() {
        let order = Order::default();
        let mut tasks: Vec<_> = (0..5)
            .map(|_| tokio::spawn(InTurn::new(note(Arc::clone(&order), "handshake", 2))))
            .collect();
        tasks.push(tokio::spawn(other(Arc::clone(&order))));
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        let handshakes = order.iter().filter(|name| **name == "handshake").count();
        assert_eq!(handshakes, 10, "{order:?}");
        // One before the other task in a round of the runtime, and one behind it in the round before.
        let together = order.split(|name| *name == "other").map(<[_]>::len).max();
        assert_eq!(together, Some(2), "{order:?}");
    }

    #[tokio::test]
    async fn handshakes_and_closed_connections_do_not_wait_for_each_other() {
        let order = Order::default();
        let noted = Arc::clone(&order);
        let mut closed = Turns::of_closed_connections();
        let closed = tokio::spawn(poll_fn(move |cx| {
            closed.poll(cx, |_| noted.lock().unwrap().push("closed"))
        }));
        let handshake = tokio::spawn(InTurn::new(note(Arc::clone(&order), "handshake", 1)));
        tokio::spawn(other(Arc::clone(&order)));
        closed.await.unwrap();
        handshake.await.unwrap();
        let order = order.lock().unwrap();
        assert_eq!(
            order.first_chunk(),
            Some(&["closed", "handshake", "other"]),
            "{order:?}"
        );
    }

    #[tokio::test]
    async fn a_handshake_that_is_given_up_while_it_waits_passes_its_turn_on() {
        let order = Order::default();
        let first = tokio::spawn(InTurn::new(note(Arc::clone(&order), "first", 3)));
        let given_up = tokio::spawn(InTurn::new(note(Arc::clone(&order), "given up", 3)));
        let last = tokio::spawn(InTurn::new(note(Arc::clone(&order), "last", 3)));
        tokio::task::yield_now().await;
        given_up.abort();
        first.await.unwrap();
        last.await.unwrap();
        assert!(given_up.await.unwrap_err().is_cancelled());
        let order = order.lock().unwrap();
        let count = |name| order.iter().filter(|noted| **noted == name).count();
        assert_eq!((count("first"), count("last")), (3, 3), "{order:?}");
    }
}
