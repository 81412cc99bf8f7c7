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
    /// A limit on each connection, of so many bytes a second: further ones have brought as much each, and nothing was lost. The path
    /// shapes each flow, or the peer each response.
    ConnectionLimit(u64),
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
            Cause::ConnectionLimit(_) => "connection_limit",
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

/// The bytes on the way that Linux allows with its stock send buffer of 4 MiB, on average and with the start of a transfer.
const STOCK_SEND_BUFFER: core::ops::Range<f64> = 1.9e6..3.0e6;

/// Further connections bring their full share if each of all carries this part of what one carried. It may be more: many limits
/// let the first bytes pass.
const FULL_SHARE: f64 = 0.85;

/// What `connections` connections that carry `together` bytes a second show of one that carried `alone`.
pub(crate) fn limit_of_each(cause: Cause, alone: u64, together: u64, connections: usize) -> Option<Cause> {
    // Losses slow down each connection, too. Which of the two it is remains unknown: the sentence about them says so.
    let is_open = matches!(cause, Cause::Path | Cause::Peer | Cause::PeerOrPath);
    let share = together as f64 / connections.max(1) as f64 / alone.max(1) as f64;
    (is_open && connections > 1 && share >= FULL_SHARE).then_some(Cause::ConnectionLimit(alone))
}

/// Whether the part of the packets that was lost explains how much was on its way.
enum Lost {
    Fits(f64),
    /// So few lost packets would allow far more.
    TooLittle,
    /// So many would have a congestion control that sends less after a loss allow far less.
    Unheeded,
}

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
    /// Whether that is the whole path: no proxy close by ends it.
    pub(crate) tcp_spans: bool,
    /// Whether its flow control shows a peer that is slow to read. That of HTTP/1.1 is TCP's.
    pub(crate) has_windows: bool,
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
        // Over HTTP/1.1 the round trip is that of TCP. What this has lost is known, whatever lies beyond.
        let tcp = self.tcp.as_ref().filter(|_| self.tcp_spans || !self.has_windows);
        let late = tcp.and_then(TcpInfo::out_of_order_share);
        // Without loss, only the peer explains pauses that are longer than a round trip.
        let silence = match late {
            Some(0.0) if self.tcp_spans => arrivals.silence.max(arrivals.lulls),
            _ => arrivals.silence,
        };
        if silence >= half {
            return (Cause::Peer, self.peer);
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
            match self.lost(late) {
                Lost::Fits(lost) => return (Cause::Loss(lost), all),
                Lost::TooLittle => {}
                Lost::Unheeded => return (Cause::Path, all),
            }
        }
        // Without loss, a path has no such pauses.
        if tcp.is_some() && STOCK_SEND_BUFFER.contains(&self.bytes_on_the_way()) {
            return (Cause::PeerWindow(self.bytes_on_the_way() as u64), all);
        }
        if arrivals.bursts >= all * 2 / 5 {
            let bytes = arrivals.burst_bytes / u64::from(arrivals.burst_count.max(1));
            return (Cause::PeerWindow(bytes), all);
        }
        (Cause::PeerOrPath, all)
    }

    /// The path took data, or the peer was awaited.
    fn sending(&self, spent: Duration) -> (Cause, Duration) {
        let tcp = self.tcp.as_ref().filter(|_| self.tcp_spans);
        if tcp.is_none() && !self.has_windows {
            // The buffers of a proxy hide how fast the peer reads.
            return (Cause::PeerOrPath, spent.max(self.flowing));
        }
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
        let is_queued = |tenths| tcp.round_trip > tcp.min_round_trip * tenths / 10;
        let cause = if tcp.receiver_limited >= tcp.busy * 3 / 10 && !tcp.busy.is_zero() {
            Cause::PeerReceiveBuffer(tcp.send_window.unwrap_or(0))
        } else if self.is_held_by_its_buffer(tcp) {
            Cause::SendBuffer(tcp.send_buffer)
        } else if self.is_in_slow_start() && !is_queued(14) {
            // Bursts of it queue for a moment.
            Cause::SlowStart
        } else if is_queued(11) {
            Cause::Path
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
    /// one. A congestion control that sends less after a loss keeps about as much on its way as its formula says.
    fn lost(&self, late: f64) -> Lost {
        let segments = (self.bytes_on_the_way() / f64::from(SEGMENT)).max(1.0);
        let lost = -(1.0 - late.min(0.999)).ln() / segments;
        // Cubic (RFC 9438 section 5.1) and Reno (RFC 5681), whichever sends more.
        let trip = self.round_trip.unwrap_or_default().as_secs_f64();
        let cubic = 1.17 * (trip / lost.powi(3)).powf(0.25);
        let reno = 1.22 / lost.sqrt();
        match segments / cubic.max(reno) {
            share if share < 0.2 => Lost::TooLittle,
            share if share > 2.5 => Lost::Unheeded,
            _ => Lost::Fits(lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::CongestionControl;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// TCP over a path of 100 ms that nothing disturbs.
    fn tcp(change: impl FnOnce(&mut TcpInfo)) -> TcpInfo {
        let mut info = TcpInfo {
            round_trip: seconds(0.1004),
            min_round_trip: seconds(0.1),
            congestion_control: CongestionControl::from(&b"cubic"[..]),
            received_segments: 46_000,
            out_of_order_segments: Some(0),
            receive_window: 3_930_752,
            send_window: Some(3_932_160),
            send_buffer: 4_194_304,
            largest_send_buffer: Some(4_194_304),
            ..TcpInfo::default()
        };
        change(&mut info);
        info
    }

    /// A download of so many bytes, for so many seconds each in data that flows and in waiting.
    fn download(bytes: u64, flowing: f64, peer: f64, tcp: Option<TcpInfo>) -> Facts {
        Facts {
            direction: Direction::Receiving,
            held: Stall::Peer,
            flowing: seconds(flowing),
            peer: seconds(peer),
            heads: 1,
            arrivals: Arrivals::default(),
            bytes,
            time: seconds(flowing + peer),
            tcp,
            tcp_spans: tcp.is_some_and(|tcp| tcp.spans(Some(seconds(0.1)))),
            has_windows: true,
            round_trip: Some(seconds(0.1)),
        }
    }

    /// An upload that waited for its socket.
    fn upload(bytes: u64, time: f64, tcp: Option<TcpInfo>) -> Facts {
        Facts {
            direction: Direction::Sending,
            held: Stall::Socket,
            ..download(bytes, time, 0.0, tcp)
        }
    }

    #[track_caller]
    fn named(facts: &Facts) -> &'static str {
        facts.judge(facts.time).0.name()
    }

    fn late(segments: u64) -> impl FnOnce(&mut TcpInfo) {
        move |info| info.out_of_order_segments = Some(segments)
    }

    // The figures are those of paths of packets between two kernels (docs/design/paths.md).

    #[test]
    fn downloads_over_packets_have_their_causes() {
        let mib = |count: u64| count << 20;
        for (cause, facts) in [
            ("path", download(mib(64), 5.2, 1.1, Some(tcp(late(2_900))))),
            ("loss", download(mib(16), 2.4, 19.8, Some(tcp(late(3_600))))),
            ("loss", download(mib(16), 1.9, 6.0, Some(tcp(late(5_800))))),
            // A sender that does not yield keeps the path full, with holes in all that arrives.
            ("path", download(mib(64), 0.5, 8.0, Some(tcp(late(45_000))))),
            ("peer_window", download(mib(256), 5.2, 5.5, Some(tcp(|_| ())))),
            (
                "tcp_receive_buffer",
                download(mib(64), 8.9, 2.0, Some(tcp(|info| info.receive_window = 653_952))),
            ),
            ("slow_start", download(mib(1), 0.1, 0.6, Some(tcp(|_| ())))),
            ("peer_or_path", download(mib(16), 1.0, 9.0, Some(tcp(|_| ())))),
            // So few losses would allow twenty times as much.
            ("peer_or_path", download(mib(143), 2.0, 8.0, Some(tcp(late(51))))),
        ] {
            assert_eq!(named(&facts), cause, "{} B in {:?}", facts.bytes, facts.time);
        }
    }

    #[test]
    fn a_limit_on_each_connection_is_one_that_further_ones_have_too() {
        let limit = |cause, together, connections| {
            limit_of_each(cause, 2_000_000, together, connections).map(|cause| cause.name())
        };
        for cause in [Cause::Path, Cause::Peer, Cause::PeerOrPath] {
            assert_eq!(limit(cause, 16_000_000, 8), Some("connection_limit"));
            // They fill the link.
            assert_eq!(limit(cause, 12_000_000, 8), None);
        }
        assert_eq!(limit(Cause::Path, 2_000_000, 1), None);
        // These explain it, or may.
        let known = [
            Cause::Loss(0.001),
            Cause::PeerWindow(2_000_000),
            Cause::ThisSide,
            Cause::StreamWindow,
        ];
        assert!(known.iter().all(|&cause| limit(cause, 16_000_000, 8).is_none()));
    }

    #[test]
    fn tcp_that_ends_at_a_proxy_is_no_evidence() {
        let near = |info: &mut TcpInfo| {
            info.min_round_trip = seconds(0.000_1);
            info.out_of_order_segments = Some(9_000);
            info.receive_window = 100_000;
        };
        assert_eq!(
            named(&download(16 << 20, 2.0, 8.0, Some(tcp(near)))),
            "peer_or_path"
        );
        assert_eq!(named(&download(16 << 20, 2.0, 8.0, None)), "peer_or_path");
        assert_eq!(named(&download(1 << 20, 0.1, 0.6, None)), "peer_or_path");
        assert_eq!(named(&download(16 << 20, 8.0, 2.0, None)), "path");
        assert_eq!(named(&upload(16 << 20, 8.0, None)), "path");
    }

    #[test]
    fn a_window_at_the_sender_is_known_by_its_rhythm() {
        let mut facts = download(16 << 20, 1.0, 9.0, None);
        facts.arrivals.bursts = seconds(4.1);
        (facts.arrivals.burst_count, facts.arrivals.burst_bytes) = (41, 41 * 160_000);
        assert_eq!(facts.judge(facts.time).0, Cause::PeerWindow(160_000));
        facts.arrivals.bursts = seconds(3.9);
        assert_eq!(named(&facts), "peer_or_path");
    }

    #[test]
    fn a_peer_is_named_for_silence_that_nothing_else_explains() {
        let silent = |change: fn(&mut Facts), tcp| {
            let mut facts = download(4 << 20, 1.0, 9.0, tcp);
            change(&mut facts);
            named(&facts)
        };
        let silence: fn(&mut Facts) = |facts| facts.arrivals.silence = seconds(6.0);
        let lulls: fn(&mut Facts) = |facts| facts.arrivals.lulls = seconds(6.0);
        let answers: fn(&mut Facts) = |facts| facts.arrivals.answers = seconds(6.0);
        assert_eq!(silent(silence, None), "peer");
        assert_eq!(silent(answers, None), "round_trips");
        // What TCP repairs takes as long as the lulls of an application.
        assert_eq!(silent(lulls, None), "peer_or_path");
        assert_eq!(silent(lulls, Some(tcp(|_| ()))), "peer");
        assert_ne!(silent(lulls, Some(tcp(late(500)))), "peer");
    }

    #[test]
    fn uploads_over_packets_have_their_causes() {
        let sent = |again: u64, change: fn(&mut TcpInfo)| {
            Some(tcp(|info| {
                (info.sent_bytes, info.sent_again_bytes) = (16 << 20, again);
                info.busy = seconds(6.0);
                change(info);
            }))
        };
        let queue: fn(&mut TcpInfo) = |info| info.round_trip = seconds(0.121);
        let bbr: fn(&mut TcpInfo) = |info| info.congestion_control = CongestionControl::from(&b"bbr"[..]);
        let closed: fn(&mut TcpInfo) = |info| info.receiver_limited = seconds(5.0);
        let full: fn(&mut TcpInfo) = |info| info.delivery_rate = 28_300_000;
        for (cause, tcp) in [
            ("path", sent(80_000, queue)),
            ("loss", sent(11_584, |_| ())),
            ("path", sent(1_091_520, bbr)),
            ("peer_tcp_receive_buffer", sent(0, closed)),
            ("tcp_send_buffer", sent(0, full)),
            ("path", sent(0, |_| ())),
        ] {
            assert_eq!(named(&upload(16 << 20, 6.0, tcp)), cause, "{tcp:?}");
        }
        let short = upload(2 << 20, 0.9, sent(0, |_| ()));
        assert_eq!(named(&short), "slow_start");
        for (trip, cause) in [(0.12, "slow_start"), (0.15, "path")] {
            let mut info = tcp(|_| ());
            info.round_trip = seconds(trip);
            assert_eq!(named(&upload(2 << 20, 0.9, Some(info))), cause);
        }
    }

    #[test]
    fn an_upload_that_tcp_still_carries_does_not_wait_for_the_server() {
        let waits = |busy: f64, heads| {
            let info = tcp(|info| info.busy = seconds(busy));
            named(&Facts {
                held: Stall::Peer,
                heads,
                ..upload(900_000, 5.0, Some(info))
            })
        };
        assert_eq!(waits(0.2, 1), "peer");
        assert_eq!(waits(4.9, 1), "path");
        assert_eq!(waits(0.2, 40), "round_trips");
    }
}
