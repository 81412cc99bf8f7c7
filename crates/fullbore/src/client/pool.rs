//! The pooled client: one connection for each origin, opened when the first request needs it, and more where the
//! peer's limit on streams holds back a long path, or each request of HTTP/1.1 needs its own.
//!
//! This file has the interface. `exchange` sends a request, and sends it again where that is safe, `origin` has the
//! connections and the queue of an origin, `growth` decides how many connections it needs, `attempt` opens one,
//! `planner` how many it has ahead, `connection_state` is what a connection's driver reports, `backoff` says how long to wait for an origin that
//! refuses requests, and `wait_clock` how long for one that allows no stream.

mod attempt;
mod backoff;
mod builder;
mod connection_state;
mod exchange;
mod growth;
mod lane;
mod origin;
mod planner;
#[cfg(test)]
mod tests;
mod wait_clock;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use fullbore_proto::Report;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, Response, Uri};
use http_body::Body;
use tokio_util::task::TaskTracker;

use self::builder::Settings;
use self::origin::{OriginPool, Place};
use super::connect::Origin;
use super::connection::split_request;
use super::front::Front;
use super::handle::Handle;
use super::http1::{Http1Report, Totals};
use super::limited::Limited;
use super::request_body::Body as RequestBody;
use super::url::parse;
use crate::body::Incoming;
use crate::error::{BoxError, Error};
use crate::settings::HttpVersions;

pub use self::builder::ClientBuilder;
pub(super) use self::lane::{Answer, Lane};
pub use self::origin::OriginStats;

/// The number of known origins from which those without a connection are forgotten.
const FEW_ORIGINS: usize = 64;

/// A client of HTTP/2 and HTTP/1.1 with a connection pool. Over HTTP/2, requests to one origin run in parallel on one
/// connection. Over HTTP/1.1, each has a connection of its own until its response was read.
///
/// Where the peer's limit on streams holds back a long path, the client opens further connections to the origin, up
/// to [`ClientBuilder::max_connections`]. It sends a request without a body again when the peer did not process it
/// (REFUSED_STREAM, or a GOAWAY that leaves it out), and when its method is idempotent and a used HTTP/1.1 connection
/// closes before an answer. It does so up to [`ClientBuilder::max_repeats`] times in a row in which the origin answers
/// no other request, after a pause ([`ClientBuilder::repeat_pause`]). All requests to an origin share the pauses, and
/// after a refusal fewer are sent at once. When the origin refuses everything, they fail together with its reason.
///
/// Cheap to clone; clones share the pool. `https://` negotiates the version by ALPN. `http://` begins in HTTP/2 with
/// prior knowledge (RFC 9113 section 3.3), and falls back to HTTP/1.1 if the server does not speak HTTP/2
/// ([`ClientBuilder::http_versions`]).
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Arc<Settings>,
    /// What the settings were made of.
    builder: Box<ClientBuilder>,
    /// The clients for requests that name their version ([`Client::speaking`]), which have connections of their own:
    /// HTTP/1.1 and HTTP/2.
    speaking: [OnceLock<Client>; 2],
    /// Most clients have one origin. Its pool is found without a lock, a copy of the name, or a count that tasks share.
    first: OnceLock<Known>,
    origins: Mutex<Origins>,
}

/// The pool of the first origin, under its name in the URL.
struct Known {
    scheme: Scheme,
    authority: Authority,
    pool: Arc<OriginPool>,
}

/// The pool for a request.
enum Found<'a> {
    Known(&'a Arc<OriginPool>),
    Looked(Arc<OriginPool>),
}

impl Deref for Found<'_> {
    type Target = Arc<OriginPool>;

    fn deref(&self) -> &Arc<OriginPool> {
        match self {
            Found::Known(pool) => pool,
            Found::Looked(pool) => pool,
        }
    }
}

#[derive(Default)]
struct Origins {
    pools: HashMap<Origin<'static>, Arc<OriginPool>>,
    /// The number of pools at which unused ones are removed.
    check_at: usize,
    /// All connections that have not ended.
    connections: TaskTracker,
}

impl ClientBuilder {
    /// Checks the settings and makes a client. It connects when the first request is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when a setting is out of range.
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client {
            inner: Arc::new(Inner::new(self.checked()?, Arc::default())),
        })
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Makes a client with the default settings. It connects when the first request is sent.
    pub fn new() -> Self {
        Client {
            inner: Arc::new(Inner::new(ClientBuilder::defaults(), Arc::default())),
        }
    }

    /// Returns a builder, which has all settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Sends a request with an absolute URI, and waits for the head of the response. The request waits while the peer
    /// allows no more streams. Dropping the future, or the response body, resets the stream; over HTTP/1.1 it ends the
    /// connection. Call it within a tokio runtime.
    ///
    /// # Errors
    /// See [`ErrorKind`](crate::ErrorKind): connecting fails, the peer violates the protocol or resets the stream, the connection
    /// closes. [`ErrorKind::Refused`](crate::ErrorKind::Refused) says that the request may be repeated.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let pool = self.pool(request.uri())?;
        let (head, body) = self.split(request);
        let asked = Arc::clone(&head);
        let sent = async {
            match body.is_end_stream() {
                true => exchange::repeatable(&pool, head, Nothing).await,
                false => exchange::once(&pool, head, body).await,
            }
        };
        let sent = self.limited(sent).await;
        sent.map_err(|error| error.of_request(asked.uri()))
    }

    /// As [`Self::request`], for a body that can be cloned, such as `http_body_util::Full`. When the peer did not
    /// process the request (RFC 9113 section 8.7), it is sent again with its body ([`ClientBuilder::max_repeats`]).
    ///
    /// # Errors
    /// As [`Self::request`].
    ///
    /// ```no_run
    /// # async fn run(client: fullbore::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    ///
    /// let request = http::Request::post("https://example.com/").body(Full::<Bytes>::from("whole"))?;
    /// let response = client.request_repeatable(request).await?;
    /// # Ok(()) }
    /// ```
    pub async fn request_repeatable<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data = Bytes> + Clone + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let pool = self.pool(request.uri())?;
        let (head, body) = self.split(request);
        let asked = Arc::clone(&head);
        let sent = self.limited(exchange::repeatable(&pool, head, body)).await;
        sent.map_err(|error| error.of_request(asked.uri()))
    }

    /// Splits a request, and adds the fields that all requests have.
    fn split<B: Body>(&self, mut request: Request<B>) -> (Arc<Request<()>>, B) {
        add_missing(request.headers_mut(), &self.front().default_headers);
        split_request(request)
    }

    /// Sends a request that has all its fields, without a limit on time.
    pub(super) async fn exchange(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, Error> {
        let pool = self.pool(request.uri())?;
        let (head, body) = split_request(request);
        match body.into_whole() {
            Ok(body) => exchange::repeatable(&pool, head, body).await,
            Err(body) => exchange::once(&pool, head, body).await,
        }
    }

    /// The client for requests in one version of HTTP: itself if it speaks no other. It has the same settings, budget and
    /// cookies.
    pub(super) fn speaking(&self, versions: HttpVersions) -> &Client {
        let connector = &self.inner.settings.connector;
        if (connector.versions, connector.cleartext_versions) == (versions, versions) {
            return self;
        }
        let place = usize::from(versions == HttpVersions::Http2);
        self.inner.speaking[place].get_or_init(|| {
            let builder = (*self.inner.builder).clone().only_versions(versions);
            let http1_totals = Arc::clone(&self.inner.settings.connector.http1_totals);
            Client {
                inner: Arc::new(Inner::new(builder, http1_totals)),
            }
        })
    }

    /// The client and those for one version.
    fn all(&self) -> impl Iterator<Item = &Client> {
        let speaking = self.inner.speaking.iter();
        std::iter::once(self).chain(speaking.filter_map(OnceLock::get))
    }

    pub(super) fn front(&self) -> &Front {
        &self.inner.settings.front
    }

    /// Ends a request that takes longer than the client allows.
    fn limited<F>(&self, sent: F) -> Limited<F> {
        Limited::new(self.front().head_timeout, sent)
    }

    /// Connects to the origin of a URL, unless there is a connection that takes requests. Without this call, the first
    /// request connects.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) when the URL is invalid, and the errors of connecting ([`Error::is_connect`],
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout)).
    pub async fn connect(&self, url: &str) -> Result<(), Error> {
        let uri = parse(url)?;
        let lease = self.pool(&uri)?.lease(&mut Place::default()).await;
        lease.map(drop).map_err(|error| error.of_request(&uri))
    }

    /// Returns a report of each pooled HTTP/2 connection: counters, windows, and what it has waited for.
    pub async fn reports(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for pool in self.pools() {
            for handle in pool.handles() {
                if let Handle::Http2(sender) = handle {
                    reports.extend(sender.report().await);
                }
            }
        }
        reports
    }

    /// Returns what the HTTP/1.1 connections of the client have done and waited for; `None` if it opened none.
    pub fn http1_report(&self) -> Option<Http1Report> {
        self.inner.settings.connector.http1_totals.report()
    }

    /// Returns the state of each known origin.
    pub fn stats(&self) -> Vec<OriginStats> {
        self.pools().iter().map(|pool| pool.stats()).collect()
    }

    /// Returns the number of connections to the origin of a URL that take requests; 0 for an unknown origin.
    pub fn connections(&self, url: &str) -> usize {
        let uri = parse(url);
        let Some(Ok(origin)) = uri.as_ref().ok().map(Origin::of) else {
            return 0;
        };
        let count = |client: &Client| {
            let pool = find(&client.origins().pools, &origin).map(Arc::clone);
            pool.map_or(0, |pool| pool.stats().connections)
        };
        self.all().map(count).sum()
    }

    /// Shuts down the pooled connections gracefully, and returns when they have ended: GOAWAY was sent, and the
    /// requests in progress are complete. There is no limit on time, and a response body that nobody reads blocks it:
    /// use a timeout.
    ///
    /// Requests that wait for a stream fail with [`ErrorKind::Canceled`](crate::ErrorKind::Canceled). A later request opens a new connection, for
    /// which this call does not wait.
    pub async fn shutdown(&self) {
        let all: Vec<Origins> = self
            .all()
            .map(|client| std::mem::take(&mut *client.origins()))
            .collect();
        for origins in &all {
            for pool in origins.pools.values() {
                pool.retire();
            }
            origins.connections.close();
        }
        for origins in all {
            origins.connections.wait().await;
        }
    }

    fn pool(&self, uri: &Uri) -> Result<Found<'_>, Error> {
        let first = self.inner.first.get();
        if let Some(known) = first.filter(|known| known.is_meant(uri)) {
            return Ok(Found::Known(&known.pool));
        }
        let pool = self.look_up(Origin::of(uri)?);
        if let (None, Some(scheme), Some(authority)) = (first, uri.scheme(), uri.authority()) {
            // Another task may have been the first.
            let _ = self.inner.first.set(Known {
                scheme: scheme.clone(),
                authority: authority.clone(),
                pool: Arc::clone(&pool),
            });
        }
        Ok(Found::Looked(pool))
    }

    fn look_up(&self, origin: Origin<'_>) -> Arc<OriginPool> {
        let mut origins = self.origins();
        if let Some(pool) = find(&origins.pools, &origin) {
            return Arc::clone(pool);
        }
        origins.forget_unused();
        let origin = origin.into_owned();
        let (settings, connections) = (Arc::clone(&self.inner.settings), origins.connections.clone());
        let pool = OriginPool::new(origin.clone(), settings, connections);
        origins.pools.insert(origin, Arc::clone(&pool));
        pool
    }

    fn pools(&self) -> Vec<Arc<OriginPool>> {
        let pools = |client: &Client| -> Vec<_> { client.origins().pools.values().map(Arc::clone).collect() };
        self.all().flat_map(pools).collect()
    }

    fn origins(&self) -> MutexGuard<'_, Origins> {
        self.inner.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new(builder: ClientBuilder, http1_totals: Arc<Totals>) -> Self {
        Inner {
            settings: Arc::new(builder.settings(http1_totals)),
            builder: Box::new(builder),
            speaking: [OnceLock::new(), OnceLock::new()],
            first: OnceLock::new(),
            origins: Mutex::default(),
        }
    }
}

impl Known {
    /// Whether a URL has the same scheme and authority, literally. A retired pool matches no URL.
    fn is_meant(&self, uri: &Uri) -> bool {
        let same = |authority: &Authority| authority.as_str() == self.authority.as_str();
        uri.authority().is_some_and(same) && uri.scheme() == Some(&self.scheme) && !self.pool.is_retired()
    }
}

/// Finds the pool of an origin by a borrowed name.
fn find<'a>(
    pools: &'a HashMap<Origin<'a>, Arc<OriginPool>>,
    origin: &Origin<'a>,
) -> Option<&'a Arc<OriginPool>> {
    pools.get(origin)
}

impl Origins {
    /// Forgets origins without a connection, whenever the number of origins has doubled.
    fn forget_unused(&mut self) {
        if self.pools.len() >= self.check_at.max(FEW_ORIGINS) {
            self.pools
                .retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_unused());
            self.check_at = self.pools.len() * 2;
        }
    }
}

/// Adds the default fields whose names the request does not have.
pub(super) fn add_missing(headers: &mut HeaderMap, defaults: &HeaderMap) {
    if defaults.is_empty() {
        return;
    }
    let given: Vec<_> = defaults
        .keys()
        .filter(|name| headers.contains_key(*name))
        .cloned()
        .collect();
    for (name, value) in defaults {
        if !given.contains(name) {
            headers.append(name.clone(), value.clone());
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("origins", &self.stats())
            .finish_non_exhaustive()
    }
}

/// An empty body.
#[derive(Clone)]
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(0)
    }
}
