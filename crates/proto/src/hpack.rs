//! HPACK (RFC 7541): field sections become field blocks, and back.
//!
//! A connection has one [`Decoder`] and one [`Encoder`], each with its own dynamic table. All field blocks of the
//! connection pass through them in order. A name and a value are parsed once, when they enter a table, so a field
//! that is repeated by its index is not parsed again. The module `message` interprets the fields.

mod decoder;
mod encoder;
mod encoder_table;
mod error;
mod field;
mod huffman;
mod integer;
mod static_table;
mod table;

#[cfg(test)]
mod tests;

pub use self::decoder::Decoder;
pub use self::encoder::Encoder;
pub use self::error::DecodeError;
pub(crate) use self::field::has_outer_white_space;
pub use self::field::{
    ENTRY_OVERHEAD, Field, FieldLimits, FieldName, FieldNameRef, FieldSection, FieldValue,
};
pub use self::table::DEFAULT_TABLE_SIZE;
