//! What ended a stream or a connection, as all its handles are told, and what a caller did wrong.

use std::fmt;
use std::io;

use bytes::Bytes;

use crate::reason::Reason;

/// Who ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Initiator {
    /// The user of this crate.
    User,
    /// This crate, which found an error.
    Library,
    /// The peer.
    Remote,
}

/// What ended a stream or a connection.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Reset(Reason, Initiator),
    GoAway(Bytes, Reason, Initiator),
    Io(io::ErrorKind, Option<String>),
}

impl Failure {
    pub(crate) fn io(error: &io::Error) -> Self {
        Failure::Io(error.kind(), error.get_ref().map(ToString::to_string))
    }

    pub(crate) fn broken_pipe(what: &str) -> Self {
        Failure::Io(io::ErrorKind::BrokenPipe, Some(what.to_owned()))
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Failure::Reset(reason, _) | Failure::GoAway(_, reason, _) => Some(*reason),
            Failure::Io(..) => None,
        }
    }
}

/// A call that the state of the stream or the connection does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserError {
    /// The stream has ended.
    InactiveStreamId,
    /// The call does not fit the state of the message.
    UnexpectedFrameType,
    /// More than a window can ever allow.
    PayloadTooBig,
    /// A request while an earlier one of this sender waits to be opened.
    Rejected,
    /// More than was received.
    ReleaseCapacityTooBig,
    /// The stream identifiers are used up.
    OverflowedStreamId,
    /// The message may not be sent over HTTP/2.
    MalformedHeaders,
    /// The URI is relative.
    MissingUriSchemeAndAuthority,
    /// After the response the stream is asked, not the response.
    PollResetAfterSendResponse,
    /// One PING at a time.
    SendPingWhilePending,
    /// One change of SETTINGS at a time.
    SendSettingsWhilePending,
    /// There is no server push.
    PeerDisabledServerPush,
    /// The status is not 1xx.
    InvalidInformationalStatusCode,
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InactiveStreamId => "inactive stream",
            Self::UnexpectedFrameType => "unexpected frame type",
            Self::PayloadTooBig => "payload too big",
            Self::Rejected => "rejected",
            Self::ReleaseCapacityTooBig => "release capacity too big",
            Self::OverflowedStreamId => "stream ID overflowed",
            Self::MalformedHeaders => "malformed headers",
            Self::MissingUriSchemeAndAuthority => "request URI missing scheme and authority",
            Self::PollResetAfterSendResponse => "poll_reset after send_response is illegal",
            Self::SendPingWhilePending => "send_ping before received previous pong",
            Self::SendSettingsWhilePending => "sending SETTINGS before received previous ACK",
            Self::PeerDisabledServerPush => "sending PUSH_PROMISE to peer who disabled server push",
            Self::InvalidInformationalStatusCode => "invalid informational status code",
        })
    }
}
