//! How an origin is treated that refuses requests without processing them: a pause, then one request at a time, and in
//! the end an error for all that wait.
//!
//! Refusals are REFUSED_STREAM and GOAWAY. All requests to the origin share one count and one pause, so that a list of
//! URLs does not repeat the attempts of each. Pure: the time and the random number are arguments; `origin` reports what
//! happens under its lock and asks.

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
pub(super) struct Refusals {
    /// How many times in a row. Requests that were under way together count once.
    count: u32,
    /// When the last one came.
    at: Instant,
    /// Until when no request leaves.
    until: Instant,
    pause: Duration,
    /// What the peer said.
    error: Error,
    /// Whether the requests that waited have failed.
    gave_up: bool,
}

impl Refusals {
    pub(super) fn new(error: Error, first_pause: Duration, random: f64, now: Instant) -> Self {
        let pause = pause(first_pause, 0, random);
        Refusals {
            count: 1,
            at: now,
            until: now + pause,
            pause,
            error,
            gave_up: false,
        }
    }

    /// A request that `began` then was refused, or a connection that was opened then. It counts only if it is younger
    /// than the last refusal.
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

    /// Whether a request may leave.
    pub(super) fn lets_try(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// A request leaves: the next one has to wait for another pause, unless this one is answered before.
    pub(super) fn tries(&mut self, now: Instant) {
        self.until = now + self.pause;
        self.gave_up = false;
    }

    /// When a request may leave.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether there were more refusals in a row than a request is repeated.
    pub(super) fn exceed(&self, max_repeats: u32) -> bool {
        self.count > max_repeats
    }

    /// The requests that wait fail, and those that come before the pause is over.
    pub(super) fn give_up(&mut self) -> Error {
        self.gave_up = true;
        self.error.clone()
    }

    /// Why a request that comes now fails at once.
    pub(super) fn failure(&self, now: Instant) -> Option<Error> {
        (self.gave_up && !self.lets_try(now)).then(|| self.error.clone())
    }

    /// What the peer said last.
    pub(super) fn error(&self) -> Error {
        self.error.clone()
    }

    /// Whether they are too old to say anything of the origin.
    pub(super) fn are_old(&self, now: Instant) -> bool {
        now > self.until + MEMORY
    }
}

/// The pause before attempt number `repeat`, counted from 0: `first`, doubled each time, of which half to all at random.
pub(super) fn pause(first: Duration, repeat: u32, random: f64) -> Duration {
    let factor = 1_u32.checked_shl(repeat).unwrap_or(u32::MAX);
    let most = first.saturating_mul(factor).min(LONGEST_PAUSE);
    most / 2 + (most / 2).mul_f64(random)
}

/// A number from 0 to 1, another one each time: the standard library seeds its hashers at random.
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
        let mut refusals = Refusals::new(refused(), 100 * MS, 1.0, start + MS);
        for _ in 0..80 {
            refusals.add(refused(), start, 100 * MS, 1.0, start + 2 * MS);
        }
        assert!(!refusals.exceed(1));
        assert_eq!(refusals.until(), start + 101 * MS);
    }

    #[test]
    fn one_request_leaves_after_each_pause_and_the_fourth_refusal_is_one_too_many() {
        let mut now = Instant::now();
        let mut refusals = Refusals::new(refused(), 100 * MS, 1.0, now);
        for pause in [100, 200, 400] {
            assert!(!refusals.exceed(3));
            assert!(!refusals.lets_try(now + (pause - 1) * MS));
            now += pause * MS;
            assert!(refusals.lets_try(now));
            refusals.tries(now);
            assert!(!refusals.lets_try(now), "only one may leave");
            refusals.add(refused(), now, 100 * MS, 1.0, now + MS);
            now += MS;
        }
        assert!(refusals.exceed(3));
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
        let refusals = Refusals::new(refused(), 100 * MS, 1.0, now);
        assert!(!refusals.are_old(now + 10_100 * MS));
        assert!(refusals.are_old(now + 10_101 * MS));
    }
}
