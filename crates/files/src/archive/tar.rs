//! The pieces of a tar archive. Called by `archive`.

use std::fs::File;
use std::io::{self, Read as _};
use std::time::SystemTime;

use bytes::Bytes;
use tar::{Builder, EntryType, Header};

use super::walk::{Entry, Walk};
use super::{PIECE_BYTES, Piece};

/// A tar archive is a sequence of blocks of so many bytes, and ends with two of zeros.
const BLOCK: usize = 512;

#[derive(Debug)]
pub(super) struct Tar {
    walk: Walk,
    /// What is being sent, and how much of it is left.
    file: Option<(File, u64)>,
    output: Vec<u8>,
}

impl Tar {
    pub(super) fn new(walk: Walk) -> Tar {
        Tar {
            walk,
            file: None,
            output: Vec::new(),
        }
    }

    /// Makes the next piece. Blocks.
    ///
    /// # Errors
    /// A file has become shorter, or the walk has failed.
    pub(super) fn piece(&mut self) -> io::Result<Piece> {
        while self.output.len() < PIECE_BYTES {
            if let Some((file, left)) = self.file.take() {
                self.read(file, left)?;
            } else if let Some(entry) = self.walk.next()? {
                self.add(entry)?;
            } else {
                self.output.resize(self.output.len() + 2 * BLOCK, 0);
                return Ok((self.take(), true));
            }
        }
        Ok((self.take(), false))
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.output).into()
    }

    fn add(&mut self, entry: Entry) -> io::Result<()> {
        let (kind, size) = match &entry.file {
            Some((_, size)) => (EntryType::Regular, *size),
            None => (EntryType::Directory, 0),
        };
        self.head(&entry.member, kind, size, entry.modified)?;
        self.file = entry.file;
        Ok(())
    }

    /// Adds the header of an entry.
    fn head(
        &mut self,
        member: &str,
        kind: EntryType,
        size: u64,
        modified: Option<SystemTime>,
    ) -> io::Result<()> {
        let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mtime(since.unwrap_or_default().as_secs());
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
        // The builder ends an archive when it is dropped. This one goes on, so what it made is taken away before.
        let mut builder = Builder::new(std::mem::take(&mut self.output));
        let added = builder.append_data(&mut header, member, io::empty());
        self.output = std::mem::take(builder.get_mut());
        added
    }

    /// Adds as much of a file as the piece takes.
    fn read(&mut self, mut file: File, left: u64) -> io::Result<()> {
        let room = PIECE_BYTES - self.output.len();
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(room);
        let begin = self.output.len();
        self.output.resize(begin + take, 0);
        // The header has told its length.
        file.read_exact(&mut self.output[begin..])?;
        match left - take as u64 {
            0 => {
                // A multiple of a block: every header is one, and so was each file before.
                let whole = self.output.len().next_multiple_of(BLOCK);
                self.output.resize(whole, 0);
            }
            left => self.file = Some((file, left)),
        }
        Ok(())
    }
}
