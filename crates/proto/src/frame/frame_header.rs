//! The nine octets in front of every frame (RFC 9113 section 4.1).

use crate::id::StreamId;

/// What a client sends before its first frame (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest payload that every endpoint accepts, and the default (RFC 9113 section 4.2).
pub const DEFAULT_MAX_FRAME_SIZE: u32 = 16_384;

/// The largest value that SETTINGS_MAX_FRAME_SIZE may take.
pub const LARGEST_MAX_FRAME_SIZE: u32 = (1 << 24) - 1;

/// Length of a frame header in octets.
pub const FRAME_HEADER_LENGTH: usize = 9;

/// The type of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameType(pub u8);

impl FrameType {
    /// DATA, section 6.1.
    pub const DATA: FrameType = FrameType(0x0);
    /// HEADERS, section 6.2.
    pub const HEADERS: FrameType = FrameType(0x1);
    /// PRIORITY, section 6.3, deprecated.
    pub const PRIORITY: FrameType = FrameType(0x2);
    /// RST_STREAM, section 6.4.
    pub const RST_STREAM: FrameType = FrameType(0x3);
    /// SETTINGS, section 6.5.
    pub const SETTINGS: FrameType = FrameType(0x4);
    /// PUSH_PROMISE, section 6.6.
    pub const PUSH_PROMISE: FrameType = FrameType(0x5);
    /// PING, section 6.7.
    pub const PING: FrameType = FrameType(0x6);
    /// GOAWAY, section 6.8.
    pub const GOAWAY: FrameType = FrameType(0x7);
    /// WINDOW_UPDATE, section 6.9.
    pub const WINDOW_UPDATE: FrameType = FrameType(0x8);
    /// CONTINUATION, section 6.10.
    pub const CONTINUATION: FrameType = FrameType(0x9);
    /// PRIORITY_UPDATE, RFC 9218 section 7.1.
    pub const PRIORITY_UPDATE: FrameType = FrameType(0x10);

    /// The name of the type in the RFC, if it has one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x0 => "DATA",
            0x1 => "HEADERS",
            0x2 => "PRIORITY",
            0x3 => "RST_STREAM",
            0x4 => "SETTINGS",
            0x5 => "PUSH_PROMISE",
            0x6 => "PING",
            0x7 => "GOAWAY",
            0x8 => "WINDOW_UPDATE",
            0x9 => "CONTINUATION",
            0x10 => "PRIORITY_UPDATE",
            _ => return None,
        })
    }
}

/// The flags of a frame; what a bit means depends on the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// ACK, of SETTINGS and PING.
    pub const ACK: Flags = Flags(0x1);
    /// END_STREAM, of DATA and HEADERS.
    pub const END_STREAM: Flags = Flags(0x1);
    /// END_HEADERS, of HEADERS and CONTINUATION.
    pub const END_HEADERS: Flags = Flags(0x4);
    /// PADDED, of DATA and HEADERS.
    pub const PADDED: Flags = Flags(0x8);
    /// PRIORITY, of HEADERS.
    pub const PRIORITY: Flags = Flags(0x20);

    /// Whether every bit of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and, when `condition` holds, also `other`.
    #[must_use]
    pub const fn with(self, other: Flags, condition: bool) -> Flags {
        if condition { Flags(self.0 | other.0) } else { self }
    }
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in octets, below 2^24.
    pub length: u32,
    /// The type.
    pub frame_type: FrameType,
    /// The flags.
    pub flags: Flags,
    /// The stream; none for the connection as a whole (identifier 0).
    pub stream: Option<StreamId>,
}

impl FrameHeader {
    /// Reads a frame header. Every value of the nine octets is one; the reserved bit is ignored as section 4.1 asks.
    pub const fn parse(octets: &[u8; FRAME_HEADER_LENGTH]) -> FrameHeader {
        let [l0, l1, l2, frame_type, flags, s0, s1, s2, s3] = *octets;
        FrameHeader {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            frame_type: FrameType(frame_type),
            flags: Flags(flags),
            stream: StreamId::new(u32::from_be_bytes([s0 & 0x7f, s1, s2, s3])),
        }
    }

    /// The nine octets.
    pub const fn to_octets(self) -> [u8; FRAME_HEADER_LENGTH] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let stream = match self.stream {
            Some(id) => id.value(),
            None => 0,
        };
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        [l0, l1, l2, self.frame_type.0, self.flags.0, s0, s1, s2, s3]
    }
}

/// Appends a frame header.
pub(super) fn put_frame_header(
    out: &mut Vec<u8>,
    length: usize,
    frame_type: FrameType,
    flags: Flags,
    stream: Option<StreamId>,
) {
    let header = FrameHeader {
        // Callers cut payloads at the peer's SETTINGS_MAX_FRAME_SIZE, which is below 2^24.
        length: length as u32,
        frame_type,
        flags,
        stream,
    };
    out.extend_from_slice(&header.to_octets());
}

/// The four octets at `at`, big-endian; the caller has checked the length.
pub(super) fn read_u32(payload: &[u8], at: usize) -> u32 {
    payload
        .get(at..at + 4)
        .and_then(|octets| octets.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_round_trip() {
        let header = FrameHeader {
            length: 0x0a_0b_0c,
            frame_type: FrameType::CONTINUATION,
            flags: Flags::END_HEADERS,
            stream: StreamId::new(0x7fff_ffff),
        };
        assert_eq!(FrameHeader::parse(&header.to_octets()), header);
    }

    #[test]
    fn the_reserved_bit_is_ignored() {
        let header = FrameHeader::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]);
        assert_eq!(header.stream, StreamId::new(1));
        assert_eq!(FrameHeader::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 0]).stream, None);
    }
}
