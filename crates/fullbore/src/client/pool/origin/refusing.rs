//! An origin that refuses requests, or allows no stream: when the queue is looked at again, and when those in it fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{OriginPool, State, Waiter};
use crate::client::pool::denial::Wait;
use crate::client::pool::refusal::{self, Refusals};
use crate::error::Error;

impl OriginPool {
    /// A request that `began` then was refused, or a connection.
    pub(in crate::client::pool) fn refused(self: &Arc<Self>, error: &Error, began: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        let (first, random) = (self.settings.repeat_pause, refusal::random());
        match &mut state.refusals {
            Some(refusals) => refusals.add(error.clone(), began, first, random, now),
            None => state.refusals = Some(Refusals::new(error.clone(), first, random, now)),
        }
        self.refuses.store(true, Ordering::Relaxed);
        let work = self.settle(&mut state, now);
        drop(state);
        self.carry_out(work);
    }

    /// A response came: whatever was refused before, the origin serves.
    pub(in crate::client::pool) fn answered(self: &Arc<Self>) {
        if !self.refuses.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut state = self.lock();
        state.denial.note_answer(now);
        self.forget_refusals(&mut state);
        let work = self.settle(&mut state, now);
        drop(state);
        self.carry_out(work);
    }

    /// How long a request pauses before it is repeated, having been repeated so often.
    pub(in crate::client::pool) fn pause(&self, repeats: u32, wait: &mut Wait) -> Duration {
        let pause = refusal::pause(self.settings.repeat_pause, repeats, refusal::random());
        wait.pause(pause, &self.lock().denial, Instant::now());
        pause
    }

    /// How often a request is repeated.
    pub(in crate::client::pool) fn max_repeats(&self) -> u32 {
        self.settings.max_repeats
    }

    /// What the peer said when it refused requests; `error` if it has not.
    pub(in crate::client::pool) fn refusal(&self, error: Error) -> Error {
        match &self.lock().refusals {
            Some(refusals) if error.code().is_none() => refusals.error(),
            _ => error,
        }
    }

    fn forget_refusals(&self, state: &mut State) {
        state.refusals = None;
        self.refuses
            .store(state.denial.awaits_answer(), Ordering::Relaxed);
    }

    /// Why a new request fails at once: the origin has refused so much that nobody waits for it any more.
    pub(super) fn recent_failure(&self, state: &mut State, now: Instant) -> Option<Error> {
        let refusals = state.refusals.as_ref()?;
        if refusals.are_old(now) {
            self.forget_refusals(state);
            return None;
        }
        refusals.failure(now)
    }

    /// The requests that have waited long enough for an origin that serves nothing, and what they are told.
    pub(super) fn failure_of_all(
        &self,
        state: &mut State,
        now: Instant,
    ) -> Option<(BTreeMap<i64, Waiter>, Error)> {
        let denied = state.is_denied();
        state.denial.note(denied, now);
        if denied {
            self.refuses.store(true, Ordering::Relaxed);
        }
        if state.waiting.is_empty() || state.in_flight() > 0 {
            return None;
        }
        let failed = match &mut state.refusals {
            Some(refusals) if refusals.exceed(self.settings.max_repeats) && !refusals.lets_try(now) => {
                (std::mem::take(&mut state.waiting), refusals.give_up())
            }
            // Requests that were refused before may meet an origin that allows no stream, too.
            _ => {
                let limit = self.settings.stream_wait_timeout?;
                if !state.denial.is_due(limit, now) {
                    return None;
                }
                (state.take_overdue(limit, now), no_stream_allowed(limit))
            }
        };
        if state.waiting.is_empty() {
            state.denial.note(false, now);
            state.demand.emptied(now);
        }
        Some(failed)
    }

    /// When the queue has to be looked at though nothing happens, unless that is known already.
    pub(super) fn next_look(&self, state: &mut State, now: Instant) -> Option<(Instant, Handle)> {
        if state.waiting.is_empty() {
            return None;
        }
        let allowed = self
            .settings
            .stream_wait_timeout
            .and_then(|limit| state.denial.next(limit));
        let pause = state.refusals.as_ref().map(Refusals::until);
        // A pause that is over leaves nothing to wait for but what is under way.
        let at = [allowed, pause]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .min()?;
        if state.look_at.is_some_and(|known| known <= at && known > now) {
            return None;
        }
        let runtime = state.runtime.clone()?;
        state.look_at = Some(at);
        Some((at, runtime))
    }

    /// It is time to look at the queue.
    pub(super) fn look(self: &Arc<Self>, at: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        if state.look_at == Some(at) {
            state.look_at = None;
        }
        let work = self.settle(&mut state, now);
        drop(state);
        self.carry_out(work);
    }
}

fn no_stream_allowed(limit: Duration) -> Error {
    Error::timeout(
        "the server allows no stream: its SETTINGS_MAX_CONCURRENT_STREAMS is 0",
        limit,
    )
}
