//! The spans and events of one connection for `tracing`.
//!
//! | target | spans and events |
//! |---|---|
//! | `fullbore::connection` | the span `connection`; SETTINGS, GOAWAY, errors and the end |
//! | `fullbore::stream` | the span `stream`; resets, and (at level TRACE) requests and responses |
//! | `fullbore::flow` | what sending and receiving waited for |
//! | `fullbore::limits` | limits on the peer that were reached |
//!
//! Nothing here runs for each frame. A connection whose events nobody wants at its start has no [`Trace`], so that each of
//! its events costs a null check.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullbore_proto::{
    Connection, ConnectionError, ConnectionErrorKind, Ledger, Role, Stall, StreamError, StreamErrorKind,
    StreamId, StreamMap, Time, UsageError,
};
use http::{Request, StatusCode};
use tokio::time::Instant;
use tracing::{Level, Span, debug, debug_span, enabled, trace};

use crate::error::{Error, PeerGoAway};

const CONNECTION: &str = "fullbore::connection";
const STREAM: &str = "fullbore::stream";
const FLOW: &str = "fullbore::flow";
const LIMITS: &str = "fullbore::limits";

/// Stalls are reported once they add up to this. Short ones are normal: a window that is a little short stalls in each
/// round trip.
const LONG_STALL: Duration = Duration::from_secs(1);

/// What is traced of a connection.
#[derive(Debug)]
pub(super) struct Trace {
    /// The origin of the engine's time.
    origin: Instant,
    connection: Span,
    streams: StreamMap<Span>,
    sending: Direction,
    receiving: Direction,
}

/// What one direction has waited for, as far as it was reported.
#[derive(Debug)]
struct Direction {
    name: &'static str,
    reported: [Duration; Stall::ALL.len()],
}

impl Trace {
    /// None when no event is wanted.
    pub(super) fn new(role: Role, origin: Instant) -> Option<Box<Self>> {
        /// Distinguishes the connections of a process.
        static NUMBER: AtomicU64 = AtomicU64::new(1);

        let wanted = enabled!(target: CONNECTION, Level::DEBUG)
            || enabled!(target: STREAM, Level::DEBUG)
            || enabled!(target: FLOW, Level::DEBUG)
            || enabled!(target: LIMITS, Level::DEBUG);
        wanted.then(|| {
            let id = NUMBER.fetch_add(1, Ordering::Relaxed);
            Box::new(Trace {
                origin,
                connection: debug_span!(target: CONNECTION, "connection", id, ?role),
                streams: StreamMap::default(),
                sending: Direction::new("sending"),
                receiving: Direction::new("receiving"),
            })
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.origin.elapsed()
    }

    /// The peer's SETTINGS were received.
    pub(super) fn settings(&self, connection: &Connection) {
        let report = connection.report(self.now());
        debug!(
            target: CONNECTION,
            parent: &self.connection,
            max_concurrent_streams = report.peer_max_concurrent_streams,
            initial_window_size = report.stream_send_window,
            "received SETTINGS"
        );
    }

    /// A request was received or sent.
    pub(super) fn request(&mut self, stream: StreamId, request: &Request<()>) {
        let id = stream.value();
        let (method, path) = (request.method(), request.uri().path());
        let span = debug_span!(target: STREAM, parent: &self.connection, "stream", id);
        trace!(target: STREAM, parent: &span, %method, path, "request");
        self.streams.insert(stream, span);
    }

    /// A final response was received or sent.
    pub(super) fn response(&self, stream: StreamId, status: StatusCode) {
        trace!(target: STREAM, parent: self.span(stream), status = status.as_u16(), "response");
    }

    /// A stream was reset.
    pub(super) fn reset(&self, error: &StreamError) {
        use StreamErrorKind as Kind;
        let span = self.span(error.stream);
        debug!(target: STREAM, parent: span, by = ?error.by, "reset: {error}");
        if error.is_timeout() || matches!(error.kind(), Kind::Limit | Kind::Refused) {
            debug!(target: LIMITS, parent: span, "limit reached: {error}");
        }
    }

    /// A message of a handle cannot be sent, so that its stream was reset.
    pub(super) fn rejected(&self, stream: StreamId, error: &UsageError) {
        let span = self.span(stream);
        match std::error::Error::source(error) {
            Some(cause) => debug!(target: STREAM, parent: span, "reset: {error}: {cause}"),
            None => debug!(target: STREAM, parent: span, "reset: {error}"),
        }
    }

    /// The body or the handler of this side failed, so that its stream is reset.
    pub(super) fn given_up(&self, stream: StreamId, error: Option<&Error>) {
        let Some(error) = error else { return };
        let span = self.span(stream);
        match std::error::Error::source(error) {
            Some(cause) => debug!(target: STREAM, parent: span, "reset: {error}: {cause}"),
            None => debug!(target: STREAM, parent: span, "reset: {error}"),
        }
    }

    /// All handles of a stream were dropped. Its response may still be on the way out.
    pub(super) fn released(&mut self, stream: StreamId, connection: &Connection) {
        let span = self.streams.remove(&stream).unwrap_or_else(Span::none);
        if let Some(report) = connection.stream_report(stream, self.now()) {
            Direction::new("sending").report(&span, &report.sending);
            Direction::new("receiving").report(&span, &report.receiving);
        }
        trace!(target: STREAM, parent: &span, "released");
    }

    /// Reports what the connection has waited for. Called before the driver sleeps.
    pub(super) fn stalls(&mut self, connection: &Connection) {
        let (span, now) = (&self.connection, self.now());
        self.sending.report(span, &connection.sending_ledger(now));
        self.receiving.report(span, &connection.receiving_ledger(now));
    }

    /// The peer sent GOAWAY.
    pub(super) fn peer_goaway(&self, goaway: &PeerGoAway) {
        let PeerGoAway {
            last_stream,
            code,
            debug,
        } = goaway;
        let text = debug.escape_ascii();
        debug!(target: CONNECTION, parent: &self.connection, last_stream, ?code, %text, "received GOAWAY");
    }

    /// A graceful shutdown begins: GOAWAY is sent.
    pub(super) fn shutdown(&self) {
        debug!(target: CONNECTION, parent: &self.connection, "sends GOAWAY: graceful shutdown");
    }

    /// The connection has ended.
    pub(super) fn closed(&self, error: Option<&ConnectionError>, result: &Result<(), Error>) {
        let span = &self.connection;
        let is_limit =
            |error: &&ConnectionError| error.kind() == ConnectionErrorKind::Limit || error.is_timeout();
        if let Some(error) = error.filter(is_limit) {
            debug!(target: LIMITS, parent: span, "limit reached: {error}");
        }
        match result {
            Ok(()) => debug!(target: CONNECTION, parent: span, "closed"),
            Err(error) => debug!(target: CONNECTION, parent: span, "failed: {error}"),
        }
    }

    fn span(&self, stream: StreamId) -> &Span {
        self.streams.get(&stream).unwrap_or(&self.connection)
    }
}

impl Direction {
    fn new(name: &'static str) -> Self {
        Direction {
            name,
            reported: Default::default(),
        }
    }

    fn report(&mut self, span: &Span, ledger: &Ledger) {
        for (stall, reported) in Stall::ALL.into_iter().zip(&mut self.reported) {
            let waited = ledger.spent(stall).saturating_sub(*reported);
            if is_stall(stall) && waited >= LONG_STALL {
                debug!(target: FLOW, parent: span, direction = self.name, on = ?stall, ?waited, "stalled");
                *reported += waited;
            }
        }
    }
}

/// Whether data or a request waits in this state.
fn is_stall(state: Stall) -> bool {
    !matches!(state, Stall::Idle | Stall::Moving | Stall::Peer)
}
