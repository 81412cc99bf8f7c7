//! One connection of an origin's pool, as its driver tells of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::demand::{ENOUGH_PROBES, LONG_PATH};
use super::origin::OriginPool;
use crate::error::Error;
use crate::observer::Observer;

/// How many streams a first connection is trusted to allow before the peer's SETTINGS say so: the least that RFC 9113
/// section 6.5.2 recommends, and what the engine dares.
const PRESUMED_STREAMS: u32 = 100;

/// What is known of a connection without asking its driver.
pub(super) struct Lane {
    pool: Weak<OriginPool>,
    max_streams: AtomicU32,
    /// Whether the peer's SETTINGS have come.
    settled: AtomicBool,
    /// Nanoseconds; `u64::MAX` before there is any measure.
    round_trip: AtomicU64,
    /// How many PINGs it was measured by, the last of which may be under way.
    probes: AtomicU32,
    /// When it began to be opened.
    begun: Instant,
    /// Whether the peer has answered a request on it.
    served: AtomicBool,
    error: OnceLock<Error>,
    /// Held until the connection has ended, for whoever waits for that.
    token: Mutex<Option<TaskTrackerToken>>,
}

impl Lane {
    /// The only connection: its first requests leave before the peer has said anything, which saves a round trip.
    /// `known` is what the origin allowed on another.
    pub(super) fn first(pool: Weak<OriginPool>, known: Option<u32>) -> Arc<Self> {
        Self::new(pool, known.unwrap_or(PRESUMED_STREAMS).min(PRESUMED_STREAMS))
    }

    /// A further connection. Requests that others can carry are not risked on it before the peer's SETTINGS have come.
    pub(super) fn further(pool: Weak<OriginPool>) -> Arc<Self> {
        Self::new(pool, 0)
    }

    fn new(pool: Weak<OriginPool>, max_streams: u32) -> Arc<Self> {
        Arc::new(Lane {
            pool,
            max_streams: AtomicU32::new(max_streams),
            settled: AtomicBool::new(false),
            round_trip: AtomicU64::new(u64::MAX),
            probes: AtomicU32::new(0),
            begun: Instant::now(),
            served: AtomicBool::new(false),
            error: OnceLock::new(),
            token: Mutex::new(None),
        })
    }

    /// How many streams it allows at once.
    pub(super) fn max_streams(&self) -> u32 {
        self.max_streams.load(Ordering::Acquire)
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether the peer has answered a request on it.
    pub(super) fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// When it began to be opened.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        match self.round_trip.load(Ordering::Relaxed) {
            u64::MAX => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// How many PINGs it was measured by, beside SETTINGS; the last may be under way.
    pub(super) fn probes(&self) -> u32 {
        self.probes.load(Ordering::Relaxed)
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

    /// Why it ended.
    pub(super) fn error(&self) -> Error {
        self.error.get().cloned().unwrap_or_else(Error::connection_gone)
    }
}

impl Observer for Lane {
    fn settings_received(&self, max_streams: u32) {
        self.max_streams.store(max_streams, Ordering::Release);
        self.settled.store(true, Ordering::Release);
        if let Some(pool) = self.pool.upgrade() {
            pool.settings_received(max_streams);
        }
    }

    fn round_trip_measured(&self, minimum: Duration) {
        let nanos = u64::try_from(minimum.as_nanos()).unwrap_or(u64::MAX);
        // The engine forgets in time; a link that our own transfers keep full would seem ever longer.
        self.round_trip.fetch_min(nanos, Ordering::Relaxed);
    }

    fn wants_round_trip(&self) -> bool {
        let may_be_long = self.round_trip().is_none_or(|least| least >= LONG_PATH);
        may_be_long && self.probes() < ENOUGH_PROBES && self.requests_wait()
    }

    fn round_trip_asked(&self) {
        self.probes.fetch_add(1, Ordering::Relaxed);
    }

    fn requests_wait(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.has_waiting())
    }

    fn refused(&self, error: &Error, slot_taken: Option<Instant>) {
        if let Some(pool) = self.pool.upgrade().filter(|_| error.wants_pause()) {
            pool.refused(error, slot_taken.unwrap_or(self.begun));
        }
    }

    fn answered(&self) {
        // Only the first answer writes to memory that tasks share.
        if !self.has_served() {
            self.served.store(true, Ordering::Relaxed);
        }
    }

    fn closing(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.closing(self);
        }
    }

    fn closed(&self, error: &Error) {
        // A second report would say the same.
        let _ = self.error.set(error.clone());
        *self.token() = None;
        if let Some(pool) = self.pool.upgrade() {
            pool.closed(self, error);
        }
    }

    fn failure(&self) -> Option<Error> {
        match self.is_settled() {
            true => None,
            false => self.error.get().cloned(),
        }
    }

    fn slot_freed(&self, exchange: Option<Duration>) {
        if let Some(pool) = self.pool.upgrade() {
            pool.slot_freed(self, exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_connection_is_trusted_with_100_streams_at_most_and_a_further_one_with_none() {
        let first = |known| Lane::first(Weak::new(), known).max_streams();
        assert_eq!(first(None), 100);
        assert_eq!([1, 100, 101].map(|known| first(Some(known))), [1, 100, 100]);
        assert_eq!(Lane::further(Weak::new()).max_streams(), 0);
    }

    #[test]
    fn the_round_trip_is_the_least_that_was_measured() {
        let lane = Lane::first(Weak::new(), None);
        assert_eq!((lane.round_trip(), lane.probes()), (None, 0));
        for (measured, least) in [(30, 30), (20, 20), (25, 20)] {
            lane.round_trip_measured(Duration::from_millis(measured));
            assert_eq!(lane.round_trip(), Some(Duration::from_millis(least)));
        }
    }
}
