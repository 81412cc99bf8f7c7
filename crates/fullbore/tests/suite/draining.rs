//! The graceful shutdown of a server and peers without a request: what they have begun has `shutdown_grace`, and they are no
//! requests in progress.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore::server::{ConnectionLimits, Listener};
use fullbore::tls::{self_signed, server_config};
use fullbore::{Error, ErrorKind, Server, ServerBuilder};
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::support::{full, service, soon};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3_600);

/// What a peer has said that has no request yet, and whether TLS was expected.
const BEGINNINGS: [(bool, &[u8]); 8] = [
    (true, b""),
    (true, b"\x16"),
    (true, b"\x16\x03\x01\x02\x00\x01"),
    (false, b""),
    (false, b"P"),
    (false, b"PRI * HTTP/2.0\r\n\r\n"),
    (false, b"G"),
    (false, b"GET / HTTP/1.1\r\nHo"),
];

/// A server with one connection, whose peer has said this.
struct Served {
    peer: TcpStream,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), Error>>,
}

async fn serve(tls: bool, said: &[u8], set: impl Fn(ServerBuilder) -> ServerBuilder) -> Served {
    let limits = ConnectionLimits::default();
    let mut builder = set(Server::builder())
        .handshake_timeout(LONG)
        .config(|config| config.set_header_timeout(LONG))
        .connection_limits(limits.clone());
    if tls {
        let signed = self_signed(&["localhost"]).expect("a certificate");
        let config = server_config(signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
        builder = builder.tls_config(Arc::new(config.expect("a configuration")));
    }
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = server.graceful_shutdown(async {
        stopped.await.ok();
    });
    let service = service(|_| async { Ok::<_, Infallible>(Response::new(full("hello"))) });
    let serving = tokio::spawn(server.serve(service));
    let mut peer = TcpStream::connect(address).await.expect("a connection");
    peer.write_all(said).await.expect("room");
    soon(async {
        while limits.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // It is read in one of the next turns.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    Served { peer, stop, serving }
}

#[tokio::test]
async fn peers_without_a_request_end_when_the_grace_is_over() {
    for (tls, said) in BEGINNINGS {
        let set = |builder: ServerBuilder| {
            let builder = builder.drain_timeout(LONG);
            builder.config(|config| config.set_shutdown_grace(SHORT))
        };
        let mut served = serve(tls, said, set).await;
        served.stop.send(()).expect("it is served");
        let ended = soon(served.serving).await.expect("no panic");
        ended.unwrap_or_else(|error| panic!("{tls} {said:?}: {error}"));
        // It has closed the connection; with unread octets that is a reset.
        let mut rest = Vec::new();
        let _ = soon(served.peer.read_to_end(&mut rest)).await;
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{said:?}");
    }
}

#[tokio::test]
async fn peers_without_a_request_are_no_requests_in_progress() {
    for (tls, said) in BEGINNINGS {
        let set = |builder: ServerBuilder| {
            let builder = builder.drain_timeout(SHORT);
            builder.config(|config| config.set_shutdown_grace(LONG))
        };
        let served = serve(tls, said, set).await;
        served.stop.send(()).expect("it is served");
        let ended = soon(served.serving).await.expect("no panic");
        ended.unwrap_or_else(|error| panic!("{tls} {said:?}: {error}"));
    }
}

#[tokio::test]
async fn a_request_whose_head_was_arriving_is_answered() {
    let set = |builder: ServerBuilder| {
        let builder = builder.drain_timeout(LONG);
        builder.config(|config| config.set_shutdown_grace(LONG))
    };
    let mut served = serve(false, b"GET / HTTP/1.1\r\nHo", set).await;
    served.stop.send(()).expect("it is served");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    served.peer.write_all(b"st: h\r\n\r\n").await.expect("room");
    let mut said = String::new();
    soon(served.peer.read_to_string(&mut said)).await.expect("an end");
    assert!(
        said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("hello"),
        "{said}"
    );
    assert!(said.contains("connection: close\r\n"), "{said}");
    drop(served.peer);
    soon(served.serving)
        .await
        .expect("no panic")
        .expect("a clean end");
}

#[tokio::test]
async fn a_request_in_progress_is_reported_when_the_time_is_over() {
    let server = Server::builder().drain_timeout(SHORT).bind("127.0.0.1:0").await;
    let server = server.expect("a port");
    let address = server.local_addr().expect("an address");
    let begun = Arc::new(Notify::new());
    let stop = Arc::clone(&begun);
    let server = server.graceful_shutdown(async move { stop.notified().await });
    let service = service(move |_| {
        begun.notify_one();
        std::future::pending::<Result<Response<String>, Infallible>>()
    });
    let serving = tokio::spawn(server.serve(service));
    let mut peer = TcpStream::connect(address).await.expect("a connection");
    peer.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .await
        .expect("room");
    let error = soon(serving).await.expect("no panic").expect_err("a request");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

/// A listener whose system lacks a resource.
struct Exhausted(Arc<Notify>);

impl Listener for Exhausted {
    type Io = DuplexStream;
    type Address = ();

    fn poll_accept(&mut self, _: &mut Context<'_>) -> Poll<io::Result<(DuplexStream, ())>> {
        self.0.notify_one();
        Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()))
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }

    fn peer((): &()) -> Option<std::net::SocketAddr> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_accept_obeys_its_shutdown_at_once() {
    let failed = Arc::new(Notify::new());
    let stop = Arc::clone(&failed);
    let server = Server::builder().build(Exhausted(failed)).expect("a server");
    let server = server.graceful_shutdown(async move { stop.notified().await });
    let service = service(|_| async { Ok::<_, Infallible>(Response::new(full("hello"))) });
    let begun = tokio::time::Instant::now();
    server.serve(service).await.expect("a clean end");
    assert!(
        begun.elapsed().is_zero(),
        "it has waited for {:?}",
        begun.elapsed()
    );
}
