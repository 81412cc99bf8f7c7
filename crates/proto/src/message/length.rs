//! The length that a message declares for its body by `content-length`, read in one way for messages of both directions, and by
//! whoever has a header map.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};

use super::malformed::Malformed;

/// The length that a message of the peer declares for its body, in bytes. A value may be there several times, as fields or in
/// a list, as long as it is the same (RFC 9110 section 8.6).
pub(crate) fn received_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        agree_on_length(&mut length, value)?;
    }
    Ok(length)
}

/// Takes in one `content-length` field; `length` is what those before it said.
pub(super) fn agree_on_length(length: &mut Option<u64>, value: &HeaderValue) -> Result<(), Malformed> {
    for item in value.as_bytes().split(|&octet| octet == b',') {
        let item = decimal(item.trim_ascii()).ok_or(Malformed::ContentLength)?;
        if length.replace(item).is_some_and(|length| length != item) {
            return Err(Malformed::ContentLengthsDiffer);
        }
    }
    Ok(())
}

/// The number that decimal digits, and nothing else, stand for; `None` if there are none, or the number passes 64 bits.
///
/// ```
/// assert_eq!(fullbore_proto::decimal(b"012"), Some(12));
/// assert_eq!(fullbore_proto::decimal(b"+12"), None);
/// ```
#[must_use]
pub fn decimal(digits: &[u8]) -> Option<u64> {
    digits.first()?;
    digits.iter().try_fold(0u64, |number, octet| {
        let digit = octet.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
