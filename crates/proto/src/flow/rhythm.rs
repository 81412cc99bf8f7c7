//! The rhythm in which data arrives: it tells a window at the sender from a sender that has nothing to send.
//!
//! A sender whose window allows W bytes sends them, and waits for a round trip until they are acknowledged, whichever window
//! it is: the congestion window of TCP, its send buffer, or one of its own. Its data comes in bursts that begin a round trip
//! apart. An application that is slow knows nothing of the round trip.

use core::time::Duration;

use crate::time::Time;

/// Data that arrives within this time of other data counts as one flow. Links below 3 Mbit/s have longer gaps between
/// segments.
pub(crate) const FLOWING: Duration = Duration::from_millis(4);

/// A shorter pause than this fraction of the round trip does not end a burst: packets that were lost leave holes in it.
const PAUSE_DIVISOR: u32 = 4;

/// TCP repairs the loss of the last packet that was sent within the retransmission timeout: 200 ms at least, and the variation
/// of the round trip.
const REPAIR: Duration = Duration::from_millis(300);

/// What a path whose round trip is unknown is presumed to have at most.
const LONGEST_TRIP: Duration = Duration::from_secs(1);

/// How data arrived while no window of this endpoint held it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrivals {
    /// For how long data came in bursts that began a round trip apart.
    pub bursts: Duration,
    /// How many of them there were.
    pub burst_count: u32,
    /// The bytes of DATA that they brought.
    pub burst_bytes: u64,
    /// For how long responses took that a round trip explains.
    pub answers: Duration,
    /// For how long the peer was silent when the path does not explain it: longer than a round trip after a request, or longer
    /// than TCP takes to send the last packet again.
    pub silence: Duration,
    /// For how long the peer was silent within bodies in pauses that no window at the sender explains: longer than a round trip.
    /// Loss may.
    pub lulls: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rhythm {
    arrivals: Arrivals,
    /// When the latest bursts began, newest first, and how many bytes had arrived by then. Some windows come in several
    /// parts, each of which repeats.
    begun: [(Time, u64); PARTS],
}

/// The most parts of a window that are recognised.
const PARTS: usize = 4;

/// What somebody waited for until data arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Responses, of which none had begun.
    Answer,
    /// More of a body.
    Data,
    /// A window or a reader of this endpoint.
    Window,
}

impl Rhythm {
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Nothing arrived from `from` until `now`, behind `received` bytes of DATA.
    pub(crate) fn pause(
        &mut self,
        (from, now): (Time, Time),
        received: u64,
        awaited: Awaited,
        round_trip: Option<Duration>,
    ) {
        let pause = now.since(from);
        let trip = round_trip.unwrap_or(LONGEST_TRIP);
        if pause < FLOWING.max(trip.min(LONGEST_TRIP) / PAUSE_DIVISOR) {
            return;
        }
        let arrivals = &mut self.arrivals;
        match awaited {
            Awaited::Answer => {
                let explained = pause.min(trip + trip / 4);
                arrivals.answers += explained;
                arrivals.silence += pause - explained;
            }
            Awaited::Data => {
                arrivals.silence += pause.saturating_sub(trip * 2 + REPAIR);
                if pause > trip + trip / 4 {
                    arrivals.lulls += pause;
                }
            }
            Awaited::Window => {}
        }
        let is_round_trip = |&&(since, _): &&(Time, u64)| {
            (trip * 9 / 10..trip * 23 / 20).contains(&now.since(since)) && since > Time::ZERO
        };
        let before = self
            .begun
            .iter()
            .find(is_round_trip)
            .filter(|_| round_trip.is_some());
        if let Some(&(_, bytes)) = before.filter(|_| awaited == Awaited::Data) {
            // The part since the pause before: the others are counted with theirs.
            self.arrivals.bursts += now.since(self.begun[0].0);
            self.arrivals.burst_count += 1;
            self.arrivals.burst_bytes += received - bytes;
        }
        self.begun.rotate_right(1);
        self.begun[0] = (now, received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    const TRIP: Option<Duration> = Some(Duration::from_millis(100));

    /// Bursts of so many milliseconds, each of which begins so long after the one before.
    fn arrivals(length: u64, period: u64, awaited: Awaited) -> Arrivals {
        let mut rhythm = Rhythm::default();
        for burst in 1..=11 {
            let begins = burst * period;
            let pause = (at(begins - period + length), at(begins));
            rhythm.pause(pause, burst * 1_000, awaited, TRIP);
        }
        rhythm.arrivals()
    }

    #[test]
    fn a_window_that_comes_in_two_parts_is_counted_whole() {
        let mut rhythm = Rhythm::default();
        for round in 1..=10 {
            for (part, begins) in [(0, 0), (1, 40)] {
                let now = round * 103 + begins;
                rhythm.pause(
                    (at(now - 30), at(now)),
                    round * 1_000 + part * 300,
                    Awaited::Data,
                    TRIP,
                );
            }
        }
        let arrivals = rhythm.arrivals();
        assert_eq!(arrivals.burst_bytes / u64::from(arrivals.burst_count), 1_000);
        assert!(arrivals.bursts >= Duration::from_millis(9 * 103), "{arrivals:?}");
    }

    #[test]
    fn bursts_a_round_trip_apart_are_counted() {
        let regular = arrivals(30, 101, Awaited::Data);
        assert_eq!((regular.burst_count, regular.burst_bytes), (10, 10_000));
        assert_eq!(regular.bursts, Duration::from_millis(1_010));
        assert_eq!(regular.silence, Duration::ZERO);
        // Pauses of less than a quarter of it do not end a burst.
        assert_eq!(arrivals(77, 101, Awaited::Data), Arrivals::default());
        let spread = arrivals(2, 300, Awaited::Data);
        assert_eq!(spread.lulls, Duration::from_millis(11 * 298));
    }

    #[test]
    fn other_rhythms_are_not() {
        // At 30 and 45 ms three and two of them take a round trip, too.
        for period in [60, 79, 150, 300] {
            let other = arrivals(2, period, Awaited::Data);
            assert_eq!(
                (other.burst_count, other.silence),
                (0, Duration::ZERO),
                "{period}"
            );
        }
        for awaited in [Awaited::Window, Awaited::Answer] {
            assert_eq!(arrivals(30, 101, awaited).burst_count, 0);
        }
    }

    #[test]
    fn a_peer_is_silent_after_a_round_trip_or_after_the_repair_of_a_loss() {
        let after = |awaited, millis: u64| {
            let mut rhythm = Rhythm::default();
            rhythm.pause((at(1_000), at(1_000 + millis)), 0, awaited, TRIP);
            rhythm.arrivals().silence.as_millis()
        };
        assert_eq!(
            (after(Awaited::Answer, 125), after(Awaited::Answer, 425)),
            (0, 300)
        );
        assert_eq!((after(Awaited::Data, 500), after(Awaited::Data, 800)), (0, 300));
        assert_eq!(after(Awaited::Window, 5_000), 0);
        // Nothing is presumed to take more than a second.
        let mut unknown = Rhythm::default();
        unknown.pause((at(0), at(5_000)), 0, Awaited::Answer, None);
        assert_eq!(unknown.arrivals().silence.as_millis(), 3_750);
    }
}
