//! The temporary names that a later run finds. They are derived with a secret key, so nobody else can predict them.
//!
//! The key is 32 random bytes in `fullbore/part-key` of the user's state folder (`$XDG_STATE_HOME`, or `.local/state` in
//! `$HOME`), which only the user can read. Without such a folder, temporary names are random, and no later run finds them.

use std::path::PathBuf;
use std::sync::OnceLock;

use ring::hmac;

/// The bytes of the key, and of a name.
const KEY_BYTES: usize = 32;
const NAME_BYTES: usize = 16;

/// Derives names from version keys. The secret key is read for the first name, on a blocking thread.
pub(crate) struct PartNames {
    folder: Option<PathBuf>,
    key: OnceLock<Option<hmac::Key>>,
}

impl PartNames {
    /// With the key of the current user.
    pub(crate) fn of_user() -> Self {
        Self {
            folder: state::folder(),
            key: OnceLock::new(),
        }
    }

    /// The derived part of a name; `None` without a secret key.
    pub(crate) fn name(&self, version_key: &[u8]) -> Option<String> {
        let key = self.key.get_or_init(|| {
            let octets = state::key(self.folder.as_deref()?)?;
            Some(hmac::Key::new(hmac::HMAC_SHA256, &octets))
        });
        let tag = hmac::sign(key.as_ref()?, version_key);
        let octets = tag.as_ref().get(..NAME_BYTES)?;
        Some(octets.iter().map(|octet| format!("{octet:02x}")).collect())
    }

    #[cfg(test)]
    pub(crate) fn with_key(octets: [u8; KEY_BYTES]) -> Self {
        Self {
            folder: None,
            key: OnceLock::from(Some(hmac::Key::new(hmac::HMAC_SHA256, &octets))),
        }
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

    use super::super::private::{is_private, user};
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
        let _ = file.persist_noclobber(&path);
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

    pub(crate) fn key(_: &Path) -> Option<[u8; KEY_BYTES]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_follows_from_the_mark_and_the_key() {
        let one = PartNames::with_key([1; KEY_BYTES]);
        assert_eq!(one.name(b"a"), one.name(b"a"));
        assert_ne!(one.name(b"a"), one.name(b"b"));
        assert_ne!(one.name(b"a"), PartNames::with_key([2; KEY_BYTES]).name(b"a"));
        assert_eq!(one.name(b"a").map(|name| name.len()), Some(2 * NAME_BYTES));
    }
}
