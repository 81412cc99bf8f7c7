//! Backoff for an origin that refuses requests without processing them: a pause, then one request at a time, and at
//! last an error for all that wait.
//!
//! A refusal is REFUSED_STREAM or GOAWAY. All requests to the origin share one count and one pause, so that a list of
//! URLs does not repeat the attempts of each. The time and the random number are arguments. `origin` reports events
//! and asks, under its lock.

use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long after the last pause the refusals are forgotten.
const MEMORY: Duration = Duration::from_secs(10);

/// What an origin has refused since it last answered a request.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The number of refusals in a row. Requests that were open together count once.
    count: u32,
    /// When the last one came.
    at: Instant,
    /// Until when no request is sent.
    until: Instant,
    pause: Duration,
    /// The last refusal.
    error: Error,
    /// Whether the waiting requests have failed.
    gave_up: bool,
}

impl Backoff {
    pub(super) fn new(error: Error, first_pause: Duration, random: f64, now: Instant) -> Self {
        let pause = pause(first_pause, 0, random);
        Backoff {
            count: 1,
            at: now,
            until: now + pause,
            pause,
            error,
            gave_up: false,
        }
    }

    /// Adds the refusal of a request or connection that began at `began`. It counts only if it began after the last
    /// refusal.
    pub(super) fn add(
        &mut self,
        error: Error,
        began: Instant,
        first_pause: Duration,
        random: f64,
        now: Instant,
    ) {
        if began <= self.at {
            return;
        }
        self.pause = pause(first_pause, self.count, random);
        self.count = self.count.saturating_add(1);
        self.at = now;
        self.until = now + self.pause;
        self.error = error;
    }

    /// Whether a request may be sent.
    pub(super) fn allows_attempt(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// A request is sent. The next one waits for another pause, unless this one is answered before.
    pub(super) fn attempt_started(&mut self, now: Instant) {
        self.until = now + self.pause;
        self.gave_up = false;
    }

    /// When a request may be sent.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether there were more refusals in a row than a request is repeated.
    pub(super) fn exceeds(&self, max_repeats: u32) -> bool {
        self.count > max_repeats
    }

    /// Fails the waiting requests, and those that come before the pause is over.
    pub(super) fn give_up(&mut self) -> Error {
        self.gave_up = true;
        self.error.clone()
    }

    /// Why a new request fails at once.
    pub(super) fn failure(&self, now: Instant) -> Option<Error> {
        (self.gave_up && !self.allows_attempt(now)).then(|| self.error.clone())
    }

    /// The last refusal.
    pub(super) fn error(&self) -> Error {
        self.error.clone()
    }

    /// Whether the refusals are too old to say anything about the origin.
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        now > self.until + MEMORY
    }
}

/// The pause before attempt number `repeat`, counted from 0: `first` doubled each time, of which a random part of at
/// least half.
pub(super) fn pause(first: Duration, repeat: u32, random: f64) -> Duration {
    let factor = 1_u32.checked_shl(repeat).unwrap_or(u32::MAX);
    let most = first.saturating_mul(factor).min(LONGEST_PAUSE);
    most / 2 + (most / 2).mul_f64(random)
}

/// A random number from 0 to 1. The standard library seeds its hashers at random.
pub(super) fn random() -> f64 {
    let hash = std::hash::RandomState::new().hash_one(0_u8);
    (hash >> 32) as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const MS: Duration = Duration::from_millis(1);

    fn refused() -> Error {
        Error::new(ErrorKind::Refused, "refused")
    }

    #[test]
    fn pauses_double_up_to_ten_seconds_and_are_cut_by_half_at_most() {
        let longest: Vec<u128> = (0..8)
            .map(|repeat| pause(100 * MS, repeat, 1.0).as_millis())
            .collect();
        assert_eq!(longest, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
        assert_eq!(pause(100 * MS, 2, 0.0), 200 * MS);
        assert_eq!(pause(100 * MS, u32::MAX, 1.0), 10_000 * MS);
        assert_eq!(pause(Duration::MAX, 0, 1.0), 10_000 * MS);
    }

    #[test]
    fn random_numbers_are_between_0_and_1_and_differ() {
        let numbers: Vec<f64> = (0..100).map(|_| random()).collect();
        assert!(
            numbers.iter().all(|number| (0.0..=1.0).contains(number)),
            "{numbers:?}"
        );
        assert!(numbers.iter().any(|number| *number < 0.5) && numbers.iter().any(|number| *number > 0.5));
    }

    #[test]
    fn requests_that_were_refused_together_count_once() {
        let start = Instant::now();
        let mut refusals = Backoff::new(refused(), 100 * MS, 1.0, start + MS);
        for _ in 0..80 {
            refusals.add(refused(), start, 100 * MS, 1.0, start + 2 * MS);
        }
        assert!(!refusals.exceeds(1));
        assert_eq!(refusals.until(), start + 101 * MS);
    }

    #[test]
    fn one_request_leaves_after_each_pause_and_the_fourth_refusal_is_one_too_many() {
        let mut now = Instant::now();
        let mut refusals = Backoff::new(refused(), 100 * MS, 1.0, now);
        for pause in [100, 200, 400] {
            assert!(!refusals.exceeds(3));
            assert!(!refusals.allows_attempt(now + (pause - 1) * MS));
            now += pause * MS;
            assert!(refusals.allows_attempt(now));
            refusals.attempt_started(now);
            assert!(!refusals.allows_attempt(now), "only one may leave");
            refusals.add(refused(), now, 100 * MS, 1.0, now + MS);
            now += MS;
        }
        assert!(refusals.exceeds(3));
        assert!(
            refusals.failure(now).is_none(),
            "those that wait have to be told first"
        );
        refusals.give_up();
        assert!(refusals.failure(now + 799 * MS).is_some());
        assert!(refusals.failure(now + 800 * MS).is_none());
    }

    #[test]
    fn refusals_are_forgotten_ten_seconds_after_the_pause() {
        let now = Instant::now();
        let refusals = Backoff::new(refused(), 100 * MS, 1.0, now);
        assert!(!refusals.is_expired(now + 10_100 * MS));
        assert!(refusals.is_expired(now + 10_101 * MS));
    }
}
