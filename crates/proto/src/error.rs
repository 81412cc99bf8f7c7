//! What can go wrong, as two types: an error of the whole connection and an error of one stream (RFC 9113 section 5.4).
//!
//! Every error says which code the RFC gives it, who caused it, and in a sentence what happened.

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

/// An error that ends the whole connection (RFC 9113 section 5.4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code that was sent or received in GOAWAY.
    pub code: ErrorCode,
    /// Whose fault it is.
    pub blame: Side,
    /// The stream whose frame brought it about, when there is one.
    pub stream: Option<StreamId>,
    /// What happened, as a clause that follows a colon.
    pub reason: &'static str,
}

impl ConnectionError {
    /// Whether the peer took longer than a limit allows.
    pub fn is_timeout(&self) -> bool {
        self.code == ErrorCode::SETTINGS_TIMEOUT
            || [NOT_TAKEN, PEER_GONE, HEADERS_DRIBBLE].contains(&self.reason)
    }

    /// The peer broke a rule.
    pub(crate) const fn peer(code: ErrorCode, reason: &'static str) -> Self {
        ConnectionError {
            code,
            blame: Side::Peer,
            stream: None,
            reason,
        }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Self {
        Self::peer(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(crate) const fn on(mut self, stream: StreamId) -> Self {
        self.stream = Some(stream);
        self
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.blame {
            Side::Local => "this endpoint ended the connection",
            Side::Peer => "the peer broke the connection",
        };
        write!(f, "{who} with {}", self.code)?;
        if let Some(stream) = self.stream {
            write!(f, " on stream {stream}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl core::error::Error for ConnectionError {}

/// What is said of a body that ended early.
pub(crate) const SHORT_BODY: &str = "less DATA than content-length says";

/// What is said of a body that went on too long.
pub(crate) const LONG_BODY: &str = "more DATA than content-length says";

/// What is said of a body that came to a halt.
pub(crate) const BODY_HALTED: &str = "the peer sent too little of the body in time";

/// The reason when the transport ends within a message.
pub(crate) const TRANSPORT_ENDED: &str = "it ended the transport before the message was whole";

/// The reason when a client that has ended its half of the transport waits too long for the rest.
pub(crate) const HALF_CLOSED: &str =
    "the responses to a client that had ended its half of the transport took too long";

/// The reason when a GOAWAY names a lower stream.
pub(crate) const NOT_PROCESSED: &str =
    "its GOAWAY says that the stream was not processed; it may be repeated";

/// The reason when the head of a response does not come.
pub(crate) const NO_RESPONSE: &str = "the server sent no response to the whole request in time";

/// The reason when the peer allows no streams.
pub(crate) const NO_STREAMS: &str =
    "the peer allowed no stream in time (SETTINGS_MAX_CONCURRENT_STREAMS is 0)";

/// What is said of a stream whose window the peer keeps closed.
pub(crate) const WINDOW_CLOSED: &str = "the peer opened no window for what waits in time";

/// What is said of a peer that does not read, or keeps the connection's window closed.
pub(crate) const NOT_TAKEN: &str = "the peer did not take what waits for it in time";

/// What is said of a peer that answers nothing any more.
pub(crate) const PEER_GONE: &str = "the peer was silent and did not answer a PING in time";

/// What is said of a header block in pieces.
pub(crate) const HEADERS_DRIBBLE: &str = "a frame or a header block did not come to its end in time";

/// An error that ends one stream and leaves the connection as it is (RFC 9113 section 5.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamError {
    /// The stream.
    pub stream: StreamId,
    /// The code that was sent or received in RST_STREAM.
    pub code: ErrorCode,
    /// Which side reset the stream.
    pub by: Side,
    /// What happened, as a clause that follows a colon.
    pub reason: &'static str,
}

impl StreamError {
    /// Whether a body was shorter or longer than its `content-length` (RFC 9113 section 8.1.1).
    pub fn is_body_length(&self) -> bool {
        self.reason == SHORT_BODY || self.reason == LONG_BODY
    }

    /// Whether the transport ended within the message.
    pub fn is_end_of_transport(&self) -> bool {
        self.reason == TRANSPORT_ENDED
    }

    /// Whether the peer has not processed the stream because of its GOAWAY, rather than reset it by itself.
    pub fn is_go_away(&self) -> bool {
        self.reason == NOT_PROCESSED
    }

    /// Whether the peer took longer than a limit allows.
    pub fn is_timeout(&self) -> bool {
        [BODY_HALTED, WINDOW_CLOSED, NO_RESPONSE, NO_STREAMS].contains(&self.reason)
    }

    pub(crate) const fn local(stream: StreamId, code: ErrorCode, reason: &'static str) -> Self {
        StreamError {
            stream,
            code,
            by: Side::Local,
            reason,
        }
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.by {
            Side::Local => "this endpoint",
            Side::Peer => "the peer",
        };
        write!(
            f,
            "{who} reset stream {} with {}: {}",
            self.stream, self.code, self.reason
        )
    }
}

impl core::error::Error for StreamError {}

/// Either of the two, as the frames of a received batch bring them about.
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

/// A call that the state of the stream or the connection does not allow: the caller's mistake, or a stream that ended
/// meanwhile. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageError {
    /// The stream is not known (any more): it was reset, or finished and released.
    UnknownStream,
    /// The stream's sending half was finished before.
    SendFinished,
    /// A body or trailers came before the head, or a second final head.
    HeadOrder,
    /// The connection takes no new streams: it is closing, failed, or out of stream identifiers.
    NoNewStreams,
    /// The memory budget has no room for what the response may cost.
    BudgetExhausted,
    /// The call belongs to the other role: a server opens no streams, a client answers none.
    WrongRole,
    /// The message may not be sent in HTTP/2; the reason is in the text.
    InvalidMessage(crate::message::InvalidMessage),
    /// A receive window only grows, and this size is smaller than the present one.
    WindowShrinks,
    /// A window is a number of bytes from 1 to 2^31-1.
    WindowOutOfRange,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UsageError::UnknownStream => "the stream has ended already",
            UsageError::SendFinished => "the sending half of the stream was finished before",
            UsageError::HeadOrder => "a message is one final head, then its body, then its trailers",
            UsageError::NoNewStreams => {
                "the connection takes no new streams: it is closing or has failed; open another"
            }
            UsageError::BudgetExhausted => {
                "the memory budget has no room for another connection; raise it, or wait until others end"
            }
            UsageError::WrongRole => "only a client opens streams and only a server answers them",
            UsageError::InvalidMessage(reason) => return write!(f, "the message cannot be sent: {reason}"),
            UsageError::WindowShrinks => {
                "a receive window only grows, and this size is smaller than the present one"
            }
            UsageError::WindowOutOfRange => "a window is a number of bytes from 1 to 2,147,483,647",
        })
    }
}

impl core::error::Error for UsageError {}
