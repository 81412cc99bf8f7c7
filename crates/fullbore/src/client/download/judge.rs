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

/// The round trip where none was measured.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// The shortest time over which rates are compared: packets come in bursts.
const SHORTEST: Duration = Duration::from_millis(150);

/// The pause after an experiment that did not pay. Each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(4);

/// What the rest must take at the present rate for an experiment to be worth its handshake and its slow start, beside
/// [`WORTH_ROUNDS`] round trips.
const WORTH: f64 = 0.7;
const WORTH_ROUNDS: f64 = 8.0;

/// The time in which a connection must have answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// What connections by which losses are held back must have of the highest rate at most, to be tried all at once.
const HELD_BACK: f64 = 0.7;

/// What connections that were tried all at once must bring: so many times the rate.
const FAIR_AT_ONCE: f64 = 1.5;

/// What TCP knows of the first connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether packets wait in a queue on the path: the round trip is longer than the least.
    pub(super) is_queueing: bool,
    /// Whether packets were lost lately, as those say that came out of order.
    pub(super) loses: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    Stay,
    /// So many more connections.
    Open(usize),
    /// So many fewer.
    Close(usize),
}

/// What is known of the transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) connections: usize,
    /// Whether all of them have answered.
    pub(super) answered: bool,
    /// The bytes that have not come.
    pub(super) rest: u64,
    pub(super) round_trip: Option<Duration>,
    /// Whether this side has lately been slower than the network.
    pub(super) reader_is_slow: bool,
    pub(super) facts: Option<Facts>,
    /// Whether other requests share the connections: what this one gained would be their loss.
    pub(super) is_shared: bool,
}

/// The state of the experiments.
#[derive(Debug)]
pub(super) struct Judge {
    most: usize,
    begun: Instant,
    state: State,
    pause: Duration,
    /// Whether two connections have paid.
    convinced: bool,
    /// Whether the rate before the experiment was even.
    was_flat: bool,
    /// The highest rate of all.
    peak: f64,
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
    pub(super) fn new(most: usize, now: Instant) -> Self {
        Judge {
            most,
            begun: now,
            state: match most {
                0 | 1 => State::Over,
                _ => State::Rising,
            },
            pause: PAUSE,
            convinced: false,
            was_flat: false,
            peak: 0.0,
        }
    }

    /// A connection could not be had, or did not give what it was asked for: there are no more than these, and no further
    /// one is tried.
    pub(super) fn refused(&mut self) {
        self.state = State::Over;
    }

    /// Whether an experiment may begin.
    pub(super) fn is_looking(&self) -> bool {
        matches!(self.state, State::Rising | State::Settled { .. })
    }

    /// `meter` has counted all bytes, and `tried` those over the connections of the experiment.
    pub(super) fn advise(&mut self, meter: &Meter, tried: &Meter, view: View, now: Instant) -> Advice {
        let round = view.round_trip.unwrap_or(USUAL_ROUND_TRIP);
        let span = (2 * round).max(SHORTEST);
        let lately = meter.rate((2 * round).max(SHORTEST), Duration::ZERO);
        self.peak = self.peak.max(lately.unwrap_or(0.0));
        match self.state {
            State::Over => Advice::Stay,
            State::Rising => {
                let early = now < self.begun + (4 * round).max(2 * SHORTEST);
                // Losses end slow start: what the rate was before, it will not be again.
                let rates = match meter.rate(2 * span, Duration::ZERO) {
                    Some(rate) if self.is_held_back(view, rate) => Some((rate, self.peak)),
                    _ => Self::settled_rate(meter, span),
                };
                match rates {
                    Some(rates) if !early && self.is_worth(view, rates.0, round) => {
                        self.open(view, rates, now)
                    }
                    _ => Advice::Stay,
                }
            }
            State::Settled { rate, until } => {
                let lately = meter.rate((10 * round).max(10 * SHORTEST), Duration::ZERO);
                match lately {
                    Some(now_rate)
                        if now >= until && now_rate < FELL * rate && self.is_worth(view, now_rate, round) =>
                    {
                        self.open(view, (now_rate, rate), now)
                    }
                    _ => Advice::Stay,
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
    fn settled_rate(meter: &Meter, span: Duration) -> Option<(f64, f64)> {
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
    pub(super) fn is_convinced(&self) -> bool {
        self.convinced
    }

    fn open(&mut self, view: View, (rate, earlier): (f64, f64), now: Instant) -> Advice {
        self.was_flat = (rate - earlier).abs() < NOISE * earlier;
        let is_held_back = self.is_held_back(view, rate);
        let at_once = is_held_back && !self.convinced;
        self.convinced |= is_held_back;
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
        let Some(rate) = meter.rate(span, Duration::ZERO) else {
            return Advice::Stay;
        };
        let more = (connections - before) as f64 / before as f64;
        let enough = match (at_once, before) {
            (true, _) => FAIR_AT_ONCE,
            (false, 1) => 1.0 + FAIR_FIRST * more,
            (false, _) => 1.0 + FAIR * more,
        };
        if rate >= base * enough {
            self.convinced = true;
            self.pause = PAUSE;
            if connections < self.most && self.is_worth(view, rate, round) {
                return self.open(view, (rate, base), now);
            }
            self.settle(rate, now);
            return Advice::Stay;
        }
        // What the second one gained the first one lost: they share a bottleneck.
        let same = (base * (1.0 - NOISE)..base * (1.0 + NOISE)).contains(&rate);
        let by_tried = tried.rate(span, Duration::ZERO).unwrap_or(0.0);
        let shares = before == 1 && self.was_flat && same && by_tried > SHARE * base;
        let settled = shares || (Self::settled_rate(tried, span).is_some() && now >= at + 3 * span);
        if !settled && now < at + 10 * span {
            return Advice::Stay;
        }
        self.settle(rate, now);
        let needed = match before {
            1 => 1,
            _ => Self::needed(before, base, rate, connections),
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
        self.pause *= 2;
    }
}
