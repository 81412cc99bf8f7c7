//! Servers: requests of one connection.
//!
//! [`handshake`] takes a transport and returns a [`Connection`] once the client's preface has arrived. The connection yields
//! requests, and moves everything of all streams, while [`Connection::accept`] or [`Connection::poll_closed`] is polled.
//!
//! ```no_run
//! use http::Response;
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:8080").await?;
//! loop {
//!     let (transport, _) = listener.accept().await?;
//!     tokio::spawn(async move {
//!         let mut connection = h2::server::handshake(transport).await?;
//!         while let Some(request) = connection.accept().await {
//!             let (request, mut respond) = request?;
//!             println!("{}", request.uri());
//!             let mut body = respond.send_response(Response::new(()), false)?;
//!             body.send_data("hello".into(), true)?;
//!         }
//!         Ok::<_, h2::Error>(())
//!     });
//! }
//! # }
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::Role;
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bodies::Outbox;
use crate::driver::Driver;
use crate::error::Error;
use crate::failure::UserError;
use crate::handle::Handle;
use crate::message;
use crate::options::{builder_options, connection_options};
use crate::reason::Reason;
use crate::settings::Settings;
use crate::share::{PingPong, RecvStream, SendStream};
use crate::state::State;
use crate::stream::Asker;

/// A request with its body, and the handle that answers it.
type Accepted<B> = (Request<RecvStream>, SendResponse<B>);

/// A connection to one client: it yields requests, and moves everything while it is polled.
#[must_use = "streams do nothing unless polled"]
pub struct Connection<T, B: Buf> {
    driver: Driver<T, B>,
}

impl<T, B> Connection<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    connection_options!();

    /// The next request. None when the connection has ended.
    pub async fn accept(&mut self) -> Option<Result<(Request<RecvStream>, SendResponse<B>), Error>> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`Self::accept`].
    #[doc(hidden)]
    #[expect(clippy::type_complexity, reason = "the interface of h2")]
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(Request<RecvStream>, SendResponse<B>), Error>>> {
        // Requests that arrived together are handed out before anything else is read or written: their responses may leave in
        // one write. What is handed out is bounded by what was read.
        if self.driver.is_open() {
            if let Some(accepted) = self.take_request(State::accept_now) {
                return Poll::Ready(Some(Ok(accepted)));
            }
        }
        if self.poll_closed(cx)?.is_ready() {
            return Poll::Ready(None);
        }
        match self.take_request(State::accept) {
            Some(accepted) => Poll::Ready(Some(Ok(accepted))),
            None => Poll::Pending,
        }
    }

    fn take_request(
        &self,
        accept: impl FnOnce(&mut State) -> Option<(fullbore_proto::StreamId, Request<()>)>,
    ) -> Option<Accepted<B>> {
        let shared = self.driver.shared();
        let mut state = shared.lock();
        let (id, request) = accept(&mut state)?;
        let handle = Handle::new(shared, &mut state, id);
        let body = RecvStream::new(Handle::new(shared, &mut state, id));
        drop(state);
        let outbox = Arc::clone(self.driver.outbox());
        Some((request.map(|()| body), SendResponse { handle, outbox }))
    }

    /// Accepts extended CONNECT (RFC 8441) from now on, by another SETTINGS frame.
    ///
    /// # Errors
    /// The client has not acknowledged the SETTINGS before these.
    pub fn enable_connect_protocol(&mut self) -> Result<(), Error> {
        self.driver.shared().lock().accept_extended_connect()
    }

    /// Moves everything, as [`Self::accept`] does, and accepts nothing. Ready when the connection has ended.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.driver.poll(cx)
    }

    /// Ends the connection at once: GOAWAY with `reason`, and all streams fail with it.
    pub fn abrupt_shutdown(&mut self, reason: Reason) {
        self.driver.shared().lock().abort(reason);
    }

    /// Ends the connection once its requests are answered. Requests that are under way are still accepted; then
    /// [`Self::accept`] returns None (RFC 9113 section 6.8).
    pub fn graceful_shutdown(&mut self) {
        self.driver.shared().lock().shut_down();
    }

    /// Whether a stream is not complete.
    pub fn has_streams(&self) -> bool {
        self.driver.shared().lock().has_streams()
    }

    /// The streams that have handles.
    #[cfg(feature = "unstable")]
    #[doc(hidden)]
    pub fn num_wired_streams(&self) -> usize {
        self.driver.shared().lock().stream_counts().0
    }
}

#[cfg(feature = "stream")]
impl<T, B> futures_core::Stream for Connection<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    type Item = Result<(Request<RecvStream>, SendResponse<B>), Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx)
    }
}

impl<T, B> fmt::Debug for Connection<T, B>
where
    T: fmt::Debug,
    B: fmt::Debug + Buf,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.driver, f)
    }
}

/// The beginning of a connection: a future that ends when the client's preface has arrived.
#[must_use = "futures do nothing unless polled"]
pub struct Handshake<T, B: Buf = Bytes> {
    driver: Option<Driver<T, B>>,
}

impl<T, B> Future for Handshake<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    type Output = Result<Connection<T, B>, Error>;

    /// # Panics
    /// After the future was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(driver) = &mut self.driver else {
            panic!("`Handshake` polled after it was ready");
        };
        let result = ready!(driver.poll_accept_preface(cx));
        let driver = self.driver.take();
        result?;
        tracing::debug!("server connection begun");
        match driver {
            Some(driver) => Poll::Ready(Ok(Connection { driver })),
            None => Poll::Pending,
        }
    }
}

impl<T, B> fmt::Debug for Handshake<T, B>
where
    T: AsyncRead + AsyncWrite + fmt::Debug,
    B: fmt::Debug + Buf,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("server::Handshake")
    }
}

/// Answers one request. The handle may be dropped once the response is sent; when all handles of an incomplete stream are
/// dropped, the stream is reset with CANCEL.
#[derive(Debug)]
pub struct SendResponse<B: Buf> {
    handle: Handle,
    outbox: Arc<Outbox<B>>,
}

impl<B: Buf> SendResponse<B> {
    /// Sends an informational response (1xx) before the final one.
    ///
    /// # Errors
    /// The status is not 1xx, the final response was sent, or the stream has ended.
    pub fn send_informational(&mut self, response: Response<()>) -> Result<(), Error> {
        let response = message::response_to_engine(response);
        let mut state = self.handle.lock();
        state.send_informational(self.handle.id(), &response)
    }

    /// Sends the response. With `end_of_stream` no body follows; otherwise the handle that is returned sends it.
    ///
    /// # Errors
    /// A response was sent before, the stream has ended, or the response cannot be sent over HTTP/2.
    pub fn send_response(
        &mut self,
        response: Response<()>,
        end_of_stream: bool,
    ) -> Result<SendStream<B>, Error> {
        let response = message::response_to_engine(response);
        let mut state = self.handle.lock();
        state.send_response(self.handle.id(), &response, end_of_stream)?;
        let handle = self.handle.another(&mut state);
        Ok(SendStream::new(handle, Arc::clone(&self.outbox)))
    }

    /// Promises to answer another request.
    ///
    /// # Errors
    /// Always: there is no server push, as with a client that has disabled it.
    pub fn push_request(&mut self, request: Request<()>) -> Result<SendPushedResponse<B>, Error> {
        let _ = request;
        Err(UserError::PeerDisabledServerPush.into())
    }

    /// Ends the stream at once with RST_STREAM.
    pub fn send_reset(&mut self, reason: Reason) {
        self.handle.lock().send_reset(self.handle.id(), reason);
    }

    /// Waits until either side resets the stream. Pending for ever if it ends otherwise.
    ///
    /// # Errors
    /// The response was sent: [`SendStream::poll_reset`] waits then. Or the transport failed.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, Error>> {
        self.handle.poll(|stream| stream.poll_reset(cx, Asker::Response))
    }

    /// The identifier of the stream.
    pub fn stream_id(&self) -> crate::StreamId {
        crate::StreamId::of(self.handle.id())
    }
}

/// Answers a request that the server has promised to answer on its own. There is none.
pub struct SendPushedResponse<B: Buf> {
    inner: SendResponse<B>,
}

impl<B: Buf> SendPushedResponse<B> {
    /// Sends the response.
    ///
    /// # Errors
    /// As [`SendResponse::send_response`].
    pub fn send_response(
        &mut self,
        response: Response<()>,
        end_of_stream: bool,
    ) -> Result<SendStream<B>, Error> {
        self.inner.send_response(response, end_of_stream)
    }

    /// Ends the stream at once with RST_STREAM.
    pub fn send_reset(&mut self, reason: Reason) {
        self.inner.send_reset(reason);
    }

    /// As [`SendResponse::poll_reset`].
    ///
    /// # Errors
    /// As [`SendResponse::poll_reset`].
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reason, Error>> {
        self.inner.poll_reset(cx)
    }

    /// The identifier of the promised stream.
    pub fn stream_id(&self) -> crate::StreamId {
        self.inner.stream_id()
    }
}

impl<B: Buf + fmt::Debug> fmt::Debug for SendPushedResponse<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendPushedResponse")
            .field("inner", &self.inner)
            .finish()
    }
}

/// Sets up server connections. The first SETTINGS carry what was set.
///
/// ```
/// let mut builder = h2::server::Builder::new();
/// builder.initial_window_size(1 << 20).max_concurrent_streams(200);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    builder_options!();

    /// The streams that the client may have open at once. Others are refused. Default: 100,000.
    pub fn max_concurrent_streams(&mut self, max: u32) -> &mut Self {
        self.settings.max_concurrent_streams = Some(max);
        self
    }

    /// Accepts extended CONNECT (RFC 8441).
    pub fn enable_connect_protocol(&mut self) -> &mut Self {
        self.settings.enable_connect_protocol = true;
        self
    }

    /// Begins a connection over a transport with these settings.
    pub fn handshake<T, B>(&self, io: T) -> Handshake<T, B>
    where
        T: AsyncRead + AsyncWrite + Unpin,
        B: Buf,
    {
        let driver = Driver::new(io, Role::Server, &self.settings);
        Handshake { driver: Some(driver) }
    }
}

/// Begins a connection over a transport with default settings.
pub fn handshake<T>(io: T) -> Handshake<T, Bytes>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    Builder::new().handshake(io)
}
