//! Windows that follow the path: law 4. The round trip, as measured, and the judgement that a window is too small.
//!
//! Windows open wide at once while the memory budget has room, so that this matters where it had not, and on paths whose
//! bandwidth times round trip passes even that.

use core::time::Duration;

use crate::time::Time;

/// How long a minimum is trusted. Paths change, and a minimum kept for ever would hide it.
const WINDOW: Duration = Duration::from_secs(10);

/// A windowed minimum of the round trip, measured on SETTINGS and PING and their acknowledgements.
///
/// A queue on the path, or an endpoint that answers late, only ever makes a sample longer; the minimum is the path.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundTrip {
    minimum: Option<(Duration, Time)>,
    latest: Option<(Duration, Time)>,
}

impl RoundTrip {
    /// The smallest sample of the last ten seconds of measuring, if there is any.
    pub fn minimum(&self) -> Option<Duration> {
        self.minimum.map(|(duration, _)| duration)
    }

    /// The newest sample.
    pub fn latest(&self) -> Option<Duration> {
        self.latest.or(self.minimum).map(|(duration, _)| duration)
    }

    /// Whether the newest sample is so old that another is worth a PING, or there is none but a guess.
    pub(crate) fn is_stale(&self, now: Time) -> bool {
        match self.latest {
            Some((_, at)) => now.since(at) >= WINDOW,
            None => self.minimum.is_some(),
        }
    }

    /// Takes in the first SETTINGS of a server. They may have left before the TLS handshake was complete, and its turn to be
    /// processed is then in the sample.
    pub(crate) fn guess(&mut self, sent: Time, now: Time) {
        if self.latest.is_none() {
            self.minimum = Some((now.since(sent), now));
        }
    }

    /// Takes in a frame sent at `sent` and acknowledged at `now`.
    pub(crate) fn sample(&mut self, sent: Time, now: Time) {
        let sample = now.since(sent);
        self.latest = Some((sample, now));
        match self.minimum {
            Some((minimum, at)) if minimum <= sample && now.since(at) < WINDOW => {}
            _ => self.minimum = Some((sample, now)),
        }
    }
}

/// Watches how fast one window is used up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    since: Time,
    consumed: u64,
}

impl Pace {
    /// At a refill, with `consumed` bytes since the beginning: whether the window of `size` bytes is too small for the
    /// path, since three quarters of it were used within two round trips. `None` while that is not known.
    pub(crate) fn outgrows(
        &mut self,
        now: Time,
        consumed: u64,
        size: u32,
        round_trip: Option<Duration>,
    ) -> Option<bool> {
        let span = (round_trip? * 2).as_nanos();
        let elapsed = now.since(self.since).as_nanos();
        let used = u128::from(consumed - self.consumed);
        let needed = u128::from(size) * 3 / 4;
        // Over a longer time than two round trips it is the rate that counts.
        let outgrown = used * span.max(1) >= needed * elapsed.max(span).max(1);
        if !outgrown && elapsed < span {
            return None;
        }
        self.since = now;
        self.consumed = consumed;
        Some(outgrown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_minimum_holds_for_its_window_and_then_follows_the_path() {
        let mut trip = RoundTrip::default();
        trip.sample(at(0), at(100));
        trip.sample(at(200), at(350));
        assert_eq!(trip.minimum(), Some(Duration::from_millis(100)));
        assert_eq!(trip.latest(), Some(Duration::from_millis(150)));
        assert!(!trip.is_stale(at(10_000)));
        assert!(trip.is_stale(at(10_350)));
        trip.sample(at(20_000), at(20_150));
        assert_eq!(trip.minimum(), Some(Duration::from_millis(150)));
    }

    #[test]
    fn a_guess_counts_until_a_sample_is_shorter_and_asks_for_one_at_once() {
        let mut trip = RoundTrip::default();
        assert!(!trip.is_stale(at(0)));
        trip.guess(at(0), at(300));
        let guessed = Some(Duration::from_millis(300));
        assert_eq!((trip.minimum(), trip.latest()), (guessed, guessed));
        assert!(trip.is_stale(at(300)));
        trip.sample(at(400), at(500));
        let measured = Some(Duration::from_millis(100));
        assert_eq!((trip.minimum(), trip.latest()), (measured, measured));
        assert!(!trip.is_stale(at(500)));
        trip.guess(at(600), at(650));
        assert_eq!(trip.minimum(), measured);
    }

    #[test]
    fn a_minimum_is_trusted_for_ten_seconds_after_it_was_measured_first() {
        let moment = Duration::from_nanos(1);
        let long = Duration::from_millis(150);
        let measured = |trip: &mut RoundTrip, now: Time| {
            let sent = Time::from_nanos(now.as_nanos() - long.as_nanos() as u64);
            trip.sample(sent, now);
            trip.minimum()
        };
        let mut trip = RoundTrip::default();
        trip.sample(at(0), at(100));
        // As short a sample later does not renew it.
        trip.sample(at(5_000), at(5_100));
        let last = Time::from_nanos(at(10_100).as_nanos() - 1);
        assert_eq!(measured(&mut trip, last), Some(Duration::from_millis(100)));
        assert_eq!(measured(&mut trip, last + moment), Some(long));
        assert!(!trip.is_stale(Time::from_nanos(at(20_100).as_nanos() - 1)));
        assert!(trip.is_stale(at(20_100)));
    }

    #[test]
    fn a_window_used_up_in_a_round_trip_is_outgrown() {
        let mut pace = Pace::default();
        let trip = Some(Duration::from_millis(100));
        let quarters: Vec<_> = (1..=4)
            .map(|quarter| pace.outgrows(at(25 * quarter), 250 * quarter, 1_000, trip))
            .collect();
        assert_eq!(quarters, [None, None, Some(true), None]);
    }

    #[test]
    fn without_a_round_trip_worth_a_nanosecond_three_quarters_at_once_outgrow_a_window() {
        for (used, outgrown) in [(749, false), (750, true)] {
            let mut pace = Pace::default();
            assert_eq!(
                pace.outgrows(at(0), used, 1_000, Some(Duration::ZERO)),
                Some(outgrown)
            );
        }
    }

    #[test]
    fn a_window_of_which_two_round_trips_use_less_is_not() {
        let mut pace = Pace::default();
        let trip = Some(Duration::from_millis(100));
        for second in 1..20 {
            // A quarter a tenth of a second: half the window in two round trips.
            let outgrown = pace.outgrows(at(100 * second), 250 * second, 1_000, trip);
            assert_ne!(outgrown, Some(true));
        }
        assert_eq!(pace.outgrows(at(2_000), 5_000, 1_000, None), None);
    }
}
