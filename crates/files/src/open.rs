//! Opens the file of a request, and never one outside the root.
//!
//! The root is a directory handle (`cap-std`), and every open is relative to it: on Linux one `openat2` with
//! `RESOLVE_BENEATH`, elsewhere a walk that checks each step. So there is no gap between check and open in which a path
//! could be redirected. Called by `files`, `listing`, `source`, `destination` and `uploads`.

use std::fs::{File, Metadata};
use std::io;

use cap_std::fs::{Dir, OpenOptions};
use http::StatusCode;

#[cfg(target_os = "linux")]
use crate::optional::Optional;

/// What a path names.
pub(crate) enum Found {
    /// A regular file, with its metadata when opened.
    File(File, Metadata),
    /// A directory.
    Directory,
}

/// Why a path cannot be opened. Each has a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// No such file.
    NotFound,
    /// The file may not be read, is outside the root, or is not a regular file.
    Forbidden,
    /// No file descriptor or memory is left.
    Exhausted,
    /// The disk or the file system failed.
    Failed,
}

/// Opens `path` below `root`. Blocks.
///
/// # Errors
/// [`OpenError`], by the error of the system.
pub(crate) fn open(root: &Dir, path: &str) -> Result<Found, OpenError> {
    #[cfg(target_os = "linux")]
    if BENEATH.is_denied() {
        return walk(root, path);
    }
    match root.open_with(path, &read_options()) {
        Ok(file) => look_at(file.into_std()),
        #[cfg(target_os = "linux")]
        Err(error) if is_beneath_denied(root, &error) => walk(root, path),
        // Windows cannot open directories as files.
        Err(_) if cfg!(windows) && root.metadata(path).is_ok_and(|m| m.is_dir()) => Ok(Found::Directory),
        Err(error) => Err(OpenError::from_io(&error)),
    }
}

/// Opens the folder `path` below `root`. Blocks.
///
/// # Errors
/// The error of the system: `NotADirectory` for anything else, `PermissionDenied` for a path that leaves the root.
pub(crate) fn open_folder(root: &Dir, path: &str) -> io::Result<Dir> {
    #[cfg(target_os = "linux")]
    if BENEATH.is_denied() {
        return walk_folders(root, path);
    }
    match root.open_dir(path) {
        #[cfg(target_os = "linux")]
        Err(error) if is_beneath_denied(root, &error) => walk_folders(root, path),
        opened => opened,
    }
}

/// Classifies an open file.
fn look_at(file: File) -> Result<Found, OpenError> {
    let metadata = file.metadata().map_err(|e| OpenError::from_io(&e))?;
    if metadata.is_file() {
        Ok(Found::File(file, metadata))
    } else if metadata.is_dir() {
        Ok(Found::Directory)
    } else {
        Err(OpenError::Forbidden)
    }
}

/// `openat2` with `RESOLVE_CACHED` (Linux 5.12).
#[cfg(target_os = "linux")]
static CACHED: Optional = Optional::new();

/// `openat2`. `cap-std` has a fallback for ENOSYS and EPERM.
#[cfg(target_os = "linux")]
static BENEATH: Optional = Optional::new();

/// The same without blocking: `None` when the kernel would have to read from a disk. After a recent lookup the kernel also
/// knows that a file does not exist. Any other error is left to [`open`].
#[cfg(target_os = "linux")]
pub(crate) fn open_nonblocking(root: &Dir, path: &str) -> Option<Result<Found, OpenError>> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::Errno;
    if CACHED.is_denied() {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(opened) => Some(look_at(File::from(opened))),
        Err(Errno::NOENT) => Some(Err(OpenError::NotFound)),
        Err(error) => {
            CACHED.denies(error);
            None
        }
    }
}

/// Whether `openat2` is denied with an error that `cap-std` takes for an error of the file. A file system may fail with the
/// same error, so this tries the root itself.
#[cfg(target_os = "linux")]
fn is_beneath_denied(root: &Dir, error: &io::Error) -> bool {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    use rustix::io::Errno;
    if !matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP)) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(root, ".", flags, Mode::empty(), ResolveFlags::BENEATH).is_err_and(|error| BENEATH.denies(error))
}

/// Opens `path` one name at a time without following links, so it stays under the root.
#[cfg(target_os = "linux")]
fn walk(root: &Dir, path: &str) -> Result<Found, OpenError> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let within = walk_folders(root, folders).map_err(|error| OpenError::from_io(&error))?;
    let opened = step(&within, name, rustix::fs::OFlags::empty());
    look_at(opened.map_err(|error| OpenError::from_io(&error))?)
}

/// The same for folders.
#[cfg(target_os = "linux")]
fn walk_folders(root: &Dir, path: &str) -> io::Result<Dir> {
    let mut folder = root.try_clone()?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        folder = Dir::from_std_file(step(&folder, name, rustix::fs::OFlags::DIRECTORY)?);
    }
    Ok(folder)
}

/// Opens one name in a folder.
#[cfg(target_os = "linux")]
fn step(folder: &Dir, name: &str, more: rustix::fs::OFlags) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    if name == ".." {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(openat(folder, name, flags | more, Mode::empty())?))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_nonblocking(_: &Dir, _: &str) -> Option<Result<Found, OpenError>> {
    None
}

/// For reading, without blocking: opening a FIFO would otherwise wait for a writer.
fn read_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt as _;
        use rustix::fs::OFlags;
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
        options.custom_flags(i32::try_from(flags).unwrap_or(0));
    }
    options
}

impl OpenError {
    /// The status of the response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            OpenError::NotFound => StatusCode::NOT_FOUND,
            OpenError::Forbidden => StatusCode::FORBIDDEN,
            OpenError::Exhausted => StatusCode::SERVICE_UNAVAILABLE,
            OpenError::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// By the error of the system.
    pub(crate) fn from_io(error: &io::Error) -> OpenError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => OpenError::NotFound,
            // Also the error for a path that leaves the root.
            io::ErrorKind::PermissionDenied => OpenError::Forbidden,
            io::ErrorKind::OutOfMemory => OpenError::Exhausted,
            _ => from_errno(error),
        }
    }
}

/// The errors that `io::ErrorKind` does not name.
#[cfg(unix)]
fn from_errno(error: &io::Error) -> OpenError {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NAMETOOLONG) => OpenError::NotFound,
        // A loop of symbolic links; a socket, or a device without a driver.
        Some(Errno::LOOP | Errno::NXIO | Errno::NODEV) => OpenError::Forbidden,
        Some(Errno::MFILE | Errno::NFILE) => OpenError::Exhausted,
        _ => OpenError::Failed,
    }
}

#[cfg(not(unix))]
fn from_errno(_: &io::Error) -> OpenError {
    OpenError::Failed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status() {
        for (kind, expected) in [
            (io::ErrorKind::NotFound, 404),
            (io::ErrorKind::NotADirectory, 404),
            (io::ErrorKind::PermissionDenied, 403),
            (io::ErrorKind::OutOfMemory, 503),
            (io::ErrorKind::Other, 500),
        ] {
            let status = OpenError::from_io(&kind.into()).status();
            assert_eq!(status.as_u16(), expected, "{kind:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn each_error_number_has_its_status() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::NAMETOOLONG, 404),
            (Errno::LOOP, 403),
            (Errno::NXIO, 403),
            (Errno::NODEV, 403),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::IO, 500),
        ] {
            let status = OpenError::from_io(&errno.into()).status();
            assert_eq!(status.as_u16(), expected, "{errno:?}");
        }
    }

    #[cfg(target_os = "linux")]
    mod linux {
        use std::fs;
        use std::io::Read as _;

        use cap_std::ambient_authority;
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use rustix::io::Errno;

        use super::super::*;

        /// What is found under a path: the octets of a file, `/` for a directory, or the status of a failure.
        fn shown(found: Result<Found, OpenError>) -> String {
            match found {
                Ok(Found::File(mut file, metadata)) => {
                    let flags = rustix::io::fcntl_getfd(&file).unwrap();
                    assert!(
                        flags.contains(rustix::io::FdFlags::CLOEXEC),
                        "another program would inherit it"
                    );
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    assert_eq!(metadata.len(), text.len() as u64);
                    text
                }
                Ok(Found::Directory) => "/".to_owned(),
                Err(error) => error.status().as_u16().to_string(),
            }
        }

        #[test]
        fn without_openat2_the_same_is_found_and_no_link_is_followed() {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join("secret"), "outside").unwrap();
            let path = home.path().join("root");
            fs::create_dir_all(path.join("a/b")).unwrap();
            fs::write(path.join("top"), "one").unwrap();
            fs::write(path.join("a/b/deep"), "two").unwrap();
            std::os::unix::fs::symlink("../../secret", path.join("a/out")).unwrap();
            std::os::unix::fs::symlink("a", path.join("link")).unwrap();
            mknodat(CWD, path.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let root = Dir::open_ambient_dir(&path, ambient_authority()).unwrap();
            for (path, by_walk, by_openat2) in [
                ("top", "one", "one"),
                ("a/b/deep", "two", "two"),
                ("a//b/deep", "two", "two"),
                (".", "/", "/"),
                ("a", "/", "/"),
                ("a/b", "/", "/"),
                ("none", "404", "404"),
                ("none/deep", "404", "404"),
                ("a/none", "404", "404"),
                ("top/none", "404", "404"),
                ("fifo", "403", "403"),
                ("a/out", "403", "403"),
                ("link", "403", "/"),
                // ELOOP for a name, ENOTDIR for a folder.
                ("link/b/deep", "404", "two"),
                ("..", "403", "403"),
                ("../secret", "403", "403"),
                ("a/../top", "403", "one"),
                ("a/..", "403", "/"),
            ] {
                assert_eq!(shown(walk(&root, path)), by_walk, "{path}");
                assert_eq!(shown(open(&root, path)), by_openat2, "{path}");
                if let Some(found) = open_nonblocking(&root, path) {
                    assert_eq!(shown(found), by_openat2, "{path}");
                }
            }
        }

        #[test]
        fn a_file_that_fails_does_not_deny_openat2_for_all_others() {
            let home = tempfile::tempdir().unwrap();
            let root = Dir::open_ambient_dir(home.path(), ambient_authority()).unwrap();
            for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::IO] {
                assert!(!is_beneath_denied(&root, &errno.into()), "{errno:?}");
                assert!(!BENEATH.is_denied(), "{errno:?}");
            }
        }
    }
}
