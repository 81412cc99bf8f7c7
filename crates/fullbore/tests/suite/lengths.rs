//! A body that is sent has the length that its message announces, in both versions and both directions. Another length never
//! passes for a complete message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fullbore::client::handshake;
use fullbore::server::serve_connection_auto;
use fullbore::settings::HttpVersions;
use fullbore::{BoxError, Client, Config, Error, ErrorKind, Incoming};
use fullbore_testing::frames::{self, Frame};
use fullbore_testing::peer::Peer;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame as BodyFrame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{Reply, empty, full, service, soon};

/// INTERNAL_ERROR.
const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];

/// What a body gives.
#[derive(Debug, Clone, Copy)]
enum Part {
    Bytes(&'static str),
    /// It waits, and its task is woken.
    Wait,
    Trailers,
}
use Part::{Bytes as B, Trailers, Wait};

/// Bodies of another length than 5.
const WRONG: [&[Part]; 9] = [
    &[],
    &[Wait],
    &[B("abcd")],
    &[B("abcd"), Wait],
    &[B("abcd"), Trailers],
    &[B("abcdef")],
    &[B("abcde"), B("f")],
    &[B("abcde"), Wait, B("f")],
    &[B("a"), Wait, B("bcde"), Wait, B("f"), Trailers],
];

/// Bodies of length 5.
const RIGHT: [&[Part]; 4] = [
    &[B("abcde")],
    &[B("abc"), Wait, B(""), B("de")],
    &[B("abcde"), Wait, B("")],
    &[B("abc"), B("de"), Wait, Trailers],
];

/// A body that does not say how long it is.
fn unsized_body(parts: &'static [Part]) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = stream::unfold(parts.iter(), |mut parts| async move {
        loop {
            let frame = match parts.next()? {
                Wait => {
                    tokio::task::yield_now().await;
                    continue;
                }
                B(text) => BodyFrame::data(Bytes::from_static(text.as_bytes())),
                Trailers => BodyFrame::trailers(HeaderMap::new()),
            };
            return Some((Ok::<_, BoxError>(frame), parts));
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

fn response(
    status: u16,
    length: Option<&'static str>,
    body: UnsyncBoxBody<Bytes, BoxError>,
) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    if let Some(length) = length {
        let length = length.parse().expect("a value");
        response.headers_mut().insert("content-length", length);
    }
    response
}

/// A server whose handler answers with `reply`, and our end of its connection.
fn serve(
    reply: impl Fn() -> Reply + Clone + Send + Sync + 'static,
) -> (DuplexStream, JoinHandle<Result<(), Error>>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let service = service(move |_: Request<Incoming>| {
        let reply = reply();
        async move { Ok::<_, BoxError>(reply) }
    });
    let served = tokio::spawn(serve_connection_auto(far, service, Config::default()));
    (near, served)
}

/// The frames of the first stream of an HTTP/2 server, to its end.
async fn answered(reply: impl Fn() -> Reply + Clone + Send + Sync + 'static, method: &str) -> Vec<Frame> {
    let (near, _served) = serve(reply);
    let mut peer = Peer::client(near, &[]).await;
    let pseudo: &[(&str, &str)] = match method {
        "CONNECT" => &[(":method", method), (":authority", "test:80")],
        _ => &[
            (":method", method),
            (":scheme", "http"),
            (":authority", "test"),
            (":path", "/"),
        ],
    };
    let end = u8::from(method != "CONNECT");
    let block = frames::block(pseudo);
    peer.write(&frames::headers(1, frames::END_HEADERS | end, &block))
        .await;
    of_stream(&mut peer).await
}

/// The frames of stream 1, to END_STREAM, RST_STREAM or the end of the connection.
async fn of_stream(peer: &mut Peer<DuplexStream>) -> Vec<Frame> {
    let mut all = Vec::new();
    while let Some(frame) = soon(peer.next()).await {
        if frame.stream != 1 || frame.kind == frames::WINDOW_UPDATE {
            continue;
        }
        all.push(frame);
        if is_complete(&all) || is_reset(&all) {
            break;
        }
    }
    all
}

fn is_complete(frames: &[Frame]) -> bool {
    let ends = |frame: &Frame| frame.flags & frames::END_STREAM != 0;
    frames
        .iter()
        .any(|frame| [frames::DATA, frames::HEADERS].contains(&frame.kind) && ends(frame))
}

fn is_reset(frames: &[Frame]) -> bool {
    let resets = |frame: &Frame| frame.kind == frames::RST_STREAM && frame.payload[..] == INTERNAL_ERROR;
    frames.iter().any(resets)
}

/// What a server says over HTTP/1.1 to a request, until it closes, and how its connection ended.
async fn said(
    reply: impl Fn() -> Reply + Clone + Send + Sync + 'static,
    method: &str,
) -> (String, Result<(), Error>) {
    let (mut near, served) = serve(reply);
    let target = if method == "CONNECT" { "h" } else { "/" };
    let request = format!("{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    near.write_all(request.as_bytes())
        .await
        .expect("the pipe has room");
    let mut said = String::new();
    soon(near.read_to_string(&mut said)).await.expect("an end");
    drop(near);
    (said, soon(served).await.expect("no panic"))
}

#[tokio::test]
async fn a_response_over_http2_is_reset_if_its_body_has_another_length_than_announced() {
    for parts in WRONG {
        let frames = answered(move || response(200, Some("5"), unsized_body(parts)), "GET").await;
        assert!(
            is_reset(&frames) && !is_complete(&frames),
            "{parts:?}: {frames:?}"
        );
    }
    for parts in RIGHT {
        let frames = answered(move || response(200, Some("5"), unsized_body(parts)), "GET").await;
        assert!(is_complete(&frames), "{parts:?}: {frames:?}");
    }
}

#[tokio::test]
async fn a_response_over_http1_does_not_end_well_if_its_body_has_another_length_than_announced() {
    for parts in WRONG {
        let (said, served) = said(move || response(200, Some("5"), unsized_body(parts)), "GET").await;
        let (_, body) = said.split_once("\r\n\r\n").unwrap_or_default();
        assert!(body.len() < 5, "{parts:?}: it passes for complete: {said}");
        let error = served.expect_err("the connection fails");
        assert_eq!(error.kind(), ErrorKind::BodyLength, "{parts:?}: {error}");
    }
    for parts in RIGHT {
        let (said, served) = said(move || response(200, Some("5"), unsized_body(parts)), "GET").await;
        served.expect("a clean end");
        assert!(said.ends_with("\r\n\r\nabcde"), "{parts:?}: {said}");
    }
}

/// A body that knows its length.
fn sized(text: &'static str) -> UnsyncBoxBody<Bytes, BoxError> {
    match text {
        "" => empty(),
        _ => full(text),
    }
}

#[tokio::test]
async fn a_response_whose_length_is_seen_to_be_wrong_is_not_begun() {
    for (length, body) in [
        ("5", ""),
        ("5", "abcd"),
        ("5", "abcdef"),
        ("0", "a"),
        ("five", "abcde"),
        ("5, 6", "abcde"),
    ] {
        let reply = move || response(200, Some(length), sized(body));
        let frames = answered(reply, "GET").await;
        assert!(is_reset(&frames) && frames.len() == 1, "{length}: {frames:?}");
        let (said, served) = said(reply, "GET").await;
        served.expect("a clean end");
        assert!(said.starts_with("HTTP/1.1 500 "), "{length}: {said}");
        assert!(said.contains("connection: close\r\n"), "{said}");
    }
}

#[tokio::test]
async fn a_length_of_zero_is_no_reason_to_leave_a_body_out() {
    const SOME: [&[Part]; 3] = [&[B("a")], &[Wait, B("a")], &[B(""), Wait, B("a"), Trailers]];
    for parts in SOME {
        let reply = move || response(200, Some("0"), unsized_body(parts));
        let frames = answered(reply, "GET").await;
        assert!(
            is_reset(&frames) && !is_complete(&frames),
            "{parts:?}: {frames:?}"
        );
        let (said, served) = said(reply, "GET").await;
        served.expect("a clean end");
        assert!(said.starts_with("HTTP/1.1 500 "), "{parts:?}: {said}");
    }
    const NONE: [&[Part]; 4] = [&[], &[Wait], &[B(""), Wait], &[Wait, Trailers]];
    for parts in NONE {
        let reply = move || response(200, Some("0"), unsized_body(parts));
        assert!(is_complete(&answered(reply, "GET").await), "{parts:?}");
        let (said, served) = said(reply, "GET").await;
        served.expect("a clean end");
        assert!(
            said.contains("content-length: 0\r\n") && said.ends_with("\r\n\r\n"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_response_that_has_no_content_announces_none() {
    for (method, status, announces) in [
        ("GET", 204, false),
        ("HEAD", 204, false),
        ("CONNECT", 200, false),
        ("HEAD", 200, true),
    ] {
        for body in ["", "abcde"] {
            let reply = move || response(status, Some("5"), sized(body));
            let (near, _served) = serve(reply);
            let (sender, connection) = handshake(near, Config::default());
            tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri("http://test:80/")
                .body(empty());
            let answer = soon(sender.send(request.expect("a request"))).await;
            let fields = answer.expect("a response").into_parts().0.headers;
            assert_eq!(
                fields.contains_key("content-length"),
                announces,
                "{method} {status}: {fields:?}"
            );
            let (said, served) = said(reply, method).await;
            served.expect("a clean end");
            assert_eq!(said.contains("content-length: 5"), announces, "{said}");
            assert!(said.ends_with("\r\n\r\n"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_coding_of_the_connection_is_replaced_by_its_own_or_refused() {
    for (coding, length, sent) in [
        ("chunked", None, true),
        ("chunked", Some("5"), true),
        ("gzip, chunked", None, false),
    ] {
        let reply = move || {
            let mut response = response(200, length, unsized_body(RIGHT[0]));
            let coding = coding.parse().expect("a value");
            response.headers_mut().insert("transfer-encoding", coding);
            response
        };
        let frames = answered(reply, "GET").await;
        assert_eq!((is_complete(&frames), is_reset(&frames)), (sent, !sent));
        let (said, served) = said(reply, "GET").await;
        served.expect("a clean end");
        match (sent, length) {
            (false, _) => assert!(said.starts_with("HTTP/1.1 500 "), "{said}"),
            (true, None) => assert!(said.ends_with("\r\n5\r\nabcde\r\n0\r\n\r\n"), "{said}"),
            (true, Some(_)) => assert!(said.ends_with("\r\n\r\nabcde"), "{said}"),
        }
    }
}

fn put(length: &str, body: UnsyncBoxBody<Bytes, BoxError>) -> Request<UnsyncBoxBody<Bytes, BoxError>> {
    Request::put("http://test.example/")
        .header("content-length", length)
        .body(body)
        .expect("a request")
}

/// Sends a request over HTTP/2 to a server that answers what is complete. The frames that it got of stream 1.
async fn sent(request: Request<UnsyncBoxBody<Bytes, BoxError>>) -> (Vec<Frame>, Result<(), Error>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let asking = async move {
        let response = soon(sender.send(request)).await;
        // Without a handle the connection ends.
        response.map(|_| sender)
    };
    let answering = async {
        let mut peer = Peer::server(far, &[]).await;
        let frames = of_stream(&mut peer).await;
        if is_complete(&frames) {
            peer.respond(1, true, &[]).await;
        }
        (frames, peer)
    };
    let ((frames, _peer), response) = tokio::join!(answering, asking);
    (frames, response.map(drop))
}

#[tokio::test]
async fn a_request_over_http2_is_reset_if_its_body_has_another_length_than_announced() {
    for parts in WRONG {
        let (frames, response) = sent(put("5", unsized_body(parts))).await;
        // What is seen at once is not sent at all.
        let is_sent = is_reset(&frames) || frames.is_empty();
        assert!(is_sent && !is_complete(&frames), "{parts:?}: {frames:?}");
        let waits = matches!(parts, [B(_), Wait, ..]);
        assert!(!waits || is_reset(&frames), "{parts:?}: {frames:?}");
        let error = response.expect_err("it was reset");
        assert_eq!(error.kind(), ErrorKind::BodyLength, "{error}");
    }
    for parts in RIGHT {
        let (_, response) = sent(put("5", unsized_body(parts))).await;
        response.expect("it is complete");
    }
}

#[tokio::test]
async fn a_request_over_http1_does_not_end_well_if_its_body_has_another_length_than_announced() {
    for (length, bodies, fits) in [
        ("5", &WRONG[..], false),
        ("5", &RIGHT[..], true),
        ("0", &WRONG[2..], false),
    ] {
        for parts in bodies {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}/", listener.local_addr().expect("an address"));
            let server = tokio::spawn(async move {
                let (mut io, _) = listener.accept().await.expect("a connection");
                let mut read = Vec::new();
                while io.read_buf(&mut read).await.unwrap_or(0) > 0 {
                    if read.ends_with(b"\r\n\r\nabcde") {
                        let _ = io.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                    }
                }
                read
            });
            let mut request = put(length, unsized_body(parts));
            *request.uri_mut() = url.parse().expect("a URL");
            let client = Client::builder().http_versions(HttpVersions::Http1);
            let client = client.build().expect("a client");
            let answered = soon(client.request(request)).await;
            drop(client);
            match answered {
                Ok(_) => assert!(fits, "{length}, {parts:?}"),
                Err(error) => {
                    assert!(!fits, "{parts:?}: {error}");
                    assert_eq!(error.kind(), ErrorKind::BodyLength, "{length}, {parts:?}");
                }
            }
            if length == "0" {
                // Nothing was sent, and nobody connected.
                server.abort();
            } else {
                let read = soon(server).await.expect("no panic");
                assert_eq!(read.ends_with(b"\r\n\r\nabcde"), fits, "{parts:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_whose_length_is_seen_to_be_wrong_is_not_sent_in_either_version() {
    let (near, _far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let client = Client::builder().http_versions(HttpVersions::Http1);
    let client = client.build().expect("a client");
    for (length, body) in [
        ("5", ""),
        ("5", "abcd"),
        ("0", "a"),
        ("five", "abcde"),
        ("5, 6", "abcde"),
    ] {
        let error = soon(sender.send(put(length, sized(body)))).await;
        let error = error.expect_err("a contradiction");
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{length}: {error}");
        let mut request = put(length, sized(body));
        *request.uri_mut() = url.parse().expect("a URL");
        let error = soon(client.request(request)).await.expect_err("a contradiction");
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{length}: {error}");
    }
}

/// What a server gets of a request over HTTP/1.1, until it has seen `until`.
async fn received(request: Request<UnsyncBoxBody<Bytes, BoxError>>, until: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = Client::builder().http_versions(HttpVersions::Http1);
    let client = client.build().expect("a client");
    let mut request = request;
    *request.uri_mut() = format!("http://{address}/").parse().expect("a URL");
    let asked = tokio::spawn(async move { client.request(request).await });
    let (mut io, _) = soon(listener.accept()).await.expect("a connection");
    let mut read = Vec::new();
    while !read.ends_with(until.as_bytes()) {
        let more = soon(io.read_buf(&mut read)).await.expect("octets");
        assert!(more > 0, "{}", String::from_utf8_lossy(&read));
    }
    io.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .await
        .expect("room");
    soon(asked).await.expect("no panic").expect("a response");
    String::from_utf8(read).expect("text")
}

#[tokio::test]
async fn the_body_of_a_get_is_sent_over_http1_as_over_http2() {
    for method in [Method::GET, Method::HEAD, Method::DELETE] {
        let request = |body| {
            Request::builder()
                .method(&method)
                .uri("http://test.example/")
                .body(body)
                .expect("a request")
        };
        let said = received(request(unsized_body(RIGHT[0])), "5\r\nabcde\r\n0\r\n\r\n").await;
        assert!(said.contains("transfer-encoding: chunked\r\n"), "{said}");
        let said = received(request(full("abcde")), "\r\n\r\nabcde").await;
        assert!(said.contains("content-length: 5\r\n"), "{said}");
    }
}

#[tokio::test]
async fn a_tunnel_over_http2_has_no_length() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let request = Request::connect("http://test.example:80")
        .header("content-length", "3")
        .body(unsized_body(RIGHT[0]))
        .expect("a request");
    let response = tokio::spawn(sender.send(request));
    let mut peer = Peer::server(far, &[]).await;
    let head = soon(peer.expect(frames::HEADERS)).await;
    // The index of the name in the static table of HPACK, in three forms.
    for form in [&[0x5c][..], &[0x0f, 0x0d], &[0x1f, 0x0d]] {
        let occurs = head.payload.windows(form.len()).any(|octets| octets == form);
        assert!(!occurs, "content-length is sent: {head:?}");
    }
    peer.respond(1, false, &[("content-length", "3")]).await;
    let mut body = soon(response)
        .await
        .expect("no panic")
        .expect("a tunnel")
        .into_body();
    assert_eq!(http_body::Body::size_hint(&body).exact(), None);
    peer.send(frames::DATA, frames::END_STREAM, 1, b"hello").await;
    let frame = soon(body.frame()).await.expect("octets").expect("no error");
    assert_eq!(frame.into_data().expect("data"), "hello");
}

#[tokio::test]
async fn a_body_of_another_length_costs_its_own_stream_alone() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let reply = move || {
        let parts = if count.fetch_add(1, Ordering::SeqCst) == 0 {
            WRONG[6]
        } else {
            RIGHT[0]
        };
        response(200, Some("5"), unsized_body(parts))
    };
    let (near, _served) = serve(reply);
    let (sender, connection) = handshake(near, Config::default());
    tokio::spawn(connection);
    let get = || {
        Request::get("http://test.example/")
            .body(empty())
            .expect("a request")
    };
    let whole = async |response: Response<Incoming>| response.into_body().collect().await;
    let first = soon(sender.send(get())).await;
    let first = match first {
        Ok(response) => soon(whole(response)).await.map(drop),
        Err(error) => Err(error),
    };
    assert!(first.expect_err("a reset").is_reset());
    let second = soon(sender.send(get())).await.expect("a response");
    let body = soon(whole(second)).await.expect("it is complete").to_bytes();
    assert_eq!((body, asked.load(Ordering::SeqCst)), (Bytes::from("abcde"), 2));
}
