//! HPACK (RFC 7541): how a field section travels as a field block, and back.
//!
//! Two halves that never meet: a [`Decoder`] for what the peer sends and an [`Encoder`] for what it is sent. Each
//! owns a dynamic table, so one connection has one of each, and every field block of that connection passes through
//! them in the order of the wire. What the fields mean is the business of [`message`](crate::message); this room
//! only parses a name and a value once, when they enter, so that a field that is repeated by its index is never
//! looked at again.
//!
//! The connection's receive side calls the decoder with a whole field block (HEADERS and its CONTINUATIONs
//! joined); its send side calls the encoder. Nothing here reads a socket, a clock or a setting.

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
