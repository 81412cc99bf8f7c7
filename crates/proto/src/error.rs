//! Errors of the whole connection and of one stream (RFC 9113 section 5.4), and of calls to the engine.
//!
//! An error has the code of the RFC, the side that caused it, and a kind, from which its text is derived.

use core::fmt;

use crate::id::StreamId;

/// An error code of RFC 9113 section 7, as it stands in RST_STREAM and GOAWAY frames.
///
/// Codes that the RFC does not name are kept as they came.
///
/// ```
/// use fullbore_proto::ErrorCode;
///
/// assert_eq!(ErrorCode::REFUSED_STREAM.to_string(), "REFUSED_STREAM");
/// assert_eq!(ErrorCode(0xff).to_string(), "error code 0xff");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Not an error: a graceful end.
    pub const NO_ERROR: ErrorCode = ErrorCode(0x0);
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(0x1);
    /// The endpoint itself failed.
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x2);
    /// More DATA came than the flow-control window allowed.
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(0x4);
    /// A frame came on a stream that was closed for it.
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(0x5);
    /// A frame had a length that its type does not allow.
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(0x6);
    /// The stream was refused before any of it was processed: the request may be repeated.
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(0x7);
    /// The stream is not wanted any more.
    pub const CANCEL: ErrorCode = ErrorCode(0x8);
    /// The field compression state cannot be kept.
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(0x9);
    /// The connection made by CONNECT was reset or closed.
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(0xa);
    /// The peer generates excessive load.
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(0xc);
    /// HTTP/1.1 is required instead.
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(0xd);

    /// The name that RFC 9113 section 7 gives the code, if it has one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x0 => "NO_ERROR",
            0x1 => "PROTOCOL_ERROR",
            0x2 => "INTERNAL_ERROR",
            0x3 => "FLOW_CONTROL_ERROR",
            0x4 => "SETTINGS_TIMEOUT",
            0x5 => "STREAM_CLOSED",
            0x6 => "FRAME_SIZE_ERROR",
            0x7 => "REFUSED_STREAM",
            0x8 => "CANCEL",
            0x9 => "COMPRESSION_ERROR",
            0xa => "CONNECT_ERROR",
            0xb => "ENHANCE_YOUR_CALM",
            0xc => "INADEQUATE_SECURITY",
            0xd => "HTTP_1_1_REQUIRED",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which side an error comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This endpoint.
    Local,
    /// The peer.
    Peer,
}

/// What ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionErrorKind {
    /// The peer does not speak HTTP/2: its preface is missing or wrong (RFC 9113 section 3.4).
    NotHttp2,
    /// The peer violated the protocol. [`ConnectionError::code`] is the code that the RFC names.
    Protocol,
    /// The peer exceeded a limit of [`Config`](crate::Config) (RFC 9113 section 10.5).
    Limit,
    /// 30 s passed without the acknowledgement of our SETTINGS (RFC 9113 section 6.5.3).
    SettingsTimeout,
    /// [`Config::header_timeout`](crate::Config::header_timeout) expired.
    HeaderTimeout,
    /// [`Config::send_timeout`](crate::Config::send_timeout) expired for the whole connection.
    SendTimeout,
    /// [`Config::keep_alive_timeout`](crate::Config::keep_alive_timeout) expired.
    KeepAliveTimeout,
    /// [`Config::half_close_timeout`](crate::Config::half_close_timeout) expired.
    HalfCloseTimeout,
    /// The owner called [`Connection::abort`](crate::Connection::abort).
    Aborted,
}

impl ConnectionErrorKind {
    const fn text(self) -> &'static str {
        match self {
            Self::NotHttp2 => "the peer does not speak HTTP/2",
            Self::Protocol => "the peer violated the protocol",
            Self::Limit => "the peer exceeded a limit",
            Self::SettingsTimeout => "timed out waiting for the acknowledgement of SETTINGS",
            Self::HeaderTimeout => "timed out waiting for the rest of a frame or header block",
            Self::SendTimeout => "send timed out: the peer is not reading",
            Self::KeepAliveTimeout => "keep-alive timed out: the peer does not answer PING",
            Self::HalfCloseTimeout => "timed out sending responses to a client that had closed its half",
            Self::Aborted => "this endpoint ended the connection",
        }
    }
}

impl fmt::Display for ConnectionErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A limit on what a peer may cause: see [`Config::set_limit`](crate::Config::set_limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerLimit {
    /// RST_STREAM from the peer. Default: 10,000 at once, 1,000 per second (CVE-2023-44487).
    PeerResets,
    /// Refused requests: beyond `max_concurrent_streams` or the memory budget, after our GOAWAY, or late frames on
    /// closed streams. Header blocks beyond 2 for each stream that this endpoint's owner has reset count. Default: 10,000 at
    /// once, 1,000 per second. A client may open as many before it knows the limits.
    RefusedStreams,
    /// Stream errors that the peer causes, and requests with field sections over the limit. Default: 1,000 at once,
    /// 100 per second (CVE-2025-8671).
    ProvokedResets,
    /// [`Config::max_header_list_size`](crate::Config::max_header_list_size), many times or by much.
    HeaderListSize,
    /// The length of an encoded header block: that of [`Config::max_header_list_size`](crate::Config::max_header_list_size), but
    /// at least 128 KiB and at most 16 MiB.
    HeaderBlock,
    /// The CONTINUATION frames of one header block: 32, or a quarter more than the limit on header lists needs.
    Continuations,
    /// DATA frames without data and END_STREAM. Default: 1,000 at once, 100 per second (CVE-2019-9518).
    EmptyData,
    /// PING frames, and acknowledgements without a PING. Default: 1,000 at once, 100 per second (CVE-2019-9512).
    Pings,
    /// SETTINGS frames with their entries, and GOAWAY frames. Default: 1,000 at once, 100 per second (CVE-2019-9515,
    /// CVE-2020-11080).
    Settings,
    /// WINDOW_UPDATE frames beyond 4 for each DATA frame that was sent, 1 for each KiB, and 2 for each stream.
    /// Default: 10,000 at once, 1,000 per second (CVE-2019-9511, CVE-2019-9517).
    WindowUpdates,
    /// Informational responses (1xx) beyond 8 for each request. Default: 1,000 at once, 100 per second.
    Informational,
    /// PRIORITY, PRIORITY_UPDATE and frames of unknown type. Default: 10,000 at once, 1,000 per second
    /// (CVE-2019-9513).
    Priorities,
}

/// The detail of [`ConnectionError::is_http1`].
const HTTP1: &str = "it answered with HTTP/1";

/// The detail of [`ConnectionError::is_silence`].
pub(crate) const SILENCE: &str = "timed out waiting for its SETTINGS";

/// An error that ends the whole connection (RFC 9113 section 5.4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code that was sent in GOAWAY.
    pub code: ErrorCode,
    /// The side at fault.
    pub blame: Side,
    /// The stream whose frame caused the error, if there is one.
    pub stream: Option<StreamId>,
    kind: ConnectionErrorKind,
    limit: Option<PeerLimit>,
    /// What the kind does not say; may be empty.
    detail: &'static str,
}

impl ConnectionError {
    /// What ended the connection.
    pub const fn kind(&self) -> ConnectionErrorKind {
        self.kind
    }

    /// What happened: the detail, or the text of the kind if there is none. GOAWAY carries it as debug data:
    /// see [`Config::debug_data`](crate::Config::debug_data).
    pub const fn reason(&self) -> &'static str {
        match self.detail.is_empty() {
            true => self.kind.text(),
            false => self.detail,
        }
    }

    /// The limit that the peer exceeded, if the kind is [`ConnectionErrorKind::Limit`].
    pub const fn exceeded(&self) -> Option<PeerLimit> {
        self.limit
    }

    /// What the owner said as it ended the connection; empty for other errors.
    pub(crate) const fn reason_of_owner(&self) -> &'static str {
        match self.kind {
            ConnectionErrorKind::Aborted => self.detail,
            _ => "",
        }
    }

    /// Whether the peer exceeded a time limit.
    pub const fn is_timeout(&self) -> bool {
        use ConnectionErrorKind as Kind;
        let kind = self.kind;
        matches!(
            kind,
            Kind::SettingsTimeout | Kind::HeaderTimeout | Kind::SendTimeout | Kind::KeepAliveTimeout
        )
    }

    /// Whether the peer answered the preface in HTTP/1, so that it processed no request (RFC 9113 section 3.3).
    pub fn is_http1(&self) -> bool {
        self.kind == ConnectionErrorKind::NotHttp2 && self.detail == HTTP1
    }

    /// Whether the peer sent no SETTINGS in time ([`Config::preface_timeout`](crate::Config::preface_timeout)). Unlike after
    /// another answer, it may still process requests.
    pub fn is_silence(&self) -> bool {
        self.kind == ConnectionErrorKind::NotHttp2 && self.detail == SILENCE
    }

    /// An expired time limit.
    pub(crate) const fn timeout(kind: ConnectionErrorKind) -> Self {
        use ConnectionErrorKind as Kind;
        let (code, blame) = match kind {
            Kind::SettingsTimeout => (ErrorCode::SETTINGS_TIMEOUT, Side::Peer),
            Kind::KeepAliveTimeout => (ErrorCode::NO_ERROR, Side::Peer),
            Kind::HalfCloseTimeout => (ErrorCode::NO_ERROR, Side::Local),
            _ => (ErrorCode::ENHANCE_YOUR_CALM, Side::Peer),
        };
        Self::new(kind, code, blame, "")
    }

    pub(crate) const fn not_http2(detail: &'static str) -> Self {
        let kind = ConnectionErrorKind::NotHttp2;
        Self::new(kind, ErrorCode::PROTOCOL_ERROR, Side::Peer, detail)
    }

    /// The peer's first octets are an answer of HTTP/1.
    pub(crate) const fn http1() -> Self {
        Self::not_http2(HTTP1)
    }

    pub(crate) const fn limit(limit: PeerLimit, detail: &'static str) -> Self {
        let kind = ConnectionErrorKind::Limit;
        let mut error = Self::new(kind, ErrorCode::ENHANCE_YOUR_CALM, Side::Peer, detail);
        error.limit = Some(limit);
        error
    }

    /// A violation for which the RFC names PROTOCOL_ERROR.
    pub(crate) const fn protocol(detail: &'static str) -> Self {
        Self::violation(ErrorCode::PROTOCOL_ERROR, detail)
    }

    /// A violation for which the RFC names `code`.
    pub(crate) const fn violation(code: ErrorCode, detail: &'static str) -> Self {
        Self::new(ConnectionErrorKind::Protocol, code, Side::Peer, detail)
    }

    pub(crate) const fn aborted(code: ErrorCode, detail: &'static str) -> Self {
        Self::new(ConnectionErrorKind::Aborted, code, Side::Local, detail)
    }

    const fn new(kind: ConnectionErrorKind, code: ErrorCode, blame: Side, detail: &'static str) -> Self {
        ConnectionError {
            code,
            blame,
            stream: None,
            kind,
            limit: None,
            detail,
        }
    }

    pub(crate) fn on(mut self, stream: impl Into<Option<StreamId>>) -> Self {
        self.stream = stream.into();
        self
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection error ({}", self.code)?;
        if let Some(stream) = self.stream {
            write!(f, ", stream {stream}")?;
        }
        write!(f, "): {}", self.kind)?;
        write_detail(f, self.detail)
    }
}

fn write_detail(f: &mut fmt::Formatter<'_>, detail: &str) -> fmt::Result {
    match detail.is_empty() {
        true => Ok(()),
        false => write!(f, ": {detail}"),
    }
}

impl core::error::Error for ConnectionError {}

/// What ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamErrorKind {
    /// The peer violated the protocol. [`StreamError::code`] is the code that the RFC names.
    Protocol,
    /// A body was shorter or longer than its `content-length` (RFC 9113 section 8.1.1).
    ContentLength,
    /// This endpoint refused the stream.
    Refused,
    /// The messages of the connection exceeded a limit on their fields.
    Limit,
    /// The peer sent RST_STREAM.
    ResetByPeer,
    /// The peer sent GOAWAY and did not process the stream.
    NotProcessed,
    /// The transport ended before the message was complete.
    TransportEnded,
    /// [`Config::response_timeout`](crate::Config::response_timeout) expired.
    ResponseTimeout,
    /// [`Config::body_timeout`](crate::Config::body_timeout) expired.
    BodyTimeout,
    /// [`Config::send_timeout`](crate::Config::send_timeout) expired for the window of the stream.
    WindowTimeout,
    /// [`Config::stream_wait_timeout`](crate::Config::stream_wait_timeout) expired.
    StreamWaitTimeout,
    /// The request waited for a stream, and the peer has meanwhile said how large a field section it accepts
    /// (SETTINGS_MAX_HEADER_LIST_SIZE): that of the request is more than twice as large. Nothing of it was sent.
    TooLarge,
    /// An extended CONNECT waited for the peer's SETTINGS, and they do not allow it (RFC 8441 section 3). Nothing of it was sent.
    ExtendedConnect,
    /// The owner reset the stream, discarded it, or released it before the message was complete.
    Canceled,
    /// The response was complete, and the rest of the request was not needed (RFC 9113 section 8.1).
    EarlyResponse,
}

const NO_EXTENDED_CONNECT: &str = "not sent: the peer's SETTINGS do not allow extended CONNECT (RFC 8441), which a WebSocket over \
                                   HTTP/2 needs";

impl fmt::Display for StreamErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "the peer violated the protocol",
            Self::ContentLength => "the body does not match its content-length",
            Self::Refused => "refused by this endpoint",
            Self::Limit => "the peer exceeded a limit",
            Self::ResetByPeer => "reset by the peer",
            Self::NotProcessed => {
                "the peer sent GOAWAY and did not process the request, which may be repeated"
            }
            Self::TransportEnded => "the peer closed the connection before the message was complete",
            Self::ResponseTimeout => "timed out waiting for the response",
            Self::BodyTimeout => "timed out waiting for DATA",
            Self::WindowTimeout => "timed out waiting for WINDOW_UPDATE",
            Self::StreamWaitTimeout => {
                "timed out waiting for a stream: the peer allows none (SETTINGS_MAX_CONCURRENT_STREAMS is 0)"
            }
            Self::TooLarge => "not sent: its fields are more than twice as large as the peer accepts",
            Self::ExtendedConnect => NO_EXTENDED_CONNECT,
            Self::Canceled => "canceled by this endpoint",
            Self::EarlyResponse => "the response is complete and the rest of the request is not needed",
        })
    }
}

/// An error that ends one stream and leaves the connection as it is (RFC 9113 section 5.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamError {
    /// The stream.
    pub stream: StreamId,
    /// The code that was sent or received in RST_STREAM.
    pub code: ErrorCode,
    /// The side that ended the stream.
    pub by: Side,
    kind: StreamErrorKind,
    /// What the kind does not say; may be empty.
    detail: &'static str,
}

impl StreamError {
    /// What ended the stream.
    pub const fn kind(&self) -> StreamErrorKind {
        self.kind
    }

    /// Whether the peer exceeded a time limit.
    pub const fn is_timeout(&self) -> bool {
        use StreamErrorKind as Kind;
        let kind = self.kind;
        matches!(
            kind,
            Kind::ResponseTimeout | Kind::BodyTimeout | Kind::WindowTimeout | Kind::StreamWaitTimeout
        )
    }

    /// A violation for which the RFC names PROTOCOL_ERROR.
    pub(crate) const fn protocol(stream: StreamId, detail: &'static str) -> Self {
        Self::violation(stream, ErrorCode::PROTOCOL_ERROR, detail)
    }

    /// A violation for which the RFC names `code`.
    pub(crate) const fn violation(stream: StreamId, code: ErrorCode, detail: &'static str) -> Self {
        Self::local(stream, code, StreamErrorKind::Protocol).with(detail)
    }

    /// END_STREAM came before the whole body.
    pub(crate) const fn short_body(stream: StreamId) -> Self {
        Self::content_length(stream, "END_STREAM comes before its end")
    }

    pub(crate) const fn content_length(stream: StreamId, detail: &'static str) -> Self {
        Self::local(stream, ErrorCode::PROTOCOL_ERROR, StreamErrorKind::ContentLength).with(detail)
    }

    pub(crate) const fn refused(stream: StreamId, detail: &'static str) -> Self {
        Self::local(stream, ErrorCode::REFUSED_STREAM, StreamErrorKind::Refused).with(detail)
    }

    pub(crate) const fn limit(stream: StreamId, detail: &'static str) -> Self {
        Self::local(stream, ErrorCode::ENHANCE_YOUR_CALM, StreamErrorKind::Limit).with(detail)
    }

    /// This endpoint ends the stream.
    pub(crate) const fn local(stream: StreamId, code: ErrorCode, kind: StreamErrorKind) -> Self {
        StreamError {
            stream,
            code,
            by: Side::Local,
            kind,
            detail: "",
        }
    }

    /// The peer ends the stream.
    pub(crate) const fn peer(stream: StreamId, code: ErrorCode, kind: StreamErrorKind) -> Self {
        StreamError {
            by: Side::Peer,
            ..Self::local(stream, code, kind)
        }
    }

    const fn with(mut self, detail: &'static str) -> Self {
        self.detail = detail;
        self
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} ({}): {}", self.stream, self.code, self.kind)?;
        write_detail(f, self.detail)
    }
}

impl core::error::Error for StreamError {}

/// An error that a received frame causes.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Ends the connection.
    Connection(ConnectionError),
    /// Ends one stream.
    Stream(StreamError),
}

impl From<ConnectionError> for Fault {
    fn from(error: ConnectionError) -> Self {
        Fault::Connection(error)
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Fault::Stream(error)
    }
}

/// A call that the state of the stream or the connection does not allow. Either the caller made a mistake, or the stream ended
/// in the meantime. The call changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageError {
    /// The stream is unknown: it was never opened, was reset, or is complete and released.
    UnknownStream,
    /// END_STREAM was sent or queued before.
    SendFinished,
    /// A body or trailers before the header section, or a second final header section.
    HeadOrder,
    /// The connection takes no new streams: it is closing, failed, or out of stream identifiers.
    NoNewStreams,
    /// The memory budget has no room for what the response may cost.
    BudgetExhausted,
    /// The call belongs to the other role: a server opens no streams, a client answers none.
    WrongRole,
    /// The message may not be sent over HTTP/2; the source says why.
    InvalidMessage(crate::message::InvalidMessage),
    /// The peer's SETTINGS do not allow extended CONNECT (RFC 8441 section 3).
    ExtendedConnect,
    /// A receive window only grows, and this size is smaller than the current one.
    WindowShrinks,
    /// A window is a number of bytes from 1 to 2^31-1.
    WindowOutOfRange,
    /// The peer has not acknowledged the latest SETTINGS yet.
    SettingsUnacknowledged,
    /// The connection has failed.
    ConnectionFailed,
    /// A PING of the owner is not answered yet.
    PingUnanswered,
    /// The opaque data is that of a PING that the connection sends by itself.
    PingReserved,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UsageError::UnknownStream => "the stream has ended",
            UsageError::SendFinished => "the stream was already ended with END_STREAM",
            UsageError::HeadOrder => {
                "a message is one final header section, then its body, then its trailers"
            }
            UsageError::NoNewStreams => {
                "the connection takes no new streams: it is closing or has failed; open another"
            }
            UsageError::BudgetExhausted => {
                "the memory budget has no room for another connection; raise it, or wait until others end"
            }
            UsageError::WrongRole => "only a client opens streams and only a server answers them",
            UsageError::InvalidMessage(_) => "the message cannot be sent over HTTP/2",
            UsageError::ExtendedConnect => NO_EXTENDED_CONNECT,
            UsageError::WindowShrinks => {
                "a receive window only grows, and this size is smaller than the current one"
            }
            UsageError::WindowOutOfRange => "a window is a number of bytes from 1 to 2,147,483,647",
            UsageError::SettingsUnacknowledged => {
                "the peer has not acknowledged earlier SETTINGS yet; wait for it"
            }
            UsageError::ConnectionFailed => "the connection has failed; open another",
            UsageError::PingUnanswered => "an earlier PING is not answered yet; wait for its answer",
            UsageError::PingReserved => {
                "the connection sends PING with this opaque data by itself; choose other data"
            }
        })
    }
}

impl core::error::Error for UsageError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            UsageError::InvalidMessage(error) => Some(error),
            _ => None,
        }
    }
}
