//! RST_STREAM (RFC 9113 section 6.4).

use super::error::FrameError;
use super::frame_header::{Flags, FrameHeader, FrameType, put_frame_header, read_u32};
use crate::error::ErrorCode;
use crate::id::StreamId;

/// An RST_STREAM frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub stream: StreamId,
    /// Why it ended.
    pub code: ErrorCode,
}

impl ResetStream {
    pub(super) fn parse(header: FrameHeader, payload: &[u8]) -> Result<Self, FrameError> {
        let Some(stream) = header.stream else {
            return Err(FrameError::protocol("RST_STREAM on stream 0"));
        };
        if payload.len() != 4 {
            return Err(FrameError::size("RST_STREAM is not four octets long"));
        }
        Ok(ResetStream {
            stream,
            code: ErrorCode(read_u32(payload, 0)),
        })
    }

    /// Appends the frame.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        put_frame_header(out, 4, FrameType::RST_STREAM, Flags::NONE, Some(self.stream));
        out.extend_from_slice(&self.code.0.to_be_bytes());
    }
}
