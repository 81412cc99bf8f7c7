//! What the origin learns of the client: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host` and `forwarded`
//! (RFC 7239).
//!
//! What a client says in them is its own invention, and is removed. A proxy in front of this one is believed if its address is
//! trusted: its fields are kept and extended.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;
use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Besides all that begin with `x-forwarded-`, the fields by which applications learn who the client is.
const OTHERS: [&str; 3] = ["forwarded", "x-forwarded", "x-real-ip"];

/// The longest element of `forwarded`, without the host: `for="[` and 39 octets of an address of IPv6, `]";proto=https;host=""`.
const LONGEST_REST: usize = 67;

/// What is said of a request.
pub(crate) struct Client<'a> {
    /// None on a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) https: bool,
    /// The host that the client asked for.
    pub(crate) host: Option<&'a HeaderValue>,
}

/// Sets the fields. `trusted` has the proxies whose fields are believed.
pub(crate) fn set(headers: &mut HeaderMap, client: &Client<'_>, trusted: &[IpNet]) {
    let address = client.address.map(|address| address.ip().to_canonical());
    let is_trusted = address.is_some_and(|address| trusted.iter().any(|net| net.contains(&address)));
    remove(headers, |name| !is_trusted || name.as_str().contains('_'));
    // Of a client that is not trusted, none of them is left.
    let has = |headers: &HeaderMap, name| is_trusted && headers.contains_key(name);
    let add = if is_trusted { append } else { insert };
    let proto = if client.https { "https" } else { "http" };
    let (element, text) = element(address, proto, client.host);
    if address.is_some() {
        add(headers, FOR, element.slice(text));
    }
    if !has(headers, PROTO) {
        headers.insert(PROTO, HeaderValue::from_static(proto));
    }
    if let (Some(host), false) = (client.host, has(headers, HOST)) {
        headers.insert(HOST, host.clone());
    }
    add(headers, FORWARDED, element);
}

/// An element of `forwarded`, and where in it the address is. One of IPv6 is in brackets and quotes (RFC 7239 section 6).
fn element(address: Option<IpAddr>, proto: &str, host: Option<&HeaderValue>) -> (Bytes, Range<usize>) {
    // A host has no quote and no backslash.
    let is_plain = |host: &&str| !host.is_empty() && !host.contains(['"', '\\']);
    let host = host.and_then(|host| host.to_str().ok()).filter(is_plain);
    let mut element = String::with_capacity(LONGEST_REST + host.map_or(0, str::len));
    element.push_str("for=");
    let (before, after) = match address {
        Some(IpAddr::V6(_)) => ("\"[", "]\""),
        Some(IpAddr::V4(_)) | None => ("", ""),
    };
    element.push_str(before);
    let begin = element.len();
    match address {
        Some(IpAddr::V4(address)) => push_octets(&mut element, address.octets()),
        // Nothing fails that writes to memory.
        Some(IpAddr::V6(address)) => _ = write!(element, "{address}"),
        None => element.push_str("unknown"),
    }
    let text = begin..element.len();
    element.push_str(after);
    element.push_str(";proto=");
    element.push_str(proto);
    if let Some(host) = host {
        element.push_str(";host=\"");
        element.push_str(host);
        element.push('"');
    }
    (element.into(), text)
}

/// Writes an address of IPv4, of which each request has one: by `Display` that takes 1,300 instructions.
fn push_octets(text: &mut String, octets: [u8; 4]) {
    let digit = |digit: u8| char::from(b'0' + digit);
    for (index, octet) in octets.into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        if octet >= 100 {
            text.push(digit(octet / 100));
        }
        if octet >= 10 {
            text.push(digit(octet / 10 % 10));
        }
        text.push(digit(octet % 10));
    }
}

/// Adds a member to a list, on the line that is there.
fn append(headers: &mut HeaderMap, name: HeaderName, member: Bytes) {
    let mut list = Vec::new();
    for line in headers.get_all(&name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(&member);
    insert(headers, name, list.into());
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: Bytes) {
    if let Ok(value) = HeaderValue::from_maybe_shared(value) {
        headers.insert(name, value);
    }
}

/// Removes these fields from trailers, where nobody may say them.
pub(crate) fn remove_from_trailers(trailers: &mut HeaderMap) {
    remove(trailers, |_| true);
}

/// Removes the fields that `also` says of. A name with underscores is the same: CGI and WSGI make one variable of both.
fn remove(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) {
    let all = headers
        .keys()
        .filter(|name| is_meant(name.as_str()) && also(name));
    let found: Vec<_> = all.cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

fn is_meant(name: &str) -> bool {
    // Most begin with another letter.
    if !name.starts_with(['x', 'f']) {
        return false;
    }
    let is_same = |(own, plain): (u8, u8)| own == plain || (own == b'_' && plain == b'-');
    let begins = |with: &str| name.len() >= with.len() && name.bytes().zip(with.bytes()).all(is_same);
    begins("x-forwarded-")
        || OTHERS
            .iter()
            .any(|other| name.len() == other.len() && begins(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(
        fields: &[(&'static str, &'static str)],
        address: Option<&str>,
        https: bool,
        trusted: &[&str],
    ) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let host = HeaderValue::from_static("a.example:8443");
        let client = Client {
            address: address.map(|address| SocketAddr::new(address.parse().unwrap(), 1)),
            https,
            host: Some(&host),
        };
        let trusted: Vec<IpNet> = trusted.iter().map(|net| net.parse().unwrap()).collect();
        set(&mut headers, &client, &trusted);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut all: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        all.sort();
        all
    }

    fn four(for_: &str, proto: &str, host: &str, forwarded: &str) -> Vec<(String, String)> {
        [
            ("forwarded", forwarded),
            ("x-forwarded-for", for_),
            ("x-forwarded-host", host),
            ("x-forwarded-proto", proto),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    const INVENTED: [(&str, &str); 12] = [
        ("x-forwarded", "1"),
        ("x-forwarded-scheme", "https"),
        ("x_forwarded_user", "root"),
        ("x-forwarded-for", "1.1.1.1"),
        ("x-forwarded-for", "2.2.2.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "for=1.1.1.1"),
        ("x-real-ip", "1.1.1.1"),
        ("x-forwarded-port", "443"),
        ("x_forwarded_for", "1.1.1.1"),
        ("x-forwarded_host", "evil.example"),
    ];

    #[test]
    fn what_a_client_says_of_itself_is_replaced() {
        for trusted in [&[][..], &["10.0.0.0/8", "2001:db8::/32"]] {
            let forwarded = "for=192.0.2.7;proto=http;host=\"a.example:8443\"";
            let expected = four("192.0.2.7", "http", "a.example:8443", forwarded);
            assert_eq!(said(&INVENTED, Some("192.0.2.7"), false, trusted), expected);
            // The same address on a socket of both families.
            assert_eq!(said(&[], Some("::ffff:192.0.2.7"), false, trusted), expected);
        }
        let forwarded = "for=\"[2001:db8::7]\";proto=https;host=\"a.example:8443\"";
        let expected = four("2001:db8::7", "https", "a.example:8443", forwarded);
        assert_eq!(said(&INVENTED, Some("2001:db8::7"), true, &[]), expected);
        let on_unix = said(&INVENTED, None, false, &["0.0.0.0/0"]);
        assert_eq!(on_unix[0].1, "for=unknown;proto=http;host=\"a.example:8443\"");
        assert!(!on_unix.iter().any(|(name, _)| name == "x-forwarded-for"));
    }

    #[test]
    fn an_address_is_written_as_the_standard_library_writes_it() {
        for octet in 0..=255 {
            let octets = [octet, 0, 255 - octet, octet / 2];
            let mut text = String::new();
            push_octets(&mut text, octets);
            assert_eq!(text, IpAddr::from(octets).to_string());
        }
        let longest = IpAddr::from([0xffff_u16; 8]);
        assert_eq!(
            element(Some(longest), "https", None).0.len(),
            LONGEST_REST - "\"\";host=".len()
        );
    }

    #[test]
    fn what_a_trusted_proxy_says_is_extended() {
        let fields = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "front.example"),
            ("forwarded", "for=1.1.1.1"),
            ("x_forwarded_for", "3.3.3.3"),
        ];
        let forwarded = "for=1.1.1.1, for=10.1.2.3;proto=http;host=\"a.example:8443\"";
        let expected = four("1.1.1.1, 2.2.2.2, 10.1.2.3", "https", "front.example", forwarded);
        assert_eq!(said(&fields, Some("10.1.2.3"), false, &["10.0.0.0/8"]), expected);
        assert_eq!(
            said(&fields, Some("::ffff:10.1.2.3"), false, &["10.0.0.0/8"]),
            expected
        );
    }
}
