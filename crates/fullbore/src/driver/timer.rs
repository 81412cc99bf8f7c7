//! A timer of the runtime that is asked only when it may be due: most turns of a connection find it far from that.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::alarm::poll_sleep;

/// How much earlier than this clock says the runtime's timer may have fired: clocks of processors may differ.
const SKEW: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
    /// Whom the runtime wakes, if it has been asked since the timer was set.
    waker: Waker,
}

impl Timer {
    pub(super) fn at(at: Instant) -> Self {
        Timer {
            sleep: Box::pin(sleep_until(at)),
            at,
            waker: Waker::noop().clone(),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.at
    }

    pub(super) fn reset(&mut self, at: Instant) {
        self.at = at;
        self.waker = Waker::noop().clone();
        self.sleep.as_mut().reset(at);
    }

    /// Whether it is due. `now` was read from the clock since the task was woken: a timer that has fired before is due then.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        if now + SKEW < self.at && self.waker.will_wake(cx.waker()) {
            return Poll::Pending;
        }
        self.waker.clone_from(cx.waker());
        poll_sleep(self.sleep.as_mut(), cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fullbore_testing::wakes::Wakes;

    use super::*;

    /// Polls the timer as a task.
    fn poll(timer: &mut Timer, task: &Arc<Wakes>) -> bool {
        let waker = Waker::from(Arc::clone(task));
        timer
            .poll(&mut Context::from_waker(&waker), Instant::now())
            .is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_that_polled_last_is_woken_when_the_timer_is_due() {
        let second = Duration::from_secs(1);
        let [first, other] = [Arc::<Wakes>::default(), Arc::default()];
        let mut timer = Timer::at(Instant::now() + second);
        for task in [&first, &first, &other, &other] {
            assert!(!poll(&mut timer, task));
        }
        timer.reset(Instant::now() + 2 * second);
        assert!(!poll(&mut timer, &other));
        tokio::time::advance(second).await;
        assert!(!poll(&mut timer, &other));
        tokio::time::sleep(second).await;
        let woken = [&first, &other].map(|task| task.count());
        assert_eq!(woken, [0, 1]);
        assert!(poll(&mut timer, &other));
        assert_eq!(timer.deadline(), Instant::now());
    }
}
