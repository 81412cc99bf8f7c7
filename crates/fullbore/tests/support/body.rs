//! Bodies whose every octet is known by where it stands, and their reading.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::{BoxError, Error, Incoming};
use fullbore_testing::pattern::{PIECE, slice};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};

/// `bytes` octets of the pattern from offset `at`.
pub(crate) fn pattern(at: u64, bytes: usize) -> Bytes {
    assert!(bytes as u64 <= PIECE, "no chunk of {bytes} octets");
    slice(at, bytes as u64)
}

/// How many octets bodies have given so far.
pub(crate) type Produced = Arc<AtomicU64>;

/// A body of the pattern in chunks of one length; it does not say how long it is unless it is made to.
pub(crate) struct Chunks {
    at: u64,
    total: u64,
    chunk: usize,
    sized: bool,
    produced: Produced,
    trailers: Option<HeaderMap>,
    /// Fails after the last octet.
    fails: bool,
    /// Never ends after the last octet.
    stalls: bool,
}

impl Chunks {
    pub(crate) fn new(total: u64, chunk: usize) -> Self {
        Chunks {
            at: 0,
            total,
            chunk,
            sized: false,
            produced: Produced::default(),
            trailers: None,
            fails: false,
            stalls: false,
        }
    }

    pub(crate) fn sized(mut self) -> Self {
        self.sized = true;
        self
    }

    pub(crate) fn counted(mut self, produced: &Produced) -> Self {
        self.produced = Arc::clone(produced);
        self
    }

    pub(crate) fn with_trailer(mut self, name: &'static str, value: &'static str) -> Self {
        let value = value.parse().expect("a field value");
        self.trailers.get_or_insert_default().insert(name, value);
        self
    }

    pub(crate) fn failing(mut self) -> Self {
        self.fails = true;
        self
    }

    pub(crate) fn stalling(mut self) -> Self {
        self.stalls = true;
        self
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let left = self.total - self.at;
        if left > 0 {
            let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk);
            let chunk = pattern(self.at, bytes);
            self.at += bytes as u64;
            self.produced.fetch_add(bytes as u64, Ordering::SeqCst);
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if self.stalls {
            return Poll::Pending;
        }
        if self.fails {
            return Poll::Ready(Some(Err("the body broke".into())));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn size_hint(&self) -> SizeHint {
        match self.sized {
            true => SizeHint::with_exact(self.total - self.at),
            false => SizeHint::default(),
        }
    }
}

/// A body that says when it is dropped.
pub(crate) struct Guarded<B> {
    pub(crate) body: B,
    pub(crate) dropped: Arc<AtomicBool>,
}

impl<B> Guarded<B> {
    pub(crate) fn new(body: B) -> (Self, Arc<AtomicBool>) {
        let dropped = Arc::new(AtomicBool::new(false));
        let guarded = Guarded {
            body,
            dropped: Arc::clone(&dropped),
        };
        (guarded, dropped)
    }
}

impl<B> Drop for Guarded<B> {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::SeqCst);
    }
}

impl<B: Body + Unpin> Body for Guarded<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

pub(crate) fn empty() -> UnsyncBoxBody<Bytes, BoxError> {
    Empty::new().map_err(BoxError::from).boxed_unsync()
}

pub(crate) fn full(data: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, BoxError> {
    Full::new(data.into()).map_err(BoxError::from).boxed_unsync()
}

/// What was read of a body to its end.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Reads a body of the pattern to its end.
///
/// # Panics
/// When an octet is not that of the pattern.
pub(crate) async fn take(mut body: Incoming) -> Result<Taken, Error> {
    let mut taken = Taken::default();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                let expected = pattern(taken.bytes, data.len());
                assert!(data == expected, "wrong octets from offset {}", taken.bytes);
                taken.bytes += data.len() as u64;
            }
            Err(frame) => taken.trailers = frame.into_trailers().ok(),
        }
    }
    Ok(taken)
}
