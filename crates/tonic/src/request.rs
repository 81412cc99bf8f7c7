//! The body of a request. A call that has its only message at once, as a unary call has, can be sent again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// A request's messages.
pub(crate) enum Messages {
    /// All of them.
    Whole(Whole),
    /// The first ones, and the stream of the others.
    Stream(Stream),
}

impl Messages {
    /// Takes what is there at once.
    pub(crate) async fn of(mut body: Body) -> Result<Self, Status> {
        let mut frames = VecDeque::new();
        let ended = poll_fn(|cx| Poll::Ready(read_ahead(&mut body, &mut frames, cx))).await?;
        let whole = ended && frames.len() <= 1 && frames.iter().all(Frame::is_data);
        Ok(match whole {
            true => Messages::Whole(Whole {
                data: frames.pop_front().and_then(|frame| frame.into_data().ok()),
                ended: false,
            }),
            false => Messages::Stream(Stream { frames, body }),
        })
    }
}

/// Polls the body twice: tonic yields the message of a unary call, and then the end. Returns whether the end came.
fn read_ahead(
    body: &mut Body,
    frames: &mut VecDeque<Frame<Bytes>>,
    cx: &mut Context<'_>,
) -> Result<bool, Status> {
    for _ in 0..2 {
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(frame)) => frames.push_back(frame?),
            Poll::Ready(None) => return Ok(true),
            Poll::Pending => break,
        }
    }
    Ok(false)
}

/// A body of one chunk or none. It does not tell its length: gRPC has no `content-length`. Even without a chunk it is not at
/// its end before it was polled: gRPC ends a request with DATA, and never with HEADERS.
#[derive(Clone)]
pub(crate) struct Whole {
    data: Option<Bytes>,
    ended: bool,
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended = true;
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body of which the first frames have been read.
pub(crate) struct Stream {
    frames: VecDeque<Frame<Bytes>>,
    body: Body,
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }
}
