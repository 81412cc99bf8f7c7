//! An origin that refuses requests or allows no stream: when the queue is checked again, and when waiting requests
//! fail.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::time::Instant;

use super::{OriginPool, Place, PoolState, PooledConnection, Waiter, runtime_shut_down};
use crate::client::pool::backoff::{self, Backoff};
use crate::error::Error;

impl OriginPool {
    /// A request whose slot was taken then, or the whole connection, was refused.
    pub(super) fn refused(
        self: &Arc<Self>,
        error: &Error,
        connection: &PooledConnection,
        slot_taken: Option<Instant>,
    ) {
        let now = Instant::now();
        let mut state = self.lock();
        let open = state.open_beside(connection, slot_taken.is_some());
        let began = slot_taken.unwrap_or(connection.begun());
        let (first, random) = (self.settings.repeat_pause, backoff::random());
        match &mut state.refusals {
            Some(refusals) => refusals.add(error.clone(), (began, open), first, random, now),
            None => state.refusals = Some(Backoff::new(error.clone(), open, first, random, now)),
        }
        self.refuses.store(true, Ordering::Relaxed);
        let effects = self.update(&mut state, now);
        drop(state);
        self.apply(effects);
    }

    /// A response arrived: the origin serves requests, whatever it refused before.
    pub(in crate::client::pool) fn answered(self: &Arc<Self>) {
        if !self.refuses.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut state = self.lock();
        state.clock.note_response(now);
        if std::mem::take(&mut state.unanswered) {
            state.rounds += 1;
        }
        let streams = state.load().streams;
        if let Some(refusals) = &mut state.refusals {
            refusals.answered(now);
        }
        self.forget_refusals(&mut state, streams, now);
        let effects = self.update(&mut state, now);
        drop(state);
        self.apply(effects);
    }

    /// The peer did not process a request. Returns how often it has answered others after such an event.
    pub(in crate::client::pool) fn unprocessed(&self) -> u64 {
        let mut state = self.lock();
        state.unanswered = true;
        self.refuses.store(true, Ordering::Relaxed);
        state.rounds
    }

    /// The pause before a request is repeated that paused `pauses` times.
    pub(in crate::client::pool) fn pause(&self, pauses: u32, place: &mut Place) -> Duration {
        let pause = backoff::pause(self.settings.repeat_pause, pauses, backoff::random());
        place.wait.pause(pause, &self.lock().clock, Instant::now());
        pause
    }

    /// How often a request is repeated.
    pub(in crate::client::pool) fn max_repeats(&self) -> u32 {
        self.settings.max_repeats
    }

    /// The peer's refusal, if there was one, or else `error`.
    pub(in crate::client::pool) fn refusal(&self, error: Error) -> Error {
        match &self.lock().refusals {
            Some(refusals) if error.code().is_none() => refusals.error(),
            _ => error,
        }
    }

    /// Forgets refusals that say nothing any more.
    fn forget_refusals(&self, state: &mut PoolState, streams: u64, now: Instant) {
        if state
            .refusals
            .as_ref()
            .is_some_and(|refusals| refusals.is_over(streams, now))
        {
            state.refusals = None;
        }
        let awaited = state.refusals.is_some() || state.unanswered || state.clock.awaits_response();
        self.refuses.store(awaited, Ordering::Relaxed);
    }

    /// Why a new request fails at once: the origin refused so much that the waiting requests failed.
    pub(super) fn recent_failure(&self, state: &mut PoolState, now: Instant) -> Option<Error> {
        state.refusals.as_ref()?;
        self.forget_refusals(state, 0, now);
        state.refusals.as_ref()?.failure(now)
    }

    /// The requests that have waited too long for an origin that serves none, and their error.
    pub(super) fn failure_of_all(
        &self,
        state: &mut PoolState,
        now: Instant,
    ) -> Option<(BTreeMap<u64, Waiter>, Error)> {
        let denied = state.is_denied();
        state.clock.set_running(denied, now);
        if denied {
            self.refuses.store(true, Ordering::Relaxed);
        }
        if state.waiting.is_empty() || state.in_flight() > 0 {
            return None;
        }
        let failed = match &mut state.refusals {
            Some(refusals)
                if refusals.exceeds(self.settings.max_repeats) && !refusals.allows_attempt(0, now) =>
            {
                (std::mem::take(&mut state.waiting), refusals.give_up())
            }
            // Refused requests may also meet an origin that allows no stream.
            _ => {
                let limit = self.settings.stream_wait_timeout?;
                if !state.clock.is_due(limit, now) {
                    return None;
                }
                (state.take_overdue(limit, now), no_stream_allowed(limit))
            }
        };
        if state.waiting.is_empty() {
            state.clock.set_running(false, now);
            state.growth.queue_emptied(now);
        }
        Some(failed)
    }

    /// When to check the queue if nothing happens, unless such a check is scheduled.
    pub(super) fn next_check(&self, state: &mut PoolState, now: Instant) -> Option<(Instant, Runtime)> {
        let idle = state.idle_check(now);
        if state.waiting.is_empty() && idle.is_none() {
            return None;
        }
        let allowed = self
            .settings
            .stream_wait_timeout
            .and_then(|limit| state.clock.next_deadline(limit));
        let pause = state.refusals.as_ref().map(Backoff::until);
        // After the pause, only open requests can change anything.
        let at = [allowed, pause, idle, state.lifetime_check()]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()?;
        if state.check_at.is_some_and(|known| known <= at && known > now) {
            return None;
        }
        let runtime = state.runtime.clone()?;
        state.check_at = Some(at);
        Some((at, runtime))
    }

    /// Checks the queue.
    fn check(self: &Arc<Self>, at: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.check_at == Some(at) {
            state.check_at = None;
        }
        let idle = state.take_obstacles(now);
        let mut effects = self.update(&mut state, now);
        effects.removed.extend(idle);
        drop(state);
        self.apply(effects);
    }

    /// A runtime that was to check the queue has shut down. The runtime of the request that waited last does it instead. If
    /// that has shut down too, the requests fail: nothing else would look after them.
    fn check_lost(self: &Arc<Self>, lost: &Check) {
        let mut state = self.lock();
        if state.check_at != Some(lost.at) {
            return;
        }
        if let Some(runtime) = state.runtime.clone().filter(|_| !lost.is_second) {
            drop(state);
            let mut second = Check::new(self, lost.at);
            second.is_second = true;
            runtime.spawn(second.run());
            return;
        }
        state.check_at = None;
        let effects = self.fail_waiting(&mut state, &runtime_shut_down());
        drop(state);
        self.apply(effects);
    }
}

impl PoolState {
    /// Whether no request may be sent while `open` are.
    pub(super) fn refuses(&self, open: u64, now: Instant) -> bool {
        let refuses = |refusals: &Backoff| !refusals.allows_attempt(open, now);
        self.refusals.as_ref().is_some_and(refuses)
    }

    /// Requests that are open beside one of a connection, or beside all of that connection.
    fn open_beside(&self, connection: &PooledConnection, one: bool) -> u64 {
        let member = self.members.iter().find(|member| member.is(connection));
        let refused = member.map_or(0, |member| match one {
            true => member.in_flight.min(1),
            false => member.in_flight,
        });
        self.in_flight() - u64::from(refused)
    }
}

/// The task that checks the queue at some time.
pub(super) struct Check {
    pool: Weak<OriginPool>,
    at: Instant,
    /// Whether it takes the place of one that was lost, and has not begun.
    is_second: bool,
    done: bool,
}

impl Check {
    pub(super) fn new(pool: &Arc<OriginPool>, at: Instant) -> Self {
        Check {
            pool: Arc::downgrade(pool),
            at,
            is_second: false,
            done: false,
        }
    }

    pub(super) async fn run(mut self) {
        // This runtime has not shut down.
        self.is_second = false;
        tokio::time::sleep_until(self.at).await;
        self.done = true;
        if let Some(pool) = self.pool.upgrade() {
            pool.check(self.at);
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade().filter(|_| !self.done) {
            pool.check_lost(self);
        }
    }
}

fn no_stream_allowed(limit: Duration) -> Error {
    Error::timeout(
        "the server allows no stream: its SETTINGS_MAX_CONCURRENT_STREAMS is 0",
        limit,
    )
}
