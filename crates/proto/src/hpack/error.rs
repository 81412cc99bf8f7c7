//! Why a field block of the peer cannot be decoded.

use std::fmt;

use super::huffman::HuffmanError;

/// Why a field block cannot be decoded: a connection error of type COMPRESSION_ERROR, and the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The block ends within an integer or a string.
    Truncated,
    /// An integer passes 32 bits (RFC 7541 section 5.1).
    IntegerOverflow,
    /// An index is 0, or past the end of both tables (RFC 7541 sections 2.3.3 and 6.1).
    InvalidIndex,
    /// A string holds the EOS symbol (RFC 7541 section 5.2).
    HuffmanEndOfString,
    /// A string's padding is longer than seven bits, or not all ones (RFC 7541 section 5.2).
    HuffmanPadding,
    /// A table size update follows a field (RFC 7541 section 4.2).
    MisplacedSizeUpdate,
    /// A table size update passes SETTINGS_HEADER_TABLE_SIZE (RFC 7541 section 6.3).
    SizeUpdateTooLarge,
    /// The peer acknowledged a smaller table and did not begin its next block with that size or less (RFC 9113
    /// section 4.3.1).
    MissingSizeUpdate,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the field block ends within an integer or a string",
            Self::IntegerOverflow => "an integer in the field block passes 32 bits",
            Self::InvalidIndex => "an index in the field block is 0 or past the end of the tables",
            Self::HuffmanEndOfString => "a Huffman-coded string holds the EOS symbol",
            Self::HuffmanPadding => "a Huffman-coded string has padding of over seven bits, or not all ones",
            Self::MisplacedSizeUpdate => {
                "a table size update does not stand at the beginning of its field block"
            }
            Self::SizeUpdateTooLarge => "a table size update passes SETTINGS_HEADER_TABLE_SIZE",
            Self::MissingSizeUpdate => {
                "a reduced table size was acknowledged, but not signalled in the next field block"
            }
        })
    }
}

impl std::error::Error for DecodeError {}

impl From<HuffmanError> for DecodeError {
    fn from(error: HuffmanError) -> Self {
        match error {
            HuffmanError::EndOfString => Self::HuffmanEndOfString,
            HuffmanError::Padding => Self::HuffmanPadding,
        }
    }
}
