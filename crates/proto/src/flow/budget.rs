//! The memory that windows promise, and the budget over any number of connections that bounds it: law 5.
//!
//! A connection leases what its window may cost before it advertises it, so that the sum over all connections never
//! passes the budget, whatever the peers do. The lease is given back as bytes are consumed, and wholly when the
//! connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a peer may make us hold, in bytes, by the credit that it has.
///
/// ```
/// use fullbore_proto::{Config, Connection, Time};
///
/// let connection = Connection::client(Config::default(), Time::ZERO);
/// let window = u64::from(connection.receive_window_size().bytes());
/// assert_eq!(connection.promise().total(), window);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// Credit outstanding: what the peer may send and has not.
    pub outstanding: u64,
    /// What it has sent and nobody has consumed.
    pub buffered: u64,
}

impl Promise {
    /// Both together.
    pub const fn total(self) -> u64 {
        self.outstanding + self.buffered
    }
}

/// A bound, in bytes, on what the receive windows of any number of connections may cost together: credit outstanding
/// plus bytes buffered never pass it. Clones are one budget.
///
/// The first half of it is for connections to open wide, the first ones the widest. Once that is leased a connection
/// begins with the 65,535 bytes of RFC 9113 section 6.9.2 and leases them only while a stream is open; when it cannot have
/// even these, its streams that carry a body are refused with REFUSED_STREAM, and what comes on them is dropped as it
/// comes. When the budget is scarce windows shrink, by credit withheld.
///
/// ```
/// use fullbore_proto::{Config, Connection, MemoryBudget, Time};
///
/// let budget = MemoryBudget::new(64 << 20);
/// let mut config = Config::default();
/// config.budget = Some(budget.clone());
/// let connection = Connection::server(config, Time::ZERO);
/// assert!(budget.leased() > 0 && budget.leased() <= budget.limit());
/// drop(connection);
/// assert_eq!(budget.leased(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u64,
    leased: AtomicU64,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        MemoryBudget {
            shared: Arc::new(Shared {
                limit: bytes,
                leased: AtomicU64::new(0),
            }),
        }
    }

    /// Its size in bytes.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// How many bytes connections have leased.
    pub fn leased(&self) -> u64 {
        self.shared.leased.load(Ordering::Acquire)
    }

    /// How many bytes are left.
    pub fn free(&self) -> u64 {
        self.limit().saturating_sub(self.leased())
    }

    /// Whether so little is left that windows are to shrink: an eighth.
    pub fn is_scarce(&self) -> bool {
        self.free() < self.limit() / 8
    }

    /// Takes `bytes`, all or nothing.
    fn take(&self, bytes: u64) -> bool {
        let taken = self
            .shared
            .leased
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |leased| {
                leased.checked_add(bytes).filter(|&sum| sum <= self.limit())
            });
        taken.is_ok()
    }

    fn give(&self, bytes: u64) {
        self.shared.leased.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// What one connection has leased; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Option<MemoryBudget>,
    held: u64,
}

impl Lease {
    /// A lease of nothing. Without a budget everything is granted.
    pub(crate) fn new(budget: Option<MemoryBudget>) -> Self {
        Lease { budget, held: 0 }
    }

    /// Takes what a new connection may have: `wanted`, but not more than a quarter of what is free of the budget's first
    /// half, so that it opens wide while there is room and leaves some to those that come after; and at least `least`,
    /// or nothing at all. The other half is for connections that are in use: idle ones, however many, have none of it.
    pub(crate) fn open(&mut self, wanted: u64, least: u64) -> u64 {
        let share = match &self.budget {
            Some(budget) => wanted.min(budget.free().saturating_sub(budget.limit() / 2) / 4),
            None => wanted,
        };
        if share >= least && self.grow(share) {
            share
        } else {
            0
        }
    }

    /// Takes `bytes` more, all or nothing.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let granted = self.budget.as_ref().is_none_or(|budget| budget.take(bytes));
        if granted {
            self.held += bytes;
        }
        granted
    }

    /// How much of `bytes` may be leased without making the budget scarce.
    pub(crate) fn affordable(&self, bytes: u32) -> u32 {
        let spare = self.budget.as_ref().map_or(u64::MAX, |budget| {
            budget.free().saturating_sub(budget.limit() / 8)
        });
        u32::try_from(spare).map_or(bytes, |spare| spare.min(bytes))
    }

    /// Gives back what is over `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.held.saturating_sub(bytes);
        self.held -= surplus;
        if let Some(budget) = &self.budget {
            budget.give(surplus);
        }
    }

    /// Bytes leased.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether there is a budget, and it is scarce.
    pub(crate) fn is_scarce(&self) -> bool {
        self.budget.as_ref().is_some_and(MemoryBudget::is_scarce)
    }

    /// Whether there is a budget to lease more from.
    pub(crate) fn has_budget(&self) -> bool {
        self.budget.is_some()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_never_pass_the_budget_and_all_of_it_comes_back() {
        let budget = MemoryBudget::new(1_000);
        let mut first = Lease::new(Some(budget.clone()));
        let mut second = Lease::new(Some(budget.clone()));
        assert_eq!(first.open(600, 100), 125);
        assert_eq!(second.open(600, 90), 93);
        assert!(!second.grow(800));
        assert!(second.grow(782));
        assert_eq!(budget.free(), 0);
        assert!(budget.is_scarce());
        first.shrink_to(25);
        assert_eq!(budget.free(), 100);
        drop(first);
        drop(second);
        assert_eq!(budget.leased(), 0);
    }

    #[test]
    fn a_connection_that_cannot_have_the_least_has_nothing() {
        let budget = MemoryBudget::new(100);
        let mut lease = Lease::new(Some(budget));
        assert_eq!(lease.open(600, 101), 0);
        assert_eq!(lease.held(), 0);
    }
}
