//! Transfer codings of responses of HTTP/1.1 that nobody asked for and nobody decodes.

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;

use crate::exit::{Exit, Failure};

/// Refuses a body that has another transfer coding than `chunked`, which the library has removed. The client sends no `TE`, so
/// a server must not send one (RFC 9110 section 10.1.4). The octets would be saved as they are, as if they were the body.
///
/// # Errors
/// The body is coded.
pub(crate) fn refuse(place: &str, headers: &HeaderMap) -> Result<(), Failure> {
    if !is_coded(headers) {
        return Ok(());
    }
    let text = format!(
        "{place}: the body has a transfer coding that was not asked for and is not decoded ({}); this is an error of the \
         server, which has no such codings over HTTP/2",
        shown(headers)
    );
    Err(Failure::new(Exit::Protocol, text))
}

/// Whether a coding is left on the body. `identity` is none; servers of RFC 2616 send it.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = fields.flat_map(|field| field.as_bytes().split(|&octet| octet == b','));
    let codings = codings.map(<[u8]>::trim_ascii);
    let mut codings =
        codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => !coding.eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

fn shown(headers: &HeaderMap) -> String {
    let codings = headers.get_all(TRANSFER_ENCODING).iter();
    let codings: Vec<String> = codings
        .map(|coding| coding.as_bytes().escape_ascii().to_string())
        .collect();
    codings.join(", ")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_chunks_are_taken_off_a_body() {
        for (codings, expected) in [
            (&[][..], false),
            (&["chunked"], false),
            (&["Chunked "], false),
            (&["gzip, chunked"], true),
            (&["gzip"], true),
            (&["identity"], false),
            (&["identity, chunked"], false),
            (&["identity, gzip"], true),
            (&["gzip", "chunked"], true),
            (&["chunked, chunked"], true),
        ] {
            let mut headers = HeaderMap::new();
            for coding in codings {
                headers.append(TRANSFER_ENCODING, HeaderValue::from_static(coding));
            }
            assert_eq!(is_coded(&headers), expected, "{codings:?}");
            assert_eq!(refuse("u", &headers).is_err(), expected);
        }
    }
}
