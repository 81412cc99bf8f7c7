//! The one error type of the library: what happened, where, whose fault, and what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use fullbore_proto::{ConnectionError, ErrorCode, Side, StreamError, StreamErrorKind};

/// Any error, boxed: what bodies and services of the caller's may fail with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What kind of error it is, for a program to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL cannot be used: it has no scheme of ours, or no host.
    InvalidUrl,
    /// The name did not resolve.
    Resolve,
    /// Nobody could be connected to.
    Connect,
    /// The TLS handshake or the TLS session failed.
    Tls,
    /// The peer's certificate did not verify.
    Certificate,
    /// The peer does not speak HTTP/2.
    NotHttp2,
    /// A rule of HTTP/2 was broken; [`Error::code`] says which kind.
    Protocol,
    /// The transport ended before the message was whole.
    Closed,
    /// The peer is ending the connection and did not process the request: it may be repeated.
    GoAway,
    /// The stream was reset; [`Error::code`] says why.
    Reset,
    /// A body was shorter or longer than its `content-length`.
    BodyLength,
    /// Something took longer than its limit.
    Timeout,
    /// The caller's own body failed.
    Body,
    /// The exchange was given up on this side.
    Canceled,
    /// Reading from or writing to the transport failed.
    Io,
    /// The caller's own service failed.
    Handler,
    /// The memory budget has no room.
    Budget,
    /// A receive window was to become smaller than it is.
    WindowShrinks,
    /// A setting or a message of the caller's is not possible.
    Config,
}

/// An error of the library. It is cheap to clone; its text is a sentence that can be shown to a user.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    code: Option<ErrorCode>,
    message: String,
    source: Option<BoxError>,
    /// Whether the peer has refused a request, so that the next one waits.
    pause: bool,
}

/// What the peer said when it ended the connection (RFC 9113 section 6.8).
#[derive(Debug, Clone)]
pub(crate) struct PeerGoAway {
    pub(crate) last_stream: u32,
    pub(crate) code: ErrorCode,
    pub(crate) debug: Bytes,
}

impl fmt::Display for PeerGoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAWAY with {}", self.code)?;
        match self.debug.is_empty() {
            true => Ok(()),
            // The peer's own words: nothing in them reaches a terminal as it came.
            false => write!(f, " and \"{}\"", self.debug.escape_ascii()),
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            inner: Arc::new(Inner {
                kind,
                code: None,
                message: message.into(),
                source: None,
                pause: false,
            }),
        }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> Self {
        Error {
            inner: Arc::new(Inner {
                kind,
                code: None,
                message: message.into(),
                source: Some(source.into()),
                pause: false,
            }),
        }
    }

    fn with_code(kind: ErrorKind, code: ErrorCode, message: String) -> Self {
        Self::refusal(kind, code, message, false)
    }

    fn refusal(kind: ErrorKind, code: ErrorCode, message: String, pause: bool) -> Self {
        Error {
            inner: Arc::new(Inner {
                kind,
                code: Some(code),
                message,
                source: None,
                pause,
            }),
        }
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The code of RFC 9113 section 7 that was sent or received, if one was.
    pub fn code(&self) -> Option<ErrorCode> {
        self.inner.code
    }

    /// The connection was ended by an error. `settled` says whether the peer had shown that it speaks HTTP/2.
    pub(crate) fn from_connection(error: &ConnectionError, settled: bool) -> Self {
        let kind = match (settled, error.blame) {
            _ if error.is_timeout() => ErrorKind::Timeout,
            (false, Side::Peer) if error.code == ErrorCode::PROTOCOL_ERROR => ErrorKind::NotHttp2,
            _ => ErrorKind::Protocol,
        };
        let message = match kind {
            ErrorKind::NotHttp2 => format!("the peer does not speak HTTP/2: {}", error.reason()),
            _ => error.to_string(),
        };
        Self::with_code(kind, error.code, message)
    }

    /// Whether the peer refused a request in a way that asks for a pause before the next one: by RST_STREAM, or by a
    /// GOAWAY that is no graceful end of a connection in use.
    pub(crate) fn wants_pause(&self) -> bool {
        self.inner.pause
    }

    /// The peer has ended the connection by GOAWAY without having processed something.
    pub(crate) fn from_go_away(goes: &PeerGoAway) -> Self {
        let message = format!(
            "the peer ended the connection and did not process the request, which may be repeated: it sent {goes}"
        );
        let graceful = goes.code == ErrorCode::NO_ERROR && goes.last_stream > 0;
        Self::refusal(ErrorKind::GoAway, goes.code, message, !graceful)
    }

    /// The transport ended while something was under way, which the peer had announced.
    pub(crate) fn closed_after(goes: &PeerGoAway) -> Self {
        let message = format!("the peer closed the connection before the message was whole: it sent {goes}");
        Self::with_code(ErrorKind::Closed, goes.code, message)
    }

    /// A stream was reset by either side.
    pub(crate) fn from_stream(error: &StreamError) -> Self {
        if error.kind() == StreamErrorKind::TransportEnded {
            return Self::closed();
        }
        let kind = match (error.by, error.code) {
            _ if error.kind() == StreamErrorKind::ContentLength => ErrorKind::BodyLength,
            _ if error.is_timeout() => ErrorKind::Timeout,
            (Side::Peer, ErrorCode::REFUSED_STREAM) => ErrorKind::GoAway,
            (Side::Peer, _) => ErrorKind::Reset,
            (Side::Local, ErrorCode::CANCEL | ErrorCode::NO_ERROR) => ErrorKind::Canceled,
            (Side::Local, _) => ErrorKind::Protocol,
        };
        Self::refusal(kind, error.code, error.to_string(), kind == ErrorKind::GoAway)
    }

    /// The transport ended while something was under way.
    pub(crate) fn closed() -> Self {
        Self::new(
            ErrorKind::Closed,
            "the peer closed the connection before the message was whole",
        )
    }

    /// Nobody waits for the response any more.
    pub(crate) fn given_up() -> Self {
        Self::new(ErrorKind::Canceled, "the request was given up before it began")
    }

    /// The connection ended before anything of the request was sent.
    pub(crate) fn never_sent(why: &Error) -> Self {
        let text = format!("the request was not sent and may be repeated: {why}");
        Self::with_source(ErrorKind::GoAway, text, why.clone())
    }

    /// The connection's task is gone.
    pub(crate) fn connection_gone() -> Self {
        Self::new(ErrorKind::Closed, "the connection has ended; open another")
    }

    /// The connection is being ended by either side.
    pub(crate) fn closing() -> Self {
        Self::new(
            ErrorKind::GoAway,
            fullbore_proto::UsageError::NoNewStreams.to_string(),
        )
    }

    pub(crate) fn io(what: &str, source: std::io::Error) -> Self {
        Self::with_source(ErrorKind::Io, format!("{what}: {source}"), source)
    }

    /// Reading or writing failed. Over TLS that may be the peer's certificate, or its alert.
    pub(crate) fn from_transport(error: &std::io::Error) -> Self {
        let copy = std::io::Error::new(error.kind(), error.to_string());
        Self::io("the transport failed", copy)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("code", &self.inner.code)
            .field("message", &self.inner.message)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.inner.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}
