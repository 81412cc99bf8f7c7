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
        // A budget for growth is for nothing else.
        let budget = config.budget.as_ref().filter(|_| config.first_windows.is_none());
        Overhead {
            lease: Lease::of_memory(budget, config.share.as_ref()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::MemoryBudget;

    fn overhead(bytes: u64) -> (Overhead, MemoryBudget) {
        let budget = MemoryBudget::new(bytes);
        let config = Config {
            budget: Some(budget.clone()),
            ..Config::default()
        };
        (Overhead::new(&config), budget)
    }

    #[test]
    fn what_exceeds_16_kib_is_leased_in_steps_of_16_kib() {
        let (mut overhead, budget) = overhead(1 << 20);
        for (octets, leased) in [
            (0, 0),
            (16_384, 0),
            (16_385, 16_384),
            (32_768, 16_384),
            (32_769, 32_768),
            (49_153, 49_152),
            // Nearly two steps may be more than is needed.
            (32_769, 49_152),
            (32_768, 16_384),
            (49_153, 49_152),
            (16_384, 0),
        ] {
            overhead.lease_for(octets);
            assert!(overhead.is_leased());
            assert_eq!((overhead.leased(), budget.leased()), (leased, leased), "{octets}");
        }
    }

    #[test]
    fn what_the_budget_has_no_room_for_is_not_leased_until_less_is_needed() {
        let (mut overhead, budget) = overhead(40_000);
        for (octets, is_leased) in [
            (49_152, true),
            (49_153, false),
            (49_152, true),
            (65_536, false),
            (16_384, true),
        ] {
            overhead.lease_for(octets);
            assert_eq!(overhead.is_leased(), is_leased, "{octets}");
        }
        assert_eq!(budget.leased(), 0);
        // Without a lease, too, what is free is enough.
        let mut other = Lease::of_memory(Some(&budget), None);
        assert!(other.grow(40_000));
        overhead.lease_for(16_385);
        overhead.lease_for(16_384);
        assert!(overhead.is_leased());
    }

    #[test]
    fn no_more_of_a_list_is_held_than_the_transport_has_not_taken() {
        let (mut overhead, _) = overhead(0);
        overhead.list(100);
        assert_eq!(
            [99, 100, 101].map(|unsent| overhead.listed(unsent)),
            [99, 100, 100]
        );
    }
}
