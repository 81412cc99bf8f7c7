//! PING (RFC 9113 section 6.7).

use super::error::FrameError;
use super::frame_header::{Flags, FrameHeader, FrameType, put_frame_header};

/// A PING frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping {
    /// Whether it answers one of ours.
    pub ack: bool,
    /// Eight octets of the sender's choice, returned unchanged.
    pub opaque: [u8; 8],
}

impl Ping {
    pub(super) fn parse(header: FrameHeader, payload: &[u8]) -> Result<Self, FrameError> {
        if header.stream.is_some() {
            return Err(FrameError::protocol("PING on a stream"));
        }
        match payload.try_into() {
            Ok(opaque) => Ok(Ping {
                ack: header.flags.has(Flags::ACK),
                opaque,
            }),
            Err(_) => Err(FrameError::size("PING is not eight octets long")),
        }
    }

    /// Appends the frame.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let flags = Flags::NONE.with(Flags::ACK, self.ack);
        put_frame_header(out, 8, FrameType::PING, flags, None);
        out.extend_from_slice(&self.opaque);
    }
}
