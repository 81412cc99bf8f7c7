//! Closing: every stream is told, and the transport is closed so that the peer can read what was sent last.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fullbore_proto::StreamId;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Accept, Driver, Stage};
use crate::cell::Cell;
use crate::error::Error;
use crate::linger::Linger;

/// Streams that are told in the turn of one request, so that connections end sooner than others of the same peer begin.
const TOLD_FOR_ONE_BEGUN: usize = 16;

/// The most streams that are told in one turn, half a millisecond.
const MOST_TOLD: usize = 256;

/// Streams that are freed in the time in which one is told. To free 10,000 at once made every other connection of the thread
/// wait for 9 ms (`fullbore-bench attacks --shape "10,000 requests"`).
const FREED_FOR_ONE_TOLD: usize = 4;

/// A connection that has ended.
pub(super) struct Closing {
    result: Result<(), Error>,
    /// The streams that have not been told.
    pub(super) untold: Vec<(StreamId, Arc<Cell>)>,
    linger: Linger,
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Begins to close: no stream begins, [`Self::end_streams`] ends those that are open, and [`Self::poll_closing`] closes the
    /// transport.
    pub(super) fn close(&mut self, result: Result<(), Error>) {
        report!(self, closed(self.connection.error(), &result));
        let error = reason(&result);
        self.mailbox.set_last_report(self.report());
        self.mailbox.close(&error);
        self.counted = Vec::new();
        self.stage = Stage::Closing(Closing {
            result,
            untold: self.cells.drain().collect(),
            linger: Linger::new(),
        });
    }

    /// Tells some of the streams that the connection has ended, and then frees some; whether nothing is left to do.
    ///
    /// Each told one may wake a handler, and tokio runs all that are woken before it polls a socket: 10,000 at once made every other
    /// connection of the thread wait for 25 ms (`fullbore-bench attacks --shape "10,000 requests"`).
    pub(super) fn end_streams(&mut self) -> bool {
        let now = self.now();
        let Stage::Closing(closing) = &mut self.stage else {
            return true;
        };
        let error = reason(&closing.result);
        let at_once = MOST_TOLD.min(TOLD_FOR_ONE_BEGUN * self.rounds.begin(now) as usize);
        if closing.untold.is_empty() {
            let freed = self.connection.free_streams(FREED_FOR_ONE_TOLD * at_once);
            if !freed {
                self.rounds.leave(now);
            }
            return freed;
        }
        let left = closing.untold.len().saturating_sub(at_once);
        for (id, cell) in closing.untold.drain(left..) {
            // A request that waited for a stream to be allowed was never sent.
            cell.fail(match self.connection.is_waiting(id) {
                true => Error::never_sent(&error),
                false => error.clone(),
            });
        }
        self.rounds.leave(now);
        false
    }

    /// Closes our half, then reads for a while: unread bytes would make the kernel discard what we sent last.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // A peer that closes cleanly sends close_notify, which has to be decrypted.
        let discard = self.discard.filter(|_| self.connection.error().is_some());
        if let Stage::Closing(Closing { linger, .. }) = &mut self.stage {
            ready!(linger.poll(&mut self.io, discard, cx));
        }
        match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Closing(closing) => Poll::Ready(closing.result),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// What the streams of a connection are told that ended with `result`.
fn reason(result: &Result<(), Error>) -> Error {
    match result {
        Err(error) => error.clone(),
        Ok(()) => Error::connection_gone(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;
    use crate::driver::tests::Noting;

    #[tokio::test(start_paused = true)]
    async fn a_transport_is_shut_down_once_however_often_what_comes_behind_is_looked_at() {
        let mut io = Noting::default();
        let mut linger = Linger::new();
        for octets in [0, 10, 0, 20] {
            io.input = Bytes::from(vec![0; octets]);
            let polled = poll_fn(|cx| Poll::Ready(linger.poll(&mut io, None, cx))).await;
            assert!(polled.is_pending());
            // The turn is over.
            tokio::task::yield_now().await;
        }
        assert_eq!((io.shut, linger.bytes), (1, 30));
    }

    #[tokio::test]
    async fn closed_connections_are_read_one_at_a_time() {
        const EACH: usize = 128 << 10;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for _ in 0..5 {
            let order = Arc::clone(&order);
            tasks.push(tokio::spawn(async move {
                let mut io = Noting::default();
                io.input = Bytes::from(vec![0; 2 * EACH]);
                let mut linger = Linger::new();
                let mut read = 0;
                poll_fn(|cx| {
                    let polled = linger.poll(&mut io, None, cx);
                    let turns = linger.bytes.saturating_sub(read).div_ceil(EACH);
                    order.lock().unwrap().extend(vec!["closed"; turns]);
                    read = linger.bytes;
                    match (read == 2 * EACH, polled) {
                        (false, Poll::Pending) => Poll::Pending,
                        _ => Poll::Ready(()),
                    }
                })
                .await;
            }));
        }
        // Another task whose socket is ready again and again.
        let noted = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            for _ in 0..12 {
                noted.lock().unwrap().push("other");
                tokio::task::yield_now().await;
            }
        }));
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        let closed = order.iter().filter(|name| **name == "closed").count();
        assert_eq!(closed, 10, "{order:?}");
        // The first before the other task has its turn, and the next when the runtime has polled sockets.
        let together = order.split(|name| *name == "other").map(<[_]>::len).max();
        assert_eq!(together, Some(2), "{order:?}");
    }
}
