//! PRIORITY_UPDATE (RFC 9218 section 7.1).

use super::error::FrameError;
use super::frame_header::{Flags, FrameHeader, FrameType, put_frame_header, read_u32};
use crate::id::StreamId;

/// A PRIORITY_UPDATE frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityUpdate<'a> {
    /// The stream whose priority changes.
    pub prioritized: StreamId,
    /// The value, as in the `priority` field.
    pub value: &'a [u8],
}

impl<'a> PriorityUpdate<'a> {
    pub(super) fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        if header.stream.is_some() {
            return Err(FrameError::protocol("PRIORITY_UPDATE on a stream"));
        }
        if payload.len() < 4 {
            return Err(FrameError::size("PRIORITY_UPDATE is shorter than four octets"));
        }
        match StreamId::new(read_u32(payload, 0) & 0x7fff_ffff) {
            Some(prioritized) => Ok(PriorityUpdate {
                prioritized,
                value: &payload[4..],
            }),
            None => Err(FrameError::protocol("PRIORITY_UPDATE for stream 0")),
        }
    }

    /// Appends the frame.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        put_frame_header(
            out,
            4 + self.value.len(),
            FrameType::PRIORITY_UPDATE,
            Flags::NONE,
            None,
        );
        out.extend_from_slice(&self.prioritized.value().to_be_bytes());
        out.extend_from_slice(self.value);
    }
}
