//! Flow control of the connection: its receive window, the memory that it leases for it (laws 4 and 5), and its send
//! window.

use core::time::Duration;

use super::overhead::Overhead;
use super::writer::Writer;
use crate::config::Config;
use crate::flow::{
    CreditOverflow, DEFAULT_WINDOW, Lease, Overrun, PRESUMED_TRIP, Pace, Promise, Proves, ReceiveWindow,
    SendCredit, WindowSize,
};
use crate::role::Role;
use crate::stream::ReceiveHalf;
use crate::time::Time;

/// The smallest size that an adaptive window shrinks to, in bytes.
const SMALLEST_WINDOW: u32 = 256 << 10;

/// The rate that a path is presumed to have until a window has shown more, in bytes per second: 1 Gbit/s, of which a
/// refill at a quarter needs four thirds.
const PRESUMED_RATE: u128 = 166_666_667;

/// What windows that begin as they are set grow to before a reader has kept up over a path that is known, in bytes. Three
/// quarters of it, the most of one stream, are a gigabit over 100 ms.
const UNPROVED_WINDOW: u32 = 16 << 20;

/// The most bytes that slow readers may leave unread at no cost to other streams where windows begin as they are set.
const MOST_LAGGING: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct FlowControl {
    receive_window: ReceiveWindow,
    /// How fast the peer uses the receive window.
    pace: Pace,
    /// The memory that is leased for the receive window, beyond `base`.
    lease: Lease,
    /// The part of the receive window that needs no lease, in bytes.
    base: u32,
    overhead: Overhead,
    /// Bytes that the owner has read and not released.
    unreleased: u64,
    refills: u64,
    send_credit: SendCredit,
    /// Since when a frame is held back because the send window would make it tiny (law 6).
    held_since: Option<Time>,
}

impl FlowControl {
    /// The windows of a new connection, and the initial receive window of its streams.
    pub(super) fn new(role: Role, config: &Config) -> (Self, WindowSize) {
        let mut lease = Lease::of_memory(config.budget.as_ref(), config.share.as_ref());
        let (size, stream_window) = open(role, config, &mut lease);
        let mut window = ReceiveWindow::new(DEFAULT_WINDOW.bytes(), size, config.connection_refill);
        if config.begins_as_set() {
            window.ask_for_proof(Proves::First);
        }
        let flow = FlowControl {
            receive_window: match config.adaptive {
                true => window,
                false => window.fixed(),
            },
            pace: Pace::default(),
            lease,
            base: config.first_connection_window(),
            overhead: Overhead::new(config),
            unreleased: 0,
            refills: 0,
            send_credit: SendCredit::new(DEFAULT_WINDOW.bytes()),
            held_since: None,
        };
        (flow, stream_window)
    }

    pub(super) fn window(&self) -> &ReceiveWindow {
        &self.receive_window
    }

    /// DATA arrived; `octets` include padding.
    pub(super) fn receive(&mut self, octets: u32, now: Time) -> Result<(), Overrun> {
        self.receive_window.note_arrival(now);
        self.receive_window.receive(octets, 0)
    }

    /// DATA was consumed: read and released, or discarded.
    #[inline]
    pub(super) fn consume(&mut self, octets: u64) {
        self.receive_window.consume(octets);
    }

    #[inline]
    pub(super) fn note_read(&mut self, bytes: u64) {
        self.unreleased += bytes;
    }

    /// The owner releases bytes, at most as many as it has read.
    pub(super) fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.unreleased);
        self.unreleased -= bytes;
        self.receive_window.consume(bytes);
    }

    pub(super) fn unreleased(&self) -> u64 {
        self.unreleased
    }

    /// Whether the receive window is due for a refill. It is also due when slow readers hold so much of it that the
    /// rest would never reach the refill threshold (law 5).
    pub(super) fn refill_due(&self, leaving: bool) -> bool {
        self.receive_window.refill_due(leaving) || self.receive_window.until_unchoked() == Some(0)
    }

    /// How many bytes have to be released before a refill is due.
    pub(super) fn until_refill_due(&self) -> u64 {
        let until = self.receive_window.until_due();
        match self.receive_window.until_unchoked() {
            // At least one more byte has to be released.
            Some(earlier) => until.min(earlier.max(1)),
            None => until,
        }
    }

    /// Writes a WINDOW_UPDATE for all credit that is available.
    pub(super) fn refill(&mut self, writer: &mut Writer, now: Time, round_trip: Option<Duration>) {
        if let Some(increment) = self.receive_window.refill(now, round_trip) {
            writer.window_update(None, increment);
            self.refills += 1;
        }
    }

    pub(super) fn refills(&self) -> u64 {
        self.refills
    }

    /// At a refill: shrinks the window if the budget is scarce, and doubles it if it limits the path. Returns whether
    /// a newer round-trip sample would help.
    pub(super) fn tune(&mut self, config: &Config, now: Time, round_trip: Option<Duration>) -> bool {
        if !config.adaptive {
            let limiting = self.is_outgrown(now, round_trip);
            let limiting = limiting.unwrap_or(self.receive_window.is_limiting());
            self.receive_window.set_limiting(limiting);
            return false;
        }
        let window = &mut self.receive_window;
        let size = window.size();
        let smallest = SMALLEST_WINDOW.max(self.base);
        if self.lease.is_scarce() && size.bytes() > smallest {
            let smaller = (size.bytes() / 4 * 3).max(smallest);
            window.resize(WindowSize::new(smaller).unwrap_or(size));
            self.return_lease_beyond(smaller);
            return false;
        }
        if self.receive_window.proof_due(u64::from(size.bytes() / 8)) {
            let window = self.receive_window.judge_reader(now, round_trip);
            self.widen(config, window, round_trip);
        }
        let size = self.receive_window.size();
        // Without a lease there is no stream, and DATA that still arrives is discarded.
        if self.is_outgrown(now, round_trip) == Some(true) && self.held() > 0 {
            let largest = config.largest_window.bytes();
            let doubled = size.bytes().saturating_mul(2).min(largest);
            // As far as the budget allows. Less than an eighth is not worth a change.
            let more = doubled.saturating_sub(size.bytes());
            let more = self.lease.affordable(more);
            let larger = WindowSize::new(size.bytes().saturating_add(more)).unwrap_or(size);
            if more > size.bytes() / 8 && self.lease.grow(u64::from(more)) {
                self.receive_window.resize(larger);
                self.receive_window.set_limit(self.held());
            }
        }
        true
    }

    /// The memory for the receive window, in bytes.
    fn held(&self) -> u64 {
        self.lease.held() + u64::from(self.base)
    }

    /// Returns what is leased and not needed for a window of `size`.
    fn return_lease_beyond(&mut self, size: u32) {
        let needed = u64::from(size).max(self.receive_window.promise().total());
        self.lease.shrink_to(needed.saturating_sub(u64::from(self.base)));
    }

    /// The window of a new stream, of which the peer knows the `initial` size of SETTINGS.
    pub(super) fn new_stream_window(
        &self,
        role: Role,
        config: &Config,
        initial: WindowSize,
        round_trip: Option<Duration>,
    ) -> ReceiveWindow {
        let size = self.unproved_stream_window(role, config, initial, round_trip);
        let mut window = ReceiveWindow::new(initial.bytes(), size.unwrap_or(initial), config.stream_refill);
        if !config.adaptive {
            return window.fixed();
        }
        if initial != WindowSize::CLOSED {
            window.ask_for_proof(proof_of_streams(config));
        }
        window
    }

    /// The window of a new stream of a client if it is to have more than the `initial` one of SETTINGS: the path may need it,
    /// or is not known yet, and no reader lags. A server learns how its reader is before the peer needs more.
    fn unproved_stream_window(
        &self,
        role: Role,
        config: &Config,
        initial: WindowSize,
        round_trip: Option<Duration>,
    ) -> Option<WindowSize> {
        let window = &self.receive_window;
        let lags = window.unconsumed() > u64::from(window.size().bytes() / 8);
        if self.base == 0 || initial == WindowSize::CLOSED || role == Role::Server || lags {
            return None;
        }
        let wide = WindowSize::new(UNPROVED_WINDOW)
            .unwrap_or(DEFAULT_WINDOW)
            .min(window.size());
        let wide = config.stream_window.min(share_of_a_stream(wide));
        (wide > initial && !is_enough(initial, round_trip)).then_some(wide)
    }

    /// Judges the reader of a stream that has taken all that arrived. Returns the larger window that it may have.
    pub(super) fn grow_for_reader(
        &mut self,
        config: &Config,
        stream: &mut ReceiveWindow,
        initial: WindowSize,
        now: Time,
        round_trip: Option<Duration>,
    ) -> Option<WindowSize> {
        let mut window = stream.judge_reader(now, round_trip);
        if is_enough(initial, round_trip) {
            // Beyond that the window follows the path.
            stream.ask_for_proof(Proves::Nothing);
            return None;
        }
        if !config.begins_as_set() {
            window = window.min(enough(round_trip.unwrap_or(PRESUMED_TRIP)));
        }
        let connection = self.widen(config, window.saturating_mul(4) / 3, round_trip);
        let largest = match config.begins_as_set() {
            true => config.stream_window.min(share_of_a_stream(connection)),
            false => largest_stream_window(config, connection),
        };
        let window = u32::try_from(window).ok().and_then(WindowSize::new);
        let window = window.unwrap_or(WindowSize::MAX).min(largest);
        (window > stream.size()).then_some(window)
    }

    /// At a refill of the window of a stream: the size that it is to have if that changes. It doubles if it limits the path. One
    /// that has grown beyond the `initial` size shrinks again if its reader lags.
    pub(super) fn next_stream_window(
        &self,
        config: &Config,
        initial: WindowSize,
        half: &mut ReceiveHalf,
        now: Time,
        round_trip: Option<Duration>,
    ) -> Option<WindowSize> {
        let window = &mut half.window;
        let (consumed, size) = (window.consumed(), window.size());
        let outgrown = half.pace.outgrows(now, consumed, size.bytes(), round_trip);
        if !config.adaptive {
            window.set_limiting(outgrown.unwrap_or(window.is_limiting()));
            return None;
        }
        if proof_of_streams(config) != Proves::Nothing && window.is_unread() {
            let smaller = WindowSize::new(size.bytes() / 4 * 3)?.max(initial);
            return (smaller < size).then_some(smaller);
        }
        if outgrown != Some(true) {
            return None;
        }
        let larger = size
            .doubled()
            .min(largest_stream_window(config, self.window().size()));
        (larger > size).then_some(larger)
    }

    /// Widens the connection's window for readers that keep up and can use `wanted` bytes, as far as the budget allows.
    /// Returns its size.
    fn widen(&mut self, config: &Config, wanted: u64, round_trip: Option<Duration>) -> WindowSize {
        let size = self.receive_window.size();
        let most = config.effective_connection_window().bytes();
        let most = match round_trip {
            Some(_) => most,
            None => most.min(UNPROVED_WINDOW),
        };
        let wanted = wanted.min(u64::from(most));
        let more = wanted.saturating_sub(u64::from(size.bytes()));
        let wider = match more {
            0 => None,
            more => u32::try_from(u64::from(size.bytes()) + self.lease.open(more, 1)).ok(),
        };
        let wider = wider.and_then(WindowSize::new).unwrap_or(size);
        if wider > size {
            self.receive_window.resize(wider);
            self.receive_window.set_limit(self.held());
        }
        wider
    }

    /// Whether the window limits the path. None while that is unknown.
    fn is_outgrown(&mut self, now: Time, round_trip: Option<Duration>) -> Option<bool> {
        let (consumed, size) = (self.receive_window.consumed(), self.receive_window.size());
        self.pace.outgrows(now, consumed, size.bytes(), round_trip)
    }

    /// Raises the window to `size` if the budget has room.
    pub(super) fn grow(&mut self, size: WindowSize) -> bool {
        if self.base > 0 {
            self.base = size.bytes();
            self.lease.shrink_to(0);
            self.receive_window.resize(size);
            return true;
        }
        // Without a lease, the current window has to be leased too.
        let leased = match self.lease.held() {
            0 => 0,
            _ => self.receive_window.size().bytes(),
        };
        let more = size.bytes() - leased;
        let granted = self.lease.grow(u64::from(more));
        if granted {
            self.receive_window.resize(size);
        }
        granted
    }

    /// The connection has failed, and `bytes` more are no longer held.
    pub(super) fn return_unread(&mut self, bytes: u64) {
        let held = self.lease.held();
        self.lease.shrink_to(held.saturating_sub(bytes));
    }

    /// Lowers the window to `size`, and returns the memory that it no longer needs.
    pub(super) fn shrink(&mut self, size: WindowSize) {
        self.receive_window.resize(size);
        self.base = self.base.min(size.bytes());
        self.return_lease_beyond(size.bytes());
    }

    /// Whether memory for the receive window is leased. A connection that has no lease, because it opened late or was
    /// idle, tries again.
    pub(super) fn can_hold_a_body(&mut self) -> bool {
        self.held() > 0 || self.lease.grow(u64::from(self.receive_window.size().bytes()))
    }

    /// Returns the lease of a connection that has no streams and opened without a lease. DATA that still arrives is
    /// discarded, and costs no memory.
    pub(super) fn return_idle_lease(&mut self, config: &Config) {
        let unread = self.receive_window.unconsumed();
        let smallest = self.receive_window.size() <= DEFAULT_WINDOW;
        if config.adaptive && self.base == 0 && smallest && unread == 0 {
            self.lease.shrink_to(0);
            self.receive_window.set_limit(0);
        }
    }

    /// Leases memory for the bytes that slow readers leave unread, so that other streams keep their credit, and
    /// returns it when they are read.
    pub(super) fn balance(&mut self, config: &Config) {
        if !config.adaptive || self.held() == 0 {
            return;
        }
        let size = u64::from(self.receive_window.size().bytes());
        let promise = self.receive_window.promise();
        // A reader that keeps up leaves up to an eighth of the window unread.
        let lagging = promise.buffered.saturating_sub(size / 8);
        // Without a budget, `largest_window` limits the memory of a connection.
        let most = match self.lease.has_budget() {
            _ if self.base > 0 => size + MOST_LAGGING,
            true => u64::MAX,
            false => size.max(u64::from(config.largest_window.bytes())),
        };
        let wanted = (size + lagging).min(most);
        let held = self.held();
        if wanted > held {
            let starved = promise.outstanding < size / 4 * 3;
            if starved && !self.lease.is_scarce() && self.lease.grow(wanted - held) {
                self.receive_window.set_limit(wanted);
            }
        } else if held - wanted > size / 8 {
            let needed = wanted.max(promise.total());
            self.lease.shrink_to(needed.saturating_sub(u64::from(self.base)));
            self.receive_window.set_limit(self.held());
        }
    }

    /// The memory that the peer can make this endpoint hold with its credit (law 5).
    pub(super) fn promise(&self) -> Promise {
        self.receive_window.promise()
    }

    pub(super) fn leased(&self) -> u64 {
        self.lease.held() + self.overhead.leased()
    }

    #[inline]
    pub(super) fn overhead(&self) -> &Overhead {
        &self.overhead
    }

    #[inline]
    pub(super) fn overhead_mut(&mut self) -> &mut Overhead {
        &mut self.overhead
    }

    /// The connection has failed and holds no memory but for `unread` bytes.
    pub(super) fn return_leases(&mut self, unread: u64) {
        self.lease.shrink_to(unread);
        self.overhead.lease_for(0);
    }

    pub(super) fn grant(&mut self, increment: u32) -> Result<(), CreditOverflow> {
        self.held_since = None;
        self.send_credit.grant(increment)
    }

    #[inline]
    pub(super) fn credit(&self) -> &SendCredit {
        &self.send_credit
    }

    /// A DATA frame was built.
    #[inline]
    pub(super) fn spend(&mut self, octets: usize) {
        self.held_since = None;
        self.send_credit.spend(octets);
    }

    /// Holds a frame back because the window would make it tiny. Returns since when.
    pub(super) fn hold(&mut self, now: Time) -> Time {
        *self.held_since.get_or_insert(now)
    }

    pub(super) fn release_hold(&mut self) {
        self.held_since = None;
    }

    #[inline]
    pub(super) fn held_until(&self, config: &Config) -> Option<Time> {
        Some(self.held_since? + config.tiny_frame_wait)
    }
}

/// The initial windows of a connection and of its streams: large while the budget has room, smaller when it has
/// little.
fn open(role: Role, config: &Config, lease: &mut Lease) -> (WindowSize, WindowSize) {
    let wanted = config.effective_connection_window();
    if !config.adaptive {
        // The configured size if the budget has room for it, otherwise the default of the RFC.
        let fixed = u64::from(wanted.bytes());
        let granted = lease.grow(fixed) || lease.grow(u64::from(DEFAULT_WINDOW.bytes()));
        let window = match granted && lease.held() == fixed {
            true => wanted,
            false => DEFAULT_WINDOW,
        };
        return (window, config.stream_window);
    }
    if let Some(first) = config.first_windows {
        let base = config.first_connection_window();
        let unproved = match role {
            Role::Client => wanted.bytes().min(UNPROVED_WINDOW),
            Role::Server => base,
        };
        let more = lease.open(u64::from(unproved.saturating_sub(base)), 1);
        let size = u32::try_from(u64::from(base) + more)
            .ok()
            .and_then(WindowSize::new);
        return (size.unwrap_or(wanted), first.stream);
    }
    let least = u64::from(DEFAULT_WINDOW.bytes());
    let granted = lease.open(u64::from(wanted.bytes()), least);
    // Without a lease the peer still has credit for 65,535 bytes, and no stream to send them on: see
    // `return_idle_lease`.
    let window = u32::try_from(granted).ok().and_then(WindowSize::new);
    let window = window.unwrap_or(DEFAULT_WINDOW);
    (window, config.stream_window.min(share_of_a_stream(window)))
}

/// The window that fills a gigabit over a path with this round trip, in bytes.
fn enough(round_trip: Duration) -> u64 {
    let bytes = (round_trip.as_nanos() * PRESUMED_RATE).div_ceil(Duration::from_secs(1).as_nanos());
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn is_enough(window: WindowSize, round_trip: Option<Duration>) -> bool {
    round_trip.is_some_and(|trip| u64::from(window.bytes()) >= enough(trip))
}

/// A stream has at most three quarters of the connection's window, so that a stalled reader leaves credit to other
/// streams.
fn share_of_a_stream(connection: WindowSize) -> WindowSize {
    let share = connection.bytes() / 4 * 3;
    WindowSize::new(share)
        .unwrap_or(DEFAULT_WINDOW)
        .max(DEFAULT_WINDOW)
}

/// What proves that the readers of streams keep up, if their windows begin smaller than that of the connection allows.
pub(super) fn proof_of_streams(config: &Config) -> Proves {
    let most = share_of_a_stream(config.effective_connection_window());
    match config.adaptive {
        true if config.begins_as_set() => Proves::First,
        true if config.stream_window < most => Proves::Quarter,
        _ => Proves::Nothing,
    }
}

/// The largest size that a stream window grows to.
fn largest_stream_window(config: &Config, connection: WindowSize) -> WindowSize {
    let largest = config.largest_window.max(config.stream_window);
    largest.min(share_of_a_stream(connection))
}
