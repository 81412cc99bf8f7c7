//! Measures how long requests have waited at an origin that allows no stream.
//!
//! The clock runs only while requests wait, none is open, and no connection allows a stream. A refused request that
//! waits again keeps its start time, so that repeats, further connections and a changing limit do not prolong its
//! wait. A response restarts the limit for all requests. The time is an argument. `origin` reports events and asks,
//! under its lock.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of searches for expired requests within one limit; a search visits all waiting requests.
const LOOKS: u32 = 16;

/// The clock of an origin.
#[derive(Debug, Default)]
pub(super) struct WaitClock {
    /// Its reading when it last stopped.
    passed: Duration,
    /// Since when it runs.
    since: Option<Instant>,
    /// Its reading at the last response of the origin.
    answered: Duration,
    /// The reading at which the first request may expire.
    first: Duration,
}

/// How long one request has waited, over all its repeats.
#[derive(Debug, Default)]
pub(super) struct RequestWait {
    /// The reading when the request began to wait.
    since: Option<Duration>,
    /// The pauses before its repeats, as far as the clock did not run.
    paused: Duration,
    /// The current pause, and the reading before it.
    pause: Option<(Duration, Duration)>,
}

impl RequestWait {
    /// The request pauses before it is repeated.
    pub(super) fn pause(&mut self, pause: Duration, clock: &WaitClock, now: Instant) {
        self.pause = Some((pause, clock.elapsed(now)));
    }
}

impl WaitClock {
    /// Starts or stops the clock.
    pub(super) fn set_running(&mut self, denied: bool, now: Instant) {
        match (denied, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(_)) => {
                self.passed = self.elapsed(now);
                self.since = None;
            }
            _ => {}
        }
    }

    /// The origin answered a request.
    pub(super) fn note_response(&mut self, now: Instant) {
        self.answered = self.elapsed(now);
    }

    /// Whether a response would change anything.
    pub(super) fn awaits_response(&self) -> bool {
        self.since.is_some() || self.passed > self.answered
    }

    /// Adds a request to the queue, in which it may be alone. Returns the reading at which it expires.
    pub(super) fn join(
        &mut self,
        wait: &mut RequestWait,
        alone: bool,
        limit: Duration,
        now: Instant,
    ) -> Duration {
        let shows = self.elapsed(now);
        let since = *wait.since.get_or_insert(shows);
        if let Some((pause, before)) = wait.pause.take() {
            wait.paused += pause.saturating_sub(shows - before);
        }
        let until = since.saturating_add(limit).saturating_sub(wait.paused);
        self.first = match alone {
            true => until,
            false => self.first.min(until),
        };
        until
    }

    /// When requests may expire, if nothing happens before.
    pub(super) fn next_deadline(&self, limit: Duration) -> Option<Instant> {
        let until = self.until(self.first, limit);
        self.since?.checked_add(until.saturating_sub(self.passed))
    }

    /// Whether some request may have expired.
    pub(super) fn is_due(&self, limit: Duration, now: Instant) -> bool {
        self.since.is_some() && self.is_over(self.first, limit, now)
    }

    /// Whether a request that expires at this reading has expired.
    pub(super) fn is_over(&self, until: Duration, limit: Duration, now: Instant) -> bool {
        self.until(until, limit) <= self.elapsed(now)
    }

    /// All waiting requests were checked; `first` is when the first one expires.
    pub(super) fn scanned(&mut self, first: Duration, limit: Duration, now: Instant) {
        self.first = first.max(self.elapsed(now).saturating_add(limit / LOOKS));
    }

    /// A response restarts the limit.
    fn until(&self, until: Duration, limit: Duration) -> Duration {
        until.max(match self.answered {
            Duration::ZERO => Duration::ZERO,
            answered => answered.saturating_add(limit),
        })
    }

    fn elapsed(&self, now: Instant) -> Duration {
        let runs = self
            .since
            .map_or(Duration::ZERO, |since| now.duration_since(since));
        self.passed.saturating_add(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LIMIT: Duration = Duration::from_millis(1_000);

    /// A clock that runs from `now`, with one request.
    fn denied(now: Instant) -> (WaitClock, RequestWait, Duration) {
        let (mut clock, mut wait) = (WaitClock::default(), RequestWait::default());
        let until = clock.join(&mut wait, true, LIMIT, now);
        clock.set_running(true, now);
        (clock, wait, until)
    }

    #[test]
    fn time_in_which_streams_are_allowed_does_not_count() {
        let now = Instant::now();
        let (mut clock, _, until) = denied(now);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + LIMIT));
        clock.set_running(true, now + 300 * MS);
        clock.set_running(false, now + 400 * MS);
        assert_eq!(clock.next_deadline(LIMIT), None);
        assert!(!clock.is_due(LIMIT, now + 9_000 * MS));
        clock.set_running(true, now + 5_000 * MS);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + 5_600 * MS));
        assert!(!clock.is_over(until, LIMIT, now + 5_599 * MS));
        assert!(clock.is_due(LIMIT, now + 5_600 * MS) && clock.is_over(until, LIMIT, now + 5_600 * MS));
    }

    #[test]
    fn no_request_expires_while_streams_are_allowed() {
        let now = Instant::now();
        let (mut clock, _, until) = denied(now);
        assert!(!clock.is_due(LIMIT, now + LIMIT - MS) && clock.is_due(LIMIT, now + LIMIT));
        clock.set_running(false, now + LIMIT);
        assert!(clock.is_over(until, LIMIT, now + LIMIT), "its time is over");
        assert!(!clock.is_due(LIMIT, now + LIMIT));
        assert_eq!(clock.next_deadline(LIMIT), None);
    }

    #[test]
    fn a_repeated_request_keeps_its_time_and_its_pauses_count_once() {
        let now = Instant::now();
        let (mut clock, mut wait, _) = denied(now);
        clock.set_running(false, now + 400 * MS);
        wait.pause(100 * MS, &clock, now + 400 * MS);
        // Other requests wait during 30 ms of the pause.
        clock.set_running(true, now + 410 * MS);
        clock.set_running(false, now + 440 * MS);
        let until = clock.join(&mut wait, true, LIMIT, now + 500 * MS);
        assert_eq!(until, 930 * MS);
        clock.set_running(true, now + 500 * MS);
        // 430 ms have been counted, and 70 ms of the pause.
        assert_eq!(clock.next_deadline(LIMIT), Some(now + 1_000 * MS));
    }

    #[test]
    fn an_answer_gives_the_whole_limit_again() {
        let now = Instant::now();
        let (mut clock, _, until) = denied(now);
        assert!(clock.awaits_response());
        clock.set_running(false, now + 900 * MS);
        assert!(clock.awaits_response());
        clock.note_response(now + 950 * MS);
        assert!(!clock.awaits_response());
        clock.set_running(true, now + 950 * MS);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + 1_950 * MS));
        assert!(!clock.is_over(until, LIMIT, now + 1_949 * MS));
    }

    #[test]
    fn the_queue_is_looked_through_sixteen_times_in_a_limit_at_most() {
        let now = Instant::now();
        let (mut clock, ..) = denied(now);
        clock.join(&mut RequestWait::default(), false, LIMIT, now + MS);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + LIMIT), "the first counts");
        clock.scanned(1_001 * MS, LIMIT, now + LIMIT);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + LIMIT + LIMIT / 16));
        clock.scanned(1_900 * MS, LIMIT, now + LIMIT);
        assert_eq!(clock.next_deadline(LIMIT), Some(now + 1_900 * MS));
    }
}
