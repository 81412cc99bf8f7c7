//! Timers for limits on time, apart from those of the runtime.
//!
//! A limit on time is almost never exceeded, yet its timer is set for as long as its connection lives. A runtime with a timer
//! gives the kernel a deadline each time it waits for sockets, which costs a response on a connection of its own 3 % of the
//! processor time (`fullbore-bench http1`). Here one timer of the kernel serves all limits of a server, and a wait for sockets has
//! no deadline.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant as MachineTime};

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

#[cfg(target_os = "linux")]
mod kernel;
#[cfg(not(target_os = "linux"))]
mod none;

#[cfg(target_os = "linux")]
pub(crate) use kernel::Alarms;
#[cfg(not(target_os = "linux"))]
pub(crate) use none::Alarms;

/// While an alarm of a server is set, its timer fires after this time at the latest: see [`Alarm::fired`].
#[cfg(target_os = "linux")]
const PULSE: Duration = Duration::from_secs(2);

/// Stands for a time beyond what the clock can tell: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// Wakes a task at a point in time, or some milliseconds later.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: Instant,
    by: By,
}

/// Who wakes the task.
#[derive(Debug)]
enum By {
    /// The alarms of a server, which have given this one a number once it was polled.
    Alarms(Alarms, Option<u64>),
    Runtime(Pin<Box<Sleep>>),
}

impl Alarm {
    /// The runtime wakes the task where there are no `alarms`, and while its clock is not the machine's, as a paused one in a
    /// test. A clock that is paused later is noticed at the next poll.
    pub(crate) fn at(at: Instant, alarms: Option<&Alarms>) -> Self {
        let by = match alarms.filter(|_| is_machine_time()) {
            Some(alarms) => By::Alarms(alarms.clone(), None),
            None => By::Runtime(Box::pin(sleep_until(at))),
        };
        Alarm { at, by }
    }

    pub(crate) fn after(limit: Duration, alarms: Option<&Alarms>) -> Self {
        let now = Instant::now();
        Alarm::at(now.checked_add(limit).unwrap_or(now + FAR), alarms)
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.at
    }

    /// How often the timer of the server's alarms has fired; `None` where the runtime wakes the task. An alarm that is set, and found
    /// not to be due after this was read, stays set until this changes. Reading it costs less than a look at the clock.
    #[inline]
    pub(crate) fn fired(&self) -> Option<u64> {
        match &self.by {
            By::Alarms(alarms, _) => Some(alarms.fired()),
            By::Runtime(_) => None,
        }
    }

    /// The longest time for which [`Self::fired`] has kept one value while an alarm was set.
    pub(crate) fn longest_rest(&self) -> Duration {
        match &self.by {
            By::Alarms(alarms, _) => alarms.longest_rest(),
            By::Runtime(_) => Duration::ZERO,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let By::Alarms(alarms, number) = &mut self.by {
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            if is_machine_time() {
                alarms.set(self.at.into_std(), number, cx.waker());
                return Poll::Pending;
            }
            // The clock was paused since.
            self.unset();
            self.by = By::Runtime(Box::pin(sleep_until(self.at)));
        }
        match &mut self.by {
            By::Runtime(sleep) => poll_sleep(sleep.as_mut(), cx),
            By::Alarms(..) => Poll::Pending,
        }
    }

    fn unset(&self) {
        if let By::Alarms(alarms, Some(number)) = &self.by {
            alarms.remove(self.at.into_std(), *number);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.unset();
    }
}

/// Polls a sleep outside the task's budget. With the budget spent, tokio registers no waker and only has the task polled again: a
/// caller that relies on one poll would not be woken when the time has come.
pub(crate) fn poll_sleep(sleep: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
    pin!(unconstrained(sleep)).poll(cx)
}

/// Whether the runtime's clock is the machine's.
fn is_machine_time() -> bool {
    let before = MachineTime::now();
    let runtime = Instant::now().into_std();
    (before..=MachineTime::now()).contains(&runtime)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Waker;

    use fullbore_testing::wakes::Wakes;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_asks_once_is_woken_although_its_budget_was_spent() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..1_000 {
            sender.send(()).expect("there is a receiver");
        }
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let second = Duration::from_secs(1);
        let mut alarm = Alarm::after(second, None);
        poll_fn(|cx| {
            while receiver.poll_recv(cx).is_ready() {}
            assert!(alarm.poll(&mut Context::from_waker(&waker)).is_pending());
            Poll::Ready(())
        })
        .await;
        assert!(!receiver.is_empty(), "the budget is not spent");
        tokio::task::yield_now().await;
        // Perhaps it has been told to come again.
        let before = wakes.count();
        tokio::time::sleep(second).await;
        assert_eq!(wakes.count(), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_obeyed() {
        let hour = Duration::from_secs(3_600);
        let begin = Instant::now();
        let alarms = Alarms::start();
        let mut alarm = Alarm::at(begin + hour, alarms.as_ref());
        poll_fn(|cx| alarm.poll(cx)).await;
        assert!(begin.elapsed() >= hour);
    }
}
