//! How much is under way at once: few uploads to a server that refuses them for now, and few bytes over a path that is slow.

use std::time::Duration;

use tokio::time::Instant;

use crate::transfer::gate::Permits;
pub(super) use crate::transfer::gate::{Gate, PATIENCE};

/// The bytes of small files that are under way at first: half a minute of 0.5 Mbit/s. What waits longer in buffers of the path than
/// `--speed-time` fails.
const FIRST_BYTES: usize = 2 << 20;
const LEAST_BYTES: usize = 512 << 10;
const MOST_BYTES: usize = 64 << 20;
/// What a file counts at least: its request and its task.
const LEAST_OF_A_FILE: usize = 1 << 10;
/// An upload that ends sooner raises the limit by eight times its bytes: all that is under way then takes at most 4.5 s at the same
/// rate. A path of 1 Gbit/s and 100 ms is full in the second round trip.
const AT_ONCE: Duration = Duration::from_millis(500);
/// An upload that ends sooner raises the limit by twice its bytes.
const QUICK: Duration = Duration::from_secs(2);
/// An upload that takes longer lowers the limit.
const SLOW: Duration = Duration::from_secs(6);

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
            () if took < AT_ONCE => (state.limit + 8 * self.count).min(MOST_BYTES),
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
    async fn more_bytes_are_under_way_while_uploads_are_quick_and_fewer_when_they_are_slow() {
        let window = Window::new();
        let limit = || (window.0.state().limit, window.0.free.available_permits());
        let mut under_way = Vec::new();
        for _ in 0..8 {
            under_way.push(window.enter(256 << 10).await);
        }
        assert_eq!(limit(), (FIRST_BYTES, 0));
        under_way.drain(..).for_each(|bytes| bytes.after(AT_ONCE));
        assert_eq!(limit(), (3 * FIRST_BYTES, 3 * FIRST_BYTES));
        for _ in 0..4 {
            under_way.push(window.enter(256 << 10).await);
        }
        under_way.drain(..).for_each(|bytes| bytes.after(SLOW + QUICK));
        assert_eq!(limit(), (5 << 20, 5 << 20));
        for _ in 0..2 {
            under_way.push(window.enter(256 << 10).await);
        }
        under_way.drain(..).for_each(|bytes| bytes.after(Duration::ZERO));
        assert_eq!(limit(), (9 << 20, 9 << 20));
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
