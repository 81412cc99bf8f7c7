//! One server connection over any transport.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fullbore_proto::Config;
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use super::exchange::Handlers;
use crate::body::Incoming;
use crate::driver::Driver;
use crate::error::{BoxError, Error};
use crate::file::Chunk;
use crate::mailbox::Mailbox;

/// Serves one connection over `io`, which speaks HTTP/2 from its first octet. The future does the work, and ends with
/// the connection. Handlers that do not answer at once run in tasks of their own, so that it is to be polled within a
/// tokio runtime; [`serve_connection_local`](super::serve_connection_local) keeps them in the future.
pub fn serve_connection<T, S, B>(io: T, service: S, config: impl Into<Arc<Config>>) -> ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    let mailbox = Mailbox::new();
    ServeConnection {
        driver: Driver::server(io, config.into(), Arc::clone(&mailbox), Handlers::new(service)),
        mailbox,
    }
}

/// The work of a server connection: see [`serve_connection`].
#[must_use = "the connection does nothing unless it is polled"]
pub struct ServeConnection<T, S> {
    driver: Driver<T, Handlers<S>>,
    mailbox: Arc<Mailbox>,
}

#[cfg(target_os = "linux")]
impl<S> ServeConnection<tokio::net::TcpStream, S> {
    /// Ranges of files go to the socket by reference when many octets leave at once: see [`crate::FileRange`].
    pub fn sending_files(mut self) -> Self {
        self.driver.send_files();
        self
    }
}

#[cfg(feature = "tls")]
impl<S> ServeConnection<tokio_rustls::server::TlsStream<tokio::net::TcpStream>, S> {
    /// What a peer sends that has been thrown out is not opened.
    pub(crate) fn leaving_sealed(mut self) -> Self {
        self.driver.leave_sealed();
        self
    }
}

impl<T, S> ServeConnection<T, S> {
    /// Asks for a graceful end (RFC 9113 section 6.8): the peer is told by GOAWAY, streams that are under way are
    /// finished, then the future ends.
    pub fn graceful_shutdown(&self) {
        self.mailbox.shut_down();
    }
}

impl<T, S, B> Future for ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.driver.poll(cx)
    }
}

impl<T, S> fmt::Debug for ServeConnection<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConnection").finish_non_exhaustive()
    }
}
