//! The timer of a connection: one for all its exchanges, and for the time between two of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::alarm::poll_sleep;

/// Wakes the connection's task when a time has come. A timer that is set for an earlier time stays as it is, and is moved when it
/// fires: a limit on time is almost never exceeded, and a timer of its own for each would be set and removed with every request.
#[derive(Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready when `at` has come. The task, which is the same each time, may be woken earlier too.
    pub(super) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = match &mut self.0 {
            // It wakes the task in time.
            Some(sleep) if sleep.deadline() <= at && !sleep.is_elapsed() => return Poll::Pending,
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            none => none.insert(Box::pin(sleep_until(at))),
        };
        poll_sleep(sleep.as_mut(), cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_over_at_the_time_that_was_asked_for_last() {
        let mut timer = Timer::default();
        let begun = Instant::now();
        // Later than the one before, and earlier.
        for seconds in [4, 60, 10, 11, 11] {
            let at = begun + Duration::from_secs(seconds);
            assert!(poll_fn(|cx| Poll::Ready(timer.poll(at, cx))).await.is_pending() || at <= Instant::now());
        }
        for seconds in [11, 20, 60] {
            let at = begun + Duration::from_secs(seconds);
            poll_fn(|cx| timer.poll(at, cx)).await;
            assert_eq!(begun.elapsed().as_secs(), seconds);
        }
    }
}
