//! HEADERS, CONTINUATION and the deprecated priority fields (RFC 9113 sections 6.2, 6.3, 6.10).

use super::error::FrameError;
use super::frame_header::{FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType, put_frame_header, read_u32};
use crate::error::ErrorCode;
use crate::id::StreamId;

/// A HEADERS frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The first or only fragment of the header block, without padding.
    pub fragment: &'a [u8],
    /// Whether no DATA follows.
    pub end_stream: bool,
    /// Whether no CONTINUATION follows.
    pub end_headers: bool,
    /// The priority fields of RFC 7540, when they are there.
    pub priority: Option<PriorityFields>,
}

impl<'a> Headers<'a> {
    pub(super) fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        let Some(stream) = header.stream else {
            return Err(FrameError::protocol("HEADERS on stream 0"));
        };
        let mut rest = payload;
        if header.flags.has(Flags::PADDED) {
            let Some((&padding, after)) = rest.split_first() else {
                return Err(FrameError::size("padded HEADERS without a pad length"));
            };
            let Some(length) = after.len().checked_sub(padding as usize) else {
                return Err(FrameError::protocol(
                    "the padding of HEADERS is longer than its payload",
                ));
            };
            rest = &after[..length];
        }
        let mut priority = None;
        if header.flags.has(Flags::PRIORITY) {
            if rest.len() < 5 {
                return Err(FrameError::size("HEADERS is too short for its priority fields"));
            }
            let (fields, after) = rest.split_at(5);
            priority = Some(PriorityFields::parse(stream, fields));
            rest = after;
        }
        Ok(Headers {
            stream,
            fragment: rest,
            end_stream: header.flags.has(Flags::END_STREAM),
            end_headers: header.flags.has(Flags::END_HEADERS),
            priority,
        })
    }
}

/// A CONTINUATION frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The next fragment of the header block.
    pub fragment: &'a [u8],
    /// Whether it is the last.
    pub end_headers: bool,
}

impl<'a> Continuation<'a> {
    pub(super) fn parse(header: FrameHeader, payload: &'a [u8]) -> Result<Self, FrameError> {
        let Some(stream) = header.stream else {
            return Err(FrameError::protocol("CONTINUATION on stream 0"));
        };
        Ok(Continuation {
            stream,
            fragment: payload,
            end_headers: header.flags.has(Flags::END_HEADERS),
        })
    }
}

/// The priority fields of RFC 7540, which RFC 9113 section 5.3.2 lets a receiver ignore. Only a stream that depends
/// on itself is told from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityFields {
    /// The stream that they speak of.
    pub stream: StreamId,
    /// Whether it is said to depend on itself.
    pub on_itself: bool,
}

impl PriorityFields {
    fn parse(stream: StreamId, fields: &[u8]) -> Self {
        PriorityFields {
            stream,
            on_itself: read_u32(fields, 0) & 0x7fff_ffff == stream.value(),
        }
    }

    pub(super) fn parse_frame(header: FrameHeader, payload: &[u8]) -> Result<Self, FrameError> {
        let Some(stream) = header.stream else {
            return Err(FrameError::protocol("PRIORITY on stream 0"));
        };
        if payload.len() != 5 {
            return Err(FrameError::stream(
                stream,
                ErrorCode::FRAME_SIZE_ERROR,
                "PRIORITY is not five octets long",
            ));
        }
        Ok(Self::parse(stream, payload))
    }
}

/// Leaves room for the header of a HEADERS frame, behind which the header block is to be appended in place.
pub(crate) fn reserve_header_block(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_LENGTH]);
    start
}

/// Writes the frame headers over and into the header block that was appended after [`reserve_header_block`]: one HEADERS
/// frame, and CONTINUATION frames when the block is longer than `max_frame_size`.
pub(crate) fn patch_header_block(
    out: &mut Vec<u8>,
    start: usize,
    stream: StreamId,
    end_stream: bool,
    max_frame_size: usize,
) {
    let block = out.len() - start - FRAME_HEADER_LENGTH;
    let first = block.min(max_frame_size);
    let header = FrameHeader {
        length: first as u32,
        frame_type: FrameType::HEADERS,
        flags: Flags::NONE
            .with(Flags::END_STREAM, end_stream)
            .with(Flags::END_HEADERS, first == block),
        stream: Some(stream),
    };
    out[start..start + FRAME_HEADER_LENGTH].copy_from_slice(&header.to_octets());
    if first == block {
        return;
    }
    // A block of more than a frame is rare, so that a copy of its rest does no harm.
    let rest = out.split_off(start + FRAME_HEADER_LENGTH + first);
    let mut fragments = rest.chunks(max_frame_size).peekable();
    while let Some(fragment) = fragments.next() {
        let last = fragments.peek().is_none();
        put_frame_header(
            out,
            fragment.len(),
            FrameType::CONTINUATION,
            Flags::NONE.with(Flags::END_HEADERS, last),
            Some(stream),
        );
        out.extend_from_slice(fragment);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, parse};
    use super::*;

    fn header(frame_type: FrameType, flags: u8, length: usize) -> FrameHeader {
        FrameHeader {
            length: length as u32,
            frame_type,
            flags: Flags(flags),
            stream: StreamId::new(1),
        }
    }

    #[test]
    fn padding_and_priority_are_cut_off() {
        let payload = [2, 0, 0, 0, 3, 7, b'a', b'b', 0, 0];
        let Ok(Frame::Headers(headers)) = parse(header(FrameType::HEADERS, 0x2c, payload.len()), &payload)
        else {
            panic!("not HEADERS")
        };
        assert_eq!(headers.fragment, b"ab");
        assert!(headers.end_headers && !headers.end_stream);
        assert!(!headers.priority.unwrap().on_itself);
    }

    #[test]
    fn padding_longer_than_the_payload_is_a_protocol_error() {
        let error = parse(header(FrameType::HEADERS, 0x8, 3), &[3, 0, 0]).unwrap_err();
        assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR);
    }

    #[test]
    fn a_block_longer_than_a_frame_is_continued() {
        let stream = StreamId::new(5).unwrap();
        let mut out = b"before".to_vec();
        let start = reserve_header_block(&mut out);
        out.extend((0..25u8).collect::<Vec<_>>());
        patch_header_block(&mut out, start, stream, true, 10);
        let mut rest = &out[6..];
        let mut block = Vec::new();
        let mut kinds = Vec::new();
        while let Some((octets, after)) = rest.split_first_chunk::<FRAME_HEADER_LENGTH>() {
            let header = FrameHeader::parse(octets);
            let (payload, after) = after.split_at(header.length as usize);
            kinds.push((header.frame_type, header.flags.0));
            block.extend_from_slice(payload);
            rest = after;
        }
        assert_eq!(
            kinds,
            [
                (FrameType::HEADERS, 0x1),
                (FrameType::CONTINUATION, 0),
                (FrameType::CONTINUATION, 0x4)
            ]
        );
        assert_eq!(block, (0..25u8).collect::<Vec<_>>());
    }
}
