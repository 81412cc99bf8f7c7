//! How requests leave: in the frames that gRPC wants, and again when the server did not process them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore_testing::frames::{self, END_STREAM};
use fullbore_testing::peer::Peer;
use fullbore_tonic::Channel;
use tokio::net::TcpListener;
use tonic::Code;

use crate::sites::soon;
use crate::support::client::Client;

/// A server that refuses the first calls, and answers the next. Counts the calls.
async fn refusing(refusals: usize) -> (Channel, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        let (io, _) = listener.accept().await.expect("a client");
        let mut peer = Peer::server(io, &[]).await;
        loop {
            let stream = peer.expect(frames::HEADERS).await.stream;
            if counted.fetch_add(1, Ordering::SeqCst) < refusals {
                peer.write(&frames::reset(stream, 0x7)).await;
                continue;
            }
            let mut message = Vec::new();
            loop {
                let frame = peer.expect(frames::DATA).await;
                // Those of the refused calls may have left already.
                if frame.stream != stream {
                    continue;
                }
                message.extend_from_slice(&frame.payload);
                if frame.ends_stream() {
                    break;
                }
            }
            peer.respond(stream, false, &[("content-type", "application/grpc")])
                .await;
            peer.write(&frames::data(stream, 0, &message)).await;
            let trailers = frames::block(&[("grpc-status", "0")]);
            let flags = frames::END_HEADERS | END_STREAM;
            peer.write(&frames::headers(stream, flags, &trailers)).await;
        }
    });
    let builder = Channel::builder(origin.parse().expect("a URL"));
    let builder = builder.client(|client| client.repeat_pause(Duration::from_millis(1)));
    (builder.connect_lazy().expect("a channel"), calls)
}

#[tokio::test]
async fn a_unary_call_that_is_refused_is_sent_again_whole() {
    let (channel, calls) = refusing(2).await;
    let message = Bytes::from(vec![b'm'; 10_000]);
    let answer = soon(Client::new(channel).unary(message.clone())).await;
    assert!(answer.expect("an answer").into_inner() == message);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stream_of_messages_that_is_refused_is_unavailable() {
    let (channel, calls) = refusing(1).await;
    let messages = tokio_stream::StreamExt::chain(
        tokio_stream::iter([Bytes::from("one"), Bytes::from("two")]),
        tokio_stream::pending(),
    );
    let status = soon(Client::new(channel).collect(messages))
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_message_that_cannot_be_encoded_ends_the_call_with_its_status() {
    let (channel, calls) = refusing(0).await;
    let mut client = Client::new(channel);
    client.limit_messages(3);
    let status = soon(client.unary(Bytes::from("four")))
        .await
        .expect_err("too long");
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

/// The frames of a request until END_STREAM, as type, flag and length.
async fn frames_of(messages: usize) -> Vec<(u8, bool, usize)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let channel = Channel::builder(origin.parse().expect("a URL")).connect_lazy();
    let mut client = Client::new(channel.expect("a channel"));
    let messages = tokio_stream::iter(vec![Bytes::from("m"); messages]);
    let call = tokio::spawn(async move { client.collect(messages).await });
    let (io, _) = soon(listener.accept()).await.expect("a client");
    let mut peer = Peer::server(io, &[]).await;
    let mut frames = Vec::new();
    while !frames.last().is_some_and(|(_, end, _)| *end) {
        let frame = soon(peer.next()).await.expect("a frame");
        match frame.kind {
            frames::HEADERS => frames.push((frame.kind, frame.ends_stream(), 0)),
            frames::DATA => frames.push((frame.kind, frame.ends_stream(), frame.payload.len())),
            _ => {}
        }
    }
    call.abort();
    frames
}

#[tokio::test]
async fn a_request_ends_with_data_even_if_it_has_no_message() {
    // gRPC over HTTP/2: a request without further data ends with an empty DATA frame. grpc-go waits for it.
    let head = (frames::HEADERS, false, 0);
    assert_eq!(frames_of(0).await, [head, (frames::DATA, true, 0)]);
    assert_eq!(frames_of(1).await, [head, (frames::DATA, true, 6)]);
    assert_eq!(frames_of(2).await, [head, (frames::DATA, true, 12)]);
}
