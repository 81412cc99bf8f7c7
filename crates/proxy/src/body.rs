//! The body of every response of the proxy.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use fullbore::{BoxError, Incoming};
use http_body::{Body, Frame, SizeHint};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadHalf};
use tokio::sync::oneshot;
use tokio_util::io::poll_read_buf;

use crate::fields;
use crate::instances::UnderWay;
use crate::settings::{Failure, Settings};

/// What is read of a tunnel at once.
const PIECE: usize = 16 << 10;

/// The reading half of a connection that was upgraded.
pub(crate) type Tunnel = ReadHalf<TokioIo<Upgraded>>;

/// A body of the origin, or a sentence of the proxy. Dropping it before its end tells the origin that nobody reads it.
pub struct ProxyBody {
    source: Source,
}

enum Source {
    Origin(Incoming, Option<Held>),
    /// A text, until it was returned.
    Text(Option<Bytes>),
    /// What the origin sends over a connection of HTTP/1.1 that was upgraded.
    Tunnel(
        Reading,
        #[expect(dead_code, reason = "they end with it")] (oneshot::Sender<Infallible>, Held),
    ),
}

/// What belongs to a response that has not ended.
pub(crate) struct Held {
    pub(crate) under_way: UnderWay,
    pub(crate) settings: Arc<Settings>,
}

impl ProxyBody {
    pub(crate) fn origin(body: Incoming, held: Held) -> Self {
        Self {
            source: Source::Origin(body, Some(held)),
        }
    }

    pub(crate) fn text(text: Bytes) -> Self {
        Self {
            source: Source::Text(Some(text).filter(|text| !text.is_empty())),
        }
    }

    /// `alive` is dropped with the response.
    pub(crate) fn tunnel(tunnel: Tunnel, alive: oneshot::Sender<Infallible>, held: Held) -> Self {
        Self {
            source: Source::Tunnel(Reading::new(tunnel), (alive, held)),
        }
    }
}

impl Default for ProxyBody {
    /// A body without a byte.
    fn default() -> Self {
        Self::text(Bytes::new())
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.source {
            Source::Origin(body, held) => {
                let mut frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(Some(trailers))) = frame
                    .as_mut()
                    .map(|frame| frame.as_mut().map(Frame::trailers_mut))
                {
                    fields::remove_from_trailers(trailers);
                }
                if let Some(Err(error)) = &frame {
                    if let Some(held) = held.take() {
                        held.under_way.broke_off();
                        held.settings.report(&Failure {
                            origin: Some(&held.under_way.origin().name),
                            status: None,
                            error,
                        });
                    }
                }
                if frame.is_none() {
                    *held = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Source::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Source::Tunnel(reading, _) => reading.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Origin(body, _) => body.is_end_stream(),
            Source::Text(text) => text.is_none(),
            Source::Tunnel(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Origin(body, _) => body.size_hint(),
            Source::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Source::Tunnel(..) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ProxyBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyBody").finish_non_exhaustive()
    }
}

/// Reads a tunnel as a body.
pub(crate) struct Reading<T = Tunnel> {
    tunnel: T,
    read: BytesMut,
}

impl<T: AsyncRead + Unpin> Reading<T> {
    pub(crate) fn new(tunnel: T) -> Self {
        Self {
            tunnel,
            read: BytesMut::new(),
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.read.reserve(PIECE);
        let Poll::Ready(count) = poll_read_buf(Pin::new(&mut self.tunnel), cx, &mut self.read) else {
            // A tunnel that is silent holds no buffer.
            self.read = BytesMut::new();
            return Poll::Pending;
        };
        // A short message does not keep the memory of a long one.
        let data = match count? {
            0 => return Poll::Ready(None),
            count if count < PIECE / 2 => {
                let data = Bytes::copy_from_slice(&self.read);
                self.read.clear();
                data
            }
            _ => self.read.split().freeze(),
        };
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}
