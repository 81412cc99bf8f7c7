//! One server connection that speaks HTTP/2 or HTTP/1.1, as its first octets say.
//!
//! HTTP/2 begins with the connection preface (RFC 9113 section 3.4), whose method `PRI` is reserved for it: four octets
//! decide. What was read until then goes to the driver, which parses it instead of its first read, or to hyper.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fullbore_proto::{Config, ErrorCode};
use http::Version;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::admission::Permit;
use super::connection::{ServeConnection, serve_begun};
use super::http_service::HttpService;
use super::http1::{Http1, serve_http1};
use super::peer::{Ended, OnEnd};
use crate::alarm::{Alarm, Alarms};
use crate::driver::Begun;
use crate::error::Error;
use crate::settings::HttpVersions;
use crate::tcp::TcpBelow;

/// The first octets of the connection preface, with which no request of HTTP/1.1 begins.
const PREFACE: &[u8] = b"PRI ";

/// What is read at once, as the driver's first read.
const FIRST_READ: usize = 8 << 10;

/// Serves one connection over `io`, which uses HTTP/2 or HTTP/1.1, as its first octets say. The future does the work and
/// ends with the connection. Poll it within a tokio runtime.
///
/// Over HTTP/1.1 the requests are served one after the other, within the future. The limits of `config` hold as far as
/// they concern HTTP/1.1: `docs/design/http1.md` lists them. A handler may upgrade the connection with the
/// `hyper::upgrade::OnUpgrade` in the request's extensions, as `axum` does for WebSockets; the future then ends with the
/// upgraded connection.
///
/// ```
/// use bytes::Bytes;
/// use fullbore::{Config, server::serve_connection_auto};
/// use http::Response;
/// use http_body_util::Full;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let service = tower::service_fn(|_| async {
///     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hello"))))
/// });
/// let (mut near, far) = tokio::io::duplex(64 << 10);
/// tokio::spawn(serve_connection_auto(far, service, Config::default()));
/// near.write_all(b"GET / HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n").await?;
/// let mut response = String::new();
/// near.read_to_string(&mut response).await?;
/// assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhello"));
/// # Ok::<_, std::io::Error>(()) })?;
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn serve_connection_auto<T, S>(
    io: T,
    service: S,
    config: impl Into<Arc<Config>>,
) -> ServeConnectionAuto<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    ServeConnectionAuto {
        stage: Stage::Undecided(Box::new(Undecided {
            io,
            service,
            config: config.into(),
            versions: HttpVersions::Both,
            prepare: None,
            read: BytesMut::new(),
            timer: None,
            shuts_down: false,
        })),
        shutdown: Shutdown::No,
    }
}

/// The future that runs a server connection of either version: see [`serve_connection_auto`].
#[must_use = "the connection does nothing unless it is polled"]
pub struct ServeConnectionAuto<T, S> {
    stage: Stage<T, S>,
    shutdown: Shutdown,
}

enum Stage<T, S> {
    Undecided(Box<Undecided<T, S>>),
    Http2(Box<ServeConnection<T, S>>),
    Http1(Box<dyn Http1>),
    Ended,
}

/// A connection whose version is not known.
struct Undecided<T, S> {
    io: T,
    service: S,
    config: Arc<Config>,
    versions: HttpVersions,
    prepare: Option<Prepare<T, S>>,
    read: BytesMut,
    timer: Option<Alarm>,
    /// The peer has `shutdown_grace` to say which version it speaks.
    shuts_down: bool,
}

/// Sets what depends on the type of the transport, once the version is known.
pub(super) struct Prepare<T, S> {
    /// Completes an HTTP/2 connection.
    pub(super) http2: fn(ServeConnection<T, S>) -> ServeConnection<T, S>,
    /// Sets options of a transport for HTTP/1.1.
    pub(super) http1: fn(&T, &Config),
    /// The TCP connection below the transport, if there is one.
    pub(super) tcp: TcpBelow<T>,
    /// The time in which the path takes what may wait unsent, if that is limited.
    pub(super) unsent: Option<Duration>,
    /// The alarms of the server, if it has any.
    pub(super) alarms: Option<Alarms>,
    /// The connection of HTTP/2, if its SETTINGS have left within the TLS handshake.
    pub(super) begun: Option<Box<Begun>>,
}

/// Whether a graceful shutdown was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// Not told to the connection.
    Asked,
    Begun,
}

impl<T, S> ServeConnectionAuto<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    /// Serves only these versions. A connection of one version uses it from the first octet. Call it before the future is
    /// polled.
    pub fn http_versions(mut self, versions: HttpVersions) -> Self {
        if let Stage::Undecided(undecided) = &mut self.stage {
            undecided.versions = versions;
        }
        self
    }

    /// Applies `prepare` once the version is known.
    pub(super) fn preparing(mut self, prepare: Prepare<T, S>) -> Self {
        if let Stage::Undecided(undecided) = &mut self.stage {
            undecided.prepare = Some(prepare);
        }
        self
    }

    /// Starts a graceful shutdown: serves the requests in progress, and then completes the future. Over HTTP/2 it sends
    /// GOAWAY (RFC 9113 section 6.8). Over HTTP/1.1 the response in progress has `connection: close`. A peer that has sent a part
    /// of its first request has [`Config::shutdown_grace`] for the rest of the head.
    pub fn graceful_shutdown(&mut self) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Asked;
        }
        self.tell_shutdown();
    }

    /// Decides the version. Within `poll` this would take 14 KiB of the stack at each poll of the connection.
    #[inline(never)]
    fn poll_undecided(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Stage::Undecided(undecided) = &mut self.stage else {
            return Poll::Ready(Ok(()));
        };
        if self.shutdown != Shutdown::No && undecided.read.is_empty() {
            self.stage = Stage::Ended;
            return Poll::Ready(Ok(()));
        }
        let version = ready!(undecided.poll_version(cx));
        let Stage::Undecided(undecided) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            return Poll::Ready(Ok(()));
        };
        if let Some(version) = version? {
            self.stage = undecided.begin(version);
        }
        if let Stage::Http2(_) = self.stage {
            self.tell_shutdown();
        }
        Poll::Ready(Ok(()))
    }

    fn tell_shutdown(&mut self) {
        if self.shutdown != Shutdown::Asked {
            return;
        }
        match &mut self.stage {
            Stage::Http2(connection) => connection.graceful_shutdown(),
            Stage::Http1(connection) => connection.graceful_shutdown(),
            Stage::Undecided(undecided) => {
                undecided.shuts_down = true;
                undecided.timer = None;
                return;
            }
            Stage::Ended => return,
        }
        self.shutdown = Shutdown::Begun;
    }

    /// Records the state of the connection in its permit.
    pub(super) fn record(&mut self, permit: &mut Permit) {
        match &mut self.stage {
            Stage::Http2(connection) => connection.record(permit),
            Stage::Http1(connection) => {
                let usage = connection.usage();
                permit.record(usage.requests, 0, usage.progress, usage.at);
            }
            Stage::Undecided(_) | Stage::Ended => {}
        }
    }

    /// Tells of the end of the connection.
    pub(super) fn tell_end(
        &mut self,
        hook: &OnEnd,
        peer_addr: Option<SocketAddr>,
        error: Option<&Error>,
        evicted: bool,
    ) {
        let (mut version, mut report, mut bytes, mut refused) = (None, None, (0, 0), None);
        match &mut self.stage {
            Stage::Http2(connection) => {
                let of_engine = connection.report();
                bytes = (of_engine.stats.received_bytes, of_engine.stats.sent_bytes);
                (version, report) = (Some(Version::HTTP_2), Some(of_engine));
            }
            Stage::Http1(connection) => {
                bytes = connection.traffic();
                report = connection.report();
                version = Some(Version::HTTP_11);
                refused = connection.refused();
            }
            Stage::Undecided(_) | Stage::Ended => {}
        }
        (hook.0)(&Ended {
            peer_addr,
            version,
            received_bytes: bytes.0,
            sent_bytes: bytes.1,
            report: report.as_ref(),
            error,
            evicted,
            refused,
        });
    }

    /// Ends the connection at once; over HTTP/2 by a GOAWAY with this code and debug data.
    pub(super) fn abort(&mut self, code: ErrorCode, reason: &'static str) {
        match &mut self.stage {
            Stage::Http2(connection) => connection.abort(code, reason),
            Stage::Http1(connection) => connection.abort(),
            Stage::Undecided(_) => self.stage = Stage::Ended,
            Stage::Ended => {}
        }
    }
}

impl<T, S> Undecided<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    /// The version of the connection; `None` when the peer has closed it or says nothing.
    fn poll_version(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HttpVersions>, Error>> {
        if self.versions != HttpVersions::Both {
            return Poll::Ready(Ok(Some(self.versions)));
        }
        loop {
            let said = self.read.len().min(PREFACE.len());
            if self.read[..said] != PREFACE[..said] {
                return Poll::Ready(Ok(Some(HttpVersions::Http1)));
            }
            if said == PREFACE.len() {
                return Poll::Ready(Ok(Some(HttpVersions::Http2)));
            }
            self.read.reserve(FIRST_READ);
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.read) {
                Poll::Ready(Ok(0)) if self.read.is_empty() => return Poll::Ready(Ok(None)),
                // The driver says what is missing.
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(Some(HttpVersions::Http2))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::io(error))),
                Poll::Pending => break,
            }
        }
        if self.read.is_empty() {
            // Silent connections hold no buffer.
            self.read = BytesMut::new();
        }
        let limit = match self.shuts_down {
            true => self.config.shutdown_grace(),
            false => self.config.preface_timeout(),
        };
        let alarms = self.prepare.as_ref().and_then(|prepare| prepare.alarms.as_ref());
        let timer = || Alarm::after(limit, alarms);
        ready!(self.timer.get_or_insert_with(timer).poll(cx));
        if self.shuts_down {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Err(Error::timeout("waiting for the peer's first octets", limit)))
    }

    /// The connection, once its version is known.
    fn begin(mut self, version: HttpVersions) -> Stage<T, S> {
        let read: Bytes = self.read.freeze();
        if version == HttpVersions::Http1 {
            let (alarms, tcp) = match self.prepare {
                Some(prepare) => {
                    (prepare.http1)(&self.io, &self.config);
                    (prepare.alarms, prepare.tcp)
                }
                None => (None, no_tcp::<T> as TcpBelow<T>),
            };
            let http1 = serve_http1(self.io, read, self.service, self.config, alarms, tcp);
            return Stage::Http1(http1);
        }
        let begun = self.prepare.as_mut().and_then(|prepare| prepare.begun.take());
        let begun = begun.map_or_else(|| Begun::server(self.config), |begun| *begun);
        let mut connection = serve_begun(self.io, self.service, begun).after(read);
        connection.send_slices();
        Stage::Http2(Box::new(match self.prepare {
            Some(prepare) => {
                let mut connection = (prepare.http2)(connection);
                connection.report_tcp(prepare.tcp);
                if let Some(time) = prepare.unsent {
                    connection.limit_unsent(prepare.tcp, time);
                }
                connection
            }
            None => connection,
        }))
    }
}

/// Of a transport of the caller's nothing is known.
fn no_tcp<T>(_: &T) -> Option<&TcpStream> {
    None
}

impl<T, S> Future for ServeConnectionAuto<T, S>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Http2(connection) => return Pin::new(connection).poll(cx),
                Stage::Http1(connection) => {
                    let polled = connection.poll(cx);
                    if polled.is_ready() || this.shutdown != Shutdown::Asked {
                        return polled;
                    }
                    // Now hyper knows what was read before.
                    this.tell_shutdown();
                }
                Stage::Undecided(_) => ready!(this.poll_undecided(cx))?,
                Stage::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<T, S> fmt::Debug for ServeConnectionAuto<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConnectionAuto").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
