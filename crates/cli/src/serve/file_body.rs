//! The body of a response: nothing, a few octets in memory, or parts of a file read a chunk at a time.
//!
//! A chunk is read when it is asked for, as long as the system has it in memory, or is not read at all where the transport
//! sends from files. From where it would have to wait for a disk, chunks are read one ahead of the one given out, by blocking
//! jobs where they must, so a body holds one chunk itself beside the one that its reader has: two, however long the file is.
//! Each is as long as all before it together, so that a stream whose peer takes nothing holds little, and chunks end where
//! full frames do. The length is announced from the file as it was when opened. A file that grew is cut there; one that
//! shrank makes the body fail, so that its stream is reset, or, once a chunk is the transport's to send, ends the connection:
//! no short body passes for a whole one. Made by `files` and `respond`, polled by the transport.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fullbore::Chunk;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::buffers::Buffers;
use super::disk::Patience;
use super::source::Source;

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

#[derive(Debug)]
struct FileBody {
    source: Source,
    buffers: Arc<Buffers>,
    runtime: Handle,
    segments: VecDeque<Segment>,
    /// Bytes not yet given out, those read ahead included.
    remaining: u64,
    ahead: Ahead,
    /// How much of the file has been asked for in chunks.
    asked: usize,
    /// Whether a read had to wait: then the next ones may, and are begun early.
    cold: bool,
    /// Whether the transport sends from files.
    sends_files: bool,
}

#[derive(Debug)]
enum Ahead {
    Idle,
    Ready(Chunk),
    Reading(JoinHandle<io::Result<Bytes>>),
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

    /// A body of `segments`, the file's parts among them read from `source` in chunks. The first chunk is read here, if it
    /// is what comes first. To be called within a runtime's context.
    ///
    /// # Errors
    /// The first read failed, or was not possible with this patience.
    pub(super) fn file(
        source: Source,
        segments: VecDeque<Segment>,
        buffers: Arc<Buffers>,
        sends_files: bool,
        patience: Patience,
    ) -> io::Result<ServeBody> {
        let remaining = segments.iter().map(Segment::len).sum();
        let mut body = FileBody {
            source,
            asked: 0,
            buffers,
            runtime: Handle::current(),
            segments,
            remaining,
            ahead: Ahead::Idle,
            cold: patience == Patience::Wait,
            sends_files,
        };
        if body.find_range() {
            return Ok(ServeBody(Kind::File(Box::new(body))));
        }
        if let Some(range) = body.next_read() {
            let chunk = read(&body.source, &body.buffers, &range, patience)?;
            body.ahead = Ahead::Ready(chunk.into());
        }
        Ok(ServeBody(Kind::File(Box::new(body))))
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
        let length = self.asked.clamp(self.buffers.first(), self.buffers.most());
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
        let Some(Segment::File(range)) = self.segments.front_mut().filter(|_| self.sends_files) else {
            return false;
        };
        let end = range.start.saturating_add(self.buffers.longest() as u64);
        let next = range.start..end.min(range.end);
        let Some(found) = self.source.range(&next) else {
            return false;
        };
        range.start = next.end;
        if range.is_empty() {
            self.segments.pop_front();
        }
        self.ahead = Ahead::Ready(found.into());
        true
    }

    /// Reads the next chunk, here if it is in memory.
    fn read_next(&mut self) {
        if self.find_range() {
            return;
        }
        let Some(range) = self.next_read() else {
            return;
        };
        if Patience::AT_ONCE_IS_POSSIBLE {
            match read(&self.source, &self.buffers, &range, Patience::AtOnce) {
                Ok(chunk) => {
                    self.ahead = Ahead::Ready(chunk.into());
                    return;
                }
                // Whatever else it is, the job will say so.
                Err(_) => self.cold = true,
            }
        }
        let (source, buffers) = (self.source.clone(), Arc::clone(&self.buffers));
        let job = move || read(&source, &buffers, &range, Patience::Wait);
        self.ahead = Ahead::Reading(self.runtime.spawn_blocking(job));
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
                    self.read_next();
                }
                Ahead::Reading(mut job) => match Pin::new(&mut job).poll(cx) {
                    Poll::Pending => {
                        self.ahead = Ahead::Reading(job);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(result)) => break result.map(Chunk::from),
                    Poll::Ready(Err(lost)) => break Err(io::Error::other(lost)),
                },
            }
        };
        match chunk {
            Ok(chunk) => {
                self.remaining = self.remaining.saturating_sub(chunk.len() as u64);
                if self.cold || !Patience::AT_ONCE_IS_POSSIBLE {
                    self.read_next();
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
