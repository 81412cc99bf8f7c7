//! Conversion between field sections and `http` types, by RFC 9113 section 8 and, for extended CONNECT, RFC 8441
//! section 4.
//!
//! `receive_*` parse what a peer sent. Their error is [`Malformed`], a stream error of type PROTOCOL_ERROR. `check_*`
//! validate what a user wants to send. Their error is [`InvalidMessage`]. `encode_*` write a checked message and
//! cannot fail.
//!
//! This module knows nothing of streams, the order of messages, or bodies.

mod check;
mod encode;
mod length;
mod malformed;
mod protocol;
mod receive;
mod rules;

#[cfg(test)]
mod tests;

pub use self::check::{InvalidMessage, content_length};
pub use self::length::decimal;
pub use self::protocol::{InvalidProtocol, Protocol};

pub(crate) use self::check::{check_request, check_response, check_trailers, fits};
pub(crate) use self::encode::{encode_request, encode_response, encode_trailers};
pub(crate) use self::length::received_length;
pub(crate) use self::malformed::Malformed;
pub(crate) use self::receive::{receive_request, receive_response, receive_trailers};
