//! A request that waits for a slot.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Lease, OriginPool, shut_down};
use crate::client::pool::wait_clock::RequestWait;
use crate::error::Error;

/// The place of a request in the queue, which it keeps over its repeats: the oldest request goes first, so that none is
/// overtaken for ever.
#[derive(Default)]
pub(in crate::client::pool) struct Place {
    pub(super) number: Option<u64>,
    pub(super) wait: RequestWait,
}

/// A request in the queue.
pub(super) struct QueuedRequest {
    pub(super) pool: Arc<OriginPool>,
    pub(super) number: u64,
    pub(super) receiver: oneshot::Receiver<Result<Lease, Error>>,
    pub(super) answered: bool,
}

impl Future for QueuedRequest {
    type Output = Result<Lease, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.receiver).poll(cx));
        self.answered = true;
        Poll::Ready(answer.unwrap_or_else(|_| Err(shut_down())))
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.pool.lock();
        let waiter = state.waiting.remove(&self.number);
        if state.waiting.is_empty() {
            let now = Instant::now();
            state.growth.queue_emptied(now);
            state.clock.set_running(false, now);
        }
        self.pool.update_queued(&state);
        drop(state);
        // A slot that was assigned meanwhile is dropped with the receiver, and goes to the next request.
        drop(waiter);
    }
}
