//! HTTP/2 frames (RFC 9113 section 6) and field sections written by hand, valid or not, and frames read back.

use std::io::{self, Read};

use bytes::{Buf, Bytes, BytesMut};

/// The client's connection preface without its SETTINGS (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Octets of a frame header.
pub const HEADER_LENGTH: usize = 9;

/// Frame types.
pub const DATA: u8 = 0x0;
/// See [`DATA`].
pub const HEADERS: u8 = 0x1;
/// See [`DATA`].
pub const PRIORITY: u8 = 0x2;
/// See [`DATA`].
pub const RST_STREAM: u8 = 0x3;
/// See [`DATA`].
pub const SETTINGS: u8 = 0x4;
/// See [`DATA`].
pub const PING: u8 = 0x6;
/// See [`DATA`].
pub const GOAWAY: u8 = 0x7;
/// See [`DATA`].
pub const WINDOW_UPDATE: u8 = 0x8;
/// See [`DATA`].
pub const CONTINUATION: u8 = 0x9;
/// RFC 9218 section 7.1.
pub const PRIORITY_UPDATE: u8 = 0x10;

/// Flags.
pub const ACK: u8 = 0x1;
/// See [`ACK`].
pub const END_STREAM: u8 = 0x1;
/// See [`ACK`].
pub const END_HEADERS: u8 = 0x4;
/// See [`ACK`].
pub const PADDED: u8 = 0x8;
/// The flag of HEADERS that announces the fields of PRIORITY.
pub const WITH_PRIORITY: u8 = 0x20;

/// SETTINGS_MAX_CONCURRENT_STREAMS.
pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
/// SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW_SIZE: u16 = 0x4;

/// A frame of any type with any payload.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
    let mut octets = vec![l0, l1, l2, kind, flags];
    octets.extend_from_slice(&stream.to_be_bytes());
    octets.extend_from_slice(payload);
    octets
}

/// DATA.
pub fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, payload)
}

/// HEADERS with this field block fragment.
pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, stream, block)
}

/// PRIORITY with weight 16.
pub fn priority(stream: u32, depends_on: u32) -> Vec<u8> {
    frame(
        PRIORITY,
        0,
        stream,
        &[&depends_on.to_be_bytes()[..], &[15]].concat(),
    )
}

/// RST_STREAM.
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// SETTINGS with these entries.
pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (identifier, value) in entries {
        payload.extend_from_slice(&identifier.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// The acknowledgement of SETTINGS.
pub fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// PING.
pub fn ping(flags: u8, opaque: &[u8; 8]) -> Vec<u8> {
    frame(PING, flags, 0, opaque)
}

/// GOAWAY with debug data.
pub fn go_away_with(last_stream: u32, code: u32, debug: &[u8]) -> Vec<u8> {
    let payload = [&last_stream.to_be_bytes()[..], &code.to_be_bytes(), debug].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// GOAWAY.
pub fn go_away(last_stream: u32, code: u32) -> Vec<u8> {
    go_away_with(last_stream, code, b"")
}

/// WINDOW_UPDATE.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// CONTINUATION.
pub fn continuation(stream: u32, flags: u8, fragment: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, fragment)
}

/// PRIORITY_UPDATE of a request.
pub fn priority_update(stream: u32, value: &str) -> Vec<u8> {
    frame(
        PRIORITY_UPDATE,
        0,
        0,
        &[&stream.to_be_bytes()[..], value.as_bytes()].concat(),
    )
}

/// A field block of literals without indexing (RFC 7541 section 6.2.2), in this order and with these octets.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(name.as_ref(), &mut block);
        string(value.as_ref(), &mut block);
    }
    block
}

/// A literal without indexing whose name is entry `index` of the static table.
pub fn literal(index: u8, value: &str) -> Vec<u8> {
    let mut octets = if index < 15 {
        vec![index]
    } else {
        vec![15, index - 15]
    };
    string(value.as_bytes(), &mut octets);
    octets
}

/// A string literal: its length is an integer with a prefix of seven bits (RFC 7541 section 5.1).
fn string(octets: &[u8], out: &mut Vec<u8>) {
    if octets.len() < 127 {
        out.push(octets.len() as u8);
    } else {
        out.push(127);
        let mut rest = octets.len() - 127;
        while rest >= 128 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(octets);
}

/// The field block of a request to `authority`, with these fields behind the pseudo-header fields.
pub fn request_block(method: &str, authority: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", authority),
        (":path", path),
    ];
    all.extend_from_slice(fields);
    block(&all)
}

/// The field block of a response.
pub fn response_block(status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![(":status", status)];
    all.extend_from_slice(fields);
    block(&all)
}

/// A frame that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The frame type.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The stream, 0 for the connection.
    pub stream: u32,
    /// The payload.
    pub payload: Bytes,
}

impl Frame {
    /// Splits the first frame off `input`, if all of it is there.
    pub fn split(input: &mut BytesMut) -> Option<Self> {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = input.first_chunk::<HEADER_LENGTH>()?;
        let end = HEADER_LENGTH + u32::from_be_bytes([0, a, b, c]) as usize;
        if input.len() < end {
            return None;
        }
        let mut payload = input.split_to(end).freeze();
        payload.advance(HEADER_LENGTH);
        Some(Self {
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            payload,
        })
    }

    /// Reads one frame and not an octet more.
    ///
    /// # Errors
    /// Those of `io`; `UnexpectedEof` at the end.
    pub fn read(io: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER_LENGTH];
        io.read_exact(&mut header)?;
        let [a, b, c, kind, flags, s0, s1, s2, s3] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        io.read_exact(&mut payload)?;
        Ok(Self {
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            payload: payload.into(),
        })
    }

    /// The payload's 32-bit number at this octet.
    pub fn word(&self, at: usize) -> u32 {
        (&self.payload[at..at + 4]).get_u32()
    }

    /// The error code of RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        self.word(if self.kind == GOAWAY { 4 } else { 0 })
    }

    /// The increment of WINDOW_UPDATE.
    pub fn increment(&self) -> u32 {
        self.word(0)
    }

    /// Whether END_STREAM is set.
    pub fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// Whether ACK is set.
    pub fn is_ack(&self) -> bool {
        self.flags & ACK != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_starts_with_its_length_type_flags_and_stream() {
        let octets = data(3, END_STREAM, b"x");
        assert_eq!(octets, [0, 0, 1, 0, 1, 0, 0, 0, 3, b'x']);
        let read = Frame::read(&mut octets.as_slice()).expect("a frame");
        assert_eq!((read.kind, read.flags, read.stream), (DATA, END_STREAM, 3));
        let mut input = BytesMut::from(&octets[..]);
        assert_eq!(Frame::split(&mut input), Some(read));
        assert_eq!(Frame::split(&mut BytesMut::from(&octets[..9])), None);
    }

    #[test]
    fn long_strings_have_their_length_in_several_octets() {
        let block = literal(4, &"x".repeat(4_000));
        assert_eq!(block[..4], [4, 127, 0xa1, 0x1e]);
    }
}
