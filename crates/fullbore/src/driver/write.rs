//! Writing: lists of frames, and the file ranges on them.

use std::cell::Cell;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_proto::{Time, Transmit};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Accept, Driver};
use crate::error::Error;
use crate::file;

/// How many bytes are read from files for one write: at first, and over TLS always, where as many are sealed at a time, in
/// whole records.
pub(super) const FETCH: usize = 128 << 10;
#[cfg(feature = "tls")]
const _: () = assert!(FETCH == crate::tls::SEALED);

/// A transport that takes all of a write is offered twice as much with the next one, up to the length of a list: 1 GiB to
/// `h2load` takes some 10 % less processor time than with `FETCH` for each write.
const LONGEST_FETCH: usize = 512 << 10;

/// A transport that takes a part of a write is offered twice that part with the next one, from this much to `FETCH`. What it
/// does not take is read again.
const SHORTEST_FETCH: usize = 32 << 10;

/// When no more than this would be left of a list, it is read and written with it: a list exceeds
/// [`Config::write_size`](fullbore_proto::Config::write_size) by up to a frame, and by frame headers.
const FETCH_TAIL: usize = 32 << 10;

thread_local! {
    /// The buffer for reads from files, of `LONGEST_FETCH + FETCH_TAIL` at most. The connections of a thread share it. A
    /// connection has it only while it writes, so that slow peers hold no memory for what they have not taken.
    static FETCH_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A message that begins on an idle transport, as the only stream, has its first `FIRST` bytes written separately if the list
/// is longer than `LONG`: two whole records over TLS. The peer wakes and processes them while the others are copied or sealed.
/// 64 KiB takes some 5 % less time than in one write, and 20 to 25 % less than in four with the headers separate, where
/// wake-ups are quick: a reader that finds little each time is in the writer's way (`fullbore-bench servers --shape latency`).
const FIRST: usize = 32 << 10;
const LONG: usize = 48 << 10;

/// So much is copied within some microseconds, so that the clock is not read again behind it.
const SHORT: usize = 16 << 10;

/// The most slices of such a write, and of any other.
const FIRST_SLICES: usize = 8;
const SLICES: usize = 64;

/// Writes slices.
pub(super) type WriteSlices<T> =
    fn(Pin<&mut T>, &mut Context<'_>, &[IoSlice<'_>]) -> Poll<std::io::Result<usize>>;

/// Writes lists whose payloads are in files, without reading these.
pub(super) struct WriteFiles<T> {
    /// Writes the front of the list, and advances it: by how many bytes, or 0 if the files are to be read. The last argument
    /// is kept from one call to the next.
    pub(super) write: fn(&T, &mut Context<'_>, &mut Transmit, &mut usize) -> Poll<std::io::Result<usize>>,
    /// How many bytes `write` passes on at once.
    pub(super) at_once: usize,
}

/// What a write has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteState {
    /// Something was written.
    pub(super) some: bool,
    /// Nothing is left to be written.
    pub(super) all: bool,
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Builds lists and writes them until the transport takes no more. Bytes that were read from files and not taken are dropped,
    /// and read again later.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<WriteState, Error> {
        let written = self.poll_write_lists(cx);
        self.count_sent();
        if self.out.room() > 0 {
            let room = self.out.unfetch();
            // A thread that is ending keeps none.
            let _ = FETCH_BUFFER.try_with(|kept| kept.set(room));
        }
        written
    }

    fn poll_write_lists(&mut self, cx: &mut Context<'_>) -> Result<WriteState, Error> {
        let mut took = 0;
        let at_rest = !self.unflushed && !self.out.has_remaining();
        let mut first = None;
        // The first list follows the collection at once, so that the clock, which takes some 25 ns, is not read again.
        let mut looked = Some(self.looked);
        let mut listed = self.looked;
        loop {
            if !self.out.has_remaining() {
                if !self.connection.wants_transmit() {
                    break;
                }
                let now = looked.take().unwrap_or_else(|| self.now());
                listed = now;
                let most = match self.poll_longest_list(cx, now) {
                    Poll::Ready(Ok(most)) => most,
                    Poll::Ready(Err(error)) => return Err(self.transport_error(error)),
                    Poll::Pending => {
                        self.turn.block_write();
                        self.connection.socket_full(now);
                        return Ok(WriteState {
                            some: took > 0,
                            all: false,
                        });
                    }
                };
                self.connection.transmit_within(&mut self.out, most, now);
                self.deliver_events(cx);
                if !self.out.has_remaining() {
                    break;
                }
                let headers = self.connection.headers_sent();
                let begin = headers - core::mem::replace(&mut self.headers_sent, headers);
                // Streams that are complete are not counted.
                if at_rest && begin == 1 && self.connection.stream_count() <= 1 {
                    first = Some(FIRST).filter(|_| self.out.remaining() > LONG);
                }
            }
            match self.poll_write_list(cx, &mut first) {
                Poll::Ready(Ok(0)) => return Err(Error::incomplete(None, None)),
                Poll::Ready(Ok(count)) => {
                    took += count;
                    self.unflushed = true;
                    if let Some(unsent) = &mut self.unsent {
                        unsent.take(count);
                    }
                    if !self.out.has_remaining() {
                        // One list a turn, usually: the next turn sees what came in meanwhile.
                        if !self.turn.continues_writing() {
                            break;
                        }
                    }
                }
                Poll::Ready(Err(error)) => return Err(self.transport_error(error)),
                Poll::Pending => {
                    self.turn.block_write();
                    let now = self.now();
                    if let Some(unsent) = &mut self.unsent {
                        unsent.fill(&self.io, now);
                    }
                    self.connection.socket_blocked(now);
                    self.connection.socket_holds(self.out.remaining(), now);
                    return Ok(WriteState {
                        some: took > 0,
                        all: false,
                    });
                }
            }
        }
        self.turn.end_writing();
        // The loop ends with an empty list.
        let all = !self.connection.wants_transmit();
        if all {
            let now = if took > SHORT { self.now() } else { listed };
            if let Some(unsent) = &mut self.unsent {
                unsent.rest(now);
            }
            self.connection.socket_idle(now);
            self.connection.socket_holds(0, now);
        }
        if self.unflushed && all {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(self.transport_error(error)),
                Poll::Pending => {}
            }
        }
        Ok(WriteState { some: took > 0, all })
    }

    /// How long the next list may be, once what waits unsent leaves room for it.
    fn poll_longest_list(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<std::io::Result<usize>> {
        let Some(unsent) = &mut self.unsent else {
            return Poll::Ready(Ok(usize::MAX));
        };
        unsent.resume(now);
        if unsent.asks() {
            if self.turn.is_write_blocked() {
                // Its waker is registered.
                return Poll::Pending;
            }
            // What TLS has sealed is unsent too.
            if Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
                unsent.fill(&self.io, now);
                return Poll::Pending;
            }
            ready!(unsent.poll_room(&self.io, cx, now))?;
        }
        Poll::Ready(Ok(unsent.longest_list()))
    }

    /// Writes the front of the list, `first` octets of it if that is set.
    fn poll_write_list(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut Option<usize>,
    ) -> Poll<std::io::Result<usize>> {
        if let Some(files) = &mut self.write_files {
            if self.out.has_external() {
                match ready!((files.write)(&self.io, cx, &mut self.out, &mut files.at_once))? {
                    0 => {}
                    count => return Poll::Ready(Ok(count)),
                }
            }
        }
        self.poll_write_octets(cx, first.take())
    }

    /// Writes the front of the list, `most` octets of it if that is set; file ranges are read before.
    fn poll_write_octets(
        &mut self,
        cx: &mut Context<'_>,
        most: Option<usize>,
    ) -> Poll<std::io::Result<usize>> {
        let fetches = self.out.has_external() && !self.out.has_fetched();
        if fetches && self.turn.is_write_blocked() {
            // Its waker is registered: nothing is read for another attempt.
            return Poll::Pending;
        }
        if fetches {
            // TLS may still hold sealed records. Nothing is read for a write that would take nothing.
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            if self.out.room() == 0 {
                self.out
                    .lend_room(FETCH_BUFFER.try_with(Cell::take).unwrap_or_default());
            }
            let remaining = self.out.remaining();
            let octets = match remaining <= self.fetch_size + FETCH_TAIL {
                true => remaining,
                false => self.fetch_size,
            };
            self.out.fetch(octets, file::read_payload)?;
        }
        if let Some(most) = most {
            let mut slices = [IoSlice::new(&[]); FIRST_SLICES];
            let count = self.out.first_chunks(most, &mut slices);
            let written = ready!((self.write_slices)(Pin::new(&mut self.io), cx, &slices[..count]))?;
            self.out.advance(written);
            return Poll::Ready(Ok(written));
        }
        let whole = self.out.chunk();
        let poll = if whole.len() == self.out.remaining() {
            Pin::new(&mut self.io).poll_write(cx, whole)
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.out.chunks_vectored(&mut slices);
            (self.write_slices)(Pin::new(&mut self.io), cx, &slices[..count])
        };
        if let Poll::Ready(Ok(written)) = poll {
            self.out.advance(written);
        }
        if fetches {
            self.adapt_fetch(&poll);
        }
        poll
    }

    /// Sets how much is read from files for the next write, from what the transport took of this one.
    fn adapt_fetch(&mut self, poll: &Poll<std::io::Result<usize>>) {
        let written = match poll {
            Poll::Ready(Ok(written)) => *written,
            Poll::Ready(Err(_)) => return,
            Poll::Pending => 0,
        };
        if self.out.has_fetched() {
            let twice = written.saturating_mul(2);
            self.fetch_size = twice.clamp(SHORTEST_FETCH, FETCH).min(self.fetch_size);
        } else if written >= self.fetch_size {
            // TLS seals no more than `FETCH` at a time.
            let longest = match self.connection.config().record_size() {
                0 => LONGEST_FETCH,
                _ => FETCH,
            };
            self.fetch_size = (self.fetch_size * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod fetching;
