//! Fields that speak of one connection and are not passed on (RFC 9110 section 7.6.1), and those that a gateway itself reads.

use std::net::Ipv6Addr;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, VIA,
};
use http::{Method, Version};

/// The fields that say how long a message is and to whom it is: `connection` cannot name them.
const NEVER_NAMED: [&str; 4] = ["content-length", "host", "te", "trailer"];

/// The fields that trailers cannot have, besides those of a connection: an origin that reads them would take them for those of the
/// message (RFC 9110 section 6.5.1). Node ends its connection at `connection: close` in trailers, and answers the next request,
/// another client's, with 400.
const NEVER_TRAILERS: [HeaderName; 5] = [AUTHORIZATION, CONTENT_LENGTH, HOST, TE, TRAILER];

/// How often a message may have passed a fullbore proxy. More is a circle.
const MOST_HOPS: usize = 16;

const MAX_FORWARDS: HeaderName = HeaderName::from_static("max-forwards");

/// Removes the fields that speak of one connection, and those that `connection` names. `te` stays if it says `trailers`.
pub(crate) fn remove_of_connection(headers: &mut HeaderMap) {
    // Most messages have none of them.
    let of_connection = headers.keys().filter(|name| is_of_connection(name));
    let of_connection: Vec<_> = of_connection.cloned().collect();
    if of_connection.is_empty() {
        return;
    }
    let wants_trailers = lists(headers, &TE, "trailers");
    for name in named(headers).iter().chain(&of_connection) {
        headers.remove(name);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn is_of_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes from trailers what speaks of the connection, and what frames, addresses or authorizes a message.
pub(crate) fn remove_from_trailers(trailers: &mut HeaderMap) {
    remove_of_connection(trailers);
    for name in &NEVER_TRAILERS {
        trailers.remove(name);
    }
}

/// Whether all names are tokens (RFC 9110 section 5.1). [`HeaderName`] takes a quote too.
pub(crate) fn are_tokens(headers: &HeaderMap) -> bool {
    headers.keys().all(|name| !name.as_str().contains('"'))
}

/// Whether a host has the form of RFC 3986 section 3.2.2, perhaps with a port. An empty one says that there is none.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else {
        return false;
    };
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            if address.parse::<Ipv6Addr>().is_err() {
                return false;
            }
            ("", port)
        }
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let is_port = match port.strip_prefix(':') {
        Some("") => true,
        Some(port) => port.bytes().all(|octet| octet.is_ascii_digit()) && port.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    host.bytes().all(is_of_name) && is_port
}

/// Whether an octet may be in the name of a host (`reg-name` of RFC 3986 section 3.2.2). Each request asks this of each octet.
fn is_of_name(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(
            octet,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b'%'
        )
}

/// Whether the body has another transfer coding than `chunked`, which was removed already.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = members(headers, &TRANSFER_ENCODING);
    codings.any(|coding| !coding.eq_ignore_ascii_case(b"chunked"))
}

/// The fields that `connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    members(headers, &CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| !NEVER_NAMED.contains(&name.as_str()))
        .collect()
}

/// Whether a list has a member, without regard to case and parameters.
pub(crate) fn lists(headers: &HeaderMap, list: &HeaderName, member: &str) -> bool {
    members(headers, list).any(|found| {
        let name = found.split(|&byte| byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(member.as_bytes())
    })
}

fn members<'a>(headers: &'a HeaderMap, list: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(list).iter();
    values.flat_map(|value| {
        value
            .as_bytes()
            .split(|&byte| byte == b',')
            .map(<[u8]>::trim_ascii)
    })
}

/// Adds this hop to `via` (RFC 9110 section 7.6.3); whether the request goes in a circle.
pub(crate) fn add_hop(headers: &mut HeaderMap, version: Version) -> bool {
    let hops = members(headers, &VIA).filter(|hop| hop.ends_with(b" fullbore"));
    if hops.count() >= MOST_HOPS {
        return true;
    }
    headers.append(
        VIA,
        HeaderValue::from_static(match version {
            Version::HTTP_2 => "2 fullbore",
            Version::HTTP_10 => "1.0 fullbore",
            _ => "1.1 fullbore",
        }),
    );
    false
}

/// Counts `max-forwards` of OPTIONS down (RFC 9110 section 7.6.2); whether the request ends here.
pub(crate) fn is_last_hop(method: &Method, headers: &mut HeaderMap) -> bool {
    if *method != Method::OPTIONS {
        return false;
    }
    let Some(value) = headers.get(MAX_FORWARDS) else {
        return false;
    };
    match value.to_str().ok().and_then(|left| left.parse::<u32>().ok()) {
        Some(0) => true,
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            false
        }
        None => false,
    }
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

    fn left(fields: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = headers(fields);
        remove_of_connection(&mut headers);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let fields = headers.iter();
        let mut left: Vec<_> = fields
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        left.sort();
        left
    }

    #[test]
    fn what_speaks_of_the_connection_is_removed_with_what_connection_names() {
        let removed = [
            ("connection", "close, X-One"),
            ("connection", " x-two ,,keep-alive"),
            ("x-one", "1"),
            ("x-two", "1"),
            ("x-two", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eDp5"),
            ("proxy-authenticate", "Basic"),
            ("transfer-encoding", "chunked"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("upgrade", "h2c"),
        ];
        assert_eq!(left(&removed), []);
        let stay = [
            ("authorization", "Basic eDp5"),
            ("trailer", "x-sum"),
            ("x-three", "1"),
        ];
        let all: Vec<_> = removed.into_iter().chain(stay).collect();
        let stayed = stay.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(left(&all), stayed);
    }

    /// Or a client could have the proxy send one length and mean another, or lose its host.
    #[test]
    fn connection_cannot_name_what_frames_and_addresses_the_message() {
        let fields = [
            ("connection", "content-length, host, te, trailer"),
            ("content-length", "5"),
            ("host", "h"),
            ("trailer", "x-sum"),
        ];
        assert_eq!(left(&fields).len(), 3);
    }

    #[test]
    fn trailers_say_nothing_of_the_connection_and_the_message() {
        let mut trailers = headers(&[
            ("connection", "close, x-one"),
            ("x-one", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("host", "h"),
            ("authorization", "Basic eDp5"),
            ("grpc-status", "0"),
        ]);
        remove_from_trailers(&mut trailers);
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["grpc-status"]);
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for (host, is_one) in [
            ("h", true),
            ("a.example:8443", true),
            ("192.0.2.1:", true),
            ("[::1]", true),
            ("[::1]:65535", true),
            ("", true),
            ("h:65536", false),
            ("h:+1", false),
            ("h:port", false),
            ("h:80:90", false),
            ("[::1", false),
            ("::1", false),
            ("::1]", false),
            ("[::1]x", false),
            ("[h]", false),
            ("u@h", false),
            ("h/x", false),
            ("h x", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(is_host(host.as_bytes()), is_one, "{host}");
        }
    }

    #[test]
    fn te_says_trailers_or_nothing() {
        for (te, sent) in [
            ("trailers", true),
            ("gzip, Trailers;q=1", true),
            ("gzip", false),
            ("", false),
        ] {
            let te = left(&[("te", te)]);
            let expected: &[_] = if sent {
                &[("te".to_owned(), "trailers".to_owned())]
            } else {
                &[]
            };
            assert_eq!(te, expected);
        }
    }

    #[test]
    fn a_request_that_goes_in_a_circle_is_noticed() {
        let mut headers = headers(&[("via", "1.1 other, 1.1 fullbored")]);
        for hop in 0..MOST_HOPS {
            assert!(!add_hop(&mut headers, Version::HTTP_2), "{hop}");
        }
        assert!(add_hop(&mut headers, Version::HTTP_11));
    }

    #[test]
    fn max_forwards_is_counted_down_for_options() {
        for (method, before, last, after) in [
            (Method::OPTIONS, "0", true, "0"),
            (Method::OPTIONS, "3", false, "2"),
            (Method::OPTIONS, "x", false, "x"),
            (Method::GET, "0", false, "0"),
        ] {
            let mut headers = headers(&[]);
            headers.insert(MAX_FORWARDS, HeaderValue::from_static(before));
            assert_eq!(is_last_hop(&method, &mut headers), last);
            assert_eq!(headers[MAX_FORWARDS], after);
        }
        assert!(!is_last_hop(&Method::OPTIONS, &mut headers(&[])));
    }
}
