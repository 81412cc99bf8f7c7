//! The pieces of a zip archive. Called by `archive`.
//!
//! Files are stored as they are, with their lengths and checksums behind them: a file is read once. Such an archive is read by
//! its directory, which is at its end and is held until then: see [`HELD_BYTES`].
//!
//! The writer of `rawzip` is borrowed from the first byte of a file to its last. A future keeps such a borrow between two pieces. It
//! never waits for anything but the next piece.

use std::fmt;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, Read as _, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use flate2::Crc;
use rawzip::extra_fields::ExtraFieldId;
use rawzip::path::EntryPath;
use rawzip::time::UtcDateTime;
use rawzip::{DataDescriptorOutput, Header, ZipArchiveWriter};

use super::walk::{Entry, Walk};
use super::{PIECE_BYTES, Piece};
use crate::budget::Share;

/// The memory of an entry of the directory beyond its name, at most: 120 bytes in a vector that doubles its capacity, and its extra
/// fields.
const HELD_BYTES: usize = 2 * 120 + 48;

/// What an entry takes beyond its name when the directory is written, which is done at once.
const WRITTEN_BYTES: usize = 92;

/// How often the name of an entry is held: in a vector that doubles its capacity, and when the directory is written.
const NAME_COPIES: usize = 3;

/// The Unicode path of Info-ZIP: a version, the checksum of the name, and the name in UTF-8.
const UNICODE_PATH: ExtraFieldId = ExtraFieldId::new(0x7075);

const FILE_MODE: u32 = 0o100_644;
const FOLDER_MODE: u32 = 0o040_755;

pub(super) struct Zip {
    output: Output,
    writing: Pin<Box<dyn Future<Output = io::Result<()>> + Send>>,
}

impl fmt::Debug for Zip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zip").finish_non_exhaustive()
    }
}

impl Zip {
    /// The archive of a walk. `directory` is the memory of its directory.
    pub(super) fn new(walk: Walk, directory: Share) -> Zip {
        let output = Output::default();
        Zip {
            writing: Box::pin(write(walk, directory, output.clone())),
            output,
        }
    }

    /// Makes the next piece. Blocks.
    ///
    /// # Errors
    /// A file has become shorter, the memory of directories is used up, or the walk has failed.
    pub(super) fn piece(&mut self) -> io::Result<Piece> {
        let polled = self
            .writing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let has_ended = match polled {
            Poll::Ready(done) => done.map(|()| true)?,
            Poll::Pending => false,
        };
        Ok((std::mem::take(&mut *self.output.bytes()).into(), has_ended))
    }
}

/// What was written and is not sent. Clones share it.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes the piece takes.
    fn room(&self) -> usize {
        PIECE_BYTES.saturating_sub(self.bytes().len())
    }

    /// Waits until the piece was taken, if it is full.
    async fn taken(&self) {
        poll_fn(|_| match self.room() {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn write(mut walk: Walk, mut directory: Share, output: Output) -> io::Result<()> {
    let mut zip = ZipArchiveWriter::new(output.clone());
    let (mut held, mut central) = (0_usize, 0_usize);
    while let Some(entry) = walk.next()? {
        let name = match is_kept_by_the_writer(&entry.member) {
            true => entry.member.len(),
            false => 2 * entry.member.len(),
        };
        held = held.saturating_add(HELD_BYTES + WRITTEN_BYTES + NAME_COPIES * name);
        central = central.saturating_add(WRITTEN_BYTES + name);
        if !directory.reach(held) {
            return Err(io::Error::other(
                "the memory of the directories of zip archives is used up: a tar archive takes none",
            ));
        }
        add(&mut zip, entry, &output).await?;
        output.taken().await;
    }
    // Otherwise its vector would double its capacity meanwhile.
    output.bytes().reserve_exact(central);
    zip.finish().map_err(io::Error::other)?;
    Ok(())
}

/// Adds a file or a folder.
async fn add(zip: &mut ZipArchiveWriter<Output>, entry: Entry, output: &Output) -> io::Result<()> {
    let failed = io::Error::other;
    let (path, unicode) = path(&entry.member);
    let time = UtcDateTime::from_unix(seconds(entry.modified));
    let Some((mut file, length)) = entry.file else {
        let mut folder = zip
            .new_dir(path)
            .last_modified(time)
            .unix_permissions(FOLDER_MODE);
        if let Some(unicode) = unicode {
            folder = folder
                .extra_field(UNICODE_PATH, &unicode, Header::default())
                .map_err(failed)?;
        }
        folder.create().map_err(failed)?;
        return Ok(());
    };
    let mut header = zip.new_file(path).last_modified(time).unix_permissions(FILE_MODE);
    if let Some(unicode) = unicode {
        header = header
            .extra_field(UNICODE_PATH, &unicode, Header::default())
            .map_err(failed)?;
    }
    let (writer, _) = header.start().map_err(failed)?;
    let (mut writer, mut crc, mut left) = (writer, Crc::new(), length);
    let mut piece = Vec::new();
    while left > 0 {
        output.taken().await;
        read(&mut file, &mut piece, left.min(output.room() as u64))?;
        crc.update(&piece);
        writer.write_all(&piece)?;
        left -= piece.len() as u64;
    }
    let written = DataDescriptorOutput::new(crc.sum(), length);
    writer.finish(written).map_err(failed)?;
    Ok(())
}

/// Reads so many bytes.
fn read(file: &mut File, piece: &mut Vec<u8>, count: u64) -> io::Result<()> {
    piece.resize(usize::try_from(count).unwrap_or(PIECE_BYTES), 0);
    file.read_exact(piece)
}

fn seconds(modified: Option<SystemTime>) -> i64 {
    let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Whether the writer keeps a name: it takes everything up to a colon for the letter of a drive.
fn is_kept_by_the_writer(member: &str) -> bool {
    !member.contains(':')
}

/// The name of an entry, and the field that says that it is UTF-8 where the writer would not say so.
fn path(member: &str) -> (EntryPath<'_>, Option<Vec<u8>>) {
    if is_kept_by_the_writer(member) {
        return (EntryPath::conformant(member), None);
    }
    let unicode = (!member.is_ascii()).then(|| {
        let mut crc = Crc::new();
        crc.update(member.as_bytes());
        [&[1], &crc.sum().to_le_bytes()[..], member.as_bytes()].concat()
    });
    (EntryPath::verbatim(member.as_bytes()), unicode)
}
