//! A limit on the time that a peer takes.

use std::time::Duration;

use tokio::time::Instant;

/// The time that was spent waiting for a peer since it last made progress.
///
/// Only time in which something waits counts, as [`Config::body_timeout`](fullbore_proto::Config::body_timeout) says.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The counter at the last progress.
    count: u64,
    waited: Duration,
    /// Since when something waits that is not in `waited` yet.
    since: Option<Instant>,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Waiting {
            count: 0,
            waited: Duration::ZERO,
            since: None,
        }
    }

    /// Says whether something waits now, and how far the counter is. `least` is what counts as progress.
    pub(crate) fn update(&mut self, waits: bool, count: u64, least: u64, now: Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
        if count >= self.count.saturating_add(least) {
            self.restart(count);
        }
        self.since = waits.then_some(now);
    }

    /// Forgets the time that was spent.
    pub(crate) fn restart(&mut self, count: u64) {
        self.count = count;
        self.waited = Duration::ZERO;
    }

    /// When the time is over, if nothing changes until then.
    pub(crate) fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.since?.checked_add(limit.saturating_sub(self.waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_time_in_which_something_waits_counts_and_progress_begins_it_anew() {
        let second = Duration::from_secs(1);
        let limit = second * 10;
        let mut waiting = Waiting::new();
        assert_eq!(waiting.deadline(limit), None);
        waiting.update(true, 0, 5, Instant::now());
        tokio::time::advance(second * 4).await;
        waiting.update(false, 4, 5, Instant::now());
        assert_eq!(waiting.deadline(limit), None);
        tokio::time::advance(second * 100).await;
        waiting.update(true, 4, 5, Instant::now());
        assert_eq!(waiting.deadline(limit), Some(Instant::now() + second * 6));
        waiting.update(true, 5, 5, Instant::now());
        assert_eq!(waiting.deadline(limit), Some(Instant::now() + limit));
    }
}
