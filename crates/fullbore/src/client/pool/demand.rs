//! When further connections to an origin are justified: only when the number of streams is what requests wait for, and
//! the path is long.
//!
//! Pure: the time is an argument. `origin` reports what happens under its lock and asks.

use std::time::Duration;

use tokio::time::Instant;

/// A shorter round trip is no reason for a further connection. Over 5 ms the usual 100 streams are turned over 20,000
/// times a second, about what one core gets through on one connection: below that the streams are not the limit.
pub(super) const LONG_PATH: Duration = Duration::from_millis(5);

/// For how many round trips requests have to wait before a further connection is worth its own two or three: a burst
/// that one more turn of the slots takes in is gone before.
const PATIENCE: u32 = 2;

/// For how long they have to wait in any case. On a busy machine a few exchanges in a row may look as if the path were
/// long, but hardly all of them for a tenth of a second.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

/// The queue may be empty for a quarter of that time: requests that follow each other in step leave it all at once,
/// and the next are there a moment later.
const EMPTY_AT_MOST: u32 = 4;

/// After how many exchanges' time a queue that is empty now and then is looked at anew.
const MEMORY: u32 = 8;

/// The path has to be two thirds of an exchange at least. Of one that takes longer the link, which is full, or the server
/// or this machine, which is slow, has its share, and more streams would divide the same: 100 streams of 10 KB over 100 ms
/// are 10 MB/s, and on a link of 6 MB/s each takes 160 ms.
const PATH_SHARE: (u32, u32) = (2, 3);

/// The mean is of about so many exchanges, of all if there were fewer. It was of eight: as many quick ones often follow each other
/// where all of them wait for a busy machine.
const SMOOTHING: u32 = 64;

/// So many PINGs have to have left, each once the one before had come back: a machine that is busy for a moment makes all exchanges
/// alike that have to go through it then, SETTINGS among them, and looks like a long path. Two more answers come from another
/// moment each, and behind no queue of responses. On a long path they take hardly longer than what is waited for anyway.
pub(super) const ENOUGH_PROBES: u32 = 3;

/// What an origin's requests have shown.
#[derive(Debug, Default)]
pub(super) struct Demand {
    queue: Option<Queue>,
    /// How long an exchange takes, smoothed, and of how many that is, up to `SMOOTHING`.
    mean: Option<Duration>,
    exchanges: u32,
    /// The shortest exchange: the round trip cannot be longer. It holds as long as there are connections, since a link
    /// that our own transfers keep full shows its length no more.
    shortest: Option<Duration>,
    /// The most exchanges under way and waiting, since it was last asked.
    peak: u64,
}

/// How requests have been waiting, every slot being taken.
#[derive(Debug)]
struct Queue {
    since: Instant,
    /// Whether any waits now, and since when it is as it is.
    waits: bool,
    changed: Instant,
    /// For how long any waited, up to that change.
    waited: Duration,
    /// How many exchanges have ended well.
    turned_over: u64,
}

/// What an origin carries at the moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Connections that take requests.
    pub(super) connections: usize,
    /// Streams that they allow, together.
    pub(super) streams: u64,
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    /// The least round trip that any of them has measured on frames of its own.
    pub(super) round_trip: Option<Duration>,
    /// The most PINGs that any of them has measured it by.
    pub(super) probes: u32,
}

impl Demand {
    /// So many exchanges are under way or waiting.
    pub(super) fn seen(&mut self, exchanges: u64) {
        self.peak = self.peak.max(exchanges);
    }

    /// The most exchanges since this was last asked.
    pub(super) fn take_peak(&mut self, now: u64) -> u64 {
        std::mem::replace(&mut self.peak, now)
    }

    /// A request waits, every slot being taken.
    pub(super) fn waits(&mut self, now: Instant) {
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
    pub(super) fn emptied(&mut self, now: Instant) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.waits) {
            queue.waited += now.duration_since(queue.changed);
            queue.waits = false;
            queue.changed = now;
        }
    }

    /// There are other slots: what was seen of waiting is out of date.
    pub(super) fn start_over(&mut self) {
        self.queue = None;
    }

    /// An exchange ended well.
    pub(super) fn exchanged(&mut self, took: Duration) {
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

    /// The last connection is gone: the next may go another way.
    pub(super) fn forget_path(&mut self) {
        self.mean = None;
        self.exchanges = 0;
        self.shortest = None;
    }

    /// How many connections the load justifies; never fewer than there are.
    pub(super) fn justified(&self, load: &Load, now: Instant) -> usize {
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
            // Each slot was used again, once on average: that many exchanges have vouched for the path.
            && queue.turned_over >= load.streams.max(1)
            && mean * PATH_SHARE.0 <= path * PATH_SHARE.1
    }

    /// The round trip: the least of what the connections measured, and never longer than the shortest exchange. A busy
    /// machine that answers late makes every one of them longer; the least is nearest to the path.
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

    /// Whether an empty queue is one that has only just emptied.
    fn is_recent(&self, exchange: Duration, now: Instant) -> bool {
        now.duration_since(self.changed) <= exchange && now.duration_since(self.since) <= exchange * MEMORY
    }

    /// Whether requests have been waiting for that long, with short breaks at most.
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

    /// Slots full, 1,000 requests waiting, on one connection of 100 streams.
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

    /// What requests show that wait for `rounds` round trips while 100 slots are turned over, each exchange in `took`.
    fn seen(start: Instant, round_trip: Duration, took: Duration, rounds: u32) -> (Demand, Instant) {
        let mut demand = Demand::default();
        demand.waits(start);
        for _ in 0..100 {
            demand.exchanged(took);
        }
        (demand, start + round_trip * rounds)
    }

    #[test]
    fn a_long_path_with_every_slot_taken_justifies_as_many_as_the_queue_fills() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 102, 2);
        assert_eq!(demand.justified(&full(MS * 100), now), 11);
        let short_queue = Load {
            waiting: 1,
            ..full(MS * 100)
        };
        assert_eq!(demand.justified(&short_queue, now), 2);
    }

    #[test]
    fn connections_of_one_stream_each_are_as_many_as_there_are_requests() {
        let start = Instant::now();
        let mut demand = Demand::default();
        demand.waits(start);
        let load = Load {
            streams: 1,
            in_flight: 1,
            waiting: 4,
            ..full(MS * 100)
        };
        let now = start + MS * 200;
        assert_eq!(demand.justified(&load, now), 1, "no exchange has ended");
        demand.exchanged(MS * 100);
        assert_eq!(demand.justified(&load, now), 5);
    }

    #[test]
    fn a_short_path_justifies_none_however_long_the_queue() {
        let start = Instant::now();
        let trip = LONG_PATH - Duration::from_nanos(1);
        let (demand, _) = seen(start, trip, trip, 2);
        assert_eq!(demand.justified(&full(trip), start + MS * 10_000), 1);
        let (demand, _) = seen(start, LONG_PATH, LONG_PATH, 2);
        let now = start + LEAST_PATIENCE;
        assert_eq!(demand.justified(&full(LONG_PATH), now), 11);
        assert_eq!(
            demand.justified(&full(LONG_PATH), now - Duration::from_nanos(1)),
            1
        );
    }

    #[test]
    fn one_short_exchange_disproves_a_round_trip_that_was_measured_long() {
        let start = Instant::now();
        let (mut demand, now) = seen(start, MS * 100, MS * 102, 2);
        demand.exchanged(MS);
        assert_eq!(demand.justified(&full(MS * 100), now), 1);
        // The next connections may go another way.
        demand.forget_path();
        demand.exchanged(MS * 100);
        assert_eq!(demand.justified(&full(MS * 100), now), 11);
    }

    #[test]
    fn free_slots_or_an_empty_queue_justify_none() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 102, 2);
        let free = Load {
            in_flight: 99,
            ..full(MS * 100)
        };
        let nobody = Load {
            waiting: 0,
            ..full(MS * 100)
        };
        assert_eq!(demand.justified(&free, now), 1);
        assert_eq!(demand.justified(&nobody, now), 1);
    }

    #[test]
    fn a_burst_that_the_slots_take_in_justifies_none() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 102, 2);
        assert_eq!(
            demand.justified(&full(MS * 100), now - Duration::from_nanos(1)),
            1
        );
        let (mut demand, now) = seen(start, MS * 100, MS * 102, 2);
        demand.start_over();
        demand.waits(now);
        assert_eq!(demand.justified(&full(MS * 100), now + MS), 1);
    }

    #[test]
    fn a_queue_that_empties_and_fills_in_step_with_the_path_counts_as_one() {
        let start = Instant::now();
        let (mut demand, _) = seen(start, MS * 100, MS * 102, 0);
        for turn in 1..=2 {
            demand.emptied(start + MS * 100 * turn);
            demand.waits(start + MS * (100 * turn + 1));
        }
        assert_eq!(demand.justified(&full(MS * 100), start + MS * 201), 11);
    }

    #[test]
    fn a_queue_that_is_empty_most_of_the_time_justifies_none() {
        let start = Instant::now();
        let (mut demand, _) = seen(start, MS * 100, MS * 102, 0);
        for moment in 0..400 {
            demand.waits(start + MS * (2 * moment));
            assert_eq!(demand.justified(&full(MS * 100), start + MS * (2 * moment)), 1);
            demand.emptied(start + MS * (2 * moment + 1));
            demand.exchanged(MS * 100);
        }
    }

    #[test]
    fn a_full_link_or_a_slow_server_justifies_none() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 151, 20);
        assert_eq!(demand.justified(&full(MS * 100), now), 1);
        let (demand, now) = seen(start, MS * 100, MS * 150, 20);
        assert_eq!(demand.justified(&full(MS * 100), now), 11);
    }

    #[test]
    fn an_unknown_round_trip_or_too_few_exchanges_justify_none() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 102, 2);
        let unknown = Load {
            round_trip: None,
            ..full(MS * 100)
        };
        assert_eq!(demand.justified(&unknown, now), 1);
        let wider = Load {
            streams: 101,
            in_flight: 101,
            ..full(MS * 100)
        };
        assert_eq!(demand.justified(&wider, now), 1);
    }

    #[test]
    fn a_round_trip_that_was_measured_once_justifies_none() {
        let start = Instant::now();
        let (demand, now) = seen(start, MS * 100, MS * 102, 2);
        let once = Load {
            probes: ENOUGH_PROBES - 1,
            ..full(MS * 100)
        };
        assert_eq!(demand.justified(&once, now), 1);
    }

    #[test]
    fn some_quick_exchanges_among_slow_ones_justify_none() {
        let start = Instant::now();
        let (mut demand, now) = seen(start, MS * 100, MS * 200, 2);
        for _ in 0..16 {
            demand.exchanged(MS * 100);
        }
        assert_eq!(demand.justified(&full(MS * 100), now), 1);
        for _ in 0..100 {
            demand.exchanged(MS * 100);
        }
        assert_eq!(demand.justified(&full(MS * 100), now), 11);
    }

    #[test]
    fn the_peak_is_of_the_time_since_it_was_last_asked() {
        let mut demand = Demand::default();
        demand.seen(7);
        demand.seen(3);
        assert_eq!(demand.take_peak(3), 7);
        assert_eq!(demand.take_peak(0), 3);
    }
    #[test]
    fn the_mean_is_of_all_exchanges_at_first_and_of_64_later() {
        let mut demand = Demand::default();
        for (took, mean) in [(10, 10), (20, 15), (30, 20)] {
            demand.exchanged(MS * took);
            assert_eq!(demand.mean, Some(MS * mean));
        }
        for _ in 0..100 {
            demand.exchanged(MS * 20);
        }
        for (took, mean) in [(84, 21), (85, 22)] {
            demand.exchanged(MS * took);
            assert_eq!(demand.mean, Some(MS * mean));
        }
    }

    #[test]
    fn a_queue_that_was_empty_for_longer_than_an_exchange_is_a_new_one() {
        let start = Instant::now();
        let since = |demand: &Demand| demand.queue.as_ref().map(|queue| queue.since);
        for (empty, goes_on) in [(MS * 100, true), (MS * 100 + Duration::from_nanos(1), false)] {
            let mut demand = Demand::default();
            demand.exchanged(MS * 100);
            demand.waits(start);
            demand.emptied(start + MS);
            demand.waits(start + MS + empty);
            let expected = if goes_on { start } else { start + MS + empty };
            assert_eq!(since(&demand), Some(expected));
        }
    }

    #[test]
    fn a_queue_that_empties_now_and_then_is_looked_at_anew_after_eight_exchanges() {
        let start = Instant::now();
        let mut demand = Demand::default();
        demand.exchanged(MS * 100);
        demand.waits(start);
        let mut began = Vec::new();
        for turn in 1..=17 {
            demand.emptied(start + MS * (100 * turn - 1));
            demand.waits(start + MS * 100 * turn);
            began.push(demand.queue.as_ref().map(|queue| queue.since == start));
        }
        // At 800 ms it is the same still, at 900 ms another one.
        let same = began.iter().take_while(|&&same| same == Some(true)).count();
        assert_eq!(same, 8);
        assert_eq!(demand.queue.map(|queue| queue.since), Some(start + MS * 900));
    }
}
