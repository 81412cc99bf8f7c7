//! Connections of HTTP/1.1: how many are opened, which are used again, and which requests are sent again.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fullbore::{Client, Error, ErrorKind, Incoming};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::raw::{OK, Site, client, fetch, http1, until};
use crate::support::{Chunks, soon};

/// A server whose answers wait for permits.
async fn held() -> (Site, Arc<Semaphore>, Arc<AtomicUsize>) {
    let permits = Arc::new(Semaphore::new(0));
    let busy = Arc::new(AtomicUsize::new(0));
    let (gate, counter) = (Arc::clone(&permits), Arc::clone(&busy));
    let site = Site::start(move |_, mut raw| {
        let (gate, counter) = (Arc::clone(&gate), Arc::clone(&counter));
        async move {
            while raw.next().await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                counter.fetch_sub(1, Ordering::SeqCst);
                raw.say(OK).await;
            }
        }
    })
    .await;
    (site, permits, busy)
}

fn fetch_all(client: &Client, url: &str, count: usize) -> JoinSet<Result<Response<Bytes>, Error>> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move { fetch(&client, &url).await });
    }
    tasks
}

#[tokio::test]
async fn eight_connections_carry_many_requests_and_six_stay() {
    let (site, permits, busy) = held().await;
    let client = client();
    let tasks = fetch_all(&client, &site.url, 100);
    until(|| busy.load(Ordering::SeqCst) == 8).await;
    assert_eq!(client.stats()[0].waiting, 92);
    assert_eq!(client.stats()[0].in_flight, 8);
    permits.add_permits(100);
    for result in soon(tasks.join_all()).await {
        assert_eq!(result.unwrap().status(), 200);
    }
    assert_eq!(site.accepted(), 8);
    until(|| client.stats()[0].in_flight == 0 && client.connections(&site.url) == 6).await;
    soon(client.shutdown()).await;
}

#[tokio::test]
async fn the_limits_on_connections_and_on_idle_ones_are_settings() {
    let (site, permits, busy) = held().await;
    let client = http1()
        .max_connections(3)
        .max_idle_http1_connections(1)
        .build()
        .unwrap();
    let tasks = fetch_all(&client, &site.url, 10);
    until(|| busy.load(Ordering::SeqCst) == 3).await;
    permits.add_permits(10);
    soon(tasks.join_all()).await;
    assert_eq!(site.accepted(), 3);
    until(|| client.connections(&site.url) == 1).await;
}

#[tokio::test]
async fn a_response_that_is_being_read_holds_its_connection_and_one_that_is_dropped_ends_it() {
    let site = Site::start(|_, mut raw| async move {
        while raw.next().await.is_some() {
            raw.say("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nbegin")
                .await;
        }
    })
    .await;
    let client = http1().max_connections(1).build().unwrap();
    let first = soon(client.get(&site.url)).await.unwrap();
    let second = tokio::spawn({
        let (client, url) = (client.clone(), site.url.clone());
        async move { client.get(&url).await }
    });
    until(|| client.stats()[0].waiting == 1).await;
    assert_eq!(site.accepted(), 1);
    drop(first);
    let second = soon(second).await.unwrap().unwrap();
    assert_eq!(second.status(), 200);
    assert_eq!(site.accepted(), 2, "the rest of the body would have come first");
}

#[tokio::test]
async fn a_body_whose_rest_has_arrived_is_drained_when_it_is_dropped() {
    let site = Site::start(|_, mut raw| async move {
        while raw.next().await.is_some() {
            raw.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        }
    })
    .await;
    let client = client();
    for _ in 0..5 {
        drop(soon(client.get(&site.url)).await.unwrap());
        until(|| client.stats()[0].in_flight == 0).await;
    }
    assert_eq!(site.accepted(), 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_ends_its_connection() {
    let (site, permits, busy) = held().await;
    let client = http1().max_connections(1).build().unwrap();
    let mut tasks = fetch_all(&client, &site.url, 1);
    until(|| busy.load(Ordering::SeqCst) == 1).await;
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    until(|| client.stats()[0].in_flight == 0).await;
    permits.add_permits(2);
    assert_eq!(soon(fetch(&client, &site.url)).await.unwrap().status(), 200);
    assert_eq!(site.accepted(), 2);
}

#[tokio::test]
async fn a_connection_that_is_to_be_closed_carries_no_other_request() {
    let site = Site::says("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    let client = client();
    for connection in 1..=3 {
        assert_eq!(soon(fetch(&client, &site.url)).await.unwrap().status(), 200);
        assert_eq!(site.accepted(), connection);
    }
    for result in soon(fetch_all(&client, &site.url, 50).join_all()).await {
        assert_eq!(result.unwrap().status(), 200);
    }
    assert_eq!(site.accepted(), 53);
}

#[tokio::test]
async fn a_body_without_a_length_arrives_at_a_server_of_http_1_0_on_a_new_connection() {
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            if asked.head.starts_with("put") {
                assert!(!asked.body.is_empty(), "{}", asked.head);
            }
            raw.say("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    })
    .await;
    let client = client();
    soon(fetch(&client, &site.url)).await.unwrap();
    let request = Request::put(&site.url).body(Chunks::new(10, 10)).unwrap();
    assert_eq!(soon(client.request(request)).await.unwrap().status(), 200);
    assert_eq!(site.accepted(), 2);
}

/// A server whose first connection answers one request, reads the head of the next one, and closes.
async fn closes_as_the_request_leaves() -> (Site, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&heads);
    let site = Site::start(move |number, mut raw| {
        let book = Arc::clone(&book);
        async move {
            while let Some(asked) = raw.next().await {
                let count = {
                    let mut heads = book.lock().unwrap();
                    heads.push(asked.head);
                    heads.len()
                };
                if number == 0 && count == 2 {
                    return;
                }
                raw.say(OK).await;
            }
        }
    })
    .await;
    (site, heads)
}

/// Sends a request on a connection that closes as it leaves: its result, and how often the server saw it.
async fn on_a_stale_connection<F, S>(send: F) -> (Result<Response<Incoming>, Error>, usize)
where
    F: FnOnce(Client, String) -> S,
    S: Future<Output = Result<Response<Incoming>, Error>>,
{
    let (site, heads) = closes_as_the_request_leaves().await;
    let client = client();
    soon(fetch(&client, &site.url)).await.unwrap();
    until(|| client.stats()[0].in_flight == 0).await;
    let result = soon(send(client, site.url.clone())).await;
    let seen = heads.lock().unwrap().len() - 1;
    (result, seen)
}

#[tokio::test]
async fn a_request_on_a_connection_that_closes_is_repeated_if_that_does_no_harm() {
    for method in [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS] {
        let (result, seen) = on_a_stale_connection(|client, url| async move {
            let request = Request::builder()
                .method(method)
                .uri(url)
                .body(String::new())
                .unwrap();
            client.request(request).await
        })
        .await;
        assert_eq!((result.unwrap().status().as_u16(), seen), (200, 2));
    }
    let (result, seen) = on_a_stale_connection(|client, url| async move {
        let request = Request::put(url).body(Full::<Bytes>::from("again")).unwrap();
        client.request_repeatable(request).await
    })
    .await;
    assert_eq!((result.unwrap().status().as_u16(), seen), (200, 2));
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_repeated() {
    // With and without a body, and a body that cannot be repeated.
    let (result, seen) = on_a_stale_connection(|client, url| async move {
        client
            .request(Request::post(url).body(String::new()).unwrap())
            .await
    })
    .await;
    assert_eq!((result.unwrap_err().kind(), seen), (ErrorKind::Closed, 1));
    let (result, seen) = on_a_stale_connection(|client, url| async move {
        let request = Request::post(url).body(Full::<Bytes>::from("once")).unwrap();
        client.request_repeatable(request).await
    })
    .await;
    assert_eq!((result.unwrap_err().kind(), seen), (ErrorKind::Closed, 1));
    let (result, seen) = on_a_stale_connection(|client, url| async move {
        client
            .request(Request::put(url).body(Chunks::new(10, 10).sized()).unwrap())
            .await
    })
    .await;
    assert_eq!((result.unwrap_err().kind(), seen), (ErrorKind::Closed, 1));
}

#[tokio::test]
async fn a_new_connection_that_closes_without_an_answer_is_an_error() {
    let site = Site::start(|_, mut raw| async move { drop(raw.next().await) }).await;
    let error = soon(fetch(&client(), &site.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(site.accepted(), 1);
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_costs_no_request() {
    // The server ends each connection after its answer, without a word.
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let site = Site::start(move |_, mut raw| {
        let counter = Arc::clone(&counter);
        async move {
            if raw.next().await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                raw.say(OK).await;
            }
        }
    })
    .await;
    let client = client();
    for _ in 0..20 {
        let request = Request::post(&site.url)
            .body(Chunks::new(100, 100).sized())
            .unwrap();
        let response = soon(client.request(request)).await.unwrap();
        soon(response.into_body().collect()).await.unwrap();
        until(|| client.connections(&site.url) == 0).await;
    }
    assert_eq!((served.load(Ordering::SeqCst), site.accepted()), (20, 20));
}

#[tokio::test]
async fn shutdown_waits_for_the_request_in_progress_and_fails_those_that_wait() {
    let (site, permits, busy) = held().await;
    let client = http1().max_connections(1).build().unwrap();
    let mut tasks = fetch_all(&client, &site.url, 2);
    until(|| busy.load(Ordering::SeqCst) == 1 && client.stats()[0].waiting == 1).await;
    let stopping = tokio::spawn({
        let client = client.clone();
        async move { client.shutdown().await }
    });
    let canceled = soon(tasks.join_next()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(canceled.kind(), ErrorKind::Canceled, "{canceled}");
    assert!(!stopping.is_finished());
    permits.add_permits(1);
    assert_eq!(
        soon(tasks.join_next()).await.unwrap().unwrap().unwrap().status(),
        200
    );
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn a_request_that_gets_no_answer_fails_alone_and_those_that_wait_are_sent() {
    // Each connection closes at its first request if that is for /dies.
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next_head().await {
            if asked.head.contains(" /dies ") {
                return;
            }
            raw.say(OK).await;
        }
    })
    .await;
    let client = http1().max_connections(1).build().unwrap();
    let mut tasks = JoinSet::new();
    for path in ["dies", "one", "dies", "two"] {
        let client = client.clone();
        let request = Request::post(format!("{}{path}", site.url));
        let request = request.body(Full::<Bytes>::from("body")).unwrap();
        tasks.spawn(async move { (path, client.request(request).await.map(drop)) });
        // They wait in this order.
        tokio::task::yield_now().await;
    }
    for (path, answered) in soon(tasks.join_all()).await {
        assert_eq!(answered.is_err(), path == "dies", "{path}: {answered:?}");
    }
}
