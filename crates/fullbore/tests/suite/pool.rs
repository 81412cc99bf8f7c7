//! The pooled client: how many connections it opens and when, and that no request and no slot is lost on the way.

pub(crate) mod raw;
mod relay;
mod site;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::stats::{Report, Stall};
use fullbore::{Client, Error, ErrorKind};
use fullbore_testing::nobody::Nobody;
use fullbore_testing::random::Random;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use raw::Raw;
use relay::{Relay, URL};
use site::{Plan, Site, serve_plainly};

/// A test that has not ended by then hangs; how long it takes is not what is tested.
const HANG: Duration = Duration::from_secs(120);

async fn in_time<T>(what: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("the test hangs")
}

/// Waits for something that comes to be true by itself.
async fn until(mut what: impl FnMut() -> bool) {
    in_time(async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

async fn fetch(client: &Client, url: &str) -> Result<usize, Error> {
    let response = client.get(url).await?;
    assert_eq!(response.status(), 200);
    Ok(response.into_body().collect().await?.to_bytes().len())
}

/// So many requests at once, as tasks.
fn fetch_all(client: &Client, url: &str, count: usize) -> JoinSet<Result<usize, Error>> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move { fetch(&client, &url).await });
    }
    tasks
}

/// A site whose only connection allows five streams, and five requests that it has not answered yet.
async fn five_in_progress() -> (Site, Client, JoinSet<Result<usize, Error>>) {
    let plan = Plan {
        held: true,
        ..Plan::streams(5)
    };
    let site = Site::start(plan).await;
    let client = Client::builder().max_connections(1).build().unwrap();
    // The peer's limit has to be known.
    site.answer(1);
    fetch(&client, &site.url()).await.unwrap();
    let requests = fetch_all(&client, &site.url(), 5);
    until(|| site.busy() == 5).await;
    (site, client, requests)
}

async fn all_succeed(tasks: JoinSet<Result<usize, Error>>, bytes: usize) {
    for result in in_time(tasks.join_all()).await {
        assert_eq!(result.unwrap(), bytes);
    }
}

/// Keeps `parallel` requests under way until `enough`; every one of them has to succeed.
async fn keep_fetching(client: &Client, url: &str, parallel: usize, enough: impl Fn() -> bool) {
    let mut tasks = fetch_all(client, url, parallel);
    in_time(async {
        while let Some(result) = tasks.join_next().await {
            result.unwrap().unwrap();
            if !enough() {
                let (client, url) = (client.clone(), url.to_owned());
                tasks.spawn(async move { fetch(&client, &url).await });
            }
        }
    })
    .await;
}

fn in_flight(client: &Client) -> usize {
    client.stats().iter().map(|origin| origin.in_flight).sum()
}

fn waiting(client: &Client) -> usize {
    client.stats().iter().map(|origin| origin.waiting).sum()
}

/// A server that does as `serve` says with each connection, by its number.
async fn listen<F, S>(serve: F) -> (String, Arc<AtomicUsize>, JoinSet<()>)
where
    F: Fn(usize, TcpStream) -> S + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let number = counter.fetch_add(1, Ordering::SeqCst);
            connections.spawn(serve(number, stream));
        }
    });
    (url, accepted, task)
}

/// On a clock that stands still every path is of no length, however busy the machine.
#[test]
fn ten_thousand_requests_over_a_short_path_take_one_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::pause();
        // While a blocking task runs the clock does not skip ahead.
        let (done, hold) = std::sync::mpsc::channel::<()>();
        let holding = tokio::task::spawn_blocking(move || hold.recv());
        let site = Site::start(Plan::streams(100)).await;
        let client = Client::new();
        let results = fetch_all(&client, &site.url(), 10_000).join_all().await;
        for result in results {
            assert_eq!(result.unwrap(), 1_000);
        }
        assert_eq!(site.connections(), 1);
        assert_eq!(site.requests(), 10_000);
        assert!(site.most_busy() <= 100, "{} streams at once", site.most_busy());
        assert_eq!(client.connections(&site.url()), 1);
        assert_eq!((in_flight(&client), waiting(&client)), (0, 0));
        drop(done);
        let _ = holding.await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_long_path_with_free_streams_takes_one_connection() {
    let site = Site::start(Plan::streams(1_000)).await;
    let (relay, client) = Relay::to(&site, Client::builder());
    // Before the peer's SETTINGS come a client dares 100.
    all_succeed(fetch_all(&client, URL, 100), 1_000).await;
    for _ in 0..5 {
        all_succeed(fetch_all(&client, URL, 900), 1_000).await;
    }
    assert_eq!(relay.accepted(), 1);
    assert_eq!(held_by_streams(&client).await, Duration::ZERO);
}

/// For how long the number of streams held requests back, by the ledgers of the connections.
async fn held_by_streams(client: &Client) -> Duration {
    let reports = client.reports().await;
    assert!(!reports.is_empty());
    let held = |report: &Report| report.receiving.spent(Stall::StreamCount);
    reports.iter().map(held).sum()
}

#[tokio::test(start_paused = true)]
async fn the_ledger_knows_of_requests_that_the_pool_keeps_back() {
    let site = Site::start(Plan::streams(10)).await;
    let (_relay, client) = Relay::to(&site, Client::builder().max_connections(1));
    all_succeed(fetch_all(&client, URL, 300), 1_000).await;
    let reports = client.reports().await;
    let largest = Stall::ALL
        .into_iter()
        .max_by_key(|&state| reports[0].receiving.spent(state));
    assert_eq!(largest, Some(Stall::StreamCount));
    let held = held_by_streams(&client).await;
    // Nobody waits any more.
    all_succeed(fetch_all(&client, URL, 10), 1_000).await;
    assert_eq!(held_by_streams(&client).await, held);
}

#[tokio::test(start_paused = true)]
async fn a_long_path_with_few_streams_takes_several_connections_up_to_the_limit() {
    let site = Site::start(Plan::streams(10)).await;
    let (relay, client) = Relay::to(&site, Client::builder());
    keep_fetching(&client, URL, 200, || site.used_connections() == 8).await;
    all_succeed(fetch_all(&client, URL, 1_000), 1_000).await;
    assert_eq!(relay.accepted(), 8);
    assert_eq!(client.connections(URL), 8);
}

#[tokio::test(start_paused = true)]
async fn the_limit_on_connections_is_the_callers() {
    let site = Site::start(Plan::streams(10)).await;
    let (relay, client) = Relay::to(&site, Client::builder().max_connections(2));
    keep_fetching(&client, URL, 100, || site.used_connections() == 2).await;
    all_succeed(fetch_all(&client, URL, 500), 1_000).await;
    assert_eq!(relay.accepted(), 2);

    let (relay, client) = Relay::to(&site, Client::builder().max_connections(1));
    all_succeed(fetch_all(&client, URL, 300), 1_000).await;
    assert_eq!(relay.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_opens_no_more_connections_than_it_fills() {
    let site = Site::start(Plan::streams(10)).await;
    let (relay, client) = Relay::to(&site, Client::builder());
    // Twenty at once are two connections of ten.
    keep_fetching(&client, URL, 20, || site.used_connections() == 2).await;
    let served = site.requests();
    keep_fetching(&client, URL, 20, || site.requests() >= served + 500).await;
    assert_eq!(relay.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_not_needed_any_more_are_closed_but_for_one() {
    let site = Site::start(Plan::streams(10)).await;
    let builder = Client::builder().pool_idle_timeout(Duration::from_millis(20));
    let (_relay, client) = Relay::to(&site, builder);
    let seen = || client.connections(URL) > 1 && site.used_connections() > 1;
    keep_fetching(&client, URL, 100, seen).await;
    until(|| client.connections(URL) == 1).await;
    assert_eq!(fetch(&client, URL).await.unwrap(), 1_000);
    assert_eq!(client.connections(URL), 1);
}

#[tokio::test]
async fn requests_move_on_when_the_server_retires_its_connections() {
    let plan = Plan {
        retire_after: Some(50),
        ..Plan::streams(20)
    };
    let site = Site::start(plan).await;
    let client = Client::new();
    all_succeed(fetch_all(&client, &site.url(), 1_000), 1_000).await;
    assert!(site.connections() >= 10, "{} connections", site.connections());
    assert_eq!(site.requests(), 1_000);
    until(|| in_flight(&client) == 0).await;
}

#[tokio::test]
async fn what_a_goaway_refuses_is_sent_again_on_another_connection() {
    // The first connection answers one of five and refuses four; fifteen more wait for a stream on it.
    let (url, accepted, _task) = listen(|number, stream| async move {
        if number > 0 {
            return serve_plainly(stream).await;
        }
        let mut raw = Raw::accept(stream, 5).await;
        for _ in 0..5 {
            raw.next_request().await.unwrap();
        }
        raw.answer(1).await;
        raw.go_away(1).await;
        raw.drain().await;
    })
    .await;
    let client = Client::new();
    let mut lengths: Vec<_> = in_time(fetch_all(&client, &url, 20).join_all())
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths[..2], [0, 5]);
    assert_eq!(lengths.iter().sum::<usize>(), 19 * "plain".len());
    // A third one may be opened before the second has shown that it takes more requests than the first.
    let accepted = accepted.load(Ordering::SeqCst);
    assert!((2..=3).contains(&accepted), "{accepted}");
}

#[tokio::test]
async fn a_request_with_a_body_that_is_refused_is_the_callers_to_repeat() {
    let (url, accepted, _task) = listen(|number, stream| async move {
        if number > 0 {
            return serve_plainly(stream).await;
        }
        let mut raw = Raw::accept(stream, 5).await;
        raw.next_request().await.unwrap();
        raw.go_away(0).await;
        raw.drain().await;
    })
    .await;
    let client = Client::new();
    let post = || {
        Request::post(&url)
            .body(Full::new(Bytes::from_static(b"body")))
            .unwrap()
    };
    let error = in_time(client.request(post())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
    let response: Response<_> = in_time(client.request(post())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_whose_body_can_be_had_again_is_sent_again_when_it_is_refused() {
    let (url, accepted, _task) = listen(|_, stream| async move {
        let mut raw = Raw::accept(stream, 5).await;
        for _ in 0..3 {
            let refused = raw.next_request().await.unwrap();
            raw.refuse(refused).await;
        }
        let taken = raw.next_request().await.unwrap();
        raw.answer(taken).await;
        raw.drain().await;
    })
    .await;
    let client = Client::new();
    let post = Request::post(&url)
        .body(Full::new(Bytes::from_static(b"body")))
        .unwrap();
    let response = in_time(client.request_repeatable(post)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_was_processed_is_never_sent_again() {
    let (url, accepted, _task) = listen(|_, stream| async move {
        let mut raw = Raw::accept(stream, 5).await;
        let taken = raw.next_request().await.unwrap();
        raw.give_up(taken).await;
        assert_eq!(raw.next_request().await, None);
    })
    .await;
    let client = Client::new();
    let post = Request::post(&url)
        .body(Full::new(Bytes::from_static(b"body")))
        .unwrap();
    let error = in_time(client.request_repeatable(post)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Reset);
    client.shutdown().await;
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_that_refuses_everything_is_asked_four_times() {
    let (url, accepted, _task) = listen(|_, stream| async move {
        let mut raw = Raw::accept(stream, 100).await;
        raw.next_request().await.unwrap();
        raw.go_away(0).await;
        raw.drain().await;
    })
    .await;
    let client = Client::new();
    let error = in_time(fetch(&client, &url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(accepted.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_smaller_limit_than_presumed_is_obeyed() {
    let site = Site::start(Plan::streams(3)).await;
    let client = Client::new();
    all_succeed(fetch_all(&client, &site.url(), 500), 1_000).await;
    assert!(site.most_busy() <= 3 * site.connections());
}

#[tokio::test]
async fn a_request_that_is_given_up_in_the_queue_leaves_it_and_is_never_sent() {
    let (site, client, first) = five_in_progress().await;
    let mut dropped = fetch_all(&client, &site.url(), 90);
    let kept = fetch_all(&client, &site.url(), 10);
    until(|| waiting(&client) == 100).await;
    dropped.shutdown().await;
    assert_eq!(waiting(&client), 10);
    assert_eq!(in_flight(&client), 5);
    site.answer(1_000);
    all_succeed(first, 1_000).await;
    all_succeed(kept, 1_000).await;
    assert_eq!(site.requests(), 16);
    until(|| in_flight(&client) == 0 && waiting(&client) == 0).await;
}

#[tokio::test]
async fn everybody_is_told_when_the_only_connection_cannot_be_opened() {
    let nobody = Nobody::bind();
    let url = format!("http://{nobody}/");
    let client = Client::new();
    for _ in 0..2 {
        for result in in_time(fetch_all(&client, &url, 100).join_all()).await {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Connect);
        }
        assert_eq!(waiting(&client), 0);
    }
    assert_eq!(client.connections(&url), 0);
    assert_eq!(client.stats()[0].opening, 0);
}

#[tokio::test]
async fn everybody_is_told_when_the_only_peer_speaks_no_http2() {
    let (url, accepted, _task) = listen(|_, stream| async move { drop(stream) }).await;
    let client = Client::new();
    for result in in_time(fetch_all(&client, &url, 300).join_all()).await {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::NotHttp2);
    }
    let accepted = accepted.load(Ordering::SeqCst);
    assert!(accepted < 10, "{accepted} attempts");
    assert_eq!((in_flight(&client), waiting(&client)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_further_connection_that_cannot_be_opened_costs_no_request() {
    let site = Site::start(Plan::streams(10)).await;
    let (relay, client) = Relay::for_the_first(1, &site, Client::builder());
    keep_fetching(&client, URL, 200, || relay.accepted() > 1).await;
    all_succeed(fetch_all(&client, URL, 300), 1_000).await;
    assert_eq!(site.connections(), 1);
    assert_eq!(client.connections(URL), 1);
}

#[tokio::test]
async fn responses_that_nobody_reads_yet_hold_no_streams() {
    let site = Site::start(Plan::streams(5)).await;
    let client = Client::new();
    let mut responses = Vec::new();
    for _ in 0..50 {
        responses.push(in_time(client.get(site.url())).await.unwrap());
    }
    until(|| in_flight(&client) == 0).await;
    for response in responses {
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), 1_000);
    }
}

#[tokio::test]
async fn a_shutdown_lets_requests_under_way_finish_and_tells_those_that_wait() {
    let (site, client, under_way) = five_in_progress().await;
    let late = fetch_all(&client, &site.url(), 20);
    until(|| waiting(&client) == 20).await;
    let shutdown = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    for result in in_time(late.join_all()).await {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Canceled);
    }
    assert!(!shutdown.is_finished(), "requests are in progress");
    site.answer(100);
    all_succeed(under_way, 1_000).await;
    in_time(shutdown).await.unwrap();
    assert_eq!(fetch(&client, &site.url()).await.unwrap(), 1_000);
    assert_eq!(site.connections(), 2);
}

#[tokio::test]
async fn origins_keep_to_connections_of_their_own_whichever_was_asked_for_first() {
    let plan = |bytes| Plan {
        answer_bytes: bytes,
        ..Plan::streams(5)
    };
    let (one, other) = (Site::start(plan(1)).await, Site::start(plan(2)).await);
    let client = Client::new();
    for _ in 0..3 {
        assert_eq!(fetch(&client, &one.url()).await.unwrap(), 1);
        assert_eq!(fetch(&client, &other.url()).await.unwrap(), 2);
    }
    assert_eq!((one.connections(), other.connections()), (1, 1));
    assert_eq!(client.stats().len(), 2);
}

/// Begins a request and gives it up after so many steps: in the queue, on the wire, at its head, within its body.
async fn give_up(client: Client, url: String, steps: u64) {
    let request = async {
        let Ok(response) = client.get(&url).await else {
            return;
        };
        if steps % 3 > 0 {
            let mut body = response.into_body();
            let _ = body.frame().await;
            assert!(body.size_hint().lower() <= 100_000);
        }
    };
    let limit = async {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = request => {}
        () = limit => {}
    }
}

async fn no_slot_is_lost() {
    let plan = Plan {
        answer_bytes: 100_000,
        ..Plan::streams(20)
    };
    let site = Site::start(plan).await;
    let client = Client::builder().max_connections(1).build().unwrap();
    assert_eq!(fetch(&client, &site.url()).await.unwrap(), 100_000);
    let mut random = Random::new(7);
    let mut tasks = JoinSet::new();
    for _ in 0..1_000 {
        tasks.spawn(give_up(client.clone(), site.url(), random.below(60)));
    }
    in_time(tasks.join_all()).await;
    // Behind this one the server has seen all that was given up before.
    assert_eq!(fetch(&client, &site.url()).await.unwrap(), 100_000);
    until(|| in_flight(&client) == 0 && waiting(&client) == 0 && site.busy() == 0).await;

    // A slot that was lost would be missing here, and one too many would show as well.
    site.hold();
    let tasks = fetch_all(&client, &site.url(), 40);
    until(|| site.busy() == 20 && waiting(&client) == 20).await;
    assert_eq!(in_flight(&client), 20);
    site.answer(40);
    all_succeed(tasks, 100_000).await;
    assert_eq!(site.most_busy(), 20);
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn no_slot_is_lost_by_requests_that_are_given_up() {
    no_slot_is_lost().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_slot_is_lost_by_requests_that_are_given_up_on_many_threads() {
    no_slot_is_lost().await;
}

/// Requests of all kinds, many given up, over connections that the server retires all the time.
async fn nothing_is_lost_in_the_crowd() {
    let plan = Plan {
        retire_after: Some(150),
        ..Plan::streams(10)
    };
    let site = Site::start(plan).await;
    let client = Client::new();
    let mut random = Random::new(11);
    let mut given_up = JoinSet::new();
    let mut uploads = JoinSet::new();
    let mut fetched = JoinSet::new();
    for _ in 0..4_000 {
        let (client, url) = (client.clone(), site.url());
        match random.below(4) {
            0 => drop(given_up.spawn(give_up(client, url, random.below(40)))),
            1 => drop(uploads.spawn(async move {
                let body = Full::new(Bytes::from(vec![b'y'; 5_000]));
                let request = Request::post(&url).body(body).unwrap();
                let response = client.request(request).await?;
                Ok::<_, Error>(response.into_body().collect().await?.to_bytes().len())
            })),
            _ => drop(fetched.spawn(async move { fetch(&client, &url).await })),
        }
    }
    all_succeed(fetched, 1_000).await;
    for result in in_time(uploads.join_all()).await {
        match result {
            Ok(length) => assert_eq!(length, 5_000),
            // It may be repeated, but not by the client.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Refused),
        }
    }
    in_time(given_up.join_all()).await;
    until(|| in_flight(&client) == 0 && waiting(&client) == 0).await;
    assert_eq!(fetch(&client, &site.url()).await.unwrap(), 1_000);
}

#[tokio::test]
async fn a_crowd_is_served_on_one_thread() {
    nothing_is_lost_in_the_crowd().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_is_served_on_many_threads() {
    nothing_is_lost_in_the_crowd().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_is_served_over_a_long_path() {
    let plan = Plan {
        retire_after: Some(300),
        ..Plan::streams(20)
    };
    let site = Site::start(plan).await;
    let (_relay, client) = Relay::to(&site, Client::builder().max_connections(4));
    all_succeed(fetch_all(&client, URL, 4_000), 1_000).await;
    assert_eq!(site.requests(), 4_000);
    assert!(client.connections(URL) <= 4);
    until(|| in_flight(&client) == 0 && waiting(&client) == 0).await;
}

#[test]
fn a_client_outlives_the_runtime_that_its_connections_ran_on() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let servers = runtime();
    let site = servers.block_on(Site::start(Plan::streams(10)));
    let client = Client::new();
    for _ in 0..3 {
        let runtime = runtime();
        let fetched = runtime.block_on(async {
            let fetched = fetch(&client, &site.url()).await;
            // Left behind on its way.
            drop(fetch_all(&client, &site.url(), 50));
            fetched
        });
        assert_eq!(fetched.unwrap(), 1_000);
        drop(runtime);
    }
    assert_eq!(waiting(&client), 0);
    assert_eq!(site.connections(), 3);
}
