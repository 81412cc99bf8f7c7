//! The streams of a connection, by identifier and by slot; and what is remembered of closed ones.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, VecDeque};

use slab::Slab;

use super::{Stream, StreamId};
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
    /// In boxes: a stream of some hundred octets is moved once, and taken out where it lies.
    slots: Slab<Box<Stream>>,
    by_id: StreamMap<u32>,
    header_memory: usize,
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn insert(&mut self, stream: Box<Stream>) -> Key {
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
        let stream = self.slots.get(key.slot as usize)?;
        (stream.id == key.id).then_some(stream)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        let stream = self.slots.get_mut(key.slot as usize)?;
        (stream.id == key.id).then_some(stream)
    }

    pub(crate) fn by_id(&mut self, id: StreamId) -> Option<(Key, &mut Stream)> {
        let key = self.find(id)?;
        self.get_mut(key).map(|stream| (key, stream))
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(stream) = self.get(key) {
            self.header_memory -= stream.header_memory;
            self.by_id.remove(&key.id);
            self.slots.remove(key.slot as usize);
        }
    }

    /// Gives back the room of streams that are gone.
    pub(crate) fn trim(&mut self) {
        self.slots.shrink_to_fit();
        self.by_id.shrink_to_fit();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slots.iter().map(|(_, stream)| &**stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().map(|(_, stream)| &mut **stream)
    }

    /// How much memory the field sections of all streams take, in octets, beyond what is free to each.
    pub(crate) fn header_memory(&self) -> usize {
        self.header_memory
    }

    /// Has a stream hold so much more of it.
    pub(crate) fn hold_headers(&mut self, key: Key, octets: usize) {
        if let Some(stream) = self.get_mut(key) {
            stream.header_memory += octets;
            self.header_memory += octets;
        }
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

/// What is known of a stream that is neither stored nor idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// Both sides ended it.
    Finished,
    /// One side reset it.
    Reset(Side),
    /// The peer never opened it, and closed it by opening a later one (RFC 9113 section 5.1.1).
    Skipped,
    /// Reset or finished, too long ago to tell.
    Forgotten,
}

/// How streams were closed that are not stored any more.
///
/// A stream that we reset may still get frames that the peer sent before it knew, and they are no error (RFC 9113
/// section 5.1, closed). The memory is bounded: [`ClosedLog::RESETS`] streams of eight octets and
/// [`ClosedLog::GAPS`] gaps, the oldest being forgotten.
#[derive(Debug, Default)]
pub(crate) struct ClosedLog {
    resets: VecDeque<(StreamId, Side)>,
    /// The first and the last identifier of each run that was left out.
    gaps: VecDeque<(u32, u32)>,
    /// The highest stream whose reset was forgotten; 0 for none.
    forgotten: u32,
}

impl ClosedLog {
    const RESETS: usize = 1_024;
    const GAPS: usize = 64;

    pub(crate) fn remember(&mut self, id: StreamId, by: Side) {
        if self.resets.len() == Self::RESETS {
            if let Some((oldest, _)) = self.resets.pop_front() {
                self.forgotten = self.forgotten.max(oldest.value());
            }
        }
        self.resets.push_back((id, by));
    }

    /// The peer opened `id` after `highest` (0 for none) and left out what is between.
    pub(crate) fn open(&mut self, highest: u32, id: StreamId) {
        let next = if highest == 0 { 1 } else { highest + 2 };
        if id.value() <= next {
            return;
        }
        if self.gaps.len() == Self::GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back((next, id.value() - 2));
    }

    /// What became of a stream that is not stored and not idle.
    pub(crate) fn past(&self, id: StreamId) -> Past {
        let mut resets = self.resets.iter().rev();
        if let Some(&(_, by)) = resets.find(|(reset, _)| *reset == id) {
            return Past::Reset(by);
        }
        let in_gap = |&(first, last): &(u32, u32)| (first..=last).contains(&id.value());
        if self.gaps.iter().any(in_gap) {
            return Past::Skipped;
        }
        match id.value() <= self.forgotten {
            true => Past::Forgotten,
            false => Past::Finished,
        }
    }
}
