//! How a request of a [`RequestBuilder`](super::RequestBuilder) is sent: what surrounds the exchange itself.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;
#[cfg(feature = "__decode")]
use tower_http::decompression::Decompression;
#[cfg(feature = "redirect")]
use tower_http::follow_redirect::{FollowRedirect, RequestUri};
#[cfg(any(feature = "redirect", feature = "__decode"))]
use tower_service::Service;

#[cfg(feature = "__decode")]
use super::decode;
use super::limited::Limited;
use super::pool::{Client, add_missing};
#[cfg(feature = "redirect")]
use super::redirect::{self, Redirects};
use super::request_body::Body;
use super::response::Response;
#[cfg(feature = "redirect")]
use super::url::split_credentials;
use crate::body::Incoming;
use crate::error::Error;

/// The limits of one request, in place of those of the client.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The time until the end of the response's body.
    pub(super) time: Option<Duration>,
    #[cfg(feature = "redirect")]
    pub(super) redirects: Option<u32>,
}

/// Sends a request.
pub(super) async fn send(
    client: Client,
    mut request: Request<Body>,
    limits: Limits,
) -> Result<Response, Error> {
    let front = client.front();
    // Once, and not for each exchange: what another origin is not to see has been taken away.
    add_missing(request.headers_mut(), &front.default_headers);
    let url = request.uri().clone();
    let whole = limits.time.or(front.timeout);
    let mut sent = pin!(Limited::new(
        whole.or(front.head_timeout),
        around(&client, request, limits)
    ));
    #[cfg_attr(not(feature = "redirect"), allow(unused_mut))]
    let mut response = sent.as_mut().await.map_err(|error| error.of_request(&url))?;
    #[cfg(feature = "redirect")]
    let url = match response.extensions_mut().remove::<RequestUri>() {
        Some(RequestUri(last)) => split_credentials(last).0,
        None => url,
    };
    let timer = sent.timer().filter(|_| whole.is_some());
    let response = response.map(|body| match timer {
        Some(timer) => body.wrapped(|body| Box::pin(Timed { body, timer })),
        None => body,
    });
    Ok(Response::new(response, url))
}

/// Sends a request with what surrounds its exchanges.
#[cfg_attr(not(feature = "redirect"), allow(unused_variables))]
async fn around(
    client: &Client,
    request: Request<Body>,
    limits: Limits,
) -> Result<http::Response<Incoming>, Error> {
    #[cfg(feature = "__decode")]
    if !client.front().keeps_codings && decode::is_ours(request.headers()) {
        let service = redirecting(client, limits);
        let response = Decompression::new(service).call(request).await?;
        return Ok(decode::decoded(response));
    }
    #[cfg(feature = "redirect")]
    return redirecting(client, limits).call(request).await;
    #[cfg(not(feature = "redirect"))]
    hop(client.clone(), request).await
}

/// Follows redirects.
#[cfg(feature = "redirect")]
fn redirecting(client: &Client, limits: Limits) -> FollowRedirect<Hop, Redirects> {
    let most = limits.redirects.or(client.front().max_redirects);
    let most = most.unwrap_or(redirect::MAX_REDIRECTS);
    FollowRedirect::with_policy(Hop(client.clone()), Redirects::new(most))
}

#[cfg(all(feature = "__decode", not(feature = "redirect")))]
fn redirecting(client: &Client, _: Limits) -> Hop {
    Hop(client.clone())
}

/// One request and its response, for the services of tower-http.
#[cfg(any(feature = "redirect", feature = "__decode"))]
#[derive(Clone)]
struct Hop(Client);

#[cfg(any(feature = "redirect", feature = "__decode"))]
impl Service<Request<Body>> for Hop {
    type Response = http::Response<Incoming>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(hop(self.0.clone(), request))
    }
}

/// Sends one request, with the cookies of its URL.
#[cfg_attr(not(any(feature = "redirect", feature = "cookies")), allow(unused_mut))]
async fn hop(client: Client, mut request: Request<Body>) -> Result<http::Response<Incoming>, Error> {
    // The target of a redirect may have a name and password, which the caller did not choose.
    #[cfg(feature = "redirect")]
    if request
        .uri()
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        *request.uri_mut() = split_credentials(std::mem::take(request.uri_mut())).0;
    }
    let url = request.uri().clone();
    #[cfg(feature = "cookies")]
    let cookies = client.front().cookies.clone();
    #[cfg(feature = "cookies")]
    if let Some(cookies) = &cookies {
        cookies.add_to(&url, request.headers_mut());
    }
    let sent = client.exchange(request).await;
    let response = sent.map_err(|error| error.of_request(&url))?;
    #[cfg(feature = "cookies")]
    if let Some(cookies) = &cookies {
        cookies.keep(&url, response.headers());
    }
    #[cfg(feature = "__decode")]
    let response = decode::marked(response);
    Ok(response)
}

/// A body that has to end in time.
struct Timed {
    body: Incoming,
    timer: (Duration, Pin<Box<Sleep>>),
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let (limit, timer) = &mut self.timer;
        if timer.as_mut().poll(cx).is_ready() {
            let late = Error::timeout("the response is not complete", *limit);
            return Poll::Ready(Some(Err(late)));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
