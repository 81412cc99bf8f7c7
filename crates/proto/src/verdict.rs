//! What limited connections in one direction, judged by their reports, in words.

use core::fmt;
use core::time::Duration;

use crate::cause::{Cause, Facts, limit_of_each};
use crate::direction::Direction;
use crate::flow::{Arrivals, Ledger, Stall};
use crate::frame::FrameType;
use crate::role::Role;
use crate::stats::Report;
use crate::tcp::TcpInfo;

/// What limited connections in one direction, with its figures. `Display` says it in a clause.
///
/// ```
/// use fullbore_proto::{Config, Connection, Direction, Role, Time, Verdict};
///
/// let connection = Connection::client(Config::default(), Time::ZERO);
/// let report = connection.report(Time::ZERO);
/// assert!(Verdict::of(Role::Client, Direction::Receiving, &[report]).is_none(), "it was idle");
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Verdict {
    /// The role of this endpoint.
    pub role: Role,
    /// The direction.
    pub direction: Direction,
    /// What limited them.
    pub cause: Cause,
    /// The share of the time that was not idle which the cause explains.
    pub percent: f64,
    /// The state that took most of the time.
    pub held: Stall,
    /// The largest window of a stream in this direction so far, in bytes.
    pub stream_window: u64,
    /// The window of a connection in this direction, in bytes; of a send window, the largest so far.
    pub connection_window: u64,
    /// The streams that the peer allows at once.
    pub max_concurrent_streams: u32,
    /// The shortest round trip, if it is known.
    pub round_trip: Option<Duration>,
    /// What the kernel says of the TCP connection that carried most.
    pub tcp: Option<TcpInfo>,
}

impl Verdict {
    /// Judges connections by their reports. None if all were idle.
    pub fn of(role: Role, direction: Direction, reports: &[Report]) -> Option<Self> {
        let ledgers = || reports.iter().map(|report| direction.ledger(report));
        let spent = |state| ledgers().map(|ledger| ledger.spent(state)).sum::<Duration>();
        let busy: Duration = ledgers().map(Ledger::busy).sum();
        let held = Stall::busy().max_by_key(|&state| spent(state))?;
        let last = reports.last()?;
        if busy.is_zero() {
            return None;
        }
        let trips = reports
            .iter()
            .filter_map(|report| report.stats.round_trip.minimum());
        let (stream_window, connection_window) = match direction {
            // Streams grow beyond their initial window.
            Direction::Receiving => (
                last.stream_receive_window
                    .max(last.largest_stream_receive_window)
                    .into(),
                u64::from(last.receive_window),
            ),
            Direction::Sending => (
                last.largest_stream_send_window
                    .max(last.stream_send_window.into()),
                last.largest_send_window,
            ),
        };
        let mut verdict = Verdict {
            role,
            direction,
            cause: Cause::PeerOrPath,
            percent: 0.0,
            held,
            stream_window,
            connection_window,
            max_concurrent_streams: last.peer_max_concurrent_streams,
            round_trip: trips.min(),
            tcp: None,
        };
        let bytes = reports.iter().map(|report| direction.data_bytes(report)).sum();
        let mut flowing = spent(Stall::Moving) + spent(Stall::Socket);
        if verdict.has_room(bytes, busy) {
            verdict.held = Stall::Moving;
            flowing += spent(held);
        }
        let busiest = reports.iter().max_by_key(|report| direction.data_bytes(report))?;
        verdict.tcp = busiest.tcp;
        let has_windows = busiest.has_windows();
        let answered = match has_windows {
            true => verdict.round_trip,
            false => busiest.answered_within,
        };
        let tcp_spans = busiest.tcp.is_some_and(|tcp| tcp.spans(answered));
        // A busy endpoint answers late; the kernel does not. What begins at a proxy is another round trip. Without HTTP/2 it is
        // the only one that is known.
        let measured = busiest.tcp.filter(|_| tcp_spans || !has_windows);
        let measured = measured
            .map(|tcp| tcp.min_round_trip)
            .filter(|trip| !trip.is_zero());
        verdict.round_trip = match (verdict.round_trip, measured) {
            (Some(trip), Some(measured)) => Some(measured.min(trip)),
            (None, Some(measured)) if !has_windows => Some(measured),
            (known, _) => known,
        };
        let facts = Facts {
            direction,
            held: verdict.held,
            flowing,
            peer: spent(Stall::Peer),
            heads: reports
                .iter()
                .map(|report| report.stats.sent_frames.of(FrameType::HEADERS))
                .sum(),
            arrivals: arrivals(reports),
            bytes: direction.data_bytes(busiest),
            time: direction.ledger(busiest).busy(),
            tcp: busiest.tcp,
            tcp_spans,
            has_windows,
            round_trip: verdict.round_trip,
        };
        let (cause, explained) = facts.judge(spent(held));
        verdict.cause = cause;
        if !has_windows && !tcp_spans && !matches!(cause, Cause::ReceiveBuffer(_)) {
            // That of a proxy close by is not the path's.
            verdict.round_trip = None;
        }
        verdict.percent = 100.0 * explained.as_secs_f64() / busy.as_secs_f64();
        Some(verdict)
    }

    /// The verdict with what further connections have shown of one that carried `alone` bytes a second: `connections` of them
    /// carried `together`. If each carried as much, without loss, there is a limit on each.
    #[must_use]
    pub fn with_further(mut self, alone: u64, together: u64, connections: usize) -> Self {
        let limit = limit_of_each(self.cause, alone, together, connections);
        self.cause = limit.unwrap_or(self.cause);
        self
    }

    /// Whether the window that is blamed allows far more than the path carried. Then it was not the cause: it was full of data
    /// in the buffers of the path. A receiver that refills at half of its window may use no more than half of it in each
    /// round trip, so "far more" is more than twice as much.
    fn has_room(&self, bytes: u64, busy: Duration) -> bool {
        let window = match self.held {
            Stall::StreamWindow => self.stream_window,
            Stall::ConnectionWindow => self.connection_window,
            _ => return false,
        };
        let trip = self.round_trip.unwrap_or_default().as_nanos();
        // window / trip > 2.5 * bytes / busy
        trip > 0 && u128::from(window) * busy.as_nanos() * 2 > u128::from(bytes) * trip * 5
    }

    fn peer(&self) -> &'static str {
        match self.role {
            Role::Client => "the server",
            Role::Server => "the client",
        }
    }

    /// What a window allows over a round trip.
    fn allows(&self, window: u64) -> String {
        let bytes = grouped(window);
        match self.round_trip {
            // The stacks at both ends need longer for that.
            Some(trip) if trip >= SHORT => {
                #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
                let rate = window as f64 / 1e6 / trip.as_secs_f64();
                format!("{bytes} B at {} allows {rate:.2} MB/s", millis(trip))
            }
            _ => format!("{bytes} B"),
        }
    }

    /// The round trip, behind a comma.
    fn over(&self) -> String {
        match self.round_trip {
            Some(trip) if trip >= SHORT => format!(", the round trip is {}", millis(trip)),
            Some(_) => ", the round trip is below 1 ms".to_owned(),
            None => String::new(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let receiving = self.direction == Direction::Receiving;
        let peer = self.peer();
        write!(f, "{:.0} % of the time ", self.percent)?;
        match self.cause {
            Cause::StreamWindow => {
                let allows = self.allows(self.stream_window);
                write!(f, "limited by the stream window ({allows})")?;
                match receiving {
                    true => Ok(()),
                    false => write!(f, "; only {peer} can enlarge it"),
                }
            }
            Cause::ConnectionWindow => {
                let allows = self.allows(self.connection_window);
                match receiving {
                    true => write!(f, "limited by the connection window ({allows})"),
                    false => write!(f, "limited by the connection window; only {peer} can enlarge it"),
                }
            }
            Cause::StreamCount => {
                let streams = grouped(u64::from(self.max_concurrent_streams));
                let over = self.over();
                write!(
                    f,
                    "limited by the number of streams ({peer} allows {streams} at a time{over})"
                )
            }
            Cause::ThisSide if receiving => {
                f.write_str("limited by this side: the disk or reader is slower than the path")
            }
            Cause::ThisSide => f.write_str("limited by this side: the source is slower than the path"),
            Cause::ConnectionLimit(rate) => {
                #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
                let rate = rate as f64 / 1e6;
                write!(
                    f,
                    "limited on each connection to about {rate:.1} MB/s, as further ones have shown: by the path, or by {peer}"
                )
            }
            Cause::Path if self.round_trip.is_some_and(|trip| trip < SHORT) => {
                f.write_str("limited by the processors or the path: the round trip is below 1 ms")
            }
            Cause::Path => f.write_str("limited by the path"),
            Cause::RoundTrips => write!(
                f,
                "waiting for responses: each takes a round trip{}",
                self.of_trip()
            ),
            Cause::Peer if receiving => write!(f, "waiting for {peer}{}", self.over()),
            Cause::Peer => write!(f, "waiting for {peer} to read and respond{}", self.over()),
            Cause::PeerOrPath => write!(f, "waiting for {peer} or the path{}", self.over()),
            _ => self.write_tcp(f),
        }
    }
}

impl Verdict {
    /// The causes that are TCP's.
    fn write_tcp(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = self.peer();
        match self.cause {
            Cause::ReceiveBuffer(window) => {
                let info = self.tcp.unwrap_or_default();
                let buffer = (info.receive_buffer, info.largest_receive_buffer);
                write!(
                    f,
                    "limited by TCP's receive buffer here ({})",
                    self.allows(window)
                )?;
                raise(f, "net.ipv4.tcp_rmem", buffer)
            }
            Cause::SendBuffer(bytes) => {
                let largest = self.tcp.unwrap_or_default().largest_send_buffer;
                write!(
                    f,
                    "limited by TCP's send buffer here ({} B{})",
                    grouped(bytes),
                    self.over()
                )?;
                raise(f, "net.ipv4.tcp_wmem", (bytes, largest))
            }
            Cause::PeerReceiveBuffer(window) => write!(
                f,
                "limited by TCP's receive window of {peer} ({}): its buffer is too small, or it reads slowly",
                self.allows(window)
            ),
            Cause::PeerWindow(bytes) => write!(
                f,
                "limited by a window at {peer}, TCP's send buffer (net.ipv4.tcp_wmem there) or its own (about {})",
                self.allows(bytes)
            ),
            Cause::SlowStart => write!(
                f,
                "limited by the slow start of TCP: the transfer ended before it filled a path with a round trip{}",
                self.of_trip()
            ),
            Cause::Loss(part) => self.write_loss(f, 100.0 * part),
            _ => Ok(()),
        }
    }

    fn write_loss(&self, f: &mut fmt::Formatter<'_>, percent: f64) -> fmt::Result {
        match self.direction {
            Direction::Receiving => write!(
                f,
                "limited by lost packets (about {percent:.2} %): TCP at {} slows down for each; the path loses them, or \
                 limits the rate of each connection",
                self.peer()
            ),
            Direction::Sending => write!(
                f,
                "limited by lost packets ({percent:.2} % sent again): {} slows down for each; the path loses them, or \
                 limits the rate of each connection",
                self.tcp
                    .as_ref()
                    .map_or("TCP", |tcp| tcp.congestion_control.name())
            ),
        }
    }

    /// The round trip behind the words "a round trip".
    fn of_trip(&self) -> String {
        let trip = self.round_trip;
        trip.filter(|&trip| trip >= SHORT)
            .map_or_else(String::new, |trip| format!(" of {}", millis(trip)))
    }
}

/// A round trip below this is one of a machine or a local network. What a window allows in it says nothing: the processors at both
/// ends are slower.
const SHORT: Duration = Duration::from_millis(1);

/// How data arrived at all connections.
fn arrivals(reports: &[Report]) -> Arrivals {
    let mut all = Arrivals::default();
    for Report { arrivals, .. } in reports {
        all.bursts += arrivals.bursts;
        all.burst_count += arrivals.burst_count;
        all.burst_bytes += arrivals.burst_bytes;
        all.answers += arrivals.answers;
        all.silence += arrivals.silence;
        all.lulls += arrivals.lulls;
    }
    all
}

/// The setting that lets a buffer grow, if it has the size that this allows: four times as much is worth trying.
fn raise(f: &mut fmt::Formatter<'_>, setting: &str, (size, largest): (u64, Option<u64>)) -> fmt::Result {
    match largest {
        Some(largest) if size >= largest / 20 * 19 => {
            let worth = (largest * 4).next_power_of_two();
            write!(f, "; try a maximum of {worth} in {setting}")
        }
        _ => Ok(()),
    }
}

fn millis(trip: Duration) -> String {
    let millis = trip.as_secs_f64() * 1e3;
    match millis >= 10.0 {
        true => format!("{millis:.0} ms"),
        false => format!("{millis:.1} ms"),
    }
}

/// A number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Connection, Time};

    fn verdict(direction: Direction, cause: Cause) -> Verdict {
        Verdict {
            role: Role::Client,
            direction,
            cause,
            held: Stall::Moving,
            percent: 97.2,
            stream_window: 65_535,
            connection_window: 1 << 20,
            max_concurrent_streams: 1_100,
            round_trip: Some(Duration::from_millis(100)),
            tcp: None,
        }
    }

    #[test]
    fn every_cause_of_each_direction_has_its_clause() {
        use Direction::{Receiving, Sending};
        for (direction, state, rest) in [
            (Receiving, Cause::Path, "limited by the path"),
            (Sending, Cause::Path, "limited by the path"),
            (
                Receiving,
                Cause::ConnectionLimit(2_480_000),
                "limited on each connection to about 2.5 MB/s, as further ones have shown: by the path, or by the server",
            ),
            (
                Receiving,
                Cause::StreamWindow,
                "limited by the stream window (65,535 B at 100 ms allows 0.66 MB/s)",
            ),
            (
                Sending,
                Cause::StreamWindow,
                "limited by the stream window (65,535 B at 100 ms allows 0.66 MB/s); only the server can enlarge it",
            ),
            (
                Receiving,
                Cause::ConnectionWindow,
                "limited by the connection window (1,048,576 B at 100 ms allows 10.49 MB/s)",
            ),
            (
                Sending,
                Cause::ConnectionWindow,
                "limited by the connection window; only the server can enlarge it",
            ),
            (
                Sending,
                Cause::StreamCount,
                "limited by the number of streams (the server allows 1,100 at a time, the round trip is 100 ms)",
            ),
            (
                Receiving,
                Cause::ThisSide,
                "limited by this side: the disk or reader is slower than the path",
            ),
            (
                Sending,
                Cause::ThisSide,
                "limited by this side: the source is slower than the path",
            ),
            (
                Receiving,
                Cause::Peer,
                "waiting for the server, the round trip is 100 ms",
            ),
            (
                Sending,
                Cause::Peer,
                "waiting for the server to read and respond, the round trip is 100 ms",
            ),
        ] {
            let said = verdict(direction, state).to_string();
            assert_eq!(said, format!("97 % of the time {rest}"));
        }
    }

    #[test]
    fn a_server_waits_for_its_client() {
        let mut verdict = verdict(Direction::Sending, Cause::ConnectionWindow);
        verdict.role = Role::Server;
        assert!(verdict.to_string().ends_with("only the client can enlarge it"));
    }

    #[test]
    fn a_round_trip_has_a_decimal_below_10_ms_and_is_left_out_while_it_is_unknown() {
        let over = |micros: Option<u64>| {
            let mut verdict = verdict(Direction::Receiving, Cause::Peer);
            verdict.round_trip = micros.map(Duration::from_micros);
            (verdict.over(), verdict.allows(2_000_000))
        };
        assert_eq!(over(Some(10_000)).0, ", the round trip is 10 ms");
        assert_eq!(over(Some(9_900)).0, ", the round trip is 9.9 ms");
        assert_eq!(over(Some(9_900)).1, "2,000,000 B at 9.9 ms allows 202.02 MB/s");
        assert_eq!(over(None), (String::new(), "2,000,000 B".to_owned()));
        for micros in [0, 1, 999] {
            assert_eq!(
                over(Some(micros)),
                (
                    ", the round trip is below 1 ms".to_owned(),
                    "2,000,000 B".to_owned()
                )
            );
        }
        let mut verdict = verdict(Direction::Receiving, Cause::Path);
        verdict.round_trip = Some(Duration::from_micros(40));
        assert!(
            verdict
                .to_string()
                .ends_with("limited by the processors or the path: the round trip is below 1 ms")
        );
    }

    #[test]
    fn a_window_is_blamed_unless_it_allows_more_than_two_and_a_half_times_what_came() {
        let second = Duration::from_secs(1);
        for cause in [Stall::StreamWindow, Stall::ConnectionWindow] {
            let has_room = |window, trip: Option<u64>| {
                let mut verdict = verdict(Direction::Receiving, Cause::Path);
                verdict.held = cause;
                (verdict.stream_window, verdict.connection_window) = (window, window);
                verdict.round_trip = trip.map(Duration::from_millis);
                verdict.has_room(1_000_000, second)
            };
            assert!(!has_room(250_000, Some(100)) && has_room(250_001, Some(100)));
            assert!(!has_room(1 << 30, None) && !has_room(1 << 30, Some(0)));
        }
        assert!(!verdict(Direction::Receiving, Cause::Peer).has_room(1, second));
    }

    #[test]
    fn the_receive_window_of_streams_is_the_largest_that_one_had() {
        let mut report = Connection::client(Config::default(), Time::ZERO).report(Time::ZERO);
        report.receiving.settle(Stall::StreamWindow, Time::from_nanos(1));
        for (initial, largest, named) in [(97_000, 500_000, 500_000), (97_000, 0, 97_000)] {
            report.stream_receive_window = initial;
            report.largest_stream_receive_window = largest;
            let verdict = Verdict::of(Role::Client, Direction::Receiving, &[report]);
            assert_eq!(verdict.map(|verdict| verdict.stream_window), Some(named));
        }
    }

    #[test]
    fn what_took_most_of_the_busy_time_is_blamed_with_its_share() {
        let mut report = Connection::client(Config::default(), Time::ZERO).report(Time::ZERO);
        let after = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        // Idle for five seconds, then busy for four.
        for (state, until) in [(Stall::Idle, 5), (Stall::Peer, 6), (Stall::Application, 9)] {
            report.receiving.settle(state, after(until));
            report.sending.settle(Stall::Idle, after(until));
        }
        let of = |direction, reports: &[Report]| Verdict::of(Role::Client, direction, reports);
        let verdict = of(Direction::Receiving, &[report]).expect("it was busy");
        assert_eq!(verdict.held, Stall::Application);
        assert!((verdict.percent - 75.0).abs() < 1e-9, "{}", verdict.percent);
        assert_eq!(verdict.round_trip, None);
        assert!(of(Direction::Sending, &[report]).is_none(), "it sent nothing");
        assert!(of(Direction::Receiving, &[]).is_none());
        // Two connections are judged together.
        let mut other = report;
        other.receiving.settle(Stall::Peer, after(14));
        let verdict = of(Direction::Receiving, &[report, other]).expect("both were busy");
        assert_eq!(verdict.held, Stall::Peer);
        assert!(
            (verdict.percent - 700.0 / 13.0).abs() < 1e-9,
            "{}",
            verdict.percent
        );
    }

    #[test]
    fn a_window_that_allows_far_more_than_what_was_sent_leaves_the_blame_to_the_path() {
        let mut report = Connection::client(Config::default(), Time::ZERO).report(Time::ZERO);
        let after = |millis: u64| Time::from_nanos(millis * 1_000_000);
        report.stats.round_trip.sample(Time::ZERO, after(100));
        report.sending.settle(Stall::ConnectionWindow, after(1_000));
        report.stats.sent_data_bytes = 1_000_000;
        for (window, cause) in [(250_000, Stall::ConnectionWindow), (250_001, Stall::Moving)] {
            report.largest_send_window = window;
            let verdict = Verdict::of(Role::Client, Direction::Sending, &[report]).expect("it was busy");
            assert_eq!(verdict.held, cause, "{window}");
            assert_eq!(verdict.connection_window, window);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
