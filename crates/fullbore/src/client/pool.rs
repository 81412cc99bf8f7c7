//! The pooled client: one connection an origin, opened when it is first needed, and further ones where the number of
//! streams is what a long path waits for.
//!
//! Here is what callers see, and how a request is sent again that met an ending connection. `origin` keeps the
//! connections and the queue of an origin, `demand` decides when a further connection is justified, `opening` opens one,
//! `lane` is what a connection's driver reports to, `refusal` says how long to wait for an origin that refuses requests,
//! `denial` how long for one that allows no stream.

mod builder;
mod demand;
mod denial;
mod lane;
mod opening;
mod origin;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use fullbore_proto::Report;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::Body;
use tokio_util::task::TaskTracker;

use self::builder::Settings;
use self::denial::Wait;
use self::origin::{Lease, OriginPool};
use super::connect::Origin;
use super::connection::split;
use crate::body::Incoming;
use crate::error::{BoxError, Error, ErrorKind};

pub use self::builder::ClientBuilder;

/// How many origins may be known before those without a connection are forgotten.
const FEW_ORIGINS: usize = 64;

/// A client that takes URLs and keeps a connection to each origin, on which requests run in parallel.
///
/// Where the peer's limit on streams holds requests back over a long path it opens further connections, up to
/// [`ClientBuilder::max_connections`]. A request without a body that a peer refuses unprocessed, by REFUSED_STREAM or
/// because it ends the connection, is sent again, up to three times and after a pause
/// ([`ClientBuilder::max_repeats`], [`ClientBuilder::repeat_pause`]). An origin that refuses everything is not asked
/// again for each request: they share the pauses, and fail together with what the peer said.
///
/// Cheap to clone; clones share the pool. `https://` negotiates `h2` by ALPN, `http://` speaks HTTP/2 with prior
/// knowledge (RFC 9113 section 3.3).
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Arc<Settings>,
    /// Most clients have one origin: its pool is found without a lock, a name in parts, or a count that all tasks share.
    first: OnceLock<Known>,
    origins: Mutex<Origins>,
}

/// The pool of the origin that was asked for first, as its URL was written.
struct Known {
    scheme: Scheme,
    authority: Authority,
    pool: Arc<OriginPool>,
}

/// The pool that a request belongs to.
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
    look_at: usize,
    /// All connections that have not ended.
    connections: TaskTracker,
}

/// What a [`Client`] has under way to one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginStats {
    /// Scheme, host and port, as in `https://example.com:443`.
    pub origin: String,
    /// Connections that take requests.
    pub connections: usize,
    /// Connections that are being opened.
    pub opening: usize,
    /// Requests whose streams are open, or about to be.
    pub in_flight: usize,
    /// Requests that wait for a stream.
    pub waiting: usize,
}

impl ClientBuilder {
    /// Checks the settings and makes a client. It connects when the first request is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a setting is out of range.
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client {
            inner: Arc::new(Inner::new(self.finish()?)),
        })
    }
}

impl Client {
    /// Makes a client with the default settings.
    ///
    /// # Errors
    /// None today. A default that the system cannot provide would be an error.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder, which has all settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Fetches a URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] when it is none of ours, and all that [`Self::request`] may fail with.
    pub async fn get(&self, url: &str) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(Nothing);
        *request.uri_mut() = parse(url)?;
        self.request(request).await
    }

    /// Sends a request, whose URI is absolute, and waits for the head of the response. It waits its turn when the peer
    /// allows no more streams. Dropping the future, or the body of the response, resets the stream. To be called within
    /// a tokio runtime.
    ///
    /// # Errors
    /// See [`ErrorKind`]: connecting may fail, the peer may break the protocol or reset the stream, the transport may
    /// end. [`ErrorKind::Refused`] says that the request may be repeated.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let pool = self.pool(request.uri())?;
        let (head, body) = split(request);
        if body.is_end_stream() {
            return exchange(&pool, head, Nothing).await;
        }
        let lease = pool.lease(false, &mut Wait::default()).await?;
        send(&pool, lease, head, body).await
    }

    /// As [`Self::request`], with a body that can be cloned, such as `http_body_util::Full`: a request that the peer
    /// refuses unprocessed (RFC 9113 section 8.7) is sent again with its body, as often as
    /// [`ClientBuilder::max_repeats`] says.
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
        let (head, body) = split(request);
        exchange(&pool, head, body).await
    }

    /// How each pooled connection stands: counters, windows, and what it has waited for.
    pub async fn reports(&self) -> Vec<Report> {
        let mut reports = Vec::new();
        for pool in self.pools() {
            for sender in pool.senders() {
                reports.extend(sender.report().await);
            }
        }
        reports
    }

    /// What is under way to each origin that is known.
    pub fn stats(&self) -> Vec<OriginStats> {
        self.pools().iter().map(|pool| pool.stats()).collect()
    }

    /// How many connections to the origin of a URL take requests; 0 for one that is unknown.
    pub fn connections(&self, url: &str) -> usize {
        let uri = parse(url);
        let Some(Ok(origin)) = uri.as_ref().ok().map(Origin::of) else {
            return 0;
        };
        let pool = find(&self.origins().pools, &origin).map(Arc::clone);
        pool.map_or(0, |pool| pool.stats().connections)
    }

    /// Shuts down the pooled connections gracefully, and returns when they have ended: GOAWAY was sent, and the requests in
    /// progress are complete. It sends nothing else and has no limit on time, so a response body that nobody reads blocks
    /// it; put it in a timeout.
    ///
    /// Requests that wait for a stream fail with [`ErrorKind::Canceled`]. A later request opens a new connection, for which
    /// this call does not wait.
    pub async fn shutdown(&self) {
        let origins = std::mem::take(&mut *self.origins());
        for pool in origins.pools.into_values() {
            pool.retire();
        }
        origins.connections.close();
        origins.connections.wait().await;
    }

    fn pool(&self, uri: &Uri) -> Result<Found<'_>, Error> {
        let first = self.inner.first.get();
        if let Some(known) = first.filter(|known| known.is_meant(uri)) {
            return Ok(Found::Known(&known.pool));
        }
        let pool = self.look_up(Origin::of(uri)?);
        if let (None, Some(scheme), Some(authority)) = (first, uri.scheme(), uri.authority()) {
            // Somebody else may have been the first meanwhile.
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
        self.origins().pools.values().map(Arc::clone).collect()
    }

    fn origins(&self) -> MutexGuard<'_, Origins> {
        self.inner.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new(settings: Settings) -> Self {
        Inner {
            settings: Arc::new(settings),
            first: OnceLock::new(),
            origins: Mutex::default(),
        }
    }
}

impl Known {
    /// Whether a URL names this origin in the same words. Once the client has let go of the pool it is nobody's.
    fn is_meant(&self, uri: &Uri) -> bool {
        let same = |authority: &Authority| authority.as_str() == self.authority.as_str();
        uri.authority().is_some_and(same) && uri.scheme() == Some(&self.scheme) && !self.pool.is_retired()
    }
}

/// The pool of an origin whose name is borrowed, in a map of names that are not.
fn find<'a>(
    pools: &'a HashMap<Origin<'a>, Arc<OriginPool>>,
    origin: &Origin<'a>,
) -> Option<&'a Arc<OriginPool>> {
    pools.get(origin)
}

impl Origins {
    /// A client that visits many origins keeps none that it has no connection to; looked for whenever they have doubled.
    fn forget_unused(&mut self) {
        if self.pools.len() >= self.look_at.max(FEW_ORIGINS) {
            self.pools
                .retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_unused());
            self.look_at = self.pools.len() * 2;
        }
    }
}

/// A request that can be had again, sent until the peer has seen to it.
async fn exchange<B>(
    pool: &Arc<OriginPool>,
    head: Arc<Request<()>>,
    body: B,
) -> Result<Response<Incoming>, Error>
where
    B: Body<Data = Bytes> + Clone + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut repeats = 0;
    let mut wait = Wait::default();
    loop {
        let lease = pool.lease(repeats > 0, &mut wait).await?;
        let error = match send(pool, lease, Arc::clone(&head), body.clone()).await {
            Err(error) if error.is_refused() => error,
            answered => return answered,
        };
        if repeats >= pool.max_repeats() {
            return Err(pool.refusal(error));
        }
        if error.wants_pause() {
            tokio::time::sleep(pool.pause(repeats, &mut wait)).await;
        }
        repeats += 1;
    }
}

/// Sends a request. [`ErrorKind::Refused`] says that the peer has done nothing about it: by its own word, or because the
/// connection ended before anything of the request was sent.
async fn send<B>(
    pool: &Arc<OriginPool>,
    lease: Lease,
    head: Arc<Request<()>>,
    body: B,
) -> Result<Response<Incoming>, Error>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Lease { sender, slot } = lease;
    let mut response = sender.send_in(Some(slot), head, body);
    match (&mut response).await {
        Err(error) if (error.is_closed() || error.is_refused()) && response.never_began() => {
            Err(sender.failure().unwrap_or_else(|| Error::never_sent(&error)))
        }
        Ok(response) => {
            sender.note_answer();
            pool.answered();
            Ok(response)
        }
        failed => failed,
    }
}

fn parse(url: &str) -> Result<Uri, Error> {
    url.parse()
        .map_err(|error| Error::with_source(ErrorKind::InvalidUrl, url, error))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("origins", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The body of a request without one.
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
