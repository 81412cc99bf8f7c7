//! The service that hyper calls: checks a request, calls the caller's service, and turns its failures into responses.

use std::convert::Infallible;
use std::future::Future;
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

/// The answer for a service that fails.
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
        let progress = Arc::clone(&self.progress);
        let answer = |progress, waits_for_turn, stage| Answer {
            progress,
            asked,
            waits_for_turn,
            stage,
        };
        if let Err(status) = checked {
            return answer(progress, false, Stage::Refused { status });
        }
        let request = request.map(|body| self.watch(body, number));
        let mut service = self.service.clone();
        if !takes_turn {
            return answer(progress, true, Stage::waiting(service, request));
        }
        // A service that is ready is called at once, so that the request is not moved once more. One that is not ready is
        // asked again when hyper polls the answer: here hyper passes no waker.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Answer {
                progress,
                asked,
                waits_for_turn: false,
                stage: Stage::Answering {
                    future: service.call(request),
                },
            },
            Poll::Ready(Err(_)) => answer(progress, false, Stage::Refused { status: FAILED }),
            Poll::Pending => answer(progress, false, Stage::waiting(service, request)),
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

impl<S, F> Stage<S, F> {
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
        let answered = ready!(poll_stage(this.stage.as_mut(), cx));
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
                    // It was called, and panicked.
                    None => return Poll::Ready(Err(FAILED)),
                }
            }
        };
        stage.set(Stage::Answering { future });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bytes::Bytes;
    use http_body_util::Empty;

    use super::*;

    type Reply = Result<Response<Empty<Bytes>>, BoxError>;

    /// A service that is ready or not, and whose responses take two polls.
    #[derive(Clone)]
    struct Script {
        ready: Result<(), &'static str>,
        calls: Arc<AtomicU32>,
    }

    impl Script {
        fn new(ready: Result<(), &'static str>) -> Self {
            Script {
                ready,
                calls: Arc::default(),
            }
        }
    }

    impl Service<Request<Incoming>> for Script {
        type Response = Response<Empty<Bytes>>;
        type Error = BoxError;
        type Future = Pin<Box<dyn Future<Output = Reply> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(self.ready.map_err(Into::into))
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            self.calls.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(Response::new(Empty::new()))
            })
        }
    }

    type Answering = Pin<Box<Answer<Script, <Script as Service<Request<Incoming>>>::Future>>>;

    /// A request that waits for its turn.
    fn waiting(service: &Script, progress: &Arc<Progress>) -> Answering {
        let request = Request::new(Incoming::empty());
        Box::pin(Answer {
            progress: Arc::clone(progress),
            asked: Asked::of(&request),
            waits_for_turn: true,
            stage: Stage::waiting(service.clone(), request),
        })
    }

    /// Polls it once. The status of its response.
    async fn poll(answer: &mut Answering) -> Poll<StatusCode> {
        std::future::poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            Poll::Ready(polled.map(|answered| match answered {
                Ok(response) => response.status(),
                Err(never) => match never {},
            }))
        })
        .await
    }

    #[tokio::test]
    async fn a_request_beyond_those_of_a_turn_reaches_its_service_in_the_next_one() {
        let (service, progress) = (Script::new(Ok(())), Arc::default());
        let mut answer = waiting(&service, &progress);
        while progress.takes_turn() {}
        assert!(poll(&mut answer).await.is_pending());
        assert_eq!(service.calls.load(Ordering::Relaxed), 0);
        progress.end_turn();
        assert!(poll(&mut answer).await.is_pending());
        assert_eq!(service.calls.load(Ordering::Relaxed), 1);
        // A request takes one turn, however often its response is asked for.
        while progress.takes_turn() {}
        assert_eq!(poll(&mut answer).await, Poll::Ready(StatusCode::OK));
        assert!(progress.now().responded);
    }

    #[tokio::test]
    async fn a_service_that_fails_before_the_request_answers_500() {
        let (service, progress) = (Script::new(Err("no room")), Arc::default());
        let mut answer = waiting(&service, &progress);
        assert_eq!(
            poll(&mut answer).await,
            Poll::Ready(StatusCode::INTERNAL_SERVER_ERROR)
        );
        assert_eq!(service.calls.load(Ordering::Relaxed), 0);
    }
}
