//! The gRPC status of everything that can end a call without one.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;

use fullbore::{Error, ErrorCode, ErrorKind};
use http::StatusCode;
use tonic::{Code, Status};

/// The status of a call that an error of HTTP/2 or of the connection ended.
pub(crate) fn of_error(error: Error) -> Status {
    if let Some(status) = status_of_body(&error) {
        return status;
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    let mut status = Status::new(code_of_error(&error), text);
    status.set_source(Arc::new(error));
    status
}

/// The status with which the caller's own stream of messages ended the call.
fn status_of_body(error: &Error) -> Option<Status> {
    let own = error.kind() == ErrorKind::Body;
    let source = error.source().filter(|_| own)?;
    source.downcast_ref::<Status>().cloned()
}

fn code_of_error(error: &Error) -> Code {
    match error.kind() {
        // No connection, or one that died: the call may succeed on another one.
        ErrorKind::Resolve
        | ErrorKind::Connect
        | ErrorKind::Proxy
        | ErrorKind::Tls
        | ErrorKind::Certificate
        | ErrorKind::NotHttp2
        | ErrorKind::Closed
        | ErrorKind::Io
        | ErrorKind::Refused
        | ErrorKind::Timeout => Code::Unavailable,
        // The peer reset the stream, or broke a rule for which this code was sent.
        ErrorKind::Reset | ErrorKind::Protocol => error.code().map_or(Code::Internal, code_of_reset),
        ErrorKind::Canceled => Code::Cancelled,
        ErrorKind::Budget => Code::ResourceExhausted,
        _ => Code::Internal,
    }
}

/// The table "Errors" of gRPC over HTTP/2.
fn code_of_reset(code: ErrorCode) -> Code {
    match code {
        ErrorCode::REFUSED_STREAM => Code::Unavailable,
        ErrorCode::CANCEL => Code::Cancelled,
        ErrorCode::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        ErrorCode::INADEQUATE_SECURITY => Code::PermissionDenied,
        ErrorCode::NO_ERROR
        | ErrorCode::PROTOCOL_ERROR
        | ErrorCode::INTERNAL_ERROR
        | ErrorCode::FLOW_CONTROL_ERROR
        | ErrorCode::SETTINGS_TIMEOUT
        | ErrorCode::FRAME_SIZE_ERROR
        | ErrorCode::COMPRESSION_ERROR
        | ErrorCode::CONNECT_ERROR => Code::Internal,
        _ => Code::Unknown,
    }
}

/// The table "HTTP to gRPC Status Code Mapping", for a response without `grpc-status`.
pub(crate) fn code_of_http(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The status of a call whose deadline has passed.
pub(crate) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the deadline of the call (grpc-timeout) has passed")
}
