//! What a transfer waited for: the ledgers of its connections, as a clause for people and as fields for JSON.
//!
//! `get` reports receiving, `put` sending. The clause names the state that took most of the time, its figure, and the
//! option that changes it, if there is one.

use std::time::Duration;

use fullbore::client::Http1Report;
use fullbore::{Client, Ledger, Stall};
use serde::{Serialize, Serializer};

use crate::figures::grouped;

/// A transfer's direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// `get`.
    Receiving,
    /// `put`.
    Sending,
}

/// What the connections of a run waited for, by version of HTTP.
#[derive(Serialize, Debug, Clone)]
pub(crate) struct Waits {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    http2: Option<Http2Waits>,
    #[serde(rename = "http1_1", skip_serializing_if = "Option::is_none")]
    http1: Option<Http1Waits>,
    #[serde(skip)]
    clause: String,
}

/// What all connections of HTTP/2 waited for.
#[derive(Serialize, Debug, Clone)]
struct Http2Waits {
    direction: &'static str,
    connections: usize,
    /// Seconds in each state, without idle time.
    seconds: Seconds,
    /// The state that took most of the time, or its cause.
    held_by: &'static str,
    /// Its share of the time.
    percent: f64,
    /// The windows of this direction, in bytes.
    stream_window: u64,
    connection_window: u64,
    /// The largest window of a stream, in bytes.
    largest_stream_window: u64,
    round_trip_ms: Option<f64>,
    max_concurrent_streams: u32,
    window_updates_sent: u64,
    data_frames_received: u64,
    data_frames_sent: u64,
    #[serde(skip)]
    clause: String,
}

/// What all connections of HTTP/1.1 waited for. They have no windows of HTTP.
#[derive(Serialize, Debug, Clone)]
struct Http1Waits {
    direction: &'static str,
    connections: u64,
    /// Seconds in each state, without idle time.
    seconds: Seconds,
    /// The state that took most of the time.
    held_by: &'static str,
    /// Its share of the time.
    percent: f64,
    #[serde(skip)]
    clause: String,
}

/// The seconds in each state but idle.
#[derive(Debug, Clone)]
struct Seconds(Vec<(&'static str, f64)>);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

fn busy_states() -> impl Iterator<Item = Stall> {
    Stall::ALL.into_iter().filter(|&state| state != Stall::Idle)
}

/// What one stream waited for.
#[derive(Serialize, Debug)]
pub(crate) struct StreamWaits {
    /// Seconds in each state, without idle time.
    seconds: Seconds,
    /// The state that took most of the time.
    held_by: &'static str,
    /// Bytes of DATA payloads, with padding.
    received_bytes: u64,
    /// Its receive window at the end, in bytes.
    stream_window: u32,
}

impl StreamWaits {
    /// What the receiving half waited for.
    pub(crate) fn receiving(report: &fullbore::StreamReport) -> Self {
        let spent = |state| report.receiving.spent(state);
        Self {
            seconds: Seconds::of(spent),
            held_by: busy_states()
                .max_by_key(|&state| spent(state))
                .map_or("idle", name),
            received_bytes: report.received_bytes,
            stream_window: report.receive_window,
        }
    }
}

impl Seconds {
    fn of(spent: impl Fn(Stall) -> Duration) -> Self {
        Self(
            busy_states()
                .map(|state| (name(state), spent(state).as_secs_f64()))
                .collect(),
        )
    }
}

/// The figures of a clause.
struct Figures {
    stream_window: u64,
    connection_window: u64,
    streams: u32,
    round_trip: Option<Duration>,
}

impl Figures {
    /// A window that allows far more than the path carried was not the cause: it was full of data in the buffers of the
    /// path.
    fn cause(&self, held: Stall, bytes: u64, busy: Duration) -> Stall {
        let window = match held {
            Stall::StreamWindow => self.stream_window,
            Stall::ConnectionWindow => self.connection_window,
            _ => return held,
        };
        let trip = self.round_trip.unwrap_or_default().as_nanos();
        // window / trip > 1.5 * bytes / busy
        let roomy = u128::from(window) * busy.as_nanos() * 2 > u128::from(bytes) * trip * 3;
        match roomy && trip > 0 {
            true => Stall::Moving,
            false => held,
        }
    }
}

impl Waits {
    /// The waits of a client; `None` when its connections were idle.
    pub(crate) async fn of(direction: Direction, client: &Client) -> Option<Self> {
        let http2 = Http2Waits::of(direction, &client.reports().await);
        let http1 = client.http1_report();
        let http1 = http1.and_then(|report| Http1Waits::of(direction, &report));
        let clauses = [
            http2.as_ref().map(|waits| waits.clause.clone()),
            http1.as_ref().map(|waits| waits.clause.clone()),
        ];
        let clauses: Vec<String> = clauses.into_iter().flatten().collect();
        (!clauses.is_empty()).then(|| Self {
            http2,
            http1,
            clause: clauses.join("; "),
        })
    }

    /// The clause for the closing line.
    pub(crate) fn clause(&self) -> &str {
        &self.clause
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Receiving => "receiving",
            Direction::Sending => "sending",
        }
    }
}

impl Http1Waits {
    fn of(direction: Direction, report: &Http1Report) -> Option<Self> {
        let spent = |state| match direction {
            Direction::Receiving => report.receiving(state),
            Direction::Sending => report.sending(state),
        };
        let busy: Duration = busy_states().map(spent).sum();
        let held = busy_states().max_by_key(|&state| spent(state))?;
        if busy.is_zero() {
            return None;
        }
        let percent = 100.0 * spent(held).as_secs_f64() / busy.as_secs_f64();
        Some(Self {
            direction: direction.name(),
            connections: report.connections,
            seconds: Seconds::of(spent),
            held_by: name(held),
            percent,
            clause: http1_clause(direction, held, percent),
        })
    }
}

/// The clause of HTTP/1.1. Nothing tells the path from a server that is slow to send.
fn http1_clause(direction: Direction, state: Stall, percent: f64) -> String {
    let cause = match (state, direction) {
        (Stall::Application, Direction::Receiving) => {
            "limited by this side: the disk or reader is slower than the path"
        }
        (Stall::Application, Direction::Sending) => {
            "limited by this side: the source is slower than the path"
        }
        (Stall::Peer, Direction::Receiving) => "waiting for the server",
        (Stall::Peer, Direction::Sending) => "waiting for the server to respond",
        _ => "limited by the path or the server",
    };
    format!("over HTTP/1.1, {percent:.0} % of the time {cause}")
}

impl Http2Waits {
    /// The waits of a run over these connections; `None` when they were idle.
    fn of(direction: Direction, reports: &[fullbore::Report]) -> Option<Self> {
        let ledger = |report: &fullbore::Report| match direction {
            Direction::Receiving => report.receiving,
            Direction::Sending => report.sending,
        };
        let spent = |state| {
            reports
                .iter()
                .map(|report| ledger(report).spent(state))
                .sum::<Duration>()
        };
        let busy: Duration = reports.iter().map(|report| Ledger::busy(&ledger(report))).sum();
        let last = reports.last()?;
        let held = busy_states().max_by_key(|&state| spent(state))?;
        if busy.is_zero() {
            return None;
        }
        let data = |report: &fullbore::Report| match direction {
            Direction::Receiving => report.stats.received_data_bytes,
            Direction::Sending => report.stats.sent_data_bytes,
        };
        let bytes: u64 = reports.iter().map(data).sum();
        let percent = 100.0 * spent(held).as_secs_f64() / busy.as_secs_f64();
        let round_trip = reports
            .iter()
            .filter_map(|report| report.stats.round_trip.minimum())
            .min();
        let (stream, connection) = match direction {
            Direction::Receiving => (last.stream_receive_window, u64::from(last.receive_window)),
            // Only the rest of a connection's send window is known.
            Direction::Sending => (
                last.stream_send_window,
                u64::try_from(last.send_window).unwrap_or(0),
            ),
        };
        let figures = Figures {
            stream_window: u64::from(stream),
            connection_window: connection,
            streams: last.peer_max_concurrent_streams,
            round_trip,
        };
        let cause = figures.cause(held, bytes, busy);
        let frames = |pick: fn(&fullbore::Report) -> u64| reports.iter().map(pick).sum();
        Some(Self {
            direction: direction.name(),
            connections: reports.len(),
            seconds: Seconds::of(spent),
            held_by: name(cause),
            percent,
            stream_window: figures.stream_window,
            connection_window: figures.connection_window,
            largest_stream_window: u64::from(last.largest_stream_receive_window),
            round_trip_ms: round_trip.map(|trip| trip.as_secs_f64() * 1e3),
            max_concurrent_streams: last.peer_max_concurrent_streams,
            window_updates_sent: frames(|report| {
                report.stats.connection_refills + report.stats.stream_refills
            }),
            data_frames_received: frames(|report| report.stats.received_frames.of(fullbore::FrameType::DATA)),
            data_frames_sent: frames(|report| report.stats.sent_frames.of(fullbore::FrameType::DATA)),
            clause: clause(direction, cause, percent, &figures),
        })
    }
}

fn name(state: Stall) -> &'static str {
    match state {
        Stall::Moving => "moving",
        Stall::StreamWindow => "stream_window",
        Stall::ConnectionWindow => "connection_window",
        Stall::StreamCount => "stream_count",
        Stall::Socket => "socket",
        Stall::Application => "application",
        Stall::Peer => "peer",
        _ => "idle",
    }
}

fn clause(direction: Direction, state: Stall, percent: f64, figures: &Figures) -> String {
    let held = format!("{percent:.0} % of the time");
    let receiving = direction == Direction::Receiving;
    match state {
        Stall::Moving | Stall::Socket => format!("{held} limited by the path"),
        Stall::StreamWindow => {
            let allows = allows(figures.stream_window, figures.round_trip);
            let remedy = match receiving {
                true => format!("; try --stream-window {}", larger(figures.stream_window)),
                false => "; only the server can enlarge it".to_owned(),
            };
            format!("{held} limited by the stream window ({allows}){remedy}")
        }
        Stall::ConnectionWindow => match receiving {
            true => {
                let allows = allows(figures.connection_window, figures.round_trip);
                let larger = larger(figures.connection_window);
                format!(
                    "{held} limited by the connection window ({allows}); try --connection-window {larger}"
                )
            }
            false => format!("{held} limited by the connection window; only the server can enlarge it"),
        },
        Stall::StreamCount => format!(
            "{held} limited by the number of streams (the server allows {} at a time{}); try a larger --connections",
            grouped(u64::from(figures.streams)),
            over(figures.round_trip),
        ),
        Stall::Application => match receiving {
            true => format!("{held} limited by this side: the disk or reader is slower than the path"),
            false => format!("{held} limited by this side: the source is slower than the path"),
        },
        _ if receiving => format!("{held} waiting for the server{}", over(figures.round_trip)),
        _ => format!(
            "{held} waiting for the server to read and respond{}",
            over(figures.round_trip)
        ),
    }
}

/// What a window allows over a round trip.
fn allows(window: u64, round_trip: Option<Duration>) -> String {
    let bytes = grouped(window);
    match round_trip {
        Some(trip) if !trip.is_zero() => {
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let rate = window as f64 / 1e6 / trip.as_secs_f64();
            format!("{bytes} B{} allows {rate:.2} MB/s", at(trip))
        }
        _ => format!("{bytes} B"),
    }
}

fn at(trip: Duration) -> String {
    let millis = trip.as_secs_f64() * 1e3;
    match millis >= 10.0 {
        true => format!(" at {millis:.0} ms"),
        false => format!(" at {millis:.1} ms"),
    }
}

fn over(round_trip: Option<Duration>) -> String {
    round_trip.map_or_else(String::new, |trip| {
        format!(", the round trip is{}", at(trip).trim_start_matches(" at"))
    })
}

/// A window worth trying: four times as large, 16 MiB at least.
fn larger(window: u64) -> String {
    let bytes = (window * 4).max(16 << 20).next_power_of_two().min(1 << 30);
    format!("{}MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(direction: Direction, state: Stall) -> String {
        let figures = Figures {
            stream_window: 65_535,
            connection_window: 1 << 20,
            streams: 100,
            round_trip: Some(Duration::from_millis(100)),
        };
        clause(direction, state, 97.2, &figures)
    }

    #[test]
    fn a_clause_names_the_cause_the_figure_and_the_remedy() {
        assert_eq!(
            said(Direction::Receiving, Stall::StreamWindow),
            "97 % of the time limited by the stream window (65,535 B at 100 ms allows 0.66 MB/s); \
             try --stream-window 16MiB"
        );
        assert_eq!(
            said(Direction::Receiving, Stall::ConnectionWindow),
            "97 % of the time limited by the connection window (1,048,576 B at 100 ms allows 10.49 MB/s); \
             try --connection-window 16MiB"
        );
        assert_eq!(
            said(Direction::Receiving, Stall::StreamCount),
            "97 % of the time limited by the number of streams (the server allows 100 at a time, \
             the round trip is 100 ms); try a larger --connections"
        );
        assert!(said(Direction::Sending, Stall::StreamWindow).ends_with("only the server can enlarge it"));
        assert_eq!(
            said(Direction::Receiving, Stall::Peer),
            "97 % of the time waiting for the server, the round trip is 100 ms"
        );
    }

    #[test]
    fn every_state_of_each_direction_has_its_clause() {
        use Direction::{Receiving, Sending};
        for (direction, state, rest) in [
            (Receiving, Stall::Moving, "limited by the path"),
            (Sending, Stall::Socket, "limited by the path"),
            (
                Sending,
                Stall::StreamWindow,
                "limited by the stream window (65,535 B at 100 ms allows 0.66 MB/s); only the server can enlarge it",
            ),
            (
                Sending,
                Stall::ConnectionWindow,
                "limited by the connection window; only the server can enlarge it",
            ),
            (
                Receiving,
                Stall::Application,
                "limited by this side: the disk or reader is slower than the path",
            ),
            (
                Sending,
                Stall::Application,
                "limited by this side: the source is slower than the path",
            ),
            (
                Sending,
                Stall::Peer,
                "waiting for the server to read and respond, the round trip is 100 ms",
            ),
        ] {
            assert_eq!(said(direction, state), format!("97 % of the time {rest}"));
        }
    }

    #[test]
    fn a_clause_about_http_1_names_the_version_and_no_window() {
        for direction in [Direction::Receiving, Direction::Sending] {
            for state in busy_states() {
                let clause = http1_clause(direction, state, 97.2);
                assert!(clause.starts_with("over HTTP/1.1, 97 % of the time "), "{clause}");
                assert!(
                    !clause.contains("window") && !clause.contains("stream"),
                    "{clause}"
                );
            }
        }
    }

    #[test]
    fn a_round_trip_has_a_decimal_below_10_ms_and_is_left_out_while_it_is_unknown() {
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!(over(micros(10_000)), ", the round trip is 10 ms");
        assert_eq!(over(micros(9_900)), ", the round trip is 9.9 ms");
        assert_eq!(over(None), "");
        assert_eq!(
            allows(2_000_000, micros(9_900)),
            "2,000,000 B at 9.9 ms allows 202.02 MB/s"
        );
        for unknown in [None, Some(Duration::ZERO)] {
            assert_eq!(allows(65_535, unknown), "65,535 B");
        }
    }

    #[test]
    fn a_window_worth_trying_is_four_times_as_large_from_16_mib_to_a_gib() {
        for (window, worth) in [
            (65_535, "16MiB"),
            (4 << 20, "16MiB"),
            ((4 << 20) + 1, "32MiB"),
            (8 << 20, "32MiB"),
            (256 << 20, "1024MiB"),
            (1 << 30, "1024MiB"),
        ] {
            assert_eq!(larger(window), worth);
        }
    }

    #[test]
    fn a_window_is_blamed_unless_it_allows_more_than_one_and_a_half_of_what_came() {
        let second = Duration::from_secs(1);
        let cause = |window, round_trip| {
            let figures = Figures {
                stream_window: window,
                connection_window: window,
                streams: 100,
                round_trip,
            };
            let causes = [Stall::StreamWindow, Stall::ConnectionWindow];
            let [stream, connection] = causes.map(|held| figures.cause(held, 1_000_000, second) == held);
            assert_eq!(stream, connection);
            stream
        };
        let trip = Some(Duration::from_millis(100));
        assert!(cause(150_000, trip) && !cause(150_001, trip));
        assert!(cause(1 << 30, None) && cause(1 << 30, Some(Duration::ZERO)));
    }

    #[test]
    fn a_window_with_room_to_spare_is_not_blamed() {
        let figures = Figures {
            stream_window: 48 << 20,
            connection_window: 65_535,
            streams: 100,
            round_trip: Some(Duration::from_millis(100)),
        };
        let second = Duration::from_secs(1);
        assert_eq!(
            figures.cause(Stall::StreamWindow, 100_000_000, second),
            Stall::Moving
        );
        assert_eq!(
            figures.cause(Stall::ConnectionWindow, 650_000, second),
            Stall::ConnectionWindow
        );
        assert_eq!(figures.cause(Stall::Peer, 1, second), Stall::Peer);
    }
}
