//! How many uploads are under way at once. A server that refuses some for now (503, 429) gets fewer, and more again later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A server that is full from the start may have room for few: the limit falls to an eighth until uploads have passed at it, and
/// by half from then on.
const FIRST_FALL: usize = 8;
const LATER_FALL: usize = 2;

pub(super) struct Gate {
    free: Semaphore,
    state: Mutex<State>,
}

struct State {
    limit: usize,
    most: usize,
    /// Passes that are not given back when they end.
    debt: usize,
    /// The uploads that have succeeded since the limit changed.
    gained: usize,
    lowered: Option<Instant>,
    has_grown: bool,
}

/// One upload that is under way.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    begun: Instant,
}

impl Gate {
    pub(super) fn new(most: usize) -> Self {
        Self {
            free: Semaphore::new(most),
            state: Mutex::new(State {
                limit: most,
                most,
                debt: 0,
                gained: 0,
                lowered: None,
                has_grown: false,
            }),
        }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) -> Pass<'_> {
        if let Ok(permit) = self.free.acquire().await {
            permit.forget();
        }
        Pass {
            gate: self,
            begun: Instant::now(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// The server has taken it.
    pub(super) fn succeeded(self) {
        let mut state = self.gate.state();
        if state.lowered.is_none() {
            return;
        }
        state.gained += 1;
        if state.gained >= state.limit && state.limit < state.most {
            state.gained = 0;
            state.limit += 1;
            state.has_grown = true;
            match state.debt.checked_sub(1) {
                Some(debt) => state.debt = debt,
                None => self.gate.free.add_permits(1),
            }
        }
    }

    /// The server was full. What began before the limit fell does not lower it again.
    pub(super) fn refused(self) {
        let mut state = self.gate.state();
        if state.lowered.is_some_and(|lowered| self.begun <= lowered) {
            return;
        }
        let fall = if state.has_grown { LATER_FALL } else { FIRST_FALL };
        let under_way = (state.limit + state.debt).saturating_sub(self.gate.free.available_permits());
        let limit = (state.limit.min(under_way) / fall).max(1);
        state.debt += state.limit - limit;
        state.debt -= self.gate.free.forget_permits(state.debt);
        state.limit = limit;
        state.gained = 0;
        state.lowered = Some(Instant::now());
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        match state.debt.checked_sub(1) {
            Some(debt) => state.debt = debt,
            None => self.gate.free.add_permits(1),
        }
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
        assert_eq!(gate.free.available_permits(), 0);
        step();
        // All of them are refused, which is one event.
        passes.drain(..).for_each(Pass::refused);
        assert_eq!((gate.state().limit, gate.free.available_permits()), (8, 8));
        for _ in 0..8 {
            gate.enter().await.succeeded();
        }
        assert_eq!((gate.state().limit, gate.free.available_permits()), (9, 9));
        step();
        for _ in 0..9 {
            passes.push(gate.enter().await);
        }
        step();
        passes.drain(..).for_each(Pass::refused);
        assert_eq!((gate.state().limit, gate.free.available_permits()), (4, 4));
        // One that is alone.
        step();
        gate.enter().await.refused();
        assert_eq!((gate.state().limit, gate.free.available_permits()), (1, 1));
        for _ in 0..10_000 {
            gate.enter().await.succeeded();
        }
        assert_eq!((gate.state().limit, gate.free.available_permits()), (64, 64));
    }
}
