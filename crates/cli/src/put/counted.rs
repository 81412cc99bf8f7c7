//! A request body whose bytes the progress of many files shows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::transfer::progress::{Progress, Share};

/// A body, and its share of the progress; without one it is not counted.
pub(super) struct Counted<B> {
    body: B,
    progress: Option<Arc<Progress>>,
    share: Option<Share>,
}

impl<B> Counted<B> {
    pub(super) fn new(body: B, progress: Option<&Arc<Progress>>) -> Self {
        Self {
            body,
            progress: progress.cloned(),
            share: progress.map(Share::new),
        }
    }
}

impl<B: Clone> Clone for Counted<B> {
    fn clone(&self) -> Self {
        Self::new(self.body.clone(), self.progress.as_ref())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(share)) = (&polled, &mut self.share) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            share.moved(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
