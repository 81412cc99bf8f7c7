//! The static table (RFC 7541 Appendix A), read both ways, and the policy on what enters the dynamic one.
//!
//! The decoder asks for a field by its index, the encoder for an index by its field.

use bytes::Bytes;
use http::{HeaderValue, header};

use super::field::{ENTRY_OVERHEAD, Field, FieldName, FieldNameRef, FieldValue};

/// The number of entries; the dynamic table's indexes follow.
pub(super) const LEN: usize = 61;

/// The name parsed, the name, the value. An index is a position and one.
#[rustfmt::skip]
static ENTRIES: [(FieldName, &str, &str); LEN] = [
    (FieldName::Authority, ":authority", ""),
    (FieldName::Method, ":method", "GET"),
    (FieldName::Method, ":method", "POST"),
    (FieldName::Path, ":path", "/"),
    (FieldName::Path, ":path", "/index.html"),
    (FieldName::Scheme, ":scheme", "http"),
    (FieldName::Scheme, ":scheme", "https"),
    (FieldName::Status, ":status", "200"),
    (FieldName::Status, ":status", "204"),
    (FieldName::Status, ":status", "206"),
    (FieldName::Status, ":status", "304"),
    (FieldName::Status, ":status", "400"),
    (FieldName::Status, ":status", "404"),
    (FieldName::Status, ":status", "500"),
    (FieldName::Field(header::ACCEPT_CHARSET), "accept-charset", ""),
    (FieldName::Field(header::ACCEPT_ENCODING), "accept-encoding", "gzip, deflate"),
    (FieldName::Field(header::ACCEPT_LANGUAGE), "accept-language", ""),
    (FieldName::Field(header::ACCEPT_RANGES), "accept-ranges", ""),
    (FieldName::Field(header::ACCEPT), "accept", ""),
    (FieldName::Field(header::ACCESS_CONTROL_ALLOW_ORIGIN), "access-control-allow-origin", ""),
    (FieldName::Field(header::AGE), "age", ""),
    (FieldName::Field(header::ALLOW), "allow", ""),
    (FieldName::Field(header::AUTHORIZATION), "authorization", ""),
    (FieldName::Field(header::CACHE_CONTROL), "cache-control", ""),
    (FieldName::Field(header::CONTENT_DISPOSITION), "content-disposition", ""),
    (FieldName::Field(header::CONTENT_ENCODING), "content-encoding", ""),
    (FieldName::Field(header::CONTENT_LANGUAGE), "content-language", ""),
    (FieldName::Field(header::CONTENT_LENGTH), "content-length", ""),
    (FieldName::Field(header::CONTENT_LOCATION), "content-location", ""),
    (FieldName::Field(header::CONTENT_RANGE), "content-range", ""),
    (FieldName::Field(header::CONTENT_TYPE), "content-type", ""),
    (FieldName::Field(header::COOKIE), "cookie", ""),
    (FieldName::Field(header::DATE), "date", ""),
    (FieldName::Field(header::ETAG), "etag", ""),
    (FieldName::Field(header::EXPECT), "expect", ""),
    (FieldName::Field(header::EXPIRES), "expires", ""),
    (FieldName::Field(header::FROM), "from", ""),
    (FieldName::Field(header::HOST), "host", ""),
    (FieldName::Field(header::IF_MATCH), "if-match", ""),
    (FieldName::Field(header::IF_MODIFIED_SINCE), "if-modified-since", ""),
    (FieldName::Field(header::IF_NONE_MATCH), "if-none-match", ""),
    (FieldName::Field(header::IF_RANGE), "if-range", ""),
    (FieldName::Field(header::IF_UNMODIFIED_SINCE), "if-unmodified-since", ""),
    (FieldName::Field(header::LAST_MODIFIED), "last-modified", ""),
    (FieldName::Field(header::LINK), "link", ""),
    (FieldName::Field(header::LOCATION), "location", ""),
    (FieldName::Field(header::MAX_FORWARDS), "max-forwards", ""),
    (FieldName::Field(header::PROXY_AUTHENTICATE), "proxy-authenticate", ""),
    (FieldName::Field(header::PROXY_AUTHORIZATION), "proxy-authorization", ""),
    (FieldName::Field(header::RANGE), "range", ""),
    (FieldName::Field(header::REFERER), "referer", ""),
    (FieldName::Field(header::REFRESH), "refresh", ""),
    (FieldName::Field(header::RETRY_AFTER), "retry-after", ""),
    (FieldName::Field(header::SERVER), "server", ""),
    (FieldName::Field(header::SET_COOKIE), "set-cookie", ""),
    (FieldName::Field(header::STRICT_TRANSPORT_SECURITY), "strict-transport-security", ""),
    (FieldName::Field(header::TRANSFER_ENCODING), "transfer-encoding", ""),
    (FieldName::Field(header::USER_AGENT), "user-agent", ""),
    (FieldName::Field(header::VARY), "vary", ""),
    (FieldName::Field(header::VIA), "via", ""),
    (FieldName::Field(header::WWW_AUTHENTICATE), "www-authenticate", ""),
];

/// The field of an index from 1 to 61, and its size.
#[inline]
pub(super) fn field(index: usize) -> Option<(Field, usize)> {
    let (parsed, name, value) = ENTRIES.get(index.checked_sub(1)?)?;
    let field = Field {
        name: parsed.clone(),
        value: match parsed {
            FieldName::Field(_) => FieldValue::Header(HeaderValue::from_static(value)),
            _ => FieldValue::Raw(Bytes::from_static(value.as_bytes())),
        },
        never_indexed: false,
    };
    Some((field, name.len() + value.len() + ENTRY_OVERHEAD))
}

/// The name of an index from 1 to 61.
#[inline]
pub(super) fn name(index: usize) -> Option<FieldName> {
    ENTRIES.get(index.checked_sub(1)?).map(|(name, ..)| name.clone())
}

/// The index of `:status` with this code.
#[inline]
pub(super) fn status(code: u16) -> Option<usize> {
    Some(match code {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => return None,
    })
}

/// What the encoder makes of a field by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Enters the dynamic table: it is likely to be repeated on this connection.
    Incremental,
    /// Does not: each value is seen once or twice, and would push out what repeats.
    Without,
    /// Is a secret, and is sent so that no table along the way keeps it (RFC 7541 section 7.1.3).
    Never,
    /// A cookie: a short one is guessable from how well it compresses, a long one repeats and is not.
    Cookie,
}

use Policy::{Cookie, Incremental, Never, Without};

const OTHER: (usize, Policy) = (0, Incremental);

/// The first static index whose name this is, or 0, and the policy on the name.
#[inline]
pub(super) fn rule(name: FieldNameRef<'_>) -> (usize, Policy) {
    match name {
        FieldNameRef::Authority => (1, Incremental),
        FieldNameRef::Method => (2, Incremental),
        // Static or not repeated: clients ask for thousands of paths over one connection.
        FieldNameRef::Path => (4, Without),
        FieldNameRef::Scheme => (6, Incremental),
        FieldNameRef::Status => (8, Incremental),
        FieldNameRef::Protocol | FieldNameRef::Malformed(_) => OTHER,
        FieldNameRef::Field(name) => rule_of_field(name.as_str().as_bytes()),
    }
}

/// By length first: most names are then told by one comparison.
fn rule_of_field(name: &[u8]) -> (usize, Policy) {
    match name.len() {
        3 => match name {
            b"age" => (21, Without),
            b"via" => (60, Incremental),
            _ => OTHER,
        },
        4 => match name {
            b"date" => (33, Incremental),
            b"etag" => (34, Without),
            b"from" => (37, Incremental),
            b"host" => (38, Incremental),
            b"link" => (45, Incremental),
            b"vary" => (59, Incremental),
            _ => OTHER,
        },
        5 => match name {
            b"allow" => (22, Incremental),
            b"range" => (50, Without),
            _ => OTHER,
        },
        6 => match name {
            b"accept" => (19, Incremental),
            b"cookie" => (32, Cookie),
            b"expect" => (35, Incremental),
            b"server" => (54, Incremental),
            _ => OTHER,
        },
        7 => match name {
            b"expires" => (36, Without),
            b"referer" => (51, Incremental),
            b"refresh" => (52, Incremental),
            _ => OTHER,
        },
        8 => match name {
            b"if-match" => (39, Without),
            b"if-range" => (42, Without),
            b"location" => (46, Without),
            _ => OTHER,
        },
        10 => match name {
            b"set-cookie" => (55, Without),
            b"user-agent" => (58, Incremental),
            _ => OTHER,
        },
        11 => match name {
            b"retry-after" => (53, Incremental),
            b"traceparent" => (0, Without),
            _ => OTHER,
        },
        12 => match name {
            b"content-type" => (31, Incremental),
            b"max-forwards" => (47, Incremental),
            b"x-request-id" => (0, Without),
            _ => OTHER,
        },
        13 => match name {
            b"accept-ranges" => (18, Incremental),
            b"authorization" => (23, Never),
            b"cache-control" => (24, Incremental),
            b"content-range" => (30, Without),
            b"if-none-match" => (41, Without),
            b"last-modified" => (44, Without),
            _ => OTHER,
        },
        14 => match name {
            b"accept-charset" => (15, Incremental),
            b"content-length" => (28, Without),
            _ => OTHER,
        },
        15 => match name {
            b"accept-encoding" => (16, Incremental),
            b"accept-language" => (17, Incremental),
            _ => OTHER,
        },
        16 => match name {
            b"content-encoding" => (26, Incremental),
            b"content-language" => (27, Incremental),
            b"content-location" => (29, Incremental),
            b"www-authenticate" => (61, Incremental),
            _ => OTHER,
        },
        17 => match name {
            b"if-modified-since" => (40, Without),
            b"transfer-encoding" => (57, Incremental),
            _ => OTHER,
        },
        18 => match name {
            b"proxy-authenticate" => (48, Incremental),
            _ => OTHER,
        },
        19 => match name {
            b"content-disposition" => (25, Incremental),
            b"if-unmodified-since" => (43, Without),
            b"proxy-authorization" => (49, Never),
            _ => OTHER,
        },
        25 => match name {
            b"strict-transport-security" => (56, Incremental),
            _ => OTHER,
        },
        27 => match name {
            b"access-control-allow-origin" => (20, Incremental),
            _ => OTHER,
        },
        _ => OTHER,
    }
}

/// The static index of a name and value, given the first index of the name.
#[inline]
pub(super) fn exact(first_index: usize, value: &[u8]) -> Option<usize> {
    match (first_index, value) {
        (2, b"GET") => Some(2),
        (2, b"POST") => Some(3),
        (4, b"/") => Some(4),
        (4, b"/index.html") => Some(5),
        (6, b"http") => Some(6),
        (6, b"https") => Some(7),
        (8, b"200") => Some(8),
        (8, b"204") => Some(9),
        (8, b"206") => Some(10),
        (8, b"304") => Some(11),
        (8, b"400") => Some(12),
        (8, b"404") => Some(13),
        (8, b"500") => Some(14),
        (16, b"gzip, deflate") => Some(16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_status_is_that_of_its_entry() {
        let known: Vec<u16> = (100..600).filter(|&code| status(code).is_some()).collect();
        assert_eq!(known, [200, 204, 206, 304, 400, 404, 500]);
        for code in known {
            let (field, _) = field(status(code).unwrap()).unwrap();
            assert_eq!(field.name, FieldName::Status);
            assert_eq!(field.value.as_bytes(), code.to_string().as_bytes());
        }
    }

    #[test]
    fn each_parsed_name_is_the_name_of_its_entry() {
        for (index, (parsed, name, value)) in ENTRIES.iter().enumerate() {
            assert_eq!(&FieldName::parse(name.as_bytes()), parsed);
            let (field, size) = field(index + 1).unwrap();
            assert_eq!(field.size(), size);
            assert_eq!(field.value.as_bytes(), value.as_bytes());
        }
        assert!(field(0).is_none());
        assert!(field(62).is_none());
        assert!(name(0).is_none());
        assert!(name(62).is_none());
    }

    #[test]
    fn each_name_leads_back_to_its_first_index() {
        for (parsed, name, _) in &ENTRIES {
            let first = ENTRIES.iter().position(|entry| entry.1 == *name).unwrap() + 1;
            assert_eq!(rule(parsed.into()).0, first, "{name}");
        }
    }

    #[test]
    fn each_entry_with_a_value_is_found_by_it() {
        for (index, (parsed, name, value)) in ENTRIES.iter().enumerate() {
            let found = exact(rule(parsed.into()).0, value.as_bytes());
            assert_eq!(found, (!value.is_empty()).then_some(index + 1), "{name}: {value}");
        }
    }

    #[test]
    fn secrets_are_never_indexed_and_singular_values_not_indexed() {
        for (name, policy) in [
            ("authorization", Never),
            ("proxy-authorization", Never),
            ("cookie", Cookie),
            ("set-cookie", Without),
            ("etag", Without),
            ("content-length", Without),
            ("x-request-id", Without),
            ("date", Incremental),
            ("user-agent", Incremental),
            ("x-anything", Incremental),
        ] {
            assert_eq!(
                rule((&FieldName::parse(name.as_bytes())).into()).1,
                policy,
                "{name}"
            );
        }
    }
}
