//! The limits on time of HTTP/2 hold over HTTP/1.1, on a virtual clock.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use fullbore::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

/// What the server says until it closes, and when that is.
async fn closed(raw: &mut Raw) -> (String, Duration) {
    let began = Instant::now();
    let mut rest = Vec::new();
    let _ = raw.io.read_to_end(&mut rest).await;
    (String::from_utf8_lossy(&rest).into_owned(), began.elapsed())
}

/// Whether a time is that of a limit, or up to a quarter more.
fn is_about(elapsed: Duration, limit: Duration) -> bool {
    (limit..=limit + limit / 4 + 2 * SECOND).contains(&elapsed)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_closed() {
    for said in ["", "P", "PRI"] {
        let mut raw = Raw::new();
        raw.say(said).await;
        let (said, elapsed) = closed(&mut raw).await;
        assert!(said.is_empty() && is_about(elapsed, 10 * SECOND), "{elapsed:?}");
        assert_eq!(
            raw.served().await.expect_err("a limit").kind(),
            ErrorKind::Timeout
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_is_answered_by_408() {
    let mut raw = Raw::new();
    raw.say("GET / HTTP/1.1\r\n").await;
    let (mut reader, mut writer) = tokio::io::split(raw.io);
    let trickle = tokio::spawn(async move {
        while writer.write_all(b"X: y\r\n").await.is_ok() {
            sleep(SECOND).await;
        }
    });
    let began = Instant::now();
    let mut said = String::new();
    let _ = reader.read_to_string(&mut said).await;
    assert!(is_about(began.elapsed(), 30 * SECOND), "{:?}", began.elapsed());
    assert_eq!(statuses(&said), [408], "{said}");
    drop(reader);
    trickle.await.expect("no panic");
    assert_eq!(
        raw.served.await.expect("no panic").expect_err("a limit").kind(),
        ErrorKind::Timeout
    );
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_later_request_has_the_same_limit() {
    let mut raw = Raw::new();
    raw.say(get("/")).await;
    raw.hear(7).await;
    sleep(100 * SECOND).await;
    raw.say("GET / HT").await;
    let (said, elapsed) = closed(&mut raw).await;
    assert_eq!(statuses(&said), [408], "{said}");
    assert!(is_about(elapsed, 30 * SECOND), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed_and_one_with_requests_is_not() {
    let mut raw = Raw::with(config(|config| config.set_idle_timeout(Some(60 * SECOND))));
    for _ in 0..5 {
        raw.say(get("/")).await;
        raw.hear(7).await;
        sleep(50 * SECOND).await;
    }
    let (said, elapsed) = closed(&mut raw).await;
    assert!(said.is_empty() && is_about(elapsed, 10 * SECOND), "{elapsed:?}");
    raw.served().await.expect("a clean end");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_answered_by_408() {
    let mut raw = Raw::with(config(|config| config.set_body_timeout(Some(20 * SECOND))));
    raw.say(post("/", "Content-Length: 10\r\n", "hello")).await;
    let (said, elapsed) = closed(&mut raw).await;
    assert_eq!(statuses(&said), [408], "{said}");
    assert!(is_about(elapsed, 20 * SECOND), "{elapsed:?}");
    assert_eq!(raw.seen.begun(), 1);
    assert_eq!(raw.seen.running.load(Ordering::SeqCst), 0);
    assert_eq!(
        raw.served().await.expect_err("a limit").kind(),
        ErrorKind::Timeout
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_crawls_is_ended_and_one_that_is_fast_enough_is_not() {
    for (every, ends) in [(1, false), (4, true)] {
        let raw = Raw::with(config(|config| {
            config.set_body_timeout(Some(20 * SECOND));
            config.set_body_rate(10);
        }));
        let (mut reader, mut writer) = tokio::io::split(raw.io);
        writer
            .write_all(post("/", "Content-Length: 2000\r\n", "").as_bytes())
            .await
            .expect("room");
        let crawl = tokio::spawn(async move {
            for _ in 0..100 {
                if writer.write_all(&[b'x'; 20]).await.is_err() {
                    break;
                }
                sleep(every * SECOND).await;
            }
        });
        let mut said = String::new();
        let _ = reader.read_to_string(&mut said).await;
        let expected: &[u16] = if ends { &[408] } else { &[200] };
        assert_eq!(statuses(&said), expected, "every {every} s: {said}");
        drop(reader);
        crawl.await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_long_is_not_the_peers_fault() {
    let mut raw = Raw::with(config(|config| {
        config.set_body_timeout(Some(SECOND));
        config.set_send_timeout(Some(SECOND));
        config.set_idle_timeout(Some(SECOND));
        config.set_header_timeout(SECOND);
    }));
    raw.say(get("/slow")).await;
    let mut head = [0; 15];
    raw.io.read_exact(&mut head).await.expect("a response");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_closed() {
    let mut raw = Raw::with(config(|config| config.set_send_timeout(Some(20 * SECOND))));
    raw.say(get("/long")).await;
    let began = Instant::now();
    let error = (&mut raw.served).await.expect("no panic").expect_err("a limit");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(is_about(began.elapsed(), 20 * SECOND), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_byte_by_byte_is_closed() {
    let mut raw = Raw::with(config(|config| config.set_send_timeout(Some(20 * SECOND))));
    raw.say(get("/long")).await;
    let (mut reader, _writer) = tokio::io::split(raw.io);
    let dribble = tokio::spawn(async move {
        while reader.read_u8().await.is_ok() {
            sleep(SECOND / 2).await;
        }
    });
    let error = raw.served.await.expect("no panic").expect_err("a limit");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    dribble.abort();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_closed_its_half_is_waited_for() {
    let mut raw = Raw::new();
    raw.say(get("/slow")).await;
    raw.io.shutdown().await.expect("our half ends");
    let (said, _) = closed(&mut raw).await;
    assert!(said.ends_with("slow"), "{said}");
    let mut raw = Raw::with(config(|config| config.set_half_close_timeout(20 * SECOND)));
    raw.say(get("/hang")).await;
    raw.io.shutdown().await.expect("our half ends");
    let (said, elapsed) = closed(&mut raw).await;
    assert!(said.is_empty() && is_about(elapsed, 20 * SECOND), "{elapsed:?}");
    assert_eq!(raw.seen.running.load(Ordering::SeqCst), 0);
}

/// Takes nothing but the status of a limit: the moment in which there is room again is that in which it is exceeded.
struct RoomAtTheLimit {
    said: &'static [u8],
    heard: Vec<u8>,
}

impl AsyncRead for RoomAtTheLimit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let said = std::mem::take(&mut self.said);
        into.put_slice(said);
        match said {
            [] => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for RoomAtTheLimit {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        if !octets.starts_with(b"HTTP/1.1 408") {
            return Poll::Pending;
        }
        self.heard.extend_from_slice(octets);
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        assert!(self.heard.is_empty(), "{}", String::from_utf8_lossy(&self.heard));
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn no_status_of_a_limit_is_sent_before_a_100_that_waits() {
    let said = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    let io = RoomAtTheLimit {
        said: said.as_bytes(),
        heard: Vec::new(),
    };
    let seen = Arc::new(Seen::default());
    let handled = Arc::clone(&seen);
    let service = service(move |request| answer(Arc::clone(&handled), request));
    let config = config(|config| {
        config.set_body_timeout(Some(20 * SECOND));
        config.set_send_timeout(Some(100 * SECOND));
    });
    let began = Instant::now();
    let error = serve_connection_auto(io, service, config)
        .await
        .expect_err("a limit");
    assert_eq!((error.kind(), seen.begun()), (ErrorKind::Timeout, 1));
    assert!(is_about(began.elapsed(), 20 * SECOND), "{:?}", began.elapsed());
}
