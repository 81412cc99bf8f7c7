//! Fields that speak of one connection, which HTTP/2 does not have (RFC 9113 section 8.2.2).
//!
//! The same handler answers over HTTP/1.1, and gateways pass messages of HTTP/1.1 on. So the driver removes these fields,
//! as RFC 9110 section 7.6.1 has intermediaries do. It looks only through messages that the engine has refused: others
//! cost nothing.

use fullbore_proto::{InvalidMessage, UsageError};
use http::header::{CONNECTION, HeaderMap, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};

/// Those that `connection` need not name.
const ALWAYS: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Sends a message. If it is refused for such a field, it is sent without these fields, if there are `headers` to remove
/// them from.
pub(super) fn send<M, R>(
    message: &mut M,
    headers: impl FnOnce(&mut M) -> Option<&mut HeaderMap>,
    mut send: impl FnMut(&M) -> Result<R, UsageError>,
) -> Result<R, UsageError> {
    let sent = send(message);
    if let Err(error) = &sent {
        if let Some(headers) = is_reason(error).then(|| headers(message)).flatten() {
            remove(headers);
            return send(message);
        }
    }
    sent
}

/// Whether a request is for another protocol, such as WebSockets. Without the field it would be another request. An upgrade
/// to HTTP/2 has been made.
pub(super) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    protocols.any(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

fn is_reason(error: &UsageError) -> bool {
    let UsageError::InvalidMessage(reason) = error else {
        return false;
    };
    matches!(
        reason,
        InvalidMessage::ConnectionSpecificField(_) | InvalidMessage::Te
    )
}

fn remove(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&ALWAYS) {
        headers.remove(name);
    }
    // This value HTTP/2 has, too.
    if headers.get_all(TE).iter().any(|value| value != "trailers") {
        headers.remove(TE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_that_connection_names_are_removed_with_it_and_no_others() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Hop"),
            ("connection", "close,, y hop,"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-hop", "1"),
            ("x-end", "2"),
            ("content-type", "text/plain"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        remove(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "x-end"]);
        headers.append("te", "trailers".parse().unwrap());
        remove(&mut headers);
        assert!(headers.contains_key("te"));
    }
}
