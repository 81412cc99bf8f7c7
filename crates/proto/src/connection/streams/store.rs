//! The streams of a connection, by identifier and by slot.

#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicU64, Ordering};

use slab::Slab;

use crate::id::{Key, StreamId, StreamMap};
use crate::invariant::infallible;
use crate::prefetch::prefetch_start;
use crate::stream::Stream;

/// Why a lookup by [`Store::taken`] cannot fail.
const TAKEN: &str = "each slot of `taken` has a stream";

#[derive(Debug, Default)]
pub(super) struct Store {
    /// Boxed, so that a stream of several hundred bytes is moved once.
    slots: Slab<Box<Stream>>,
    /// The occupied slots, in no order. An iteration skips no free slots, of which a peer may have left thousands.
    taken: Vec<u32>,
    by_id: StreamMap<u32>,
    /// The stream that was inserted or looked up last. The next frame is usually on it, and needs no hash.
    last: Option<Key>,
    /// The number of lookups and visits, for the tests of what a frame costs.
    #[cfg(debug_assertions)]
    touched: AtomicU64,
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(debug_assertions)]
    pub(super) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }

    #[inline]
    fn touch(&self) {
        #[cfg(debug_assertions)]
        self.touched.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_start(&self.taken, size_of::<u32>());
    }

    /// Takes all streams out.
    pub(super) fn take(&mut self) -> Store {
        let taken = core::mem::take(self);
        #[cfg(debug_assertions)]
        self.touched.store(taken.touched(), Ordering::Relaxed);
        taken
    }

    /// Frees up to `count` streams, of which none is looked up any more; whether none is left.
    pub(super) fn free(&mut self, count: usize) -> bool {
        let left = self.taken.len().saturating_sub(count);
        for slot in self.taken.drain(left..) {
            self.slots.try_remove(slot as usize);
        }
        left == 0
    }

    pub(super) fn insert(&mut self, mut stream: Box<Stream>) -> (Key, &mut Stream) {
        let id = stream.id;
        stream.index = self.taken.len() as u32;
        // A slab of 2^32 streams does not fit any memory.
        let entry = self.slots.vacant_entry();
        let slot = entry.key() as u32;
        self.taken.push(slot);
        self.by_id.insert(id, slot);
        let key = Key::new(slot, id);
        self.last = Some(key);
        (key, entry.insert(stream))
    }

    #[inline]
    pub(super) fn find(&self, id: StreamId) -> Option<Key> {
        self.touch();
        match self.last {
            Some(last) if last.id() == id => Some(last),
            _ => self.search(id),
        }
    }

    fn search(&self, id: StreamId) -> Option<Key> {
        self.by_id.get(&id).map(|&slot| Key::new(slot, id))
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.touch();
        let stream = self.slots.get_mut(key.slot())?;
        (stream.id == key.id()).then_some(stream)
    }

    #[inline]
    pub(super) fn by_id(&mut self, id: StreamId) -> Option<(Key, &mut Stream)> {
        let key = self.find(id)?;
        self.last = Some(key);
        self.get_mut(key).map(|stream| (key, stream))
    }

    /// As [`Self::by_id`], read-only; `last` stays.
    pub(super) fn view(&self, id: StreamId) -> Option<&Stream> {
        let key = self.find(id)?;
        infallible(self.slots.get(key.slot()), "an identifier has a slot").map(|stream| &**stream)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Stream>> {
        self.get_mut(key)?;
        let stream = infallible(self.slots.try_remove(key.slot()), "the slot was just found")?;
        self.by_id.remove(&key.id());
        self.last = self.last.filter(|&last| last != key);
        let index = stream.index;
        self.taken.swap_remove(index as usize);
        // The last one has moved to this index.
        let moved = self.taken.get(index as usize);
        if let Some(stream) = moved.and_then(|&slot| self.slots.get_mut(slot as usize)) {
            stream.index = index;
        }
        Some(stream)
    }

    pub(super) fn trim(&mut self) {
        self.slots.shrink_to_fit();
        self.taken.shrink_to_fit();
        self.by_id.shrink_to_fit();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.taken.iter().filter_map(|&slot| {
            self.touch();
            infallible(self.slots.get(slot as usize), TAKEN).map(|stream| &**stream)
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.slots.iter_mut().map(|(_, stream)| &mut **stream)
    }

    pub(super) fn at(&mut self, index: usize) -> Option<(Key, &mut Stream)> {
        self.touch();
        let slot = *self.taken.get(index)?;
        let stream = infallible(self.slots.get_mut(slot as usize), TAKEN)?;
        Some((Key::new(slot, stream.id), stream))
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        let slots = self.taken.iter().zip(self.iter());
        slots.map(|(&slot, stream)| Key::new(slot, stream.id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{DEFAULT_WINDOW, ReceiveWindow, Refill, SendCredit};
    use crate::stream::StreamState;
    use crate::time::Time;

    fn id(number: u32) -> StreamId {
        StreamId::new(number).expect("not 0")
    }

    fn filled(count: u32) -> (Store, Vec<Key>) {
        let mut store = Store::default();
        let keys = (0..count).map(|index| {
            let window = ReceiveWindow::new(1, DEFAULT_WINDOW, Refill::default());
            let credit = SendCredit::new(1);
            let stream = Stream::new(id(2 * index + 1), StreamState::Open, window, credit, Time::ZERO);
            store.insert(Box::new(stream)).0
        });
        let keys = keys.collect();
        (store, keys)
    }

    #[test]
    fn going_through_the_streams_passes_each_that_is_there_once() {
        let (mut store, keys) = filled(10);
        for gone in [9, 0, 4, 5, 8] {
            store.remove(keys[gone]);
        }
        let mut left: Vec<u32> = store.iter().map(|stream| stream.id.value()).collect();
        let same: Vec<u32> = store.keys().iter().map(|key| key.id().value()).collect();
        assert_eq!(left, same);
        left.sort_unstable();
        assert_eq!(left, [3, 5, 7, 13, 15]);
        assert_eq!(store.at(5).map(|(key, _)| key), None);
        for key in store.keys() {
            store.remove(key);
        }
        assert_eq!((store.len(), store.iter().count()), (0, 0));
    }

    #[test]
    fn a_stream_that_is_gone_is_not_found_though_it_was_looked_up_last() {
        let (mut store, keys) = filled(3);
        for &key in &keys {
            assert_eq!(store.by_id(key.id()).map(|(found, _)| found), Some(key));
            for &other in &keys {
                assert_eq!(store.find(other.id()), Some(other), "after {key:?}");
            }
        }
        // The last one by another look-up, the first one after it was found.
        store.remove(keys[1]);
        assert_eq!(store.find(keys[2].id()), Some(keys[2]));
        store.remove(keys[2]);
        assert!(store.by_id(keys[0].id()).is_some());
        store.remove(keys[0]);
        for &key in &keys {
            assert_eq!(store.find(key.id()), None);
            assert!(store.by_id(key.id()).is_none());
        }
    }
}
