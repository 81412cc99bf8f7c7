//! One server connection over any transport.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Report};
use tokio::io::{AsyncRead, AsyncWrite};

use super::admission::Permit;
use super::exchange::Handlers;
use super::http_service::HttpService;
use crate::cell::Mailbox;
use crate::driver::{Begun, Driver};
use crate::error::Error;
use crate::tcp::TcpBelow;

/// Serves one connection over `io`, which uses HTTP/2 from the first byte. The future does the work and ends with the
/// connection. A handler that does not complete at once runs in a task of its own, so poll the future within a tokio
/// runtime. [`serve_connection_local`](super::serve_connection_local) runs the handlers in the future, and
/// [`serve_connection_auto`](super::serve_connection_auto) also serves HTTP/1.1.
///
/// The settings can bound what all connections, and those of one address, hold together, as [`Server`](crate::Server)
/// does:
///
/// ```
/// use std::{collections::HashMap, net::IpAddr, sync::Arc};
///
/// use fullbore::{Config, server::address_group};
/// use fullbore::settings::{MemoryBudget, Share, StreamBudget};
///
/// let mut config = Config::default();
/// config.set_budget(Some(MemoryBudget::new(512 << 20)));
/// config.set_stream_budget(Some(StreamBudget::new(50_000)));
///
/// let mut shares: HashMap<IpAddr, Share> = HashMap::new();
/// let mut config_for = |peer: IpAddr| {
///     let mut config = config.clone();
///     config.set_share(Some(shares.entry(address_group(peer)).or_default().clone()));
///     Arc::new(config)
/// };
/// // For each connection: serve_connection(io, service, config_for(peer))
/// let config = config_for("192.0.2.1".parse().unwrap());
/// assert_eq!(config.share().as_ref().unwrap().leased_streams(), 0);
/// ```
pub fn serve_connection<T, S>(io: T, service: S, config: impl Into<Arc<Config>>) -> ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService,
{
    serve_begun(io, service, Begun::server(config.into()))
}

/// As [`serve_connection`], of a connection that may have sent its SETTINGS.
pub(super) fn serve_begun<T, S>(io: T, service: S, begun: Begun) -> ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService,
{
    let mailbox = Mailbox::new();
    ServeConnection {
        driver: Driver::new(io, begun, Arc::clone(&mailbox), Handlers::new(service)),
        mailbox,
    }
}

/// The future that runs a server connection: see [`serve_connection`].
#[must_use = "the connection does nothing unless it is polled"]
pub struct ServeConnection<T, S> {
    driver: Driver<T, Handlers<S>>,
    mailbox: Arc<Mailbox>,
}

impl<T, S> ServeConnection<T, S> {
    /// Begins with what was read from the transport before.
    pub(super) fn after(mut self, read: Bytes) -> Self {
        self.driver.begin_with(read);
        self
    }

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

#[cfg(target_os = "linux")]
impl<S> ServeConnection<tokio::net::TcpStream, S> {
    /// Sends file ranges by reference (on Linux): see [`crate::body::FileRange`].
    pub fn sending_files(mut self) -> Self {
        self.driver.send_files();
        self
    }
}

#[cfg(target_os = "linux")]
impl<T: 'static, S: 'static> ServeConnection<T, S> {
    /// As [`Self::sending_files`] if the transport is TCP.
    pub(super) fn sending_files_over_tcp(mut self) -> Self {
        let connection = &mut self as &mut dyn std::any::Any;
        if let Some(connection) = connection.downcast_mut::<ServeConnection<tokio::net::TcpStream, S>>() {
            connection.driver.send_files();
        }
        self
    }
}

#[cfg(feature = "tls")]
impl<T, S> ServeConnection<tokio_rustls::server::TlsStream<T>, S>
where
    T: AsyncRead + Unpin,
{
    /// Reads what a peer still sends after a connection error without decrypting it.
    pub(crate) fn leaving_sealed(mut self) -> Self {
        self.driver.discard_undecrypted();
        self
    }
}

impl<T, S> ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService,
{
    /// Records the state of the connection in its permit.
    pub(super) fn record(&mut self, permit: &mut Permit) {
        let at = self.driver.last_looked();
        let engine = self.driver.engine();
        permit.record(
            engine.stream_count() as u64,
            engine.leased(),
            engine.progress(),
            at,
        );
    }

    /// The counters of the connection, and what it has waited for.
    pub(super) fn report(&mut self) -> Report {
        self.driver.report()
    }

    /// Ends the connection at once, by a GOAWAY with this code and debug data.
    pub(super) fn abort(&mut self, code: ErrorCode, reason: &'static str) {
        let now = self.driver.now();
        self.driver.engine().abort(code, reason, now);
    }
}

impl<T, S> ServeConnection<T, S> {
    /// Starts a graceful shutdown (RFC 9113 section 6.8): sends GOAWAY, serves the requests in progress, and then
    /// completes the future.
    pub fn graceful_shutdown(&self) {
        self.mailbox.shut_down();
    }
}

impl<T, S> Future for ServeConnection<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: HttpService,
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
