//! The client under tower: the middleware of tower and of tower-http's client side, over connections that exist.

use std::future::{Ready, ready};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use fullbore::client::SendRequest;
use fullbore::{BoxError, Client, Config, Error, ErrorKind, Incoming, Server};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tower::retry::Policy;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_http::auth::AddAuthorizationLayer;
use tower_http::decompression::DecompressionLayer;
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http::trace::TraceLayer;

use crate::support::{Chunks, empty, pair, soon, take};

/// A server on loopback, until it is stopped.
struct Site {
    origin: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), Error>>,
}

impl Site {
    async fn start(app: Router) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", server.local_addr().expect("an address"));
        let server = server.graceful_shutdown(async {
            stopped.await.ok();
        });
        Site {
            origin,
            stop,
            serving: tokio::spawn(server.serve(app)),
        }
    }

    fn get(&self, path: &str) -> Request<Full<Bytes>> {
        let request = Request::get(format!("{}{path}", self.origin));
        request.body(Full::default()).expect("a request")
    }

    async fn stop(self, client: Client) {
        soon(client.shutdown()).await;
        self.stop.send(()).expect("it runs");
        soon(self.serving).await.expect("no panic").expect("it drained");
    }
}

async fn text<B>(body: B) -> String
where
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let bytes = soon(body.collect()).await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A service whose future and errors are as tower's callers expect them.
fn is_a_client<S, B>(_: &S)
where
    S: Service<Request<B>, Response = Response<Incoming>, Error = Error> + Clone + Send + 'static,
    S::Future: Send + Unpin + std::fmt::Debug + 'static,
{
}

#[tokio::test]
async fn a_client_and_a_connection_are_services_for_every_body_of_bytes() {
    let site = Site::start(Router::new().route("/", post(|body: Bytes| async move { body }))).await;
    let client = Client::new();
    is_a_client::<_, String>(&client);
    is_a_client::<_, axum::body::Body>(&client);
    is_a_client::<_, Chunks>(&&*Box::leak(Box::new(client.clone())));
    let request = || Request::post(&site.origin);
    let whole = request().body("whole".to_owned()).unwrap();
    let response = soon(client.clone().oneshot(whole)).await.expect("a response");
    assert_eq!(text(response.into_body()).await, "whole");
    let request = request().body(Chunks::new(100_000, 7_000)).unwrap();
    let response = soon((&client).oneshot(request)).await.expect("a response");
    assert_eq!(
        soon(take(response.into_body())).await.expect("a body").bytes,
        100_000
    );
    assert_eq!(client.connections(&site.origin), 1);
    site.stop(client).await;
}

#[tokio::test]
async fn a_request_that_is_called_and_dropped_is_canceled() {
    let entered = Arc::new(Notify::new());
    let (left, mut dropped) = mpsc::unbounded_channel();
    let waits = Arc::clone(&entered);
    let handler = move || {
        let (waits, left) = (Arc::clone(&waits), left.clone());
        async move {
            let _left = Leaving(left);
            waits.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let site = Site::start(Router::new().route("/", get(handler))).await;
    let mut client = Client::new();
    let response = tokio::spawn(client.call(site.get("/")));
    soon(entered.notified()).await;
    response.abort();
    soon(dropped.recv()).await.expect("the handler was dropped");
    site.stop(client).await;
}

/// Says when it is dropped.
struct Leaving(mpsc::UnboundedSender<()>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_connection_is_ready_until_it_closes_and_says_so_afterwards() {
    let pair = pair(Config::default(), Config::default(), |_| async {
        Ok(Response::new(empty()))
    });
    let mut connection = pair.client.clone();
    let request = || Request::get("http://test.example/").body(String::new()).unwrap();
    let ready = ServiceExt::<Request<String>>::ready(&mut connection);
    let response = soon(ready.await.expect("ready").call(request())).await;
    assert_eq!(response.expect("a response").status(), StatusCode::OK);
    pair.client.shutdown();
    let closed = ServiceExt::<Request<String>>::ready(&mut connection).await;
    assert_eq!(closed.err().map(|error| error.kind()), Some(ErrorKind::Closed));
    let refused = soon(connection.call(request())).await.expect_err("it closes");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    drop(connection);
    pair.end().await;
}

#[tokio::test]
async fn tower_reconnects_when_a_connection_takes_no_more_requests() {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let connections = Arc::clone(&opened);
    let connect = tower::service_fn(move |()| {
        let pair = pair(Config::default(), Config::default(), |_| async {
            Ok(Response::new(empty()))
        });
        connections.lock().unwrap().push(pair.client.clone());
        ready(Ok::<SendRequest, BoxError>(pair.client))
    });
    let mut service = tower::reconnect::Reconnect::new(connect, ());
    for round in 1..=3 {
        let ready = ServiceExt::<Request<String>>::ready(&mut service);
        let request = Request::get("http://test.example/").body(String::new()).unwrap();
        let response = soon(soon(ready).await.expect("ready").call(request)).await;
        assert_eq!(response.expect("a response").status(), StatusCode::OK);
        let opened = opened.lock().unwrap();
        assert_eq!(opened.len(), round);
        opened[round - 1].shutdown();
    }
}

#[tokio::test]
async fn a_timeout_of_tower_cancels_the_request() {
    let app = Router::new()
        .route("/silent", get(std::future::pending::<()>))
        .route("/", get(|| async { "answered" }));
    let site = Site::start(app).await;
    let client = Client::new();
    let service = ServiceBuilder::new()
        .timeout(Duration::from_millis(50))
        .service(client.clone());
    let error = soon(service.clone().oneshot(site.get("/silent"))).await;
    let error = error.expect_err("no answer");
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    // The stream goes with the future.
    soon(async {
        while client.stats()[0].in_flight > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let response = soon(client.clone().oneshot(site.get("/")))
        .await
        .expect("a response");
    assert_eq!(text(response.into_body()).await, "answered");
    site.stop(client).await;
}

#[tokio::test]
async fn a_concurrency_limit_bounds_the_requests_that_the_server_sees() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, highest) = (Arc::clone(&now), Arc::clone(&most));
    let handler = move || {
        let (inside, highest) = (Arc::clone(&inside), Arc::clone(&highest));
        async move {
            highest.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let site = Site::start(Router::new().route("/", get(handler))).await;
    let client = Client::new();
    let service = ServiceBuilder::new().concurrency_limit(3).service(client.clone());
    let requests: Vec<_> = (0..50)
        .map(|_| tokio::spawn(service.clone().oneshot(site.get("/"))))
        .collect();
    for request in requests {
        soon(request).await.expect("no panic").expect("a response");
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    site.stop(client).await;
}

/// Repeats requests that were answered with 503.
#[derive(Clone)]
struct Again(usize);

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Request<B>, result: &mut Result<Response<R>, E>) -> Option<Ready<()>> {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let repeats = result
            .as_ref()
            .is_ok_and(|response| response.status() == unavailable);
        self.0 = self.0.checked_sub(usize::from(repeats))?;
        repeats.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_policy_of_tower_repeats_requests_with_their_bodies() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let handler = move |body: String| {
        let asked = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match asked {
                0 | 1 => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
                _ => (StatusCode::OK, body),
            }
        }
    };
    let site = Site::start(Router::new().route("/", post(handler))).await;
    let client = Client::new();
    let service = ServiceBuilder::new().retry(Again(3)).service(client.clone());
    let request = Request::post(&site.origin)
        .body(Full::<Bytes>::from("again"))
        .unwrap();
    let response = soon(service.clone().oneshot(request)).await;
    assert_eq!(text(response.expect("a response").into_body()).await, "again");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    site.stop(client).await;
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

/// Redirects to content that is compressed and wants a password.
fn site_of_layers() -> Router {
    let secret = |headers: HeaderMap| async move {
        if headers
            .get(header::AUTHORIZATION)
            .is_none_or(|value| value != "Bearer token")
        {
            return Err(StatusCode::UNAUTHORIZED);
        }
        let accepted = headers.get(header::ACCEPT_ENCODING);
        let accepted = accepted.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !accepted.split(',').any(|coding| coding == "gzip") {
            return Err(StatusCode::NOT_ACCEPTABLE);
        }
        Ok((
            [(header::CONTENT_ENCODING, "gzip")],
            gzip(&"content ".repeat(10_000)),
        ))
    };
    let moved = || async { (StatusCode::FOUND, [(header::LOCATION, "/secret")]) };
    Router::new()
        .route("/moved", get(moved))
        .route("/secret", get(secret))
}

#[tokio::test]
async fn the_client_layers_of_tower_http_redirect_decompress_authorize_and_trace() {
    let site = Site::start(site_of_layers()).await;
    let client = Client::new();
    let traced = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&traced);
    let trace = TraceLayer::new_for_http().on_response(move |_: &Response<_>, _: Duration, _: &_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let service = ServiceBuilder::new()
        .layer(FollowRedirectLayer::new())
        .layer(trace)
        .layer(AddAuthorizationLayer::bearer("token"))
        .layer(DecompressionLayer::new())
        .service(client.clone());
    let response = soon(service.clone().oneshot(site.get("/moved"))).await;
    let response = response.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response.into_body()).await, "content ".repeat(10_000));
    assert_eq!(traced.load(Ordering::SeqCst), 2, "the redirect and its target");
    // Without the layers, the server's answers are as they are.
    for (path, status) in [
        ("/moved", StatusCode::FOUND),
        ("/secret", StatusCode::UNAUTHORIZED),
    ] {
        let response = soon(client.clone().oneshot(site.get(path))).await;
        assert_eq!(response.expect("a response").status(), status);
    }
    site.stop(client).await;
}
