//! A server of hyper, and what its bodies hold.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) type Body = http_body_util::combinators::BoxBody<Bytes, hyper::Error>;

pub(crate) fn pattern(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect::<Vec<_>>()
        .into()
}

/// Answers a GET with as many bytes as its path says, and anything else with what was sent, trailers included.
pub(crate) async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if request.method() != Method::GET {
        return Ok(Response::new(request.into_body().boxed()));
    }
    let length = request.uri().path()[1..].parse().unwrap_or(0);
    let body = Full::new(pattern(length)).map_err(|never| match never {});
    Ok(Response::new(body.boxed()))
}

/// A server of hyper that answers with [`answer`]; the task accepts connections until it is aborted.
pub(crate) async fn hyper_server() -> (SocketAddr, JoinHandle<()>) {
    hyper_server_of(answer).await
}

/// The same with another handler.
pub(crate) async fn hyper_server_of<H, F>(handler: H) -> (SocketAddr, JoinHandle<()>)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = handler.clone();
            tokio::spawn(async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let served = builder.serve_connection(TokioIo::new(stream), service_fn(handler));
                let _ = served.await;
            });
        }
    });
    (address, task)
}

pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, future).await.expect("it hangs")
}
