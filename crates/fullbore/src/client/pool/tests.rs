//! The pool under a paused clock, over transports in memory, to peers that are scripted frame by frame: which
//! connections are opened and when, how often the path is measured, and what is forgotten, as counts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::client::connector::Transport;
use crate::error::ErrorKind;
use crate::settings::HttpVersions;

mod http1;
mod http1_required;
mod refusals;

#[path = "../../../tests/support/scripted.rs"]
#[allow(dead_code)]
mod scripted;

use scripted::{End, Script, link};

pub(super) const MS: Duration = Duration::from_millis(1);

/// SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 6.5.2).
const MAX_STREAMS: u16 = 3;

/// Opens the transport of a test.
type Dial = Arc<
    dyn Fn() -> futures_util::future::BoxFuture<'static, std::io::Result<Box<dyn Transport>>> + Send + Sync,
>;

/// How the peers of a test behave.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// How long octets take, in each direction.
    delay: Duration,
    /// How many streams each connection allows.
    streams: u32,
    /// How long a connection takes to be opened.
    opening: Duration,
}

/// What the peers of a test have seen.
#[derive(Default)]
pub(super) struct Site {
    /// When each connection was asked for.
    dials: Mutex<Vec<Instant>>,
    /// Connections that have not ended.
    open: AtomicUsize,
    pings: AtomicUsize,
    requests: AtomicUsize,
    /// Whether connections are refused.
    refuses: AtomicBool,
    /// Answers wait while this is set.
    held: AtomicBool,
    release: Notify,
}

impl Site {
    /// A client to such peers.
    pub(super) fn start(plan: Plan, builder: ClientBuilder) -> (Arc<Site>, Client) {
        Self::start_with(plan, builder, move |site, io| site.serve(io, plan.streams))
    }

    /// A client to peers that do as `serve` says.
    fn start_with<F, S>(plan: Plan, builder: ClientBuilder, serve: F) -> (Arc<Site>, Client)
    where
        F: Fn(Arc<Site>, End) -> S + Clone + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let site = Arc::new(Site::default());
        let dialed = Arc::clone(&site);
        let dial: Dial = Arc::new(move || {
            let (site, serve) = (Arc::clone(&dialed), serve.clone());
            Box::pin(async move {
                site.dials
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Instant::now());
                sleep(plan.opening).await;
                if site.refuses.load(Ordering::SeqCst) {
                    return Err(std::io::ErrorKind::ConnectionRefused.into());
                }
                let script = Script::delayed(plan.delay);
                let (near, far) = link(script, script);
                tokio::spawn(serve(site, far));
                Ok(Box::new(near) as Box<dyn Transport>)
            })
        });
        (site, client_by(dial, builder))
    }

    fn dials(&self) -> usize {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Answers each request at once, unless answers are held.
    async fn serve(self: Arc<Self>, io: End, streams: u32) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let mut peer = Peer::server(io, &[(MAX_STREAMS, streams)]).await;
        while let Some(frame) = peer.next().await {
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::PING if frame.flags & 1 == 0 => {
                    self.pings.fetch_add(1, Ordering::SeqCst);
                    peer.send(frames::PING, 1, 0, &frame.payload).await;
                }
                frames::HEADERS => {
                    self.requests.fetch_add(1, Ordering::SeqCst);
                    while self.held.load(Ordering::SeqCst) {
                        self.release.notified().await;
                    }
                    peer.respond(frame.stream, true, &[]).await;
                }
                _ => {}
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client that connects in this way.
fn client_by(dial: Dial, builder: ClientBuilder) -> Client {
    let connector = tower::service_fn(move |_: Uri| dial());
    builder
        .connector(connector)
        .build()
        .expect("settings that can be had")
}

/// So many requests at once, as tasks; those that have begun come first.
pub(super) async fn begin(client: &Client, count: usize) -> Vec<JoinHandle<()>> {
    let requests = (0..count)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let response = client.get("http://one.example/").await.expect("a response");
                assert_eq!(response.status(), 200);
            })
        })
        .collect();
    update().await;
    requests
}

pub(super) async fn all(requests: Vec<JoinHandle<()>>) {
    for request in requests {
        request.await.expect("the request succeeded");
    }
}

/// Keeps `parallel` requests under way for a time.
async fn keep_busy(client: &Client, parallel: usize, time: Duration) {
    let until = Instant::now() + time;
    let workers: Vec<_> = (0..parallel)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                while Instant::now() < until {
                    client.get("http://one.example/").await.expect("a response");
                }
            })
        })
        .collect();
    all(workers).await;
}

/// Lets every task that is ready run until none is.
async fn update() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn plan(delay: Duration, streams: u32) -> Plan {
    Plan {
        delay,
        streams,
        opening: Duration::ZERO,
    }
}

pub(super) fn stats(client: &Client) -> OriginStats {
    client.stats().pop().expect("one origin")
}

#[tokio::test(start_paused = true)]
async fn origins_without_a_connection_are_forgotten_when_64_are_known() {
    let (site, client) = Site::start(plan(MS, 10), Client::builder());
    let get = async |number: usize| client.get(format!("http://{number}.example/")).await;
    let known = || client.stats().len();
    get(0).await.expect("a response");
    site.refuses.store(true, Ordering::SeqCst);
    for number in 1..FEW_ORIGINS {
        assert_eq!(get(number).await.expect_err("refused").kind(), ErrorKind::Connect);
        assert_eq!(known(), number + 1);
    }
    get(FEW_ORIGINS).await.expect_err("refused");
    // The one with a connection, and the one that came last.
    assert_eq!(known(), 2);
    assert_eq!(site.dials(), FEW_ORIGINS + 1);
    get(0).await.expect("on the connection that it has");
    assert_eq!(site.dials(), FEW_ORIGINS + 1);
}

#[tokio::test(start_paused = true)]
async fn origins_are_looked_through_again_only_when_they_have_doubled() {
    let (site, client) = Site::start(plan(MS, 10), Client::builder());
    let get = async |number: usize| client.get(format!("http://{number}.example/")).await;
    for number in 0..FEW_ORIGINS {
        get(number).await.expect("a response");
    }
    site.refuses.store(true, Ordering::SeqCst);
    for number in FEW_ORIGINS..2 * FEW_ORIGINS {
        get(number).await.expect_err("refused");
    }
    assert_eq!(client.stats().len(), 2 * FEW_ORIGINS);
    get(2 * FEW_ORIGINS).await.expect_err("refused");
    assert_eq!(client.stats().len(), FEW_ORIGINS + 1);
}

#[tokio::test(start_paused = true)]
async fn the_path_is_measured_by_three_pings_while_requests_wait_and_by_none_otherwise() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(1));
    keep_busy(&client, 2, MS * 2_000).await;
    assert_eq!(site.pings.load(Ordering::SeqCst), 0, "no request has waited");
    keep_busy(&client, 5, MS * 5_000).await;
    assert_eq!(site.pings.load(Ordering::SeqCst), 3);
    assert_eq!(site.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_short_path_is_not_measured_again() {
    let (site, client) = Site::start(plan(MS * 2, 2), Client::builder());
    keep_busy(&client, 5, MS * 2_000).await;
    assert_eq!((site.pings.load(Ordering::SeqCst), site.dials()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_grows_while_a_connection_is_opened_waits_anew_before_the_next() {
    let plan = Plan {
        opening: MS * 30,
        ..plan(MS * 50, 2)
    };
    let (site, client) = Site::start(plan, Client::builder());
    let busy = client.clone();
    let effects = tokio::spawn(async move { keep_busy(&busy, 3, MS * 3_000).await });
    while client.stats().pop().is_none_or(|stats| stats.connections < 2) {
        sleep(MS).await;
    }
    // The second one has been opened, and its SETTINGS are still on their way.
    assert_eq!(site.dials(), 2);
    let more = begin(&client, 30).await;
    assert!(stats(&client).waiting > 30);
    sleep(MS * 40).await;
    assert_eq!(site.dials(), 2);
    all(more).await;
    assert!(site.dials() > 2, "the queue lasted");
    effects.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_the_queue_takes_its_waiting_with_it() {
    let (site, client) = Site::start(plan(MS * 50, 1), Client::builder());
    all(begin(&client, 1).await).await;
    // In each round a request waits for 110 ms and gives up: less than the two round trips that justify a connection.
    for round in 0..6 {
        let taken = begin(&client, 2).await;
        let waiting = begin(&client, 1).await;
        sleep(MS * 110).await;
        assert_eq!(stats(&client).waiting, 1, "in round {round}");
        for request in waiting {
            request.abort();
        }
        all(taken).await;
        assert_eq!(stats(&client).in_flight, 0);
        sleep(MS * 500).await;
    }
    assert_eq!(site.pings.load(Ordering::SeqCst), 3, "the path is known well");
    assert_eq!(site.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn connections_that_a_quiet_period_did_not_need_are_closed_but_for_one() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(4));
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    all(begin(&client, 1).await).await;
    let before = tasks();
    keep_busy(&client, 40, MS * 5_000).await;
    assert_eq!(site.dials(), 4);
    sleep(MS * 61_000).await;
    assert_eq!(stats(&client).connections, 1);
    assert_eq!(site.open.load(Ordering::SeqCst), 1);
    assert_eq!(tasks(), before, "nothing is left to be closed");
    all(begin(&client, 2).await).await;
    assert_eq!(site.dials(), 4);
}

#[tokio::test(start_paused = true)]
async fn further_connections_are_closed_after_each_busy_period() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(4));
    for dials in [4, 7] {
        keep_busy(&client, 40, MS * 5_000).await;
        assert_eq!(site.dials(), dials);
        sleep(MS * 61_000).await;
        assert_eq!(site.open.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_before_the_settings_came_justify_connections_too() {
    let (site, client) = Site::start(plan(MS * 50, 100), Client::builder());
    // A hundred of them leave before the peer has said how many it allows. No others come after these.
    let requests = begin(&client, 1_000).await;
    assert_eq!(stats(&client).waiting, 900);
    all(requests).await;
    assert!(site.dials() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_further_connection_that_was_never_needed_is_closed_and_refuses_nothing() {
    let opening = MS * 2_000;
    let plan = Plan {
        opening,
        ..plan(MS * 50, 2)
    };
    let (site, client) = Site::start(plan, Client::builder());
    let idle_timeout = MS * 30_000;
    all(begin(&client, 1).await).await;
    // The second connection is asked for while requests wait, and opened when none does.
    keep_busy(&client, 3, MS * 1_500).await;
    assert_eq!((site.dials(), stats(&client).opening), (2, 1));
    sleep(opening).await;
    assert_eq!(
        (site.open.load(Ordering::SeqCst), stats(&client).connections),
        (2, 2)
    );
    let opened = Instant::now();
    while stats(&client).connections == 2 {
        sleep(MS).await;
    }
    assert!(opened.elapsed() <= idle_timeout * 2);
    update().await;
    // No request waits for a pause.
    let asked = Instant::now();
    all(begin(&client, 1).await).await;
    assert_eq!(asked.elapsed(), MS * 100);
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_when_the_server_has_allowed_no_stream_for_as_long_as_was_set() {
    for (builder, limit) in [
        (Client::builder(), MS * 30_000),
        (
            Client::builder().stream_wait_timeout(Some(MS * 7_000)),
            MS * 7_000,
        ),
    ] {
        let (site, client) = Site::start(plan(MS, 0), builder);
        // The first leaves before the peer has said so.
        all(begin(&client, 1).await).await;
        let asked = Instant::now();
        let error = client.get("http://one.example/").await.expect_err("no stream");
        assert_eq!((error.kind(), asked.elapsed()), (ErrorKind::Timeout, limit));
        assert_eq!((site.dials(), site.requests.load(Ordering::SeqCst)), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_has_the_limits_that_are_stated_unless_told_otherwise() {
    let client = Client::builder().build().expect("settings that can be had");
    let settings = &client.inner.settings;
    assert_eq!(settings.connect_timeout, MS * 30_000);
    assert_eq!(settings.max_connections, 8);
    assert_eq!(settings.idle_timeout, MS * 30_000);
    assert_eq!(settings.stream_wait_timeout, Some(MS * 30_000));
    assert_eq!((settings.max_repeats, settings.repeat_pause), (3, MS * 100));
    assert_eq!(settings.front.head_timeout, None);
    assert_eq!(settings.connector.dialer.tcp.keep_alive, Some(MS * 60_000));
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_that_allows_no_stream_either_does_not_prolong_the_wait() {
    let dial: Dial = Arc::new(|| {
        Box::pin(async {
            let script = Script::delayed(MS);
            let (near, far) = link(script, script);
            // Allows no stream, and goes 20 s after it has answered the request that had left before it could say so.
            tokio::spawn(async move {
                let mut peer = Peer::server(far, &[(MAX_STREAMS, 0)]).await;
                while let Some(frame) = peer.next().await {
                    match frame.kind {
                        frames::SETTINGS if frame.flags & 1 == 0 => {
                            peer.send(frames::SETTINGS, 1, 0, &[]).await
                        }
                        frames::HEADERS => {
                            peer.respond(frame.stream, true, &[]).await;
                            sleep(MS * 20_000).await;
                            // NO_ERROR, and stream 1 as the last.
                            return peer.send(frames::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
                        }
                        _ => {}
                    }
                }
            });
            Ok(Box::new(near) as Box<dyn Transport>)
        })
    });
    let client = client_by(dial, Client::builder());
    all(begin(&client, 1).await).await;
    let asked = Instant::now();
    let error = client.get("http://one.example/").await.expect_err("no stream");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let waited = asked.elapsed();
    assert_eq!(waited, MS * 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_shut_down_begins_anew() {
    let (site, client) = Site::start(plan(MS, 1), Client::builder());
    all(begin(&client, 1).await).await;
    client.shutdown().await;
    assert_eq!(client.stats().len(), 0);
    all(begin(&client, 1).await).await;
    assert_eq!((site.dials(), stats(&client).connections), (2, 1));
    assert_eq!(site.open.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn after_each_failure_the_next_connection_waits_twice_as_long_up_to_a_minute() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(2));
    all(begin(&client, 1).await).await;
    site.refuses.store(true, Ordering::SeqCst);
    keep_busy(&client, 5, MS * 250_000).await;
    let dials = site.dials.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let pauses: Vec<Duration> = dials[1..].windows(2).map(|two| two[1] - two[0]).collect();
    let expected = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Duration::from_secs);
    assert_eq!(pauses.len(), expected.len(), "{pauses:?}");
    // The end of an exchange is what asks again.
    for (pause, least) in pauses.iter().zip(expected) {
        assert!((least..=least + MS * 100).contains(pause), "{pauses:?}");
    }
}

/// A runtime with a clock of its own, which is paused.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

/// Connecting takes 10 s.
fn slow() -> Plan {
    Plan {
        opening: MS * 10_000,
        ..plan(MS, 1)
    }
}

/// The error of a request that another runtime is not to hold up.
fn error_of<T: std::fmt::Debug>(
    runtime: &tokio::runtime::Runtime,
    request: JoinHandle<Result<T, Error>>,
) -> Error {
    let ended = runtime.block_on(async { tokio::time::timeout(MS * 60_000, request).await });
    ended.expect("it ends").expect("no panic").expect_err("an error")
}

#[test]
fn another_runtime_connects_when_the_one_that_did_is_shut_down() {
    let [one, second, last] = [runtime(), runtime(), runtime()];
    let (site, client) = Site::start(slow(), Client::builder());
    one.block_on(async { drop(begin(&client, 1).await) });
    second.block_on(async { drop(begin(&client, 1).await) });
    assert_eq!((site.dials(), stats(&client).waiting), (1, 2));
    drop(one);
    assert_eq!((stats(&client).waiting, stats(&client).opening), (1, 1));
    // The second one begins to.
    second.block_on(update());
    let waiting = last.block_on(begin(&client, 1));
    // A panic of others is none of the connector.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _second = second;
        panic!("a test of it");
    }));
    assert!(panicked.is_err());
    assert_eq!((stats(&client).waiting, stats(&client).opening), (1, 1));
    last.block_on(all(waiting));
    assert_eq!(site.dials(), 3);
}

#[test]
fn requests_fail_when_each_runtime_that_would_connect_for_them_is_shut_down() {
    let (one, other) = (runtime(), runtime());
    let (site, client) = Site::start(slow(), Client::builder());
    one.block_on(async { drop(begin(&client, 1).await) });
    let asking = client.clone();
    let waiting = other.spawn(async move { asking.get("http://one.example/").await });
    other.block_on(update());
    // The one that waits last.
    one.block_on(async { drop(begin(&client, 1).await) });
    assert_eq!((site.dials(), stats(&client).waiting), (1, 3));
    drop(one);
    assert_eq!((stats(&client).waiting, stats(&client).opening), (0, 0));
    let error = error_of(&other, waiting);
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
}

#[test]
fn the_queue_is_checked_though_the_runtime_that_was_to_do_it_has_shut_down() {
    let [one, second, last] = [runtime(), runtime(), runtime()];
    let builder = Client::builder().stream_wait_timeout(Some(MS * 10_000));
    let (_, client) = Site::start(plan(MS, 0), builder);
    let ask = || {
        let client = client.clone();
        async move { client.get("http://one.example/").await }
    };
    // The runtimes that check the queue are not the one that has the connection.
    last.block_on(async {
        client.connect("http://one.example/").await.expect("a connection");
        sleep(MS * 100).await;
    });
    one.spawn(ask());
    one.block_on(update());
    second.spawn(ask());
    second.block_on(update());
    assert_eq!(stats(&client).waiting, 2);
    drop(one);
    assert_eq!(stats(&client).waiting, 1);
    // The second one begins to.
    second.block_on(update());
    let waiting = last.spawn(ask());
    last.block_on(update());
    drop(second);
    assert_eq!(stats(&client).waiting, 1);
    let error = error_of(&last, waiting);
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[test]
fn a_connection_is_opened_though_the_runtime_of_the_request_that_waited_last_has_shut_down() {
    let (opened, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (one, other) = (runtime(), runtime());
        let slow = Plan {
            opening: MS * 1_000,
            ..plan(MS, 1)
        };
        let builder = Client::builder()
            .http_versions(HttpVersions::Http1)
            .max_connections(2);
        let (_, client) = Site::start_with(slow, builder, |_, io| async move {
            let _open = io;
            std::future::pending::<()>().await;
        });
        let ask = || {
            let client = client.clone();
            async move { client.get("http://one.example/").await }
        };
        one.block_on(async {
            tokio::spawn(ask());
            sleep(MS * 1_500).await;
            tokio::spawn(ask());
            update().await;
        });
        other.spawn(ask());
        other.block_on(update());
        assert_eq!((stats(&client).opening, stats(&client).waiting), (1, 2));
        drop(other);
        one.block_on(async { sleep(MS * 1_500).await });
        let _ = opened.send(stats(&client).connections);
    });
    let connections = ended.recv_timeout(Duration::from_secs(60));
    assert_eq!(connections.expect("the pool is not blocked"), 2);
}

#[test]
fn further_connections_are_closed_by_another_runtime_when_the_one_that_opened_some_is_gone() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(4));
    for _ in 0..2 {
        let runtime = runtime();
        runtime.block_on(keep_busy(&client, 40, MS * 5_000));
        assert_eq!(stats(&client).connections, 4);
        drop(runtime);
    }
    assert_eq!((site.dials(), stats(&client).connections), (8, 0));
    let last = runtime();
    last.block_on(async {
        keep_busy(&client, 40, MS * 5_000).await;
        assert_eq!(stats(&client).connections, 4);
        sleep(MS * 61_000).await;
    });
    assert_eq!(stats(&client).connections, 1);
}

#[tokio::test]
async fn a_connector_that_panics_is_named() {
    let dial: Dial = Arc::new(|| Box::pin(async { panic!("a bug of the caller") }));
    let client = client_by(dial, Client::builder());
    let error = client
        .get("http://one.example/")
        .await
        .expect_err("no connection");
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().ends_with("the connector panicked"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_is_shut_down_when_the_requests_in_progress_have_ended() {
    let (site, client) = Site::start(plan(MS, 1), Client::builder());
    all(begin(&client, 1).await).await;
    site.held.store(true, Ordering::SeqCst);
    let held = begin(&client, 1).await;
    let shut = client.clone();
    let shut = tokio::spawn(async move { shut.shutdown().await });
    sleep(MS * 10_000).await;
    assert!(!shut.is_finished());
    site.held.store(false, Ordering::SeqCst);
    site.release.notify_one();
    all(held).await;
    shut.await.expect("no panic");
    update().await;
    sleep(MS * 2).await;
    assert_eq!(site.open.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn as_many_connections_stay_as_the_busiest_moment_of_a_period_needed() {
    let (_, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(4));
    keep_busy(&client, 40, MS * 5_000).await;
    assert_eq!(stats(&client).connections, 4);
    // The period in which all were needed.
    sleep(MS * 30_000).await;
    for (requests, needed) in [(6, 3), (5, 3), (4, 2), (3, 2), (2, 1)] {
        all(begin(&client, requests).await).await;
        sleep(MS * 30_000).await;
        assert_eq!(stats(&client).connections, needed, "for {requests} requests");
    }
}

#[tokio::test(start_paused = true)]
async fn the_preface_leaves_before_the_first_requests() {
    let output = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&output);
    let dial: Dial = Arc::new(move || {
        let noted = Arc::clone(&noted);
        Box::pin(async move {
            let script = Script::delayed(MS * 50);
            let (near, far) = link(script, script);
            *noted.lock().expect("no panic") = Some(near.observer());
            tokio::spawn(Arc::new(Site::default()).serve(far, 10));
            Ok(Box::new(near) as Box<dyn Transport>)
        })
    });
    let client = client_by(dial, Client::builder());
    let requests = begin(&client, 3).await;
    let counts = output
        .lock()
        .expect("no panic")
        .as_ref()
        .expect("it connects")
        .counts();
    assert_eq!(counts.writes, 2, "{counts:?}");
    all(requests).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_when_a_client_with_several_connections_is_dropped() {
    let (site, client) = Site::start(plan(MS * 50, 2), Client::builder().max_connections(4));
    keep_busy(&client, 40, MS * 5_000).await;
    assert_eq!(site.open.load(Ordering::SeqCst), 4);
    drop(client);
    sleep(MS * 31_000).await;
    assert_eq!(site.open.load(Ordering::SeqCst), 0);
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_opened_after_its_client_was_shut_down_is_closed() {
    let slow = Plan {
        opening: MS * 1_000,
        ..plan(MS, 1)
    };
    let (site, client) = Site::start(slow, Client::builder());
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.get("http://one.example/").await });
    update().await;
    // The attempt ends with it, so that nothing is left to wait for.
    tokio::time::timeout(MS * 10, client.shutdown())
        .await
        .expect("no connection is open");
    update().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(tasks() <= 1, "but for the request");
    let error = waiting.await.expect("no panic").expect_err("it is shut down");
    assert_eq!(error.kind(), ErrorKind::Canceled, "{error}");
    sleep(MS * 2_000).await;
    assert_eq!((site.dials(), site.open.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_that_has_served_is_no_refusal() {
    // Each connection ends without a word, some time after its answer.
    let serve = |_, io| async move {
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 10)]).await;
        while let Some(frame) = peer.next().await {
            match frame.kind {
                frames::SETTINGS if frame.flags & 1 == 0 => peer.send(frames::SETTINGS, 1, 0, &[]).await,
                frames::HEADERS => {
                    peer.respond(frame.stream, true, &[]).await;
                    return sleep(MS * 10).await;
                }
                _ => {}
            }
        }
    };
    let (site, client) = Site::start_with(plan(MS, 10), Client::builder(), serve);
    for dials in 1..=5 {
        let asked = Instant::now();
        all(begin(&client, 1).await).await;
        assert_eq!((asked.elapsed(), site.dials()), (MS * 2, dials));
        sleep(MS * 15).await;
        assert_eq!(stats(&client).connections, 0);
    }
}

/// Ready with its one frame when it is let go.
struct Later(Arc<AtomicBool>);

impl Body for Later {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        if self.0.load(Ordering::SeqCst) {
            return std::task::Poll::Ready(None);
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            sleep(MS * 100).await;
            waker.wake();
        });
        std::task::Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_an_upload_is_free_when_it_ends_though_its_response_was_complete_before() {
    let (site, client) = Site::start(plan(MS, 1), Client::builder());
    all(begin(&client, 1).await).await;
    let ends = Arc::new(AtomicBool::new(false));
    let upload = client
        .post("http://one.example/")
        .body(RequestBody::wrap(Later(Arc::clone(&ends))))
        .into_future();
    let response = upload.await.expect("a response");
    drop(response);
    let next = begin(&client, 1).await;
    sleep(MS * 1_000).await;
    assert_eq!((stats(&client).in_flight, stats(&client).waiting), (1, 1));
    ends.store(true, Ordering::SeqCst);
    all(next).await;
    assert_eq!(stats(&client).in_flight, 0);
    assert_eq!(site.requests.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_is_no_url_has_no_connections() {
    let (_, client) = Site::start(plan(MS, 1), Client::builder());
    all(begin(&client, 1).await).await;
    assert_eq!(client.connections("http://one.example/"), 1);
    assert_eq!(client.connections("http://other.example/"), 0);
    assert_eq!(client.connections("one.example"), 0);
    assert!(client.http1_report().is_none());
}

#[test]
fn the_default_settings_pass_the_checks_of_the_builder() {
    assert!(Client::builder().build().is_ok());
    let format = |client: Client| format!("{client:?}");
    assert_eq!(format(Client::new()), format(Client::default()));
}
