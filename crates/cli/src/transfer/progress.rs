//! The progress of a run: one line on standard error, if that is a terminal.
//!
//! Transfers only add to counters. A task draws the line ten times a second.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const BETWEEN_DRAWINGS: Duration = Duration::from_millis(100);
const KNOWN_LENGTH: &str = "{bar:28} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left{msg}";
const UNKNOWN_LENGTH: &str = "{spinner} {bytes}, {bytes_per_sec}, {elapsed}{msg}";

/// The counters, and the line that shows them.
pub(crate) struct Progress {
    bar: ProgressBar,
    moved: AtomicU64,
    expected: AtomicU64,
    ended: AtomicU64,
}

impl Progress {
    /// Starts to draw if standard error is a terminal. Needs the context of a runtime.
    pub(crate) fn start() -> Arc<Self> {
        if !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let progress = Self::with(ProgressBar::new_spinner());
        progress.bar.set_style(style(UNKNOWN_LENGTH));
        tokio::spawn(draw(Arc::downgrade(&progress)));
        progress
    }

    /// Counts without drawing.
    pub(crate) fn hidden() -> Arc<Self> {
        Self::with(ProgressBar::hidden())
    }

    fn with(bar: ProgressBar) -> Arc<Self> {
        Arc::new(Self {
            bar,
            moved: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Adds to the expected bytes.
    pub(crate) fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the transferred bytes.
    pub(crate) fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The transfer starts again.
    pub(crate) fn begin_anew(&self) {
        self.moved.store(0, Ordering::Relaxed);
    }

    /// The transferred bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// A request has ended.
    pub(crate) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints something else without damaging the line.
    pub(crate) fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

async fn draw(progress: Weak<Progress>) {
    let mut known = false;
    let mut ticks = tokio::time::interval(BETWEEN_DRAWINGS);
    loop {
        ticks.tick().await;
        let Some(progress) = progress.upgrade() else {
            return;
        };
        if progress.bar.is_finished() {
            return;
        }
        let expected = progress.expected.load(Ordering::Relaxed);
        if expected > 0 {
            progress.bar.set_length(expected);
            if !known {
                known = true;
                progress.bar.set_style(style(KNOWN_LENGTH));
            }
        }
        let ended = progress.ended.load(Ordering::Relaxed);
        if ended > 0 {
            progress.bar.set_message(format!(", {ended} done"));
        }
        progress.bar.set_position(progress.bytes());
        progress.bar.tick();
    }
}

/// The templates are constants, and a test checks them.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_well_formed() {
        for template in [KNOWN_LENGTH, UNKNOWN_LENGTH] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn what_has_moved_is_counted_and_may_begin_anew() {
        let progress = Progress::hidden();
        assert_eq!(progress.bytes(), 0);
        progress.moved(3);
        progress.moved(4);
        assert_eq!(progress.bytes(), 7);
        progress.begin_anew();
        assert_eq!(progress.bytes(), 0);
        progress.moved(5);
        assert_eq!(progress.bytes(), 5);
    }

    #[test]
    fn what_is_said_aside_is_said_once() {
        let mut said = 0;
        Progress::hidden().aside(|| said += 1);
        assert_eq!(said, 1);
    }

    #[tokio::test]
    async fn what_is_drawn_is_what_was_counted_until_the_line_is_taken_away() {
        let progress = Progress::hidden();
        progress.moved(3);
        let drawing = tokio::spawn(draw(Arc::downgrade(&progress)));
        let is_shown = async |bytes| {
            while progress.bar.position() != bytes {
                tokio::time::sleep(BETWEEN_DRAWINGS / 10).await;
            }
        };
        is_shown(3).await;
        assert_eq!(
            (progress.bar.length(), progress.bar.message()),
            (None, String::new())
        );
        progress.expect(8);
        progress.expect(2);
        progress.ended();
        progress.ended();
        progress.moved(4);
        is_shown(7).await;
        assert_eq!(progress.bar.length(), Some(10));
        assert_eq!(progress.bar.message(), ", 2 done");
        assert!(!drawing.is_finished());
        progress.clear();
        assert!(drawing.await.is_ok());
        assert!(progress.bar.is_finished());
    }

    #[tokio::test]
    async fn nothing_is_drawn_once_the_run_is_over() {
        let progress = Progress::hidden();
        let drawing = tokio::spawn(draw(Arc::downgrade(&progress)));
        drop(progress);
        assert!(drawing.await.is_ok());
    }
}
