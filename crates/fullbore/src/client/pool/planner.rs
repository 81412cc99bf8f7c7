//! How many requests each HTTP/2 connection of an origin has ahead, and how many connections there are, for a client that may
//! spread requests ([`ClientBuilder::spread_requests`](super::ClientBuilder::spread_requests)).
//!
//! A request that was sent stays on its connection. So a connection gets no more requests than fill its path for some round
//! trips, and the others wait in the pool's queue. A further connection takes them from there, once losses or TCP's buffers hold
//! the first one back: an experiment, of which `experiment::Judge` decides as for a download.
//!
//! The time is an argument. `origin::spreading` asks the connections, and does what is planned.

use std::time::Duration;

use fullbore_proto::TcpInfo;
use tokio::time::Instant;

use super::growth::LONG_PATH;
use crate::client::experiment::{Advice, Judge, Meter, View, Watch};

/// What the only connection has ahead at least: so many requests, or as many as bring so many bytes. TCP needs six round trips
/// to begin with that much, so that nothing is lost by it; requests beyond it would be stuck if losses end its start.
pub(super) const FIRST_REQUESTS: u32 = 100;
const FIRST_BYTES: f64 = 1024.0 * 1024.0;

/// What a connection has ahead at least, once several carry the requests: as many requests as bring so many bytes, within these
/// bounds.
pub(super) const FURTHER_REQUESTS: u32 = 32;
const FURTHER_LEAST: u32 = 8;
const FURTHER_BYTES: f64 = 512.0 * 1024.0;

/// What a connection has ahead, in times of what it brings in a round trip. Twice that much comes in the next one while TCP
/// begins, and the same again has to be under way by then.
const AHEAD: f64 = 4.0;

/// What a connection receives before the first responses: SETTINGS and their like.
const FIRST_FRAMES: u64 = 1_000;

/// Over how many round trips a rate is looked at: what waits behind a lost packet comes later, and at once.
const LONG: u32 = 8;

/// Exchanges that take so many round trips wait for the server, if their bodies are no larger than this: many at once is what
/// helps then.
const SLOW_SERVER: u32 = 3;
const SMALL: f64 = 64.0 * 1024.0;

/// The number of exchanges after which their mean size counts.
const ENOUGH: u64 = 8;

/// The shortest time over which a rate is compared, as in `experiment::Judge`.
const SHORTEST: Duration = Duration::from_millis(150);

/// A rate that grew by more than this factor, because more was ahead, was limited by that.
const GREW: f64 = 1.2;

/// If no exchange ends for so long, and hardly anything comes or the reader of a body is slow, streams stay open: subscriptions,
/// or bodies that are read once all heads are there. Requests that are held back would wait for them.
const STALLED_AFTER: Duration = Duration::from_secs(5);
const STALLED_BYTES: u64 = 64 * 1024;

/// What a connection has done.
pub(super) struct Reading {
    pub(super) id: u64,
    /// When it was opened.
    pub(super) begun: Instant,
    /// Whether it takes requests. Otherwise it completes those that it has.
    pub(super) takes_requests: bool,
    /// Whether the peer has answered a request on it.
    pub(super) answered: bool,
    /// The bytes that it has carried: those that were received, and those that TCP has sent for the first time.
    pub(super) carried: u64,
    /// For how long it has waited for the readers of bodies.
    pub(super) waited_for_readers: Duration,
    pub(super) round_trip: Option<Duration>,
    pub(super) tcp: Option<TcpInfo>,
}

/// The requests of the origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requests {
    pub(super) waiting: u64,
    /// Exchanges that have ended since the pool began.
    pub(super) completed: u64,
    /// The shortest of them.
    pub(super) shortest: Option<Duration>,
    /// Connections that are being opened.
    pub(super) opening: usize,
    /// Whether a connection could not be had.
    pub(super) refused: bool,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The requests need not be held back.
    Lift,
    Keep {
        /// How many requests each connection may have at once.
        ahead: Vec<(u64, u32)>,
        /// The same for new ones.
        further: u32,
        /// How many connections to open.
        open: usize,
        /// Which ones to close.
        close: Vec<u64>,
    },
}

/// What is known of the connections of an origin.
pub(super) struct Planner {
    begun: Instant,
    judge: Judge,
    watch: Watch,
    meter: Meter,
    /// What came over the connections that were opened since then.
    tried: Meter,
    tried_since: Option<Instant>,
    carriers: Vec<Carrier>,
    /// The number of completed exchanges at the beginning.
    completed: Option<u64>,
    /// When an exchange had ended last, or no request waited; what had come by then, and how many exchanges had ended.
    progress: Progress,
    /// When something had come for the first time.
    first_byte: Option<Instant>,
    /// More is ahead by this factor, because that made the connection faster.
    raised: f64,
    raising: Raising,
    looked_at: Instant,
    waited_for_readers: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    at: Instant,
    bytes: u64,
    completed: u64,
}

/// Whether a connection without losses would be faster if more were ahead.
#[derive(Debug, Clone, Copy)]
enum Raising {
    Unknown,
    Tried { before: f64, since: Instant },
    Over,
}

struct Carrier {
    id: u64,
    carried: u64,
    meter: Meter,
}

impl Planner {
    pub(super) fn new(most: usize, now: Instant) -> Self {
        Planner {
            begun: now,
            judge: Judge::new(most, now),
            watch: Watch::default(),
            meter: Meter::default(),
            tried: Meter::default(),
            tried_since: None,
            carriers: Vec::new(),
            completed: None,
            progress: Progress {
                at: now,
                bytes: 0,
                completed: 0,
            },
            first_byte: None,
            raised: 1.0,
            raising: Raising::Unknown,
            looked_at: now,
            waited_for_readers: Duration::ZERO,
        }
    }

    /// Plans by what the connections have done, the oldest one first. There is at least one that takes requests.
    pub(super) fn plan(&mut self, readings: &[Reading], requests: Requests, now: Instant) -> Plan {
        self.count(readings, now);
        let completed = requests.completed - *self.completed.get_or_insert(requests.completed);
        let mean = (completed >= ENOUGH).then(|| self.meter.total() as f64 / completed as f64);
        let open = || readings.iter().filter(|reading| reading.takes_requests);
        let round = open().filter_map(|reading| reading.round_trip).min();
        let first = open().next();
        if let Some(round) = round {
            let tcp = first.and_then(|first| first.tcp);
            let is_relayed = match tcp {
                Some(tcp) => !tcp.spans(Some(round)),
                // The first flight of TCP is much smaller.
                None => self.has_begun() && self.first_byte.is_some_and(|at| now <= at + round),
            };
            let shortest = requests.shortest.unwrap_or_default();
            let is_slow = mean.is_some_and(|mean| mean < SMALL) && shortest > SLOW_SERVER * round;
            if round < LONG_PATH || is_relayed || is_slow {
                return Plan::Lift;
            }
        }
        let reader_is_slow = first.is_some_and(|first| self.reader_is_slow(first, now));
        if self.is_stalled(completed, requests.waiting, reader_is_slow, now) {
            return Plan::Lift;
        }
        let advice = match (round, mean) {
            (Some(round), Some(mean)) => {
                self.raise(round, now);
                let view = View {
                    connections: open().count() + requests.opening,
                    answered: requests.opening == 0 && open().all(|reading| reading.answered),
                    rest: (requests.waiting as f64 * mean) as u64,
                    round_trip: Some(round),
                    reader_is_slow,
                    facts: self.watch.facts(now),
                    is_shared: !matches!(self.raising, Raising::Over),
                };
                self.advise(view, requests, now)
            }
            _ => Advice::Stay,
        };
        let close = match advice {
            Advice::Close(connections) => self.slowest(open().map(|reading| reading.id), connections),
            _ => Vec::new(),
        };
        Plan::Keep {
            ahead: open()
                .map(|reading| (reading.id, self.ahead(reading.id, round, mean)))
                .collect(),
            further: Self::at_least(FURTHER_BYTES, mean, FURTHER_REQUESTS)
                .clamp(FURTHER_LEAST, FURTHER_REQUESTS),
            open: match advice {
                Advice::Open(connections) => connections,
                _ => 0,
            },
            close,
        }
    }

    /// Whether streams stay open that requests wait for.
    fn is_stalled(&mut self, completed: u64, waiting: u64, reader_is_slow: bool, now: Instant) -> bool {
        let bytes = self.meter.total();
        if completed != self.progress.completed || waiting == 0 {
            let at = now;
            self.progress = Progress { at, bytes, completed };
        }
        let gets_nothing = reader_is_slow || bytes - self.progress.bytes < STALLED_BYTES;
        gets_nothing && now >= self.progress.at + STALLED_AFTER
    }

    /// Whether enough has come to know the path.
    pub(super) fn has_begun(&self) -> bool {
        self.meter.total() > FIRST_BYTES as u64 / 4
    }

    fn count(&mut self, readings: &[Reading], now: Instant) {
        self.carriers
            .retain(|carrier| readings.iter().any(|reading| reading.id == carrier.id));
        for reading in readings {
            let known = self.carriers.iter().position(|carrier| carrier.id == reading.id);
            let index = known.unwrap_or_else(|| {
                // What one has carried before its first reading counts, unless it is older than all of this.
                let is_new = reading.begun >= self.begun;
                self.carriers.push(Carrier {
                    id: reading.id,
                    carried: if is_new { 0 } else { reading.carried },
                    meter: Meter::default(),
                });
                self.carriers.len() - 1
            });
            let carrier = &mut self.carriers[index];
            let bytes = reading.carried.saturating_sub(carrier.carried);
            carrier.carried = reading.carried.max(carrier.carried);
            carrier.meter.count(bytes);
            carrier.meter.read(now);
            self.meter.count(bytes);
            if self.tried_since.is_some_and(|since| reading.begun >= since) {
                self.tried.count(bytes);
            }
        }
        self.meter.read(now);
        self.tried.read(now);
        if self.meter.total() > FIRST_FRAMES {
            self.first_byte.get_or_insert(now);
        }
        if let Some(tcp) = readings.first().and_then(|first| first.tcp) {
            self.watch.look(&tcp, now);
        }
    }

    fn reader_is_slow(&mut self, first: &Reading, now: Instant) -> bool {
        let waited = first.waited_for_readers.saturating_sub(self.waited_for_readers);
        let elapsed = now - self.looked_at;
        self.waited_for_readers = first.waited_for_readers;
        self.looked_at = now;
        2 * waited > elapsed
    }

    /// Raises what is ahead, while that makes a connection faster that loses nothing: then the server takes its time.
    fn raise(&mut self, round: Duration, now: Instant) {
        if self.watch.has_lost() || self.judge.is_convinced() {
            self.raising = Raising::Over;
        }
        let span = (2 * round).max(SHORTEST);
        let is_early = now < self.begun + LONG * round;
        let Some((rate, _)) = Judge::settled_rate(&self.meter, span).filter(|_| !is_early) else {
            return;
        };
        let grew = match self.raising {
            Raising::Unknown => true,
            Raising::Tried { before, since } if now >= since + 2 * span + round => rate > GREW * before,
            Raising::Tried { .. } | Raising::Over => return,
        };
        self.raising = match grew {
            true => {
                self.raised *= 2.0;
                Raising::Tried {
                    before: rate,
                    since: now,
                }
            }
            false => Raising::Over,
        };
    }

    fn advise(&mut self, view: View, requests: Requests, now: Instant) -> Advice {
        if requests.refused {
            self.judge.refused();
        }
        let advice = self.judge.advise(&self.meter, &self.tried, view, now);
        #[cfg(feature = "tracing")]
        if advice != Advice::Stay {
            tracing::debug!(target: "fullbore::pool", "{advice}");
            tracing::trace!(target: "fullbore::pool", ?view, ?requests, judge = ?self.judge);
        }
        if let Advice::Open(_) = advice {
            (self.tried, self.tried_since) = (Meter::default(), Some(now));
        }
        advice
    }

    /// How many requests a connection may have at once.
    fn ahead(&self, id: u64, round: Option<Duration>, mean: Option<f64>) -> u32 {
        let least =
            match self.judge.is_convinced() || self.carriers.first().is_none_or(|first| first.id != id) {
                true => Self::at_least(FURTHER_BYTES, mean, FURTHER_REQUESTS)
                    .clamp(FURTHER_LEAST, FURTHER_REQUESTS),
                false => Self::at_least(FIRST_BYTES, mean, FIRST_REQUESTS).max(FIRST_REQUESTS),
            };
        let carrier = self.carriers.iter().find(|carrier| carrier.id == id);
        let (Some(carrier), Some(round), Some(mean)) = (carrier, round, mean) else {
            return least;
        };
        let spans = [round, 2 * round, LONG * round];
        let rates = spans
            .iter()
            .filter_map(|&span| carrier.meter.rate(span, Duration::ZERO));
        let rate = rates.fold(0.0, f64::max);
        let bytes = AHEAD * rate * round.as_secs_f64();
        let ahead = (bytes / mean.max(1.0)).max(f64::from(least)) * self.raised;
        ahead as u32
    }

    /// As many requests as bring so many bytes.
    fn at_least(bytes: f64, mean: Option<f64>, unknown: u32) -> u32 {
        mean.map_or(unknown, |mean| (bytes / mean.max(1.0)) as u32)
    }

    /// The slowest connections but for the oldest one.
    fn slowest(&self, open: impl Iterator<Item = u64>, connections: usize) -> Vec<u64> {
        let rate = |id: &u64| {
            let carrier = self.carriers.iter().find(|carrier| carrier.id == *id);
            let rate = carrier.and_then(|carrier| carrier.meter.rate(2 * SHORTEST, Duration::ZERO));
            rate.unwrap_or(0.0)
        };
        let mut further: Vec<u64> = open.skip(1).collect();
        further.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
        further.truncate(connections);
        further
    }
}

#[cfg(test)]
mod tests;
