//! What the origin learns of the client: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host` and `forwarded`
//! (RFC 7239).
//!
//! What a client says in them is its own invention, and is removed. A proxy in front of this one is believed if its address is
//! trusted: its fields are kept and extended.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Besides all that begin with `x-forwarded-`, the fields by which applications learn who the client is.
const OTHERS: [&str; 3] = ["forwarded", "x-forwarded", "x-real-ip"];

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
    let proto = if client.https { "https" } else { "http" };
    if let Some(address) = address {
        append(headers, FOR, &address.to_string());
    }
    if !headers.contains_key(PROTO) {
        headers.insert(PROTO, HeaderValue::from_static(proto));
    }
    if let (Some(host), false) = (client.host, headers.contains_key(HOST)) {
        headers.insert(HOST, host.clone());
    }
    append(headers, FORWARDED, &element(address, proto, client.host));
}

/// An element of `forwarded`. An IPv6 address is in brackets and quotes (RFC 7239 section 6).
fn element(address: Option<IpAddr>, proto: &str, host: Option<&HeaderValue>) -> String {
    let mut element = match address {
        Some(IpAddr::V4(address)) => format!("for={address}"),
        Some(IpAddr::V6(address)) => format!("for=\"[{address}]\""),
        None => "for=unknown".to_owned(),
    };
    let _ = write!(element, ";proto={proto}");
    // A host has no quote and no backslash.
    let is_plain = |host: &&str| !host.is_empty() && !host.contains(['"', '\\']);
    if let Some(host) = host.and_then(|host| host.to_str().ok()).filter(is_plain) {
        let _ = write!(element, ";host=\"{host}\"");
    }
    element
}

/// Adds a member to a list, on the line that is there.
fn append(headers: &mut HeaderMap, name: HeaderName, member: &str) {
    let mut list = Vec::new();
    for line in headers.get_all(&name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(member.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

/// Removes these fields from trailers, where nobody may say them.
pub(crate) fn remove_from_trailers(trailers: &mut HeaderMap) {
    remove(trailers, |_| true);
}

/// Removes the fields that `also` says of. A name with underscores is the same: CGI and WSGI make one variable of both.
fn remove(headers: &mut HeaderMap, also: impl Fn(&HeaderName) -> bool) {
    let is_meant = |name: &HeaderName| {
        let plain = name.as_str().replace('_', "-");
        OTHERS.contains(&plain.as_str()) || plain.starts_with("x-forwarded-")
    };
    let all = headers.keys().filter(|name| is_meant(name) && also(name));
    let found: Vec<_> = all.cloned().collect();
    for name in found {
        headers.remove(name);
    }
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
