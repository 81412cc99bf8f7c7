//! Bounds on what connections hold together: memory (law 5) and streams. [`MemoryBudget`] and [`StreamBudget`] bound
//! all connections of a server, and [`Share`] those of one peer.
//!
//! A connection leases before it holds: the bytes of a window before it advertises them, a stream before it accepts
//! it. So the sum over all connections never exceeds a budget, whatever the peers do. Leases are returned as bytes
//! are consumed and streams end, and completely when the connection ends.

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
    /// Credit that the peer has not used, in bytes.
    pub outstanding: u64,
    /// Bytes that the peer has sent and nobody has consumed.
    pub buffered: u64,
}

impl Promise {
    /// The sum of both.
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
/// config.set_budget(Some(budget.clone()));
/// let connection = Connection::server(config, Time::ZERO);
/// assert!(budget.leased() > 0 && budget.leased() <= budget.limit());
/// drop(connection);
/// assert_eq!(budget.leased(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    pool: Arc<Pool>,
}

impl MemoryBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        MemoryBudget {
            pool: Pool::new(bytes),
        }
    }

    /// The size in bytes.
    pub fn limit(&self) -> u64 {
        self.pool.limit
    }

    /// The leased bytes.
    pub fn leased(&self) -> u64 {
        self.pool.leased()
    }

    /// The bytes that are left.
    pub fn free(&self) -> u64 {
        self.pool.free()
    }

    /// Whether less than an eighth is left. Then windows shrink.
    pub fn is_scarce(&self) -> bool {
        self.pool.is_scarce()
    }
}

/// A bound on the streams that any number of connections of a server may have at once, all together. A stream counts
/// from its HEADERS until it is closed and its owner has released it. A request beyond the bound is refused with
/// REFUSED_STREAM, so that the client may repeat it. The only stream of a connection is never refused: with `n` connections
/// there are up to `n` streams beside the bound. Clones are one budget.
///
/// ```
/// use fullbore_proto::{Config, StreamBudget};
///
/// let budget = StreamBudget::new(100_000);
/// let mut config = Config::default();
/// config.set_stream_budget(Some(budget.clone()));
/// assert_eq!((budget.limit(), budget.leased()), (100_000, 0));
/// ```
#[derive(Debug, Clone)]
pub struct StreamBudget {
    pool: Arc<Pool>,
}

impl StreamBudget {
    /// A budget of `streams`.
    pub fn new(streams: u64) -> Self {
        StreamBudget {
            pool: Pool::new(streams),
        }
    }

    /// The size.
    pub fn limit(&self) -> u64 {
        self.pool.limit
    }

    /// The leased streams. Connections lease a few in advance.
    pub fn leased(&self) -> u64 {
        self.pool.leased()
    }

    /// Whether less than an eighth is left.
    pub fn is_scarce(&self) -> bool {
        self.pool.is_scarce()
    }
}

/// The connections of one peer, such as all that come from one address. Clones are one share.
///
/// All connections with one share may hold, together, no more of a [`MemoryBudget`] and of a [`StreamBudget`] than is
/// left to all others: a share that is alone has half, and a newcomer always finds as much as any other may still take.
///
/// ```
/// use fullbore_proto::{Config, Connection, MemoryBudget, Share, Time};
///
/// let budget = MemoryBudget::new(64 << 20);
/// let share = Share::new();
/// let mut config = Config::default();
/// config.set_budget(Some(budget.clone()));
/// config.set_share(Some(share.clone()));
/// let connect = |_| Connection::server(config.clone(), Time::ZERO);
/// let connections: Vec<_> = (0..1_000).map(connect).collect();
/// assert!(share.leased_bytes() <= budget.limit() / 2);
/// drop(connections);
/// assert_eq!(share.leased_bytes(), 0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Share {
    held: Arc<Leased>,
}

/// What the connections of a share have leased.
#[derive(Debug, Default)]
struct Leased {
    bytes: AtomicU64,
    streams: AtomicU64,
}

impl Share {
    /// A share that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of a [`MemoryBudget`] that its connections have leased.
    pub fn leased_bytes(&self) -> u64 {
        self.held.bytes.load(Ordering::Acquire)
    }

    /// The streams of a [`StreamBudget`] that its connections have leased.
    pub fn leased_streams(&self) -> u64 {
        self.held.streams.load(Ordering::Acquire)
    }
}

/// A bounded amount of a resource.
#[derive(Debug)]
struct Pool {
    limit: u64,
    leased: AtomicU64,
}

impl Pool {
    fn new(limit: u64) -> Arc<Self> {
        Arc::new(Pool {
            limit,
            leased: AtomicU64::new(0),
        })
    }

    fn leased(&self) -> u64 {
        self.leased.load(Ordering::Acquire)
    }

    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.leased())
    }

    fn is_scarce(&self) -> bool {
        self.free() < self.limit / 8
    }

    /// Takes `count`, all or nothing. `share` counts what its holder has, which never exceeds what is left.
    fn take(&self, count: u64, share: Option<&AtomicU64>) -> bool {
        // The share is charged first, so that two concurrent calls see each other.
        let held = share.map_or(0, |share| {
            share.fetch_add(count, Ordering::AcqRel).saturating_add(count)
        });
        let taken = self
            .leased
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |leased| {
                let sum = leased.checked_add(count)?;
                let left = self.limit.checked_sub(sum)?;
                (held <= left).then_some(sum)
            });
        if let (Err(_), Some(share)) = (taken, share) {
            share.fetch_sub(count, Ordering::AcqRel);
        }
        taken.is_ok()
    }

    fn give(&self, count: u64, share: Option<&AtomicU64>) {
        self.leased.fetch_sub(count, Ordering::AcqRel);
        if let Some(share) = share {
            share.fetch_sub(count, Ordering::AcqRel);
        }
    }

    /// How much a holder of `share` may take: no more than it leaves to all others.
    fn left(&self, share: Option<&AtomicU64>) -> u64 {
        match share {
            Some(share) => self.free().saturating_sub(share.load(Ordering::Acquire)) / 2,
            None => self.free(),
        }
    }

    /// The last eighth of what a holder of `share` can have in all. It is for connections that have no lease and now need
    /// one: wide windows of others leave it.
    fn last_eighth(&self, share: Option<&AtomicU64>) -> u64 {
        match share {
            Some(held) => (held.load(Ordering::Acquire) + self.left(share)) / 8,
            None => self.limit / 8,
        }
    }

    /// How much a holder of `share` may take for a wide window of what is left beyond `reserve`.
    fn headroom(&self, reserve: u64, share: Option<&AtomicU64>) -> u64 {
        let spare = self.free().saturating_sub(reserve);
        let left = self.left(share);
        spare.min(left.saturating_sub(self.last_eighth(share)))
    }
}

/// What a connection has leased of a budget. Dropping it returns everything. Without a budget every request succeeds.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Option<Arc<Pool>>,
    share: Option<Share>,
    resource: Resource,
    held: u64,
}

#[derive(Debug, Clone, Copy)]
enum Resource {
    Bytes,
    Streams,
}

impl Lease {
    /// An empty lease of memory, by a connection of `share`.
    pub(crate) fn of_memory(budget: Option<&MemoryBudget>, share: Option<&Share>) -> Self {
        Lease {
            pool: budget.map(|budget| Arc::clone(&budget.pool)),
            share: share.cloned(),
            resource: Resource::Bytes,
            held: 0,
        }
    }

    /// An empty lease of streams, by a connection of `share`.
    pub(crate) fn of_streams(budget: Option<&StreamBudget>, share: Option<&Share>) -> Self {
        Lease {
            pool: budget.map(|budget| Arc::clone(&budget.pool)),
            share: share.cloned(),
            resource: Resource::Streams,
            held: 0,
        }
    }

    /// Takes the initial lease of a connection: `wanted`, but at most a quarter of what is free of the budget's first
    /// half, so that later connections find room; and at least `least`, or nothing. The second half is for
    /// connections in use, and so is the last eighth of what a share can have: a proxy has one address, and many idle
    /// connections.
    pub(crate) fn open(&mut self, wanted: u64, least: u64) -> u64 {
        let share = match &self.pool {
            Some(pool) => {
                let first_half = pool.free().saturating_sub(pool.limit / 2);
                let quarter = first_half.min(pool.left(self.counter())) / 4;
                wanted
                    .min(quarter)
                    .min(pool.headroom(pool.limit / 2, self.counter()))
            }
            None => wanted,
        };
        if share >= least && self.grow(share) {
            share
        } else {
            0
        }
    }

    /// Takes `count` more, all or nothing.
    pub(crate) fn grow(&mut self, count: u64) -> bool {
        let granted = match &self.pool {
            Some(pool) => pool.take(count, self.counter()),
            None => true,
        };
        if granted {
            self.held += count;
        }
        granted
    }

    /// How much of `bytes` may be leased before the budget is scarce.
    pub(crate) fn affordable(&self, bytes: u32) -> u32 {
        let spare = self
            .pool
            .as_ref()
            .map_or(u64::MAX, |pool| pool.headroom(pool.limit / 8, self.counter()));
        u32::try_from(spare).map_or(bytes, |spare| spare.min(bytes))
    }

    /// Returns what exceeds `count`.
    pub(crate) fn shrink_to(&mut self, count: u64) {
        let surplus = self.held.saturating_sub(count);
        if surplus == 0 {
            return;
        }
        self.held -= surplus;
        if let Some(pool) = &self.pool {
            pool.give(surplus, self.counter());
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether less than an eighth is left of the budget, or of what the share can have.
    pub(crate) fn is_scarce(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| {
            let share = self.counter();
            pool.is_scarce() || pool.left(share) < pool.last_eighth(share)
        })
    }

    pub(crate) fn has_budget(&self) -> bool {
        self.pool.is_some()
    }

    fn counter(&self) -> Option<&AtomicU64> {
        let held = &self.share.as_ref()?.held;
        Some(match self.resource {
            Resource::Bytes => &held.bytes,
            Resource::Streams => &held.streams,
        })
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

    fn lease(budget: &MemoryBudget, share: Option<&Share>) -> Lease {
        Lease::of_memory(Some(budget), share)
    }

    #[test]
    fn leases_never_pass_the_budget_and_all_of_it_comes_back() {
        let budget = MemoryBudget::new(1_000);
        let mut first = lease(&budget, None);
        let mut second = lease(&budget, None);
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
    fn a_connection_opens_with_the_least_but_with_no_less() {
        let budget = MemoryBudget::new(1_000);
        for (least, granted) in [(125, 125), (126, 0)] {
            let mut lease = lease(&budget, None);
            assert_eq!((lease.open(600, least), lease.held()), (granted, granted));
        }
    }

    #[test]
    fn a_connection_that_cannot_have_the_least_has_nothing() {
        let budget = MemoryBudget::new(100);
        let mut lease = lease(&budget, None);
        assert_eq!(lease.open(600, 101), 0);
        assert_eq!(lease.held(), 0);
    }

    #[test]
    fn a_share_holds_no_more_than_it_leaves_to_all_others() {
        let budget = MemoryBudget::new(1_000);
        let (one, two) = (Share::new(), Share::new());
        let mut first = lease(&budget, Some(&one));
        let mut again = lease(&budget, Some(&one));
        assert!(!first.grow(501));
        assert_eq!(
            (one.leased_bytes(), budget.leased()),
            (0, 0),
            "nothing is kept of it"
        );
        assert!(first.grow(300) && again.grow(200));
        assert!(!again.grow(1), "alone it has half");
        let mut other = lease(&budget, Some(&two));
        assert!(!other.grow(251));
        assert!(other.grow(250));
        assert_eq!(budget.free(), 250);
        drop(again);
        assert_eq!((one.leased_bytes(), budget.free()), (300, 450));
        drop((first, other));
        assert_eq!(
            (one.leased_bytes(), two.leased_bytes(), budget.leased()),
            (0, 0, 0)
        );
    }

    #[test]
    fn what_is_affordable_to_a_share_can_be_had() {
        let budget = MemoryBudget::new(1_000);
        let share = Share::new();
        let mut held = lease(&budget, Some(&share));
        assert!(held.grow(200));
        // It can have 500 in all, of which an eighth is for connections without a lease.
        let affordable = held.affordable(1_000);
        assert_eq!(affordable, 238);
        assert!(held.grow(u64::from(affordable)));
        assert_eq!(held.affordable(1_000), 0);
        assert!(!held.is_scarce());
        assert!(held.grow(62) && held.is_scarce() && !budget.is_scarce());
    }

    #[test]
    fn streams_and_bytes_of_a_share_are_counted_apart() {
        let share = Share::new();
        let mut streams = Lease::of_streams(Some(&StreamBudget::new(10)), Some(&share));
        let mut bytes = Lease::of_memory(Some(&MemoryBudget::new(100)), Some(&share));
        assert!(!streams.grow(6));
        assert!(streams.grow(5) && bytes.grow(50));
        assert_eq!((share.leased_streams(), share.leased_bytes()), (5, 50));
    }
}
