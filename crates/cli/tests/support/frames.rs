//! HTTP/2 frames written by hand (RFC 9113 section 6), the wrong ones as easily as the right ones.
//!
//! Field sections are HPACK without Huffman coding and without the dynamic table (RFC 7541 section 6).

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;

pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;

/// A frame with any head and any payload.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut octets = length.to_be_bytes()[1..].to_vec();
    octets.extend([kind, flags]);
    octets.extend(stream.to_be_bytes());
    octets.extend(payload);
    octets
}

pub(crate) fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

pub(crate) fn settings_ack() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, &[])
}

/// A PUT's HEADERS, of which a body follows.
pub(crate) fn put(stream: u32, path: &str) -> Vec<u8> {
    // Of the static table, index 6 is `:scheme: http`, 2 names the method, 4 the path and 1 the authority.
    let fields = [
        vec![0x86],
        literal(2, "PUT"),
        literal(4, path),
        literal(1, "localhost"),
    ];
    frame(HEADERS, END_HEADERS, stream, &fields.concat())
}

/// A response's HEADERS: `:status 200` and, if given, a content-length.
pub(crate) fn ok(stream: u32, content_length: Option<usize>) -> Vec<u8> {
    let mut fields = vec![0x88];
    if let Some(length) = content_length {
        // Static table index 28 is content-length.
        fields.extend(literal(28, &length.to_string()));
    }
    frame(HEADERS, END_HEADERS, stream, &fields)
}

/// A response's HEADERS with any status, which end the stream.
pub(crate) fn status(stream: u32, code: &str) -> Vec<u8> {
    // Static table index 8 is :status.
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &literal(8, code))
}

pub(crate) fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, payload)
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn go_away(last: u32, code: u32) -> Vec<u8> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend(code.to_be_bytes());
    frame(GOAWAY, 0, 0, &payload)
}

/// A literal field without indexing, its name from the static table.
fn literal(index: u8, value: &str) -> Vec<u8> {
    let mut octets = if index < 15 {
        vec![index]
    } else {
        vec![15, index - 15]
    };
    octets.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    octets.extend(value.as_bytes());
    octets
}
