//! What one side takes for one message and the other for two: the origin sees what the client meant, or the client gets 400.

use fullbore::{BoxError, Incoming};
use fullbore_testing::frames::{DATA, END_STREAM, HEADERS, RST_STREAM};
use fullbore_testing::peer::Peer;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::net::TcpStream;

use crate::support::{Front, VERSIONS, client, full, get, origin, soon, urls};

/// Answers with the target and the body of a request.
async fn mirror(request: Request<Incoming>) -> Result<crate::support::Reply, BoxError> {
    let target = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let text = format!("<{target} {}>", String::from_utf8_lossy(&body));
    Ok(Response::builder()
        .header("connection", "close")
        .body(full(text))?)
}

/// The second request, which nobody sent as one.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

#[tokio::test]
async fn requests_of_http_1_that_can_be_read_in_two_ways_are_refused() {
    let site = origin(mirror).await;
    let fronts = [Front::to(&urls(&site)[0]).await, Front::to(&urls(&site)[1]).await];
    let bodies = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
        "Content-Length: 0, 44\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 0x2c\r\n\r\n",
        "Content-Length: \r\n\r\n",
        "Content-Length : 0\r\n\r\n",
        "Content-Length\t: 0\r\n\r\n",
        "Content-Length: 0 44\r\n\r\n",
        "Content-Length: 0\r\n Content-Length: 44\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
        "X: a\rContent-Length: 44\r\n\r\n",
        "X: a\0b\r\n\r\n",
        "X Y: a\r\n\r\n",
        ": a\r\n\r\n",
        "Host: other\r\n\r\n",
    ];
    for (version, front) in ["http", "h2c"].iter().zip(&fronts) {
        for body in bodies {
            let request = format!("POST /seen HTTP/1.1\r\nHost: h\r\n{body}{HIDDEN}");
            let answer = soon(front.raw(request.as_bytes())).await;
            assert!(!answer.contains("/hidden"), "{version} {body:?}: {answer}");
            let refused = ["HTTP/1.1 400 ", "HTTP/1.1 501 "]
                .iter()
                .any(|start| answer.starts_with(start));
            assert!(refused || answer.is_empty(), "{version} {body:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn requests_of_http_1_with_one_meaning_are_passed_on_with_it() {
    let site = origin(mirror).await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for (request, seen) in [
            (format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{HIDDEN}", HIDDEN.len()), format!("</a {HIDDEN}>")),
            ("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\n\r\n".to_owned(), "</a abc>".to_owned()),
            ("GET http://h/a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), "</a >".to_owned()),
            // An upgrade that is not passed on, so that nothing behind it is.
            ("GET /a HTTP/1.1\r\nHost: h\r\nConnection: upgrade, http2-settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n".to_owned(), "</a >".to_owned()),
        ] {
            let answer = soon(front.raw(request.as_bytes())).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&seen), "{url} {request}: {answer}");
            assert_eq!(answer.matches('<').count(), 1, "{answer}");
        }
    }
}

#[tokio::test]
async fn requests_of_http_2_that_another_version_would_read_differently_are_reset_or_one_request() {
    let site = origin(mirror).await;
    let front = Front::to(&urls(&site)[0]).await;
    for fields in [
        &[("transfer-encoding", "chunked")][..],
        &[("content-length", "0")],
        &[("content-length", "3")],
        &[("content-length", "44"), ("content-length", "43")],
        &[("connection", "content-length")],
        &[("host", "other.example")],
        &[("x", "a\r\nTransfer-Encoding: chunked")],
        &[("x", "a\nb")],
        &[("x\r\ny", "a")],
        &[("x y", "a")],
        &[("X-Upper", "a")],
        &[("", "a")],
        &[(":path", "/other")],
        &[("upgrade", "websocket")],
    ] {
        let stream = TcpStream::connect(front.site.address).await.unwrap();
        let mut peer = soon(Peer::client(stream, &[])).await;
        peer.request(1, false, fields).await;
        peer.send(DATA, END_STREAM, 1, HIDDEN.as_bytes()).await;
        let frame = loop {
            let frame = soon(peer.next()).await.expect("an answer");
            if [HEADERS, RST_STREAM].contains(&frame.kind) {
                break frame;
            }
        };
        // 400 of the check, which may come before the reset.
        let is_refused = frame.kind == RST_STREAM || !frame.payload.starts_with(&[0x88]);
        assert!(is_refused, "{fields:?}: {frame:?}");
    }
}

#[tokio::test]
async fn responses_that_can_be_read_in_two_ways_reach_no_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nabc",
    ] {
        let site = crate::support::says(answer).await;
        let front = Front::to(&urls(&site)[0]).await;
        let seen = front
            .raw(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .await;
        assert!(
            seen.starts_with("HTTP/1.1 502 ") || seen.is_empty(),
            "{answer}: {seen}"
        );
    }
}

#[tokio::test]
async fn no_connection_is_upgraded_to_http_and_none_to_what_was_not_asked_for() {
    let site = crate::support::raw_origin(|_, mut stream| async move {
        let head = crate::support::head(&mut stream).await;
        let answer = match head.contains("upgrade:") {
            true => "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            false => "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nplain",
        };
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes()).await;
    })
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    for (protocols, expected) in [
        ("Upgrade: h2c", "plain"),
        ("Upgrade: websocket, h2c", "plain"),
        ("Upgrade: ,h2c", "plain"),
        ("Upgrade: HTTP/2.0", "plain"),
        ("Upgrade: websocket\r\nUpgrade: h2c", "plain"),
        ("Upgrade: websocket", "HTTP/1.1 502 "),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade, close\r\n{protocols}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let answer = soon(front.raw(request.as_bytes())).await;
        assert!(answer.contains(expected), "{protocols}: {answer}");
    }
}

/// What ends a response for the proxy ends it for every client: what follows is no answer to anybody (llhttp#876).
#[tokio::test]
async fn what_follows_a_response_is_no_response() {
    for answer in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\t\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \tchunked\r\n\r\n5;a\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\t\r\n\r\nhello",
    ] {
        let injected = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ninjected";
        let site = crate::support::says(format!("{answer}{injected}")).await;
        let front = Front::to(&urls(&site)[0]).await;
        let twice =
            "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let seen = soon(front.raw(twice.as_bytes())).await;
        assert_eq!(seen.matches("hello").count(), 2, "{answer}: {seen}");
        assert!(!seen.contains("injected"), "{answer}: {seen}");
    }
}

#[tokio::test]
async fn trailers_of_a_response_say_nothing_of_the_connection_and_the_message() {
    let site = crate::support::says(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n5\r\nhello\r\n0\r\n\
         Connection: x-other\r\nX-Other: 1\r\nKeep-Alive: timeout=5\r\nX-Sum: 7\r\n\r\n",
    )
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    let request = get(&front.url("/"));
    let response = soon(client(VERSIONS[1]).request(request)).await.unwrap();
    let body = soon(response.into_body().collect()).await.unwrap();
    let trailers = body.trailers().expect("trailers");
    assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-sum"]);
}
