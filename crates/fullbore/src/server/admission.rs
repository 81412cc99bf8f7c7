//! Admission control: how many connections a server has, how many of them an address has, and which are evicted.
//!
//! `listener` asks for a permit before it serves a connection, and checks once a second whether memory or streams are
//! scarce. The engine bounds the memory and the streams of an address, by [`Share`]. This module bounds the
//! connections. When one of the three is scarce, it evicts connections without progress: those of the address that
//! holds most first, and of these the one whose last progress is the longest ago.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use fullbore_proto::{Config, Share, StreamBudget, prefetch};
use tokio::time::Instant;

/// The connections of a server, unless a limit is set.
pub const DEFAULT_MAX_CONNECTIONS: usize = 16_384;

/// The open streams of all connections of a server, unless a limit is set.
pub const DEFAULT_MAX_TOTAL_STREAMS: u64 = 65_536;

/// How long a connection may make no progress while memory, streams or connections are scarce.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that count as progress.
const MIN_PROGRESS: u64 = 1 << 10;

/// The time of progress is noted no more often than this.
const SINCE_RESOLUTION: Duration = Duration::from_millis(10);

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
/// connection ends with GOAWAY, or over HTTP/1.1 with 503 if its response has not begun. If the new connection's own
/// address has most connections, and none of these is idle, the new connection is closed instead.
///
/// Streams, and the memory budget, are shared by the rule of [`Share`](crate::settings::Share): an address has at most as much
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

/// The state of a connection that other tasks read. The connection's own task writes it, but for what it is told. What every
/// poll needs comes first, so that it is on one line of the processor's cache.
#[repr(C)]
struct Entry {
    /// Bits of [`Told`].
    told: AtomicU8,
    streams: AtomicU64,
    leased: AtomicU64,
    /// The time of the last progress, or of becoming idle, in microseconds since `began`; or up to [`SINCE_RESOLUTION`] before,
    /// and for a connection over HTTP/1.1 without a request up to 2 s before.
    since: AtomicU64,
    waker: AtomicWaker,
    group: IpAddr,
    /// The index in its group.
    index: AtomicUsize,
    /// Which server it belongs to.
    server: u64,
}

/// What a connection was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told(u8);

impl Told {
    const SHUTDOWN: u8 = 1;
    const GONE: u8 = 2;
    const EVICTED: u8 = 4;

    /// To end when its requests are over.
    pub(super) fn shuts_down(self) -> bool {
        self.0 & (Self::SHUTDOWN | Self::GONE) != 0
    }

    /// That its server is gone.
    pub(super) fn is_gone(self) -> bool {
        self.0 & Self::GONE != 0
    }

    /// To end for another one.
    pub(super) fn is_evicted(self) -> bool {
        self.0 & Self::EVICTED != 0
    }

    /// To end at once.
    fn ends(self) -> bool {
        self.is_evicted() || self.is_gone()
    }
}

/// A server whose connections the limits count. They are told that it is gone when this is dropped.
pub(super) struct Admission {
    limits: ConnectionLimits,
    config: Arc<Config>,
    server: u64,
}

impl Admission {
    /// `config` is the server's.
    pub(super) fn new(limits: ConnectionLimits, config: Arc<Config>) -> Self {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let server = SERVERS.fetch_add(1, Ordering::Relaxed);
        Admission {
            limits,
            config,
            server,
        }
    }

    /// [`ConnectionLimits::admit`] for this server.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Permit> {
        self.limits.admit(address, &self.config, self.server)
    }

    /// Tells all connections to end when their requests are over.
    pub(super) fn shut_down(&self) {
        self.limits.tell(self.server, Told::SHUTDOWN);
    }

    /// Whether a connection has a request in progress.
    pub(super) fn has_requests(&self) -> bool {
        let table = self.limits.lock();
        let mut entries = table.groups.values().flat_map(|group| &group.entries);
        entries.any(|entry| entry.server == self.server && entry.held(Resource::Streams) > 0)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.limits.tell(self.server, Told::GONE);
    }
}

/// The permit of one connection. Dropping it makes room for another.
pub(super) struct Permit {
    entry: Arc<Entry>,
    /// The progress that was recorded last.
    progress: u64,
    had_streams: bool,
    /// The time of progress is not noted before this.
    note_next: Instant,
    limits: ConnectionLimits,
    config: Arc<Config>,
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
        self.inner.closing.load(Ordering::Acquire) >= self.max_closing()
    }

    /// How many evicted connections may be closing.
    pub(super) fn max_closing(&self) -> usize {
        (self.inner.max_connections / 8).max(16)
    }

    /// Admits a connection from this address, and evicts another one at the limit. Returns `None` when that would be a
    /// connection in use of the same address. `config` is that of the `server`.
    fn admit(&self, address: IpAddr, config: &Arc<Config>, server: u64) -> Option<Permit> {
        let address = address_group(address);
        let mut table = self.lock();
        let mut victim = None;
        if self.connections() >= self.inner.max_connections {
            let found = table.find_victim(address, self.now())?;
            self.evict(&mut table, &found);
            victim = Some(found);
        }
        let group = table.groups.entry(address).or_default();
        let config = group.config_for(config, &self.inner.streams);
        let now = Instant::now();
        let entry = Arc::new(Entry {
            group: address,
            index: AtomicUsize::new(group.entries.len()),
            streams: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            since: AtomicU64::new(self.time(now)),
            told: AtomicU8::new(0),
            waker: AtomicWaker::new(),
            server,
        });
        let before = group.entries.len();
        group.entries.push(Arc::clone(&entry));
        table.resized(address, before);
        self.inner.active.fetch_add(1, Ordering::AcqRel);
        drop(table);
        wake(victim);
        Some(Permit {
            limits: self.clone(),
            entry,
            config,
            progress: 0,
            had_streams: false,
            note_next: now,
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
        if let Some(budget) = config.budget().as_ref().filter(|budget| budget.is_scarce()) {
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
        let mut evicted = Vec::new();
        while let Some((held, address)) = heap.pop() {
            if free >= wanted || evicted.len() == MAX_EVICTIONS {
                break;
            }
            let Some(entry) = stalled.get_mut(&address).and_then(Vec::pop) else {
                continue;
            };
            let gain = entry.held(resource);
            free = free.saturating_add(gain);
            self.evict(&mut table, &entry);
            evicted.push(entry);
            heap.push((held.saturating_sub(gain), address));
        }
        drop(table);
        let count = evicted.len();
        wake(evicted);
        count
    }

    /// Tells a connection to end. The caller wakes it once the table is unlocked: whoever wakes runs code of the runtime.
    fn evict(&self, table: &mut Table, entry: &Arc<Entry>) {
        table.remove(entry);
        if let Some(group) = table.groups.get_mut(&entry.group) {
            group.closing += 1;
        }
        self.inner.closing.fetch_add(1, Ordering::AcqRel);
        self.inner.active.fetch_sub(1, Ordering::AcqRel);
        entry.tell(Told::EVICTED);
    }

    /// Tells all connections of a server, but for those that are evicted.
    fn tell(&self, server: u64, word: u8) {
        let table = self.lock();
        let entries = table.groups.values().flat_map(|group| &group.entries);
        let told: Vec<_> = entries.filter(|entry| entry.server == server).cloned().collect();
        drop(table);
        for entry in &told {
            entry.tell(word);
        }
        wake(told);
    }

    /// Removes a connection that has ended.
    fn leave(&self, entry: &Arc<Entry>) {
        let mut table = self.lock();
        if entry.told().is_evicted() {
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

/// Wakes connections that were told something.
fn wake(told: impl IntoIterator<Item = Arc<Entry>>) {
    for entry in told {
        entry.waker.wake();
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
                own.set_share(Some(self.share.clone()));
                own.set_stream_budget(Some(streams.clone()));
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
    fn tell(&self, word: u8) {
        self.told.fetch_or(word, Ordering::Release);
    }

    fn told(&self) -> Told {
        Told(self.told.load(Ordering::Acquire))
    }

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
            // The difference of two times costs more than the rest of a record.
            if at >= self.note_next {
                self.note_next = at + SINCE_RESOLUTION;
                self.entry.since.store(self.limits.time(at), Ordering::Relaxed);
            }
        }
    }

    /// Has the processor fetch what [`Self::record`] writes.
    pub(super) fn prefetch(&self) {
        prefetch(&*self.entry);
    }

    /// What the connection was told.
    pub(super) fn told(&self) -> Told {
        self.entry.told()
    }

    /// Has the task woken when the connection is told something, once.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.entry.waker.register(cx.waker());
    }

    /// Waits until a connection that has no request yet is waited for no longer: at once when it is evicted or its server is
    /// gone, and when its server has been shutting down for `shutdown_grace`.
    pub(super) async fn given_up(&self) {
        poll_fn(|cx| self.poll_told(cx, |told| told != Told::default())).await;
        let ends = poll_fn(|cx| self.poll_told(cx, Told::ends));
        let _ = tokio::time::timeout(self.config.shutdown_grace(), ends).await;
    }

    fn poll_told(&self, cx: &mut Context<'_>, what: impl Fn(Told) -> bool) -> Poll<()> {
        self.register(cx);
        match what(self.told()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
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
mod tests;
