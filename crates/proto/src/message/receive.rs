//! Received field sections become requests, responses and trailers, or are found malformed.

use bytes::Bytes;
use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, StatusCode, Uri, Version};

use super::malformed::Malformed;
use super::protocol::Protocol;
use super::rules::{FieldKind, is_trailers, same_authority};
use crate::hpack::{Field, FieldName, FieldSection, FieldValue};
use crate::role::Role;

/// Makes a request of a section, and empties the section.
///
/// The URI has a scheme, an authority (of `host`, if there is no `:authority`) and a path; it is `*` for an OPTIONS
/// request that concerns the server, and an authority alone for CONNECT. A request that names no authority in any way
/// has a URI of a path alone. Cookie crumbs are one field again (RFC 9113 section 8.2.3). The [`Protocol`] of an
/// extended CONNECT, which must be `extended_connect_allowed` by our SETTINGS_ENABLE_CONNECT_PROTOCOL, is among the
/// extensions.
///
/// A section that is [over its limit](FieldSection::over_limit) is not whole, and is not for this function.
///
/// # Errors
///
/// The request is malformed: reset its stream with PROTOCOL_ERROR.
pub(crate) fn receive_request(
    section: &mut FieldSection,
    extended_connect_allowed: bool,
) -> Result<Request<()>, Malformed> {
    let mut pseudo = RequestPseudo::default();
    let mut fields = Fields::new(section.fields().len(), Message::Request);
    for field in section.drain() {
        match field.name {
            FieldName::Field(name) => fields.add(name, field.value, field.never_indexed)?,
            _ => {
                pseudo.add(field, fields.any)?;
                fields.expected = fields.expected.saturating_sub(1);
            }
        }
    }
    let mut request = Request::new(());
    *request.version_mut() = Version::HTTP_2;
    if let Some(protocol) = pseudo.protocol.take() {
        if !extended_connect_allowed {
            return Err(Malformed::ProtocolNotAllowed);
        }
        if pseudo.method != Some(Method::CONNECT) {
            return Err(Malformed::ProtocolWithoutConnect);
        }
        request.extensions_mut().insert(protocol);
        *request.uri_mut() = pseudo.absolute_uri(&fields)?;
    } else if pseudo.method == Some(Method::CONNECT) {
        *request.uri_mut() = pseudo.connect_uri(&fields)?;
    } else {
        *request.uri_mut() = pseudo.absolute_uri(&fields)?;
    }
    *request.method_mut() = pseudo.method.ok_or(Malformed::MissingMethod)?;
    *request.headers_mut() = fields.finish()?;
    Ok(request)
}

/// Makes a response of a section, and empties the section. Informational responses are responses too.
///
/// # Errors
///
/// The response is malformed: reset its stream with PROTOCOL_ERROR.
pub(crate) fn receive_response(section: &mut FieldSection) -> Result<Response<()>, Malformed> {
    let mut status = None;
    let mut fields = Fields::new(section.fields().len(), Message::Response);
    for field in section.drain() {
        match field.name {
            FieldName::Field(name) => fields.add(name, field.value, field.never_indexed)?,
            FieldName::Malformed(name) => return Err(malformed_name(&name)),
            _ if fields.any => return Err(Malformed::PseudoHeaderAfterField),
            FieldName::Status => {
                set(&mut status, parse_status(field.value.as_bytes())?)?;
                fields.expected = fields.expected.saturating_sub(1);
            }
            _ => return Err(Malformed::MisplacedPseudoHeader),
        }
    }
    let mut response = Response::new(());
    *response.version_mut() = Version::HTTP_2;
    *response.status_mut() = status.ok_or(Malformed::MissingStatus)?;
    *response.headers_mut() = fields.finish()?;
    Ok(response)
}

/// Makes trailers of a section that an endpoint in this `role` received, and empties the section.
///
/// # Errors
///
/// The message is malformed: reset its stream with PROTOCOL_ERROR.
pub(crate) fn receive_trailers(section: &mut FieldSection, role: Role) -> Result<HeaderMap, Malformed> {
    let message = match role {
        Role::Client => Message::Response,
        Role::Server => Message::TrailersOfRequest,
    };
    let mut fields = Fields::new(section.fields().len(), message);
    for field in section.drain() {
        match field.name {
            FieldName::Field(name) => fields.add(name, field.value, field.never_indexed)?,
            FieldName::Malformed(name) if name.first() != Some(&b':') => {
                return Err(Malformed::FieldName);
            }
            _ => return Err(Malformed::PseudoHeaderInTrailers),
        }
    }
    fields.finish()
}

/// The pseudo-headers of a request, as far as they came.
#[derive(Default)]
struct RequestPseudo {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<Protocol>,
}

impl RequestPseudo {
    fn add(&mut self, field: Field, any_field: bool) -> Result<(), Malformed> {
        if let FieldName::Malformed(name) = &field.name {
            return Err(malformed_name(name));
        }
        if any_field {
            return Err(Malformed::PseudoHeaderAfterField);
        }
        match (field.name, field.value) {
            (FieldName::Method, value) => set(&mut self.method, parse_method(value.as_bytes())?),
            (FieldName::Scheme, value) => set(&mut self.scheme, parse_scheme(value.as_bytes())?),
            (FieldName::Authority, FieldValue::Authority(value)) => set(&mut self.authority, value),
            (FieldName::Authority, _) => Err(Malformed::Authority),
            (FieldName::Path, value) => set(&mut self.path, parse_path(value)?),
            (FieldName::Protocol, value) => {
                let protocol = Protocol::try_from(value.as_bytes()).map_err(|_| Malformed::Protocol)?;
                set(&mut self.protocol, protocol)
            }
            _ => Err(Malformed::MisplacedPseudoHeader),
        }
    }

    /// The URI of any request but a plain CONNECT.
    fn absolute_uri(&mut self, fields: &Fields) -> Result<Uri, Malformed> {
        let method = self.method.as_ref().ok_or(Malformed::MissingMethod)?;
        let scheme = self.scheme.take().ok_or(Malformed::MissingScheme)?;
        let path = self.path.take().ok_or(Malformed::MissingPath)?;
        match path.as_str().as_bytes() {
            [b'/', ..] => {}
            b"*" if method == Method::OPTIONS => {}
            _ => return Err(Malformed::Path),
        }
        let Some(authority) = authority_or_host(self.authority.take(), fields, Some(&scheme))? else {
            if method == Method::CONNECT {
                return Err(Malformed::ConnectWithoutAuthority);
            }
            return Ok(Uri::from(path));
        };
        let is_http = || scheme == Scheme::HTTPS || scheme == Scheme::HTTP;
        if has_user_info(&authority) && is_http() {
            return Err(Malformed::UserInfo);
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(scheme);
        parts.authority = Some(authority);
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(|_| Malformed::Authority)
    }

    /// The URI of a plain CONNECT: the authority to connect to, of `:authority` alone (RFC 9113 section 8.5).
    fn connect_uri(&mut self, fields: &Fields) -> Result<Uri, Malformed> {
        if self.scheme.is_some() || self.path.is_some() {
            return Err(Malformed::ConnectWithSchemeOrPath);
        }
        if self.authority.is_none() {
            return Err(Malformed::ConnectWithoutAuthority);
        }
        let authority = authority_or_host(self.authority.take(), fields, None)?
            .ok_or(Malformed::ConnectWithoutAuthority)?;
        if has_user_info(&authority) {
            return Err(Malformed::UserInfo);
        }
        Ok(Uri::from(authority))
    }
}

/// The authority of `:authority`, or else of `host`, which must agree.
fn authority_or_host(
    authority: Option<Authority>,
    fields: &Fields,
    scheme: Option<&Scheme>,
) -> Result<Option<Authority>, Malformed> {
    match (authority, fields.host()) {
        (authority, None) => Ok(authority),
        (Some(authority), Some(host)) if same_authority(&authority, host, scheme) => Ok(Some(authority)),
        (Some(_), Some(_)) => Err(Malformed::Host),
        (None, Some(host)) => Authority::try_from(host)
            .map(Some)
            .map_err(|_| Malformed::Authority),
    }
}

/// What fields belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    TrailersOfRequest,
    /// A response, or its trailers.
    Response,
}

/// The fields of a message, on their way into a map.
struct Fields {
    message: Message,
    map: HeaderMap,
    /// How many fields may come yet: room for all is made when the first comes.
    expected: usize,
    /// Whether a field came: no pseudo-header may follow.
    any: bool,
    has_host: bool,
    cookie: Option<Cookie>,
}

/// The cookie of a request, as far as its crumbs came.
enum Cookie {
    /// One crumb, which is the whole cookie for most peers, and is not copied.
    Whole(HeaderValue),
    /// Several, in one growing buffer: however many there are, each is copied once.
    Joined { octets: Vec<u8>, sensitive: bool },
}

impl Fields {
    fn new(lines: usize, message: Message) -> Self {
        Self {
            message,
            map: HeaderMap::new(),
            expected: lines,
            any: false,
            has_host: false,
            cookie: None,
        }
    }

    /// Adds a field. `host` and `cookie` have their meanings in requests alone.
    #[inline]
    fn add(&mut self, name: HeaderName, value: FieldValue, never_indexed: bool) -> Result<(), Malformed> {
        let mut value = match value {
            FieldValue::Header(value) => value,
            value if self.message == Message::Response => without_white_space(&value)?,
            _ => return Err(Malformed::FieldValue),
        };
        let in_request = self.message == Message::Request;
        if never_indexed {
            value.set_sensitive(true);
        }
        if !self.any {
            self.any = true;
            self.map
                .try_reserve(self.expected)
                .map_err(|_| Malformed::TooManyFields)?;
        }
        match FieldKind::of(&name) {
            FieldKind::Ordinary | FieldKind::ContentLength => {}
            FieldKind::ConnectionSpecific => return Err(Malformed::ConnectionSpecificField),
            FieldKind::Te if !is_trailers(value.as_bytes()) => return Err(Malformed::Te),
            FieldKind::Te => {}
            FieldKind::Host if in_request && self.has_host => return Err(Malformed::Host),
            FieldKind::Host => self.has_host = true,
            FieldKind::Cookie if in_request => {
                self.add_cookie(value);
                return Ok(());
            }
            FieldKind::Cookie => {}
        }
        self.append(name, value)
    }

    fn append(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), Malformed> {
        self.map
            .try_append(name, value)
            .map(drop)
            .map_err(|_| Malformed::TooManyFields)
    }

    /// Joins a crumb to those before it (RFC 9113 section 8.2.3).
    fn add_cookie(&mut self, crumb: HeaderValue) {
        self.cookie = match self.cookie.take() {
            None => Some(Cookie::Whole(crumb)),
            Some(Cookie::Whole(first)) => {
                let octets = [first.as_bytes(), b"; ", crumb.as_bytes()].concat();
                let sensitive = first.is_sensitive() || crumb.is_sensitive();
                Some(Cookie::Joined { octets, sensitive })
            }
            Some(Cookie::Joined {
                mut octets,
                sensitive,
            }) => {
                octets.extend_from_slice(b"; ");
                octets.extend_from_slice(crumb.as_bytes());
                let sensitive = sensitive || crumb.is_sensitive();
                Some(Cookie::Joined { octets, sensitive })
            }
        };
    }

    fn host(&self) -> Option<&[u8]> {
        if !self.has_host {
            return None;
        }
        self.map.get(http::header::HOST).map(HeaderValue::as_bytes)
    }

    fn finish(mut self) -> Result<HeaderMap, Malformed> {
        match self.cookie.take() {
            None => {}
            Some(Cookie::Whole(cookie)) => self.append(COOKIE, cookie)?,
            Some(Cookie::Joined { octets, sensitive }) => {
                let mut cookie = HeaderValue::try_from(octets).map_err(|_| Malformed::FieldValue)?;
                cookie.set_sensitive(sensitive);
                self.append(COOKIE, cookie)?;
            }
        }
        Ok(self.map)
    }
}

/// The value of a field of a response without white space at its ends, which RFC 9113 section 8.2.1 makes malformed. So many
/// servers send it that curl, Envoy, Node and the browsers accept it (nghttp2#1786, curl#9526, envoy#23267, node#56703), and it
/// is no part of the value (RFC 9110 section 5.5). Requests remain malformed.
#[cold]
fn without_white_space(value: &FieldValue) -> Result<HeaderValue, Malformed> {
    let octets = value.as_bytes();
    let is_inner = |octet: &u8| !matches!(octet, b' ' | b'\t');
    let start = octets.iter().position(is_inner).unwrap_or(octets.len());
    let end = octets.iter().rposition(is_inner).map_or(start, |last| last + 1);
    HeaderValue::from_bytes(&octets[start..end]).map_err(|_| Malformed::FieldValue)
}

fn set<T>(slot: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed::RepeatedPseudoHeader),
    }
}

/// What is wrong with a name that HPACK carried and HTTP has not.
fn malformed_name(name: &[u8]) -> Malformed {
    match name.first() {
        Some(b':') => Malformed::UnknownPseudoHeader,
        _ => Malformed::FieldName,
    }
}

fn parse_method(value: &[u8]) -> Result<Method, Malformed> {
    Method::from_bytes(value).map_err(|_| Malformed::Method)
}

fn parse_scheme(value: &[u8]) -> Result<Scheme, Malformed> {
    match value {
        b"https" => Ok(Scheme::HTTPS),
        b"http" => Ok(Scheme::HTTP),
        // `Scheme` itself takes an empty one, and a digit in front (RFC 3986 section 3.1).
        [first, ..] if first.is_ascii_alphabetic() => Scheme::try_from(value).map_err(|_| Malformed::Scheme),
        _ => Err(Malformed::Scheme),
    }
}

fn parse_path(value: FieldValue) -> Result<PathAndQuery, Malformed> {
    match value {
        FieldValue::Path(path) => Ok(path),
        FieldValue::Raw(value) if value.is_empty() => Err(Malformed::EmptyPath),
        // The static table's two paths.
        FieldValue::Raw(value) if *value == *b"/" || *value == *b"/index.html" => {
            PathAndQuery::from_maybe_shared(value).map_err(|_| Malformed::Path)
        }
        // A path of the peer's own that is not one was found out before.
        FieldValue::Raw(value) if value.len() <= ENCODED_PATH => encoded_path(&value),
        _ => Err(Malformed::Path),
    }
}

/// The longest path that is encoded, in octets: with HPACK a request repeats a long one for one octet.
const ENCODED_PATH: usize = 8_000;

/// A path with octets that clients send as they are, though RFC 3986 has them percent-encoded: quotation marks, angle brackets,
/// backticks, and what is no UTF-8.
#[cold]
fn encoded_path(value: &[u8]) -> Result<PathAndQuery, Malformed> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    // `PathAndQuery` would drop a fragment without a word.
    if value.contains(&b'#') {
        return Err(Malformed::Path);
    }
    let mut encoded = Vec::with_capacity(value.len() + 64);
    for &octet in value {
        match octet {
            b'"' | b'<' | b'>' | b'`' | 128.. => {
                let digits = [DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]];
                encoded.extend([b'%', digits[0], digits[1]]);
            }
            octet => encoded.push(octet),
        }
    }
    PathAndQuery::from_maybe_shared(Bytes::from(encoded)).map_err(|_| Malformed::Path)
}

fn parse_status(value: &[u8]) -> Result<StatusCode, Malformed> {
    match StatusCode::from_bytes(value) {
        Ok(StatusCode::SWITCHING_PROTOCOLS) => Err(Malformed::SwitchingProtocols),
        Ok(status) => Ok(status),
        Err(_) => Err(Malformed::Status),
    }
}

fn has_user_info(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}
