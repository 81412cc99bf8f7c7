//! The blocking half of a download: a file that has its name only once it is complete.
//!
//! Runs on blocking threads alone; `sink` hands the draft back and forth. A draft that is dropped before `finish`
//! removes its file, whatever the reason: a failure, an interrupt, a lost task. One that was given a mark has a temporary
//! name that a later run finds again, if this one is killed or says [`Draft::leave`]; it is locked while it is written.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tempfile::{NamedTempFile, TempPath};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exit::Failure;

use super::target::{self, Target};

/// Slices in one gathered write; Linux takes no more than 1,024.
const MOST_SLICES: usize = 1_024;
/// How much of the name goes into the temporary one, which has to fit into 255 bytes as well.
const NAME_IN_TEMPORARY: usize = 100;

/// A target, and as much of it as is written.
pub(super) struct Draft {
    target: Target,
    files: Arc<Semaphore>,
    /// What tells this version of this body from all others.
    mark: Option<u64>,
    /// The temporary name follows from the mark.
    findable: bool,
    open: Option<(File, Option<OwnedSemaphorePermit>)>,
    temporary: Option<TempPath>,
    began: bool,
}

impl Draft {
    /// Touches nothing yet. `files` are the permits to keep a file open between two writes.
    pub(super) fn new(target: Target, files: Arc<Semaphore>) -> Self {
        Self {
            target,
            files,
            mark: None,
            findable: false,
            open: None,
            temporary: None,
            began: false,
        }
    }

    /// Whether nothing is written at all.
    pub(super) fn discards(&self) -> bool {
        matches!(self.target, Target::Discard)
    }

    /// Gives the file, when it is made, a temporary name by which a later run finds what this one has left of the same
    /// version of the same body.
    pub(super) fn mark(&mut self, mark: u64) {
        self.mark = Some(mark);
    }

    /// Takes over what an earlier run has left of a body with this mark; how many bytes that is. None when there is
    /// nothing, or another run is writing it.
    pub(super) fn find(&mut self, mark: u64) -> Option<u64> {
        self.mark = Some(mark);
        let Target::File { path, .. } = &self.target else {
            return None;
        };
        let permit = Arc::clone(&self.files).try_acquire_owned().ok()?;
        let found = marked_name(path, mark);
        let file = OpenOptions::new().append(true).open(&found).ok()?;
        if !lock(&file, &found) {
            return None;
        }
        let bytes = file.metadata().ok()?.len();
        self.temporary = Some(TempPath::try_from_path(found).ok()?);
        self.findable = true;
        self.open = Some((file, Some(permit)));
        self.began = bytes > 0;
        Some(bytes)
    }

    /// Begins anew: what was written is another version of the body. Not possible on standard output or a device once
    /// something was written there.
    pub(super) fn restart(&mut self) -> bool {
        self.open = None;
        self.temporary = None;
        self.findable = false;
        self.mark = None;
        matches!(self.target, Target::File { .. }) || !self.began
    }

    /// Leaves what was written for a later run to go on from; whether there is anything to find.
    pub(super) fn leave(mut self) -> bool {
        if !self.findable {
            return false;
        }
        self.temporary
            .take()
            .is_some_and(|temporary| temporary.keep().is_ok())
    }

    /// A draft that keeps nothing, where a draft has to be.
    pub(super) fn nowhere() -> Self {
        Self::new(Target::Discard, Arc::new(Semaphore::new(0)))
    }

    /// Writes the chunks at the end, and opens the file first if need be.
    pub(super) fn append(&mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        self.refuse_binary_on_terminal(chunks)?;
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => {
                let permit = Arc::clone(&self.files).try_acquire_owned().ok();
                // One that is closed between two writes loses its lock, and is not to be found.
                match self.create_marked(permit.is_some()) {
                    Some(file) => (file, permit),
                    None => (self.open()?, permit),
                }
            }
        };
        self.began = true;
        write_all(&mut file, chunks).map_err(|error| Failure::from_io("write", self.shown(), &error))?;
        if permit.is_some() || self.temporary.is_none() {
            self.open = Some((file, permit));
        }
        Ok(())
    }

    /// Writes the last chunks and gives the file its name.
    pub(super) fn finish(mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        // An empty body makes an empty file, but need not open standard output or a device.
        if !chunks.is_empty() || matches!(self.target, Target::File { .. }) {
            self.append(chunks)?;
        }
        // Locked until it has its name, so that nobody takes it over in between.
        let open = self.open.take().filter(|_| self.findable);
        let kept = match (&self.target, self.temporary.take()) {
            (Target::File { path, force }, Some(temporary)) => keep(temporary, path, *force),
            _ => Ok(()),
        };
        drop(open);
        kept
    }

    /// A new file under the name that follows from the mark, if there is one and nobody has that name.
    fn create_marked(&mut self, stays_open: bool) -> Option<File> {
        let mark = self.mark.filter(|_| stays_open && self.temporary.is_none())?;
        let Target::File { path, .. } = &self.target else {
            return None;
        };
        let name = marked_name(path, mark);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&name)
            .ok()?;
        if !lock(&file, &name) {
            return None;
        }
        self.temporary = Some(TempPath::try_from_path(name).ok()?);
        self.findable = true;
        Some(file)
    }

    fn open(&mut self) -> Result<File, Failure> {
        let opened = match (&self.target, &self.temporary) {
            (Target::Discard, _) => Err(io::ErrorKind::Unsupported.into()),
            (Target::Stdout { .. }, _) => stdout(),
            (Target::Device(path), _) => OpenOptions::new().write(true).open(path),
            (Target::File { .. }, Some(temporary)) => OpenOptions::new().append(true).open(temporary),
            (Target::File { path, .. }, None) => create_beside(path).map(|created| {
                let (file, temporary) = created.into_parts();
                self.temporary = Some(temporary);
                file
            }),
        };
        opened.map_err(|error| Failure::from_io("create", self.shown(), &error))
    }

    /// As curl does: binary data would garble a terminal, so it has to be asked for.
    fn refuse_binary_on_terminal(&self, chunks: &[Bytes]) -> Result<(), Failure> {
        let unasked = matches!(self.target, Target::Stdout { asked: false });
        if unasked
            && !self.began
            && chunks.iter().any(|chunk| chunk.contains(&0))
            && io::stdout().is_terminal()
        {
            return Err(Failure::usage(
                "the body is binary and would garble the terminal; write it with -o FILE, or show it all the same with -o -",
            ));
        }
        Ok(())
    }

    fn shown(&self) -> &Path {
        self.target.path().unwrap_or(Path::new("standard output"))
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

/// A new file in the same folder, so that renaming it never copies, with the permissions any new file gets.
fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let prefix = prefix(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The umask takes away what it does from every new file; tempfile alone would leave 0600.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder(path))
}

/// The name of the part of a body that a later run finds.
fn marked_name(path: &Path, mark: u64) -> PathBuf {
    folder(path).join(format!("{}{mark:016x}.part", prefix(path)))
}

/// Locks an open file, unless another process has; false too when the name is another file's by now.
#[cfg(unix)]
fn lock(file: &File, name: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    if rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    match (file.metadata(), std::fs::symlink_metadata(name)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn lock(_: &File, _: &Path) -> bool {
    false
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// What all temporary names of a file begin with.
fn prefix(path: &Path) -> String {
    let name: String = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut end = name.len().min(NAME_IN_TEMPORARY);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}.", name.get(..end).unwrap_or_default())
}

/// Renames the complete file. Without `force` the kernel refuses if the name was taken meanwhile.
fn keep(temporary: TempPath, path: &Path, force: bool) -> Result<(), Failure> {
    let kept = if force {
        temporary.persist(path)
    } else {
        temporary.persist_noclobber(path)
    };
    kept.map_err(|refused| match refused.error.kind() {
        io::ErrorKind::AlreadyExists => target::exists(path),
        _ => Failure::from_io("rename the complete file to", path, &refused.error),
    })
}

/// All chunks, in as few gathered writes as the system takes.
fn write_all(file: &mut File, chunks: &[Bytes]) -> io::Result<()> {
    for group in chunks.chunks(MOST_SLICES) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    fn draft(path: &Path, force: bool, files: usize) -> Draft {
        let target = Target::File {
            path: path.to_owned(),
            force,
        };
        Draft::new(target, Arc::new(Semaphore::new(files)))
    }

    fn names(folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    #[test]
    fn a_file_has_its_name_only_once_it_is_complete() -> Result {
        for files in [0, 1] {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("a.bin");
            let mut draft = draft(&path, false, files);
            draft.append(&[Bytes::from_static(b"one "), Bytes::from_static(b"two ")])?;
            let while_written = names(folder.path())?;
            assert_eq!(while_written.len(), 1);
            assert!(while_written[0].starts_with(".a.bin.") && while_written[0].ends_with(".part"));
            assert_eq!(draft.open.is_some(), files == 1);
            draft.append(&[Bytes::from_static(b"three ")])?;
            draft.finish(&[Bytes::from_static(b"four")])?;
            assert_eq!(fs::read(&path)?, b"one two three four");
            assert_eq!(names(folder.path())?, ["a.bin"]);
        }
        Ok(())
    }

    #[test]
    fn a_dropped_draft_leaves_nothing() -> Result {
        let folder = tempfile::tempdir()?;
        let mut draft = draft(&folder.path().join("a"), false, 1);
        draft.append(&[Bytes::from_static(b"half")])?;
        drop(draft);
        assert!(names(folder.path())?.is_empty());
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn what_was_left_is_found_by_its_mark_alone_and_by_one_at_a_time() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut first = draft(&path, false, 1);
        first.mark(7);
        first.append(&[Bytes::from_static(b"half ")])?;
        assert_eq!(draft(&path, false, 1).find(7), None, "it is being written");
        assert!(first.leave());
        assert_eq!(draft(&path, false, 1).find(8), None, "another version");
        assert_eq!(draft(&path, false, 0).find(7), None, "no file may stay open");
        let mut second = draft(&path, false, 1);
        assert_eq!(second.find(7), Some(5));
        assert_eq!(draft(&path, false, 1).find(7), None, "it is being written again");
        second.append(&[Bytes::from_static(b"and ")])?;
        second.finish(&[Bytes::from_static(b"half")])?;
        assert_eq!(fs::read(&path)?, b"half and half");
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    #[test]
    fn a_draft_that_is_begun_anew_forgets_what_it_had() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut draft = draft(&path, false, 1);
        draft.mark(7);
        draft.append(&[Bytes::from_static(b"old")])?;
        assert!(draft.restart());
        assert!(names(folder.path())?.is_empty());
        draft.finish(&[Bytes::from_static(b"new")])?;
        assert_eq!(fs::read(&path)?, b"new");
        Ok(())
    }

    #[test]
    fn a_name_taken_meanwhile_is_not_overwritten_without_force() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let mut late = draft(&path, false, 1);
        late.append(&[Bytes::from_static(b"mine")])?;
        fs::write(&path, b"theirs")?;
        let failure = late.finish(&[]).err().ok_or("it was overwritten")?;
        assert_eq!(failure.exit, crate::exit::Exit::Exists);
        assert_eq!(fs::read(&path)?, b"theirs");
        draft(&path, true, 1).finish(&[Bytes::from_static(b"mine")])?;
        assert_eq!(fs::read(&path)?, b"mine");
        assert_eq!(names(folder.path())?, ["a"]);
        Ok(())
    }

    #[test]
    fn an_empty_body_is_an_empty_file() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        draft(&path, false, 1).finish(&[])?;
        assert_eq!(fs::read(&path)?, b"");
        Ok(())
    }

    #[test]
    fn more_chunks_than_one_gathered_write_takes_are_all_written() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let chunks: Vec<Bytes> = (0..5_000_u32)
            .map(|n| Bytes::copy_from_slice(&n.to_be_bytes()))
            .collect();
        draft(&path, false, 1).finish(&chunks)?;
        assert_eq!(fs::read(&path)?, chunks.concat());
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_complete_file_has_the_permissions_of_any_new_file() -> Result {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        draft(&path, false, 1).finish(&[])?;
        let other = folder.path().join("b");
        fs::write(&other, b"")?;
        assert_eq!(
            fs::metadata(&path)?.permissions().mode(),
            fs::metadata(&other)?.permissions().mode()
        );
        Ok(())
    }
}
