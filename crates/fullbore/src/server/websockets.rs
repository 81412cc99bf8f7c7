//! WebSockets over HTTP/2 (RFC 8441) for handlers that know only the upgrade of HTTP/1.1.
//!
//! Such a handler takes a `hyper::upgrade::OnUpgrade` from the request's extensions. Only hyper makes one, at the end of an
//! exchange over HTTP/1.1. So each WebSocket has such an exchange over a pipe in memory. What the handler writes to its
//! end of the pipe becomes the response body, and the request body goes the other way. `limit` bounds how many there are.

mod limit;
mod near;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fullbore_proto::Protocol;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio_util::io::poll_read_buf;
use tower_service::Service;

use self::limit::Place;
pub use self::limit::{DEFAULT_MAX_WEB_SOCKETS, WebSocketLimit};
use self::near::{End, Near};
use super::peer::PeerAddr;
use crate::body::Incoming;
use crate::error::BoxError;
use crate::file::Chunk;

/// How much waits in each direction of a pipe.
const PIPE: usize = 16 << 10;

/// The most that one frame of the response body holds.
const PIECE: usize = 16 << 10;

/// From this length on a frame of the response body keeps the memory that it was read into.
const LONG: usize = PIECE / 2;

/// The answer that ends the exchange over HTTP/1.1.
const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// A service whose handlers accept WebSockets over HTTP/2 as they do over HTTP/1.1, such as those of `axum` that take a
/// `WebSocketUpgrade`. Route them with `any`: over HTTP/2 the method is CONNECT. The server has to allow extended CONNECT
/// ([`Config::enable_connect_protocol`](crate::Config::enable_connect_protocol)).
///
/// Each WebSocket over HTTP/2 is copied through a pipe of 16 KiB in each direction, and takes up to 80 KiB beside what its
/// handler holds. [`WebSocketLimit`] bounds how many there are; what is beyond it is answered with 503. Other requests cost
/// nothing. The feature `http2` of `axum` must be off: it asks for an extension that only hyper's own HTTP/2 has.
///
/// A handler may hold more than that: `axum` reads each WebSocket, of either version, through a buffer of 128 KiB unless
/// `WebSocketUpgrade::read_buffer_size` sets another size, and takes messages of up to 64 MiB unless `max_message_size` does.
///
/// If the client resets the stream, or its connection ends, the handler's next read fails with
/// [`ConnectionReset`](std::io::ErrorKind::ConnectionReset). A handler that answers with success and drops the upgrade sends its
/// own body, which then ends the stream.
///
/// ```no_run
/// # async fn run(app: axum::Router) -> Result<(), fullbore::Error> {
/// use fullbore::server::WebSockets;
///
/// let builder = fullbore::Server::builder().config(|config| config.set_enable_connect_protocol(true));
/// let server = builder.bind("127.0.0.1:0").await?;
/// server.serve(WebSockets::new(app)).await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct WebSockets<S> {
    service: S,
    limit: WebSocketLimit,
}

impl<S> WebSockets<S> {
    /// Wraps a service. All services that are wrapped in a process share one limit, of [`DEFAULT_MAX_WEB_SOCKETS`], so that one
    /// may be wrapped for each connection.
    pub fn new(service: S) -> Self {
        let limit = WebSocketLimit::of_process();
        WebSockets { service, limit }
    }

    /// Counts its WebSockets against another limit.
    pub fn limit(mut self, limit: WebSocketLimit) -> Self {
        self.limit = limit;
        self
    }
}

impl<S, B> Service<Request<Incoming>> for WebSockets<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Response = Response<WebSocketsBody<B>>;
    type Error = S::Error;
    type Future = WebSocketsFuture<S::Future, Self::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if !is_web_socket(&request) {
            let answer = self.service.call(request);
            return WebSocketsFuture {
                answering: Answering::Plain { answer },
            };
        }
        let Some(place) = self.limit.take(PeerAddr::current()) else {
            return WebSocketsFuture {
                answering: Answering::Refused,
            };
        };
        // The one that is ready.
        let clone = self.service.clone();
        let service = std::mem::replace(&mut self.service, clone);
        let answer = Box::pin(accept(service, request, place));
        WebSocketsFuture {
            answering: Answering::WebSocket { answer },
        }
    }
}

fn is_web_socket<B>(request: &Request<B>) -> bool {
    let protocol = request.extensions().get::<Protocol>();
    *request.method() == Method::CONNECT && protocol.is_some_and(|protocol| protocol.as_str() == "websocket")
}

/// Calls the service with an upgrade, and joins the pipe to the bodies if it accepts.
async fn accept<S, B>(
    mut service: S,
    mut request: Request<Incoming>,
    place: Place,
) -> Result<Response<WebSocketsBody<B>>, S::Error>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    let input = std::mem::replace(request.body_mut(), Incoming::empty());
    // Without one, the service says that the connection cannot be upgraded.
    let mut pipe = upgrade(place).await.ok().map(|(pipe, dropped, end, upgrade)| {
        request.extensions_mut().insert(upgrade);
        (pipe, dropped, end)
    });
    let response = service.call(request).await?;
    let (head, body) = response.into_parts();
    let is_alive = |dropped: &mut oneshot::Receiver<()>| {
        matches!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    };
    // The handler, or a task of its, still has its end of the pipe.
    let is_taken = head.status.is_success() && pipe.as_mut().is_some_and(|(_, dropped, _)| is_alive(dropped));
    let body = match pipe {
        Some((pipe, dropped, end)) if is_taken => {
            let (reader, writer) = tokio::io::split(pipe);
            // A client may stay silent for ever: its stream ends when the handler is gone.
            tokio::spawn(async move {
                tokio::select! {
                    () = pass(input, writer, &end) => {}
                    _ = dropped => {}
                }
            });
            Sending::WebSocket {
                pipe: reader,
                read: BytesMut::new(),
            }
        }
        _ => Sending::Plain { body },
    };
    Ok(Response::from_parts(head, WebSocketsBody { sending: body }))
}

/// Makes an upgrade for the handler, and the other end of its pipe. The receiver ends when the handler drops its end.
async fn upgrade(
    place: Place,
) -> Result<(DuplexStream, oneshot::Receiver<()>, Arc<End>, OnUpgrade), BoxError> {
    let (pipe, mut far) = tokio::io::duplex(PIPE);
    let (alive, dropped) = oneshot::channel();
    let end = Arc::new(End::new(place));
    let near = Near::new(pipe, Arc::clone(&end), alive);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await?;
    let request = Request::get("/")
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "websocket");
    let sent = sender.send_request(request.body(String::new())?);
    // When the connection has ended, nobody but the upgrade has the handler's end of the pipe.
    let (response, switched, connected) = tokio::join!(sent, switch(&mut far), connection.with_upgrades());
    switched?;
    connected?;
    Ok((far, dropped, end, hyper::upgrade::on(response?)))
}

/// Reads a request without a body, and answers it.
async fn switch(far: &mut DuplexStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if far.read_buf(&mut request).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    far.write_all(SWITCHING).await
}

/// Passes a request body on, until its end or an error.
async fn pass(mut body: Incoming, mut pipe: WriteHalf<DuplexStream>, end: &End) {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let data = match frame {
            Some(Ok(frame)) => frame.into_data(),
            Some(Err(error)) => return end.fail(error),
            None => break,
        };
        let Ok(mut data) = data else { continue };
        // A chunk keeps the memory of a whole read, so what has to wait is copied. Its credit has returned already.
        match pipe.write(&data).now_or_never() {
            Some(Ok(written)) if written == data.len() => continue,
            Some(Ok(written)) => data = Bytes::copy_from_slice(&data[written..]),
            Some(Err(_)) => return,
            None => data = Bytes::copy_from_slice(&data),
        }
        if pipe.write_all(&data).await.is_err() {
            return;
        }
    }
    let _ = pipe.shutdown().await;
}

pin_project! {
    /// The future of [`WebSockets`].
    pub struct WebSocketsFuture<F, T, E> {
        #[pin]
        answering: Answering<F, T, E>,
    }
}

pin_project! {
    #[project = AnsweringNow]
    enum Answering<F, T, E> {
        Plain { #[pin] answer: F },
        WebSocket { answer: BoxFuture<'static, Result<T, E>> },
        // Beyond the limit.
        Refused,
    }
}

impl<F, B, E> Future for WebSocketsFuture<F, Response<WebSocketsBody<B>>, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<WebSocketsBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().answering.project() {
            AnsweringNow::Plain { answer } => {
                let plain = |body| WebSocketsBody {
                    sending: Sending::Plain { body },
                };
                answer.poll(cx).map_ok(|response| response.map(plain))
            }
            AnsweringNow::WebSocket { answer } => answer.as_mut().poll(cx),
            AnsweringNow::Refused => Poll::Ready(Ok(refusal())),
        }
    }
}

/// The answer to a WebSocket beyond the limit.
fn refusal<B>() -> Response<WebSocketsBody<B>> {
    let mut response = Response::new(WebSocketsBody {
        sending: Sending::Nothing,
    });
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let after = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, after);
    response
}

impl<F, T, E> fmt::Debug for WebSocketsFuture<F, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketsFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// The response body of [`WebSockets`]: of the service's own, or what a handler writes to a WebSocket.
    pub struct WebSocketsBody<B> {
        #[pin]
        sending: Sending<B>,
    }
}

pin_project! {
    #[project = SendingNow]
    enum Sending<B> {
        Plain { #[pin] body: B },
        WebSocket { pipe: ReadHalf<DuplexStream>, read: BytesMut },
        Nothing,
    }
}

impl<B> Body for WebSocketsBody<B>
where
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Data = Chunk;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, BoxError>>> {
        match self.project().sending.project() {
            SendingNow::Plain { body } => {
                let frame = ready!(body.poll_frame(cx));
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(Into::into)),
                    Err(error) => Err(error.into()),
                }))
            }
            SendingNow::WebSocket { pipe, read } => {
                read.reserve(PIECE);
                let Poll::Ready(count) = poll_read_buf(Pin::new(pipe), cx, read) else {
                    // A WebSocket that is silent holds no buffer.
                    *read = BytesMut::new();
                    return Poll::Pending;
                };
                let count = count?;
                let data = match count < LONG {
                    true => {
                        let data = Bytes::copy_from_slice(read);
                        read.clear();
                        data
                    }
                    false => read.split().freeze(),
                };
                Poll::Ready((count > 0).then(|| Ok(Frame::data(data.into()))))
            }
            SendingNow::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.sending {
            Sending::Plain { body } => body.is_end_stream(),
            Sending::WebSocket { .. } => false,
            Sending::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.sending {
            Sending::Plain { body } => body.size_hint(),
            Sending::WebSocket { .. } => SizeHint::default(),
            Sending::Nothing => SizeHint::with_exact(0),
        }
    }
}

impl<B> fmt::Debug for WebSocketsBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketsBody").finish_non_exhaustive()
    }
}
