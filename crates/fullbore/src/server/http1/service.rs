//! The service that hyper calls: checks a request, calls the caller's service, and turns its failures into responses.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::Body;
use tower_service::Service;

use super::request::{check, message_end};
use super::response::{Asked, ResponseBody, refusal};
use crate::body::Incoming;
use crate::error::{BoxError, Error};
use crate::file::Chunk;
use crate::http1::{BodyEnd, BodyWatch, Meter};
use crate::sender::MANY_EMPTY;
use crate::server::rules::Content;
use crate::server::verdict::ExchangeVerdict;
use crate::turns::{self, wake_after_sockets};

/// The answer for a service that fails.
const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

pub(super) struct Http1Service<S> {
    service: S,
    /// The clone of the service that requests are passed to, one after the other. None when it was not ready, or has failed.
    current: RefCell<Option<S>>,
    meter: Arc<Meter>,
}

impl<S, B> hyper::service::Service<Request<hyper::body::Incoming>> for Http1Service<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = Answer<S, S::Future, B>;

    // A request is long, and so is the future of a handler that has it: each is moved as rarely as possible. Boxed at once, the
    // future is moved once, and not with each answer from here into hyper.
    #[inline]
    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        let (head, body) = request.into_parts();
        let receives = !body.is_end_stream();
        turns::count();
        let (number, takes_turn) = self.meter.begin(receives);
        #[cfg(feature = "tracing")]
        super::trace::request(&head);
        let asked = Asked::of(&head, &body);
        if self.meter.is_last() {
            // It may be a part of the message before.
            return self.answer(asked, Stage::Refused(StatusCode::BAD_REQUEST));
        }
        if let Err(status) = self.check(&head, &body) {
            self.meter.refuse(status);
            return self.answer(asked, Stage::Refused(status));
        }
        let body = match receives {
            true => self.watch(body, number),
            false => Incoming::empty(),
        };
        let mut current = self.current.borrow_mut();
        let service = current.get_or_insert_with(|| self.service.clone());
        // A service that is ready is called at once. One that is not ready is asked again when hyper polls the answer: here
        // hyper passes no waker.
        let ready = match takes_turn {
            true => service.poll_ready(&mut Context::from_waker(Waker::noop())),
            false => Poll::Pending,
        };
        match ready {
            Poll::Ready(Ok(())) => Answer {
                meter: Some(Arc::clone(&self.meter)),
                asked,
                stage: Stage::Answering(Box::pin(service.call(Request::from_parts(head, body)))),
            },
            Poll::Ready(Err(_)) => {
                *current = None;
                self.answer(asked, Stage::Refused(FAILED))
            }
            Poll::Pending => {
                // It may have a place in a queue.
                let service = current.take();
                self.wait(service, asked, head, body, !takes_turn)
            }
        }
    }
}

impl<S> Http1Service<S> {
    pub(super) fn new(service: S, meter: Arc<Meter>) -> Self {
        Http1Service {
            service,
            current: RefCell::new(None),
            meter,
        }
    }

    /// Checks a request: [`check`].
    fn check(&self, head: &Parts, body: &hyper::body::Incoming) -> Result<(), StatusCode> {
        // What was read is needed only for a request with a body.
        if body.is_end_stream() {
            return check(head, None);
        }
        self.meter.with_noted(|noted| {
            // The end of a chunked body is not known.
            let length = body.size_hint().exact();
            let end = length.map_or(usize::MAX, |length| message_end(noted, length));
            (check(head, Some(noted)), end)
        })
    }

    #[inline(never)]
    fn watch(&self, body: hyper::body::Incoming, request: u64) -> Incoming {
        let watch = RequestWatch {
            request,
            meter: Arc::clone(&self.meter),
        };
        let length = body.size_hint().exact();
        Incoming::http1(body, length, Box::new(watch))
    }

    /// The answer to a request that is not passed to its service yet.
    #[cold]
    #[inline(never)]
    fn wait<F, B>(
        &self,
        service: Option<S>,
        asked: Asked,
        head: Parts,
        body: Incoming,
        for_turn: bool,
    ) -> Answer<S, F, B>
    where
        S: Clone,
    {
        let service = service.unwrap_or_else(|| self.service.clone());
        let request = Request::from_parts(head, body);
        self.answer(asked, Stage::waiting(service, request, for_turn))
    }

    #[cold]
    fn answer<F, B>(&self, asked: Asked, stage: Stage<S, F, B>) -> Answer<S, F, B> {
        Answer {
            meter: Some(Arc::clone(&self.meter)),
            asked,
            stage,
        }
    }
}

/// Watches the body of a request.
struct RequestWatch {
    request: u64,
    meter: Arc<Meter>,
}

impl BodyWatch for RequestWatch {
    fn ended(self: Box<Self>, end: BodyEnd) {
        self.meter.received_body(self.request, end);
    }

    fn cause(&self) -> Option<Error> {
        self.meter.cause()
    }
}

/// The response to a request.
pub(super) struct Answer<S, F, B> {
    /// None once the response was returned.
    meter: Option<Arc<Meter>>,
    asked: Asked,
    stage: Stage<S, F, B>,
}

enum Stage<S, F, B> {
    Answering(Pin<Box<F>>),
    Waiting(Box<Waiting<S>>),
    Emptying(Box<Emptying<B>>),
    Refused(StatusCode),
    /// The response was returned.
    Answered,
}

/// A request that was not passed to its service.
struct Waiting<S> {
    service: S,
    request: Option<Request<Incoming>>,
    for_turn: bool,
}

/// A response whose head announces no octets, while its body is looked through: hyper would not ask for it.
struct Emptying<B> {
    /// None once the body is at its end.
    head: Option<response::Parts>,
    content: Content,
    body: Pin<Box<B>>,
}

impl<B> Emptying<B>
where
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    /// Waits for the end of the body.
    #[cold]
    #[inline(never)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Content::Body(mut length) = self.content else {
            return Poll::Ready(Ok(()));
        };
        let mut empty = 0;
        while let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) {
            if empty == MANY_EMPTY {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            empty += 1;
            let frame = frame.map_err(|error| Error::body(error.into()))?;
            match frame.into_data() {
                Ok(data) => length.count(data.into().len(), false)?,
                // Behind a `content-length` no trailers are sent.
                Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S, F, B> Stage<S, F, B> {
    fn waiting(service: S, request: Request<Incoming>, for_turn: bool) -> Self {
        Stage::Waiting(Box::new(Waiting {
            service,
            request: Some(request),
            for_turn,
        }))
    }
}

impl<S> Waiting<S>
where
    S: Service<Request<Incoming>>,
{
    /// The future of the service, once the request has its turn and the service is ready.
    #[cold]
    #[inline(never)]
    fn poll_call(&mut self, meter: &Meter, cx: &mut Context<'_>) -> Poll<Result<S::Future, StatusCode>> {
        if self.for_turn {
            if !meter.takes_turn() {
                wake_after_sockets(cx);
                return Poll::Pending;
            }
            self.for_turn = false;
        }
        if ready!(self.service.poll_ready(cx)).is_err() {
            return Poll::Ready(Err(FAILED));
        }
        Poll::Ready(match self.request.take() {
            Some(request) => Ok(self.service.call(request)),
            // It was called, and panicked.
            None => Err(FAILED),
        })
    }
}

impl<S, B> Answer<S, S::Future, B>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    /// The response for hyper. It is returned once.
    #[inline]
    fn respond(&mut self, head: response::Parts, body: Option<B>, content: Content) -> Polled<B> {
        // If the service holds the body of the request, nobody else will read that.
        self.stage = Stage::Answered;
        let Some(meter) = self.meter.take() else {
            return Poll::Pending;
        };
        if let Some(verdict) = head.extensions.get::<ExchangeVerdict>() {
            verdict.answer_of_http1(&meter);
        }
        #[cfg(feature = "tracing")]
        super::trace::response(head.status);
        let now = meter.respond(self.asked.begins_tunnel(head.status));
        Poll::Ready(Ok(self.asked.response(head, body, content, now, meter)))
    }

    /// The service returned a response that cannot be sent.
    #[cold]
    fn give_up(&mut self, error: &Error) -> Polled<B> {
        #[cfg(feature = "tracing")]
        super::trace::given_up(error);
        #[cfg(not(feature = "tracing"))]
        let _ = error;
        self.refuse(FAILED)
    }

    /// The response to a request that is refused.
    #[cold]
    fn refuse(&mut self, status: StatusCode) -> Polled<B> {
        self.stage = Stage::Answered;
        let Some(meter) = self.meter.take() else {
            return Poll::Pending;
        };
        #[cfg(feature = "tracing")]
        super::trace::response(status);
        let now = meter.respond(false);
        Poll::Ready(Ok(refusal(status, now, meter)))
    }
}

type Polled<B> = Poll<Result<Response<ResponseBody<B>>, Infallible>>;

impl<S, B> Future for Answer<S, S::Future, B>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(meter) = &this.meter else {
            return Poll::Pending;
        };
        loop {
            match &mut this.stage {
                Stage::Answering(future) => {
                    let Ok(response) = ready!(future.as_mut().poll(cx)) else {
                        return this.refuse(FAILED);
                    };
                    let (mut head, body) = response.into_parts();
                    match this.asked.content(&mut head, &body) {
                        Ok(content) if content.is_empty() && !body.is_end_stream() => {
                            this.stage = Stage::Emptying(Box::new(Emptying {
                                head: Some(head),
                                content,
                                body: Box::pin(body),
                            }));
                        }
                        Ok(content) => return this.respond(head, Some(body), content),
                        Err(error) => return this.give_up(&error),
                    }
                }
                Stage::Emptying(emptying) => {
                    let emptied = ready!(emptying.poll(cx));
                    let content = emptying.content;
                    return match (emptied, emptying.head.take()) {
                        (Ok(()), Some(head)) => this.respond(head, None, content),
                        (Ok(()), None) => this.refuse(FAILED),
                        (Err(error), _) => this.give_up(&error),
                    };
                }
                Stage::Waiting(waiting) => match ready!(waiting.poll_call(meter, cx)) {
                    Ok(future) => this.stage = Stage::Answering(Box::pin(future)),
                    Err(status) => return this.refuse(status),
                },
                Stage::Refused(status) => {
                    let status = *status;
                    return this.refuse(status);
                }
                Stage::Answered => return Poll::Pending,
            }
        }
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

    type Answering = Pin<Box<Answer<Script, <Script as Service<Request<Incoming>>>::Future, Empty<Bytes>>>>;

    /// A request that waits for its turn.
    fn waiting(service: &Script, meter: &Arc<Meter>) -> Answering {
        let (head, body) = Request::new(Incoming::empty()).into_parts();
        Box::pin(Answer {
            meter: Some(Arc::clone(meter)),
            asked: Asked::of(&head, &body),
            stage: Stage::waiting(service.clone(), Request::from_parts(head, body), true),
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
        let (service, meter) = (Script::new(Ok(())), Arc::default());
        let mut answer = waiting(&service, &meter);
        while meter.takes_turn() {}
        assert!(poll(&mut answer).await.is_pending());
        assert_eq!(service.calls.load(Ordering::Relaxed), 0);
        meter.end_turn();
        assert!(poll(&mut answer).await.is_pending());
        assert_eq!(service.calls.load(Ordering::Relaxed), 1);
        // A request takes one turn, however often its response is asked for.
        while meter.takes_turn() {}
        assert_eq!(poll(&mut answer).await, Poll::Ready(StatusCode::OK));
        assert!(meter.exchange().responded);
    }

    #[tokio::test]
    async fn a_service_that_fails_before_the_request_answers_500() {
        let (service, meter) = (Script::new(Err("no room")), Arc::default());
        let mut answer = waiting(&service, &meter);
        assert_eq!(
            poll(&mut answer).await,
            Poll::Ready(StatusCode::INTERNAL_SERVER_ERROR)
        );
        assert_eq!(service.calls.load(Ordering::Relaxed), 0);
    }
}
