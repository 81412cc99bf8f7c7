//! What is known of the path: the round trip to the peer, measured on SETTINGS and PING and their acknowledgements.
//!
//! Windows are what the configuration says and open wide at once; this is the figure that they have to fit.

use core::time::Duration;

use crate::time::Time;

/// How long a minimum is trusted. Paths change, and a minimum kept for ever would hide it.
const WINDOW: Duration = Duration::from_secs(10);

/// A windowed minimum of the round trip.
///
/// A queue on the path, or an endpoint that answers late, only ever makes a sample longer; the minimum is the path.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundTrip {
    minimum: Option<(Duration, Time)>,
    latest: Option<Duration>,
}

impl RoundTrip {
    /// The smallest sample of the last ten seconds of measuring, if there is any.
    pub fn minimum(&self) -> Option<Duration> {
        self.minimum.map(|(duration, _)| duration)
    }

    /// The newest sample.
    pub fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// Takes in a frame sent at `sent` and acknowledged at `now`.
    pub(crate) fn sample(&mut self, sent: Time, now: Time) {
        let sample = now.since(sent);
        self.latest = Some(sample);
        match self.minimum {
            Some((minimum, at)) if minimum <= sample && now.since(at) < WINDOW => {}
            _ => self.minimum = Some((sample, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_holds_for_its_window_and_then_follows_the_path() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut trip = RoundTrip::default();
        trip.sample(at(0), at(100));
        trip.sample(at(200), at(350));
        assert_eq!(trip.minimum(), Some(Duration::from_millis(100)));
        assert_eq!(trip.latest(), Some(Duration::from_millis(150)));
        trip.sample(at(20_000), at(20_150));
        assert_eq!(trip.minimum(), Some(Duration::from_millis(150)));
    }
}
