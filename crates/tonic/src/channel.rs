//! The channel: calls to one origin, on the connections of a client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore::settings::HttpVersions;
use fullbore::{Client, ClientBuilder, Incoming};
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::deadline::{self, Deadline};
use crate::request::Messages;
use crate::response::{self, ResponseBody};
use crate::status;

/// The name of this library in `user-agent`, in the form that gRPC asks for.
const USER_AGENT: &str = concat!("grpc-rust-fullbore/", env!("CARGO_PKG_VERSION"));

/// Calls to one origin, for the clients that tonic generates. Cheap to clone; clones share the connections.
///
/// The channel connects when the first call needs it, and again whenever a connection has ended. It speaks HTTP/2 only.
/// The server's refusal to process a unary call (REFUSED_STREAM, or a GOAWAY that leaves it out) is no error: the channel
/// sends the call again, up to [`ClientBuilder::max_repeats`] times.
///
/// Every error is a [`Status`], with the codes of the tables of gRPC. The guide lists them:
/// [docs/guide/grpc.md](https://github.com/fullbore/fullbore/blob/main/docs/guide/grpc.md).
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    scheme: Scheme,
    authority: Authority,
    user_agent: HeaderValue,
    timeout: Option<Duration>,
    /// The places for calls in progress, if there is a limit.
    places: Option<Arc<Semaphore>>,
}

/// The settings of a [`Channel`].
#[must_use]
#[derive(Debug)]
pub struct ChannelBuilder {
    origin: Result<Uri, InvalidUri>,
    client: ClientBuilder,
    user_agent: Option<HeaderValue>,
    timeout: Option<Duration>,
    concurrency_limit: Option<usize>,
}

impl Channel {
    /// Begins a channel to an origin, such as `https://example.com` or `http://127.0.0.1:50051`. An invalid origin is
    /// an error of [`ChannelBuilder::connect`].
    pub fn from_static(origin: &'static str) -> ChannelBuilder {
        ChannelBuilder::of(origin.parse())
    }

    /// Begins a channel to an origin that is a text or bytes.
    ///
    /// # Errors
    /// It is no URL.
    ///
    /// ```no_run
    /// # async fn run(address: String) -> Result<(), Box<dyn std::error::Error>> {
    /// let channel = fullbore_tonic::Channel::from_shared(address)?.connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_shared(origin: impl Into<Bytes>) -> Result<ChannelBuilder, InvalidUri> {
        let origin = Uri::from_maybe_shared(origin.into())?;
        Ok(ChannelBuilder::of(Ok(origin)))
    }

    /// Begins a channel to an origin.
    pub fn builder(origin: Uri) -> ChannelBuilder {
        ChannelBuilder::of(Ok(origin))
    }

    /// The client under the channel: use it for statistics of the connections and for [`Client::shutdown`].
    pub fn client(&self) -> &Client {
        &self.shared.client
    }
}

impl ChannelBuilder {
    fn of(origin: Result<Uri, InvalidUri>) -> Self {
        ChannelBuilder {
            origin,
            client: Client::builder(),
            user_agent: None,
            timeout: None,
            concurrency_limit: None,
        }
    }

    /// Changes the settings of the client: TLS, the time to connect, keep-alive, windows, connections.
    ///
    /// ```
    /// # fn main() -> Result<(), tonic::Status> {
    /// use std::time::Duration;
    /// use fullbore::settings::KeepAlive;
    /// use fullbore_tonic::Channel;
    ///
    /// let channel = Channel::from_static("http://127.0.0.1:50051")
    ///     .client(|client| client.connect_timeout(Duration::from_secs(5)))
    ///     .client(|client| client.keep_alive(KeepAlive::WithStreams(Duration::from_secs(20))))
    ///     .connect_lazy()?;
    /// # drop(channel); Ok(()) }
    /// ```
    pub fn client(mut self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        self.client = change(self.client);
        self
    }

    /// Limits the time of each call, from its beginning to its last message. The server is told (`grpc-timeout`). A call
    /// may have a shorter limit of its own (`tonic::Request::set_timeout`). Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Limits the calls in progress, each until its last message. Further calls wait; the wait counts toward their
    /// deadline. At least 1. Default: no limit but the server's.
    pub fn concurrency_limit(mut self, calls: usize) -> Self {
        self.concurrency_limit = Some(calls);
        self
    }

    /// Sets the name of the application. It precedes this library's in the field `user-agent`.
    pub fn user_agent(mut self, name: HeaderValue) -> Self {
        self.user_agent = Some(name);
        self
    }

    /// Makes the channel. It connects when the first call needs it. A call that cannot connect fails at once with
    /// [`UNAVAILABLE`](tonic::Code::Unavailable), and a later call tries again.
    ///
    /// # Errors
    /// [`INVALID_ARGUMENT`](tonic::Code::InvalidArgument): the origin is invalid, or a setting is out of range.
    pub fn connect_lazy(self) -> Result<Channel, Status> {
        let (scheme, authority) = origin(self.origin)?;
        if self.concurrency_limit == Some(0) {
            return Err(Status::invalid_argument(
                "with a limit of 0 no call can begin; give concurrency_limit at least 1",
            ));
        }
        let client = self.client.http_versions(HttpVersions::Http2).build();
        let client = client.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let user_agent = match self.user_agent {
            Some(name) => joined(&name, USER_AGENT.as_bytes()),
            None => HeaderValue::from_static(USER_AGENT),
        };
        let places = |calls: usize| Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS)));
        Ok(Channel {
            shared: Arc::new(Shared {
                client,
                scheme,
                authority,
                user_agent,
                timeout: self.timeout,
                places: self.concurrency_limit.map(places),
            }),
        })
    }

    /// Makes the channel, and connects.
    ///
    /// # Errors
    /// [`UNAVAILABLE`](tonic::Code::Unavailable): no connection can be made. Also as [`Self::connect_lazy`].
    pub async fn connect(self) -> Result<Channel, Status> {
        let channel = self.connect_lazy()?;
        let shared = &channel.shared;
        let url = format!("{}://{}", shared.scheme, shared.authority);
        let connected = shared.client.connect(&url).await;
        connected.map_err(status::of_error)?;
        Ok(channel)
    }
}

/// The scheme and the authority of an origin.
fn origin(uri: Result<Uri, InvalidUri>) -> Result<(Scheme, Authority), Status> {
    let invalid = |text: &str| {
        let example = "use one like http://127.0.0.1:50051";
        Status::invalid_argument(format!("the origin of the channel {text}; {example}"))
    };
    let uri = uri
        .map_err(|error| invalid(&format!("is not a URL ({error})")))?
        .into_parts();
    let is_root = |path: &PathAndQuery| path == "/";
    if !uri.path_and_query.as_ref().is_none_or(is_root) {
        return Err(invalid("has a path, which the calls have themselves"));
    }
    let known = |scheme: &Scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
    match (uri.scheme.filter(known), uri.authority) {
        (Some(scheme), Some(authority)) => Ok((scheme, authority)),
        (None, _) => Err(invalid("is neither http:// nor https://")),
        (_, None) => Err(invalid("has no host")),
    }
}

/// Two products in `user-agent`.
fn joined(name: &HeaderValue, next: &[u8]) -> HeaderValue {
    let both = [name.as_bytes(), b" ", next].concat();
    // What two values are made of is a value.
    HeaderValue::from_bytes(&both).unwrap_or_else(|_| name.clone())
}

impl Service<Request<Body>> for Channel {
    type Response = Response<ResponseBody>;
    type Error = Status;
    type Future = ResponseFuture;

    /// Always ready: a call that has to wait does so in its future, where its deadline counts.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> ResponseFuture {
        if let Some(timeout) = self.shared.timeout {
            deadline::limit(request.headers_mut(), timeout);
        }
        ResponseFuture {
            deadline: Deadline::of(request.headers()),
            exchange: Some(Box::pin(Arc::clone(&self.shared).exchange(request))),
        }
    }
}

impl Shared {
    /// Sends a request, and waits for the head of the response.
    async fn exchange(self: Arc<Self>, request: Request<Body>) -> Result<Answer, Status> {
        let permit = match &self.places {
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        };
        let (mut head, body) = request.into_parts();
        head.uri = self.address(head.uri)?;
        self.name(&mut head.headers);
        let answered = match Messages::of(body).await? {
            Messages::Whole(body) => {
                let request = Request::from_parts(head, body);
                self.client.request_repeatable(request).await
            }
            Messages::Stream(body) => self.client.request(Request::from_parts(head, body)).await,
        };
        let mut response = answered.map_err(status::of_error)?;
        response::check(&mut response)?;
        Ok((response, permit))
    }

    /// The absolute form of a URI of which only the path is used.
    fn address(&self, uri: Uri) -> Result<Uri, Status> {
        let mut parts = uri.into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = parts
            .path_and_query
            .or_else(|| Some(PathAndQuery::from_static("/")));
        Uri::from_parts(parts).map_err(|error| Status::internal(format!("the path of the call: {error}")))
    }

    /// Adds `user-agent`, behind the call's own if it has one.
    fn name(&self, headers: &mut HeaderMap) {
        let value = match headers.get(header::USER_AGENT) {
            Some(own) => joined(own, self.user_agent.as_bytes()),
            None => self.user_agent.clone(),
        };
        headers.insert(header::USER_AGENT, value);
    }
}

/// A response, and the place of its call among those in progress.
type Answer = (Response<Incoming>, Option<OwnedSemaphorePermit>);

type Exchange = Pin<Box<dyn Future<Output = Result<Answer, Status>> + Send>>;

/// The future of a response's head, from a [`Channel`].
#[must_use = "dropping it cancels the call"]
pub struct ResponseFuture {
    /// None after the end.
    exchange: Option<Exchange>,
    deadline: Deadline,
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(exchange) = &mut this.exchange else {
            return Poll::Ready(Err(Status::internal("the call was polled after its end")));
        };
        let answered = match exchange.as_mut().poll(cx) {
            Poll::Ready(Ok((response, permit))) => {
                let deadline = std::mem::take(&mut this.deadline);
                Ok(ResponseBody::of(response, deadline, permit))
            }
            // The server's own deadline may be the cause of an error, and its RST_STREAM faster than the clock.
            Poll::Ready(Err(error)) if !this.deadline.has_passed() => Err(error),
            Poll::Pending if this.deadline.poll(cx).is_pending() => return Poll::Pending,
            _ => Err(status::deadline_exceeded()),
        };
        // At the deadline, this resets the stream.
        this.exchange = None;
        Poll::Ready(answered)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("Channel")
            .field(
                "origin",
                &format_args!("{}://{}", shared.scheme, shared.authority),
            )
            .finish_non_exhaustive()
    }
}
