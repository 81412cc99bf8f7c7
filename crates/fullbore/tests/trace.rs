//! What a connection reports to `tracing`, with a peer that sends what the test says. A program of its own, whose tests run
//! one after another: `tracing` remembers for the whole process whether anyone wants an event, and misses a subscriber that
//! comes while another thread reaches the event for the first time.

mod support;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fullbore::server::{serve_connection, serve_connection_auto};
use fullbore::settings::{Limit, PeerLimit};
use fullbore::{BoxError, Incoming};
use http::{Request, Response};
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use support::{Peer, config, frames};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Ends the collection of events, and lets the next test run.
struct Guard {
    _subscriber: DefaultGuard,
    _turn: MutexGuard<'static, ()>,
}

/// What was reported, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

impl Log {
    /// Collects the events of this thread up to `level`, until the guard is dropped.
    fn start(level: Level) -> (Log, Guard) {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(log.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        let guard = Guard {
            _subscriber: tracing::subscriber::set_default(subscriber),
            _turn: turn,
        };
        (log, guard)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Asserts that one line has all of these.
    #[track_caller]
    fn has(&self, parts: &[&str]) {
        let text = self.text();
        let found = text
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line with {parts:?} in\n{text}");
    }
}

type Serving = JoinHandle<Result<(), fullbore::Error>>;

/// A server that answers each request with `body`, and its client.
async fn serve(body: &'static [u8], settings: &[(u16, u32)]) -> (Peer<DuplexStream>, Serving) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let service = tower::service_fn(move |request: Request<Incoming>| async move {
        if request.uri().path() == "/wait" {
            std::future::pending::<()>().await;
        }
        let mut response = Response::new(Full::new(Bytes::from_static(body)));
        if request.method() == http::Method::POST {
            let value = http::HeaderValue::from_static("text");
            response.headers_mut().insert(http::header::CONTENT_LENGTH, value);
        }
        Ok::<_, BoxError>(response)
    });
    let mut config = config();
    config.set_limit(PeerLimit::Pings, Limit::new(3, 1));
    let serving = tokio::spawn(serve_connection(far, service, config));
    let mut client = Peer::client(near, settings).await;
    client.expect(frames::SETTINGS).await;
    (client, serving)
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_failed_tls_handshake_is_reported_with_the_peer_and_the_reason() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let signed = fullbore::tls::self_signed(&["localhost"]).unwrap();
    let tls = fullbore::tls::server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes()).unwrap();
    let server = fullbore::Server::builder().tls_config(Arc::new(tls));
    let server = server.bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let service = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, BoxError>(Response::new(Full::new(Bytes::new())))
    });
    let serving = tokio::spawn(server.serve(service));
    let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let _ = peer.read_to_end(&mut Vec::new()).await;
    serving.abort();
    let from = peer.local_addr().unwrap().to_string();
    log.has(&[
        "DEBUG",
        "fullbore::connection",
        "TLS handshake failed",
        "InvalidContentType",
        &from,
    ]);
}

#[tokio::test(start_paused = true)]
async fn settings_resets_and_goaway_are_reported_with_the_connection_and_the_stream() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let (mut client, serving) = serve(b"", &[(3, 7), (4, 70_000)]).await;
    // GET /wait.
    let get = [0x82, 0x86, 0x04, 5, b'/', b'w', b'a', b'i', b't', 0x41, 1, b'h'];
    client.send(frames::HEADERS, 5, 1, &get).await;
    client.send(frames::PING, 0, 0, &[0; 8]).await;
    client.expect(frames::PING).await;
    client.send(frames::RST_STREAM, 0, 1, &8_u32.to_be_bytes()).await;
    client
        .send(frames::GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0en\nough")
        .await;
    client.rest().await;
    serving.await.unwrap().unwrap();
    log.has(&[
        "DEBUG",
        "connection{id=",
        "role=Server",
        "fullbore::connection",
        "received SETTINGS",
        "max_concurrent_streams=7",
        "initial_window_size=70000",
    ]);
    log.has(&["stream{id=1}", "fullbore::stream", "CANCEL", "by=Peer"]);
    log.has(&[
        "fullbore::connection",
        "received GOAWAY",
        "NO_ERROR",
        r"text=en\nough",
    ]);
    log.has(&["fullbore::connection", "closed"]);
    assert!(!log.text().contains("TRACE"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_response_that_http2_cannot_carry_is_reported_with_the_reason() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let (mut client, serving) = serve(b"", &[]).await;
    // POST.
    client.request(1, true, &[]).await;
    client.expect(frames::RST_STREAM).await;
    drop(client);
    serving.await.unwrap().unwrap();
    log.has(&["DEBUG", "stream{id=1}", "fullbore::stream", "content-length"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_response_waited_for_is_reported() {
    let (log, _guard) = Log::start(Level::TRACE);
    let (mut client, serving) = serve(&[0; 100_000], &[]).await;
    client
        .send(frames::HEADERS, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h'])
        .await;
    // All that the initial windows allow.
    let mut octets = 0;
    while octets < 65_535 {
        octets += client.expect(frames::DATA).await.payload.len();
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    client
        .send(frames::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes())
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    client
        .send(frames::WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes())
        .await;
    while !client.expect(frames::DATA).await.ends_stream() {}
    drop(client);
    serving.await.unwrap().unwrap();
    log.has(&["TRACE", "stream{id=1}", "request", "method=GET", r#"path="/""#]);
    log.has(&["TRACE", "stream{id=1}", "response", "status=200"]);
    log.has(&[
        "DEBUG",
        "fullbore::flow",
        "stalled",
        "sending",
        "StreamWindow",
        "waited=2s",
    ]);
    log.has(&["TRACE", "stream{id=1}", "released"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_connection_is_reported() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let (mut client, serving) = serve(b"", &[]).await;
    client.send(frames::WINDOW_UPDATE, 0, 0, &[0; 4]).await;
    let frames = client.rest().await;
    assert_eq!(frames.last().map(|frame| frame.kind), Some(frames::GOAWAY));
    let error = serving.await.unwrap().expect_err("a protocol error");
    log.has(&["DEBUG", "fullbore::connection", "failed", &error.to_string()]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_the_peer_is_reported_when_it_is_reached() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let (mut client, serving) = serve(b"", &[]).await;
    for _ in 0..5 {
        client.send(frames::PING, 0, 0, &[0; 8]).await;
    }
    client.rest().await;
    serving.await.unwrap().unwrap_err();
    log.has(&["DEBUG", "fullbore::limits", "limit reached", "ENHANCE_YOUR_CALM"]);
}

#[tokio::test(start_paused = true)]
async fn the_graceful_shutdown_of_a_connection_is_reported() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let (near, far) = tokio::io::duplex(64 << 10);
    let (sender, connection) = fullbore::client::handshake(near, config());
    let connection = tokio::spawn(connection);
    let mut peer = Peer::server(far, &[]).await;
    peer.expect(frames::SETTINGS).await;
    let said = "sends GOAWAY: graceful shutdown";
    assert!(!log.text().contains(said), "{}", log.text());
    drop(sender);
    peer.expect(frames::GOAWAY).await;
    drop(peer);
    let _ = connection.await.unwrap();
    log.has(&["DEBUG", "fullbore::connection", "role=Client", said]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reported_below_the_level_that_is_wanted() {
    let (log, _guard) = Log::start(Level::INFO);
    let (mut client, serving) = serve(b"hello", &[]).await;
    client
        .send(frames::HEADERS, 5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h'])
        .await;
    client.expect(frames::DATA).await;
    drop(client);
    serving.await.unwrap().unwrap();
    assert_eq!(log.text(), "");
}

/// What is reported of a connection of HTTP/1.1 whose client says this, and how it ended.
async fn http1(level: Level, said: &str) -> (Log, Result<(), fullbore::Error>) {
    let (log, _guard) = Log::start(level);
    let (mut near, far) = tokio::io::duplex(1 << 10);
    let service = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    });
    let serving = tokio::spawn(serve_connection_auto(far, service, config()));
    near.write_all(said.as_bytes()).await.unwrap();
    near.read_to_end(&mut Vec::new()).await.unwrap();
    drop(near);
    (log, serving.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_request_over_http1_its_response_and_the_end_are_reported() {
    let said = "GET /path HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    let (log, ended) = http1(Level::TRACE, said).await;
    ended.unwrap();
    log.has(&[
        "TRACE",
        "fullbore::stream",
        "request over HTTP/1.1",
        "method=GET",
        r#"path="/path""#,
    ]);
    log.has(&[
        "TRACE",
        "fullbore::stream",
        "response over HTTP/1.1",
        "status=200",
    ]);
    log.has(&["DEBUG", "fullbore::connection", "the HTTP/1.1 connection ended"]);
    assert!(!log.text().contains("fullbore::limits"), "{}", log.text());
    // Without a host.
    let (log, _) = http1(Level::TRACE, "GET / HTTP/1.1\r\n\r\n").await;
    log.has(&[
        "TRACE",
        "fullbore::stream",
        "response over HTTP/1.1",
        "status=400",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_over_http1_is_reported_when_it_is_reached_and_another_error_is_none() {
    for (said, limit) in [
        ("GET / HTTP/1.1\r\n", true),
        ("GET / HTTP/1.1\r\n x\r\n\r\n", false),
    ] {
        let (log, ended) = http1(Level::DEBUG, said).await;
        let error = ended.unwrap_err().to_string();
        log.has(&[
            "DEBUG",
            "fullbore::connection",
            "the HTTP/1.1 connection ended: ",
            &error,
        ]);
        let text = log.text();
        assert_eq!(text.contains("fullbore::limits"), limit, "{text}");
    }
}
