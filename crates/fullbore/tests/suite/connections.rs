//! Where a server's connections come from, and what its handlers learn of them: listeners of TCP, of Unix sockets and of the
//! test's own, a service for each connection, axum's `ConnectInfo`, and the hook of the builder.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::{ConnectInfo, Extension, Request};
use axum::routing::get;
use fullbore::server::{ConnectionLimits, Listener, PeerAddr};
use fullbore::settings::HttpVersions;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, Error, Incoming, Server, ServerBuilder};
use http::{Response, Uri};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::support::soon;

/// A server until it is stopped.
struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Serving {
    async fn stop(self, client: Client) {
        soon(client.shutdown()).await;
        self.stop.send(()).expect("it runs");
        soon(self.task).await.expect("no panic").expect("it drained");
    }
}

/// A signal for the graceful shutdown, and what sends it.
fn signal() -> (oneshot::Sender<()>, impl Future<Output = ()> + Send + 'static) {
    let (stop, stopped) = oneshot::channel();
    (stop, async {
        stopped.await.ok();
    })
}

async fn text(client: &Client, url: &str) -> String {
    let response = soon(client.get(url)).await.expect("a response");
    assert!(response.status().is_success(), "{}", response.status());
    let bytes = soon(response.into_body().collect())
        .await
        .expect("a body")
        .to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn two_thousand_clients_may_connect_before_one_is_accepted() {
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if most.trim().parse::<u32>().unwrap() < 2_000 {
        return;
    }
    for shared in [false, true] {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = match shared {
            true => Server::builder().bind_shared(address).await,
            false => Server::bind(address).await,
        };
        let server = server.unwrap();
        let address = server.local_addr().unwrap();
        for _ in 0..2_000 {
            let limit = std::time::Duration::from_secs(30);
            // A SYN beyond the backlog has no answer until one is accepted.
            std::net::TcpStream::connect_timeout(&address, limit).unwrap();
        }
    }
}

/// Both versions of HTTP, in cleartext and over TLS.
fn clients(certificate: &str) -> Vec<(&'static str, Client)> {
    let tls = || Arc::new(client_config(Roots::Pem(certificate.into())).unwrap());
    vec![
        ("http", Client::new()),
        ("https", Client::builder().tls_config(tls()).build().unwrap()),
    ]
}

#[tokio::test]
async fn handlers_of_axum_get_the_peers_address_by_connect_info() {
    let made = self_signed(&["127.0.0.1"]).unwrap();
    for (scheme, client) in clients(&made.cert_pem) {
        let handler = |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request| async move {
            assert_eq!(request.extensions().get(), Some(&PeerAddr(peer)));
            peer.to_string()
        };
        let app = Router::new().route("/", get(handler));
        let mut builder = Server::builder().peer_addresses(true);
        if scheme == "https" {
            let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
            builder = builder.tls_config(Arc::new(tls));
        }
        let server = builder.bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}/", server.local_addr().unwrap());
        let (stop, stopped) = signal();
        let make = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(server.graceful_shutdown(stopped).serve_make_service(make));
        let peer = text(&client, &url).await;
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        assert_eq!(text(&client, &url).await, peer, "one connection");
        Serving { stop, task }.stop(client).await;
    }
}

/// What the hook of a test adds.
#[derive(Clone, Debug, PartialEq)]
struct Noted {
    local: Option<SocketAddr>,
    protocol: Option<Vec<u8>>,
    transport: Option<SocketAddr>,
}

#[tokio::test]
async fn a_hook_is_called_once_for_each_connection_and_adds_to_all_its_requests() {
    let made = self_signed(&["127.0.0.1"]).unwrap();
    for (scheme, client) in clients(&made.cert_pem) {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let mut builder = Server::builder().on_connect(move |connection, extensions| {
            count.fetch_add(1, Ordering::SeqCst);
            let protocol = connection.tls().and_then(|tls| tls.alpn_protocol());
            extensions.insert(Noted {
                local: connection.local_addr(),
                protocol: protocol.map(<[u8]>::to_vec),
                transport: connection
                    .io::<tokio::net::TcpStream>()
                    .and_then(|io| io.local_addr().ok()),
            });
            if let Some(peer) = connection.peer_addr() {
                extensions.insert(ConnectInfo(peer));
            }
        });
        if scheme == "https" {
            let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
            builder = builder.tls_config(Arc::new(tls));
        }
        let server = builder.bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let expected = Noted {
            local: Some(address),
            protocol: (scheme == "https").then(|| b"h2".to_vec()),
            transport: Some(address),
        };
        let handler = move |ConnectInfo(peer): ConnectInfo<SocketAddr>,
                            Extension(noted): Extension<Noted>| {
            let expected = expected.clone();
            async move {
                assert_eq!(noted, expected);
                peer.to_string()
            }
        };
        let (stop, stopped) = signal();
        let app = Router::new().route("/", get(handler));
        let task = tokio::spawn(server.graceful_shutdown(stopped).serve(app));
        let url = format!("{scheme}://{address}/");
        let peer = text(&client, &url).await;
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        assert_eq!(text(&client, &url).await, peer);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        Serving { stop, task }.stop(client).await;
    }
}

#[tokio::test]
async fn each_connection_has_a_service_of_its_own_and_one_that_cannot_be_made_is_closed() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let make = tower::service_fn(move |_: SocketAddr| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            tokio::task::yield_now().await;
            let answer = tower::service_fn(move |_: http::Request<Incoming>| async move {
                Ok::<_, Error>(Response::new(number.to_string()))
            });
            match number {
                2 => Err(io::Error::other("no service for the second")),
                _ => Ok(answer),
            }
        }
    });
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let (stop, stopped) = signal();
    let task = tokio::spawn(server.graceful_shutdown(stopped).serve_make_service(make));
    // A client of both versions would try HTTP/1.1 when its connection is closed.
    let builder = || Client::builder().http_versions(HttpVersions::Http2);
    let client = || builder().max_repeats(0).build().unwrap();
    let (first, second, third) = (client(), client(), client());
    assert_eq!(text(&first, &url).await, "1");
    assert_eq!(text(&first, &url).await, "1");
    soon(second.get(&url)).await.expect_err("no service");
    assert_eq!(text(&third, &url).await, "3");
    soon(first.shutdown()).await;
    Serving { stop, task }.stop(third).await;
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A Unix socket in a folder of its own.
    struct Socket(std::path::PathBuf);

    impl Socket {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("fullbore-{name}-{}", std::process::id()));
            // Of an earlier process of this number.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Socket(folder)
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.join("socket")
        }

        fn server(&self, builder: ServerBuilder) -> Server<tokio::net::UnixListener> {
            builder
                .build(tokio::net::UnixListener::bind(self.path()).unwrap())
                .unwrap()
        }

        fn client(&self) -> Client {
            let path = self.path();
            let connect = tower::service_fn(move |_: Uri| tokio::net::UnixStream::connect(path.clone()));
            Client::builder().connector(connect).build().unwrap()
        }
    }

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[tokio::test]
    async fn a_unix_socket_is_served_as_tcp_is_but_for_addresses() {
        let socket = Socket::new("unix-server");
        let path = socket.path();
        let server = socket.server(Server::builder().peer_addresses(true).on_connect(
            move |connection, extensions| {
                assert_eq!((connection.peer_addr(), connection.local_addr()), (None, None));
                let io = connection.io::<tokio::net::UnixStream>().unwrap();
                assert!(connection.io::<tokio::net::TcpStream>().is_none());
                let owner = std::fs::metadata(&path).unwrap().uid();
                assert_eq!(io.peer_cred().unwrap().uid(), owner);
                extensions.insert("hooked");
            },
        ));
        let address = server.local_addr().unwrap();
        assert_eq!(address.as_pathname(), Some(&*socket.path()));
        let handler = |Extension(hooked): Extension<&'static str>, request: Request| async move {
            assert_eq!(request.extensions().get::<PeerAddr>(), None);
            hooked
        };
        let (stop, stopped) = signal();
        let app = Router::new().route("/", get(handler));
        let task = tokio::spawn(server.graceful_shutdown(stopped).serve(app));
        let client = socket.client();
        assert_eq!(text(&client, "http://app/").await, "hooked");
        Serving { stop, task }.stop(client).await;
    }

    #[tokio::test]
    async fn limits_count_all_peers_of_unix_sockets_as_one_address() {
        let socket = Socket::new("unix-limits");
        let limits = ConnectionLimits::new(1, 100);
        let server = socket.server(Server::builder().connection_limits(limits.clone()));
        let (stop, stopped) = signal();
        let app = Router::new().route("/", get(|| async { "served" }));
        let task = tokio::spawn(server.graceful_shutdown(stopped).serve(app));
        let mut idle = tokio::net::UnixStream::connect(socket.path()).await.unwrap();
        soon(async {
            while limits.connections() == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let client = socket.client();
        assert_eq!(text(&client, "http://app/").await, "served");
        // The idle one made room.
        let mut rest = Vec::new();
        let _ = soon(idle.read_to_end(&mut rest)).await;
        assert_eq!(limits.connections(), 1);
        Serving { stop, task }.stop(client).await;
    }
}

/// A listener in memory, whose addresses are names.
struct Named(mpsc::UnboundedReceiver<io::Result<(DuplexStream, String)>>);

impl Listener for Named {
    type Io = DuplexStream;
    type Address = String;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(DuplexStream, String)>> {
        self.0.poll_recv(cx).map(|next| next.expect("the test goes on"))
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok("memory".to_owned())
    }

    fn peer(_: &String) -> Option<SocketAddr> {
        None
    }
}

#[tokio::test]
async fn a_listener_of_the_callers_is_served_and_outlives_errors_of_accepting() {
    let (connections, listener) = mpsc::unbounded_channel();
    let server = Server::builder().build(Named(listener)).unwrap();
    assert_eq!(server.local_addr().unwrap(), "memory");
    let make = tower::service_fn(|name: String| async move {
        let app = Router::new().route("/", get(move || async move { format!("hello {name}") }));
        Ok::<_, std::convert::Infallible>(app)
    });
    let (stop, stopped) = signal();
    let task = tokio::spawn(server.graceful_shutdown(stopped).serve_make_service(make));
    let dialed = Arc::new(Mutex::new(0));
    let accepted = connections.clone();
    let connect = tower::service_fn(move |_: Uri| {
        let mut dialed = dialed.lock().unwrap();
        *dialed += 1;
        let (near, far) = tokio::io::duplex(64 << 10);
        accepted
            .send(Err(io::ErrorKind::ConnectionAborted.into()))
            .expect("it accepts");
        accepted
            .send(Ok((far, format!("number {dialed}"))))
            .expect("it accepts");
        std::future::ready(Ok::<_, io::Error>(near))
    });
    let client = Client::builder().connector(connect).build().unwrap();
    assert_eq!(text(&client, "http://one/").await, "hello number 1");
    assert_eq!(text(&client, "http://two/").await, "hello number 2");
    Serving { stop, task }.stop(client).await;
}

/// A listener that keeps another descriptor of what it accepts.
#[cfg(unix)]
struct Watched(tokio::net::TcpListener, Arc<Mutex<Vec<std::os::fd::OwnedFd>>>);

#[cfg(unix)]
impl Listener for Watched {
    type Io = tokio::net::TcpStream;
    type Address = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Io, SocketAddr)>> {
        use std::os::fd::AsFd;

        let accepted = std::task::ready!(self.0.poll_accept(cx))?;
        let kept = accepted.0.as_fd().try_clone_to_owned()?;
        self.1.lock().unwrap().push(kept);
        Poll::Ready(Ok(accepted))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn peer(address: &SocketAddr) -> Option<SocketAddr> {
        Some(*address)
    }

    fn tcp(io: &Self::Io) -> Option<&tokio::net::TcpStream> {
        Some(io)
    }
}

#[cfg(unix)]
#[tokio::test]
async fn sockets_have_the_options_of_the_server() {
    for (versions, probed) in [(HttpVersions::Http2, false), (HttpVersions::Http1, true)] {
        let sockets = Arc::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let buffers = fullbore::settings::TcpBuffers {
            unsent: Some(123 << 10),
            ..Default::default()
        };
        let builder = Server::builder().tcp_buffers(buffers);
        #[cfg(target_os = "linux")]
        let builder = builder.congestion_control("reno");
        let server = builder.build(Watched(listener, Arc::clone(&sockets))).unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let (stop, stopped) = signal();
        let app = Router::new().route("/", get(|| async { "hello" }));
        let task = tokio::spawn(server.graceful_shutdown(stopped).serve(app));
        let client = Client::builder().http_versions(versions).build().unwrap();
        assert_eq!(text(&client, &url).await, "hello");
        let socket = sockets.lock().unwrap().pop().expect("one connection");
        let socket = socket2::SockRef::from(&socket);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.keepalive().unwrap(), probed);
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), 123 << 10);
            assert!(socket.tcp_congestion().unwrap().starts_with(b"reno\0"));
        }
        Serving { stop, task }.stop(client).await;
    }
}

#[tokio::test]
async fn each_connection_is_reported_once_it_has_ended() {
    let (told, mut ends) = mpsc::unbounded_channel();
    let builder = Server::builder().on_end(move |end| {
        let stalls = end.report.map(|report| report.stats.sent_data_bytes);
        let addressed = end.peer_addr.is_some_and(|peer| peer.ip().is_loopback());
        let _ = told.send((
            end.version,
            end.received_bytes > 0,
            end.sent_bytes > 0,
            stalls,
            addressed,
            end.evicted,
        ));
    });
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let (stop, stopped) = signal();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let serving = Serving {
        stop,
        task: tokio::spawn(server.graceful_shutdown(stopped).serve(app)),
    };
    for (versions, version, data) in [
        (HttpVersions::Http2, http::Version::HTTP_2, Some(5)),
        (HttpVersions::Http1, http::Version::HTTP_11, None),
    ] {
        let client = Client::builder().http_versions(versions).build().unwrap();
        assert_eq!(text(&client, &format!("http://{address}/")).await, "hello");
        assert!(ends.try_recv().is_err());
        soon(client.shutdown()).await;
        let end = soon(ends.recv()).await.expect("a report");
        assert_eq!(end, (Some(version), true, true, data, true, false));
    }
    // One that says nothing.
    drop(tokio::net::TcpStream::connect(address).await.unwrap());
    let end = soon(ends.recv()).await.expect("a report");
    assert_eq!(end, (None, false, false, None, true, false));
    serving.stop(Client::new()).await;
}
