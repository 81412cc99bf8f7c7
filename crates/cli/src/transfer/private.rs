//! Temporary files that no other user can write: creating, reopening and naming them.
//!
//! A download may go to a folder that other users can write to. There, a temporary name may belong to another user's link,
//! pipe or file. Each check uses the open descriptor, so that it applies to the file that is written. Everything here runs
//! on blocking threads.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::sync::OnceLock;
use std::time::SystemTime;

use fullbore_files::aside;
use tempfile::NamedTempFile;

use crate::exit::{Exit, Failure};

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The name of a file of this process, which is removed when this is dropped, unless it has become another one's.
#[derive(Debug)]
pub(crate) struct OwnPath {
    path: PathBuf,
    identity: Identity,
}

impl OwnPath {
    /// The name of an open file.
    pub(crate) fn of(file: &File, path: PathBuf) -> io::Result<Self> {
        let identity = Identity::of(file)?;
        Ok(Self { path, identity })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Leaves the file.
    pub(crate) fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Deref for OwnPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnPath {
    fn drop(&mut self) {
        if self.identity.has_name(&self.path) {
            // One that stays is found by its name.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The device and inode of a file, and when it was created, where the file system knows it: inodes are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl Identity {
    /// Of an open file.
    #[cfg(unix)]
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// Of the file with this name, without following links.
    #[cfg(unix)]
    fn named(path: &Path) -> io::Result<Self> {
        Ok(Self::from(&std::fs::symlink_metadata(path)?))
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_: &File) -> io::Result<Self> {
        Ok(Self {
            device: 0,
            inode: 0,
            created: None,
        })
    }

    #[cfg(not(unix))]
    fn named(_: &Path) -> io::Result<Self> {
        Ok(Self {
            device: 0,
            inode: 0,
            created: None,
        })
    }

    /// Whether it is that of the file with this name.
    pub(crate) fn has_name(self, name: &Path) -> bool {
        Self::named(name).is_ok_and(|named| named == self)
    }
}

/// Whether two files are one; `None` where files have no identity.
#[cfg(unix)]
pub(crate) fn are_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> Option<bool> {
    Some(Identity::from(one) == Identity::from(other))
}

#[cfg(not(unix))]
pub(crate) fn are_same(_: &std::fs::Metadata, _: &std::fs::Metadata) -> Option<bool> {
    None
}

#[cfg(unix)]
impl From<&std::fs::Metadata> for Identity {
    fn from(found: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: found.dev(),
            inode: found.ino(),
            created: found.created().ok(),
        }
    }
}

/// Permission bits of a file, before and after it is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    #[cfg(unix)]
    complete: u32,
    /// They are those of a file that is replaced, and the umask has no part in them.
    #[cfg(unix)]
    kept: bool,
}

#[cfg(unix)]
impl Permissions {
    /// Of a file that is to get the name `path`: those that the umask allows, or those of this user's file that it replaces,
    /// since a private file stays private.
    pub(crate) fn of(path: &Path, replaces: bool) -> Self {
        use std::os::unix::fs::MetadataExt;
        let replaced = replaces.then(|| std::fs::symlink_metadata(path).ok()).flatten();
        match replaced.filter(|found| found.is_file() && found.uid() == user()) {
            Some(found) => Self {
                complete: found.mode() & 0o777,
                kept: true,
            },
            None => Self {
                complete: 0o666 & !umask(),
                kept: false,
            },
        }
    }

    /// While the file is written, no other user can write it.
    fn written(self) -> u32 {
        self.complete & !0o022 | 0o600
    }

    fn complete(self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        if !self.kept && self.written() == self.complete {
            return Ok(());
        }
        file.set_permissions(std::fs::Permissions::from_mode(self.complete))
    }
}

#[cfg(not(unix))]
impl Permissions {
    pub(crate) fn of(_: &Path, _: bool) -> Self {
        Self {}
    }

    fn complete(self, _: &File) -> io::Result<()> {
        Ok(())
    }
}

/// A new file under this name, for appending, and for reading what was appended.
pub(crate) fn create(path: &Path, permissions: Permissions) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // `create_new` is O_EXCL, which follows no link.
    options.read(true).append(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(permissions.written());
    }
    options.open(path)
}

/// A new file with a random name with this prefix and suffix.
pub(crate) fn create_unnamed(
    folder: &Path,
    prefix: &str,
    suffix: &str,
    permissions: Permissions,
) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(suffix);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(permissions.written()));
    }
    builder.tempfile_in(folder)
}

/// Opens a file of this user for reading and appending; an error when another user may have written it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_without(path, 0o022)
}

/// The same for a file on which nobody else has any of these permissions.
pub(crate) fn open_without(path: &Path, permissions: u32) -> io::Result<File> {
    let file = options().open(path)?;
    match is_private(&file.metadata()?, permissions) {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user can read or write this file",
        )),
    }
}

/// For reading and appending, of what is no link. A new file is the user's alone.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A pipe would otherwise wait for a reader.
        options
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .mode(0o600);
    }
    options
}

/// Whether this is a regular file of this user with one name and none of these permissions.
#[cfg(unix)]
fn is_private(found: &std::fs::Metadata, permissions: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    found.is_file() && found.uid() == user() && found.nlink() == 1 && found.mode() & permissions == 0
}

#[cfg(not(unix))]
fn is_private(found: &std::fs::Metadata, _: u32) -> bool {
    found.is_file()
}

/// Whether other users can rename this user's files in the folder: others, or a group that is not the user's own, can
/// write to it, and it has no sticky bit. A partial file found there may have the name of another one.
#[cfg(unix)]
pub(crate) fn is_shared(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    let Ok(found) = std::fs::metadata(folder) else {
        return true;
    };
    let group = found.mode() & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw();
    let strangers = ![user(), 0].contains(&found.uid());
    strangers || (group || found.mode() & 0o002 != 0) && found.mode() & STICKY == 0
}

#[cfg(not(unix))]
pub(crate) fn is_shared(_: &Path) -> bool {
    true
}

/// The effective user.
#[cfg(unix)]
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The result of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held,
    /// Another process has locked it, or the name now belongs to another file.
    Busy,
    /// The file system has no locks, as some of networks and of FUSE.
    Unsupported,
}

/// Locks an open file with this name.
#[cfg(unix)]
pub(crate) fn lock(file: &File, name: &Path) -> Lock {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) if is_named(file, name) => Lock::Held,
        Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => Lock::Busy,
        Err(_) => Lock::Unsupported,
    }
}

#[cfg(not(unix))]
pub(crate) fn lock(_: &File, _: &Path) -> Lock {
    Lock::Unsupported
}

/// Whether an open file has this name.
pub(crate) fn is_named(file: &File, name: &Path) -> bool {
    Identity::of(file).is_ok_and(|open| open.has_name(name))
}

/// Gives a complete file its name and its permissions. Without `force` a name that has been taken meanwhile is refused.
///
/// # Errors
/// The rename failed: then the complete file keeps its temporary name, which is returned. Or another process has replaced
/// the file.
pub(crate) fn publish(
    file: &File,
    temporary: OwnPath,
    path: &Path,
    force: bool,
) -> Result<(), (Failure, Option<OwnPath>)> {
    let replaced = || {
        let text = format!(
            "{}: another process has replaced the file while it was being written; use a folder that other users cannot write to",
            path.display()
        );
        (Failure::new(Exit::LocalIo, text), None)
    };
    // That of the open file: it has been asked for when the file was opened.
    let identity = temporary.identity();
    if !identity.has_name(&temporary) {
        return Err(replaced());
    }
    if let Err(error) = Permissions::of(path, force).complete(file) {
        return Err((
            Failure::from_io("set the permissions of", path, &error),
            Some(temporary),
        ));
    }
    let (Some(old), Some(new)) = (temporary.file_name(), path.file_name()) else {
        return Err(replaced());
    };
    if let Err(error) = aside::rename_in(folder(path), old, new, force) {
        let failure = match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::exists(path),
            _ => Failure::from_io("rename the complete file to", path, &error),
        };
        return Err((failure, Some(temporary)));
    }
    // Nothing of this run has that name any more.
    let _ = temporary.keep();
    if identity.has_name(path) {
        Ok(())
    } else {
        Err(replaced())
    }
}

/// `umask(2)` returns it only when it sets another one, which other threads could see. Linux also has it in a file.
#[cfg(unix)]
#[allow(clippy::useless_conversion, reason = "mode_t has 16 bits on some systems")]
fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        if let Some(mask) = told.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()) {
            return mask;
        }
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        rustix::process::umask(mask);
        u32::from(mask.as_raw_mode())
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions as Mode};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn a_folder_is_shared_where_others_may_rename_what_is_in_it() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        let shared = |mode| -> io::Result<bool> {
            fs::set_permissions(path, Mode::from_mode(mode))?;
            Ok(is_shared(path))
        };
        let own = rustix::process::getegid().as_raw();
        chown(path, None, Some(own))?;
        for (mode, is_shared) in [
            (0o700, false),
            (0o755, false),
            (0o775, false),
            (0o777, true),
            (0o757, true),
            (0o1777, false),
        ] {
            assert_eq!(shared(mode)?, is_shared, "{mode:o}");
        }
        assert!(is_shared(&path.join("none")), "nobody knows");
        // Only root may give a folder away.
        if chown(path, None, Some(own + 1)).is_ok() {
            for (mode, is_shared) in [(0o755, false), (0o775, true), (0o1775, false)] {
                assert_eq!(shared(mode)?, is_shared, "{mode:o}, another group");
            }
        }
        if chown(path, Some(user() + 1), None).is_ok() {
            for mode in [0o700, 0o1777] {
                assert!(shared(mode)?, "{mode:o}, another user");
            }
        }
        Ok(())
    }

    #[test]
    fn a_file_is_opened_again_only_if_nobody_else_can_write_it_and_it_has_one_name() -> Result {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        drop(create(&path, Permissions::of(&path, false))?);
        assert!(
            create(&path, Permissions::of(&path, false)).is_err(),
            "it is there"
        );
        for (mode, is_opened) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            fs::set_permissions(&path, Mode::from_mode(mode))?;
            assert_eq!(open(&path).is_ok(), is_opened, "{mode:o}");
        }
        fs::set_permissions(&path, Mode::from_mode(0o600))?;
        let other = folder.path().join("b");
        fs::hard_link(&path, &other)?;
        assert!(open(&path).is_err(), "it has two names");
        fs::remove_file(&path)?;
        std::os::unix::fs::symlink(&other, &path)?;
        assert!(open(&path).is_err(), "it is a link");
        assert!(open(&other).is_ok());
        Ok(())
    }

    #[test]
    fn a_lock_is_had_once_and_only_under_the_name_of_the_file() -> Result {
        let folder = tempfile::tempdir()?;
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        let first = create(&path, Permissions::of(&path, false))?;
        assert_eq!(lock(&first, &path), Lock::Held);
        let second = open(&path)?;
        assert_eq!(lock(&second, &path), Lock::Busy, "another has it");
        drop(first);
        drop(create(&other, Permissions::of(&other, false))?);
        assert_eq!(lock(&second, &other), Lock::Busy, "the name is another file's");
        assert_eq!(lock(&second, &path), Lock::Held);
        Ok(())
    }
}
