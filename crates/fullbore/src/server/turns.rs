//! Turns of TLS handshakes: one at a time on a thread, and every socket that is ready between two of them.
//!
//! A handshake takes as much processor time as some hundred requests, most of it in one poll. Without turns, handshakes
//! that arrive together run one after another, and every request waits for all of them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::PollSemaphore;

use crate::linger::wake_after_sockets;

thread_local! {
    /// The turn of this thread. Others wait for it in order.
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

pin_project! {
    /// A future that is polled in its turn.
    pub(super) struct InTurn<F> {
        // Waits for the turn of the thread that polled this first.
        turn: Option<PollSemaphore>,
        #[pin]
        future: F,
    }
}

impl<F> InTurn<F> {
    pub(super) fn new(future: F) -> Self {
        InTurn { turn: None, future }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let turn = this
            .turn
            .get_or_insert_with(|| PollSemaphore::new(TURN.with(Arc::clone)));
        // It is never closed.
        let permit = ready!(turn.poll_acquire(cx));
        *this.turn = None;
        let polled = this.future.poll(cx);
        let end = Waker::from(Arc::new(TurnEnd(Mutex::new(permit))));
        wake_after_sockets(&mut Context::from_waker(&end));
        polled
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
