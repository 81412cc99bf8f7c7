//! The events of an HTTP/1.1 connection for `tracing`, with the targets of HTTP/2.

use http::StatusCode;
use http::request::Parts;
use tracing::{debug, trace};

use crate::error::Error;

/// A request was received.
pub(super) fn request(head: &Parts) {
    trace!(
        target: "fullbore::stream",
        method = %head.method,
        path = head.uri.path(),
        "request over HTTP/1.1"
    );
}

/// A response is sent.
pub(super) fn response(status: StatusCode) {
    trace!(target: "fullbore::stream", status = status.as_u16(), "response over HTTP/1.1");
}

/// A response of a handler cannot be sent.
pub(super) fn given_up(error: &Error) {
    debug!(target: "fullbore::stream", "500 over HTTP/1.1 instead of a response: {error}");
}

/// A handler, or the body of a response, has panicked.
pub(super) fn panicked() {
    debug!(target: "fullbore::stream", "a handler panicked: the HTTP/1.1 connection ends");
}

/// The connection has ended.
pub(super) fn ended(result: &Result<(), Error>) {
    match result {
        Ok(()) => debug!(target: "fullbore::connection", "the HTTP/1.1 connection ended"),
        Err(error) => {
            debug!(target: "fullbore::connection", "the HTTP/1.1 connection ended: {error}");
            if error.is_timeout() {
                debug!(target: "fullbore::limits", "limit reached: {error}");
            }
        }
    }
}
