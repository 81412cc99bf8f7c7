//! pingora's proxy on `crates/h2`, with HTTP/2 on both sides, between hyper and hyper.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::pingora;
use crate::support::{Body, hyper_server, hyper_server_of, pattern, soon};

/// Answers with what was sent, and with its length in the trailers. pingora does not forward the trailers of a request.
async fn measure(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let received = request.into_body().collect().await.unwrap().to_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-length", received.len().into());
    let body = Full::new(received).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::new(body.map_err(|never| match never {}).boxed()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pingora_forwards_between_hyper_and_hyper() {
    let (origin, server) = hyper_server_of(measure).await;
    let (address, proxy) = pingora::proxy(origin).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut tasks = Vec::new();
    for length in [0, 1, 1_000, 65_535, 65_536, 3_000_000] {
        let mut requests = requests.clone();
        tasks.push(tokio::spawn(async move {
            let sent = pattern(length);
            let pieces = (0..length).step_by(10_000);
            let pieces = pieces.map(|at| Frame::data(sent.slice(at..length.min(at + 10_000))));
            let pieces: Vec<_> = pieces.map(Ok::<_, Infallible>).collect();
            let body = StreamBody::new(tokio_stream::iter(pieces));
            let request = Request::post(format!("http://{address}/")).body(body).unwrap();
            let response = requests.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let received = response.into_body().collect().await.unwrap();
            assert_eq!(received.trailers().unwrap()["x-length"], length.to_string());
            assert!(received.to_bytes() == sent, "{length}");
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    proxy.abort();
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_cancelled_before_pingora_leave_room_for_others() {
    let (origin, server) = hyper_server().await;
    let (address, proxy) = pingora::proxy(origin).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let get = |length: usize| {
        let request = Request::get(format!("http://{address}/{length}"));
        request.body(Full::<Bytes>::default()).unwrap()
    };
    for _ in 0..50 {
        let response = soon(requests.send_request(get(2_000_000))).await.unwrap();
        let mut body = response.into_body();
        assert!(soon(body.frame()).await.unwrap().is_ok());
    }
    let response = soon(requests.send_request(get(1_000_000))).await.unwrap();
    let received = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert!(received == pattern(1_000_000));
    proxy.abort();
    server.abort();
}
