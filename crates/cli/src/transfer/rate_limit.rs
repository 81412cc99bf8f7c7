//! `--limit-rate`: the bytes of all transfers of a run, in the order in which they move.
//!
//! A transfer that has moved a chunk waits until the chunk is paid for at the rate, behind the chunks of the others. So
//! transfers take turns, and one that waits does not read: its peer meets a closed window, or a full TCP buffer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// How late the limit may be without losing what it could have moved: timers fire late by a millisecond, and a machine
/// that is busy wakes a task later.
const CREDIT: Duration = Duration::from_millis(50);

/// The rate of a run.
pub(crate) struct RateLimit {
    bytes_per_second: u64,
    /// Until when everything that has moved is paid for.
    paid: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub(crate) fn new(bytes_per_second: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_per_second: bytes_per_second.max(1),
            paid: Mutex::new(None),
        })
    }

    /// So many bytes have moved: until when their transfer waits.
    fn moved(&self, bytes: usize, now: Instant) -> Instant {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CREDIT).unwrap_or(now);
        let from = paid.map_or(earliest, |paid| paid.max(earliest));
        let until = from + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        *paid = Some(until);
        until
    }

    /// The bytes of an eighth of a second, between 1 and 256 KiB: what is sent at once.
    fn piece(&self) -> usize {
        let eighth = usize::try_from(self.bytes_per_second / 8).unwrap_or(usize::MAX);
        eighth.clamp(1 << 10, 256 << 10)
    }
}

/// The wait of one transfer.
#[derive(Default)]
pub(crate) struct Pacer {
    limit: Option<Arc<RateLimit>>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Pacer {
    pub(crate) fn new(limit: Option<Arc<RateLimit>>) -> Self {
        Self { limit, wait: None }
    }

    /// So many bytes have moved.
    pub(crate) fn moved(&mut self, bytes: usize) {
        let Some(limit) = &self.limit else { return };
        let now = Instant::now();
        let until = limit.moved(bytes, now);
        if until > now {
            self.wait = Some(Box::pin(tokio::time::sleep_until(until)));
        }
    }

    /// Ready when more bytes may move.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Poll::Ready(())
    }
}

/// A request body at the rate of the run. A clone begins anew, as the clone of the body does.
pub(crate) struct Paced<B> {
    body: B,
    limit: Option<Arc<RateLimit>>,
    pacer: Pacer,
    /// What is left of a chunk.
    rest: Bytes,
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B, limit: Option<Arc<RateLimit>>) -> Self {
        Self {
            body,
            pacer: Pacer::new(limit.clone()),
            limit,
            rest: Bytes::new(),
        }
    }
}

impl<B: Clone> Clone for Paced<B> {
    fn clone(&self) -> Self {
        Self::new(self.body.clone(), self.limit.clone())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let Some(limit) = &this.limit else {
            return Pin::new(&mut this.body).poll_frame(cx);
        };
        ready!(this.pacer.poll_ready(cx));
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = this.rest.split_to(limit.piece().min(this.rest.len()));
        this.pacer.moved(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn transfers_share_the_rate_in_the_order_in_which_their_chunks_move() {
        let limit = RateLimit::new(1_000_000);
        let start = Instant::now() + Duration::from_secs(1);
        // 50 ms are given in advance.
        assert_eq!(limit.moved(60_000, start), start + 10 * MS);
        for turn in 1..=10 {
            assert_eq!(limit.moved(10_000, start), start + (10 + 10 * turn) * MS);
        }
        // What was not used is not made up for.
        let later = start + Duration::from_secs(100);
        assert_eq!(limit.moved(100_000, later), later + 50 * MS);
    }

    #[tokio::test]
    async fn a_body_has_ended_when_all_its_pieces_have_been_sent() {
        let limit = Some(RateLimit::new(u64::MAX));
        for (bytes, pieces) in [(0, 0), (1, 1), (262_145, 2)] {
            let mut body = Paced::new(Full::new(Bytes::from(vec![7; bytes])), limit.clone());
            for _ in 0..pieces {
                assert!(!body.is_end_stream(), "{bytes}");
                assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
            }
            assert!(body.is_end_stream(), "{bytes}");
        }
    }

    #[test]
    fn a_chunk_is_sent_in_pieces_of_an_eighth_of_a_second() {
        for (rate, piece) in [(1, 1_024), (80_000, 10_000), (u64::MAX, 262_144)] {
            assert_eq!(RateLimit::new(rate).piece(), piece);
        }
    }
}
