//! The close of a transport: our half first, then what the peer still sends is read for a while.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

use crate::turns::{Turns, queue, wake_after_sockets};

/// How long, and for how many bytes, a closed connection is read, so that the peer receives our GOAWAY, last response or TLS
/// alert rather than a reset of the transport (RFC 9113 section 5.4.1, RFC 9112 section 9.6).
pub(crate) const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 4 << 20;

/// What a closed connection reads at once. The end of a flood took 440 calls in pieces of 8 KiB, and takes 64 in these.
const LINGER_READ: usize = 64 << 10;

/// What is read in one turn. Many connections may end at once: with 1 MiB, those of 16 attackers made the p99 of another connection
/// 1.2 to 1.8 ms (`fullbore-bench attacks --shape references`).
const LINGER_TURN: usize = 128 << 10;

thread_local! {
    /// The closed connections of this thread that are read.
    static CLOSED: Arc<Semaphore> = queue();
}

/// Reads bytes that nobody looks at, at less cost than their meaning would take.
pub(crate) type Discard<T> = fn(&mut T, &mut Context<'_>, &mut BytesMut) -> Poll<std::io::Result<usize>>;

/// The state of a transport while it is closed.
#[derive(Debug)]
pub(crate) struct Linger {
    shut: bool,
    pub(crate) bytes: usize,
    until: Pin<Box<Sleep>>,
    turns: Turns,
}

impl Linger {
    pub(crate) fn new() -> Self {
        Linger {
            shut: false,
            bytes: 0,
            until: Box::pin(tokio::time::sleep(LINGER)),
            turns: Turns::of(&CLOSED),
        }
    }

    /// Closes our half, then reads for a while: unread bytes would make the kernel discard what we sent last.
    pub(crate) fn poll<T: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        discard: Option<Discard<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !self.shut {
            if ready!(Pin::new(&mut *io).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            self.shut = true;
        }
        let bytes = &mut self.bytes;
        ready!(self.turns.poll(cx, |cx| read_some(io, bytes, discard, cx)))
    }
}

/// Reads in one turn what nobody looks at, and counts it.
fn read_some<T: AsyncRead + Unpin>(
    io: &mut T,
    bytes: &mut usize,
    discard: Option<Discard<T>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut sink = BytesMut::with_capacity(LINGER_READ);
    let turn_ends = *bytes + LINGER_TURN;
    while *bytes < LINGER_BYTES {
        if *bytes >= turn_ends {
            wake_after_sockets(cx);
            return Poll::Pending;
        }
        let read = match discard {
            Some(discard) => discard(io, cx, &mut sink),
            None => poll_read_buf(Pin::new(&mut *io), cx, &mut sink),
        };
        match ready!(read) {
            Ok(0) | Err(_) => break,
            Ok(count) => *bytes += count,
        }
        sink.clear();
    }
    Poll::Ready(())
}
