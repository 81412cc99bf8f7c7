//! Alarms by one timer of the kernel: `timerfd_create(2)`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

use super::PULSE;

/// How much later than asked a task may be woken. Tasks that are due within this time are woken together.
const RESOLUTION: Duration = Duration::from_millis(10);

/// The alarms of a server. A task of their own wakes those that are due, as long as one of these exists.
#[derive(Debug, Clone)]
pub(crate) struct Alarms(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    timer: Arc<Timer>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Timer {
    /// The kernel's timer. tokio waits for it and reads from it as it does with a pipe.
    fd: pipe::Receiver,
    /// How often it has fired.
    fired: AtomicU64,
    /// The longest time in which it has not fired so far, in microseconds.
    longest: AtomicU64,
    set: Mutex<Set>,
}

/// The tasks to wake, by time and number.
#[derive(Debug, Default)]
struct Set {
    wakers: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// When the kernel's timer fires, if it is set.
    fires: Option<Instant>,
    /// When it was set first since it last fired.
    since: Option<Instant>,
}

impl Alarms {
    /// Starts their task on the current runtime, which has to wait for sockets, or it panics. `None` when the system has no
    /// descriptor left.
    pub(crate) fn start() -> Option<Self> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        let timer = Arc::new(Timer {
            fd: pipe::Receiver::from_owned_fd_unchecked(fd).ok()?,
            fired: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            set: Mutex::default(),
        });
        let task = runtime.spawn(run(Arc::clone(&timer))).abort_handle();
        Some(Alarms(Arc::new(Handle { timer, task })))
    }

    /// How often the timer has fired. An alarm that is set, and found not to be due after this was read, stays set until this
    /// changes. While an alarm is set it changes within [`Self::longest_rest`].
    pub(super) fn fired(&self) -> u64 {
        self.0.timer.fired.load(Ordering::Acquire)
    }

    /// The longest time in which the timer did not fire while an alarm was set: [`PULSE`], or longer once threads were busy, or the
    /// process was stopped.
    pub(super) fn longest_rest(&self) -> Duration {
        Duration::from_micros(self.0.timer.longest.load(Ordering::Acquire)).max(PULSE)
    }

    /// Has a task woken, in place of the one before it with this number. An alarm without a number gets one.
    pub(super) fn set(&self, at: Instant, number: &mut Option<u64>, waker: &Waker) {
        let timer = &self.0.timer;
        let mut set = timer.lock();
        let number = *number.get_or_insert_with(|| {
            set.next_number += 1;
            set.next_number
        });
        if set
            .wakers
            .get(&(at, number))
            .is_some_and(|set| set.will_wake(waker))
        {
            return;
        }
        // Dropping a waker may drop its task, whose alarms are removed here: not while the lock is held.
        let replaced = set.wakers.insert((at, number), waker.clone());
        timer.fire_in_time(&mut set);
        drop(set);
        drop(replaced);
    }

    pub(super) fn remove(&self, at: Instant, number: u64) {
        let removed = self.0.timer.lock().wakers.remove(&(at, number));
        drop(removed);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the kernel's timer for the first alarm, or for the next pulse, unless it fires before. It is never moved for one that
    /// is removed.
    fn fire_in_time(&self, set: &mut Set) {
        let Some(((first, _), _)) = set.wakers.first_key_value() else {
            return;
        };
        let at = first.checked_add(RESOLUTION).unwrap_or(*first);
        if set.fires.is_some_and(|fires| fires <= at) {
            return;
        }
        let now = Instant::now();
        let at = at.min(now + PULSE);
        // Zero would stop the timer.
        let left = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let new = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        // Only an invalid time or descriptor makes it fail.
        if timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &new).is_ok() {
            set.fires = Some(at);
            set.since.get_or_insert(now);
        }
    }

    /// Takes out the alarms that are due.
    fn due(&self) -> Vec<Waker> {
        let mut set = self.lock();
        // The time is read before the count changes: an alarm that is not due for a reader of the new count is not due here.
        let now = Instant::now();
        if let Some(since) = set.since.take() {
            let rest = u64::try_from((now - since).as_micros()).unwrap_or(u64::MAX);
            self.longest.fetch_max(rest.saturating_add(1), Ordering::Release);
        }
        // Before any task is woken.
        self.fired.fetch_add(1, Ordering::Release);
        let mut due = Vec::new();
        while let Some(first) = set.wakers.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        set.fires = None;
        self.fire_in_time(&mut set);
        due
    }
}

/// Wakes the tasks whose alarms are due whenever the kernel's timer fires.
async fn run(timer: Arc<Timer>) -> io::Result<()> {
    loop {
        // Ends with the runtime.
        timer.fd.readable().await?;
        if timer.fd.try_read(&mut [0; 8]).is_ok() {
            timer.due().into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::Instant;

    use super::super::Alarm;
    use super::*;

    fn soon(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    async fn poll_once(alarm: &mut Alarm) -> bool {
        poll_fn(|cx| std::task::Poll::Ready(alarm.poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn tasks_are_woken_in_time_whichever_alarm_was_set_first() {
        let alarms = Alarms::start().expect("a runtime");
        let tasks = [60, 20, 40, 0].map(|millis| {
            let mut alarm = Alarm::at(soon(millis), Some(&alarms));
            tokio::spawn(async move {
                poll_fn(|cx| alarm.poll(cx)).await;
                assert!(Instant::now() >= alarm.deadline());
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        assert!(alarms.0.timer.lock().wakers.is_empty());
    }

    #[tokio::test]
    async fn an_alarm_that_is_dropped_leaves_nothing_behind() {
        let alarms = Alarms::start().expect("a runtime");
        let count = || alarms.0.timer.lock().wakers.len();
        let mut alarm = Alarm::at(soon(3_600_000), Some(&alarms));
        assert_eq!(count(), 0);
        for _ in 0..2 {
            assert!(!poll_once(&mut alarm).await);
            assert_eq!(count(), 1);
        }
        drop(alarm);
        assert_eq!(count(), 0);
    }

    #[tokio::test]
    async fn a_later_alarm_is_not_lost_behind_one_that_was_dropped() {
        let alarms = Alarms::start().expect("a runtime");
        let mut first = Alarm::at(soon(10), Some(&alarms));
        assert!(!poll_once(&mut first).await);
        drop(first);
        let mut second = Alarm::at(soon(50), Some(&alarms));
        poll_fn(|cx| second.poll(cx)).await;
    }

    #[tokio::test]
    async fn a_clock_that_is_paused_later_is_obeyed_from_the_next_poll_on() {
        let alarms = Alarms::start().expect("a runtime");
        let mut alarm = Alarm::at(soon(3_600_000), Some(&alarms));
        assert!(!poll_once(&mut alarm).await);
        tokio::time::pause();
        poll_fn(|cx| alarm.poll(cx)).await;
        assert!(Instant::now() >= alarm.deadline());
        assert!(alarms.0.timer.lock().wakers.is_empty());
    }

    #[tokio::test]
    async fn the_timer_fires_also_while_no_alarm_is_due() {
        let alarms = Alarms::start().expect("a runtime");
        let mut alarm = Alarm::at(soon(3_600_000), Some(&alarms));
        assert!(!poll_once(&mut alarm).await);
        for _ in 0..2 {
            let fired = alarm.fired().expect("an alarm of a server");
            while alarm.fired() == Some(fired) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        assert_eq!(alarms.0.timer.lock().wakers.len(), 1);
    }

    #[tokio::test]
    async fn an_alarm_that_is_not_due_at_a_count_stays_set_while_that_lasts() {
        let alarms = Alarms::start().expect("a runtime");
        let timer = Arc::clone(&alarms.0.timer);
        let removed = Arc::new(AtomicU64::new(0));
        let firing = {
            let (timer, removed) = (Arc::downgrade(&timer), Arc::clone(&removed));
            std::thread::spawn(move || {
                while let Some(timer) = timer.upgrade() {
                    if !timer.due().is_empty() {
                        removed.store(timer.fired.load(Ordering::Relaxed), Ordering::Release);
                    }
                }
            })
        };
        for _ in 0..2_000 {
            let mut alarm = Alarm::at(Instant::now() + Duration::from_micros(50), Some(&alarms));
            removed.store(0, Ordering::Relaxed);
            if poll_once(&mut alarm).await {
                continue;
            }
            let mut counted = None;
            loop {
                let fired = alarm.fired();
                if Instant::now() >= alarm.deadline() {
                    break;
                }
                counted = fired;
            }
            while removed.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            assert!(Some(removed.load(Ordering::Relaxed)) > counted);
        }
        drop((timer, alarms));
        while !firing.is_finished() {
            tokio::task::yield_now().await;
        }
        firing.join().expect("no panic");
    }

    #[tokio::test]
    async fn a_task_that_is_woken_sees_that_the_timer_has_fired() {
        let alarms = Alarms::start().expect("a runtime");
        let mut alarm = Alarm::at(soon(20), Some(&alarms));
        let fired = alarm.fired();
        poll_fn(|cx| alarm.poll(cx)).await;
        assert!(alarm.fired() > fired);
    }

    #[tokio::test]
    async fn the_task_ends_with_the_last_that_needs_it() {
        let alarms = Alarms::start().expect("a runtime");
        let timer = Arc::downgrade(&alarms.0.timer);
        let alarm = Alarm::at(soon(3_600_000), Some(&alarms));
        drop(alarms);
        tokio::task::yield_now().await;
        assert!(timer.upgrade().is_some());
        drop(alarm);
        while timer.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
    }
}
