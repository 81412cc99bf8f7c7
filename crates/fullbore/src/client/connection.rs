//! One client connection over any transport.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, Report};
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::body::Incoming;
use crate::cell::{Cell, CellState, Mailbox};
use crate::content_length::{self, Length};
use crate::driver::{Driver, NoAccept, received_length};
use crate::error::{BoxError, Error};
use crate::informational::OnInformational;
use crate::mailbox::ConnectionCommand;
use crate::observer::{Observer, Slot};
use crate::sender::Sender;
use crate::tcp::TcpBelow;

/// Starts a client connection over `io`, which uses HTTP/2 from the first byte: with prior knowledge, or over TLS
/// after ALPN `h2`. Spawn the [`Connection`]; it does the work.
///
/// ```no_run
/// # async fn run(io: tokio::net::TcpStream) -> Result<(), fullbore::Error> {
/// let (sender, connection) = fullbore::client::handshake(io, fullbore::Config::default());
/// tokio::spawn(connection);
/// let request = http::Request::get("http://example.com/").body(String::new()).unwrap();
/// let response = sender.send(request).await?;
/// # Ok(()) }
/// ```
pub fn handshake<T>(io: T, config: impl Into<Arc<Config>>) -> (SendRequest, Connection<T>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    handshake_observed(io, config.into(), None)
}

/// As [`handshake`], for a pool that observes the connection.
pub(super) fn handshake_observed<T>(
    io: T,
    config: Arc<Config>,
    observer: Option<Arc<dyn Observer>>,
) -> (SendRequest, Connection<T>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mailbox = Mailbox::observed(observer);
    mailbox.add_opener();
    let driver = Driver::client(io, config, Arc::clone(&mailbox), NoAccept);
    (SendRequest { mailbox }, Connection { driver })
}

/// The future that runs a client connection. It completes when the last [`SendRequest`] is dropped and no request is in
/// progress, or after a graceful shutdown by either side.
#[must_use = "the connection does nothing unless it is polled: spawn it"]
pub struct Connection<T> {
    driver: Driver<T, NoAccept>,
}

impl<T> Connection<T> {
    /// Writes several slices over TCP by `sendmsg`.
    pub(super) fn send_slices(&mut self)
    where
        T: AsyncWrite + Unpin + 'static,
    {
        self.driver.send_slices();
    }

    /// Has no more wait unsent than the path takes within `time`.
    pub(super) fn limit_unsent(&mut self, tcp: TcpBelow<T>, time: Duration) {
        self.driver.limit_unsent(tcp, time);
    }

    /// Reports say what the kernel knows of the TCP connection below the transport.
    pub(super) fn report_tcp(&mut self, tcp: TcpBelow<T>) {
        self.driver.report_tcp(tcp);
    }
}

impl<T> Future for Connection<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.driver.poll(cx)
    }
}

impl<T> fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Opens streams on a connection. Cheap to clone. No call takes a lock that the connection shares.
pub struct SendRequest {
    mailbox: Arc<Mailbox>,
}

impl SendRequest {
    /// Sends a request. The URI is absolute, or the target of CONNECT. The request waits while the peer allows no more
    /// streams. A body that is not complete at once is sent by a task of its own, so call this within a tokio runtime.
    ///
    /// Dropping the future before the response resets the stream and returns its credit.
    pub fn send<B>(&self, request: Request<B>) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = split_request(request);
        self.send_in(None, head, body)
    }

    /// As [`Self::send`], with a slot of a pool, which the stream keeps until it ends. The head is shared with the
    /// code that may repeat the request.
    pub(super) fn send_in<B>(&self, slot: Option<Slot>, head: Arc<Request<()>>, body: B) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let whole = body.is_end_stream();
        let bodiless = *head.method() == Method::HEAD;
        let tunnel = *head.method() == Method::CONNECT;
        let length = match tunnel {
            true => Ok(Length::UNKNOWN),
            false => Length::of(head.headers()).and_then(|length| length.check(&body).map(|()| length)),
        };
        let mut state = CellState {
            slot,
            ..CellState::default()
        };
        state.inbound.on_informational = OnInformational::of(&head);
        state.outbound.request = Some((head, whole));
        state.outbound.finished = whole;
        // Made before the body is polled: if that panics, nothing is left of the stream.
        let response = ResponseFuture {
            cell: Some(Cell::new(Arc::clone(&self.mailbox), state)),
            bodiless,
            tunnel,
        };
        let Some(cell) = &response.cell else {
            return response;
        };
        match length {
            _ if self.mailbox.is_closing() => {
                cell.fail(Error::from_usage(fullbore_proto::UsageError::NoNewStreams));
            }
            Err(error) => cell.fail(error),
            Ok(length) => {
                if !whole {
                    let mut sender = Sender::new(Arc::clone(cell));
                    sender.announce(length);
                    start_body(sender, body);
                }
                cell.post();
            }
        }
        response
    }

    /// Whether both open streams on the same connection.
    pub(super) fn is_same_connection(&self, other: &SendRequest) -> bool {
        Arc::ptr_eq(&self.mailbox, &other.mailbox)
    }

    /// Reports a response to the pool.
    pub(super) fn report_response(&self) {
        self.mailbox.observe(|observer| observer.answered());
    }

    /// The pool's view of the connection, if it belongs to one.
    pub(super) fn observer(&self) -> Option<&dyn Observer> {
        self.mailbox.observer()
    }

    /// Whether the connection takes new requests, as far as is known.
    pub fn is_open(&self) -> bool {
        self.mailbox.takes_new_streams()
    }

    /// Returns a report: counters, windows, round trip, and what the connection waited for. After its end, the last
    /// report.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) when there is none.
    pub async fn report(&self) -> Result<Report, Error> {
        self.mailbox.report().await.ok_or_else(Error::connection_gone)
    }

    /// Enlarges the receive window of the connection to `bytes`, at once and permanently. Giving the current size
    /// changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `bytes` is not 1..=2^31-1,
    /// [`ErrorKind::WindowShrinks`](crate::ErrorKind::WindowShrinks) when the window is larger,
    /// [`ErrorKind::Budget`](crate::ErrorKind::Budget) when the memory budget is exhausted.
    pub async fn grow_receive_window(&self, bytes: u32) -> Result<(), Error> {
        let size = crate::settings::window("the connection", 1, bytes)?;
        let (answer, answered) = oneshot::channel();
        self.mailbox.command(ConnectionCommand::GrowWindow(size, answer));
        answered.await.unwrap_or_else(|_| Err(Error::connection_gone()))
    }

    /// Starts a graceful shutdown: requests in progress continue, and no new ones begin.
    pub fn shutdown(&self) {
        self.mailbox.shut_down();
    }
}

impl Clone for SendRequest {
    fn clone(&self) -> Self {
        self.mailbox.add_opener();
        SendRequest {
            mailbox: Arc::clone(&self.mailbox),
        }
    }
}

impl Drop for SendRequest {
    fn drop(&mut self) {
        self.mailbox.remove_opener();
    }
}

impl fmt::Debug for SendRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest")
            .field("is_open", &self.is_open())
            .finish()
    }
}

/// Splits a request, and adds `content-length` if the body knows its length. A length that is wrong stays: sending it fails.
pub(super) fn split_request<B: Body>(request: Request<B>) -> (Arc<Request<()>>, B) {
    let (mut parts, body) = request.into_parts();
    let has_meaning =
        !body.is_end_stream() || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if parts.method == Method::CONNECT {
        // RFC 9110 section 9.3.6: such a request has no content.
        parts.headers.remove(header::CONTENT_LENGTH);
    } else if has_meaning {
        let _ = content_length::announce(&mut parts.headers, &body);
    }
    (Arc::new(Request::from_parts(parts, ())), body)
}

/// Sends a request's body: as far as possible at once, the rest in a task of its own.
fn start_body<B>(mut sender: Sender, body: B)
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    if sender.poll_body(&mut cx, None, body.as_mut()).is_ready() {
        return;
    }
    tokio::spawn(async move {
        // An error resets the stream, so that whoever waits for the response learns of it.
        let _ = std::future::poll_fn(|cx| sender.poll_body(cx, None, body.as_mut())).await;
    });
}

/// The future of the response's head.
#[must_use = "dropping it resets the stream"]
pub struct ResponseFuture {
    cell: Option<Arc<Cell>>,
    bodiless: bool,
    tunnel: bool,
}

impl Future for ResponseFuture {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(cell) = &self.cell else {
            return Poll::Ready(Err(Error::connection_gone()));
        };
        let head = match cell.poll_head(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(head)) => head,
        };
        let status = head.status();
        let length = match status {
            // RFC 9110 section 9.3.6: a client ignores the length.
            _ if self.tunnel && status.is_success() => None,
            // The length of these is that of a response to GET, or of one with another status.
            _ if self.bodiless => Some(0),
            StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT => Some(0),
            _ => received_length(head.headers()),
        };
        Poll::Ready(match self.cell.take() {
            Some(cell) => Ok(head.map(|()| Incoming::new(cell, length))),
            None => Err(Error::connection_gone()),
        })
    }
}

impl ResponseFuture {
    /// After an error: whether the request never reached the engine.
    pub(super) fn never_began(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.lock().id.is_none())
    }
}

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.drop_reader();
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
