//! Whether the reader of a window keeps up. Windows of streams that begin smaller than that of the connection allows open wide
//! for such readers: what they open by is memory if the reader stops.

use core::time::Duration;

use super::size::WindowSize;
use crate::time::Time;

/// Bytes that a reader takes within this time count as taken at once: on a busy machine its task waits for its turn.
const AT_ONCE: Duration = Duration::from_millis(4);

/// The fewest bytes that prove anything. A client sends 65,535 before it knows our SETTINGS.
const LEAST_TAKEN: u64 = 32 << 10;

/// A reader may pass the bytes on and be held up later, as a proxy is whose origin of HTTP/1.1 reads nothing. It takes about
/// 0.7 MB first, which the buffers behind it hold.
const LEAST_QUARTER: u64 = 1 << 20;

/// The round trip that a path is presumed to have before it is measured.
pub(crate) const PRESUMED_TRIP: Duration = Duration::from_millis(100);

/// What proves that a reader keeps up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proves {
    /// Nothing: the window opens otherwise.
    Nothing,
    /// A thirty-second of the window, for windows that begin as they are set ([`crate::Config::first_windows`]). They are small,
    /// and the first bytes of a client are then enough.
    First,
    /// A quarter of the window, and at least [`LEAST_QUARTER`].
    Quarter,
}

impl Proves {
    /// The fewest bytes that prove something for a window of `size`.
    fn least(self, size: u32) -> u64 {
        let size = u64::from(size);
        match self {
            Proves::Nothing => u64::MAX,
            Proves::First => LEAST_TAKEN.min(size / 2).max(size / 32),
            Proves::Quarter => LEAST_QUARTER.max(size / 4),
        }
    }
}

/// How fast a reader takes what arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proof {
    /// When the measurement began: bytes arrived, and the reader had taken all that came before.
    since: Time,
    /// The offset of consumed bytes at that time.
    from: u64,
    /// When bytes arrived last.
    last: Time,
}

impl Proof {
    pub(super) const BEGIN: Proof = Proof {
        since: Time::ZERO,
        from: 0,
        last: Time::ZERO,
    };

    /// Bytes arrive behind `received` others, of which `consumed` were taken. Arrivals in quick succession are measured
    /// together: the reader is not charged for a pause of the peer.
    pub(super) fn note_arrival(&mut self, now: Time, received: u64, consumed: u64) {
        if received == consumed && now.since(self.last) > AT_ONCE {
            self.since = now;
            self.from = received;
        }
        self.last = now;
    }

    /// Whether the reader has taken enough to judge it.
    pub(super) fn is_due(&self, by: Proves, consumed: u64, size: u32) -> bool {
        by != Proves::Nothing && consumed - self.from >= by.least(size)
    }

    /// The largest window that the reader can use, in bytes: twice what it takes in a round trip. The next measurement
    /// begins.
    pub(super) fn judge(&mut self, now: Time, consumed: u64, round_trip: Option<Duration>) -> u64 {
        let took = now.since(self.since).saturating_sub(AT_ONCE).as_nanos();
        let trip = round_trip.unwrap_or(PRESUMED_TRIP).as_nanos();
        let taken = u128::from(consumed - self.from);
        self.since = now;
        self.from = consumed;
        let window = (2 * taken * trip).checked_div(took);
        let window = window.and_then(|bytes| u64::try_from(bytes).ok());
        window.unwrap_or(u64::from(WindowSize::MAX.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_is_taken_within_four_milliseconds_proves_any_window() {
        let trip = Some(Duration::from_millis(100));
        for (millis, window) in [(104, (1 << 31) - 1), (105, 200 << 16), (204, 2 << 16)] {
            let mut proof = Proof::BEGIN;
            proof.note_arrival(at(100), 0, 0);
            assert_eq!(proof.judge(at(millis), 1 << 16, trip), window, "{millis}");
        }
    }

    #[test]
    fn arrivals_within_four_milliseconds_are_measured_together_and_later_ones_alone() {
        let trip = Some(Duration::from_millis(100));
        for (second, taken) in [(104, 3_000), (105, 2_000)] {
            let mut proof = Proof::BEGIN;
            proof.note_arrival(at(100), 0, 0);
            proof.note_arrival(at(second), 1_000, 1_000);
            let since = if taken == 3_000 { 100 } else { second };
            let window = proof.judge(at(since + 4 + 200), 3_000, trip);
            assert_eq!(window, taken, "twice the rate in half the time");
        }
    }

    #[test]
    fn a_flow_without_a_pause_is_measured_as_long_as_it_lasts() {
        let trip = Some(Duration::from_millis(100));
        let mut proof = Proof::BEGIN;
        for arrival in 0..=52 {
            proof.note_arrival(at(100 + 2 * arrival), 1_000 * arrival, 1_000 * arrival);
        }
        assert_eq!(proof.judge(at(204), 52_000, trip), 104_000);
    }

    #[test]
    fn half_of_a_small_window_or_a_part_of_a_large_one_is_enough() {
        for (by, size, least) in [
            (Proves::First, 1_000, 500),
            (Proves::First, 65_535, 32_767),
            (Proves::First, 1 << 20, 32 << 10),
            (Proves::First, 16 << 20, 512 << 10),
            (Proves::Quarter, 65_535, 1 << 20),
            (Proves::Quarter, 16 << 20, 4 << 20),
            (Proves::Quarter, 4 << 20, 1 << 20),
        ] {
            let proof = Proof::BEGIN;
            assert!(
                proof.is_due(by, least, size) && !proof.is_due(by, least - 1, size),
                "{size}"
            );
        }
    }

    #[test]
    fn before_the_path_is_measured_it_counts_as_one_of_100_ms() {
        let mut proof = Proof::BEGIN;
        assert_eq!(proof.judge(at(1_004), 5_000, None), 1_000);
        // The next measurement begins where this one ended.
        assert_eq!(proof.judge(at(1_108), 6_000, None), 2_000);
    }
}
