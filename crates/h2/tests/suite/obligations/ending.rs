//! Handles, resets, senders, drivers, shutdown, PING and errors.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::{Ping, Reason, client, server};
use http::Response;
use tokio::io::duplex;

use crate::support::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, Peer, RST_STREAM, SETTINGS,
    block, client_before_peer, drive, get, pair, post, request_block, server_before_peer, soon,
};

#[tokio::test]
async fn a_client_cancels_what_it_lets_go_of() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (response, body) = requests.send_request(post("/"), false).unwrap();
    peer.hears_of(HEADERS).await;
    drop(body);
    assert!(peer.is_content().await, "the response is still waited for");
    drop(response);
    let reset = peer.hears_of(RST_STREAM).await;
    assert_eq!((reset.stream, reset.word(0)), (1, 8));
    // A complete exchange ends without one.
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS | END_STREAM, 3, OK).await;
    drop(soon(response).await.unwrap());
    assert!(peer.is_content().await);
}

#[tokio::test]
async fn a_reset_is_seen_by_whoever_asks_for_it() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    for stream in [1, 3, 5] {
        peer.says(HEADERS, END_HEADERS | END_STREAM, stream, &request_block("GET"))
            .await;
    }
    let mut accepted = Vec::new();
    for _ in 0..3 {
        accepted.push(soon(served.accept()).await.unwrap().unwrap().1);
    }
    let mut waiting = accepted.remove(0);
    let mut sending = accepted.remove(0);
    let mut complete = accepted.remove(0);
    let mut body = sending.send_response(Response::new(()), false).unwrap();
    let asked = poll_fn(|cx| Poll::Ready(sending.poll_reset(cx))).await;
    let Poll::Ready(Err(error)) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(
        error.to_string(),
        "user error: poll_reset after send_response is illegal"
    );
    let mut end = complete.send_response(Response::new(()), true).unwrap();
    for stream in [1u32, 3] {
        peer.says(RST_STREAM, 0, stream, &7u32.to_be_bytes()).await;
    }
    let reason = drive(&mut served, poll_fn(|cx| waiting.poll_reset(cx)))
        .await
        .unwrap();
    assert_eq!(reason, Reason::REFUSED_STREAM);
    let reason = drive(&mut served, poll_fn(|cx| body.poll_reset(cx)))
        .await
        .unwrap();
    assert_eq!(reason, Reason::REFUSED_STREAM);
    assert!(poll_fn(|cx| Poll::Ready(end.poll_reset(cx))).await.is_pending());
    let late = waiting.send_response(Response::new(()), true).unwrap_err();
    assert!(late.reason().is_none() && !late.is_io());
}

#[tokio::test]
async fn each_sender_has_one_request_that_waits() {
    let (requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[(3, 1)]).await;
    let mut requests = requests.ready().await.unwrap();
    assert_eq!(requests.current_max_send_streams(), 1);
    let (_first, _) = requests.send_request(get("/"), true).unwrap();
    let mut other = requests.clone();
    let (_second, _) = requests.send_request(get("/"), true).unwrap();
    let error = requests.send_request(get("/"), true).err().unwrap();
    assert_eq!(error.to_string(), "user error: rejected");
    assert!(
        poll_fn(|cx| Poll::Ready(requests.poll_ready(cx)))
            .await
            .is_pending()
    );
    let (_third, _) = other.send_request(get("/"), true).unwrap();
    let ready = tokio::spawn(async move { requests.ready().await.map(drop) });
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, OK).await;
    soon(ready).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_sender_and_the_body_of_its_request_wait_for_the_same_stream() {
    let (requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[(3, 1)]).await;
    let mut requests = requests.ready().await.unwrap();
    let (_first, _) = requests.send_request(get("/"), true).unwrap();
    let (_second, mut body) = requests.send_request(post("/"), false).unwrap();
    let sender = tokio::spawn(requests.ready());
    let body = tokio::spawn(async move {
        body.reserve_capacity(10);
        poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
    });
    // Both wait now, in tasks of their own.
    assert!(peer.is_content().await);
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, OK).await;
    soon(body).await.unwrap();
    soon(sender).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_sender_is_ready_once_the_request_that_waits_is_dropped() {
    let (requests, _connection, _peer) = client_before_peer(&client::Builder::new(), &[(3, 1)]).await;
    let mut requests = requests.ready().await.unwrap();
    let (_first, _) = requests.send_request(get("/"), true).unwrap();
    let (second, body) = requests.send_request(post("/"), false).unwrap();
    // It waits first, and is woken by the drop.
    let dropping = async move { drop((second, body)) };
    let (ready, ()) = soon(async { tokio::join!(requests.ready(), dropping) }).await;
    ready.unwrap();
}

#[tokio::test]
async fn a_connection_ends_when_its_handles_and_streams_are_gone() {
    let (mut requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    drop(requests);
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    let mut body = soon(response).await.unwrap().into_body();
    assert!(peer.is_content().await);
    peer.says(DATA, END_STREAM, 1, b"end").await;
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "end");
    drop(body);
    let goodbye = peer.hears_of(GOAWAY).await;
    assert_eq!((goodbye.word(0), goodbye.word(4)), (0, 0));
    assert!(peer.hears().await.is_none(), "the transport is closed");
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_graceful_shutdown_says_goaway_twice() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    served.graceful_shutdown();
    served.graceful_shutdown();
    let shutting = async {
        assert_eq!(peer.hears_of(GOAWAY).await.word(0), i32::MAX as u32);
        let ping = peer.hears_of(PING).await;
        peer.says(HEADERS, END_HEADERS | END_STREAM, 1, &request_block("GET"))
            .await;
        peer.says(PING, ACK, 0, &ping.payload).await;
        assert_eq!(peer.hears_of(GOAWAY).await.word(0), 1);
    };
    drive(&mut served, shutting).await;
    let (_request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    assert!(soon(served.accept()).await.is_none());
    assert_eq!(peer.hears_of(HEADERS).await.stream, 1);
    assert!(peer.hears().await.is_none());
}

#[tokio::test]
async fn an_abrupt_shutdown_fails_the_streams_and_not_the_connection() {
    let (mut requests, connection, mut served) = pair().await;
    let (response, _) = requests.send_request(post("/"), false).unwrap();
    let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    served.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
    let mut body = request.into_body();
    let error = soon(body.data()).await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "connection error sent by user: detected excessive load generating behavior"
    );
    let reason = soon(poll_fn(|cx| respond.poll_reset(cx))).await.unwrap();
    assert_eq!(reason, Reason::ENHANCE_YOUR_CALM);
    assert!(soon(served.accept()).await.is_none());
    let error = soon(connection).await.unwrap().unwrap_err();
    assert!(error.is_go_away() && error.is_remote());
    assert!(soon(response).await.is_err());
}

#[tokio::test]
async fn one_ping_is_unanswered_at_a_time_and_no_other_answers_it() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    let mut pings = served.ping_pong().unwrap();
    pings.send_ping(Ping::opaque()).unwrap();
    let error = pings.send_ping(Ping::opaque()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "user error: send_ping before received previous pong"
    );
    let ping = drive(&mut served, peer.hears_of(PING)).await;
    peer.says(PING, ACK, 0, b"no, this").await;
    assert!(drive(&mut served, peer.is_content()).await);
    assert!(poll_fn(|cx| Poll::Ready(pings.poll_pong(cx))).await.is_pending());
    peer.says(PING, ACK, 0, &ping.payload).await;
    drive(&mut served, poll_fn(|cx| pings.poll_pong(cx)))
        .await
        .unwrap();
}

#[tokio::test]
async fn goaway_of_the_peer_is_told_with_its_code_and_debug_data() {
    let (mut requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (_first, _) = requests.send_request(get("/"), true).unwrap();
    let (second, _) = requests.send_request(get("/"), true).unwrap();
    let mut goaway = vec![0, 0, 0, 1, 0, 0, 0, 11];
    goaway.extend_from_slice(b"too_many_pings");
    peer.says(GOAWAY, 0, 0, &goaway).await;
    let error = soon(second).await.unwrap_err();
    assert!(error.is_go_away() && error.is_remote() && !error.is_reset());
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(
        error.to_string(),
        "connection error received: detected excessive load generating behavior (b\"too_many_pings\")"
    );
    assert!(error.source().is_none());
    let late = requests.send_request(get("/"), true).err().unwrap();
    assert!(late.is_go_away() && late.is_remote());
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, OK).await;
    let error = soon(connection).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn codes_of_resets_come_through_both_ways() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    for (at, reason) in [Reason::REFUSED_STREAM, Reason::HTTP_1_1_REQUIRED, 77.into()]
        .into_iter()
        .enumerate()
    {
        let (response, _) = requests.send_request(get("/"), true).unwrap();
        let stream = 2 * at as u32 + 1;
        peer.says(RST_STREAM, 0, stream, &u32::from(reason).to_be_bytes())
            .await;
        let error = soon(response).await.unwrap_err();
        assert!(error.is_reset() && error.is_remote());
        assert_eq!(error.reason(), Some(reason));
    }
    let (_response, mut body) = requests.send_request(post("/"), false).unwrap();
    body.send_reset(Reason::HTTP_1_1_REQUIRED);
    assert_eq!(peer.hears_of(RST_STREAM).await.word(0), 13);
}

#[tokio::test]
async fn an_error_of_the_peer_is_a_library_error_with_its_code() {
    let (mut requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, b"").await;
    let error = soon(response).await.unwrap_err();
    assert!(error.is_reset() && error.is_library());
    assert_eq!(
        error.to_string(),
        "stream error detected: unspecific protocol error detected"
    );
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(DATA, 0, 0, b"").await;
    let error = soon(response).await.unwrap_err();
    assert!(error.is_go_away() && error.is_library());
    let error = soon(connection).await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "connection error detected: unspecific protocol error detected"
    );
}

#[tokio::test]
async fn goaway_names_the_limit_that_was_exceeded() {
    let mut builder = server::Builder::new();
    builder.max_local_error_reset_streams(Some(1));
    let (mut served, mut peer) = server_before_peer(&builder, &[]).await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    let (request, _respond) = soon(served.accept()).await.unwrap().unwrap();
    for stream in [3, 5] {
        // Without the fields that a request must have.
        peer.says(HEADERS, END_HEADERS | END_STREAM, stream, b"").await;
    }
    let error = soon(served.accept()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let error = soon(request.into_body().data()).await.unwrap().unwrap_err();
    assert!(error.is_library() && error.to_string().ends_with("(b\"too_many_internal_resets\")"));
    assert_eq!(
        &peer.hears_of(GOAWAY).await.payload[8..],
        b"too_many_internal_resets"
    );

    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    peer.says(HEADERS, 0, 1, b"").await;
    let flood = async { while peer.tries(CONTINUATION, 0, 1, b"").await.is_ok() {} };
    let (error, ()) = soon(async {
        let ended = async {
            let error = served.accept().await.unwrap().unwrap_err();
            drop(served);
            error
        };
        tokio::join!(ended, flood)
    })
    .await;
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(
        &peer.hears_of(GOAWAY).await.payload[8..],
        b"too_many_continuations"
    );
}

#[tokio::test]
async fn an_error_in_the_first_settings_is_told_to_the_peer() {
    let (near, transport) = duplex(1 << 16);
    let (_requests, connection) = client::handshake(near).await.unwrap();
    let mut peer = Peer::after_preface(transport).await;
    // SETTINGS_ENABLE_CONNECT_PROTOCOL is 0 or 1. It arrives before the client's SETTINGS are written.
    peer.says(SETTINGS, 0, 0, &[0, 8, 0, 0, 0, 2]).await;
    let error = soon(connection).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
    assert_eq!(peer.hears_of(GOAWAY).await.word(4), 1);
}

#[tokio::test]
async fn an_error_right_after_the_preface_is_told_to_the_peer() {
    let (transport, far) = duplex(1 << 16);
    let mut peer = Peer::new(transport);
    peer.preface().await;
    peer.says(SETTINGS, 0, 0, b"").await;
    // DATA on a stream that nobody has opened, in the same read.
    peer.says(DATA, 0, 1, b"data").await;
    let mut served = server::handshake(far).await.unwrap();
    let error = soon(served.accept()).await.unwrap().err().unwrap();
    assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
    assert!(error.is_go_away() && error.is_library());
    assert_eq!(peer.hears_of(GOAWAY).await.word(4), 1);
}

#[tokio::test]
async fn a_server_comes_to_its_end_after_the_error_of_its_peer() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    peer.says(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]).await;
    let error = soon(served.accept()).await.unwrap().err().unwrap();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    assert!(error.is_go_away() && error.is_remote());
    // A loop that ignores errors would not end otherwise.
    assert!(soon(served.accept()).await.is_none());
}

#[tokio::test]
async fn a_response_that_came_before_a_reset_of_ones_own_stays() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (response, mut body) = requests.send_request(post("/"), false).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    peer.says(DATA, 0, 1, b"early").await;
    assert!(peer.is_content().await);
    body.send_reset(Reason::CANCEL);
    let mut received = soon(response).await.unwrap().into_body();
    assert_eq!(received.data().await.unwrap().unwrap(), "early");
    let error = received.data().await.unwrap().unwrap_err();
    assert!(error.is_reset() && error.reason() == Some(Reason::CANCEL));
    assert_eq!(peer.hears_of(RST_STREAM).await.word(0), 8);
}

#[tokio::test]
async fn streams_that_are_refused_count_as_errors_if_few_of_these_are_allowed() {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(0)
        .max_local_error_reset_streams(Some(2));
    let (mut served, mut peer) = server_before_peer(&builder, &[]).await;
    for stream in [1, 3, 5] {
        peer.says(HEADERS, END_HEADERS | END_STREAM, stream, &request_block("GET"))
            .await;
    }
    let error = soon(served.accept()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    let goodbye = peer.hears_of(GOAWAY).await;
    assert_eq!(
        (goodbye.word(0), &goodbye.payload[8..]),
        (0, &b"too_many_internal_resets"[..])
    );
}

#[tokio::test]
async fn a_hundred_empty_frames_of_data_are_allowed_at_once() {
    let (mut requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (_response, _) = requests.send_request(get("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    for _ in 0..100 {
        peer.says(DATA, 0, 1, b"").await;
    }
    assert!(peer.is_content().await);
    // A second allows another one.
    while peer.tries(DATA, 0, 1, b"").await.is_ok() && !connection.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(&peer.hears_of(GOAWAY).await.payload[8..], b"too_many_data_frames");
}

#[tokio::test]
#[cfg_attr(feature = "unstable", ignore = "sends SETTINGS as the builder sets them")]
async fn settings_carry_what_was_set_and_refuse_push() {
    let (near, far) = tokio::io::duplex(4_096);
    let mut builder = client::Builder::new();
    builder.initial_window_size(70_000).max_header_list_size(9_000);
    let (_requests, connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
    let _connection = tokio::spawn(connection);
    let settings = Peer::after_preface(far).await.hears_of(SETTINGS).await;
    let mut entries: Vec<_> = settings
        .payload
        .chunks(6)
        .map(|entry| (entry[1], u32::from_be_bytes(entry[2..].try_into().unwrap())))
        .collect();
    entries.sort_unstable();
    assert_eq!(
        entries,
        [(1, 4_096), (2, 0), (4, 70_000), (5, 16_384), (6, 9_000)]
    );
}

#[tokio::test]
#[cfg_attr(not(feature = "unstable"), ignore = "sends every setting")]
async fn for_the_tests_of_the_published_crate_settings_carry_what_was_set_alone() {
    let first = |builder: client::Builder| async move {
        let (near, far) = tokio::io::duplex(4_096);
        let (_requests, connection) = builder.handshake::<_, Bytes>(near).await.unwrap();
        let _connection = tokio::spawn(connection);
        Peer::after_preface(far).await.hears_of(SETTINGS).await.payload
    };
    let mut builder = client::Builder::new();
    assert!(first(builder.clone()).await.is_empty());
    builder.enable_push(false).initial_window_size(1);
    let mut entries: Vec<_> = first(builder).await.chunks(6).map(<[u8]>::to_vec).collect();
    entries.sort_unstable();
    assert_eq!(entries, [[0, 2, 0, 0, 0, 0], [0, 4, 0, 0, 0, 1]]);
}

#[tokio::test]
async fn windows_change_one_settings_frame_at_a_time() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    assert!(drive(&mut served, peer.is_content()).await);
    served.set_initial_window_size(100_000).unwrap();
    let error = served.set_initial_window_size(200_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "user error: sending SETTINGS before received previous ACK"
    );
    let changed = async {
        loop {
            let settings = peer.hears_of(SETTINGS).await;
            if settings.flags == 0 {
                break settings;
            }
        }
    };
    let settings = drive(&mut served, changed).await;
    assert_eq!(settings.payload, [0, 4, 0, 1, 0x86, 0xa0]);
    peer.says(SETTINGS, ACK, 0, b"").await;
    assert!(drive(&mut served, peer.is_content()).await);
    served.enable_connect_protocol().unwrap();
    served.set_target_window_size(1 << 20);
    assert!(drive(&mut served, peer.is_content()).await);
}

#[test]
fn connections_run_without_a_runtime() {
    let (near, far) = tokio::io::duplex(4_096);
    let client = async {
        let (mut requests, connection) = client::handshake(near).await.unwrap();
        let exchange = async move {
            let (response, _) = requests.send_request(get("/"), true).unwrap();
            let mut body = response.await.unwrap().into_body();
            body.data().await.unwrap().unwrap()
        };
        let (body, ended) = futures_util::join!(exchange, connection);
        ended.unwrap();
        body
    };
    let served = async {
        let mut served = server::handshake(far).await.unwrap();
        while let Some(request) = served.accept().await {
            let (_, mut respond) = request.unwrap();
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data("no runtime".into(), true).unwrap();
        }
    };
    let both = async { futures_util::join!(client, served).0 };
    assert_eq!(futures_executor::block_on(both), "no runtime");
}

/// What users keep in structs of their own.
#[test]
fn handles_are_send_sync_unpin_and_clone_where_users_need_it() {
    fn everywhere<T: Send + Sync + Unpin>() {}
    fn builder<T: Clone + std::fmt::Debug>() {}
    type Io = tokio::io::DuplexStream;
    everywhere::<client::Connection<Io, Bytes>>();
    everywhere::<client::SendRequest<Bytes>>();
    everywhere::<client::ReadySendRequest<Bytes>>();
    everywhere::<client::ResponseFuture>();
    everywhere::<client::PushPromises>();
    everywhere::<server::Connection<Io, Bytes>>();
    everywhere::<server::Handshake<Io, Bytes>>();
    everywhere::<server::SendResponse<Bytes>>();
    everywhere::<h2::SendStream<Bytes>>();
    everywhere::<h2::RecvStream>();
    everywhere::<h2::FlowControl>();
    everywhere::<h2::PingPong>();
    everywhere::<h2::Error>();
    builder::<client::Builder>();
    builder::<server::Builder>();
    builder::<client::SendRequest<Bytes>>();
}

/// A buffer that is borrowed, and not `Send`.
#[test]
fn buffers_are_neither_static_nor_send() {
    let octets = vec![7; 5_000];
    let marker = std::rc::Rc::new(());
    struct Borrowed<'a>(
        &'a [u8],
        #[expect(dead_code, reason = "it is counted")] std::rc::Rc<()>,
    );
    impl bytes::Buf for Borrowed<'_> {
        fn remaining(&self) -> usize {
            self.0.len()
        }
        fn chunk(&self) -> &[u8] {
            self.0
        }
        fn advance(&mut self, count: usize) {
            self.0 = &self.0[count..];
        }
    }
    let (near, far) = tokio::io::duplex(4_096);
    let sending = async {
        let builder = client::Builder::new();
        let (mut requests, connection) = builder.handshake::<_, Borrowed<'_>>(near).await.unwrap();
        let exchange = async {
            let (response, mut body) = requests.send_request(post("/"), false).unwrap();
            body.send_data(Borrowed(&octets, marker.clone()), true).unwrap();
            drop(body);
            response.await.unwrap();
            drop(requests);
        };
        futures_util::join!(exchange, connection).1.unwrap();
    };
    let served = async {
        let mut served = server::handshake(far).await.unwrap();
        let mut received = 0;
        while let Some(request) = served.accept().await {
            let (request, mut respond) = request.unwrap();
            let mut body = request.into_body();
            respond.send_response(Response::new(()), true).unwrap();
            while let Some(Ok(chunk)) = drive_data(&mut served, &mut body).await {
                received += chunk.len();
            }
        }
        received
    };
    let both = async { futures_util::join!(sending, served).1 };
    assert_eq!(futures_executor::block_on(both), 5_000);
    assert_eq!(std::rc::Rc::strong_count(&marker), 1, "the buffer is dropped");
}

async fn drive_data<T, B>(
    served: &mut server::Connection<T, B>,
    body: &mut h2::RecvStream,
) -> Option<Result<Bytes, h2::Error>>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    B: bytes::Buf,
{
    poll_fn(|cx| {
        let _ = served.poll_closed(cx);
        body.poll_data(cx)
    })
    .await
}

#[tokio::test]
async fn frames_on_streams_that_were_reset_are_ignored_however_few_are_to_be_remembered() {
    let mut builder = client::Builder::new();
    builder
        .max_concurrent_reset_streams(1)
        .reset_stream_duration(Duration::ZERO);
    let (mut requests, _connection, mut peer) = client_before_peer(&builder, &[]).await;
    for stream in [1, 3] {
        drop(requests.send_request(get("/"), true).unwrap());
        assert_eq!(peer.hears_of(RST_STREAM).await.stream, stream);
    }
    for stream in [1, 3] {
        peer.says(DATA, 0, stream, b"late").await;
        assert!(peer.is_content().await);
    }
}

#[tokio::test]
async fn a_header_list_of_many_times_the_limit_is_answered_with_431_alone() {
    let mut builder = server::Builder::new();
    builder.max_header_list_size(64);
    let mut fields = request_block("GET");
    fields.extend(block(&[("x", &"a".repeat(100))]));
    let (mut served, mut peer) = server_before_peer(&builder, &[]).await;
    for stream in [1, 3] {
        peer.says(HEADERS, END_HEADERS | END_STREAM, stream, &fields)
            .await;
        assert_eq!(drive(&mut served, peer.hears_of(HEADERS)).await.stream, stream);
    }
    assert!(drive(&mut served, peer.is_content()).await);
}

#[tokio::test]
async fn a_window_of_streams_may_be_closed() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    assert!(drive(&mut served, peer.is_content()).await);
    served.set_initial_window_size(0).unwrap();
    let closed = async {
        let settings = peer.hears_of(SETTINGS).await;
        assert_eq!(settings.payload, [0, 4, 0, 0, 0, 0]);
        peer.says(SETTINGS, ACK, 0, b"").await;
        peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
        peer.says(DATA, 0, 1, b".").await;
        let reset = peer.hears_of(RST_STREAM).await;
        assert_eq!(
            (reset.stream, reset.word(0)),
            (1, Reason::FLOW_CONTROL_ERROR.into())
        );
    };
    drive(&mut served, closed).await;
}

#[tokio::test]
async fn both_sides_close_though_neither_has_room_to_write() {
    let (near, far) = duplex(200);
    let (client, served) = tokio::join!(client::handshake(near), server::handshake(far));
    let ((mut requests, mut connection), mut served) = (client.unwrap(), served.unwrap());
    let (response, mut upload) = requests.send_request(post("/"), false).unwrap();
    upload.send_data(vec![7; 60_000].into(), true).unwrap();
    let (_request, mut respond) = tokio::select! {
        accepted = served.accept() => accepted.unwrap().unwrap(),
        _ = &mut connection => panic!("the connection ended"),
    };
    let mut download = respond.send_response(Response::new(()), false).unwrap();
    download.send_data(vec![7; 60_000].into(), true).unwrap();
    // Each lists more than the transport takes.
    let mut once = async || {
        poll_fn(|cx| {
            let closed = served.poll_closed(cx);
            let ended = std::pin::Pin::new(&mut connection).poll(cx);
            assert!(closed.is_pending() && ended.is_pending());
            Poll::Ready(())
        })
        .await;
    };
    once().await;
    drop((requests, response, upload));
    once().await;
    served.abrupt_shutdown(Reason::NO_ERROR);
    let serving = async move { poll_fn(|cx| served.poll_closed(cx)).await };
    let (ended, closed) = soon(async { tokio::join!(connection, serving) }).await;
    // The one that ends first lets go of the transport.
    for result in [ended, closed] {
        assert!(
            result.is_ok() || result.as_ref().is_err_and(h2::Error::is_io),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn a_client_that_says_goaway_gets_the_responses_that_are_under_way() {
    // h2#886: GOAWAY of a client, which names no stream, ended the responses to it.
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, &request_block("GET"))
        .await;
    let (_, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    peer.says(GOAWAY, 0, 0, &[0; 8]).await;
    let serving = tokio::spawn(async move { served.accept().await.is_none() });
    peer.hears_of(HEADERS).await;
    for end in [false, true] {
        body.send_data(vec![7; 1_000].into(), end).unwrap();
    }
    let mut received = 0;
    loop {
        let frame = peer.hears_of(DATA).await;
        received += frame.payload.len();
        if frame.flags == END_STREAM {
            break;
        }
    }
    assert_eq!(received, 2_000);
    drop((respond, body));
    assert!(soon(serving).await.unwrap(), "no more requests");
}

#[tokio::test]
async fn a_reader_hears_of_a_reset_by_its_own_side() {
    // h2#799: a reader was not woken, so that its stream was never released.
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    let (request, _respond) = soon(served.accept()).await.unwrap().unwrap();
    let reading = tokio::spawn(async move { request.into_body().data().await });
    tokio::task::yield_now().await;
    // Trailers that are malformed.
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[(":path", "/")]))
        .await;
    let reset = drive(&mut served, peer.hears_of(RST_STREAM)).await;
    assert_eq!((reset.stream, reset.word(0)), (1, 1));
    let error = soon(reading).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_reset() && error.is_library(), "{error:?}");
}
