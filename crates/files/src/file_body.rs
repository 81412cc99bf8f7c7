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

use crate::buffers::Buffers;
use crate::disk::Patience;
use crate::jobs::{Job, Jobs, Peer};
use crate::source::Source;

/// How much of a file one job reads into the page cache: first this much, then twice as much each time, up to
/// [`LONGEST_STRETCH`]. 100 MiB take 29 jobs, where chunks of 256 KiB took 404.
const FIRST_STRETCH: u64 = 256 << 10;
const LONGEST_STRETCH: u64 = 4 << 20;

/// For how long what was brought into memory is taken to be there. Then it is looked at, or brought, anew.
const WARM_FOR: Duration = Duration::from_secs(1);

/// The body of every response that [`Files`](crate::Files) gives. Its size hint is exact.
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
pub(crate) enum Segment {
    /// Octets that are here already.
    Memory(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

/// What a body is read with.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) source: Source,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) jobs: Arc<Jobs>,
    /// For whom.
    pub(crate) peer: Option<Peer>,
    /// Whether the transport takes ranges of files.
    pub(crate) hands_over_ranges: bool,
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
    pub(crate) fn empty() -> ServeBody {
        ServeBody(Kind::Empty)
    }

    /// A body of octets in memory.
    pub(crate) fn full(bytes: Bytes) -> ServeBody {
        if bytes.is_empty() {
            ServeBody::empty()
        } else {
            ServeBody(Kind::Full(bytes))
        }
    }

    /// A body of `segments`, all of them in memory.
    pub(crate) fn memory(segments: VecDeque<Segment>) -> ServeBody {
        ServeBody(Kind::Memory(segments))
    }

    /// A body of `segments`, the file's parts among them got with these means. The first chunk is got here, if it
    /// is what comes first. To be called within a runtime's context.
    ///
    /// # Errors
    /// The first read failed, or was not possible with this patience.
    pub(crate) fn file(
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
    pub(crate) fn len(&self) -> u64 {
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

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;
    use cap_std::fs::Dir;
    use http_body_util::BodyExt as _;
    use tempfile::TempDir;

    use super::*;
    use crate::buffers::Sizes;
    use crate::disk::Volume;
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

        fn means(&self, volume: Volume, hands_over_ranges: bool) -> Means {
            let root = Arc::new(Dir::open_ambient_dir(self.folder.path(), ambient_authority()).unwrap());
            let file = std::fs::File::open(self.folder.path().join("a")).unwrap();
            let sizes = Sizes {
                first: 4 << 10,
                most: 256 << 10,
                all: 64 << 20,
                whole: 0,
            };
            Means {
                source: Source::new(file, volume, None, &root, &Descriptors::new(9)),
                buffers: Buffers::new(sizes, 1),
                jobs: Arc::clone(&self.jobs),
                peer: None,
                hands_over_ranges,
            }
        }

        /// A body of all of the file.
        fn body(&self, volume: Volume, hands_over_ranges: bool, patience: Patience) -> io::Result<ServeBody> {
            let segments = VecDeque::from([Segment::File(0..self.content.len() as u64)]);
            ServeBody::file(self.means(volume, hands_over_ranges), segments, patience)
        }
    }

    /// Reads a body to its end: how long its chunks are, and what they hold.
    async fn read_all(mut body: ServeBody) -> (Vec<u64>, Vec<u8>) {
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
            (ServeBody::empty(), vec![]),
            (ServeBody::full(Bytes::new()), vec![]),
            (ServeBody::full(Bytes::from("one")), vec![3]),
            (ServeBody::memory(VecDeque::new()), vec![]),
            (
                ServeBody::memory(VecDeque::from(
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
            for volume in [Volume::Caches, Volume::Waits] {
                let body = stage.body(volume, hands_over_ranges, Patience::AtOnce);
                assert_eq!(body.unwrap_err().kind(), io::ErrorKind::WouldBlock, "{volume:?}");
            }
            let body = stage.body(Volume::Memory, hands_over_ranges, Patience::AtOnce);
            assert!(read_all(body.unwrap()).await.1 == stage.content);
            assert_eq!(stage.jobs.begun(), 0);
        }
    }

    #[tokio::test]
    async fn ranges_are_as_long_as_any_chunk_from_the_first_on() {
        let stage = Stage::new(3 * MIB + 5);
        for (volume, patience, jobs) in [
            (Volume::Memory, Patience::AtOnce, 0..1),
            (Volume::Caches, Patience::Wait, 3..10),
        ] {
            let before = stage.jobs.begun();
            let body = stage.body(volume, true, patience).unwrap();
            let (lengths, octets) = read_all(body).await;
            assert!(octets == stage.content, "{volume:?}");
            assert_eq!(lengths[..12], [256 * KIB; 12], "{volume:?}");
            assert_eq!(lengths[12..], [5], "{volume:?}");
            // Stretches of 512 KiB, 1 MiB and the rest; more of them after a pause of a second.
            let begun = stage.jobs.begun() - before;
            assert!(jobs.contains(&begun), "{volume:?}: {begun} jobs");
        }
    }

    #[tokio::test]
    async fn chunks_that_are_read_begin_short_and_take_a_job_each_behind_the_first() {
        let stage = Stage::new(600 * KIB);
        let lengths = [4, 4, 8, 16, 32, 64, 128, 256, 88].map(|kib| kib * KIB);
        for (volume, hands_over_ranges, jobs) in [
            (Volume::Waits, true, 8),
            (Volume::Waits, false, 8),
            (Volume::Caches, false, 8),
            (Volume::Memory, false, 0),
        ] {
            let before = stage.jobs.begun();
            let body = stage.body(volume, hands_over_ranges, Patience::Wait).unwrap();
            let (found, octets) = read_all(body).await;
            assert!(octets == stage.content, "{volume:?}");
            assert_eq!(found, lengths, "{volume:?}");
            assert_eq!(
                stage.jobs.begun() - before,
                jobs,
                "{volume:?} {hands_over_ranges}"
            );
        }
    }

    #[tokio::test]
    async fn segments_keep_their_order_however_the_file_is_read() {
        let stage = Stage::new(600 * KIB);
        let text = |text| Segment::Memory(Bytes::from(text));
        for volume in [Volume::Memory, Volume::Caches, Volume::Waits] {
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
                let means = stage.means(volume, hands_over_ranges);
                let body = ServeBody::file(means, segments, Patience::Wait).unwrap();
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
                assert!(octets == expected.concat(), "{volume:?} {hands_over_ranges}");
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_fails_its_body_once_and_for_good() {
        for (volume, hands_over_ranges) in [
            (Volume::Caches, true),
            (Volume::Waits, true),
            (Volume::Memory, false),
        ] {
            let stage = Stage::new(3 * MIB);
            let mut body = stage.body(volume, hands_over_ranges, Patience::Wait).unwrap();
            let path = stage.folder.path().join("a");
            std::fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(0)
                .unwrap();
            let first = body.frame().await.unwrap();
            assert!(first.is_ok(), "{volume:?}: it had been read");
            let error = loop {
                match body.frame().await.unwrap() {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{volume:?}: {error}");
            assert!(body.frame().await.is_none(), "{volume:?}");
            assert!(!body.is_end_stream(), "{volume:?}");
            assert!(body.size_hint().exact() > Some(0), "{volume:?}");
        }
    }

    #[tokio::test]
    async fn each_stretch_is_as_long_as_all_before_it_from_256_kib_to_4_mib() {
        let stage = Stage::new(20 * MIB);
        let body = stage.body(Volume::Caches, true, Patience::Wait).unwrap();
        let Kind::File(mut body) = body.0 else {
            panic!("no body of a file");
        };
        assert_eq!(body.warmth.range, 0..256 * KIB);
        let mut lengths = Vec::new();
        while let Some(next) = body.next_stretch() {
            assert_eq!(next.start, body.warmth.range.end);
            lengths.push((next.end - next.start) / KIB);
            body.warmth.came(next);
        }
        assert_eq!(lengths, [512, 1024, 2048, 4096, 4096, 4096, 4096, 256]);
        assert_eq!(body.warmth.range, 0..20 * MIB);
    }

    #[tokio::test]
    async fn the_next_stretch_is_begun_when_half_of_the_last_one_is_left() {
        for (left, is_begun) in [(128 * KIB + 1, false), (128 * KIB, true), (0, true)] {
            let stage = Stage::new(MIB);
            let body = stage.body(Volume::Caches, true, Patience::Wait).unwrap();
            let Kind::File(mut body) = body.0 else {
                panic!("no body of a file");
            };
            assert_eq!(body.warmth.stretch, 256 * KIB);
            // The first chunk is ready to be given out, and the next one begins behind it.
            body.warmth.came(256 * KIB..256 * KIB + left);
            body.warm_ahead();
            assert_eq!(body.warmth.coming.is_some(), is_begun, "{left}");
            // It is begun once.
            body.warm_ahead();
            drop(body.warmth.coming.take());
            assert!(stage.jobs.begun() <= 1);
        }
    }

    #[tokio::test]
    async fn the_next_chunk_is_under_way_while_one_that_had_to_wait_is_given_out() {
        let stage = Stage::new(MIB);
        for (volume, hands_over_ranges) in [
            (Volume::Waits, true),
            (Volume::Caches, true),
            (Volume::Memory, false),
        ] {
            for (patience, is_under_way) in [(Patience::Wait, true), (Patience::AtOnce, false)] {
                let Ok(mut body) = stage.body(volume, hands_over_ranges, patience) else {
                    continue;
                };
                assert!(body.frame().await.unwrap().is_ok());
                let Kind::File(body) = body.0 else {
                    panic!("no body of a file");
                };
                let found = match body.ahead {
                    Ahead::Ready(_) | Ahead::Reading(_) => true,
                    // The next stretch is on its way.
                    Ahead::Idle => body.warmth.coming.is_some(),
                    Ahead::Failed => false,
                };
                assert_eq!(found, is_under_way, "{volume:?} {patience:?}");
            }
        }
    }

    #[test]
    fn what_is_warm_grows_by_what_follows_on_it_and_is_forgotten_after_a_second() {
        let mut warmth = Warmth {
            range: 0..0,
            since: Instant::now(),
            coming: None,
            stretch: 0,
        };
        warmth.came(10..20);
        assert_eq!(warmth.range, 10..20);
        warmth.came(20..30);
        assert_eq!(warmth.range, 10..30);
        for (range, is_warm) in [(10..30, true), (15..15, true), (9..10, false), (29..31, false)] {
            assert_eq!(warmth.has(&range), is_warm, "{range:?}");
        }
        warmth.came(40..50);
        assert_eq!(warmth.range, 40..50);
        warmth.since = warmth.since.checked_sub(WARM_FOR).unwrap();
        assert!(!warmth.has(&(40..50)));
        warmth.came(50..60);
        assert!(warmth.has(&(40..60)));
    }
}
