//! The body of a message that was received over HTTP/1.1.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use crate::error::{Error, ErrorKind};

/// How the body of a message has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The whole message was read.
    Complete,
    /// The whole message was read, with a trailer section. hyper reads one up to CRLF CRLF; where others take a bare LF for the end
    /// of it, the next message was read as trailers.
    WithTrailers,
    /// The body has failed, or was dropped early. No other message can be read from the connection.
    Incomplete,
}

/// What the owner of a connection does when the body of a message ends.
///
/// It is called from the task that reads the body, once, and dropped.
pub(crate) trait BodyWatch: Send + Sync {
    /// The body has ended.
    fn ended(self: Box<Self>, end: BodyEnd);

    /// Why the connection was ended on this side, if it was. This error takes the place of the one that hyper reports.
    fn cause(&self) -> Option<Error> {
        None
    }
}

/// A body that hyper reads, and who watches it.
pub(crate) struct Http1Body {
    body: hyper::body::Incoming,
    /// None once the body has ended.
    watch: Option<Box<dyn BodyWatch>>,
    failed: Option<Error>,
}

impl Http1Body {
    /// A body that is not [at its end](Body::is_end_stream).
    pub(crate) fn new(body: hyper::body::Incoming, watch: Box<dyn BodyWatch>) -> Self {
        Http1Body {
            body,
            watch: Some(watch),
            failed: None,
        }
    }

    /// The next chunk or the trailers. `remaining` counts what is left of a body of known length.
    pub(crate) fn poll_frame(
        &mut self,
        remaining: &mut Option<u64>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.watch.is_none() {
            return Poll::Ready(self.failed.clone().map(Err));
        }
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let (Some(remaining), Some(chunk)) = (remaining, frame.data_ref()) {
                    *remaining = remaining.saturating_sub(chunk.len() as u64);
                }
                match frame.trailers_ref().map(HeaderMap::is_empty) {
                    // hyper has found something there, and no field in it: the chunks end with a bare LF.
                    Some(true) => return Poll::Ready(Some(Err(self.fail(bare_line_feed)))),
                    Some(false) => self.end(BodyEnd::WithTrailers),
                    None if self.body.is_end_stream() => self.end(BodyEnd::Complete),
                    None => {}
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(self.fail(|| Error::from_hyper(error))))),
            // A connection that fails may only close the body.
            None if remaining.is_some_and(|bytes| bytes > 0) => {
                Poll::Ready(Some(Err(self.fail(|| Error::incomplete(None, None)))))
            }
            None => {
                self.end(BodyEnd::Complete);
                Poll::Ready(None)
            }
        }
    }

    /// Whether nothing follows.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.watch.is_none() && self.failed.is_none()
    }

    fn fail(&mut self, error: impl FnOnce() -> Error) -> Error {
        let cause = self.watch.as_ref().and_then(|watch| watch.cause());
        let error = cause.unwrap_or_else(error);
        self.failed = Some(error.clone());
        self.end(BodyEnd::Incomplete);
        error
    }

    fn end(&mut self, end: BodyEnd) {
        if let Some(watch) = self.watch.take() {
            watch.ended(end);
        }
    }
}

/// RFC 9112 section 7.1: the last chunk ends with CRLF, and the body with another.
fn bare_line_feed() -> Error {
    Error::new(ErrorKind::Protocol, "a chunked body does not end with CRLF CRLF")
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.end(BodyEnd::Incomplete);
    }
}

impl fmt::Debug for Http1Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http1Body").finish_non_exhaustive()
    }
}
