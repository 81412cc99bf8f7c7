//! Handlers as services of one type. The server is generic over its service: where each handler has a type of its own, the
//! test program holds a driver for each of them, and takes minutes to compile.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use fullbore::body::Chunk;
use fullbore::{BoxError, Incoming};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tower::Service;
use tower::util::BoxCloneService;

use super::pair::Reply;

type Answer = Response<UnsyncBoxBody<Chunk, BoxError>>;

/// A service that answers with `handler`.
pub(crate) fn service<H, F, B, E>(mut handler: H) -> BoxCloneService<Request<Incoming>, Answer, BoxError>
where
    H: FnMut(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
    E: Into<BoxError>,
{
    BoxCloneService::new(tower::service_fn(move |request| {
        let answer = handler(request);
        async move {
            let response = answer.await.map_err(Into::into)?;
            Ok(response.map(|body| Chunked(Box::pin(body)).boxed_unsync()))
        }
    }))
}

/// A body whose data and errors are of one type.
struct Chunked<B>(Pin<Box<B>>);

impl<B> Body for Chunked<B>
where
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Data = Chunk;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, BoxError>>> {
        let frame = self.0.as_mut().poll_frame(cx);
        frame
            .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(Into::into)).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

type LocalAnswer = Pin<Box<dyn Future<Output = Result<Reply, BoxError>>>>;

/// As [`service`], for handlers that are not `Send`.
#[derive(Clone)]
pub(crate) struct Local(Rc<dyn Fn(Request<Incoming>) -> LocalAnswer>);

impl Local {
    pub(crate) fn new<H, F>(handler: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + 'static,
        F: Future<Output = Result<Reply, BoxError>> + 'static,
    {
        Local(Rc::new(move |request| Box::pin(handler(request))))
    }
}

impl Service<Request<Incoming>> for Local {
    type Response = Reply;
    type Error = BoxError;
    type Future = LocalAnswer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        (self.0)(request)
    }
}
