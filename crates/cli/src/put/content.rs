//! Reads the files of a batch, in one blocking job. Small ones are read whole and closed, so that a file that waits holds no
//! descriptor.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::exit::{Exit, Failure};
use crate::transfer::seconds;

use super::existing::Likeness;
use super::tree::{Batch, LeftOut, place_of};

/// A file up to this length is read whole before it is sent: one chunk of a body.
pub(super) const SMALL: u64 = 256 * 1024;
/// What a file counts at least: its names, its task and its request.
const LEAST_COUNTED: usize = 4 * 1024;
/// How often a file is read that changes meanwhile.
const READINGS: usize = 3;

/// A file of the tree.
pub(super) struct Named {
    pub(super) path: PathBuf,
    /// Its place on the server, encoded.
    pub(super) place: String,
    /// The server has one of the same size and another time.
    pub(super) is_alike: bool,
}

/// What becomes of a file.
pub(super) enum Ready {
    Small(Named, Content),
    /// Its body is read while it is sent.
    Large(Named),
    /// The server has it.
    Same,
    /// The place that the sentence names, and the sentence.
    Failed(String, Failure),
}

/// A file that was read whole.
pub(super) struct Content {
    pub(super) bytes: Bytes,
    pub(super) modified: Option<i64>,
    /// Its share of the memory.
    pub(super) share: Option<OwnedSemaphorePermit>,
}

/// What a job of reading needs.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) ready: mpsc::UnboundedSender<Ready>,
    /// The bytes of all contents that wait or are being sent: it bounds what `ready` holds.
    pub(super) memory: Arc<Semaphore>,
    pub(super) left_out: Arc<LeftOut>,
    /// Whether a later run depends on times.
    pub(super) compares: bool,
}

impl Reader {
    /// Reads a batch, of whose files the server has these. Blocks.
    pub(super) fn read(&self, batch: Batch, known: &[Option<Likeness>]) {
        let known = known.iter().copied().chain(std::iter::repeat(None));
        for (name, known) in batch.names.iter().zip(known) {
            let file = Named {
                path: batch.folder.path.join(name),
                place: place_of(&batch.folder, name),
                is_alike: false,
            };
            let Some(ready) = self.one(file, known) else {
                self.left_out
                    .special
                    .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                continue;
            };
            if self.ready.send(ready).is_err() {
                return;
            }
        }
        for failure in batch.failures {
            let place = batch.folder.path.display().to_string();
            let _ = self.ready.send(Ready::Failed(place, failure));
        }
    }

    /// `None` for what is no file any more.
    fn one(&self, mut file: Named, known: Option<Likeness>) -> Option<Ready> {
        let mut is_alike = |bytes: u64| file.is_alike = known.is_some_and(|known| known.bytes == bytes);
        match self.content(&file.path, known) {
            Ok(Found::Content(content)) => {
                is_alike(u64::try_from(content.bytes.len()).unwrap_or(u64::MAX));
                Some(Ready::Small(file, content))
            }
            Ok(Found::Large(bytes)) => {
                is_alike(bytes);
                Some(Ready::Large(file))
            }
            Ok(Found::Same) => Some(Ready::Same),
            Ok(Found::Special) => None,
            Ok(Found::Changing) => {
                let failure = changed(&file.path);
                Some(Ready::Failed(file.path.display().to_string(), failure))
            }
            Err(error) => {
                let failure = Failure::from_io("read", &file.path, &error);
                Some(Ready::Failed(file.path.display().to_string(), failure))
            }
        }
    }

    fn content(&self, path: &Path, known: Option<Likeness>) -> io::Result<Found> {
        if let Some(known) = known {
            let found = std::fs::metadata(path)?;
            if found.is_file() && Likeness::of(&found) == Some(known) && !is_of_this_second(&found) {
                return Ok(Found::Same);
            }
        }
        let mut share = None;
        for _ in 0..READINGS {
            let (mut file, mut found) = open(path)?;
            if !found.is_file() {
                return Ok(Found::Special);
            }
            if self.compares && is_of_this_second(&found) {
                wait_for_the_next_second();
                found = file.metadata()?;
            }
            if found.len() > SMALL {
                return Ok(Found::Large(found.len()));
            }
            let length = usize::try_from(found.len()).unwrap_or(usize::MAX);
            share = match share.take() {
                Some(share) => Some(share),
                None => self.share(length),
            };
            let mut bytes = Vec::with_capacity(length);
            file.by_ref().take(found.len()).read_to_end(&mut bytes)?;
            if bytes.len() == length && is_unchanged(&found, &file.metadata()?) {
                return Ok(Found::Content(Content {
                    bytes: Bytes::from(bytes),
                    modified: seconds::of_file(&found),
                    share,
                }));
            }
        }
        Ok(Found::Changing)
    }

    /// Waits for the memory. `None` when the run ends.
    fn share(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes.max(LEAST_COUNTED)).unwrap_or(u32::MAX);
        let acquired = Arc::clone(&self.memory).acquire_many_owned(bytes);
        Handle::current().block_on(acquired).ok()
    }
}

enum Found {
    Content(Content),
    /// So many bytes.
    Large(u64),
    Same,
    Special,
    Changing,
}

/// Opens a file. What has become a FIFO does not make this wait.
pub(super) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

pub(super) fn is_unchanged(before: &Metadata, after: &Metadata) -> bool {
    before.len() == after.len() && before.modified().ok() == after.modified().ok()
}

pub(super) fn changed(path: &Path) -> Failure {
    Failure::new(
        Exit::LocalIo,
        format!(
            "{} changed while it was read; run the command again when no process writes to it",
            path.display()
        ),
    )
}

/// Whether a later change may leave the second of the modification as it is.
pub(super) fn is_of_this_second(found: &Metadata) -> bool {
    let now = seconds::of_time(SystemTime::now());
    let modified = seconds::of_file(found);
    modified.is_some() && modified == now
}

/// Blocks for less than a second.
pub(super) fn wait_for_the_next_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rest = Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()));
    // Coarse clocks of file systems are some milliseconds late.
    std::thread::sleep(rest + Duration::from_millis(20));
}
