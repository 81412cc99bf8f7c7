//! GOAWAY (RFC 9113 section 6.8).

use super::error::FrameError;
use super::frame_header::{Flags, FrameHeader, FrameType, put_frame_header, read_u32};
use crate::error::ErrorCode;

/// A GOAWAY frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoAway<'a> {
    /// The highest stream that the sender has or might have processed; 0 for none, 2^31-1 while it is not known.
    pub last_stream: u32,
    /// Why the connection ends.
    pub code: ErrorCode,
    /// What the sender wants to say to a person.
    pub debug: &'a [u8],
}

impl<'a> GoAway<'a> {
    pub(super) fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        if header.stream.is_some() {
            return Err(FrameError::protocol("GOAWAY on a stream"));
        }
        if payload.len() < 8 {
            return Err(FrameError::size("GOAWAY is shorter than eight octets"));
        }
        Ok(GoAway {
            last_stream: read_u32(payload, 0) & 0x7fff_ffff,
            code: ErrorCode(read_u32(payload, 4)),
            debug: &payload[8..],
        })
    }

    /// Appends the frame.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        put_frame_header(out, 8 + self.debug.len(), FrameType::GOAWAY, Flags::NONE, None);
        out.extend_from_slice(&self.last_stream.to_be_bytes());
        out.extend_from_slice(&self.code.0.to_be_bytes());
        out.extend_from_slice(self.debug);
    }
}
