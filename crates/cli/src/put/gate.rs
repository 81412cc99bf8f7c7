//! How much is under way at once. A server that refuses uploads for now (503, 429) gets fewer, and a path that is slow gets fewer
//! bytes; more again later.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A server that is full from the start may have room for few: the limit falls to an eighth until uploads have passed at it, and
/// by half from then on.
const FIRST_FALL: usize = 8;
const LATER_FALL: usize = 2;

/// The bytes of small files that are under way at first: half a minute of 0.5 Mbit/s. What waits longer in buffers of the path than
/// `--speed-time` fails.
const FIRST_BYTES: usize = 2 << 20;
const LEAST_BYTES: usize = 512 << 10;
const MOST_BYTES: usize = 64 << 20;
/// What a file counts at least: its request and its task.
const LEAST_OF_A_FILE: usize = 1 << 10;
/// An upload that ends sooner lets twice as many bytes more be under way. So they treble in a round trip: what 1 Gbit/s carries
/// in 100 ms is under way in the third.
const QUICK: Duration = Duration::from_secs(2);
/// An upload that takes longer lets fewer be.
const SLOW: Duration = Duration::from_secs(6);

/// Permits of which some may be taken back while they are in use.
struct Permits {
    free: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: usize,
    /// Permits that are not given back when they end.
    debt: usize,
    /// The uploads that have succeeded since the limit changed.
    gained: usize,
    lowered: Option<Instant>,
    has_grown: bool,
}

impl Permits {
    fn new(limit: usize) -> Self {
        Self {
            free: Semaphore::new(limit),
            state: Mutex::new(State {
                limit,
                ..State::default()
            }),
        }
    }

    async fn take(&self, count: usize) {
        // The semaphore is never closed.
        if let Ok(permit) = self
            .free
            .acquire_many(u32::try_from(count).unwrap_or(u32::MAX))
            .await
        {
            permit.forget();
        }
    }

    fn give(&self, state: &mut State, count: usize) {
        let paid = state.debt.min(count);
        state.debt -= paid;
        self.free.add_permits(count - paid);
    }

    fn set_limit(&self, state: &mut State, limit: usize) {
        match limit.checked_sub(state.limit) {
            Some(more) => self.give(state, more),
            None => {
                state.debt += state.limit - limit;
                state.debt -= self.free.forget_permits(state.debt);
            }
        }
        state.limit = limit;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uploads under way.
pub(super) struct Gate {
    permits: Permits,
    most: usize,
}

/// One upload that is under way.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    begun: Instant,
}

impl Gate {
    pub(super) fn new(most: usize) -> Self {
        Self {
            permits: Permits::new(most),
            most,
        }
    }

    /// Waits for a place.
    pub(super) async fn enter(&self) -> Pass<'_> {
        self.permits.take(1).await;
        Pass {
            gate: self,
            begun: Instant::now(),
        }
    }
}

impl Pass<'_> {
    /// The server has taken it.
    pub(super) fn succeeded(self) {
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
    pub(super) fn refused(self) {
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

/// The bytes under way.
pub(super) struct Window(Permits);

/// The bytes of one attempt.
pub(super) struct BytesUnderWay<'a> {
    window: &'a Window,
    count: usize,
    begun: Instant,
}

impl Window {
    pub(super) fn new() -> Self {
        Self(Permits::new(FIRST_BYTES))
    }

    /// Waits until so many more may be under way.
    pub(super) async fn enter(&self, bytes: u64) -> BytesUnderWay<'_> {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        let count = count.clamp(LEAST_OF_A_FILE, LEAST_BYTES);
        self.0.take(count).await;
        BytesUnderWay {
            window: self,
            count,
            begun: Instant::now(),
        }
    }
}

impl BytesUnderWay<'_> {
    /// The server has taken them, after so much time.
    pub(super) fn succeeded(self) {
        let took = self.begun.elapsed();
        self.after(took);
    }

    fn after(self, took: Duration) {
        let permits = &self.window.0;
        let mut state = permits.state();
        let limit = match () {
            () if took < QUICK => (state.limit + 2 * self.count).min(MOST_BYTES),
            () if took > SLOW => state.limit.saturating_sub(self.count).max(LEAST_BYTES),
            () => return,
        };
        permits.set_limit(&mut state, limit);
    }
}

impl Drop for BytesUnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.window.0.state();
        self.window.0.give(&mut state, self.count);
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

    #[tokio::test]
    async fn bytes_under_way_treble_while_uploads_are_quick_and_fall_when_they_are_slow() {
        let window = Window::new();
        let limit = || (window.0.state().limit, window.0.free.available_permits());
        let mut under_way = Vec::new();
        for _ in 0..8 {
            under_way.push(window.enter(256 << 10).await);
        }
        assert_eq!(limit(), (FIRST_BYTES, 0));
        under_way.drain(..).for_each(|bytes| bytes.after(Duration::ZERO));
        assert_eq!(limit(), (3 * FIRST_BYTES, 3 * FIRST_BYTES));
        for _ in 0..4 {
            under_way.push(window.enter(256 << 10).await);
        }
        under_way.drain(..).for_each(|bytes| bytes.after(SLOW + QUICK));
        assert_eq!(limit(), (5 << 20, 5 << 20));
        for (took, reached) in [(SLOW + QUICK, LEAST_BYTES), (Duration::ZERO, MOST_BYTES)] {
            for _ in 0..1_000 {
                window.enter(u64::MAX).await.after(took);
            }
            assert_eq!(limit(), (reached, reached));
        }
        // What neither came to an end quickly nor slowly.
        drop(window.enter(0).await);
        window.enter(0).await.after(QUICK);
        assert_eq!(limit(), (MOST_BYTES, MOST_BYTES));
    }
}
