//! DATA (RFC 9113 section 6.1): only the frame header is written here; payloads leave by reference.

use super::frame_header::{Flags, FrameType, put_frame_header};
use crate::id::StreamId;

/// Appends the header of a DATA frame of `length` octets.
pub(crate) fn write_head(out: &mut Vec<u8>, stream: StreamId, length: usize, end_stream: bool) {
    put_frame_header(
        out,
        length,
        FrameType::DATA,
        Flags::NONE.with(Flags::END_STREAM, end_stream),
        Some(stream),
    );
}
