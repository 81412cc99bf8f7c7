//! What windows cost, and whether they are right: leases from the budget, windows that follow the path and the pressure
//! (laws 4 and 5).

use super::Connection;
use super::settings::PROBE_PING;
use crate::config::Config;
use crate::flow::{DEFAULT_WINDOW, Lease, ReceiveWindow, WindowSize};
use crate::frame::{Kind, Ping};
use crate::role::Role;
use crate::time::Time;

/// Below this an adaptive connection window is not shrunk, however scarce the budget: a few frames under way.
const SMALLEST_WINDOW: u32 = 256 << 10;

/// How many streams a connection leases at once, so that most requests cost no atomic operation.
const STREAM_BLOCK: u64 = 16;

/// What a connection's frames and field sections take that is not leased, in octets.
const FREE_OVERHEAD: u64 = 16 << 10;

/// What is beyond that is leased in steps of so many octets.
const OVERHEAD_STEP: u64 = 16 << 10;

/// The memory of a connection that is no body: frames that wait to be sent, a header block that is arriving, and field
/// sections of streams under way.
#[derive(Debug)]
pub(super) struct Overhead {
    lease: Lease,
    /// Octets of such frames on the list that the transport is writing.
    pub(super) listed: u64,
    /// Whether all of it could be leased.
    is_covered: bool,
}

impl Overhead {
    pub(super) fn new(config: &Config) -> Self {
        Overhead {
            lease: Lease::of_memory(config.budget.as_ref(), config.share.as_ref()),
            listed: 0,
            is_covered: true,
        }
    }

    pub(super) fn is_covered(&self) -> bool {
        self.is_covered
    }

    pub(super) fn leased(&self) -> u64 {
        self.lease.held()
    }

    #[inline]
    fn cover(&mut self, octets: u64) {
        if octets <= FREE_OVERHEAD && self.lease.held() == 0 {
            self.is_covered = true;
            return;
        }
        self.cover_by_lease(octets);
    }

    fn cover_by_lease(&mut self, octets: u64) {
        let needed = octets.saturating_sub(FREE_OVERHEAD);
        if needed > self.lease.held() {
            let more = (needed - self.lease.held()).next_multiple_of(OVERHEAD_STEP);
            self.is_covered = self.lease.grow(more);
            return;
        }
        self.is_covered = true;
        if self.lease.held() - needed >= 2 * OVERHEAD_STEP || needed == 0 {
            self.lease.shrink_to(needed.next_multiple_of(OVERHEAD_STEP));
        }
    }
}

/// The windows that a new connection opens with: wide while the budget has room, less when it has little.
pub(super) fn open(config: &Config, lease: &mut Lease) -> (WindowSize, WindowSize) {
    let wanted = config.effective_connection_window();
    if !config.adaptive {
        // As it was set, if that can be had; otherwise what every connection begins with.
        let fixed = u64::from(wanted.bytes());
        let granted = lease.grow(fixed) || lease.grow(u64::from(DEFAULT_WINDOW.bytes()));
        let window = match granted && lease.held() == fixed {
            true => wanted,
            false => DEFAULT_WINDOW,
        };
        return (window, config.stream_window);
    }
    let least = u64::from(DEFAULT_WINDOW.bytes());
    let granted = lease.open(u64::from(wanted.bytes()), least);
    // Without a lease the peer still has its first 65,535 bytes, and no stream to send them on: see `rest`.
    let window = u32::try_from(granted).ok().and_then(WindowSize::new);
    let window = window.unwrap_or(DEFAULT_WINDOW);
    (window, config.stream_window.min(share_of_a_stream(window)))
}

/// The most that one stream may have of a connection's window: three quarters, so that one whose reader stalls leaves
/// some to others.
fn share_of_a_stream(connection: WindowSize) -> WindowSize {
    let share = connection.bytes() / 4 * 3;
    WindowSize::new(share)
        .unwrap_or(DEFAULT_WINDOW)
        .max(DEFAULT_WINDOW)
}

/// The most that a stream's window grows to.
pub(super) fn largest_stream_window(config: &Config, connection: WindowSize) -> WindowSize {
    let largest = config.largest_window.max(config.stream_window);
    largest.min(share_of_a_stream(connection))
}

/// Doubles a window, up to `most`.
pub(super) fn double(window: &mut ReceiveWindow, most: WindowSize) {
    let size = window.size();
    let doubled = WindowSize::new(size.bytes().saturating_mul(2)).unwrap_or(WindowSize::MAX);
    let next = doubled.min(most);
    if next > size {
        window.resize(next);
    }
}

impl Connection {
    /// Leases memory for frames and field sections, or gives it back, as there are more or fewer of them. A client has chosen
    /// its server, and is not stopped from reading by that.
    pub(super) fn cover_overhead(&mut self) {
        if self.role == Role::Client {
            return;
        }
        let listed = self.overhead.listed.min(self.deadlines.unsent);
        let block = self.block.as_ref().map_or(0, |block| block.len());
        let octets = self.control.len() + self.streams.header_memory() + block;
        self.overhead.cover(listed + octets as u64);
    }

    /// Frames have left or field sections are gone: what could not be leased before may be now.
    pub(super) fn cover_again(&mut self) {
        if !self.overhead.is_covered || self.overhead.leased() > 0 {
            self.cover_overhead();
        }
    }

    /// Whether there is memory for a field section of so many octets beyond what is free to each.
    pub(super) fn can_hold_headers(&mut self, octets: usize) -> bool {
        if octets == 0 {
            return true;
        }
        let held = self.control.len() + self.streams.header_memory();
        self.overhead.cover((held + octets) as u64);
        let can = self.overhead.is_covered;
        self.cover_again();
        can
    }

    /// Whether one more stream of the peer may begin beside those that are there. The only stream of a connection needs no
    /// lease: whoever is connected is served, however many streams others hold.
    pub(super) fn can_have_a_stream(&mut self) -> bool {
        let streams = self.streams.len() as u64;
        let lease = &mut self.stream_lease;
        streams == 0 || streams < lease.held() || lease.grow(STREAM_BLOCK) || lease.grow(1)
    }

    /// Gives back the leases of streams that are gone, but for `spare` ones.
    fn return_streams(&mut self, spare: u64) {
        let streams = self.streams.len() as u64;
        if self.stream_lease.held() > streams + 2 * spare {
            self.stream_lease.shrink_to(streams + spare);
        }
    }

    /// Nothing happens for a while: what was leased ahead goes back.
    pub(super) fn return_spare_leases(&mut self) {
        self.return_streams(0);
        self.cover_overhead();
    }

    /// The connection has failed, and holds nothing any more.
    pub(super) fn return_all_leases(&mut self) {
        self.lease.shrink_to(0);
        self.stream_lease.shrink_to(0);
        self.overhead.cover(0);
    }

    /// Whether the connection has memory for what a peer may send. One that holds none, since it opened late or rests, asks
    /// again.
    pub(super) fn can_hold_a_body(&mut self) -> bool {
        self.lease.held() > 0 || self.lease.grow(u64::from(self.receive_window.size().bytes()))
    }

    /// A stream is gone: a connection that opened without a lease and has no stream left gives back what it leased for
    /// them. What a peer may still send is dropped as it comes, and costs nothing.
    pub(super) fn rest(&mut self) {
        self.return_streams(STREAM_BLOCK);
        self.cover_again();
        let unread = self.receive_window.promise().buffered;
        let smallest = self.receive_window.size() <= DEFAULT_WINDOW;
        if self.config.adaptive && smallest && unread == 0 && self.streams.len() == 0 {
            self.lease.shrink_to(0);
            self.receive_window.set_limit(0);
        }
    }

    /// Leases memory for what slow readers leave lying, so that others keep their credit; gives it back once it is read.
    pub(super) fn balance(&mut self) {
        self.cover_overhead();
        if !self.config.adaptive || self.lease.held() == 0 {
            return;
        }
        let size = u64::from(self.receive_window.size().bytes());
        let promise = self.receive_window.promise();
        // Up to an eighth of the window is the normal state of a reader that keeps up.
        let lagging = promise.buffered.saturating_sub(size / 8);
        // Without a budget it is the largest window that bounds what a connection may cost.
        let most = match self.lease.has_budget() {
            true => u64::MAX,
            false => size.max(u64::from(self.config.largest_window.bytes())),
        };
        let wanted = (size + lagging).min(most);
        let held = self.lease.held();
        if wanted > held {
            let starved = promise.outstanding < size / 4 * 3;
            if starved && !self.lease.is_scarce() && self.lease.grow(wanted - held) {
                self.receive_window.set_limit(wanted);
            }
        } else if held - wanted > size / 8 {
            self.lease.shrink_to(wanted.max(promise.total()));
            self.receive_window.set_limit(self.lease.held());
        }
    }

    /// Whether the path waits for the connection's window; `None` while that is not known.
    fn is_outgrown(&mut self) -> Option<bool> {
        let (consumed, size) = (self.receive_window.consumed(), self.receive_window.size());
        let round_trip = self.stats.round_trip.minimum();
        self.pace.outgrows(self.now, consumed, size.bytes(), round_trip)
    }

    /// At a refill of the connection's window: shrinks it when the budget is scarce, doubles it when the path uses it up.
    pub(super) fn tune_connection(&mut self) {
        if !self.config.adaptive {
            let keen = self.is_outgrown().unwrap_or(self.receive_window.is_keen());
            self.receive_window.set_keen(keen);
            return;
        }
        let window = &mut self.receive_window;
        let size = window.size();
        if self.lease.is_scarce() && size.bytes() > SMALLEST_WINDOW {
            let smaller = (size.bytes() / 4 * 3).max(SMALLEST_WINDOW);
            window.resize(WindowSize::new(smaller).unwrap_or(size));
            let needed = u64::from(smaller).max(window.promise().total());
            self.lease.shrink_to(needed);
            return;
        }
        // One without a lease has no stream, and drops what still comes: it owes what it would grow from, too.
        if self.is_outgrown() == Some(true) && self.lease.held() > 0 {
            let doubled = size
                .bytes()
                .saturating_mul(2)
                .min(self.config.largest_window.bytes());
            // As far as the budget has room for it: less than an eighth is not worth a change.
            let more = doubled.saturating_sub(size.bytes());
            let more = self.lease.affordable(more);
            let larger = WindowSize::new(size.bytes().saturating_add(more)).unwrap_or(size);
            if more > size.bytes() / 8 && self.lease.grow(u64::from(more)) {
                self.receive_window.resize(larger);
                self.receive_window.set_limit(self.lease.held());
            }
        }
        if self.stats.round_trip.is_stale(self.now) {
            self.measure_round_trip(self.now);
        }
    }

    /// Sends a PING by which [`Self::round_trip`] is measured anew (RFC 9113 section 6.7); whether it did: not while one is under
    /// way, before the peer's SETTINGS have come, or once the connection has failed.
    ///
    /// A connection whose windows are used does so by itself each ten seconds; this is for whoever has more to decide by it.
    pub fn measure_round_trip(&mut self, now: Time) -> bool {
        self.see(now);
        if self.probe.is_some() || self.error().is_some() || !self.peer.received {
            return false;
        }
        self.probe = Some(self.now);
        let ping = Ping {
            ack: false,
            opaque: PROBE_PING,
        };
        ping.write(&mut self.control);
        self.stats.sent_frames.add(Kind::PING);
        true
    }
}
