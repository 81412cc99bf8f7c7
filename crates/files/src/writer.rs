//! Gathers the bytes of an upload into batches, and writes these in blocking jobs.
//!
//! An upload takes a slot with its first byte, and a descriptor with its first batch. An upload that has received
//! nothing holds neither. Called by `uploads`; `store` is the file.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use cap_std::fs::Dir;
use http::StatusCode;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::aside::MAX_SLICES;
use crate::budget::Share;
use crate::destination::{Destination, Made};
use crate::jobs::Job;
use crate::store::{Kept, ModifiedSecond, PendingFile, Published};
use crate::turns::Haste;
use crate::upload_limits::UploadLimits;

/// Why an upload cannot be stored.
#[derive(Debug)]
pub(crate) enum Failure {
    /// All slots are taken.
    Busy,
    Io(io::Error),
    /// The existing file is not in the state that the request demands.
    Changed,
    /// The name answers for another path.
    Reserved,
    /// The check of the upload has refused it, with this line.
    Refused(StatusCode, String),
    /// A job panicked or was cancelled.
    Lost,
}

/// Checks an upload before its first bytes are written. Returns its folder, if that exists. Blocks.
pub(crate) type Check = Box<dyn FnOnce() -> Result<Option<Arc<Dir>>, Failure> + Send>;

/// What a request demands of the existing file of this name in this folder. Blocks.
pub(crate) type Demand = Box<dyn FnOnce(&Dir, &str) -> Result<(), Failure> + Send>;

/// Gathers one batch while the one before is written.
pub(crate) struct Writer {
    limits: Arc<UploadLimits>,
    destination: Arc<Destination>,
    state: WriteState,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// When the first bytes of the batch arrived.
    since: Option<Instant>,
    /// When its sender modified the file, if that is known.
    modified: Option<ModifiedSecond>,
    /// Runs in the first job, before it writes.
    check: Option<Check>,
    /// The file that it appends to; `None` for a new one.
    kept: Option<Kept>,
    /// How many bytes are known to be written.
    written: u64,
}

enum WriteState {
    /// No byte has arrived.
    New,
    Ready(Begun),
    Writing(Job<Result<Begun, Failure>>),
    /// Between two states, and for good after a failed write.
    Broken,
}

/// An upload that holds memory, and a descriptor once it has a file. Dropping it removes the file.
struct Begun {
    file: Option<PendingFile>,
    /// The file to append to, before the first batch.
    kept: Option<Kept>,
    /// How many bytes were written.
    written: u64,
    /// Dropped after the file: a descriptor counts until it is closed.
    slot: Share,
}

impl Writer {
    pub(crate) fn new(limits: Arc<UploadLimits>, destination: Arc<Destination>) -> Writer {
        Writer {
            limits,
            destination,
            state: WriteState::New,
            batch: Vec::new(),
            batch_bytes: 0,
            since: None,
            modified: None,
            check: None,
            kept: None,
            written: 0,
        }
    }

    /// An upload that appends to a file, which stays when the upload fails.
    pub(crate) fn resuming(limits: Arc<UploadLimits>, destination: Arc<Destination>, kept: Kept) -> Writer {
        Writer {
            kept: Some(kept),
            ..Writer::new(limits, destination)
        }
    }

    /// How many bytes are known to be written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The first job that writes checks the upload.
    pub(crate) fn set_check(&mut self, check: Check) {
        self.check = Some(check);
    }

    /// The file gets this time when it is whole.
    pub(crate) fn set_modified(&mut self, modified: Option<ModifiedSecond>) {
        self.modified = modified;
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// [`Failure`], also of earlier bytes. The upload has then failed.
    pub(crate) async fn push(&mut self, data: Bytes) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        self.begin()?;
        self.batch_bytes += data.len();
        self.batch.push(data);
        self.since.get_or_insert_with(Instant::now);
        if self.batch_bytes >= self.limits.batch_bytes() || self.batch.len() >= MAX_SLICES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Waits for what arrives next. What was gathered is written meanwhile when it is due.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Failure> {
        let mut next = pin!(next);
        while let Some(at) = self.flush_at() {
            match timeout_at(at, next.as_mut()).await {
                Ok(arrived) => return Ok(arrived),
                Err(_) => self.flush().await?,
            }
        }
        Ok(next.await)
    }

    /// When to call [`Self::flush`] if nothing arrives before; `None` while nothing waits to be written.
    fn flush_at(&self) -> Option<Instant> {
        self.since.map(|since| since + self.limits.flush_after())
    }

    /// Starts to write the batch, after the one before.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) async fn flush(&mut self) -> Result<(), Failure> {
        let mut begun = self.ready().await?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.since = None;
        let (limits, destination) = (Arc::clone(&self.limits), Arc::clone(&self.destination));
        let check = self.check.take();
        self.state = WriteState::Writing(self.begin_job(move || {
            let folder = check.map_or(Ok(None), |check| check())?;
            let written = begun.write(&limits, &destination, folder.as_ref(), &batch);
            written.map_err(Failure::Io)?;
            Ok(begun)
        }));
        Ok(())
    }

    /// Writes the last batch and gives the file its name; with `replace`, in place of an existing file. A complete upload is
    /// stored even if its peer disconnects now.
    ///
    /// # Errors
    /// As [`Self::push`], [`PendingFile::publish`] and `demand`.
    pub(crate) async fn publish(
        mut self,
        replace: bool,
        demand: Option<Demand>,
    ) -> Result<Published, Failure> {
        self.begin()?;
        // Most uploads are one batch, and take no task.
        if matches!(self.state, WriteState::Ready(_)) {
            return self.finish(replace, demand).await;
        }
        let task = tokio::spawn(async move { self.finish(replace, demand).await });
        task.await.map_err(|_| Failure::Lost)?
    }

    /// What was written before is complete, or this is in a task of its own.
    async fn finish(mut self, replace: bool, demand: Option<Demand>) -> Result<Published, Failure> {
        let mut begun = self.ready().await?;
        let (limits, destination) = (Arc::clone(&self.limits), Arc::clone(&self.destination));
        let batch = std::mem::take(&mut self.batch);
        let (check, modified) = (self.check.take(), self.modified);
        let work = move || {
            let folder = check.map_or(Ok(None), |check| check())?;
            let written = begun.write(&limits, &destination, folder.as_ref(), &batch);
            written.map_err(Failure::Io)?;
            // A file system without such times has the upload's.
            let is_dated = modified.zip(begun.file.as_mut());
            let is_dated = is_dated.is_some_and(|(second, file)| file.set_modified(second));
            let published = begun.publish(&limits, &destination, folder, replace, demand)?;
            Ok(Published {
                is_dated,
                ..published
            })
        };
        let (runtime, peer) = (Handle::current(), self.destination.peer);
        let job = self.limits.jobs().begin_in(Haste::Soon, &runtime, peer, work);
        job.keep().await.map_err(|_| Failure::Lost)?
    }

    /// Removes the file, before the peer receives the response.
    pub(crate) async fn abandon(mut self) {
        if !matches!(self.state, WriteState::New) {
            drop(self.ready().await);
        }
    }

    /// Writes what was gathered to the file that is kept.
    ///
    /// # Errors
    /// As [`Self::push`]. What was written before stays.
    pub(crate) async fn keep(mut self) -> Result<u64, Failure> {
        if !matches!(self.state, WriteState::New) {
            self.flush().await?;
            drop(self.ready().await?);
        }
        Ok(self.written)
    }

    fn begin_job<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        self.limits
            .jobs()
            .begin(&Handle::current(), self.destination.peer, work)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        if matches!(self.state, WriteState::New) {
            let slot = self.limits.admit(self.destination.peer).ok_or(Failure::Busy)?;
            self.state = WriteState::Ready(Begun {
                file: None,
                kept: self.kept.take(),
                written: 0,
                slot,
            });
        }
        Ok(())
    }

    async fn ready(&mut self) -> Result<Begun, Failure> {
        let begun = match std::mem::replace(&mut self.state, WriteState::Broken) {
            WriteState::Ready(begun) => begun,
            WriteState::Writing(job) => job.await.map_err(|_| Failure::Lost)??,
            WriteState::New | WriteState::Broken => return Err(Failure::Lost),
        };
        self.written = begun.written;
        Ok(begun)
    }
}

impl Begun {
    /// Appends a batch; creates the file first if needed, in this folder of the upload if the caller has just found it, and room on
    /// its disk. Blocks.
    fn write(
        &mut self,
        limits: &UploadLimits,
        destination: &Destination,
        folder: Option<&Arc<Dir>>,
        batch: &[Bytes],
    ) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(match &self.kept {
                Some(kept) => PendingFile::resume(kept)?,
                None => {
                    let nearest = match folder {
                        Some(folder) => Arc::clone(folder),
                        None => destination.nearest()?.directory,
                    };
                    PendingFile::create(&nearest, &destination.name)?
                }
            }),
        };
        let bytes: usize = batch.iter().map(Bytes::len).sum();
        if folder.is_none() {
            limits.check_more(file.file(), bytes as u64)?;
        }
        file.write(batch)?;
        self.written += bytes as u64;
        Ok(())
    }

    fn publish(
        self,
        limits: &UploadLimits,
        destination: &Destination,
        folder: Option<Arc<Dir>>,
        replace: bool,
        demand: Option<Demand>,
    ) -> Result<Published, Failure> {
        let Begun { file, slot, .. } = self;
        let Some(file) = file else {
            return Err(Failure::Io(io::ErrorKind::NotFound.into()));
        };
        let made = match folder {
            Some(folder) => Made::found(folder),
            None => destination.make().map_err(Failure::Io)?,
        };
        let (directory, name) = (&*made.directory, &*destination.name);
        let reserved = &destination.reserved;
        // Of two uploads that depend on what exists, the second one meets the file of the first.
        let depends = demand.is_some() || reserved.depends_on_folder();
        let turn = depends.then(|| limits.turn());
        let published = match demand {
            Some(demand) => demand(directory, name),
            None => Ok(()),
        };
        let published = match published {
            Ok(()) if reserved.has_in(directory, name) => Err(Failure::Reserved),
            Ok(()) => file.publish(directory, name, replace).map_err(Failure::Io),
            Err(failure) => Err(failure),
        };
        drop(turn);
        if published.is_err() {
            made.undo();
        }
        drop(slot);
        published
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cap_std::ambient_authority;
    use cap_std::fs::Dir;

    use super::*;
    use crate::destination::UploadFolder;
    use crate::jobs::Jobs;
    use crate::settings::{Limits, Settings};

    fn destination(root: &tempfile::TempDir) -> Arc<Destination> {
        let folder = UploadFolder {
            directory: Arc::new(Dir::open_ambient_dir(root.path(), ambient_authority()).unwrap()),
            served_at: None,
            reserved: Arc::default(),
        };
        Arc::new(Destination::new(&folder, &[], "a".to_owned(), 0, None).unwrap())
    }

    #[tokio::test]
    async fn a_batch_is_written_when_it_is_long_enough_or_has_1024_pieces() {
        for (batch_bytes, octets, pieces) in [(10, 1, 10), (10, 5, 2), (1 << 20, 1, 1024)] {
            let root = tempfile::tempdir().unwrap();
            let settings = Settings {
                limits: Limits {
                    batch_bytes,
                    ..Limits::DEFAULT
                },
                min_free_bytes: Some(0),
                ..Settings::default()
            };
            let mut writer = Writer::new(UploadLimits::new(&settings, Jobs::new(1)), destination(&root));
            for round in 0..2 {
                for piece in 1..=pieces {
                    writer.push(Bytes::from(vec![7; octets])).await.unwrap();
                    let waits = writer.flush_at().is_some();
                    assert_eq!(waits, piece < pieces, "{piece} of {pieces}, round {round}");
                }
            }
            writer.publish(false, None).await.unwrap();
            let written = std::fs::read(root.path().join("a")).unwrap();
            assert_eq!(written, vec![7; 2 * octets * pieces]);
        }
    }

    #[tokio::test]
    async fn an_upload_holds_a_slot_from_its_first_octet_on_and_leaves_nothing_when_it_is_abandoned() {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings {
            max_uploads: 1,
            min_free_bytes: Some(0),
            ..Settings::default()
        };
        let limits = UploadLimits::new(&settings, Jobs::new(1));
        Writer::new(Arc::clone(&limits), destination(&root))
            .abandon()
            .await;
        let mut writer = Writer::new(Arc::clone(&limits), destination(&root));
        writer.push(Bytes::new()).await.unwrap();
        assert_eq!(limits.in_progress(), 0);
        writer.push(Bytes::from("some")).await.unwrap();
        assert_eq!(limits.in_progress(), 1);
        let mut other = Writer::new(Arc::clone(&limits), destination(&root));
        let refused = other.push(Bytes::from("more")).await;
        assert!(matches!(refused, Err(Failure::Busy)), "{refused:?}");
        writer.flush().await.unwrap();
        writer.push(Bytes::from("more")).await.unwrap();
        writer.abandon().await;
        assert_eq!(limits.in_progress(), 0);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        other.push(Bytes::from("more")).await.unwrap();
        other.publish(false, None).await.unwrap();
        assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"more");
        assert_eq!(limits.in_progress(), 0);
    }

    #[tokio::test]
    async fn what_was_gathered_is_due_so_long_after_its_first_octets() {
        let root = tempfile::tempdir().unwrap();
        let after = Duration::from_secs(7);
        let settings = Settings {
            limits: Limits {
                flush_after: after,
                ..Limits::DEFAULT
            },
            min_free_bytes: Some(0),
            ..Settings::default()
        };
        let mut writer = Writer::new(UploadLimits::new(&settings, Jobs::new(1)), destination(&root));
        assert_eq!(writer.flush_at(), None);
        writer.push(Bytes::new()).await.unwrap();
        assert_eq!(writer.flush_at(), None);
        let earliest = Instant::now();
        writer.push(Bytes::from("some")).await.unwrap();
        let latest = Instant::now();
        let due = writer.flush_at().unwrap();
        assert!((earliest + after..=latest + after).contains(&due));
        // More octets put nothing off, and nothing is due once they are written.
        writer.push(Bytes::from("more")).await.unwrap();
        assert_eq!(writer.flush_at(), Some(due));
        writer.flush().await.unwrap();
        assert_eq!(writer.flush_at(), None);
        writer.publish(false, None).await.unwrap();
        assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"somemore");
    }
}
