//! Connections under a paused clock, over a transport in memory: who is woken, how often, and what is written, as counts.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::*;
use bytes::Bytes;
use fullbore::client::{SendRequest, handshake};
use fullbore::server::serve_connection;
use fullbore::{BoxError, Error, ErrorKind, Incoming};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Beyond every timer of a connection that has nothing to do.
const LONG_AFTER: Duration = Duration::from_secs(3_600);

/// Long enough for a connection to come to rest, and too short for its peer to have to show that it is there.
const AT_REST: Duration = Duration::from_secs(1);

/// A client's connection whose peer is scripted frame by frame.
struct Client {
    sender: SendRequest,
    task: JoinHandle<Result<(), Error>>,
    /// How often its driver was woken.
    polls: Polls,
    /// What it writes.
    output: Observer,
    peer: Peer<End>,
}

impl Client {
    /// Both ends have exchanged their settings.
    async fn new(config: fullbore::Config) -> Self {
        Self::to(config, &[]).await
    }

    /// So have they, those of the peer with these entries.
    async fn to(config: fullbore::Config, settings: &[(u16, u32)]) -> Self {
        let (near, far) = link(Script::ideal(), Script::ideal());
        let output = near.observer();
        let polls = Polls::default();
        let (sender, connection) = handshake(near, config);
        let task = tokio::spawn(polls.of(connection));
        let mut peer = Peer::server(far, settings).await;
        peer.expect(frames::SETTINGS).await;
        peer.expect(frames::SETTINGS).await;
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
        let stream = self.peer.expect(frames::HEADERS).await.stream;
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
    assert_eq!(soon(client.peer.expect(frames::GOAWAY)).await.code(), 0);
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
        let stream = client.peer.expect(frames::HEADERS).await.stream;
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
        client.peer.send(frames::DATA, 0, 1, &[0; 2_048]).await;
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
    client.peer.send(frames::DATA, 0, 1, &[0; 16_384]).await;
    client.peer.send(frames::DATA, 0, 1, &[0; 16_384]).await;
    settle().await;
    sleep(LONG_AFTER).await;
    client.polls.take();
    let mut read = 0;
    while read < 32 << 10 {
        read += next_data(&mut body).await.len();
    }
    let (mut stream, mut connection) = (0, 0);
    while stream == 0 || connection == 0 {
        let update = soon(client.peer.expect(frames::WINDOW_UPDATE)).await;
        match update.stream {
            0 => connection += update.increment(),
            _ => stream += update.increment(),
        }
    }
    assert!((1..=4).contains(&client.polls.take()));
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_request_waits_for_a_stream_counts_from_when_it_was_made() {
    // SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 6.5.2).
    let client = Client::to(config(), &[(3, 0)]).await;
    sleep(LONG_AFTER).await;
    let asked = Instant::now();
    let error = client.sender.send(get("/")).await.expect_err("no stream");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(
        asked.elapsed() >= Duration::from_secs(30),
        "{:?}",
        asked.elapsed()
    );
}

/// Octets that come when the reader has just gone, before the driver has heard of it, are credited to the connection by the
/// driver.
#[tokio::test(start_paused = true)]
async fn credit_of_octets_that_come_as_their_reader_goes_returns_to_the_connection() {
    let mut client = Client::new(windows(65_535, 65_535)).await;
    let body = client.respond().await;
    settle().await;
    client.peer.send(frames::DATA, 0, 1, &[0; 16_000]).await;
    client.peer.send(frames::DATA, 0, 1, &[0; 4_000]).await;
    // The driver is woken, and has not run yet.
    drop(body);
    let update = soon(client.peer.expect(frames::WINDOW_UPDATE)).await;
    assert_eq!(update.stream, 0);
    assert!((16_000..=20_000).contains(&update.increment()), "{update:?}");

    // A single octet is not lost either.
    let response = tokio::spawn(client.sender.send(get("/")));
    assert_eq!(client.peer.expect(frames::HEADERS).await.stream, 3);
    client.peer.respond(3, false, &[]).await;
    let response = soon(response).await.expect("no panic").expect("a response");
    settle().await;
    client.peer.send(frames::DATA, 0, 3, &[0]).await;
    drop(response);
    settle().await;
    let report = client.sender.report().await.expect("it is open");
    assert_eq!(report.promise.buffered, 0);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_one_octet_is_opened_again_for_each() {
    let mut config = windows(1, 65_535);
    config.set_adaptive(false);
    let mut client = Client::new(config).await;
    let mut body = client.respond().await;
    for _ in 0..3 {
        client.peer.send(frames::DATA, 0, 1, &[7]).await;
        assert_eq!(next_data(&mut body).await, [7].as_slice());
        let update = loop {
            let update = soon(client.peer.expect(frames::WINDOW_UPDATE)).await;
            if update.stream == 1 {
                break update;
            }
        };
        assert_eq!(update.increment(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_at_rest_says_goaway_at_once_when_it_is_shut_down() {
    let mut client = Client::new(config()).await;
    sleep(LONG_AFTER).await;
    let asked = Instant::now();
    client.sender.shutdown();
    let goaway = soon(client.peer.expect(frames::GOAWAY)).await;
    assert_eq!((goaway.code(), asked.elapsed()), (0, Duration::ZERO));
    drop(client.peer);
    soon(client.task).await.expect("no panic").expect("it ended well");
}

#[tokio::test(start_paused = true)]
async fn a_server_takes_requests_octet_by_octet_and_answers_each_once() {
    let script = Script {
        longest_write: 1,
        ..Script::delayed(Duration::from_millis(50))
    };
    let (near, far) = link(script, Script::ideal());
    let answers = near.observer();
    let service =
        service(|_: Request<Incoming>| async move { Ok::<Reply, BoxError>(Response::new(full("answer"))) });
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

/// A server's connection whose client is scripted frame by frame.
struct Server {
    /// How often its driver was woken.
    polls: Polls,
    /// What it writes.
    output: Observer,
    peer: Peer<End>,
    shutdown: Arc<Notify>,
    task: JoinHandle<Result<(), Error>>,
}

impl Server {
    /// Answers each request at once with a body of `chunks`. What it writes goes by the script; the settings have been
    /// exchanged.
    async fn new(script: Script, chunks: impl Fn() -> Chunks + Send + Sync + 'static) -> Self {
        let (near, far) = link(script, Script::ideal());
        let output = near.observer();
        let polls = Polls::default();
        let shutdown = Arc::new(Notify::new());
        let asked = Arc::clone(&shutdown);
        let chunks = Arc::new(chunks);
        let service = service(move |_: Request<Incoming>| {
            let body = chunks().boxed_unsync();
            async move { Ok::<Reply, BoxError>(Response::new(body)) }
        });
        let counted = polls.clone();
        let task = tokio::spawn(async move {
            let mut connection = Box::pin(serve_connection(near, service, config()));
            let ended = {
                let polled = counted.of(poll_fn(|cx| connection.as_mut().poll(cx)));
                tokio::select! {
                    ended = polled => Some(ended),
                    () = asked.notified() => None,
                }
            };
            match ended {
                Some(ended) => ended,
                None => {
                    connection.graceful_shutdown();
                    connection.await
                }
            }
        });
        let mut peer = Peer::client(far, &[]).await;
        peer.expect(frames::SETTINGS).await;
        peer.expect(frames::SETTINGS).await;
        settle().await;
        Server {
            polls,
            output,
            peer,
            shutdown,
            task,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_together_are_answered_in_one_turn_and_one_write() {
    let mut server = Server::new(Script::ideal(), || Chunks::new(100, 100)).await;
    sleep(AT_REST).await;
    server.polls.take();
    let before = server.output.counts().writes;
    for stream in (1..40).step_by(2) {
        server.peer.request(stream, true, &[]).await;
    }
    settle().await;
    assert_eq!(server.output.counts().writes - before, 1);
    // The turn, and what a yield to the readers that it woke may add.
    assert!(server.polls.take() <= 2);
    for stream in (1..40).step_by(2) {
        assert_eq!(server.peer.expect(frames::HEADERS).await.stream, stream);
    }
    drop(server.peer);
    soon(server.task).await.expect("no panic").expect("ended well");
}

#[tokio::test(start_paused = true)]
async fn a_server_at_rest_says_goaway_at_once_when_it_is_shut_down_and_ends_with_its_client() {
    let mut server = Server::new(Script::ideal(), || Chunks::new(100, 100)).await;
    server.peer.request(1, true, &[]).await;
    server.peer.expect(frames::HEADERS).await;
    sleep(AT_REST).await;
    assert!(!server.task.is_finished());
    let asked = Instant::now();
    server.shutdown.notify_one();
    let goaway = soon(server.peer.expect(frames::GOAWAY)).await;
    assert_eq!((goaway.code(), asked.elapsed()), (0, Duration::ZERO));
    drop(server.peer);
    soon(server.task).await.expect("no panic").expect("ended well");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_taken_only_as_fast_as_a_narrow_transport_lets_it_leave() {
    const CHUNK: usize = 16 << 10;
    let produced = Produced::default();
    let counted = Arc::clone(&produced);
    let narrow = Script {
        capacity: 4 << 10,
        ..Script::delayed(Duration::from_millis(10))
    };
    let mut server = Server::new(narrow, move || Chunks::new(8 << 20, CHUNK).counted(&counted)).await;
    // Windows for all of it: only the transport is in the way.
    let update = (16_u32 << 20).to_be_bytes();
    server.peer.send(frames::WINDOW_UPDATE, 0, 0, &update).await;
    server.peer.request(1, true, &[]).await;
    server.peer.send(frames::WINDOW_UPDATE, 0, 1, &update).await;
    let mut received = 0;
    while received < 1 << 20 {
        received += soon(server.peer.expect(frames::DATA)).await.payload.len();
        let ahead = produced.load(Ordering::SeqCst) as usize - received;
        // A stream's share of the memory for what waits, one list, and what is in the transport.
        assert!(
            ahead <= (384 << 10) + (512 << 10) + (4 << 10) + CHUNK,
            "{ahead} ahead"
        );
    }
    drop(server.peer);
    assert!(soon(server.task).await.expect("no panic").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_breaks_within_a_response_ends_the_connection_and_drops_the_body_at_once() {
    let breaking = Script {
        breaks_after: Some(100_000),
        ..Script::ideal()
    };
    let produced = Produced::default();
    let counted = Arc::clone(&produced);
    let mut server = Server::new(breaking, move || Chunks::new(8 << 20, 16 << 10).counted(&counted)).await;
    let update = (16_u32 << 20).to_be_bytes();
    server.peer.send(frames::WINDOW_UPDATE, 0, 0, &update).await;
    let asked = Instant::now();
    server.peer.request(1, true, &[]).await;
    server.peer.send(frames::WINDOW_UPDATE, 0, 1, &update).await;
    while Arc::strong_count(&produced) > 2 || server.output.counts().octets < 100_000 {
        tokio::task::yield_now().await;
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }
    drop(server.peer);
    let error = soon(server.task).await.expect("no panic").expect_err("it broke");
    assert_eq!(error.kind(), ErrorKind::Io);
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("broke as scripted"), "{error}: {cause}");
}
