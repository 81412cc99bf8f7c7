//! Informational responses: what the origin says before its answer reaches the client, and the body of a request waits for the
//! origin.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fullbore::client::on_informational;
use fullbore::server::Informational;
use fullbore::{BoxError, Incoming};
use fullbore_testing::frames::{DATA, HEADERS};
use fullbore_testing::peer::Peer;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    Front, VERSIONS, client, full, get, head, origin, post, raw_origin, says, soon, text, urls,
};

#[tokio::test]
async fn early_hints_of_the_origin_reach_the_client() {
    let http1 = says(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x-secret\r\nX-Secret: 1\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let http2 = origin(|_: Request<Incoming>| async {
        let hints = Response::builder().status(103).header("link", "</a>").body(())?;
        Informational::current().ok_or("no handle")?.send(hints)?;
        Ok::<_, BoxError>(Response::new(full("ok")))
    })
    .await;
    for url in [&urls(&http1)[0], &urls(&http2)[1]] {
        let front = Front::to(url).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&seen);
        let mut request = get(&front.url("/"));
        on_informational(&mut request, move |response| {
            assert!(!response.headers().contains_key("x-secret"));
            let link = response.headers()["link"].clone();
            book.lock().unwrap().push((response.status().as_u16(), link));
        });
        let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
        assert_eq!(text(response.into_body()).await, "ok");
        assert_eq!(
            *seen.lock().unwrap(),
            [(103, HeaderValue::from_static("</a>"))],
            "{url}"
        );
        // Over HTTP/1.1 they are left out.
        let answer = front
            .raw(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

fn expecting(front: &Front) -> crate::support::Asked {
    let mut request = post(&front.url("/"), "the body");
    request
        .headers_mut()
        .insert("expect", HeaderValue::from_static("100-continue"));
    request
}

#[tokio::test]
async fn the_body_of_a_request_that_expects_100_waits_for_that_of_the_origin() {
    let http1 = raw_origin(|_, mut stream| async move {
        assert!(head(&mut stream).await.contains("expect: 100-continue"));
        let early = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
        assert!(early.is_err(), "the body has come already");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 8];
        stream.read_exact(&mut body).await.unwrap();
        let answer = [b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", &body[..]].concat();
        stream.write_all(&answer).await.unwrap();
    })
    .await;
    let http2 = raw_origin(|_, stream| async move {
        let mut peer = Peer::server(stream, &[]).await;
        let asked = peer.expect(HEADERS).await;
        let early = tokio::time::timeout(Duration::from_millis(100), peer.expect(DATA)).await;
        assert!(early.is_err(), "the body has come already");
        // :status 100.
        peer.send(HEADERS, 4, asked.stream, b"\x08\x03100").await;
        let body = peer.expect(DATA).await;
        peer.respond(asked.stream, false, &[]).await;
        peer.send(DATA, 1, asked.stream, &body.payload).await;
        peer.rest().await;
    })
    .await;
    for url in [&urls(&http1)[0], &urls(&http2)[1]] {
        for version in VERSIONS {
            let front = Front::to(url).await;
            let response = soon(client(version).request(expecting(&front))).await.unwrap();
            assert_eq!(text(response.into_body()).await, "the body", "{url} {version:?}");
        }
    }
}

#[tokio::test]
async fn an_origin_that_refuses_what_it_was_asked_gets_no_body_and_one_that_says_nothing_gets_it_later() {
    let refusing = says("HTTP/1.1 417 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").await;
    let slow = origin(|request: Request<Incoming>| async move {
        // The library says 100 when the body is read, which is later than the proxy waits.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(full(body)))
    })
    .await;
    for version in VERSIONS {
        let front = Front::to(&urls(&refusing)[0]).await;
        let response = soon(client(version).request(expecting(&front))).await.unwrap();
        assert_eq!(response.status(), 417);
        assert_eq!(text(response.into_body()).await, "no");
        for url in urls(&slow) {
            let front = Front::to(&url).await;
            let response = soon(client(version).request(expecting(&front))).await.unwrap();
            assert_eq!(text(response.into_body()).await, "the body", "{url} {version:?}");
        }
    }
}
