//! One HTTP/1.1 connection of a pool, by hyper: one request at a time.
//!
//! A task of its own drives each connection. It takes requests from [`SendRequest`], reports to the pool as the driver of
//! an HTTP/2 connection does, and holds the slot of a request until the connection can carry the next one. `message` is
//! what a request and an error become, `outgoing` the body of a request, `sent` how much of it has left, `clock` the limits on
//! time, `timer` what wakes the task for them, `quiet` the waker of hyper's connection, `totals` what a client reports, and
//! `tolerant` the transport.

mod clock;
mod message;
mod outgoing;
mod quiet;
mod sent;
mod timer;
mod tolerant;
mod totals;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, TcpInfo};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::client::conn::TrySendError;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;
use tokio::time::Instant;

use self::clock::{Clock, Limits};
use self::outgoing::{Departure, Reader, Upload};
use self::quiet::Quiet;
use self::sent::SentBody;
use self::timer::Timer;
use self::tolerant::{Tolerant, Writes};
use crate::body::Incoming;
use crate::error::{Error, ErrorKind};
use crate::http1::{HyperIo, Record, Transport};
use crate::informational::OnInformational;
use crate::observer::{Observer, Slot};
use crate::sent_bytes::SentBytes;
use crate::tcp;
use crate::tcp::OverTcp;

pub(super) use self::outgoing::Outgoing;
pub use self::totals::Http1Report;
pub(super) use self::totals::Totals;

/// How long a connection that is no longer used takes to close.
const LINGER: Duration = Duration::from_secs(1);

const ANSWERED_IN_HTTP2: &str = "the server answers HTTP/1.1 with HTTP/2";

/// Octets of a response that tell HTTP/2 from HTTP/1.1: a frame header.
const TELLING: usize = 9;

/// Sends requests on a connection, one after the other.
#[derive(Clone)]
pub(super) struct SendRequest {
    requests: mpsc::UnboundedSender<Box<Exchange>>,
    connection: Arc<Shared>,
}

/// How requests reach their server through an HTTP proxy that does not tunnel: with their whole URL (RFC 9112 section
/// 3.2.2).
#[cfg_attr(not(feature = "proxy"), allow(dead_code))]
pub(super) struct Forwarding {
    /// The URL of the proxy, without credentials.
    pub(super) proxy: String,
    /// The value of `Proxy-Authorization`.
    pub(super) authorization: Option<HeaderValue>,
}

impl Forwarding {
    /// The error of the first request on a connection: what does not answer at all, or in another protocol, is no proxy.
    #[cfg(feature = "proxy")]
    fn blame(&self, error: Error) -> Error {
        let text = match error.kind() {
            ErrorKind::Protocol => format!(
                "{} did not answer as an HTTP proxy; check its URL and port",
                self.proxy
            ),
            ErrorKind::Closed => format!("{} closed the connection before it answered", self.proxy),
            _ => return error,
        };
        Error::proxy(ErrorKind::Proxy, text, Some(error.into()))
    }

    #[cfg(not(feature = "proxy"))]
    fn blame(&self, error: Error) -> Error {
        error
    }
}

/// How a request failed.
pub(super) struct Failed {
    pub(super) error: Error,
    /// The body, if nothing of the request was sent.
    pub(super) unsent: Option<Outgoing>,
    /// Whether the connection had carried other requests before.
    pub(super) reused: bool,
}

/// What the task of a connection and its handles share.
struct Shared {
    observer: Arc<dyn Observer>,
    forwarding: Option<Forwarding>,
    continue_timeout: Duration,
    record: Arc<Record>,
    /// Whether no further request is to be sent.
    closing: AtomicBool,
}

/// What the task of a connection needs.
struct Settings {
    builder: hyper::client::conn::http1::Builder,
    limits: Limits,
    /// The limits of the first exchange, if these differ.
    first_limits: Option<Limits>,
    idle_timeout: Duration,
    totals: Arc<Totals>,
}

/// How long a connection waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    /// For a request. Then it closes.
    pub(super) idle: Duration,
    /// For 100 (Continue). Then the body is sent.
    pub(super) for_continue: Duration,
    /// For the head of the first response, if nothing is known of the server. Then the request fails.
    pub(super) for_first: Option<Duration>,
}

/// A request for the task.
struct Exchange {
    request: Request<Outgoing>,
    upload: Arc<Upload>,
    slot: Slot,
    answer: oneshot::Sender<Result<Response<Incoming>, Failed>>,
}

/// Starts HTTP/1.1 on a transport, and spawns the task.
pub(super) fn connect<T>(
    io: T,
    config: &Config,
    waits: Waits,
    totals: Arc<Totals>,
    forwarding: Option<Forwarding>,
    observer: Arc<dyn Observer>,
) -> SendRequest
where
    T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (requests, receiver) = mpsc::unbounded_channel();
    let record = Arc::new(Record::new(io.tcp().and_then(tcp::Ends::of)));
    let connection = Arc::new(Shared {
        observer,
        forwarding,
        record,
        continue_timeout: waits.for_continue,
        closing: AtomicBool::new(false),
    });
    let end = End {
        connection: Arc::clone(&connection),
        reported: false,
    };
    let mut builder = reader_of_responses();
    builder.max_header_size(usize::try_from(config.max_header_list_size()).unwrap_or(usize::MAX));
    builder.max_headers(most_fields(config) as usize);
    let settings = Settings {
        builder,
        limits: Limits::of(config),
        first_limits: waits
            .for_first
            .map(|first| Limits::of(config).responding_within(first)),
        idle_timeout: waits.idle,
        totals,
    };
    tokio::spawn(run(io, settings, receiver, end));
    SendRequest { requests, connection }
}

/// The most fields of a head. Beyond 100, hyper allocates room for all of them whenever it parses a head: with the 1,000 of
/// HTTP/2, that was a tenth of what a small request through a proxy costs.
const MOST_FIELDS: u32 = 256;

fn most_fields(config: &Config) -> u32 {
    match config.max_header_fields() {
        default if default == Config::default().max_header_fields() => MOST_FIELDS,
        chosen => chosen,
    }
}

/// hyper, which reads the heads of responses that curl and browsers read too. RFC 9112 section 5.2 asks a client to join folded
/// lines, and section 5.1 a proxy to remove white space before a colon. A line that is no field (its name has a space, its
/// value a control character) is left out.
pub(super) fn reader_of_responses() -> hyper::client::conn::http1::Builder {
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true);
    builder
}

impl SendRequest {
    /// Sends a request, and waits for the head of the response. Dropping the future ends the connection.
    pub(super) async fn send(
        &self,
        slot: Slot,
        head: &Request<()>,
        body: Outgoing,
    ) -> Result<Response<Incoming>, Failed> {
        let waits = message::expects_continue(head) && !body.is_empty();
        let upload = Upload::new(waits.then_some(self.connection.continue_timeout));
        let forwarding = self.connection.forwarding.as_ref();
        let (mut request, length) = message::request(head, body, forwarding).map_err(Failed::local)?;
        if let Some(sent) = SentBytes::of(head) {
            let chunked = !length.is_known() && request.body().size_hint().exact().is_none();
            upload.count(SentBody::new(sent.begin(), chunked));
        }
        request.body_mut().begin(&upload, length, slot.taken());
        poll_fn(|cx| request.body_mut().poll_begun(cx))
            .await
            .map_err(Failed::local)?;
        inform(&mut request, Arc::clone(&upload), OnInformational::of(head));
        let (answer, answered) = oneshot::channel();
        // In a box: it is moved several times on its way, and each place of the channel has room for one.
        let exchange = Box::new(Exchange {
            request,
            upload,
            slot,
            answer,
        });
        if let Err(unsent) = self.requests.send(exchange) {
            return Err(Failed::unsent(unsent.0.request, true));
        }
        match answered.await {
            Ok(answer) => answer,
            // The runtime of the connection has ended.
            Err(_) => Err(Failed::local(Error::connection_gone())),
        }
    }

    pub(super) fn is_same_connection(&self, other: &SendRequest) -> bool {
        Arc::ptr_eq(&self.connection, &other.connection)
    }

    /// Whether the connection takes requests, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        !self.connection.is_closing() && !self.requests.is_closed()
    }

    /// What TCP says of the connection, if it spans the path.
    pub(super) fn tcp(&self) -> Option<TcpInfo> {
        let report = self.connection.record.report();
        report.tcp.filter(|tcp| tcp.spans(report.answered_within))
    }

    /// Takes no further request. The connection ends when its handles are dropped and the request in progress is
    /// complete.
    pub(super) fn shutdown(&self) {
        self.connection.close();
    }

    pub(super) fn observer(&self) -> &dyn Observer {
        self.connection.observer.as_ref()
    }
}

impl Failed {
    /// Neither the server nor the connection is the cause.
    fn local(error: Error) -> Self {
        Failed {
            error,
            unsent: None,
            reused: false,
        }
    }

    fn unsent(request: Request<Outgoing>, reused: bool) -> Self {
        Failed {
            error: Error::never_sent(&Error::connection_gone()),
            unsent: Some(request.into_body()),
            reused,
        }
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

/// Counts the informational responses, and passes them to the caller.
fn inform(request: &mut Request<Outgoing>, upload: Arc<Upload>, caller: Option<Box<OnInformational>>) {
    hyper::ext::on_informational(request, move |received| {
        upload.informed(received.status() == StatusCode::CONTINUE);
        if let Some(caller) = &caller {
            let mut response = Response::new(());
            *response.status_mut() = received.status();
            *response.version_mut() = received.version();
            *response.headers_mut() = received.headers().clone();
            caller.call(response);
        }
    });
}

/// Reports the end of a connection to the pool, however its task ends.
struct End {
    connection: Arc<Shared>,
    reported: bool,
}

impl End {
    /// The connection has ended. The pool knows before the request does, and before its slot is free.
    fn report(&mut self, error: &Error) {
        self.connection.close();
        if !std::mem::replace(&mut self.reported, true) {
            self.connection.observer.closed(error);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.report(&Error::connection_gone());
    }
}

type Sender = hyper::client::conn::http1::SendRequest<Outgoing>;
type Connection<T> = hyper::client::conn::http1::Connection<TokioIo<HyperIo<Tolerant<T>>>, Outgoing>;

/// hyper's connection, and its transport.
struct Driven<T, F> {
    transport: Transport<T>,
    /// `None` once it has ended. What it held is dropped then, so that a request is answered in any case.
    connection: Option<Pin<Box<F>>>,
    /// Why it ended.
    failure: Option<hyper::Error>,
    /// What wakes the task for it.
    quiet: Quiet,
}

impl<T, F> Driven<T, F>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = hyper::Result<()>>,
{
    /// Drives the connection; ready when it has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(());
        };
        let mut cx = Context::from_waker(self.quiet.waker(cx));
        let Poll::Ready(ended) = connection.as_mut().poll(&mut cx) else {
            self.transport.meter().end_turn();
            return Poll::Pending;
        };
        self.failure = ended.err();
        self.connection = None;
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        self.connection.is_none()
    }

    /// Why there is no response.
    fn reason(&self, error: hyper::Error, upload: &Upload, answered: bool, reused: bool) -> Error {
        if let Some(error) = upload.error() {
            return error;
        }
        let look = |octets: &[u8]| ((message::is_tls(octets), message::is_http2(octets).0), 0);
        let (is_tls, is_http2) = self.transport.meter().with_noted(look);
        if is_tls && !reused {
            return Error::new(
                ErrorKind::NotHttp2,
                "it answered with an alert of TLS; try https://",
            );
        }
        match is_http2 && !reused {
            true => Error::other_version(ANSWERED_IN_HTTP2, error),
            false => message::error(error, answered),
        }
    }

    async fn ended(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }
}

/// What a connection does between two requests.
enum Next {
    Request(Box<Exchange>),
    /// No request came in time.
    Idle,
    /// The server has closed it, or nobody needs it any more.
    End,
}

async fn run<T>(io: T, settings: Settings, mut requests: mpsc::UnboundedReceiver<Box<Exchange>>, mut end: End)
where
    T: OverTcp + AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let record = Arc::clone(&end.connection.record);
    let writes = Arc::new(Writes::default());
    let (transport, io) = Transport::new(Tolerant::new(io, Arc::clone(&writes)), Bytes::new(), TELLING);
    let handshake: Result<(Sender, Connection<T>), _> = settings.builder.handshake(TokioIo::new(io)).await;
    let Ok((mut sender, connection)) = handshake else {
        return;
    };
    let mut driven = Driven {
        transport,
        connection: Some(Box::pin(connection.with_upgrades())),
        failure: None,
        quiet: poll_fn(|cx| Poll::Ready(Quiet::new(cx))).await,
    };
    settings.totals.begin(&record);
    let mut timer = Timer::default();
    let mut served = false;
    let mut idle_since = Instant::now();
    loop {
        let idle_until = idle_since.checked_add(settings.idle_timeout);
        let idle_until = idle_until.filter(|_| !end.connection.is_closing());
        // The exchange before has driven it, and nothing has changed.
        let mut is_driven = served;
        let next = poll_fn(|cx| {
            // With a request, hyper is driven once: it reads what the server has said since, and returns the request if that was
            // the end. Only of a connection that has served none, the end says what kind of server there is.
            if !served && driven.poll(cx).is_ready() {
                return Poll::Ready(Next::End);
            }
            if let Poll::Ready(request) = requests.poll_recv(cx) {
                return Poll::Ready(request.map_or(Next::End, Next::Request));
            }
            let is_over = match std::mem::take(&mut is_driven) || !served {
                true => driven.is_over(),
                false => driven.poll(cx).is_ready(),
            };
            match (is_over, idle_until) {
                (true, _) => Poll::Ready(Next::End),
                (false, Some(at)) => timer.poll(at, cx).map(|()| Next::Idle),
                (false, None) => Poll::Pending,
            }
        })
        .await;
        match next {
            Next::End => break,
            // A request that has this connection already is still sent.
            Next::Idle => {
                end.connection.close();
                end.connection.observer.closing();
            }
            Next::Request(exchange) => {
                let line = Line {
                    sender: &mut sender,
                    driven: &mut driven,
                    timer: &mut timer,
                    settings: &settings,
                    record: &record,
                    writes: &writes,
                };
                match line.carry(*exchange, served, &mut end).await {
                    Some(at) => idle_since = at,
                    None => break,
                }
                served = true;
            }
        }
    }
    settings.totals.end(&record);
    // A peer that speaks HTTP/2 may send its SETTINGS before any request.
    let is_http2 = !served && driven.transport.meter().with_noted(message::is_http2);
    let failure = driven.failure.as_ref().filter(|_| !served);
    end.report(&match failure.and_then(message::tls_failure) {
        Some(failure) => failure,
        None if is_http2 => Error::other_version(ANSWERED_IN_HTTP2, Error::connection_gone()),
        None => Error::connection_gone(),
    });
    requests.close();
    while let Some(unsent) = requests.recv().await {
        let _ = unsent.answer.send(Err(Failed::unsent(unsent.request, served)));
    }
    drop(sender);
    let _ = tokio::time::timeout(LINGER, driven.ended()).await;
}

/// For what hyper passes to its caller: that comes while this task drives it, and is looked for right after.
fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Takes a body that hyper has read to its end, if it is of known length and not empty.
fn take_whole(body: &mut hyper::body::Incoming) -> Option<Bytes> {
    let length = body.size_hint().exact().filter(|length| *length > 0)?;
    let Poll::Ready(Some(Ok(frame))) = Pin::new(body).poll_frame(&mut nobody()) else {
        return None;
    };
    frame
        .into_data()
        .ok()
        .filter(|bytes| bytes.len() as u64 == length)
}

/// A connection that carries one exchange.
struct Line<'a, T, F> {
    sender: &'a mut Sender,
    driven: &'a mut Driven<T, F>,
    timer: &'a mut Timer,
    settings: &'a Settings,
    record: &'a Record,
    writes: &'a Writes,
}

/// How the wait for the head of a response ends.
enum Head {
    Response(Response<hyper::body::Incoming>),
    Failed(TrySendError<Request<Outgoing>>),
    Late(Error),
    /// The request was dropped.
    Canceled,
}

impl<T, F> Line<'_, T, F>
where
    T: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = hyper::Result<()>>,
{
    /// Sends a request and passes on its response. Returns the time if the connection can carry another one.
    async fn carry(self, exchange: Exchange, reused: bool, end: &mut End) -> Option<Instant> {
        let Exchange {
            request,
            upload,
            slot,
            mut answer,
        } = exchange;
        let tunnels = *request.method() == Method::CONNECT;
        let before = self.driven.transport.traffic();
        let first = self.settings.first_limits.as_ref().filter(|_| !reused);
        let limits = first.unwrap_or(&self.settings.limits);
        let mut clock = Clock::start(limits, &upload, self.record, self.timer, (before, slot.taken()));
        let departure = Departure::start(&upload, self.writes, before.sent);
        let head = {
            let sender = &mut *self.sender;
            let sent = self.driven.quiet.silently(|| sender.try_send_request(request));
            let mut response = std::pin::pin!(unconstrained(sent));
            poll_fn(|cx| {
                // Even if the connection has ended, the response may be there.
                let _ = self.driven.poll(cx);
                let traffic = self.driven.transport.traffic();
                clock.driven(traffic);
                departure.wrote(traffic.sent);
                match response.as_mut().poll(&mut nobody()) {
                    Poll::Ready(Ok(response)) => return Poll::Ready(Head::Response(response)),
                    Poll::Ready(Err(failed)) => return Poll::Ready(Head::Failed(failed)),
                    Poll::Pending => {}
                }
                if answer.poll_closed(cx).is_ready() {
                    return Poll::Ready(Head::Canceled);
                }
                clock.note(false);
                clock.poll_head(cx).map(Head::Late)
            })
            .await
        };
        let mut response = match head {
            Head::Response(response) => response,
            Head::Failed(mut failed) => {
                let unsent = failed.take_message().map(Request::into_body);
                let answered = self.driven.transport.traffic().received > before.received;
                let error = self.driven.reason(failed.into_error(), &upload, answered, reused);
                let error = match &end.connection.forwarding {
                    Some(forwarding) if !reused && unsent.is_none() => forwarding.blame(error),
                    _ => error,
                };
                end.report(&error);
                let _ = answer.send(Err(Failed {
                    error,
                    unsent,
                    reused,
                }));
                return None;
            }
            Head::Late(error) => {
                self.driven.connection = None;
                end.report(&error);
                let _ = answer.send(Err(Failed::local(error)));
                return None;
            }
            Head::Canceled => {
                // hyper ends the connection, since its caller is gone.
                let _ = tokio::time::timeout(LINGER, self.driven.ended()).await;
                end.report(&Error::new(ErrorKind::Canceled, "nobody waits for the response"));
                return None;
            }
        };
        if let Some(error) = message::ambiguous(response.headers_mut()) {
            self.driven.connection = None;
            end.report(&error);
            let _ = answer.send(Err(Failed::local(error)));
            return None;
        }
        // hyper would send the next request without its body, if that had no length: HTTP/1.0 has no chunks.
        let reusable = response.version() == Version::HTTP_11;
        let status = response.status();
        let upgraded = status == StatusCode::SWITCHING_PROTOCOLS || (tunnels && status.is_success());
        if upgraded {
            self.writes.begin_tunnel();
            self.driven.transport.meter().end_turns();
        }
        let refused = status.is_client_error() || status.is_server_error();
        upload.answered(refused);
        if !reused && message::turns_away(&response) {
            end.connection.observer.turned_away();
        }
        end.connection.observer.answered();
        let is_complete = matches!(self.sender.poll_ready(&mut nobody()), Poll::Ready(Ok(())));
        let response = response.map(|mut body| {
            let length = body.size_hint().exact();
            // Whoever takes the end of a body wakes hyper's connection, which has nothing to do then.
            let take = || self.driven.quiet.silently(|| take_whole(&mut body));
            match is_complete.then(take).flatten() {
                Some(whole) => Incoming::whole(whole),
                None => Incoming::http1(body, length, Box::new(Reader(Arc::clone(&upload)))),
            }
        });
        // Before the caller has it, who may ask for the report at once.
        if is_complete {
            clock.end();
        } else {
            clock.note(true);
        }
        let _ = answer.send(Ok(response));
        let mut is_driven = true;
        let rest = poll_fn(|cx| {
            let is_noted = std::mem::take(&mut is_driven);
            if !is_noted {
                let _ = self.driven.poll(cx);
                let traffic = self.driven.transport.traffic();
                clock.driven(traffic);
                departure.wrote(traffic.sent);
            }
            if self.driven.is_over() {
                return Poll::Ready(Ok(false));
            }
            if let Poll::Ready(Ok(())) = self.sender.poll_ready(&mut nobody()) {
                return Poll::Ready(Ok(true));
            }
            if !is_noted {
                clock.note(true);
            }
            // hyper still holds a part of the request, which the server does not want, or which cannot be sent.
            if (refused || self.writes.have_failed()) && upload.poll_response_read(cx).is_ready() {
                self.driven.connection = None;
                return Poll::Ready(Ok(false));
            }
            clock.poll_body(cx).map(Err)
        });
        match rest.await {
            Ok(true) if reusable && !self.writes.have_failed() => {
                let now = clock.end();
                slot.complete_at(now);
                Some(now)
            }
            Ok(_) => {
                end.report(&Error::connection_gone());
                None
            }
            Err(error) => {
                // The reader gets this error rather than hyper's.
                upload.fail(&error);
                self.driven.connection = None;
                end.report(&error);
                None
            }
        }
    }
}
