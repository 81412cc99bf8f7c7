//! The blocking half of a download: a file that has its name only once it is complete.
//!
//! Runs on blocking threads alone; `sink` hands the draft back and forth. A draft that is dropped before `finish`
//! removes its file, whatever the reason: a failure, an interrupt, a lost task.

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
            open: None,
            temporary: None,
            began: false,
        }
    }

    /// Writes the chunks at the end, and opens the file first if need be.
    pub(super) fn append(&mut self, chunks: &[Bytes]) -> Result<(), Failure> {
        self.refuse_binary_on_terminal(chunks)?;
        let (mut file, permit) = match self.open.take() {
            Some(open) => open,
            None => {
                let permit = Arc::clone(&self.files).try_acquire_owned().ok();
                (self.open()?, permit)
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
        self.open = None;
        match (&self.target, self.temporary.take()) {
            (Target::File { path, force }, Some(temporary)) => keep(temporary, path, *force),
            _ => Ok(()),
        }
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
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let name: String = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut end = name.len().min(NAME_IN_TEMPORARY);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let prefix = format!(".{}.", name.get(..end).unwrap_or_default());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The umask takes away what it does from every new file; tempfile alone would leave 0600.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
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
