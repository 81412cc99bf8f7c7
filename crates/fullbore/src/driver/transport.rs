//! Reading slabs, writing lists, and closing so that the peer can read what was said last.

use std::cell::Cell;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use fullbore_proto::ErrorCode;
use fullbore_proto::FrameType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;
use tokio_util::io::{poll_read_buf, poll_write_buf};

use super::{Accept, Discard, Done, Driver, Stage, Written, wake_behind_sockets};
use crate::error::Error;
use crate::file;

/// The first read asks for this much, so that an idle connection costs little.
pub(super) const SMALLEST_READ: usize = 8 << 10;

/// A slab: what one read asks for once reads come back full.
const SLAB: usize = 256 << 10;

/// A read that brings more frames than this is work for a millisecond or so, of which a peer may have any amount ready: the
/// next one is a small one, and whoever else runs on this thread has a turn before it. A read of which the engine leaves
/// something, since a frame in it took much work, is followed by the same, and then by the rest of it.
const MANY_FRAMES: u64 = 256;

/// And so many lists leave before it rather than one, if there are as many: of 10,000 requests that come at once each read brings
/// some 300, which take as long to answer as a gigabit takes to carry one list.
const LISTS_BEFORE_MORE: u32 = 4;

/// So many streams of a connection that has ended are told of it in a turn.
const TOLD_AT_ONCE: usize = 64;

/// How long, and for how many bytes, a closed connection is read on, so that the peer sees our last words rather than a
/// reset of the transport (RFC 9113 section 5.4.1).
pub(super) const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 4 << 20;

/// What a closed connection reads at once. The end of a flood took 440 calls in pieces of 8 KiB, and takes 64 in these.
const LINGER_READ: usize = 64 << 10;

/// After so much of it others have their turn: it takes a fraction of a millisecond.
const LINGER_TURN: usize = 1 << 20;

/// How much of a list is read from files and written at a time: at first, and over TLS always, where it is what is sealed at a
/// time, in whole records.
pub(super) const FETCH: usize = 128 << 10;
#[cfg(feature = "tls")]
const _: () = assert!(FETCH == crate::tls::SEALED);

/// A transport that takes all of a write is offered twice as much with the next one, up to the length of a list: 1 GiB to
/// `h2load` takes some 10 % less processor time than with `FETCH` for each write.
const LONGEST_FETCH: usize = 512 << 10;

/// A transport that takes a part of a write is offered twice that part with the next one, from this much to `FETCH`. What it
/// does not take is read again.
const SHORTEST_FETCH: usize = 32 << 10;

/// When no more than this would be left of a list, it is read and written with the rest: a list exceeds
/// [`Config::write_size`](fullbore_proto::Config::write_size) by up to a frame, and by frame headers.
const FETCH_TAIL: usize = 32 << 10;

thread_local! {
    /// Room for what is read from files, `LONGEST_FETCH + FETCH_TAIL` at most. The connections of a thread share it: a connection
    /// has it only while it writes, so that peers that read slowly hold no memory for what they have not taken.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lists that are at least so long have payloads in files sent by reference; what is less is read. The calls that it takes cost
/// as much as reading some 128 KiB.
const BY_REFERENCE: usize = 160 << 10;

/// What is written by itself of a message that begins on a transport at rest, with no other stream beside it, if all that is
/// listed is more than `LONG`: whoever waits for it wakes, and takes what is there, while the rest is copied, or sealed: as two
/// whole records. 64 KiB takes some 5 % less time than in one write, and 20 to 25 % less than in four, the head by itself,
/// where wake-ups are quick: a reader that finds little each time is in the writer's way (`fullbore-bench servers --shape latency`).
const FIRST: usize = 32 << 10;
const LONG: usize = 48 << 10;

/// Heads and payloads that such a write may have.
const FIRST_SLICES: usize = 8;

/// What a read brought.
pub(super) enum Read {
    /// Octets, which have been applied.
    Some,
    /// The end of the transport, in good order.
    End,
}

/// The state of closing.
#[derive(Debug)]
pub(super) struct Linger {
    shut: bool,
    bytes: usize,
    until: Pin<Box<Sleep>>,
}

impl Linger {
    fn new() -> Self {
        Linger {
            shut: false,
            bytes: 0,
            until: Box::pin(tokio::time::sleep(LINGER)),
        }
    }
}

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Reads one slab and applies it, or applies what is left of the one before.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Read, Error>> {
        if !self.connection.wants_read() {
            return Poll::Pending;
        }
        let left_over = self.unapplied.len();
        let mut total = left_over;
        let mut eof = false;
        // Over TLS a read gives a record at most: go on until the slab is full or nothing is there.
        while left_over == 0 && total < self.read_size {
            if self.slab.capacity() == self.slab.len() {
                if total > 0 {
                    break;
                }
                self.slab.reserve(self.read_size);
            }
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.slab) {
                Poll::Ready(Ok(0)) => {
                    eof = true;
                    break;
                }
                Poll::Ready(Ok(count)) => total += count,
                Poll::Ready(Err(error)) if self.is_end(&error) => {
                    eof = true;
                    break;
                }
                Poll::Ready(Err(error)) => {
                    if total == 0 {
                        return Poll::Ready(Err(self.transport_error(&error)));
                    }
                    break;
                }
                Poll::Pending if total == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if total > 0 {
            self.rest.disturb(total);
            if left_over == 0 {
                self.unapplied = self.slab.split().freeze();
            }
            let now = self.now();
            let frames = self.connection.stats().received_frames.total();
            // An error is kept by the engine: its GOAWAY leaves first, then `ended` reports it.
            if self.connection.receive_some(&mut self.unapplied, now).is_err() {
                // What follows an error is not read (RFC 9113 section 5.4.1).
                self.unapplied.clear();
            }
            let many = self.connection.stats().received_frames.total() - frames > MANY_FRAMES;
            if many || !self.unapplied.is_empty() {
                self.read_size = SMALLEST_READ;
                self.slab = BytesMut::new();
                self.yield_first = true;
                self.others_first = true;
                self.lists_first = LISTS_BEFORE_MORE;
            } else if left_over == 0 && total >= self.read_size {
                self.read_size = (self.read_size * 4).min(SLAB);
                // There may be any amount more, of which nothing concerns anybody here.
                self.yield_first = true;
                self.others_first = true;
            }
            if let Some(minimum) = self.connection.round_trip().minimum() {
                self.mailbox
                    .observe(|observer| observer.round_trip_measured(minimum));
            }
            let connection = &mut self.connection;
            self.mailbox.observe(|observer| {
                if observer.wants_round_trip() && connection.measure_round_trip(now) {
                    observer.round_trip_asked();
                }
            });
            self.deliver_events(cx);
        }
        if eof && self.unapplied.is_empty() && self.connection.error().is_none() {
            if self.goes_on_half_closed(cx) {
                return Poll::Ready(Ok(Read::Some));
            }
            return Poll::Ready(self.transport_ended().map(|()| Read::End));
        }
        Poll::Ready(Ok(Read::Some))
    }

    /// Whether an error of reading means no more to a server than that nothing follows: over TLS a client may end its half
    /// without close_notify, and the requests before it are authentic.
    fn is_end(&self, error: &std::io::Error) -> bool {
        !self.is_client() && error.kind() == std::io::ErrorKind::UnexpectedEof
    }

    /// The client has ended its half of the transport: whether there is something left to say to it. Requests that are
    /// whole are still answered.
    fn goes_on_half_closed(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_client() || !self.connection.peer_settings_received() {
            return false;
        }
        let unsent = self.connection.wants_transmit() || self.out.has_remaining() || self.unflushed;
        if !unsent && !self.connection.has_unfinished_streams() {
            return false;
        }
        let now = self.now();
        self.cut_short = self.connection.end_of_transport(now);
        self.deliver_events(cx);
        unsent || self.connection.has_unfinished_streams()
    }

    /// The transport ended in good order.
    pub(super) fn transport_ended(&self) -> Result<(), Error> {
        if self.connection.peer_settings_received()
            && !self.cut_short
            && !self.connection.has_unfinished_streams()
        {
            return Ok(());
        }
        if !self.connection.peer_settings_received() {
            return Err(Error::new(
                crate::ErrorKind::NotHttp2,
                "the peer closed the connection before it had said anything in HTTP/2",
            ));
        }
        Err(self.closed_early())
    }

    /// The peer closed the transport before all was done, perhaps with a reason.
    fn closed_early(&self) -> Error {
        match &self.peer_goes {
            Some(goes) if goes.code != ErrorCode::NO_ERROR => Error::closed_after(goes),
            _ => Error::closed(),
        }
    }

    fn transport_error(&self, error: &std::io::Error) -> Error {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => match self.transport_ended() {
                Err(ended) => ended,
                Ok(()) => self.closed_early(),
            },
            _ => Error::from_transport(error),
        }
    }

    /// Builds lists and writes them until the transport takes no more. What of them was read from files and not taken is
    /// forgotten; only its place in the file stays on the list.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<Done, Error> {
        let written = self.poll_write_lists(cx);
        if self.out.room() > 0 {
            let room = self.out.unfetch();
            // A thread that is ending keeps none.
            let _ = ROOM.try_with(|kept| kept.set(room));
        }
        written
    }

    fn poll_write_lists(&mut self, cx: &mut Context<'_>) -> Result<Done, Error> {
        let mut some = false;
        let at_rest = !self.unflushed && !self.out.has_remaining();
        let mut first = None;
        loop {
            if !self.out.has_remaining() {
                if !self.connection.wants_transmit() {
                    break;
                }
                let now = self.now();
                self.connection.transmit(&mut self.out, now);
                self.deliver_events(cx);
                if !self.out.has_remaining() {
                    break;
                }
                if let Some(files) = &mut self.write_files {
                    files.by_reference = self.out.remaining() >= BY_REFERENCE;
                }
                let headers = self.connection.stats().sent_frames.of(FrameType::HEADERS);
                let begin = headers - core::mem::replace(&mut self.headers_sent, headers);
                // Those that are whole count as streams no more.
                if at_rest && begin == 1 && self.connection.stream_count() <= 1 {
                    first = Some(FIRST).filter(|_| self.out.remaining() > LONG);
                }
            }
            match self.poll_write_list(cx, &mut first) {
                Poll::Ready(Ok(0)) => return Err(Error::closed()),
                Poll::Ready(Ok(_)) => {
                    some = true;
                    self.unflushed = true;
                    if !self.out.has_remaining() {
                        self.lists_first = self.lists_first.saturating_sub(1);
                        if self.lists_first == 0 {
                            // One list a turn: what came in meanwhile is seen before the next.
                            break;
                        }
                    }
                }
                Poll::Ready(Err(error)) => return Err(self.transport_error(&error)),
                Poll::Pending => {
                    self.write_blocked = true;
                    let now = self.now();
                    self.connection.socket_blocked(now);
                    self.connection.socket_holds(self.out.remaining(), now);
                    return Ok(Done { some, all: false });
                }
            }
        }
        self.lists_first = 0;
        // The loop ends with an empty list.
        let all = !self.connection.wants_transmit();
        if all {
            let now = self.now();
            self.connection.socket_idle(now);
            self.connection.socket_holds(0, now);
        }
        if self.unflushed && all {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Err(self.transport_error(&error)),
                Poll::Pending => {}
            }
        }
        Ok(Done { some, all })
    }

    /// Writes what is next on the list, `first` octets of it if that is said.
    fn poll_write_list(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut Option<usize>,
    ) -> Poll<std::io::Result<usize>> {
        if let Some(files) = self.write_files.as_mut().filter(|files| files.by_reference) {
            if self.out.has_external() {
                match ready!((files.write)(&self.io, cx, &mut self.out, &mut files.at_once))? {
                    Written::Octets(count) => return Poll::Ready(Ok(count)),
                    Written::ToBeRead => {}
                }
            }
        }
        self.poll_write_octets(cx, first.take())
    }

    /// Writes what is next on the list, `most` octets of it if that is said; what lies in files is read before.
    fn poll_write_octets(
        &mut self,
        cx: &mut Context<'_>,
        most: Option<usize>,
    ) -> Poll<std::io::Result<usize>> {
        let fetches = self.out.has_external() && !self.out.has_fetched();
        if fetches && self.write_blocked {
            // Its waker is registered: nothing is read for another attempt.
            return Poll::Pending;
        }
        if fetches {
            // TLS may still hold sealed records. Nothing is read for a write that would take nothing.
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            if self.out.room() == 0 {
                self.out.lend_room(ROOM.try_with(Cell::take).unwrap_or_default());
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
            let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]))?;
            self.out.advance(written);
            return Poll::Ready(Ok(written));
        }
        let poll = poll_write_buf(Pin::new(&mut self.io), cx, &mut self.out);
        if fetches {
            self.adapt_fetch(&poll);
        }
        poll
    }

    /// Sets how much is read from files for the next write, by how much of this one the transport has taken.
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
            let longest = match self.connection.config().record_size {
                0 => LONGEST_FETCH,
                _ => FETCH,
            };
            self.fetch_size = (self.fetch_size * 2).min(longest);
        }
    }

    /// The connection has ended: no stream begins, those that are there are told by [`Self::tell_streams`], and the transport is
    /// closed by [`Self::poll_closing`].
    pub(super) fn close(&mut self, result: Result<(), Error>) {
        let error = match &result {
            Err(error) => error.clone(),
            Ok(()) => Error::connection_gone(),
        };
        self.mailbox.set_last_report(self.connection.report(self.now()));
        self.mailbox.close(&error);
        let untold = self.cells.drain().collect();
        self.stage = Stage::Closing(result, untold, Linger::new());
    }

    /// Tells the streams of a connection that has ended, some in each turn; whether all have been told.
    ///
    /// Each may wake a handler, and tokio runs all that are woken before it looks at a socket: 10,000 at once had every other
    /// connection of the thread wait for 25 ms (`fullbore-bench attacks --shape "10,000 requests"`).
    pub(super) fn tell_streams(&mut self) -> bool {
        let Stage::Closing(result, untold, _) = &mut self.stage else {
            return true;
        };
        let error = match result {
            Err(error) => error.clone(),
            Ok(()) => Error::connection_gone(),
        };
        let left = untold.len().saturating_sub(TOLD_AT_ONCE);
        for (id, cell) in untold.drain(left..) {
            // A request that waited for a stream to be allowed never left.
            cell.fail(match self.connection.is_waiting(id) {
                true => Error::never_sent(&error),
                false => error.clone(),
            });
        }
        left == 0
    }

    /// Ends our half, then reads on for a while, so that unread octets do not make the kernel discard our last ones.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // A peer that ends in good order ends by a word that is sealed too.
        let discard = self.discard.filter(|_| self.connection.error().is_some());
        if let Stage::Closing(_, _, linger) = &mut self.stage {
            if linger.until.as_mut().poll(cx).is_pending() {
                ready!(linger.poll(&mut self.io, discard, cx));
            }
        }
        match core::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Closing(result, ..) => Poll::Ready(result),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Linger {
    fn poll<T: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        discard: Option<Discard<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !self.shut {
            if ready!(Pin::new(&mut *io).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            self.shut = true;
        }
        let mut sink = bytes::BytesMut::with_capacity(LINGER_READ);
        let turn_ends = self.bytes + LINGER_TURN;
        while self.bytes < LINGER_BYTES {
            if self.bytes >= turn_ends {
                wake_behind_sockets(cx);
                return Poll::Pending;
            }
            let read = match discard {
                Some(discard) => discard(io, cx, &mut sink),
                None => poll_read_buf(Pin::new(&mut *io), cx, &mut sink),
            };
            match ready!(read) {
                Ok(0) | Err(_) => break,
                Ok(count) => self.bytes += count,
            }
            sink.clear();
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod fetching;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use bytes::Bytes;
    use fullbore_proto::{Config, Stall};
    use http::Request;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
    use tokio::time::timeout;

    use super::*;
    use crate::body::Incoming;
    use crate::cell::Mailbox;
    use crate::sender::Sender;

    /// It keeps every request, and answers none.
    #[derive(Default)]
    struct Keep(Vec<(Request<Incoming>, Sender)>);

    impl Accept for Keep {
        fn accept(&mut self, request: Request<Incoming>, sender: Sender, _: &mut Context<'_>) {
            self.0.push((request, sender));
        }
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
        [
            &[high, middle, low, kind, flags][..],
            &stream.to_be_bytes(),
            payload,
        ]
        .concat()
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_their_turn_behind_each_frame_that_took_much_work() {
        const CHANGES: usize = 9;
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
        let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        octets.extend(frame(4, 0, 0, &[]));
        octets.extend(frame(4, 1, 0, &[]));
        for index in 0..5_000 {
            octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
        }
        far.write_all(&octets).await.expect("the pipe has room");
        let _ = timeout(Duration::from_secs(1), poll_fn(|cx| driver.poll(cx))).await;
        assert_eq!(driver.accept.0.len(), 5_000);

        let mut octets = Vec::new();
        for change in 1..=CHANGES {
            octets.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, change as u8]));
        }
        octets.extend(frame(6, 0, 0, b"the last"));
        far.write_all(&octets).await.expect("the pipe has room");
        let mut turns = 0;
        let mut most = 0;
        let run = poll_fn(|cx| {
            turns += 1;
            let work = driver.connection.work();
            let poll = driver.poll(cx);
            most = most.max(driver.connection.work() - work);
            poll
        });
        let _ = timeout(Duration::from_secs(1), run).await;
        assert!(turns > CHANGES, "{turns} turns");
        assert!(most <= 5_000, "{most} streams in a turn");
        assert!(driver.unapplied.is_empty());
        let mut heard = vec![0; 1 << 20];
        let count = far.read(&mut heard).await.expect("there is something");
        assert!(heard[..count].ends_with(&frame(6, 1, 0, b"the last")));
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_their_turn_behind_64_requests() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
        let mut octets = BEGINNING.to_vec();
        for index in 0..200 {
            octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
        }
        assert!(octets.len() <= SMALLEST_READ);
        far.write_all(&octets).await.expect("the pipe has room");
        let mut begun = Vec::new();
        let run = poll_fn(|cx| {
            let before = driver.accept.0.len();
            let poll = driver.poll(cx);
            begun.push(driver.accept.0.len() - before);
            poll
        });
        let _ = timeout(Duration::from_secs(1), run).await;
        begun.retain(|&requests| requests > 0);
        assert_eq!(begun, [64, 64, 64, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn others_have_their_turn_behind_64_streams_of_a_connection_that_has_ended() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
        let mut octets = BEGINNING.to_vec();
        for index in 0..200 {
            octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
        }
        // Nobody sends a window so large: the connection fails.
        octets.extend(frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()));
        far.write_all(&octets).await.expect("the pipe has room");
        drop(far);
        let mut untold = Vec::new();
        let run = poll_fn(|cx| {
            let poll = driver.poll(cx);
            if let Stage::Closing(_, left, _) = &driver.stage {
                untold.push(left.len());
            }
            poll
        });
        let ended = timeout(Duration::from_secs(5), run).await;
        assert!(ended.expect("it ends").is_err());
        assert_eq!(untold.first_chunk(), Some(&[136, 72, 8]), "{untold:?}");
        assert_eq!(driver.accept.0.len(), 200);
        for (_, sender) in &driver.accept.0 {
            let told = poll_fn(|cx| Poll::Ready(sender.poll_failed(cx))).await;
            assert!(told.is_ready());
        }
    }

    const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

    #[tokio::test(start_paused = true)]
    async fn reads_grow_when_they_come_back_full_and_are_small_again_behind_many_frames() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Keep::default());
        assert_eq!(driver.read_size, SMALLEST_READ);
        let mut run = async |octets: &[u8]| {
            far.write_all(octets).await.expect("the pipe has room");
            let _ = timeout(Duration::from_millis(1), poll_fn(|cx| driver.poll(cx))).await;
            driver.read_size
        };
        // Frames of a type that is not known.
        let short = frame(0x77, 0, 0, &[]);
        let long = frame(0x77, 0, 0, &[0; 16_384]);
        assert_eq!(run(BEGINNING).await, SMALLEST_READ);
        assert_eq!(run(&short.repeat(254)).await, SMALLEST_READ);
        assert_eq!(run(&long.repeat(40)).await, SLAB);
        assert_eq!(run(&short.repeat(256)).await, SLAB);
        assert_eq!(run(&short.repeat(257)).await, SMALLEST_READ);
    }

    /// A transport that has input without end, and notes whether octets are read or written.
    struct Noting {
        input: Bytes,
        calls: String,
        shut: usize,
    }

    impl AsyncRead for Noting {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            if self.input.is_empty() {
                return Poll::Pending;
            }
            let count = self.input.len().min(buffer.remaining());
            buffer.put_slice(&self.input.split_to(count));
            self.calls.push('r');
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Noting {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            octets: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            self.calls.push('w');
            Poll::Ready(Ok(octets.len()))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<std::io::Result<usize>> {
            self.calls.push('w');
            Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            self.shut += 1;
            Poll::Ready(Ok(()))
        }
    }

    /// It answers each request at once.
    struct Answer;

    impl Accept for Answer {
        fn accept(&mut self, _: Request<Incoming>, mut sender: Sender, _: &mut Context<'_>) {
            sender.send_response(http::Response::new(()), false);
            sender.send_data(Bytes::from_static(&[0; 48 << 10]), true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn four_lists_leave_behind_a_read_of_many_frames_before_the_next() {
        let mut octets = BEGINNING.to_vec();
        octets.extend(frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
        for index in 0..7 * 64 {
            octets.extend(frame(1, 0x5, 2 * index + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
        }
        let requests = octets.len();
        octets.extend(frame(0x77, 0, 0, &[]).repeat(20_000));
        let io = Noting {
            input: octets.into(),
            calls: String::new(),
            shut: 0,
        };
        let mut driver = Driver::server(io, Arc::new(Config::default()), Mailbox::new(), Answer);
        assert!(requests <= SMALLEST_READ);
        let run = poll_fn(|cx| {
            driver.io.calls.push(' ');
            driver.poll(cx)
        });
        let _ = timeout(Duration::from_millis(1), run).await;
        let calls = &driver.io.calls;
        assert!(driver.io.input.is_empty(), "{calls}");
        let lists: Vec<usize> = calls.split(['r', ' ']).map(str::len).collect();
        let four = LISTS_BEFORE_MORE as usize;
        assert!(
            lists.iter().filter(|&&lists| lists == four).count() >= 7,
            "{calls}"
        );
        // What is left of a read may hold no request: the turn that applies it adds a list of its own.
        assert!(lists.iter().all(|&lists| lists <= four + 1), "{calls}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_transport_is_shut_down_once_however_often_what_comes_behind_is_looked_at() {
        let mut io = Noting {
            input: Bytes::new(),
            calls: String::new(),
            shut: 0,
        };
        let mut linger = Linger::new();
        for octets in [0, 10, 0, 20] {
            io.input = vec![0; octets].into();
            let polled = poll_fn(|cx| Poll::Ready(linger.poll(&mut io, None, cx))).await;
            assert!(polled.is_pending());
        }
        assert_eq!((io.shut, linger.bytes), (1, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_which_the_transport_takes_nothing_is_accounted_for() {
        let (near, mut far) = tokio::io::duplex(4 << 10);
        let mut driver = Driver::server(near, Arc::new(Config::default()), Mailbox::new(), Answer);
        let mut octets = BEGINNING.to_vec();
        octets.extend(frame(1, 0x5, 1, &[0x82, 0x86, 0x84, 0x41, 1, b'h']));
        far.write_all(&octets).await.expect("the pipe has room");
        let _ = timeout(Duration::from_secs(5), poll_fn(|cx| driver.poll(cx))).await;
        let report = driver.connection.report(driver.now());
        assert_eq!(report.sending.spent(Stall::Socket), Duration::from_secs(5));
    }
}
