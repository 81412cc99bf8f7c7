//! What a transfer waited for: the ledgers of its connections, as a clause for people and as fields for JSON.
//!
//! `get` reports receiving, `put` sending. The clause is the engine's verdict: the state that took most of the time and its
//! figure. Here it gets the option that changes it, if there is one.

use std::time::Duration;

use fullbore::Client;
use fullbore::client::{DownloadReport, Http1Report};
pub(crate) use fullbore::stats::Direction;
use fullbore::stats::{Cause, Stall, Verdict};
use serde::{Serialize, Serializer};

use super::tcp_waits::{Arrivals, TcpWaits};
use crate::args::ConnectionArgs;
use crate::transfer::output::has_verdict;

/// What the connections of a run waited for, by version of HTTP.
#[derive(Serialize, Debug, Clone)]
pub(crate) struct Waits {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    http2: Option<Http2Waits>,
    #[serde(rename = "http1_1", skip_serializing_if = "Option::is_none")]
    http1: Option<Http1Waits>,
    #[serde(skip)]
    speaks_http1: bool,
    /// `--limit-rate`.
    #[serde(skip)]
    limit_rate: Option<u64>,
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
    /// The state that took most of the time.
    held_by: &'static str,
    /// What limited the transfer.
    cause: &'static str,
    /// The share of the time that it explains.
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
    /// How data arrived at the connection that carried most.
    arrivals: Option<Arrivals>,
    /// What the kernel says of the TCP connection that carried most.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpWaits>,
    /// The verdict in words.
    #[serde(rename = "sentence")]
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
    /// What limited the transfer.
    cause: &'static str,
    /// The share of the time that it explains.
    percent: f64,
    round_trip_ms: Option<f64>,
    /// What the kernel says of the TCP connection that carried most.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpWaits>,
    /// The verdict in words.
    #[serde(rename = "sentence")]
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
    pub(crate) fn receiving(report: &fullbore::stats::StreamReport) -> Self {
        let spent = |state| report.receiving.spent(state);
        Self {
            seconds: Seconds::of(spent),
            held_by: Stall::busy()
                .max_by_key(|&state| spent(state))
                .map_or("idle", Stall::name),
            received_bytes: report.received_bytes,
            stream_window: report.receive_window,
        }
    }
}

impl Seconds {
    fn of(spent: impl Fn(Stall) -> Duration) -> Self {
        Self(
            Stall::busy()
                .map(|state| (state.name(), spent(state).as_secs_f64()))
                .collect(),
        )
    }
}

impl Waits {
    /// The waits of a client; `None` when its connections were idle. `set` is what the user has set.
    pub(crate) async fn of(direction: Direction, client: &Client, set: Set) -> Option<Self> {
        let report = client.http1_report();
        let speaks_http1 = report.is_some();
        let mut connections = client.reports().await;
        // A server of HTTP/1.1 was asked in HTTP/2 first. That connection may not have ended yet, and carried nothing.
        connections.retain(|one| {
            !speaks_http1 || one.stats.received_frames.of(fullbore::stats::FrameType::SETTINGS) > 0
        });
        let http2 = Http2Waits::of(direction, &connections, set);
        let http1 = report.and_then(|report| Http1Waits::of(direction, &report, set));
        let clauses = [
            http2.as_ref().map(|waits| waits.clause.clone()),
            http1.as_ref().map(|waits| waits.clause.clone()),
        ];
        let clauses: Vec<String> = clauses.into_iter().flatten().collect();
        (speaks_http1 || !clauses.is_empty()).then(|| Self {
            http2,
            http1,
            speaks_http1,
            limit_rate: set.limit_rate,
            clause: clauses.join("; "),
        })
    }

    /// The verdict, of a run of any length.
    pub(crate) fn sentence(&self) -> &str {
        &self.clause
    }

    /// The clause for the closing line of a run that moved so much. Without a verdict it says only that HTTP/1.1 was spoken.
    pub(crate) fn clause(&self, bytes: u64, seconds: f64) -> Option<&str> {
        let has_verdict = has_verdict(bytes, seconds) && !self.clause.is_empty();
        match (has_verdict, self.speaks_http1) {
            // Whatever the ledgers name waited for it.
            (true, _) if self.is_at_its_limit(bytes, seconds) => Some("limited by --limit-rate"),
            (true, _) => Some(&self.clause),
            (false, true) => Some("over HTTP/1.1"),
            (false, false) => None,
        }
    }

    /// Whether the rate is that of `--limit-rate`, which is met up to the time that connecting takes.
    fn is_at_its_limit(&self, bytes: u64, seconds: f64) -> bool {
        self.limit_rate
            .is_some_and(|limit| bytes as f64 >= 0.8 * limit as f64 * seconds)
    }
}

/// Options that may be the cause of a wait, and what else is known of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Set {
    limit_rate: Option<u64>,
    /// Whether the windows are what fits `--budget`.
    budget: bool,
    /// What further connections of a download have shown.
    further: Option<DownloadReport>,
}

impl Set {
    pub(crate) fn by(args: &ConnectionArgs) -> Self {
        let path = &args.path;
        Self {
            limit_rate: args.network.limit_rate,
            budget: path.budget.is_some() && path.stream_window.or(path.connection_window).is_none(),
            further: None,
        }
    }

    /// Further connections of a download have shown this.
    pub(crate) fn with_further(self, further: Option<DownloadReport>) -> Self {
        Self { further, ..self }
    }

    fn refine(&self, verdict: Verdict) -> Verdict {
        self.further.map_or(verdict, |further| further.refine(verdict))
    }
}

impl Http1Waits {
    fn of(direction: Direction, report: &Http1Report, set: Set) -> Option<Self> {
        let verdict = set.refine(report.verdict(direction)?);
        let spent = |state| match direction {
            Direction::Receiving => report.receiving(state),
            Direction::Sending => report.sending(state),
        };
        Some(Self {
            direction: direction.name(),
            connections: report.connections,
            seconds: Seconds::of(spent),
            held_by: verdict.held.name(),
            cause: verdict.cause.name(),
            percent: verdict.percent,
            round_trip_ms: verdict.round_trip.map(|trip| trip.as_secs_f64() * 1e3),
            tcp: verdict.tcp.as_ref().map(TcpWaits::of),
            clause: format!("over HTTP/1.1, {verdict}"),
        })
    }
}

impl Http2Waits {
    /// The waits of a run over these connections; `None` when they were idle.
    fn of(direction: Direction, reports: &[fullbore::stats::Report], set: Set) -> Option<Self> {
        let verdict = set.refine(Verdict::of(fullbore::stats::Role::Client, direction, reports)?);
        let spent = |state| {
            let ledgers = reports.iter().map(|report| direction.ledger(report));
            ledgers.map(|ledger| ledger.spent(state)).sum::<Duration>()
        };
        let last = reports.last()?;
        let frames = |pick: fn(&fullbore::stats::Report) -> u64| reports.iter().map(pick).sum();
        Some(Self {
            direction: direction.name(),
            connections: reports.len(),
            seconds: Seconds::of(spent),
            held_by: verdict.held.name(),
            cause: verdict.cause.name(),
            percent: verdict.percent,
            stream_window: verdict.stream_window,
            connection_window: verdict.connection_window,
            largest_stream_window: u64::from(last.largest_stream_receive_window),
            round_trip_ms: verdict.round_trip.map(|trip| trip.as_secs_f64() * 1e3),
            max_concurrent_streams: verdict.max_concurrent_streams,
            window_updates_sent: frames(|report| {
                report.stats.connection_refills + report.stats.stream_refills
            }),
            data_frames_received: frames(|report| {
                report.stats.received_frames.of(fullbore::stats::FrameType::DATA)
            }),
            data_frames_sent: frames(|report| report.stats.sent_frames.of(fullbore::stats::FrameType::DATA)),
            arrivals: busiest(direction, reports).map(|report| Arrivals::of(&report.arrivals)),
            tcp: busiest(direction, reports)
                .and_then(|report| report.tcp.as_ref())
                .map(TcpWaits::of),
            clause: clause(&verdict, set),
        })
    }
}

/// The connection that carried most.
fn busiest(direction: Direction, reports: &[fullbore::stats::Report]) -> Option<&fullbore::stats::Report> {
    reports.iter().max_by_key(|report| direction.data_bytes(report))
}

/// The verdict, with the option that lifts what it names.
fn clause(verdict: &Verdict, set: Set) -> String {
    let receiving = verdict.direction == Direction::Receiving;
    match verdict.cause {
        Cause::StreamWindow | Cause::ConnectionWindow if receiving && set.budget => {
            format!("{verdict}; try a larger --budget")
        }
        Cause::StreamWindow if receiving => {
            format!("{verdict}; try --stream-window {}", larger(verdict.stream_window))
        }
        Cause::ConnectionWindow if receiving => format!(
            "{verdict}; try --connection-window {}",
            larger(verdict.connection_window)
        ),
        Cause::StreamCount => format!("{verdict}; try a larger --connections"),
        _ => verdict.to_string(),
    }
}

/// A window worth trying: four times as large, 16 MiB at least.
fn larger(window: u64) -> String {
    let bytes = (window * 4).max(16 << 20).next_power_of_two().min(1 << 30);
    format!("{}MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_met_is_the_limit_whatever_else_was_waited_for() {
        let waits = |limit_rate, speaks_http1| Waits {
            http2: None,
            http1: None,
            speaks_http1,
            limit_rate,
            clause: "limited by the disk".to_owned(),
        };
        let limited = waits(Some(1_000_000), true);
        assert_eq!(limited.clause(2_000_000, 2.1), Some("limited by --limit-rate"));
        assert_eq!(limited.clause(2_000_000, 4.0), Some("limited by the disk"));
        assert_eq!(limited.clause(1_000, 0.001), Some("over HTTP/1.1"));
        assert_eq!(
            waits(None, false).clause(2_000_000, 2.0),
            Some("limited by the disk")
        );
        assert_eq!(waits(None, false).clause(1_000, 1.0), None);
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
}
