//! The service, for tonic's server and for fullbore's.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status, Streaming};
use tower_service::Service;

use super::Octets;

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// What the service tells a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A call of this method began, from this address.
    Began(String, Option<SocketAddr>),
    /// A handler, or the messages that it returned, were dropped before the end.
    Dropped,
}

/// The service.
#[derive(Clone)]
pub(crate) struct Echo {
    events: UnboundedSender<Event>,
}

impl Echo {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Event>) {
        let (events, told) = unbounded_channel();
        (Echo { events }, told)
    }
}

/// Tells when it is dropped.
struct Watch(UnboundedSender<Event>);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Dropped);
    }
}

impl NamedService for Echo {
    const NAME: &'static str = super::SERVICE;
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        let events = self.events.clone();
        let mut grpc = Grpc::new(Octets);
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let method = method.to_owned();
        Box::pin(async move {
            let began = |address| drop(events.send(Event::Began(method.clone(), address)));
            Ok(match &*method {
                "Unary" => {
                    let unary = tower::service_fn(move |request: Request<Bytes>| async { answer(request) });
                    began(None);
                    grpc.unary(unary, request).await
                }
                "Expand" => {
                    let expand = |request: Request<Bytes>| async move { expand(&request.into_inner()) };
                    grpc.server_streaming(tower::service_fn(expand), request).await
                }
                "Collect" => {
                    let collect = tower::service_fn(|request| async move { collect(request).await });
                    grpc.client_streaming(collect, request).await
                }
                "Both" => {
                    let both = |request: Request<Streaming<Bytes>>| async move {
                        Ok(Response::new(Box::pin(request.into_inner()) as Messages))
                    };
                    grpc.streaming(tower::service_fn(both), request).await
                }
                "Wait" => {
                    let wait = tower::service_fn(|request: Request<Bytes>| {
                        let watch = Watch(events.clone());
                        began(request.remote_addr());
                        async move {
                            let _watch = watch;
                            pending::<Result<Response<Bytes>, Status>>().await
                        }
                    });
                    grpc.unary(wait, request).await
                }
                "Drip" => {
                    let drip = tower::service_fn(|request: Request<Bytes>| {
                        let watch = Watch(events.clone());
                        began(request.remote_addr());
                        async move { Ok(Response::new(drip(watch, request.into_inner()))) }
                    });
                    grpc.server_streaming(drip, request).await
                }
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

fn answer(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    if let Some(wanted) = request.metadata().get("want-status") {
        let code = Code::from_bytes(wanted.as_bytes());
        return Err(Status::with_details(
            code,
            "wie gewünscht: 100 %",
            Bytes::from_static(&[0, 255]),
        ));
    }
    let mut response = Response::new(Bytes::new());
    if let Some(text) = request.metadata().get("x-text") {
        response.metadata_mut().insert("x-text", text.clone());
    }
    if let Some(octets) = request.metadata().get_bin("x-octets-bin") {
        response.metadata_mut().insert_bin("x-octets-bin", octets.clone());
    }
    *response.get_mut() = request.into_inner();
    Ok(response)
}

fn expand(message: &[u8]) -> Result<Response<Messages>, Status> {
    let text = String::from_utf8_lossy(message);
    let numbers = text.split_once(' ').and_then(|(count, size)| {
        let (count, size): (usize, usize) = (count.parse().ok()?, size.parse().ok()?);
        Some((count, size))
    });
    let (count, size) = numbers.ok_or_else(|| Status::invalid_argument("COUNT SIZE"))?;
    let message = Bytes::from(vec![b'x'; size]);
    let messages = tokio_stream::iter((0..count).map(move |_| Ok(message.clone())));
    Ok(Response::new(Box::pin(messages)))
}

async fn collect(request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
    let mut messages = request.into_inner();
    let (mut count, mut bytes) = (0, 0);
    while let Some(message) = messages.message().await? {
        count += 1;
        bytes += message.len();
    }
    Ok(Response::new(format!("{count} {bytes}").into()))
}

fn drip(watch: Watch, message: Bytes) -> Messages {
    let rest = tokio_stream::pending().map(move |never| {
        let _watch = &watch;
        never
    });
    Box::pin(tokio_stream::once(Ok(message)).chain(rest))
}
