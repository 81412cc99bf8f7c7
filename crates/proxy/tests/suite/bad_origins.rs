//! Origins that are absent, silent, slow or broken: each has its status and a reason for the operator, and the client never
//! learns where the origin is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proxy::Proxy;
use fullbore_testing::frames::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, block};
use fullbore_testing::peer::Peer;
use http::StatusCode;
use tokio::io::AsyncWriteExt;

use crate::support::{Front, VERSIONS, client, get, head, post, raw_origin, says, soon, text, urls};

/// Asks in both versions, and returns what the operator is told.
async fn fails(front: &Front, status: StatusCode) -> Vec<String> {
    for version in VERSIONS {
        for request in [get(&front.url("/")), post(&front.url("/"), "body")] {
            let response = soon(client(version).request(request)).await.unwrap();
            assert_eq!(response.status(), status, "{version:?}");
            let body = text(response.into_body()).await;
            assert!(body.starts_with("The ") && !body.contains("127.0.0.1"), "{body}");
        }
    }
    assert_eq!(front.proxy.stats()[0].requests, 0);
    let told = front.told();
    assert_eq!(told.len(), 4, "{told:?}");
    for line in &told {
        let start = format!("{}: {}: ", status.as_u16(), front.proxy.stats()[0].origin);
        assert!(line.starts_with(&start), "{line}");
    }
    told
}

#[tokio::test]
async fn an_absent_origin_is_502() {
    let site = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = site.local_addr().unwrap();
    drop(site);
    for scheme in ["http", "h2c", "https"] {
        let front = Front::to(&format!("{scheme}://{address}")).await;
        let told = fails(&front, StatusCode::BAD_GATEWAY).await;
        assert!(told[0].contains("refused"), "{told:?}");
        // A client that waits for 100 (Continue) is not left waiting.
        let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        let answer = front.raw(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
}

#[tokio::test]
async fn an_answer_that_is_none_is_502() {
    for answer in [
        "",
        "HTTP/1.1 200",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
    ] {
        let site = says(answer).await;
        let front = Front::to(&urls(&site)[0]).await;
        fails(&front, StatusCode::BAD_GATEWAY).await;
        // A fault of the answer is none of the other version.
        let front = Front::to(&urls(&site)[1]).await;
        fails(&front, StatusCode::BAD_GATEWAY).await;
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_502() {
    let answer = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let site = says(Bytes::from(answer)).await;
    let front = Front::to(&urls(&site)[0]).await;
    fails(&front, StatusCode::BAD_GATEWAY).await;
}

#[tokio::test]
async fn a_silent_origin_is_504_from_the_end_of_the_request_on() {
    let site = raw_origin(|_, mut stream| async move {
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let limit = |url: &str| {
        let limit = Some(Duration::from_millis(200));
        Proxy::builder()
            .to(url)
            .client(|client| client.response_timeout(limit))
    };
    let front = Front::new(limit(&urls(&site)[0])).await;
    fails(&front, StatusCode::GATEWAY_TIMEOUT).await;
    let site = raw_origin(|_, stream| async move {
        Peer::server(stream, &[]).await.rest().await;
    })
    .await;
    let front = Front::new(limit(&urls(&site)[1])).await;
    fails(&front, StatusCode::GATEWAY_TIMEOUT).await;
}

#[tokio::test]
async fn an_origin_that_sends_its_head_octet_by_octet_has_no_more_time_than_a_silent_one() {
    let site = raw_origin(|_, mut stream| async move {
        head(&mut stream).await;
        for octet in b"HTTP/1.1 200 OK\r\nX: ".iter().chain(std::iter::repeat(&b'a')) {
            if stream.write_u8(*octet).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let soon_late =
        |client: fullbore::ClientBuilder| client.response_timeout(Some(Duration::from_millis(150)));
    let front = Front::new(Proxy::builder().to(&urls(&site)[0]).client(soon_late)).await;
    let told = fails(&front, StatusCode::GATEWAY_TIMEOUT).await;
    // The limit on the head itself, 30 s, says something else.
    assert!(told[0].contains("did not respond"), "{told:?}");
    assert_eq!(front.proxy.stats()[0].figures.timeouts, 4);
}

#[tokio::test]
async fn an_origin_of_http_2_that_refuses_is_503_and_one_that_fails_502() {
    for (code, status) in [(7, StatusCode::SERVICE_UNAVAILABLE), (2, StatusCode::BAD_GATEWAY)] {
        let site = raw_origin(move |_, stream| async move {
            let mut peer = Peer::server(stream, &[]).await;
            while let Some(frame) = peer.next().await {
                if frame.kind == HEADERS {
                    peer.send(RST_STREAM, 0, frame.stream, &[0, 0, 0, code]).await;
                }
            }
        })
        .await;
        let front = Front::to(&urls(&site)[1]).await;
        fails(&front, status).await;
    }
}

#[tokio::test]
async fn an_answer_of_http_2_that_is_malformed_is_502() {
    let malformed: [&[(&str, &str)]; 9] = [
        // Its head is the end, but for five octets. It is no fault of the request (nginx#1568).
        &[(":status", "200"), ("content-length", "5")],
        &[
            (":status", "200"),
            ("content-length", "0"),
            ("content-length", "1"),
        ],
        &[(":status", "200"), ("content-length", "x")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("Upper", "case")],
        &[(":status", "200"), (":path", "/")],
        &[("a", "field"), (":status", "200")],
        &[(":status", "101")],
        &[("no", "status")],
    ];
    for fields in malformed {
        let site = raw_origin(move |_, stream| async move {
            let mut peer = Peer::server(stream, &[]).await;
            while let Some(frame) = peer.next().await {
                if frame.kind == HEADERS {
                    let flags = END_HEADERS | END_STREAM;
                    peer.send(HEADERS, flags, frame.stream, &block(fields)).await;
                }
            }
        })
        .await;
        let front = Front::to(&urls(&site)[1]).await;
        fails(&front, StatusCode::BAD_GATEWAY).await;
        assert_eq!(front.proxy.stats()[0].figures.bad_gateway, 4, "{fields:?}");
    }
}

#[tokio::test]
async fn what_was_not_processed_is_sent_once_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let site = raw_origin(move |number, stream| {
        let count = Arc::clone(&count);
        async move {
            let mut peer = Peer::server(stream, &[]).await;
            while let Some(frame) = peer.next().await {
                if frame.kind == HEADERS {
                    count.fetch_add(1, Ordering::SeqCst);
                    match number {
                        // It has processed no stream.
                        0 => peer.send(GOAWAY, 0, 0, &[0; 8]).await,
                        _ => peer.respond(frame.stream, true, &[]).await,
                    }
                }
            }
        }
    })
    .await;
    let front = Front::to(&urls(&site)[1]).await;
    let response = soon(client(VERSIONS[1]).request(get(&front.url("/"))))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(front.told(), [""; 0]);
}

/// An origin that answers the first request on each connection, and closes it at the second.
#[tokio::test]
async fn a_used_connection_that_closes_costs_a_get_nothing_and_a_post_is_never_sent_twice() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let site = raw_origin(move |_, mut stream| {
        let count = Arc::clone(&count);
        async move {
            for answers in [true, false] {
                if head(&mut stream).await.is_empty() {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                if answers {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer).await.unwrap();
                }
            }
        }
    })
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    let client = client(VERSIONS[1]);
    let ask = |request| async {
        let response = soon(client.request(request)).await.unwrap();
        (response.status().as_u16(), asked.swap(0, Ordering::SeqCst))
    };
    assert_eq!(ask(get(&front.url("/"))).await, (200, 1));
    assert_eq!(
        ask(get(&front.url("/"))).await,
        (200, 2),
        "once on the used connection, once on a new one"
    );
    assert_eq!(ask(post(&front.url("/"), "body")).await, (502, 1));
    assert_eq!(ask(get(&front.url("/"))).await, (200, 1));
    // Idempotent, but with a body that was streamed.
    let mut put = post(&front.url("/"), "body");
    *put.method_mut() = http::Method::PUT;
    assert_eq!(ask(put).await, (502, 1));
}
