//! How many requests are under way at once. A server that refuses them for now (503, 429) gets fewer, and more again later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A server that is full from the start may have room for few: the limit falls to an eighth until requests have passed at it, and
/// by half from then on.
const FIRST_FALL: usize = 8;
const LATER_FALL: usize = 2;

/// How often a request is repeated that a full server refuses, while no other one succeeds.
pub(crate) const PATIENCE: u32 = 8;

/// Permits of which some may be taken back while they are in use.
pub(crate) struct Permits {
    pub(crate) free: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) limit: usize,
    /// Permits that are not given back when they end.
    debt: usize,
    /// The requests that have succeeded since the limit changed.
    gained: usize,
    lowered: Option<Instant>,
    has_grown: bool,
}

impl Permits {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            free: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
        }
    }

    pub(crate) async fn take(&self, count: usize) {
        // The semaphore is never closed.
        if let Ok(permit) = self
            .free
            .acquire_many(u32::try_from(count).unwrap_or(u32::MAX))
            .await
        {
            permit.forget();
        }
    }

    pub(crate) fn give(&self, state: &mut State, count: usize) {
        let paid = state.debt.min(count);
        state.debt -= paid;
        self.free.add_permits(count - paid);
    }

    pub(crate) fn set_limit(&self, state: &mut State, limit: usize) {
        match limit.checked_sub(state.limit) {
            Some(more) => self.give(state, more),
            None => {
                state.debt += state.limit - limit;
                state.debt -= self.free.forget_permits(state.debt);
            }
        }
        state.limit = limit;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests under way.
pub(crate) struct Gate {
    permits: Permits,
    most: usize,
}

/// One request that is under way.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    begun: Instant,
}

impl Gate {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            permits: Permits::new(most),
            most,
        }
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self) -> Pass<'_> {
        self.permits.take(1).await;
        Pass {
            gate: self,
            begun: Instant::now(),
        }
    }
}

impl Pass<'_> {
    /// The server has taken it.
    pub(crate) fn succeeded(self) {
        let mut state = self.gate.permits.state();
        if state.lowered.is_none() {
            return;
        }
        state.gained += 1;
        if state.gained >= state.limit && state.limit < self.gate.most {
            state.gained = 0;
            state.has_grown = true;
            let limit = state.limit + 1;
            self.gate.permits.set_limit(&mut state, limit);
        }
    }

    /// The server was full. What began before the limit fell does not lower it again.
    pub(crate) fn refused(self) {
        let permits = &self.gate.permits;
        let mut state = permits.state();
        if state.lowered.is_some_and(|lowered| self.begun <= lowered) {
            return;
        }
        let fall = if state.has_grown { LATER_FALL } else { FIRST_FALL };
        let under_way = (state.limit + state.debt).saturating_sub(permits.free.available_permits());
        let limit = (state.limit.min(under_way) / fall).max(1);
        permits.set_limit(&mut state, limit);
        state.gained = 0;
        state.lowered = Some(Instant::now());
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.permits.state();
        self.gate.permits.give(&mut state, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_full_gets_fewer_at_once_and_more_again_when_they_pass() {
        let gate = Gate::new(64);
        let step = || std::thread::sleep(std::time::Duration::from_millis(1));
        let mut passes = Vec::new();
        for _ in 0..64 {
            passes.push(gate.enter().await);
        }
        assert_eq!(gate.permits.free.available_permits(), 0);
        step();
        // All of them are refused, which is one event.
        passes.drain(..).for_each(Pass::refused);
        assert_eq!(
            (gate.permits.state().limit, gate.permits.free.available_permits()),
            (8, 8)
        );
        for _ in 0..8 {
            gate.enter().await.succeeded();
        }
        assert_eq!(
            (gate.permits.state().limit, gate.permits.free.available_permits()),
            (9, 9)
        );
        step();
        for _ in 0..9 {
            passes.push(gate.enter().await);
        }
        step();
        passes.drain(..).for_each(Pass::refused);
        assert_eq!(
            (gate.permits.state().limit, gate.permits.free.available_permits()),
            (4, 4)
        );
        // One that is alone.
        step();
        gate.enter().await.refused();
        assert_eq!(
            (gate.permits.state().limit, gate.permits.free.available_permits()),
            (1, 1)
        );
        for _ in 0..10_000 {
            gate.enter().await.succeeded();
        }
        assert_eq!(
            (gate.permits.state().limit, gate.permits.free.available_permits()),
            (64, 64)
        );
    }
}
