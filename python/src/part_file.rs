//! The file that a download is written to until it is complete: one that no other user can have written.
//!
//! The folder may be one that others write to. The name of a part may be another user's link, pipe or file there, so each check
//! looks at the open file, and not at its name. What fails a check stays as it is, and the download gets a new file, which no
//! later run continues. Everything here blocks.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many names of new files are tried.
const NAMES: u32 = 16;

/// The name of an open file. A file that no later run continues is removed when this is dropped, as is one of a download that is
/// canceled.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// Whether no later run continues the file.
    pub(crate) is_temporary: bool,
    identity: Option<Identity>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary && self.has_name() {
            // A file that stays is found by its name.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Place {
    /// Whether the open file still has the name.
    fn has_name(&self) -> bool {
        match self.identity {
            None => true,
            Some(identity) => std::fs::symlink_metadata(&self.path)
                .is_ok_and(|found| Identity::of(&found) == Some(identity)),
        }
    }

    /// Removes the file when this is dropped.
    pub(crate) fn discard(&mut self) {
        self.is_temporary = true;
    }

    /// Gives the complete file its name, and the permissions of the file that it replaces.
    ///
    /// # Errors
    /// Another process has replaced the part, or the rename failed.
    pub(crate) fn publish(&mut self, file: &File, target: &Path) -> io::Result<()> {
        if !self.has_name() {
            return Err(io::Error::other("another process has replaced it"));
        }
        complete(file, target)?;
        std::fs::rename(&self.path, target)?;
        self.is_temporary = false;
        Ok(())
    }
}

/// Opens the part with this name, with what an earlier run left in it. `None` for the name is a download that cannot be resumed.
///
/// # Errors
/// No file can be created in the folder of `target`.
pub(crate) fn open(part: Option<PathBuf>, target: &Path) -> io::Result<(File, Place)> {
    if let Some(path) = part.filter(|path| !is_shared(folder(path))) {
        match create(&path, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if let Some(file) = take_over(&path) {
                    return place(file, path, false);
                }
            }
            Ok(file) if lock(&file) => return place(file, path, false),
            // Another download has taken it over in between.
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    let mut tried = 0;
    loop {
        let path = new_name(target);
        match create(&path, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < NAMES => tried += 1,
            created => return place(created?, path, true),
        }
    }
}

fn place(file: File, path: PathBuf, is_temporary: bool) -> io::Result<(File, Place)> {
    let place = Place {
        identity: Identity::of(&file.metadata()?),
        path,
        is_temporary,
    };
    Ok((file, place))
}

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A name beside the target that nothing has.
fn new_name(target: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}-{number}.part"));
    target.with_file_name(name)
}

/// A new file under this name. While it is written, no other user can write it.
fn create(path: &Path, target: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // `create_new` is O_EXCL, which follows no link.
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(replaced(target).unwrap_or(0o666) & !0o022 | 0o600);
    }
    #[cfg(not(unix))]
    let _ = target;
    options.open(path)
}

/// Opens the part that an earlier run of this user has left; `None` if another user may have written it, or another download
/// writes it.
fn take_over(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // A pipe would wait for a reader.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path).ok()?;
    let found = file.metadata().ok()?;
    if !is_private(&found) || !lock(&file) {
        return None;
    }
    // The one that had it may have given it another name.
    let named = std::fs::symlink_metadata(path).ok()?;
    (Identity::of(&found) == Identity::of(&named)).then_some(file)
}

/// The device and the inode of a file, where there are such.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

#[cfg(unix)]
impl Identity {
    fn of(found: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(Identity(found.dev(), found.ino()))
    }
}

#[cfg(not(unix))]
impl Identity {
    fn of(_: &Metadata) -> Option<Self> {
        None
    }
}

/// Whether this is a regular file of this user, with one name, that nobody else may write.
#[cfg(unix)]
fn is_private(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    found.is_file() && found.uid() == user() && found.nlink() == 1 && found.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_private(found: &Metadata) -> bool {
    found.is_file()
}

#[cfg(unix)]
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether other users can rename files of this user in the folder: others, or a group that is not the user's own, can write to it,
/// and it has no sticky bit.
#[cfg(unix)]
fn is_shared(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    let Ok(found) = std::fs::metadata(folder) else {
        return true;
    };
    let group = found.mode() & 0o020 != 0 && found.gid() != rustix::process::getegid().as_raw();
    let is_strange = ![user(), 0].contains(&found.uid());
    is_strange || (group || found.mode() & 0o002 != 0) && found.mode() & STICKY == 0
}

/// Windows has no such bits: the folder is taken for the user's.
#[cfg(not(unix))]
fn is_shared(_: &Path) -> bool {
    false
}

/// Locks an open file; false if another download has it. A file system without locks has no other download.
#[cfg(unix)]
fn lock(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    let locked = flock(file, FlockOperation::NonBlockingLockExclusive);
    !matches!(locked, Err(Errno::WOULDBLOCK | Errno::INTR))
}

#[cfg(not(unix))]
fn lock(_: &File) -> bool {
    true
}

/// The permission bits of this user's file that is replaced: a private file stays private.
#[cfg(unix)]
fn replaced(target: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::symlink_metadata(target).ok()?;
    (found.is_file() && found.uid() == user()).then(|| found.mode() & 0o777)
}

/// Sets the permission bits of a complete file: those of the file that it replaces, or those of a new file.
#[cfg(unix)]
fn complete(file: &File, target: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let Some(mode) = replaced(target).or_else(of_a_new_file) else {
        return Ok(());
    };
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn complete(_: &File, _: &Path) -> io::Result<()> {
    Ok(())
}

/// The permission bits that the umask leaves to a new file, where the system tells the umask without changing it.
#[cfg(unix)]
fn of_a_new_file() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    Some(0o666 & !u32::from_str_radix(umask.trim(), 8).ok()?)
}
