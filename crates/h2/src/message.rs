//! Messages as users of `h2` write them, and as the engine takes them.

use fullbore_proto::UsageError;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response, Version};

use crate::ext::{self, Protocol};
use crate::failure::UserError;

/// The request as the engine takes it.
///
/// `:authority` is the URI's. A `host` field that says something else is left out, because a server would have to choose
/// between the two (RFC 9113 section 8.3.1). Userinfo is left out too. A relative URI is that of a request of HTTP/1.1 that
/// is passed on; it goes as it is, with its `host`.
///
/// What the request carries besides is dropped here: that is the user's code, and may ask this connection something.
pub(crate) fn request_to_engine(mut request: Request<()>) -> Result<Request<()>, UserError> {
    let protocol = request.extensions_mut().remove::<Protocol>();
    request.extensions_mut().clear();
    let is_plain_connect = request.method() == Method::CONNECT && protocol.is_none();
    if let Some(protocol) = protocol {
        let protocol = ext::to_engine(&protocol).ok_or(UserError::MalformedHeaders)?;
        request.extensions_mut().insert(protocol);
    }
    let version = request.version();
    let authority = match request.uri().authority() {
        Some(authority) => authority.clone(),
        None if version != Version::HTTP_2 && !is_plain_connect => return Ok(request),
        None => return Err(UserError::MissingUriSchemeAndAuthority),
    };
    let authority = without_userinfo(authority)?;
    complete_uri(request.uri_mut(), &authority, is_plain_connect)?;
    let host = request.headers().get_all(HOST).iter();
    if !host
        .map(|value| value.as_bytes())
        .eq([authority.as_str().as_bytes()])
    {
        request.headers_mut().remove(HOST);
    }
    Ok(request)
}

fn without_userinfo(authority: Authority) -> Result<Authority, UserError> {
    match authority.as_str().rsplit_once('@') {
        Some((_, rest)) => Authority::try_from(rest).map_err(|_| UserError::MalformedHeaders),
        None => Ok(authority),
    }
}

/// Gives the URI this authority, and a scheme if it has none.
fn complete_uri(uri: &mut Uri, authority: &Authority, is_plain_connect: bool) -> Result<(), UserError> {
    let has_scheme = uri.scheme().is_some() || is_plain_connect;
    if has_scheme && uri.authority() == Some(authority) {
        return Ok(());
    }
    let mut parts = core::mem::take(uri).into_parts();
    parts.authority = Some(authority.clone());
    if !is_plain_connect {
        parts.scheme.get_or_insert(Scheme::HTTP);
        parts
            .path_and_query
            .get_or_insert_with(|| PathAndQuery::from_static("/"));
    }
    *uri = Uri::from_parts(parts).map_err(|_| UserError::MalformedHeaders)?;
    Ok(())
}

/// A request as users read it.
pub(crate) fn request_from_engine(mut request: Request<()>) -> Request<()> {
    if let Some(protocol) = request.extensions_mut().remove::<fullbore_proto::Protocol>() {
        let protocol = ext::from_engine(&protocol);
        request.extensions_mut().insert(protocol);
    }
    request
}

/// The response as the engine takes it. What it carries besides is dropped here, as that of a request.
pub(crate) fn response_to_engine(mut response: Response<()>) -> Response<()> {
    response.extensions_mut().clear();
    response
}

/// The error of a call of the engine, as users of `h2` know it.
pub(crate) fn user_error(error: &UsageError) -> UserError {
    match error {
        UsageError::InvalidMessage(_) | UsageError::ExtendedConnect => {
            tracing::debug!(%error, cause = ?core::error::Error::source(error), "invalid message");
            UserError::MalformedHeaders
        }
        UsageError::UnknownStream | UsageError::ConnectionFailed => UserError::InactiveStreamId,
        UsageError::NoNewStreams | UsageError::BudgetExhausted => UserError::Rejected,
        UsageError::SettingsUnacknowledged => UserError::SendSettingsWhilePending,
        UsageError::PingUnanswered | UsageError::PingReserved => UserError::SendPingWhilePending,
        _ => UserError::UnexpectedFrameType,
    }
}
