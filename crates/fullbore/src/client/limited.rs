//! A request with a limit on its time, if there is one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::error::Error;

pin_project! {
    /// A future that fails when it takes too long. Not an `async fn`: that would reserve memory for the request twice.
    pub(super) struct Limited<F> {
        #[pin]
        sent: F,
        // In a box: most clients have no limit.
        limit: Option<(Duration, Pin<Box<Sleep>>)>,
    }
}

impl<F> Limited<F> {
    pub(super) fn new(limit: Option<Duration>, sent: F) -> Self {
        let limit = limit.map(|limit| (limit, Box::pin(tokio::time::sleep(limit))));
        Limited { sent, limit }
    }

    /// The limit and its timer, which goes on.
    pub(super) fn timer(self: Pin<&mut Self>) -> Option<(Duration, Pin<Box<Sleep>>)> {
        self.project().limit.take()
    }
}

impl<T, F> Future for Limited<F>
where
    F: Future<Output = Result<T, Error>>,
{
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let late = |limit: Duration| Err(Error::timeout("no response to the request", limit));
        // A timer takes a millisecond at least.
        if this.limit.as_ref().is_some_and(|(limit, _)| limit.is_zero()) {
            return Poll::Ready(late(Duration::ZERO));
        }
        if let Poll::Ready(answered) = this.sent.poll(cx) {
            return Poll::Ready(answered);
        }
        let Some((limit, timer)) = this.limit else {
            return Poll::Pending;
        };
        let elapsed = timer.as_mut().poll(cx);
        elapsed.map(|()| late(*limit))
    }
}
