//! A transport in memory on tokio's clock, with scripted delays, short writes and faults, which counts what is done to it.
//!
//! Under a paused clock a test over it is exact: nothing takes time but the delays of its script.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How one direction behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    /// Octets arrive this much later.
    pub(crate) delay: Duration,
    /// How many octets are under way and unread at most. A writer waits beyond that.
    pub(crate) capacity: usize,
    /// How many octets a write takes at most.
    pub(crate) longest_write: usize,
    /// Writes fail once so many octets have been taken.
    pub(crate) breaks_after: Option<usize>,
}

impl Script {
    /// Without a delay, a limit or a fault.
    pub(crate) const fn ideal() -> Self {
        Script::delayed(Duration::ZERO)
    }

    /// With a delay alone.
    pub(crate) const fn delayed(delay: Duration) -> Self {
        Script {
            delay,
            capacity: usize::MAX,
            longest_write: usize::MAX,
            breaks_after: None,
        }
    }
}

/// What was done to one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Writes that took octets.
    pub(crate) writes: usize,
    /// Octets that were written.
    pub(crate) octets: usize,
    /// Whether the writer has closed it.
    pub(crate) closed: bool,
}

struct Direction {
    script: Script,
    under_way: VecDeque<(Instant, Bytes)>,
    held: usize,
    counts: Counts,
    end: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Direction>>);

impl Shared {
    fn new(script: Script) -> Self {
        Shared(Arc::new(Mutex::new(Direction {
            script,
            under_way: VecDeque::new(),
            held: 0,
            counts: Counts::default(),
            end: None,
            reader: None,
            writer: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Direction> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut direction = self.lock();
        if !direction.counts.closed {
            direction.counts.closed = true;
            direction.end = Some(Instant::now() + direction.script.delay);
        }
        let wakers = [direction.reader.take(), direction.writer.take()];
        drop(direction);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

/// One end of a link. Dropping it closes both directions.
pub(crate) struct End {
    input: Shared,
    output: Shared,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Sees what one end has written.
#[derive(Clone)]
pub(crate) struct Observer(Shared);

impl Observer {
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().counts
    }
}

/// Two ends: what the first writes goes by the first script, what the second writes by the second.
pub(crate) fn link(there: Script, back: Script) -> (End, End) {
    let (there, back) = (Shared::new(there), Shared::new(back));
    let near = End {
        input: back.clone(),
        output: there.clone(),
        timer: None,
    };
    let far = End {
        input: there,
        output: back,
        timer: None,
    };
    (near, far)
}

impl End {
    /// Counts what this end writes.
    pub(crate) fn observer(&self) -> Observer {
        Observer(self.output.clone())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.output.close();
        self.input.close();
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let mut direction = this.input.lock();
            let now = Instant::now();
            let mut taken = 0;
            while buffer.remaining() > 0 {
                let Some((due, piece)) = direction.under_way.front_mut().filter(|(due, _)| *due <= now)
                else {
                    break;
                };
                let _ = due;
                let count = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..count]);
                piece.advance(count);
                taken += count;
                if piece.is_empty() {
                    direction.under_way.pop_front();
                }
            }
            if taken > 0 {
                direction.held -= taken;
                let writer = direction.writer.take();
                drop(direction);
                if let Some(writer) = writer {
                    writer.wake();
                }
                return Poll::Ready(Ok(()));
            }
            let next = direction.under_way.front().map(|(due, _)| *due).or(direction.end);
            match next {
                // Nothing is under way, and it has come to its end.
                Some(due) if due <= now => return Poll::Ready(Ok(())),
                Some(due) => {
                    drop(direction);
                    let timer = this
                        .timer
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
                    if timer.deadline() != due {
                        timer.as_mut().reset(due);
                    }
                    if timer.as_mut().poll(cx).is_pending() {
                        // An end that comes meanwhile is behind what is under way.
                        return Poll::Pending;
                    }
                    this.timer = None;
                }
                None => {
                    direction.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut direction = self.output.lock();
        let script = direction.script;
        if direction.counts.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut most = script.longest_write.min(script.capacity - direction.held);
        if let Some(limit) = script.breaks_after {
            match limit.saturating_sub(direction.counts.octets) {
                0 => return Poll::Ready(Err(io::Error::other("the transport broke as scripted"))),
                left => most = most.min(left),
            }
        }
        if most == 0 {
            direction.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut piece = Vec::new();
        for slice in slices {
            piece.extend_from_slice(&slice[..slice.len().min(most - piece.len())]);
        }
        let count = piece.len();
        if count > 0 {
            let due = Instant::now() + script.delay;
            direction.under_way.push_back((due, piece.into()));
            direction.held += count;
            direction.counts.writes += 1;
            direction.counts.octets += count;
        }
        let reader = direction.reader.take();
        drop(direction);
        if let Some(reader) = reader {
            reader.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.close();
        Poll::Ready(Ok(()))
    }
}

/// How often a task has been polled: how often it was woken, and once to begin with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Polls(Arc<std::sync::atomic::AtomicUsize>);

impl Polls {
    /// How often since this was last asked.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, std::sync::atomic::Ordering::SeqCst)
    }

    /// Counts how often `future` is polled.
    pub(crate) fn of<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let count = Arc::clone(&self.0);
        let mut future = Box::pin(future);
        std::future::poll_fn(move |cx| {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            future.as_mut().poll(cx)
        })
    }
}
