//! What a handle asks of its connection, and what it learns of it after its end.

use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use http_body_util::Empty;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::error::ErrorKind;

type Task = JoinHandle<Result<(), Error>>;

async fn connected() -> (SendRequest, Task, Peer<DuplexStream>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, Config::default());
    let task = tokio::spawn(connection);
    let mut peer = Peer::server(far, &[]).await;
    peer.expect(frames::SETTINGS).await;
    peer.expect(frames::SETTINGS).await;
    (sender, task, peer)
}

fn get() -> Request<Empty<Bytes>> {
    let request = Request::get("http://one.example/");
    request.body(Empty::new()).expect("a request")
}

/// The increment of the next WINDOW_UPDATE of a stream.
async fn increment(peer: &mut Peer<DuplexStream>, stream: u32) -> u32 {
    loop {
        let update = peer.expect(frames::WINDOW_UPDATE).await;
        if update.stream == stream {
            let octets = update.payload.first_chunk().expect("four octets");
            return u32::from_be_bytes(*octets);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn windows_grow_at_once_when_they_are_asked_to() {
    let (sender, _task, mut peer) = connected().await;
    let before = sender.report().await.expect("it is open");
    let grown = before.receive_window + 1_000_000;
    sender.grow_receive_window(grown).await.expect("it grows");
    assert_eq!(increment(&mut peer, 0).await, 1_000_000);
    let after = sender.report().await.expect("it is open");
    assert_eq!(after.receive_window, grown);
    let error = sender.grow_receive_window(1).await.expect_err("it is larger");
    assert_eq!(error.kind(), ErrorKind::WindowShrinks);
    let error = sender.grow_receive_window(0).await.expect_err("it is none");
    assert_eq!(error.kind(), ErrorKind::Config);

    let response = tokio::spawn(sender.send(get()));
    let stream = peer.expect(frames::HEADERS).await.stream;
    peer.respond(stream, false, &[]).await;
    let body = response.await.expect("no panic").expect("a response").into_body();
    let report = body.report().await.expect("it is under way");
    let grown = report.receive_window + 1_000_000;
    body.grow_receive_window(grown).await.expect("it grows");
    assert_eq!(increment(&mut peer, stream).await, 1_000_000);
    let error = body.grow_receive_window(1).await.expect_err("it is larger");
    assert_eq!(error.kind(), ErrorKind::WindowShrinks);

    // The peer ends the stream.
    peer.send(frames::DATA, 1, stream, b"all").await;
    settle().await;
    let error = body
        .grow_receive_window(grown)
        .await
        .expect_err("it has come to its end");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(body.report().await.expect("it was not read").received_bytes, 3);
}

#[tokio::test(start_paused = true)]
async fn after_its_end_a_connection_tells_its_last_report_and_takes_no_command() {
    let (sender, task, mut peer) = connected().await;
    let response = tokio::spawn(sender.send(get()));
    let stream = peer.expect(frames::HEADERS).await.stream;
    peer.respond(stream, false, &[]).await;
    let body = response.await.expect("no panic").expect("a response").into_body();
    drop(peer);
    task.await
        .expect("no panic")
        .expect_err("the response is not complete");
    let report = sender.report().await.expect("the last one");
    assert_eq!(report.stats.sent_frames.of(fullbore_proto::FrameType::HEADERS), 1);
    let error = sender.grow_receive_window(1 << 30).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(body.report().await.is_none());
    let error = body.grow_receive_window(1 << 30).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(!sender.is_open());
}

/// Lets every task that is ready run until none is.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
