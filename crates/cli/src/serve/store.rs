//! The file that an upload becomes: temporary while it is written, renamed when it is whole, gone when it is not.
//!
//! Blocks: called from blocking jobs only, by `uploads`. Names arrive here as a single safe segment.

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use cap_std::fs::{Dir, OpenOptions};

use super::files::random;

/// How much of a name its temporary name repeats, in bytes: with the rest it stays under 255.
const MAX_STEM_BYTES: usize = 200;

/// How often another random name is tried before giving up; once is all but always enough.
const ATTEMPTS: usize = 8;

/// An upload being written. Dropping it before [`Part::publish`] removes it.
#[derive(Debug)]
pub(super) struct Part {
    directory: Arc<Dir>,
    name: String,
    file: File,
    published: bool,
}

/// How a finished upload took its name.
#[derive(Clone, Debug)]
pub(super) struct Published {
    /// There was a file of that name, and it is replaced.
    pub(super) replaced: bool,
    /// The file as it is now.
    pub(super) metadata: Metadata,
}

impl Part {
    /// A new, empty file that will be called `name`.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn create(directory: &Arc<Dir>, name: &str) -> io::Result<Part> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let stem = stem(name);
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..ATTEMPTS {
            let temporary = format!(".{stem}.{:016x}.part", random());
            match directory.open_with(&temporary, &options) {
                Ok(file) => {
                    return Ok(Part {
                        directory: Arc::clone(directory),
                        name: temporary,
                        file: file.into_std(),
                        published: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Appends `batch`, in as few calls as the system takes.
    ///
    /// # Errors
    /// What the system said; the file is then of no use.
    pub(super) fn write(&mut self, batch: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = slices.as_mut_slice();
        // Drops empty slices at the front, so that a write of nothing is told from a full disk.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives the file its name: in place of one that has it, if `replace`.
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken and `replace` is not set, `IsADirectory` when a directory has it.
    pub(super) fn publish(mut self, name: &str, replace: bool) -> io::Result<Published> {
        let metadata = self.file.metadata()?;
        let replaced = if replace {
            let replaced = match self.directory.symlink_metadata(name) {
                Ok(existing) if existing.is_dir() => {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                Ok(_) => true,
                Err(_) => false,
            };
            self.directory.rename(&self.name, &self.directory, name)?;
            self.published = true;
            replaced
        } else {
            self.take_free_name(name)?;
            false
        };
        Ok(Published { replaced, metadata })
    }

    /// A link fails when the name is taken, where a rename would replace. File systems without links (FAT, some
    /// network ones) get an empty file as a claim on the name, and the rename at once after.
    fn take_free_name(&mut self, name: &str) -> io::Result<()> {
        match self.directory.hard_link(&self.name, &self.directory, name) {
            // What is left of the temporary name goes when this is dropped.
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(_) => self.claim_and_rename(name),
        }
    }

    fn claim_and_rename(&mut self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        drop(self.directory.open_with(name, &options)?);
        match self.directory.rename(&self.name, &self.directory, name) {
            Ok(()) => {
                self.published = true;
                Ok(())
            }
            Err(error) => {
                // The claim is ours to withdraw; that the rename failed is what is told.
                let _ = self.directory.remove_file(name);
                Err(error)
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.published {
            // Nothing more can be done about a file that does not go; its name says what it is.
            let _ = self.directory.remove_file(&self.name);
        }
    }
}

/// The start of a name, cut where a character ends.
fn stem(name: &str) -> &str {
    let mut end = name.len().min(MAX_STEM_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cap_std::ambient_authority;

    use super::*;

    fn directory(path: &Path) -> Arc<Dir> {
        Arc::new(Dir::open_ambient_dir(path, ambient_authority()).unwrap())
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_part_is_hidden_and_goes_when_dropped() {
        let root = tempfile::tempdir().unwrap();
        let mut part = Part::create(&directory(root.path()), "a.txt").unwrap();
        part.write(&[Bytes::new(), Bytes::from("x"), Bytes::new()])
            .unwrap();
        part.write(&[]).unwrap();
        part.write(&[Bytes::new()]).unwrap();
        let names_now = names(root.path());
        assert_eq!(names_now.len(), 1);
        assert!(names_now[0].starts_with(".a.txt."), "{names_now:?}");
        assert!(names_now[0].ends_with(".part"), "{names_now:?}");
        drop(part);
        assert_eq!(names(root.path()), Vec::<String>::new());
    }

    #[test]
    fn publishing_replaces_only_when_told() {
        let root = tempfile::tempdir().unwrap();
        let dir = directory(root.path());
        let write = |content: &'static str, replace| {
            let mut part = Part::create(&dir, "a").unwrap();
            part.write(&[Bytes::from(content)]).unwrap();
            part.publish("a", replace)
        };
        let read = || std::fs::read_to_string(root.path().join("a")).unwrap();

        assert!(!write("one", false).unwrap().replaced);
        assert_eq!(read(), "one");
        assert_eq!(
            write("two", false).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(read(), "one");
        let published = write("three", true).unwrap();
        assert!(published.replaced);
        assert_eq!(published.metadata.len(), 5);
        assert_eq!(read(), "three");
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn the_way_without_links_keeps_the_same_promise() {
        let root = tempfile::tempdir().unwrap();
        let dir = directory(root.path());
        let write = |content: &'static str| {
            let mut part = Part::create(&dir, "a").unwrap();
            part.write(&[Bytes::from(content)]).unwrap();
            part.claim_and_rename("a")
        };
        write("one").unwrap();
        assert_eq!(write("two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(root.path().join("a")).unwrap(), "one");
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn a_directory_is_never_replaced() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("a")).unwrap();
        let dir = directory(root.path());
        for replace in [true, false] {
            let part = Part::create(&dir, "a").unwrap();
            assert!(part.publish("a", replace).is_err());
        }
        assert_eq!(names(root.path()), ["a"]);
    }

    #[test]
    fn a_long_name_has_a_temporary_name_that_fits() {
        let root = tempfile::tempdir().unwrap();
        let name = "é".repeat(127);
        let part = Part::create(&directory(root.path()), &name).unwrap();
        part.publish(&name, true).unwrap();
        assert_eq!(names(root.path()), [name]);
    }
}
