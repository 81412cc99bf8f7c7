//! Bodies of files: ranges that are read just before they are written, or sent by reference.
//!
//! A body may hand over [`Chunk`]s instead of `Bytes`. The driver reads the octets of a [`FileRange`] when they are next to
//! be written, so that what waits takes no memory. A server may choose to send them by reference instead, over TCP without
//! TLS on Linux: then the driver hands the system's own pages to the socket, which saves a copy. `sender` takes chunks,
//! `driver::transport` reads them, `driver::files` sends them by reference.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes};
use fullbore_proto::{External, Payload};

/// A file whose ranges are sent, open for reading. It is closed when the last range has left.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    #[cfg(target_os = "linux")]
    sent: SentByReference,
    _kept: Option<Kept>,
}

/// What sending by reference remembers of a file.
#[cfg(target_os = "linux")]
#[derive(Debug, Default)]
pub(crate) struct SentByReference {
    /// Its state when it was first sent so.
    pub(crate) first: OnceLock<Stamp>,
    /// The system cannot send it so.
    pub(crate) is_impossible: std::sync::atomic::AtomicBool,
}

/// The state of a file as far as it tells whether its content has changed. The time of the last status change (ctime) is no
/// part of it: renaming a file changes that too.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) length: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
}

struct Kept(#[expect(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send + Sync>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl OpenFile {
    /// A file to be shared by ranges of it.
    pub fn new(file: File) -> Arc<Self> {
        Arc::new(OpenFile {
            file,
            #[cfg(target_os = "linux")]
            sent: SentByReference::default(),
            _kept: None,
        })
    }

    /// The same with something that is dropped when the file is closed, such as a count of open files.
    pub fn keeping(file: File, kept: impl Any + Send + Sync) -> Arc<Self> {
        Arc::new(OpenFile {
            file,
            #[cfg(target_os = "linux")]
            sent: SentByReference::default(),
            _kept: Some(Kept(Box::new(kept))),
        })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What sending by reference remembers of it.
    #[cfg(target_os = "linux")]
    pub(crate) fn sent_by_reference(&self) -> &SentByReference {
        &self.sent
    }
}

/// A range of an open file.
///
/// The file must stay as long as the range says until the range has left. One that became shorter ends the connection: the
/// length of its frame is fixed by then. When ranges are read, which is the default, the peer never receives an octet that
/// was not in the file when it was read.
///
/// # Sending by reference
/// With [`Server::sending_files`](crate::Server::sending_files), or `sending_files` of a single connection, the socket refers
/// to the pages of the file until the peer has acknowledged them. The file must not change meanwhile:
///
/// - The driver compares the file's length and time of modification with those at its first range before and after it puts pages
///   into the pipe, and once more after the socket took them. A difference ends the connection.
/// - Pages that the socket has taken already are beyond this check. When a file is cut short the kernel clears the rest of the
///   page, or of the large folio, where the file now ends: the peer may receive zeros for up to as many octets as the two socket
///   buffers hold. When a file is written in place, the peer may receive new octets among the old. If these are the last of
///   a response, the peer is not told; otherwise the connection ends at the next check.
///
/// `splice` knows no way to keep SIGPIPE back when the peer is gone. Rust's programs ignore that signal from their start; a
/// program in another language that has this library in it is to do so too.
#[derive(Debug, Clone)]
pub struct FileRange {
    file: Arc<OpenFile>,
    start: u64,
    length: usize,
}

impl FileRange {
    /// `length` octets of `file` from `start` on. What is not in the system's memory is waited for when it is sent, by the
    /// thread that serves the connection.
    pub fn new(file: Arc<OpenFile>, start: u64, length: usize) -> Self {
        FileRange { file, start, length }
    }

    /// How many octets it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads it, which may have to wait for a disk.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; otherwise what reading failed with.
    pub fn read(&self) -> io::Result<Bytes> {
        let mut octets = vec![0; self.length];
        read_exact_at(&self.file.file, &mut octets, self.start)?;
        Ok(Bytes::from(octets))
    }
}

impl From<FileRange> for Payload {
    fn from(range: FileRange) -> Self {
        External::new(range.file, range.start, range.length).into()
    }
}

/// The file of a payload that is an external range.
pub(crate) fn of_payload(range: &External) -> io::Result<&OpenFile> {
    match range.owner().downcast_ref::<OpenFile>() {
        Some(open) => Ok(open),
        None => Err(io::Error::other("a payload is neither octets nor a file's")),
    }
}

/// Reads a payload that is next to be sent.
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

/// Why a connection ends that sends by reference.
#[cfg(target_os = "linux")]
pub(crate) fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a file was changed while it was being sent by reference; what the peer has received of it may be wrong, so that \
         the connection ends",
    )
}

/// What a body hands over: octets, or a range of a file. A server takes bodies of these as it takes bodies of `Bytes`.
///
/// ```
/// use fullbore::{Chunk, FileRange, OpenFile};
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
pub struct Chunk(Content);

#[derive(Debug)]
enum Content {
    Octets(Bytes),
    /// And what has been read of it for those that look into it.
    File(FileRange, OnceLock<Bytes>),
}

impl Chunk {
    /// How many octets it has.
    pub fn len(&self) -> usize {
        match &self.0 {
            Content::Octets(octets) => octets.len(),
            Content::File(range, _) => range.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Chunk> for Payload {
    fn from(chunk: Chunk) -> Self {
        match chunk.0 {
            Content::Octets(octets) => octets.into(),
            Content::File(range, _) => range.into(),
        }
    }
}

impl From<Bytes> for Chunk {
    fn from(octets: Bytes) -> Self {
        Chunk(Content::Octets(octets))
    }
}

impl From<&'static str> for Chunk {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<FileRange> for Chunk {
    fn from(range: FileRange) -> Self {
        Chunk(Content::File(range, OnceLock::new()))
    }
}

/// So that a chunk may be the data of any body. The driver does not use it; for whoever else does, a range is read at the
/// first look.
impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.len()
    }

    /// # Panics
    /// When a range cannot be read: see [`FileRange::read`] for who wants to know.
    fn chunk(&self) -> &[u8] {
        match &self.0 {
            Content::Octets(octets) => octets,
            Content::File(range, read) => read.get_or_init(|| match range.read() {
                Ok(octets) => octets,
                Err(error) => panic!("a file cannot be read as far as its body says: {error}"),
            }),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Content::Octets(octets) => octets.advance(count),
            Content::File(range, read) => {
                let count = count.min(range.length);
                range.start = range.start.saturating_add(count as u64);
                range.length -= count;
                if let Some(octets) = read.get_mut() {
                    octets.advance(count);
                }
            }
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if let Content::Octets(octets) = &mut self.0 {
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
