//! The `accept` field of a request (RFC 9110 section 12.5.1), and lists with weights. Called by `form`, `listing`, `files` and
//! `encoding`.
//!
//! With HPACK a request repeats a field of 60 KB for one byte, so that reading a field must cost less than the rest of a
//! request: of a list, the first elements count. Those of browsers have 200 bytes.

use http::HeaderMap;
use http::header::{ACCEPT, HeaderName};

/// The most bytes of a list that are read, and the most elements.
const LIST_BYTES: usize = 4 * 1024;
const LIST_ELEMENTS: usize = 64;

/// The most parameters of an element that are read.
const PARAMETERS: usize = 8;

/// What a client that can show pages may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Html,
    Json,
}

/// The form of a listing that the client prefers; HTML if it does not say.
pub(crate) fn preferred(headers: &HeaderMap) -> Form {
    let (html, json) = (
        quality(headers, "text/html"),
        quality(headers, "application/json"),
    );
    match json > html {
        true => Form::Json,
        false => Form::Html,
    }
}

/// Whether the client names HTML, as browsers do and other programs do not.
pub(crate) fn prefers_html(headers: &HeaderMap) -> bool {
    ranges(headers).any(|(range, quality)| range.eq_ignore_ascii_case("text/html") && quality > 0)
}

/// Whether a response in HTML is of use: a client that says nothing takes anything.
pub(crate) fn takes_html(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT) || quality(headers, "text/html") > 0
}

/// The weight of a media type in thousandths, by the most specific range that matches.
fn quality(headers: &HeaderMap, media_type: &str) -> u16 {
    let kind = media_type.split('/').next().unwrap_or_default();
    let mut best = (0, 0);
    for (range, quality) in ranges(headers) {
        let specific = match range.split_once('/') {
            _ if range.eq_ignore_ascii_case(media_type) => 3,
            Some((of, "*")) if of.eq_ignore_ascii_case(kind) => 2,
            Some(("*", "*")) => 1,
            _ => continue,
        };
        if specific > best.0 {
            best = (specific, quality);
        }
    }
    best.1
}

/// The media ranges of the field with their weights; parameters other than the weight are ignored.
fn ranges(headers: &HeaderMap) -> impl Iterator<Item = (&str, u16)> {
    elements(headers, ACCEPT).map(weighted)
}

/// The first elements of a list, which may be in several fields. An element that is cut is the last one.
pub(crate) fn elements(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let mut left = LIST_BYTES;
    let values = headers.get_all(name).iter().map_while(move |value| {
        let read = value.as_bytes().get(..left).unwrap_or(value.as_bytes());
        left -= read.len();
        (left > 0 || !read.is_empty()).then_some(std::str::from_utf8(read).unwrap_or_default())
    });
    values
        .take(LIST_ELEMENTS)
        .flat_map(|value| value.split(','))
        .take(LIST_ELEMENTS)
}

/// An element of a list with weights, such as `text/html;level=1;q=0.5`: what it is, and its weight in thousandths. A
/// weight that is malformed is 0.
pub(crate) fn weighted(element: &str) -> (&str, u16) {
    let mut parts = element.split(';').take(1 + PARAMETERS).map(str::trim);
    let what = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    (
        what,
        weight.map_or(1_000, |weight| thousandths(weight).unwrap_or(0)),
    )
}

/// RFC 9110 section 12.4.2: 0 to 1 with up to three decimals.
fn thousandths(weight: &str) -> Option<u16> {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    if !matches!(whole, "0" | "1") || decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value = u16::from(whole == "1");
    let digits = decimals.bytes().chain(std::iter::repeat(b'0')).take(3);
    for digit in digits {
        value = value * 10 + u16::from(digit - b'0');
    }
    (value <= 1_000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_listing_is_html_unless_json_is_preferred() {
        for (accept, expected) in [
            ("", Form::Html),
            ("*/*", Form::Html),
            ("application/json", Form::Json),
            ("application/json, */*;q=0.1", Form::Json),
            ("text/html, application/json;q=0.9", Form::Html),
            ("text/html;q=0.5, application/json", Form::Json),
            (
                "text/html, application/xhtml+xml, application/xml;q=0.9, */*;q=0.8",
                Form::Html,
            ),
            ("application/*", Form::Json),
            ("application/json;q=0", Form::Html),
            ("Application/JSON", Form::Json),
        ] {
            assert_eq!(preferred(&headers(accept)), expected, "{accept}");
        }
    }

    #[test]
    fn of_a_long_list_the_first_elements_count() {
        let name = || HeaderName::from_static("accept");
        let mut fields = HeaderMap::new();
        for length in [1, 100, 4_000, 60_000] {
            fields.append(name(), "a".repeat(length).parse().unwrap());
        }
        let lengths: Vec<usize> = elements(&fields, name()).map(str::len).collect();
        assert_eq!(lengths, [1, 100, 3_995]);
        for (accept, expected) in [
            (["a/b"; 63].join(",") + ",text/html", true),
            (["a/b"; 64].join(",") + ",text/html", false),
            (format!("text/html{};q=0", ";a=b".repeat(7)), false),
            (format!("text/html{};q=0", ";a=b".repeat(8)), true),
            ("\u{e9}, text/html".to_owned(), true),
        ] {
            assert_eq!(prefers_html(&headers(&accept)), expected, "{accept}");
        }
        let mut fields = HeaderMap::new();
        for _ in 0..1_000 {
            fields.append(name(), "a".parse().unwrap());
        }
        assert_eq!(elements(&fields, name()).count(), 64);
    }

    #[test]
    fn browsers_name_html_and_others_take_it() {
        for (accept, names, takes) in [
            ("", false, true),
            ("*/*", false, true),
            ("text/html", true, true),
            ("text/html;q=0", false, false),
            ("text/*;q=0.1", false, true),
            ("application/json", false, false),
        ] {
            assert_eq!(prefers_html(&headers(accept)), names, "{accept}");
            assert_eq!(takes_html(&headers(accept)), takes, "{accept}");
        }
    }

    #[test]
    fn weights_are_thousandths() {
        for (element, expected) in [
            ("gzip", ("gzip", 1_000)),
            (" gzip ; q=0.5", ("gzip", 500)),
            ("gzip;q=0", ("gzip", 0)),
            ("gzip;q=0.001", ("gzip", 1)),
            ("gzip;Q=1.000", ("gzip", 1_000)),
            ("gzip;q=1.001", ("gzip", 0)),
            ("gzip;q=2", ("gzip", 0)),
            ("gzip;q=x", ("gzip", 0)),
            ("gzip;q=0.1234", ("gzip", 0)),
            ("a/b;level=1;q=0.3", ("a/b", 300)),
            ("", ("", 1_000)),
        ] {
            assert_eq!(weighted(element), expected, "{element}");
        }
    }
}
