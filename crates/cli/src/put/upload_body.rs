//! A file or standard input as a request body.
//!
//! A thread reads 256 KiB at a time, one chunk ahead. It is not a thread of the runtime, so a silent pipe never delays the
//! end of the program. The body of a regular file has its own offset, so it can be cloned and sent again.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

use crate::exit::{Exit, Failure};
use crate::transfer::detached::detached;
use crate::transfer::seconds;

use super::upload_state::FileVersion;

const CHUNK: usize = 256 * 1024;
/// A chunk shorter than this is copied, so that a slow pipe does not hold 256 KiB for a line.
const COPIED_BELOW: usize = CHUNK / 4;

/// The body of an upload.
pub(super) enum UploadSource {
    /// A regular file: its body can be sent again.
    File(FileBody),
    /// A pipe or a device, which can be read once.
    Stream(StreamBody),
}

/// The state of a body that was passed to the library.
pub(super) struct Sent {
    length: Option<u64>,
    /// The second of its modification.
    modified: Option<i64>,
    state: Arc<State>,
    /// `None` once it has come.
    ended: Option<oneshot::Receiver<()>>,
}

/// What is known of a body that is sent, or sent again.
#[derive(Default)]
struct State {
    /// Why it could not be read.
    fault: Mutex<Option<Failure>>,
    /// The bytes that the library has taken.
    taken: AtomicU64,
    /// The library has taken all.
    is_whole: AtomicBool,
}

impl State {
    /// A body of this length begins.
    fn begin(&self, length: Option<u64>) {
        self.taken.store(0, Ordering::Relaxed);
        self.is_whole.store(length == Some(0), Ordering::Relaxed);
    }

    fn fault(&self) -> Option<Failure> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_fault(&self, failure: &Failure) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure.clone());
    }
}

impl Sent {
    /// The length of the body, if it was known at the start.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The second in which the file was modified; `None` for a stream.
    pub(super) fn modified(&self) -> Option<i64> {
        self.modified
    }

    /// Why the body could not be read.
    pub(super) fn fault(&self) -> Option<Failure> {
        self.state.fault()
    }

    /// Whether the whole body has left, of which so many bytes have. Only once it has ended.
    pub(super) fn is_whole(&self, left: u64) -> bool {
        self.state.is_whole.load(Ordering::Relaxed) && left >= self.state.taken.load(Ordering::Relaxed)
    }

    /// Waits until the body and all its clones are dropped.
    pub(super) async fn ended(&mut self) {
        if let Some(ended) = &mut self.ended {
            // The last body drops the sender.
            let _ = ended.await;
            self.ended = None;
        }
    }
}

/// Opens the file; `-` is standard input.
pub(super) async fn open(path: &Path) -> Result<(UploadSource, Sent), Failure> {
    if path == Path::new("-") {
        if let Some((file, found, start)) = redirected_file() {
            return Ok(of_file(file, Path::new("standard input"), &found, start));
        }
        let (body, sent) = StreamBody::begin(Box::new(io::stdin()), path.to_owned(), None, Arc::default())?;
        return Ok((UploadSource::Stream(body), sent));
    }
    let wrong = |error| Failure::from_io("read", path, &error);
    let named = path.to_owned();
    // A FIFO is open only when another process writes to it.
    let opened = detached(move || {
        Ok(File::open(named).and_then(|file| {
            let found = file.metadata()?;
            let has_length = found.is_file() && !(found.len() == 0 && has_data(&file)?);
            Ok((file, found, has_length))
        }))
    });
    let (file, found, has_length) = opened.await?.map_err(wrong)?;
    if found.is_dir() {
        return Err(wrong(io::ErrorKind::IsADirectory.into()));
    }
    if !has_length {
        // A FIFO, a device, or a file of /proc.
        let (body, sent) = StreamBody::begin(Box::new(file), path.to_owned(), None, Arc::default())?;
        return Ok((UploadSource::Stream(body), sent));
    }
    Ok(of_file(file, path, &found, 0))
}

/// The body of a regular file from `start` on.
pub(super) fn of_file(file: File, path: &Path, found: &Metadata, start: u64) -> (UploadSource, Sent) {
    let length = found.len() - start;
    let (ending, ended) = oneshot::channel();
    let state = Arc::new(State::default());
    state.begin(Some(length));
    let body = FileBody {
        source: Arc::new(Source {
            file,
            path: path.to_owned(),
            start,
            length,
            version: FileVersion::of(found),
        }),
        range: 0..length,
        state: Arc::clone(&state),
        reading: None,
        _ended: Arc::new(ending),
    };
    let sent = Sent {
        length: Some(length),
        modified: seconds::of_file(found),
        state,
        ended: Some(ended),
    };
    (UploadSource::File(body), sent)
}

/// Standard input if it is a regular file with data, as after `<` in a shell, and the offset from which on it is meant. The offset
/// moves to the end, as if it had been read.
#[cfg(unix)]
fn redirected_file() -> Option<(File, Metadata, u64)> {
    use std::io::Seek as _;
    use std::os::fd::AsFd as _;
    let mut file = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    let start = file.stream_position().ok()?;
    // Files of /proc have no length.
    if start >= found.len() {
        return None;
    }
    file.seek(io::SeekFrom::Start(found.len())).ok()?;
    Some((file, found, start))
}

#[cfg(not(unix))]
fn redirected_file() -> Option<(File, Metadata, u64)> {
    None
}

/// Whether there is data behind a length of 0, as in files of /proc.
#[cfg(unix)]
fn has_data(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    Ok(file.read_at(&mut [0], 0)? > 0)
}

#[cfg(not(unix))]
fn has_data(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// The body of a regular file. Its length is that of the file when it was opened; appended data is not sent. A clone starts
/// at the beginning.
pub(super) struct FileBody {
    source: Arc<Source>,
    /// The part that is sent.
    range: Range<u64>,
    state: Arc<State>,
    /// `None` until the first poll.
    reading: Option<StreamBody>,
    _ended: Arc<oneshot::Sender<()>>,
}

/// An open file, and its state when it was opened.
struct Source {
    file: File,
    path: PathBuf,
    /// The offset of the first byte that is sent.
    start: u64,
    length: u64,
    version: FileVersion,
}

impl Clone for FileBody {
    fn clone(&self) -> Self {
        Self {
            source: Arc::clone(&self.source),
            range: self.range.clone(),
            state: Arc::clone(&self.state),
            reading: None,
            _ended: Arc::clone(&self._ended),
        }
    }
}

impl FileBody {
    /// This part of the file, as a body of its own.
    pub(super) fn part(&self, range: Range<u64>) -> Self {
        let end = range.end.min(self.source.length);
        Self {
            range: range.start.min(end)..end,
            ..self.clone()
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Why the file could not be read.
    pub(super) fn fault(&self) -> Option<Failure> {
        self.state.fault()
    }

    /// What tells the file from a later version of it.
    pub(super) fn version(&self) -> &FileVersion {
        &self.source.version
    }

    /// Whether the file is what it was when it was opened.
    ///
    /// # Errors
    /// It was written to, or cannot be read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let source = &self.source;
        let wrong = |error| Failure::from_io("read", &source.path, &error);
        let found = source.file.metadata().map_err(wrong)?;
        if FileVersion::of(&found).may_have_grown_from(&source.version) {
            return Ok(());
        }
        Err(Failure::new(
            Exit::LocalIo,
            format!(
                "{} changed before it was sent; try again when no process writes to it",
                source.path.display()
            ),
        ))
    }

    fn begin(&self) -> Result<StreamBody, Failure> {
        self.check()?;
        let source = Arc::clone(&self.source);
        let (path, length) = (source.path.clone(), self.length());
        let offset = source.start + self.range.start;
        let from_its_place = Box::new(At { source, offset });
        let state = Arc::clone(&self.state);
        StreamBody::begin(from_its_place, path, Some(length), state).map(|(body, _)| body)
    }

    fn left(&self) -> u64 {
        let left = self.reading.as_ref().and_then(|reading| reading.left);
        left.unwrap_or_else(|| self.length())
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.reading.is_none() {
            match self.begin() {
                Ok(reading) => self.reading = Some(reading),
                Err(failure) => {
                    self.state.keep_fault(&failure);
                    return Poll::Ready(Some(Err(failure)));
                }
            }
        }
        match &mut self.reading {
            Some(reading) => Pin::new(reading).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// Reads a file from its own offset.
struct At {
    source: Arc<Source>,
    offset: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let count = std::os::unix::fs::FileExt::read_at(&self.source.file, buffer, self.offset)?;
        #[cfg(windows)]
        let count = std::os::windows::fs::FileExt::seek_read(&self.source.file, buffer, self.offset)?;
        self.offset += u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }
}

/// The chunks that a thread reads.
pub(super) struct StreamBody {
    chunks: mpsc::Receiver<Result<Bytes, Failure>>,
    left: Option<u64>,
    state: Arc<State>,
    _ended: oneshot::Sender<()>,
}

impl StreamBody {
    /// Starts to read `length` bytes, or to the end.
    fn begin(
        source: Box<dyn Read + Send>,
        path: PathBuf,
        length: Option<u64>,
        state: Arc<State>,
    ) -> Result<(Self, Sent), Failure> {
        let (sender, chunks) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("upload".to_owned())
            .spawn(move || read(source, &path, length, &sender))
            .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
        state.begin(length);
        let (ending, ended) = oneshot::channel();
        let body = Self {
            chunks,
            left: length,
            state: Arc::clone(&state),
            _ended: ending,
        };
        let sent = Sent {
            length,
            modified: None,
            state,
            ended: Some(ended),
        };
        Ok((body, sent))
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        Poll::Ready(match ready!(self.chunks.poll_recv(cx)) {
            None => {
                self.state.is_whole.store(true, Ordering::Relaxed);
                None
            }
            Some(Ok(chunk)) => {
                let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                self.state.taken.fetch_add(bytes, Ordering::Relaxed);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                if self.left == Some(0) {
                    self.state.is_whole.store(true, Ordering::Relaxed);
                }
                Some(Ok(Frame::data(chunk)))
            }
            Some(Err(failure)) => {
                self.state.keep_fault(&failure);
                Some(Err(failure))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Sends the chunks; stops when the body is dropped.
fn read(
    mut source: impl Read,
    path: &Path,
    length: Option<u64>,
    sender: &mpsc::Sender<Result<Bytes, Failure>>,
) {
    let mut left = length.unwrap_or(u64::MAX);
    while left > 0 {
        let item = next_chunk(&mut source, left).map_err(|error| Failure::from_io("read", path, &error));
        let item = match item {
            Ok(chunk) if chunk.is_empty() => match length {
                None => return,
                Some(length) => Err(Failure::new(
                    Exit::LocalIo,
                    format!(
                        "{} became shorter while it was sent: {} of {length} bytes are missing; try again when no process writes to it",
                        path.display(),
                        left
                    ),
                )),
            },
            item => item,
        };
        let failed = item.is_err();
        if let Ok(chunk) = &item {
            left = left.saturating_sub(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        }
        if sender.blocking_send(item).is_err() || failed {
            return;
        }
    }
}

/// The result of one read of at most `left` bytes; empty at the end.
fn next_chunk(source: &mut impl Read, left: u64) -> io::Result<Bytes> {
    let size = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
    let mut buffer = vec![0; size];
    let count = loop {
        match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            count => break count?,
        }
    };
    if count < COPIED_BELOW.min(size) {
        return Ok(Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default()));
    }
    buffer.truncate(count);
    Ok(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use http_body_util::BodyExt;

    async fn send(content: &'static [u8], length: Option<u64>) -> (Result<Bytes, Exit>, Option<Exit>) {
        let begun = StreamBody::begin(Box::new(content), PathBuf::from("file"), length, Arc::default());
        match begun {
            Err(failure) => (Err(failure.exit), None),
            Ok((body, mut sent)) => {
                let got = body.collect().await;
                sent.ended().await;
                (
                    got.map(http_body_util::Collected::to_bytes).map_err(|f| f.exit),
                    sent.fault().map(|f| f.exit),
                )
            }
        }
    }

    #[tokio::test]
    async fn a_file_is_sent_as_long_as_it_was_when_opened() {
        assert_eq!(send(b"hello", Some(5)).await, (Ok(Bytes::from("hello")), None));
        assert_eq!(
            send(b"hello, and more", Some(5)).await,
            (Ok(Bytes::from("hello")), None)
        );
        assert_eq!(send(b"", Some(0)).await, (Ok(Bytes::new()), None));
    }

    #[tokio::test]
    async fn a_pipe_is_sent_to_its_end() {
        static LONG: [u8; 3 * CHUNK + 5] = [7; 3 * CHUNK + 5];
        let (got, fault) = send(&LONG, None).await;
        assert_eq!(got.as_deref(), Ok(&LONG[..]));
        assert_eq!(fault, None);
    }

    #[tokio::test]
    async fn a_body_says_how_much_is_left_and_when_it_has_ended() -> io::Result<()> {
        for content in [&b""[..], b"hello"] {
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), content)?;
            let Ok((UploadSource::File(mut body), _sent)) = open(file.path()).await else {
                panic!("a regular file");
            };
            assert_eq!(body.size_hint().exact(), Some(content.len() as u64));
            // The body of an empty file needs no frame.
            assert_eq!(body.is_end_stream(), content.is_empty());
            while let Some(frame) = body.frame().await {
                assert!(frame.is_ok_and(|frame| frame.is_data()));
            }
            assert!(body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(0));
        }
        Ok(())
    }

    #[test]
    fn a_chunk_has_256_kib_or_what_is_left() -> io::Result<()> {
        let mut source = io::repeat(7);
        for (left, length) in [
            (u64::MAX, 262_144),
            (262_145, 262_144),
            (262_143, 262_143),
            (1, 1),
        ] {
            assert_eq!(next_chunk(&mut source, left)?, vec![7; length]);
        }
        assert!(next_chunk(&mut io::empty(), 5)?.is_empty());
        Ok(())
    }

    #[tokio::test]
    async fn a_file_that_shrinks_is_an_error_and_known_afterwards() {
        let (got, fault) = send(b"hello", Some(6)).await;
        assert_eq!(got, Err(Exit::LocalIo));
        assert_eq!(fault, Some(Exit::LocalIo));
    }

    #[tokio::test]
    async fn a_file_can_be_sent_again_from_its_place_but_not_once_it_was_changed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        std::fs::write(&path, "hello")?;
        let (body, mut sent) = match open(&path).await {
            Ok((UploadSource::File(body), sent)) => (body, sent),
            _ => return Err(io::Error::other("no file")),
        };
        for again in [body.clone(), body.clone()] {
            let got = again.collect().await.map(http_body_util::Collected::to_bytes);
            assert_eq!(got.map_err(|failure| failure.exit), Ok(Bytes::from("hello")));
            assert!(
                sent.is_whole(5) && !sent.is_whole(4),
                "what was taken before counts no more"
            );
        }
        let part = body
            .part(1..4)
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        assert_eq!(part.map_err(|failure| failure.exit), Ok(Bytes::from("ell")));
        assert_eq!(body.part(4..9).size_hint().exact(), Some(1));
        let half = body.clone();
        std::fs::write(&path, "hallo")?;
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        File::options().append(true).open(&path)?.set_modified(later)?;
        let got = half.collect().await.map(http_body_util::Collected::to_bytes);
        assert_eq!(got.map_err(|failure| failure.exit), Err(Exit::LocalIo));
        assert_eq!(sent.fault().map(|failure| failure.exit), Some(Exit::LocalIo));
        drop(body);
        sent.ended().await;
        Ok(())
    }
}
