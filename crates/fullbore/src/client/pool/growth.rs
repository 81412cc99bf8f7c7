//! Decides how many connections an origin needs. More than one are justified only when requests wait for streams and
//! the path is long.
//!
//! The time is an argument. `origin` reports events and asks, under its lock.

use std::time::Duration;

use tokio::time::Instant;

/// A shorter round trip justifies no further connection. At 5 ms the usual 100 streams carry 20,000 requests a second,
/// about what one core processes on one connection. Below that, streams are not the limit.
pub(super) const LONG_PATH: Duration = Duration::from_millis(5);

/// The round trips that requests have to wait before a further connection is worth its own two or three. The next free
/// slots absorb a shorter burst.
const PATIENCE: u32 = 2;

/// The minimum time that they have to wait. On a busy machine, a few exchanges in a row may look like a long path, but
/// hardly all of them for a tenth of a second.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// The queue may be empty for a quarter of that time: requests in lockstep leave it together, and the next ones
/// follow at once.
const EMPTY_AT_MOST: u32 = 4;

/// The number of mean exchange times after which a queue that is empty at times is measured anew.
const MEMORY: u32 = 8;

/// The round trip has to be at least two thirds of an exchange. A longer exchange is due to a full link, or to a slow
/// server or client, whose capacity more streams would only divide. For example, 100 streams of 10 KB over 100 ms are
/// 10 MB/s; on a link of 6 MB/s, each takes 160 ms.
const PATH_SHARE: (u32, u32) = (2, 3);

/// The mean covers about this many exchanges. Eight were too few: on a busy machine, as many quick exchanges often
/// follow each other.
const SMOOTHING: u32 = 64;

/// The number of PINGs that must have been sent, each after the answer to the one before. A machine that is busy for
/// a moment delays all exchanges at that moment, SETTINGS included, which looks like a long path. Two more answers
/// come from other moments, and not behind a queue of responses.
pub(super) const ENOUGH_PROBES: u32 = 3;

/// What the requests of an origin have shown.
#[derive(Debug, Default)]
pub(super) struct Growth {
    queue: Option<Queue>,
    /// The smoothed time of an exchange, and the number of exchanges in it, up to `SMOOTHING`.
    mean: Option<Duration>,
    exchanges: u32,
    /// The shortest exchange, which bounds the round trip. It is kept while there are connections, because exchanges
    /// on a link that our own transfers fill are longer.
    shortest: Option<Duration>,
    /// The maximum of open and waiting requests since the last [`Self::take_peak`].
    peak: u64,
}

/// How long requests have waited for a slot.
#[derive(Debug)]
struct Queue {
    since: Instant,
    /// Whether any waits now, and since when that is so.
    waits: bool,
    changed: Instant,
    /// For how long any waited, up to that change.
    waited: Duration,
    /// The number of completed exchanges.
    turned_over: u64,
}

/// The current load of an origin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Connections that take requests.
    pub(super) connections: usize,
    /// The streams that they allow together.
    pub(super) streams: u64,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    /// The smallest round trip that any of them has measured.
    pub(super) round_trip: Option<Duration>,
    /// The most PINGs that any of them has sent to measure it.
    pub(super) probes: u32,
}

impl Growth {
    /// Records the number of open and waiting requests.
    pub(super) fn record_load(&mut self, exchanges: u64) {
        self.peak = self.peak.max(exchanges);
    }

    /// The maximum since the last call.
    pub(super) fn take_peak(&mut self, now: u64) -> u64 {
        std::mem::replace(&mut self.peak, now)
    }

    /// A request waits, because every slot is taken.
    pub(super) fn queue_filled(&mut self, now: Instant) {
        let exchange = self.mean.unwrap_or_default();
        match &mut self.queue {
            Some(queue) if queue.waits => {}
            Some(queue) if queue.is_recent(exchange, now) => {
                queue.waits = true;
                queue.changed = now;
            }
            _ => self.queue = Some(Queue::new(now)),
        }
    }

    /// No request waits any more.
    pub(super) fn queue_emptied(&mut self, now: Instant) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.waits) {
            queue.waited += now.duration_since(queue.changed);
            queue.waits = false;
            queue.changed = now;
        }
    }

    /// The number of slots has changed, so the measured wait is obsolete.
    pub(super) fn reset_queue(&mut self) {
        self.queue = None;
    }

    /// An exchange completed.
    pub(super) fn exchange_completed(&mut self, took: Duration) {
        if let Some(queue) = &mut self.queue {
            queue.turned_over += 1;
        }
        self.mean = Some(match self.mean {
            Some(mean) => (mean * self.exchanges + took) / (self.exchanges + 1),
            None => took,
        });
        self.exchanges = (self.exchanges + 1).min(SMOOTHING - 1);
        self.shortest = Some(self.shortest.unwrap_or(took).min(took));
    }

    /// The mean time of an exchange.
    pub(super) fn exchange(&self) -> Duration {
        self.mean.unwrap_or_default()
    }

    /// The time of the shortest one.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }

    /// Whether all exchanges have taken as long as on a long path.
    pub(super) fn is_long_path(&self) -> bool {
        self.shortest.is_some_and(|shortest| shortest >= LONG_PATH)
    }

    /// The last connection has ended. The next one may take another path.
    pub(super) fn forget_path(&mut self) {
        self.mean = None;
        self.exchanges = 0;
        self.shortest = None;
    }

    /// The number of connections that the load justifies; never fewer than there are.
    pub(super) fn target_connections(&self, load: &Load, now: Instant) -> usize {
        match self.streams_are_the_limit(load, now) {
            true => {
                let per_connection = (load.streams / load.connections as u64).max(1);
                let wanted = (load.waiting + load.in_flight).div_ceil(per_connection);
                usize::try_from(wanted)
                    .unwrap_or(usize::MAX)
                    .max(load.connections)
            }
            false => load.connections,
        }
    }

    fn streams_are_the_limit(&self, load: &Load, now: Instant) -> bool {
        if load.connections == 0 || load.waiting == 0 || load.in_flight < load.streams {
            return false;
        }
        let (Some(queue), Some(mean), Some(path)) = (&self.queue, self.mean, self.path(load)) else {
            return false;
        };
        path >= LONG_PATH
            && load.probes >= ENOUGH_PROBES
            && queue.has_lasted((path * PATIENCE).max(LEAST_PATIENCE), now)
            // On average each slot was used again, so that as many exchanges confirm the path.
            && queue.turned_over >= load.streams.max(1)
            && mean * PATH_SHARE.0 <= path * PATH_SHARE.1
    }

    /// The round trip: the minimum of the connections' measurements and the shortest exchange. A busy machine
    /// lengthens all of them, so that the minimum is the best estimate.
    fn path(&self, load: &Load) -> Option<Duration> {
        Some(load.round_trip?.min(self.shortest?))
    }
}

impl Queue {
    fn new(now: Instant) -> Self {
        Queue {
            since: now,
            waits: true,
            changed: now,
            waited: Duration::ZERO,
            turned_over: 0,
        }
    }

    /// Whether an empty queue has been empty for a short time only.
    fn is_recent(&self, exchange: Duration, now: Instant) -> bool {
        now.duration_since(self.changed) <= exchange && now.duration_since(self.since) <= exchange * MEMORY
    }

    /// Whether requests have waited for that long, with short breaks at most.
    fn has_lasted(&self, time: Duration, now: Instant) -> bool {
        let lasted = now.duration_since(self.since);
        let current = match self.waits {
            true => now.duration_since(self.changed),
            false => Duration::ZERO,
        };
        lasted >= time && lasted.saturating_sub(self.waited + current) <= lasted / EMPTY_AT_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// All 100 streams of one connection in use, and 1,000 requests waiting.
    fn full(round_trip: Duration) -> Load {
        Load {
            connections: 1,
            streams: 100,
            in_flight: 100,
            waiting: 1_000,
            round_trip: Some(round_trip),
            probes: ENOUGH_PROBES,
        }
    }

    /// The state after requests waited for `rounds` round trips and 100 exchanges that each took `took`.
    fn seen(start: Instant, round_trip: Duration, took: Duration, rounds: u32) -> (Growth, Instant) {
        let mut growth = Growth::default();
        growth.queue_filled(start);
        for _ in 0..100 {
            growth.exchange_completed(took);
        }
        (growth, start + round_trip * rounds)
    }

    #[test]
    fn a_long_path_with_every_slot_taken_justifies_as_many_as_the_queue_fills() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        assert_eq!(growth.target_connections(&full(MS * 100), now), 11);
        let short_queue = Load {
            waiting: 1,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&short_queue, now), 2);
    }

    #[test]
    fn connections_of_one_stream_each_are_as_many_as_there_are_requests() {
        let start = Instant::now();
        let mut growth = Growth::default();
        growth.queue_filled(start);
        let load = Load {
            streams: 1,
            in_flight: 1,
            waiting: 4,
            ..full(MS * 100)
        };
        let now = start + MS * 200;
        assert_eq!(growth.target_connections(&load, now), 1, "no exchange has ended");
        growth.exchange_completed(MS * 100);
        assert_eq!(growth.target_connections(&load, now), 5);
    }

    #[test]
    fn a_short_path_justifies_none_however_long_the_queue() {
        let start = Instant::now();
        let trip = LONG_PATH - Duration::from_nanos(1);
        let (growth, _) = seen(start, trip, trip, 2);
        assert_eq!(growth.target_connections(&full(trip), start + MS * 10_000), 1);
        let (growth, _) = seen(start, LONG_PATH, LONG_PATH, 2);
        let now = start + LEAST_PATIENCE;
        assert_eq!(growth.target_connections(&full(LONG_PATH), now), 11);
        assert_eq!(
            growth.target_connections(&full(LONG_PATH), now - Duration::from_nanos(1)),
            1
        );
    }

    #[test]
    fn one_short_exchange_disproves_a_round_trip_that_was_measured_long() {
        let start = Instant::now();
        let (mut growth, now) = seen(start, MS * 100, MS * 102, 2);
        growth.exchange_completed(MS);
        assert_eq!(growth.target_connections(&full(MS * 100), now), 1);
        // The next connections may take another path.
        growth.forget_path();
        growth.exchange_completed(MS * 100);
        assert_eq!(growth.target_connections(&full(MS * 100), now), 11);
    }

    #[test]
    fn free_slots_or_an_empty_queue_justify_none() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        let free = Load {
            in_flight: 99,
            ..full(MS * 100)
        };
        let nobody = Load {
            waiting: 0,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&free, now), 1);
        assert_eq!(growth.target_connections(&nobody, now), 1);
    }

    #[test]
    fn streams_beyond_a_limit_that_was_lowered_justify_none_when_no_request_waits() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        let beyond = Load {
            in_flight: 300,
            waiting: 0,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&beyond, now), 1);
        let waits = Load { waiting: 1, ..beyond };
        assert_eq!(growth.target_connections(&waits, now), 4);
        let nowhere = Load {
            connections: 0,
            ..waits
        };
        assert_eq!(growth.target_connections(&nowhere, now), 0);
    }

    #[test]
    fn a_burst_that_the_slots_take_in_justifies_none() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        assert_eq!(
            growth.target_connections(&full(MS * 100), now - Duration::from_nanos(1)),
            1
        );
        let (mut growth, now) = seen(start, MS * 100, MS * 102, 2);
        growth.reset_queue();
        growth.queue_filled(now);
        assert_eq!(growth.target_connections(&full(MS * 100), now + MS), 1);
    }

    #[test]
    fn a_queue_that_empties_and_fills_in_step_with_the_path_counts_as_one() {
        let start = Instant::now();
        let (mut growth, _) = seen(start, MS * 100, MS * 102, 0);
        for turn in 1..=2 {
            growth.queue_emptied(start + MS * 100 * turn);
            growth.queue_filled(start + MS * (100 * turn + 1));
        }
        assert_eq!(growth.target_connections(&full(MS * 100), start + MS * 201), 11);
    }

    #[test]
    fn a_queue_that_is_empty_most_of_the_time_justifies_none() {
        let start = Instant::now();
        let (mut growth, _) = seen(start, MS * 100, MS * 102, 0);
        for moment in 0..400 {
            growth.queue_filled(start + MS * (2 * moment));
            assert_eq!(
                growth.target_connections(&full(MS * 100), start + MS * (2 * moment)),
                1
            );
            growth.queue_emptied(start + MS * (2 * moment + 1));
            growth.exchange_completed(MS * 100);
        }
    }

    #[test]
    fn a_full_link_or_a_slow_server_justifies_none() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 151, 20);
        assert_eq!(growth.target_connections(&full(MS * 100), now), 1);
        let (growth, now) = seen(start, MS * 100, MS * 150, 20);
        assert_eq!(growth.target_connections(&full(MS * 100), now), 11);
    }

    #[test]
    fn an_unknown_round_trip_or_too_few_exchanges_justify_none() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        let unknown = Load {
            round_trip: None,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&unknown, now), 1);
        let wider = Load {
            streams: 101,
            in_flight: 101,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&wider, now), 1);
    }

    #[test]
    fn a_round_trip_that_was_measured_once_justifies_none() {
        let start = Instant::now();
        let (growth, now) = seen(start, MS * 100, MS * 102, 2);
        let once = Load {
            probes: ENOUGH_PROBES - 1,
            ..full(MS * 100)
        };
        assert_eq!(growth.target_connections(&once, now), 1);
    }

    #[test]
    fn some_quick_exchanges_among_slow_ones_justify_none() {
        let start = Instant::now();
        let (mut growth, now) = seen(start, MS * 100, MS * 200, 2);
        for _ in 0..16 {
            growth.exchange_completed(MS * 100);
        }
        assert_eq!(growth.target_connections(&full(MS * 100), now), 1);
        for _ in 0..100 {
            growth.exchange_completed(MS * 100);
        }
        assert_eq!(growth.target_connections(&full(MS * 100), now), 11);
    }

    #[test]
    fn the_peak_is_of_the_time_since_it_was_last_asked() {
        let mut growth = Growth::default();
        growth.record_load(7);
        growth.record_load(3);
        assert_eq!(growth.take_peak(3), 7);
        assert_eq!(growth.take_peak(0), 3);
    }
    #[test]
    fn the_mean_is_of_all_exchanges_at_first_and_of_64_later() {
        let mut growth = Growth::default();
        for (took, mean) in [(10, 10), (20, 15), (30, 20)] {
            growth.exchange_completed(MS * took);
            assert_eq!(growth.mean, Some(MS * mean));
        }
        for _ in 0..100 {
            growth.exchange_completed(MS * 20);
        }
        for (took, mean) in [(84, 21), (85, 22)] {
            growth.exchange_completed(MS * took);
            assert_eq!(growth.mean, Some(MS * mean));
        }
    }

    #[test]
    fn a_queue_that_was_empty_for_longer_than_an_exchange_is_a_new_one() {
        let start = Instant::now();
        let since = |growth: &Growth| growth.queue.as_ref().map(|queue| queue.since);
        for (empty, goes_on) in [(MS * 100, true), (MS * 100 + Duration::from_nanos(1), false)] {
            let mut growth = Growth::default();
            growth.exchange_completed(MS * 100);
            growth.queue_filled(start);
            growth.queue_emptied(start + MS);
            growth.queue_filled(start + MS + empty);
            let expected = if goes_on { start } else { start + MS + empty };
            assert_eq!(since(&growth), Some(expected));
        }
    }

    #[test]
    fn a_queue_that_empties_now_and_then_is_looked_at_anew_after_eight_exchanges() {
        let start = Instant::now();
        let mut growth = Growth::default();
        growth.exchange_completed(MS * 100);
        growth.queue_filled(start);
        let mut began = Vec::new();
        for turn in 1..=17 {
            growth.queue_emptied(start + MS * (100 * turn - 1));
            growth.queue_filled(start + MS * 100 * turn);
            began.push(growth.queue.as_ref().map(|queue| queue.since == start));
        }
        // At 800 ms it is the same queue, at 900 ms another one.
        let same = began.iter().take_while(|&&same| same == Some(true)).count();
        assert_eq!(same, 8);
        assert_eq!(growth.queue.map(|queue| queue.since), Some(start + MS * 900));
    }
}
