//! A frame that does not have the form of its type.

use crate::error::ErrorCode;
use crate::id::StreamId;

/// A frame whose form is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameError {
    /// The code that the RFC names.
    pub code: ErrorCode,
    /// The stream to reset when the error is confined to it; otherwise the connection ends.
    pub stream: Option<StreamId>,
    /// What is wrong, as a clause that follows a colon.
    pub reason: &'static str,
}

impl FrameError {
    pub(super) const fn connection(code: ErrorCode, reason: &'static str) -> Self {
        FrameError {
            code,
            stream: None,
            reason,
        }
    }

    pub(super) const fn size(reason: &'static str) -> Self {
        Self::connection(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::connection(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(super) const fn stream(stream: StreamId, code: ErrorCode, reason: &'static str) -> Self {
        FrameError {
            code,
            stream: Some(stream),
            reason,
        }
    }
}
