//! What each listener serves: files, an application, redirects to https, or the figures of the server.
//!
//! One type stands for all of them, so that the server is compiled once. Files without options around them take the path that
//! they would take alone: no box, and nothing to wait for.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use fullbore::Incoming;
use fullbore::body::Chunk;
use fullbore_files::Files;
use fullbore_proxy::Proxy;
use http::header::{ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{HeaderValue, Method, Request, Response};
use tower_http::cors::Cors;
use tower_service::Service;

use super::answer::SiteFuture;
use super::body::SiteBody;
use super::metrics::Metrics;
use super::policy::Guarded;
use super::redirect::Redirect;

/// A service of `serve`.
#[derive(Clone)]
pub(super) enum Site {
    /// The files, with no option around them.
    Files(Files<Chunk>),
    /// An application, with no option around it.
    Proxy(Proxy),
    /// The files, or the application, with options around them.
    Guarded(Guarded),
    /// The same for scripts of other origins. Behind an Arc, because requests clone their service.
    Shared(Arc<Cors<Guarded>>),
    /// Any of these, counted.
    Counted(Arc<Site>, Arc<Metrics>),
    /// Redirects to https.
    Redirect(Arc<Redirect>),
    /// The figures.
    Metrics(Arc<Metrics>),
}

impl Service<Request<Incoming>> for Site {
    type Response = Response<SiteBody>;
    type Error = Infallible;
    type Future = SiteFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The services are always ready.
        Poll::Ready(Ok(()))
    }

    // A request that is borrowed is copied when it is moved on, which files alone need not pay.
    #[inline]
    fn call(&mut self, request: Request<Incoming>) -> SiteFuture {
        match self {
            Site::Files(files) => SiteFuture::Files(files.call(request)),
            other => other.call_others(request),
        }
    }
}

impl Site {
    fn call_others(&mut self, request: Request<Incoming>) -> SiteFuture {
        match self {
            Site::Files(files) => SiteFuture::Files(files.call(request)),
            Site::Proxy(proxy) => SiteFuture::Proxy(proxy.call(request)),
            Site::Guarded(guarded) => SiteFuture::Boxed(guarded.call(request)),
            // The layer takes every OPTIONS request for a preflight request.
            Site::Shared(cors) if request.method() == Method::OPTIONS && !is_preflight(&request) => {
                SiteFuture::Boxed(cors.get_ref().clone().call(request))
            }
            Site::Shared(cors) => SiteFuture::Boxed(Box::pin(Cors::clone(cors).call(request))),
            Site::Counted(site, metrics) => {
                let (method, version) = (request.method().clone(), request.version());
                let answer = Site::clone(site).call(request);
                let metrics = Arc::clone(metrics);
                SiteFuture::Boxed(Box::pin(async move {
                    let Ok(response) = answer.await;
                    metrics.add_request(&method, version, response.status());
                    Ok(response.map(|body| SiteBody::Counted(Box::new(body), metrics)))
                }))
            }
            Site::Redirect(redirect) => SiteFuture::of_text(redirect.answer(&request)),
            Site::Metrics(metrics) => SiteFuture::of_text(metrics.answer(&request)),
        }
    }
}

/// The longest list of fields that the answer to a preflight request repeats, in bytes. With HPACK a request repeats a long one
/// for one byte.
const PREFLIGHT_BYTES: usize = 4 * 1024;

/// Whether a request has the fields of a CORS preflight request (Fetch standard, CORS protocol), and no more of them than its answer
/// may repeat.
fn is_preflight(request: &Request<Incoming>) -> bool {
    let fields = request.headers();
    let asked = fields.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let bytes: usize = asked.map(HeaderValue::len).sum();
    fields.contains_key(ORIGIN)
        && fields.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        && bytes <= PREFLIGHT_BYTES
}
