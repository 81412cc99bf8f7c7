//! The progress of a run: one line on standard error, if that is a terminal.
//!
//! Transfers only add to counters. A task draws the line ten times a second.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use fullbore::client::SentBytes;
use indicatif::{ProgressBar, ProgressStyle};

use crate::figures::grouped;

const BETWEEN_DRAWINGS: Duration = Duration::from_millis(100);
const KNOWN_LENGTH: &str =
    "{bar:28} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left";
const UNKNOWN_LENGTH: &str = "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}, {elapsed}";

const MANY_FILES: &str = "{spinner} {msg}, {decimal_bytes}, {decimal_bytes_per_sec}, {elapsed}";

/// The counters, and the line that shows them.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Bytes of response bodies.
    moved: AtomicU64,
    /// Bytes of a request body.
    sent: Mutex<SentBytes>,
    expected: AtomicU64,
    files: AtomicU64,
    ended: AtomicU64,
    /// Bytes of an earlier run were added, which have no speed.
    jumped: AtomicBool,
}

impl Progress {
    /// Starts to draw if standard error is a terminal and `shown`. Needs the context of a runtime.
    pub(crate) fn start(shown: bool) -> Arc<Self> {
        if !shown || !io::stderr().is_terminal() {
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
            sent: Mutex::default(),
            expected: AtomicU64::new(0),
            files: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            jumped: AtomicBool::new(false),
        })
    }

    /// Adds to the expected bytes.
    pub(crate) fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds to the transferred bytes.
    fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The transferred bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed) + self.sent().get()
    }

    /// What counts the bytes of an upload, in the extensions of its request.
    pub(crate) fn sent(&self) -> SentBytes {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The peer has the first `offset` bytes of the upload, and the next request sends what follows them.
    pub(crate) fn continue_upload(&self, offset: u64) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = SentBytes::new();
        self.moved.store(offset, Ordering::Relaxed);
        self.jumped.store(true, Ordering::Relaxed);
    }

    /// There is one more file to transfer.
    pub(crate) fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended.
    pub(crate) fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Prints something else without damaging the line.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// What one transfer adds to the counters. A body that is resumed or received again is not counted twice.
pub(crate) struct Share {
    progress: Arc<Progress>,
    bytes: u64,
    expected: u64,
}

impl Share {
    pub(crate) fn new(progress: &Arc<Progress>) -> Self {
        Self {
            progress: Arc::clone(progress),
            bytes: 0,
            expected: 0,
        }
    }

    /// How many bytes of the body there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// There are so many bytes: found on the disk, or left after the body was begun again.
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        if bytes != self.bytes {
            adjust(&self.progress.moved, self.bytes, bytes);
            self.bytes = bytes;
            self.progress.jumped.store(true, Ordering::Relaxed);
        }
    }

    /// So many more are to come.
    pub(crate) fn expect_more(&mut self, bytes: u64) {
        let expected = self.bytes.saturating_add(bytes);
        adjust(&self.progress.expected, self.expected, expected);
        self.expected = expected;
    }

    /// More bytes came.
    pub(crate) fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.progress.moved(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // What a failed transfer lacks does not come any more.
        adjust(
            &self.progress.expected,
            self.expected,
            self.bytes.min(self.expected),
        );
    }
}

/// Replaces one part of a sum.
fn adjust(sum: &AtomicU64, old: u64, new: u64) {
    sum.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
}

/// How the line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    UnknownLength,
    KnownLength,
    ManyFiles,
}

impl Look {
    fn template(self) -> &'static str {
        match self {
            Look::UnknownLength => UNKNOWN_LENGTH,
            Look::KnownLength => KNOWN_LENGTH,
            Look::ManyFiles => MANY_FILES,
        }
    }
}

async fn draw(progress: Weak<Progress>) {
    let mut look = Look::UnknownLength;
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
        let files = progress.files.load(Ordering::Relaxed);
        let wanted = match (files, expected) {
            (2.., _) => Look::ManyFiles,
            (_, 0) => Look::UnknownLength,
            _ => Look::KnownLength,
        };
        if expected > 0 {
            progress.bar.set_length(expected);
        }
        if wanted != look {
            look = wanted;
            progress.bar.set_style(style(look.template()));
        }
        if look == Look::ManyFiles {
            let ended = progress.ended.load(Ordering::Relaxed);
            progress
                .bar
                .set_message(format!("{} of {} files", grouped(ended), grouped(files)));
        }
        progress.bar.set_position(progress.bytes());
        if progress.jumped.swap(false, Ordering::Relaxed) {
            progress.bar.reset_eta();
        }
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
        for template in [KNOWN_LENGTH, UNKNOWN_LENGTH, MANY_FILES] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn a_body_that_is_resumed_or_begun_again_is_expected_once() {
        let progress = Progress::hidden();
        let counts = || (progress.bytes(), progress.expected.load(Ordering::Relaxed));
        let mut share = Share::new(&progress);
        share.expect_more(2_000);
        share.moved(700);
        assert_eq!(counts(), (700, 2_000));
        share.expect_more(1_300);
        share.moved(600);
        assert_eq!(counts(), (1_300, 2_000));
        // Begun again, with another length.
        share.set_bytes(0);
        share.expect_more(1_500);
        assert_eq!(counts(), (0, 1_500));
        share.moved(1_500);
        // Another one, found on the disk up to its half, fails.
        let mut other = Share::new(&progress);
        other.set_bytes(50);
        other.expect_more(50);
        other.moved(10);
        assert_eq!(counts(), (1_560, 1_600));
        drop(other);
        assert_eq!(counts(), (1_560, 1_560));
        drop(share);
        assert_eq!(counts(), (1_560, 1_560));
    }

    #[test]
    fn an_upload_that_is_continued_counts_from_its_offset_and_not_what_an_earlier_request_sent() {
        let progress = Progress::hidden();
        let first = progress.sent();
        progress.continue_upload(700);
        assert_eq!(progress.bytes(), 700);
        progress.continue_upload(0);
        assert_eq!(progress.bytes(), 0);
        drop(first);
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
        progress.file();
        progress.file();
        progress.file();
        progress.ended();
        progress.ended();
        progress.moved(4);
        is_shown(7).await;
        assert_eq!(progress.bar.length(), Some(10));
        assert_eq!(progress.bar.message(), "2 of 3 files");
        assert!(!drawing.is_finished());
        progress.clear();
        assert!(drawing.await.is_ok());
        assert!(progress.bar.is_finished());
    }

    #[tokio::test]
    async fn what_was_found_on_the_disk_has_no_part_in_the_rate() {
        let progress = Progress::hidden();
        let _drawing = tokio::spawn(draw(Arc::downgrade(&progress)));
        let mut share = Share::new(&progress);
        share.set_bytes(1 << 40);
        while progress.bar.position() != 1 << 40 {
            tokio::time::sleep(BETWEEN_DRAWINGS / 10).await;
        }
        assert!(progress.bar.per_sec() < 1.0, "{}", progress.bar.per_sec());
    }

    #[tokio::test]
    async fn nothing_is_drawn_once_the_run_is_over() {
        let progress = Progress::hidden();
        let drawing = tokio::spawn(draw(Arc::downgrade(&progress)));
        drop(progress);
        assert!(drawing.await.is_ok());
    }
}
