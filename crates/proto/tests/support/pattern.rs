//! The bodies of the simulations: octets that depend on the stream and on the place in it, so that a byte that is lost,
//! repeated, moved or given to another stream is found.

use std::sync::LazyLock;

use bytes::Bytes;
use fullbore_proto::StreamId;

/// A prime, so that no frame or buffer size is a multiple of it.
const PERIOD: usize = 65_521;

static OCTETS: LazyLock<Bytes> = LazyLock::new(|| {
    let mut random = super::random::Random::new(7);
    let period: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
    let twice: Vec<u8> = [&period[..], &period[..]].concat();
    Bytes::from(twice)
});

fn start(stream: StreamId, offset: u64) -> usize {
    ((u64::from(stream.value()) * 7_919 + offset) % PERIOD as u64) as usize
}

/// The `length` octets of a stream's body from `offset` on, or as many as can be had in one piece.
pub(crate) fn slice(stream: StreamId, offset: u64, length: u64) -> Bytes {
    let from = start(stream, offset);
    let length = length.min(PERIOD as u64) as usize;
    OCTETS.slice(from..from + length)
}

/// Whether `octets` are those of the stream's body from `offset` on.
pub(crate) fn matches(stream: StreamId, mut offset: u64, octets: &[u8]) -> bool {
    octets.chunks(PERIOD).all(|chunk| {
        let from = start(stream, offset);
        offset += chunk.len() as u64;
        OCTETS[from..from + chunk.len()] == *chunk
    })
}
