//! The error type of the library: a kind for programs, a sentence for people, and the cause.
//!
//! The text of an error follows from its kind and its detail. [`Display`](fmt::Display) prints these two and `source()`
//! returns the cause, so that a printed chain repeats nothing.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{
    ConnectionError, ErrorCode, InvalidMessage, Side, StreamError, StreamErrorKind, UsageError,
};
use http::{StatusCode, Uri};

/// Any error, boxed: what the caller's bodies and services may fail with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL has no host, its scheme is neither `http` nor `https`, or its port is no number from 0 to 65535.
    InvalidUrl,
    /// HTTP/2 forbids the caller's message, so it was not sent.
    InvalidMessage,
    /// A setting is out of range or contradicts another.
    Config,
    /// The address cannot be listened on.
    Bind,
    /// The host name does not resolve.
    Resolve,
    /// No TCP connection could be made.
    Connect,
    /// A proxy refused the connection to the server, or did not act as one. [`Error::is_proxy`] also covers a proxy that
    /// cannot be reached.
    Proxy,
    /// The TLS handshake failed.
    Tls,
    /// The peer's certificate does not verify.
    Certificate,
    /// The peer does not speak HTTP/2, or no version of HTTP that may be used.
    NotHttp2,
    /// A rule of HTTP was broken, or a request that was not sent would break one. Over HTTP/2 [`Error::code`] says which kind of
    /// rule the peer has broken.
    Protocol,
    /// The connection was closed before the message was complete.
    Closed,
    /// Reading from or writing to the connection failed.
    Io,
    /// The peer did not process the request, which may be repeated (RFC 9113 section 8.7).
    Refused,
    /// The peer reset the stream. [`Error::code`] says why.
    Reset,
    /// A body was shorter or longer than its `content-length`.
    BodyLength,
    /// The caller's body failed while it was sent.
    Body,
    /// A limit on time was exceeded.
    Timeout,
    /// The request was canceled on this side.
    Canceled,
    /// The memory budget is exhausted.
    Budget,
    /// More requests wait for a connection than
    /// [`ClientBuilder::max_waiting_requests`](crate::ClientBuilder::max_waiting_requests) allows. This one was not sent.
    Busy,
    /// A receive window was to become smaller than it is.
    WindowShrinks,
    /// The status of a response is an error ([`Response::error_for_status`](crate::client::Response::error_for_status)).
    Status,
    /// A redirect cannot be followed, or was one too many.
    Redirect,
    /// A body is not what it was read as: no JSON of the type, no text, or no valid content coding.
    Decode,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::InvalidUrl => "invalid URL",
            ErrorKind::InvalidMessage => "invalid message",
            ErrorKind::Config => "invalid configuration",
            ErrorKind::Bind => "cannot listen on the address",
            ErrorKind::Resolve => "cannot resolve the host name",
            ErrorKind::Connect => "cannot connect",
            ErrorKind::Proxy => "the proxy failed",
            ErrorKind::Tls => "TLS handshake failed",
            ErrorKind::Certificate => "the certificate does not verify",
            ErrorKind::NotHttp2 => "the peer does not speak HTTP/2",
            ErrorKind::Protocol => "HTTP protocol error",
            ErrorKind::Closed => "connection closed",
            ErrorKind::Io => "connection failed",
            ErrorKind::Refused => "the peer did not process the request, which may be repeated",
            ErrorKind::Reset => "the peer reset the stream",
            ErrorKind::BodyLength => "the body does not match its content-length",
            ErrorKind::Body => "the body that was being sent failed",
            ErrorKind::Timeout => "timed out",
            ErrorKind::Canceled => "request canceled",
            ErrorKind::Budget => "the memory budget is exhausted",
            ErrorKind::Busy => "too many requests wait",
            ErrorKind::WindowShrinks => "a receive window cannot shrink",
            ErrorKind::Status => "the server answered with an error",
            ErrorKind::Redirect => "the redirect cannot be followed",
            ErrorKind::Decode => "the body cannot be decoded",
        })
    }
}

/// An error of the library. Clones share it.
///
/// To print it with its causes, follow [`source`](StdError::source):
///
/// ```
/// # fn main() {
/// use std::error::Error;
///
/// fn chain(error: &dyn Error) -> String {
///     match error.source() {
///         Some(cause) => format!("{error}: {}", chain(cause)),
///         None => error.to_string(),
///     }
/// }
///
/// let error = fullbore::Client::builder().stream_window(0).build().unwrap_err();
/// assert_eq!(error.kind(), fullbore::ErrorKind::Config);
/// println!("{}", chain(&error));
/// # }
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    detail: Detail,
    source: Option<BoxError>,
}

/// What completes the text of the kind.
#[derive(Debug)]
enum Detail {
    None,
    /// Follows the text of the kind.
    Text(String),
    /// Follows the text of the kind, and says what the source says.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    Explained(String),
    /// Follows the text of the kind.
    GoAway(PeerGoAway),
    /// Takes the place of the text of the kind, unless that is [`ErrorKind::NotHttp2`].
    Connection(ConnectionError),
    /// Takes the place of the text of the kind.
    Stream(StreamError),
    /// Takes the place of the text of the kind.
    Usage(UsageError),
    /// The peer closed the connection before its first answer. Follows the text of the kind.
    Unanswered(&'static str),
    /// The peer answers in the other version of HTTP. Follows the text of the kind.
    OtherVersion(&'static str),
    /// A connection could not be opened, and a proxy is the cause. Follows the text of the kind.
    #[cfg_attr(not(feature = "proxy"), allow(dead_code))]
    Proxy(String),
    /// No connection was opened in time. Follows the text of the kind.
    Connecting(String),
    /// The status of a response. Follows the text of the kind.
    Status(StatusCode),
    /// Another error, and the request that it ended. The URL stands in front of its text.
    Request {
        url: String,
        error: Error,
        /// Whether the body of the response was being read.
        in_body: bool,
    },
}

/// The peer's GOAWAY (RFC 9113 section 6.8).
#[derive(Debug, Clone)]
pub(crate) struct PeerGoAway {
    pub(crate) last_stream: u32,
    pub(crate) code: ErrorCode,
    pub(crate) debug: Bytes,
}

impl PeerGoAway {
    /// Whether it ends a connection that was used, without an error.
    pub(crate) fn is_graceful(&self) -> bool {
        self.code == ErrorCode::NO_ERROR && self.last_stream > 0
    }
}

impl fmt::Display for PeerGoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it sent GOAWAY with {}", self.code)?;
        match self.debug.is_empty() {
            true => Ok(()),
            // The peer's text is escaped: none of it reaches a terminal as it came.
            false => write!(f, " and \"{}\"", self.debug.escape_ascii()),
        }
    }
}

impl Error {
    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The error code (RFC 9113 section 7) that was sent or received, if there was one.
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.inner.detail {
            Detail::GoAway(frame) => Some(frame.code),
            Detail::Connection(error) => Some(error.code),
            Detail::Stream(error) => Some(error.code),
            Detail::Request { error, .. } => error.code(),
            _ => None,
        }
    }

    /// The URL of the request of a [`Client`](crate::Client) that failed, without name, password and query, which may be
    /// secrets. The text of the error begins with it. `None` for other errors, that of a body's [`Incoming`](crate::Incoming) among
    /// them.
    pub fn url(&self) -> Option<&str> {
        match &self.inner.detail {
            Detail::Request { url, .. } => Some(url),
            _ => None,
        }
    }

    /// The same error without the URL in its text, for a caller who names it.
    #[must_use]
    pub fn without_url(&self) -> &Self {
        match &self.inner.detail {
            Detail::Request { error, .. } => error,
            _ => self,
        }
    }

    /// Whether a limit on time was exceeded.
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Whether no connection was made: name resolution, TCP, a proxy, TLS or the start of HTTP/2 failed, or took too long.
    pub fn is_connect(&self) -> bool {
        use ErrorKind::{Certificate, Connect, NotHttp2, Proxy, Resolve, Tls};
        matches!(
            self.kind(),
            Resolve | Connect | Proxy | Tls | Certificate | NotHttp2
        ) || matches!(self.without_url().inner.detail, Detail::Connecting(_))
    }

    /// Whether no connection was made because of a proxy: it cannot be reached, it refused, or it cannot reach the server.
    pub fn is_proxy(&self) -> bool {
        matches!(self.without_url().inner.detail, Detail::Proxy(_))
    }

    /// Whether a body failed: that of the request while it was sent, or that of the response while it was read
    /// ([`Response::bytes`](crate::client::Response::bytes) and its like).
    pub fn is_body(&self) -> bool {
        matches!(self.kind(), ErrorKind::Body | ErrorKind::BodyLength)
            || matches!(self.inner.detail, Detail::Request { in_body: true, .. })
    }

    /// Whether a body is not what it was read as: JSON, text, or a content coding.
    pub fn is_decode(&self) -> bool {
        self.kind() == ErrorKind::Decode
    }

    /// Whether the status of the response is the error.
    pub fn is_status(&self) -> bool {
        self.kind() == ErrorKind::Status
    }

    /// The status of the response, if that is the error.
    pub fn status(&self) -> Option<StatusCode> {
        match self.without_url().inner.detail {
            Detail::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether a redirect cannot be followed, or was one too many.
    pub fn is_redirect(&self) -> bool {
        self.kind() == ErrorKind::Redirect
    }

    /// Whether the request could not be built: its URL, fields or body are invalid.
    pub fn is_builder(&self) -> bool {
        matches!(self.kind(), ErrorKind::InvalidUrl | ErrorKind::InvalidMessage)
    }

    /// Whether the request was certainly not processed, and may succeed if it is sent again: the peer refused it, or no
    /// connection was made, for a reason that may pass. A client has sent it again as often as it may already.
    ///
    /// False for every response that came, 429 (Too Many Requests) and 503 (Service Unavailable) among them: see
    /// [`Self::status`].
    pub fn is_retryable(&self) -> bool {
        let lasting = matches!(self.kind(), ErrorKind::Certificate | ErrorKind::NotHttp2);
        self.is_refused() || (self.is_connect() && !lasting)
    }

    /// Whether the peer did not process the request, so that it may be repeated.
    pub fn is_refused(&self) -> bool {
        self.kind() == ErrorKind::Refused
    }

    /// Whether the connection was closed or failed before the message was complete.
    pub fn is_closed(&self) -> bool {
        matches!(self.kind(), ErrorKind::Closed | ErrorKind::Io)
    }

    /// Whether the peer reset the stream.
    pub fn is_reset(&self) -> bool {
        self.kind() == ErrorKind::Reset
    }

    /// Whether the request was canceled on this side.
    pub fn is_canceled(&self) -> bool {
        self.kind() == ErrorKind::Canceled
    }

    /// The error of rustls behind this one, if TLS failed: for programs that treat its causes differently. The text of
    /// this error says the same in a sentence, so that it is no part of the chain of [`source`](StdError::source).
    #[cfg(feature = "tls")]
    pub fn rustls_error(&self) -> Option<&tokio_rustls::rustls::Error> {
        let source = self.without_url().inner.source.as_deref()?;
        if let Some(error) = source.downcast_ref::<Self>() {
            return error.rustls_error();
        }
        match source.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref()?.downcast_ref(),
            None => source.downcast_ref(),
        }
    }

    /// Whether the caller's settings, URL or message are invalid.
    pub fn is_usage(&self) -> bool {
        use ErrorKind::{Config, InvalidMessage, InvalidUrl, WindowShrinks};
        matches!(self.kind(), InvalidUrl | InvalidMessage | Config | WindowShrinks)
    }
}

/// Constructors.
impl Error {
    fn of(kind: ErrorKind, detail: Detail, source: Option<BoxError>) -> Self {
        let inner = Inner { kind, detail, source };
        Error {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self::of(kind, Detail::Text(detail.into()), None)
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        detail: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::of(kind, Detail::Text(detail.into()), Some(source.into()))
    }

    /// An error whose text also says what `source` says, in better words. The source is kept, but not part of the chain.
    #[cfg(feature = "tls")]
    pub(crate) fn explained(kind: ErrorKind, text: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::of(kind, Detail::Explained(text.into()), Some(source.into()))
    }

    /// The error of a request.
    pub(crate) fn of_request(self, uri: &Uri) -> Self {
        self.named(uri, false)
    }

    /// The error of reading a response's body.
    pub(crate) fn of_body(self, uri: &Uri) -> Self {
        self.named(uri, true)
    }

    fn named(self, uri: &Uri, in_body: bool) -> Self {
        // A connector that is a client itself has named the request that failed.
        if self.url().is_some() {
            return self;
        }
        let url = match (uri.scheme_str(), uri.authority()) {
            (None, Some(authority)) => shown(authority.as_str()),
            _ => shown(&uri.to_string()),
        };
        Self::of_url(url, self, in_body)
    }

    fn of_url(url: String, error: Error, in_body: bool) -> Self {
        let kind = error.kind();
        Self::of(kind, Detail::Request { url, error, in_body }, None)
    }

    /// A text is no URL that a request can be sent to.
    pub(crate) fn invalid_url(url: &str, why: impl Into<String>) -> Self {
        Self::of_url(shown(url), Self::new(ErrorKind::InvalidUrl, why), false)
    }

    /// The status of a response is an error.
    pub(crate) fn from_status(status: StatusCode) -> Self {
        Self::of(ErrorKind::Status, Detail::Status(status), None)
    }

    pub(crate) fn config(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, detail)
    }

    /// A connection could not be opened, and a proxy is the cause.
    #[cfg(feature = "proxy")]
    pub(crate) fn proxy(kind: ErrorKind, text: impl Into<String>, source: Option<BoxError>) -> Self {
        Self::of(kind, Detail::Proxy(text.into()), source)
    }

    /// No connection was opened in time.
    pub(crate) fn connect_timeout(steps: &str, limit: Duration) -> Self {
        let seconds = limit.as_secs_f64();
        let text = format!("{steps} took too long (limit: {seconds} s)");
        Self::of(ErrorKind::Timeout, Detail::Connecting(text), None)
    }

    pub(crate) fn timeout(detail: &str, limit: Duration) -> Self {
        let seconds = limit.as_secs_f64();
        Self::new(ErrorKind::Timeout, format!("{detail} (limit: {seconds} s)"))
    }

    pub(crate) fn bind(source: io::Error) -> Self {
        Self::of(ErrorKind::Bind, Detail::None, Some(source.into()))
    }

    /// A socket address cannot be listened on.
    pub(crate) fn bind_to(address: SocketAddr, source: io::Error) -> Self {
        Self::with_source(ErrorKind::Bind, address.to_string(), source)
    }

    /// Reading or writing failed.
    pub(crate) fn io(source: io::Error) -> Self {
        Self::of(ErrorKind::Io, Detail::None, Some(source.into()))
    }

    /// The caller's body failed.
    pub(crate) fn body(source: BoxError) -> Self {
        Self::of(ErrorKind::Body, Detail::None, Some(source))
    }

    /// The body that is sent was dropped before its end.
    pub(crate) fn body_dropped() -> Self {
        Self::new(
            ErrorKind::Body,
            "it was dropped before its end: it panicked, or its runtime shut down",
        )
    }

    /// The peer closed the connection within a message, after this GOAWAY or error if there was one.
    pub(crate) fn incomplete(frame: Option<&PeerGoAway>, source: Option<io::Error>) -> Self {
        let detail = match frame {
            Some(frame) => Detail::GoAway(frame.clone()),
            None => Detail::Text("the message was not complete".to_owned()),
        };
        Self::of(ErrorKind::Closed, detail, source.map(Into::into))
    }

    /// The peer closed the connection before its first answer: to a request in HTTP/1.1, to the preface in HTTP/2.
    pub(crate) fn unanswered(kind: ErrorKind, text: &'static str, source: Option<BoxError>) -> Self {
        Self::of(kind, Detail::Unanswered(text), source)
    }

    /// The peer answers in the version of HTTP that this connection does not speak.
    pub(crate) fn other_version(text: &'static str, source: impl Into<BoxError>) -> Self {
        Self::of(
            ErrorKind::Protocol,
            Detail::OtherVersion(text),
            Some(source.into()),
        )
    }

    /// The connection has ended.
    pub(crate) fn connection_gone() -> Self {
        Self::new(ErrorKind::Closed, "open another one")
    }

    /// An error ended the connection. `settled` says whether the peer's SETTINGS had arrived.
    pub(crate) fn from_connection(error: &ConnectionError, settled: bool) -> Self {
        let kind = match (settled, error.blame) {
            _ if error.is_timeout() => ErrorKind::Timeout,
            (false, Side::Peer) if error.code == ErrorCode::PROTOCOL_ERROR => ErrorKind::NotHttp2,
            _ => ErrorKind::Protocol,
        };
        Self::of(kind, Detail::Connection(error.clone()), None)
    }

    /// Either side reset the stream.
    pub(crate) fn from_stream(error: &StreamError) -> Self {
        let kind = match (error.by, error.code) {
            _ if error.kind() == StreamErrorKind::TransportEnded => return Self::incomplete(None, None),
            // As if it had been opened now.
            _ if error.kind() == StreamErrorKind::TooLarge => {
                return Self::from_usage(UsageError::InvalidMessage(InvalidMessage::TooLarge));
            }
            _ if error.kind() == StreamErrorKind::ExtendedConnect => {
                return Self::from_usage(UsageError::ExtendedConnect);
            }
            _ if error.kind() == StreamErrorKind::ContentLength => ErrorKind::BodyLength,
            _ if error.is_timeout() => ErrorKind::Timeout,
            (Side::Peer, ErrorCode::REFUSED_STREAM) => ErrorKind::Refused,
            (Side::Peer, _) => ErrorKind::Reset,
            (Side::Local, ErrorCode::CANCEL | ErrorCode::NO_ERROR) => ErrorKind::Canceled,
            (Side::Local, _) => ErrorKind::Protocol,
        };
        Self::of(kind, Detail::Stream(error.clone()), None)
    }

    /// The peer's GOAWAY leaves the request out.
    pub(crate) fn from_go_away(frame: &PeerGoAway) -> Self {
        Self::of(ErrorKind::Refused, Detail::GoAway(frame.clone()), None)
    }

    /// The engine does not take what the caller asks for.
    pub(crate) fn from_usage(error: UsageError) -> Self {
        let kind = match error {
            UsageError::NoNewStreams => ErrorKind::Refused,
            UsageError::BudgetExhausted => ErrorKind::Budget,
            UsageError::ExtendedConnect => ErrorKind::Protocol,
            UsageError::WindowShrinks => ErrorKind::WindowShrinks,
            UsageError::InvalidMessage(_) => ErrorKind::InvalidMessage,
            _ => ErrorKind::Config,
        };
        Self::of(kind, Detail::Usage(error), None)
    }

    /// An error of hyper, which reads and writes HTTP/1.1.
    pub(crate) fn from_hyper(error: hyper::Error) -> Self {
        // A body of this library says more than hyper.
        let own = error
            .source()
            .filter(|_| error.is_user())
            .and_then(|source| source.downcast_ref::<Error>());
        if let Some(own) = own {
            return own.clone();
        }
        let io = error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>());
        let kind = match io.map(io::Error::kind) {
            _ if error.is_timeout() => ErrorKind::Timeout,
            _ if error.is_body_write_aborted() => ErrorKind::BodyLength,
            _ if error.is_user() && error.source().is_some() => ErrorKind::Body,
            _ if error.is_user() => ErrorKind::InvalidMessage,
            _ if error.is_parse() => ErrorKind::Protocol,
            // hyper reports chunks that are malformed, or whose fields exceed a limit, as these.
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => ErrorKind::Protocol,
            Some(
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe,
            )
            | None => ErrorKind::Closed,
            Some(_) => ErrorKind::Io,
        };
        match kind {
            ErrorKind::Closed => Self::with_source(kind, "the message was not complete", error),
            ErrorKind::Protocol => Self::with_source(kind, blamed(&error), error),
            kind => Self::of(kind, Detail::None, Some(error.into())),
        }
    }

    /// The connection ended before it sent anything of the request.
    pub(crate) fn never_sent(cause: &Error) -> Self {
        Self::with_source(
            ErrorKind::Refused,
            "the connection ended before the request was sent",
            cause.clone(),
        )
    }

    /// Whether the peer closed the connection before its first answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.inner.detail, Detail::Unanswered(_))
    }

    /// Whether the peer has sent nothing of HTTP/2, or something else, so that it may speak HTTP/1.1.
    pub(crate) fn is_not_http2(&self) -> bool {
        self.kind() == ErrorKind::NotHttp2 && matches!(self.inner.detail, Detail::Connection(_))
    }

    /// Whether the peer has sent nothing. It may still process what it was sent.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(&self.inner.detail, Detail::Connection(error) if error.is_silence())
    }

    /// Whether the peer answers in the other version of HTTP, so that it processed no request of this connection.
    pub(crate) fn is_other_version(&self) -> bool {
        match &self.inner.detail {
            Detail::OtherVersion(_) => true,
            Detail::Connection(error) => error.is_http1(),
            _ => false,
        }
    }

    /// Whether the peer requires the request in HTTP/1.1 (HTTP_1_1_REQUIRED, RFC 9113 section 7).
    pub(crate) fn requires_http1(&self) -> bool {
        self.code() == Some(ErrorCode::HTTP_1_1_REQUIRED) && (self.is_reset() || self.is_refused())
    }

    /// Whether the peer refused a request in a way that asks for a pause before the next one: by RST_STREAM, or by a
    /// GOAWAY other than the graceful end of a connection in use.
    pub(crate) fn wants_pause(&self) -> bool {
        match &self.inner.detail {
            Detail::Stream(_) => self.is_refused(),
            Detail::GoAway(frame) => self.is_refused() && !frame.is_graceful(),
            _ => false,
        }
    }
}

/// A URL, or what was given as one, without name, password, query and fragment, which may be secrets, and without what a
/// terminal would obey.
pub(crate) fn shown(url: &str) -> String {
    const MOST: usize = 300;
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let (scheme, rest) = match url.find("://") {
        Some(at) if is_scheme(&url[..at]) => url.split_at(at + 3),
        _ => ("", url),
    };
    let (hidden, rest) = match url.parse::<Uri>() {
        // A password ends before the path.
        Ok(url) => {
            let authority = url.authority().map_or(0, |authority| authority.as_str().len());
            let at = rest.get(..authority).and_then(|authority| authority.rfind('@'));
            ("", at.map_or(rest, |at| &rest[at + 1..]))
        }
        // What is no URL may have it anywhere.
        Err(_) => match rest.rfind('@') {
            Some(at) => ("…@", &rest[at + 1..]),
            None => ("", rest),
        },
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let plain = |letter: char| {
        if letter.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            letter
        }
    };
    let mut text: String = scheme
        .chars()
        .chain(hidden.chars())
        .chain(rest[..end].chars())
        .take(MOST)
        .map(plain)
        .collect();
    if scheme.len() + end > MOST {
        text.push('…');
    }
    text
}

/// Who broke a rule of HTTP/1.1: hyper reports what is beyond its own limits as it does what is malformed.
fn blamed(error: &hyper::Error) -> &'static str {
    if error.is_parse_too_large() {
        return "a head is larger than this side takes (Config::max_header_list_size, Config::max_header_fields)";
    }
    match error.source() {
        Some(limit)
            if [" over limit", "count overflow"]
                .iter()
                .any(|end| limit.to_string().ends_with(end)) =>
        {
            "the extensions or trailers of a chunked body are larger than this side takes"
        }
        _ => "the peer violated HTTP/1.1",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.inner.kind;
        match &self.inner.detail {
            Detail::None => kind.fmt(f),
            Detail::Text(text) | Detail::Explained(text) | Detail::Proxy(text) | Detail::Connecting(text) => {
                write!(f, "{kind}: {text}")
            }
            Detail::GoAway(frame) => write!(f, "{kind}: {frame}"),
            Detail::Connection(error) if kind == ErrorKind::NotHttp2 => {
                write!(f, "{kind}: {}", error.reason())
            }
            Detail::Request { url, error, .. } => write!(f, "{url}: {error}"),
            Detail::Status(status) => write!(f, "{kind}: {status}"),
            Detail::Connection(error) => error.fmt(f),
            Detail::Stream(error) => error.fmt(f),
            Detail::Usage(error) => error.fmt(f),
            Detail::Unanswered(text) | Detail::OtherVersion(text) => write!(f, "{kind}: {text}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("detail", &self.inner.detail)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.inner.source, &self.inner.detail) {
            (_, Detail::Request { error, .. }) => error.source(),
            (_, Detail::Explained(_)) => None,
            (Some(source), _) => Some(source.as_ref()),
            (None, Detail::Usage(error)) => error.source(),
            _ => None,
        }
    }
}

// `tests/wakes.rs` includes this file by its path.
#[cfg(test)]
#[path = "error/tests.rs"]
mod tests;
