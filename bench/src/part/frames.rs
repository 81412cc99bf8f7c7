//! What the parts on plain sockets say of HTTP/2: types and flags of RFC 9113 section 6, and a frame of them.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The octets of a frame's head.
pub(super) const HEAD: usize = 9;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const PRIORITY_UPDATE: u8 = 16;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let mut octets = Vec::with_capacity(HEAD + payload.len());
    octets.extend_from_slice(length.get(1..).unwrap_or_default());
    octets.extend([kind, flags]);
    octets.extend(stream.to_be_bytes());
    octets.extend_from_slice(payload);
    octets
}
