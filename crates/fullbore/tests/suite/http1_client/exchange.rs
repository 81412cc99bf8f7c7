//! Messages over HTTP/1.1: what leaves, what arrives, and that it means the same as in HTTP/2.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fullbore::ErrorKind;
use fullbore::client::on_informational;
use fullbore::ext::Protocol;
use http::{Request, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::raw::{OK, Site, client, fetch, http1, until};
use crate::support::{Chunks, Guarded, Produced, soon};

/// A server that keeps the heads and bodies of its requests.
async fn recorder() -> (Site, Arc<Mutex<Vec<(String, Vec<u8>)>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&seen);
    let site = Site::start(move |_, mut raw| {
        let book = Arc::clone(&book);
        async move {
            while let Some(asked) = raw.next().await {
                book.lock().unwrap().push((asked.head, asked.body));
                raw.say(OK).await;
            }
        }
    })
    .await;
    (site, seen)
}

#[tokio::test]
async fn a_request_leaves_in_origin_form_with_host_and_the_length_of_its_body() {
    let (site, seen) = recorder().await;
    let client = client();
    let url = format!("{}a/b?c=d", site.url);
    soon(fetch(&client, &url)).await.unwrap();
    let request = Request::post(&url)
        .header("x-own", "1")
        .body(Full::<Bytes>::from("hello"))
        .unwrap();
    soon(client.request(request)).await.unwrap();
    let request = Request::put(&url).body(Chunks::new(5, 5)).unwrap();
    soon(client.request(request)).await.unwrap();
    let request = Request::post(&url).body(String::new()).unwrap();
    soon(client.request(request)).await.unwrap();
    let host = site.url.trim_start_matches("http://").trim_end_matches('/');
    let seen = seen.lock().unwrap();
    let heads: Vec<_> = seen.iter().map(|(head, _)| head.as_str()).collect();
    assert_eq!(
        heads,
        [
            format!("get /a/b?c=d http/1.1\r\nhost: {host}\r\n\r\n"),
            format!("post /a/b?c=d http/1.1\r\nhost: {host}\r\nx-own: 1\r\ncontent-length: 5\r\n\r\n"),
            format!("put /a/b?c=d http/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n"),
            format!("post /a/b?c=d http/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n"),
        ]
    );
    assert_eq!(seen[1].1, b"hello");
    assert!(seen[2].1.starts_with(b"5\r\n") && seen[2].1.ends_with(b"\r\n0\r\n\r\n"));
    assert_eq!(
        site.accepted(),
        1,
        "one connection carries them one after the other"
    );
}

#[tokio::test]
async fn bodies_arrive_whole_in_every_framing() {
    for (answer, body) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "hello",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "hello"),
        ("HTTP/1.0 200 OK\r\n\r\nhello", "hello"),
        ("HTTP/1.1 204 No Content\r\n\r\n", ""),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", ""),
    ] {
        let site = Site::says(answer).await;
        let response = soon(fetch(&client(), &site.url)).await.unwrap();
        assert_eq!(response.body(), body, "{answer:?}");
        let old = answer.starts_with("HTTP/1.0");
        assert_eq!(
            response.version(),
            if old { Version::HTTP_10 } else { Version::HTTP_11 }
        );
    }
}

#[tokio::test]
async fn bodies_of_megabytes_arrive_both_ways() {
    const BYTES: usize = 5_000_000;
    let site = Site::start(|_, mut raw| async move {
        while let Some(asked) = raw.next().await {
            assert!(asked.head.starts_with("get") || asked.body.len() == BYTES);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
            raw.say(&(answer + &"x".repeat(BYTES))).await;
        }
    })
    .await;
    let client = client();
    assert_eq!(soon(fetch(&client, &site.url)).await.unwrap().body().len(), BYTES);
    let request = Request::put(&site.url)
        .body(Chunks::new(BYTES as u64, 100_000).sized())
        .unwrap();
    let response = soon(client.request(request)).await.unwrap();
    assert_eq!(
        soon(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes()
            .len(),
        BYTES
    );
    assert_eq!(site.accepted(), 1);
}

#[tokio::test]
async fn the_length_of_a_body_and_its_trailers_are_known() {
    let site = Site::says("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let body = soon(client().get(&site.url)).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(5));
    assert!(body.report().await.is_none(), "there is no stream");

    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 7\r\n\r\n";
    let site = Site::says(answer).await;
    let body = soon(client().get(&site.url)).await.unwrap().into_body();
    let collected = soon(body.collect()).await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "7");
    assert_eq!(collected.to_bytes(), "hi");
}

#[tokio::test]
async fn a_response_to_head_has_no_body_whatever_its_length_says() {
    let site = Site::start(|_, mut raw| async move {
        while raw.next().await.is_some() {
            raw.say("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
        }
    })
    .await;
    let client = client();
    for _ in 0..2 {
        let response = soon(client.request(Request::head(&site.url).body(String::new()).unwrap()))
            .await
            .unwrap();
        assert_eq!(response.headers()[header::CONTENT_LENGTH], "1000");
        assert!(response.body().is_end_stream());
    }
    assert_eq!(site.accepted(), 1);
}

#[tokio::test]
async fn informational_responses_reach_the_callback() {
    let answer =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    let site = Site::says(answer).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&seen);
    let mut request = Request::get(&site.url).body(String::new()).unwrap();
    on_informational(&mut request, move |response| {
        let link = response.headers().get("link").cloned();
        book.lock().unwrap().push((response.status(), link));
    });
    assert_eq!(soon(client().request(request)).await.unwrap().status(), 200);
    let link = "</a>".parse().ok();
    assert_eq!(
        *seen.lock().unwrap(),
        [(StatusCode::CONTINUE, None), (StatusCode::EARLY_HINTS, link)]
    );
}

#[tokio::test]
async fn a_body_waits_for_100_continue() {
    let site = Site::start(|_, mut raw| async move {
        let asked = raw.next_head().await.unwrap();
        assert!(asked.head.contains("expect: 100-continue"));
        // The client would send the body at once.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(raw.rest().is_empty());
        raw.say("HTTP/1.1 100 Continue\r\n\r\n").await;
        let mut body = [0; 5];
        raw.io.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"hello");
        raw.say(OK).await;
    })
    .await;
    let request = Request::put(&site.url)
        .header(header::EXPECT, "100-continue")
        .body(Full::<Bytes>::from("hello"))
        .unwrap();
    assert_eq!(soon(client().request(request)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_body_is_sent_without_100_continue_after_the_continue_timeout() {
    let site = Site::start(|_, mut raw| async move {
        raw.next_head().await.unwrap();
        let mut body = [0; 5];
        raw.io.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"hello");
        raw.say(OK).await;
    })
    .await;
    let client = http1().continue_timeout(std::time::Duration::from_millis(5));
    let client = client.build().unwrap();
    let request = Request::put(&site.url)
        .header(header::EXPECT, "100-continue")
        .body(Full::<Bytes>::from("hello"))
        .unwrap();
    assert_eq!(soon(client.request(request)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_body_that_the_server_refuses_before_100_is_never_sent() {
    let site = Site::start(|_, mut raw| async move {
        raw.next_head().await.unwrap();
        raw.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
            .await;
        let mut rest = raw.rest().to_vec();
        let _ = raw.io.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{} octets of the body", rest.len());
    })
    .await;
    let (body, dropped) = Guarded::new(Chunks::new(1 << 20, 1_000).sized());
    let request = Request::put(&site.url)
        .header(header::EXPECT, "100-continue")
        .body(body)
        .unwrap();
    let client = client();
    let response = soon(client.request(request)).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(
        soon(response.into_body().collect()).await.unwrap().to_bytes(),
        "big"
    );
    until(|| dropped.load(std::sync::atomic::Ordering::SeqCst) && client.connections(&site.url) == 0).await;
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_is_sent_arrives_although_the_server_closes() {
    let site = Site::start(|_, mut raw| async move {
        raw.next_head().await.unwrap();
        raw.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
            .await;
        // What the client sends meets a closed port.
    })
    .await;
    for _ in 0..10 {
        let (body, dropped) = Guarded::new(Chunks::new(64 << 20, 64 << 10).sized());
        let request = Request::put(&site.url).body(body).unwrap();
        let response = soon(client().request(request)).await.unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(
            soon(response.into_body().collect()).await.unwrap().to_bytes(),
            "big"
        );
        until(|| dropped.load(std::sync::atomic::Ordering::SeqCst)).await;
    }
}

#[tokio::test]
async fn the_rest_of_an_upload_that_was_refused_is_not_sent() {
    let site = Site::start(|_, mut raw| async move {
        raw.next_head().await.unwrap();
        raw.say("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            .await;
        let mut rest = Vec::new();
        let _ = raw.io.read_to_end(&mut rest).await;
        assert!(rest.len() < 32 << 20, "{} octets", rest.len());
    })
    .await;
    let produced = Produced::default();
    let body = Chunks::new(1 << 30, 64 << 10).counted(&produced);
    let client = client();
    let response = soon(client.request(Request::put(&site.url).body(body).unwrap()))
        .await
        .unwrap();
    assert_eq!(response.status(), 403);
    drop(response);
    until(|| client.connections(&site.url) == 0).await;
    assert!(produced.load(std::sync::atomic::Ordering::SeqCst) < 64 << 20);
}

#[tokio::test]
async fn a_body_of_another_length_than_announced_fails_on_this_side() {
    // The last of them is longer by whole frames.
    for (bytes, frame, announced) in [(4, 100, "5"), (6, 100, "5"), (10, 5, "5"), (1, 100, "0")] {
        let site = Site::start(|_, mut raw| async move { drop(raw.next().await) }).await;
        let request = Request::put(&site.url)
            .header(header::CONTENT_LENGTH, announced)
            .body(Chunks::new(bytes, frame))
            .unwrap();
        let error = soon(client().request(request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BodyLength, "{error}");
    }
}

#[tokio::test]
async fn a_body_that_fails_is_the_error_of_its_request() {
    let site = Site::start(|_, mut raw| async move { drop(raw.next().await) }).await;
    let request = Request::put(&site.url)
        .body(Chunks::new(10, 10).failing())
        .unwrap();
    let error = soon(client().request(request)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body, "{error}");
}

#[tokio::test]
async fn what_http_1_cannot_carry_is_not_sent() {
    let site = Site::says(OK).await;
    let client = client();
    let mut extended = Request::connect(&site.url).body(String::new()).unwrap();
    extended
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    let framed = Request::put(&site.url)
        .header("transfer-encoding", "gzip")
        .body("x".to_owned())
        .unwrap();
    for request in [extended, framed] {
        let error = soon(client.request(request)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
    }
    soon(fetch(&client, &site.url)).await.unwrap();
    assert_eq!(site.accepted(), 1, "the connection carries the next request");
}

#[tokio::test]
async fn a_connection_that_is_upgraded_belongs_to_the_caller() {
    let site = Site::start(|_, mut raw| async move {
        let asked = raw.next_head().await.unwrap();
        assert!(asked.head.contains("upgrade: echo\r\n") && asked.head.contains("connection: upgrade\r\n"));
        raw.say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhi")
            .await;
        let mut octets = [0; 3];
        raw.io.read_exact(&mut octets).await.unwrap();
        raw.io.write_all(&octets).await.unwrap();
    })
    .await;
    let client = client();
    let request = Request::get(&site.url)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "echo")
        .body(String::new())
        .unwrap();
    let response = soon(client.request(request)).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap());
    until(|| client.connections(&site.url) == 0).await;
    io.write_all(b"you").await.unwrap();
    let mut answer = String::new();
    soon(io.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "hiyou");
}
