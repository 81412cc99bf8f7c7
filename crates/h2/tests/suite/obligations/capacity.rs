//! Capacity: never more than was reserved, never 0 when ready, and woken by whatever raises it.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream, client};
use tokio::task::JoinHandle;

use crate::support::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, Peer, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    client_before_peer, post, soon,
};

async fn capacity(body: &mut SendStream<Bytes>) -> Option<usize> {
    let ready = soon(poll_fn(|cx| body.poll_capacity(cx))).await;
    ready.map(|capacity| capacity.unwrap())
}

/// Whether the capacity is not there yet.
async fn waits(body: &mut SendStream<Bytes>) -> bool {
    poll_fn(|cx| Poll::Ready(body.poll_capacity(cx).is_pending())).await
}

/// What keeps a connection and a stream open.
type Kept = (
    SendRequest<Bytes>,
    JoinHandle<Result<(), h2::Error>>,
    ResponseFuture,
);

/// A request of a client whose body is to be sent to a peer with windows of 65,535 bytes.
async fn begun(builder: &client::Builder) -> (SendStream<Bytes>, Peer, Kept) {
    let (mut requests, connection, peer) = client_before_peer(builder, &[]).await;
    let (response, body) = requests.send_request(post("/"), false).unwrap();
    (body, peer, (requests, connection, response))
}

#[tokio::test]
async fn capacity_is_what_was_reserved_and_no_more() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    assert_eq!(body.capacity(), 0);
    assert!(waits(&mut body).await, "nothing was reserved");
    body.reserve_capacity(100);
    assert_eq!(body.capacity(), 100);
    assert_eq!(capacity(&mut body).await, Some(100));
    assert!(waits(&mut body).await, "it is not more than before");
    // The number is a total.
    body.reserve_capacity(50);
    assert_eq!(body.capacity(), 50);
    body.reserve_capacity(1_000_000);
    assert_eq!(body.capacity(), 65_535);
    assert_eq!(capacity(&mut body).await, Some(65_535));
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    assert_eq!(body.capacity(), 0);
    assert!(waits(&mut body).await);
    body.reserve_capacity(0);
    for _ in 0..4 {
        peer.hears_of(DATA).await;
    }
    peer.says(WINDOW_UPDATE, 0, 0, &65_535u32.to_be_bytes()).await;
    peer.says(WINDOW_UPDATE, 0, 1, &65_535u32.to_be_bytes()).await;
    assert!(peer.is_content().await);
    assert_eq!(body.capacity(), 0, "it was given back");
}

#[tokio::test]
async fn what_capacity_rises_by_before_the_known_part_is_sent_is_told_afterwards() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.reserve_capacity(66_000);
    assert_eq!(capacity(&mut body).await, Some(65_535));
    for stream in [0, 1] {
        peer.says(WINDOW_UPDATE, 0, stream, &1_000u32.to_be_bytes()).await;
    }
    assert!(peer.is_content().await);
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    assert_eq!(capacity(&mut body).await, Some(465));
    assert!(waits(&mut body).await, "it is known now");
    body.send_data(vec![0; 65].into(), false).unwrap();
    assert!(waits(&mut body).await, "what is left of it is known too");
}

#[tokio::test]
async fn capacity_is_woken_by_the_window_of_the_stream_and_of_the_connection() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    body.reserve_capacity(1_000);
    for (first, second) in [(1, 0), (0, 1)] {
        while body.capacity() == 0 && !peer.is_content().await {}
        let waiting = tokio::spawn(async move {
            let ready = capacity(&mut body).await;
            (body, ready)
        });
        tokio::task::yield_now().await;
        peer.says(WINDOW_UPDATE, 0, first, &700u32.to_be_bytes()).await;
        assert!(peer.is_content().await);
        assert!(!waiting.is_finished(), "the other window is closed");
        peer.says(WINDOW_UPDATE, 0, second, &700u32.to_be_bytes()).await;
        let ready;
        (body, ready) = soon(waiting).await.unwrap();
        assert_eq!(ready, Some(700));
        body.send_data(vec![0; 700].into(), false).unwrap();
        body.reserve_capacity(1_000);
        while peer.hears_of(DATA).await.payload.len() != 700 {}
    }
}

#[tokio::test]
async fn capacity_that_others_leave_comes_to_every_one_of_a_crowd() {
    const CROWD: usize = 300;
    let (mut requests, connection, mut peer) =
        client_before_peer(&client::Builder::new(), &[(3, 1_000)]).await;
    let (_response, mut first) = requests.send_request(post("/"), false).unwrap();
    first.send_data(vec![0; 65_535].into(), false).unwrap();
    let (mut crowd, mut responses) = (Vec::new(), Vec::new());
    for _ in 0..CROWD {
        let (response, body) = requests.send_request(post("/"), false).unwrap();
        crowd.push(body);
        responses.push(response);
    }
    let mut received = 0;
    while received < 65_535 {
        received += peer.hears_of(DATA).await.payload.len();
    }
    let mut waiting = tokio::task::JoinSet::new();
    for mut body in crowd {
        body.reserve_capacity(1);
        assert!(waits(&mut body).await);
        // All learn of the same byte, which nobody sends.
        waiting.spawn(async move { (capacity(&mut body).await, body) });
    }
    tokio::task::yield_now().await;
    peer.says(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()).await;
    while let Some(told) = soon(waiting.join_next()).await {
        assert_eq!(told.unwrap().0, Some(1));
    }
    drop((connection, responses));
}

#[tokio::test]
async fn capacity_is_woken_by_settings_and_by_the_opening_of_the_stream() {
    let builder = client::Builder::new();
    let (mut requests, _connection, mut peer) = client_before_peer(&builder, &[(3, 1), (4, 0)]).await;
    let (_first, _body) = requests.send_request(post("/"), true).unwrap();
    let (_second, mut body) = requests.send_request(post("/"), false).unwrap();
    body.reserve_capacity(10);
    assert!(waits(&mut body).await);
    let waiting = tokio::spawn(async move { capacity(&mut body).await });
    peer.says(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5]).await;
    assert!(peer.is_content().await);
    assert!(!waiting.is_finished(), "the stream is not open");
    peer.says(HEADERS, END_HEADERS | END_STREAM, 1, OK).await;
    assert_eq!(soon(waiting).await.unwrap(), Some(5));
}

#[tokio::test]
async fn capacity_is_bounded_by_the_buffer_and_woken_as_it_empties() {
    let mut builder = client::Builder::new();
    builder.max_send_buffer_size(1_000);
    let (mut body, mut peer, _kept) = begun(&builder).await;
    body.reserve_capacity(5_000);
    assert_eq!(capacity(&mut body).await, Some(1_000));
    // More than there is capacity for is taken all the same.
    body.send_data(vec![0; 5_000].into(), false).unwrap();
    body.reserve_capacity(5_000);
    assert_eq!(capacity(&mut body).await, Some(1_000));
    assert_eq!(peer.hears_of(DATA).await.payload.len(), 5_000);
}

#[tokio::test]
async fn there_is_no_capacity_after_the_end_or_a_reset() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    body.reserve_capacity(1);
    let waiting = tokio::spawn(async move { capacity(&mut body).await });
    for _ in 0..4 {
        peer.hears_of(DATA).await;
    }
    peer.says(RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
    assert_eq!(soon(waiting).await.unwrap(), None);

    let (mut body, _peer, _kept) = begun(&client::Builder::new()).await;
    body.reserve_capacity(1);
    body.send_data("end".into(), true).unwrap();
    assert_eq!((body.capacity(), capacity(&mut body).await), (0, None));
    body.reserve_capacity(1);
    assert_eq!(body.capacity(), 0);
    let error = body.send_data("more".into(), false).unwrap_err();
    assert_eq!(error.to_string(), "user error: unexpected frame type");

    let (mut body, _peer, _kept) = begun(&client::Builder::new()).await;
    body.send_reset(Reason::CANCEL);
    assert_eq!(capacity(&mut body).await, None);
    let error = body.send_data("more".into(), false).unwrap_err();
    assert_eq!(error.to_string(), "user error: inactive stream");
}

#[tokio::test]
async fn capacity_ends_with_the_connection() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    body.reserve_capacity(1);
    let waiting = tokio::spawn(async move { capacity(&mut body).await });
    for _ in 0..4 {
        peer.hears_of(DATA).await;
    }
    // Nothing may follow this on stream 0.
    peer.says(DATA, 0, 0, b"").await;
    assert_eq!(soon(waiting).await.unwrap(), None);
    assert_eq!(peer.hears_of(GOAWAY).await.word(4), 1);
}

#[tokio::test]
async fn capacity_ends_with_a_reset_by_ones_own_side() {
    // h2#897: a window that overflowed reset the stream, and whoever waited for capacity was not woken.
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.send_data(vec![0; 65_535].into(), false).unwrap();
    body.reserve_capacity(1);
    let waiting = tokio::spawn(async move { capacity(&mut body).await });
    for _ in 0..4 {
        peer.hears_of(DATA).await;
    }
    for _ in 0..2 {
        peer.says(WINDOW_UPDATE, 0, 1, &0x7fff_ffffu32.to_be_bytes())
            .await;
    }
    assert_eq!(soon(waiting).await.unwrap(), None);
    let reset = peer.hears_of(RST_STREAM).await;
    assert_eq!((reset.stream, reset.word(0)), (1, 3));
}

#[tokio::test]
async fn a_buffer_of_any_length_is_taken_and_an_empty_one_passes() {
    let (mut body, mut peer, _kept) = begun(&client::Builder::new()).await;
    body.send_data(vec![0; 1 << 20].into(), false).unwrap();
    body.send_data(Bytes::new(), false).unwrap();
    let mut received = 0;
    while received < 1 << 20 {
        let frame = peer.hears_of(DATA).await;
        assert!(frame.payload.len() <= 16_384);
        received += frame.payload.len();
        let credit = (frame.payload.len() as u32).to_be_bytes();
        peer.says(WINDOW_UPDATE, 0, 0, &credit).await;
        peer.says(WINDOW_UPDATE, 0, 1, &credit).await;
    }
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(peer.hears_of(DATA).await.flags, END_STREAM);
    peer.says(PING, ACK, 0, b"unasked!").await;
    assert!(peer.is_content().await);
}
