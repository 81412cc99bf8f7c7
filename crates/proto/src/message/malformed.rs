//! Why a message of the peer's is malformed.

use std::fmt;

/// The rule that a received message breaks: a stream error of type PROTOCOL_ERROR, and the peer's fault (RFC 9113
/// section 8.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Malformed {
    /// A pseudo-header that is not defined.
    UnknownPseudoHeader,
    /// A request's pseudo-header in a response, or the reverse.
    MisplacedPseudoHeader,
    /// A pseudo-header in a trailer section.
    PseudoHeaderInTrailers,
    /// A pseudo-header that follows a field.
    PseudoHeaderAfterField,
    /// A pseudo-header that is there twice.
    RepeatedPseudoHeader,
    /// A name that is no token in lower case.
    FieldName,
    /// A value with a control character, or in a request with white space at either end.
    FieldValue,
    /// A field that speaks of one connection, such as `connection` or `transfer-encoding`.
    ConnectionSpecificField,
    /// A `te` field that says more than "trailers".
    Te,
    /// More fields than a map of fields can hold.
    TooManyFields,
    /// A request without `:method`.
    MissingMethod,
    /// A `:method` that is no token.
    Method,
    /// A request without `:scheme`.
    MissingScheme,
    /// A `:scheme` that is none.
    Scheme,
    /// A request without `:path`.
    MissingPath,
    /// An empty `:path`.
    EmptyPath,
    /// A `:path` that is neither an absolute path nor the `*` of OPTIONS.
    Path,
    /// An `:authority`, or a `host` in its place, that is no authority.
    Authority,
    /// An `:authority` with userinfo.
    UserInfo,
    /// A `host` that names another authority than `:authority`, or is there twice.
    Host,
    /// A CONNECT request without `:authority`.
    ConnectWithoutAuthority,
    /// A CONNECT request with `:scheme` or `:path`, and no `:protocol`.
    ConnectWithSchemeOrPath,
    /// A `:protocol` that we did not allow with SETTINGS_ENABLE_CONNECT_PROTOCOL.
    ProtocolNotAllowed,
    /// A `:protocol` in a request that is no CONNECT.
    ProtocolWithoutConnect,
    /// A `:protocol` that is no token.
    Protocol,
    /// A response without `:status`.
    MissingStatus,
    /// A `:status` that is not three digits from 100 on.
    Status,
    /// The status 101.
    SwitchingProtocols,
    /// A `content-length` that is no number, or that passes 64 bits.
    ContentLength,
    /// Several `content-length` values that differ.
    ContentLengthsDiffer,
}

impl Malformed {
    /// The rule and where it stands, as a clause.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::UnknownPseudoHeader => "a pseudo-header is not defined (RFC 9113 section 8.3)",
            Self::MisplacedPseudoHeader => {
                "a pseudo-header of requests is in a response, or the reverse (RFC 9113 section 8.3)"
            }
            Self::PseudoHeaderInTrailers => "a pseudo-header is in a trailer section (RFC 9113 section 8.1)",
            Self::PseudoHeaderAfterField => "a pseudo-header follows a field (RFC 9113 section 8.3)",
            Self::RepeatedPseudoHeader => "a pseudo-header is there twice (RFC 9113 section 8.3)",
            Self::FieldName => "a field name is no token in lower case (RFC 9113 section 8.2.1)",
            Self::FieldValue => {
                "a field value has a control character, or in a request white space at an end (RFC 9113 section 8.2.1)"
            }
            Self::ConnectionSpecificField => {
                "a field speaks of one connection, which HTTP/2 forbids (RFC 9113 section 8.2.2)"
            }
            Self::Te => "the te field says more than \"trailers\" (RFC 9113 section 8.2.2)",
            Self::TooManyFields => "there are more fields than a map can hold",
            Self::MissingMethod => "the request has no :method (RFC 9113 section 8.3.1)",
            Self::Method => "the :method is no token (RFC 9110 section 9.1)",
            Self::MissingScheme => "the request has no :scheme (RFC 9113 section 8.3.1)",
            Self::Scheme => "the :scheme is not one (RFC 3986 section 3.1)",
            Self::MissingPath => "the request has no :path (RFC 9113 section 8.3.1)",
            Self::EmptyPath => "the :path is empty (RFC 9113 section 8.3.1)",
            Self::Path => "the :path is neither absolute nor the \"*\" of OPTIONS (RFC 9113 section 8.3.1)",
            Self::Authority => "the :authority, or the host in its place, is not one (RFC 3986 section 3.2)",
            Self::UserInfo => "the :authority has userinfo (RFC 9113 section 8.3.1)",
            Self::Host => "the host differs from the :authority, or is there twice (RFC 9113 section 8.3.1)",
            Self::ConnectWithoutAuthority => "the CONNECT request has no :authority (RFC 9113 section 8.5)",
            Self::ConnectWithSchemeOrPath => {
                "the CONNECT request has a :scheme or a :path (RFC 9113 section 8.5)"
            }
            Self::ProtocolNotAllowed => "a :protocol was not allowed by SETTINGS (RFC 8441 section 3)",
            Self::ProtocolWithoutConnect => {
                "a :protocol is in a request that is no CONNECT (RFC 8441 section 4)"
            }
            Self::Protocol => "the :protocol is no token (RFC 8441 section 4)",
            Self::MissingStatus => "the response has no :status (RFC 9113 section 8.3.2)",
            Self::Status => "the :status is not three digits from 100 on (RFC 9110 section 15)",
            Self::SwitchingProtocols => "the :status is 101, which HTTP/2 has not (RFC 9113 section 8.6)",
            Self::ContentLength => "the content-length is no number of 64 bits (RFC 9110 section 8.6)",
            Self::ContentLengthsDiffer => "several content-length values differ (RFC 9110 section 8.6)",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Malformed {}
