//! Fields that speak of one connection, which HTTP/2 does not have (RFC 9113 section 8.2.2), and white space around values.
//!
//! The same handler answers over HTTP/1.1, and gateways pass messages of HTTP/1.1 on. So the driver removes these fields. White
//! space around a value is no part of it (RFC 9110 section 5.5): over HTTP/1.1 the recipient removes it, over HTTP/2 it has to
//! be removed before (RFC 9113 section 8.2.1).
//! It looks only through messages that the engine has refused: others cost nothing. The client of HTTP/1.1 asks the same of
//! `transfer-encoding`.
//!
//! The fields that `connection` names stay. A gateway has to remove them before it adds its own (RFC 9110 section 7.6.1):
//! once it has added them, `connection` may name them too.

use fullbore_proto::{InvalidMessage, UsageError};
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};

const REMOVED: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Sends a message. If it is refused for such a field or value, it is sent again without these fields, with values trimmed. That is not done if `headers`
/// gives none to remove them from, or if the body [is coded](is_coded).
pub(crate) fn send<M, R>(
    message: &mut M,
    headers: impl FnOnce(&mut M) -> Option<&mut HeaderMap>,
    mut send: impl FnMut(&M) -> Result<R, UsageError>,
) -> Result<R, UsageError> {
    let sent = send(message);
    if let Err(error) = &sent {
        let headers = is_reason(error).then(|| headers(message)).flatten();
        if let Some(headers) = headers.filter(|headers| !is_coded(headers)) {
            remove(headers);
            return send(message);
        }
    }
    sent
}

/// Whether `transfer-encoding` names another coding than `chunked`. Whoever received the message has removed the chunks; any
/// other coding is still on the body.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// Whether a request asks for another protocol than HTTP/2, such as WebSockets. Without the field its meaning would change.
pub(crate) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    protocols.any(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

fn is_reason(error: &UsageError) -> bool {
    let UsageError::InvalidMessage(reason) = error else {
        return false;
    };
    matches!(
        reason,
        InvalidMessage::ConnectionSpecificField(_) | InvalidMessage::Te | InvalidMessage::FieldValue(_)
    )
}

fn remove(headers: &mut HeaderMap) {
    for name in &REMOVED {
        headers.remove(name);
    }
    // HTTP/2 has this value, too.
    if headers.get_all(TE).iter().any(|value| value != "trailers") {
        headers.remove(TE);
    }
    for value in headers.values_mut() {
        trim(value);
    }
}

/// Removes white space around a value.
fn trim(value: &mut HeaderValue) {
    let trimmed = value.as_bytes().trim_ascii();
    if trimmed.len() < value.len() {
        if let Ok(mut trimmed) = HeaderValue::from_bytes(trimmed) {
            trimmed.set_sensitive(value.is_sensitive());
            *value = trimmed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_of_one_connection_is_removed_and_nothing_else() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, x-forwarded-for"),
            ("connection", "close"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip, trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-forwarded-for", "192.0.2.1"),
            ("content-type", "text/plain"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        assert!(!is_coded(&headers) && !asks_for_upgrade(&headers));
        remove(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "x-forwarded-for"]);
        headers.append("te", "trailers".parse().unwrap());
        remove(&mut headers);
        assert!(headers.contains_key("te"));
        headers.append("transfer-encoding", "gzip, chunked".parse().unwrap());
        headers.append("upgrade", "websocket".parse().unwrap());
        assert!(is_coded(&headers) && asks_for_upgrade(&headers));
    }

    #[test]
    fn white_space_around_a_value_is_removed_and_nothing_within_it() {
        let mut headers = HeaderMap::new();
        for value in [" a", "\ta b \t", "c", "  "] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            headers.append("x-value", value);
        }
        remove(&mut headers);
        let left: Vec<_> = headers.get_all("x-value").iter().collect();
        assert_eq!(left, ["a", "a b", "c", ""]);
        assert!(left.iter().all(|value| value.is_sensitive()));
    }
}
