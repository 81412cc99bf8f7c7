//! When the paths of the folders are to be compared with the open folders. Called by `folders`, which compares them; `files` and
//! `cache` ask whether it is time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a path may name another folder unnoticed. In tests until they ask, so that none depends on the time it takes.
const LOOK_EVERY: Duration = Duration::from_secs(if cfg!(test) { u32::MAX as u64 } else { 1 });

/// When the paths are to be compared.
#[derive(Debug)]
pub(crate) struct Watch {
    origin: Instant,
    /// Nanoseconds since the origin.
    next: AtomicU64,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            origin: Instant::now(),
            next: AtomicU64::new(LOOK_EVERY.as_nanos() as u64),
        }
    }

    /// Whether the paths are to be compared. Only on Unix are there numbers to compare.
    pub(crate) fn is_due(&self) -> bool {
        cfg!(unix) && self.now() >= self.next.load(Ordering::Relaxed)
    }

    /// The same, for one caller alone.
    pub(crate) fn takes_turn(&self) -> bool {
        const RELAXED: Ordering = Ordering::Relaxed;
        let (now, due) = (self.now(), self.next.load(RELAXED));
        let after = now + LOOK_EVERY.as_nanos() as u64;
        cfg!(unix) && now >= due && self.next.compare_exchange(due, after, RELAXED, RELAXED).is_ok()
    }

    /// Has the next request compare them.
    #[cfg(test)]
    pub(crate) fn hurry(&self) {
        self.next.store(0, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
