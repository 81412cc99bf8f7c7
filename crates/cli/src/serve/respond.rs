//! Answers without a file: short texts for what went wrong, and the fields that every answer has.
//!
//! Called by every room that answers.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, DATE, SERVER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use super::file_body::ServeBody;

const SERVER_NAME: HeaderValue = HeaderValue::from_static(concat!("fullbore/", env!("CARGO_PKG_VERSION")));

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A status with one line of text.
pub(super) fn text(status: StatusCode, line: &str) -> Response<ServeBody> {
    let body = Bytes::from(format!("{line}\n"));
    let mut response = Response::new(ServeBody::empty());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PLAIN_TEXT);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = ServeBody::full(body);
    response
}

/// A status with its own name as the text.
pub(super) fn status(status: StatusCode) -> Response<ServeBody> {
    text(status, status.canonical_reason().unwrap_or("error"))
}

/// A status without content.
pub(super) fn bare(status: StatusCode) -> Response<ServeBody> {
    let mut response = Response::new(ServeBody::empty());
    *response.status_mut() = status;
    response
}

/// 405, with what would be allowed (RFC 9110 section 15.5.6).
pub(super) fn method_not_allowed(allow: &'static str) -> Response<ServeBody> {
    with(
        status(StatusCode::METHOD_NOT_ALLOWED),
        ALLOW,
        Some(HeaderValue::from_static(allow)),
    )
}

/// The answer to OPTIONS.
pub(super) fn options(allow: &'static str) -> Response<ServeBody> {
    with(
        bare(StatusCode::NO_CONTENT),
        ALLOW,
        Some(HeaderValue::from_static(allow)),
    )
}

/// Sets a field, if there is a value for it.
pub(super) fn with(
    mut response: Response<ServeBody>,
    name: HeaderName,
    value: Option<HeaderValue>,
) -> Response<ServeBody> {
    if let Some(value) = value {
        response.headers_mut().insert(name, value);
    }
    response
}

/// The last touch: `date`, `server`, and no octets in answer to HEAD, whose `content-length` stays.
pub(super) fn finish(method: &Method, mut response: Response<ServeBody>) -> Response<ServeBody> {
    if method == Method::HEAD {
        *response.body_mut() = ServeBody::empty();
    }
    sign(response.headers_mut());
    response
}

/// The fields that every answer has.
pub(super) fn sign(headers: &mut HeaderMap) {
    headers.insert(SERVER, SERVER_NAME);
    if let Some(date) = date(SystemTime::now()) {
        headers.insert(DATE, date);
    }
}

/// The value of `date`, written once a second and thread.
fn date(now: SystemTime) -> Option<HeaderValue> {
    thread_local! {
        static WRITTEN: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
    }
    let second = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    WRITTEN.with_borrow_mut(|written| match written {
        Some((at, value)) if *at == second => Some(value.clone()),
        _ => {
            let value = HeaderValue::try_from(httpdate::fmt_http_date(now)).ok()?;
            *written = Some((second, value.clone()));
            Some(value)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_date_follows_the_second() {
        let at = |millis| date(UNIX_EPOCH + Duration::from_millis(millis)).unwrap();
        assert_eq!(at(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778_000), "Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(at(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
