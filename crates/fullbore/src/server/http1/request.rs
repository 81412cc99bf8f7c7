//! What is checked of a request beyond what hyper checks: the same that HTTP/2 rejects as malformed.
//!
//! hyper rejects invalid names and values, lines that are folded, content-lengths that differ or are no numbers,
//! `transfer-encoding` that does not end with `chunked` or that is in a request of HTTP/1.0, and invalid targets.

use std::io::BufRead;

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};

/// Checks the head of a request. `noted`, for one with a body, is what the transport brought for it, perhaps with more, or
/// without its beginning.
///
/// # Errors
/// The status that refuses the request. The connection is closed behind it.
pub(super) fn check(head: &Parts, noted: Option<&[u8]>) -> Result<(), StatusCode> {
    check_target(&head.method, &head.uri)?;
    check_host(&head.headers, &head.uri, head.version)?;
    // hyper reads a body when there is such a field.
    match noted {
        Some(noted) if head.headers.contains_key(TRANSFER_ENCODING) => check_transfer_encoding(head, noted),
        _ => Ok(()),
    }
}

/// The four forms of a target (RFC 9112 section 3.2).
fn check_target(method: &Method, uri: &Uri) -> Result<(), StatusCode> {
    if uri.authority().is_none() && method != Method::CONNECT {
        // origin-form, or asterisk-form
        let path = uri.path();
        let valid = path.starts_with('/') || (path == "*" && method == Method::OPTIONS);
        return valid.then_some(()).ok_or(StatusCode::BAD_REQUEST);
    }
    check_authority(method, uri)
}

/// The forms with an authority, and CONNECT.
#[cold]
fn check_authority(method: &Method, uri: &Uri) -> Result<(), StatusCode> {
    let valid = match (uri.authority(), uri.scheme()) {
        // authority-form, which `Uri` also reads in `GET name HTTP/1.1`
        (Some(authority), None) => method == Method::CONNECT && !authority.as_str().contains('@'),
        // absolute-form
        (Some(authority), Some(_)) => method != Method::CONNECT && !authority.as_str().contains('@'),
        (None, _) => false,
    };
    valid.then_some(()).ok_or(StatusCode::BAD_REQUEST)
}

/// One `host` field (RFC 9112 section 3.2), which does not contradict the target.
fn check_host(headers: &HeaderMap, uri: &Uri, version: Version) -> Result<(), StatusCode> {
    // Most heads have no field twice, and this one first (RFC 9110 section 7.2), which saves the search for it.
    let is_repeated = headers.len() != headers.keys_len() && is_host_repeated(headers);
    let host = match headers.iter().next() {
        Some((name, host)) if *name == HOST => Some(host),
        _ => find_host(headers),
    };
    let valid = match host {
        None => version != Version::HTTP_11,
        Some(host) => {
            !is_repeated
                && is_host(host.as_bytes())
                && uri
                    .authority()
                    .is_none_or(|named| agree(named.as_str(), host, uri))
        }
    };
    valid.then_some(()).ok_or(StatusCode::BAD_REQUEST)
}

#[cold]
fn is_host_repeated(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().nth(1).is_some()
}

#[cold]
fn find_host(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(HOST)
}

/// Whether a value has only characters of a host and a port.
fn is_host(value: &[u8]) -> bool {
    // Most hosts are short, so that a little code costs less than more code that looks at several bytes at once.
    value.iter().all(|byte| HOST_BYTES[usize::from(*byte)])
}

const HOST_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=:[]%";
    let mut index = 0;
    while index < others.len() {
        allowed[others[index] as usize] = true;
        index += 1;
    }
    allowed
};

/// Whether the authority of the target and the `host` field are the same, but for letters' case and the scheme's port.
#[cold]
fn agree(named: &str, host: &HeaderValue, uri: &Uri) -> bool {
    let default = match uri.scheme_str() {
        Some("https") => ":443",
        Some("http") => ":80",
        _ => "",
    };
    let host = host.to_str().unwrap_or_default();
    let named = named.strip_suffix(default).unwrap_or(named);
    named.eq_ignore_ascii_case(host.strip_suffix(default).unwrap_or(host))
}

/// Only `chunked` is implemented (RFC 9112 section 6.1), and a `content-length` beside it is an attempt to smuggle a request
/// (section 6.3). hyper removes that field, so it is looked for in what the transport brought. Where it is not found there,
/// behind 16 KiB or in a head whose beginning came behind a chunked body in one read, hyper closes the connection after the
/// response.
#[cold]
fn check_transfer_encoding(head: &Parts, noted: &[u8]) -> Result<(), StatusCode> {
    let mut values = head.headers.get_all(TRANSFER_ENCODING).iter();
    let only = match (values.next(), values.next()) {
        (Some(value), None) => value.as_bytes(),
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    if !only.trim_ascii().eq_ignore_ascii_case(b"chunked") {
        let repeated = only
            .split(|&byte| byte == b',')
            .filter(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
            .count();
        return Err(match repeated {
            1 => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        });
    }
    let mut within = false;
    let (mut encoding, mut length) = (false, false);
    for line in noted.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if within && encoding && length {
                return Err(StatusCode::BAD_REQUEST);
            }
            within = false;
        } else if is_request_line(line, &head.method) {
            within = true;
            (encoding, length) = (false, false);
        } else {
            encoding |= is_field(line, b"transfer-encoding");
            length |= is_field(line, b"content-length");
        }
    }
    Ok(())
}

/// Where the message that begins `noted` ends there, with a body of `body` bytes.
pub(super) fn message_end(noted: &[u8], body: u64) -> usize {
    let mut rest = noted;
    // Empty lines may precede a request line (RFC 9112 section 2.2).
    let mut within = false;
    while !rest.is_empty() {
        let empty = rest.starts_with(b"\r\n") || rest.starts_with(b"\n");
        // It looks for many bytes at a time, and a slice cannot fail.
        let _ = rest.skip_until(b'\n');
        if empty && within {
            break;
        }
        within |= !empty;
    }
    let head = noted.len() - rest.len();
    head.saturating_add(usize::try_from(body).unwrap_or(usize::MAX))
}

fn is_request_line(line: &[u8], method: &Method) -> bool {
    line.strip_prefix(method.as_str().as_bytes())
        .is_some_and(|rest| rest.starts_with(b" "))
        && line.ends_with(b"HTTP/1.1")
}

fn is_field(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(name))
        && line.get(name.len()) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.version(Version::HTTP_11).body(()).expect("a request");
        request.into_parts().0
    }

    fn status(method: &str, target: &str, fields: &[(&str, &str)]) -> u16 {
        let checked = check(&request(method, target, fields), Some(b""));
        checked.map_or_else(|status| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_target_has_the_form_that_its_method_demands() {
        for (method, target, expected) in [
            ("GET", "/", 200),
            ("GET", "/a?b", 200),
            ("GET", "http://h/", 200),
            ("GET", "http://H:80/", 200),
            ("OPTIONS", "*", 200),
            ("CONNECT", "h:80", 200),
            ("GET", "*", 400),
            ("GET", "h", 400),
            ("GET", "h:80", 400),
            ("GET", "http://other/", 400),
            ("GET", "http://user@h/", 400),
            ("CONNECT", "/", 400),
            ("CONNECT", "http://h/", 400),
        ] {
            let host = if target.ends_with(":80") { "h:80" } else { "h" };
            assert_eq!(
                status(method, target, &[("host", host)]),
                expected,
                "{method} {target}"
            );
        }
    }

    #[test]
    fn there_is_one_host_field_with_a_host() {
        for (fields, expected) in [
            (&[("host", "example.com:8080")][..], 200),
            (&[("host", "[::1]")], 200),
            (&[("host", "")], 200),
            (&[], 400),
            (&[("host", "a"), ("host", "a")], 400),
            (&[("host", "a/b")], 400),
            (&[("host", "user@a")], 400),
            (&[("host", "a b")], 400),
        ] {
            assert_eq!(status("GET", "/", fields), expected, "{fields:?}");
        }
        let mut old = request("GET", "/", &[]);
        old.version = Version::HTTP_10;
        assert_eq!(check(&old, None), Ok(()));
    }

    #[test]
    fn a_transfer_encoding_is_chunked_and_nothing_else() {
        for (encodings, expected) in [
            (&["chunked"][..], 200),
            (&["Chunked"], 200),
            (&["gzip, chunked"], 501),
            (&["identity, chunked"], 501),
            (&["chunked, chunked"], 400),
            (&["gzip", "chunked"], 400),
        ] {
            let mut fields = vec![("host", "h")];
            fields.extend(encodings.iter().map(|encoding| ("transfer-encoding", *encoding)));
            assert_eq!(status("POST", "/", &fields), expected, "{encodings:?}");
        }
    }

    #[test]
    fn the_end_of_a_message_is_that_of_its_head_and_body() {
        for (noted, body, end) in [
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0, 27),
            ("\r\n\nGET / HTTP/1.1\nHost: h\n\nGET", 0, 27),
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\nabcdGET", 4, 31),
            ("GET / HTTP/1.1\r\n\r\nabc", 100, 118),
            ("GET / HTTP/1.1\r\n", 0, 16),
            ("", 0, 0),
        ] {
            assert_eq!(message_end(noted.as_bytes(), body), end, "{noted:?}");
        }
    }

    #[test]
    fn a_content_length_beside_a_transfer_encoding_is_found_in_its_own_head_only() {
        let chunked = request("POST", "/", &[("host", "h"), ("transfer-encoding", "chunked")]);
        let check = |noted: &str| check(&chunked, Some(noted.as_bytes())).is_ok();
        let both = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reversed = "POST / HTTP/1.1\nTRANSFER-ENCODING: chunked\ncontent-length:5\n\n";
        let alone = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let length = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
        assert!(!check(both) && !check(reversed));
        assert!(check(alone) && check(&format!("{length}\r\n{alone}")));
        assert!(!check(&format!("GET / HTTP/1.1\r\nHost: h\r\n\r\n{both}")));
        // Lines before the request line are of another message, and lines that resemble one are none.
        let body = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(check(&format!("{body}{alone}")));
        assert!(check(&format!("POST nothing\r\n{body}{alone}")));
        assert!(check(&format!("{alone}13\r\nContent-Length: 5\r\n\r\n\r\n")));
        for field in ["Via: HTTP/1.1", "POST-By: HTTP/1.1"] {
            let between = both.replace("Transfer", &format!("{field}\r\nTransfer"));
            assert!(!check(&between), "{between}");
        }
    }
}
