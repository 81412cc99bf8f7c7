//! `--metrics`: figures of the server in the text format of Prometheus.
//!
//! Requests and bytes of bodies are counted as they happen. What a connection waited for, and why it ended, is counted at its
//! end: the engine keeps these figures for itself until then.

use std::fmt;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::{ConnectionLimits, Ended};
use fullbore::settings::MemoryBudget;
use fullbore::stats::{Direction, Ledger, Report, Role, Stall, Verdict};
use fullbore::{ErrorCode, ErrorKind};
use fullbore_proxy::Proxy;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};

use super::exposition::head;
use super::origin_metrics;
use super::text::text;

/// The methods that are told apart. All others count as `other`.
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "OPTIONS", "other"];

/// The statuses with which the server refuses what exceeds a limit.
const LIMIT_STATUSES: [u16; 8] = [408, 413, 414, 416, 429, 431, 503, 507];

const VERSIONS: [&str; 3] = ["1.1", "2", "none"];

/// What ended a connection.
const ENDS: [&str; 6] = ["closed", "timeout", "limit", "protocol", "transport", "evicted"];

/// The states of a ledger that are waits.
const STALLS: [(Stall, &str); 6] = [
    (Stall::StreamWindow, "stream_window"),
    (Stall::ConnectionWindow, "connection_window"),
    (Stall::StreamCount, "stream_count"),
    (Stall::Socket, "socket"),
    (Stall::Application, "application"),
    (Stall::Peer, "peer"),
];

/// What limited a connection.
const CAUSES: [&str; 15] = [
    "this_side",
    "stream_window",
    "connection_window",
    "stream_count",
    "tcp_receive_buffer",
    "tcp_send_buffer",
    "peer_tcp_receive_buffer",
    "peer_window",
    "slow_start",
    "loss",
    "connection_limit",
    "round_trips",
    "path",
    "peer",
    "peer_or_path",
];

/// What limited a connection that has sent fewer bytes is not worth counting.
const LEAST_SENT: u64 = 1_000_000;

/// The figures of all listeners.
pub(super) struct Metrics {
    limits: ConnectionLimits,
    budget: MemoryBudget,
    /// By method and class of the status.
    requests: [[AtomicU64; 5]; METHODS.len()],
    /// By version.
    versions: [AtomicU64; 2],
    /// By status.
    refusals: [AtomicU64; LIMIT_STATUSES.len()],
    body_bytes: AtomicU64,
    /// By version and end.
    ended: [[AtomicU64; ENDS.len()]; VERSIONS.len()],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// In microseconds: sending, then receiving.
    stalls: [[AtomicU64; STALLS.len()]; 2],
    /// Connections by what limited their sending.
    limited: [AtomicU64; CAUSES.len()],
    tcp: TcpFigures,
    /// What passes requests on, if anything does.
    proxy: OnceLock<Proxy>,
}

/// Sums of what the kernel says of TCP. Times are in microseconds.
#[derive(Default)]
struct TcpFigures {
    sent_bytes: AtomicU64,
    sent_again_bytes: AtomicU64,
    busy: AtomicU64,
    receiver_limited: AtomicU64,
    send_buffer_limited: AtomicU64,
}

impl Metrics {
    pub(super) fn new(limits: ConnectionLimits, budget: MemoryBudget) -> Self {
        Self {
            limits,
            budget,
            requests: Default::default(),
            versions: Default::default(),
            refusals: Default::default(),
            body_bytes: AtomicU64::new(0),
            ended: Default::default(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            stalls: Default::default(),
            limited: Default::default(),
            tcp: TcpFigures::default(),
            proxy: OnceLock::new(),
        }
    }

    /// Shows the figures of the instances behind `proxy` too.
    pub(super) fn watch(&self, proxy: Proxy) {
        // There is one.
        let _ = self.proxy.set(proxy);
    }

    /// Counts a request that has a response.
    pub(super) fn add_request(&self, method: &Method, version: Version, status: StatusCode) {
        let method = METHODS.iter().position(|name| *name == method.as_str());
        let method = method.unwrap_or(METHODS.len() - 1);
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        add(&self.requests[method][class], 1);
        add(&self.versions[usize::from(version == Version::HTTP_2)], 1);
        self.add_refusal(status);
    }

    fn add_refusal(&self, status: StatusCode) {
        if let Some(index) = LIMIT_STATUSES.iter().position(|limit| *limit == status.as_u16()) {
            add(&self.refusals[index], 1);
        }
    }

    /// Counts bytes of a response's body.
    pub(super) fn add_body_bytes(&self, bytes: u64) {
        add(&self.body_bytes, bytes);
    }

    /// Counts a connection that has ended.
    pub(super) fn add_connection(&self, connection: &Ended<'_>) {
        if let Some(status) = connection.refused {
            self.add_refusal(status);
        }
        let version = match connection.version {
            Some(Version::HTTP_2) => 1,
            Some(_) => 0,
            None => 2,
        };
        let end = match connection.error {
            _ if connection.evicted => 5,
            None => 0,
            Some(error) if error.code() == Some(ErrorCode::ENHANCE_YOUR_CALM) => 2,
            Some(error) => match error.kind() {
                ErrorKind::Timeout => 1,
                ErrorKind::Protocol | ErrorKind::NotHttp2 => 3,
                _ => 4,
            },
        };
        add(&self.ended[version][end], 1);
        add(&self.received_bytes, connection.received_bytes);
        add(&self.sent_bytes, connection.sent_bytes);
        if let Some(report) = connection.report {
            let add_stalls = |counts: &[AtomicU64; STALLS.len()], ledger: &Ledger| {
                for (count, (stall, _)) in counts.iter().zip(STALLS) {
                    let waited = ledger.spent(stall).as_micros();
                    add(count, u64::try_from(waited).unwrap_or(u64::MAX));
                }
            };
            add_stalls(&self.stalls[0], &report.sending);
            add_stalls(&self.stalls[1], &report.receiving);
            self.add_limit(report);
        }
    }

    /// Counts what limited the sending of a connection, and what the kernel says of it.
    fn add_limit(&self, report: &Report) {
        if report.stats.sent_data_bytes < LEAST_SENT {
            return;
        }
        let verdict = Verdict::of(Role::Server, Direction::Sending, slice::from_ref(report));
        let named = verdict.and_then(|verdict| CAUSES.iter().position(|name| *name == verdict.cause.name()));
        if let Some(index) = named {
            add(&self.limited[index], 1);
        }
        if let Some(info) = &report.tcp {
            let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            add(&self.tcp.sent_bytes, info.sent_bytes);
            add(&self.tcp.sent_again_bytes, info.sent_again_bytes);
            add(&self.tcp.busy, micros(info.busy));
            add(&self.tcp.receiver_limited, micros(info.receiver_limited));
            add(&self.tcp.send_buffer_limited, micros(info.send_buffer_limited));
        }
    }

    /// The response of the listener of the figures.
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Bytes> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are possible\n");
        }
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/metrics" => {
                let mut response = Response::new(Bytes::from(self.to_string()));
                let version = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, version);
                response
            }
            _ => text(StatusCode::NOT_FOUND, "the figures are at /metrics\n"),
        }
    }

    /// Writes a metric without labels.
    fn single(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str, value: u64) -> fmt::Result {
        head(f, name, kind, help)?;
        writeln!(f, "fullbore_{name} {value}")
    }
}

/// The text format of Prometheus, version 0.0.4.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COUNTER: &str = "counter";
        const GAUGE: &str = "gauge";
        head(
            f,
            "requests_total",
            COUNTER,
            "Requests that were answered, by method and class of the status.",
        )?;
        for (method, classes) in METHODS.iter().zip(&self.requests) {
            for (class, count) in (1..).zip(classes) {
                let count = get(count);
                writeln!(
                    f,
                    "fullbore_requests_total{{method=\"{method}\",status=\"{class}xx\"}} {count}"
                )?;
            }
        }
        head(
            f,
            "version_requests_total",
            COUNTER,
            "Requests that were answered, by version of HTTP.",
        )?;
        for (version, count) in VERSIONS.iter().zip(&self.versions) {
            writeln!(
                f,
                "fullbore_version_requests_total{{version=\"{version}\"}} {}",
                get(count)
            )?;
        }
        head(
            f,
            "refusals_total",
            COUNTER,
            "Requests that exceeded a limit, by status.",
        )?;
        for (status, count) in LIMIT_STATUSES.iter().zip(&self.refusals) {
            writeln!(f, "fullbore_refusals_total{{status=\"{status}\"}} {}", get(count))?;
        }
        Self::single(
            f,
            "response_body_bytes_total",
            COUNTER,
            "Bytes of response bodies.",
            get(&self.body_bytes),
        )?;
        head(
            f,
            "connections_ended_total",
            COUNTER,
            "Connections that have ended, by version of HTTP and reason.",
        )?;
        for (version, ends) in VERSIONS.iter().zip(&self.ended) {
            for (reason, count) in ENDS.iter().zip(ends) {
                let count = get(count);
                writeln!(
                    f,
                    "fullbore_connections_ended_total{{version=\"{version}\",reason=\"{reason}\"}} {count}"
                )?;
            }
        }
        let ended = "of connections that have ended.";
        let help = format!("Bytes received, {ended}");
        Self::single(
            f,
            "received_bytes_total",
            COUNTER,
            &help,
            get(&self.received_bytes),
        )?;
        let help = format!("Bytes sent, {ended}");
        Self::single(f, "sent_bytes_total", COUNTER, &help, get(&self.sent_bytes))?;
        let help = format!(
            "Time in which connections waited (HTTP/1.1: in large transfers), by direction and cause, {ended}"
        );
        head(f, "stalled_seconds_total", COUNTER, &help)?;
        for (direction, counts) in ["sending", "receiving"].iter().zip(&self.stalls) {
            for ((_, cause), count) in STALLS.iter().zip(counts) {
                let seconds = Duration::from_micros(get(count)).as_secs_f64();
                writeln!(
                    f,
                    "fullbore_stalled_seconds_total{{direction=\"{direction}\",cause=\"{cause}\"}} {seconds}"
                )?;
            }
        }
        self.write_limits(f)?;
        let connections = self.limits.connections() as u64;
        Self::single(f, "connections", GAUGE, "Open connections.", connections)?;
        let most = self.limits.max_connections() as u64;
        Self::single(
            f,
            "connections_limit",
            GAUGE,
            "The limit on open connections.",
            most,
        )?;
        let streams = self.limits.streams();
        let help = "HTTP/2 streams that connections have leased.";
        Self::single(f, "streams", GAUGE, help, streams.leased())?;
        Self::single(
            f,
            "streams_limit",
            GAUGE,
            "The limit on fullbore_streams.",
            streams.limit(),
        )?;
        let help = "Memory that connections have leased for receive windows and header fields, in bytes.";
        Self::single(f, "memory_budget_leased_bytes", GAUGE, help, self.budget.leased())?;
        Self::single(
            f,
            "memory_budget_bytes",
            GAUGE,
            "The limit on fullbore_memory_budget_leased_bytes.",
            self.budget.limit(),
        )?;
        match self.proxy.get() {
            Some(proxy) => origin_metrics::write(f, &proxy.stats()),
            None => Ok(()),
        }
    }
}

impl Metrics {
    /// What limited the connections that have sent much, and what the kernel says of these.
    fn write_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COUNTER: &str = "counter";
        let ended = "of connections that have ended and sent 1 MB or more";
        let help = format!("What limited the sending {ended}, by cause.");
        head(f, "limited_connections_total", COUNTER, &help)?;
        for (cause, count) in CAUSES.iter().zip(&self.limited) {
            let count = get(count);
            writeln!(
                f,
                "fullbore_limited_connections_total{{cause=\"{cause}\"}} {count}"
            )?;
        }
        let tcp = &self.tcp;
        let help = format!("Bytes that TCP has sent, {ended} (Linux).");
        Self::single(f, "tcp_sent_bytes_total", COUNTER, &help, get(&tcp.sent_bytes))?;
        let help = format!("Bytes that TCP has sent again, {ended} (Linux).");
        let again = get(&tcp.sent_again_bytes);
        Self::single(f, "tcp_sent_again_bytes_total", COUNTER, &help, again)?;
        let help = format!("Time in which TCP had data to send, {ended} (Linux).");
        head(f, "tcp_busy_seconds_total", COUNTER, &help)?;
        let seconds = |count| Duration::from_micros(get(count)).as_secs_f64();
        writeln!(f, "fullbore_tcp_busy_seconds_total {}", seconds(&tcp.busy))?;
        let help = format!(
            "The part of that time which a buffer of TCP limited, by the side that has it, {ended} (Linux)."
        );
        head(f, "tcp_limited_seconds_total", COUNTER, &help)?;
        for (by, count) in [
            ("receiver", &tcp.receiver_limited),
            ("sender", &tcp.send_buffer_limited),
        ] {
            let seconds = seconds(count);
            writeln!(f, "fullbore_tcp_limited_seconds_total{{by=\"{by}\"}} {seconds}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(ConnectionLimits::new(10, 100), MemoryBudget::new(1 << 20))
    }

    #[test]
    fn every_line_is_a_comment_or_a_metric_that_was_announced() {
        let metrics = metrics();
        metrics.add_request(&Method::GET, Version::HTTP_2, StatusCode::OK);
        metrics.add_request(&Method::DELETE, Version::HTTP_11, StatusCode::PAYLOAD_TOO_LARGE);
        metrics.add_body_bytes(7);
        let text = metrics.to_string();
        let mut announced = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                announced = rest.split(' ').next().unwrap();
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(name.split('{').next().unwrap(), announced, "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for line in [
            "fullbore_requests_total{method=\"GET\",status=\"2xx\"} 1",
            "fullbore_requests_total{method=\"other\",status=\"4xx\"} 1",
            "fullbore_version_requests_total{version=\"2\"} 1",
            "fullbore_refusals_total{status=\"413\"} 1",
            "fullbore_response_body_bytes_total 7",
            "fullbore_connections_limit 10",
            "fullbore_memory_budget_bytes 1048576",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn every_cause_has_a_figure() {
        use fullbore::stats::Cause::*;
        let causes = [
            ThisSide,
            StreamWindow,
            ConnectionWindow,
            StreamCount,
            ReceiveBuffer(0),
            SendBuffer(0),
            PeerReceiveBuffer(0),
            PeerWindow(0),
            SlowStart,
            Loss(0.0),
            ConnectionLimit(0),
            RoundTrips,
            Path,
            Peer,
            PeerOrPath,
        ];
        assert_eq!(CAUSES, causes.map(|cause| cause.name()));
    }

    #[test]
    fn the_listener_of_the_figures_has_two_paths() {
        let status = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            metrics().answer(&request).status().as_u16()
        };
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::HEAD, "/healthz"), 200);
        assert_eq!(status(Method::GET, "/"), 404);
        assert_eq!(status(Method::PUT, "/metrics"), 405);
    }
}
