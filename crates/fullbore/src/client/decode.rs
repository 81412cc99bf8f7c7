//! Bodies without their content codings. tower-http decodes them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::{Body, Frame};
use tower_http::decompression::DecompressionBody;

use crate::body::Incoming;
use crate::error::{Error, ErrorKind};

/// Marks a response whose body had a content coding when it came.
#[derive(Clone)]
struct Coded;

/// Whether the client chooses the codings of the response: not if the caller names them, or asks for a part of the body,
/// which would be a part of the coded one.
pub(super) fn is_ours(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::ACCEPT_ENCODING) && !headers.contains_key(header::RANGE)
}

/// Remembers whether there is something to decode.
pub(super) fn marked<B>(mut response: Response<B>) -> Response<B> {
    if response.headers().contains_key(header::CONTENT_ENCODING) {
        response.extensions_mut().insert(Coded);
    }
    response
}

/// The response of tower-http's service as one of this library.
pub(super) fn decoded(mut response: Response<DecompressionBody<Incoming>>) -> Response<Incoming> {
    let was_coded = response.extensions_mut().remove::<Coded>().is_some();
    let is_decoded = was_coded && !response.headers().contains_key(header::CONTENT_ENCODING);
    response.map(|body| match is_decoded && !body.get_ref().is_end_stream() {
        true => {
            let handle = body.get_ref().handle();
            Incoming::around(handle, Box::pin(Decoded { body }))
        }
        false => body.into_inner(),
    })
}

/// A body that is decoded as it is read.
struct Decoded {
    body: DecompressionBody<Incoming>,
}

impl Body for Decoded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(error) => Error::with_source(ErrorKind::Decode, "its content coding is broken", error),
            })
        }))
    }
}
