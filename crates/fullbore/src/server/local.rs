//! One server connection whose handlers run in its future: neither they nor the service need be `Send`.
//!
//! `exchange` spawns a handler that waits. This module keeps it in a set that the driver polls in its turn, before it
//! collects commands, so that the handler's output leaves with the batch.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fullbore_proto::{Config, ErrorCode};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use super::date;
use super::exchange::Exchange;
use super::informational::Offering;
use super::rules::ResponseRules;
use crate::body::Incoming;
use crate::cell::Mailbox;
use crate::driver::{Accept, Driver, Unanswered};
use crate::error::{BoxError, Error};
use crate::file::Chunk;

/// Serves one connection over `io`, as [`serve_connection`](super::serve_connection) does, with handlers that need
/// not be `Send`. All of them run within the returned future, and are dropped with it. A handler that computes for
/// long delays the others and the connection. Poll the future within a tokio runtime, for its timers.
///
/// The future is not `Send` either. To serve several connections on a thread, spawn them on a
/// [`LocalSet`](tokio::task::LocalSet) or poll them together.
///
/// ```
/// use std::{cell::Cell, convert::Infallible, rc::Rc};
///
/// use bytes::Bytes;
/// use fullbore::{Config, client::handshake, server::serve_connection_local};
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Empty, Full};
///
/// let asked = Rc::new(Cell::new(0));
/// let count = Rc::clone(&asked);
/// let service = tower::service_fn(move |_| {
///     let count = Rc::clone(&count);
///     async move {
///         tokio::task::yield_now().await;
///         count.set(count.get() + 1);
///         Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
///     }
/// });
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// runtime.block_on(async {
///     let (near, far) = tokio::io::duplex(64 << 10);
///     let server = serve_connection_local(far, service, Config::default());
///     let (sender, client) = handshake(near, Config::default());
///     let ask = async move {
///         let request = Request::get("http://example.com/").body(Empty::<Bytes>::new()).unwrap();
///         sender.send(request).await?.into_body().collect().await
///     };
///     let (body, client, server) = tokio::join!(ask, client, server);
///     assert_eq!(body?.to_bytes(), "hello");
///     client.and(server)
/// })?;
/// assert_eq!(asked.get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve_connection_local<T, S, B>(
    io: T,
    service: S,
    config: impl Into<Arc<Config>>,
) -> ServeConnectionLocal<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Unpin + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    let mailbox = Mailbox::new();
    let handlers = LocalHandlers {
        service,
        waiting: FuturesUnordered::new(),
    };
    ServeConnectionLocal {
        driver: Driver::server(io, config.into(), Arc::clone(&mailbox), handlers),
        mailbox,
    }
}

/// The future that runs a server connection and its handlers: see [`serve_connection_local`].
#[must_use = "the connection does nothing unless it is polled"]
pub struct ServeConnectionLocal<T, S> {
    driver: Driver<T, LocalHandlers<S>>,
    mailbox: Arc<Mailbox>,
}

#[cfg(target_os = "linux")]
impl<S> ServeConnectionLocal<tokio::net::TcpStream, S> {
    /// Sends file ranges by reference (on Linux): see [`crate::body::FileRange`].
    pub fn sending_files(mut self) -> Self {
        self.driver.send_files();
        self
    }
}

impl<T, S> ServeConnectionLocal<T, S> {
    /// Starts a graceful shutdown (RFC 9113 section 6.8): sends GOAWAY, serves the requests in progress, and then
    /// completes the future.
    pub fn graceful_shutdown(&self) {
        self.mailbox.shut_down();
    }
}

impl<T, S, B> Future for ServeConnectionLocal<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Unpin + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.driver.poll(cx)
    }
}

impl<T, S> fmt::Debug for ServeConnectionLocal<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConnectionLocal").finish_non_exhaustive()
    }
}

/// Calls a service for each request, and runs its handlers.
struct LocalHandlers<S> {
    service: S,
    /// Handlers in progress, which are polled when woken. The set and its boxes allocate for each request.
    waiting: FuturesUnordered<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<S, B> Accept for LocalHandlers<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    fn accept(&mut self, request: Request<Incoming>, unanswered: &mut Unanswered<'_>, cx: &mut Context<'_>) {
        let mut sender = unanswered.sender();
        let rules = ResponseRules::of_request(&request);
        let mut service = self.service.clone();
        // A service that panics drops the sender, which resets only its own stream.
        let called = std::panic::catch_unwind(AssertUnwindSafe(|| -> Pin<Box<dyn Future<Output = ()>>> {
            match service.poll_ready(cx) {
                Poll::Ready(Ok(())) => {
                    let offering = Offering::begin();
                    let answer = service.call(request);
                    if let Some(informational) = offering.taken() {
                        informational.bind(sender.cell());
                    }
                    Box::pin(Exchange::new(rules, sender, answer))
                }
                Poll::Ready(Err(_)) => {
                    sender.reset(ErrorCode::INTERNAL_ERROR);
                    Box::pin(std::future::ready(()))
                }
                Poll::Pending => Box::pin(Exchange::new(rules, sender, async move {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                })),
            }
        }));
        // New handlers are polled once the whole read has been processed.
        if let Ok(handler) = called {
            self.waiting.push(handler);
        }
    }

    fn date(&self) -> Option<(HeaderValue, Duration)> {
        Some(date::now())
    }

    fn poll_handlers(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            // The set drops a handler that panics, with its sender.
            let next = AssertUnwindSafe(|| self.waiting.poll_next_unpin(cx));
            if let Ok(Poll::Pending | Poll::Ready(None)) = std::panic::catch_unwind(next) {
                return true;
            }
        }
    }
}
