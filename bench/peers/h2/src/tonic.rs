//! A server of tonic, without protocol buffers: messages are octets as they are.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use clap::Args;
use tokio::net::TcpListener;
use tokio_stream::iter;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tower_service::Service;

use crate::{Failure, Threads};

const MESSAGE: Bytes = Bytes::from_static(&[b'x'; 1 << 20]);

#[derive(Args)]
pub(crate) struct Server {
    #[command(flatten)]
    threads: Threads,
}

impl Server {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let runtime = self.threads.runtime()?;
        runtime.block_on(runtime.spawn(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("listening on {}", listener.local_addr()?);
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            let server = tonic::transport::Server::builder();
            Ok(server.serve_with_incoming(Calls, incoming).await?)
        }))?
    }
}

#[derive(Clone)]
struct Calls;

impl NamedService for Calls {
    const NAME: &'static str = "bench.Calls";
}

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(Octets);
            Ok(match request.uri().path() {
                "/bench.Calls/Unary" => grpc.unary(tower::service_fn(unary), request).await,
                "/bench.Calls/Stream" => grpc.server_streaming(tower::service_fn(stream), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

async fn unary(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    Ok(Response::new(request.into_inner()))
}

async fn stream(
    request: Request<Bytes>,
) -> Result<Response<impl tokio_stream::Stream<Item = Result<Bytes, Status>>>, Status> {
    let text = request.into_inner();
    let count = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    let count: usize = count.ok_or_else(|| Status::invalid_argument("no number"))?;
    Ok(Response::new(iter((0..count).map(|_| Ok(MESSAGE)))))
}

struct Octets;

impl Codec for Octets {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Octets;
    type Decoder = Octets;

    fn encoder(&mut self) -> Octets {
        Octets
    }

    fn decoder(&mut self) -> Octets {
        Octets
    }
}

impl Encoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
