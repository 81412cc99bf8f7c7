//! How many bytes came lately, for each connection and for all.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How long readings are kept. Nobody looks further back.
const MEMORY: Duration = Duration::from_secs(12);

/// A count of bytes with its readings over the last seconds.
#[derive(Debug, Default)]
pub(in crate::client) struct Meter {
    total: u64,
    readings: VecDeque<(Instant, u64)>,
}

impl Meter {
    pub(in crate::client) fn count(&mut self, bytes: u64) {
        self.total += bytes;
    }

    pub(in crate::client) fn total(&self) -> u64 {
        self.total
    }

    /// Notes the count at this time.
    pub(in crate::client) fn read(&mut self, now: Instant) {
        self.readings.push_back((now, self.total));
        while self.readings.len() > 2 && self.readings[1].0 + MEMORY < now {
            self.readings.pop_front();
        }
    }

    /// Bytes a second in the time `span` that ended `ago` before the last reading. `None` before there were readings for so
    /// long.
    pub(in crate::client) fn rate(&self, span: Duration, ago: Duration) -> Option<f64> {
        let &(last, _) = self.readings.back()?;
        let end = self.at(last.checked_sub(ago)?)?;
        let begin = self.at(end.0.checked_sub(span)?)?;
        let seconds = (end.0 - begin.0).as_secs_f64();
        (seconds > 0.0).then(|| (end.1 - begin.1) as f64 / seconds)
    }

    /// The last reading at this time or before.
    fn at(&self, time: Instant) -> Option<(Instant, u64)> {
        let behind = self.readings.partition_point(|reading| reading.0 <= time);
        self.readings.get(behind.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_rate_is_that_of_the_span_and_unknown_before_there_was_one() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.read(start);
        assert_eq!(meter.rate(100 * MS, Duration::ZERO), None);
        for step in 1..=10 {
            meter.count(if step <= 5 { 1_000 } else { 3_000 });
            meter.read(start + step * 100 * MS);
        }
        assert_eq!(meter.rate(500 * MS, Duration::ZERO), Some(30_000.0));
        assert_eq!(meter.rate(500 * MS, 500 * MS), Some(10_000.0));
        assert_eq!(meter.rate(1_000 * MS, Duration::ZERO), Some(20_000.0));
        assert_eq!(meter.rate(1_001 * MS, Duration::ZERO), None);
        assert_eq!(meter.total(), 20_000);
    }

    #[test]
    fn readings_are_kept_for_some_seconds() {
        let start = Instant::now();
        let mut meter = Meter::default();
        for step in 0..1_000 {
            meter.read(start + step * 50 * MS);
        }
        assert!(meter.readings.len() <= 243, "{}", meter.readings.len());
        assert!(meter.rate(MEMORY, Duration::ZERO).is_some());
    }
}
