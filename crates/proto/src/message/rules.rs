//! The rules that messages of both directions obey.

use http::HeaderName;

/// What the rules of RFC 9113 section 8.2 make of a field by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Nothing special.
    Ordinary,
    /// Speaks of one connection, and has no place in HTTP/2 (section 8.2.2).
    ConnectionSpecific,
    /// `te`, which may say "trailers" and nothing else (section 8.2.2).
    Te,
    /// `host`, which must agree with `:authority` (section 8.3.1).
    Host,
    /// `content-length`, which is one number (RFC 9110 section 8.6).
    ContentLength,
    /// `cookie`, which may come in crumbs (section 8.2.3).
    Cookie,
}

impl FieldKind {
    /// By length first: most names are told apart by it alone.
    #[inline(always)]
    pub(super) fn of(name: &HeaderName) -> Self {
        let name = name.as_str();
        match (name.len(), name) {
            (2, "te") => Self::Te,
            (4, "host") => Self::Host,
            (6, "cookie") => Self::Cookie,
            (14, "content-length") => Self::ContentLength,
            (7, "upgrade")
            | (10, "connection" | "keep-alive")
            | (16, "proxy-connection")
            | (17, "transfer-encoding") => Self::ConnectionSpecific,
            _ => Self::Ordinary,
        }
    }
}

/// Whether a `te` field has the one value it may have.
pub(super) fn is_trailers(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"trailers")
}

/// Whether two spellings of an authority name the same host and port under a scheme: case does not count, and the
/// scheme's own port may be left out (RFC 3986 section 6.2.3).
pub(super) fn same_authority(
    one: &http::uri::Authority,
    other: &[u8],
    scheme: Option<&http::uri::Scheme>,
) -> bool {
    if one.as_str().as_bytes().eq_ignore_ascii_case(other) {
        return true;
    }
    let Ok(other) = http::uri::Authority::try_from(other) else {
        return false;
    };
    let default_port = match scheme.map(http::uri::Scheme::as_str) {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    let port = |authority: &http::uri::Authority| authority.port_u16().or(default_port);
    one.host().eq_ignore_ascii_case(other.host()) && port(one) == port(&other)
}
