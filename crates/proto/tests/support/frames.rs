//! Frames and header blocks made by hand, right ones and wrong ones.

use fullbore_proto::ErrorCode;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITY: u8 = 0x20;

/// A frame of any type, whatever is in it.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, l0, l1, l2] = (payload.len() as u32).to_be_bytes();
    let mut out = vec![l0, l1, l2, kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

pub(crate) fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(0x0, flags, stream, payload)
}

pub(crate) fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(0x1, flags, stream, block)
}

/// A request of a GET without a body.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &request_block("GET"))
}

/// The head of a POST whose body follows.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    headers(stream, END_HEADERS, &request_block("POST"))
}

pub(crate) fn priority(stream: u32, depends_on: u32) -> Vec<u8> {
    let mut payload = depends_on.to_be_bytes().to_vec();
    payload.push(15);
    frame(0x2, 0, stream, &payload)
}

pub(crate) fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(0x3, 0, stream, &code.0.to_be_bytes())
}

pub(crate) fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (identifier, value) in entries {
        payload.extend_from_slice(&identifier.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(0x4, 0, 0, &payload)
}

pub(crate) fn settings_ack() -> Vec<u8> {
    frame(0x4, ACK, 0, &[])
}

pub(crate) fn ping(flags: u8, opaque: &[u8; 8]) -> Vec<u8> {
    frame(0x6, flags, 0, opaque)
}

pub(crate) fn go_away(last_stream: u32, code: ErrorCode) -> Vec<u8> {
    let payload = [last_stream.to_be_bytes(), code.0.to_be_bytes()].concat();
    frame(0x7, 0, 0, &payload)
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(0x8, 0, stream, &increment.to_be_bytes())
}

pub(crate) fn continuation(stream: u32, flags: u8, fragment: &[u8]) -> Vec<u8> {
    frame(0x9, flags, stream, fragment)
}

pub(crate) fn priority_update(stream: u32, value: &str) -> Vec<u8> {
    let payload = [&stream.to_be_bytes()[..], value.as_bytes()].concat();
    frame(0x10, 0, 0, &payload)
}

/// A header block of literals without indexing, in the order and with the octets given.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        string(name.as_bytes(), &mut out);
        string(value.as_bytes(), &mut out);
    }
    out
}

fn string(octets: &[u8], out: &mut Vec<u8>) {
    // An integer with a prefix of seven bits (RFC 7541 section 5.1).
    if octets.len() < 127 {
        out.push(octets.len() as u8);
    } else {
        out.push(127);
        let mut rest = octets.len() - 127;
        while rest >= 128 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(octets);
}

/// The pseudo-headers of a request.
pub(crate) fn pseudo(method: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "example.com"),
        (":path", "/"),
    ]
}

pub(crate) fn request_block(method: &'static str) -> Vec<u8> {
    block(&pseudo(method))
}

/// A request's block with these fields behind the pseudo-headers.
pub(crate) fn request_block_with(method: &'static str, fields: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut all = pseudo(method);
    all.extend_from_slice(fields);
    block(&all)
}

pub(crate) fn response_block(status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = vec![(":status", status)];
    all.extend_from_slice(fields);
    block(&all)
}
