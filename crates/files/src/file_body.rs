//! The body of a response: nothing, bytes in memory, or ranges of a file in chunks.
//!
//! There are two ways to read a file:
//!
//! - The server takes ranges ([`fullbore::FileRange`]). A chunk is a range that the page cache holds, and the server reads
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
use fullbore::Chunk;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use crate::buffers::Buffers;
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

/// The body of every response of [`Files`](crate::Files). Its size hint is exact. `D` is the data of its frames.
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

/// A response before its data has a type.
pub(crate) type FileResponse = Response<ResponseBody>;

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
    blocking: Blocking,
) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut buffer = buffers.take(length);
    source.read(buffer.space(), range.start, blocking)?;
    Ok(buffer.freeze())
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;
    use cap_std::fs::Dir;
    use http_body_util::BodyExt as _;
    use tempfile::TempDir;

    use super::*;
    use crate::buffers::Sizes;
    use crate::disk::FileSystem;
    use crate::source::Descriptors;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// A file, and what bodies of it share.
    struct Stage {
        folder: TempDir,
        content: Vec<u8>,
        jobs: Arc<Jobs>,
    }

    impl Stage {
        fn new(length: u64) -> Stage {
            let folder = tempfile::tempdir().unwrap();
            let content: Vec<u8> = (0..length as usize).map(|at| (at % 251) as u8).collect();
            std::fs::write(folder.path().join("a"), &content).unwrap();
            Stage {
                folder,
                content,
                jobs: Jobs::new(8),
            }
        }

        fn context(&self, file_system: FileSystem, hands_over_ranges: bool) -> ReadContext {
            let root = Arc::new(Dir::open_ambient_dir(self.folder.path(), ambient_authority()).unwrap());
            let file = std::fs::File::open(self.folder.path().join("a")).unwrap();
            let sizes = Sizes {
                first: 4 << 10,
                most: 256 << 10,
                all: 64 << 20,
                whole: 0,
            };
            ReadContext {
                source: Source::new(file, file_system, None, &root, &Descriptors::new(9)),
                buffers: Buffers::new(sizes, 1),
                jobs: Arc::clone(&self.jobs),
                peer: None,
                hands_over_ranges,
            }
        }

        /// A body of all of the file.
        fn body(
            &self,
            file_system: FileSystem,
            hands_over_ranges: bool,
            blocking: Blocking,
        ) -> io::Result<ResponseBody> {
            let segments = VecDeque::from([Segment::File(0..self.content.len() as u64)]);
            ResponseBody::file(self.context(file_system, hands_over_ranges), segments, blocking)
        }
    }

    /// Reads a body to its end: how long its chunks are, and what they hold.
    async fn read_all(mut body: ResponseBody) -> (Vec<u64>, Vec<u8>) {
        let (mut lengths, mut octets) = (Vec::new(), Vec::new());
        let all = body.size_hint().exact().unwrap();
        while let Some(frame) = body.frame().await {
            let chunk = frame.unwrap().into_data().unwrap();
            lengths.push(chunk.len() as u64);
            let chunk = http_body_util::Full::new(chunk)
                .collect()
                .await
                .unwrap()
                .to_bytes();
            octets.extend(&chunk);
            let left = all - octets.len() as u64;
            assert_eq!(body.size_hint().exact(), Some(left));
            assert_eq!(body.is_end_stream(), left == 0);
        }
        (lengths, octets)
    }

    #[tokio::test]
    async fn a_body_in_memory_has_its_octets_once() {
        for (body, expected) in [
            (ResponseBody::empty(), vec![]),
            (ResponseBody::full(Bytes::new()), vec![]),
            (ResponseBody::full(Bytes::from("one")), vec![3]),
            (ResponseBody::memory(VecDeque::new()), vec![]),
            (
                ResponseBody::memory(VecDeque::from(
                    ["one", "three"].map(|text| Segment::Memory(Bytes::from(text))),
                )),
                vec![3, 5],
            ),
        ] {
            let all: u64 = expected.iter().sum();
            assert_eq!(body.is_end_stream(), all == 0, "{body:?}");
            assert_eq!(body.size_hint().exact(), Some(all), "{body:?}");
            assert_eq!(read_all(body).await.0, expected);
        }
    }

    #[tokio::test]
    async fn without_patience_only_what_is_in_memory_makes_a_body() {
        let stage = Stage::new(300 * KIB);
        for hands_over_ranges in [true, false] {
            for file_system in [FileSystem::PageCache, FileSystem::Unknown] {
                let body = stage.body(file_system, hands_over_ranges, Blocking::Forbidden);
                assert_eq!(
                    body.unwrap_err().kind(),
                    io::ErrorKind::WouldBlock,
                    "{file_system:?}"
                );
            }
            let body = stage.body(FileSystem::Memory, hands_over_ranges, Blocking::Forbidden);
            assert!(read_all(body.unwrap()).await.1 == stage.content);
            assert_eq!(stage.jobs.begun(), 0);
        }
    }

    #[tokio::test]
    async fn ranges_are_as_long_as_any_chunk_from_the_first_on() {
        let stage = Stage::new(3 * MIB + 5);
        for (file_system, blocking, jobs) in [
            (FileSystem::Memory, Blocking::Forbidden, 0..1),
            (FileSystem::PageCache, Blocking::Allowed, 3..10),
        ] {
            let before = stage.jobs.begun();
            let body = stage.body(file_system, true, blocking).unwrap();
            let (lengths, octets) = read_all(body).await;
            assert!(octets == stage.content, "{file_system:?}");
            assert_eq!(lengths[..12], [256 * KIB; 12], "{file_system:?}");
            assert_eq!(lengths[12..], [5], "{file_system:?}");
            // Stretches of 512 KiB, 1 MiB and the rest; more of them after a pause of a second.
            let begun = stage.jobs.begun() - before;
            assert!(jobs.contains(&begun), "{file_system:?}: {begun} jobs");
        }
    }

    #[tokio::test]
    async fn chunks_that_are_read_begin_short_and_take_a_job_each_behind_the_first() {
        let stage = Stage::new(600 * KIB);
        let lengths = [4, 4, 8, 16, 32, 64, 128, 256, 88].map(|kib| kib * KIB);
        for (file_system, hands_over_ranges, jobs) in [
            (FileSystem::Unknown, true, 8),
            (FileSystem::Unknown, false, 8),
            (FileSystem::PageCache, false, 8),
            (FileSystem::Memory, false, 0),
        ] {
            let before = stage.jobs.begun();
            let body = stage
                .body(file_system, hands_over_ranges, Blocking::Allowed)
                .unwrap();
            let (found, octets) = read_all(body).await;
            assert!(octets == stage.content, "{file_system:?}");
            assert_eq!(found, lengths, "{file_system:?}");
            assert_eq!(
                stage.jobs.begun() - before,
                jobs,
                "{file_system:?} {hands_over_ranges}"
            );
        }
    }

    #[tokio::test]
    async fn segments_keep_their_order_however_the_file_is_read() {
        let stage = Stage::new(600 * KIB);
        let text = |text| Segment::Memory(Bytes::from(text));
        for file_system in [FileSystem::Memory, FileSystem::PageCache, FileSystem::Unknown] {
            for hands_over_ranges in [true, false] {
                let segments = VecDeque::from([
                    text("<"),
                    Segment::File(300_000..310_000),
                    text("|"),
                    Segment::File(5..400_000),
                    text("|"),
                    Segment::File(614_399..614_400),
                    text(">"),
                ]);
                let context = stage.context(file_system, hands_over_ranges);
                let body = ResponseBody::file(context, segments, Blocking::Allowed).unwrap();
                let (_, octets) = read_all(body).await;
                let of = |range: Range<usize>| &stage.content[range];
                let expected = [
                    b"<",
                    of(300_000..310_000),
                    b"|",
                    of(5..400_000),
                    b"|",
                    of(614_399..614_400),
                    b">",
                ];
                assert!(octets == expected.concat(), "{file_system:?} {hands_over_ranges}");
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_fails_its_body_once_and_for_good() {
        for (file_system, hands_over_ranges) in [
            (FileSystem::PageCache, true),
            (FileSystem::Unknown, true),
            (FileSystem::Memory, false),
        ] {
            let stage = Stage::new(3 * MIB);
            let mut body = stage
                .body(file_system, hands_over_ranges, Blocking::Allowed)
                .unwrap();
            let path = stage.folder.path().join("a");
            std::fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(0)
                .unwrap();
            let first = body.frame().await.unwrap();
            assert!(first.is_ok(), "{file_system:?}: it had been read");
            let error = loop {
                match body.frame().await.unwrap() {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(
                error.kind(),
                io::ErrorKind::UnexpectedEof,
                "{file_system:?}: {error}"
            );
            assert!(body.frame().await.is_none(), "{file_system:?}");
            assert!(!body.is_end_stream(), "{file_system:?}");
            assert!(body.size_hint().exact() > Some(0), "{file_system:?}");
        }
    }

    #[tokio::test]
    async fn each_stretch_is_as_long_as_all_before_it_from_256_kib_to_4_mib() {
        let stage = Stage::new(20 * MIB);
        let body = stage
            .body(FileSystem::PageCache, true, Blocking::Allowed)
            .unwrap();
        let Kind::File(mut body) = body.0 else {
            panic!("no body of a file");
        };
        assert_eq!(body.readahead.range, 0..256 * KIB);
        let mut lengths = Vec::new();
        while let Some(next) = body.next_stretch() {
            assert_eq!(next.start, body.readahead.range.end);
            lengths.push((next.end - next.start) / KIB);
            body.readahead.completed(next);
        }
        assert_eq!(lengths, [512, 1024, 2048, 4096, 4096, 4096, 4096, 256]);
        assert_eq!(body.readahead.range, 0..20 * MIB);
    }

    #[tokio::test]
    async fn the_next_stretch_is_begun_when_half_of_the_last_one_is_left() {
        for (left, is_begun) in [(128 * KIB + 1, false), (128 * KIB, true), (0, true)] {
            let stage = Stage::new(MIB);
            let body = stage
                .body(FileSystem::PageCache, true, Blocking::Allowed)
                .unwrap();
            let Kind::File(mut body) = body.0 else {
                panic!("no body of a file");
            };
            assert_eq!(body.readahead.stretch, 256 * KIB);
            // The first chunk is ready to be given out, and the next one begins behind it.
            body.readahead.completed(256 * KIB..256 * KIB + left);
            body.continue_read_ahead();
            assert_eq!(body.readahead.job.is_some(), is_begun, "{left}");
            // It is begun once.
            body.continue_read_ahead();
            drop(body.readahead.job.take());
            assert!(stage.jobs.begun() <= 1);
        }
    }

    #[tokio::test]
    async fn the_next_chunk_is_under_way_while_one_that_had_to_wait_is_given_out() {
        let stage = Stage::new(MIB);
        for (file_system, hands_over_ranges) in [
            (FileSystem::Unknown, true),
            (FileSystem::PageCache, true),
            (FileSystem::Memory, false),
        ] {
            for (blocking, is_under_way) in [(Blocking::Allowed, true), (Blocking::Forbidden, false)] {
                let Ok(mut body) = stage.body(file_system, hands_over_ranges, blocking) else {
                    continue;
                };
                assert!(body.frame().await.unwrap().is_ok());
                let Kind::File(body) = body.0 else {
                    panic!("no body of a file");
                };
                let found = match body.next {
                    Next::Ready(_) | Next::Reading(_) => true,
                    // The next stretch is on its way.
                    Next::Idle => body.readahead.job.is_some(),
                    Next::Failed => false,
                };
                assert_eq!(found, is_under_way, "{file_system:?} {blocking:?}");
            }
        }
    }

    #[test]
    fn what_is_read_ahead_grows_by_what_follows_on_it_and_is_forgotten_after_a_second() {
        let mut readahead = Readahead {
            range: 0..0,
            since: Instant::now(),
            job: None,
            stretch: 0,
        };
        readahead.completed(10..20);
        assert_eq!(readahead.range, 10..20);
        readahead.completed(20..30);
        assert_eq!(readahead.range, 10..30);
        for (range, is_cached) in [(10..30, true), (15..15, true), (9..10, false), (29..31, false)] {
            assert_eq!(readahead.has(&range), is_cached, "{range:?}");
        }
        readahead.completed(40..50);
        assert_eq!(readahead.range, 40..50);
        readahead.since = readahead.since.checked_sub(CACHED_FOR).unwrap();
        assert!(!readahead.has(&(40..50)));
        readahead.completed(50..60);
        assert!(readahead.has(&(40..60)));
    }
}
