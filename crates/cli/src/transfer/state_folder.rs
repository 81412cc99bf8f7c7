//! The folder in which the program keeps what belongs to the user: certificates of `serve`, records of uploads, and locks on
//! files whose file systems have none. It is `fullbore` in `$XDG_STATE_HOME`, or in `.local/state` of `$HOME`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use crate::checksum::digits;

use super::private::{self, Lock};

/// The user's folder, which may not exist yet; `None` when the user has none. A base folder of another user, as under `sudo`,
/// is not written to.
#[cfg(unix)]
pub(crate) fn of_user() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let (base, state) = match absolute("XDG_STATE_HOME") {
        Some(state) => (state.clone(), state),
        None => {
            let home = absolute("HOME")?;
            (home.clone(), home.join(".local/state"))
        }
    };
    // The specification says to create a missing folder. Its nearest existing ancestor decides.
    let mut found = base.ancestors().filter_map(|path| std::fs::metadata(path).ok());
    (found.next()?.uid() == private::user()).then(|| state.join("fullbore"))
}

/// Without Unix permissions, nothing is kept.
#[cfg(not(unix))]
pub(crate) fn of_user() -> Option<PathBuf> {
    None
}

/// Creates a folder of this user, if it does not exist.
///
/// # Errors
/// It cannot be created, or other users can write to it.
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)?;
    match private::is_shared(folder) {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can write to its folder",
        )),
        false => Ok(()),
    }
}

/// A lock on a file elsewhere. Its own file is removed while it is held; who has opened it meanwhile finds that it has no name.
pub(crate) struct StateLock {
    path: PathBuf,
    _file: File,
}

impl StateLock {
    /// Locks the file with this name.
    ///
    /// # Errors
    /// Another process has the lock, or the file system of the folder has no locks either.
    pub(crate) fn new(folder: &Path, name: &Path) -> Result<Self, Lock> {
        let name = std::path::absolute(name).map_err(|_| Lock::Unsupported)?;
        let hash = digits(digest(&SHA256, name.as_os_str().as_encoded_bytes()).as_ref());
        let path = folder.join(format!("{hash}.lock"));
        let open = || {
            create(folder)?;
            private::options().create(true).open(&path)
        };
        let file = open().map_err(|_: io::Error| Lock::Unsupported)?;
        match private::lock(&file, &path) {
            Lock::Held => Ok(Self { path, _file: file }),
            refused => Err(refused),
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // A file that stays is taken again by the next run.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_the_state_folder_is_had_once_and_leaves_nothing() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let lock = |name: &str| StateLock::new(folder.path(), Path::new(name));
        let first = lock("a");
        assert!(first.is_ok());
        assert_eq!(lock("a").err(), Some(Lock::Busy), "it is held");
        assert!(lock("b").is_ok(), "another part");
        drop(first);
        assert!(lock("a").is_ok(), "it was released");
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        Ok(())
    }
}
