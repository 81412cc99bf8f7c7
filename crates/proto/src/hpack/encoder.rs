//! The encoder: fields become the representations of a field block (RFC 7541 section 6).
//!
//! Called by the message room for the fields of an outgoing head or trailer section, after [`Encoder::begin`].
//!
//! What enters the dynamic table is what is likely to come again on the same connection:
//! - *not indexed at first sight*: `:path` other than `/` and `/index.html`, `content-length`, `etag`, `last-modified`, `if-*`,
//!   `content-range`, `range`, `location`, `set-cookie`, `age`, `expires`, `traceparent`, `x-request-id`; they seldom
//!   repeat and would push out what does. Those that do, as the answers about one file that is asked for often, are indexed
//!   when they come again. Nor is an entry indexed that would take over three quarters of the table;
//! - *never indexed*, here or further on: what the caller marks as sensitive, `authorization`,
//!   `proxy-authorization`, and cookies under 20 bytes, which can be guessed by how they compress (section 7.1);
//! - *indexed*: everything else, `date` too: it is the same for all responses of a second.
//!
//! Blocks that follow one another resemble each other. Where a field stood in the last one is therefore looked first, which
//! is much less work than to find it by its hashes (`fullbore-bench engine` tells what is left).

use http::StatusCode;

use super::encoder_table::{EncoderTable, Hashes, Match};
use super::field::{ENTRY_OVERHEAD, FieldNameRef};
use super::static_table::{self, Policy};
use super::table::DEFAULT_TABLE_SIZE;
use super::{huffman, integer};

/// A cookie shorter than this is never indexed, in bytes.
const SHORT_COOKIE: usize = 20;

/// How many fields are remembered that may or may not come again: a few of each of the last ten messages.
const LATELY: usize = 64;

/// How many places of the last block are remembered.
const PLACES: usize = 16;

/// Encodes the field blocks of one connection, in order.
#[derive(Debug)]
pub struct Encoder {
    table: EncoderTable,
    /// What earlier blocks have shown. A trim keeps it, so that fields that a connection sends now and then enter the table.
    last_block: Option<Box<LastBlock>>,
    /// How many fields of this block have been encoded.
    place: u32,
    /// How often the table has changed.
    changes: u32,
    own_cap: u32,
    /// A table size to be signalled at the next block, and the smallest there was since the last.
    owed_update: Option<SizeUpdate>,
}

#[derive(Debug)]
struct LastBlock {
    /// The high bits of hashes of fields that were sent as literals lately, although their kind seldom repeats.
    lately: [u16; LATELY],
    /// The number of the table's entry that stood at each place of the last block which had one from the table there.
    places: [u16; PLACES],
}

impl LastBlock {
    fn new() -> Box<Self> {
        Box::new(LastBlock {
            lately: [0; LATELY],
            places: [0; PLACES],
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct SizeUpdate {
    least: usize,
    last: usize,
}

impl Encoder {
    /// An encoder whose dynamic table never passes `own_cap` bytes, whatever the peer allows. It starts with
    /// [`DEFAULT_TABLE_SIZE`], which every peer allows until it says otherwise, or with `own_cap` if that is less.
    #[must_use]
    pub fn new(own_cap: usize) -> Self {
        let mut encoder = Self {
            table: EncoderTable::new(DEFAULT_TABLE_SIZE),
            last_block: None,
            place: 0,
            changes: 0,
            own_cap: u32::try_from(own_cap).unwrap_or(u32::MAX),
            owed_update: None,
        };
        encoder.set_max_table_size(DEFAULT_TABLE_SIZE);
        encoder
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE in bytes. The next block signals what follows from it.
    pub fn set_max_table_size(&mut self, bytes: usize) {
        let size = bytes.min(self.own_cap as usize);
        match &mut self.owed_update {
            Some(owed) => {
                owed.least = owed.least.min(size);
                owed.last = size;
            }
            None if size != self.table.max_size() => {
                self.owed_update = Some(SizeUpdate {
                    least: size.min(self.table.max_size()),
                    last: size,
                });
            }
            None => {}
        }
    }

    /// The size of the dynamic table in bytes, as RFC 7541 section 4.1 counts it.
    #[must_use]
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// The size in bytes that the dynamic table may reach, as last signalled to the peer.
    #[must_use]
    pub fn max_table_size(&self) -> usize {
        self.table.max_size()
    }

    /// How often the table has changed. As long as it does not, the same fields have the same block. None if the next block
    /// begins with a change of the table's size.
    #[inline]
    pub(crate) fn changes(&self) -> Option<u32> {
        self.owed_update.is_none().then_some(self.changes)
    }

    /// Begins a field block: signals a change of the table's size, the smallest size since the last block first and
    /// then the one in force (RFC 7541 section 4.2).
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(owed) = self.owed_update.take() {
            self.send_size_update(owed, out);
        }
        self.place = 0;
    }

    /// Frees some 500 bytes that can be rebuilt. The state of the peer's decoder is kept.
    pub fn trim(&mut self) {
        self.table.trim();
    }

    #[cold]
    fn send_size_update(&mut self, owed: SizeUpdate, out: &mut Vec<u8>) {
        self.changes = self.changes.wrapping_add(1);
        if owed.least < owed.last && owed.least < self.table.max_size() {
            self.table.set_max_size(owed.least);
            integer::encode(owed.least, 5, 0x20, out);
        }
        if owed.last != self.table.max_size() {
            self.table.set_max_size(owed.last);
            integer::encode(owed.last, 5, 0x20, out);
        }
    }

    /// Appends one field to the block that was begun.
    ///
    /// `never_indexed` marks a secret: it is then sent as a literal that no table on its way may keep.
    #[inline]
    pub fn field<'a>(
        &mut self,
        name: impl Into<FieldNameRef<'a>>,
        value: &[u8],
        never_indexed: bool,
        out: &mut Vec<u8>,
    ) {
        self.encode(name.into(), value, never_indexed, out);
    }

    /// Appends the `:status` of a response to the block that was begun.
    #[inline]
    pub fn status(&mut self, status: StatusCode, out: &mut Vec<u8>) {
        match static_table::status(status.as_u16()) {
            Some(index) => integer::encode(index, 7, 0x80, out),
            None => self.encode(FieldNameRef::Status, status.as_str().as_bytes(), false, out),
        }
    }

    fn encode(&mut self, name: FieldNameRef<'_>, value: &[u8], never_indexed: bool, out: &mut Vec<u8>) {
        let place = self.place as usize;
        self.place = self.place.saturating_add(1);
        let before = self
            .last_block
            .as_ref()
            .and_then(|last_block| last_block.places.get(place));
        if let (Some(&number), false) = (before, never_indexed) {
            // What is in the table was allowed to enter it.
            if let Some(index) = self.table.find_again(number, name, value) {
                return integer::encode(index, 7, 0x80, out);
            }
        }
        self.encode_anew(place, name, value, never_indexed, out);
    }

    fn encode_anew(
        &mut self,
        place: usize,
        name: FieldNameRef<'_>,
        value: &[u8],
        never_indexed: bool,
        out: &mut Vec<u8>,
    ) {
        let (static_index, policy) = static_table::rule(name);
        let never_indexed = never_indexed
            || match policy {
                Policy::Never => true,
                Policy::Cookie => value.len() < SHORT_COOKIE,
                Policy::Incremental | Policy::Without => false,
            };
        if !never_indexed {
            if let Some(index) = static_table::exact(static_index, value) {
                return integer::encode(index, 7, 0x80, out);
            }
            if self.is_worth_indexing(name, value) {
                let hashes = Hashes::new(static_index, name, value);
                if policy != Policy::Without || self.comes_again(hashes) {
                    let number = self.encode_indexed(static_index, hashes, name, value, out);
                    if let Some(before) = self
                        .last_block
                        .get_or_insert_with(LastBlock::new)
                        .places
                        .get_mut(place)
                    {
                        *before = number;
                    }
                    return;
                }
            }
        }
        let name_index = match static_index {
            0 => {
                self.table.restore();
                self.table.find_name(Hashes::new(0, name, b""), name).unwrap_or(0)
            }
            index => index,
        };
        integer::encode(name_index, 4, if never_indexed { 0x10 } else { 0 }, out);
        encode_literal(name_index, name, value, out);
    }

    /// From the table, or as a literal that enters it; the number of its entry.
    fn encode_indexed(
        &mut self,
        static_index: usize,
        hashes: Hashes,
        name: FieldNameRef<'_>,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> u16 {
        self.table.restore();
        let name_index = match self.table.find(hashes, name, value) {
            Some(Match::Field(index)) => {
                integer::encode(index, 7, 0x80, out);
                return self.table.number(index);
            }
            // A static index takes one octet, a dynamic one may take two.
            _ if static_index != 0 => static_index,
            Some(Match::Name(index)) => index,
            None => 0,
        };
        integer::encode(name_index, 6, 0x40, out);
        encode_literal(name_index, name, value, out);
        self.changes = self.changes.wrapping_add(1);
        self.table.insert(hashes, name, value)
    }

    /// Whether a field was sent lately. Two that share a hash cost an entry at worst.
    fn comes_again(&mut self, hashes: Hashes) -> bool {
        let hash = hashes.of_field();
        let last_block = self.last_block.get_or_insert_with(LastBlock::new);
        // The slot stands for the low bits.
        let slot = &mut last_block.lately[hash as usize % LATELY];
        let high = (hash >> 16) as u16;
        std::mem::replace(slot, high) == high
    }

    fn is_worth_indexing(&self, name: FieldNameRef<'_>, value: &[u8]) -> bool {
        let size = name.as_bytes().len() + value.len() + ENTRY_OVERHEAD;
        size <= self.table.max_size() / 4 * 3
    }
}

/// The strings of a literal, after its first integer.
#[inline]
fn encode_literal(name_index: usize, name: FieldNameRef<'_>, value: &[u8], out: &mut Vec<u8>) {
    if name_index == 0 {
        encode_string(name.as_bytes(), out);
    }
    encode_string(value, out);
}

/// A string literal, Huffman-coded if that is shorter (RFC 7541 section 5.2).
fn encode_string(octets: &[u8], out: &mut Vec<u8>) {
    let coded_length = huffman::encoded_length(octets);
    if coded_length < octets.len() {
        integer::encode(coded_length, 7, 0x80, out);
        huffman::encode(octets, out);
    } else {
        integer::encode(octets.len(), 7, 0, out);
        out.extend_from_slice(octets);
    }
}
