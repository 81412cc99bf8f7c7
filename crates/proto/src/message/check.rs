//! Whether a message that a user wants to send can be sent over HTTP/2.

use std::fmt;

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Response, StatusCode};

use super::length::{agree_on_length, received_length};
use super::protocol::Protocol;
use super::rules::{FieldKind, is_trailers, same_authority};
use crate::hpack::{ENTRY_OVERHEAD, has_outer_white_space};

/// Why a message cannot be sent: the caller's fault. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// The URI has no scheme, and so no authority.
    RelativeUri,
    /// A CONNECT request's URI has no authority.
    ConnectWithoutAuthority,
    /// The URI has userinfo.
    UserInfo,
    /// The path is neither absolute nor the `*` of OPTIONS.
    Path,
    /// A `host` field differs from the URI's authority, or is there twice.
    Host,
    /// A [`Protocol`] is set on a request that is no CONNECT.
    ProtocolWithoutConnect,
    /// The status is 101.
    SwitchingProtocols,
    /// The field speaks of one connection, which HTTP/2 forbids.
    ConnectionSpecificField(HeaderName),
    /// A `te` field says more than "trailers".
    Te,
    /// The field's value begins or ends with white space.
    FieldValue(HeaderName),
    /// A `content-length` is no number, or several differ.
    ContentLength,
    /// The fields are more than twice as large as the peer accepts (SETTINGS_MAX_HEADER_LIST_SIZE).
    TooLarge,
}

impl fmt::Display for InvalidMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RelativeUri => f.write_str(
                "the request's URI has no scheme and authority: give a whole one, such as https://example.com/",
            ),
            Self::ConnectWithoutAuthority => {
                f.write_str("the CONNECT request's URI has no authority: give one, such as example.com:443")
            }
            Self::UserInfo => f.write_str(
                "the request's URI has userinfo, which HTTP/2 does not carry: send an authorization field instead",
            ),
            Self::Path => f.write_str("the request's path does not begin with \"/\" and is not the \"*\" of OPTIONS"),
            Self::Host => f.write_str(
                "the host field differs from the URI's authority, or is there twice: leave it out, the URI says it",
            ),
            Self::ProtocolWithoutConnect => {
                f.write_str("the request has a :protocol and is no CONNECT: set the method to CONNECT")
            }
            Self::SwitchingProtocols => {
                f.write_str("the status 101 does not exist in HTTP/2: use extended CONNECT (RFC 8441)")
            }
            Self::ConnectionSpecificField(name) => {
                write!(f, "the field {name} speaks of one connection and does not exist in HTTP/2: leave it out")
            }
            Self::Te => f.write_str("the te field may say \"trailers\" and nothing else in HTTP/2"),
            Self::FieldValue(name) => {
                write!(f, "the value of the field {name} begins or ends with white space: trim it")
            }
            Self::ContentLength => f.write_str("the content-length is no number, or there are several that differ"),
            Self::TooLarge => f.write_str("the fields are more than twice as large as the peer accepts: send less in them"),
        }
    }
}

impl std::error::Error for InvalidMessage {}

/// Checks that a request can be sent whose fields have at `most` so many octets, by the measure of RFC 9113 section
/// 6.5.2. With `may_be_relative` the URI may be a path alone.
///
/// # Errors
///
/// What is wrong with it, for the caller to mend.
pub(crate) fn check_request(
    request: &Request<()>,
    may_be_relative: bool,
    most: usize,
) -> Result<(), InvalidMessage> {
    let uri = request.uri();
    let is_connect = request.method() == Method::CONNECT;
    let has_protocol = request.extensions().get::<Protocol>().is_some();
    if has_protocol && !is_connect {
        return Err(InvalidMessage::ProtocolWithoutConnect);
    }
    let missing = match is_connect {
        true => InvalidMessage::ConnectWithoutAuthority,
        false => InvalidMessage::RelativeUri,
    };
    let Some(authority) = uri.authority() else {
        return match may_be_relative && !is_connect {
            true => {
                check_path(request).and_then(|()| check_fields(request.headers(), pseudo_size(request), most))
            }
            false => Err(missing),
        };
    };
    if authority.as_str().contains('@') {
        return Err(InvalidMessage::UserInfo);
    }
    if !is_connect || has_protocol {
        if uri.scheme().is_none() {
            return Err(InvalidMessage::RelativeUri);
        }
        check_path(request)?;
    }
    check_host(request.headers(), authority, uri.scheme())?;
    check_fields(request.headers(), pseudo_size(request), most)
}

fn check_path(request: &Request<()>) -> Result<(), InvalidMessage> {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    match path.as_bytes() {
        // An empty path is sent as "/", or as "*" for OPTIONS.
        [] | [b'/' | b'?', ..] => Ok(()),
        b"*" if request.method() == Method::OPTIONS => Ok(()),
        _ => Err(InvalidMessage::Path),
    }
}

/// As [`check_request`], of a response, informational or final.
///
/// # Errors
///
/// What is wrong with it, for the caller to mend.
pub(crate) fn check_response(response: &Response<()>, most: usize) -> Result<(), InvalidMessage> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(InvalidMessage::SwitchingProtocols);
    }
    check_fields(response.headers(), STATUS_SIZE, most)
}

/// As [`check_request`], of trailers.
///
/// # Errors
///
/// What is wrong with them, for the caller to mend.
pub(crate) fn check_trailers(trailers: &HeaderMap, most: usize) -> Result<(), InvalidMessage> {
    check_fields(trailers, 0, most)
}

fn check_host(
    headers: &HeaderMap,
    authority: &Authority,
    scheme: Option<&Scheme>,
) -> Result<(), InvalidMessage> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else {
        return Ok(());
    };
    if hosts.next().is_some() || !same_authority(authority, host.as_bytes(), scheme) {
        return Err(InvalidMessage::Host);
    }
    Ok(())
}

/// Whether the fields of a request have at most `most` octets. The rest of the request was checked before.
pub(crate) fn fits(request: &Request<()>, most: usize) -> bool {
    let fields = request.headers().iter();
    pseudo_size(request) + fields.map(|(name, value)| field_size(name, value)).sum::<usize>() <= most
}

/// `:status` and three digits.
const STATUS_SIZE: usize = 7 + 3 + ENTRY_OVERHEAD;

/// What the pseudo-header fields of a request count. They take the place of a `host` field, which is left out where there
/// is an authority.
fn pseudo_size(request: &Request<()>) -> usize {
    let uri = request.uri();
    let size = |name: &str, value: usize| name.len() + value + ENTRY_OVERHEAD;
    let protocol = request.extensions().get::<Protocol>();
    let mut all = size(":method", request.method().as_str().len());
    if let Some(protocol) = protocol {
        all += size(":protocol", protocol.as_str().len());
    }
    if request.method() != Method::CONNECT || protocol.is_some() {
        let path = uri.path_and_query().map_or(1, |path| path.as_str().len());
        all += size(":scheme", uri.scheme_str().unwrap_or("http").len()) + size(":path", path);
    }
    if let Some(authority) = uri.authority() {
        all += size(":authority", authority.as_str().len());
        if let Some(host) = request.headers().get(HOST) {
            all = all.saturating_sub(field_size(&HOST, host));
        }
    }
    all
}

/// What a field counts for SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 section 6.5.2).
fn field_size(name: &HeaderName, value: &HeaderValue) -> usize {
    name.as_str().len() + value.len() + ENTRY_OVERHEAD
}

/// Checks fields beside which there are so many octets.
fn check_fields(headers: &HeaderMap, beside: usize, most: usize) -> Result<(), InvalidMessage> {
    let mut length = None;
    let mut size = beside;
    for (name, value) in headers {
        size += field_size(name, value);
        if has_outer_white_space(value.as_bytes()) {
            return Err(InvalidMessage::FieldValue(name.clone()));
        }
        match FieldKind::of(name) {
            FieldKind::ConnectionSpecific => {
                return Err(InvalidMessage::ConnectionSpecificField(name.clone()));
            }
            FieldKind::Te if !is_trailers(value.as_bytes()) => return Err(InvalidMessage::Te),
            FieldKind::ContentLength => {
                agree_on_length(&mut length, value).map_err(|_| InvalidMessage::ContentLength)?;
            }
            _ => {}
        }
    }
    match size > most {
        true => Err(InvalidMessage::TooLarge),
        false => Ok(()),
    }
}

/// The length that a message declares for its body, in bytes.
///
/// A value may be there several times, as fields or in a list, as long as it is the same (RFC 9110 section 8.6).
///
/// # Errors
///
/// [`InvalidMessage::ContentLength`]: a value is no number, passes 64 bits, or differs from another.
///
/// ```
/// let mut headers = http::HeaderMap::new();
/// assert_eq!(fullbore_proto::content_length(&headers), Ok(None));
/// headers.insert("content-length", "5, 5".parse().expect("a value"));
/// assert_eq!(fullbore_proto::content_length(&headers), Ok(Some(5)));
/// ```
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, InvalidMessage> {
    received_length(headers).map_err(|_| InvalidMessage::ContentLength)
}
