//! A service of all four kinds, as tonic's generator would write it, and its client. Messages are octets.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod client;
pub(crate) mod echo;
pub(crate) mod kinds;

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The service's name.
pub(crate) const SERVICE: &str = "test.Echo";

/// Messages as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Octets;

impl Codec for Octets {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Octets;
    type Decoder = Octets;

    fn encoder(&mut self) -> Octets {
        Octets
    }

    fn decoder(&mut self) -> Octets {
        Octets
    }
}

impl Encoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
