//! The futures of what the listeners serve.

use std::convert::Infallible;
use std::future::{self, Future};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore::body::Chunk;
use fullbore_files::ServeFuture;
use fullbore_proxy::ProxyFuture;
use http::Response;

use super::body::SiteBody;

/// The future of everything that options put around the files.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Response<SiteBody>, Infallible>> + Send>>;

/// The future of a service of `serve`.
pub(super) enum SiteFuture {
    Files(ServeFuture<Chunk>),
    Proxy(ProxyFuture),
    Boxed(Answer),
}

impl SiteFuture {
    pub(super) fn of_text(response: Response<Bytes>) -> Self {
        SiteFuture::Boxed(Box::pin(future::ready(Ok(response.map(SiteBody::of_text)))))
    }
}

impl Future for SiteFuture {
    type Output = Result<Response<SiteBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            SiteFuture::Files(answer) => {
                let Ok(response) = ready!(Pin::new(answer).poll(cx));
                Poll::Ready(Ok(response.map(SiteBody::Files)))
            }
            SiteFuture::Proxy(answer) => {
                let Ok(response) = ready!(Pin::new(answer).poll(cx));
                Poll::Ready(Ok(response.map(SiteBody::Proxy)))
            }
            SiteFuture::Boxed(answer) => answer.as_mut().poll(cx),
        }
    }
}
