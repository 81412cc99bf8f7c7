//! A file that gets its name when it is complete. Everything here runs on blocking threads.
//!
//! A partial file that is dropped before `finish` is removed, whatever the reason: a failure or a lost task. A file with a
//! key is a part (`parts`), which a later run can find if this run is killed or interrupted, calls [`PartialFile::leave`],
//! or cannot write all of it. A complete file that cannot get its name keeps its temporary one.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fullbore_files::aside;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checksum::{Checksum, Digest};
use crate::exit::{Exit, Failure};
use crate::run::Leftovers;

use super::parts::{PartKey, Parts, SUFFIX, Temporary, beginning};
use super::private::{self, Identity, OwnPath, Permissions};
use super::target::Target;

/// How many bytes of the name its temporary name repeats, so that it fits 255 bytes.
const NAME_IN_TEMPORARY: usize = 100;

/// A target, and the part of it that is written.
pub(crate) struct PartialFile {
    target: Target,
    shared: Shared,
    /// What the body is of, if it has a version.
    key: Option<Box<PartKey>>,
    role: Role,
    temporary: Option<Temporary>,
    /// Closed behind `temporary`: a part that is removed is locked until then.
    open: Option<(File, Option<OwnedSemaphorePermit>)>,
    began: bool,
    /// This machine could not store more of the body. What it has stored is right.
    is_full: bool,
    /// Of what was written.
    digest: Option<Box<Digest>>,
    /// When the file was modified, for others; `None` for now.
    time: Option<SystemTime>,
}

/// What is done with the parts of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Role {
    /// A later run looks for this one.
    pub(crate) is_sought: bool,
    /// Those of other versions are out of date.
    pub(crate) supersedes: bool,
}

/// What a failure says about a part that is left.
pub(crate) const KEPT: &str = "; the received part is kept, and the next run resumes it";

/// What the partial files of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The permits to keep a file open between two writes.
    pub(crate) files: Arc<Semaphore>,
    /// What a later run finds.
    pub(crate) parts: Arc<Parts>,
    /// Whether files that a later run finds outlive this run.
    pub(crate) leftovers: Arc<Leftovers>,
}

impl PartialFile {
    /// Opens nothing yet.
    pub(crate) fn new(target: Target, shared: Shared) -> Self {
        Self {
            target,
            shared,
            key: None,
            role: Role::default(),
            temporary: None,
            open: None,
            began: false,
            is_full: false,
            digest: None,
            time: None,
        }
    }

    /// The file gets this time when it is complete.
    pub(crate) fn set_time(&mut self, time: Option<SystemTime>) {
        self.time = time;
    }

    /// The body must have this checksum.
    pub(crate) fn expect(&mut self, checksum: Checksum) {
        self.digest = Some(Box::new(Digest::new(checksum)));
    }

    /// Whether nobody looks at what is written.
    pub(crate) fn discards(&self) -> bool {
        matches!(self.target, Target::Discard) && self.digest.is_none()
    }

    /// Whether somebody may read what is written before the body ends: on a terminal, or behind a pipe.
    pub(crate) fn is_read_at_once(&self) -> bool {
        matches!(self.target, Target::Stdout { .. } | Target::Device(_))
    }

    /// Whether another program has begun the file.
    pub(crate) fn is_begun_elsewhere(&self) -> bool {
        matches!(self.target, Target::Continued(_))
    }

    /// What the body is of. If a later run looks for it, the file is a part.
    pub(crate) fn set_key(&mut self, key: PartKey, role: Role) {
        self.key = Some(Box::new(key));
        self.role = role;
    }

    /// Takes over the part that an earlier run of this user has left of this version. Returns its length; `None` when there is
    /// none, another run is writing it, or another user may have written it.
    pub(crate) fn find(&mut self, key: PartKey, supersedes: bool) -> Option<u64> {
        let is_sought = true;
        self.set_key(
            key,
            Role {
                is_sought,
                supersedes,
            },
        );
        let permit = Arc::clone(&self.shared.files).try_acquire_owned().ok()?;
        let Target::File { path, .. } = &self.target else {
            return None;
        };
        let (file, temporary) = self.shared.parts.find(path, self.key.as_ref()?)?;
        let length = file.metadata().and_then(|found| {
            if let Some(digest) = &mut self.digest {
                digest.read(&file)?;
            }
            Ok(found.len())
        });
        self.temporary = Some(temporary);
        self.open = Some((file, Some(permit)));
        let Ok(length) = length else {
            self.keep();
            self.open = None;
            return None;
        };
        self.began = length > 0;
        Some(length)
    }

    /// Opens the file that another program has begun, and returns its length; `None` for any other target.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn find_begun(&mut self) -> Result<Option<u64>, Failure> {
        let Target::Continued(path) = &self.target else {
            return Ok(None);
        };
        let path = path.clone();
        let opened = self.open_begun(&path);
        let (file, length) = opened.map_err(|error| Failure::from_io("continue", &path, &error))?;
        self.open = Some((file, None));
        self.began = true;
        Ok(Some(length))
    }

    /// Discards what was written, to start again. Not possible once something was written to standard output or a device.
    pub(crate) fn restart(&mut self) -> bool {
        // The bytes of another program stay.
        if matches!(self.target, Target::Continued(_)) {
            return false;
        }
        self.temporary = None;
        self.open = None;
        self.key = None;
        self.role = Role::default();
        if let Some(digest) = &mut self.digest {
            digest.restart();
        }
        matches!(self.target, Target::File { .. }) || !self.began
    }

    /// Takes back what is behind the first `length` bytes. Returns whether that is possible: not on standard output, on a
    /// device, or in the file of another program.
    ///
    /// # Errors
    /// The file cannot be changed or read.
    pub(crate) fn cut(&mut self, length: u64) -> Result<bool, Failure> {
        if !matches!(self.target, Target::File { .. }) || self.temporary.is_none() {
            return Ok(matches!(self.target, Target::Discard) && self.digest.is_none());
        }
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => (self.open()?, None),
        };
        let cut = file.set_len(length).and_then(|()| match &mut self.digest {
            Some(digest) => digest.read(&file),
            None => file.seek(SeekFrom::End(0)).map(drop),
        });
        cut.map_err(|error| Failure::from_io("write", self.shown(), &error))?;
        self.open = permit.map(|permit| (file, Some(permit)));
        Ok(true)
    }

    /// Leaves the file for a later run to resume. Returns whether a later run can find it.
    pub(crate) fn leave(mut self) -> bool {
        matches!(self.target, Target::Continued(_)) || self.keep()
    }

    /// Keeps a part; any other file is removed.
    fn keep(&mut self) -> bool {
        let part = self.temporary.take().filter(|it| it.claim.is_some());
        part.map(|part| self.settle(part)).is_some()
    }

    /// Keeps a file under its temporary name, which is returned.
    fn settle(&self, temporary: Temporary) -> PathBuf {
        let kept = temporary.path.keep();
        if let (Some(claim), Some(key)) = (temporary.claim, &self.key) {
            claim.keep(key, self.open.as_ref().map(|(file, _)| file));
        }
        kept
    }

    /// A placeholder that stores nothing.
    pub(crate) fn nowhere(&self) -> Self {
        Self::new(Target::Discard, self.shared.clone())
    }

    /// Writes the chunks at the end, and opens the file first if need be.
    pub(crate) fn append(&mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        if matches!(self.target, Target::Discard) {
            self.hash(chunks);
            return Ok(());
        }
        let (file, permit) = self.write(chunks)?;
        if permit.is_some() || self.temporary.is_none() {
            self.open = Some((file, permit));
        }
        Ok(())
    }

    /// Writes the chunks at the end; the file, still open.
    fn write(&mut self, chunks: &[Bytes]) -> Result<(File, Option<OwnedSemaphorePermit>), Failure> {
        self.refuse_binary_on_terminal(chunks)?;
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => {
                let permit = Arc::clone(&self.shared.files).try_acquire_owned().ok();
                // A file that is closed between two writes loses its lock, so a later run must not find it.
                match self.create_part(permit.is_some()) {
                    Some(file) => (file, permit),
                    None => (self.open()?, permit),
                }
            }
        };
        self.began = true;
        if let Err(error) = aside::write_all(&mut file, chunks) {
            let mut failure = Failure::from_io("write", self.shown(), &error);
            let is_part = self.temporary.as_ref().is_some_and(|it| it.claim.is_some());
            if is_part && failure.exit == Exit::DiskFull {
                self.is_full = true;
                failure.message.push_str(KEPT);
            }
            self.open = Some((file, permit));
            return Err(failure);
        }
        self.hash(chunks);
        Ok((file, permit))
    }

    fn hash(&mut self, chunks: &[Bytes]) {
        if let Some(digest) = &mut self.digest {
            chunks.iter().for_each(|chunk| digest.update(chunk));
        }
    }

    fn verify(&self) -> Result<(), Failure> {
        match &self.digest {
            Some(digest) => digest.verify(self.shown()),
            None => Ok(()),
        }
    }

    /// Writes the last chunks, checks the checksum and gives the file its name.
    pub(crate) fn finish(mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        // An empty body creates an empty file, but does not open standard output or a device.
        if chunks.is_empty() && !matches!(self.target, Target::File { .. })
            || matches!(self.target, Target::Discard)
        {
            self.hash(chunks);
            return self.verify();
        }
        // The file stays open and locked until it has its name.
        let (file, permit) = self.write(chunks)?;
        if let Err(failure) = self.verify() {
            // No later run continues wrong bytes.
            self.temporary = None;
            return Err(failure);
        }
        let (Target::File { path, force }, Some(temporary)) = (&self.target, self.temporary.take()) else {
            return Ok(());
        };
        let Temporary { path: written, claim } = temporary;
        if let Some(time) = self.time {
            // A file system that keeps no times has the file all the same.
            let _ = file.set_modified(time);
        }
        match private::publish(&file, written, path, *force) {
            Ok(()) => {
                drop(claim);
                if let Some(key) = self.key.as_ref().filter(|_| self.role.supersedes) {
                    self.shared.parts.remove_older(path, key);
                }
                Ok(())
            }
            Err((failure, None)) => Err(failure),
            Err((mut failure, Some(path))) => {
                // The complete file stays, unless it is empty.
                let is_empty = file.metadata().is_ok_and(|found| found.len() == 0);
                self.open = Some((file, permit));
                let temporary = Temporary { path, claim };
                if let Some(kept) = (!is_empty).then(|| self.settle(temporary)) {
                    let text = format!("; the complete download is kept as {}", kept.display());
                    failure.message.push_str(&text);
                }
                Err(failure)
            }
        }
    }

    /// A new part, if a later run looks for one.
    fn create_part(&mut self, stays_open: bool) -> Option<File> {
        if !stays_open || self.temporary.is_some() || !self.role.is_sought {
            return None;
        }
        let Target::File { path, force } = &self.target else {
            return None;
        };
        let (parts, permissions) = (&self.shared.parts, Permissions::of(path, *force));
        let (file, temporary) = parts.create(path, permissions, self.key.as_ref()?, self.role.supersedes)?;
        self.temporary = Some(temporary);
        Some(file)
    }

    fn open(&mut self) -> Result<File, Failure> {
        let opened = match (&self.target, &self.temporary) {
            (Target::Discard, _) => Err(io::ErrorKind::Unsupported.into()),
            // `find_begun` opens it, and it stays open.
            (Target::Continued(_), _) => Err(io::ErrorKind::Unsupported.into()),
            (Target::Stdout { .. }, _) => stdout(),
            (Target::Device(path), _) => open_device(path),
            (Target::File { .. }, Some(it)) => reopen(&it.path, it.path.identity()),
            (Target::File { path, force }, None) => self.create_beside(&path.clone(), *force),
        };
        opened.map_err(|error| Failure::from_io("create", self.shown(), &error))
    }

    fn open_begun(&mut self, path: &Path) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("another process has replaced it"));
        }
        if let Some(digest) = &mut self.digest {
            digest.read(&file)?;
        }
        Ok((file, found.len()))
    }

    /// A new file in the same folder, so that a rename never copies.
    fn create_beside(&mut self, path: &Path, force: bool) -> io::Result<File> {
        let permissions = Permissions::of(path, force);
        let prefix = format!(".{}.", beginning(path, NAME_IN_TEMPORARY));
        let created = private::create_unnamed(private::folder(path), &prefix, SUFFIX, permissions)?;
        let (file, path) = created.keep().map_err(|error| error.error)?;
        self.temporary = Some(Temporary {
            path: OwnPath::of(&file, path)?,
            claim: None,
        });
        Ok(file)
    }

    /// As in curl, binary data goes to a terminal only on request.
    fn refuse_binary_on_terminal(&self, chunks: &[Bytes]) -> Result<(), Failure> {
        let unasked = matches!(self.target, Target::Stdout { asked: false });
        if unasked
            && !self.began
            && chunks.iter().any(|chunk| chunk.contains(&0))
            && io::stdout().is_terminal()
        {
            return Err(Failure::usage(
                "the body is binary and is not printed on a terminal; save it with -o FILE, or print it with -o -",
            ));
        }
        Ok(())
    }

    fn shown(&self) -> &Path {
        let nowhere = match self.target {
            Target::Discard => "the discarded body",
            _ => "standard output",
        };
        self.target.path().unwrap_or(Path::new(nowhere))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let interrupted = self.shared.leftovers.are_kept();
        if !self.began || !(interrupted || self.is_full) {
            return;
        }
        let kept = self.keep();
        if interrupted && (kept || matches!(self.target, Target::Continued(_))) {
            self.shared.leftovers.count();
        }
    }
}

/// Standard output without the line buffer that the standard library puts around it.
fn stdout() -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::AsHandle;
        Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
    }
}

/// Opens a device. A regular file that has replaced it meanwhile is not overwritten.
fn open_device(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.is_file() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file)
}

/// Reopens the partial file, and no other file.
fn reopen(path: &Path, identity: Identity) -> io::Result<File> {
    let file = private::open(path)?;
    if Identity::of(&file)? != identity {
        return Err(io::Error::other(
            "another process has replaced it while it was being written",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
