//! The streams of a connection, by identifier and by slot; and what is remembered of closed ones.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};

use slab::Slab;

use super::{Cause, Stream, StreamId};
use crate::error::Side;

/// The slot of a stream: an index that costs no search. It carries the identifier, so that a slot that was given to
/// another stream meanwhile is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    id: StreamId,
}

impl Key {
    pub(crate) fn id(self) -> StreamId {
        self.id
    }
}

/// A map by stream identifier that hashes one with a single multiplication.
///
/// A peer chooses identifiers only in so far as it may leave some out, so that collisions gain it nothing beyond the
/// number of streams that it is allowed.
pub type StreamMap<T> = HashMap<StreamId, T, BuildHasherDefault<IdHasher>>;

/// All streams that are not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Store {
    slots: Slab<Stream>,
    by_id: StreamMap<u32>,
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn insert(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        // A slab of 2^32 streams does not fit any memory.
        let slot = self.slots.insert(stream) as u32;
        self.by_id.insert(id, slot);
        Key { slot, id }
    }

    pub(crate) fn find(&self, id: StreamId) -> Option<Key> {
        self.by_id.get(&id).map(|&slot| Key { slot, id })
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Stream> {
        self.slots
            .get(key.slot as usize)
            .filter(|stream| stream.id == key.id)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.slots
            .get_mut(key.slot as usize)
            .filter(|stream| stream.id == key.id)
    }

    pub(crate) fn by_id(&mut self, id: StreamId) -> Option<(Key, &mut Stream)> {
        let key = self.find(id)?;
        self.get_mut(key).map(|stream| (key, stream))
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Stream> {
        self.get(key)?;
        self.by_id.remove(&key.id);
        self.slots.try_remove(key.slot as usize)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut Stream)> {
        self.slots.iter_mut().map(|(slot, stream)| {
            let key = Key {
                slot: slot as u32,
                id: stream.id,
            };
            (key, stream)
        })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.by_id.iter().map(|(&id, &slot)| Key { slot, id }).collect()
    }
}

/// The hasher of [`StreamMap`]: identifiers are dense numbers, which one multiplication spreads over the table.
#[derive(Debug, Default, Clone, Copy)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

/// How the streams that were reset lately were reset; older ones count as finished.
///
/// A stream that we reset may still get frames that the peer sent before it knew, and they are no error (RFC 9113
/// section 5.1, closed). The memory is bounded, by [`ClosedLog::CAPACITY`] streams of eight octets.
#[derive(Debug, Default)]
pub(crate) struct ClosedLog {
    resets: VecDeque<(StreamId, Side)>,
}

impl ClosedLog {
    const CAPACITY: usize = 1_024;

    pub(crate) fn remember(&mut self, id: StreamId, cause: Cause) {
        if let Cause::Reset { by, .. } = cause {
            if self.resets.len() == Self::CAPACITY {
                self.resets.pop_front();
            }
            self.resets.push_back((id, by));
        }
    }

    /// Which side reset the stream, when that is remembered.
    pub(crate) fn reset_by(&self, id: StreamId) -> Option<Side> {
        self.resets
            .iter()
            .rev()
            .find(|(reset, _)| *reset == id)
            .map(|&(_, by)| by)
    }
}
