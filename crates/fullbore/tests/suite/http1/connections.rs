//! Connections of a listening server: versions, TLS, eviction, graceful shutdown, upgrades.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fullbore::server::ConnectionLimits;
use fullbore::settings::HttpVersions;
use fullbore::tls::{self, Roots};
use fullbore::{ErrorKind, Server, ServerBuilder};
use http_body_util::Full;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;

struct Listening {
    address: SocketAddr,
    seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), Error>>,
}

impl Listening {
    async fn new(builder: ServerBuilder) -> Self {
        let server = builder.bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let server = server.graceful_shutdown(async {
            let _ = stopped.await;
        });
        let seen = Arc::new(Seen::default());
        let service = {
            let seen = Arc::clone(&seen);
            service(move |request| answer(Arc::clone(&seen), request))
        };
        Listening {
            address,
            seen,
            stop: Some(stop),
            served: tokio::spawn(server.serve(service)),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// All that is said to this, until the server closes.
    async fn said(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.expect("it is sent");
        rest(&mut stream).await
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let _ = soon(stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// A request on a connection that stays open: its response has arrived.
async fn used(server: &Listening) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(get("/").as_bytes()).await.expect("it is sent");
    let mut head = [0; 15];
    soon(stream.read_exact(&mut head)).await.expect("a response");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

const CLOSING: &str = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn a_server_speaks_the_versions_that_it_is_told_to() {
    let server = Listening::new(Server::builder()).await;
    assert_eq!(statuses(&server.said(CLOSING).await), [200]);
    let server = Listening::new(Server::builder().http_versions(HttpVersions::Http1)).await;
    assert_eq!(statuses(&server.said(CLOSING).await), [200]);
    assert!(!server.said(PREFACE).await.contains("\0\0"));
    let server = Listening::new(Server::builder().http_versions(HttpVersions::Http2)).await;
    assert!(!server.said(CLOSING).await.starts_with("HTTP/1.1"));
    assert_eq!(server.seen.begun(), 0);
}

/// The timers of a server on sockets are not those of the runtime (`limits` has these, on a virtual clock).
#[tokio::test]
async fn a_server_on_sockets_ends_connections_that_say_nothing_or_are_not_used() {
    let short = Duration::from_millis(20);
    let server = Listening::new(Server::builder().handshake_timeout(short)).await;
    assert!(server.said("").await.is_empty());
    let server = Listening::new(Server::builder().idle_timeout(Some(short))).await;
    assert_eq!(statuses(&server.said(&get("/")).await), [200]);
    let server = Listening::new(Server::builder().header_timeout(short)).await;
    assert_eq!(statuses(&server.said("GET / HTTP/1.1\r\n").await), [408]);
}

/// What a server says over TLS to a client that offers these protocols; the error of the handshake otherwise.
async fn over_tls(
    versions: HttpVersions,
    offered: &[&str],
    text: &str,
) -> Result<(Option<Vec<u8>>, String), String> {
    let signed = tls::self_signed(&["localhost"]).expect("a certificate");
    let (pem, key) = (signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
    let mut config = tls::server_config(pem, key).expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let builder = Server::builder()
        .tls_config(Arc::new(config))
        .http_versions(versions);
    let server = Listening::new(builder).await;
    let mut config = tls::client_config(Roots::Pem(pem.to_vec())).expect("a configuration");
    config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").expect("a name");
    let connected = connector.connect(name, server.connect().await).await;
    let mut stream = connected.map_err(|error| error.to_string())?;
    let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    stream.write_all(text.as_bytes()).await.expect("it is sent");
    let mut said = Vec::new();
    let mut some = [0; 1024];
    while let Ok(count @ 1..) = soon(stream.read(&mut some)).await {
        said.extend_from_slice(&some[..count]);
        if text == PREFACE {
            break;
        }
    }
    Ok((protocol, String::from_utf8_lossy(&said).into_owned()))
}

#[tokio::test]
async fn over_tls_the_handshake_decides_and_without_alpn_the_first_octets() {
    let both = HttpVersions::Both;
    let (protocol, said) = over_tls(both, &["http/1.1"], CLOSING)
        .await
        .expect("a connection");
    assert_eq!(
        (protocol.as_deref(), statuses(&said)),
        (Some(&b"http/1.1"[..]), vec![200])
    );
    let (protocol, said) = over_tls(both, &["http/1.1", "h2"], PREFACE)
        .await
        .expect("a connection");
    assert_eq!(protocol.as_deref(), Some(&b"h2"[..]));
    assert!(said.contains('\x04') && !said.contains("HTTP/1.1"));
    let (protocol, said) = over_tls(both, &[], CLOSING).await.expect("a connection");
    assert_eq!((protocol, statuses(&said)), (None, vec![200]));
    let (_, said) = over_tls(both, &[], PREFACE).await.expect("a connection");
    assert!(said.contains('\x04') && !said.contains("HTTP/1.1"));
    let http1 = HttpVersions::Http1;
    let (protocol, said) = over_tls(http1, &["h2", "http/1.1"], CLOSING)
        .await
        .expect("a connection");
    assert_eq!(
        (protocol.as_deref(), statuses(&said)),
        (Some(&b"http/1.1"[..]), vec![200])
    );
}

#[tokio::test]
async fn a_client_whose_alpn_offers_nothing_of_ours_is_refused_in_the_handshake() {
    for (versions, offered) in [
        (HttpVersions::Both, "spdy/1"),
        (HttpVersions::Http1, "h2"),
        (HttpVersions::Http2, "http/1.1"),
    ] {
        let error = over_tls(versions, &[offered], CLOSING)
            .await
            .expect_err("a refusal");
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
}

#[tokio::test]
async fn an_idle_connection_gives_way_and_one_with_a_request_does_not() {
    let limits = ConnectionLimits::new(2, 100);
    let server = Listening::new(Server::builder().connection_limits(limits.clone())).await;
    let mut busy = server.connect().await;
    busy.write_all(get("/hang").as_bytes()).await.expect("it is sent");
    soon(async {
        while server.seen.running.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut idle = used(&server).await;
    assert_eq!(limits.connections(), 2);
    let _third = used(&server).await;
    // What is left of the response, and the end.
    rest(&mut idle).await;
    assert_eq!(server.seen.running.load(Ordering::SeqCst), 1);
    assert_eq!(limits.connections(), 2);
}

#[tokio::test]
async fn a_graceful_shutdown_closes_idle_connections_and_waits_for_responses() {
    let mut server = Listening::new(Server::builder()).await;
    let mut idle = used(&server).await;
    let mut silent = server.connect().await;
    let mut uploading = server.connect().await;
    uploading
        .write_all(post("/", "Content-Length: 5\r\n", "he").as_bytes())
        .await
        .expect("it is sent");
    soon(async {
        while server.seen.begun() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.stop.take();
    rest(&mut idle).await;
    rest(&mut silent).await;
    uploading.write_all(b"llo").await.expect("it is sent");
    let said = rest(&mut uploading).await;
    assert!(
        said.contains("connection: close\r\n") && said.ends_with("5 and 0"),
        "{said}"
    );
    soon(server.served).await.expect("no panic").expect("in time");
}

#[tokio::test]
async fn a_graceful_shutdown_ends_with_its_limit() {
    let builder = Server::builder().drain_timeout(Duration::from_millis(200));
    let mut server = Listening::new(builder).await;
    let mut hanging = server.connect().await;
    hanging
        .write_all(get("/hang").as_bytes())
        .await
        .expect("it is sent");
    soon(async {
        while server.seen.begun() < 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.stop.take();
    assert!(
        soon(server.served)
            .await
            .expect("no panic")
            .expect_err("a limit")
            .is_timeout()
    );
    assert_eq!(rest(&mut hanging).await, "");
    assert_eq!(server.seen.running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_thousand_idle_connections_are_served() {
    let server = Listening::new(Server::builder()).await;
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.push(used(&server).await);
    }
    for stream in &mut streams {
        stream.write_all(get("/").as_bytes()).await.expect("it is sent");
    }
    soon(async {
        while server.seen.begun() < 2_000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// How much a turn of a connection does: requests that begin, and octets that are written.
async fn turns(config: Config, text: String) -> Vec<(usize, usize)> {
    let (mut near, far) = tokio::io::duplex(256 << 20);
    let seen = Arc::new(Seen::default());
    let service = {
        let seen = Arc::clone(&seen);
        service(move |request| answer(Arc::clone(&seen), request))
    };
    near.write_all(text.as_bytes()).await.expect("room");
    near.shutdown().await.expect("our half ends");
    let mut connection = Box::pin(serve_connection_auto(far, service, config));
    let mut turns = Vec::new();
    soon(poll_fn(|cx| {
        let begun = seen.begun();
        let poll = connection.as_mut().poll(cx);
        let mut some = vec![0; 1 << 20];
        let mut written = 0;
        let mut buffer = tokio::io::ReadBuf::new(&mut some);
        while Pin::new(&mut near).poll_read(cx, &mut buffer).is_ready() && !buffer.filled().is_empty() {
            written += buffer.filled().len();
            buffer.clear();
        }
        turns.push((seen.begun() - begun, written));
        poll
    }))
    .await
    .expect("a clean end");
    turns
}

#[tokio::test]
async fn others_have_their_turn_behind_16_requests_and_half_a_mebibyte() {
    let turns_of = turns(Config::default(), get("/").repeat(200)).await;
    assert_eq!(turns_of.iter().map(|turn| turn.0).sum::<usize>(), 200);
    assert!(turns_of.iter().all(|turn| turn.0 <= 16), "{turns_of:?}");
    let turns_of = turns(Config::default(), get("/long")).await;
    let most = turns_of.iter().map(|turn| turn.1).max();
    assert!(
        most.is_some_and(|most| most <= (512 << 10) + (128 << 10)),
        "{most:?}"
    );
    assert!(turns_of.iter().map(|turn| turn.1).sum::<usize>() > 64 << 20);
}

#[tokio::test]
async fn a_connection_that_must_go_is_answered_with_503() {
    let limits = ConnectionLimits::new(2, 100);
    let server = Listening::new(Server::builder().connection_limits(limits)).await;
    let mut hanging = Vec::new();
    for number in 1..=2 {
        let mut stream = server.connect().await;
        stream
            .write_all(get("/hang").as_bytes())
            .await
            .expect("it is sent");
        soon(async {
            while server.seen.running.load(Ordering::SeqCst) < number {
                tokio::task::yield_now().await;
            }
        })
        .await;
        hanging.push(stream);
    }
    // Somebody else, who has fewer connections.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.2:0".parse().expect("an address"))
        .expect("an address of the loopback");
    let mut other = socket.connect(server.address).await.expect("a connection");
    other.write_all(CLOSING.as_bytes()).await.expect("it is sent");
    assert_eq!(statuses(&rest(&mut other).await), [200]);
    let said = rest(&mut hanging[0]).await;
    assert_eq!(statuses(&said), [503], "{said}");
    assert!(
        said.contains("retry-after: ") && said.contains("connection: close"),
        "{said}"
    );
    assert_eq!(server.seen.running.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_handler_upgrades_the_connection_and_it_counts_until_it_is_closed() {
    let limits = ConnectionLimits::new(10, 100);
    let server = Server::builder()
        .connection_limits(limits.clone())
        .bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = server.local_addr().expect("an address");
    let service = service(|mut request: Request<Incoming>| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let upgraded = upgrade.await.expect("an upgrade");
            let mut io = hyper_util::rt::TokioIo::new(upgraded);
            let (mut reader, mut writer) = tokio::io::split(&mut io);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert("connection", "upgrade".parse().expect("a value"));
        headers.insert("upgrade", "echo".parse().expect("a value"));
        Ok::<_, Infallible>(response)
    });
    tokio::spawn(server.serve(service));
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst";
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut said = Vec::new();
    while !said.ends_with(b"first") {
        said.push(soon(stream.read_u8()).await.expect("an echo"));
    }
    assert!(said.starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
    stream.write_all(b"second").await.expect("it is sent");
    let mut echo = [0; 6];
    soon(stream.read_exact(&mut echo)).await.expect("an echo");
    assert_eq!((&echo, limits.connections()), (b"second", 1));
    drop(stream);
    soon(async {
        while limits.connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A transport that brings a request, takes no octet, and fails when it is told to.
struct Failing {
    request: &'static [u8],
    fails: oneshot::Receiver<()>,
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let request = std::mem::take(&mut self.request);
        if request.is_empty() {
            let _ = ready!(Pin::new(&mut self.fails).poll(cx));
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buffer.put_slice(request);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Failing {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_transport_that_fails_while_a_response_waits_for_room_ends_the_connection() {
    let (fail, fails) = oneshot::channel();
    let seen = Arc::new(Seen::default());
    let handlers = Arc::clone(&seen);
    let service = service(move |request| answer(Arc::clone(&handlers), request));
    let transport = Failing {
        request: b"GET /long HTTP/1.1\r\nhost: one.example\r\n\r\n",
        fails,
    };
    let served = tokio::spawn(serve_connection_auto(transport, service, Config::default()));
    while seen.begun() == 0 {
        tokio::task::yield_now().await;
    }
    fail.send(()).expect("the connection is open");
    let error = soon(served).await.expect("no panic").expect_err("it was reset");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}
