//! The states of a stream (RFC 9113 section 5.1) and the phases of a message within it.

use crate::error::{ErrorCode, Side};

/// The state of a stream. Idle streams are not stored, and reserved streams do not exist because push is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// The HEADERS of a request wait until the peer allows another stream, or for its first SETTINGS (extended CONNECT).
    Waiting,
    /// Both halves are open.
    Open,
    /// We have sent END_STREAM.
    HalfClosedLocal,
    /// The peer has sent END_STREAM.
    HalfClosedRemote,
    /// Nothing more is sent or received.
    Closed(Cause),
}

/// Why a stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Both sides have sent END_STREAM.
    Finished,
    /// One side reset it.
    Reset { by: Side, code: ErrorCode },
}

impl StreamState {
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, StreamState::Closed(_))
    }

    /// Whether the peer may send HEADERS and DATA.
    pub(crate) fn can_receive(self) -> bool {
        matches!(self, StreamState::Open | StreamState::HalfClosedLocal)
    }

    /// Whether this endpoint may send HEADERS and DATA, now or once the stream is open.
    pub(crate) fn can_send(self) -> bool {
        matches!(
            self,
            StreamState::Waiting | StreamState::Open | StreamState::HalfClosedRemote
        )
    }

    /// After END_STREAM was sent.
    pub(crate) fn after_send_end(self) -> StreamState {
        match self {
            StreamState::Waiting | StreamState::Open => StreamState::HalfClosedLocal,
            StreamState::HalfClosedRemote => StreamState::Closed(Cause::Finished),
            other => other,
        }
    }

    /// After END_STREAM was received.
    pub(crate) fn after_receive_end(self) -> StreamState {
        match self {
            StreamState::Open => StreamState::HalfClosedRemote,
            StreamState::HalfClosedLocal => StreamState::Closed(Cause::Finished),
            other => other,
        }
    }
}

/// The progress of a message in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request or the final response has not arrived. Informational responses may.
    Headers,
    /// Body and trailers may follow.
    Body,
    /// The message is complete.
    Done,
}
