//! What is known of one connection of a pool without asking its driver.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::growth::{ENOUGH_PROBES, LONG_PATH};
use crate::error::Error;

/// The streams of a first connection before the peer's SETTINGS arrive: the least that RFC 9113 section 6.5.2
/// recommends.
const PRESUMED_STREAMS: u32 = 100;

/// The state of a pooled connection, written by its driver and read by the pool.
pub(super) struct ConnectionState {
    max_streams: AtomicU32,
    /// Whether the peer has proved to speak the version of HTTP that the connection speaks: its SETTINGS have arrived, or
    /// the first response of HTTP/1.1.
    settled: AtomicBool,
    /// Whether the connection speaks HTTP/1.1, which has one stream.
    http1: AtomicBool,
    /// Whether the version was agreed on before the first request, by ALPN or by the caller.
    agreed: AtomicBool,
    /// Whether it has ended because the peer speaks another version.
    other_version: AtomicBool,
    /// Whether the pool has learnt from its end what the peer speaks.
    concluded: AtomicBool,
    /// Notified when one of these changes that a request may wait for.
    proven: Notify,
    /// In nanoseconds; `u64::MAX` before the first measurement.
    round_trip: AtomicU64,
    /// The number of PINGs sent to measure it. The last one may be unanswered.
    probes: AtomicU32,
    /// Whether the other end of TCP is close by, on this path or a relay's.
    is_near: AtomicBool,
    /// When connecting began.
    begun: Instant,
    /// Whether the peer has answered a request on it.
    served: AtomicBool,
    /// Whether the server has turned away its first request, and others carry it.
    turned_away: AtomicBool,
    error: OnceLock<Error>,
    /// Held until the connection has ended; `Client::shutdown` waits for it.
    token: Mutex<Option<TaskTrackerToken>>,
}

impl ConnectionState {
    /// The only connection of an origin. Its first requests leave before the peer's SETTINGS, which saves a round
    /// trip. `known` is the limit of an earlier connection.
    pub(super) fn first(known: Option<u32>) -> Self {
        Self::new(known.unwrap_or(PRESUMED_STREAMS).min(PRESUMED_STREAMS))
    }

    /// A further connection. It gets no request before the peer's SETTINGS, since others can carry it.
    pub(super) fn further() -> Self {
        Self::new(0)
    }

    fn new(max_streams: u32) -> Self {
        ConnectionState {
            max_streams: AtomicU32::new(max_streams),
            settled: AtomicBool::new(false),
            http1: AtomicBool::new(false),
            agreed: AtomicBool::new(false),
            other_version: AtomicBool::new(false),
            concluded: AtomicBool::new(false),
            proven: Notify::new(),
            round_trip: AtomicU64::new(u64::MAX),
            probes: AtomicU32::new(0),
            is_near: AtomicBool::new(false),
            begun: Instant::now(),
            served: AtomicBool::new(false),
            turned_away: AtomicBool::new(false),
            error: OnceLock::new(),
            token: Mutex::new(None),
        }
    }

    /// The number of concurrent streams that it allows.
    pub(super) fn max_streams(&self) -> u32 {
        self.max_streams.load(Ordering::Acquire)
    }

    pub(super) fn set_max_streams(&self, max_streams: u32) {
        self.max_streams.store(max_streams, Ordering::Release);
        self.set_settled();
    }

    fn set_settled(&self) {
        self.settled.store(true, Ordering::Release);
        self.proven.notify_waiters();
    }

    /// The version is certain before the first request.
    pub(super) fn set_agreed(&self) {
        self.agreed.store(true, Ordering::Release);
    }

    /// The connection speaks HTTP/1.1: it carries one request at a time.
    pub(super) fn set_http1(&self) {
        self.http1.store(true, Ordering::Release);
        self.max_streams.store(1, Ordering::Release);
    }

    pub(super) fn is_http1(&self) -> bool {
        self.http1.load(Ordering::Acquire)
    }

    /// The first response of HTTP/1.1 arrived. Returns whether the connection was not settled before.
    pub(super) fn settle_http1(&self) -> bool {
        let first = self.is_http1() && !self.is_settled();
        if first {
            self.set_settled();
        }
        first
    }

    /// The peer speaks another version.
    pub(super) fn set_other_version(&self) {
        self.other_version.store(true, Ordering::Release);
    }

    pub(super) fn is_other_version(&self) -> bool {
        self.other_version.load(Ordering::Acquire)
    }

    /// Whether requests with a body can be sent: every request of HTTP/1.1 can.
    pub(super) fn is_version_proven(&self) -> bool {
        self.is_settled() || self.agreed.load(Ordering::Acquire) || self.is_http1()
    }

    /// Waits until the peer has proved to speak the version of this connection, or the connection has ended and the pool
    /// has drawn its conclusions.
    pub(super) async fn version_proven(&self) {
        loop {
            let proven = self.proven.notified();
            if self.is_version_proven() || self.concluded.load(Ordering::Acquire) {
                return;
            }
            proven.await;
        }
    }

    /// As [`Self::version_proven`], also where the version was agreed on before.
    pub(super) async fn settled(&self) {
        loop {
            let proven = self.proven.notified();
            if self.is_settled() || self.concluded.load(Ordering::Acquire) {
                return;
            }
            proven.await;
        }
    }

    /// Whether the peer has proved to speak the version of this connection.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether the peer has answered a request on it.
    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// The peer has answered a request; whether that is the first one.
    pub(super) fn set_served(&self) -> bool {
        // Only the first response writes to memory that tasks share.
        let first = !self.has_served();
        if first {
            self.served.store(true, Ordering::Relaxed);
        }
        first
    }

    pub(super) fn set_turned_away(&self) {
        self.turned_away.store(true, Ordering::Release);
    }

    pub(super) fn is_turned_away(&self) -> bool {
        self.turned_away.load(Ordering::Acquire)
    }

    /// When connecting began.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Keeps the minimum: on a link that our own transfers fill, later measurements are longer.
    pub(super) fn record_round_trip(&self, minimum: Duration) {
        let nanos = u64::try_from(minimum.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.fetch_min(nanos, Ordering::Relaxed);
    }

    /// The smallest round trip that was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self.round_trip.load(Ordering::Relaxed) {
            u64::MAX => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// What TCP measured while it connected; zero if it does not say.
    pub(super) fn record_tcp_round_trip(&self, round_trip: Duration) {
        let is_near = !round_trip.is_zero() && round_trip < LONG_PATH;
        self.is_near.store(is_near, Ordering::Release);
    }

    /// Whether the other end of TCP is close by. What limits TCP on a long path does not limit this connection.
    pub(super) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Acquire)
    }

    /// The number of PINGs sent to measure the round trip. The last one may be unanswered.
    pub(super) fn probes(&self) -> u32 {
        self.probes.load(Ordering::Relaxed)
    }

    pub(super) fn record_probe(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether another measurement of the round trip could justify further connections.
    pub(super) fn wants_probe(&self) -> bool {
        let may_be_long = self.round_trip().is_none_or(|least| least >= LONG_PATH);
        may_be_long && self.probes() < ENOUGH_PROBES
    }

    /// Holds the token until the connection has ended.
    pub(super) fn track(&self, token: TaskTrackerToken) {
        *self.token() = Some(token);
        if self.error.get().is_some() {
            *self.token() = None;
        }
    }

    fn token(&self) -> MutexGuard<'_, Option<TaskTrackerToken>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection has ended. Only the first error counts.
    pub(super) fn end(&self, error: &Error) {
        let _ = self.error.set(error.clone());
        *self.token() = None;
    }

    /// The pool has learnt from the end of the connection.
    pub(super) fn conclude(&self) {
        self.concluded.store(true, Ordering::Release);
        self.proven.notify_waiters();
    }

    /// Why it ended, if it did before it was settled.
    pub(super) fn failure(&self) -> Option<Error> {
        self.error.get().filter(|_| !self.is_settled()).cloned()
    }

    /// Why it ended.
    pub(super) fn error(&self) -> Error {
        self.error.get().cloned().unwrap_or_else(Error::connection_gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_connection_is_trusted_with_100_streams_at_most_and_a_further_one_with_none() {
        let first = |known| ConnectionState::first(known).max_streams();
        assert_eq!(first(None), 100);
        assert_eq!([1, 100, 101].map(|known| first(Some(known))), [1, 100, 100]);
        assert_eq!(ConnectionState::further().max_streams(), 0);
    }

    #[test]
    fn the_round_trip_is_the_minimum_of_the_measurements() {
        let connection = ConnectionState::first(None);
        assert_eq!((connection.round_trip(), connection.probes()), (None, 0));
        for (measured, least) in [(30, 30), (20, 20), (25, 20)] {
            connection.record_round_trip(Duration::from_millis(measured));
            assert_eq!(connection.round_trip(), Some(Duration::from_millis(least)));
        }
    }

    #[test]
    fn the_other_end_of_tcp_is_near_below_5_ms_and_not_where_nothing_is_known() {
        let connection = ConnectionState::first(None);
        assert!(!connection.is_near());
        for (millis, is_near) in [(0, false), (4, true), (5, false)] {
            connection.record_tcp_round_trip(Duration::from_millis(millis));
            assert_eq!(connection.is_near(), is_near, "{millis}");
        }
    }

    #[test]
    fn a_version_is_proven_by_settings_by_an_agreement_or_by_being_http1() {
        let connection = || ConnectionState::first(None);
        let proven = |connection: &ConnectionState| (connection.is_version_proven(), connection.is_settled());
        assert_eq!(proven(&connection()), (false, false));
        let settled = connection();
        settled.set_max_streams(1);
        assert_eq!(proven(&settled), (true, true));
        let agreed = connection();
        agreed.set_agreed();
        assert_eq!(proven(&agreed), (true, false));
        let http1 = connection();
        http1.set_http1();
        assert_eq!(proven(&http1), (true, false));
        assert!(
            http1.settle_http1() && !http1.settle_http1(),
            "the first response counts"
        );
        assert_eq!(proven(&http1), (true, true));
        assert!(!settled.settle_http1());
    }

    #[test]
    fn a_connection_fails_by_its_first_error_unless_its_version_was_proven() {
        let error = |text: &'static str| Error::new(crate::error::ErrorKind::Closed, text);
        let connection = ConnectionState::first(None);
        assert!(connection.failure().is_none());
        connection.end(&error("first"));
        connection.end(&error("second"));
        let failure = connection.failure().expect("it has ended").to_string();
        assert!(failure.contains("first"), "{failure}");
        let settled = ConnectionState::first(None);
        settled.set_max_streams(1);
        settled.end(&error("first"));
        assert!(settled.failure().is_none());
        assert!(settled.error().to_string().contains("first"));
    }

    #[test]
    fn nobody_waits_for_a_connection_that_ended_before_it_was_tracked() {
        let tracker = tokio_util::task::TaskTracker::new();
        let connection = ConnectionState::first(None);
        connection.track(tracker.token());
        assert_eq!(tracker.len(), 1);
        connection.end(&Error::connection_gone());
        assert_eq!(tracker.len(), 0);
        connection.track(tracker.token());
        assert_eq!(tracker.len(), 0);
    }
}
