//! The key of a stream in the store.

use super::stream_id::StreamId;

/// The slot of a stream in the store, for lookups without a search. It includes the identifier, because slots are
/// reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    slot: u32,
    id: StreamId,
}

impl Key {
    pub(crate) fn new(slot: u32, id: StreamId) -> Self {
        Key { slot, id }
    }

    pub(crate) fn id(self) -> StreamId {
        self.id
    }

    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The keys of so many streams, of the identifiers 1, 3 and so on.
#[cfg(test)]
pub(crate) fn keys(count: u32) -> Vec<Key> {
    let id = |index| StreamId::new(2 * index + 1).expect("not 0");
    (0..count).map(|index| Key::new(index, id(index))).collect()
}
