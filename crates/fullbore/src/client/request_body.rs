//! The body of a request: bytes, which can be sent again, or a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::erased::Erased;
use super::response::Response;
use crate::body::Incoming;
use crate::error::BoxError;

/// The body of a request that a [`RequestBuilder`](super::RequestBuilder) makes.
///
/// Strings and bytes become one by `into()`. They can be sent again: when the peer did not process the request, and after a
/// redirect that keeps the method. A stream cannot.
pub struct Body {
    inner: Inner,
}

enum Inner {
    Whole(Whole),
    Streamed(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    /// A body of any kind, such as one of `http-body-util` or an [`Incoming`].
    pub fn wrap<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body {
            inner: Inner::Streamed(Box::pin(Erased { body })),
        }
    }

    /// The items of a stream. Its length is unknown, unless the request has a `content-length`.
    ///
    /// ```
    /// let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>("one"), Ok("two")]);
    /// let body = fullbore::client::Body::wrap_stream(chunks);
    /// ```
    pub fn wrap_stream<S, T, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<T, E>> + Send + 'static,
        T: Into<Bytes> + 'static,
        E: Into<BoxError> + 'static,
    {
        Body {
            inner: Inner::Streamed(Box::pin(Streamed { stream })),
        }
    }

    /// The bytes, if the body is no stream.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.inner {
            Inner::Whole(whole) => Some(&whole.bytes),
            Inner::Streamed(_) => None,
        }
    }

    /// A copy, which shares the bytes, if the body is no stream.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.inner {
            Inner::Whole(whole) => Some(whole.bytes.clone().into()),
            Inner::Streamed(_) => None,
        }
    }

    /// The body that can be cloned, if it is one.
    pub(super) fn into_whole(self) -> Result<Whole, Self> {
        match self.inner {
            Inner::Whole(whole) => Ok(whole),
            inner @ Inner::Streamed(_) => Err(Body { inner }),
        }
    }
}

impl Default for Body {
    /// The empty body.
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body {
            inner: Inner::Whole(Whole { bytes }),
        }
    }
}

macro_rules! from_bytes {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Body {
            fn from(bytes: $kind) -> Self {
                Bytes::from(bytes).into()
            }
        }
    )*};
}

from_bytes!(String, &'static str, Vec<u8>, &'static [u8]);

/// Sends on what is received.
impl From<Incoming> for Body {
    fn from(body: Incoming) -> Self {
        Self::wrap(body)
    }
}

/// Sends on the body of a response.
impl From<Response> for Body {
    fn from(response: Response) -> Self {
        Self::wrap(response.into_body())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.inner {
            Inner::Whole(whole) => Poll::Ready(whole.take().map(Ok)),
            Inner::Streamed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(whole) => whole.bytes.is_empty(),
            Inner::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(whole) => SizeHint::with_exact(whole.bytes.len() as u64),
            Inner::Streamed(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secrets.
        let size = self.size_hint();
        f.debug_struct("Body").field("bytes", &size.exact()).finish()
    }
}

/// A body that can be cloned.
#[derive(Clone)]
pub(super) struct Whole {
    bytes: Bytes,
}

impl Whole {
    fn take(&mut self) -> Option<Frame<Bytes>> {
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then(|| Frame::data(bytes))
    }
}

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

pin_project! {
    /// The items of a stream.
    struct Streamed<S> {
        #[pin]
        stream: S,
    }
}

impl<S, T, E> HttpBody for Streamed<S>
where
    S: Stream<Item = Result<T, E>>,
    T: Into<Bytes>,
    E: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let item = self.project().stream.poll_next(cx);
        item.map(|item| Some(item?.map(|item| Frame::data(item.into())).map_err(Into::into)))
    }
}
