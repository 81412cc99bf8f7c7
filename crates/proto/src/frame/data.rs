//! DATA (RFC 9113 section 6.1): only the head is written here, for payloads leave by reference.

use super::head::{Flags, Kind, put_head};
use crate::id::StreamId;

/// Appends the head of a DATA frame of `length` octets.
pub(crate) fn write_head(out: &mut Vec<u8>, stream: StreamId, length: usize, end_stream: bool) {
    put_head(
        out,
        length,
        Kind::DATA,
        Flags::NONE.with(Flags::END_STREAM, end_stream),
        Some(stream),
    );
}
