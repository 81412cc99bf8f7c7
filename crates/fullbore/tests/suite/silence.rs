//! A path that goes silent, in each phase of a request, under a paused clock: the default limits end every wait, and none
//! for a server that is only slow.

use std::future::pending;
use std::io;
use std::time::Duration;

use fullbore::{Client, ClientBuilder, Error, ErrorKind};
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Chunks, End, Peer, Script, empty, frames, link};

const URL: &str = "http://one.example/";

/// PING leaves after a minute of silence, and has a minute to be answered. A limit acts up to a quarter later.
const DEAD: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(150));

/// Far beyond every limit.
const FOREVER: Duration = Duration::from_secs(1_000_000);

const HOUR: Duration = Duration::from_secs(3_600);

/// A client whose peers do as `serve` says. Their transports stay open when it returns.
fn client<F, S>(builder: ClientBuilder, serve: F) -> Client
where
    F: Fn(Peer<End>) -> S + Clone + Send + 'static,
    S: Future<Output = Peer<End>> + Send + 'static,
{
    let connector = tower::service_fn(move |_: Uri| {
        let script = Script {
            capacity: 64 << 10,
            ..Script::delayed(Duration::from_millis(10))
        };
        let (near, far) = link(script, script);
        let served = serve(Peer::new(far));
        tokio::spawn(async move {
            let _open = served.await;
            pending::<()>().await;
        });
        std::future::ready(Ok::<_, io::Error>(near))
    });
    builder
        .connector(connector)
        .build()
        .expect("settings that can be had")
}

/// Sends its settings, and acknowledges the client's.
async fn settled(peer: Peer<End>) -> Peer<End> {
    let mut peer = Peer::server(peer.io, &[]).await;
    peer.send(frames::SETTINGS, frames::ACK, 0, &[]).await;
    peer
}

/// The stream of the next frame of this type.
async fn next(peer: &mut Peer<End>, kind: u8) -> u32 {
    loop {
        let frame = peer.next().await.expect("the transport goes on");
        if frame.kind == kind {
            return frame.stream;
        }
    }
}

/// The error and when it came.
async fn error<T>(waits: impl IntoFuture<Output = Result<T, Error>>) -> (Error, Duration) {
    let begun = Instant::now();
    let ended = timeout(FOREVER, waits).await.expect("it hangs");
    match ended {
        Ok(_) => panic!("no error"),
        Err(error) => (error, begun.elapsed()),
    }
}

async fn ends_with<T>(
    kind: ErrorKind,
    limit: (Duration, Duration),
    waits: impl IntoFuture<Output = Result<T, Error>>,
) {
    let (error, after) = error(waits).await;
    assert_eq!(error.kind(), kind, "{error}");
    assert!(limit.0 <= after && after <= limit.1, "after {after:?}: {error}");
}

fn seconds(least: u64, most: u64) -> (Duration, Duration) {
    (Duration::from_secs(least), Duration::from_secs(most))
}

#[tokio::test(start_paused = true)]
async fn connecting_ends_after_30_s() {
    let never = tower::service_fn(|_: Uri| pending::<io::Result<End>>());
    let client = Client::builder().connector(never).build().unwrap();
    ends_with(ErrorKind::Timeout, seconds(30, 30), client.get(URL)).await;
    // A TLS handshake that is not answered.
    let client = self::client(Client::builder(), async |peer| peer);
    let url = URL.replace("http:", "https:");
    ends_with(ErrorKind::Timeout, seconds(30, 30), client.get(&url)).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_settings_and_then_for_an_answer_in_http1_ends_after_10_s() {
    let client = client(Client::builder(), async |peer| peer);
    ends_with(ErrorKind::NotHttp2, seconds(10, 13), client.get(URL)).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_response_ends_after_two_minutes_of_silence() {
    let client = client(Client::builder(), settled);
    ends_with(ErrorKind::Timeout, DEAD, client.get(URL)).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_body_ends_after_two_minutes_of_silence() {
    let client = client(Client::builder(), async |peer| {
        let mut peer = settled(peer).await;
        let stream = next(&mut peer, frames::HEADERS).await;
        peer.respond(stream, false, &[]).await;
        peer.send(frames::DATA, 0, stream, b"begun").await;
        peer
    });
    let mut body = client.get(URL).await.expect("a response").into_body();
    let first = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(first.into_data().expect("data"), "begun");
    let (error, after) = error(async { body.frame().await.expect("an error") }).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(DEAD.0 <= after && after <= DEAD.1, "after {after:?}: {error}");
}

#[tokio::test(start_paused = true)]
async fn sending_a_body_ends_after_two_minutes_of_silence() {
    // 64 KiB leave, and then nothing.
    let client = client(Client::builder(), settled);
    ends_with(
        ErrorKind::Timeout,
        DEAD,
        client
            .put(URL)
            .body(fullbore::client::Body::wrap(Chunks::new(1 << 30, 16_384))),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_connection_that_died_while_idle_ends_after_two_minutes() {
    let client = client(Client::builder(), async |peer| {
        let mut peer = settled(peer).await;
        let stream = next(&mut peer, frames::HEADERS).await;
        peer.respond(stream, true, &[]).await;
        peer
    });
    client.get(URL).await.expect("a response");
    sleep(HOUR).await;
    assert_eq!(client.connections(URL), 1, "nobody has noticed");
    ends_with(ErrorKind::Timeout, DEAD, client.get(URL)).await;
}

/// Answers PING, and each request after an hour.
async fn slow(peer: Peer<End>) -> Peer<End> {
    let mut peer = settled(peer).await;
    let mut answer = None;
    loop {
        let due = async {
            match answer {
                Some((at, stream)) => {
                    tokio::time::sleep_until(at).await;
                    stream
                }
                None => pending().await,
            }
        };
        tokio::select! {
            frame = peer.next() => match frame {
                None => return peer,
                Some(frame) if frame.kind == frames::PING && !frame.is_ack() => {
                    peer.send(frames::PING, frames::ACK, 0, &frame.payload).await;
                }
                Some(frame) if frame.kind == frames::HEADERS => {
                    answer = Some((Instant::now() + HOUR, frame.stream));
                }
                Some(_) => {}
            },
            stream = due => {
                answer = None;
                peer.respond(stream, true, &[]).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_that_answers_ping_is_waited_for() {
    let client = client(Client::builder(), slow);
    let begun = Instant::now();
    client.get(URL).await.expect("a response");
    assert!(begun.elapsed() >= HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_a_request_covers_connecting_and_the_response() {
    let limit = Some(Duration::from_secs(7));
    let never = tower::service_fn(|_: Uri| pending::<io::Result<End>>());
    let connects = Client::builder().request_timeout(limit).connector(never);
    for client in [
        connects.build().unwrap(),
        client(Client::builder().request_timeout(limit), slow),
    ] {
        ends_with(ErrorKind::Timeout, seconds(7, 7), client.get(URL)).await;
        let request = Request::get(URL).body(Chunks::new(3, 3)).unwrap();
        ends_with(ErrorKind::Timeout, seconds(7, 7), client.request(request)).await;
        let request = Request::get(URL).body(String::from("repeatable")).unwrap();
        let repeatable = client.request_repeatable(request);
        ends_with(ErrorKind::Timeout, seconds(7, 7), repeatable).await;
        assert_eq!(client.stats()[0].waiting, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_a_request_resets_its_stream_and_leaves_bodies_alone() {
    let (reset, mut resets) = tokio::sync::mpsc::unbounded_channel();
    let serve = move |peer| {
        let reset = reset.clone();
        async move {
            let mut peer: Peer<End> = settled(peer).await;
            // The first is not answered. The body of the second takes a minute.
            let first = next(&mut peer, frames::HEADERS).await;
            assert_eq!(next(&mut peer, frames::RST_STREAM).await, first);
            reset.send(()).expect("the test waits");
            let second = next(&mut peer, frames::HEADERS).await;
            peer.respond(second, false, &[]).await;
            sleep(Duration::from_secs(60)).await;
            peer.send(frames::DATA, 1, second, b"late").await;
            peer
        }
    };
    let client = client(
        Client::builder().request_timeout(Some(Duration::from_secs(7))),
        serve,
    );
    let request = Request::get(URL).body(empty()).unwrap();
    ends_with(ErrorKind::Timeout, seconds(7, 7), client.request(request)).await;
    resets.recv().await.expect("the stream is reset");
    let response = client.get(URL).await.expect("a response");
    assert_eq!(
        response.into_body().collect().await.expect("a body").to_bytes(),
        "late"
    );
}
