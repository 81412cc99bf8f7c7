//! The client of the service, over any channel.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{IntoRequest, IntoStreamingRequest, Response, Status, Streaming};

use super::Octets;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the client needs of a channel. tonic's generator writes the same bounds.
pub(crate) trait Transport:
    GrpcService<Body, Future: Send, ResponseBody: HttpBody<Error: Into<BoxError> + Send> + Send + 'static>
    + Clone
    + Send
    + 'static
{
}

impl<T> Transport for T where
    T: GrpcService<Body, Future: Send, ResponseBody: HttpBody<Error: Into<BoxError> + Send> + Send + 'static>
        + Clone
        + Send
        + 'static
{
}

/// A client.
#[derive(Clone)]
pub(crate) struct Client<T> {
    grpc: Grpc<T>,
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}

impl<T: Transport> Client<T> {
    pub(crate) fn new(channel: T) -> Self {
        Client {
            grpc: Grpc::new(channel),
        }
    }

    /// Limits the size of each message that is sent.
    pub(crate) fn limit_messages(&mut self, bytes: usize) {
        self.grpc = self.grpc.clone().max_encoding_message_size(bytes);
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::from_error(error.into()))
    }

    /// The message comes back. The field `want-status` asks for that status instead.
    pub(crate) async fn unary(
        &mut self,
        message: impl IntoRequest<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let request = message.into_request();
        self.grpc.unary(request, path("/test.Echo/Unary"), Octets).await
    }

    /// `"COUNT SIZE"` asks for so many messages of this size.
    pub(crate) async fn expand(
        &mut self,
        message: impl IntoRequest<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.ready().await?;
        let request = message.into_request();
        let path = path("/test.Echo/Expand");
        self.grpc.server_streaming(request, path, Octets).await
    }

    /// The answer is `"COUNT BYTES"`.
    pub(crate) async fn collect(
        &mut self,
        messages: impl IntoStreamingRequest<Message = Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let request = messages.into_streaming_request();
        let path = path("/test.Echo/Collect");
        self.grpc.client_streaming(request, path, Octets).await
    }

    /// Each message comes back.
    pub(crate) async fn both(
        &mut self,
        messages: impl IntoStreamingRequest<Message = Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.ready().await?;
        let request = messages.into_streaming_request();
        self.grpc
            .streaming(request, path("/test.Echo/Both"), Octets)
            .await
    }

    /// Never answers.
    pub(crate) async fn wait(&mut self, message: impl IntoRequest<Bytes>) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let request = message.into_request();
        self.grpc.unary(request, path("/test.Echo/Wait"), Octets).await
    }

    /// Sends one message, and then nothing.
    pub(crate) async fn drip(
        &mut self,
        message: impl IntoRequest<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.ready().await?;
        let request = message.into_request();
        self.grpc
            .server_streaming(request, path("/test.Echo/Drip"), Octets)
            .await
    }

    /// No method of this name.
    pub(crate) async fn nothing(&mut self) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let request = Bytes::new().into_request();
        self.grpc.unary(request, path("/test.Echo/Nothing"), Octets).await
    }
}
