//! Counts of how an instance has answered, for those who watch it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

/// The upper bounds of [`InstanceFigures::answers`], in milliseconds. A last count has no bound.
pub const ANSWER_BOUNDS: [u64; 14] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000,
];

/// How an instance has answered since the proxy was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstanceFigures {
    /// Its answers, by the time from the end of the request to the head of the response. The count at an index is of those within
    /// [`ANSWER_BOUNDS`] there and above the bound before; the last one is of slower ones.
    pub answers: [u64; ANSWER_BOUNDS.len() + 1],
    /// The sum of these times.
    pub waited: Duration,
    /// Requests that got 502 in its place: it could not be reached, or its answer was invalid.
    pub bad_gateway: u64,
    /// Requests that got 503 in its place: it took none, or too many waited for a connection.
    pub unavailable: u64,
    /// Requests that got 504 in its place: it did not answer in time.
    pub timeouts: u64,
    /// Responses that broke off.
    pub broken: u64,
    /// Requests that went to another instance, since this one could not be reached.
    pub repeats: u64,
    /// How often it was left out, after failures in a row.
    pub ejections: u64,
}

/// The same, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    answers: [AtomicU64; ANSWER_BOUNDS.len() + 1],
    waited_micros: AtomicU64,
    bad_gateway: AtomicU64,
    unavailable: AtomicU64,
    timeouts: AtomicU64,
    broken: AtomicU64,
    repeats: AtomicU64,
    ejections: AtomicU64,
}

impl Figures {
    pub(crate) fn add_answer(&self, waited: Duration) {
        let within = |bound: &u64| waited <= Duration::from_millis(*bound);
        let index = ANSWER_BOUNDS
            .iter()
            .position(within)
            .unwrap_or(ANSWER_BOUNDS.len());
        add(&self.answers[index], 1);
        add(
            &self.waited_micros,
            u64::try_from(waited.as_micros()).unwrap_or(0),
        );
    }

    pub(crate) fn add_failure(&self, status: StatusCode) {
        match status {
            StatusCode::BAD_GATEWAY => add(&self.bad_gateway, 1),
            StatusCode::SERVICE_UNAVAILABLE => add(&self.unavailable, 1),
            StatusCode::GATEWAY_TIMEOUT => add(&self.timeouts, 1),
            _ => {}
        }
    }

    pub(crate) fn add_broken(&self) {
        add(&self.broken, 1);
    }

    pub(crate) fn add_repeat(&self) {
        add(&self.repeats, 1);
    }

    pub(crate) fn add_ejection(&self) {
        add(&self.ejections, 1);
    }

    pub(crate) fn read(&self) -> InstanceFigures {
        InstanceFigures {
            answers: std::array::from_fn(|index| get(&self.answers[index])),
            waited: Duration::from_micros(get(&self.waited_micros)),
            bad_gateway: get(&self.bad_gateway),
            unavailable: get(&self.unavailable),
            timeouts: get(&self.timeouts),
            broken: get(&self.broken),
            repeats: get(&self.repeats),
            ejections: get(&self.ejections),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_the_time_that_they_took() {
        let figures = Figures::default();
        for micros in [0, 1_000, 1_001, 60_000_000, 60_000_001] {
            figures.add_answer(Duration::from_micros(micros));
        }
        let read = figures.read();
        let mut expected = [0; ANSWER_BOUNDS.len() + 1];
        (expected[0], expected[1], expected[13], expected[14]) = (2, 1, 1, 1);
        assert_eq!(read.answers, expected);
        assert_eq!(read.waited, Duration::from_micros(120_002_002));
        assert!(ANSWER_BOUNDS.is_sorted());
    }
}
