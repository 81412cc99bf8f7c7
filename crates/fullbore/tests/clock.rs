//! Connections under a paused clock, over a transport in memory: who is woken, how often, and what is written, as counts.

mod support;

use std::time::Duration;

use bytes::Bytes;
use fullbore::client::{SendRequest, handshake};
use fullbore::server::serve_connection;
use fullbore::{BoxError, Error, Incoming};
use http::{Request, Response};
use http_body_util::BodyExt;
use support::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Beyond every timer of a connection that has nothing to do.
const LONG_AFTER: Duration = Duration::from_secs(3_600);

/// A client's connection whose peer is scripted frame by frame.
struct Client {
    sender: SendRequest,
    task: JoinHandle<Result<(), Error>>,
    /// How often its driver was woken.
    polls: Polls,
    /// What it writes.
    output: Observer,
    peer: Raw<End>,
}

impl Client {
    /// Both ends have exchanged their settings.
    async fn new(config: fullbore::Config) -> Self {
        let (near, far) = link(Script::ideal(), Script::ideal());
        let output = near.observer();
        let polls = Polls::default();
        let (sender, connection) = handshake(near, config);
        let task = tokio::spawn(polls.of(connection));
        let mut peer = Raw::server(far, &[]).await;
        peer.expect(kind::SETTINGS).await;
        peer.expect(kind::SETTINGS).await;
        settle().await;
        Client {
            sender,
            task,
            polls,
            output,
            peer,
        }
    }

    /// A response under way on stream 1, of which nothing but the head has come.
    async fn respond(&mut self) -> Incoming {
        let response = tokio::spawn(self.sender.send(get("/")));
        let stream = self.peer.expect(kind::HEADERS).await.stream;
        self.peer.respond(stream, false, &[]).await;
        soon(response)
            .await
            .expect("no panic")
            .expect("a response")
            .into_body()
    }
}

/// Lets every task that is ready run until none is.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn next_data(body: &mut Incoming) -> Bytes {
    let frame = soon(body.frame()).await.expect("a frame").expect("no error");
    frame.into_data().expect("data")
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_a_connection_at_rest_at_once() {
    let mut client = Client::new(config()).await;
    let other = client.sender.clone();
    sleep(LONG_AFTER).await;
    client.polls.take();
    drop(other);
    settle().await;
    assert_eq!(client.polls.take(), 0, "a handle is left");
    let dropped = Instant::now();
    drop(client.sender);
    assert_eq!(soon(client.peer.expect(kind::GOAWAY)).await.code(), 0);
    drop(client.peer);
    soon(client.task).await.expect("no panic").expect("it ended well");
    assert_eq!(dropped.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_nothing_to_do_is_woken_once_to_come_to_rest_and_never_again() {
    let client = Client::new(config()).await;
    client.polls.take();
    let written = client.output.counts();
    sleep(Duration::from_secs(1)).await;
    assert!(client.polls.take() <= 2, "woken more than its timer asks for");
    sleep(LONG_AFTER).await;
    assert_eq!(client.polls.take(), 0);
    assert_eq!(client.output.counts(), written);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_begun_together_wake_the_driver_once_and_leave_in_one_write() {
    let mut client = Client::new(config()).await;
    sleep(LONG_AFTER).await;
    client.polls.take();
    let before = client.output.counts().writes;
    let responses: Vec<_> = (0..20).map(|_| client.sender.send(get("/"))).collect();
    settle().await;
    assert_eq!(client.polls.take(), 1);
    assert_eq!(client.output.counts().writes - before, 1);
    for _ in 0..20 {
        let stream = client.peer.expect(kind::HEADERS).await.stream;
        client.peer.respond(stream, true, &[]).await;
    }
    for response in responses {
        assert_eq!(soon(response).await.expect("a response").status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn reading_wakes_the_driver_only_when_a_window_update_falls_due() {
    // 200 KiB of 48 MiB make none due.
    let mut client = Client::new(config()).await;
    let mut body = client.respond().await;
    for _ in 0..100 {
        client.peer.send(kind::DATA, 0, 1, &[0; 2_048]).await;
        settle().await;
    }
    sleep(LONG_AFTER).await;
    client.polls.take();
    let before = client.output.counts();
    let mut read = 0;
    while read < 200 << 10 {
        read += next_data(&mut body).await.len();
        settle().await;
    }
    // The first chunk may: over a path of no length the peer has used up all that it knew of a round trip ago.
    assert!(client.polls.take() <= 1);
    assert_eq!(client.output.counts(), before);

    // 32 KiB of 65,535 octets do, for the stream and for the connection.
    let mut client = Client::new(windows(65_535, 65_535)).await;
    let mut body = client.respond().await;
    client.peer.send(kind::DATA, 0, 1, &[0; 16_384]).await;
    client.peer.send(kind::DATA, 0, 1, &[0; 16_384]).await;
    settle().await;
    sleep(LONG_AFTER).await;
    client.polls.take();
    let mut read = 0;
    while read < 32 << 10 {
        read += next_data(&mut body).await.len();
    }
    let (mut stream, mut connection) = (0, 0);
    while stream == 0 || connection == 0 {
        let update = soon(client.peer.expect(kind::WINDOW_UPDATE)).await;
        match update.stream {
            0 => connection += update.increment(),
            _ => stream += update.increment(),
        }
    }
    assert!((1..=4).contains(&client.polls.take()));
}

/// Octets that come when the reader has just gone, before the driver has heard of it, are credited to the connection by the
/// driver.
#[tokio::test(start_paused = true)]
async fn credit_of_octets_that_come_as_their_reader_goes_returns_to_the_connection() {
    let mut client = Client::new(windows(65_535, 65_535)).await;
    let body = client.respond().await;
    settle().await;
    client.peer.send(kind::DATA, 0, 1, &[0; 16_000]).await;
    client.peer.send(kind::DATA, 0, 1, &[0; 4_000]).await;
    // The driver is woken, and has not run yet.
    drop(body);
    let update = soon(client.peer.expect(kind::WINDOW_UPDATE)).await;
    assert_eq!(update.stream, 0);
    assert!((16_000..=20_000).contains(&update.increment()), "{update:?}");

    // A single octet is not lost either.
    let response = tokio::spawn(client.sender.send(get("/")));
    assert_eq!(client.peer.expect(kind::HEADERS).await.stream, 3);
    client.peer.respond(3, false, &[]).await;
    let response = soon(response).await.expect("no panic").expect("a response");
    settle().await;
    client.peer.send(kind::DATA, 0, 3, &[0]).await;
    drop(response);
    settle().await;
    let report = client.sender.report().await.expect("it is open");
    assert_eq!(report.promise.buffered, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_takes_requests_octet_by_octet_and_answers_each_once() {
    let script = Script {
        longest_write: 1,
        ..Script::delayed(Duration::from_millis(50))
    };
    let (near, far) = link(script, Script::ideal());
    let answers = near.observer();
    let service = tower::service_fn(|_: Request<Incoming>| async move {
        Ok::<Reply, BoxError>(Response::new(full("answer")))
    });
    let server = tokio::spawn(serve_connection(near, service, config()));
    let (sender, connection) = handshake(far, config());
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        let response = soon(sender.send(get("/"))).await.expect("a response");
        let body = soon(response.into_body().collect()).await.expect("whole");
        assert_eq!(body.to_bytes(), "answer");
    }
    assert_eq!(answers.counts().writes, answers.counts().octets);
    drop(sender);
    soon(connection).await.expect("no panic").expect("ended well");
    soon(server).await.expect("no panic").expect("ended well");
    assert!(answers.counts().closed);
}
