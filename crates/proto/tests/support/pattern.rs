//! The bodies of the simulations: octets that depend on the stream and on the position in it, so that a byte that is lost,
//! repeated, moved or given to another stream is found.

use bytes::Bytes;
use fullbore_proto::StreamId;
use fullbore_testing::pattern;

fn position(stream: StreamId, offset: u64) -> u64 {
    u64::from(stream.value()) * 7_919 + offset
}

/// The `length` octets of a stream's body from `offset` on, or as many as can be had in one piece.
pub(crate) fn slice(stream: StreamId, offset: u64, length: u64) -> Bytes {
    pattern::slice(position(stream, offset), length)
}

/// Whether `octets` are those of the stream's body from `offset` on.
pub(crate) fn matches(stream: StreamId, offset: u64, octets: &[u8]) -> bool {
    pattern::Check::new(position(stream, offset))
        .update(octets)
        .is_ok()
}
