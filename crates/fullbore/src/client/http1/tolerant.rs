//! A transport whose reader learns what the server said last.
//!
//! A server may answer before it has the whole request, and close (RFC 9112 section 9.5). The write that follows fails,
//! but the response is still in the kernel's buffer. So a failed write is no error at once: the reader learns of the end by
//! itself, after what was sent before. Only if it has to wait for [`PATIENCE`] it gets the error of the write. When the
//! response was read, nobody reads any more, and [`Writes::have_failed`] says that the connection is over.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::sent::HeadLength;

/// How long a read may take after a failed write. The end of a TCP connection is there already; the runtime may not have
/// noticed it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the task of a connection and its transport tell each other about writes.
#[derive(Default)]
pub(super) struct Writes {
    failed: AtomicBool,
    strict: AtomicBool,
    /// Whether the head of a request is looked for, and what was found of it.
    finds_head: AtomicBool,
    head: Mutex<HeadLength>,
}

impl Writes {
    /// Whether one has failed, so that none follows.
    pub(super) fn have_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Finds out how long the head is that is written next.
    pub(super) fn find_head(&self) {
        *self.lock_head() = HeadLength::default();
        self.finds_head.store(true, Ordering::Relaxed);
    }

    /// The length of that head, once it has been written.
    pub(super) fn head(&self) -> Option<u64> {
        self.lock_head().known()
    }

    fn wrote(&self, slices: &[IoSlice<'_>], written: &Poll<io::Result<usize>>) {
        let &Poll::Ready(Ok(taken)) = written else { return };
        if self.finds_head.load(Ordering::Relaxed) {
            let mut head = self.lock_head();
            head.wrote(slices, taken);
            self.finds_head.store(head.known().is_none(), Ordering::Relaxed);
        }
    }

    fn lock_head(&self) -> MutexGuard<'_, HeadLength> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is a tunnel now, whose owner learns of every failure.
    pub(super) fn begin_tunnel(&self) {
        self.strict.store(true, Ordering::Relaxed);
    }
}

/// A transport whose failed writes are reported by reads.
pub(super) struct Tolerant<T> {
    io: T,
    /// The error of the first write that failed, until it is reported.
    failed: Option<(io::Error, Pin<Box<Sleep>>)>,
    writes: Arc<Writes>,
}

impl<T> Tolerant<T> {
    pub(super) fn new(io: T, writes: Arc<Writes>) -> Self {
        Tolerant {
            io,
            failed: None,
            writes,
        }
    }

    /// A write that fails waits instead.
    fn forgive<R>(&mut self, cx: &Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        match written {
            Poll::Ready(Err(error)) if !self.writes.strict.load(Ordering::Relaxed) => {
                self.failed = Some((error, Box::pin(sleep(PATIENCE))));
                self.writes.failed.store(true, Ordering::Relaxed);
                // The reader has to look again.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            written => written,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tolerant<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        if read.is_ready() {
            return read;
        }
        match this.failed.take() {
            Some((error, mut patience)) => match patience.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(error)),
                Poll::Pending => {
                    this.failed = Some((error, patience));
                    Poll::Pending
                }
            },
            None => Poll::Pending,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tolerant<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.writes.have_failed() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.writes.wrote(&[IoSlice::new(bytes)], &written);
        self.forgive(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.writes.have_failed() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.writes.wrote(slices, &written);
        self.forgive(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writes.have_failed() {
            return Poll::Pending;
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.forgive(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
