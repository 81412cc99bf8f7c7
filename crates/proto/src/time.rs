//! The time as the engine knows it: a number of nanoseconds since an origin that its caller chose.
//!
//! The engine has no clock. Every call that depends on the time takes it as an argument, so that a driver may pass the
//! real one and a test a virtual one.

use core::time::Duration;

/// A point in time, in nanoseconds since an origin that the caller chose (a driver takes the moment it started).
///
/// It never runs backwards within one connection: a caller passes values that do not decrease.
///
/// ```
/// use core::time::Duration;
/// use fullbore_proto::Time;
///
/// let later = Time::ZERO + Duration::from_millis(100);
/// assert_eq!(later.since(Time::ZERO), Duration::from_millis(100));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl core::ops::Add<Duration> for Time {
    type Output = Time;

    /// Saturates after 584 years.
    fn add(self, wait: Duration) -> Time {
        Time(
            self.0
                .saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// The value of a counter, and since when it has made too little progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgressMark {
    count: u64,
    since: Time,
}

impl ProgressMark {
    pub(crate) fn new(now: Time) -> Self {
        ProgressMark { count: 0, since: now }
    }

    /// Checks the counter. Returns since when there was no progress of `least`, or `now` if nothing `waits`.
    pub(crate) fn waiting_since(&mut self, waits: bool, count: u64, least: u64, now: Time) -> Time {
        if !waits || count >= self.count.saturating_add(least) {
            *self = ProgressMark { count, since: now };
        }
        self.since
    }
}
