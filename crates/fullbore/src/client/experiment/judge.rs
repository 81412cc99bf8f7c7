//! How many connections a download is worth: each further one is an experiment, which is kept if the whole got faster.
//!
//! The first experiment is one connection more. Where each connection is held by a limit of its own (a congestion window after
//! losses, TCP's buffers over a long round trip, a shaper's limit on each flow), two are twice as fast as one. Where they
//! share a bottleneck that is full, they are no faster; beside one flow of somebody else they get two thirds in place of a half.
//! So one more has to bring [`FAIR_FIRST`] of what the first one had. Then all that are allowed are tried, and as many are
//! kept as carry the rate that was reached.
//!
//! What TCP knows shortens this ([`Facts`]). While packets wait in a queue on the path, the link is full, and nothing is
//! tried. Where there is no queue, packets are lost, and the path has carried more before, the losses hold the connection
//! back, and all that are allowed are tried at once.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::meter::Meter;

/// What a second connection must add, as a share of what the first one had. A flow beside one of somebody else gains 0.33
/// by being two; a flow that has a limit of its own 1.
const FAIR_FIRST: f64 = 0.6;

/// What further ones must add all together to be kept without counting, as a share of what so many would add at most.
const FAIR: f64 = 0.5;

/// The rate has settled when it grew by less than this in as long again. Slow start doubles it in each round trip.
const SETTLED: f64 = 1.2;

/// What is looked at again: a rate that fell to less than this share. Cubic alone halves a flow's window for a moment.
const FELL: f64 = 0.6;

/// A rate that differs by less than this share is the same.
const NOISE: f64 = 0.15;

/// Two connections share a bottleneck if the second one has this share of what the first one had, and both together have
/// no more than that.
const SHARE: f64 = 0.25;

/// A rate that differs by less than this share from the one before is even, as without losses.
const EVEN: f64 = 0.05;

/// A connection adds to the whole if this share of what it has is new. Beside one flow of somebody else it is a half.
const ADDED: f64 = 0.8;

/// How long a connection may take to show what it brings, in times of two round trips: at least, and at most. Cubic may leave slow
/// start early, and grows slowly then; while it does, it costs nothing.
const LONG_TRIAL: u32 = 6;
const LONGEST_TRIAL: u32 = 20;

/// The round trip where none was measured.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The shortest time over which rates are compared: packets come in bursts.
const SHORTEST: Duration = Duration::from_millis(150);

/// The pause after an experiment that did not pay. Each further one is twice as long, up to the longest.
const PAUSE: Duration = Duration::from_secs(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What the rest must take at the present rate for an experiment to be worth its handshake and its slow start, beside
/// [`WORTH_ROUNDS`] round trips.
const WORTH: f64 = 0.7;
const WORTH_ROUNDS: f64 = 8.0;

/// The time in which a connection must have answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// What connections by which losses are held back must have of the highest rate at most, to be tried all at once.
const HELD_BACK: f64 = 0.7;

/// For so many round trips, and at least so long. BBR empties the queue that its start filled, for less, and beside a flow of
/// somebody else over a short path it gets its share later.
const HELD_BACK_ROUNDS: u32 = 5;
const HELD_BACK_LEAST: Duration = Duration::from_millis(300);

/// What connections that were tried all at once must bring to be kept without counting: so many times the rate. A flow that
/// comes late beside one of somebody else has a third of the link, and eight have eight ninths.
const FAIR_AT_ONCE: f64 = 2.7;

/// What TCP knows of the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Facts {
    /// Whether packets wait in a queue on the path: the round trip is longer than the least.
    pub(in crate::client) is_queueing: bool,
    /// Whether packets may wait there: the round trip is longer than the least, though a busy machine may be the reason.
    pub(in crate::client) may_queue: bool,
    /// Whether packets were lost lately, as those say that came out of order.
    pub(in crate::client) loses: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Advice {
    Stay,
    /// So many more connections.
    Open(usize),
    /// So many fewer.
    Close(usize),
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Advice::Stay => f.write_str("the number of connections stays"),
            Advice::Open(more) => write!(
                f,
                "opens {more} more connections, to find out whether they carry more"
            ),
            Advice::Close(fewer) => write!(f, "closes {fewer} connections, which carry no more"),
        }
    }
}

/// What is known of the transfer.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct View {
    pub(in crate::client) connections: usize,
    /// Whether all of them have answered.
    pub(in crate::client) answered: bool,
    /// The bytes that have not come.
    pub(in crate::client) rest: u64,
    pub(in crate::client) round_trip: Option<Duration>,
    /// Whether this side has lately been slower than the network.
    pub(in crate::client) reader_is_slow: bool,
    pub(in crate::client) facts: Option<Facts>,
    /// Whether other requests share the connections: what this one gained would be their loss.
    pub(in crate::client) is_shared: bool,
}

/// What further connections have brought, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::client) struct Gain {
    /// The rate of one before the first experiment that paid.
    pub(in crate::client) alone: f64,
    /// The rate of all after the last one that did, and how many these were.
    pub(in crate::client) together: f64,
    pub(in crate::client) connections: usize,
}

/// The state of the experiments.
#[derive(Debug)]
pub(in crate::client) struct Judge {
    most: usize,
    begun: Instant,
    state: State,
    pause: Duration,
    /// Whether two connections have paid.
    convinced: bool,
    /// Whether the rate before the experiment was even.
    was_even: bool,
    /// The highest rate of all, and when that was.
    peak: f64,
    peak_at: Instant,
    /// The rates before the first experiment that paid, and after it.
    gain: Option<Gain>,
    /// Since when the connections of an experiment seem to share a bottleneck.
    shares_since: Option<Instant>,
    /// Since when losses hold the connections back.
    held_since: Option<Instant>,
    /// How often all were tried at once.
    times_at_once: u32,
    /// Whether packets may have waited in a queue during the experiment, and whether some were lost.
    saw_queue: bool,
    saw_loss: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Until the rate has settled.
    Rising,
    Trial {
        before: usize,
        /// Whether all were tried because losses hold connections back.
        at_once: bool,
        /// The rate before.
        base: f64,
        since: Instant,
        /// Since when all connections have answered.
        answered: Option<Instant>,
    },
    /// Until the rate falls.
    Settled { rate: f64, until: Instant },
    /// There are no more experiments.
    Over,
}

impl Judge {
    pub(in crate::client) fn new(most: usize, now: Instant) -> Self {
        Judge {
            most,
            begun: now,
            state: match most {
                0 | 1 => State::Over,
                _ => State::Rising,
            },
            pause: PAUSE,
            convinced: false,
            was_even: false,
            peak: 0.0,
            peak_at: now,
            gain: None,
            shares_since: None,
            held_since: None,
            times_at_once: 0,
            saw_queue: false,
            saw_loss: false,
        }
    }

    /// A connection could not be had, or did not give what it was asked for: there are no more than these, and no further
    /// one is tried.
    pub(in crate::client) fn refused(&mut self) {
        self.state = State::Over;
    }

    /// What further connections have brought.
    pub(in crate::client) fn gain(&self) -> Option<Gain> {
        self.gain
    }

    /// Whether there are experiments, now or later.
    pub(in crate::client) fn is_looking(&self) -> bool {
        !matches!(self.state, State::Over)
    }

    /// `meter` has counted all bytes, and `tried` those over the connections of the experiment.
    pub(in crate::client) fn advise(
        &mut self,
        meter: &Meter,
        tried: &Meter,
        view: View,
        now: Instant,
    ) -> Advice {
        let round = view.round_trip.unwrap_or(USUAL_ROUND_TRIP);
        let span = (2 * round).max(SHORTEST);
        let rates = [span, 2 * span].map(|span| meter.rate(span, Duration::ZERO));
        // Of a longer time: what waited behind a lost packet comes at once when that has come again.
        if let [_, Some(longer)] = rates {
            if longer > self.peak {
                (self.peak, self.peak_at) = (longer, now);
            }
        }
        let held_back = match rates {
            [Some(lately), Some(longer)] => Some(lately.max(longer)),
            _ => None,
        };
        let held_back = held_back.filter(|&rate| self.is_held_back(view, rate));
        self.held_since = held_back.and(self.held_since.or(Some(now)));
        let is_long =
            |since| now.saturating_duration_since(since) >= (HELD_BACK_ROUNDS * round).max(HELD_BACK_LEAST);
        if let Some(facts) = view.facts {
            self.saw_queue |= facts.may_queue;
            self.saw_loss |= facts.loses;
        }
        match self.state {
            State::Over => Advice::Stay,
            State::Rising => {
                let early = now < self.begun + (4 * round).max(2 * SHORTEST);
                let rates = match held_back {
                    // Losses end slow start: what the rate was before, it will not be again.
                    Some(rate) => is_long(self.peak_at).then_some((rate, self.peak)),
                    // A queue that is about to fill shows by then.
                    _ if now < self.begun + 8 * round => None,
                    // Where packets are lost, a rate that has just fallen is none to compare others with.
                    _ => Self::settled_rate(meter, span).filter(|(rate, earlier)| {
                        !view.facts.is_some_and(|facts| facts.loses) || SETTLED * rate >= *earlier
                    }),
                };
                match rates {
                    Some(rates) if !early && self.is_worth(view, rates.0, round) => {
                        self.open(view, rates, now)
                    }
                    _ => Advice::Stay,
                }
            }
            State::Settled { rate, until } => {
                let longer = meter.rate((10 * round).max(10 * SHORTEST), Duration::ZERO);
                let Some(longer) = longer.filter(|&longer| self.is_worth(view, longer, round)) else {
                    return Advice::Stay;
                };
                // Losses may have brought a connection down that had not met them before.
                let has_fallen = longer < FELL * rate && (now >= until || self.is_held_back(view, longer));
                match has_fallen {
                    true => self.open(view, (longer, rate), now),
                    false => Advice::Stay,
                }
            }
            State::Trial {
                before,
                at_once,
                base,
                since,
                answered,
            } => {
                let Some(at) = answered.or(view.answered.then_some(now)) else {
                    if now < since + PATIENCE {
                        return Advice::Stay;
                    }
                    self.state = State::Over;
                    return Advice::Close(view.connections.saturating_sub(before));
                };
                // Losses have come since: the rate before says nothing of what one connection carries now.
                let held_back = held_back.filter(|_| !at_once && self.held_since.is_some_and(is_long));
                if let Some(rate) = held_back.filter(|&rate| self.is_worth(view, rate, round)) {
                    return self.open(view, (rate, self.peak), now);
                }
                self.state = State::Trial {
                    before,
                    at_once,
                    base,
                    since,
                    answered: Some(at),
                };
                self.judge(
                    (before, at_once, base, at),
                    (meter, tried),
                    view,
                    (span, round),
                    now,
                )
            }
        }
    }

    /// The rate and the one before, once it grows no more.
    pub(in crate::client) fn settled_rate(meter: &Meter, span: Duration) -> Option<(f64, f64)> {
        let rate = meter.rate(span, Duration::ZERO)?;
        let earlier = meter.rate(span, span)?;
        (rate > 0.0 && rate <= SETTLED * earlier).then_some((rate, earlier))
    }

    fn is_worth(&self, view: View, rate: f64, round: Duration) -> bool {
        let seconds = view.rest as f64 / rate.max(1.0);
        !view.reader_is_slow
            && !view.is_shared
            && !view.facts.is_some_and(|facts| facts.is_queueing)
            && view.connections < self.most
            && seconds > WORTH + WORTH_ROUNDS * round.as_secs_f64()
    }

    /// Whether losses hold connections back that do not fill the link.
    fn is_held_back(&self, view: View, rate: f64) -> bool {
        let loses = view.facts.is_some_and(|facts| facts.loses && !facts.is_queueing);
        loses && rate < HELD_BACK * self.peak
    }

    /// Whether further connections have paid.
    pub(in crate::client) fn is_convinced(&self) -> bool {
        self.convinced
    }

    fn open(&mut self, view: View, (rate, earlier): (f64, f64), now: Instant) -> Advice {
        self.was_even = (rate - earlier).abs() < EVEN * earlier;
        let at_once = self.is_held_back(view, rate);
        self.convinced |= at_once;
        self.times_at_once += u32::from(at_once);
        (self.saw_queue, self.saw_loss) = (false, false);
        self.state = State::Trial {
            before: view.connections,
            at_once,
            base: rate,
            since: now,
            answered: None,
        };
        let room = self.most - view.connections;
        Advice::Open(match self.convinced {
            true => room,
            false => 1,
        })
    }

    /// Decides on connections that have all answered.
    fn judge(
        &mut self,
        (before, at_once, base, at): (usize, bool, f64, Instant),
        (meter, tried): (&Meter, &Meter),
        view: View,
        (span, round): (Duration, Duration),
        now: Instant,
    ) -> Advice {
        let connections = view.connections;
        if connections <= before {
            self.settle(base, now);
            return Advice::Stay;
        }
        if now < at + span {
            return Advice::Stay;
        }
        let (Some(lately), Some(longer)) = (
            meter.rate(span, Duration::ZERO),
            meter.rate(2 * span, Duration::ZERO),
        ) else {
            return Advice::Stay;
        };
        let rate = lately.min(longer * (1.0 + NOISE));
        let more = (connections - before) as f64 / before as f64;
        let enough = match (at_once, before) {
            (true, _) => FAIR_AT_ONCE,
            (false, 1) => 1.0 + FAIR_FIRST * more,
            (false, _) => 1.0 + FAIR * more,
        };
        let by_tried = tried.rate(span, Duration::ZERO).unwrap_or(0.0);
        // The second one grows slowly, but nothing of what it has is the first one's loss.
        let adds = before == 1 && self.was_even && by_tried > SHARE * base && rate - base > ADDED * by_tried;
        if rate >= base * enough || adds {
            self.convinced = true;
            self.pause = PAUSE;
            let alone = self.gain.map_or(base / before as f64, |gain| gain.alone);
            self.gain = Some(Gain {
                alone,
                together: rate,
                connections,
            });
            if connections < self.most && self.is_worth(view, rate, round) {
                return self.open(view, (rate, base), now);
            }
            self.settle(rate, now);
            return Advice::Stay;
        }
        // What the second one gained the first one lost: they share a bottleneck.
        let same = (base * (1.0 - NOISE)..base * (1.0 + NOISE)).contains(&rate);
        let seems = before == 1 && self.was_even && same && by_tried > SHARE * base;
        self.shares_since = seems.then(|| self.shares_since.unwrap_or(now));
        let shares = self.shares_since.is_some_and(|since| now >= since + span);
        let settled = shares || (Self::settled_rate(tried, span).is_some() && now >= at + LONG_TRIAL * span);
        if !settled && now < at + LONGEST_TRIAL * span {
            return Advice::Stay;
        }
        self.settle(rate, now);
        let is_random = self.saw_loss && !self.saw_queue;
        let needed = match (at_once, before) {
            // The link did not become full. Losses make rates vary, so twice as many are kept as the rate took.
            (true, _) if is_random => Self::needed(before, base, 2.0 * rate, connections),
            (true, _) if self.times_at_once > 1 => Self::needed(before, base, rate, connections),
            // As many as the rate is a multiple of that of one, which may be its share of a full link.
            (true, _) => ((before as f64 * rate / base) as usize).clamp(before, connections),
            (false, 1) => 1,
            (false, _) => Self::needed(before, base, rate, connections),
        };
        Advice::Close(connections - needed)
    }

    /// How many connections carry a rate, of which `before` carried `base`.
    fn needed(before: usize, base: f64, rate: f64, connections: usize) -> usize {
        let each = base / before as f64;
        // A rest of less than a quarter of one is noise.
        let needed = (rate / each - 0.25).ceil();
        (before..=connections)
            .find(|&count| count as f64 >= needed)
            .unwrap_or(connections)
    }

    fn settle(&mut self, rate: f64, now: Instant) {
        self.state = State::Settled {
            rate,
            until: now + self.pause,
        };
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests;
