//! hyper 1, hyper-util, axum and reqwest on `crates/h2`, each against itself, over TCP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::ext::Protocol;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Body, answer, hyper_server, pattern, soon};

/// A body in pieces, with trailers.
fn pieces(whole: &Bytes, trailers: Option<HeaderMap>) -> Body {
    let mut frames: Vec<_> = Vec::new();
    let mut at = 0;
    for size in [1, 1_023, 1_024, 16_384, 100_000].into_iter().cycle() {
        let end = whole.len().min(at + size);
        if at == end {
            break;
        }
        frames.push(Ok(Frame::data(whole.slice(at..end))));
        at = end;
    }
    frames.extend(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
    BodyExt::boxed(StreamBody::new(tokio_stream::iter(frames)))
}

#[tokio::test]
async fn hyper_sends_and_receives_bodies_and_trailers() {
    let (address, server) = hyper_server().await;
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut tasks = Vec::new();
    for length in [0, 1, 1_000, 65_535, 65_536, 5_000_000] {
        let mut requests = requests.clone();
        tasks.push(tokio::spawn(async move {
            let sent = pattern(length);
            let mut trailers = HeaderMap::new();
            trailers.insert("x-length", length.into());
            let body = pieces(&sent, Some(trailers.clone()));
            let request = Request::post(format!("http://{address}/")).body(body).unwrap();
            let response = requests.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let received = response.into_body().collect().await.unwrap();
            assert_eq!(received.trailers(), Some(&trailers), "{length}");
            assert!(received.to_bytes() == sent, "{length}");
            let request =
                Request::get(format!("http://{address}/{length}")).body(pieces(&Bytes::new(), None));
            let response = requests.send_request(request.unwrap()).await.unwrap();
            assert!(
                response.into_body().collect().await.unwrap().to_bytes() == sent,
                "{length}"
            );
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    server.abort();
}

#[tokio::test]
async fn hyper_adapts_its_windows_and_keeps_connections_alive() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .adaptive_window(true)
            .timer(hyper_util::rt::TokioTimer::new())
            .keep_alive_interval(Duration::from_millis(50));
        builder
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .adaptive_window(true)
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(50))
        .keep_alive_while_idle(true);
    let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        let sent = pattern(5_000_000);
        let request = Request::put(format!("http://{address}/"))
            .body(pieces(&sent, None))
            .unwrap();
        let response = soon(requests.send_request(request)).await.unwrap();
        let received = soon(response.into_body().collect()).await.unwrap().to_bytes();
        assert!(received == sent);
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_of_hyper_that_is_dropped_is_cancelled() {
    let (address, server) = hyper_server().await;
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..50 {
        let request = Request::get(format!("http://{address}/2000000")).body(pieces(&Bytes::new(), None));
        let response = soon(requests.send_request(request.unwrap())).await.unwrap();
        let mut body = response.into_body();
        assert!(soon(body.frame()).await.unwrap().is_ok());
    }
    let request = Request::get(format!("http://{address}/1000000")).body(pieces(&Bytes::new(), None));
    let response = soon(requests.send_request(request.unwrap())).await.unwrap();
    let received = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert!(received == pattern(1_000_000));
    server.abort();
}

/// CONNECT, and the extended CONNECT of RFC 8441, become transports of both sides.
#[tokio::test]
async fn hyper_opens_tunnels() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let tunnel = service_fn(|mut request: Request<Incoming>| async move {
            assert_eq!(request.method(), Method::CONNECT);
            let protocol = request.extensions().get::<Protocol>();
            assert_eq!(
                protocol.map(Protocol::as_str),
                request.uri().path().strip_prefix("/")
            );
            tokio::spawn(async move {
                let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
                let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        builder.enable_connect_protocol();
        builder.serve_connection(TokioIo::new(stream), tunnel).await
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    // SETTINGS_ENABLE_CONNECT_PROTOCOL has to arrive before an extended CONNECT may leave.
    let plain = Request::connect("example.com:443");
    let extended =
        Request::connect("http://example.com/websocket").extension(Protocol::from_static("websocket"));
    for request in [plain, extended] {
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let mut response = soon(requests.send_request(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let upgraded = soon(hyper::upgrade::on(&mut response)).await.unwrap();
        let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
        let sent = pattern(1_000_000);
        let writing = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = soon(async { tokio::join!(writing, read.read_to_end(&mut received)) }).await;
        read.unwrap();
        assert!(received == sent);
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn hyper_utils_pool_and_auto_server_speak() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service_fn(answer))
                    .await;
            });
        }
    });
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            let request = Request::get(format!("http://{address}/{}", number * 1_000)).body(Full::default());
            let response = client.request(request.unwrap()).await.unwrap();
            let received = response.into_body().collect().await.unwrap().to_bytes();
            assert!(received == pattern(number * 1_000));
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    server.abort();
}

/// Each version of reqwest with the same program.
macro_rules! axum_serves {
    ($name:ident, $reqwest:ident) => {
        #[tokio::test]
        async fn $name() {
            let (address, stop, server) = axum_server().await;
            let client = $reqwest::Client::builder()
                .http2_prior_knowledge()
                .build()
                .unwrap();
            let response = soon(client.get(format!("http://{address}/hello")).send())
                .await
                .unwrap();
            assert_eq!(response.version(), http::Version::HTTP_2);
            assert_eq!(response.text().await.unwrap(), "hello, world");
            let sent = pattern(1_500_000);
            let response = soon(
                client
                    .post(format!("http://{address}/echo"))
                    .body(sent.clone())
                    .send(),
            )
            .await
            .unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert!(soon(response.bytes()).await.unwrap() == sent);
            // More than axum takes: the rest of the upload is cut off.
            let much = pattern(5_000_000);
            let response = soon(
                client
                    .post(format!("http://{address}/echo"))
                    .body(much)
                    .send(),
            )
            .await
            .unwrap();
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
            drop(client);
            stop.send(()).unwrap();
            soon(server).await.unwrap().unwrap();
        }
    };
}

axum_serves!(axum_serves_reqwest_0_12, reqwest);
axum_serves!(axum_serves_reqwest_0_13, reqwest_0_13);

async fn axum_server() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new()
        .route("/hello", axum::routing::get(|| async { "hello, world" }))
        .route("/echo", axum::routing::post(|body: Bytes| async move { body }));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    (address, stop, server)
}
