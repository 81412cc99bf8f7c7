//! Messages as HTTP/2 frames them: field sections become `http` types, and back.
//!
//! Here are the rules of RFC 9113 section 8 on pseudo-headers and fields, and those of RFC 8441 section 4 on extended
//! CONNECT. What a peer sent is read by `receive_*`, and an error there is [`Malformed`]: a stream error of type
//! PROTOCOL_ERROR. What a user wants to send passes `check_*` first, whose error is [`InvalidMessage`], and is then
//! written by `encode_*`, which cannot fail.
//!
//! The connection calls this room with a section that was decoded whole; the room knows nothing of streams, of the
//! order of messages, or of bodies.

mod check;
mod encode;
mod malformed;
mod protocol;
mod receive;
mod rules;

#[cfg(test)]
mod tests;

pub use self::check::InvalidMessage;
pub use self::protocol::{InvalidProtocol, Protocol};

pub(crate) use self::check::{check_request, check_response, check_trailers};
pub(crate) use self::encode::{encode_request, encode_response, encode_trailers};
pub(crate) use self::malformed::Malformed;
pub(crate) use self::receive::{content_length, receive_request, receive_response, receive_trailers};
