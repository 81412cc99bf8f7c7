//! Responses that are a sentence.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

/// A response with a sentence for people.
pub(super) fn text(status: StatusCode, sentence: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(sentence.as_bytes()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
