//! WINDOW_UPDATE (RFC 9113 section 6.9).

use super::error::FrameError;
use super::frame_header::{Flags, FrameHeader, FrameType, put_frame_header, read_u32};
use crate::error::ErrorCode;
use crate::id::StreamId;

/// Octets of a WINDOW_UPDATE frame with its header.
pub(crate) const LENGTH: usize = 13;

/// Credit for one stream or for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUpdate {
    /// The stream; none for the connection.
    pub stream: Option<StreamId>,
    /// By how many octets the window grows, 1..=2^31-1.
    pub increment: u32,
}

impl WindowUpdate {
    pub(super) fn parse(header: FrameHeader, payload: &[u8]) -> Result<Self, FrameError> {
        if payload.len() != 4 {
            return Err(FrameError::size("WINDOW_UPDATE is not four octets long"));
        }
        let increment = read_u32(payload, 0) & 0x7fff_ffff;
        match (increment, header.stream) {
            (0, Some(stream)) => Err(FrameError::stream(
                stream,
                ErrorCode::PROTOCOL_ERROR,
                "WINDOW_UPDATE of 0",
            )),
            (0, None) => Err(FrameError::protocol("WINDOW_UPDATE of 0 for the connection")),
            (increment, stream) => Ok(WindowUpdate { stream, increment }),
        }
    }

    /// Appends the frame.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.reserve(LENGTH);
        put_frame_header(out, 4, FrameType::WINDOW_UPDATE, Flags::NONE, self.stream);
        out.extend_from_slice(&self.increment.to_be_bytes());
    }
}
