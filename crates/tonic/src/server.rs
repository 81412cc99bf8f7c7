//! tonic's services under a server of fullbore.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore::server::SendDeadline;
use fullbore::{BoxError, Incoming};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Status;
use tower_service::Service;

use crate::deadline::Deadline;
use crate::status;

/// What gRPC asks of a server beyond HTTP, around `tonic::service::Routes` or a service that tonic generates:
///
/// - A call ends with DEADLINE_EXCEEDED when its deadline passes (`grpc-timeout`). The handler is dropped. If messages wait
///   for the client's flow-control window then, the stream is reset with CANCEL.
/// - An error of a tower layer below becomes the status of the call.
/// - The client's cancellation, and the end of its connection, reach a handler that reads the request as a status.
/// - With the feature `connect-info`, `tonic::Request::remote_addr` has the client's address.
///
/// ```
/// use fullbore_tonic::GrpcService;
///
/// let (_, health) = tonic_health::server::health_reporter();
/// let service = GrpcService::new(tonic::service::Routes::new(health));
/// # drop(service);
/// ```
#[derive(Debug, Clone)]
pub struct GrpcService<S> {
    service: S,
    /// The error of a service that is not ready, for the call that asked.
    failed: Option<Status>,
}

impl<S> GrpcService<S> {
    /// Wraps a service.
    pub fn new(service: S) -> Self {
        GrpcService {
            service,
            failed: None,
        }
    }
}

impl<S, B> Service<Request<Incoming>> for GrpcService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Response = Response<GrpcBody<B>>;
    type Error = S::Error;
    type Future = GrpcFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let ready = ready!(self.service.poll_ready(cx));
        self.failed = ready.err().map(|error| Status::from_error(error.into()));
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> GrpcFuture<S::Future> {
        if let Some(status) = self.failed.take() {
            return GrpcFuture {
                answer: Answer::Failed { status },
                deadline: Deadline::default(),
            };
        }
        let deadline = Deadline::of(request.headers());
        #[cfg_attr(
            not(feature = "connect-info"),
            allow(unused_mut, reason = "the feature adds to it")
        )]
        let mut request = request.map(|body| RequestBody { body });
        #[cfg(feature = "connect-info")]
        add_addresses(&mut request);
        GrpcFuture {
            answer: Answer::Called {
                answer: self.service.call(request),
            },
            deadline,
        }
    }
}

/// Adds the client's address where `tonic::Request::remote_addr` looks for it, unless it is there.
#[cfg(feature = "connect-info")]
fn add_addresses(request: &mut Request<RequestBody>) {
    use fullbore::server::PeerAddr;
    use tonic::transport::server::TcpConnectInfo;

    let extensions = request.extensions_mut();
    if extensions.get::<TcpConnectInfo>().is_some() {
        return;
    }
    if let Some(PeerAddr(address)) = PeerAddr::current().or_else(|| extensions.get().copied()) {
        extensions.insert(TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(address),
        });
    }
}

/// The body of a request, as a service under [`GrpcService`] receives it. Its errors are statuses.
pub struct RequestBody {
    body: Incoming,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(status::of_error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)
    }
}

pin_project! {
    /// The future of a response, from a [`GrpcService`].
    #[derive(Debug)]
    pub struct GrpcFuture<F> {
        #[pin]
        answer: Answer<F>,
        deadline: Deadline,
    }
}

pin_project! {
    #[project = AnswerNow]
    #[derive(Debug)]
    enum Answer<F> {
        // The service was called.
        Called { #[pin] answer: F },
        // It was not ready.
        Failed { status: Status },
    }
}

impl<F, B, E> Future for GrpcFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<GrpcBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = match this.answer.project() {
            AnswerNow::Called { answer } => answer.poll(cx).map_err(|error| Status::from_error(error.into())),
            AnswerNow::Failed { status } => Poll::Ready(Err(status.clone())),
        };
        let status = match answered {
            Poll::Ready(Ok(mut response)) => {
                let deadline = std::mem::take(this.deadline);
                // A body that waits for the window of the client is not polled.
                if let Some(at) = deadline.at() {
                    response.extensions_mut().insert(SendDeadline(at));
                }
                return Poll::Ready(Ok(response.map(|body| GrpcBody {
                    body: Some(body),
                    deadline,
                })));
            }
            Poll::Ready(Err(status)) => status,
            Poll::Pending => {
                ready!(this.deadline.poll(cx));
                status::deadline_exceeded()
            }
        };
        Poll::Ready(Ok(status.into_http::<()>().map(|()| GrpcBody {
            body: None,
            deadline: Deadline::default(),
        })))
    }
}

pin_project! {
    /// The body of a response, from a [`GrpcService`]: at the deadline of the call it ends with the trailers that say so.
    #[derive(Debug)]
    pub struct GrpcBody<B> {
        // None after the end.
        #[pin]
        body: Option<B>,
        deadline: Deadline,
    }
}

impl<B: Body> Body for GrpcBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        if this.deadline.poll(cx).is_pending() {
            return body.poll_frame(cx);
        }
        this.body.set(None);
        let mut trailers = HeaderMap::new();
        // Its text is a valid field.
        let _ = status::deadline_exceeded().add_header(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
