//! Where the octets of a long body come from: a file that is held open, or its name.
//!
//! A body whose peer takes nothing may last for minutes, and whoever asks for many would use up the descriptors of the
//! process, those for new connections among them. So only so many files are held; what is beyond is opened anew for each
//! chunk, and is held against the state in which it was found. Called by `file_body`, made by `files`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cap_std::fs::Dir;
use fullbore::{FileRange, OpenFile};

use crate::disk::{Patience, Volume, volume_of, warm};
use crate::identity::Identity;
use crate::open::{Found, OpenError, open, open_at_once};

/// How many files are held open by bodies, of so many that may be.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: usize,
    held: AtomicUsize,
}

/// Where a file was found, and in which state.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: Arc<str>,
    pub(crate) identity: Identity,
}

/// What a body reads from. Clones share it.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Held(Arc<OpenFile>, Volume),
    Named(Arc<Dir>, Place),
}

/// One of those that are held. Dropping it gives the descriptor back.
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
    /// Holds the file, unless enough are held and it can be found again.
    pub(crate) fn new(
        file: File,
        volume: Volume,
        place: Option<Place>,
        root: &Arc<Dir>,
        descriptors: &Arc<Descriptors>,
    ) -> Source {
        let before = descriptors.held.fetch_add(1, Ordering::Relaxed);
        let held = Held(Arc::clone(descriptors));
        match place {
            Some(place) if before >= descriptors.most => Source::Named(Arc::clone(root), place),
            _ => Source::Held(OpenFile::keeping(file, held), volume),
        }
    }

    /// A range that can be read without waiting for a disk; `None` when it would have to wait, as far as the system tells, or
    /// the file is not held.
    pub(crate) fn range_in_memory(&self, range: &Range<u64>) -> Option<FileRange> {
        let Source::Held(open, volume) = self else {
            return None;
        };
        volume
            .is_in_memory(open.file(), range)
            .then(|| self.range(range))
            .flatten()
    }

    /// A range of which the caller knows that it was read just now; `None` when the file is not held.
    pub(crate) fn range(&self, range: &Range<u64>) -> Option<FileRange> {
        let Source::Held(open, _) = self else {
            return None;
        };
        let length = usize::try_from(range.end - range.start).ok()?;
        Some(FileRange::new(Arc::clone(open), range.start, length))
    }

    /// Whether [`Self::warm`] makes ranges ready.
    pub(crate) fn can_be_warmed(&self) -> bool {
        matches!(self, Source::Held(_, volume) if volume.keeps_what_was_read())
    }

    /// Waits until a range has been read into the system's memory. Blocks.
    ///
    /// # Errors
    /// As [`warm`].
    pub(crate) fn warm(&self, range: &Range<u64>) -> io::Result<()> {
        match self {
            Source::Held(open, _) => warm(open.file(), range),
            Source::Named(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// As [`Volume::read_exact_at`]; `NotFound` when the file is not what it was, and had to be opened anew.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, patience: Patience) -> io::Result<()> {
        match self {
            Source::Held(open, volume) => volume.read_exact_at(open.file(), buffer, offset, patience),
            Source::Named(root, place) => {
                let (file, volume) = place.open(root, patience)?;
                volume.read_exact_at(&file, buffer, offset, patience)
            }
        }
    }
}

impl Place {
    fn open(&self, root: &Dir, patience: Patience) -> io::Result<(File, Volume)> {
        let found = match patience {
            Patience::AtOnce => open_at_once(root, &self.path).ok_or(io::ErrorKind::WouldBlock)?,
            Patience::Wait => open(root, &self.path),
        };
        match found {
            Ok(Found::File(file, metadata))
                if Identity::of(&metadata).is_some_and(|now| now.has_octets_of(&self.identity)) =>
            {
                let volume = volume_of(&file, &metadata);
                Ok((file, volume))
            }
            Err(OpenError::Exhausted | OpenError::Failed) => Err(io::Error::other(
                "the file cannot be opened again: the process has no descriptor or memory left, or the disk failed",
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
