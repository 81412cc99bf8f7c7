//! What limited a transfer, judged by what it waited for, by how data arrived, and by what the kernel says of TCP.
//!
//! `docs/design/paths.md` has the order, the formulas and their reasons. What cannot be known is one of two: the peer is named
//! only if it was silent when neither a round trip nor the repair of a loss explains it.

use core::time::Duration;

use crate::direction::Direction;
use crate::flow::{Arrivals, Stall};
use crate::tcp::TcpInfo;

/// What limited a transfer, as far as it can be known.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// The application here was slow to read, or to supply data.
    ThisSide,
    /// The window of a stream.
    StreamWindow,
    /// The window of the connection.
    ConnectionWindow,
    /// The number of streams that the peer allows.
    StreamCount,
    /// TCP's receive buffer here: the window that it allows, in bytes.
    ReceiveBuffer(u64),
    /// TCP's send buffer here, in bytes.
    SendBuffer(u64),
    /// TCP's receive window at the peer, in bytes: its buffer is small, or it is slow to read.
    PeerReceiveBuffer(u64),
    /// A window at the sender, of so many bytes: TCP's send buffer or congestion window there, or one of its own.
    PeerWindow(u64),
    /// The slow start of TCP: the transfer is too short for anything else.
    SlowStart,
    /// Lost packets, with the part of them: the congestion control of the sender sends less after each.
    Loss(f64),
    /// Each response takes a round trip, and nothing else takes as long.
    RoundTrips,
    /// The rate of the path.
    Path,
    /// The peer was slow.
    Peer,
    /// The peer or the path: nothing tells which.
    PeerOrPath,
}

impl Cause {
    /// The name of the cause.
    pub const fn name(&self) -> &'static str {
        match self {
            Cause::ThisSide => "this_side",
            Cause::StreamWindow => "stream_window",
            Cause::ConnectionWindow => "connection_window",
            Cause::StreamCount => "stream_count",
            Cause::ReceiveBuffer(_) => "tcp_receive_buffer",
            Cause::SendBuffer(_) => "tcp_send_buffer",
            Cause::PeerReceiveBuffer(_) => "peer_tcp_receive_buffer",
            Cause::PeerWindow(_) => "peer_window",
            Cause::SlowStart => "slow_start",
            Cause::Loss(_) => "loss",
            Cause::RoundTrips => "round_trips",
            Cause::Path => "path",
            Cause::Peer => "peer",
            Cause::PeerOrPath => "peer_or_path",
        }
    }
}

/// A share of out-of-order segments, or of bytes sent again, from which on loss may limit a transfer.
const LEAST_LATE: f64 = 0.001;
const LEAST_SENT_AGAIN: f64 = 0.000_3;

/// TCP begins with so many segments (RFC 6928), of so many bytes over Ethernet.
const FIRST_WINDOW: f64 = 10.0;
const SEGMENT: u32 = 1_448;

/// What is known of a transfer in one direction.
pub(crate) struct Facts {
    pub(crate) direction: Direction,
    /// The state that took most of the time.
    pub(crate) held: Stall,
    /// The time of all connections in data that flows or blocked writes, and in waiting for the peer.
    pub(crate) flowing: Duration,
    pub(crate) peer: Duration,
    /// The HEADERS frames that were sent.
    pub(crate) heads: u64,
    /// Of all connections.
    pub(crate) arrivals: Arrivals,
    /// The bytes and the time of the connection that carried most, and its TCP connection.
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) tcp: Option<TcpInfo>,
    pub(crate) round_trip: Option<Duration>,
}

impl Facts {
    /// The cause, and the time that it explains.
    pub(crate) fn judge(&self, spent: Duration) -> (Cause, Duration) {
        match (self.held, self.direction) {
            (Stall::Application, _) => (Cause::ThisSide, spent),
            (Stall::StreamWindow, _) => (Cause::StreamWindow, spent),
            (Stall::ConnectionWindow, _) => (Cause::ConnectionWindow, spent),
            (Stall::StreamCount, _) => (Cause::StreamCount, spent),
            (_, Direction::Receiving) => self.receiving(),
            (_, Direction::Sending) => self.sending(spent),
        }
    }

    /// Data flowed, or the peer was awaited.
    fn receiving(&self) -> (Cause, Duration) {
        let all = self.flowing + self.peer;
        let half = all / 2;
        let arrivals = &self.arrivals;
        let tcp = self.tcp.as_ref().filter(|tcp| tcp.spans(self.round_trip));
        let late = tcp.and_then(TcpInfo::out_of_order_share);
        // Without loss, only the peer explains pauses that are longer than a round trip.
        let silence = match late {
            Some(0.0) => arrivals.silence.max(arrivals.lulls),
            _ => arrivals.silence,
        };
        if silence >= half {
            return (Cause::Peer, silence);
        }
        if arrivals.answers >= half {
            return (Cause::RoundTrips, arrivals.answers);
        }
        let window = tcp
            .map(|tcp| tcp.receive_window)
            .filter(|&window| self.fills(window, 0.7));
        if let Some(window) = window {
            return (Cause::ReceiveBuffer(window), all);
        }
        // Data that flows most of the time fills the path, whatever is lost on it: its queue overflows.
        if self.flowing >= all * 3 / 5 {
            return (Cause::Path, all);
        }
        if tcp.is_some() && self.is_in_slow_start() {
            return (Cause::SlowStart, all);
        }
        if let Some(late) = late.filter(|&late| late >= LEAST_LATE) {
            let cause = match self.lost(late) {
                Some(lost) => Cause::Loss(lost),
                None => Cause::Path,
            };
            return (cause, all);
        }
        if arrivals.bursts >= all * 2 / 5 {
            let bytes = arrivals.burst_bytes / u64::from(arrivals.burst_count.max(1));
            return (Cause::PeerWindow(bytes), all);
        }
        (Cause::PeerOrPath, all)
    }

    /// The path took data, or the peer was awaited.
    fn sending(&self, spent: Duration) -> (Cause, Duration) {
        let tcp = self.tcp.as_ref().filter(|tcp| tcp.spans(self.round_trip));
        if self.held == Stall::Peer {
            // What TCP had not delivered, the peer could not read.
            let is_under_way = tcp.is_some_and(|tcp| tcp.busy >= self.time * 3 / 5);
            if !is_under_way {
                let trips = self.round_trip.unwrap_or_default().as_secs_f64() * self.heads as f64;
                return match trips >= 0.6 * spent.as_secs_f64() {
                    true => (Cause::RoundTrips, spent),
                    false => (Cause::Peer, spent),
                };
            }
        }
        let all = match self.held {
            Stall::Peer => spent,
            _ => self.flowing,
        };
        let Some(tcp) = tcp else {
            return (Cause::Path, all);
        };
        let is_queued = tcp.round_trip > tcp.min_round_trip * 5 / 4;
        let cause = if tcp.receiver_limited >= tcp.busy * 3 / 10 && !tcp.busy.is_zero() {
            Cause::PeerReceiveBuffer(tcp.send_window.unwrap_or(0))
        } else if self.is_held_by_its_buffer(tcp) {
            Cause::SendBuffer(tcp.send_buffer)
        } else if is_queued {
            Cause::Path
        } else if self.is_in_slow_start() {
            Cause::SlowStart
        } else if tcp.sent_again_share() >= LEAST_SENT_AGAIN && tcp.congestion_control.yields_to_loss() {
            Cause::Loss(tcp.sent_again_share())
        } else {
            Cause::Path
        };
        (cause, all)
    }

    /// Whether TCP's send buffer limits what is on its way. The kernel counts that time only for writers that block; it holds
    /// some 0.6 bytes of data for each byte of a full buffer.
    fn is_held_by_its_buffer(&self, tcp: &TcpInfo) -> bool {
        let is_largest = tcp
            .largest_send_buffer
            .is_some_and(|largest| tcp.send_buffer >= largest / 20 * 19);
        let on_its_way = tcp.delivery_rate as f64 * tcp.min_round_trip.as_secs_f64();
        let is_limited = tcp.send_buffer_limited >= tcp.busy * 3 / 10 && !tcp.busy.is_zero();
        is_limited || (is_largest && on_its_way >= 0.5 * tcp.send_buffer as f64)
    }

    /// Whether what was carried in a round trip is at least this part of a window.
    fn fills(&self, window: u64, part: f64) -> bool {
        window > 0 && self.bytes_on_the_way() >= part * window as f64
    }

    /// The bytes that were on their way at a time, on average.
    fn bytes_on_the_way(&self) -> f64 {
        let trip = self.round_trip.unwrap_or_default().as_secs_f64();
        match self.time.is_zero() {
            true => 0.0,
            false => self.bytes as f64 / self.time.as_secs_f64() * trip,
        }
    }

    /// Whether the transfer took no longer than TCP takes to double its window from ten segments on, and half as long again.
    fn is_in_slow_start(&self) -> bool {
        let segments = self.bytes as f64 / f64::from(SEGMENT);
        let rounds = (segments / FIRST_WINDOW + 1.0).log2();
        let trip = self.round_trip.unwrap_or_default().as_secs_f64();
        rounds >= 1.5 && self.time.as_secs_f64() <= 1.6 * (rounds + 1.0) * trip
    }

    /// The part of the packets that was lost, by the part that came out of order: those that are on their way behind a lost
    /// one. None if a congestion control that sends less after a loss could not have kept so much on its way.
    fn lost(&self, late: f64) -> Option<f64> {
        let segments = (self.bytes_on_the_way() / f64::from(SEGMENT)).max(1.0);
        let lost = -(1.0 - late.min(0.999)).ln() / segments;
        // Cubic (RFC 9438 section 5.1) and Reno (RFC 5681), whichever sends more.
        let trip = self.round_trip.unwrap_or_default().as_secs_f64();
        let cubic = 1.17 * (trip / lost.powi(3)).powf(0.25);
        let reno = 1.22 / lost.sqrt();
        (segments <= 2.5 * cubic.max(reno)).then_some(lost)
    }
}
