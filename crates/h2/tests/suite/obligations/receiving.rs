//! Receiving: the caller accounts for what it was handed, and the end is known with the last byte.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use h2::{Reason, RecvStream, client, server};
use http::Response;
use tokio::io::duplex;

use crate::support::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, Peer, RST_STREAM, SETTINGS, Served,
    WINDOW_UPDATE, block, client_before_peer, drive, get, pattern, post, request_block, server_before_peer,
    soon,
};

/// A server that has accepted a request, whose body the peer is to send.
async fn accepted(builder: &server::Builder) -> (RecvStream, server::SendResponse<Bytes>, Served, Peer) {
    let (mut served, mut peer) = server_before_peer(builder, &[]).await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    let (request, respond) = soon(served.accept()).await.unwrap().unwrap();
    (request.into_body(), respond, served, peer)
}

/// Sends a request of POST and 16 KiB of its body.
async fn begin_post(peer: &mut Peer, stream: u32) {
    peer.says(HEADERS, END_HEADERS, stream, &request_block("POST"))
        .await;
    peer.says(DATA, 0, stream, &pattern(16_384)).await;
}

/// Asserts that of 20 such bodies no more is kept than half of a window.
fn assert_credited(credited: u32) {
    let kept = 20 * 16_384 - credited;
    assert!(kept < 65_535 / 2, "{kept}");
}

/// The credit that the server returned before it answered a PING, of the connection and of the stream.
async fn credit(served: &mut Served, peer: &mut Peer) -> (u32, u32) {
    let (mut connection, mut stream) = (0, 0);
    let counting = async {
        peer.says(6, 0, 0, b"how-much").await;
        loop {
            let frame = peer.hears().await.unwrap();
            match (frame.kind, frame.stream) {
                (WINDOW_UPDATE, 0) => connection += frame.word(0),
                (WINDOW_UPDATE, _) => stream += frame.word(0),
                (6, _) if frame.payload == b"how-much" => break,
                (RST_STREAM | GOAWAY, _) => panic!("{frame:?}"),
                _ => {}
            }
        }
    };
    drive(served, counting).await;
    (connection, stream)
}

#[tokio::test]
#[cfg_attr(feature = "unstable", ignore = "reads a megabyte at once")]
async fn readers_run_before_all_that_has_arrived_is_read() {
    const BODY: usize = 1 << 20;
    let (near, far) = duplex(2 * BODY);
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(2 << 20)
        .initial_connection_window_size(2 << 20);
    let mut peer = Peer::new(near);
    peer.preface().await;
    peer.says(SETTINGS, 0, 0, b"").await;
    peer.says(SETTINGS, ACK, 0, b"").await;
    peer.says(HEADERS, END_HEADERS, 1, &request_block("POST")).await;
    let mut served: Served = builder.handshake(far).await.unwrap();
    let (request, _respond) = soon(served.accept()).await.unwrap().unwrap();
    let mut body = request.into_body();
    // That of the connection.
    drive(&mut served, peer.hears_of(WINDOW_UPDATE)).await;
    for payload in pattern(BODY).chunks(16_384) {
        peer.says(DATA, 0, 1, payload).await;
    }
    let (mut all, mut most) = (Vec::new(), 0);
    soon(poll_fn(|cx| {
        let before = all.len();
        assert!(served.poll_closed(cx).is_pending());
        while let Poll::Ready(Some(chunk)) = body.poll_data(cx) {
            all.extend_from_slice(&chunk.unwrap());
        }
        most = most.max(all.len() - before);
        // The connection comes again by itself.
        match all.len() {
            BODY => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }))
    .await;
    assert!(all == pattern(BODY));
    assert!(most <= BODY / 2, "{most} at once");
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn bytes_count_until_they_are_released_by_any_clone() {
    let (mut body, _respond, mut served, mut peer) = accepted(&server::Builder::new()).await;
    for _ in 0..2 {
        peer.says(DATA, 0, 1, &pattern(16_384)).await;
    }
    let mut received = 0;
    while received < 32_768 {
        received += drive(&mut served, body.data()).await.unwrap().unwrap().len();
    }
    assert_eq!(credit(&mut served, &mut peer).await, (0, 0));
    let mut clone = body.flow_control().clone();
    assert_eq!(
        (clone.used_capacity(), clone.available_capacity()),
        (32_768, 65_535 - 32_768)
    );
    let error = clone.release_capacity(32_769).unwrap_err();
    assert_eq!(error.to_string(), "user error: release capacity too big");
    clone.release_capacity(20_000).unwrap();
    assert_eq!(body.flow_control().used_capacity(), 12_768);
    drop(body);
    // After the body is gone, too.
    clone.release_capacity(12_768).unwrap();
    assert_eq!(clone.used_capacity(), 0);
    let (connection, _) = credit(&mut served, &mut peer).await;
    assert!((32_000..=32_768).contains(&connection), "{connection}");
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn a_body_that_is_dropped_returns_what_was_not_handed_out_and_what_follows() {
    let (mut body, mut respond, mut served, mut peer) = accepted(&server::Builder::new()).await;
    peer.says(DATA, 0, 1, &pattern(16_384)).await;
    let handed = drive(&mut served, body.data()).await.unwrap().unwrap().len();
    peer.says(DATA, 0, 1, &pattern(16_384)).await;
    credit(&mut served, &mut peer).await;
    let mut kept = body.flow_control().clone();
    drop(body);
    let used = kept.used_capacity();
    assert!(used >= handed && used <= 16_384, "{used}");
    // What follows is credited, and the response can still be sent.
    let (mut connection, _) = credit(&mut served, &mut peer).await;
    for _ in 0..6 {
        peer.says(DATA, 0, 1, &pattern(16_384)).await;
        connection += credit(&mut served, &mut peer).await.0;
    }
    assert!(connection > 6 * 16_384, "{connection}");
    respond.send_response(Response::new(()), true).unwrap();
    let head = drive(&mut served, peer.hears_of(HEADERS)).await;
    assert_eq!(head.flags, END_HEADERS | END_STREAM);
    kept.release_capacity(used).unwrap();
    drop(kept);
    drop(respond);
    let reset = drive(&mut served, peer.hears_of(RST_STREAM)).await;
    assert_eq!(reset.word(0), 0, "NO_ERROR: the response is whole");
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn what_came_before_a_reset_of_ones_own_stays_readable_and_is_credited_once() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    let mut credited = 0;
    for round in 0..20 {
        let stream = 2 * round + 1;
        begin_post(&mut peer, stream).await;
        let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
        let mut body = request.into_body();
        credited += credit(&mut served, &mut peer).await.0;
        respond.send_reset(Reason::CANCEL);
        // Some of it is read, some released, and the rest is dropped.
        let mut received = 0;
        if round % 3 > 0 {
            while received < 16_384 {
                let chunk = body.data().await.unwrap().unwrap();
                received += chunk.len();
                if round % 2 == 0 {
                    body.flow_control().release_capacity(chunk.len()).unwrap();
                }
            }
            assert_eq!(
                body.data().await.unwrap().unwrap_err().reason(),
                Some(Reason::CANCEL)
            );
        }
        drop((body, respond));
        let reset = drive(&mut served, async {
            loop {
                let frame = peer.hears().await.unwrap();
                match (frame.kind, frame.stream) {
                    (WINDOW_UPDATE, 0) => credited += frame.word(0),
                    (RST_STREAM, _) => break frame,
                    _ => {}
                }
            }
        });
        assert_eq!(reset.await.word(0), 8);
    }
    credited += credit(&mut served, &mut peer).await.0;
    assert_credited(credited);
}

#[tokio::test]
#[cfg_attr(
    not(any(feature = "fixed-windows", feature = "unstable")),
    ignore = "windows grow"
)]
async fn the_body_of_a_request_that_is_reset_before_it_is_accepted_is_credited() {
    let (mut served, mut peer) = server_before_peer(&server::Builder::new(), &[]).await;
    let mut credited = 0;
    for round in 0..20 {
        let stream = 2 * round + 1;
        begin_post(&mut peer, stream).await;
        peer.says(RST_STREAM, 0, stream, &8u32.to_be_bytes()).await;
        credited += credit(&mut served, &mut peer).await.0;
    }
    assert_credited(credited);
}

#[tokio::test]
async fn the_last_handle_returns_all_that_was_in_flight() {
    let (mut body, respond, mut served, mut peer) = accepted(&server::Builder::new()).await;
    for _ in 0..3 {
        peer.says(DATA, 0, 1, &pattern(16_384)).await;
    }
    drive(&mut served, body.data()).await.unwrap().unwrap();
    credit(&mut served, &mut peer).await;
    drop((body, respond));
    let reset = drive(&mut served, peer.hears_of(RST_STREAM)).await;
    assert_eq!(
        (reset.stream, reset.word(0)),
        (1, 8),
        "CANCEL: it was not answered"
    );
    // The credit came with the reset or before it, or comes with the next stream's.
    peer.says(HEADERS, END_HEADERS, 3, &request_block("POST")).await;
    let (_second, _respond) = soon(served.accept()).await.unwrap().unwrap();
    for _ in 0..3 {
        peer.says(DATA, 0, 3, &pattern(16_384)).await;
    }
    // An eighth of the window may come later.
    peer.says(DATA, 0, 3, &pattern(7_000)).await;
    credit(&mut served, &mut peer).await;
}

#[tokio::test]
async fn padding_returns_itself() {
    let (mut body, _respond, mut served, mut peer) = accepted(&server::Builder::new()).await;
    let mut padded = vec![255];
    padded.extend_from_slice(b"body");
    padded.extend_from_slice(&[0; 255]);
    peer.says(DATA, 8, 1, &padded).await;
    assert_eq!(drive(&mut served, body.data()).await.unwrap().unwrap(), "body");
    assert_eq!(body.flow_control().used_capacity(), 4);
}

#[tokio::test]
async fn data_is_ready_at_the_end_of_the_stream() {
    let (mut body, _respond, mut served, mut peer) = accepted(&server::Builder::new()).await;
    peer.says(DATA, 0, 1, b"last").await;
    assert!(!body.is_end_stream());
    assert_eq!(drive(&mut served, body.data()).await.unwrap().unwrap(), "last");
    peer.says(DATA, END_STREAM, 1, b"").await;
    while !body.is_end_stream() {
        credit(&mut served, &mut peer).await;
    }
    let end = poll_fn(|cx| Poll::Ready(body.poll_data(cx))).await;
    assert!(matches!(end, Poll::Ready(None)), "{end:?}");
    assert!(drive(&mut served, body.trailers()).await.unwrap().is_none());
}

#[tokio::test]
async fn tiny_frames_end_by_the_window_and_not_by_their_number() {
    let mut builder = server::Builder::new();
    builder
        .initial_window_size(70_000)
        .initial_connection_window_size(70_000);
    let (mut body, _respond, mut served, mut peer) = accepted(&builder).await;
    let sending = async {
        for _ in 0..67_000 {
            peer.says(DATA, 0, 1, b".").await;
        }
        assert!(peer.is_content().await);
        peer.says(DATA, END_STREAM, 1, b"").await;
    };
    drive(&mut served, sending).await;
    let mut received = 0;
    while let Some(chunk) = drive(&mut served, body.data()).await {
        received += chunk.unwrap().len();
    }
    assert_eq!(received, 67_000);
}

#[tokio::test]
async fn the_end_of_the_transport_fails_what_is_incomplete_after_what_came() {
    let (mut requests, connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let (whole, _) = requests.send_request(get("/"), true).unwrap();
    let (part, _) = requests.send_request(post("/"), true).unwrap();
    peer.says(HEADERS, END_HEADERS, 1, OK).await;
    peer.says(DATA, END_STREAM, 1, b"whole").await;
    peer.says(HEADERS, END_HEADERS, 3, OK).await;
    peer.says(DATA, 0, 3, b"part").await;
    let mut whole = soon(whole).await.unwrap().into_body();
    let mut part = soon(part).await.unwrap().into_body();
    drop(peer);
    soon(connection).await.unwrap().unwrap();
    assert_eq!(whole.data().await.unwrap().unwrap(), "whole");
    assert!(whole.data().await.is_none());
    assert_eq!(part.data().await.unwrap().unwrap(), "part");
    let error = part.data().await.unwrap().unwrap_err();
    assert!(error.is_io());
    assert_eq!(error.to_string(), "stream closed because of a broken pipe");
}

#[tokio::test]
async fn a_body_that_is_there_and_has_no_byte_is_an_empty_chunk() {
    let (mut requests, _connection, mut peer) = client_before_peer(&client::Builder::new(), &[]).await;
    let mut responses = Vec::new();
    for stream in [1, 3, 5] {
        responses.push(requests.send_request(get("/"), true).unwrap().0);
        let end = if stream == 1 { END_STREAM } else { 0 };
        peer.says(HEADERS, END_HEADERS | end, stream, OK).await;
    }
    peer.says(DATA, END_STREAM, 3, b"").await;
    peer.says(DATA, 0, 5, b"").await;
    peer.says(HEADERS, END_HEADERS | END_STREAM, 5, &block(&[("x", "1")]))
        .await;
    assert!(peer.is_content().await);
    let mut bodies = Vec::new();
    for response in responses {
        bodies.push(soon(response).await.unwrap().into_body());
    }
    let ends: Vec<bool> = bodies.iter().map(RecvStream::is_end_stream).collect();
    assert_eq!(ends, [true, false, false]);
    assert!(bodies[0].data().await.is_none());
    assert_eq!(bodies[1].data().await.unwrap().unwrap(), "");
    assert!(bodies[1].is_end_stream() && bodies[1].data().await.is_none());
    // Trailers end a message without a body.
    assert!(bodies[2].data().await.is_none());
    assert_eq!(bodies[2].trailers().await.unwrap().unwrap()["x"], "1");
}
