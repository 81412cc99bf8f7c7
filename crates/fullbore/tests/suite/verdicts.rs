//! What limited one exchange, as the server answers to whoever logs it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::*;
use bytes::Bytes;
use fullbore::server::{ExchangeVerdict, serve_connection_auto};
use fullbore::stats::{Cause, Direction};
use fullbore::{BoxError, Incoming};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

const PIECE: usize = 64 << 10;

/// What was answered about the exchange of this path.
type Answers = mpsc::UnboundedSender<(String, Option<Cause>)>;

/// A body of pieces with pauses between them. With its last frame it asks what limited it.
struct Asking {
    left: usize,
    pause: Duration,
    next: Pin<Box<Sleep>>,
    ask: Option<Box<dyn FnOnce() + Send>>,
}

impl Asking {
    fn new(pieces: usize, pause: Duration, ask: impl FnOnce() + Send + 'static) -> Self {
        Asking {
            left: pieces,
            pause,
            next: Box::pin(sleep(pause)),
            ask: Some(Box::new(ask)),
        }
    }
}

impl Body for Asking {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        std::task::ready!(self.next.as_mut().poll(cx));
        let Some(left) = self.left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.left = left;
        self.next = Box::pin(sleep(self.pause));
        if left == 0 {
            self.ask.take().into_iter().for_each(|ask| ask());
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; PIECE])))))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.ask.take().into_iter().for_each(|ask| ask());
    }
}

/// Answers `/fast` with pieces at once, `/slow` with pauses, `/few` with less than is judged, and anything else when it has read
/// the request.
async fn answer(request: Request<Incoming>, answers: Answers) -> Result<Reply, BoxError> {
    let path = request.uri().path().to_owned();
    let (pieces, pause, direction) = match &*path {
        "/fast" => (40, Duration::ZERO, Direction::Sending),
        "/slow" => (20, Duration::from_millis(300), Direction::Sending),
        "/few" => (3, Duration::from_millis(300), Direction::Sending),
        _ => (1, Duration::ZERO, Direction::Receiving),
    };
    request.into_body().collect().await?;
    let verdict = ExchangeVerdict::new();
    let asked = verdict.clone();
    let body = Asking::new(pieces, pause, move || {
        let answer = asked.ask(direction);
        tokio::spawn(async move {
            let _ = answers.send((path, answer.await.map(|verdict| verdict.cause)));
        });
    });
    let mut response = Response::new(body.boxed_unsync());
    response.extensions_mut().insert(verdict);
    Ok(response)
}

/// Reads a piece, and waits before the next one.
async fn read_slowly(mut body: Incoming) {
    while let Some(frame) = body.frame().await {
        frame.expect("no error");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_response_has_the_cause_of_its_own_stream() {
    let (answers, mut causes) = mpsc::unbounded_channel();
    let pair = pair(windows(65_535, 1 << 20), config(), move |request| {
        answer(request, answers.clone())
    });
    let read = async |path: &str| {
        let response = pair.client.send(get(path)).await.expect("a response");
        read_slowly(response.into_body()).await;
    };
    tokio::join!(read("/fast"), read("/slow"), read("/few"));
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(soon(causes.recv()).await.expect("an answer"));
    }
    said.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("/fast".to_owned(), Some(Cause::StreamWindow)),
        ("/few".to_owned(), None),
        ("/slow".to_owned(), Some(Cause::ThisSide)),
    ];
    assert_eq!(said, expected);
    pair.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_given_up_has_the_cause_of_its_connection() {
    let (answers, mut causes) = mpsc::unbounded_channel();
    let pair = pair(windows(65_535, 1 << 20), config(), move |request| {
        answer(request, answers.clone())
    });
    let mut body = pair
        .client
        .send(get("/fast"))
        .await
        .expect("a response")
        .into_body();
    for _ in 0..100 {
        body.frame().await.expect("a frame").expect("no error");
        sleep(Duration::from_millis(20)).await;
    }
    drop(body);
    let said = soon(causes.recv()).await.expect("an answer");
    assert_eq!(said, ("/fast".to_owned(), Some(Cause::StreamWindow)));
    pair.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_has_the_cause_of_its_body() {
    let (answers, mut causes) = mpsc::unbounded_channel();
    let pair = pair(config(), config(), move |request| {
        answer(request, answers.clone())
    });
    let source = Asking::new(30, Duration::from_millis(500), || ());
    let response = pair.client.send(post("/up", source)).await.expect("a response");
    read_slowly(response.into_body()).await;
    let said = soon(causes.recv()).await.expect("an answer");
    // A pipe has neither a round trip nor TCP, which would tell a slow client from a slow path.
    assert_eq!(said, ("/up".to_owned(), Some(Cause::PeerOrPath)));
    pair.end().await;
}

/// Sends a request of HTTP/1.1 on a connection to this handler, and reads the response slowly.
async fn ask_in_http1(near: &mut tokio::io::DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: test.example\r\n\r\n");
    near.write_all(request.as_bytes()).await.expect("room");
    let mut some = vec![0; 16 << 10];
    let mut last = Vec::new();
    // The last chunk of a body of unknown length.
    while !last.ends_with(b"\r\n0\r\n\r\n") {
        let count = near.read(&mut some).await.expect("no error");
        assert_ne!(count, 0, "the connection has ended");
        last.extend_from_slice(&some[..count]);
        last.drain(..last.len().saturating_sub(7));
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_response_of_http_1_has_its_own_cause() {
    let (answers, mut causes) = mpsc::unbounded_channel();
    let (mut near, far) = tokio::io::duplex(16 << 10);
    let handler = service(move |request| answer(request, answers.clone()));
    let task = tokio::spawn(serve_connection_auto(far, handler, config()));
    for (path, cause) in [
        ("/few", None),
        // Without TCP nothing tells a client that reads slowly from a slow path.
        ("/fast", Some(Cause::PeerOrPath)),
        ("/slow", Some(Cause::ThisSide)),
        ("/fast", Some(Cause::PeerOrPath)),
    ] {
        ask_in_http1(&mut near, path).await;
        let said = soon(causes.recv()).await.expect("an answer");
        assert_eq!(said, (path.to_owned(), cause));
    }
    drop(near);
    soon(task).await.expect("no panic").expect("it ended well");
}

#[tokio::test]
async fn a_question_that_no_server_has_seen_has_no_answer() {
    let verdict = ExchangeVerdict::new();
    assert!(!verdict.is_answerable());
    assert!(verdict.ask(Direction::Sending).await.is_none());
}
