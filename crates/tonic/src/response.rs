//! The response to a call: its head is checked, and its body ends with a status, whatever the server sends.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use fullbore::Incoming;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use http_body::Body;
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::deadline::Deadline;
use crate::status;

/// The base64 of binary metadata, with or without padding.
const BINARY: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Checks the head of a response.
///
/// # Errors
/// The response has no status of gRPC and cannot get one: it is not gRPC.
pub(crate) fn check(response: &mut Response<Incoming>) -> Result<(), Status> {
    if response.version() != Version::HTTP_2 {
        let text = format!(
            "the server answered in {:?}, and gRPC needs HTTP/2",
            response.version()
        );
        return Err(Status::unavailable(text));
    }
    repair_status(response.headers_mut());
    let headers = response.headers();
    if headers.contains_key(Status::GRPC_STATUS) {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE);
    let is_grpc = kind.is_none_or(|kind| is_grpc(kind.as_bytes()));
    let code = response.status();
    if is_grpc && (code == StatusCode::OK || kind.is_some()) {
        return Ok(());
    }
    let kind = kind.map_or("none".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
    let text = format!("the response is not gRPC: HTTP status {code}, content-type {kind}, no grpc-status");
    Err(Status::new(status::code_of_http(code), text))
}

/// Whether a content type is that of gRPC, with or without the format of its messages.
fn is_grpc(kind: &[u8]) -> bool {
    let format = kind.strip_prefix(b"application/grpc");
    format.is_some_and(|format| matches!(format.first(), None | Some(b'+' | b';')))
}

/// Changes what tonic cannot decode of a status. It panics on details that are not base64, which are removed. For a message
/// that is not UTF-8 it would forget the code: gRPC over HTTP/2 gives the user its percent-encoded form instead.
fn repair_status(headers: &mut HeaderMap) {
    let details = headers.get(Status::GRPC_STATUS_DETAILS);
    if details.is_some_and(|details| BINARY.decode(details).is_err()) {
        headers.remove(Status::GRPC_STATUS_DETAILS);
    }
    let message = headers.get(Status::GRPC_MESSAGE);
    let malformed =
        message.filter(|message| std::str::from_utf8(&percent_decoded(message.as_bytes())).is_err());
    if let Some(message) = malformed {
        let text = String::from_utf8_lossy(message.as_bytes()).replace('%', "%25");
        match HeaderValue::from_bytes(text.as_bytes()) {
            Ok(text) => headers.insert(Status::GRPC_MESSAGE, text),
            Err(_) => headers.remove(Status::GRPC_MESSAGE),
        };
    }
}

/// The octets of a text. A percent sign without two hexadecimal digits stands for itself.
fn percent_decoded(mut text: &[u8]) -> Vec<u8> {
    let digit = |octet: u8| char::from(octet).to_digit(16);
    let mut octets = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let escaped = match rest {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => octets.push((high << 4 | low) as u8),
            None => octets.push(*first),
        }
        text = &rest[if escaped.is_some() { 2 } else { 0 }..];
    }
    octets
}

/// The body of a response, as a [`Channel`](crate::Channel) returns it. Its errors are statuses. A body that ends without
/// a status, and one that is not complete at the deadline of the call, ends with an error. The default has ended: it is that
/// of a call which an interceptor refuses.
#[derive(Default)]
pub struct ResponseBody {
    /// None after the end.
    body: Option<Incoming>,
    deadline: Deadline,
    /// The frames of a response that was complete when its deadline was noticed.
    complete: VecDeque<Frame<Bytes>>,
    /// The HTTP status, as long as `grpc-status` has not come.
    unfinished: Option<StatusCode>,
    /// The call's place among those in progress.
    permit: Option<OwnedSemaphorePermit>,
}

impl ResponseBody {
    pub(crate) fn of(
        response: Response<Incoming>,
        deadline: Deadline,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Response<Self> {
        let (head, body) = response.into_parts();
        let finished = head.headers.contains_key(Status::GRPC_STATUS);
        let body = ResponseBody {
            body: Some(body),
            deadline,
            complete: VecDeque::new(),
            unfinished: (!finished).then_some(head.status),
            permit,
        };
        Response::from_parts(head, body)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        if self.deadline.poll(cx).is_ready() {
            // A call that has ended has met its deadline, however late its messages are read.
            if !takes_all(body, &mut self.complete, cx) {
                self.complete.clear();
                return Poll::Ready(Some(Err(status::deadline_exceeded())));
            }
            self.deadline = Deadline::default();
        }
        let frame = match self.complete.pop_front() {
            Some(frame) => Some(Ok(frame)),
            None => ready!(Pin::new(body).poll_frame(cx)),
        };
        let Some(frame) = frame else {
            return Poll::Ready(self.unfinished.map(|code| Err(without_status(code))));
        };
        // The server's own deadline may be the cause of an error, and its RST_STREAM faster than the clock.
        let mut frame = frame.map_err(|error| match self.deadline.has_passed() {
            true => status::deadline_exceeded(),
            false => status::of_error(error),
        })?;
        if let Some(trailers) = frame.trailers_mut() {
            repair_status(trailers);
            match self.unfinished {
                Some(code) if !trailers.contains_key(Status::GRPC_STATUS) => {
                    return Poll::Ready(Some(Err(without_status(code))));
                }
                _ => self.unfinished = None,
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

/// Takes the frames that have arrived. Returns whether the response ends with them.
fn takes_all(body: &mut Incoming, frames: &mut VecDeque<Frame<Bytes>>, cx: &mut Context<'_>) -> bool {
    loop {
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frames.push_back(frame),
            Poll::Ready(None) => return true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => return false,
        }
    }
}

/// The status of a response that ended without one.
fn without_status(code: StatusCode) -> Status {
    let text = match code {
        StatusCode::OK => "the response ended without grpc-status: a proxy may have cut it short".to_owned(),
        _ => format!("the response has no grpc-status; its HTTP status is {code}"),
    };
    Status::new(status::code_of_http(code), text)
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(self.poll(cx));
        // Trailers end the call: tonic does not ask for what follows them.
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.unfinished = None;
            // Before its end, this resets the stream.
            self.body = None;
            self.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let ended = self.body.as_ref().is_none_or(Body::is_end_stream);
        ended && self.complete.is_empty() && self.unfinished.is_none()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_utf8_keeps_its_code_and_its_encoded_form() {
        for (sent, received) in [
            (&b"plain, 100 %, %zz%"[..], "plain, 100 %, %zz%"),
            (b"gew%C3%BCnscht", "gew\u{fc}nscht"),
            ("gew\u{fc}nscht".as_bytes(), "gew\u{fc}nscht"),
            (b"gew%FCnscht: 100%25", "gew%FCnscht: 100%25"),
            (b"gew\xfcnscht %41", "gew\u{fffd}nscht %41"),
            (b"%ff", "%ff"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(Status::GRPC_STATUS, HeaderValue::from_static("5"));
            headers.insert(Status::GRPC_MESSAGE, HeaderValue::from_bytes(sent).unwrap());
            repair_status(&mut headers);
            let status = Status::from_header_map(&headers).unwrap();
            assert_eq!(
                (status.code(), status.message()),
                (tonic::Code::NotFound, received)
            );
        }
    }
}
