//! One request and its response: the caller's service is asked, and what it answers is sent.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_proto::ErrorCode;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
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
        let asked = Asked::by(&request);
        let mut service = self.service.clone();
        // A handler that panics drops its sender, and that resets its stream: no other one is concerned.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let place = match service.poll_ready(cx) {
                Poll::Ready(Ok(())) => self.set(Exchange::new(asked, sender, service.call(request))),
                Poll::Ready(Err(_)) => {
                    let mut sender = sender;
                    sender.reset(ErrorCode::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                Poll::Pending => self.set(Exchange::new(asked, sender, async move {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                })),
            };
            place.poll(cx)
        }));
        if let Ok(Poll::Pending) = polled {
            self.place.take().map(tokio::spawn);
        }
    }

    fn date(&self) -> Option<(HeaderValue, Duration)> {
        Some(date::now())
    }

    fn trim(&mut self) {
        self.place = None;
    }
}

impl<S> Handlers<S> {
    fn set(
        &mut self,
        exchange: impl Future<Output = ()> + Send + 'static,
    ) -> &mut ReusableBoxFuture<'static, ()> {
        match &mut self.place {
            Some(place) => {
                place.set(exchange);
                place
            }
            empty => empty.insert(ReusableBoxFuture::new(exchange)),
        }
    }
}

pin_project! {
    /// Waits for what the service answers and sends it, unless the peer gives the stream up before. What is kept until the
    /// body has left is memory that each stream takes whose peer does not read: nothing of the request and of the
    /// handler is. An `async fn` would have room for both to its end, and for what it is given twice.
    pub(super) struct Exchange<F, B> {
        asked: Asked,
        sender: Sender,
        #[pin]
        stage: Stage<F, B>,
    }
}

pin_project! {
    #[project = StageNow]
    enum Stage<F, B> {
        Answering {
            #[pin]
            answer: F,
        },
        Sending {
            #[pin]
            body: B,
        },
    }
}

impl<F, B> Exchange<F, B> {
    pub(super) fn new(asked: Asked, sender: Sender, answer: F) -> Self {
        Exchange {
            asked,
            sender,
            stage: Stage::Answering { answer },
        }
    }
}

impl<F, B, E> Future for Exchange<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let StageNow::Answering { answer } = this.stage.as_mut().project() {
            let Poll::Ready(answered) = answer.poll(cx) else {
                // When the peer is gone, so is the handler.
                return this.sender.poll_failed(cx).map(drop);
            };
            let Ok(response) = answered else {
                this.sender.reset(ErrorCode::INTERNAL_ERROR);
                return Poll::Ready(());
            };
            let Some(body) = this.asked.begin(response, this.sender) else {
                return Poll::Ready(());
            };
            this.stage.set(Stage::Sending { body });
        }
        match this.stage.project() {
            // An error has reset the stream already, or the peer has.
            StageNow::Sending { body } => this.sender.poll_body(cx, body).map(drop),
            StageNow::Answering { .. } => Poll::Pending,
        }
    }
}

/// What of the request says how it is answered.
pub(super) struct Asked {
    head_only: bool,
    connect: bool,
}

impl Asked {
    pub(super) fn by<B>(request: &Request<B>) -> Self {
        Asked {
            head_only: request.method() == Method::HEAD,
            connect: request.method() == Method::CONNECT,
        }
    }

    /// Sends the head; the body, when there is one to be sent.
    fn begin<B: Body>(&self, response: Response<B>, sender: &mut Sender) -> Option<B> {
        let (mut parts, body) = response.into_parts();
        let status = parts.status;
        let bodiless = self.head_only || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let tunnel = self.connect && status.is_success();
        // To a HEAD request a body that knows its length says what GET would give.
        let knows = !bodiless || (self.head_only && !body.is_end_stream());
        if knows && !tunnel {
            set_content_length(&mut parts.headers, &body);
        }
        let end = bodiless || body.is_end_stream();
        sender.send_response(Response::from_parts(parts, ()), end);
        (!end).then_some(body)
    }
}
