//! What this process has allocated, as counted by the allocator of `fullbore-bench-counted`. Under any other allocator all is 0.

use std::ops::{AddAssign, Sub};

use stats_alloc::INSTRUMENTED_SYSTEM;

/// Counts since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Heap {
    /// Allocations, and what was moved to another size.
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    /// Bytes that are not given back; less than 0 as a difference.
    pub(crate) live: i64,
}

impl Heap {
    pub(crate) fn now() -> Self {
        let stats = INSTRUMENTED_SYSTEM.stats();
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            allocations: (stats.allocations + stats.reallocations) as u64,
            // What grew by being moved is among them already.
            bytes: stats.bytes_allocated as u64,
            live: signed(stats.bytes_allocated) - signed(stats.bytes_deallocated),
        }
    }
}

impl Sub for Heap {
    type Output = Heap;

    fn sub(self, before: Heap) -> Heap {
        Heap {
            allocations: self.allocations - before.allocations,
            bytes: self.bytes - before.bytes,
            live: self.live - before.live,
        }
    }
}

impl AddAssign for Heap {
    fn add_assign(&mut self, more: Heap) {
        self.allocations += more.allocations;
        self.bytes += more.bytes;
        self.live += more.live;
    }
}
