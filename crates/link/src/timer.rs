//! Waits for a socket or a deadline.
//!
//! On Linux a timer descriptor wakes the poll with the accuracy of the kernel; the timeout of `epoll_wait` has whole
//! milliseconds. Other systems use the timeout of the poll.

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Token};

/// The wake-up for the engine's next deadline.
#[derive(Debug)]
pub(crate) struct Timer {
    #[cfg(target_os = "linux")]
    descriptor: std::os::fd::OwnedFd,
    /// The deadline that is set, in nanoseconds of the engine's clock.
    set: Option<u64>,
}

#[cfg(target_os = "linux")]
impl Timer {
    pub(crate) fn new(poll: &Poll, token: Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;

        let descriptor = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        poll.registry().register(
            &mut mio::unix::SourceFd(&descriptor.as_raw_fd()),
            token,
            mio::Interest::READABLE,
        )?;
        Ok(Self {
            descriptor,
            set: None,
        })
    }

    /// Waits until a socket is ready or `deadline` is reached. A past deadline does not wait.
    pub(crate) fn wait(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        now: u64,
        deadline: Option<u64>,
    ) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        let timeout = match deadline {
            Some(deadline) if deadline <= now => Some(Duration::ZERO),
            _ => {
                // A timer that fired is always set again: it was in the past, and the new deadline is not.
                if deadline.is_some() && deadline != self.set {
                    let left = Duration::from_nanos(deadline.unwrap_or(now) - now);
                    let time = Itimerspec {
                        it_interval: Timespec::default(),
                        it_value: Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?,
                    };
                    timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &time)?;
                    self.set = deadline;
                }
                None
            }
        };
        poll_once(poll, events, timeout)
    }
}

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(crate) fn new(_: &Poll, _: Token) -> io::Result<Self> {
        Ok(Self { set: None })
    }

    /// Waits until a socket is ready or `deadline` is reached. A past deadline does not wait.
    pub(crate) fn wait(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        now: u64,
        deadline: Option<u64>,
    ) -> io::Result<()> {
        self.set = deadline;
        let timeout = self
            .set
            .map(|deadline| Duration::from_nanos(deadline.saturating_sub(now)));
        poll_once(poll, events, timeout)
    }
}

/// Requests a real-time priority: the thread needs little processor time, but at once. Otherwise Linux lets the running
/// thread finish its slice of some 3 ms. The lowest real-time priority is enough. Without the permission nothing changes.
pub(crate) fn prefer_this_thread() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{
            RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
            set_thread_priority_and_policy, thread_native_id,
        };

        /// The fallback without that permission.
        const NICE: i32 = -15;

        let real_time = set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::from_posix(thread_priority::ScheduleParams { sched_priority: 1 }),
            ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin),
        );
        if real_time.is_err() {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        }
    }
}

/// A signal that interrupts the wait is an early wake-up.
fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        polled => polled,
    }
}
