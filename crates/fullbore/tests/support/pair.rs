//! A client and a server at the two ends of one transport.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use fullbore::client::{SendRequest, handshake};
use fullbore::server::serve_connection;
use fullbore::settings::WindowSize;
use fullbore::{BoxError, Config, Error, Incoming};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::body::empty;
use super::service::service;

/// What a test's handler answers.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Long enough for the slowest machine: what takes longer hangs.
const HUNG: Duration = Duration::from_secs(60);

/// Fails the test when `future` hangs.
#[track_caller]
pub(crate) fn soon<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(HUNG, future).await {
            Ok(output) => output,
            Err(_) => panic!("hung at {place}"),
        }
    }
}

/// Tries with short limits on time, and with longer ones if that fails: on a busy machine the other side may take longer than a
/// short limit for its part.
pub(crate) async fn patiently<F>(trial: impl Fn(Duration) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    for limit in [Duration::from_millis(300), Duration::from_secs(3)] {
        if tokio::spawn(trial(limit)).await.is_ok() {
            return;
        }
    }
    trial(Duration::from_secs(20)).await;
}

/// Both ends, at work.
pub(crate) struct Pair {
    pub(crate) client: SendRequest,
    pub(crate) client_task: JoinHandle<Result<(), Error>>,
    pub(crate) server_task: JoinHandle<Result<(), Error>>,
}

/// The default settings.
pub(crate) fn config() -> Config {
    Config::default()
}

/// Settings with these receive windows.
pub(crate) fn windows(stream: u32, connection: u32) -> Config {
    let mut config = Config::default();
    config.set_stream_window(WindowSize::new(stream).expect("a window"));
    config.set_connection_window(WindowSize::new(connection).expect("a window"));
    config
}

/// Both ends of a pipe of 64 KiB.
pub(crate) fn pair<H, F>(client: Config, server: Config, handler: H) -> Pair
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Result<Reply, BoxError>> + Send + 'static,
{
    let (near, far) = tokio::io::duplex(64 << 10);
    pair_over((near, client), (far, server), handler)
}

/// Both ends of whatever they are given.
pub(crate) fn pair_over<T, U, H, F>(client: (T, Config), server: (U, Config), handler: H) -> Pair
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    U: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Result<Reply, BoxError>> + Send + 'static,
{
    let server_task = tokio::spawn(serve_connection(server.0, service(handler), server.1));
    let (sender, connection) = handshake(client.0, client.1);
    Pair {
        client: sender,
        client_task: tokio::spawn(connection),
        server_task,
    }
}

impl Pair {
    /// Lets go of the client's handle and waits until both ends have ended, in good order.
    pub(crate) async fn end(self) {
        drop(self.client);
        soon(self.client_task)
            .await
            .expect("no panic")
            .expect("the client ended well");
        soon(self.server_task)
            .await
            .expect("no panic")
            .expect("the server ended well");
    }
}

pub(crate) fn get(path: &str) -> Request<UnsyncBoxBody<Bytes, BoxError>> {
    Request::get(format!("http://test.example{path}"))
        .body(empty())
        .expect("a request")
}

pub(crate) fn post<B>(path: &str, body: B) -> Request<B> {
    Request::post(format!("http://test.example{path}"))
        .body(body)
        .expect("a request")
}

/// The answer to a path that the test does not know.
pub(crate) fn refused() -> Result<Reply, BoxError> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    Ok(response)
}
