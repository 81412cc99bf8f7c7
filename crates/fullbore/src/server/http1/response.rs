//! The response, as hyper takes it: fields that fit the body, and a body of bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::pieces::read_piece;
use crate::error::{BoxError, Error, ErrorKind};
use crate::file::{Chunk, FileRange};
use crate::http1::{Exchange, Meter};

/// A body whose request has not sent so much of it yet is not waited for after the response.
const SHORT_REST: u64 = 64 << 10;

/// What the request says about the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    connect: bool,
    /// The client waits for 100 (Continue), or its body is long or of unknown length.
    large: bool,
}

impl Asked {
    pub(super) fn of<B: Body>(head: &Parts, body: &B) -> Self {
        let long = || body.size_hint().upper().is_none_or(|bytes| bytes > SHORT_REST);
        let expects = || head.headers.contains_key(http::header::EXPECT);
        Asked {
            connect: head.method == Method::CONNECT,
            large: !body.is_end_stream() && (long() || expects()),
        }
    }

    /// Whether a response makes the connection a tunnel.
    pub(super) fn begins_tunnel(self, status: StatusCode) -> bool {
        status == StatusCode::SWITCHING_PROTOCOLS || (self.connect && status.is_success())
    }

    /// The response of a service, for hyper.
    #[inline]
    pub(super) fn response<B>(
        self,
        mut response: Response<B>,
        now: Exchange,
        meter: Arc<Meter>,
    ) -> Response<ResponseBody<B>> {
        let declared = declared_length(response.headers());
        // hyper sets that of the request, and has no text for some others.
        *response.version_mut() = Version::HTTP_11;
        // hyper closes the connection when the rest of a body does not come at once. A client is told before.
        if now.unread && self.large {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| ResponseBody {
            body: Some(body),
            range: None,
            declared,
            meter,
            request: now.requests,
        })
    }
}

/// A response without a body, behind which the connection is closed.
pub(super) fn refusal<B>(status: StatusCode, now: Exchange, meter: Arc<Meter>) -> Response<ResponseBody<B>> {
    let body = ResponseBody {
        body: None,
        range: None,
        declared: None,
        meter,
        request: now.requests,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pin_project! {
    /// The body of a response. It has at most as many bytes as the head says, and no fewer.
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: Option<B>,
        // What is left of a range of a file. Boxed: most bodies have none, and all of them are moved.
        range: Option<Box<FileRange>>,
        // What is left of the length that the head declares. hyper takes the length from there.
        declared: Option<u64>,
        meter: Arc<Meter>,
        request: u64,
    }

    impl<B> PinnedDrop for ResponseBody<B> {
        fn drop(this: Pin<&mut Self>) {
            this.meter.answered(this.request);
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let bytes = loop {
            if let Some(range) = this.range {
                ready!(this.meter.poll_piece(cx));
                let piece = read_piece(range, this.meter)?;
                if range.is_empty() {
                    *this.range = None;
                }
                break piece;
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else {
                return Poll::Ready(None);
            };
            let frame = match ready!(body.poll_frame(cx)) {
                Some(frame) => frame.map_err(Into::into)?,
                None if this.declared.is_some_and(|left| left > 0) => {
                    return Poll::Ready(Some(Err(wrong_length("shorter").into())));
                }
                None => return Poll::Ready(None),
            };
            let chunk = match frame.into_data() {
                Ok(data) => data.into(),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                    continue;
                }
            };
            match chunk {
                Chunk::Bytes(bytes) if !bytes.is_empty() => break bytes,
                Chunk::File(range) if !range.is_empty() => *this.range = Some(Box::new(range)),
                _ if this
                    .body
                    .as_ref()
                    .as_pin_ref()
                    .is_none_or(|body| body.is_end_stream()) =>
                {
                    return Poll::Ready(None);
                }
                _ => {}
            }
        };
        if let Some(left) = this.declared {
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => return Poll::Ready(Some(Err(wrong_length("longer").into()))),
            }
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.range.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.body, self.declared) {
            (None, _) => SizeHint::with_exact(0),
            (Some(_), Some(_)) => SizeHint::default(),
            (Some(body), None) => body.size_hint(),
        }
    }
}

fn wrong_length(how: &str) -> Error {
    let text =
        format!("the body of the response is {how} than its content-length, so that the connection ends");
    Error::new(ErrorKind::BodyLength, text)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http::Request;
    use http_body_util::{BodyExt, Empty, Full, StreamBody};

    use super::*;

    /// What a client gets of a body in `pieces`, whose head declares a length, or the kind of its error.
    fn sent(declared: Option<&str>, pieces: &[&'static str]) -> Result<Bytes, ErrorKind> {
        let frames: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from_static(piece.as_bytes()))))
            .collect();
        let mut response = Response::new(StreamBody::new(stream::iter(frames)));
        if let Some(length) = declared {
            let length = HeaderValue::from_str(length).expect("a value");
            response.headers_mut().insert(CONTENT_LENGTH, length);
        }
        let response = asked(Request::new(Empty::<Bytes>::new())).response(
            response,
            Exchange::default(),
            Arc::default(),
        );
        let collected = response.into_body().collect().now_or_never().expect("all of it");
        match collected {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(error.downcast_ref::<Error>().expect("our error").kind()),
        }
    }

    #[test]
    fn a_body_has_the_length_that_its_head_declares() {
        for declared in [None, Some("6")] {
            assert_eq!(
                sent(declared, &["abc", "", "def"]),
                Ok(Bytes::from_static(b"abcdef"))
            );
        }
        assert_eq!(sent(Some("0"), &[]), Ok(Bytes::new()));
        for declared in ["5", "7", "0"] {
            assert_eq!(
                sent(Some(declared), &["abc", "def"]),
                Err(ErrorKind::BodyLength),
                "{declared}"
            );
        }
    }

    fn asked<B: Body>(request: Request<B>) -> Asked {
        let (head, body) = request.into_parts();
        Asked::of(&head, &body)
    }

    /// Whether the response to an unread body closes the connection.
    fn closes(bytes: usize, expect: bool, unread: bool) -> bool {
        let mut request = Request::new(Full::new(Bytes::from(vec![0; bytes])));
        if expect {
            let value = HeaderValue::from_static("100-continue");
            request.headers_mut().insert(http::header::EXPECT, value);
        }
        let now = Exchange {
            unread,
            ..Exchange::default()
        };
        let response = Response::new(Empty::<Bytes>::new());
        let response = asked(request).response(response, now, Arc::default());
        response
            .headers()
            .get(CONNECTION)
            .is_some_and(|value| value == "close")
    }

    #[test]
    fn the_connection_closes_behind_a_long_body_that_nobody_read() {
        assert!(closes((64 << 10) + 1, false, true));
        assert!(!closes((64 << 10) + 1, false, false), "it was read");
        assert!(!closes(64 << 10, false, true), "the rest is waited for");
        assert!(closes(1, true, true), "the client may not send it");
        assert!(!closes(0, true, true), "there is none");
    }

    #[test]
    fn only_101_and_a_success_of_connect_begin_a_tunnel() {
        for (method, status, tunnel) in [
            (Method::GET, 101, true),
            (Method::GET, 200, false),
            (Method::CONNECT, 200, true),
            (Method::CONNECT, 299, true),
            (Method::CONNECT, 407, false),
        ] {
            let mut request = Request::new(Empty::<Bytes>::new());
            *request.method_mut() = method;
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(asked(request).begins_tunnel(status), tunnel, "{status}");
        }
    }

    #[test]
    fn a_request_is_answered_when_the_body_of_its_response_is_dropped() {
        let meter = Arc::new(Meter::default());
        meter.begin(false);
        let now = meter.respond(false);
        let response = refusal::<Empty<Bytes>>(StatusCode::BAD_REQUEST, now, Arc::clone(&meter));
        assert_eq!(response.headers()[CONNECTION], "close");
        assert!(meter.exchange().answers);
        drop(response);
        assert!(!meter.exchange().answers);
    }
}
