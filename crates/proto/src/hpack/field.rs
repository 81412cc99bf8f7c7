//! A field, its name and its value, and the section that holds a message's fields.
//!
//! Filled by the HPACK decoder, emptied by the message room. Names and values are parsed here, once: a value that is
//! stored as [`FieldValue::Header`] is a legal field value, and need not be checked again however often the peer
//! repeats it by its index.

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue};

/// What an entry costs beyond its name and its value, in bytes (RFC 7541 section 4.1).
pub const ENTRY_OVERHEAD: usize = 32;

/// Past this many fields a section gives its memory back when it is cleared, so that one large message does not
/// cost its connection memory for good.
const KEPT_FIELDS: usize = 128;

/// The name of a field: one of the pseudo-headers, or a field name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldName {
    /// `:authority` (RFC 9113 section 8.3.1).
    Authority,
    /// `:method` (RFC 9113 section 8.3.1).
    Method,
    /// `:path` (RFC 9113 section 8.3.1).
    Path,
    /// `:protocol` (RFC 8441 section 4).
    Protocol,
    /// `:scheme` (RFC 9113 section 8.3.1).
    Scheme,
    /// `:status` (RFC 9113 section 8.3.2).
    Status,
    /// A field name, in lower case.
    Field(HeaderName),
    /// Neither a lower-case field name nor a known pseudo-header. HPACK carries any octets, and such a name may enter
    /// the dynamic table; the message that uses it is malformed, and the connection goes on.
    Malformed(Bytes),
}

impl FieldName {
    /// Parses a name as it came off the wire. Copies what is not a well-known name.
    #[must_use]
    pub fn parse(name: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return match name {
                b":authority" => Self::Authority,
                b":method" => Self::Method,
                b":path" => Self::Path,
                b":protocol" => Self::Protocol,
                b":scheme" => Self::Scheme,
                b":status" => Self::Status,
                _ => Self::Malformed(Bytes::copy_from_slice(name)),
            };
        }
        match HeaderName::from_lowercase(name) {
            Ok(name) => Self::Field(name),
            Err(_) => Self::Malformed(Bytes::copy_from_slice(name)),
        }
    }

    /// The octets of the name, with the colon of a pseudo-header.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        FieldNameRef::from(self).as_bytes()
    }
}

/// A borrowed [`FieldName`], as the encoder takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNameRef<'a> {
    /// `:authority`.
    Authority,
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:protocol`.
    Protocol,
    /// `:scheme`.
    Scheme,
    /// `:status`.
    Status,
    /// A field name.
    Field(&'a HeaderName),
    /// Any other octets. No message that passed its checks holds one; a test of a peer may send it.
    Malformed(&'a [u8]),
}

impl<'a> FieldNameRef<'a> {
    /// The octets of the name, with the colon of a pseudo-header.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Authority => b":authority",
            Self::Method => b":method",
            Self::Path => b":path",
            Self::Protocol => b":protocol",
            Self::Scheme => b":scheme",
            Self::Status => b":status",
            Self::Field(name) => name.as_str().as_bytes(),
            Self::Malformed(name) => name,
        }
    }

    pub(super) fn to_owned(self) -> FieldName {
        match self {
            Self::Authority => FieldName::Authority,
            Self::Method => FieldName::Method,
            Self::Path => FieldName::Path,
            Self::Protocol => FieldName::Protocol,
            Self::Scheme => FieldName::Scheme,
            Self::Status => FieldName::Status,
            Self::Field(name) => FieldName::Field(name.clone()),
            Self::Malformed(name) => FieldName::Malformed(Bytes::copy_from_slice(name)),
        }
    }
}

impl<'a> From<&'a FieldName> for FieldNameRef<'a> {
    fn from(name: &'a FieldName) -> Self {
        match name {
            FieldName::Authority => Self::Authority,
            FieldName::Method => Self::Method,
            FieldName::Path => Self::Path,
            FieldName::Protocol => Self::Protocol,
            FieldName::Scheme => Self::Scheme,
            FieldName::Status => Self::Status,
            FieldName::Field(name) => Self::Field(name),
            FieldName::Malformed(name) => Self::Malformed(name),
        }
    }
}

impl<'a> From<&'a HeaderName> for FieldNameRef<'a> {
    fn from(name: &'a HeaderName) -> Self {
        Self::Field(name)
    }
}

/// The value of a field, parsed as far as its name tells what to expect.
#[derive(Clone, Debug)]
pub enum FieldValue {
    /// A legal value of a field (RFC 9113 section 8.2.1): no control characters, no white space at either end.
    Header(HeaderValue),
    /// A legal `:authority`.
    Authority(Authority),
    /// A legal `:path`.
    Path(PathAndQuery),
    /// The value of another pseudo-header, not yet parsed; or one that is not legal for its name.
    Raw(Bytes),
}

impl FieldValue {
    /// Parses `octets` as the value of a field called `name`; what is not legal for it becomes [`FieldValue::Raw`].
    #[must_use]
    pub fn parse(name: &FieldName, octets: &[u8]) -> Self {
        Self::parse_shared(name, octets, Bytes::copy_from_slice(octets))
    }

    /// The same, for octets that already have an owner: `shared` holds the very octets of `octets`.
    pub(super) fn parse_shared(name: &FieldName, octets: &[u8], shared: Bytes) -> Self {
        let parsed = match name {
            FieldName::Field(_) if has_outer_white_space(octets) => None,
            FieldName::Field(_) => HeaderValue::from_maybe_shared(shared).ok().map(Self::Header),
            FieldName::Authority => Authority::from_maybe_shared(shared).ok().map(Self::Authority),
            // `PathAndQuery` drops a fragment without a word, and writes "/" for nothing; a target may have neither.
            FieldName::Path => PathAndQuery::from_maybe_shared(shared)
                .ok()
                .filter(|path| path.as_str().as_bytes() == octets)
                .map(Self::Path),
            _ => return Self::Raw(shared),
        };
        parsed.unwrap_or_else(|| Self::Raw(Bytes::copy_from_slice(octets)))
    }

    /// The octets of the value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Header(value) => value.as_bytes(),
            Self::Authority(value) => value.as_str().as_bytes(),
            Self::Path(value) => value.as_str().as_bytes(),
            Self::Raw(value) => value,
        }
    }
}

/// Whether a value starts or ends with a space or a tab, which RFC 9113 section 8.2.1 forbids.
pub(crate) fn has_outer_white_space(value: &[u8]) -> bool {
    let is_white_space = |octet: Option<&u8>| matches!(octet, Some(b' ' | b'\t'));
    is_white_space(value.first()) || is_white_space(value.last())
}

/// One field line: a name, a value, and whether the peer asked that it never be indexed.
///
/// Cheap to clone: it copies no octets.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name.
    pub name: FieldName,
    /// The value.
    pub value: FieldValue,
    /// Sent as a never-indexed literal (RFC 7541 section 6.2.3): whoever forwards it must do the same.
    pub never_indexed: bool,
}

impl Field {
    /// A field of these octets, parsed.
    #[must_use]
    pub fn parse(name: &[u8], value: &[u8]) -> Self {
        let name = FieldName::parse(name);
        let value = FieldValue::parse(&name, value);
        Self {
            name,
            value,
            never_indexed: false,
        }
    }

    /// Its size in bytes as HPACK counts it: name, value and 32 (RFC 7541 section 4.1).
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.as_bytes().len() + self.value.as_bytes().len() + ENTRY_OVERHEAD
    }
}

/// How much of a field section is kept; the rest is decoded, since the table must follow, and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLimits {
    /// The largest size of a section in bytes, counted as in [`Field::size`]: SETTINGS_MAX_HEADER_LIST_SIZE.
    pub max_bytes: usize,
    /// The most field lines, each cookie crumb counted for itself.
    pub max_fields: usize,
}

/// The fields of one message or one trailer section, in the order they came.
///
/// Made once and used for block after block: clearing it keeps its memory.
#[derive(Debug, Default)]
pub struct FieldSection {
    fields: Vec<Field>,
    size: usize,
    lines: usize,
    over_limit: bool,
    /// Whether the block has changed the dynamic table.
    changed_table: bool,
}

impl FieldSection {
    /// An empty section.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The fields that were kept.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The size of the whole section in bytes (RFC 9113 section 6.5.2). References past the limits are counted as the average
    /// of the fields before them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of field lines of the whole section, those past the limits counted.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Whether the section passed a limit, and so holds only its beginning.
    #[must_use]
    pub fn over_limit(&self) -> bool {
        self.over_limit
    }

    /// Adds a field, without a limit.
    pub fn push(&mut self, field: Field) {
        self.size = self.size.saturating_add(field.size());
        self.lines += 1;
        self.fields.push(field);
    }

    /// Empties the section for the next block.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.fields.shrink_to(KEPT_FIELDS);
        self.size = 0;
        self.lines = 0;
        self.over_limit = false;
        self.changed_table = false;
    }

    /// Whether the block has changed the dynamic table.
    #[inline]
    pub(crate) fn changed_table(&self) -> bool {
        self.changed_table
    }

    #[inline]
    pub(super) fn note_table_change(&mut self) {
        self.changed_table = true;
    }

    /// Gives back the room for fields that are not there.
    pub(crate) fn trim(&mut self) {
        self.fields.shrink_to_fit();
    }

    /// Takes the fields out, in order; the sizes stay until the section is cleared.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, Field> {
        self.fields.drain(..)
    }

    /// Counts a field of `size` bytes, and says whether it may be kept.
    #[inline]
    pub(super) fn admit(&mut self, size: usize, limits: &FieldLimits) -> bool {
        self.size = self.size.saturating_add(size);
        self.lines += 1;
        if self.size > limits.max_bytes || self.lines > limits.max_fields {
            self.over_limit = true;
        }
        !self.over_limit
    }

    /// Counts fields past the limit that nobody has looked up. Their sizes are taken to be those of the fields before them on
    /// average: a block that repeats a large field is charged for about what it stands for.
    pub(super) fn count_dropped(&mut self, lines: usize) {
        let average = self.size.checked_div(self.lines).unwrap_or(0);
        self.size = self.size.saturating_add(average.saturating_mul(lines));
        self.lines += lines;
    }

    /// Keeps a field that was admitted.
    #[inline]
    pub(super) fn keep(&mut self, field: Field) {
        self.fields.push(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_lower_case_token_is_kept_as_malformed() {
        for name in [
            &b"Host"[..],
            b"",
            b"a b",
            b"a:b",
            b":nonsense",
            b":",
            b"caf\xc3\xa9",
            b"a\0",
        ] {
            assert_eq!(
                FieldName::parse(name),
                FieldName::Malformed(Bytes::copy_from_slice(name))
            );
            assert_eq!(FieldName::parse(name).as_bytes(), name);
        }
    }

    #[test]
    fn a_known_name_is_parsed_to_its_kind() {
        for (octets, name) in [
            (&b":authority"[..], FieldName::Authority),
            (b":method", FieldName::Method),
            (b":path", FieldName::Path),
            (b":protocol", FieldName::Protocol),
            (b":scheme", FieldName::Scheme),
            (b":status", FieldName::Status),
            (b"date", FieldName::Field(http::header::DATE)),
        ] {
            assert_eq!(FieldName::parse(octets), name);
            assert_eq!(name.as_bytes(), octets);
        }
    }

    #[test]
    fn an_illegal_value_keeps_its_octets() {
        for (name, value) in [
            (&b"a"[..], &b" x"[..]),
            (b"a", b"x\t"),
            (b"a", b"x\r\ny"),
            (b"a", b"\0"),
            (b":path", b""),
            (b":path", b"/a#b"),
            (b":path", b"#"),
            (b":authority", b"a b"),
            (b":authority", b""),
        ] {
            let field = Field::parse(name, value);
            assert!(matches!(field.value, FieldValue::Raw(_)), "{field:?}");
            assert_eq!(field.value.as_bytes(), value);
        }
    }

    #[test]
    fn a_section_counts_thirty_two_bytes_a_field() {
        let mut section = FieldSection::new();
        section.push(Field::parse(b"custom-key", b"custom-header"));
        assert_eq!(section.size(), 55);
        section.clear();
        assert_eq!(
            (section.size(), section.lines(), section.fields().len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_section_that_was_large_once_gives_its_memory_back() {
        let mut section = FieldSection::new();
        for _ in 0..10_000 {
            section.push(Field::parse(b"a", b"b"));
        }
        section.clear();
        assert_eq!(section.fields.capacity(), KEPT_FIELDS);
    }
}
