//! The file of a long body: held open, or reopened by its path.
//!
//! A body whose peer reads nothing may last for minutes, and a peer that requests many could use up the descriptors of
//! the process. So the number of files held open is limited. Beyond the limit a file is reopened for each chunk, and must
//! not have changed. Called by `file_body`, made by `files`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cap_std::fs::Dir;
use fullbore::body::{FileRange, OpenFile};

use crate::disk::{self, Blocking, FileSystem, file_system_of};
use crate::identity::Identity;
use crate::open::{Found, OpenError, open, open_nonblocking};

/// The limit on files that bodies hold open.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    held: AtomicUsize,
}

/// The path at which a file was found, and its state then.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) path: Arc<str>,
    pub(crate) identity: Identity,
}

/// The file of a body. Clones share it.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Held(Arc<OpenFile>, FileSystem),
    Reopened(Arc<Dir>, Located),
}

/// One of the files held open. Dropping it frees the descriptor.
struct Held(Arc<Descriptors>);

impl Descriptors {
    pub(crate) fn new(most: usize) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            most,
            held: AtomicUsize::new(0),
        })
    }

    /// How many are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Source {
    /// Holds the file open, unless the limit is reached and it can be reopened.
    pub(crate) fn new(
        file: File,
        file_system: FileSystem,
        located: Option<Located>,
        root: &Arc<Dir>,
        descriptors: &Arc<Descriptors>,
    ) -> Source {
        let before = descriptors.held.fetch_add(1, Ordering::Relaxed);
        let held = Held(Arc::clone(descriptors));
        match located {
            Some(located) if before >= descriptors.most => Source::Reopened(Arc::clone(root), located),
            _ => Source::Held(OpenFile::keeping(file, held), file_system),
        }
    }

    /// A range that can be read without blocking; `None` when the system cannot tell, or the file is not held open.
    pub(crate) fn range_in_memory(&self, range: &Range<u64>) -> Option<FileRange> {
        let Source::Held(open, file_system) = self else {
            return None;
        };
        file_system
            .is_in_memory(open.file(), range)
            .then(|| self.range(range))
            .flatten()
    }

    /// A range that the caller has just read ahead; `None` when the file is not held open.
    pub(crate) fn range(&self, range: &Range<u64>) -> Option<FileRange> {
        let Source::Held(open, _) = self else {
            return None;
        };
        let length = usize::try_from(range.end - range.start).ok()?;
        Some(FileRange::new(Arc::clone(open), range.start, length))
    }

    /// Whether [`Self::read_ahead`] makes ranges readable without blocking.
    pub(crate) fn can_read_ahead(&self) -> bool {
        matches!(self, Source::Held(_, file_system) if file_system.has_page_cache())
    }

    /// Reads a range into the page cache. Blocks.
    ///
    /// # Errors
    /// As [`disk::read_ahead`].
    pub(crate) fn read_ahead(&self, range: &Range<u64>) -> io::Result<()> {
        match self {
            Source::Held(open, _) => disk::read_ahead(open.file(), range),
            Source::Reopened(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// As [`FileSystem::read_exact_at`]; `NotFound` when the file had to be reopened and has changed.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, blocking: Blocking) -> io::Result<()> {
        match self {
            Source::Held(open, file_system) => {
                file_system.read_exact_at(open.file(), buffer, offset, blocking)
            }
            Source::Reopened(root, located) => {
                let (file, file_system) = located.open(root, blocking)?;
                file_system.read_exact_at(&file, buffer, offset, blocking)
            }
        }
    }
}

impl Located {
    fn open(&self, root: &Dir, blocking: Blocking) -> io::Result<(File, FileSystem)> {
        let found = match blocking {
            Blocking::Forbidden => open_nonblocking(root, &self.path).ok_or(io::ErrorKind::WouldBlock)?,
            Blocking::Allowed => open(root, &self.path),
        };
        match found {
            Ok(Found::File(file, metadata))
                if Identity::of(&metadata).is_some_and(|now| now.has_same_content(&self.identity)) =>
            {
                let file_system = file_system_of(&file, &metadata);
                Ok((file, file_system))
            }
            Err(OpenError::Exhausted | OpenError::Failed) => Err(io::Error::other(
                "cannot reopen the file: no descriptor or memory is left, or the disk failed",
            )),
            _ => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file was changed, replaced or removed while it was being sent",
            )),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}
