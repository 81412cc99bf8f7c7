//! Backoff for an origin that refuses requests without processing them: a pause, then one request at a time until one is
//! answered, then as many at once as the origin took, and slowly more. At last an error for all that wait.
//!
//! A refusal is REFUSED_STREAM or GOAWAY. All requests to the origin share one count, one pause and one limit, so that a
//! list of URLs does not repeat the attempts of each. The time and the random number are arguments. `origin` reports
//! events and asks, under its lock.

use std::hash::BuildHasher;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long after the last pause the refusals are forgotten.
const MEMORY: Duration = Duration::from_secs(10);

/// A server that refuses no more than a quarter of the requests is sent as many as before: such refusals may have nothing
/// to do with how many are open, and lowering the number for each would end at one.
const TOLERATED: (u64, u64) = (1, 4);

/// What an origin has refused.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The number of refusals in a row since the last answer. Requests that were open together count once.
    count: u32,
    /// When the last one came.
    at: Instant,
    /// Until when no request is sent, or none beyond `allowed` if the origin answers.
    until: Instant,
    pause: Duration,
    /// How many requests may be open at once while the origin answers.
    allowed: u64,
    trial: Trial,
    /// How many trials were refused in a row, and how long the next one waits.
    failed_trials: u32,
    trial_pause: Duration,
    /// The last refusal.
    error: Error,
    /// Whether the waiting requests have failed.
    gave_up: bool,
}

/// What the number of allowed requests comes from.
#[derive(Debug, Clone, Copy)]
enum Trial {
    /// Refusals that came together, when `from` were open or allowed.
    Refused { from: u64 },
    /// It was raised, and was `from` before. The next rise is by `step`.
    Raised { from: u64, step: u64 },
    /// A rise was refused, so it is what it was before.
    Failed,
}

impl Backoff {
    /// The first refusal; `open` requests were open beside it.
    pub(super) fn new(error: Error, open: u64, first_pause: Duration, random: f64, now: Instant) -> Self {
        let pause = pause(first_pause, 0, random);
        let mut backoff = Backoff {
            count: 1,
            at: now,
            until: now + pause,
            pause,
            allowed: 1,
            trial: Trial::Failed,
            failed_trials: 0,
            trial_pause: pause,
            error,
            gave_up: false,
        };
        backoff.lower(open + 1, open);
        backoff
    }

    /// Adds the refusal of a request or connection that began at `began`, beside which `open` requests were open. It
    /// counts only if it began after the last refusal.
    pub(super) fn add(
        &mut self,
        error: Error,
        (began, open): (Instant, u64),
        first_pause: Duration,
        random: f64,
        now: Instant,
    ) {
        let together = began <= self.at;
        match self.trial {
            Trial::Raised { from, .. } if !together => {
                self.allowed = from;
                self.trial = Trial::Failed;
                self.failed_trials = self.failed_trials.saturating_add(1);
                self.trial_pause = pause(first_pause, self.failed_trials, random);
            }
            Trial::Refused { from } if together => self.lower(from, open),
            Trial::Raised { .. } | Trial::Failed if together => {}
            _ => self.lower(self.allowed, open),
        }
        if together {
            return;
        }
        self.pause = pause(first_pause, self.count, random);
        self.count = self.count.saturating_add(1);
        self.at = now;
        self.until = now + self.pause;
        self.error = error;
    }

    /// As many may be open as were beside the refused ones, unless these were few.
    fn lower(&mut self, from: u64, open: u64) {
        let (some, all) = TOLERATED;
        let few = from.saturating_sub(open) * all <= from * some;
        self.allowed = if few { from } else { open.max(1) };
        self.trial = Trial::Refused { from };
    }

    /// The origin answers, which ends the pause.
    pub(super) fn answered(&mut self, now: Instant) {
        if self.count > 0 {
            self.count = 0;
            self.gave_up = false;
            self.until = now + self.trial_pause;
        }
    }

    /// Whether a request may be sent while `open` others are.
    pub(super) fn allows_attempt(&self, open: u64, now: Instant) -> bool {
        now >= self.until || (self.is_answered() && open < self.allowed)
    }

    /// A request is sent. Another one beyond what is allowed waits for a pause, and for two `exchange`s: by then this one
    /// was refused if it had to be.
    pub(super) fn attempt_started(&mut self, open: u64, exchange: Duration, now: Instant) {
        if self.is_answered() {
            if open < self.allowed {
                return;
            }
            let step = match self.trial {
                Trial::Raised { step, .. } => {
                    self.failed_trials = 0;
                    step
                }
                Trial::Refused { .. } | Trial::Failed => 1,
            };
            self.trial = Trial::Raised {
                from: self.allowed,
                step: step.saturating_mul(2),
            };
            self.allowed = open.max(self.allowed).saturating_add(step);
            self.until = now + self.trial_pause.max(exchange * 2);
        } else {
            self.until = now + self.pause;
        }
        self.gave_up = false;
    }

    /// When a request beyond what is allowed may be sent.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the origin has answered a request since the last refusal.
    pub(super) fn is_answered(&self) -> bool {
        self.count == 0
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
        (self.gave_up && now < self.until).then(|| self.error.clone())
    }

    /// The last refusal.
    pub(super) fn error(&self) -> Error {
        self.error.clone()
    }

    /// Whether the refusals say nothing about the origin any more: they are old, or the origin answers and as many requests
    /// may be open as there are `streams`.
    pub(super) fn is_over(&self, streams: u64, now: Instant) -> bool {
        now > self.until + MEMORY || (self.is_answered() && streams > 0 && self.allowed >= streams)
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

    /// A server that took 3 of 100 requests.
    fn three_of_a_hundred(now: Instant) -> Backoff {
        let mut refusals = Backoff::new(refused(), 99, 100 * MS, 1.0, now);
        for open in (3..99).rev() {
            refusals.add(refused(), (now, open), 100 * MS, 1.0, now);
        }
        refusals
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
    fn requests_that_were_refused_together_count_once_and_leave_as_many_as_were_not() {
        let start = Instant::now();
        let mut refusals = Backoff::new(refused(), 82, 100 * MS, 1.0, start + MS);
        for open in (3..82).rev() {
            refusals.add(refused(), (start, open), 100 * MS, 1.0, start + 2 * MS);
        }
        assert!(!refusals.exceeds(1));
        assert_eq!(refusals.until(), start + 101 * MS);
        assert!(!refusals.allows_attempt(0, start + 2 * MS));
        refusals.answered(start + 3 * MS);
        assert!(refusals.allows_attempt(2, start + 3 * MS));
        assert!(!refusals.allows_attempt(3, start + 3 * MS));
    }

    #[test]
    fn more_requests_are_tried_after_each_pause_and_twice_as_many_more_while_none_is_refused() {
        let mut now = Instant::now();
        let mut refusals = three_of_a_hundred(now);
        refusals.answered(now);
        for allowed in [3, 4, 6, 10, 18, 34, 66] {
            assert!(!refusals.is_over(100, now));
            assert!(refusals.allows_attempt(allowed - 1, now));
            assert!(!refusals.allows_attempt(allowed, now + 99 * MS));
            now += 100 * MS;
            assert!(refusals.allows_attempt(allowed, now));
            refusals.attempt_started(allowed, MS, now);
        }
        assert!(refusals.is_over(100, now), "130 are allowed");
    }

    #[test]
    fn a_trial_that_is_refused_is_taken_back_and_the_next_one_waits_twice_as_long() {
        let mut now = Instant::now();
        let mut refusals = three_of_a_hundred(now);
        for wait in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
            refusals.answered(now);
            assert!(!refusals.allows_attempt(3, now + (wait - 1) * MS));
            now += wait * MS;
            assert!(refusals.allows_attempt(3, now));
            refusals.attempt_started(3, MS, now);
            // Answers came before the refusal, which is of one beside one other.
            refusals.add(refused(), (now + MS, 1), 100 * MS, 1.0, now + 2 * MS);
            refusals.add(refused(), (now + MS, 0), 100 * MS, 1.0, now + 2 * MS);
            now += 2 * MS;
        }
        refusals.answered(now);
        // Without a trial, the server takes fewer than it did.
        refusals.add(refused(), (now + MS, 2), 100 * MS, 1.0, now + 2 * MS);
        refusals.answered(now + 3 * MS);
        assert!(refusals.allows_attempt(1, now + 3 * MS) && !refusals.allows_attempt(2, now + 3 * MS));
    }

    #[test]
    fn a_server_that_refuses_a_quarter_at_random_is_sent_as_many_as_before() {
        let mut now = Instant::now();
        let mut refusals = Backoff::new(refused(), 99, 100 * MS, 1.0, now);
        for _ in 0..1_000 {
            for open in 75..99 {
                refusals.add(refused(), (now, open), 100 * MS, 1.0, now);
            }
            now += MS;
            refusals.answered(now);
            assert!(refusals.allows_attempt(99, now));
            now += MS;
            refusals.add(refused(), (now, 99), 100 * MS, 1.0, now);
        }
        refusals.answered(now);
        assert!(refusals.allows_attempt(99, now) && !refusals.allows_attempt(100, now));
    }

    #[test]
    fn a_trial_waits_until_the_one_before_it_must_have_been_refused() {
        let now = Instant::now();
        let mut refusals = three_of_a_hundred(now);
        refusals.answered(now);
        refusals.attempt_started(3, 300 * MS, now + 100 * MS);
        assert!(refusals.allows_attempt(3, now + 100 * MS));
        assert!(!refusals.allows_attempt(4, now + 699 * MS));
        assert!(refusals.allows_attempt(4, now + 700 * MS));
    }

    #[test]
    fn one_request_leaves_after_each_pause_and_the_fourth_refusal_is_one_too_many() {
        let mut now = Instant::now();
        let mut refusals = Backoff::new(refused(), 0, 100 * MS, 1.0, now);
        for pause in [100, 200, 400] {
            assert!(!refusals.exceeds(3));
            assert!(!refusals.allows_attempt(0, now + (pause - 1) * MS));
            now += pause * MS;
            assert!(refusals.allows_attempt(0, now));
            refusals.attempt_started(0, MS, now);
            assert!(!refusals.allows_attempt(1, now), "only one may leave");
            refusals.add(refused(), (now, 0), 100 * MS, 1.0, now + MS);
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
        let refusals = Backoff::new(refused(), 0, 100 * MS, 1.0, now);
        assert!(!refusals.is_over(100, now + 10_100 * MS));
        assert!(refusals.is_over(100, now + 10_101 * MS));
    }
}
