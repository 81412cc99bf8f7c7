//! One request and its response: the caller's service is asked, and what it answers is sent.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll};

use fullbore_proto::ErrorCode;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use tokio_util::sync::ReusableBoxFuture;
use tower_service::Service;

use crate::body::Incoming;
use crate::driver::Accept;
use crate::error::BoxError;
use crate::file::Chunk;
use crate::sender::{Sender, set_content_length};

use super::date;

/// Asks a service, once per request.
pub(crate) struct Handlers<S> {
    pub(crate) service: S,
    /// Where handlers are polled first: those that answer at once leave it for the next.
    place: Option<ReusableBoxFuture<'static, ()>>,
}

impl<S> Handlers<S> {
    pub(crate) fn new(service: S) -> Self {
        Handlers { service, place: None }
    }
}

impl<S, B> Accept for Handlers<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    /// The handler is polled once here, in the driver's turn: a short one is done then, and its answer leaves with this
    /// batch. One that waits goes on in a task of its own.
    fn accept(&mut self, request: Request<Incoming>, sender: Sender, cx: &mut Context<'_>) {
        let exchange = exchange(self.service.clone(), request, sender);
        let place = match &mut self.place {
            Some(place) => {
                place.set(exchange);
                place
            }
            None => self.place.insert(ReusableBoxFuture::new(exchange)),
        };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| place.poll(cx)));
        // A handler that panicked has dropped its sender, and that resets its stream: no other one is concerned.
        if let Ok(Poll::Pending) = polled {
            self.place.take().map(tokio::spawn);
        }
    }

    fn rest(&mut self) {
        self.place = None;
    }
}

/// Asks the service and sends what it answers, unless the peer gives the stream up before.
async fn exchange<S, B>(mut service: S, request: Request<Incoming>, mut sender: Sender)
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    let head_only = request.method() == Method::HEAD;
    let connect = request.method() == Method::CONNECT;
    let answer = async {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    };
    let mut answer = pin!(answer);
    let answered = poll_fn(|cx| {
        if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answered));
        }
        sender.poll_failed(cx).map(|_| None)
    });
    let response = match answered.await {
        Some(Ok(response)) => response,
        Some(Err(_)) => return sender.reset(ErrorCode::INTERNAL_ERROR),
        // The peer is gone; so is the handler, when this returns.
        None => return,
    };
    let (mut parts, body) = response.into_parts();
    let status = parts.status;
    let bodiless = head_only || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let tunnel = connect && status.is_success();
    // To a HEAD request a body that knows its length says what GET would give.
    let knows = !bodiless || (head_only && !body.is_end_stream());
    if knows && !tunnel {
        set_content_length(&mut parts.headers, &body);
    }
    if !parts.headers.contains_key(header::DATE) {
        parts.headers.insert(header::DATE, date::now());
    }
    let end = bodiless || body.is_end_stream();
    sender.send_response(Response::from_parts(parts, ()), end);
    if end {
        return;
    }
    let mut body = pin!(body);
    // An error has reset the stream already, or the peer has.
    let _ = poll_fn(|cx| sender.poll_body(cx, body.as_mut())).await;
}
