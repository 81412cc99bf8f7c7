//! The body of a response: nothing, bytes in memory, or ranges of a file in chunks.
//!
//! There are two ways to read a file:
//!
//! - The server takes ranges ([`fullbore::body::FileRange`]). A chunk is a range that the page cache holds, and the server reads
//!   it just before it writes it. Blocking jobs bring long stretches of the file into the page cache, one ahead of the
//!   chunks. Such a body holds no memory.
//! - Otherwise, and where any read may block (FUSE), chunks are read into memory, one ahead, in blocking jobs where
//!   needed. Such a body holds at most two chunks, its reader's included.
//!
//! Each chunk is as long as all before it together, so a stream whose peer reads nothing holds little.
//!
//! The length is that of the file when it was opened. If the file grows, the rest is not sent. If it shrinks, the body
//! fails and the server resets the stream; a range that the server has begun to send ends the connection. A short body
//! never passes for a complete one. Made by `files` and `respond`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use fullbore::body::Chunk;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use crate::archive::Archive;
use crate::buffers::Buffers;
use crate::compress::{Gzip, Slot};
use crate::disk::Blocking;
use crate::jobs::{Job, Jobs};
use crate::peer::Peer;
use crate::source::Source;

/// How much of a file one job reads into the page cache: first this much, then twice as much each time, up to
/// [`LONGEST_STRETCH`]. 100 MiB take 29 jobs, where chunks of 256 KiB took 404.
const FIRST_STRETCH: u64 = 256 << 10;
const LONGEST_STRETCH: u64 = 4 << 20;

/// How long a range is taken to stay in the page cache. Then it is checked, or read, again.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// The body of every response of [`Files`](crate::Files). Its size hint is exact, unless it is compressed while it is sent.
/// `D` is the data of its frames.
///
/// It fails with `UnexpectedEof` when the file became shorter, with `NotFound` when the file was changed, replaced or
/// removed before it could be reopened, and with other errors of the system.
#[derive(Debug)]
pub struct ServeBody<D = Bytes> {
    body: ResponseBody,
    data: PhantomData<fn() -> D>,
}

impl<D> ServeBody<D> {
    pub(crate) fn new(body: ResponseBody) -> Self {
        ServeBody {
            body,
            data: PhantomData,
        }
    }
}

/// A response before its data has a type. Boxed: it passes through several calls and futures.
pub(crate) type FileResponse = Box<Response<ResponseBody>>;

/// The body of any response.
#[derive(Debug)]
pub(crate) struct ResponseBody(Kind);

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Memory(VecDeque<Segment>),
    /// Boxed: few bodies are files, and all bodies are moved several times.
    File(Box<FileBody>),
    Gzip(Box<Gzip<ResponseBody>>),
    Archive(Box<Archive>),
}

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Segment {
    Memory(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

/// What a body needs to read its file.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(crate) source: Source,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) peer: Option<Peer>,
    /// Whether the server takes ranges of files.
    pub(crate) hands_over_ranges: bool,
}

#[derive(Debug)]
struct FileBody {
    context: ReadContext,
    runtime: Handle,
    segments: VecDeque<Segment>,
    /// Bytes not yet returned, those read ahead included.
    remaining: u64,
    next: Next,
    /// The bytes of all chunks so far.
    requested: usize,
    /// Whether a read had to block. Then later reads may block too, and start early.
    cold: bool,
    readahead: Readahead,
}

/// What of the file jobs have brought into the page cache.
#[derive(Debug)]
struct Readahead {
    range: Range<u64>,
    since: Instant,
    /// The job in progress and its range.
    job: Option<(Job<io::Result<()>>, Range<u64>)>,
    /// The length of the last stretch.
    stretch: u64,
}

/// The next chunk.
#[derive(Debug)]
enum Next {
    Idle,
    Ready(Chunk),
    Reading(Job<io::Result<Bytes>>),
    /// A read failed and was reported. `remaining` stays above 0, so this is no end of stream.
    Failed,
}

impl ResponseBody {
    pub(crate) fn empty() -> Self {
        ResponseBody(Kind::Empty)
    }

    /// A body of bytes in memory.
    pub(crate) fn full(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::empty()
        } else {
            ResponseBody(Kind::Full(bytes))
        }
    }

    /// A body of `segments`, all of them in memory.
    pub(crate) fn memory(segments: VecDeque<Segment>) -> Self {
        ResponseBody(Kind::Memory(segments))
    }

    /// This body, compressed.
    pub(crate) fn gzip(self, slot: Slot) -> Self {
        ResponseBody(Kind::Gzip(Box::new(Gzip::new(self, slot))))
    }

    /// The archive of a folder.
    pub(crate) fn archive(archive: Archive) -> Self {
        ResponseBody(Kind::Archive(Box::new(archive)))
    }

    /// A body of `segments` in memory and of the file. If the first segment is of the file, this reads the first chunk.
    /// Needs the context of a runtime.
    ///
    /// # Errors
    /// The first read failed, or would block and may not.
    pub(crate) fn file(
        context: ReadContext,
        segments: VecDeque<Segment>,
        blocking: Blocking,
    ) -> io::Result<Self> {
        let remaining = segments.iter().map(Segment::len).sum();
        let mut body = FileBody {
            context,
            requested: 0,
            runtime: Handle::current(),
            segments,
            remaining,
            next: Next::Idle,
            cold: blocking == Blocking::Allowed,
            readahead: Readahead {
                range: 0..0,
                since: Instant::now(),
                job: None,
                stretch: 0,
            },
        };
        if !body.find_range() {
            if blocking == Blocking::Allowed && body.can_read_ahead() {
                if let Some(range) = body.next_stretch() {
                    body.context.source.read_ahead(&range)?;
                    body.readahead.completed(range);
                    body.find_range();
                }
            } else if let Some(range) = body.next_read() {
                let chunk = read(&body.context.source, &body.context.buffers, &range, blocking)?;
                body.next = Next::Ready(chunk.into());
            }
        }
        Ok(ResponseBody(Kind::File(Box::new(body))))
    }
}

impl Readahead {
    /// A stretch is in the page cache.
    fn completed(&mut self, range: Range<u64>) {
        match self.range.end == range.start {
            true => self.range.end = range.end,
            false => self.range = range,
        }
        self.since = Instant::now();
    }

    /// Whether a range is taken to be in the page cache.
    fn has(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end && self.since.elapsed() < CACHED_FOR
    }
}

impl Segment {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Segment::Memory(bytes) => bytes.len() as u64,
            Segment::File(range) => range.end - range.start,
        }
    }
}

impl FileBody {
    /// Takes the range of the next chunk off the front, if the front is of the file.
    fn next_read(&mut self) -> Option<Range<u64>> {
        let Some(Segment::File(range)) = self.segments.front_mut() else {
            return None;
        };
        let buffers = &self.context.buffers;
        let length = self.requested.clamp(buffers.first(), buffers.most());
        self.requested = self.requested.saturating_add(length);
        let end = range.start.saturating_add(length as u64).min(range.end);
        let next = range.start..end;
        range.start = end;
        if range.is_empty() {
            self.segments.pop_front();
        }
        Some(next)
    }

    /// Makes the next chunk a range, if the server takes ranges and the page cache holds it. Returns whether it did. Such
    /// a chunk takes no memory, so even the first one has full length.
    fn find_range(&mut self) -> bool {
        let ReadContext {
            source,
            buffers,
            hands_over_ranges: true,
            ..
        } = &self.context
        else {
            return false;
        };
        let Some(Segment::File(range)) = self.segments.front_mut() else {
            return false;
        };
        let end = range.start.saturating_add(buffers.longest() as u64);
        let next = range.start..end.min(range.end);
        let found = match self.readahead.has(&next) {
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
        self.next = Next::Ready(found.into());
        true
    }

    /// Whether jobs can bring the file into the page cache for ranges.
    fn can_read_ahead(&self) -> bool {
        self.context.hands_over_ranges && self.context.source.can_read_ahead()
    }

    /// The next range for a job to bring into the page cache, if the front is of the file.
    fn next_stretch(&mut self) -> Option<Range<u64>> {
        let Some(Segment::File(front)) = self.segments.front() else {
            return None;
        };
        let ahead = &mut self.readahead;
        let start = match ahead.has(&(front.start..front.start)) {
            true => ahead.range.end,
            false => front.start,
        };
        if start >= front.end {
            return None;
        }
        ahead.stretch = (ahead.stretch * 2).clamp(FIRST_STRETCH, LONGEST_STRETCH);
        Some(start..start.saturating_add(ahead.stretch).min(front.end))
    }

    /// Starts a job that brings the next stretch into the page cache.
    fn begin_read_ahead(&mut self) {
        if let Some(range) = self.next_stretch() {
            let (source, stretch) = (self.context.source.clone(), range.clone());
            let job = self.begin(move || source.read_ahead(&stretch));
            self.readahead.job = Some((job, range));
        }
    }

    fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        self.context.jobs.begin(&self.runtime, self.context.peer, work)
    }

    /// Waits until the next chunk is in the page cache.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.readahead.job.is_none() {
            self.cold = true;
            self.begin_read_ahead();
        }
        let Some((job, range)) = &mut self.readahead.job else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        let range = range.clone();
        let done = std::task::ready!(Pin::new(job).poll(cx));
        self.readahead.job = None;
        done??;
        self.readahead.completed(range);
        Poll::Ready(Ok(()))
    }

    /// Starts the next stretch when half of the last one has been returned.
    fn continue_read_ahead(&mut self) {
        let Some(Segment::File(front)) = self.segments.front() else {
            return;
        };
        let left = self.readahead.range.end.saturating_sub(front.start);
        if self.readahead.job.is_none() && left <= self.readahead.stretch / 2 && self.can_read_ahead() {
            self.begin_read_ahead();
        }
    }

    /// Prepares the chunk after the one that is being returned.
    fn prepare_next(&mut self) {
        if !self.find_range() && !self.can_read_ahead() {
            self.read_next();
        }
    }

    /// Reads the next chunk: here if the page cache holds it, otherwise in a job.
    fn read_next(&mut self) {
        let Some(range) = self.next_read() else {
            return;
        };
        let ReadContext { source, buffers, .. } = &self.context;
        if Blocking::CAN_BE_AVOIDED {
            match read(source, buffers, &range, Blocking::Forbidden) {
                Ok(chunk) => {
                    self.next = Next::Ready(chunk.into());
                    return;
                }
                // The job reports any other error.
                Err(_) => self.cold = true,
            }
        }
        let (source, buffers) = (source.clone(), Arc::clone(buffers));
        let job = self.begin(move || read(&source, &buffers, &range, Blocking::Allowed));
        self.next = Next::Reading(job);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let chunk = loop {
            match std::mem::replace(&mut self.next, Next::Idle) {
                Next::Ready(chunk) => break Ok(chunk),
                Next::Failed => {
                    self.next = Next::Failed;
                    return Poll::Ready(None);
                }
                Next::Idle => {
                    if let Some(Segment::Memory(bytes)) = self.segments.front_mut() {
                        let bytes = std::mem::take(bytes);
                        self.segments.pop_front();
                        break Ok(bytes.into());
                    }
                    if self.segments.is_empty() {
                        break Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    if !self.find_range() {
                        if self.can_read_ahead() {
                            match self.poll_read_ahead(cx) {
                                Poll::Pending => return Poll::Pending,
                                Poll::Ready(Ok(())) => {}
                                Poll::Ready(Err(error)) => break Err(error),
                            }
                        } else {
                            self.read_next();
                        }
                    }
                }
                Next::Reading(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Pending => {
                        self.next = Next::Reading(job);
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
                if self.cold || !Blocking::CAN_BE_AVOIDED {
                    self.continue_read_ahead();
                    self.prepare_next();
                }
                Poll::Ready(Some(Ok(chunk)))
            }
            Err(error) => {
                self.next = Next::Failed;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}

/// How a body's data is made of a chunk.
trait FromChunk {
    fn from_chunk(chunk: Chunk) -> Self;
}

impl FromChunk for Chunk {
    fn from_chunk(chunk: Chunk) -> Self {
        chunk
    }
}

/// Only [`Files::open_with_ranges`](crate::Files::open_with_ranges) makes ranges: this chunk holds bytes, and nothing is
/// copied.
impl FromChunk for Bytes {
    fn from_chunk(mut chunk: Chunk) -> Self {
        chunk.copy_to_bytes(chunk.len())
    }
}

impl<D: FromChunk + Buf> Body for ServeBody<D> {
    type Data = D;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<D>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        polled.map_ok(|frame| frame.map_data(D::from_chunk))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for ResponseBody {
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
            Kind::Gzip(body) => body.poll(cx).map_ok(|bytes| Frame::data(bytes.into())),
            Kind::Archive(body) => body.poll(cx).map_ok(|bytes| Frame::data(bytes.into())),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(_) => false,
            Kind::Memory(segments) => segments.is_empty(),
            Kind::File(body) => body.remaining == 0,
            Kind::Gzip(body) => body.has_ended(),
            Kind::Archive(body) => body.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            Kind::Empty => 0,
            Kind::Full(bytes) => bytes.len() as u64,
            Kind::Memory(segments) => segments.iter().map(Segment::len).sum(),
            Kind::File(body) => body.remaining,
            Kind::Gzip(_) | Kind::Archive(_) => return SizeHint::default(),
        })
    }
}

/// Reads a chunk.
fn read(
    source: &Source,
    buffers: &Arc<Buffers>,
    range: &Range<u64>,
    blocking: Blocking,
) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut buffer = buffers.take(length);
    source.read(buffer.space(), range.start, blocking)?;
    Ok(buffer.freeze())
}
