//! A file, or standard input, as a request body.
//!
//! A thread reads 256 KiB at a time, one chunk ahead of the one being sent. It is a thread of its own, and not one of
//! the runtime's, so that a silent pipe on standard input never holds up the end of the program.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};

use crate::exit::{Exit, Failure};
use crate::get::progress::Progress;

const CHUNK: usize = 256 * 1024;
/// A chunk that fills less than this of its buffer is copied, so that a slow pipe does not hold 256 KiB for a line.
const WORTH_ITS_BUFFER: usize = CHUNK / 4;

/// The body. Its length is that of the file when it was opened; what is appended later is not sent.
pub(super) struct UploadBody {
    chunks: mpsc::Receiver<Result<Bytes, Failure>>,
    left: Option<u64>,
    progress: Arc<Progress>,
    fault: Arc<Mutex<Option<Failure>>>,
    _ended: oneshot::Sender<()>,
}

/// What remains known of a body after it was given to the library.
pub(super) struct Sent {
    length: Option<u64>,
    fault: Arc<Mutex<Option<Failure>>>,
    ended: oneshot::Receiver<()>,
}

impl Sent {
    /// How long the body is, if that was known at the start.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Why the body could not be read.
    pub(super) fn fault(&self) -> Option<Failure> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the body was sent or given up.
    pub(super) async fn ended(&mut self) {
        // Nothing is ever sent: the other half goes with the body.
        let _ = (&mut self.ended).await;
    }
}

impl UploadBody {
    /// Opens the file (`-` is standard input) and begins to read.
    pub(super) fn open(path: &Path, progress: Arc<Progress>) -> Result<(Self, Sent), Failure> {
        let (source, length): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let wrong = |error| Failure::from_io("read", path, &error);
            let file = File::open(path).map_err(wrong)?;
            let found = file.metadata().map_err(wrong)?;
            if found.is_dir() {
                return Err(wrong(io::ErrorKind::IsADirectory.into()));
            }
            // A FIFO or a device says nothing about how much is to come.
            let length = found.is_file().then_some(found.len());
            (Box::new(file), length)
        };
        Self::begin(source, path.to_owned(), length, progress)
    }

    fn begin(
        source: Box<dyn Read + Send>,
        path: PathBuf,
        length: Option<u64>,
        progress: Arc<Progress>,
    ) -> Result<(Self, Sent), Failure> {
        let (sender, chunks) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("upload".to_owned())
            .spawn(move || read(source, &path, length, &sender))
            .map_err(|error| Failure::new(Exit::Other, format!("cannot start a thread: {error}")))?;
        let fault = Arc::new(Mutex::new(None));
        let (ending, ended) = oneshot::channel();
        let body = Self {
            chunks,
            left: length,
            progress,
            fault: Arc::clone(&fault),
            _ended: ending,
        };
        Ok((body, Sent { length, fault, ended }))
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        Poll::Ready(match ready!(self.chunks.poll_recv(cx)) {
            None => None,
            Some(Ok(chunk)) => {
                let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                self.progress.moved(bytes);
                self.left = self.left.map(|left| left.saturating_sub(bytes));
                Some(Ok(Frame::data(chunk)))
            }
            Some(Err(failure)) => {
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure.clone());
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

/// Sends chunk after chunk; stops when the body is gone.
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
                        "{} shrank while it was sent: {} of {length} bytes are gone; run it again once nobody writes to it",
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

/// What one read gives, of at most `left` bytes; empty at the end.
fn next_chunk(source: &mut impl Read, left: u64) -> io::Result<Bytes> {
    let size = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
    let mut buffer = vec![0; size];
    let count = loop {
        match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            count => break count?,
        }
    };
    if count < WORTH_ITS_BUFFER.min(size) {
        return Ok(Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default()));
    }
    buffer.truncate(count);
    Ok(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn send(content: &'static [u8], length: Option<u64>) -> (Result<Bytes, Exit>, Option<Exit>) {
        let begun = UploadBody::begin(
            Box::new(content),
            PathBuf::from("file"),
            length,
            Progress::hidden(),
        );
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
    async fn a_file_that_shrinks_is_an_error_and_known_afterwards() {
        let (got, fault) = send(b"hello", Some(6)).await;
        assert_eq!(got, Err(Exit::LocalIo));
        assert_eq!(fault, Some(Exit::LocalIo));
    }
}
