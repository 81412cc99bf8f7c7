//! The decoder: a field block of the peer's becomes a field section (RFC 7541 sections 3 and 6).
//!
//! Called by the connection with each whole field block, in the order they came. Every error here leaves the two
//! tables apart for good, and so ends the connection with COMPRESSION_ERROR.

use bytes::{Bytes, BytesMut};

use super::error::DecodeError;
use super::field::{ENTRY_OVERHEAD, Field, FieldLimits, FieldName, FieldSection, FieldValue};
use super::huffman;
use super::table::Table;
use super::{integer, static_table};

/// Past this many bytes the space for Huffman decoding is given back after a block.
const KEPT_SCRATCH: usize = 8 * 1024;

/// Decodes the field blocks of one connection, in order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The last SETTINGS_HEADER_TABLE_SIZE of ours that the peer acknowledged: what a size update may not pass.
    allowed: usize,
    /// The smallest size acknowledged below the table's own and not signalled yet.
    owed_reduction: Option<usize>,
    /// Where Huffman-coded strings are decoded before they are copied to what keeps them.
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder whose dynamic table has `max_table_size` bytes, which is what both ends start from:
    /// [`DEFAULT_TABLE_SIZE`](super::DEFAULT_TABLE_SIZE) in HTTP/2.
    #[must_use]
    pub fn new(max_table_size: usize) -> Self {
        Self {
            table: Table::new(max_table_size),
            allowed: max_table_size,
            owed_reduction: None,
            scratch: Vec::new(),
        }
    }

    /// Our SETTINGS_HEADER_TABLE_SIZE in bytes, once the peer acknowledged it.
    ///
    /// The table itself changes when the peer says so in a field block. A reduction below the table's size obliges
    /// it to say so at the beginning of the next (RFC 9113 section 4.3.1).
    pub fn set_max_table_size(&mut self, bytes: usize) {
        self.allowed = bytes;
        if bytes < self.table.max_size() {
            let owed = self.owed_reduction.map_or(bytes, |owed| owed.min(bytes));
            self.owed_reduction = Some(owed);
        }
    }

    /// The size of the dynamic table in bytes, as RFC 7541 section 4.1 counts it.
    #[must_use]
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// The number of entries in the dynamic table.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.table.len()
    }

    /// The entry of the dynamic table that `index` names, 62 being the newest (RFC 7541 section 2.3.3).
    #[must_use]
    pub fn table_entry(&self, index: usize) -> Option<&Field> {
        let age = index.checked_sub(static_table::LEN + 1)?;
        self.table.entry(age).map(|entry| &entry.field)
    }

    /// Whether the next block has to begin with a change of the table's size.
    #[inline]
    pub(crate) fn expects_size_update(&self) -> bool {
        self.owed_reduction.is_some()
    }

    /// Decodes a whole field block into `out`, which is cleared first.
    ///
    /// Past `limits` it goes on decoding, so that the table stays right, but keeps no more fields:
    /// [`FieldSection::over_limit`] tells. Nothing that is kept refers to `block`.
    ///
    /// # Errors
    ///
    /// The block is no field block (RFC 7541). The connection must end with COMPRESSION_ERROR; `out` and the decoder
    /// hold nothing of use any more.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &FieldLimits,
        out: &mut FieldSection,
    ) -> Result<(), DecodeError> {
        out.clear();
        let mut input = self.receive_size_updates(block)?;
        if input.len() < block.len() {
            out.note_table_change();
        }
        let mut strings = Strings::default();
        while let Some((&first, rest)) = input.split_first() {
            input = rest;
            match first {
                0x80.. => {
                    self.indexed(first, &mut input, limits, out)?;
                    if out.over_limit() {
                        input = self.past_references(input, out);
                    }
                }
                0x40..0x80 => {
                    let index = integer::decode(first, 6, &mut input)?;
                    self.literal_indexed(index, &mut input, limits, out)?;
                }
                0x20..0x40 => return Err(DecodeError::MisplacedSizeUpdate),
                0x00..0x20 => {
                    let index = integer::decode(first, 4, &mut input)?;
                    let never_indexed = first & 0x10 != 0;
                    self.literal(index, never_indexed, &mut input, &mut strings, limits, out)?;
                }
            }
        }
        if self.scratch.len() > KEPT_SCRATCH {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Applies the size updates that a block begins with (RFC 7541 section 4.2), and returns the rest.
    fn receive_size_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let mut input = block;
        while let Some((&first @ 0x20..0x40, rest)) = input.split_first() {
            input = rest;
            let size = integer::decode(first, 5, &mut input)?;
            if size > self.allowed {
                return Err(DecodeError::SizeUpdateTooLarge);
            }
            // Of several changes between two blocks, the smallest comes first.
            if let Some(owed) = self.owed_reduction.take() {
                if size > owed {
                    return Err(DecodeError::MissingSizeUpdate);
                }
            }
            self.table.set_max_size(size);
        }
        match self.owed_reduction {
            Some(_) => Err(DecodeError::MissingSizeUpdate),
            None => Ok(input),
        }
    }

    /// An indexed field (RFC 7541 section 6.1).
    #[inline]
    fn indexed(
        &mut self,
        first: u8,
        input: &mut &[u8],
        limits: &FieldLimits,
        out: &mut FieldSection,
    ) -> Result<(), DecodeError> {
        let index = integer::decode(first, 7, input)?;
        if index <= static_table::LEN {
            let (field, size) = static_table::field(index).ok_or(DecodeError::InvalidIndex)?;
            if out.admit(size, limits) {
                out.keep(field);
            }
            return Ok(());
        }
        let age = index - static_table::LEN - 1;
        let entry = self.table.entry(age).ok_or(DecodeError::InvalidIndex)?;
        if out.admit(entry.size, limits) {
            out.keep(entry.field.clone());
        }
        Ok(())
    }

    /// What of `input` is behind the references of one octet each that it begins with. Past the limits they change nothing,
    /// not even the table, and there may be an octet of them for each that the peer sends: looking each of them up took 15
    /// times the processor time that sending them did.
    fn past_references<'a>(&self, input: &'a [u8], out: &mut FieldSection) -> &'a [u8] {
        /// As many octets as are compared at once, without a branch between them.
        const AT_ONCE: usize = 64;
        // An index of 127 or more takes further octets (RFC 7541 section 5.1).
        let last = u8::try_from(static_table::LEN + self.table.len()).map_or(126, |last| last.min(126));
        let is_reference = |octet: &u8| octet.wrapping_sub(0x81) < last;
        let all = |octets: &&[u8]| octets.iter().fold(true, |all, octet| all & is_reference(octet));
        let whole = AT_ONCE * input.chunks_exact(AT_ONCE).take_while(all).count();
        let rest = input.get(whole..).unwrap_or_default();
        let references = whole + rest.iter().take_while(|octet| is_reference(octet)).count();
        out.count_dropped(references);
        input.get(references..).unwrap_or_default()
    }

    /// A literal with incremental indexing (RFC 7541 section 6.2.1).
    ///
    /// Its value has an allocation of its own: were it cut from a buffer that the block shares, an entry of a few
    /// bytes could keep that whole buffer for as long as the table lives.
    fn literal_indexed(
        &mut self,
        index: usize,
        input: &mut &[u8],
        limits: &FieldLimits,
        out: &mut FieldSection,
    ) -> Result<(), DecodeError> {
        let name = self.name(index, input)?;
        let value = FieldValue::parse(&name, string(input, &mut self.scratch)?);
        let field = Field {
            name,
            value,
            never_indexed: false,
        };
        let size = field.size();
        if out.admit(size, limits) {
            out.keep(field.clone());
        }
        self.table.insert(field, size);
        out.note_table_change();
        Ok(())
    }

    /// A literal without indexing, or never indexed (RFC 7541 sections 6.2.2 and 6.2.3).
    fn literal(
        &mut self,
        index: usize,
        never_indexed: bool,
        input: &mut &[u8],
        strings: &mut Strings,
        limits: &FieldLimits,
        out: &mut FieldSection,
    ) -> Result<(), DecodeError> {
        let name = self.name(index, input)?;
        let octets = string(input, &mut self.scratch)?;
        let size = name.as_bytes().len() + octets.len() + ENTRY_OVERHEAD;
        if out.admit(size, limits) {
            let shared = strings.keep(octets, input.len());
            out.keep(Field {
                value: FieldValue::parse_shared(&name, octets, shared),
                name,
                never_indexed,
            });
        }
        Ok(())
    }

    /// The name of a literal: that of an entry, or a string if the index is 0.
    fn name(&mut self, index: usize, input: &mut &[u8]) -> Result<FieldName, DecodeError> {
        match index {
            0 => string(input, &mut self.scratch).map(FieldName::parse),
            1..=static_table::LEN => static_table::name(index).ok_or(DecodeError::InvalidIndex),
            _ => self
                .table
                .entry(index - static_table::LEN - 1)
                .map(|entry| entry.field.name.clone())
                .ok_or(DecodeError::InvalidIndex),
        }
    }
}

/// A string literal (RFC 7541 section 5.2): a part of `input`, or decoded into `scratch`.
fn string<'o, 'i: 'o, 's: 'o>(
    input: &mut &'i [u8],
    scratch: &'s mut Vec<u8>,
) -> Result<&'o [u8], DecodeError> {
    let (&first, mut rest) = input.split_first().ok_or(DecodeError::Truncated)?;
    let length = integer::decode(first, 7, &mut rest)?;
    let (octets, rest) = rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
    *input = rest;
    if first & 0x80 == 0 {
        return Ok(octets);
    }
    // Grows to the longest string and stays: no octet of it is cleared again for the next.
    let bound = huffman::decoded_bound(length);
    if scratch.len() < bound {
        scratch.resize(bound, 0);
    }
    let length = huffman::decode(octets, scratch)?;
    Ok(scratch.get(..length).unwrap_or_default())
}

/// Owns the values of a block that do not enter the table.
///
/// The first stands alone, since most blocks have no other; those that follow share one buffer.
#[derive(Default)]
struct Strings {
    buffer: BytesMut,
    started: bool,
}

impl Strings {
    /// Copies `octets`; `left` is how many octets of the block are yet to come.
    fn keep(&mut self, octets: &[u8], left: usize) -> Bytes {
        if !self.started {
            self.started = true;
            return Bytes::copy_from_slice(octets);
        }
        if self.buffer.capacity() < octets.len() {
            self.buffer = BytesMut::with_capacity(octets.len() + huffman::decoded_bound(left));
        }
        self.buffer.extend_from_slice(octets);
        self.buffer.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_for_huffman_decoding_is_kept_up_to_8_kib() {
        let limits = FieldLimits {
            max_bytes: usize::MAX,
            max_fields: usize::MAX,
        };
        // The shortest code has five bits, so 5,120 octets decode to 8,192 at most.
        for (coded, kept) in [(5_120, 8_192), (5_121, 0)] {
            let value = vec![b'0'; coded * 8 / 5];
            let mut block = vec![0, 1, b'a'];
            integer::encode(coded, 7, 0x80, &mut block);
            huffman::encode(&value, &mut block);
            let mut decoder = Decoder::new(0);
            let mut section = FieldSection::new();
            decoder.decode(&block, &limits, &mut section).unwrap();
            assert_eq!(section.fields()[0].value.as_bytes(), value);
            assert_eq!(decoder.scratch.len(), kept);
        }
    }
}
