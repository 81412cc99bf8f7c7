//! Whether a range continues a body: the version and range of a response (RFC 9110 sections 8.8, 14.4 and 15.3.7).
//!
//! A 206 response continues an earlier response only if its fields prove that both are parts of one representation.
//!
//! ```
//! use fullbore::client::range::{Extent, Version};
//! use http::{HeaderMap, HeaderValue};
//!
//! let mut whole = HeaderMap::new();
//! whole.insert("etag", HeaderValue::from_static("\"7\""));
//! let version = Version::of(&whole, Some(1_000)).expect("an entity tag is a strong validator");
//! assert_eq!(version.validator().unwrap(), "\"7\"", "the value of If-Range");
//!
//! let mut rest = whole;
//! rest.insert("content-range", HeaderValue::from_static("bytes 600-999/1000"));
//! assert_eq!(version.fit(&rest, 600), Ok(Extent { end: 1_000, total: 1_000 }));
//! assert_eq!(version.fit(&rest, 500), Err("it begins at another position"));
//! ```

use std::time::{Duration, SystemTime};

use fullbore_proto::decimal;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderMap, HeaderName,
    HeaderValue, LAST_MODIFIED,
};

/// Where the range of a 206 response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The offset behind its last byte.
    pub end: u64,
    /// The length of the whole in bytes.
    pub total: u64,
}

impl Extent {
    /// Returns where the range of a 206 response begins and ends; `None` if it does not say so, or leaves out the length of
    /// the whole.
    pub(super) fn of(headers: &HeaderMap) -> Option<(u64, Self)> {
        let range = ContentRange::parse(single(headers, CONTENT_RANGE).ok()??)?;
        let extent = Extent {
            end: range.last.checked_add(1)?,
            total: range.total?,
        };
        Some((range.first, extent))
    }
}

/// The representation that a body is one of, or a part of: its validator, length and content coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    validator: Validator,
    /// The length of the whole in bytes.
    total: Option<u64>,
    coding: Option<HeaderValue>,
}

/// What a second 200 response says about a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The same octets, and the length of the whole, if either response had it.
    Same(Option<u64>),
    /// Another length under the same strong validator, which stands for the same octets (RFC 9110 section 8.8.1).
    Contradicted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Validator {
    Tag(HeaderValue),
    Date(HeaderValue),
    /// Nothing: another program has begun the file, and only its length is known (`--continue`).
    Length,
}

impl Version {
    /// Returns the version of a body with these fields and this length of the whole in bytes; `None` without a strong
    /// validator. A date is one when it is a minute older than the response.
    pub fn of(headers: &HeaderMap, total: Option<u64>) -> Option<Self> {
        Some(Self {
            validator: Validator::of(headers, SystemTime::now())?,
            total,
            coding: headers.get(CONTENT_ENCODING).cloned(),
        })
    }

    /// Returns the version of a file of which nothing but its beginning is known. Any range that begins there fits.
    pub fn of_begun_file() -> Self {
        Self {
            validator: Validator::Length,
            total: None,
            coding: None,
        }
    }

    /// Returns the version that a 206 response which fits names, for the next request, if this one has no validator.
    pub fn named_by(&self, headers: &HeaderMap, total: u64) -> Option<Self> {
        match self.validator {
            Validator::Length => Self::of(headers, Some(total)),
            Validator::Tag(_) | Validator::Date(_) => None,
        }
    }

    /// Returns the value of `If-Range`; `None` for [`Self::of_begun_file`].
    pub fn validator(&self) -> Option<&HeaderValue> {
        match &self.validator {
            Validator::Tag(value) | Validator::Date(value) => Some(value),
            Validator::Length => None,
        }
    }

    /// Returns the length of the whole in bytes, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns what a 200 response of another version says about the octets of this one; `None` if it is another
    /// version, or none that is known.
    pub fn seen_again(&self, other: Option<&Self>) -> Option<Seen> {
        let other = other.filter(|other| other.validator == self.validator && other.coding == self.coding)?;
        Some(match (self.total, other.total) {
            (Some(old), Some(new)) if old != new => Seen::Contradicted,
            (old, new) => Seen::Same(old.or(new)),
        })
    }

    /// Returns octets that are unique for this version of a URL's body.
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        let total = self.total.map(|total| total.to_string()).unwrap_or_default();
        let coding = self.coding.as_ref().map_or(&[][..], HeaderValue::as_bytes);
        let kind: &[u8] = match self.validator {
            Validator::Tag(_) => b"tag",
            Validator::Date(_) => b"date",
            Validator::Length => b"length",
        };
        let validator = self.validator().map_or(&[][..], HeaderValue::as_bytes);
        for part in [kind, validator, total.as_bytes(), coding] {
            key.extend((part.len() as u64).to_be_bytes());
            key.extend(part);
        }
        key
    }

    /// Checks that a 206 response carries a range of this version that begins at `offset`.
    ///
    /// # Errors
    /// Why it does not.
    pub fn fit(&self, headers: &HeaderMap, offset: u64) -> Result<Extent, &'static str> {
        if headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes()
                .to_ascii_lowercase()
                .starts_with(b"multipart/byteranges")
        }) {
            return Err("it has several ranges");
        }
        let range = single(headers, CONTENT_RANGE)?.ok_or("it has no Content-Range")?;
        let range = ContentRange::parse(range).ok_or("its Content-Range is invalid")?;
        if range.first != offset {
            return Err("it begins at another position");
        }
        let total = match (range.total, self.total) {
            (Some(new), Some(old)) if new != old => return Err("the whole has another length"),
            (Some(total), _) | (None, Some(total)) => total,
            (None, None) => return Err("the length of the whole is unknown"),
        };
        if range.last >= total {
            return Err("it ends after the end of the whole");
        }
        let end = range.last + 1;
        if let Some(length) = single(headers, CONTENT_LENGTH)? {
            if decimal(length.as_bytes()) != Some(end - offset) {
                return Err("its content-length differs from its Content-Range");
            }
        }
        self.fit_validator(headers)?;
        match single(headers, CONTENT_ENCODING)? {
            Some(coding) if Some(coding) != self.coding.as_ref() => Err("it has another content coding"),
            _ => Ok(Extent { end, total }),
        }
    }

    /// A 206 response has the entity tag of a 200 response (RFC 9110 section 15.3.7). It may omit the date, since `If-Range`
    /// has compared it.
    fn fit_validator(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let tag = single(headers, ETAG)?;
        let date = single(headers, LAST_MODIFIED)?;
        let same = match &self.validator {
            Validator::Tag(old) => tag == Some(old),
            Validator::Length => true,
            Validator::Date(old) => tag.is_none() && date.is_none_or(|new| new == old),
        };
        if same {
            Ok(())
        } else {
            Err("it is of another version")
        }
    }
}

impl Validator {
    /// A validator for `If-Range`: a strong entity tag, or without any tag a strong date (RFC 9110 section 13.1.5).
    fn of(headers: &HeaderMap, now: SystemTime) -> Option<Self> {
        match single(headers, ETAG).ok()? {
            Some(tag) => is_strong(tag.as_bytes()).then(|| Self::Tag(tag.clone())),
            None => {
                let date = single(headers, LAST_MODIFIED).ok()??;
                is_settled(date, headers, now).then(|| Self::Date(date.clone()))
            }
        }
    }
}

/// `"…"`, and not `W/"…"`.
fn is_strong(tag: &[u8]) -> bool {
    tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"")
}

/// How much older than its response a date is when it is a strong validator (RFC 9110 section 8.8.2.2): a file may change
/// twice within a second, and nobody knows whether both times are of one clock. 60 s as in RFC 7232 section 2.2.2.
const SETTLED: Duration = Duration::from_secs(60);

/// Whether a date is a strong validator. A response without a date is from now (RFC 9110 section 6.6.1).
fn is_settled(modified: &HeaderValue, headers: &HeaderMap, now: SystemTime) -> bool {
    let date = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
    let made = match headers.get(DATE) {
        Some(value) => date(value),
        None => Some(now),
    };
    let settled = date(modified).and_then(|modified| modified.checked_add(SETTLED));
    matches!((settled, made), (Some(settled), Some(made)) if settled <= made)
}

/// The field of this name, which must not be repeated.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&HeaderValue>, &'static str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err("it repeats a field that must be unique"),
    }
}

/// `bytes 5-9/10` or `bytes 5-9/*` (RFC 9110 section 14.4).
#[derive(Debug, PartialEq, Eq)]
struct ContentRange {
    first: u64,
    last: u64,
    total: Option<u64>,
}

impl ContentRange {
    fn parse(value: &HeaderValue) -> Option<Self> {
        let text = value.as_bytes();
        let unit = text.get(..6)?;
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        let (range, total) = split(text.get(6..)?, b'/')?;
        let (first, last) = split(range, b'-')?;
        let (first, last) = (decimal(first)?, decimal(last)?);
        let total = match total {
            b"*" => None,
            total => Some(decimal(total)?),
        };
        (first <= last && total.is_none_or(|total| last < total)).then_some(Self { first, last, total })
    }
}

/// Returns the length of the whole that a 416 response names, as in `Content-Range: bytes */10`.
pub fn whole_length(headers: &HeaderMap) -> Option<u64> {
    let value = single(headers, CONTENT_RANGE).ok()??;
    decimal(value.as_bytes().strip_prefix(b"bytes */")?)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|&octet| octet == at)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_content_range_is_read_or_not_guessed() {
        let parse = |text: &'static str| {
            ContentRange::parse(&HeaderValue::from_static(text))
                .map(|range| (range.first, range.last, range.total))
        };
        assert_eq!(parse("bytes 5-9/10"), Some((5, 9, Some(10))));
        assert_eq!(parse("Bytes 5-9/*"), Some((5, 9, None)));
        assert_eq!(parse("bytes 5-5/6"), Some((5, 5, Some(6))));
        for wrong in [
            "bytes */10",
            "octets 5-9/10",
            "bytes 5-4/10",
            "bytes 5-10/10",
            "bytes 5-9",
            "bytes -9/10",
            "bytes 5-/10",
            "bytes +5-9/10",
            "bytes 5 - 9/10",
            "bytes 5-9/99999999999999999999",
            "bytes=5-9/10",
            "",
            "bytes 0-18446744073709551615/*x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse("bytes 0-18446744073709551615/*"), Some((0, u64::MAX, None)));
    }

    #[test]
    fn a_range_that_ends_at_the_last_number_there_is_fits_no_body() {
        let version = Version::of(&headers(&[("etag", "\"a\"")]), None);
        let fit = |fields| version.as_ref().map(|version| version.fit(&headers(fields), 0));
        assert_eq!(
            fit(&[
                ("etag", "\"a\""),
                ("content-range", "bytes 0-18446744073709551615/*")
            ]),
            Some(Err("the length of the whole is unknown"))
        );
        assert_eq!(
            fit(&[("etag", "\"a\""), ("content-range", "bytes 0-4/9")]),
            Some(Ok(Extent { end: 5, total: 9 }))
        );
    }

    #[test]
    fn a_date_is_strong_once_it_is_a_minute_old() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
        let strong =
            |fields: &[(&'static str, &'static str)], now| Validator::of(&headers(fields), now).is_some();
        for (seconds, expected) in [(0, false), (1, false), (59, false), (60, true)] {
            let now = now + Duration::from_secs(seconds);
            assert_eq!(strong(&[("last-modified", modified)], now), expected, "{seconds}");
        }
        assert!(strong(
            &[
                ("last-modified", modified),
                ("date", "Sun, 06 Nov 1994 08:50:37 GMT")
            ],
            now
        ));
        for date in ["yesterday", "Sun, 06 Nov 1994 08:50:36 GMT"] {
            let fields = [("last-modified", modified), ("date", date)];
            assert!(!strong(&fields, now + Duration::from_secs(90)), "{date}");
        }
        assert!(!strong(
            &[
                ("etag", "W/\"a\""),
                ("last-modified", "Sun, 06 Nov 1990 08:49:37 GMT")
            ],
            now
        ));
        assert!(!strong(&[("etag", "\"")], now));
        assert!(
            strong(&[("etag", "\"\"")], now),
            "RFC 9110 section 8.8.3 allows an empty one"
        );
    }

    #[test]
    fn a_key_differs_with_each_of_its_parts() {
        let key = |fields: &[(&'static str, &'static str)], total| {
            Version::of(&headers(fields), total).map(|version| version.key())
        };
        let all = [
            key(&[("etag", "\"a\"")], Some(1)),
            key(&[("etag", "\"b\"")], Some(1)),
            key(&[("etag", "\"a\"")], Some(2)),
            key(&[("etag", "\"a\"")], None),
            key(&[("etag", "\"a\""), ("content-encoding", "gzip")], Some(1)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(one.is_some());
            assert!(!all[index + 1..].contains(one), "{index}");
        }
    }
}
