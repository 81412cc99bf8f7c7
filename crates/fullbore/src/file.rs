//! Bodies of files: ranges that are read just before they are written, or sent by reference.
//!
//! A body may consist of [`Chunk`]s instead of `Bytes`. The driver reads a [`FileRange`] just before it is written, so that
//! waiting data takes no memory. A server may choose to send ranges by reference instead, over TCP without TLS on Linux:
//! then the socket refers to the pages of the page cache, which saves a copy. `sender` takes chunks, `driver::write` reads
//! ranges, and `driver::files` sends them by reference.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
#[cfg(target_os = "linux")]
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use fullbore_proto::{External, Payload};

/// A file whose ranges are sent, open for reading. It is closed when its last range has been sent.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Its length and time of modification when its first range was sent by reference.
    #[cfg(target_os = "linux")]
    sent: OnceLock<(u64, SystemTime)>,
    _kept: Option<Kept>,
}

struct Kept(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send + Sync>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl OpenFile {
    /// A file that ranges share.
    pub fn new(file: File) -> Arc<Self> {
        Self::with(file, None)
    }

    /// A file with a value that is dropped when the file is closed, such as a count of open files.
    pub fn keeping(file: File, kept: impl Any + Send + Sync) -> Arc<Self> {
        Self::with(file, Some(Kept(Box::new(kept))))
    }

    fn with(file: File, kept: Option<Kept>) -> Arc<Self> {
        Arc::new(OpenFile {
            file,
            #[cfg(target_os = "linux")]
            sent: OnceLock::new(),
            _kept: kept,
        })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Compares the file with its state at the first call.
    ///
    /// # Errors
    /// It has another length or time of modification. The time of its status change (ctime) does not count: renaming a file
    /// changes that too.
    #[cfg(target_os = "linux")]
    pub(crate) fn check_unchanged(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        let state = (now.len(), now.modified()?);
        match self.sent.get_or_init(|| state) {
            first if *first == state => Ok(()),
            first if first.0 > state.0 => Err(became_shorter()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a file was changed while it was being sent by reference; what the peer has received of it may be wrong, so \
                 that the connection ends",
            )),
        }
    }
}

/// A range of an open file.
///
/// The file must not become shorter than the range before the range is sent. One that does ends the connection: the length of
/// its frame is fixed by then. When ranges are read, which is the default, the peer never receives an octet that was not in
/// the file when it was read.
///
/// # Sending by reference
/// With [`ServerBuilder::sending_files`](crate::ServerBuilder::sending_files), or `sending_files` of a single connection, on
/// Linux, the socket refers to the pages of the file until the peer has acknowledged them. The file must not change meanwhile:
///
/// - The driver compares the file's length and time of modification with those at its first range before it takes pages for a
///   write, and after the socket took them. A difference ends the connection.
/// - Pages that the socket has taken already are beyond this check. When a file is cut short, the kernel clears the rest of the
///   page, or of the large folio, where the file now ends: the peer may receive zeros for up to as many octets as the two socket
///   buffers hold. When a file is written in place, the peer may receive new octets among the old. If these are the last of
///   a response, the peer is not told; otherwise the connection ends at the next check.
///
/// `splice` cannot suppress SIGPIPE when the peer is gone. Rust programs ignore that signal from their start; a program in
/// another language that contains this library must do so too.
#[derive(Debug, Clone)]
pub struct FileRange {
    file: Arc<OpenFile>,
    start: u64,
    length: usize,
    /// The content, once it was accessed as a [`Buf`].
    content: OnceLock<Bytes>,
}

impl FileRange {
    /// `length` octets of `file` from `start` on. The thread that serves the connection waits for what is not in the page cache.
    pub fn new(file: Arc<OpenFile>, start: u64, length: usize) -> Self {
        FileRange {
            file,
            start,
            length,
            content: OnceLock::new(),
        }
    }

    /// The number of octets.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes up to `length` octets off the front.
    pub(crate) fn split_to(&mut self, length: usize) -> FileRange {
        let front = FileRange::new(Arc::clone(&self.file), self.start, length.min(self.length));
        self.content = OnceLock::new();
        self.start = self.start.saturating_add(front.length as u64);
        self.length -= front.length;
        front
    }

    /// Reads the range into `space`, which has its length.
    pub(crate) fn read_into(&self, space: &mut [u8]) -> io::Result<()> {
        match read_exact_at(&self.file.file, space, self.start) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(became_shorter()),
            read => read,
        }
    }

    /// Reads the range, which may wait for a disk.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before the range does; otherwise the error of the system.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut octets = vec![0; self.length];
        read_exact_at(&self.file.file, &mut octets, self.start)?;
        Ok(Bytes::from(octets))
    }
}

/// The file of a payload that is an external range.
pub(crate) fn of_payload(range: &External) -> io::Result<&OpenFile> {
    match range.owner().downcast_ref::<OpenFile>() {
        Some(open) => Ok(open),
        None => Err(io::Error::other("a payload is neither octets nor a file's")),
    }
}

/// Reads an external payload.
pub(crate) fn read_payload(range: &External, space: &mut [u8]) -> io::Result<()> {
    match read_exact_at(of_payload(range)?.file(), space, range.start()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(became_shorter()),
        read => read,
    }
}

/// Why a connection ends.
pub(crate) fn became_shorter() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a file became shorter while it was being sent; its frame had begun, so that the connection ends",
    )
}

/// A chunk of a body: bytes, or a range of a file. A server takes bodies of these as it takes bodies of `Bytes`.
///
/// ```
/// use fullbore::body::{Chunk, FileRange, OpenFile};
/// # fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("fullbore-chunk-{}", std::process::id()));
/// # std::fs::write(&path, "0123456789")?;
/// let file = OpenFile::new(std::fs::File::open(&path)?);
/// let chunks = [Chunk::from("head "), Chunk::from(FileRange::new(file, 2, 3))];
/// assert_eq!(chunks.map(|chunk| chunk.len()), [5, 3]);
/// # std::fs::remove_file(&path)
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Chunk {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A range of a file.
    File(FileRange),
}

impl Chunk {
    /// The chunk as the engine takes it.
    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Chunk::Bytes(octets) => octets.into(),
            Chunk::File(range) => External::new(range.file, range.start, range.length).into(),
        }
    }

    /// The number of octets.
    pub fn len(&self) -> usize {
        match self {
            Chunk::Bytes(octets) => octets.len(),
            Chunk::File(range) => range.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Bytes> for Chunk {
    fn from(octets: Bytes) -> Self {
        Chunk::Bytes(octets)
    }
}

impl From<&'static str> for Chunk {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<FileRange> for Chunk {
    fn from(range: FileRange) -> Self {
        Chunk::File(range)
    }
}

/// A chunk may be the data of any body. The driver does not use this; for others, a range is read at the first access.
impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.len()
    }

    /// # Panics
    /// When a range cannot be read. [`FileRange::read`] returns an error instead.
    fn chunk(&self) -> &[u8] {
        match self {
            Chunk::Bytes(octets) => octets,
            Chunk::File(range) => range.content.get_or_init(|| match range.read() {
                Ok(octets) => octets,
                Err(error) => panic!("a file cannot be read as far as its body says: {error}"),
            }),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Chunk::Bytes(octets) => octets.advance(count),
            Chunk::File(range) => {
                let count = count.min(range.length);
                range.start = range.start.saturating_add(count as u64);
                range.length -= count;
                if let Some(octets) = range.content.get_mut() {
                    octets.advance(count);
                }
            }
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if let Chunk::Bytes(octets) = self {
            return octets.split_to(count);
        }
        let octets = Bytes::copy_from_slice(&self.chunk()[..count]);
        self.advance(count);
        octets
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, octets: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, octets, start)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut octets: &mut [u8], start: u64) -> io::Result<()> {
    let mut at = start;
    while !octets.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, octets, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                octets = &mut octets[count..];
                at += count as u64;
            }
        }
    }
    Ok(())
}
