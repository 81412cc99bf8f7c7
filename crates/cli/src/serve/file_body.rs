//! The body of a response: nothing, a few octets in memory, or parts of a file a chunk at a time.
//!
//! A chunk of a file is a range, which the transport reads just before it writes it, when the octets are in the system's memory. From
//! where they are not, blocking jobs bring long stretches of the file there, one ahead of what is given out. Such a body holds
//! no memory. Where the transport takes no ranges, or reading may wait at any time (FUSE), chunks are read into memory, one ahead
//! of the one given out, by blocking jobs where they must, so a body holds one chunk itself beside the one that its reader
//! has: two, however long the file is. Each is as long as all before it together, so that a stream whose peer takes nothing
//! holds little, and chunks end where full frames do. The length is announced from the file as it was when opened. A file that
//! grew is cut there; one that shrank makes the body fail, so that its stream is reset, or, once a chunk is the transport's to send,
//! ends the connection: no short body passes for a whole one. Made by `files` and `respond`, polled by the transport.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullbore::Chunk;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use super::buffers::Buffers;
use super::disk::Patience;
use super::jobs::{Job, Jobs, Peer};
use super::source::Source;

/// How much of a file one job brings into memory: as much as before that together, between these. Of 100 MiB that makes 29
/// jobs, where chunks of 256 KiB were 404.
const FIRST_STRETCH: u64 = 256 << 10;
const LONGEST_STRETCH: u64 = 4 << 20;

/// For how long what was brought into memory is taken to be there. Then it is looked at, or brought, anew.
const WARM_FOR: Duration = Duration::from_secs(1);

/// The body of every response that [`Files`](super::Files) gives. Its size hint is exact.
#[derive(Debug)]
pub struct ServeBody(Kind);

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Memory(VecDeque<Segment>),
    /// Apart, since most bodies are no such, and all are moved several times.
    File(Box<FileBody>),
}

/// A stretch of a body.
#[derive(Debug)]
pub(super) enum Segment {
    /// Octets that are here already.
    Memory(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

/// What a body is read with.
#[derive(Debug)]
pub(super) struct Means {
    pub(super) source: Source,
    pub(super) buffers: Arc<Buffers>,
    pub(super) jobs: Arc<Jobs>,
    /// For whom.
    pub(super) peer: Option<Peer>,
    /// Whether the transport takes ranges of files.
    pub(super) hands_over_ranges: bool,
}

#[derive(Debug)]
struct FileBody {
    means: Means,
    runtime: Handle,
    segments: VecDeque<Segment>,
    /// Bytes not yet given out, those read ahead included.
    remaining: u64,
    ahead: Ahead,
    /// How much of the file has been asked for in chunks.
    asked: usize,
    /// Whether a read had to wait: then the next ones may, and are begun early.
    cold: bool,
    warmth: Warmth,
}

/// What of the file jobs have brought into memory.
#[derive(Debug)]
struct Warmth {
    range: Range<u64>,
    since: Instant,
    /// What is being brought.
    coming: Option<(Job<io::Result<()>>, Range<u64>)>,
    /// How long the last stretch was.
    stretch: u64,
}

#[derive(Debug)]
enum Ahead {
    Idle,
    Ready(Chunk),
    Reading(Job<io::Result<Bytes>>),
    /// A read failed and was reported; nothing more comes, and `remaining` stays, so this is no end of stream.
    Failed,
}

impl ServeBody {
    /// A body of no octets.
    pub(super) fn empty() -> ServeBody {
        ServeBody(Kind::Empty)
    }

    /// A body of octets in memory.
    pub(super) fn full(bytes: Bytes) -> ServeBody {
        if bytes.is_empty() {
            ServeBody::empty()
        } else {
            ServeBody(Kind::Full(bytes))
        }
    }

    /// A body of `segments`, all of them in memory.
    pub(super) fn memory(segments: VecDeque<Segment>) -> ServeBody {
        ServeBody(Kind::Memory(segments))
    }

    /// A body of `segments`, the file's parts among them got with these means. The first chunk is got here, if it
    /// is what comes first. To be called within a runtime's context.
    ///
    /// # Errors
    /// The first read failed, or was not possible with this patience.
    pub(super) fn file(
        means: Means,
        segments: VecDeque<Segment>,
        patience: Patience,
    ) -> io::Result<ServeBody> {
        let remaining = segments.iter().map(Segment::len).sum();
        let mut body = FileBody {
            means,
            asked: 0,
            runtime: Handle::current(),
            segments,
            remaining,
            ahead: Ahead::Idle,
            cold: patience == Patience::Wait,
            warmth: Warmth {
                range: 0..0,
                since: Instant::now(),
                coming: None,
                stretch: 0,
            },
        };
        if body.find_range() {
            return Ok(ServeBody(Kind::File(Box::new(body))));
        }
        if patience == Patience::Wait && body.can_be_warmed() {
            if let Some(range) = body.next_stretch() {
                body.means.source.warm(&range)?;
                body.warmth.came(range);
                body.find_range();
            }
            return Ok(ServeBody(Kind::File(Box::new(body))));
        }
        if let Some(range) = body.next_read() {
            let chunk = read(&body.means.source, &body.means.buffers, &range, patience)?;
            body.ahead = Ahead::Ready(chunk.into());
        }
        Ok(ServeBody(Kind::File(Box::new(body))))
    }
}

impl Warmth {
    /// A stretch is in memory.
    fn came(&mut self, range: Range<u64>) {
        match self.range.end == range.start {
            true => self.range.end = range.end,
            false => self.range = range,
        }
        self.since = Instant::now();
    }

    /// Whether this is in memory, as far as anybody knows.
    fn has(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end && self.since.elapsed() < WARM_FOR
    }
}

impl Segment {
    pub(super) fn len(&self) -> u64 {
        match self {
            Segment::Memory(bytes) => bytes.len() as u64,
            Segment::File(range) => range.end - range.start,
        }
    }
}

impl FileBody {
    /// Takes the next chunk's range off the front, if the front is of the file.
    fn next_read(&mut self) -> Option<Range<u64>> {
        let Some(Segment::File(range)) = self.segments.front_mut() else {
            return None;
        };
        let buffers = &self.means.buffers;
        let length = self.asked.clamp(buffers.first(), buffers.most());
        self.asked = self.asked.saturating_add(length);
        let end = range.start.saturating_add(length as u64).min(range.end);
        let next = range.start..end;
        range.start = end;
        if range.is_empty() {
            self.segments.pop_front();
        }
        Some(next)
    }

    /// Has the next chunk sent as a range, if it can be; whether so. Such a chunk takes no memory, so that the first is as
    /// long as any.
    fn find_range(&mut self) -> bool {
        let Means {
            source,
            buffers,
            hands_over_ranges: true,
            ..
        } = &self.means
        else {
            return false;
        };
        let Some(Segment::File(range)) = self.segments.front_mut() else {
            return false;
        };
        let end = range.start.saturating_add(buffers.longest() as u64);
        let next = range.start..end.min(range.end);
        let found = match self.warmth.has(&next) {
            true => source.range(&next),
            false => source.range_in_memory(&next),
        };
        let Some(found) = found else {
            return false;
        };
        range.start = next.end;
        if range.is_empty() {
            self.segments.pop_front();
        }
        self.ahead = Ahead::Ready(found.into());
        true
    }

    /// Whether jobs can bring the file into memory for ranges of it.
    fn can_be_warmed(&self) -> bool {
        self.means.hands_over_ranges && self.means.source.can_be_warmed()
    }

    /// What a job is to bring into memory next, if the front is of the file: what follows what is there.
    fn next_stretch(&mut self) -> Option<Range<u64>> {
        let Some(Segment::File(front)) = self.segments.front() else {
            return None;
        };
        let warm = &mut self.warmth;
        let start = match warm.has(&(front.start..front.start)) {
            true => warm.range.end,
            false => front.start,
        };
        if start >= front.end {
            return None;
        }
        warm.stretch = (warm.stretch * 2).clamp(FIRST_STRETCH, LONGEST_STRETCH);
        Some(start..start.saturating_add(warm.stretch).min(front.end))
    }

    /// Begins to bring the next stretch into memory.
    fn begin_to_warm(&mut self) {
        if let Some(range) = self.next_stretch() {
            let (source, stretch) = (self.means.source.clone(), range.clone());
            let job = self.begin(move || source.warm(&stretch));
            self.warmth.coming = Some((job, range));
        }
    }

    fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        self.means.jobs.begin(&self.runtime, self.means.peer, work)
    }

    /// Waits until the next chunk is in memory.
    fn poll_warm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.warmth.coming.is_none() {
            self.cold = true;
            self.begin_to_warm();
        }
        let Some((job, range)) = &mut self.warmth.coming else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        let range = range.clone();
        let came = std::task::ready!(Pin::new(job).poll(cx));
        self.warmth.coming = None;
        came??;
        self.warmth.came(range);
        Poll::Ready(Ok(()))
    }

    /// Begins with what comes next while what is given out leaves.
    fn go_ahead(&mut self) {
        if self.find_range() {
            return;
        }
        if !self.can_be_warmed() {
            self.read_next();
        }
    }

    /// Begins with the next stretch when half of the last one has been given out.
    fn warm_ahead(&mut self) {
        let Some(Segment::File(front)) = self.segments.front() else {
            return;
        };
        let left = self.warmth.range.end.saturating_sub(front.start);
        if self.warmth.coming.is_none() && left <= self.warmth.stretch / 2 && self.can_be_warmed() {
            self.begin_to_warm();
        }
    }

    /// Reads the next chunk, here if it is in memory.
    fn read_next(&mut self) {
        let Some(range) = self.next_read() else {
            return;
        };
        let Means { source, buffers, .. } = &self.means;
        if Patience::AT_ONCE_IS_POSSIBLE {
            match read(source, buffers, &range, Patience::AtOnce) {
                Ok(chunk) => {
                    self.ahead = Ahead::Ready(chunk.into());
                    return;
                }
                // Whatever else it is, the job will say so.
                Err(_) => self.cold = true,
            }
        }
        let (source, buffers) = (source.clone(), Arc::clone(buffers));
        let job = self.begin(move || read(&source, &buffers, &range, Patience::Wait));
        self.ahead = Ahead::Reading(job);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let chunk = loop {
            match std::mem::replace(&mut self.ahead, Ahead::Idle) {
                Ahead::Ready(chunk) => break Ok(chunk),
                Ahead::Failed => {
                    self.ahead = Ahead::Failed;
                    return Poll::Ready(None);
                }
                Ahead::Idle => {
                    if let Some(Segment::Memory(_)) = self.segments.front() {
                        if let Some(Segment::Memory(bytes)) = self.segments.pop_front() {
                            break Ok(bytes.into());
                        }
                    }
                    if self.segments.is_empty() {
                        break Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    if !self.find_range() {
                        if self.can_be_warmed() {
                            match self.poll_warm(cx) {
                                Poll::Pending => return Poll::Pending,
                                Poll::Ready(Ok(())) => {}
                                Poll::Ready(Err(error)) => break Err(error),
                            }
                        } else {
                            self.read_next();
                        }
                    }
                }
                Ahead::Reading(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Pending => {
                        self.ahead = Ahead::Reading(job);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(result)) => break result.map(Chunk::from),
                    Poll::Ready(Err(lost)) => break Err(lost),
                },
            }
        };
        match chunk {
            Ok(chunk) => {
                self.remaining = self.remaining.saturating_sub(chunk.len() as u64);
                if self.cold || !Patience::AT_ONCE_IS_POSSIBLE {
                    self.warm_ahead();
                    self.go_ahead();
                }
                Poll::Ready(Some(Ok(chunk)))
            }
            Err(error) => {
                self.ahead = Ahead::Failed;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

impl Body for ServeBody {
    type Data = Chunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, io::Error>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
            }
            Kind::Memory(segments) => Poll::Ready(segments.pop_front().and_then(|segment| match segment {
                Segment::Memory(bytes) => Some(Ok(Frame::data(bytes.into()))),
                Segment::File(_) => None,
            })),
            Kind::File(body) => body.poll(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(_) => false,
            Kind::Memory(segments) => segments.is_empty(),
            Kind::File(body) => body.remaining == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            Kind::Empty => 0,
            Kind::Full(bytes) => bytes.len() as u64,
            Kind::Memory(segments) => segments.iter().map(Segment::len).sum(),
            Kind::File(body) => body.remaining,
        })
    }
}

/// Reads a chunk.
fn read(
    source: &Source,
    buffers: &Arc<Buffers>,
    range: &Range<u64>,
    patience: Patience,
) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut buffer = buffers.take(length);
    source.read(buffer.space(), range.start, patience)?;
    Ok(buffer.freeze())
}
