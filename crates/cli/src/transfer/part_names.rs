//! The temporary names that a later run finds. They are derived with a secret key, so nobody else can predict them.
//!
//! The key is 32 random bytes in `fullbore/part-key` of the user's state folder (`$XDG_STATE_HOME`, or `.local/state` in
//! `$HOME`), which only the user can read. Without such a folder, temporary names are random, and no later run finds them.
//!
//! A part has one name while it is written, and another one when a run has left it and its octets are on the disk. The
//! first holds until the machine restarts: nobody knows which of the octets outlast a power failure.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fullbore::client::range::Version;
use ring::hmac;

use super::private::{self, Lock};

/// The bytes of the key.
const KEY_BYTES: usize = 32;
/// The bytes of a name that stand for the URL, and for the version.
const URL_BYTES: usize = 8;
const VERSION_BYTES: usize = 16;
/// The hexadecimal digits of a name, and how many of them stand for the URL.
pub(super) const DIGITS: usize = 2 * (URL_BYTES + VERSION_BYTES);
pub(super) const URL_DIGITS: usize = 2 * URL_BYTES;

/// What a part is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartKey {
    pub(crate) url: String,
    /// Identifies the version of the body.
    pub(crate) version: Vec<u8>,
}

impl PartKey {
    /// The part of this version of a URL's body.
    pub(crate) fn of(url: &str, version: &Version) -> Self {
        let mut key = (url.len() as u64).to_be_bytes().to_vec();
        key.extend(url.as_bytes());
        key.extend(version.key());
        Self {
            url: url.to_owned(),
            version: key,
        }
    }
}

/// Whether a part is written, or was left for a later run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Written,
    Left,
}

/// Derives names from keys of parts. The secret key is read for the first name, on a blocking thread.
pub(crate) struct PartNames {
    folder: Option<PathBuf>,
    secret: OnceLock<Option<Secret>>,
}

struct Secret {
    key: hmac::Key,
    /// Identifies this start of the machine; empty where that is unknown.
    boot: Vec<u8>,
}

impl PartNames {
    /// With the key of the current user.
    pub(crate) fn of_user() -> Self {
        Self {
            folder: state::folder(),
            secret: OnceLock::new(),
        }
    }

    /// The derived part of a name; `None` without a secret key.
    pub(crate) fn name(&self, key: &PartKey, stage: Stage) -> Option<String> {
        let secret = self.secret()?;
        let mut version = key.version.clone();
        if stage == Stage::Written {
            version.extend(&secret.boot);
        }
        let url = digits::<URL_BYTES>(&secret.key, key.url.as_bytes())?;
        Some(url + &digits::<VERSION_BYTES>(&secret.key, &version)?)
    }

    /// A lock on a part whose file system has none: a file beside the key, since whoever can derive the name of the part has
    /// the key.
    ///
    /// # Errors
    /// Another process has it, or the file system of the key has no locks either.
    pub(crate) fn lock(&self, part: &Path) -> Result<StateLock, Lock> {
        let (path, file) = self.lock_file(part).ok_or(Lock::Unsupported)?;
        match private::lock(&file, &path) {
            Lock::Held => Ok(StateLock { path, _file: file }),
            refused => Err(refused),
        }
    }

    fn lock_file(&self, part: &Path) -> Option<(PathBuf, File)> {
        let part = std::path::absolute(part).ok()?;
        let name = digits::<VERSION_BYTES>(&self.secret()?.key, part.as_os_str().as_encoded_bytes())?;
        let path = self.folder.as_deref()?.join(format!("{name}.lock"));
        let file = state::open_lock(&path)?;
        Some((path, file))
    }

    fn secret(&self) -> Option<&Secret> {
        let secret = self.secret.get_or_init(|| {
            let octets = state::key(self.folder.as_deref()?)?;
            Some(Secret {
                key: hmac::Key::new(hmac::HMAC_SHA256, &octets),
                boot: std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
            })
        });
        secret.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn with_key(octets: [u8; KEY_BYTES]) -> Self {
        Self::in_folder(octets, None, "this start")
    }

    /// With a folder for locks, and another start of the machine.
    #[cfg(test)]
    pub(crate) fn in_folder(octets: [u8; KEY_BYTES], folder: Option<&Path>, boot: &str) -> Self {
        Self {
            folder: folder.map(ToOwned::to_owned),
            secret: OnceLock::from(Some(Secret {
                key: hmac::Key::new(hmac::HMAC_SHA256, &octets),
                boot: boot.as_bytes().to_vec(),
            })),
        }
    }
}

/// The first octets of a keyed hash, in hexadecimal.
fn digits<const BYTES: usize>(secret: &hmac::Key, text: &[u8]) -> Option<String> {
    let tag = hmac::sign(secret, text);
    let octets = tag.as_ref().get(..BYTES)?;
    Some(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}

/// A lock in the state folder. Its file is removed while it is held; who has opened it meanwhile finds that it has no name.
pub(crate) struct StateLock {
    path: PathBuf,
    _file: File,
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // A file that stays is taken again by the next run.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The folder in which the program keeps what belongs to the user; `None` when the user has none.
pub(crate) fn state_folder() -> Option<PathBuf> {
    state::folder()
}

#[cfg(unix)]
mod state {
    use std::fs::{DirBuilder, File, OpenOptions};
    use std::io::{self, Read, Write};
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::{Path, PathBuf};

    use ring::rand::{SecureRandom, SystemRandom};

    use super::super::private::{is_private, persist_new, user};
    use super::KEY_BYTES;

    /// The folder of the key. A base folder of another user, as under `sudo`, is not written to.
    pub(crate) fn folder() -> Option<PathBuf> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let (base, state) = match absolute("XDG_STATE_HOME") {
            Some(state) => (state.clone(), state),
            None => {
                let home = absolute("HOME")?;
                (home.clone(), home.join(".local/state"))
            }
        };
        // The specification says to create a missing folder. Its nearest existing ancestor decides.
        let owner = base
            .ancestors()
            .find_map(|path| std::fs::metadata(path).ok())?
            .uid();
        (owner == user()).then(|| state.join("fullbore"))
    }

    /// The file of a lock, created if it does not exist.
    pub(crate) fn open_lock(path: &Path) -> Option<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .ok()
    }

    /// The user's key, created if it does not exist; `None` when it cannot be kept secret.
    pub(crate) fn key(folder: &Path) -> Option<[u8; KEY_BYTES]> {
        let path = folder.join("part-key");
        match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read.ok(),
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .ok()?;
        let found = std::fs::symlink_metadata(folder).ok()?;
        if !found.is_dir() || found.uid() != user() || found.mode() & 0o022 != 0 {
            return None;
        }
        let mut octets = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut octets).ok()?;
        // The file is complete, with mode 0600, before it has its name. If two runs create one, the first is kept.
        let mut file = tempfile::Builder::new()
            .prefix(".part-key.")
            .tempfile_in(folder)
            .ok()?;
        file.write_all(&octets).ok()?;
        let _ = persist_new(file.into_temp_path(), &path);
        read(&path).ok()
    }

    fn read(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
        let mut file: File = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        let found = file.metadata()?;
        if !is_private(&found, 0o077) || found.len() != KEY_BYTES as u64 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut octets = [0; KEY_BYTES];
        file.read_exact(&mut octets)?;
        Ok(octets)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::fs;
        use std::os::unix::fs::PermissionsExt;

        type Result = std::result::Result<(), Box<dyn std::error::Error>>;

        #[test]
        fn a_key_is_made_once_and_only_the_user_reads_it() -> Result {
            let base = tempfile::tempdir()?;
            let folder = base.path().join("a/b");
            let first = key(&folder).ok_or("no key")?;
            assert_eq!(key(&folder), Some(first));
            assert_ne!(key(&base.path().join("c")), Some(first));
            assert_eq!(fs::metadata(folder.join("part-key"))?.mode() & 0o7777, 0o600);
            assert_eq!(fs::metadata(&folder)?.mode() & 0o7777, 0o700);
            assert_eq!(fs::read_dir(&folder)?.count(), 1);
            Ok(())
        }

        #[test]
        fn a_key_that_others_may_know_is_not_used() -> Result {
            let base = tempfile::tempdir()?;
            let folder = base.path().join("state");
            key(&folder).ok_or("no key")?;
            let path = folder.join("part-key");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640))?;
            assert_eq!(key(&folder), None, "readable by a group");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            fs::hard_link(&path, base.path().join("other"))?;
            assert_eq!(key(&folder), None, "it has two names");
            fs::remove_file(&path)?;
            std::os::unix::fs::symlink(base.path().join("other"), &path)?;
            assert_eq!(key(&folder), None, "a link");
            fs::remove_file(&path)?;
            fs::write(&path, b"short")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            assert_eq!(key(&folder), None, "too short");
            fs::remove_file(&path)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
            assert_eq!(key(&folder), None, "others may put one there");
            Ok(())
        }
    }
}

/// Parts are found only where they can be locked.
#[cfg(not(unix))]
mod state {
    use std::path::{Path, PathBuf};

    use super::KEY_BYTES;

    pub(crate) fn folder() -> Option<PathBuf> {
        None
    }

    pub(crate) fn open_lock(_: &Path) -> Option<std::fs::File> {
        None
    }

    pub(crate) fn key(_: &Path) -> Option<[u8; KEY_BYTES]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_follows_from_the_url_the_version_the_stage_and_the_key() {
        let key = |url: &str, version: &[u8]| PartKey {
            url: url.to_owned(),
            version: version.to_vec(),
        };
        let one = PartNames::with_key([1; KEY_BYTES]);
        let other = PartNames::with_key([2; KEY_BYTES]);
        let name = |names: &PartNames, url, version| names.name(&key(url, version), Stage::Left);
        let first = name(&one, "u", b"a");
        assert_eq!(first, name(&one, "u", b"a"));
        assert_ne!(first, name(&one, "u", b"b"));
        assert_ne!(first, name(&one, "v", b"a"));
        assert_ne!(first, name(&other, "u", b"a"));
        assert_eq!(first.as_ref().map(String::len), Some(DIGITS));
        // Two versions of a URL have the same beginning.
        let url_of = |name: Option<String>| name.map(|name| name[..URL_DIGITS].to_owned());
        assert_eq!(url_of(first.clone()), url_of(name(&one, "u", b"b")));
        assert_ne!(url_of(first.clone()), url_of(name(&one, "v", b"a")));
        // Only the name of a part that was left outlasts a restart of the machine.
        let written = one.name(&key("u", b"a"), Stage::Written);
        assert_ne!(written, first);
        let one = PartNames::in_folder([1; KEY_BYTES], None, "the next start");
        assert_ne!(one.name(&key("u", b"a"), Stage::Written), written);
        assert_eq!(name(&one, "u", b"a"), first);
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_in_the_state_folder_is_had_once_and_leaves_nothing() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let names = PartNames::in_folder([1; KEY_BYTES], Some(folder.path()), "");
        let lock = names.lock(Path::new("a"));
        assert!(lock.is_ok());
        assert_eq!(names.lock(Path::new("a")).err(), Some(Lock::Busy), "it is held");
        assert!(names.lock(Path::new("b")).is_ok(), "another part");
        drop(lock);
        assert!(names.lock(Path::new("a")).is_ok(), "it was released");
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
        Ok(())
    }
}
