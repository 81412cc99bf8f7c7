//! Admission: how many connections a server has, what each address has of them, and which give way when all are taken.
//!
//! `listener` asks for a seat before it serves a connection, and looks once a second whether something is short. The memory
//! and the streams of an address are bounded in the engine, by [`Share`]; here are the connections, and the rule by which
//! a connection that makes no progress ends when one of the three is short: of the address that holds most, the one whose
//! last progress is the longest ago.

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

/// How many connections a server has at once unless told otherwise.
pub const DEFAULT_MAX_CONNECTIONS: usize = 16_384;

/// How many streams all connections of a server have at once unless told otherwise.
pub const DEFAULT_MAX_TOTAL_STREAMS: u64 = 65_536;

/// How long a connection may make no progress before it gives way, when memory, streams or connections are short.
const PATIENCE: Duration = Duration::from_secs(10);

/// Octets that count as progress.
const LEAST_PROGRESS: u64 = 1 << 10;

/// How many connections are compared to find one that gives way: the work of an accept does not grow with connections.
const SAMPLE: usize = 64;

/// How many connections may be told to give way in one look.
const MOST_A_LOOK: usize = 256;

/// The addresses that count as one: an IPv4 address, also when it is written as IPv6 (`::ffff:a.b.c.d`), and the /64 of an
/// IPv6 address, which is what a single host usually has.
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

/// What all connections of a [`Server`](crate::Server) may have together: a number of connections and of streams. Several
/// servers, such as those of [`Server::bind_shared`](crate::Server::bind_shared), can have one. Clones are the same.
///
/// When all connections are taken, a newcomer takes the place of one that gives way: of the address that has most
/// connections ([`address_group`]), one without a request, or else one whose last progress is the longest ago. It is told by
/// GOAWAY. A newcomer whose own address has most, and none that is idle, is not served.
///
/// The streams, and the memory of [`Server::memory_budget`](crate::Server::memory_budget), are shared by the rule of
/// [`Share`]: an address has as much as is left to all others. When less than an eighth of either is left, connections that
/// hold some and have made no progress for 10 s end with ENHANCE_YOUR_CALM, those of the address that holds most first.
///
/// ```
/// use fullbore::server::Shares;
///
/// let shares = Shares::new(10_000, 50_000);
/// assert_eq!((shares.max_connections(), shares.connections()), (10_000, 0));
/// ```
#[derive(Clone)]
pub struct Shares {
    house: Arc<House>,
}

struct House {
    max_connections: usize,
    streams: StreamBudget,
    began: Instant,
    /// Connections that are served, without those that have been told to give way. Kept beside the table for a quick look.
    seated: AtomicUsize,
    /// Connections that have been told, and are not gone.
    ending: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    groups: HashMap<IpAddr, Group>,
    /// The groups by their connections.
    by_size: BTreeSet<(usize, IpAddr)>,
    /// The group that was looked at last for a connection that gives way.
    last: Option<IpAddr>,
}

/// The connections of one address.
#[derive(Default)]
struct Group {
    share: Share,
    /// The settings of its connections, and those of the server that they were made from.
    config: Option<(Arc<Config>, Arc<Config>)>,
    seats: Vec<Arc<Seat>>,
    /// Connections that have been told to give way.
    ending: usize,
    /// Where the next look for one that gives way begins.
    next: usize,
}

/// A connection as others see it. Its own task writes what it has.
struct Seat {
    group: IpAddr,
    /// Where it stands in its group.
    place: AtomicUsize,
    streams: AtomicU64,
    leased: AtomicU64,
    /// When it made progress last, in microseconds since the beginning; for a connection without a request since when.
    since: AtomicU64,
    told: AtomicBool,
    waker: AtomicWaker,
}

/// A connection's place among all. Dropping it makes room.
pub(super) struct Guest {
    shares: Shares,
    seat: Arc<Seat>,
    config: Arc<Config>,
    /// The progress that was noted last.
    progress: u64,
    had_streams: bool,
}

/// What may be short.
#[derive(Debug, Clone, Copy)]
enum Short {
    Streams,
    Memory,
}

impl Shares {
    /// So many connections, one at least, and so many streams of all of them.
    pub fn new(max_connections: usize, max_streams: u64) -> Self {
        Shares {
            house: Arc::new(House {
                max_connections: max_connections.max(1),
                streams: StreamBudget::new(max_streams),
                began: Instant::now(),
                seated: AtomicUsize::new(0),
                ending: AtomicUsize::new(0),
                table: Mutex::default(),
            }),
        }
    }

    /// How many connections there may be at once. Beside them up to an eighth as many, 16 at least, are being ended.
    pub fn max_connections(&self) -> usize {
        self.house.max_connections
    }

    /// How many connections there are, without those that are being ended.
    pub fn connections(&self) -> usize {
        self.house.seated.load(Ordering::Acquire)
    }

    /// The budget for streams.
    pub fn streams(&self) -> &StreamBudget {
        &self.house.streams
    }

    /// Whether so many connections are being ended that a newcomer has to wait for one of them.
    pub(super) fn is_crowded(&self) -> bool {
        let most = (self.house.max_connections / 8).max(16);
        self.house.ending.load(Ordering::Acquire) >= most
    }

    /// A place for a connection from this address; none when another one of the same address would have to go that is
    /// in use. `config` is what the server's connections have.
    pub(super) fn admit(&self, address: IpAddr, config: &Arc<Config>) -> Option<Guest> {
        let address = address_group(address);
        let mut table = self.lock();
        if self.connections() >= self.house.max_connections {
            let victim = table.find_victim(address, self.now())?;
            self.tell(&mut table, &victim);
        }
        let group = table.groups.entry(address).or_default();
        let config = group.config_for(config, &self.house.streams);
        let seat = Arc::new(Seat {
            group: address,
            place: AtomicUsize::new(group.seats.len()),
            streams: AtomicU64::new(0),
            leased: AtomicU64::new(0),
            since: AtomicU64::new(self.now()),
            told: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let before = group.seats.len();
        group.seats.push(Arc::clone(&seat));
        table.resized(address, before);
        self.house.seated.fetch_add(1, Ordering::AcqRel);
        Some(Guest {
            shares: self.clone(),
            seat,
            config,
            progress: 0,
            had_streams: false,
        })
    }

    /// Ends connections that make no progress while streams or memory are short; how many.
    pub(super) fn relieve(&self, config: &Config) -> usize {
        let mut told = 0;
        let streams = self.streams();
        if streams.is_scarce() {
            told += self.make_room(
                Short::Streams,
                streams.limit() / 8,
                streams.limit() - streams.leased(),
            );
        }
        if let Some(budget) = config.budget.as_ref().filter(|budget| budget.is_scarce()) {
            told += self.make_room(Short::Memory, budget.limit() / 8, budget.free());
        }
        told
    }

    /// Until `wanted` is free of what is short: of the group that holds most, the connection that made progress the
    /// longest ago.
    fn make_room(&self, short: Short, wanted: u64, mut free: u64) -> usize {
        let now = self.now();
        let mut table = self.lock();
        let mut heap = BinaryHeap::new();
        let mut stalled: HashMap<IpAddr, Vec<Arc<Seat>>> = HashMap::new();
        for (&address, group) in &table.groups {
            let held = match short {
                Short::Streams => group.share.leased_streams(),
                Short::Memory => group.share.leased_bytes(),
            };
            let still = |seat: &&Arc<Seat>| seat.held(short) > 0 && seat.is_stalled(now);
            let mut seats: Vec<_> = group.seats.iter().filter(still).cloned().collect();
            if !seats.is_empty() {
                // The longest ago is last, and is taken first.
                seats.sort_by_key(|seat| std::cmp::Reverse(seat.since.load(Ordering::Relaxed)));
                stalled.insert(address, seats);
                heap.push((held, address));
            }
        }
        let mut told = 0;
        while let Some((held, address)) = heap.pop() {
            if free >= wanted || told == MOST_A_LOOK {
                break;
            }
            let Some(seat) = stalled.get_mut(&address).and_then(Vec::pop) else {
                continue;
            };
            let gain = seat.held(short);
            free = free.saturating_add(gain);
            self.tell(&mut table, &seat);
            told += 1;
            heap.push((held.saturating_sub(gain), address));
        }
        told
    }

    /// Has a connection end.
    fn tell(&self, table: &mut Table, seat: &Arc<Seat>) {
        table.unseat(seat);
        if let Some(group) = table.groups.get_mut(&seat.group) {
            group.ending += 1;
        }
        self.house.ending.fetch_add(1, Ordering::AcqRel);
        self.house.seated.fetch_sub(1, Ordering::AcqRel);
        seat.told.store(true, Ordering::Release);
        seat.waker.wake();
    }

    /// A connection is gone.
    fn leave(&self, seat: &Arc<Seat>) {
        let mut table = self.lock();
        if seat.told.load(Ordering::Acquire) {
            self.house.ending.fetch_sub(1, Ordering::AcqRel);
            if let Some(group) = table.groups.get_mut(&seat.group) {
                group.ending -= 1;
            }
        } else {
            table.unseat(seat);
            self.house.seated.fetch_sub(1, Ordering::AcqRel);
        }
        let empty = |group: &Group| group.seats.is_empty() && group.ending == 0;
        if table.groups.get(&seat.group).is_some_and(empty) {
            table.groups.remove(&seat.group);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.house.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.house.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS)
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("max_connections", &self.max_connections())
            .field("connections", &self.connections())
            .field("streams", self.streams())
            .finish()
    }
}

impl Table {
    /// The connection that gives way to a newcomer from `address`.
    fn find_victim(&mut self, address: IpAddr, now: u64) -> Option<Arc<Seat>> {
        let size = self.by_size.last()?.0;
        let own = self.groups.get(&address).map_or(0, |group| group.seats.len());
        if own >= size {
            // It would have most: it is one of its own that goes, unless all are in use.
            let group = self.groups.get_mut(&address)?;
            let victim = group.least_active(SAMPLE)?;
            return victim.is_resting(now).then_some(victim);
        }
        // One of those that have most, from where the last look ended.
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
        let mut found: Option<Arc<Seat>> = None;
        let mut looked = 0;
        for address in addresses {
            let Some(group) = self.groups.get_mut(&address) else {
                continue;
            };
            self.last = Some(address);
            looked += group.seats.len();
            if let Some(seat) = group.least_active(SAMPLE) {
                if found
                    .as_ref()
                    .is_none_or(|found| seat.activity() < found.activity())
                {
                    found = Some(seat);
                }
            }
            if looked >= SAMPLE {
                break;
            }
        }
        // One for one among equals is no gain, unless it is not used.
        found.filter(|seat| own + 1 < size || seat.is_resting(now))
    }

    /// Takes a connection out of its group.
    fn unseat(&mut self, seat: &Seat) {
        let Some(group) = self.groups.get_mut(&seat.group) else {
            return;
        };
        let before = group.seats.len();
        let place = seat.place.load(Ordering::Relaxed);
        if place < before {
            group.seats.swap_remove(place);
            if let Some(moved) = group.seats.get(place) {
                moved.place.store(place, Ordering::Relaxed);
            }
            self.resized(seat.group, before);
        }
    }

    /// A group that had `before` connections has more or fewer.
    fn resized(&mut self, address: IpAddr, before: usize) {
        self.by_size.remove(&(before, address));
        let size = self.groups.get(&address).map_or(0, |group| group.seats.len());
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
    fn least_active(&mut self, most: usize) -> Option<Arc<Seat>> {
        let count = self.seats.len();
        let looked = count.min(most);
        let first = self.next % count.max(1);
        self.next = first + looked;
        let (behind, before) = (self.seats.get(first..)?, self.seats.get(..first)?);
        let seats = behind.iter().chain(before).take(looked);
        seats.min_by_key(|seat| seat.activity()).cloned()
    }
}

impl Seat {
    /// The less the sooner it gives way: those without a request first, and then by their last progress.
    fn activity(&self) -> (bool, u64) {
        let used = self.streams.load(Ordering::Relaxed) > 0;
        (used, self.since.load(Ordering::Relaxed))
    }

    fn is_stalled(&self, now: u64) -> bool {
        let still = now.saturating_sub(self.since.load(Ordering::Relaxed));
        u128::from(still) >= PATIENCE.as_micros()
    }

    fn is_resting(&self, now: u64) -> bool {
        self.streams.load(Ordering::Relaxed) == 0 || self.is_stalled(now)
    }

    fn held(&self, short: Short) -> u64 {
        match short {
            Short::Streams => self.streams.load(Ordering::Relaxed),
            Short::Memory => self.leased.load(Ordering::Relaxed),
        }
    }
}

impl Guest {
    /// The settings of the connection.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Takes note of how the connection stands: its streams, what it has leased, and its progress in octets.
    pub(super) fn note(&mut self, streams: u64, leased: u64, progress: u64) {
        self.seat.streams.store(streams, Ordering::Relaxed);
        self.seat.leased.store(leased, Ordering::Relaxed);
        let has_streams = streams > 0;
        if has_streams != self.had_streams || progress - self.progress >= LEAST_PROGRESS {
            self.had_streams = has_streams;
            self.progress = progress;
            self.seat.since.store(self.shares.now(), Ordering::Relaxed);
        }
    }

    /// Ready once the connection is to give way.
    pub(super) fn poll_told(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.seat.waker.register(cx.waker());
        match self.seat.told.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Whether it had no request when it was looked at last.
    pub(super) fn is_idle(&self) -> bool {
        !self.had_streams
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.shares.leave(&self.seat);
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

    /// So many connections from an address.
    fn admit(shares: &Shares, from: &str, count: usize) -> Vec<Guest> {
        let config = config();
        (0..count)
            .map(|_| shares.admit(address(from), &config).expect("a seat"))
            .collect()
    }

    async fn told(guests: &[Guest]) -> Vec<usize> {
        let mut told = Vec::new();
        for (number, guest) in guests.iter().enumerate() {
            let poll = poll_fn(|cx| Poll::Ready(guest.poll_told(cx))).await;
            told.extend(poll.is_ready().then_some(number));
        }
        told
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_address_and_mapped_addresses_are_ipv4() {
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
    fn connections_of_a_network_of_64_bits_have_one_share() {
        let shares = Shares::new(10, 100);
        let config = config();
        let admit = |from| shares.admit(address(from), &config).unwrap();
        let (one, two, other) = (
            admit("2001:db8::1"),
            admit("2001:db8::2:1"),
            admit("2001:db8:0:1::1"),
        );
        assert!(Arc::ptr_eq(&one.config(), &two.config()));
        assert!(!Arc::ptr_eq(&one.config(), &other.config()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_unused_longest_gives_way() {
        let shares = Shares::new(4, 100);
        let mut guests = Vec::new();
        for _ in 0..4 {
            guests.extend(admit(&shares, "192.0.2.1", 1));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The first has a request.
        guests[0].note(1, 0, 0);
        guests.extend(admit(&shares, "192.0.2.1", 1));
        assert_eq!(told(&guests).await, [1]);
        assert_eq!(shares.connections(), 4);
        guests.extend(admit(&shares, "192.0.2.2", 1));
        assert_eq!(told(&guests).await, [1, 2]);
        guests.clear();
        assert_eq!(shares.connections(), 0);
        let table = shares.lock();
        assert!(table.groups.is_empty() && table.by_size.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_most_connections_gives_way_and_gets_no_more_while_all_are_in_use() {
        let shares = Shares::new(6, 100);
        let mut many = admit(&shares, "192.0.2.1", 5);
        let mut few = admit(&shares, "192.0.2.2", 1);
        for (number, guest) in many.iter_mut().chain(&mut few).enumerate() {
            guest.note(1, 0, number as u64);
        }
        assert!(shares.admit(address("192.0.2.1"), &config()).is_none());
        let newcomer = admit(&shares, "192.0.2.3", 1);
        assert_eq!(told(&many).await, [0]);
        // After a while without progress one of its own goes for it.
        tokio::time::advance(PATIENCE).await;
        many[1].note(1, 0, 10 * LEAST_PROGRESS);
        let again = admit(&shares, "192.0.2.1", 1);
        assert_eq!(told(&many).await.len(), 2);
        assert!(!told(&many).await.contains(&1), "it made progress");
        assert!(told(&few).await.is_empty() && told(&newcomer).await.is_empty());
        drop((many, few, newcomer, again));
        assert_eq!(shares.connections(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_each_is_not_taken_from_those_that_use_it() {
        let shares = Shares::new(100, 100);
        let mut guests: Vec<Guest> = (1..=100)
            .flat_map(|n| admit(&shares, &format!("192.0.2.{n}"), 1))
            .collect();
        guests.iter_mut().for_each(|guest| guest.note(1, 0, 0));
        assert!(shares.admit(address("198.51.100.1"), &config()).is_none());
        // One is idle: it is found in two looks, however it lies.
        guests[77].note(0, 0, 0);
        let found = (1..=2).find_map(|n| shares.admit(address(&format!("198.51.100.{n}")), &config()));
        assert!(found.is_some());
        assert_eq!(told(&guests).await, [77]);
    }

    #[tokio::test(start_paused = true)]
    async fn while_streams_are_short_those_that_stand_still_end_of_who_holds_most() {
        let shares = Shares::new(100, 160);
        let mut many = admit(&shares, "192.0.2.1", 4);
        let mut few = admit(&shares, "192.0.2.2", 2);
        few.extend(admit(&shares, "192.0.2.3", 1));
        few.extend(admit(&shares, "192.0.2.4", 1));
        let mut engines = Vec::new();
        for (guests, streams) in [(&mut many, 20), (&mut few, 38)] {
            for guest in guests {
                engines.push(with_streams(guest, streams));
                let streams = engines[engines.len() - 1].stream_count();
                guest.note(streams as u64, 0, 0);
            }
        }
        assert!(shares.streams().is_scarce(), "{:?}", shares.streams());
        assert_eq!(shares.relieve(&config()), 0, "they have had no time");
        tokio::time::advance(PATIENCE).await;
        many[0].note(20, 0, LEAST_PROGRESS);
        assert!(shares.relieve(&config()) > 0);
        let ended = told(&many).await;
        assert!(!ended.is_empty() && !ended.contains(&0), "{ended:?}");
        assert_eq!(told(&few).await, [], "they hold less");
        assert_eq!(shares.connections(), 8 - ended.len());
    }

    /// An engine of this guest that has so many streams, or as many as it gets.
    fn with_streams(guest: &Guest, streams: u32) -> Connection {
        let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for n in 0..streams {
            octets.extend(b"\0\0\x06\x01\x05");
            octets.extend((2 * n + 1).to_be_bytes());
            // GET, http, "/", and "a" as the authority.
            octets.extend(b"\x82\x86\x84\x41\x01a");
        }
        let mut connection = Connection::server(guest.config(), Time::ZERO);
        connection.receive(octets.into(), Time::ZERO).expect("requests");
        connection
    }

    #[tokio::test(start_paused = true)]
    async fn while_memory_is_short_those_that_stand_still_end() {
        let budget = MemoryBudget::new(900_000);
        let mut own = Config::default();
        own.budget = Some(budget.clone());
        own.adaptive = false;
        own.connection_window = fullbore_proto::WindowSize::new(200_000).unwrap();
        let own = Arc::new(own);
        let shares = Shares::new(100, 1_000);
        let mut guests = Vec::new();
        let mut engines = Vec::new();
        for from in [
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
            "192.0.2.4",
            "192.0.2.5",
        ] {
            let mut guest = shares.admit(address(from), &own).unwrap();
            let engine = Connection::server(guest.config(), Time::ZERO);
            guest.note(1, engine.leased(), 0);
            engines.push(engine);
            guests.push(guest);
        }
        assert!(budget.is_scarce(), "{budget:?}");
        assert_eq!(shares.relieve(&own), 0);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(shares.relieve(&own), 1);
        let ended = told(&guests).await;
        assert!(ended == [0] || ended == [1], "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_for_an_unused_connection_takes_in_64_of_them() {
        let shares = Shares::new(100, 100);
        let mut guests: Vec<Guest> = (1..=100)
            .flat_map(|n| admit(&shares, &format!("192.0.2.{n}"), 1))
            .collect();
        guests.iter_mut().for_each(|guest| guest.note(1, 0, 0));
        guests[SAMPLE].note(0, 0, 0);
        assert!(shares.admit(address("198.51.100.1"), &config()).is_none());
        // The next look begins behind the last one, and ends where that ended.
        guests[SAMPLE].note(1, 0, 0);
        guests[2 * SAMPLE - 101].note(0, 0, 0);
        assert!(shares.admit(address("198.51.100.1"), &config()).is_some());
        assert_eq!(told(&guests).await, [2 * SAMPLE - 101]);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_counts_from_where_it_was_noted_last() {
        let shares = Shares::new(1, 100);
        let mut guests = admit(&shares, "192.0.2.1", 1);
        guests[0].note(1, 0, 0);
        let since = |guest: &Guest| guest.seat.since.load(Ordering::Relaxed);
        let mut noted = Vec::new();
        for progress in [
            LEAST_PROGRESS,
            LEAST_PROGRESS + 1,
            2 * LEAST_PROGRESS - 1,
            2 * LEAST_PROGRESS,
        ] {
            tokio::time::advance(Duration::from_secs(1)).await;
            guests[0].note(1, 0, progress);
            noted.push(since(&guests[0]) / 1_000_000);
        }
        assert_eq!(noted, [1, 1, 1, 4]);
    }

    #[test]
    fn an_eighth_of_all_connections_may_be_giving_way() {
        let shares = Shares::new(200, 100);
        let mut guests = admit(&shares, "192.0.2.1", 200);
        for _ in 0..25 {
            assert!(!shares.is_crowded());
            guests.extend(admit(&shares, "192.0.2.1", 1));
        }
        assert!(shares.is_crowded());
        assert_eq!(shares.connections(), 200);
    }

    #[test]
    fn a_crowd_that_gives_way_is_bounded() {
        let shares = Shares::new(1, 100);
        let mut guests = Vec::new();
        for _ in 0..16 {
            assert!(!shares.is_crowded());
            guests.extend(admit(&shares, "192.0.2.1", 1));
        }
        guests.extend(admit(&shares, "192.0.2.1", 1));
        assert!(shares.is_crowded());
        guests.remove(0);
        assert!(!shares.is_crowded());
        assert_eq!(shares.connections(), 1);
    }
}
