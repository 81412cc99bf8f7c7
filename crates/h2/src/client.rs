//! Clients: requests over one connection.
//!
//! [`handshake`] takes a transport and returns two handles. [`SendRequest`] opens requests and may be cloned. [`Connection`] is a
//! future that moves everything while it is polled, usually by a task of its own; it ends when the connection does.
//!
//! ```no_run
//! use http::Request;
//! use tokio::net::TcpStream;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transport = TcpStream::connect("127.0.0.1:8080").await?;
//! let (requests, connection) = h2::client::handshake(transport).await?;
//! tokio::spawn(async move {
//!     if let Err(error) = connection.await {
//!         eprintln!("the connection failed: {error}");
//!     }
//! });
//!
//! // Waits until the server allows another stream.
//! let mut requests = requests.ready().await?;
//! let request = Request::get("http://127.0.0.1:8080/").body(())?;
//! let (response, _) = requests.send_request(request, true)?;
//!
//! let (head, mut body) = response.await?.into_parts();
//! println!("{}", head.status);
//! while let Some(chunk) = body.data().await {
//!     let chunk = chunk?;
//!     println!("{} bytes", chunk.len());
//!     body.flow_control().release_capacity(chunk.len())?;
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Role, StreamId};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bodies::Outbox;
use crate::driver::Driver;
use crate::error::Error;
use crate::failure::UserError;
use crate::handle::Handle;
use crate::message;
use crate::options::{builder_options, connection_options};
use crate::settings::Settings;
use crate::share::{PingPong, RecvStream, SendStream};
use crate::state::Shared;

/// Opens requests on a connection. The connection ends when all senders and their streams are gone.
///
/// A server limits the streams that may be open at once. [`Self::poll_ready`] waits for one; a request that is sent all the same
/// waits in the connection, and no second one may be sent by this sender until then. Each clone has such a place of its own.
pub struct SendRequest<B: Buf> {
    sender: Sender,
    outbox: Arc<Outbox<B>>,
    /// A request that waits until the server allows another stream.
    pending: Option<StreamId>,
}

impl<B> SendRequest<B>
where
    B: Buf,
{
    /// Waits until another request may be sent.
    ///
    /// # Errors
    /// The connection takes no more requests: it has failed, it is closing, or the identifiers of its streams are used up.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.sender.shared.lock().poll_ready(cx, self.pending))?;
        self.pending = None;
        Poll::Ready(Ok(()))
    }

    /// As [`Self::poll_ready`]; the future returns the sender.
    pub fn ready(self) -> ReadySendRequest<B> {
        ReadySendRequest { inner: Some(self) }
    }

    /// Sends a request. With `end_of_stream` no body follows; otherwise the second handle sends it.
    ///
    /// # Errors
    /// As [`Self::poll_ready`]; an earlier request of this sender still waits; or the request cannot be sent over HTTP/2.
    pub fn send_request(
        &mut self,
        request: Request<()>,
        end_of_stream: bool,
    ) -> Result<(ResponseFuture, SendStream<B>), Error> {
        let request = message::request_to_engine(request)?;
        let mut state = self.sender.shared.lock();
        if self.pending.is_some_and(|id| state.is_waiting(id)) {
            return Err(UserError::Rejected.into());
        }
        let id = state.send_request(request, end_of_stream)?;
        self.pending = state.is_waiting(id).then_some(id);
        let response = ResponseFuture {
            handle: Handle::new(&self.sender.shared, &mut state, id),
            has_pushes: true,
        };
        let body = Handle::new(&self.sender.shared, &mut state, id);
        drop(state);
        Ok((response, SendStream::new(body, Arc::clone(&self.outbox))))
    }

    /// Whether the server accepts extended CONNECT (RFC 8441), as far as its SETTINGS have arrived.
    pub fn is_extended_connect_protocol_enabled(&self) -> bool {
        self.sender.shared.lock().allows_extended_connect()
    }

    /// The streams that the server allows at once. Before its SETTINGS arrive, those of
    /// [`Builder::initial_max_send_streams`].
    pub fn current_max_send_streams(&self) -> usize {
        self.sender.shared.lock().max_send_streams()
    }

    /// The streams that this client allows the server to open at once, as the builder set them.
    pub fn current_max_recv_streams(&self) -> usize {
        self.sender.shared.lock().max_receive_streams()
    }
}

#[cfg(feature = "unstable")]
impl<B> SendRequest<B>
where
    B: Buf,
{
    /// The streams that are not complete.
    pub fn num_active_streams(&self) -> usize {
        self.sender.shared.lock().stream_counts().1
    }

    /// The streams that have handles.
    pub fn num_wired_streams(&self) -> usize {
        self.sender.shared.lock().stream_counts().0
    }
}

impl<B> Clone for SendRequest<B>
where
    B: Buf,
{
    fn clone(&self) -> Self {
        SendRequest {
            sender: self.sender.clone(),
            outbox: Arc::clone(&self.outbox),
            pending: None,
        }
    }
}

impl<B> fmt::Debug for SendRequest<B>
where
    B: Buf,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest").finish_non_exhaustive()
    }
}

/// What keeps a connection open.
struct Sender {
    shared: Arc<Shared>,
}

impl Sender {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().add_handle();
        let shared = Arc::clone(shared);
        Sender { shared }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Sender::new(&self.shared)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.lock().drop_handle();
    }
}

/// A future that returns the [`SendRequest`] once another request may be sent.
#[derive(Debug)]
pub struct ReadySendRequest<B: Buf> {
    inner: Option<SendRequest<B>>,
}

impl<B> Future for ReadySendRequest<B>
where
    B: Buf,
{
    type Output = Result<SendRequest<B>, Error>;

    /// # Panics
    /// After the future was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut sender) = self.inner.take() else {
            panic!("`ReadySendRequest` polled after it was ready");
        };
        match sender.poll_ready(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(sender)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.inner = Some(sender);
                Poll::Pending
            }
        }
    }
}

/// Moves everything of a connection while it is polled. Ready when the connection has ended.
#[must_use = "futures do nothing unless polled"]
pub struct Connection<T, B: Buf = Bytes> {
    driver: Driver<T, B>,
}

impl<T, B> Connection<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    connection_options!();
}

impl<T, B> Future for Connection<T, B>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.driver.poll(cx)
    }
}

impl<T, B> fmt::Debug for Connection<T, B>
where
    T: AsyncRead + AsyncWrite + fmt::Debug,
    B: fmt::Debug + Buf,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.driver, f)
    }
}

/// The response to a request. The future ends when its head has arrived; the body follows.
///
/// Informational responses (1xx) are skipped unless [`Self::poll_informational`] takes them before.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture {
    handle: Handle,
    has_pushes: bool,
}

impl ResponseFuture {
    /// The identifier of the stream.
    pub fn stream_id(&self) -> crate::StreamId {
        crate::StreamId::of(self.handle.id())
    }

    /// The next informational response (1xx). None once the final one has arrived.
    pub fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Response<()>, Error>>> {
        self.handle.poll(|stream| stream.poll_informational(cx))
    }

    /// The requests that the server promises to answer on its own. There are none: server push is always refused.
    ///
    /// # Panics
    /// When called twice.
    pub fn push_promises(&mut self) -> PushPromises {
        assert!(
            core::mem::take(&mut self.has_pushes),
            "`push_promises` was called before"
        );
        PushPromises { _private: () }
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<RecvStream>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.handle.poll(|stream| stream.poll_response(cx)))?;
        Poll::Ready(Ok(response.map(|()| RecvStream::new(self.handle.clone()))))
    }
}

/// The requests that a server promises to answer on its own: none, because server push is always refused.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct PushPromises {
    _private: (),
}

impl PushPromises {
    /// The next promise: none.
    pub async fn push_promise(&mut self) -> Option<Result<PushPromise, Error>> {
        poll_fn(|cx| self.poll_push_promise(cx)).await
    }

    /// As [`Self::push_promise`].
    #[doc(hidden)]
    pub fn poll_push_promise(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<PushPromise, Error>>> {
        Poll::Ready(None)
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for PushPromises {
    type Item = Result<PushPromise, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_push_promise(cx)
    }
}

/// A request that a server promises to answer on its own. There is none.
#[derive(Debug)]
pub struct PushPromise {
    request: Request<()>,
    response: PushedResponseFuture,
}

impl PushPromise {
    /// The request.
    pub fn request(&self) -> &Request<()> {
        &self.request
    }

    /// The request.
    pub fn request_mut(&mut self) -> &mut Request<()> {
        &mut self.request
    }

    /// The request and the future of its response.
    pub fn into_parts(self) -> (Request<()>, PushedResponseFuture) {
        (self.request, self.response)
    }
}

/// The response to a promised request. There is none.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct PushedResponseFuture {
    inner: ResponseFuture,
}

impl PushedResponseFuture {
    /// The identifier of the promised stream.
    pub fn stream_id(&self) -> crate::StreamId {
        self.inner.stream_id()
    }
}

impl Future for PushedResponseFuture {
    type Output = Result<Response<RecvStream>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

/// Sets up client connections. The first SETTINGS carry what was set, and refuse server push.
///
/// ```
/// let mut builder = h2::client::Builder::new();
/// builder.initial_window_size(1 << 20).max_frame_size(32_768);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    builder_options!();

    /// The streams that the server may open at once. It opens none without server push.
    pub fn max_concurrent_streams(&mut self, max: u32) -> &mut Self {
        self.settings.max_concurrent_streams = Some(max);
        self
    }

    /// The streams that are opened before the server's SETTINGS say how many it allows. Default: no limit.
    pub fn initial_max_send_streams(&mut self, initial: usize) -> &mut Self {
        self.settings.initial_max_send_streams = initial;
        self
    }

    /// Accepted without effect: server push is always refused.
    pub fn enable_push(&mut self, enabled: bool) -> &mut Self {
        let _ = enabled;
        #[cfg(feature = "unstable")]
        {
            self.settings.enable_push = enabled;
        }
        self
    }

    /// Accepted without effect: the first stream of a client is 1.
    #[cfg(feature = "unstable")]
    pub fn initial_stream_id(&mut self, stream_id: u32) -> &mut Self {
        let _ = stream_id;
        self
    }

    /// Begins a connection over a transport with these settings.
    pub fn handshake<T, B>(
        &self,
        io: T,
    ) -> impl Future<Output = Result<(SendRequest<B>, Connection<T, B>), Error>> + use<T, B>
    where
        T: AsyncRead + AsyncWrite + Unpin,
        B: Buf,
    {
        begin(io, self.clone())
    }
}

async fn begin<T, B>(io: T, builder: Builder) -> Result<(SendRequest<B>, Connection<T, B>), Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Buf,
{
    let mut driver = Driver::new(io, Role::Client, &builder.settings);
    poll_fn(|cx| driver.poll_preface(cx)).await?;
    tracing::debug!("client connection begun");
    let sender = SendRequest {
        sender: Sender::new(driver.shared()),
        outbox: Arc::clone(driver.outbox()),
        pending: None,
    };
    Ok((sender, Connection { driver }))
}

/// Begins a connection over a transport with default settings.
///
/// # Errors
/// The transport failed.
pub async fn handshake<T>(io: T) -> Result<(SendRequest<Bytes>, Connection<T, Bytes>), Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    Builder::new().handshake(io).await
}
