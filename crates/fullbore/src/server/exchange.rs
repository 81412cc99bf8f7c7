//! One request and its response: calls the service and sends what it returns.

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

/// Calls a service for each request.
pub(crate) struct Handlers<S> {
    pub(crate) service: S,
    /// The box in which handlers are polled first. Handlers that complete at once leave it for the next.
    handler_box: Option<ReusableBoxFuture<'static, ()>>,
}

impl<S> Handlers<S> {
    pub(crate) fn new(service: S) -> Self {
        Handlers {
            service,
            handler_box: None,
        }
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
    /// Polls the handler once, in the driver's turn. The response of a handler that completes leaves with this batch.
    /// Any other handler continues in a task of its own.
    fn accept(&mut self, request: Request<Incoming>, sender: Sender, cx: &mut Context<'_>) {
        let rules = ResponseRules::of(&request);
        let mut service = self.service.clone();
        // A handler that panics drops its sender, which resets only its own stream.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let handler_box = match service.poll_ready(cx) {
                Poll::Ready(Ok(())) => self.box_handler(Exchange::new(rules, sender, service.call(request))),
                Poll::Ready(Err(_)) => {
                    let mut sender = sender;
                    sender.reset(ErrorCode::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                Poll::Pending => self.box_handler(Exchange::new(rules, sender, async move {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                })),
            };
            handler_box.poll(cx)
        }));
        if let Ok(Poll::Pending) = polled {
            self.handler_box.take().map(tokio::spawn);
        }
    }

    fn date(&self) -> Option<(HeaderValue, Duration)> {
        Some(date::now())
    }

    fn trim(&mut self) {
        self.handler_box = None;
    }
}

impl<S> Handlers<S> {
    fn box_handler(
        &mut self,
        exchange: impl Future<Output = ()> + Send + 'static,
    ) -> &mut ReusableBoxFuture<'static, ()> {
        match &mut self.handler_box {
            Some(handler_box) => {
                handler_box.set(exchange);
                handler_box
            }
            empty => empty.insert(ReusableBoxFuture::new(exchange)),
        }
    }
}

pin_project! {
    /// Waits for the response and sends it, unless the peer resets the stream first. While the body waits for a slow
    /// peer, it keeps nothing of the request and the handler. An `async fn` would reserve memory for both to its end,
    /// and twice for its arguments.
    pub(super) struct Exchange<F, B> {
        rules: ResponseRules,
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
    pub(super) fn new(rules: ResponseRules, sender: Sender, answer: F) -> Self {
        Exchange {
            rules,
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
                // When the peer has gone, the handler is dropped.
                return this.sender.poll_failed(cx).map(drop);
            };
            let Ok(response) = answered else {
                this.sender.reset(ErrorCode::INTERNAL_ERROR);
                return Poll::Ready(());
            };
            let Some(body) = this.rules.send_head(response, this.sender) else {
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

/// What the request says about the form of the response.
pub(super) struct ResponseRules {
    head_only: bool,
    connect: bool,
}

impl ResponseRules {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        ResponseRules {
            head_only: request.method() == Method::HEAD,
            connect: request.method() == Method::CONNECT,
        }
    }

    /// Sends the head. Returns the body, if one is to be sent.
    fn send_head<B: Body>(&self, response: Response<B>, sender: &mut Sender) -> Option<B> {
        let (mut parts, body) = response.into_parts();
        let status = parts.status;
        let bodiless = self.head_only || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let tunnel = self.connect && status.is_success();
        // The response to HEAD has the `content-length` of a response to GET, if the body knows it.
        let knows = !bodiless || (self.head_only && !body.is_end_stream());
        if knows && !tunnel {
            set_content_length(&mut parts.headers, &body);
        }
        let end = bodiless || body.is_end_stream();
        sender.send_response(Response::from_parts(parts, ()), end);
        (!end).then_some(body)
    }
}
