//! The encoder's dynamic table: what the peer's decoder holds, indexed by name and value.
//!
//! Two chained indexes over a ring of entries. A chain leads from a newer entry to an older one of the same bucket,
//! and ends at an evicted entry, so neither insertions nor evictions repair it. A trimmed table has no indexes; they
//! are rebuilt from the entries when a field is looked up by its hashes.

use std::collections::VecDeque;

use super::field::{ENTRY_OVERHEAD, FieldName, FieldNameRef};
use super::static_table;

/// A table of 4,096 bytes holds 128 entries at most, and some 60 of ordinary length.
const BUCKETS: usize = 64;

/// The hashes of a field, computed once for looking it up and for inserting it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes {
    name: u32,
    field: u32,
}

impl Hashes {
    /// `static_index` is the static table's first index of the name, or 0: it stands for the name when there is one.
    #[inline]
    pub(super) fn new(static_index: usize, name: FieldNameRef<'_>, value: &[u8]) -> Self {
        let name = match static_index {
            0 => hash(0, name.as_bytes()),
            index => index as u64,
        };
        Self {
            name: fold(name),
            field: fold(hash(name, value)),
        }
    }

    /// The hash of name and value.
    pub(super) fn of_field(self) -> u32 {
        self.field
    }
}

/// An index of the table for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Name and value.
    Field(usize),
    /// The name alone.
    Name(usize),
}

#[derive(Debug)]
struct Entry {
    name: FieldName,
    value: Box<[u8]>,
    hashes: Hashes,
    /// The entries before this one in its two buckets.
    older_field: u32,
    older_name: u32,
}

impl Entry {
    fn size(&self) -> usize {
        self.name.as_bytes().len() + self.value.len() + ENTRY_OVERHEAD
    }
}

/// Fields by age, newest last. An entry's number is the count of insertions up to it, wrapping.
#[derive(Debug)]
pub(super) struct EncoderTable {
    entries: VecDeque<Entry>,
    inserted: u32,
    /// None when trimmed, and before the first entry.
    buckets: Option<Box<Buckets>>,
    size: usize,
    max_size: usize,
}

/// The number of the newest entry of each bucket.
#[derive(Debug)]
struct Buckets {
    by_field: [u32; BUCKETS],
    by_name: [u32; BUCKETS],
}

impl Buckets {
    fn new() -> Box<Self> {
        Box::new(Buckets {
            by_field: [0; BUCKETS],
            by_name: [0; BUCKETS],
        })
    }

    /// Begins the chains of an entry's buckets with it.
    fn put(&mut self, entry: &mut Entry, number: u32) {
        let hashes = entry.hashes;
        entry.older_field = core::mem::replace(&mut self.by_field[bucket(hashes.field)], number);
        entry.older_name = core::mem::replace(&mut self.by_name[bucket(hashes.name)], number);
    }
}

impl EncoderTable {
    pub(super) fn new(max_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            inserted: 0,
            buckets: None,
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

    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
    }

    /// The index of the field, or of its name.
    #[inline]
    pub(super) fn find(&self, hashes: Hashes, name: FieldNameRef<'_>, value: &[u8]) -> Option<Match> {
        let mut number = self.buckets.as_ref()?.by_field[bucket(hashes.field)];
        let mut least_age = 0;
        while let Some((age, entry)) = self.entry(number, least_age) {
            if entry.hashes.field == hashes.field && *entry.value == *value && is_name(&entry.name, name) {
                return Some(Match::Field(index(age)));
            }
            number = entry.older_field;
            least_age = age + 1;
        }
        self.find_name(hashes, name).map(Match::Name)
    }

    /// The index of the newest entry of this name.
    pub(super) fn find_name(&self, hashes: Hashes, name: FieldNameRef<'_>) -> Option<usize> {
        let mut number = self.buckets.as_ref()?.by_name[bucket(hashes.name)];
        let mut least_age = 0;
        while let Some((age, entry)) = self.entry(number, least_age) {
            if entry.hashes.name == hashes.name && is_name(&entry.name, name) {
                return Some(index(age));
            }
            number = entry.older_name;
            least_age = age + 1;
        }
        None
    }

    /// The index of the entry whose number ends in these 16 bits, if it is still there and is this field. Any number may be
    /// asked for. Needs no indexes.
    #[inline]
    pub(super) fn find_again(&self, number: u16, name: FieldNameRef<'_>, value: &[u8]) -> Option<usize> {
        let age = (self.inserted as u16).wrapping_sub(number);
        let (age, entry) = self.entry(self.inserted.wrapping_sub(u32::from(age)), 0)?;
        (*entry.value == *value && is_name(&entry.name, name)).then(|| index(age))
    }

    /// The last 16 bits of the number of the entry that has this index now.
    pub(super) fn number(&self, index: usize) -> u16 {
        let age = index - static_table::LEN - 1;
        (self.inserted as u16).wrapping_sub(age as u16)
    }

    /// Adds a field whose size does not pass the table's; the last 16 bits of the number of its entry.
    pub(super) fn insert(&mut self, hashes: Hashes, name: FieldNameRef<'_>, value: &[u8]) -> u16 {
        let mut entry = Entry {
            name: name.to_owned(),
            value: value.into(),
            hashes,
            older_field: 0,
            older_name: 0,
        };
        let size = entry.size();
        self.evict_to(self.max_size.saturating_sub(size));
        self.restore();
        self.inserted = self.inserted.wrapping_add(1);
        let buckets = self.buckets.get_or_insert_with(Buckets::new);
        buckets.put(&mut entry, self.inserted);
        self.size += size;
        self.entries.push_back(entry);
        self.inserted as u16
    }

    /// Frees the indexes until [`Self::restore`] rebuilds them.
    pub(super) fn trim(&mut self) {
        self.buckets = None;
        self.entries.shrink_to_fit();
    }

    /// Rebuilds the indexes of a trimmed table, which [`Self::find`] and [`Self::find_name`] need.
    #[inline]
    pub(super) fn restore(&mut self) {
        if self.buckets.is_none() && !self.entries.is_empty() {
            self.rebuild();
        }
    }

    #[cold]
    fn rebuild(&mut self) {
        let mut buckets = Buckets::new();
        let mut number = self.inserted.wrapping_sub(self.entries.len() as u32);
        for entry in &mut self.entries {
            number = number.wrapping_add(1);
            buckets.put(entry, number);
        }
        self.buckets = Some(buckets);
    }

    /// The entry of a number and its age, if it is still there and no newer than its chain has come.
    ///
    /// A number that stood in a bucket while the count wrapped may name another entry than it did: hence the age,
    /// which keeps every chain finite, and the comparisons, which do not rely on the chains.
    #[inline]
    fn entry(&self, number: u32, least_age: usize) -> Option<(usize, &Entry)> {
        let age = self.inserted.wrapping_sub(number) as usize;
        if age < least_age {
            return None;
        }
        let position = self.entries.len().checked_sub(age)?.checked_sub(1)?;
        Some((age, self.entries.get(position)?))
    }

    fn evict_to(&mut self, room: usize) {
        while self.size > room {
            match self.entries.pop_front() {
                Some(entry) => self.size -= entry.size(),
                None => break,
            }
        }
    }
}

/// HPACK's index of an entry by its age.
const fn index(age: usize) -> usize {
    static_table::LEN + 1 + age
}

const fn bucket(hash: u32) -> usize {
    hash as usize % BUCKETS
}

fn is_name(entry: &FieldName, name: FieldNameRef<'_>) -> bool {
    FieldNameRef::from(entry) == name
}

const fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}

/// A quick hash of eight octets a step. It need not resist collisions: a chain is as long as the table at most.
#[inline]
fn hash(seed: u64, octets: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |state: u64, word: u64| (state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let mut state = step(seed, octets.len() as u64);
    for word in octets.chunks_exact(8) {
        state = step(state, word.try_into().map_or(0, u64::from_le_bytes));
    }
    // What is left is the end of the last eight octets, or all there is.
    let rest = match octets.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last),
        None => octets
            .iter()
            .fold(0, |rest, &octet| (rest << 8) | u64::from(octet)),
    };
    step(state, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(octets: &[u8]) -> FieldNameRef<'_> {
        FieldNameRef::Malformed(octets)
    }

    fn insert(table: &mut EncoderTable, key: &[u8], value: &[u8]) {
        table.insert(Hashes::new(0, name(key), value), name(key), value);
    }

    fn find(table: &EncoderTable, key: &[u8], value: &[u8]) -> Option<Match> {
        table.find(Hashes::new(0, name(key), value), name(key), value)
    }

    #[test]
    fn an_entry_is_found_by_its_field_or_by_its_name_until_it_is_evicted() {
        let mut table = EncoderTable::new(70);
        assert_eq!(find(&table, b"a", b"1"), None);
        insert(&mut table, b"a", b"1");
        insert(&mut table, b"b", b"2");
        assert_eq!(find(&table, b"a", b"1"), Some(Match::Field(63)));
        assert_eq!(find(&table, b"a", b"2"), Some(Match::Name(63)));
        assert_eq!(find(&table, b"b", b"2"), Some(Match::Field(62)));
        insert(&mut table, b"c", b"3");
        assert_eq!(find(&table, b"a", b"1"), None);
        assert_eq!(table.size(), 68);
    }

    #[test]
    fn every_live_entry_is_found_however_the_buckets_collide() {
        let mut table = EncoderTable::new(4096);
        for number in 0..1000u32 {
            insert(&mut table, b"n", &number.to_be_bytes());
            for age in 0..table.entries.len() as u32 {
                let value = (number - age).to_be_bytes();
                assert_eq!(find(&table, b"n", &value), Some(Match::Field(62 + age as usize)));
            }
        }
        assert_eq!(table.entries.len(), 4096 / 37);
    }

    #[test]
    fn every_name_is_found_however_the_buckets_collide() {
        let mut table = EncoderTable::new(8_192);
        let names: Vec<[u8; 2]> = (0..2 * BUCKETS as u16).map(u16::to_be_bytes).collect();
        for name in &names {
            insert(&mut table, name, b"1");
        }
        for (age, name) in names.iter().rev().enumerate() {
            assert_eq!(find(&table, name, b"2"), Some(Match::Name(62 + age)));
        }
    }

    #[test]
    fn names_and_values_are_told_apart_where_their_hashes_are_equal() {
        let mut table = EncoderTable::new(4_096);
        let hashes = Hashes { name: 1, field: 2 };
        table.insert(hashes, name(b"a"), b"1");
        table.insert(hashes, name(b"b"), b"2");
        for (key, value, found) in [
            (b"a", b"1", Some(Match::Field(63))),
            (b"a", b"2", Some(Match::Name(63))),
            (b"b", b"1", Some(Match::Name(62))),
            (b"c", b"1", None),
        ] {
            assert_eq!(table.find(hashes, name(key), value), found);
        }
    }

    #[test]
    fn a_table_that_was_at_rest_finds_what_it_found_before() {
        let mut table = EncoderTable::new(400);
        table.inserted = u32::MAX - 5;
        for number in 0..30u8 {
            insert(&mut table, b"n", &[number % 7]);
            insert(&mut table, b"m", &[number]);
            let found = |table: &EncoderTable| {
                let fields =
                    (0..30u8).map(|value| (find(table, b"n", &[value]), find(table, b"m", &[value])));
                fields.collect::<Vec<_>>()
            };
            let before = found(&table);
            table.trim();
            assert!(table.buckets.is_none());
            table.restore();
            assert_eq!(found(&table), before);
        }
    }

    #[test]
    fn an_entry_has_the_number_of_its_insertion_whatever_its_index_is_now() {
        let mut table = EncoderTable::new(4096);
        table.inserted = u32::MAX - 5;
        let keys: Vec<[u8; 1]> = (0..10).map(|key| [key]).collect();
        let mut insert = |key| table.insert(Hashes::new(0, name(key), b"v"), name(key), b"v");
        let numbers: Vec<u16> = keys.iter().map(|key| insert(key)).collect();
        for (key, &number) in keys.iter().zip(&numbers) {
            let Some(Match::Field(index)) = find(&table, key, b"v") else {
                panic!("{key:?} is not found");
            };
            assert_eq!(table.number(index), number);
            assert_eq!(table.find_again(number, name(key), b"v"), Some(index));
            assert_eq!(table.find_again(number, name(key), b"w"), None);
        }
    }

    #[test]
    fn a_table_at_rest_has_room_for_its_entries_alone() {
        let mut table = EncoderTable::new(4096);
        for number in 0..100u32 {
            insert(&mut table, b"n", &number.to_be_bytes());
        }
        table.set_max_size(100);
        table.trim();
        assert!(table.entries.len() == 2 && table.entries.capacity() < 8);
    }

    #[test]
    fn each_octet_of_a_string_counts_in_its_hash() {
        for length in 0..40 {
            let octets = vec![7; length];
            let mut hashes = vec![hash(0, &octets)];
            for at in 0..length {
                let mut other = octets.clone();
                other[at] = 8;
                hashes.push(hash(0, &other));
            }
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), length + 1);
        }
    }

    #[test]
    fn a_count_that_wraps_breaks_nothing() {
        let mut table = EncoderTable::new(400);
        table.inserted = u32::MAX - 20;
        for number in 0..60u8 {
            insert(&mut table, b"n", &[number]);
            assert_eq!(find(&table, b"n", &[number]), Some(Match::Field(62)));
            assert_eq!(find(&table, b"n", b"none"), Some(Match::Name(62)));
            assert_eq!(find(&table, b"m", b"none"), None);
        }
    }
}
