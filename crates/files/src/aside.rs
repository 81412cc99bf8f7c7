//! Files that are written under another name, and get their own when they are complete. Everything here blocks.
//!
//! Called by `store` for uploads, and by the program `fullbore` for downloads.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::path::Path;

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

/// Slices in one vectored write; Linux takes no more than 1,024.
pub(crate) const MAX_SLICES: usize = 1024;

/// Writes all chunks with as few system calls as possible.
///
/// # Errors
/// The error of the system.
pub fn write_all(file: &mut File, chunks: &[Bytes]) -> io::Result<()> {
    for group in chunks.chunks(MAX_SLICES) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|chunk| IoSlice::new(chunk)).collect();
        let mut rest = slices.as_mut_slice();
        // Drops empty slices at the front: writing nothing would look like a full disk.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Gives a file of this folder its name; with `replace`, in place of another one. The folder is opened only where a plain
/// rename is not enough.
///
/// # Errors
/// `AlreadyExists`: the name is taken, and `replace` is not set. Otherwise that of the system.
pub fn rename_in(folder: &Path, temporary: &OsStr, name: &OsStr, replace: bool) -> io::Result<()> {
    let (old, new) = (folder.join(temporary), folder.join(name));
    if replace {
        return std::fs::rename(old, new);
    }
    #[cfg(target_os = "linux")]
    match rename_new(rustix::fs::CWD, &old, rustix::fs::CWD, &new) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
    rename_to_free(&folder, temporary.as_ref(), &folder, name.as_ref())
}

/// Gives a file its name; with `replace`, in place of another one. Returns whether there was one.
///
/// # Errors
/// `AlreadyExists`: the name is taken, and `replace` is not set. `IsADirectory`: a folder has the name.
pub(crate) fn rename(
    from: &Dir,
    temporary: impl AsRef<Path>,
    into: &Dir,
    name: impl AsRef<Path>,
    replace: bool,
) -> io::Result<bool> {
    let (temporary, name) = (temporary.as_ref(), name.as_ref());
    if !replace {
        return rename_to_free(from, temporary, into, name).map(|()| false);
    }
    let existing = into.symlink_metadata(name);
    if existing.as_ref().is_ok_and(cap_std::fs::Metadata::is_dir) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    from.rename(temporary, into, name)?;
    Ok(existing.is_ok())
}

/// A rename that replaces nothing does it at once. Network file systems have links instead, which fail when the name is
/// taken. Where there are none either (FAT, some of FUSE), an empty file takes the name before the rename.
fn rename_to_free(from: &Dir, temporary: &Path, into: &Dir, name: &Path) -> io::Result<()> {
    let mut first = None;
    for way in WAYS {
        match way(from, temporary, into, name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => first = first.or(Some(error)),
            done => return done,
        }
    }
    first.map_or(Ok(()), Err)
}

type Way = fn(&Dir, &Path, &Dir, &Path) -> io::Result<()>;

const WAYS: &[Way] = &[
    #[cfg(target_os = "linux")]
    |from, old, into, new| rename_new(from, old, into, new),
    link,
    claim_and_rename,
];

#[cfg(target_os = "linux")]
fn rename_new<F: std::os::fd::AsFd>(from: F, old: &Path, into: F, new: &Path) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};
    Ok(renameat_with(from, old, into, new, RenameFlags::NOREPLACE)?)
}

fn link(from: &Dir, old: &Path, into: &Dir, new: &Path) -> io::Result<()> {
    from.hard_link(old, into, new)?;
    // The file has its name.
    let _ = from.remove_file(old);
    Ok(())
}

fn claim_and_rename(from: &Dir, old: &Path, into: &Dir, new: &Path) -> io::Result<()> {
    drop(into.open_with(new, OpenOptions::new().write(true).create_new(true))?);
    from.rename(old, into, new).inspect_err(|_| {
        // The claim has nothing in it.
        let _ = into.remove_file(new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_gives_a_name_that_is_free_and_no_other() {
        for (number, way) in WAYS.iter().enumerate() {
            let root = tempfile::tempdir().unwrap();
            let path = |name: &str| root.path().join(name);
            std::fs::create_dir(path("sub")).unwrap();
            let open = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
            let (dir, sub) = (open(root.path().to_owned()), open(path("sub")));
            let give = |content: &str| {
                std::fs::write(path("aside"), content).unwrap();
                way(&dir, Path::new("aside"), &sub, Path::new("a"))
            };
            give("one").unwrap();
            assert!(!path("aside").exists(), "way {number}");
            assert_eq!(give("two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read_to_string(path("sub/a")).unwrap(), "one");
            assert_eq!(
                std::fs::read_to_string(path("aside")).unwrap(),
                "two",
                "it is kept"
            );
            // What cannot be renamed leaves no claim.
            assert!(way(&dir, Path::new("none"), &sub, Path::new("b")).is_err());
            assert!(!path("sub/b").exists(), "way {number}");
        }
    }
}
