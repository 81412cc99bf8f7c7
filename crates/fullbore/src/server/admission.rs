//! Admission control: how many connections a server has, how many of them an address has, and which are evicted.
//!
//! `listener` asks for a permit before it serves a connection, and checks once a second whether memory or streams are
//! scarce. The engine bounds the memory and the streams of an address, by [`Share`]. This module bounds the
//! connections. When one of the three is scarce, it evicts connections without progress: those of the address that
//! holds most first, and of these the one whose last progress is the longest ago.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use fullbore_proto::{Config, Share, StreamBudget};
use tokio::time::Instant;

/// The connections of a server, unless a limit is set.
pub const DEFAULT_MAX_CONNECTIONS: usize = 16_384;

/// The open streams of all connections of a server, unless a limit is set.
pub const DEFAULT_MAX_TOTAL_STREAMS: u64 = 65_536;

/// How long a connection may make no progress while memory, streams or connections are scarce.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that count as progress.
const MIN_PROGRESS: u64 = 1 << 10;

/// How many connections are compared to find one to evict, so that the cost of an accept is bounded.
const SAMPLE: usize = 64;

/// How many connections one check may evict.
const MAX_EVICTIONS: usize = 256;

/// Maps an address to the group that the limits count as one: an IPv4 address, also when it is written as IPv6
/// (`::ffff:a.b.c.d`), or the /64 of an IPv6 address, which a single host usually has.
///
/// ```
/// use fullbore::server::address_group;
///
/// let group = |text: &str| address_group(text.parse().unwrap());
/// assert_eq!(group("2001:db8::1:2"), group("2001:db8::3:4"));
/// assert_ne!(group("2001:db8:0:1::1"), group("2001:db8:0:2::1"));
/// assert_eq!(group("::ffff:192.0.2.1"), group("192.0.2.1"));
/// ```
pub fn address_group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Limits on all connections of one or more [`Server`](crate::Server)s together: a number of connections and of
/// streams. Clones share the limits, as servers of [`ServerBuilder::bind_shared`](crate::ServerBuilder::bind_shared)
/// should.
///
/// At the limit of connections, a new connection evicts another one: of the address that has most connections
/// ([`address_group`]), one without a request, or else the one whose last progress is the longest ago. The evicted
/// connection ends with GOAWAY, or over HTTP/1.1 with 503 if its response has not begun. If the new connection's own address has most, and none of these is idle, the new
/// connection is closed instead.
///
/// Streams, and the memory budget, are shared by the rule of [`Share`](crate::Share): an address has at most as much
/// as is left for all others. When less than an eighth of either is left, connections that hold some and have made no
/// progress for 10 s end with ENHANCE_YOUR_CALM, those of the address that holds most first.
///
/// ```
/// use fullbore::server::ConnectionLimits;
///
/// let limits = ConnectionLimits::new(10_000, 50_000);
/// assert_eq!((limits.max_connections(), limits.connections()), (10_000, 0));
/// ```
#[derive(Clone)]
pub struct ConnectionLimits {
    inner: Arc<Inner>,
}

struct Inner {
    max_connections: usize,
    streams: StreamBudget,
    began: Instant,
    /// Connections in service. Also known from the table, but read without the lock.
    active: AtomicUsize,
    /// Evicted connections that have not ended yet.
    closing: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    groups: HashMap<IpAddr, Group>,
    /// The groups by their number of connections.
    by_size: BTreeSet<(usize, IpAddr)>,
    /// The group in which the last search for a connection to evict ended.
    last: Option<IpAddr>,
}

/// The connections of one address.
#[derive(Default)]
struct Group {
    share: Share,
    /// The server's settings, and the connections' settings made from them.
    config: Option<(Arc<Config>, Arc<Config>)>,
    entries: Vec<Arc<Entry>>,
    /// Evicted connections that have not ended yet.
    closing: usize,
    /// Where the next search for a connection to evict starts.
    next: usize,
}

/// The state of a connection that other tasks read. The connection's own task writes it.
struct Entry {
    group: IpAddr,
    /// The index in its group.
    index: AtomicUsize,
    streams: AtomicU64,
    leased: AtomicU64,
    /// The time of the last progress, or of becoming idle, in microseconds since `began`.
    since: AtomicU64,
    evicted: AtomicBool,
    waker: AtomicWaker,
}

/// The permit of one connection. Dropping it makes room for another.
pub(super) struct Permit {
    limits: ConnectionLimits,
    entry: Arc<Entry>,
    config: Arc<Config>,
    /// The progress that was recorded last.
    progress: u64,
    had_streams: bool,
}

/// What may be scarce.
#[derive(Debug, Clone, Copy)]
enum Resource {
    Streams,
    Memory,
}

impl ConnectionLimits {
    /// Creates limits on the number of connections and on the streams of all of them.
    pub fn new(max_connections: usize, max_streams: u64) -> Self {
        ConnectionLimits {
            inner: Arc::new(Inner {
                max_connections,
                streams: StreamBudget::new(max_streams),
                began: Instant::now(),
                active: AtomicUsize::new(0),
                closing: AtomicUsize::new(0),
                table: Mutex::default(),
            }),
        }
    }

    /// The limit on connections. Up to an eighth as many more, at least 16, may be closing after an eviction.
    pub fn max_connections(&self) -> usize {
        self.inner.max_connections
    }

    /// The number of connections, without evicted ones that are closing.
    pub fn connections(&self) -> usize {
        self.inner.active.load(Ordering::Acquire)
    }

    /// The budget of streams.
    pub fn streams(&self) -> &StreamBudget {
        &self.inner.streams
    }

    /// Whether so many evicted connections are closing that accepting has to wait.
    pub(super) fn has_many_closing(&self) -> bool {
        let most = (self.inner.max_connections / 8).max(16);
        self.inner.closing.load(Ordering::Acquire) >= most
    }

    /// Admits a connection from this address, and evicts another one at the limit. Returns `None` when that would be a
    /// connection in use of the same address. `config` is the server's.
    pub(super) fn admit(&self, address: IpAddr, config: &Arc<Config>) -> Option<Permit> {
        let address = address_group(address);
        let mut table = self.lock();
        if self.connections() >= self.inner.max_connections {
            let victim = table.find_victim(address, self.now())?;
            self.evict(&mut table, &victim);
        }
        let group = table.groups.entry(address).or_default();
        let config = group.config_for(config, &self.inner.streams);
        let entry = Arc::new(Entry {
            group: address,
            index: AtomicUsize::new(group.entries.len()),
            streams: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            since: AtomicU64::new(self.now()),
            evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let before = group.entries.len();
        group.entries.push(Arc::clone(&entry));
        table.resized(address, before);
        self.inner.active.fetch_add(1, Ordering::AcqRel);
        Some(Permit {
            limits: self.clone(),
            entry,
            config,
            progress: 0,
            had_streams: false,
        })
    }

    /// Evicts connections without progress while streams or memory are scarce. Returns how many.
    pub(super) fn evict_stalled(&self, config: &Config) -> usize {
        let mut evicted = 0;
        let streams = self.streams();
        if streams.is_scarce() {
            evicted += self.make_room(
                Resource::Streams,
                streams.limit() / 8,
                streams.limit() - streams.leased(),
            );
        }
        if let Some(budget) = config.budget.as_ref().filter(|budget| budget.is_scarce()) {
            evicted += self.make_room(Resource::Memory, budget.limit() / 8, budget.free());
        }
        evicted
    }

    /// Evicts stalled connections until `wanted` is free: of the group that holds most, the one whose last progress
    /// is the longest ago.
    fn make_room(&self, resource: Resource, wanted: u64, mut free: u64) -> usize {
        let now = self.now();
        let mut table = self.lock();
        let mut heap = BinaryHeap::new();
        let mut stalled: HashMap<IpAddr, Vec<Arc<Entry>>> = HashMap::new();
        for (&address, group) in &table.groups {
            let held = match resource {
                Resource::Streams => group.share.leased_streams(),
                Resource::Memory => group.share.leased_bytes(),
            };
            let is_stalled = |entry: &&Arc<Entry>| entry.held(resource) > 0 && entry.is_stalled(now);
            let mut entries: Vec<_> = group.entries.iter().filter(is_stalled).cloned().collect();
            if !entries.is_empty() {
                // The oldest is last, and `pop` takes it first.
                entries.sort_by_key(|entry| std::cmp::Reverse(entry.since.load(Ordering::Relaxed)));
                stalled.insert(address, entries);
                heap.push((held, address));
            }
        }
        let mut evicted = 0;
        while let Some((held, address)) = heap.pop() {
            if free >= wanted || evicted == MAX_EVICTIONS {
                break;
            }
            let Some(entry) = stalled.get_mut(&address).and_then(Vec::pop) else {
                continue;
            };
            let gain = entry.held(resource);
            free = free.saturating_add(gain);
            self.evict(&mut table, &entry);
            evicted += 1;
            heap.push((held.saturating_sub(gain), address));
        }
        evicted
    }

    /// Tells a connection to end.
    fn evict(&self, table: &mut Table, entry: &Arc<Entry>) {
        table.remove(entry);
        if let Some(group) = table.groups.get_mut(&entry.group) {
            group.closing += 1;
        }
        self.inner.closing.fetch_add(1, Ordering::AcqRel);
        self.inner.active.fetch_sub(1, Ordering::AcqRel);
        entry.evicted.store(true, Ordering::Release);
        entry.waker.wake();
    }

    /// Removes a connection that has ended.
    fn leave(&self, entry: &Arc<Entry>) {
        let mut table = self.lock();
        if entry.evicted.load(Ordering::Acquire) {
            self.inner.closing.fetch_sub(1, Ordering::AcqRel);
            if let Some(group) = table.groups.get_mut(&entry.group) {
                group.closing -= 1;
            }
        } else {
            table.remove(entry);
            self.inner.active.fetch_sub(1, Ordering::AcqRel);
        }
        let empty = |group: &Group| group.entries.is_empty() && group.closing == 0;
        if table.groups.get(&entry.group).is_some_and(empty) {
            table.groups.remove(&entry.group);
        }
    }

    fn now(&self) -> u64 {
        self.time(Instant::now())
    }

    fn time(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.inner.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS)
    }
}

impl fmt::Debug for ConnectionLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimits")
            .field("max_connections", &self.max_connections())
            .field("connections", &self.connections())
            .field("streams", self.streams())
            .finish()
    }
}

impl Table {
    /// Finds the connection to evict for a new one from `address`.
    fn find_victim(&mut self, address: IpAddr, now: u64) -> Option<Arc<Entry>> {
        let size = self.by_size.last()?.0;
        let own = self.groups.get(&address).map_or(0, |group| group.entries.len());
        if own >= size {
            // This address would have most: evict one of its own, unless all are in use.
            let group = self.groups.get_mut(&address)?;
            let victim = group.least_active(SAMPLE)?;
            return victim.is_idle_or_stalled(now).then_some(victim);
        }
        // Search the groups that have most, from where the last search ended.
        let first = self.last.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let behind = self
            .by_size
            .range((size, first)..)
            .skip_while(|(_, group)| *group == first);
        let before = self
            .by_size
            .range((size, IpAddr::V4(Ipv4Addr::UNSPECIFIED))..=(size, first));
        let addresses: Vec<IpAddr> = behind
            .chain(before)
            .map(|&(_, group)| group)
            .take(SAMPLE)
            .collect();
        let mut found: Option<Arc<Entry>> = None;
        let mut compared = 0;
        for address in addresses {
            let Some(group) = self.groups.get_mut(&address) else {
                continue;
            };
            self.last = Some(address);
            compared += group.entries.len();
            if let Some(entry) = group.least_active(SAMPLE) {
                if found
                    .as_ref()
                    .is_none_or(|found| entry.activity() < found.activity())
                {
                    found = Some(entry);
                }
            }
            if compared >= SAMPLE {
                break;
            }
        }
        // Among groups of equal size an eviction gains nothing, unless that connection is idle.
        found.filter(|entry| own + 1 < size || entry.is_idle_or_stalled(now))
    }

    /// Removes a connection from its group.
    fn remove(&mut self, entry: &Entry) {
        let Some(group) = self.groups.get_mut(&entry.group) else {
            return;
        };
        let before = group.entries.len();
        let index = entry.index.load(Ordering::Relaxed);
        if index < before {
            group.entries.swap_remove(index);
            if let Some(moved) = group.entries.get(index) {
                moved.index.store(index, Ordering::Relaxed);
            }
            self.resized(entry.group, before);
        }
    }

    /// Updates the order by size of a group that had `before` connections.
    fn resized(&mut self, address: IpAddr, before: usize) {
        self.by_size.remove(&(before, address));
        let size = self.groups.get(&address).map_or(0, |group| group.entries.len());
        if size > 0 {
            self.by_size.insert((size, address));
        }
    }
}

impl Group {
    fn config_for(&mut self, config: &Arc<Config>, streams: &StreamBudget) -> Arc<Config> {
        match &self.config {
            Some((of, own)) if Arc::ptr_eq(of, config) => Arc::clone(own),
            _ => {
                let mut own = Config::clone(config);
                own.share = Some(self.share.clone());
                own.stream_budget = Some(streams.clone());
                let own = Arc::new(own);
                self.config = Some((Arc::clone(config), Arc::clone(&own)));
                own
            }
        }
    }

    /// The least active of the next connections, up to `most` of them.
    fn least_active(&mut self, most: usize) -> Option<Arc<Entry>> {
        let count = self.entries.len();
        let compared = count.min(most);
        let first = self.next % count.max(1);
        self.next = first + compared;
        let (behind, before) = (self.entries.get(first..)?, self.entries.get(..first)?);
        let entries = behind.iter().chain(before).take(compared);
        entries.min_by_key(|entry| entry.activity()).cloned()
    }
}

impl Entry {
    /// The order of eviction: connections without a request first, then by their last progress.
    fn activity(&self) -> (bool, u64) {
        let used = self.streams.load(Ordering::Relaxed) > 0;
        (used, self.since.load(Ordering::Relaxed))
    }

    fn is_stalled(&self, now: u64) -> bool {
        let stalled = now.saturating_sub(self.since.load(Ordering::Relaxed));
        u128::from(stalled) >= STALL_TIMEOUT.as_micros()
    }

    fn is_idle_or_stalled(&self, now: u64) -> bool {
        self.streams.load(Ordering::Relaxed) == 0 || self.is_stalled(now)
    }

    fn held(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Streams => self.streams.load(Ordering::Relaxed),
            Resource::Memory => self.leased.load(Ordering::Relaxed),
        }
    }
}

impl Permit {
    /// The settings for the connection.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Records the connection's streams, leased bytes, and progress in bytes.
    pub(super) fn record(&mut self, streams: u64, leased: u64, progress: u64, at: Instant) {
        self.entry.streams.store(streams, Ordering::Relaxed);
        self.entry.leased.store(leased, Ordering::Relaxed);
        let has_streams = streams > 0;
        if has_streams != self.had_streams || progress - self.progress >= MIN_PROGRESS {
            self.had_streams = has_streams;
            self.progress = progress;
            self.entry.since.store(self.limits.time(at), Ordering::Relaxed);
        }
    }

    /// Ready once the connection is evicted.
    pub(super) fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.entry.waker.register(cx.waker());
        match self.is_evicted() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether the connection is evicted.
    pub(super) fn is_evicted(&self) -> bool {
        self.entry.evicted.load(Ordering::Acquire)
    }

    /// Whether it had no request at the last record.
    pub(super) fn is_idle(&self) -> bool {
        !self.had_streams
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limits.leave(&self.entry);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use fullbore_proto::{Connection, MemoryBudget, Time};

    use super::*;

    fn config() -> Arc<Config> {
        Arc::new(Config::default())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Admits `count` connections from an address.
    fn admit(limits: &ConnectionLimits, from: &str, count: usize) -> Vec<Permit> {
        let config = config();
        (0..count)
            .map(|_| limits.admit(address(from), &config).expect("a permit"))
            .collect()
    }

    async fn evicted(permits: &[Permit]) -> Vec<usize> {
        let mut evicted = Vec::new();
        for (number, permit) in permits.iter().enumerate() {
            let poll = poll_fn(|cx| Poll::Ready(permit.poll_evicted(cx))).await;
            evicted.extend(poll.is_ready().then_some(number));
        }
        evicted
    }

    #[test]
    fn an_address_without_connections_has_none_to_evict() {
        assert!(Group::default().least_active(16).is_none());
    }

    #[test]
    fn an_ipv6_prefix_of_64_bits_is_one_group_and_mapped_addresses_are_ipv4() {
        let group = |text| address_group(address(text));
        assert_eq!(group("2001:db8:1:2:3:4:5:6"), address("2001:db8:1:2::"));
        assert_eq!(
            group("2001:db8:1:2:ffff:ffff:ffff:ffff"),
            group("2001:db8:1:2::1")
        );
        assert_ne!(group("2001:db8:1:3::1"), group("2001:db8:1:2::1"));
        assert_eq!(group("::ffff:192.0.2.7"), address("192.0.2.7"));
        assert_ne!(group("192.0.2.7"), group("192.0.2.8"));
        assert_eq!(group("::1"), address("::"));
    }

    #[test]
    fn connections_of_one_64_bit_prefix_share_their_limits() {
        let limits = ConnectionLimits::new(10, 100);
        let config = config();
        let admit = |from| limits.admit(address(from), &config).unwrap();
        let (one, two, other) = (
            admit("2001:db8::1"),
            admit("2001:db8::2:1"),
            admit("2001:db8:0:1::1"),
        );
        assert!(Arc::ptr_eq(&one.config(), &two.config()));
        assert!(!Arc::ptr_eq(&one.config(), &other.config()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_idle_longest_is_evicted() {
        let limits = ConnectionLimits::new(4, 100);
        let mut permits = Vec::new();
        for _ in 0..4 {
            permits.extend(admit(&limits, "192.0.2.1", 1));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The first has a request.
        permits[0].record(1, 0, 0, Instant::now());
        permits.extend(admit(&limits, "192.0.2.1", 1));
        assert_eq!(evicted(&permits).await, [1]);
        assert_eq!(limits.connections(), 4);
        permits.extend(admit(&limits, "192.0.2.2", 1));
        assert_eq!(evicted(&permits).await, [1, 2]);
        permits.clear();
        assert_eq!(limits.connections(), 0);
        let table = limits.lock();
        assert!(table.groups.is_empty() && table.by_size.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_addresses_with_as_many_connections_the_one_that_was_idle_longest_gives_one_up() {
        let limits = ConnectionLimits::new(6, 100);
        let mut permits = Vec::new();
        for from in ["192.0.2.2", "192.0.2.1", "192.0.2.3"] {
            permits.extend(admit(&limits, from, 2));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        permits.extend(admit(&limits, "192.0.2.4", 1));
        assert_eq!(evicted(&permits).await.len(), 1);
        assert!(evicted(&permits).await[0] < 2);
        // Now that one has fewer. Of the other two, the first has not been used for longer.
        permits.extend(admit(&limits, "192.0.2.5", 1));
        assert!((2..4).contains(&evicted(&permits).await[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_most_connections_is_evicted_from_and_gets_no_more_while_all_are_in_use() {
        let limits = ConnectionLimits::new(6, 100);
        let mut many = admit(&limits, "192.0.2.1", 5);
        let mut few = admit(&limits, "192.0.2.2", 1);
        for (number, permit) in many.iter_mut().chain(&mut few).enumerate() {
            permit.record(1, 0, number as u64, Instant::now());
        }
        assert!(limits.admit(address("192.0.2.1"), &config()).is_none());
        let newcomer = admit(&limits, "192.0.2.3", 1);
        assert_eq!(evicted(&many).await, [0]);
        // After a time without progress, one of its own is evicted.
        tokio::time::advance(STALL_TIMEOUT).await;
        many[1].record(1, 0, 10 * MIN_PROGRESS, Instant::now());
        let again = admit(&limits, "192.0.2.1", 1);
        assert_eq!(evicted(&many).await.len(), 2);
        assert!(!evicted(&many).await.contains(&1), "it made progress");
        assert!(evicted(&few).await.is_empty() && evicted(&newcomer).await.is_empty());
        drop((many, few, newcomer, again));
        assert_eq!(limits.connections(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_with_one_connection_in_use_keep_it() {
        let limits = ConnectionLimits::new(100, 100);
        let mut permits: Vec<Permit> = (1..=100)
            .flat_map(|n| admit(&limits, &format!("192.0.2.{n}"), 1))
            .collect();
        permits
            .iter_mut()
            .for_each(|permit| permit.record(1, 0, 0, Instant::now()));
        assert!(limits.admit(address("198.51.100.1"), &config()).is_none());
        // One is idle: two searches find it at any index.
        permits[77].record(0, 0, 0, Instant::now());
        let found = (1..=2).find_map(|n| limits.admit(address(&format!("198.51.100.{n}")), &config()));
        assert!(found.is_some());
        assert_eq!(evicted(&permits).await, [77]);
    }

    #[tokio::test(start_paused = true)]
    async fn scarce_streams_evict_stalled_connections_of_the_address_that_holds_most() {
        let limits = ConnectionLimits::new(100, 160);
        let mut many = admit(&limits, "192.0.2.1", 4);
        let mut few = admit(&limits, "192.0.2.2", 2);
        few.extend(admit(&limits, "192.0.2.3", 1));
        few.extend(admit(&limits, "192.0.2.4", 1));
        let mut engines = Vec::new();
        for (permits, streams) in [(&mut many, 20), (&mut few, 38)] {
            for permit in permits {
                engines.push(with_streams(permit, streams));
                let streams = engines[engines.len() - 1].stream_count();
                permit.record(streams as u64, 0, 0, Instant::now());
            }
        }
        assert!(limits.streams().is_scarce(), "{:?}", limits.streams());
        assert_eq!(limits.evict_stalled(&config()), 0, "they have had no time");
        tokio::time::advance(STALL_TIMEOUT).await;
        many[0].record(20, 0, MIN_PROGRESS, Instant::now());
        assert!(limits.evict_stalled(&config()) > 0);
        let ended = evicted(&many).await;
        assert!(!ended.is_empty() && !ended.contains(&0), "{ended:?}");
        assert_eq!(evicted(&few).await, [], "they hold less");
        assert_eq!(limits.connections(), 8 - ended.len());
    }

    /// An engine with this permit and so many streams, or as many as it gets.
    fn with_streams(permit: &Permit, streams: u32) -> Connection {
        let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for n in 0..streams {
            octets.extend(b"\0\0\x06\x01\x05");
            octets.extend((2 * n + 1).to_be_bytes());
            // GET, http, "/", and "a" as the authority.
            octets.extend(b"\x82\x86\x84\x41\x01a");
        }
        let mut connection = Connection::server(permit.config(), Time::ZERO);
        connection.receive(octets.into(), Time::ZERO).expect("requests");
        connection
    }

    #[tokio::test(start_paused = true)]
    async fn scarce_memory_evicts_stalled_connections() {
        let budget = MemoryBudget::new(900_000);
        let mut own = Config::default();
        own.budget = Some(budget.clone());
        own.adaptive = false;
        own.connection_window = fullbore_proto::WindowSize::new(200_000).unwrap();
        let own = Arc::new(own);
        let limits = ConnectionLimits::new(100, 1_000);
        let mut permits = Vec::new();
        let mut engines = Vec::new();
        for from in [
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "192.0.2.4",
            "192.0.2.5",
        ] {
            let mut permit = limits.admit(address(from), &own).unwrap();
            let engine = Connection::server(permit.config(), Time::ZERO);
            permit.record(1, engine.leased(), 0, Instant::now());
            engines.push(engine);
            permits.push(permit);
        }
        assert!(budget.is_scarce(), "{budget:?}");
        assert_eq!(limits.evict_stalled(&own), 0);
        tokio::time::advance(STALL_TIMEOUT).await;
        assert_eq!(limits.evict_stalled(&own), 1);
        let ended = evicted(&permits).await;
        assert!(ended == [0] || ended == [1], "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_for_an_idle_connection_compares_64() {
        let limits = ConnectionLimits::new(100, 100);
        let mut permits: Vec<Permit> = (1..=100)
            .flat_map(|n| admit(&limits, &format!("192.0.2.{n}"), 1))
            .collect();
        permits
            .iter_mut()
            .for_each(|permit| permit.record(1, 0, 0, Instant::now()));
        permits[SAMPLE].record(0, 0, 0, Instant::now());
        assert!(limits.admit(address("198.51.100.1"), &config()).is_none());
        // The next search starts behind the last one, and ends where that ended.
        permits[SAMPLE].record(1, 0, 0, Instant::now());
        permits[2 * SAMPLE - 101].record(0, 0, 0, Instant::now());
        assert!(limits.admit(address("198.51.100.1"), &config()).is_some());
        assert_eq!(evicted(&permits).await, [2 * SAMPLE - 101]);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_counts_from_the_last_record() {
        let limits = ConnectionLimits::new(1, 100);
        let mut permits = admit(&limits, "192.0.2.1", 1);
        permits[0].record(1, 0, 0, Instant::now());
        let since = |permit: &Permit| permit.entry.since.load(Ordering::Relaxed);
        let mut noted = Vec::new();
        for progress in [
            MIN_PROGRESS,
            MIN_PROGRESS + 1,
            2 * MIN_PROGRESS - 1,
            2 * MIN_PROGRESS,
        ] {
            tokio::time::advance(Duration::from_secs(1)).await;
            permits[0].record(1, 0, progress, Instant::now());
            noted.push(since(&permits[0]) / 1_000_000);
        }
        assert_eq!(noted, [1, 1, 1, 4]);
    }

    #[test]
    fn an_eighth_of_all_connections_may_be_closing() {
        let limits = ConnectionLimits::new(200, 100);
        let mut permits = admit(&limits, "192.0.2.1", 200);
        for _ in 0..25 {
            assert!(!limits.has_many_closing());
            permits.extend(admit(&limits, "192.0.2.1", 1));
        }
        assert!(limits.has_many_closing());
        assert_eq!(limits.connections(), 200);
    }

    #[test]
    fn at_least_16_connections_may_be_closing() {
        let limits = ConnectionLimits::new(1, 100);
        let mut permits = Vec::new();
        for _ in 0..16 {
            assert!(!limits.has_many_closing());
            permits.extend(admit(&limits, "192.0.2.1", 1));
        }
        permits.extend(admit(&limits, "192.0.2.1", 1));
        assert!(limits.has_many_closing());
        permits.remove(0);
        assert!(!limits.has_many_closing());
        assert_eq!(limits.connections(), 1);
    }
}
