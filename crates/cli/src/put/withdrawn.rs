//! A request body that is given up when its response comes before its end. Called by `resumable`.
//!
//! A server may refuse a part of an upload before it has read it. The next request to the upload must not overtake content that is
//! still being sent: the server would end one of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::exit::{Exit, Failure};

use super::READ_TIMEOUT;

/// How long the library may take to give up a body. It does not ask for more of one whose flow-control window is closed: then nothing
/// is sent either.
const PATIENCE: Duration = Duration::from_secs(1);

/// A body that can be given up. Its clones are given up with it.
#[derive(Clone)]
pub(super) struct Withdrawn<B> {
    body: B,
    is_withdrawn: Arc<AtomicBool>,
    _ended: Arc<oneshot::Sender<()>>,
}

/// Gives up a body.
pub(super) struct Withdrawal {
    is_withdrawn: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl<B> Withdrawn<B> {
    pub(super) fn new(body: B) -> (Self, Withdrawal) {
        let is_withdrawn = Arc::default();
        let (ending, ended) = oneshot::channel();
        let withdrawal = Withdrawal {
            is_withdrawn: Arc::clone(&is_withdrawn),
            ended,
        };
        let body = Self {
            body,
            is_withdrawn,
            _ended: Arc::new(ending),
        };
        (body, withdrawal)
    }
}

impl Withdrawal {
    /// The response has come. Waits until nothing more of the body is sent: of one that the server has accepted until its end, of
    /// another one until it is given up.
    pub(super) async fn end(mut self, is_accepted: bool) {
        if is_accepted && tokio::time::timeout(READ_TIMEOUT, &mut self.ended).await.is_ok() {
            return;
        }
        self.is_withdrawn.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(PATIENCE, self.ended).await;
    }
}

impl<B: Body<Data = Bytes, Error = Failure> + Unpin> Body for Withdrawn<B> {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.is_withdrawn.load(Ordering::Relaxed) {
            let text = "the server has refused the content before its end";
            return Poll::Ready(Some(Err(Failure::new(Exit::Reset, text.to_owned()))));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
