//! Frames that the scripted peers send.

pub(crate) use fullbore_testing::frames::*;

/// A PUT's HEADERS, which a body follows.
pub(crate) fn put(stream: u32, path: &str) -> Vec<u8> {
    headers(stream, END_HEADERS, &request_block("PUT", "localhost", path, &[]))
}

/// A response's HEADERS: `:status 200` and, if given, a content-length.
pub(crate) fn ok(stream: u32, content_length: Option<usize>) -> Vec<u8> {
    let length = content_length.map(|length| literal(28, &length.to_string()));
    headers(
        stream,
        END_HEADERS,
        &[vec![0x88], length.unwrap_or_default()].concat(),
    )
}

/// A response's HEADERS with any status, which end the stream.
pub(crate) fn status(stream: u32, code: &str) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &response_block(code, &[]))
}
