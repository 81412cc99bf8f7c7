//! The protocol of an extended CONNECT request.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

/// The value of `:protocol`: what an extended CONNECT request asks for, such as `websocket` (RFC 8441 section 4).
///
/// It travels in the extensions of an `http::Request` whose method is CONNECT.
///
/// ```
/// use fullbore_proto::Protocol;
///
/// let mut request = http::Request::connect("https://example.com/chat").body(())?;
/// request.extensions_mut().insert(Protocol::from_static("websocket"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Protocol(Cow<'static, str>);

/// What was to be a [`Protocol`] is no token (RFC 9110 section 5.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidProtocol;

impl fmt::Display for InvalidProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a :protocol must be a token: letters, digits and !#$%&'*+-.^_`|~")
    }
}

impl std::error::Error for InvalidProtocol {}

impl Protocol {
    /// A protocol whose name is known when the program is built.
    ///
    /// # Panics
    ///
    /// If `name` is no token.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        assert!(is_token(name.as_bytes()), "a protocol must be a token");
        Self(Cow::Borrowed(name))
    }

    /// The name, as it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for Protocol {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl TryFrom<&str> for Protocol {
    type Error = InvalidProtocol;

    fn try_from(name: &str) -> Result<Self, InvalidProtocol> {
        match name {
            "websocket" => Ok(Self(Cow::Borrowed("websocket"))),
            _ if is_token(name.as_bytes()) => Ok(Self(Cow::Owned(name.to_owned()))),
            _ => Err(InvalidProtocol),
        }
    }
}

impl TryFrom<&[u8]> for Protocol {
    type Error = InvalidProtocol;

    fn try_from(name: &[u8]) -> Result<Self, InvalidProtocol> {
        std::str::from_utf8(name).map_err(|_| InvalidProtocol)?.try_into()
    }
}

impl TryFrom<Bytes> for Protocol {
    type Error = InvalidProtocol;

    fn try_from(name: Bytes) -> Result<Self, InvalidProtocol> {
        name.as_ref().try_into()
    }
}

const fn is_token(name: &[u8]) -> bool {
    let mut position = 0;
    while position < name.len() {
        let octet = name[position];
        let allowed = octet.is_ascii_alphanumeric()
            || matches!(
                octet,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        if !allowed {
            return false;
        }
        position += 1;
    }
    !name.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_a_token() {
        assert_eq!(
            Protocol::try_from("websocket"),
            Ok(Protocol::from_static("websocket"))
        );
        assert_eq!(
            Protocol::try_from("connect-udp").unwrap().to_string(),
            "connect-udp"
        );
        assert_eq!(
            Protocol::try_from(Bytes::from_static(b"h2.x")).unwrap().as_str(),
            "h2.x"
        );
        for name in ["", "web socket", "a/b", "caf\u{e9}", "a\r\n"] {
            assert_eq!(Protocol::try_from(name), Err(InvalidProtocol));
        }
        assert_eq!(Protocol::try_from(&b"\xff"[..]), Err(InvalidProtocol));
    }
}
