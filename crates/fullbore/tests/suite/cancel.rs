//! Exchanges that end before their time: the peer sees the right code, the others go on, and all credit returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use fullbore::client::{SendRequest, handshake};
use fullbore::server::serve_connection;
use fullbore::{BoxError, ErrorCode, ErrorKind, Incoming};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;

use crate::support::{
    Chunks, Guarded, Pair, Peer, Produced, Reply, config, empty, frames, full, get, pair, pattern, post,
    refused, service, soon, take, windows,
};

/// Small windows, so that credit that does not return is missed soon.
const WINDOW: u32 = 100_000;

/// Answers `/large` with more than the windows hold, `/count` with how long the body was, `/ignore` without reading.
async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    Ok(match request.uri().path() {
        "/large" => Response::new(Chunks::new(2_000_000, 50_000).boxed_unsync()),
        "/small" => Response::new(Chunks::new(20_000, 7_000).boxed_unsync()),
        "/count" => Response::new(full(take(request.into_body()).await?.bytes.to_string())),
        "/ignore" => Response::new(full("no, thank you")),
        "/fail" => return Err("the handler has failed".into()),
        "/panic" => panic!("the handler has panicked, as it was to"),
        "/late-panic" => {
            tokio::task::yield_now().await;
            panic!("the handler has panicked late, as it was to")
        }
        "/broken" => Response::new(Chunks::new(30_000, 10_000).failing().boxed_unsync()),
        _ => return refused(),
    })
}

fn small_pair() -> Pair {
    pair(windows(WINDOW, WINDOW), windows(WINDOW, WINDOW), answer)
}

/// Moves many times the connection's window in both directions: what was not credited would end it.
async fn moves_on(client: &SendRequest) {
    for _ in 0..3 {
        let response = soon(client.send(get("/large"))).await.expect("a response");
        assert_eq!(
            soon(take(response.into_body())).await.expect("a body").bytes,
            2_000_000
        );
        let body = Chunks::new(1_000_000, 30_000);
        let response = soon(client.send(post("/count", body))).await.expect("a response");
        let counted = soon(response.into_body().collect())
            .await
            .expect("a body")
            .to_bytes();
        assert_eq!(counted, "1000000");
    }
}

#[tokio::test]
async fn dropping_a_response_future_returns_its_credit() {
    let pair = small_pair();
    for _ in 0..40 {
        let mut response = Box::pin(pair.client.send(get("/large")));
        for _ in 0..20 {
            tokio::select! { biased; _ = &mut response => break, () = tokio::task::yield_now() => {} }
        }
        drop(response);
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn dropping_a_response_body_half_way_returns_its_credit() {
    let pair = small_pair();
    for round in 0..40u64 {
        let response = soon(pair.client.send(get("/large"))).await.unwrap();
        let mut body = response.into_body();
        let mut seen = 0;
        while seen < round * 10_000 {
            seen += soon(body.frame())
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap()
                .len() as u64;
        }
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn a_body_that_waits_unread_and_is_dropped_returns_its_credit() {
    let pair = small_pair();
    for _ in 0..20 {
        let response = soon(pair.client.send(get("/small"))).await.unwrap();
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        drop(response);
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_read_the_request_returns_its_credit() {
    let pair = small_pair();
    for _ in 0..40 {
        let body = Chunks::new(5_000_000, 40_000);
        let response = soon(pair.client.send(post("/ignore", body))).await.unwrap();
        assert_eq!(
            soon(response.into_body().collect()).await.unwrap().to_bytes(),
            "no, thank you"
        );
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_resets_its_stream_and_no_other() {
    let pair = small_pair();
    let other = soon(pair.client.send(get("/large"))).await.unwrap();
    for path in ["/fail", "/panic", "/late-panic"] {
        for _ in 0..5 {
            let body = Chunks::new(50_000, 5_000);
            let error = soon(pair.client.send(post(path, body))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reset, "{path}: {error}");
            assert_eq!(error.code(), Some(ErrorCode::INTERNAL_ERROR), "{path}");
        }
    }
    assert_eq!(soon(take(other.into_body())).await.unwrap().bytes, 2_000_000);
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn a_response_body_that_fails_resets_the_stream() {
    let pair = small_pair();
    for _ in 0..20 {
        let response = soon(pair.client.send(get("/broken"))).await.unwrap();
        let error = soon(take(response.into_body())).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.code()),
            (ErrorKind::Reset, Some(ErrorCode::INTERNAL_ERROR))
        );
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

#[tokio::test]
async fn a_request_body_that_fails_is_the_callers_own_error() {
    let pair = small_pair();
    for _ in 0..20 {
        let body = Chunks::new(30_000, 10_000).failing();
        let error = soon(pair.client.send(post("/count", body))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body, "{error}");
        let cause = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(cause.contains("the body broke"), "{error}: {cause}");
    }
    moves_on(&pair.client).await;
    pair.end().await;
}

/// Gives so many octets, each of which has to be waited for, and then panics.
fn panicking(octets: u64) -> impl Body<Data = Bytes, Error = BoxError> {
    StreamBody::new(futures_util::stream::unfold(0, move |given| async move {
        assert!(given < octets, "the body has panicked, as it was to");
        tokio::task::yield_now().await;
        Some((Ok(Frame::data(pattern(given, 1))), given + 1))
    }))
}

#[tokio::test]
async fn a_request_body_that_panics_ends_its_stream_and_no_other() {
    let pair = small_pair();
    for octets in [1, 3] {
        let sent = pair.client.send(post("/count", panicking(octets)));
        let error = soon(sent).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body, "{error}");
    }
    // It is polled for the first time where it is sent.
    let sends = || pair.client.send(post("/count", panicking(0)));
    assert!(catch_unwind(AssertUnwindSafe(sends)).is_err());
    moves_on(&pair.client).await;
    pair.end().await;
}

async fn panics_after_it_gave_the_body_away(request: Request<Incoming>) -> Result<Reply, BoxError> {
    tokio::spawn(take(request.into_body()));
    tokio::task::yield_now().await;
    panic!("the handler has panicked, as it was to")
}

#[tokio::test]
async fn a_handler_that_panics_while_another_task_reads_its_request_resets_its_stream() {
    let pair = pair(config(), config(), panics_after_it_gave_the_body_away);
    let sent = pair.client.send(post("/", Chunks::new(10, 10).stalling()));
    let error = soon(sent).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::Reset, Some(ErrorCode::INTERNAL_ERROR))
    );
    pair.end().await;
}

#[tokio::test]
async fn the_server_sees_the_reset_of_a_request_body_that_fails() {
    let (seen, mut errors) = mpsc::unbounded_channel();
    let pair = pair(config(), config(), move |request| {
        let seen = seen.clone();
        async move {
            let error = take(request.into_body()).await.expect_err("it failed");
            seen.send((error.kind(), error.code()))?;
            Err(error.into())
        }
    });
    // More than waits to be sent at once, so that the request is under way when it fails.
    let body = Chunks::new(600_000, 10_000).failing();
    let _ = soon(pair.client.send(post("/", body))).await;
    let error = soon(errors.recv()).await.unwrap();
    assert_eq!(error, (ErrorKind::Reset, Some(ErrorCode::INTERNAL_ERROR)));
    pair.end().await;
}

/// A client over a raw server that has sent its SETTINGS.
async fn raw_server() -> (SendRequest, Peer<tokio::io::DuplexStream>) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = handshake(near, config());
    tokio::spawn(connection);
    (sender, soon(Peer::server(far, &[])).await)
}

#[tokio::test]
async fn a_response_future_that_is_dropped_resets_with_cancel() {
    let (client, mut raw) = raw_server().await;
    let response = client.send(get("/"));
    let stream = soon(raw.expect(frames::HEADERS)).await.stream;
    drop(response);
    let reset = soon(raw.expect(frames::RST_STREAM)).await;
    assert_eq!((reset.stream, reset.code()), (stream, ErrorCode::CANCEL.0));
}

#[tokio::test]
async fn a_response_body_that_is_dropped_resets_with_cancel() {
    let (client, mut raw) = raw_server().await;
    let response = tokio::spawn(client.send(get("/")));
    let stream = soon(raw.expect(frames::HEADERS)).await.stream;
    raw.respond(stream, false, &[]).await;
    raw.send(frames::DATA, 0, stream, b"more to come").await;
    drop(soon(response).await.unwrap().unwrap());
    let reset = soon(raw.expect(frames::RST_STREAM)).await;
    assert_eq!((reset.stream, reset.code()), (stream, ErrorCode::CANCEL.0));
}

#[tokio::test]
async fn a_whole_response_that_is_dropped_resets_nothing() {
    let (client, mut raw) = raw_server().await;
    let response = tokio::spawn(client.send(get("/")));
    let stream = soon(raw.expect(frames::HEADERS)).await.stream;
    raw.respond(stream, false, &[]).await;
    raw.send(frames::DATA, 1, stream, b"all of it").await;
    let response = soon(response).await.unwrap().unwrap();
    raw.send(frames::PING, 0, 0, b"in order").await;
    soon(raw.expect(frames::PING)).await;
    drop(response);
    drop(client);
    let frames = soon(raw.rest()).await;
    assert!(
        frames.iter().all(|frame| frame.kind != frames::RST_STREAM),
        "{frames:?}"
    );
    assert!(
        frames
            .iter()
            .any(|frame| frame.kind == frames::GOAWAY && frame.code() == 0)
    );
}

/// A raw client over a server with this handler.
async fn raw_client<H, F>(handler: H) -> Peer<tokio::io::DuplexStream>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Result<Reply, BoxError>> + Send + 'static,
{
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(serve_connection(near, service(handler), config()));
    soon(Peer::client(far, &[])).await
}

#[tokio::test]
async fn a_response_before_the_end_of_the_request_is_followed_by_a_reset_without_error() {
    let mut raw = raw_client(|_| async { Ok(Response::new(full("enough"))) }).await;
    raw.request(1, false, &[]).await;
    let data = soon(raw.expect(frames::DATA)).await;
    assert!(data.ends_stream());
    let reset = soon(raw.expect(frames::RST_STREAM)).await;
    assert_eq!((reset.stream, reset.code()), (1, ErrorCode::NO_ERROR.0));
}

#[tokio::test]
async fn a_response_that_fails_half_way_is_reset_with_internal_error() {
    let mut raw = raw_client(answer).await;
    raw.send(frames::HEADERS, 5, 1, b"\x82\x86\x04\x07/broken\x01\x04test")
        .await;
    let reset = soon(raw.expect(frames::RST_STREAM)).await;
    assert_eq!((reset.stream, reset.code()), (1, ErrorCode::INTERNAL_ERROR.0));
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_request_is_reset() {
    let (seen, mut started) = mpsc::channel::<()>(1);
    let mut raw = raw_client(move |_| {
        let seen = seen.clone();
        async move {
            seen.send(()).await?;
            let _held = seen;
            std::future::pending().await
        }
    })
    .await;
    raw.request(1, false, &[]).await;
    soon(started.recv()).await.unwrap();
    raw.send(frames::RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
    raw.send(frames::PING, 0, 0, b"in order").await;
    soon(raw.expect(frames::PING)).await;
    drop(raw);
    // All that held the channel is gone: the handler, and with its connection the service.
    assert!(soon(started.recv()).await.is_none());
}

#[tokio::test]
async fn a_response_body_that_waits_is_dropped_when_its_stream_is_reset() {
    let (body, dropped) = Guarded::new(Chunks::new(1_000, 1_000).stalling());
    let body = Arc::new(std::sync::Mutex::new(Some(body)));
    let mut raw = raw_client(move |_| {
        let body = body.lock().unwrap().take();
        async move { Ok(Response::new(body.ok_or("once")?.boxed_unsync())) }
    })
    .await;
    raw.request(1, true, &[]).await;
    soon(raw.expect(frames::DATA)).await;
    assert!(!dropped.load(Ordering::SeqCst));
    raw.send(frames::RST_STREAM, 0, 1, &8u32.to_be_bytes()).await;
    until(&dropped).await;
}

#[tokio::test]
async fn a_request_body_that_waits_is_dropped_with_its_response_future() {
    let (client, mut raw) = raw_server().await;
    let (body, dropped) = Guarded::new(Chunks::new(1_000, 1_000).stalling());
    let response = client.send(post("/", body));
    soon(raw.expect(frames::DATA)).await;
    drop(response);
    until(&dropped).await;
}

#[tokio::test]
async fn a_request_that_is_given_up_before_it_began_lets_go_of_its_body() {
    for total in [0, 1_000, 1_000_000] {
        let (client, mut raw) = raw_server().await;
        let (body, dropped) = Guarded::new(Chunks::new(total, 100_000).stalling());
        drop(client.send(post("/", body)));
        until(&dropped).await;
        let response = client.send(get("/after"));
        soon(raw.expect(frames::HEADERS)).await;
        drop(response);
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_while_it_waits_for_its_turn_lets_go_of_its_body() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let (client, connection) = handshake(near, config());
    tokio::spawn(connection);
    // One stream at a time.
    let mut raw = soon(Peer::server(far, &[(3, 1)])).await;
    soon(raw.expect(frames::SETTINGS)).await;
    let first = client.send(get("/"));
    soon(raw.expect(frames::HEADERS)).await;
    for total in [0, 1_000, 1_000_000] {
        let (body, dropped) = Guarded::new(Chunks::new(total, 100_000).stalling());
        let response = client.send(post("/", body));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        drop(response);
        until(&dropped).await;
    }
    drop(first);
    soon(raw.expect(frames::RST_STREAM)).await;
}

/// Waits until something is so.
async fn until(so: &AtomicBool) {
    soon(async {
        while !so.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_mid_request_ends_its_handlers_and_their_bodies() {
    let (seen, mut started) = mpsc::channel::<()>(100);
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let (near, far) = tokio::io::duplex(64 << 10);
    let service = service(move |request: Request<Incoming>| {
        let (seen, count) = (seen.clone(), Arc::clone(&count));
        async move {
            seen.send(()).await.ok();
            let error = take(request.into_body()).await.expect_err("the client goes");
            assert_eq!(error.kind(), ErrorKind::Closed);
            count.fetch_add(1, Ordering::SeqCst);
            Err::<Response<Chunks>, _>(error)
        }
    });
    let server = tokio::spawn(serve_connection(near, service, config()));
    let (client, connection) = handshake(far, config());
    let connection = tokio::spawn(connection);
    let mut requests = Vec::new();
    for _ in 0..10 {
        let body = Chunks::new(10_000, 1_000).stalling();
        requests.push(tokio::spawn(client.send(post("/", body))));
    }
    for _ in 0..10 {
        soon(started.recv()).await.unwrap();
    }
    connection.abort();
    for request in requests {
        let error = soon(request).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    let error = soon(server).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    soon(async {
        while ended.load(Ordering::SeqCst) < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn exchanges_that_are_cancelled_at_random_leave_the_others_whole() {
    let pair = small_pair();
    let mut tasks = Vec::new();
    for seed in 0..8 {
        let client = pair.client.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..150 {
                let produced = Produced::default();
                match random.u8(..6) {
                    0 => drop(client.send(get("/large"))),
                    1 => drop(soon(client.send(get("/large"))).await.expect("a response")),
                    2 => {
                        let body = Chunks::new(random.u64(..300_000), random.usize(1..50_000)).counted(&produced);
                        let mut response = Box::pin(client.send(post("/count", body)));
                        for _ in 0..random.u8(..30) {
                            tokio::select! { biased; _ = &mut response => break, () = tokio::task::yield_now() => {} }
                        }
                    }
                    3 => {
                        let body = Chunks::new(random.u64(..300_000), 10_000).failing();
                        drop(soon(client.send(post("/ignore", body))).await);
                    }
                    4 => {
                        let response = soon(client.send(get("/large"))).await.expect("a response");
                        assert_eq!(soon(take(response.into_body())).await.expect("a body").bytes, 2_000_000);
                    }
                    _ => {
                        let total = random.u64(..300_000);
                        let body = Chunks::new(total, random.usize(1..50_000));
                        let response = soon(client.send(post("/count", body))).await.expect("a response");
                        let counted = soon(response.into_body().collect()).await.expect("a body").to_bytes();
                        assert_eq!(counted, Bytes::from(total.to_string()));
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    moves_on(&pair.client).await;
    let response = soon(pair.client.send(get("/unknown"))).await.unwrap();
    assert_eq!(response.status(), http::StatusCode::NOT_FOUND);
    drop(response);
    pair.end().await;
    drop(empty());
}
