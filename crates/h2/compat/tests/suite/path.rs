//! Transfers of 64 MiB over an emulated path of 1 Gbit/s and 100 ms, with everything at its defaults. To measure, by hand:
//! `cargo test --release --test suite path -- --ignored --nocapture --test-threads=1`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullbore_link::Link;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

const SIZE: usize = 64 << 20;
const TRIP: Duration = Duration::from_millis(100);
const RATE: u64 = 1_000_000_000;

/// Answers a GET with `SIZE` bytes, and anything else when it has ended.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_get = request.method() == http::Method::GET;
    let mut body = request.into_body();
    while body.frame().await.is_some() {}
    static BODY: LazyLock<Bytes> = LazyLock::new(|| vec![7; SIZE].into());
    let body = if is_get { BODY.clone() } else { Bytes::new() };
    Ok(Response::new(Full::new(body)))
}

async fn served() -> (SocketAddr, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let builder = Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    let link = Link::builder().rtt(TRIP).rate(RATE).start(server).unwrap();
    (link.local_addr(), link)
}

/// Says how near a transfer came to what the path allows.
fn say(what: &str, began: Instant) {
    let took = began.elapsed().as_secs_f64();
    let least = TRIP.as_secs_f64() + SIZE as f64 * 8.0 / RATE as f64;
    println!(
        "{what}: {took:.3} s, {:.1} % of what the path allows",
        100.0 * least / took
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn reqwest() {
    for _ in 0..3 {
        for upload in [false, true] {
            let (address, _link) = served().await;
            let client = reqwest::Client::builder()
                .http2_prior_knowledge()
                .build()
                .unwrap();
            let url = format!("http://{address}/");
            let request = match upload {
                false => client.get(url),
                true => client.post(url).body(vec![7; SIZE]),
            };
            let began = Instant::now();
            let mut response = request.send().await.unwrap();
            let mut received = 0;
            while let Some(chunk) = response.chunk().await.unwrap() {
                received += chunk.len();
            }
            assert_eq!(received, if upload { 0 } else { SIZE });
            say(if upload { "reqwest up" } else { "reqwest down" }, began);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn hyper() {
    for _ in 0..3 {
        for upload in [false, true] {
            let (address, _link) = served().await;
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let body = Full::<Bytes>::from(vec![7; if upload { SIZE } else { 0 }]);
            let began = Instant::now();
            let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let method = if upload { "POST" } else { "GET" };
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{address}/"));
            let response = requests.send_request(request.body(body).unwrap()).await.unwrap();
            let (mut body, mut received) = (response.into_body(), 0);
            while let Some(frame) = body.frame().await {
                received += frame.unwrap().into_data().map_or(0, |data| data.len());
            }
            assert_eq!(received, if upload { 0 } else { SIZE });
            say(if upload { "hyper up" } else { "hyper down" }, began);
        }
    }
}
