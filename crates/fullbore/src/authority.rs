//! A `host` field that names another authority than the URL of a request. The URL says which server to connect to, and `host`
//! what is asked of it: HTTP/1.1 sends the field, and HTTP/2 has `:authority` for it (RFC 9113 section 8.3.1).

use fullbore_proto::{InvalidMessage, Protocol, UsageError};
use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request, Uri};

/// Whether the engine has refused a request for such a field.
pub(crate) fn is_reason<R>(sent: &Result<R, UsageError>) -> bool {
    matches!(sent, Err(UsageError::InvalidMessage(InvalidMessage::Host)))
}

/// Makes the `host` field the authority of the URL; whether that could be done. The authority of CONNECT is its target.
pub(crate) fn take_host(request: &mut Request<()>) -> bool {
    let is_tunnel = *request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_none();
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None, false) = (hosts.next(), hosts.next(), is_tunnel) else {
        return false;
    };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.authority = Some(authority);
    let Ok(uri) = Uri::from_parts(parts) else {
        return false;
    };
    *request.uri_mut() = uri;
    request.headers_mut().remove(HOST);
    true
}
