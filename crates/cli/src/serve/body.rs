//! The body of every response of `serve`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use fullbore::body::Chunk;
use fullbore_files::ServeBody;
use fullbore_proxy::ProxyBody;
use http_body::{Body, Frame, SizeHint};

use super::metrics::Metrics;

/// A file, a listing, what an application sent, or a sentence.
#[derive(Debug)]
pub(super) enum SiteBody {
    Files(ServeBody<Chunk>),
    Proxy(ProxyBody),
    /// A text, until it was returned.
    Text(Option<Bytes>),
    /// A body whose bytes are counted.
    Counted(Box<SiteBody>, Arc<Metrics>),
}

impl SiteBody {
    pub(super) fn of_text(text: Bytes) -> Self {
        SiteBody::Text(Some(text).filter(|text| !text.is_empty()))
    }
}

impl Default for SiteBody {
    fn default() -> Self {
        SiteBody::Text(None)
    }
}

impl Body for SiteBody {
    type Data = Chunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, io::Error>>> {
        match &mut *self {
            SiteBody::Files(body) => Pin::new(body).poll_frame(cx),
            SiteBody::Proxy(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| match frame {
                    Ok(frame) => Ok(frame.map_data(Chunk::from)),
                    Err(error) => Err(io::Error::other(error)),
                }))
            }
            SiteBody::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(Chunk::from(text))))),
            SiteBody::Counted(body, metrics) => {
                let polled = Pin::new(&mut **body).poll_frame(cx);
                if let Poll::Ready(Some(Ok(frame))) = &polled {
                    metrics.add_body_bytes(frame.data_ref().map_or(0, |data| data.remaining() as u64));
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SiteBody::Files(body) => body.is_end_stream(),
            SiteBody::Proxy(body) => body.is_end_stream(),
            SiteBody::Text(text) => text.is_none(),
            SiteBody::Counted(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SiteBody::Files(body) => body.size_hint(),
            SiteBody::Proxy(body) => body.size_hint(),
            SiteBody::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            SiteBody::Counted(body, _) => body.size_hint(),
        }
    }
}
