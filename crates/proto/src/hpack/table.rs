//! The decoder's dynamic table (RFC 7541 sections 2.3.2 and 4): a ring of parsed fields, bounded by their sizes.
//!
//! Belongs to the decoder. The encoder keeps its own, which must also find fields by what they hold.

use std::collections::VecDeque;

use super::field::Field;

/// The size of both dynamic tables when a connection starts, in bytes (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;

/// Fields by age, newest last, evicted from the front.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

/// A field and its size, so that neither a repetition nor an eviction counts octets again.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) field: Field,
    pub(super) size: usize,
}

impl Table {
    pub(super) fn new(max_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max_size,
        }
    }

    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry of this age, 0 being the newest: HPACK's index less 62.
    #[inline]
    pub(super) fn entry(&self, age: usize) -> Option<&Entry> {
        let position = self.entries.len().checked_sub(age)?.checked_sub(1)?;
        self.entries.get(position)
    }

    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    /// Adds a field after evicting what it displaces; one larger than the whole table empties it (section 4.4).
    pub(super) fn insert(&mut self, field: Field, size: usize) {
        match self.max_size.checked_sub(size) {
            Some(room) => {
                self.evict_to(room);
                self.size += size;
                self.entries.push_back(Entry { field, size });
            }
            None => self.evict_to(0),
        }
    }

    fn evict_to(&mut self, room: usize) {
        while self.size > room {
            match self.entries.pop_front() {
                Some(entry) => self.size -= entry.size,
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut Table, name: &str, value: &str) {
        let field = Field::parse(name.as_bytes(), value.as_bytes());
        let size = field.size();
        table.insert(field, size);
    }

    #[test]
    fn the_oldest_entries_make_room_for_a_new_one() {
        let mut table = Table::new(110);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "2");
        insert(&mut table, "c", "3");
        assert_eq!((table.len(), table.size()), (3, 102));
        insert(&mut table, "d", "4");
        assert_eq!((table.len(), table.size()), (3, 102));
        assert_eq!(table.entry(0).unwrap().field.name.as_bytes(), b"d");
        assert_eq!(table.entry(2).unwrap().field.name.as_bytes(), b"b");
        assert!(table.entry(3).is_none());
        assert!(table.entry(usize::MAX).is_none());
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = Table::new(64);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "a value that leaves no room at all in it");
        assert_eq!((table.len(), table.size()), (0, 0));
    }

    #[test]
    fn a_smaller_maximum_evicts_at_once() {
        let mut table = Table::new(4096);
        insert(&mut table, "a", "1");
        insert(&mut table, "b", "2");
        table.set_max_size(67);
        assert_eq!((table.len(), table.size()), (1, 34));
        table.set_max_size(0);
        assert_eq!((table.len(), table.size()), (0, 0));
        insert(&mut table, "a", "1");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_table_that_was_emptied_holds_no_memory() {
        let mut table = Table::new(4096);
        insert(&mut table, "a", "1");
        table.set_max_size(34);
        assert!(table.entries.capacity() > 0, "its entry still fits");
        table.set_max_size(0);
        assert_eq!(table.entries.capacity(), 0);
    }
}
