//! Many exchanges on few connections, on one thread and on several. A wake-up that is lost, a request that is sent twice and
//! a body that is cut show only in some of many rounds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fullbore::Client;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, yield_now};

use super::raw::{OK, Raw, Site, fetch, http1};
use crate::support::{Chunks, soon};

/// So often each caller asks.
const ROUNDS: usize = 60;

/// So many ask at once.
const CALLERS: usize = 6;

/// What a server says to a request, and what the client is to make of it: the body and the trailer `t`.
const ANSWERS: [(&str, &str, Option<&str>); 12] = [
    ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", None),
    (OK, "", None),
    ("HTTP/1.1 204 No Content\r\n\r\n", "", None),
    ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", "", None),
    (
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
        "no",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "hello",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "",
        None,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nt: yes\r\n\r\n",
        "hello",
        Some("yes"),
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
        "x",
        None,
    ),
    // These end the connection.
    (
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
        "hello",
        None,
    ),
    ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", None),
    (
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nold",
        "old",
        None,
    ),
];

/// The first answers that end the connection.
const ENDING: usize = 9;

/// The number behind the path `/`, and that behind `?`.
fn numbers(head: &str) -> (usize, usize) {
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.trim_start_matches('/').split_once('?').unwrap();
    (path.parse().unwrap(), query.parse().unwrap())
}

/// Says this in two writes, with a break after `at` octets.
async fn say_in_two(raw: &mut Raw, text: &str, at: usize) {
    let (begin, rest) = text.split_at(at.min(text.len()));
    if !begin.is_empty() {
        raw.say(begin).await;
        yield_now().await;
    }
    raw.say(rest).await;
}

/// What [`CALLERS`] tasks return that do this at once, each with its number, the client and the URL of the site.
async fn of_callers<F, T>(client: &Client, site: &Site, act: impl Fn(usize, Client, String) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks = (0..CALLERS).map(|caller| act(caller, client.clone(), site.url.clone()));
    soon(tasks.collect::<JoinSet<T>>().join_all()).await
}

async fn varied() -> Site {
    Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            let (kind, at) = numbers(&asked.head);
            let (text, ..) = ANSWERS[kind];
            let text = match asked.head.starts_with("head") {
                true => &text[..text.rfind("\r\n\r\n").unwrap() + 4],
                false => text,
            };
            say_in_two(&mut raw, text, at).await;
            if kind >= ENDING {
                return;
            }
        }
    })
    .await
}

async fn answers_of_every_kind() {
    let site = varied().await;
    let client = http1().max_connections(2).build().unwrap();
    of_callers(&client, &site, |caller, client, url| async move {
        for round in 0..ROUNDS * 4 {
            let kind = (round + caller) % ANSWERS.len();
            let (text, body, trailer) = ANSWERS[kind];
            // Each place of the break in turn; whole from time to time.
            let at = (round / ANSWERS.len() * 7 + caller * 3) % (text.len() + 8);
            let at = if round % 3 == 0 { 0 } else { at };
            let response = soon(client.get(format!("{url}{kind}?{at}"))).await.unwrap();
            let collected = soon(response.into_body().collect()).await.unwrap();
            let found = collected.trailers().and_then(|trailers| trailers.get("t"));
            assert_eq!(
                found.map(|value| value.to_str().unwrap()),
                trailer,
                "{text:?} {at}"
            );
            assert_eq!(collected.to_bytes(), body, "{text:?} {at}");
            if kind == 0 {
                let request = Request::head(format!("{url}{kind}?{at}")).body(String::new());
                let response = soon(client.request(request.unwrap())).await.unwrap();
                assert_eq!(response.headers()["content-length"], "5");
                assert!(
                    soon(response.into_body().collect())
                        .await
                        .unwrap()
                        .to_bytes()
                        .is_empty()
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn answers_of_every_kind_arrive_on_one_thread() {
    answers_of_every_kind().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_of_every_kind_arrive_on_several_threads() {
    answers_of_every_kind().await;
}

/// Bodies around the sizes of hyper's buffer and of one read, in pieces.
async fn bodies_of_every_length() {
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            let (length, at) = numbers(&asked.head);
            let body = "x".repeat(length);
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            say_in_two(&mut raw, &text, at).await;
        }
    })
    .await;
    let client = http1().max_connections(2).build().unwrap();
    of_callers(&client, &site, |caller, client, url| async move {
        for round in 0..ROUNDS {
            for length in [1, 2, 4_000, 8_150 + round, 8_192, 16_384, 70_000, 500_000] {
                let at = [0, 40 + caller, 42 + length / 2][round % 3];
                let response = soon(fetch(&client, &format!("{url}{length}?{at}")))
                    .await
                    .unwrap();
                assert_eq!(response.body().len(), length);
                let left = soon(client.get(format!("{url}{length}?{at}"))).await.unwrap();
                // Some are dropped unread, with or without the end.
                if round % 5 == 0 {
                    drop(left);
                } else {
                    yield_now().await;
                    let read = soon(left.into_body().collect()).await.unwrap();
                    assert_eq!(read.to_bytes().len(), length);
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn bodies_of_every_length_arrive_on_one_thread() {
    bodies_of_every_length().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bodies_of_every_length_arrive_on_several_threads() {
    bodies_of_every_length().await;
}

/// How often each request arrived and was answered.
type Book = Arc<Mutex<HashMap<usize, (usize, usize)>>>;

/// A server that closes each connection around its third request: before it, after it without a word, or instead of an answer.
async fn closing(book: &Book) -> Site {
    let book = Arc::clone(book);
    Site::start(move |number, mut raw| {
        let book = Arc::clone(&book);
        async move {
            for served in 0.. {
                let Some(asked) = raw.next().await else { return };
                let (id, _) = numbers(&asked.head);
                book.lock().unwrap().entry(id).or_default().0 += 1;
                if served == 3 && number % 3 == 0 {
                    return;
                }
                book.lock().unwrap().entry(id).or_default().1 += 1;
                raw.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                if served == 3 {
                    match number % 3 {
                        1 => return,
                        // Some servers say this when they close an idle connection.
                        _ => {
                            return raw
                                .say("HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n")
                                .await;
                        }
                    }
                }
            }
        }
    })
    .await
}

async fn servers_that_close() {
    let book = Book::default();
    let site = closing(&book).await;
    let client = http1().max_connections(3).build().unwrap();
    let results: Vec<_> = of_callers(&client, &site, |caller, client, url| async move {
        let mut results = Vec::new();
        for round in 0..ROUNDS * 2 {
            let id = caller * ROUNDS * 2 + round;
            let request = Request::post(format!("{url}{id}?0"));
            let body = if round % 3 == 1 { "body" } else { "" };
            let request = request.body(body.to_owned()).unwrap();
            let ok = match soon(client.request(request)).await {
                Ok(response) => soon(response.into_body().collect())
                    .await
                    .is_ok_and(|body| body.to_bytes() == "ok"),
                Err(_) => false,
            };
            results.push((id, ok));
        }
        results
    })
    .await
    .into_iter()
    .flatten()
    .collect();
    let book = book.lock().unwrap();
    for (id, ok) in &results {
        let (arrived, answered) = book.get(id).copied().unwrap_or_default();
        assert!(arrived <= 1, "{id} was sent {arrived} times");
        assert!(!ok || answered == 1, "{id} has an answer to another request");
    }
    let good = results.iter().filter(|(_, ok)| *ok).count();
    assert!(good > results.len() / 2, "{good} of {}", results.len());
}

#[tokio::test]
async fn no_request_is_sent_twice_to_a_server_that_closes_on_one_thread() {
    servers_that_close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_sent_twice_to_a_server_that_closes_on_several_threads() {
    servers_that_close().await;
}

/// Answers that come before the body of the request, within it and behind it; some requests wait for 100 (Continue).
async fn answers_ahead_of_bodies() {
    const BYTES: usize = 300_000;
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next_head().await {
            let (kind, at) = numbers(&asked.head);
            if asked.head.contains("expect: 100-continue") && kind != 0 {
                raw.say("HTTP/1.1 100 Continue\r\n\r\n").await;
            }
            let at = at.min(BYTES);
            let status = if kind == 1 {
                "413 Content Too Large"
            } else {
                "200 OK"
            };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
            let known = raw.take(at).await;
            raw.say(&answer).await;
            if !known || !raw.take(BYTES - at).await {
                return;
            }
        }
    })
    .await;
    // Some bodies wait in vain.
    let client = http1()
        .max_connections(2)
        .continue_timeout(std::time::Duration::from_millis(5))
        .build()
        .unwrap();
    of_callers(&client, &site, |caller, client, url| async move {
        for round in 0..ROUNDS {
            let kind = (round + caller) % 3;
            let at = [0, 1, 100_000, BYTES - 1, BYTES][round % 5];
            let mut request = Request::builder()
                .method(Method::PUT)
                .uri(format!("{url}{kind}?{at}"));
            if round % 2 == 0 {
                request = request.header("expect", "100-continue");
            }
            let body = Chunks::new(BYTES as u64, 10_000).sized();
            let response = soon(client.request(request.body(body).unwrap())).await.unwrap();
            let body = soon(response.into_body().collect()).await.unwrap();
            assert_eq!(body.to_bytes(), "ok");
        }
    })
    .await;
}

impl Raw {
    /// Reads so many octets of a body; false at the end.
    async fn take(&mut self, octets: usize) -> bool {
        let mut left = octets - self.take_read(octets);
        let mut piece = vec![0; 8_192];
        while left > 0 {
            let most = left.min(piece.len());
            match self.io.read(&mut piece[..most]).await {
                Ok(read @ 1..) => left -= read,
                _ => return false,
            }
        }
        true
    }
}

#[tokio::test]
async fn answers_ahead_of_bodies_arrive_on_one_thread() {
    answers_ahead_of_bodies().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_ahead_of_bodies_arrive_on_several_threads() {
    answers_ahead_of_bodies().await;
}

/// Every caller ends its request at another point, and the others get their answers.
async fn requests_that_are_dropped() {
    let site = varied().await;
    let client = http1().max_connections(2).build().unwrap();
    of_callers(&client, &site, |caller, client, url| async move {
        for round in 0..ROUNDS * 2 {
            let url = format!("{url}0?{}", round % 45);
            if caller % 2 == 0 {
                let mut dropped = std::pin::pin!(fetch(&client, &url));
                for _ in 0..round % 12 {
                    tokio::select! {
                        biased;
                        _ = &mut dropped => break,
                        () = yield_now() => {}
                    }
                }
            } else {
                assert_eq!(soon(fetch(&client, &url)).await.unwrap().body(), "hello");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_dropped_take_no_answer_from_others_on_one_thread() {
    requests_that_are_dropped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_are_dropped_take_no_answer_from_others_on_several_threads() {
    requests_that_are_dropped().await;
}

/// The budget of the callers' tasks is spent when they ask, and many answers wait on the connections.
#[tokio::test]
async fn many_answers_that_are_there_arrive() {
    let site = varied().await;
    let client = http1().max_connections(1).build().unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..400 {
        let (client, url) = (client.clone(), site.url.clone());
        callers.spawn(async move { fetch(&client, &format!("{url}0?0")).await.unwrap() });
    }
    for response in soon(callers.join_all()).await {
        assert_eq!(response.body(), "hello");
    }
    assert_eq!(site.accepted(), 1);
}

/// A connection that has served becomes a tunnel: both ways, with octets that arrive with the head.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_has_served_becomes_a_tunnel() {
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            if !asked.head.contains("upgrade: echo") {
                raw.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                continue;
            }
            raw.say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhi")
                .await;
            let mut octets = [0; 3];
            if raw.io.read_exact(&mut octets).await.is_ok() {
                let _ = raw.io.write_all(&octets).await;
            }
            return;
        }
    })
    .await;
    let client: Client = http1().max_connections(1).build().unwrap();
    for round in 0..ROUNDS {
        for _ in 0..round % 3 {
            assert_eq!(soon(fetch(&client, &site.url)).await.unwrap().body(), "ok");
        }
        let request = Request::get(&site.url)
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = soon(client.request(request)).await.unwrap();
        assert_eq!(response.status(), 101);
        let upgraded = soon(hyper::upgrade::on(response)).await.unwrap();
        let mut io = hyper_util::rt::TokioIo::new(upgraded);
        soon(io.write_all(b"you")).await.unwrap();
        let mut answer = String::new();
        soon(io.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(answer, "hiyou");
    }
    assert_eq!(site.accepted(), ROUNDS);
}

/// Whoever has read a response finds it in the report.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_report_has_a_response_that_was_read() {
    let site = varied().await;
    let client = http1().max_connections(1).build().unwrap();
    let (text, body, _) = ANSWERS[0];
    for round in 1..=ROUNDS as u64 * 50 {
        assert_eq!(
            soon(fetch(&client, &format!("{}0?0", site.url)))
                .await
                .unwrap()
                .body(),
            body
        );
        let report = client.http1_report().unwrap();
        assert_eq!(
            (report.requests, report.received_bytes),
            (round, round * text.len() as u64)
        );
    }
}
