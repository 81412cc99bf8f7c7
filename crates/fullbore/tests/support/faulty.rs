//! Transports that misbehave: one that cuts and delays at random, one that fails at a certain operation.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Cuts reads and writes into small pieces, and now and then is not ready without a reason.
pub(crate) struct Choppy<T> {
    inner: T,
    random: fastrand::Rng,
    longest: usize,
    /// Passes vectored writes on, rather than their first slice.
    vectored: bool,
}

impl<T> Choppy<T> {
    pub(crate) fn new(inner: T, seed: u64, longest: usize) -> Self {
        Choppy {
            inner,
            random: fastrand::Rng::with_seed(seed),
            longest,
            vectored: seed % 2 == 0,
        }
    }

    /// How long the next piece is; none when it is to come later.
    fn piece(&mut self, cx: &Context<'_>) -> Poll<usize> {
        if self.random.u8(..) < 64 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.random.usize(1..=self.longest))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Choppy<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = ready!(self.piece(cx)).min(buffer.remaining());
        let mut room = vec![0; most];
        let mut piece = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut piece))?;
        buffer.put_slice(piece.filled());
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Choppy<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let most = ready!(self.piece(cx)).min(data.len());
        Pin::new(&mut self.inner).poll_write(cx, &data[..most])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let most = ready!(self.piece(cx));
        let mut piece = Vec::new();
        for slice in slices {
            piece.extend_from_slice(&slice[..slice.len().min(most - piece.len())]);
        }
        Pin::new(&mut self.inner).poll_write(cx, &piece)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.piece(cx));
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.piece(cx));
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// How many operations there have been.
pub(crate) type Counter = Arc<AtomicUsize>;

/// Fails the operation of a certain number, and every one after it.
pub(crate) struct Breaks<T> {
    inner: T,
    at: usize,
    seen: Counter,
}

impl<T> Breaks<T> {
    pub(crate) fn new(inner: T, at: usize) -> (Self, Counter) {
        let seen = Counter::default();
        let breaks = Breaks {
            inner,
            at,
            seen: Arc::clone(&seen),
        };
        (breaks, seen)
    }

    fn operate(&self) -> io::Result<()> {
        match self.seen.fetch_add(1, Ordering::SeqCst) >= self.at {
            true => Err(io::Error::other("the transport broke")),
            false => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Breaks<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.operate()?;
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Breaks<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.operate()?;
        Pin::new(&mut self.inner).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.operate()?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.operate()?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
