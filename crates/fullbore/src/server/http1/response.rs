//! The response, as hyper takes it: fields that fit the body, and a body of bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Response, StatusCode, Version, request, response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::pieces::read_piece;
use crate::content_length::Length;
use crate::error::{BoxError, Error};
use crate::file::{Chunk, FileRange};
use crate::http1::{Exchange, Measured, Meter, Next};
use crate::server::rules::{Content, Framing, ResponseRules, remove_transfer_encoding};

/// A body whose request has not sent so much of it yet is not waited for after the response.
const SHORT_REST: u64 = 64 << 10;

/// What the request says about the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    rules: ResponseRules,
    /// The client waits for 100 (Continue), or its body is long or of unknown length.
    large: bool,
}

impl Asked {
    pub(super) fn of<B: Body>(head: &request::Parts, body: &B) -> Self {
        let long = || body.size_hint().upper().is_none_or(|bytes| bytes > SHORT_REST);
        let expects = || head.headers.contains_key(http::header::EXPECT);
        Asked {
            rules: ResponseRules::of(&head.method),
            large: !body.is_end_stream() && (long() || expects()),
        }
    }

    /// What follows the head of a response, whose fields are made to say so.
    ///
    /// # Errors
    /// The fields contradict each other or the body.
    #[inline]
    pub(super) fn content<B: Body>(self, head: &mut response::Parts, body: &B) -> Result<Content, Error> {
        remove_transfer_encoding(head)?;
        self.rules.content(head, body, Framing::Hyper)
    }

    /// The response of a service, for hyper. Without a body it is one whose body was read to its end.
    #[inline]
    pub(super) fn response<B>(
        self,
        mut head: response::Parts,
        body: Option<B>,
        content: Content,
        now: Exchange,
        meter: Arc<Meter>,
    ) -> Response<ResponseBody<B>> {
        // hyper sets that of the request, and has no text for some others.
        head.version = Version::HTTP_11;
        // hyper closes the connection when the rest of a body does not come at once. A client is told before.
        if now.unread && self.large {
            let close = HeaderValue::from_static("close");
            head.headers.insert(CONNECTION, close);
        }
        let body = ResponseBody {
            body,
            range: None,
            measured: Measured::new(match content {
                Content::Body(length) => length,
                Content::None | Content::Tunnel => Length::UNKNOWN,
            }),
            announced: head.headers.keys().any(|name| name == CONTENT_LENGTH),
            meter,
            request: now.requests,
        };
        Response::from_parts(head, body)
    }

    /// Whether a response makes the connection a tunnel.
    pub(super) fn begins_tunnel(self, status: StatusCode) -> bool {
        self.rules.begins_tunnel(status)
    }
}

/// A response without a body, behind which the connection is closed.
pub(super) fn refusal<B>(status: StatusCode, now: Exchange, meter: Arc<Meter>) -> Response<ResponseBody<B>> {
    let body = ResponseBody {
        body: None,
        range: None,
        measured: Measured::default(),
        announced: false,
        meter,
        request: now.requests,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

pin_project! {
    /// The body of a response. It has as many bytes as the head says, or fails.
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: Option<B>,
        // What is left of a range of a file. Boxed: most bodies have none, and all of them are moved.
        range: Option<Box<FileRange>>,
        measured: Measured,
        // The head announces a length, which hyper takes from there.
        announced: bool,
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
        let (range, meter) = (this.range, &*this.meter);
        let frame = this
            .measured
            .poll(cx, |cx| poll_next(this.body.as_mut(), range, meter, cx));
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        let is_at_end = self.range.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream);
        is_at_end && !self.measured.holds()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            None => SizeHint::with_exact(0),
            Some(_) if self.announced => SizeHint::default(),
            Some(body) => body.size_hint(),
        }
    }
}

/// What comes next of a body: its bytes, or a piece of a range of a file.
fn poll_next<B>(
    mut body: Pin<&mut Option<B>>,
    range: &mut Option<Box<FileRange>>,
    meter: &Arc<Meter>,
    cx: &mut Context<'_>,
) -> Poll<Result<Next, Error>>
where
    B: Body,
    B::Data: Into<Chunk>,
    B::Error: Into<BoxError>,
{
    loop {
        let is_at_end = |body: Pin<&Option<B>>| body.as_pin_ref().is_none_or(|body| body.is_end_stream());
        if let Some(rest) = range {
            ready!(meter.poll_piece(cx));
            let piece = read_piece(rest, meter).map_err(|error| Error::body(error.into()))?;
            if !rest.is_empty() {
                return Poll::Ready(Ok(Next::Data(piece, false)));
            }
            *range = None;
            return Poll::Ready(Ok(Next::Data(piece, is_at_end(body.as_ref()))));
        }
        let Some(source) = body.as_mut().as_pin_mut() else {
            return Poll::Ready(Ok(Next::End));
        };
        let Some(frame) = ready!(source.poll_frame(cx)) else {
            return Poll::Ready(Ok(Next::End));
        };
        let frame = frame.map_err(|error| Error::body(error.into()))?;
        match frame.into_data().map(Into::into) {
            Ok(Chunk::File(rest)) if !rest.is_empty() => *range = Some(Box::new(rest)),
            Ok(chunk) => {
                let bytes = match chunk {
                    Chunk::Bytes(bytes) => bytes,
                    _ => Bytes::new(),
                };
                return Poll::Ready(Ok(Next::Data(bytes, is_at_end(body.as_ref()))));
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Poll::Ready(Ok(Next::Trailers(trailers)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http::Request;
    use http_body_util::{BodyExt, Empty, Full, StreamBody};

    use super::*;
    use crate::ErrorKind;

    /// What hyper gets of a body in `pieces`, whose head declares a length, or the kind of its error.
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
        let body = answer(Request::new(Empty::<Bytes>::new()), response, Exchange::default()).into_body();
        match body.collect().now_or_never().expect("all of it") {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(error.downcast_ref::<Error>().expect("our error").kind()),
        }
    }

    /// A response for hyper.
    fn answer<B: Body, C: Body>(
        request: Request<B>,
        response: Response<C>,
        now: Exchange,
    ) -> Response<ResponseBody<C>> {
        let asked = asked(request);
        let (mut head, body) = response.into_parts();
        let content = asked.content(&mut head, &body).expect("no contradiction");
        asked.response(head, Some(body), content, now, Arc::default())
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
        for declared in ["3", "5", "7", "0"] {
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
        let response = answer(request, response, now);
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
