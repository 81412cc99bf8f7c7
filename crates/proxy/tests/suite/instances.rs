//! Several equal instances of an application.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fullbore::{BoxError, ClientBuilder, Incoming};
use fullbore_proxy::{Change, Proxy, ProxyBuilder};
use fullbore_testing::frames::{HEADERS, RST_STREAM};
use fullbore_testing::peer::Peer;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{Front, VERSIONS, client, full, get, origin, post, raw_origin, soon, text, urls};

/// An address at which nobody listens.
pub(crate) fn absent() -> String {
    let site = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", site.local_addr().unwrap())
}

#[tokio::test]
async fn a_request_whose_instance_is_absent_goes_to_another_one_with_its_body() {
    let site = origin(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(full(body)))
    })
    .await;
    for url in urls(&site) {
        let front = Front::new(Proxy::builder().to(&absent()).to(&url)).await;
        let client = client(VERSIONS[1]);
        for number in 0..8 {
            let body = format!("body {number}");
            let response = soon(client.request(post(&front.url("/"), body.clone())))
                .await
                .unwrap();
            assert_eq!(text(response.into_body()).await, body);
            let response = soon(client.request(get(&front.url("/")))).await.unwrap();
            assert_eq!(response.status(), 200);
        }
        assert!(!front.proxy.stats()[0].in_use, "it is left out by now");
        assert!(front.proxy.stats()[1].in_use);
        assert_eq!(front.told(), [""; 0]);
    }
    let front = Front::new(Proxy::builder().to(&absent()).to(&absent())).await;
    let response = soon(client(VERSIONS[1]).request(post(&front.url("/"), "x")))
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(front.told().len(), 1);
}

#[tokio::test]
async fn an_instance_that_refuses_at_once_does_not_attract_all_requests() {
    let refusing = raw_origin(|_, stream| async move {
        let mut peer = Peer::server(stream, &[]).await;
        while let Some(frame) = peer.next().await {
            if frame.kind == HEADERS {
                // REFUSED_STREAM.
                peer.send(RST_STREAM, 0, frame.stream, &[0, 0, 0, 7]).await;
            }
        }
    })
    .await;
    let site = origin(|_: Request<Incoming>| async move {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        Ok::<_, BoxError>(Response::new(full("well")))
    })
    .await;
    let front = Front::new(Proxy::builder().to(&urls(&refusing)[1]).to(&urls(&site)[0])).await;
    let client = client(VERSIONS[1]);
    let mut served = 0;
    for _ in 0..20 {
        let response = soon(client.request(get(&front.url("/")))).await.unwrap();
        served += usize::from(response.status() == 200);
    }
    assert!(served >= 17, "{served} of 20");
    assert!(!front.proxy.stats()[0].in_use, "it is left out by now");
}

#[tokio::test]
async fn an_instance_that_says_it_is_not_healthy_gets_no_requests() {
    let answer = |name: &'static str, status: u16| {
        origin(move |request: Request<Incoming>| async move {
            let status = if request.uri().path() == "/health" {
                status
            } else {
                200
            };
            Ok::<_, BoxError>(Response::builder().status(status).body(full(name))?)
        })
    };
    let (sick, well) = (answer("sick", 503).await, answer("well", 204).await);
    let builder = Proxy::builder().to(&urls(&sick)[0]).to(&urls(&well)[1]);
    let front = Front::new(builder).await;
    let checking = tokio::spawn(front.proxy.clone().check_health("/health".to_owned()));
    soon(async {
        while front.proxy.stats()[0].in_use {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let client = client(VERSIONS[1]);
    for _ in 0..6 {
        let response = soon(client.request(get(&front.url("/")))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "well");
    }
    checking.abort();
}

/// What the operator is told of instances.
type Changes = Arc<Mutex<Vec<(Change, String)>>>;

fn noting_changes(builder: ProxyBuilder) -> (ProxyBuilder, Changes) {
    let changes = Changes::default();
    let book = Arc::clone(&changes);
    let builder = builder.on_instance(move |change| {
        let line = (change.change, change.to_string());
        book.lock().unwrap().push(line);
    });
    (builder, changes)
}

#[tokio::test]
async fn a_dead_instance_that_another_covers_is_told_once_and_counted() {
    let site = origin(|_: Request<Incoming>| async { Ok::<_, BoxError>(Response::new(full("well"))) }).await;
    let builder = Proxy::builder().to(&absent()).to(&urls(&site)[0]);
    let (builder, changes) = noting_changes(builder);
    let front = Front::new(builder).await;
    let client = client(VERSIONS[1]);
    for _ in 0..20 {
        let response = soon(client.request(get(&front.url("/")))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "well");
    }
    assert_eq!(front.told(), [""; 0]);
    let changes = std::mem::take(&mut *changes.lock().unwrap());
    let [(Change::LeftOut, line)] = &changes[..] else {
        panic!("{changes:?}");
    };
    let stats = front.proxy.stats();
    let start = format!(
        "{} gets no requests until it answers: cannot connect",
        stats[0].origin
    );
    assert!(line.starts_with(&start), "{line}");
    let [dead, live] = [&stats[0].figures, &stats[1].figures];
    assert_eq!((dead.repeats, dead.ejections), (3, 1), "{dead:?}");
    assert_eq!((dead.bad_gateway, dead.answers.iter().sum()), (0, 0), "{dead:?}");
    assert_eq!(
        (live.answers.iter().sum::<u64>(), live.repeats),
        (20, 0),
        "{live:?}"
    );
}

#[tokio::test]
async fn an_instance_that_comes_back_is_told() {
    let sick = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&sick);
    let one = origin(move |_: Request<Incoming>| {
        let status = if state.load(Ordering::Relaxed) { 503 } else { 204 };
        async move { Ok::<_, BoxError>(Response::builder().status(status).body(full(""))?) }
    })
    .await;
    let other = origin(|_: Request<Incoming>| async { Ok::<_, BoxError>(Response::new(full(""))) }).await;
    let (builder, changes) = noting_changes(Proxy::builder().to(&urls(&one)[0]).to(&urls(&other)[0]));
    let front = Front::new(builder).await;
    let checks = || tokio::spawn(front.proxy.clone().check_health("/".to_owned()));
    let told = |count: usize| {
        let changes = Arc::clone(&changes);
        soon(async move {
            while changes.lock().unwrap().len() < count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
    };
    let checking = checks();
    told(1).await;
    checking.abort();
    sick.store(false, Ordering::Relaxed);
    // The first check is made at once.
    let checking = checks();
    told(2).await;
    checking.abort();
    let changes = changes.lock().unwrap().clone();
    assert_eq!([changes[0].0, changes[1].0], [Change::LeftOut, Change::Back]);
    assert!(changes[0].1.contains("check of its health"), "{changes:?}");
    assert!(changes[1].1.ends_with(" answers again"), "{changes:?}");
}

#[tokio::test]
async fn a_request_too_many_that_would_wait_is_503_and_says_when_to_come_again() {
    let turns = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&turns);
    let site = origin(move |_: Request<Incoming>| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await?.forget();
            Ok::<_, BoxError>(Response::new(full("")))
        }
    })
    .await;
    let few = |client: ClientBuilder| client.max_connections(1).max_waiting_requests(Some(2));
    let front = Front::new(Proxy::builder().to(&urls(&site)[0]).client(few)).await;
    let client = client(VERSIONS[1]);
    let mut asking = JoinSet::new();
    for waiting in 0..3 {
        let (client, url) = (client.clone(), front.url("/"));
        asking.spawn(async move { client.request(get(&url)).await });
        soon(async {
            let is_there = || {
                let stats = &front.proxy.stats()[0];
                stats.requests == waiting + 1 && stats.connections == 1 && stats.waiting == waiting
            };
            while !is_there() {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .await;
    }
    let response = soon(client.request(get(&front.url("/")))).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    let told = front.told();
    assert!(told[0].contains("max_waiting_requests"), "{told:?}");
    assert_eq!(front.proxy.stats()[0].figures.unavailable, 1);
    turns.add_permits(4);
    while let Some(asked) = soon(asking.join_next()).await {
        assert_eq!(asked.unwrap().unwrap().status(), 200);
    }
    let response = soon(client.request(get(&front.url("/")))).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[test]
fn a_proxy_without_an_origin_or_with_a_wrong_one_is_not_built() {
    assert!(Proxy::builder().build().is_err());
    let error = Proxy::builder().to("http://a").to("a:1").build().unwrap_err();
    assert!(error.to_string().starts_with("a:1: expected a URL"), "{error}");
}
