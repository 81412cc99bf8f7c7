//! Request targets with characters that `http::Uri` does not take. Browsers, curl and scripts send `"`, `<` and `>` in a query and a
//! backtick in a path as they are, and octets that are no UTF-8. RFC 3986 has them percent-encoded, and so they are before hyper
//! parses them. Over HTTP/2 the engine does the same.
//!
//! A request line is told from other octets by where it is: at the beginning of a line that is read while no request is in
//! progress. Of pipelined requests that is the first one; the others are refused as before.

use std::mem::take;

/// Where what is read next belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// The beginning of a line: a request line if no request is in progress.
    #[default]
    Line,
    Method,
    Target,
    /// Anywhere else.
    Elsewhere,
}

/// Encodes the targets of the requests that are read.
#[derive(Debug, Default)]
pub(super) struct Targets {
    place: Place,
}

impl Targets {
    /// What hyper is to be given in place of `read`, if there is a target in it that has to be encoded. `is_idle`: no request is in
    /// progress.
    #[inline]
    pub(super) fn encode(&mut self, read: &[u8], is_idle: bool) -> Option<Vec<u8>> {
        let mut at = 0;
        match self.place {
            Place::Line if is_idle => {
                // Empty lines may precede a request line (RFC 9112 section 2.2).
                at = read.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
                self.place = Place::Method;
            }
            Place::Line | Place::Elsewhere => {
                self.end_at(read);
                return None;
            }
            Place::Method | Place::Target => {}
        }
        if self.place == Place::Method {
            at += read[at..].iter().position(|byte| !is_token(*byte))? + 1;
            if read[at - 1] != b' ' {
                self.end_at(read);
                return None;
            }
            self.place = Place::Target;
        }
        let length = read[at..].iter().position(|byte| byte.is_ascii_whitespace());
        let end = length.map_or(read.len(), |length| at + length);
        if length.is_some() {
            self.end_at(read);
        }
        let target = &read[at..end];
        if target.iter().all(|byte| !ENCODED[usize::from(*byte)]) || is_taken(target) {
            return None;
        }
        Some(encoded(read, at, end))
    }

    /// The line is of no further interest: whether another one begins behind `read`.
    fn end_at(&mut self, read: &[u8]) {
        self.place = match read.last() {
            Some(b'\n') => Place::Line,
            Some(_) => Place::Elsewhere,
            None => take(&mut self.place),
        };
    }
}

/// Whether `http::Uri` takes a target that has octets outside ASCII.
#[cold]
fn is_taken(target: &[u8]) -> bool {
    let refused = |byte: &u8| byte.is_ascii() && ENCODED[usize::from(*byte)];
    !target.iter().any(refused) && std::str::from_utf8(target).is_ok()
}

#[cold]
fn encoded(read: &[u8], begin: usize, end: usize) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut bytes = Vec::with_capacity(read.len() + 64);
    bytes.extend_from_slice(&read[..begin]);
    for &byte in &read[begin..end] {
        match ENCODED[usize::from(byte)] {
            true => bytes.extend([
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            false => bytes.push(byte),
        }
    }
    bytes.extend_from_slice(&read[end..]);
    bytes
}

/// RFC 9110 section 5.6.2, as far as methods go.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// What is encoded if the target would not be taken otherwise.
const ENCODED: [bool; 256] = {
    let mut encoded = [false; 256];
    let mut byte = 128;
    while byte < 256 {
        encoded[byte] = true;
        byte += 1;
    }
    encoded[b'"' as usize] = true;
    encoded[b'<' as usize] = true;
    encoded[b'>' as usize] = true;
    encoded[b'`' as usize] = true;
    encoded
};

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper is given of a text that is read in pieces of so many bytes while no request is in progress.
    fn given(text: &[u8], piece: usize) -> Vec<u8> {
        let mut targets = Targets::default();
        let pieces = text.chunks(piece);
        pieces
            .flat_map(|read| targets.encode(read, true).unwrap_or_else(|| read.to_vec()))
            .collect()
    }

    #[test]
    fn a_target_is_encoded_and_nothing_else_of_a_head() {
        let fields = "HTTP/1.1\r\nHost: <\"`>\r\nX: \u{e9} <y>\r\n\r\n";
        for (line, expected) in [
            ("GET /a?q=\"<>\" ", "GET /a?q=%22%3C%3E%22 "),
            ("\r\n\r\nM-SEARCH /`<b>` ", "\r\n\r\nM-SEARCH /%60%3Cb%3E%60 "),
            ("GET http://h/<b>#\" ", "GET http://h/%3Cb%3E#%22 "),
            ("GET /a?{|}^\\[]'%22 ", "GET /a?{|}^\\[]'%22 "),
            ("Host: <b> ", "Host: <b> "),
            ("GET \"<", "GET %22%3C"),
        ] {
            let (text, expected) = (format!("{line}{fields}"), format!("{expected}{fields}"));
            for piece in [1, 2, 3, 7, 1_000] {
                assert_eq!(
                    String::from_utf8(given(text.as_bytes(), piece)).unwrap(),
                    expected,
                    "in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn octets_that_are_no_text_are_encoded_and_text_is_left() {
        let whole = |text: &[u8]| given(text, 1_000);
        assert_eq!(whole(b"GET /\xe9 HTTP/1.1\r\n"), b"GET /%E9 HTTP/1.1\r\n");
        assert_eq!(
            whole("GET /é HTTP/1.1\r\n".as_bytes()),
            "GET /é HTTP/1.1\r\n".as_bytes()
        );
        assert_eq!(
            whole("GET /é< HTTP/1.1\r\n".as_bytes()),
            b"GET /%C3%A9%3C HTTP/1.1\r\n"
        );
    }

    #[test]
    fn a_body_is_left_as_it_is_and_the_next_request_is_not() {
        let mut targets = Targets::default();
        let head = b"PUT /<a> HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n";
        assert!(
            targets
                .encode(head, true)
                .unwrap()
                .starts_with(b"PUT /%3Ca%3E HTTP")
        );
        for body in [&b"GET /<b> HTTP/1.1\r\n"[..], b"GET /<b>\n"] {
            assert_eq!(targets.encode(body, false), None);
        }
        assert!(targets.encode(b"GET /<c> HTTP/1.1\r\n\r\n", true).is_some());
        // One that is not at the beginning of a line.
        assert_eq!(targets.encode(b"GET /c HTTP/1.1\r\nHost: h", true), None);
        assert_eq!(targets.encode(b"GET /<d> HTTP/1.1\r\n\r\n", true), None);
    }
}
