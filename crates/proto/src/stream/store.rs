//! The streams of a connection, by identifier and by slot; and what is remembered of closed ones.

#[cfg(debug_assertions)]
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use slab::Slab;

use super::Stream;
use crate::error::Side;
use crate::id::{Key, StreamId, StreamMap};

/// All streams that are not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// In boxes: a stream of some hundred octets is moved once, and taken out where it lies.
    slots: Slab<Box<Stream>>,
    /// The slots that are taken, in no order: whoever goes through the streams, or through some of them, passes none of
    /// those that are gone, of which a peer may have left thousands.
    taken: Vec<u32>,
    by_id: StreamMap<u32>,
    /// The stream that was inserted or looked up last. The next frame is mostly on it, and needs no hash then.
    last: Option<Key>,
    header_memory: usize,
    /// How many streams were looked up or gone through, for the tests of what a frame costs.
    #[cfg(debug_assertions)]
    touched: AtomicU64,
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(debug_assertions)]
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }

    /// A stream is looked up or passed.
    #[inline]
    fn touch(&self) {
        #[cfg(debug_assertions)]
        self.touched.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets all streams go.
    pub(crate) fn clear(&mut self) {
        *self = Store {
            #[cfg(debug_assertions)]
            touched: AtomicU64::new(self.touched()),
            ..Store::default()
        };
    }

    pub(crate) fn insert(&mut self, mut stream: Box<Stream>) -> Key {
        let id = stream.id;
        stream.place = self.taken.len() as u32;
        // A slab of 2^32 streams does not fit any memory.
        let slot = self.slots.insert(stream) as u32;
        self.taken.push(slot);
        self.by_id.insert(id, slot);
        let key = Key::new(slot, id);
        self.last = Some(key);
        key
    }

    #[inline]
    pub(crate) fn find(&self, id: StreamId) -> Option<Key> {
        self.touch();
        match self.last {
            Some(last) if last.id() == id => Some(last),
            _ => self.search(id),
        }
    }

    fn search(&self, id: StreamId) -> Option<Key> {
        self.by_id.get(&id).map(|&slot| Key::new(slot, id))
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Stream> {
        self.touch();
        let stream = self.slots.get(key.slot())?;
        (stream.id == key.id()).then_some(stream)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.touch();
        let stream = self.slots.get_mut(key.slot())?;
        (stream.id == key.id()).then_some(stream)
    }

    #[inline]
    pub(crate) fn by_id(&mut self, id: StreamId) -> Option<(Key, &mut Stream)> {
        let key = self.find(id)?;
        self.last = Some(key);
        self.get_mut(key).map(|stream| (key, stream))
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(stream) = self.get(key) {
            let (place, header_memory) = (stream.place, stream.header_memory);
            self.header_memory -= header_memory;
            self.by_id.remove(&key.id());
            self.last = self.last.filter(|&last| last != key);
            self.slots.remove(key.slot());
            self.taken.swap_remove(place as usize);
            // The last one has its place now.
            let moved = self.taken.get(place as usize);
            if let Some(stream) = moved.and_then(|&slot| self.slots.get_mut(slot as usize)) {
                stream.place = place;
            }
        }
    }

    /// Gives back the room of streams that are gone.
    pub(crate) fn trim(&mut self) {
        self.slots.shrink_to_fit();
        self.taken.shrink_to_fit();
        self.by_id.shrink_to_fit();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        let streams = self.taken.iter().map(|&slot| self.slots.get(slot as usize));
        streams.flatten().map(|stream| {
            self.touch();
            &**stream
        })
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

    /// The key of the stream that comes at this place when all are gone through.
    pub(crate) fn key_at(&self, place: usize) -> Option<Key> {
        self.touch();
        let slot = *self.taken.get(place)?;
        let id = self.slots.get(slot as usize)?.id;
        Some(Key::new(slot, id))
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..self.len()).filter_map(|place| self.key_at(place)).collect()
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
    /// None before the first reset or gap: most connections have neither.
    log: Option<Box<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    /// Oldest first.
    resets: VecDeque<StreamId>,
    /// By which side each of them was reset last, and how often it stands among them. A frame on such a stream is looked
    /// up here, not searched for.
    sides: BTreeMap<StreamId, (Side, u32)>,
    /// The first and the last identifier of each run that was left out, in the order of identifiers.
    gaps: VecDeque<(u32, u32)>,
    /// The highest stream whose reset was forgotten; 0 for none.
    forgotten: u32,
}

impl ClosedLog {
    const RESETS: usize = 1_024;
    const GAPS: usize = 64;

    pub(crate) fn remember(&mut self, id: StreamId, by: Side) {
        let log = self.log.get_or_insert_default();
        if log.resets.len() == Self::RESETS {
            if let Some(oldest) = log.resets.pop_front() {
                log.forget(oldest);
            }
        }
        log.resets.push_back(id);
        let (side, count) = log.sides.entry(id).or_insert((by, 0));
        *side = by;
        *count += 1;
    }

    /// The peer opened `id` after `highest` (0 for none) and left out what is between.
    #[inline]
    pub(crate) fn open(&mut self, highest: u32, id: StreamId) {
        let next = if highest == 0 { 1 } else { highest + 2 };
        if id.value() <= next {
            return;
        }
        let log = self.log.get_or_insert_default();
        if log.gaps.len() == Self::GAPS {
            log.gaps.pop_front();
        }
        log.gaps.push_back((next, id.value() - 2));
    }

    /// What became of a stream that is not stored and not idle.
    pub(crate) fn past(&self, id: StreamId) -> Past {
        let Some(log) = &self.log else {
            return Past::Finished;
        };
        if let Some(&(by, _)) = log.sides.get(&id) {
            return Past::Reset(by);
        }
        let gap = log.gaps.partition_point(|&(_, last)| last < id.value());
        if log.gaps.get(gap).is_some_and(|&(first, _)| first <= id.value()) {
            return Past::Skipped;
        }
        match id.value() <= log.forgotten {
            true => Past::Forgotten,
            false => Past::Finished,
        }
    }
}

impl Log {
    fn forget(&mut self, id: StreamId) {
        self.forgotten = self.forgotten.max(id.value());
        if let Entry::Occupied(mut entry) = self.sides.entry(id) {
            let (_, count) = entry.get_mut();
            *count -= 1;
            if *count == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{DEFAULT_WINDOW, ReceiveWindow, Refill, SendCredit};
    use crate::stream::State;
    use crate::time::Time;

    fn id(number: u32) -> StreamId {
        StreamId::new(number).expect("not 0")
    }

    fn filled(count: u32) -> (Store, Vec<Key>) {
        let mut store = Store::default();
        let keys = (0..count).map(|index| {
            let window = ReceiveWindow::new(1, DEFAULT_WINDOW, Refill::default());
            let credit = SendCredit::new(1);
            let stream = Stream::new(id(2 * index + 1), State::Open, window, credit, Time::ZERO);
            store.insert(Box::new(stream))
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
        assert_eq!(store.key_at(5), None);
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

    #[test]
    fn of_streams_that_were_left_out_the_latest_64_runs_are_known() {
        let mut log = ClosedLog::default();
        // 3, 7, 11 and so on are opened; each leaves out the one before it.
        for opened in 0..64 {
            let highest = if opened == 0 { 0 } else { 4 * opened - 1 };
            log.open(highest, id(4 * opened + 3));
        }
        assert_eq!((log.past(id(1)), log.past(id(5))), (Past::Skipped, Past::Skipped));
        assert_eq!(log.past(id(253)), Past::Skipped);
        log.open(255, id(259));
        assert_eq!(
            (log.past(id(1)), log.past(id(5))),
            (Past::Finished, Past::Skipped)
        );
        assert_eq!(log.past(id(257)), Past::Skipped);
        for opened in [3, 7, 255, 259] {
            assert_eq!(log.past(id(opened)), Past::Finished);
        }
        // The next one leaves none out.
        log.open(259, id(261));
        assert_eq!(
            (log.past(id(5)), log.past(id(261))),
            (Past::Skipped, Past::Finished)
        );
    }

    #[test]
    fn the_newest_reset_of_a_stream_counts_until_the_last_one_is_forgotten() {
        let mut log = ClosedLog::default();
        log.open(0, id(9));
        log.open(9, id(15));
        log.remember(id(9), Side::Local);
        log.remember(id(9), Side::Peer);
        assert_eq!(log.past(id(9)), Past::Reset(Side::Peer));
        for (stream, past) in [
            (1, Past::Skipped),
            (7, Past::Skipped),
            (11, Past::Skipped),
            (13, Past::Skipped),
            (15, Past::Finished),
        ] {
            assert_eq!(log.past(id(stream)), past, "stream {stream}");
        }
        for number in 0..ClosedLog::RESETS as u32 - 1 {
            log.remember(id(101 + 2 * number), Side::Peer);
        }
        assert_eq!(log.past(id(9)), Past::Reset(Side::Peer));
        log.remember(id(99), Side::Local);
        assert_eq!(log.past(id(9)), Past::Forgotten);
        let log = log.log.expect("there were resets");
        assert_eq!(log.sides.len(), log.resets.len());
    }
}
