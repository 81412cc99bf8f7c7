//! What follows what on the wire, and what is told of streams that end early.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::FutureExt;
use h2::{Reason, client, server};
use http::{Request, Response, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use crate::support::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, Peer, RST_STREAM, SETTINGS, Served,
    WINDOW_UPDATE, block, client_before_peer, get, pair, post, request_block, server_before_peer, soon,
};

/// A SETTINGS frame without an entry.
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn the_handshake_writes_the_preface_and_requests_follow_the_settings() {
    let (near, mut transport) = duplex(1 << 16);
    let (mut requests, connection) = client::handshake(near).await.unwrap();
    let (_response, _body) = requests.send_request(get("/"), true).unwrap();
    let mut octets = [0; 100];
    let count = transport.read(&mut octets).await.unwrap();
    assert_eq!(&octets[..count], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    transport.write_all(&EMPTY_SETTINGS).await.unwrap();
    let _connection = tokio::spawn(connection);
    let mut peer = Peer::new(transport);
    for (kind, flags) in [
        (SETTINGS, 0),
        (HEADERS, END_HEADERS | END_STREAM),
        (SETTINGS, ACK),
    ] {
        let frame = peer.hears().await.unwrap();
        assert_eq!((frame.kind, frame.flags), (kind, flags));
    }
}

#[tokio::test]
#[cfg_attr(not(feature = "unstable"), ignore = "for the tests of the published crate")]
async fn settings_that_precede_the_handshake_are_acknowledged_before_requests() {
    let (near, mut transport) = duplex(1 << 16);
    transport.write_all(&EMPTY_SETTINGS).await.unwrap();
    let (mut requests, connection) = client::handshake(near).await.unwrap();
    let (_response, _body) = requests.send_request(get("/"), true).unwrap();
    let _connection = tokio::spawn(connection);
    let mut peer = Peer::after_preface(transport).await;
    for (kind, flags) in [
        (SETTINGS, 0),
        (SETTINGS, ACK),
        (HEADERS, END_HEADERS | END_STREAM),
    ] {
        let frame = peer.hears().await.unwrap();
        assert_eq!((frame.kind, frame.flags), (kind, flags));
    }
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn a_window_of_the_connection_follows_the_acknowledgement() {
    let mut builder = client::Builder::new();
    builder.initial_connection_window_size(100_000);
    for raise in [false, true] {
        let (near, transport) = duplex(1 << 16);
        let (_requests, mut connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
        let mut peer = Peer::after_preface(transport).await;
        peer.says(SETTINGS, 0, 0, b"").await;
        let size = if raise { 200_000 } else { 100_000 };
        if raise {
            connection.set_target_window_size(size);
        }
        let connection = tokio::spawn(connection);
        for flags in [0, ACK] {
            let frame = peer.hears().await.unwrap();
            assert_eq!((frame.kind, frame.flags), (SETTINGS, flags));
        }
        let update = peer.hears().await.unwrap();
        assert_eq!((update.kind, update.word(0)), (WINDOW_UPDATE, size - 65_535));
        drop(connection);
    }
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn a_request_that_is_reset_before_it_is_written_is_opened_all_the_same() {
    let (near, transport) = duplex(1 << 16);
    let (mut requests, connection) = client::handshake(near).await.unwrap();
    let (_response, mut body) = requests.send_request(post("/"), false).unwrap();
    body.send_reset(Reason::INTERNAL_ERROR);
    let _connection = tokio::spawn(connection);
    let mut peer = Peer::after_preface(transport).await;
    peer.says(SETTINGS, 0, 0, b"").await;
    assert_eq!(peer.hears_of(HEADERS).await.stream, 1);
    let reset = peer.hears().await.unwrap();
    assert_eq!((reset.kind, reset.word(0)), (RST_STREAM, 2));
}

#[tokio::test]
async fn a_relative_request_of_http_1_goes_as_it_is() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let relative = |version| Request::get("/").version(version).body(()).unwrap();
    let (_response, _) = requests.send_request(relative(Version::HTTP_11), true).unwrap();
    // :method GET, :scheme http, :path /, and no more.
    assert_eq!(peer.hears_of(HEADERS).await.payload, [0x82, 0x86, 0x84]);
    let error = requests
        .send_request(relative(Version::HTTP_2), true)
        .unwrap_err();
    assert!(error.reason().is_none() && !error.is_io());
}

#[tokio::test]
async fn a_response_that_is_too_large_fails_its_stream_alone() {
    let mut builder = client::Builder::new();
    builder.max_header_list_size(40);
    let (mut requests, _connection, mut peer) = client_before_peer(&builder, &[]).await;
    let mut responses = Vec::new();
    for _ in 0..2 {
        let mut ready = requests.clone().ready().await.unwrap();
        responses.push(ready.send_request(get("/"), true).unwrap().0);
        requests = ready;
    }
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, OK).await;
    peer.says(HEADERS, END_HEADERS, 3, OK).await;
    for response in responses {
        let error = soon(response).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
        assert!(error.is_reset() && error.is_library());
    }
    // The other stream has ended on both sides.
    let reset = peer.hears_of(RST_STREAM).await;
    assert_eq!((reset.stream, reset.word(0)), (3, 1));
}

#[tokio::test]
async fn what_a_server_never_may_say_ends_the_connection() {
    for stream in [1, 2] {
        let (_requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
        peer.says(HEADERS, END_HEADERS, stream, b"").await;
        let goodbye = peer.hears_of(GOAWAY).await;
        assert_eq!(
            (goodbye.word(0), goodbye.word(4), goodbye.payload.len()),
            (0, 1, 8)
        );
        let error = soon(connection).await.unwrap().unwrap_err();
        assert!(error.is_go_away() && error.reason() == Some(Reason::PROTOCOL_ERROR));
    }
}

#[tokio::test]
async fn a_request_that_breaks_the_rules_before_it_is_accepted_is_yielded() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    let mut fields = request_block("POST");
    fields.extend(block(&[("content-length", "1")]));
    peer.says(HEADERS, END_HEADERS, 1, &fields).await;
    peer.says(DATA, END_STREAM, 1, b"hello").await;
    let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    let mut body = request.into_body();
    let error = soon(body.data()).await.unwrap().unwrap_err();
    assert!(error.is_reset() && error.is_library());
    assert!(respond.send_response(Response::new(()), true).is_err());
    let waits = tokio::spawn(async move { served.accept().await.is_none() });
    assert_eq!(peer.hears_of(RST_STREAM).await.word(0), 1);
    drop(peer);
    assert!(soon(waits).await.unwrap());
}

#[tokio::test]
async fn data_beyond_a_small_first_window_is_allowed_until_it_is_acknowledged() {
    let mut builder = server::Builder::new();
    builder.initial_window_size(1);
    let (near, far) = duplex(1 << 16);
    let mut peer = Peer::new(near);
    peer.preface().await;
    peer.says(SETTINGS, 0, 0, b"").await;
    let mut served = builder.handshake::<_, Bytes>(far).await.unwrap();
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    peer.says(DATA, END_STREAM, 1, b"hello").await;
    peer.says(SETTINGS, ACK, 0, b"").await;
    let (request, _respond) = soon(served.accept()).await.unwrap().unwrap();
    assert_eq!(soon(request.into_body().data()).await.unwrap().unwrap(), "hello");
}

#[tokio::test]
async fn small_frames_that_are_not_read_are_few_chunks() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    for _ in 0..3_000 {
        peer.says(DATA, 0, 1, b"x").await;
    }
    peer.says(DATA, END_STREAM, 1, b"end").await;
    let (request, _respond) = soon(served.accept()).await.unwrap().unwrap();
    let mut body = request.into_body();
    crate::support::drive(&mut served, peer.is_content()).await;
    let mut lengths = Vec::new();
    while let Some(chunk) = soon(body.data()).await {
        lengths.push(chunk.unwrap().len());
    }
    assert_eq!(lengths.iter().sum::<usize>(), 3_003);
    assert!(lengths.len() < 80, "{} chunks", lengths.len());
}

#[tokio::test]
async fn who_waits_for_trailers_is_woken_as_the_data_is_taken() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    peer.says(DATA, 0, 1, b"data").await;
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("status", "ok")]))
        .await;
    let body = Arc::new(Mutex::new(soon(response).await.unwrap().into_body()));
    assert!(peer.is_content().await);
    let waits = Arc::clone(&body);
    let trailers = tokio::spawn(async move { poll_fn(|cx| waits.lock().unwrap().poll_trailers(cx)).await });
    tokio::task::yield_now().await;
    let chunk = poll_fn(|cx| body.lock().unwrap().poll_data(cx)).await;
    assert_eq!(chunk.unwrap().unwrap(), "data");
    assert_eq!(soon(trailers).await.unwrap().unwrap().unwrap()["status"], "ok");
}

#[tokio::test]
async fn nobody_is_told_that_there_are_no_informational_responses_while_the_body_comes() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (mut response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    assert!(
        soon(poll_fn(|cx| response.poll_informational(cx)))
            .await
            .is_none()
    );
    let head = soon(poll_fn(|cx| pin!(&mut response).poll(cx))).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(response.poll_informational(&mut cx).is_pending());
    peer.says(DATA, END_STREAM, 1, b"").await;
    assert_eq!(soon(head.into_body().data()).await.unwrap().unwrap(), "");
    assert!(matches!(response.poll_informational(&mut cx), Poll::Ready(None)));
}

#[tokio::test]
async fn what_a_message_carries_may_ask_the_connection_as_it_is_dropped() {
    let (mut requests, _connection, mut served) = pair().await;
    let (response, _) = requests.send_request(post("/"), false).unwrap();
    let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    let mut answer = Response::new(());
    // Its body asks the connection for its stream.
    answer.extensions_mut().insert(Arc::new(request));
    respond.send_response(answer, true).unwrap();
    tokio::spawn(async move { while served.accept().await.is_some() {} });
    soon(response).await.unwrap();
    let mut request = get("/");
    request.extensions_mut().insert(Arc::new(requests.clone()));
    drop(requests.send_request(request, true).unwrap());
}

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls a server until it no longer wakes itself. How often that was.
fn poll_until_it_waits(served: &mut Served) -> usize {
    for polls in 1..10 {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        assert!(served.poll_closed(&mut Context::from_waker(&waker)).is_pending());
        if wakes.0.load(Ordering::Relaxed) == 0 {
            return polls;
        }
    }
    panic!("it goes on to wake itself");
}

#[tokio::test]
async fn a_connection_gives_way_once_to_those_that_answer_other_streams() {
    for others in [0, 1] {
        let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
        let mut responses = Vec::new();
        for stream in [1, 3].into_iter().take(1 + others) {
            let flags = END_HEADERS | END_STREAM;
            peer.says(HEADERS, flags, stream, &request_block("GET")).await;
            let (_, respond) = soon(served.accept()).await.unwrap().unwrap();
            responses.push(respond);
        }
        poll_until_it_waits(&mut served);
        for respond in &mut responses {
            respond.send_response(Response::new(()), true).unwrap();
        }
        // As the published crate, it gives no way under `unstable`.
        let ways = if cfg!(feature = "unstable") { 0 } else { others };
        assert_eq!(poll_until_it_waits(&mut served), 1 + ways);
        for _ in &responses {
            let written = peer.hears_of(HEADERS).now_or_never();
            assert!(written.is_some(), "it is written before the connection waits");
        }
        // What has arrived is no reason to give way.
        peer.says(PING, 0, 0, b"12345678").await;
        assert_eq!(poll_until_it_waits(&mut served), 1);
    }
}
