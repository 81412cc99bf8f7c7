//! A proxy on loopback between a client and an origin of each version.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fullbore::settings::HttpVersions;
use fullbore::{BoxError, Client, Incoming, Server};
use fullbore_proxy::{Proxy, ProxyBuilder};
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tower::util::BoxCloneService;

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, BoxError>>;
pub(crate) type Asked = Request<UnsyncBoxBody<Bytes, BoxError>>;

/// Fails the test when `future` hangs.
#[track_caller]
pub(crate) fn soon<F: IntoFuture>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(60), future).await {
            Ok(output) => output,
            Err(_) => panic!("hung at {place}"),
        }
    }
}

/// Something that listens until it is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Site {
    pub(crate) fn of(address: SocketAddr, task: AbortHandle) -> Self {
        Self { address, task }
    }
}

pub(crate) fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

pub(crate) fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, BoxError> {
    boxed(Full::new(text.into()))
}

/// An origin of both versions that answers with `handler`.
pub(crate) async fn origin<H, F>(handler: H) -> Site
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Reply, BoxError>> + Send + 'static,
{
    type Service = BoxCloneService<Request<Incoming>, Reply, BoxError>;
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await.expect("an origin");
    let address = server.local_addr().expect("an address");
    let service: Service = BoxCloneService::new(tower::service_fn(handler));
    let task = tokio::spawn(server.serve(service)).abort_handle();
    Site { address, task }
}

/// An origin that speaks in raw octets: it is called with the number of each connection.
pub(crate) async fn raw_origin<H, F>(handler: H) -> Site
where
    H: Fn(usize, TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an origin");
    let address = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        for number in 0.. {
            let (stream, _) = listener.accept().await.expect("a connection");
            connections.spawn(handler(number, stream));
        }
    });
    Site {
        address,
        task: task.abort_handle(),
    }
}

/// An origin that reads the head of each request, says this and closes.
pub(crate) async fn says(answer: impl Into<Bytes>) -> Site {
    let answer = answer.into();
    raw_origin(move |_, mut stream| {
        let answer = answer.clone();
        async move {
            head(&mut stream).await;
            let _ = stream.write_all(&answer).await;
            // What the request has left would make the close a reset, which loses the answer.
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    })
    .await
}

/// Reads the head of a request.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(octet) => head.push(octet),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

/// What the operator was told.
pub(crate) type Failures = Arc<Mutex<Vec<String>>>;

/// A proxy in front of the origins.
pub(crate) struct Front {
    pub(crate) site: Site,
    pub(crate) failures: Failures,
    pub(crate) proxy: Proxy,
}

impl Front {
    pub(crate) async fn new(builder: ProxyBuilder) -> Self {
        let failures = Failures::default();
        let book = Arc::clone(&failures);
        let proxy = builder.on_failure(move |failure| book.lock().unwrap().push(failure.to_string()));
        let proxy = proxy.build().expect("a proxy");
        let builder = Server::builder()
            .peer_addresses(true)
            .config(|config| config.set_enable_connect_protocol(true));
        let server = builder.bind("127.0.0.1:0").await.expect("a front");
        let address = server.local_addr().expect("an address");
        let task = tokio::spawn(server.serve(proxy.clone())).abort_handle();
        Front {
            site: Site { address, task },
            failures,
            proxy,
        }
    }

    pub(crate) async fn to(origin: &str) -> Self {
        Self::new(Proxy::builder().to(origin)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.site.address)
    }

    /// What the operator was told since the last call.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.failures.lock().unwrap())
    }

    /// Sends octets, and reads until the connection ends.
    pub(crate) async fn raw(&self, octets: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.site.address).await.expect("a connection");
        stream.write_all(octets).await.expect("it is read");
        let mut answer = Vec::new();
        let _ = soon(stream.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

pub(crate) const VERSIONS: [HttpVersions; 2] = [HttpVersions::Http1, HttpVersions::Http2];

/// A client that speaks one version.
pub(crate) fn client(versions: HttpVersions) -> Client {
    let builder = Client::builder().http_versions(versions).max_repeats(0);
    builder.build().expect("a client")
}

/// The URL of an origin in each version.
pub(crate) fn urls(site: &Site) -> [String; 2] {
    ["http", "h2c"].map(|scheme| format!("{scheme}://{}", site.address))
}

pub(crate) async fn text<B>(body: B) -> String
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let bytes = soon(body.collect()).await.expect("a whole body").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A request without a body.
pub(crate) fn get(url: &str) -> Asked {
    Request::get(url).body(full("")).expect("a request")
}

pub(crate) fn post(url: &str, body: impl Into<Bytes>) -> Asked {
    Request::post(url).body(full(body)).expect("a request")
}

/// A body that no other number has: the number, over and over.
pub(crate) fn body(number: usize, bytes: usize) -> Bytes {
    let word = number.to_le_bytes();
    word.iter()
        .copied()
        .cycle()
        .take(bytes)
        .collect::<Vec<_>>()
        .into()
}
