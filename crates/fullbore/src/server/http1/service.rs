//! The service that hyper calls: checks a request, calls the caller's service, and turns its failures into responses.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use http::{Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::progress::{Progress, RequestWatch};
use super::request::{check, message_end};
use super::response::{Asked, ResponseBody, refusal};
use crate::body::Incoming;
use crate::error::BoxError;
use crate::file::Chunk;
use crate::http1::Transport;
use crate::linger::wake_after_sockets;

/// The answer for a service that panics or fails.
const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

pub(super) struct Http1Service<T, S> {
    pub(super) service: S,
    pub(super) transport: Transport<T>,
    pub(super) progress: Arc<Progress>,
}

impl<T, S, B> hyper::service::Service<Request<hyper::body::Incoming>> for Http1Service<T, S>
where
    T: Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = Answer<S, S::Future>;

    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        let receives = !request.body().is_end_stream();
        let (number, takes_turn) = self.progress.begin(receives);
        #[cfg(feature = "tracing")]
        super::trace::request(&request);
        let asked = Asked::of(&request);
        // What was read is needed only for a request with a body.
        let checked = match receives {
            false => check(&request, b""),
            true => self.transport.with_noted(|noted| {
                // The end of a chunked body is not known.
                let body = request.body().size_hint().exact();
                let end = body.map_or(usize::MAX, |body| message_end(noted, body));
                (check(&request, noted), end)
            }),
        };
        let stage = match checked {
            Err(status) => Stage::Refused { status },
            Ok(()) => {
                let (service, request) = (self.service.clone(), request.map(|body| self.watch(body, number)));
                match takes_turn {
                    false => Stage::waiting(service, request),
                    true => Stage::begin(service, request),
                }
            }
        };
        Answer {
            progress: Arc::clone(&self.progress),
            asked,
            waits_for_turn: !takes_turn,
            stage,
        }
    }
}

impl<T: Send + 'static, S> Http1Service<T, S> {
    fn watch(&self, body: hyper::body::Incoming, request: u64) -> Incoming {
        if body.is_end_stream() {
            return Incoming::empty();
        }
        let watch = RequestWatch {
            request,
            progress: Arc::clone(&self.progress),
            transport: self.transport.share(),
        };
        Incoming::http1(body, Box::new(watch))
    }
}

pin_project! {
    /// The response to a request.
    pub(super) struct Answer<S, F> {
        progress: Arc<Progress>,
        asked: Asked,
        waits_for_turn: bool,
        #[pin]
        stage: Stage<S, F>,
    }
}

pin_project! {
    #[project = StageNow]
    enum Stage<S, F> {
        Refused {
            status: StatusCode,
        },
        // The service may not be ready.
        Called {
            service: S,
            request: Option<Request<Incoming>>,
        },
        Answering {
            #[pin]
            future: F,
        },
        // The response was returned.
        Answered,
    }
}

impl<S: Service<Request<Incoming>>> Stage<S, S::Future> {
    /// Calls a service that is ready, so that the request is not moved once more. A service that is not ready is asked again
    /// when hyper polls the answer: here hyper passes no waker.
    #[inline(always)]
    fn begin(mut service: S, request: Request<Incoming>) -> Self {
        let mut cx = Context::from_waker(Waker::noop());
        match std::panic::catch_unwind(AssertUnwindSafe(|| service.poll_ready(&mut cx))) {
            Ok(Poll::Ready(Ok(()))) => {}
            Ok(Poll::Pending) => return Stage::waiting(service, request),
            Ok(Poll::Ready(Err(_))) | Err(_) => return Stage::Refused { status: FAILED },
        }
        match std::panic::catch_unwind(AssertUnwindSafe(|| service.call(request))) {
            Ok(future) => Stage::Answering { future },
            Err(_) => Stage::Refused { status: FAILED },
        }
    }

    #[inline(always)]
    fn waiting(service: S, request: Request<Incoming>) -> Self {
        Stage::Called {
            service,
            request: Some(request),
        }
    }
}

impl<S, B> Future for Answer<S, S::Future>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if *this.waits_for_turn {
            if !this.progress.takes_turn() {
                wake_after_sockets(cx);
                return Poll::Pending;
            }
            *this.waits_for_turn = false;
        }
        // A service that panics or fails ends its own connection only.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| poll_stage(this.stage.as_mut(), cx)));
        let answered = match polled {
            Ok(polled) => ready!(polled),
            Err(_) => Err(FAILED),
        };
        // If it holds the body of the request, nobody else will read that.
        this.stage.set(Stage::Answered);
        #[cfg(feature = "tracing")]
        super::trace::response(answered.as_ref().map_or_else(|status| *status, Response::status));
        let progress = Arc::clone(this.progress);
        Poll::Ready(Ok(match answered {
            Ok(response) => {
                let now = progress.respond(this.asked.begins_tunnel(response.status()));
                this.asked.response(response, now, progress)
            }
            Err(status) => {
                let now = progress.respond(false);
                refusal(status, now, progress)
            }
        }))
    }
}

fn poll_stage<S, B>(
    mut stage: Pin<&mut Stage<S, S::Future>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<B>, StatusCode>>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    loop {
        let future = match stage.as_mut().project() {
            StageNow::Refused { status } => return Poll::Ready(Err(*status)),
            StageNow::Answered => return Poll::Pending,
            StageNow::Answering { future } => return future.poll(cx).map_err(|_| FAILED),
            StageNow::Called { service, request } => {
                if ready!(service.poll_ready(cx)).is_err() {
                    return Poll::Ready(Err(FAILED));
                }
                match request.take() {
                    Some(request) => service.call(request),
                    // Polled again after a panic.
                    None => return Poll::Ready(Err(FAILED)),
                }
            }
        };
        stage.set(Stage::Answering { future });
    }
}
