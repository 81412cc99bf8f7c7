//! Heads and trailers become field blocks. They passed their checks before, so that nothing here can fail.

use http::header::{DATE, HOST, HeaderMap, HeaderValue};
use http::{Method, Request, Response};

use super::protocol::Protocol;
use crate::hpack::{Encoder, FieldNameRef};

/// Appends a request's field block to `out`.
///
/// `:authority` is the URI's, and a `host` field, which says the same, is left out (RFC 9113 section 8.3.1). An empty
/// path is sent as `/`, or as `*` if the method is OPTIONS.
pub(crate) fn encode_request(encoder: &mut Encoder, request: &Request<()>, out: &mut Vec<u8>) {
    encoder.begin(out);
    let uri = request.uri();
    let method = request.method();
    let protocol = request.extensions().get::<Protocol>();
    encoder.field(FieldNameRef::Method, method.as_str().as_bytes(), false, out);
    if let Some(protocol) = protocol {
        encoder.field(FieldNameRef::Protocol, protocol.as_str().as_bytes(), false, out);
    }
    let is_plain_connect = *method == Method::CONNECT && protocol.is_none();
    if !is_plain_connect {
        // Only a relative request has none.
        let scheme = uri.scheme_str().unwrap_or("http");
        encoder.field(FieldNameRef::Scheme, scheme.as_bytes(), false, out);
    }
    let authority = uri.authority().map(|authority| authority.as_str());
    if let Some(authority) = authority {
        encoder.field(FieldNameRef::Authority, authority.as_bytes(), false, out);
    }
    if !is_plain_connect {
        encode_path(
            encoder,
            uri.path_and_query().map_or("", |path| path.as_str()),
            method,
            out,
        );
    }
    for (name, value) in request.headers() {
        if authority.is_some() && *name == HOST {
            continue;
        }
        encoder.field(name, value.as_bytes(), value.is_sensitive(), out);
    }
}

/// Appends a response's field block to `out`. A `date` is for a response that has none of its own.
pub(crate) fn encode_response(
    encoder: &mut Encoder,
    response: &Response<()>,
    date: Option<&HeaderValue>,
    out: &mut Vec<u8>,
) {
    encoder.begin(out);
    encoder.status(response.status(), out);
    let mut missing = date;
    for (name, value) in response.headers() {
        if *name == DATE {
            missing = None;
        }
        encoder.field(name, value.as_bytes(), value.is_sensitive(), out);
    }
    if let Some(date) = missing {
        encoder.field(&DATE, date.as_bytes(), false, out);
    }
}

/// Appends the field block of trailers to `out`.
pub(crate) fn encode_trailers(encoder: &mut Encoder, trailers: &HeaderMap, out: &mut Vec<u8>) {
    encoder.begin(out);
    for (name, value) in trailers {
        encoder.field(name, value.as_bytes(), value.is_sensitive(), out);
    }
}

fn encode_path(encoder: &mut Encoder, path: &str, method: &Method, out: &mut Vec<u8>) {
    let mut field = |path: &str| encoder.field(FieldNameRef::Path, path.as_bytes(), false, out);
    match path.as_bytes().first() {
        None if *method == Method::OPTIONS => field("*"),
        None => field("/"),
        // `http://example.com?query` has an empty path and a query.
        Some(b'?') => field(&format!("/{path}")),
        Some(_) => field(path),
    }
}
