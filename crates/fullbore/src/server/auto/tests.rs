//! Connections whose version is not known yet, under the paused clock.

use bytes::Buf;
use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// How long a peer may say nothing.
const LIMIT: Duration = Duration::from_secs(10);

/// The client's end, the connection, and what asks for its graceful shutdown.
struct Started {
    far: DuplexStream,
    task: JoinHandle<Result<(), Error>>,
    shutdown: Arc<tokio::sync::Notify>,
}

fn start() -> Started {
    let (near, far) = tokio::io::duplex(64 << 10);
    let mut config = Config::default();
    config.set_preface_timeout(LIMIT);
    let service = tower::service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(Response::new(String::from("answer")))
    });
    let mut connection = Box::pin(serve_connection_auto(near, service, config));
    let shutdown = Arc::new(tokio::sync::Notify::new());
    let asked = Arc::clone(&shutdown);
    let task = tokio::spawn(async move {
        let ended = tokio::select! {
            biased;
            ended = &mut connection => Some(ended),
            () = asked.notified() => None,
        };
        match ended {
            Some(ended) => ended,
            None => {
                connection.graceful_shutdown();
                connection.await
            }
        }
    });
    Started { far, task, shutdown }
}

/// How a connection ends, and when.
async fn end(task: JoinHandle<Result<(), Error>>) -> (Result<(), Error>, Duration) {
    let begun = Instant::now();
    let ended = timeout(LIMIT * 10, task).await.expect("it ends");
    (ended.expect("no panic"), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn each_version_is_known_however_slowly_its_first_octets_come() {
    let preface = [frames::PREFACE, &frames::settings(&[])].concat();
    for (said, heard) in [
        (&preface[..], &[0_u8, 0][..]),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200",
        ),
        (b"PRIME / HTTP/1.1\r\nhost: a\r\n\r\n", b"HTTP/1.1 200"),
    ] {
        let mut started = start();
        for octet in said {
            started.far.write_all(&[*octet]).await.expect("it is read");
            sleep(MS).await;
        }
        let mut answer = vec![0; heard.len()];
        let read = timeout(LIMIT, started.far.read_exact(&mut answer)).await;
        read.expect("an answer").expect("an answer");
        assert_eq!(answer, heard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_too_little_to_tell_its_version_is_closed_after_the_limit() {
    for said in [&b""[..], b"P", b"PRI"] {
        let Started { mut far, task, .. } = start();
        let begun = Instant::now();
        sleep(LIMIT / 2).await;
        far.write_all(said).await.expect("it is read");
        let (ended, _) = end(task).await;
        assert_eq!(ended.expect_err("it is late").kind(), crate::ErrorKind::Timeout);
        assert_eq!(begun.elapsed().as_millis(), LIMIT.as_millis());
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_closes_before_its_first_octet_is_no_error_and_within_the_preface_is_one() {
    for (said, is_error) in [(&b""[..], false), (b"PR", true)] {
        let Started { mut far, task, .. } = start();
        far.write_all(said).await.expect("it is read");
        drop(far);
        let (ended, after) = end(task).await;
        assert_eq!((ended.is_err(), after), (is_error, Duration::ZERO), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_ends_a_connection_at_once_that_has_said_nothing() {
    let Started { far, task, shutdown } = start();
    sleep(MS).await;
    shutdown.notify_one();
    let (ended, after) = end(task).await;
    ended.expect("it ends well");
    assert_eq!(after, Duration::ZERO);
    drop(far);
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_within_the_preface_is_told_by_goaway() {
    let Started {
        mut far,
        task,
        shutdown,
    } = start();
    let mut preface = [frames::PREFACE, &frames::settings(&[])].concat();
    let rest = preface.split_off(2);
    far.write_all(&preface).await.expect("it is read");
    sleep(MS).await;
    shutdown.notify_one();
    sleep(MS).await;
    assert!(!task.is_finished());
    let mut peer = Peer::new(far);
    peer.write(&rest).await;
    let goaway = timeout(LIMIT, peer.expect(frames::GOAWAY))
        .await
        .expect("it says so");
    // The code, behind the last stream.
    assert_eq!((&goaway.payload[4..8]).get_u32(), 0);
    drop(peer);
    let (ended, _) = end(task).await;
    ended.expect("it ends well");
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_within_the_first_head_of_http1_is_told_by_its_response() {
    let Started {
        mut far,
        task,
        shutdown,
    } = start();
    far.write_all(b"GET / HTTP/1.1\r\n").await.expect("it is read");
    sleep(MS).await;
    shutdown.notify_one();
    sleep(MS).await;
    let _ = far.write_all(b"host: a\r\n\r\n").await;
    let (ended, _) = end(task).await;
    ended.expect("it ends well");
    let mut answer = String::new();
    far.read_to_string(&mut answer).await.expect("it ends");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
}
