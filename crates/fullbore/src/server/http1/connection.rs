//! The connection's future: runs hyper within the limits, and closes the transport so that the peer can read the last response.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fullbore_proto::{Config, Report, Seen, Stall};
use http::StatusCode;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::limits::{Expired, Limits};
use super::service::Http1Service;
use crate::alarm::Alarms;
use crate::error::{Error, ErrorKind};
use crate::http1::{Exchange, HyperIo, Record, Traffic, Transport, WRITE_TURN};
use crate::linger::Linger;
use crate::server::http_service::HttpService;
use crate::tcp::TcpBelow;

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

    /// Closes an idle connection, and any other one behind its response. One in which the head of the first request is arriving
    /// has `shutdown_grace` for the rest of it.
    fn graceful_shutdown(&mut self);

    /// Ends the connection at once.
    fn abort(&mut self);

    /// What it takes of the server.
    fn usage(&self) -> Usage;

    /// The bytes received, and those sent.
    fn traffic(&self) -> (u64, u64);

    /// What it has waited for, if that was recorded.
    fn report(&self) -> Option<Report>;

    /// The status of the request that was refused before a service saw it.
    fn refused(&self) -> Option<StatusCode>;
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
pub(in crate::server) fn serve_http1<T, S>(
    io: T,
    read: Bytes,
    service: S,
    config: Arc<Config>,
    alarms: Option<Alarms>,
    tcp: TcpBelow<T>,
) -> Box<dyn Http1>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
{
    let head = usize::try_from(config.max_header_list_size()).unwrap_or(usize::MAX);
    let (transport, mut io) = Transport::new(io, read, head.min(NOTED));
    io.forget_parsed();
    io.limit_reads(READ.max(head));
    io.encode_targets();
    io.record(tcp);
    let service = Http1Service::new(service, Arc::clone(transport.meter()));
    let mut builder = Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(head)
        .max_buf_size(config.send_buffer().max(head).max(LEAST_BUFFER));
    // hyper has room for 100 fields without an allocation.
    if config.max_header_fields() != Config::default().max_header_fields() {
        builder.max_headers(config.max_header_fields() as usize);
    }
    Box::new(Http1Connection {
        hyper: Some(
            builder
                .serve_connection(TokioIo::new(io), service)
                .with_upgrades(),
        ),
        transport,
        is_recorded_idle: true,
        sent: 0,
        limits: Limits::new(config, alarms),
        evicted: false,
        closes: false,
        stage: Stage::Open,
    })
}

/// hyper's connection.
type Hyper<T, S> = UpgradeableConnection<TokioIo<HyperIo<T>>, Http1Service<S>>;

/// What every poll needs comes first, so that it is on few lines of the processor's cache.
#[repr(C)]
struct Http1Connection<T, H> {
    stage: Stage<T>,
    transport: Transport<T>,
    evicted: bool,
    /// No request is in progress, by the record, if there is one.
    is_recorded_idle: bool,
    /// hyper was told that the last request was read.
    closes: bool,
    limits: Limits,
    /// What had been sent when the record was written last.
    sent: u64,
    /// None once hyper is done.
    hyper: Option<H>,
}

enum Stage<T> {
    Open,
    /// The transport belongs to what a handler has upgraded the connection to.
    Tunnel,
    Closing(Box<Closing<T>>),
    Closed,
}

/// Our half is being closed.
struct Closing<T> {
    /// The transport, if it is still there.
    io: Option<(T, Linger)>,
    result: Result<(), Error>,
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

/// What a connection does whose request is so far. `sent` bytes had been sent a turn ago.
fn seen(request: Exchange, traffic: Traffic, sent: u64) -> Seen {
    let sending = match (request.answers && !request.tunnel, traffic.awaits_write) {
        (false, _) => Stall::Idle,
        (true, true) => Stall::Socket,
        // Its turn may be over while there is more.
        (true, false) if traffic.sent - sent >= WRITE_TURN as u64 => Stall::Moving,
        (true, false) if request.receives && !request.responded => Stall::Idle,
        (true, false) => Stall::Application,
    };
    let receiving = match (request.receives, traffic.awaits_read) {
        (false, _) => Stall::Idle,
        (true, true) => Stall::Moving,
        (true, false) => Stall::Application,
    };
    Seen {
        sending,
        receiving,
        sent_bytes: traffic.sent,
        received_bytes: traffic.received,
        requests: request.requests,
    }
}

impl<T, S> Http1 for Http1Connection<T, Hyper<T, S>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
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
                Stage::Closing(closing) => {
                    if let Some((io, linger)) = &mut closing.io {
                        ready!(linger.poll(io, None, cx));
                    }
                    let result = std::mem::replace(&mut closing.result, Ok(()));
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
        self.limits.shut_down();
    }

    fn abort(&mut self) {
        self.evicted = true;
    }

    fn usage(&self) -> Usage {
        let (request, traffic) = self.look();
        let busy = request.is_busy() || traffic.awaits_write;
        Usage {
            requests: u64::from(busy && !matches!(self.stage, Stage::Closed)),
            progress: traffic.received + traffic.sent,
            at: self.limits.last_looked(),
        }
    }

    fn traffic(&self) -> (u64, u64) {
        let traffic = self.transport.traffic();
        (traffic.received, traffic.sent)
    }

    fn report(&self) -> Option<Report> {
        self.transport.meter().record().map(Record::report)
    }

    fn refused(&self) -> Option<StatusCode> {
        self.transport.meter().refused()
    }
}

impl<T, S> Http1Connection<T, Hyper<T, S>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HttpService,
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
        let end = match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *hyper).poll(cx))) {
            Ok(Poll::Ready(result)) => Some(End::Hyper(result)),
            Ok(Poll::Pending) => None,
            Err(_) => {
                #[cfg(feature = "tracing")]
                super::trace::panicked();
                Some(End::Panicked)
            }
        };
        if let Some(end) = end {
            return Poll::Ready(end);
        }
        let meter = self.transport.meter();
        if meter.is_last() && !self.closes {
            self.closes = true;
            Pin::new(hyper).graceful_shutdown();
            // It may have nothing more to do.
            cx.waker().wake_by_ref();
        }
        meter.end_turn();
        // Most polls find this, and need no more.
        if let Some((requests, received)) = meter.at_rest() {
            if self.is_recorded_idle && self.limits.note_answered(requests, received, cx) {
                return Poll::Pending;
            }
        }
        let (request, traffic) = self.look();
        self.record(request, traffic);
        if traffic.failed {
            return Poll::Ready(End::Failed);
        }
        self.limits.poll(request, traffic, cx).map(End::Expired)
    }

    /// Records what the connection waits for, if that is wanted.
    fn record(&mut self, request: Exchange, traffic: Traffic) {
        let Some(record) = self.transport.meter().record() else {
            return;
        };
        let seen = seen(request, traffic, self.sent);
        let is_idle = (seen.sending, seen.receiving) == (Stall::Idle, Stall::Idle);
        if is_idle && self.is_recorded_idle {
            return;
        }
        record.note(seen, Instant::now());
        (self.sent, self.is_recorded_idle) = (traffic.sent, is_idle);
    }

    /// Waits until the tunnel is closed.
    fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.transport.register(cx);
        let (request, traffic) = self.look();
        let over = traffic.released || self.evicted || self.limits.poll(request, traffic, cx).is_ready();
        if !over {
            return Poll::Pending;
        }
        drop(self.transport.take());
        Poll::Ready(())
    }

    /// How far the connection is.
    fn look(&self) -> (Exchange, Traffic) {
        (self.transport.meter().exchange(), self.transport.traffic())
    }

    /// A head that hyper cannot parse, or that takes too long, is answered and reaches no service.
    fn note_refusal(&self, end: &End, request: Exchange) {
        let status = match end {
            _ if request.is_busy() => return,
            End::Hyper(Err(error)) if error.is_parse() => match error.is_parse_too_large() {
                // hyper has one question for both.
                true if error.to_string().contains("URI") => StatusCode::URI_TOO_LONG,
                true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                false => StatusCode::BAD_REQUEST,
            },
            End::Expired(Expired::Head) => StatusCode::REQUEST_TIMEOUT,
            _ => return,
        };
        self.transport.meter().refuse(status);
    }

    /// The connection is no longer open: what happens to the transport.
    fn end(&mut self, end: End, cx: &mut Context<'_>) -> Stage<T> {
        let (request, traffic) = self.look();
        self.note_refusal(&end, request);
        if let Some(record) = self.transport.meter().record() {
            record.end();
        }
        let (result, response, abrupt): (Result<(), Error>, &[u8], bool) = match end {
            End::Hyper(Ok(())) if request.tunnel => {
                self.transport.meter().end_turns();
                self.hyper = None;
                return Stage::Tunnel;
            }
            End::Hyper(Ok(())) => (Ok(()), b"", false),
            // hyper has answered with a status, unless it had begun another response.
            End::Hyper(Err(error)) if error.is_parse() => (Err(Error::from_hyper(error)), b"", false),
            // The response is not complete. Over TLS the peer must not see a clean end.
            End::Hyper(Err(error)) => (Err(Error::from_hyper(error)), b"", true),
            End::Panicked if !request.responded && !traffic.awaits_write => (Ok(()), FAILED, false),
            End::Panicked => (Err(Error::incomplete(None, None)), b"", true),
            End::Expired(expired) => {
                let error = expired.error(self.limits.config());
                let (response, abrupt) = match expired {
                    Expired::Idle | Expired::Silence | Expired::Shutdown => (&b""[..], false),
                    Expired::Head => (TIMED_OUT, false),
                    Expired::Body if !request.responded => (TIMED_OUT, false),
                    Expired::Body | Expired::Send | Expired::HalfClose => (&b""[..], true),
                };
                (error.map_or(Ok(()), Err), response, abrupt)
            }
            End::Evicted if !request.is_busy() => (Ok(()), b"", false),
            End::Evicted => {
                let text = "the server was short of connections, streams or memory, and this connection made the least progress";
                (
                    Err(Error::new(ErrorKind::Closed, text)),
                    UNAVAILABLE,
                    request.responded,
                )
            }
            End::Failed => (Err(Error::incomplete(None, None)), b"", true),
        };
        if let Err(error) = &result {
            self.transport.meter().fail(error.clone());
        }
        #[cfg(feature = "tracing")]
        super::trace::ended(&result);
        // With it the handler and the bodies are dropped.
        self.hyper = None;
        let io = self.transport.take().filter(|_| !abrupt).map(|mut io| {
            if !response.is_empty() && !traffic.awaits_write {
                // Nothing waits before it, so that the kernel has room.
                let _ = Pin::new(&mut io).poll_write(cx, response);
            }
            (io, Linger::new())
        });
        Stage::Closing(Box::new(Closing { io, result }))
    }
}
