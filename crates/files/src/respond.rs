//! Responses without a file: short texts, and the fields that every response has.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, SERVER};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::file_body::{FileResponse, ResponseBody};

pub(crate) const SERVER_NAME: HeaderValue =
    HeaderValue::from_static(concat!("fullbore/", env!("CARGO_PKG_VERSION")));

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// When a client may repeat a request that was answered with 503, in seconds.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// A status with one line of text. 503 has `retry-after`.
pub(crate) fn text(status: StatusCode, line: &str) -> FileResponse {
    plain(status, Bytes::from(format!("{line}\n")))
}

/// A status with a text. 503 has `retry-after`.
pub(crate) fn plain(status: StatusCode, body: Bytes) -> FileResponse {
    let mut response = bare(status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, RETRY_SECONDS);
    }
    *response.body_mut() = ResponseBody::full(body);
    response
}

/// A status with its reason phrase as the text.
pub(crate) fn status(status: StatusCode) -> FileResponse {
    text(status, status.canonical_reason().unwrap_or("error"))
}

/// A status without content.
pub(crate) fn bare(status: StatusCode) -> FileResponse {
    let mut response = Box::new(Response::new(ResponseBody::empty()));
    *response.status_mut() = status;
    response.headers_mut().insert(SERVER, SERVER_NAME);
    response
}

/// 405, with the allowed methods (RFC 9110 section 15.5.6).
pub(crate) fn method_not_allowed(allow: &'static str) -> FileResponse {
    with(
        status(StatusCode::METHOD_NOT_ALLOWED),
        ALLOW,
        Some(HeaderValue::from_static(allow)),
    )
}

/// The response to OPTIONS.
pub(crate) fn options(allow: &'static str) -> FileResponse {
    with(
        bare(StatusCode::NO_CONTENT),
        ALLOW,
        Some(HeaderValue::from_static(allow)),
    )
}

/// Sets a field, if there is a value for it.
pub(crate) fn with(mut response: FileResponse, name: HeaderName, value: Option<HeaderValue>) -> FileResponse {
    if let Some(value) = value {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Drops the body of a response to HEAD and keeps its `content-length`. The server adds `date`.
pub(crate) fn finish(method: &Method, mut response: FileResponse) -> FileResponse {
    if method == Method::HEAD {
        *response.body_mut() = ResponseBody::empty();
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    #[test]
    fn every_answer_names_the_server_and_a_text_its_type_and_length() {
        let name = concat!("fullbore/", env!("CARGO_PKG_VERSION"));
        let allow = "GET, HEAD";
        for (response, status, length) in [
            (text(StatusCode::OK, "one line"), 200, Some("9")),
            (self::status(StatusCode::NOT_FOUND), 404, Some("10")),
            (self::status(StatusCode::SERVICE_UNAVAILABLE), 503, Some("20")),
            (bare(StatusCode::NOT_MODIFIED), 304, None),
            (method_not_allowed(allow), 405, Some("19")),
            (options(allow), 204, None),
        ] {
            let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            assert_eq!(response.status(), status);
            assert_eq!(field(SERVER), Some(name), "{status}");
            assert_eq!(field(CONTENT_LENGTH), length, "{status}");
            let kind = length.map(|_| "text/plain; charset=utf-8");
            assert_eq!(field(CONTENT_TYPE), kind, "{status}");
            let allowed = [204, 405].contains(&status).then_some(allow);
            assert_eq!(field(ALLOW), allowed, "{status}");
            assert_eq!(field(RETRY_AFTER), (status == 503).then_some("5"));
            let octets = response.body().size_hint().exact();
            assert_eq!(
                octets,
                length.map_or(Some(0), |length| length.parse().ok()),
                "{status}"
            );
        }
    }

    #[test]
    fn the_answer_to_head_keeps_its_length_and_has_no_octets() {
        for (method, octets) in [(Method::GET, 5), (Method::POST, 5), (Method::HEAD, 0)] {
            let response = finish(&method, text(StatusCode::OK, "line"));
            assert_eq!(response.body().size_hint().exact(), Some(octets), "{method}");
            assert_eq!(
                response.headers().get(CONTENT_LENGTH),
                Some(&HeaderValue::from(5))
            );
        }
    }
}
