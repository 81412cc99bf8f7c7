//! The receive window of a stream or of the connection, and when it is refilled (laws 1 to 3).

use core::time::Duration;

use super::budget::Promise;
use super::proof::{Proof, Proves};
use super::recent::{Recent, Round};
use super::size::WindowSize;
use crate::time::Time;

/// The smallest WINDOW_UPDATE, unless a quarter of the window is smaller (law 2).
const SMALLEST_UPDATE: u64 = 16_384;

/// A fixed window that limits the path is refilled at this fraction instead of a quarter. Its rate is W / (RTT + q /
/// link rate): with q = W/4, a window of one bandwidth-delay product reaches 80 % of the link (law 1).
const LIMITING_DIVISOR: u64 = 32;

/// The smallest WINDOW_UPDATE of a window that limits the path. At 1 Gbit/s, 16,384 bytes take 0.13 ms, an eighth of
/// a path of 1 ms; an eighth of that costs 2 % there.
const SMALLEST_LIMITING_UPDATE: u64 = 2_048;

/// Fixed windows of at least this size start as if they limited the path: that costs few frames, and a gap is
/// expensive.
const LARGE_WINDOW: u32 = 2 << 20;

/// Offsets that small windows advertise are multiples of this. Otherwise a sender with a buffer of 65,536 bytes and a
/// window of 65,535 bytes sends a frame of one byte from each buffer (nghttp2 issue 1722). It costs at most 255
/// bytes, 0.4 % of that window.
const ALIGNMENT: u64 = 256;

/// The smallest WINDOW_UPDATE of a fixed window whose credit the peer has used up.
const SMALLEST_REST: u64 = 1_024;

/// The window sizes that are aligned. Larger windows gain nothing from it.
const ALIGNED_SIZES: core::ops::Range<u64> = 16_384..1 << 20;

/// When a receive window is refilled.
///
/// A sender never pauses if, and only if, what is left of the window when the refill leaves covers bandwidth times
/// round trip. The less is consumed before a refill the smaller a window will do, at the price of more frames.
///
/// ```
/// use fullbore_proto::Refill;
///
/// assert_eq!(Refill::default(), Refill::Fraction { divisor: 4 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refill {
    /// Once `1/divisor` of the window has been consumed, or half of that if a write is leaving anyway. The default of
    /// a quarter becomes a thirty-second while a fixed window limits the path.
    Fraction {
        /// 1 refills an empty window, 4 (the default) one that is three quarters full.
        divisor: u32,
    },
    /// Once the peer has no more than this many bytes of credit.
    Remaining(u32),
    /// Once the credit to return is at least half of what the peer still has. A window that is read at once is refilled
    /// at a third.
    HalfRest,
}

impl Default for Refill {
    fn default() -> Self {
        Refill::Fraction { divisor: 4 }
    }
}

/// A receive window, as offsets: bytes received, consumed by the application, and advertised to the peer.
///
/// The peer's credit is `advertised - received`. It can make this endpoint hold `advertised - consumed`.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveWindow {
    received: u64,
    consumed: u64,
    advertised: u64,
    size: u32,
    /// The most that `advertised - consumed` may be: `size`, unless more memory is leased for slow readers, so that
    /// other streams keep their credit.
    limit: u64,
    refill: Refill,
    /// Whether the size of the window is fixed.
    fixed: bool,
    /// Whether a fixed window limits the path.
    limiting: bool,
    /// Whether the peer had used up the credit that it knew of when the window was refilled last.
    used_up: bool,
    round: Round,
    /// What proves that the reader keeps up, if the window is to open wide then.
    proves: Proves,
    proof: Proof,
    /// None before the first refill. Most streams are too short for one.
    recent: Option<Box<Recent>>,
}

/// The peer sent more than it was allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl ReceiveWindow {
    /// A window of `size`, of which the peer knows `advertised` bytes.
    pub(crate) fn new(advertised: u32, size: WindowSize, refill: Refill) -> Self {
        ReceiveWindow {
            received: 0,
            consumed: 0,
            advertised: u64::from(advertised),
            size: size.bytes(),
            limit: u64::from(size.bytes()),
            refill,
            fixed: false,
            limiting: false,
            used_up: false,
            round: Round {
                since: Time::ZERO,
                until: u64::MAX,
            },
            proves: Proves::Nothing,
            proof: Proof::BEGIN,
            recent: None,
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(crate) fn size(&self) -> WindowSize {
        match self.size {
            0 => WindowSize::CLOSED,
            size => WindowSize::new(size).unwrap_or(WindowSize::MAX),
        }
    }

    /// The peer's credit, in bytes.
    pub(crate) fn remaining(&self) -> u64 {
        self.advertised.saturating_sub(self.received)
    }

    /// The memory that the window may cost (law 5).
    pub(crate) fn promise(&self) -> Promise {
        Promise {
            outstanding: self.remaining(),
            buffered: self.unconsumed(),
        }
    }

    pub(crate) fn unconsumed(&self) -> u64 {
        self.received - self.consumed
    }

    /// Counts `bytes` that arrived, padding included. `grace` is what an older, larger window still allows until the
    /// peer has acknowledged the newer one (RFC 9113 section 6.9.3).
    pub(crate) fn receive(&mut self, bytes: u32, grace: u64) -> Result<(), Overrun> {
        let received = self.received + u64::from(bytes);
        if received > self.advertised + grace {
            return Err(Overrun);
        }
        self.received = received;
        Ok(())
    }

    /// Lets the window open wide if its reader keeps up.
    pub(crate) fn ask_for_proof(&mut self, by: Proves) {
        self.proves = by;
    }

    /// Bytes are about to arrive.
    #[inline]
    pub(crate) fn note_arrival(&mut self, now: Time) {
        if self.proves != Proves::Nothing {
            self.proof.note_arrival(now, self.received, self.consumed);
        }
    }

    /// Whether the reader has left no more than `unread` bytes, and has taken enough to judge it.
    #[inline]
    pub(crate) fn proof_due(&self, unread: u64) -> bool {
        self.proof.is_due(self.proves, self.consumed, self.size) && self.unconsumed() <= unread
    }

    /// The largest window that the reader can use, after [`Self::proof_due`].
    pub(crate) fn judge_reader(&mut self, now: Time, round_trip: Option<Duration>) -> u64 {
        self.proof.judge(now, self.consumed, round_trip)
    }

    /// The application has read `bytes`, or they were discarded.
    pub(crate) fn consume(&mut self, bytes: u64) {
        self.consumed = (self.consumed + bytes).min(self.received);
    }

    /// Changes the size, and the limit with it. To shrink, credit is withheld until the window has the new size.
    pub(crate) fn resize(&mut self, size: WindowSize) {
        self.size = size.bytes();
        self.limit = u64::from(size.bytes());
    }

    /// Whether [`Self::shift`] by `delta` keeps the window within 2^31-1.
    pub(crate) fn can_shift(&self, delta: i64) -> bool {
        self.remaining().saturating_add_signed(delta) <= u64::from(WindowSize::MAX.bytes())
    }

    /// A change of our SETTINGS_INITIAL_WINDOW_SIZE by `delta` bytes: the peer moves its window by as many (RFC 9113
    /// section 6.9.2). The window may become negative.
    pub(crate) fn shift(&mut self, delta: i64) {
        let size = i64::from(self.size) + delta;
        let size = size.clamp(0, i64::from(WindowSize::MAX.bytes()));
        self.size = u32::try_from(size).unwrap_or(self.size);
        self.limit = u64::from(self.size);
        self.advertised = self.advertised.saturating_add_signed(delta);
        if self.round.until != u64::MAX {
            self.round.until = self.round.until.saturating_add_signed(delta);
        }
    }

    /// Sets the memory that the window may cost, at least its size.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes.max(u64::from(self.size));
    }

    /// Fixes the size. A large window counts as limiting the path until more is known: a gap in its first round trip
    /// costs a transfer of four such windows 5 %.
    pub(crate) fn fixed(mut self) -> Self {
        self.fixed = self.refill == Refill::default();
        self.set_limiting(self.size >= LARGE_WINDOW);
        self
    }

    /// Sets whether a fixed window limits the path.
    pub(crate) fn set_limiting(&mut self, limiting: bool) {
        self.limiting = limiting && self.fixed;
    }

    pub(crate) fn is_limiting(&self) -> bool {
        self.limiting
    }

    /// The smallest refill.
    fn floor(&self) -> u64 {
        let size = u64::from(self.size);
        let least = match self.limiting {
            true => (size / LIMITING_DIVISOR).clamp(SMALLEST_LIMITING_UPDATE, SMALLEST_UPDATE),
            false => SMALLEST_UPDATE,
        };
        (size / 4).clamp(1, least)
    }

    /// The consumed bytes at which the window is refilled, at most the aligned part of it.
    fn share(&self, divisor: u32) -> u64 {
        let size = u64::from(self.size);
        match self.limiting {
            true => size / LIMITING_DIVISOR,
            false if self.is_aligned() => (size / u64::from(divisor.max(1))).min(size - ALIGNMENT),
            false => size / u64::from(divisor.max(1)),
        }
    }

    fn is_aligned(&self) -> bool {
        matches!(self.refill, Refill::Fraction { .. }) && ALIGNED_SIZES.contains(&u64::from(self.size))
    }

    /// The largest offset up to `offset` that may be advertised.
    fn aligned(&self, offset: u64) -> u64 {
        match self.is_aligned() && self.received > 0 {
            true => offset - offset % ALIGNMENT,
            false => offset,
        }
    }

    /// Whether the peer has used up the credit that it knows of. Credit withheld now is missing from a fixed window
    /// for a round trip.
    fn is_used_up(&self) -> bool {
        self.fixed && self.received >= self.round.until
    }

    /// Whether a refill is due, by itself or because a write is `leaving` anyway.
    pub(crate) fn refill_due(&self, leaving: bool) -> bool {
        let gain = self.gain();
        if gain == 0 {
            return false;
        }
        match self.refill {
            Refill::Fraction { divisor } => {
                let share = self.share(divisor);
                let share = if leaving { share / 2 } else { share };
                gain >= share.max(self.floor())
                    || (gain >= SMALLEST_REST && self.is_used_up() && self.unconsumed() == 0)
            }
            Refill::Remaining(bytes) => {
                // Everything is read, and the peer has less than a frame of credit: it must not have to wait.
                let frame = u64::from(self.size).min(SMALLEST_UPDATE);
                let starved = self.unconsumed() == 0 && self.remaining() < frame;
                self.remaining() <= u64::from(bytes) && (gain >= self.floor() || starved)
            }
            Refill::HalfRest => gain >= self.remaining() / 2,
        }
    }

    /// How many bytes the application has to consume before [`Self::refill_due`]; `u64::MAX` if that alone does not
    /// suffice.
    pub(crate) fn until_due(&self) -> u64 {
        let consumed_for = |gain: u64| {
            let advertised = self.advertised + gain;
            let grain = advertised - self.aligned(advertised);
            let advertised = if grain > 0 {
                advertised - grain + ALIGNMENT
            } else {
                advertised
            };
            advertised.saturating_sub(self.consumed + self.limit)
        };
        match self.refill {
            Refill::Fraction { divisor } => {
                let due = consumed_for(self.share(divisor).max(self.floor()));
                match self.is_used_up() && self.unconsumed() > 0 {
                    true => due.min(consumed_for(SMALLEST_REST).max(self.unconsumed())).max(1),
                    false => due.max(1),
                }
            }
            // More has to arrive first.
            Refill::Remaining(bytes) if self.remaining() > u64::from(bytes) => u64::MAX,
            Refill::Remaining(_) => consumed_for(self.floor()).min(self.unconsumed()).max(1),
            Refill::HalfRest => consumed_for((self.remaining() / 2).max(1)).max(1),
        }
    }

    /// Advertises all available credit. Returns the increment of the WINDOW_UPDATE, if there is one.
    pub(crate) fn refill(&mut self, now: Time, round_trip: Option<Duration>) -> Option<u32> {
        let round_trip = round_trip.unwrap_or_default();
        // The gain is at most the size, and that is at most 2^31-1.
        let increment = u32::try_from(self.gain()).ok().filter(|&gain| gain > 0)?;
        // Without a round trip, nothing says what the peer knows.
        self.used_up = !round_trip.is_zero() && !self.has_credit(self.known(now, round_trip));
        self.recent
            .get_or_insert_default()
            .push(now, self.advertised, round_trip);
        if now >= self.round.since + round_trip || self.round.until == u64::MAX {
            self.round = Round {
                since: now,
                until: if round_trip.is_zero() {
                    u64::MAX
                } else {
                    self.advertised
                },
            };
        }
        self.advertised += u64::from(increment);
        Some(increment)
    }

    /// Whether the peer had credit worth naming when that much was advertised. One frame is none, nor is an eighth of the
    /// window: its sender was about to wait, and a round trip is only known to some per cent. A connection begins with less
    /// than its window (RFC 9113 section 6.9.2).
    fn has_credit(&self, advertised: u64) -> bool {
        let size = u64::from(self.size);
        advertised.saturating_sub(self.received)
            >= SMALLEST_UPDATE.min(size / 4).max(size.min(advertised) / 8)
    }

    /// What the peer knew to be advertised when it sent what arrives at `now`.
    fn known(&self, now: Time, round_trip: Duration) -> u64 {
        let unknown = self
            .recent
            .as_ref()
            .and_then(|recent| recent.unknown(now, round_trip).next());
        unknown.map_or(self.advertised, |(_, before)| before)
    }

    /// When the window opened for the peer, if it was closed at `since`: the peer then had hardly any of the credit that it
    /// knew of over a path with this round trip. `now` if it is still closed.
    pub(crate) fn opens(&self, since: Time, now: Time, round_trip: Duration) -> Option<Time> {
        if self.has_credit(self.known(since, round_trip)) {
            return None;
        }
        let unknown = || {
            self.recent
                .iter()
                .flat_map(|recent| recent.unknown(since, round_trip))
        };
        // What the first of them allows may already have arrived, over a shorter round trip.
        let later = unknown().skip(1).map(|(_, before)| before);
        let after = later.chain([self.advertised]);
        let opening = unknown().zip(after).find(|&(_, after)| self.has_credit(after));
        Some(opening.map_or(now, |((at, _), _)| (at + round_trip).max(since)))
    }

    /// Whether the peer had used up its credit at the latest refill: what arrives since then fills the window, even if it
    /// comes without a pause.
    #[inline]
    pub(crate) fn is_all_out(&self) -> bool {
        self.used_up
    }

    /// Whether half of the window is unread: then the reader keeps it closed.
    pub(crate) fn is_unread(&self) -> bool {
        self.unconsumed() >= u64::from(self.size) / 2
    }

    /// Whether the reader holds so much of a closed window that it would be open otherwise: half of it, or a quarter and a
    /// frame that has just arrived.
    pub(crate) fn is_held(&self) -> bool {
        let size = u64::from(self.size);
        self.unconsumed() >= (size / 4 + SMALLEST_UPDATE).min(size / 2)
    }

    /// How many bytes have to be consumed before a choked window is refilled. Slow readers hold so much of it that
    /// the rest never reaches the refill threshold; then half of the rest suffices. None if the window is not choked.
    pub(crate) fn until_unchoked(&self) -> Option<u64> {
        let Refill::Fraction { divisor } = self.refill else {
            return None;
        };
        let size = u64::from(self.size);
        let left = self.gain() + self.remaining();
        let floor = self.floor();
        let choked = left >= floor && left < size / u64::from(divisor.max(1));
        choked.then(|| left.div_ceil(2).max(floor).saturating_sub(self.gain()))
    }

    /// The increment of a refill now.
    fn gain(&self) -> u64 {
        let by_size = self.received + u64::from(self.size);
        let by_memory = self.consumed + self.limit;
        self.aligned(by_size.min(by_memory))
            .saturating_sub(self.advertised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(size: u32, refill: Refill) -> ReceiveWindow {
        ReceiveWindow::new(size, WindowSize::new(size).unwrap(), refill)
    }

    #[test]
    fn a_quarter_consumed_is_refilled_and_an_eighth_only_in_company() {
        let mut window = window(1 << 20, Refill::default());
        window.receive(1 << 18, 0).unwrap();
        window.consume(1 << 17);
        assert!(!window.refill_due(false));
        assert!(window.refill_due(true));
        window.consume(1 << 17);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(1 << 18));
        assert_eq!(window.refill(Time::ZERO, None), None);
        assert_eq!(window.remaining(), 1 << 20);
    }

    #[test]
    fn a_fixed_threshold_refills_when_no_more_than_that_remains() {
        let mut window = window(4 << 20, Refill::Remaining(160_000));
        let most = (4 << 20) - 160_001;
        window.receive(most, 0).unwrap();
        window.consume(u64::from(most));
        assert!(!window.refill_due(true));
        window.receive(1, 0).unwrap();
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(most + 1));
    }

    #[test]
    fn what_was_not_allowed_is_an_overrun() {
        let mut window = window(10, Refill::default());
        assert_eq!(window.receive(11, 0), Err(Overrun));
        assert_eq!(window.receive(11, 1), Ok(()));
        assert_eq!(window.remaining(), 0);
    }

    #[test]
    fn consuming_more_than_was_received_gives_no_credit() {
        let mut window = window(1 << 20, Refill::default());
        window.receive(10, 0).unwrap();
        window.consume(1_000_000);
        assert_eq!(window.refill(Time::ZERO, None), Some(10));
    }

    #[test]
    fn a_small_window_is_advertised_up_to_a_whole_grain_and_soon_when_the_path_waits_for_it() {
        let mut window = window(65_535, Refill::default()).fixed();
        window.set_limiting(true);
        window.receive(65_535, 0).unwrap();
        // One more than 2,048 bytes ends at 67,584, which is a multiple of 256.
        assert_eq!(window.until_due(), 2_049);
        window.consume(2_048);
        assert!(!window.refill_due(false));
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(67_584 - 65_535));
        window.set_limiting(false);
        assert_eq!(window.until_due(), 16_384);
        window.consume(65_535);
        assert_eq!(window.refill(Time::ZERO, None), Some(131_072 - 256 - 67_584));
    }

    #[test]
    fn what_a_keen_window_withholds_leaves_once_the_peer_has_used_up_what_it_knows_of() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let trip = Duration::from_millis(100);
        let mut window = window(4 << 20, Refill::default()).fixed();
        let most = 4 << 20;
        window.receive(most / 2, 0).unwrap();
        window.consume(u64::from(most / 2));
        assert_eq!(window.refill(at(0), Some(trip)), Some(most / 2));
        window.receive(most / 2 - 5_000, 0).unwrap();
        window.consume(u64::from(most / 2 - 5_000));
        window.refill(at(5), Some(trip));
        window.receive(4_999, 0).unwrap();
        window.consume(4_999);
        assert!(!window.refill_due(true), "one byte is still to come");
        window.receive(1, 0).unwrap();
        assert_eq!(window.until_due(), 1);
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(at(6), Some(trip)), Some(5_000));
        // The next round trip begins with what the first refill allows.
        window.receive(most / 32, 0).unwrap();
        window.consume(u64::from(most / 32));
        assert_eq!(window.refill(at(100), Some(trip)), Some(most / 32));
        window.receive(5_000, 0).unwrap();
        window.consume(5_000);
        assert!(!window.refill_due(false));
    }

    #[test]
    fn an_empty_window_of_no_whole_grains_is_refilled() {
        let mut window = window(20_000, Refill::Fraction { divisor: 1 });
        window.receive(20_000, 0).unwrap();
        window.consume(20_000);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(39_936 - 20_000));
        window.receive(19_936, 0).unwrap();
        window.consume(window.until_due());
        assert!(window.refill_due(false));
    }

    #[test]
    fn an_empty_window_of_whole_grains_is_refilled_a_grain_early() {
        let mut window = window(65_536, Refill::Fraction { divisor: 1 });
        window.receive(65_536, 0).unwrap();
        assert_eq!(window.until_due(), 65_280);
        window.consume(65_279);
        assert!(!window.refill_due(false));
        window.consume(1);
        assert!(window.refill_due(false));
    }

    #[test]
    fn a_window_of_four_octets_is_refilled_by_one() {
        let mut window = window(4, Refill::default());
        window.receive(1, 0).unwrap();
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(1));
    }

    #[test]
    fn a_window_that_grows_is_advertised_by_the_next_refill() {
        let mut window = window(65_535, Refill::default());
        window.resize(WindowSize::from_mebibytes(1));
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some((1 << 20) - 65_535));
    }

    #[test]
    fn until_due_is_what_is_left_to_consume() {
        let mut window = window(1 << 20, Refill::default());
        window.receive(1 << 18, 0).unwrap();
        window.consume(1000);
        let left = window.until_due();
        window.consume(left - 1);
        assert!(!window.refill_due(false));
        window.consume(1);
        assert!(window.refill_due(false));
    }

    #[test]
    fn a_refill_that_is_due_asks_for_a_report_of_the_next_octet() {
        let mut window = window(1 << 20, Refill::default()).fixed();
        window.receive(1 << 18, 0).unwrap();
        window.consume(1 << 18);
        let trip = Some(Duration::from_millis(1));
        assert_eq!(window.refill(Time::ZERO, trip), Some(1 << 18));
        // Used up, and the rest is unread: a quarter of it is worth a refill.
        window.receive(3 << 18, 0).unwrap();
        window.consume(1 << 18);
        assert!(window.is_used_up() && window.refill_due(false));
        assert_eq!(window.until_due(), 1);
    }

    #[test]
    fn memory_leased_for_a_slow_reader_keeps_credit_going() {
        let mut window = window(1 << 20, Refill::default());
        window.receive(1 << 20, 0).unwrap();
        assert_eq!(window.refill(Time::ZERO, None), None);
        window.set_limit(3 << 19);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(1 << 19));
        assert_eq!(window.promise().total(), 3 << 19);
        window.consume(1 << 20);
        assert_eq!(window.refill(Time::ZERO, None), Some(1 << 19));
        assert_eq!(window.promise().total(), 1 << 20);
    }

    #[test]
    fn a_window_that_shrinks_withholds_credit() {
        let mut window = window(1 << 20, Refill::default());
        window.resize(WindowSize::new(1 << 19).unwrap());
        window.receive(1 << 19, 0).unwrap();
        window.consume(1 << 19);
        assert_eq!(window.refill(Time::ZERO, None), None);
        window.receive(1 << 18, 0).unwrap();
        window.consume(1 << 18);
        assert_eq!(window.refill(Time::ZERO, None), Some(1 << 18));
    }

    #[test]
    fn a_window_of_which_a_stalled_reader_holds_most_is_refilled_by_half_of_the_rest() {
        let mut window = window(1 << 20, Refill::default());
        window.receive(1 << 20, 0).unwrap();
        window.consume(100_000);
        assert!(!window.refill_due(true), "less than an eighth");
        assert_eq!(window.until_unchoked(), Some(0));
        window.refill(Time::ZERO, None);
        assert_eq!(window.until_unchoked(), Some(50_000));
        window.receive(60_000, 0).unwrap();
        window.consume(30_000);
        assert_eq!(window.until_unchoked(), Some(5_000));
        window.consume(1 << 20);
        assert_eq!(window.until_unchoked(), None);
        assert!(window.refill_due(false));
    }

    #[test]
    fn a_window_is_closed_until_what_a_refill_allows_can_have_come() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let trip = Duration::from_millis(100);
        let mut window = window(65_535, Refill::default());
        assert_eq!(window.opens(at(50), at(300), trip), None);
        window.receive(65_535, 0).unwrap();
        assert_eq!(
            window.opens(at(50), at(300), trip),
            Some(at(300)),
            "it is closed still"
        );
        assert!(window.is_unread());
        window.consume(65_535);
        window.refill(at(50), None);
        assert_eq!(window.opens(at(50), at(300), trip), Some(at(150)));
        assert_eq!(window.opens(at(149), at(300), trip), Some(at(150)));
        assert_eq!(window.opens(at(150), at(300), trip), None);
        assert!(!window.is_unread());
    }

    #[test]
    fn a_window_with_less_than_an_eighth_left_is_closed_and_a_small_one_with_less_than_a_frame_or_a_quarter()
    {
        let now = Time::from_nanos(1);
        for (size, least) in [(1 << 20, 1 << 17), (65_536, 16_384), (1_000, 250)] {
            let mut window = window(size, Refill::default());
            window.receive(size - least, 0).unwrap();
            assert_eq!(window.opens(Time::ZERO, now, Duration::ZERO), None, "{size}");
            window.receive(1, 0).unwrap();
            assert_eq!(window.opens(Time::ZERO, now, Duration::ZERO), Some(now), "{size}");
        }
    }

    #[test]
    fn a_fixed_threshold_asks_for_no_report_before_it_is_reached() {
        let mut window = window(1 << 20, Refill::Remaining(160_000));
        assert_eq!(window.until_due(), u64::MAX);
        window.receive((1 << 20) - 160_000, 0).unwrap();
        let left = window.until_due();
        window.consume(left - 1);
        assert!(!window.refill_due(false));
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(
            window.until_due(),
            1,
            "a report of the next octet is early enough"
        );
    }

    #[test]
    fn a_window_whose_refill_was_answered_early_is_closed_until_the_next_one_is() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut window = window(65_536, Refill::default());
        window.receive(65_536, 0).unwrap();
        window.consume(65_536);
        window.refill(at(50), None);
        window.receive(65_536, 0).unwrap();
        window.consume(65_536);
        window.refill(at(148), None);
        let trip = Duration::from_millis(100);
        assert_eq!(window.opens(at(148), at(248), trip), Some(at(248)));
    }

    #[test]
    fn a_used_up_window_is_refilled_by_1024_octets_once_all_is_read() {
        let trip = Some(Duration::from_millis(1));
        for (unread, due) in [(1_023, 1_024), (1_024, 1_024), (2_000, 2_000)] {
            let mut window = window(1 << 20, Refill::default()).fixed();
            window.receive(1 << 18, 0).unwrap();
            window.consume(1 << 18);
            window.refill(Time::ZERO, trip);
            window.receive(3 << 18, 0).unwrap();
            window.consume((3 << 18) - unread);
            window.refill(Time::ZERO, trip);
            assert!(window.is_used_up());
            assert_eq!(window.until_due(), due);
            window.consume(unread - 1);
            assert!(!window.refill_due(false));
            window.consume(1);
            assert_eq!(window.refill_due(false), unread >= 1_024);
        }
    }

    #[test]
    fn an_empty_window_of_an_octet_more_than_whole_grains_is_refilled_by_all_of_them() {
        let mut window = window(16_385, Refill::Fraction { divisor: 1 });
        window.receive(16_385, 0).unwrap();
        window.consume(16_385);
        assert_eq!(window.refill(Time::ZERO, None), Some(32_768 - 16_385));
        window.receive(16_383, 0).unwrap();
        window.consume(16_383 - 256);
        assert!(!window.refill_due(false));
        assert_eq!(window.until_due(), 255);
        window.consume(255);
        assert!(window.refill_due(false));
    }

    #[test]
    fn half_of_the_rest_is_refilled_or_an_octet_if_nothing_is_left() {
        for (left, due) in [(10, 5), (9, 4), (3, 1), (2, 1), (1, 1), (0, 1)] {
            let mut window = window(1_000, Refill::HalfRest);
            window.receive(1_000 - left, 0).unwrap();
            assert_eq!(window.until_due(), due, "{left}");
            window.consume(due - 1);
            assert!(!window.refill_due(false));
            window.consume(1);
            assert!(window.refill_due(false));
            assert_eq!(window.until_due(), 1);
        }
    }

    #[test]
    fn an_empty_window_is_refilled_whole_if_so_set() {
        for divisor in [0, 1] {
            let mut window = window(1_000, Refill::Fraction { divisor });
            window.receive(1_000, 0).unwrap();
            window.consume(999);
            assert!(!window.refill_due(false));
            window.consume(1);
            assert!(window.refill_due(false));
        }
    }

    #[test]
    fn a_window_of_which_half_is_unread_is_kept_closed_by_its_reader() {
        let mut window = window(1_000, Refill::default());
        window.receive(500, 0).unwrap();
        assert!(window.is_unread());
        window.consume(1);
        assert!(!window.is_unread());
    }

    #[test]
    fn a_window_may_move_up_to_the_largest_one() {
        let window = window(65_535, Refill::default());
        let most = i64::from(WindowSize::MAX.bytes()) - 65_535;
        assert!(window.can_shift(most) && window.can_shift(-65_536));
        assert!(!window.can_shift(most + 1));
    }

    #[test]
    fn a_window_below_a_frame_is_refilled_as_soon_as_all_is_read() {
        let mut window = window(1_000, Refill::Remaining(1_000));
        window.receive(100, 0).unwrap();
        window.consume(99);
        assert!(!window.refill_due(true), "a byte is unread");
        window.consume(1);
        assert!(window.refill_due(false));
        assert_eq!(window.refill(Time::ZERO, None), Some(100));
    }

    #[test]
    fn a_window_of_which_less_than_a_frame_is_left_is_refilled_as_soon_as_all_is_read() {
        let mut window = window(20_000, Refill::Remaining(20_000));
        window.receive(20_000 - 16_384, 0).unwrap();
        window.consume(20_000 - 16_384);
        assert!(!window.refill_due(true), "a frame is left");
        window.receive(1, 0).unwrap();
        window.consume(1);
        assert!(window.refill_due(false));
    }
}
