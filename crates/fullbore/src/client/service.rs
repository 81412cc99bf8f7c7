//! [`Client`] and [`SendRequest`] as [`tower_service::Service`]s.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::connection::{ResponseFuture, SendRequest};
use super::pool::Client;
use crate::body::Incoming;
use crate::error::{BoxError, Error};

/// Sends a request as [`Client::request`] does.
///
/// The client is always ready. A request that has to wait for a connection or a stream waits in its future. The
/// number of waiting requests has no limit; to set one, put `tower::limit::ConcurrencyLimit` around the client.
///
/// ```no_run
/// # async fn run() -> Result<(), fullbore::BoxError> {
/// use tower::ServiceExt;
///
/// let client = fullbore::Client::new();
/// let request = http::Request::get("https://example.com/").body(String::new())?;
/// let response = client.oneshot(request).await?;
/// # Ok(()) }
/// ```
impl<B> Service<Request<B>> for Client
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = RequestFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RequestFuture {
        RequestFuture::new(self.clone(), request)
    }
}

/// As the implementation for [`Client`].
impl<B> Service<Request<B>> for &Client
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = RequestFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RequestFuture {
        RequestFuture::new(Client::clone(self), request)
    }
}

/// Sends a request as [`SendRequest::send`] does.
///
/// The connection is ready while it takes new requests. It never becomes ready again afterwards, and says so with
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed): open another one. A request for which the peer allows no stream yet
/// waits in its future. One that is called as the connection closes fails with
/// [`ErrorKind::Refused`](crate::ErrorKind::Refused): it was not sent.
impl<B> Service<Request<B>> for SendRequest
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(match self.is_open() {
            true => Ok(()),
            false => Err(Error::connection_gone()),
        })
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        self.send(request)
    }
}

/// The future of the response's head, from a [`Client`] that is called as a service. Dropping it resets the stream.
#[must_use = "futures do nothing unless they are polled"]
pub struct RequestFuture {
    sent: Pin<Box<dyn Future<Output = Result<Response<Incoming>, Error>> + Send>>,
}

impl RequestFuture {
    fn new<B>(client: Client, request: Request<B>) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        RequestFuture {
            sent: Box::pin(async move { client.request(request).await }),
        }
    }
}

impl Future for RequestFuture {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.sent.as_mut().poll(cx)
    }
}

impl fmt::Debug for RequestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFuture").finish_non_exhaustive()
    }
}
