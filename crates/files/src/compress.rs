//! gzip of a body while it is sent. Called by `files` and `file_body`.
//!
//! A chunk of a response costs a server microseconds, and to compress one costs milliseconds. So it is done in blocking jobs,
//! a piece at a time: at most half of the processors compress, and each peer waits for its turn behind one piece of each
//! other peer. How many bodies are compressed at a time has a limit too, since each takes memory.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body;
use tokio::runtime::Handle;

use crate::budget::{Budget, Share};
use crate::jobs::{Job, Jobs};
use crate::peer::Peer;

/// 0 to 9. From 4 on each level costs a half more time for a few percent less data.
const LEVEL: u32 = 4;

/// How many bytes are compressed in one job: about a millisecond.
const PIECE_BYTES: usize = 64 * 1024;

/// After how many bytes other threads may have the processor: some 60 us. The system lets a thread go on for milliseconds, for
/// which a connection would wait that becomes ready on the same processor.
const YIELD_BYTES: usize = 4 * 1024;

/// The limit on bodies that are compressed at a time, and the jobs that do it.
#[derive(Debug)]
pub(crate) struct Compressing {
    slots: Arc<Budget>,
    jobs: Arc<Jobs>,
}

/// One of them, of this peer. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    of: Arc<Compressing>,
    peer: Option<Peer>,
    taken: Share,
}

/// A body, compressed.
#[derive(Debug)]
pub(crate) struct Gzip<B> {
    body: B,
    /// Bytes of the body that wait to be compressed.
    waiting: Bytes,
    state: State,
    jobs: Arc<Jobs>,
    peer: Option<Peer>,
    runtime: Handle,
}

#[derive(Debug)]
enum State {
    Idle(Encoder),
    /// A piece is being compressed.
    Running(Job<io::Result<Compressed>>),
    /// All has been returned, or an error.
    Ended,
}

/// What a job leaves: the encoder unless the body has ended, and what can be sent, which may be nothing yet.
#[derive(Debug)]
struct Compressed {
    encoder: Option<Encoder>,
    output: Bytes,
}

#[derive(Debug)]
struct Encoder {
    /// `None` before the first piece: it takes a while to make one.
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Held until the memory is free.
    _taken: Share,
}

impl Compressing {
    pub(crate) fn new(most: usize) -> Arc<Compressing> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Compressing {
            slots: Budget::of_slots(most),
            jobs: Jobs::limited((processors / 4).max(1), (processors / 2).max(1)),
        })
    }

    /// `None` when all slots are taken.
    pub(crate) fn admit(self: &Arc<Self>, peer: Option<Peer>) -> Option<Slot> {
        Some(Slot {
            of: Arc::clone(self),
            peer,
            taken: self.slots.slot(None)?,
        })
    }
}

impl<B> Gzip<B>
where
    B: Body<Error = io::Error> + Unpin,
{
    /// Needs the context of a runtime.
    pub(crate) fn new(body: B, slot: Slot) -> Gzip<B> {
        Gzip {
            body,
            waiting: Bytes::new(),
            jobs: Arc::clone(&slot.of.jobs),
            peer: slot.peer,
            state: State::Idle(Encoder {
                gzip: None,
                _taken: slot.taken,
            }),
            runtime: Handle::current(),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Idle(_) => {
                    if self.waiting.is_empty() {
                        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                            Some(Err(error)) => return self.fail(error),
                            Some(Ok(frame)) => {
                                let Ok(mut data) = frame.into_data() else { continue };
                                self.waiting = data.copy_to_bytes(data.remaining());
                                if self.waiting.is_empty() {
                                    continue;
                                }
                            }
                            None => {}
                        }
                    }
                    self.begin();
                }
                State::Running(job) => match ready!(Pin::new(job).poll(cx)) {
                    Err(error) | Ok(Err(error)) => return self.fail(error),
                    Ok(Ok(compressed)) => {
                        self.state = compressed.encoder.map_or(State::Ended, State::Idle);
                        if !compressed.output.is_empty() {
                            return Poll::Ready(Some(Ok(compressed.output)));
                        }
                    }
                },
            }
        }
    }

    fn fail(&mut self, error: io::Error) -> Poll<Option<io::Result<Bytes>>> {
        self.state = State::Ended;
        Poll::Ready(Some(Err(error)))
    }

    /// Starts to compress a piece of what waits; the end of the body if nothing does.
    fn begin(&mut self) {
        let State::Idle(encoder) = std::mem::replace(&mut self.state, State::Ended) else {
            return;
        };
        let piece = self.waiting.split_to(self.waiting.len().min(PIECE_BYTES));
        let work = move || encoder.compress(&piece);
        self.state = State::Running(self.jobs.begin(&self.runtime, self.peer, work));
    }
}

impl Encoder {
    /// Compresses a piece. An empty one is the end.
    fn compress(mut self, piece: &[u8]) -> io::Result<Compressed> {
        let new = || GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        let mut gzip = self.gzip.take().unwrap_or_else(new);
        if piece.is_empty() {
            return Ok(Compressed {
                encoder: None,
                output: gzip.finish()?.into(),
            });
        }
        for part in piece.chunks(YIELD_BYTES) {
            gzip.write_all(part)?;
            std::thread::yield_now();
        }
        let output = std::mem::take(gzip.get_mut()).into();
        self.gzip = Some(gzip);
        Ok(Compressed {
            encoder: Some(self),
            output,
        })
    }
}

/// Whether files of this media type become much shorter.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "application/javascript",
        "application/json",
        "application/wasm",
        "application/x-javascript",
        "application/x-sh",
        "application/xml",
        "image/bmp",
        "image/svg+xml",
    ];
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || OTHERS.contains(&essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compressible_and_media_are_not() {
        for (content_type, expected) in [
            ("text/html; charset=utf-8", true),
            ("application/json", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("application/octet-stream", false),
            ("image/png", false),
            ("video/mp4", false),
            ("application/gzip", false),
        ] {
            assert_eq!(is_compressible(content_type), expected, "{content_type}");
        }
    }

    /// A body of these frames.
    #[derive(Debug)]
    struct Frames(std::vec::IntoIter<Bytes>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
            Poll::Ready(self.0.next().map(|data| Ok(http_body::Frame::data(data))))
        }
    }

    fn gzip(compressing: &Arc<Compressing>, frames: Vec<Bytes>) -> Gzip<Frames> {
        let peer = Some(Peer::at([127, 0, 0, 1].into()));
        Gzip::new(Frames(frames.into_iter()), compressing.admit(peer).unwrap())
    }

    #[tokio::test]
    async fn a_body_is_compressed_in_jobs_of_one_piece_and_ends_with_its_slot() {
        use std::io::Read as _;
        let compressing = Compressing::new(1);
        let noise = |length: usize| -> Bytes {
            let mut state = 1_u32;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..length).map(|_| next()).collect()
        };
        for (frames, jobs) in [
            (vec![], 1),
            (vec![noise(10), Bytes::new(), noise(0)], 2),
            (vec![noise(PIECE_BYTES), noise(PIECE_BYTES + 1)], 4),
            (vec![Bytes::from(vec![7; 5 * PIECE_BYTES])], 6),
        ] {
            let before = compressing.jobs.begun();
            let content = frames.concat();
            let mut gzip = gzip(&compressing, frames);
            let mut sent = Vec::new();
            while let Some(piece) = std::future::poll_fn(|cx| gzip.poll(cx)).await {
                let piece = piece.unwrap();
                assert!(!piece.is_empty());
                sent.extend(piece);
            }
            assert!(gzip.has_ended());
            assert_eq!(compressing.jobs.begun() - before, jobs);
            assert_eq!(compressing.slots.used(), 0);
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&*sent)
                .read_to_end(&mut read)
                .unwrap();
            assert!(read == content);
        }
    }

    #[tokio::test]
    async fn a_body_does_no_work_in_the_turn_of_its_connection() {
        let compressing = Compressing::new(1);
        let mut gzip = gzip(&compressing, vec![Bytes::from(vec![7; 1 << 20])]);
        let polled = std::future::poll_fn(|cx| Poll::Ready(gzip.poll(cx).is_pending())).await;
        assert!(polled && matches!(gzip.state, State::Running(_)));
    }

    #[test]
    fn so_many_are_compressed_at_a_time() {
        let compressing = Compressing::new(2);
        let held = [compressing.admit(None).unwrap(), compressing.admit(None).unwrap()];
        assert!(compressing.admit(None).is_none());
        drop(held);
        assert!(compressing.admit(None).is_some());
        assert_eq!(compressing.slots.used(), 0);
    }
}
