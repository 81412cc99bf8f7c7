//! How long requests have waited at an origin that allows no stream at all.
//!
//! The time is kept on a clock of its own, which runs only while requests wait, none is under way, and no connection
//! allows a stream. A request that is refused and waits again keeps its place on it, so that repeats, further connections
//! and a limit that changes do not prolong its wait. An answer gives all requests the whole limit again. Pure: the time
//! is an argument; `origin` reports what happens under its lock and asks.

use std::time::Duration;

use tokio::time::Instant;

/// Requests whose time is over are looked for at most so many times in a limit, since a look goes through all that wait.
const LOOKS: u32 = 16;

/// The clock of an origin.
#[derive(Debug, Default)]
pub(super) struct Denial {
    /// What it showed when it last stopped.
    passed: Duration,
    /// Since when it runs.
    since: Option<Instant>,
    /// What it showed when the origin last answered a request.
    answered: Duration,
    /// When the time of the first request may be over, as it shows.
    first: Duration,
}

/// How one request has waited, over all its repeats.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// What the clock showed when the request began to wait.
    since: Option<Duration>,
    /// The pauses before its repeats, as far as the clock stood.
    paused: Duration,
    /// The pause that it is in, and what the clock showed before.
    pause: Option<(Duration, Duration)>,
}

impl Wait {
    /// The request pauses before it is repeated.
    pub(super) fn pause(&mut self, pause: Duration, denial: &Denial, now: Instant) {
        self.pause = Some((pause, denial.shows(now)));
    }
}

impl Denial {
    /// Whether requests wait although the origin allows no stream.
    pub(super) fn note(&mut self, denied: bool, now: Instant) {
        match (denied, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(_)) => {
                self.passed = self.shows(now);
                self.since = None;
            }
            _ => {}
        }
    }

    /// The origin answered a request.
    pub(super) fn note_answer(&mut self, now: Instant) {
        self.answered = self.shows(now);
    }

    /// Whether an answer would make a difference.
    pub(super) fn awaits_answer(&self) -> bool {
        self.since.is_some() || self.passed > self.answered
    }

    /// A request joins the queue, which it may be alone in: when its time is over, as the clock shows.
    pub(super) fn join(&mut self, wait: &mut Wait, alone: bool, limit: Duration, now: Instant) -> Duration {
        let shows = self.shows(now);
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

    /// When requests may have to be told, if nothing happens before.
    pub(super) fn next(&self, limit: Duration) -> Option<Instant> {
        let until = self.until(self.first, limit);
        self.since?.checked_add(until.saturating_sub(self.passed))
    }

    /// Whether the time of some request may be over.
    pub(super) fn is_due(&self, limit: Duration, now: Instant) -> bool {
        self.since.is_some() && self.is_over(self.first, limit, now)
    }

    /// Whether the time of a request is over that ends then.
    pub(super) fn is_over(&self, until: Duration, limit: Duration, now: Instant) -> bool {
        self.until(until, limit) <= self.shows(now)
    }

    /// All that wait have been looked at; the time of the first is over then.
    pub(super) fn looked(&mut self, first: Duration, limit: Duration, now: Instant) {
        self.first = first.max(self.shows(now).saturating_add(limit / LOOKS));
    }

    /// An answer gives the whole limit again.
    fn until(&self, until: Duration, limit: Duration) -> Duration {
        until.max(match self.answered {
            Duration::ZERO => Duration::ZERO,
            answered => answered.saturating_add(limit),
        })
    }

    fn shows(&self, now: Instant) -> Duration {
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
    fn denied(now: Instant) -> (Denial, Wait, Duration) {
        let (mut denial, mut wait) = (Denial::default(), Wait::default());
        let until = denial.join(&mut wait, true, LIMIT, now);
        denial.note(true, now);
        (denial, wait, until)
    }

    #[test]
    fn time_in_which_streams_are_allowed_does_not_count() {
        let now = Instant::now();
        let (mut denial, _, until) = denied(now);
        assert_eq!(denial.next(LIMIT), Some(now + LIMIT));
        denial.note(true, now + 300 * MS);
        denial.note(false, now + 400 * MS);
        assert_eq!(denial.next(LIMIT), None);
        assert!(!denial.is_due(LIMIT, now + 9_000 * MS));
        denial.note(true, now + 5_000 * MS);
        assert_eq!(denial.next(LIMIT), Some(now + 5_600 * MS));
        assert!(!denial.is_over(until, LIMIT, now + 5_599 * MS));
        assert!(denial.is_due(LIMIT, now + 5_600 * MS) && denial.is_over(until, LIMIT, now + 5_600 * MS));
    }

    #[test]
    fn a_repeated_request_keeps_its_time_and_its_pauses_count_once() {
        let now = Instant::now();
        let (mut denial, mut wait, _) = denied(now);
        denial.note(false, now + 400 * MS);
        wait.pause(100 * MS, &denial, now + 400 * MS);
        // For 30 ms of the pause other requests wait.
        denial.note(true, now + 410 * MS);
        denial.note(false, now + 440 * MS);
        let until = denial.join(&mut wait, true, LIMIT, now + 500 * MS);
        assert_eq!(until, 930 * MS);
        denial.note(true, now + 500 * MS);
        // 430 ms have been counted, and 70 ms of the pause.
        assert_eq!(denial.next(LIMIT), Some(now + 1_000 * MS));
    }

    #[test]
    fn an_answer_gives_the_whole_limit_again() {
        let now = Instant::now();
        let (mut denial, _, until) = denied(now);
        assert!(denial.awaits_answer());
        denial.note(false, now + 900 * MS);
        assert!(denial.awaits_answer());
        denial.note_answer(now + 950 * MS);
        assert!(!denial.awaits_answer());
        denial.note(true, now + 950 * MS);
        assert_eq!(denial.next(LIMIT), Some(now + 1_950 * MS));
        assert!(!denial.is_over(until, LIMIT, now + 1_949 * MS));
    }

    #[test]
    fn the_queue_is_looked_through_sixteen_times_in_a_limit_at_most() {
        let now = Instant::now();
        let (mut denial, ..) = denied(now);
        denial.join(&mut Wait::default(), false, LIMIT, now + MS);
        assert_eq!(denial.next(LIMIT), Some(now + LIMIT), "the first counts");
        denial.looked(1_001 * MS, LIMIT, now + LIMIT);
        assert_eq!(denial.next(LIMIT), Some(now + LIMIT + LIMIT / 16));
        denial.looked(1_900 * MS, LIMIT, now + LIMIT);
        assert_eq!(denial.next(LIMIT), Some(now + 1_900 * MS));
    }
}
