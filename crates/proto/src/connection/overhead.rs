//! The memory of a connection besides bodies: frames that wait to be sent, an incomplete header block, and the field
//! sections of open streams. What exceeds 16 KiB is leased from the memory budget.

use crate::config::Config;
use crate::flow::Lease;

/// The bytes that need no lease.
const FREE: u64 = 16 << 10;

/// The granularity of the lease, in bytes.
const STEP: u64 = 16 << 10;

#[derive(Debug)]
pub(super) struct Overhead {
    lease: Lease,
    /// The bytes of frames on the current write list, DATA excepted.
    listed: u64,
    /// Whether all of it could be leased.
    is_leased: bool,
}

impl Overhead {
    pub(super) fn new(config: &Config) -> Self {
        Overhead {
            lease: Lease::of_memory(config.budget.as_ref(), config.share.as_ref()),
            listed: 0,
            is_leased: true,
        }
    }

    #[inline]
    pub(super) fn is_leased(&self) -> bool {
        self.is_leased
    }

    pub(super) fn leased(&self) -> u64 {
        self.lease.held()
    }

    pub(super) fn list(&mut self, octets: usize) {
        self.listed = octets as u64;
    }

    /// The part of them that may be among the `unsent` bytes of the list.
    pub(super) fn listed(&self, unsent: u64) -> u64 {
        self.listed.min(unsent)
    }

    /// Adapts the lease to a need of `octets`.
    #[inline]
    pub(super) fn lease_for(&mut self, octets: u64) {
        if octets <= FREE && self.lease.held() == 0 {
            self.is_leased = true;
            return;
        }
        self.resize_lease(octets);
    }

    fn resize_lease(&mut self, octets: u64) {
        let needed = octets.saturating_sub(FREE);
        if needed > self.lease.held() {
            let more = (needed - self.lease.held()).next_multiple_of(STEP);
            self.is_leased = self.lease.grow(more);
            return;
        }
        self.is_leased = true;
        if self.lease.held() - needed >= 2 * STEP || needed == 0 {
            self.lease.shrink_to(needed.next_multiple_of(STEP));
        }
    }
}
