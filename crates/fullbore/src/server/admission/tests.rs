//! Who is admitted, and who is evicted.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;

use fullbore_proto::{Connection, MemoryBudget, Time};
use fullbore_testing::wakes::Wakes;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::body::Incoming;
use crate::server::auto::Prepare;
use crate::server::serving::serve;
use crate::settings::HttpVersions;

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
        .map(|_| limits.admit(address(from), &config, 0).expect("a permit"))
        .collect()
}

async fn evicted(permits: &[Permit]) -> Vec<usize> {
    let mut evicted = Vec::new();
    for (number, permit) in permits.iter().enumerate() {
        let poll = poll_fn(|cx| Poll::Ready(permit.poll_told(cx, Told::is_evicted))).await;
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
    let admit = |from| limits.admit(address(from), &config, 0).unwrap();
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
    assert!(limits.admit(address("192.0.2.1"), &config(), 0).is_none());
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
    assert!(limits.admit(address("198.51.100.1"), &config(), 0).is_none());
    // One is idle: two searches find it at any index.
    permits[77].record(0, 0, 0, Instant::now());
    let found = (1..=2).find_map(|n| limits.admit(address(&format!("198.51.100.{n}")), &config(), 0));
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
    assert_eq!(evicted(&few).await, [0_usize; 0], "they hold less");
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
    own.set_budget(Some(budget.clone()));
    own.set_adaptive(false);
    own.set_connection_window(fullbore_proto::WindowSize::new(200_000).unwrap());
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
        let mut permit = limits.admit(address(from), &own, 0).unwrap();
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
    assert!(limits.admit(address("198.51.100.1"), &config(), 0).is_none());
    // The next search starts behind the last one, and ends where that ended.
    permits[SAMPLE].record(1, 0, 0, Instant::now());
    permits[2 * SAMPLE - 101].record(0, 0, 0, Instant::now());
    assert!(limits.admit(address("198.51.100.1"), &config(), 0).is_some());
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

#[test]
fn a_server_tells_its_own_connections_only_and_each_of_them_once() {
    let limits = ConnectionLimits::new(3, 100);
    let [first, second] = [(); 2].map(|()| Admission::new(limits.clone(), config()));
    let permits =
        [&first, &second, &first].map(|server| server.admit(address("192.0.2.1")).expect("a permit"));
    let wakes: [_; 3] = std::array::from_fn(|_| Arc::new(Wakes::default()));
    for (permit, wakes) in permits.iter().zip(&wakes) {
        permit.register(&Context::from_waker(&Arc::clone(wakes).into()));
    }
    let told = || permits.each_ref().map(Permit::told);
    let woken = || wakes.each_ref().map(|wakes| wakes.count());
    first.shut_down();
    assert_eq!(told().map(Told::shuts_down), [true, false, true]);
    assert_eq!(told().map(Told::is_gone), [false; 3]);
    assert_eq!(woken(), [1, 0, 1]);
    // One that is evicted has left the table, and is not told.
    let newcomer = second.admit(address("192.0.2.2")).expect("one is evicted");
    let evicted = told().map(Told::is_evicted);
    assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
    drop(second);
    assert!(newcomer.told().is_gone());
    drop(first);
    for (told, evicted) in told().into_iter().zip(evicted) {
        assert_eq!(told.is_gone(), !evicted);
        assert_eq!(told.is_evicted(), evicted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_polled_while_it_is_told_something_is_woken_by_the_next_word() {
    for evict in [false, true] {
        let limits = ConnectionLimits::new(10, 100);
        let admission = Admission::new(limits.clone(), config());
        let permit = admission.admit(address("192.0.2.1")).expect("a permit");
        let entry = Arc::clone(&permit.entry);
        let (near, mut far) = tokio::io::duplex(1 << 12);
        far.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .await
            .expect("room in the pipe");
        let service = tower::service_fn(|_: http::Request<Incoming>| {
            std::future::pending::<Result<http::Response<String>, Infallible>>()
        });
        let prepare = Prepare {
            http2: |connection| connection,
            http1: |_, _| {},
            tcp: |_| None,
            unsent: None,
            alarms: None,
            begun: None,
        };
        let mut serving = pin!(serve(near, service, HttpVersions::Both, prepare, permit, None));
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let mut cx = Context::from_waker(&waker);
        assert!(serving.as_mut().poll(&mut cx).is_pending());
        // Another thread is about to wake it.
        entry.told.fetch_or(Told::SHUTDOWN, Ordering::Release);
        assert!(serving.as_mut().poll(&mut cx).is_pending());
        entry.waker.wake();
        assert!(serving.as_mut().poll(&mut cx).is_pending());
        let before = wakes.count();
        match evict {
            true => {
                limits.evict(&mut limits.lock(), &entry);
                wake([Arc::clone(&entry)]);
            }
            false => drop(admission),
        }
        assert_eq!(wakes.count(), before + 1, "evicted: {evict}");
    }
}

/// Notes whether the table was unlocked when it was woken.
struct Unlocked {
    limits: ConnectionLimits,
    woken: std::sync::Mutex<Vec<bool>>,
}

impl std::task::Wake for Unlocked {
    fn wake(self: Arc<Self>) {
        let is_unlocked = self.limits.inner.table.try_lock().is_ok();
        self.woken.lock().unwrap().push(is_unlocked);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_are_woken_while_the_table_is_unlocked() {
    let limits = ConnectionLimits::new(4, 8);
    let woken = Arc::new(Unlocked {
        limits: limits.clone(),
        woken: std::sync::Mutex::default(),
    });
    let waker = std::task::Waker::from(Arc::clone(&woken));
    let cx = Context::from_waker(&waker);
    let mut permits = admit(&limits, "192.0.2.1", 4);
    permits.iter().for_each(|permit| permit.register(&cx));
    permits.extend(admit(&limits, "192.0.2.2", 1));
    assert_eq!(*woken.woken.lock().unwrap(), [true]);
    limits.tell(0, Told::SHUTDOWN);
    assert_eq!(*woken.woken.lock().unwrap(), [true; 4]);
}
