//! The connection's future: runs hyper within the limits, and closes the transport so that the peer can read the last response.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore_proto::Config;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tower_service::Service;

use super::limits::{Expired, Limits};
use super::progress::{Now, Progress};
use super::service::Http1Service;
use crate::alarm::Alarms;
use crate::body::Incoming;
use crate::error::{BoxError, Error, ErrorKind};
use crate::file::Chunk;
use crate::http1::{HyperIo, Traffic, Transport};
use crate::linger::Linger;

/// What is read at once.
const READ: usize = 64 << 10;

/// The least limit on its buffers that hyper takes.
const LEAST_BUFFER: usize = 8 << 10;

/// How much of a head is kept until it is checked.
const NOTED: usize = 16 << 10;

/// Responses that the connection itself sends when there is no other.
const TIMED_OUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const FAILED: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
const UNAVAILABLE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";

/// An HTTP/1.1 connection, whatever its transport and service.
pub(in crate::server) trait Http1: Send {
    /// Runs the connection until it must wait.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>>;

    /// Closes an idle connection, and any other one behind its response.
    fn graceful_shutdown(&mut self);

    /// Ends the connection at once.
    fn abort(&mut self);

    /// What it takes of the server.
    fn usage(&self) -> Usage;

    /// The bytes received, and those sent.
    fn traffic(&self) -> (u64, u64);
}

/// What a connection takes of the server.
pub(in crate::server) struct Usage {
    /// The requests in progress.
    pub(in crate::server) requests: u64,
    /// The bytes that have passed.
    pub(in crate::server) progress: u64,
    /// When that was so.
    pub(in crate::server) at: Instant,
}

/// Serves HTTP/1.1 on a transport from which `read` was read before. `alarms` are those of the server, if it has any.
pub(in crate::server) fn serve_http1<T, S, B>(
    io: T,
    read: Bytes,
    service: S,
    config: Arc<Config>,
    alarms: Option<Alarms>,
) -> Box<dyn Http1>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    let head = usize::try_from(config.max_header_list_size).unwrap_or(usize::MAX);
    let (transport, mut io) = Transport::new(io, read, head.min(NOTED));
    io.forget_parsed();
    io.limit_reads(READ.max(head));
    let progress = Arc::new(Progress::new(transport.meter()));
    let service = Http1Service::new(service, Arc::clone(&progress));
    let mut builder = Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(head)
        .max_buf_size(config.send_buffer.max(head).max(LEAST_BUFFER));
    // hyper has room for 100 fields without an allocation.
    if config.max_header_fields != Config::default().max_header_fields {
        builder.max_headers(config.max_header_fields as usize);
    }
    Box::new(Http1Connection {
        hyper: Some(
            builder
                .serve_connection(TokioIo::new(io), service)
                .with_upgrades(),
        ),
        transport,
        progress,
        limits: Limits::new(config, alarms),
        request: Now::default(),
        traffic: Traffic::default(),
        evicted: false,
        stage: Stage::Open,
    })
}

/// hyper's connection.
type Hyper<T, S> = UpgradeableConnection<TokioIo<HyperIo<T>>, Http1Service<S>>;

struct Http1Connection<T, H> {
    /// None once hyper is done.
    hyper: Option<H>,
    transport: Transport<T>,
    progress: Arc<Progress>,
    limits: Limits,
    /// How far the connection was when it was polled last.
    request: Now,
    traffic: Traffic,
    evicted: bool,
    stage: Stage<T>,
}

enum Stage<T> {
    Open,
    /// The transport belongs to what a handler has upgraded the connection to.
    Tunnel,
    /// Our half is being closed, if the transport is still there.
    Closing {
        closing: Option<(T, Linger)>,
        result: Result<(), Error>,
    },
    Closed,
}

/// Why the connection is no longer open.
enum End {
    /// hyper is done with it.
    Hyper(hyper::Result<()>),
    /// A handler, or the body of a response.
    Panicked,
    Expired(Expired),
    Evicted,
    /// The transport has failed.
    Failed,
}

impl<T, S, B> Http1 for Http1Connection<T, Hyper<T, S>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match &mut self.stage {
                Stage::Open => {
                    let end = ready!(self.poll_open(cx));
                    self.stage = self.end(end, cx);
                }
                Stage::Tunnel => {
                    ready!(self.poll_tunnel(cx));
                    self.stage = Stage::Closed;
                }
                Stage::Closing { closing, result } => {
                    if let Some((io, linger)) = closing {
                        ready!(linger.poll(io, None, cx));
                    }
                    let result = std::mem::replace(result, Ok(()));
                    self.request = Now::default();
                    self.stage = Stage::Closed;
                    return Poll::Ready(result);
                }
                Stage::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    fn graceful_shutdown(&mut self) {
        if let Some(hyper) = &mut self.hyper {
            Pin::new(hyper).graceful_shutdown();
        }
    }

    fn abort(&mut self) {
        self.evicted = true;
    }

    fn usage(&self) -> Usage {
        let busy = self.request.is_busy() || self.traffic.awaits_write;
        Usage {
            requests: u64::from(busy),
            progress: self.traffic.received + self.traffic.sent,
            at: self.limits.last_looked(),
        }
    }

    fn traffic(&self) -> (u64, u64) {
        (self.traffic.received, self.traffic.sent)
    }
}

impl<T, S, B> Http1Connection<T, Hyper<T, S>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Unpin + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Into<Chunk> + Send,
    B::Error: Into<BoxError>,
{
    /// Runs hyper until it is done or a limit is exceeded.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.evicted {
            return Poll::Ready(End::Evicted);
        }
        let Some(hyper) = &mut self.hyper else {
            return Poll::Ready(End::Failed);
        };
        // A service that panics ends its own connection only. Caught here, it costs the requests nothing.
        let end = match catch_unwind(AssertUnwindSafe(|| Pin::new(hyper).poll(cx))) {
            Ok(Poll::Ready(result)) => Some(End::Hyper(result)),
            Ok(Poll::Pending) => None,
            Err(_) => {
                #[cfg(feature = "tracing")]
                super::trace::panicked();
                Some(End::Panicked)
            }
        };
        if let Some(end) = end {
            self.look();
            return Poll::Ready(end);
        }
        self.request = self.progress.end_turn();
        self.traffic = self.transport.traffic();
        self.transport.meter().end_turn();
        if self.traffic.failed {
            return Poll::Ready(End::Failed);
        }
        self.limits.poll(self.request, self.traffic, cx).map(End::Expired)
    }

    /// Waits until the tunnel is closed.
    fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.transport.register(cx);
        self.look();
        let over = self.traffic.released
            || self.evicted
            || self.limits.poll(self.request, self.traffic, cx).is_ready();
        if !over {
            return Poll::Pending;
        }
        drop(self.transport.take());
        Poll::Ready(())
    }

    fn look(&mut self) {
        self.request = self.progress.now();
        self.traffic = self.transport.traffic();
    }

    /// The connection is no longer open: what happens to the transport.
    fn end(&mut self, end: End, cx: &mut Context<'_>) -> Stage<T> {
        let (result, response, abrupt): (Result<(), Error>, &[u8], bool) = match end {
            End::Hyper(Ok(())) if self.request.tunnel => {
                self.transport.meter().end_turns();
                self.hyper = None;
                return Stage::Tunnel;
            }
            End::Hyper(Ok(())) => (Ok(()), b"", false),
            // hyper has answered with a status, unless it had begun another response.
            End::Hyper(Err(error)) if error.is_parse() => (Err(Error::from_hyper(error)), b"", false),
            // The response is not complete. Over TLS the peer must not see a clean end.
            End::Hyper(Err(error)) => (Err(Error::from_hyper(error)), b"", true),
            End::Panicked if !self.request.responded && !self.traffic.awaits_write => (Ok(()), FAILED, false),
            End::Panicked => (Err(Error::incomplete(None, None)), b"", true),
            End::Expired(expired) => {
                let error = expired.error(self.limits.config());
                let (response, abrupt) = match expired {
                    Expired::Idle | Expired::Silence => (&b""[..], false),
                    Expired::Head => (TIMED_OUT, false),
                    Expired::Body if !self.request.responded => (TIMED_OUT, false),
                    Expired::Body | Expired::Send | Expired::HalfClose => (&b""[..], true),
                };
                (error.map_or(Ok(()), Err), response, abrupt)
            }
            End::Evicted if !self.request.is_busy() => (Ok(()), b"", false),
            End::Evicted => {
                let text = "the server was short of connections, streams or memory, and this connection made the least progress";
                (
                    Err(Error::new(ErrorKind::Closed, text)),
                    UNAVAILABLE,
                    self.request.responded,
                )
            }
            End::Failed => (Err(Error::incomplete(None, None)), b"", true),
        };
        if let Err(error) = &result {
            self.progress.fail(error.clone());
        }
        #[cfg(feature = "tracing")]
        super::trace::ended(&result);
        // With it the handler and the bodies are dropped.
        self.hyper = None;
        let closing = self.transport.take().filter(|_| !abrupt).map(|mut io| {
            if !response.is_empty() && !self.traffic.awaits_write {
                // Nothing waits before it, so that the kernel has room.
                let _ = Pin::new(&mut io).poll_write(cx, response);
            }
            (io, Linger::new())
        });
        Stage::Closing { closing, result }
    }
}
