//! DATA that a stream has received and its owner has not taken.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A payload below this length is copied into the tail chunk, so that a small frame never pins the slab it came in.
const COPY_BELOW: usize = 2_048;

/// The size at which a new tail chunk is begun.
const TAIL_CHUNK: usize = 16_384;

/// The received chunks of a stream, in order.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl ReceiveQueue {
    /// Appends a payload: a slice of the slab as it is. Short ones are copied, and form one chunk.
    pub(crate) fn push(&mut self, payload: Bytes) {
        self.bytes += payload.len();
        if payload.len() >= COPY_BELOW {
            self.seal_tail();
            self.chunks.push_back(payload);
            return;
        }
        if self.tail.len() + payload.len() > TAIL_CHUNK {
            self.seal_tail();
        }
        self.tail.extend_from_slice(&payload);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Moves everything to `into`. Returns the number of bytes.
    pub(crate) fn drain_into(&mut self, into: &mut VecDeque<Bytes>) -> usize {
        into.append(&mut self.chunks);
        // Directly, so that a short body costs the queue no allocation.
        if !self.tail.is_empty() {
            into.push_back(self.tail.split().freeze());
        }
        core::mem::take(&mut self.bytes)
    }

    /// Drops everything. Returns the number of bytes.
    pub(crate) fn clear(&mut self) -> usize {
        self.chunks.clear();
        self.tail = BytesMut::new();
        core::mem::take(&mut self.bytes)
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Octets of which it is known whether anybody still holds them.
    struct Slab {
        _held: Arc<()>,
    }

    impl AsRef<[u8]> for Slab {
        fn as_ref(&self) -> &[u8] {
            &[7; 5_000]
        }
    }

    #[test]
    fn what_is_dropped_takes_no_memory() {
        let held = Arc::new(());
        let slab = Bytes::from_owner(Slab {
            _held: Arc::clone(&held),
        });
        let mut queue = ReceiveQueue::default();
        queue.push(slab.slice(..3_000));
        queue.push(slab.slice(3_000..));
        queue.push(slab.slice(..1_000));
        drop(slab);
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(queue.clear(), 6_000);
        assert_eq!(Arc::strong_count(&held), 1, "the chunks are gone");
        assert_eq!(queue.tail.capacity(), 0, "and so is what was gathered");
        assert!(queue.is_empty());
        let mut chunks = VecDeque::new();
        assert_eq!((queue.drain_into(&mut chunks), chunks.len()), (0, 0));
    }

    #[test]
    fn a_payload_is_copied_below_2048_octets_and_gathered_up_to_16384() {
        let slab = Bytes::from(vec![7; 20_000]);
        let mut queue = ReceiveQueue::default();
        let mut chunks = VecDeque::new();
        queue.push(slab.slice(..2_047));
        queue.push(slab.slice(2_047..4_095));
        queue.drain_into(&mut chunks);
        assert_ne!(chunks[0].as_ptr(), slab.as_ptr());
        assert_eq!(chunks[1].as_ptr(), slab[2_047..].as_ptr());
        chunks.clear();
        for length in [2_047; 8].into_iter().chain([8, 1, 2_047]) {
            queue.push(slab.slice(..length));
        }
        assert_eq!(queue.drain_into(&mut chunks), 18_432);
        let lengths: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [16_384, 2_048]);
    }

    #[test]
    fn short_payloads_are_gathered_and_long_ones_kept_as_slices() {
        let slab = Bytes::from(vec![7; 10_000]);
        let mut queue = ReceiveQueue::default();
        for at in 0..10 {
            queue.push(slab.slice(at..at + 1));
        }
        queue.push(slab.slice(100..5_000));
        queue.push(slab.slice(5_000..5_001));
        let mut chunks = VecDeque::new();
        assert_eq!(queue.drain_into(&mut chunks), 4_911);
        let lengths: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [10, 4_900, 1]);
        assert_eq!(chunks[1].as_ptr(), slab[100..].as_ptr());
        assert_eq!(queue.drain_into(&mut chunks), 0);
    }
}
