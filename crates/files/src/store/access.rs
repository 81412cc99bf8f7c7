//! Who may read and write the file of an upload. Called by `store`.

use std::fs::File;
use std::io;

use cap_std::fs::{Dir, OpenOptions};

/// Who may read and write the file that an upload replaces; nothing if there is none, or a link that leads out.
#[derive(Clone, Copy)]
#[cfg_attr(not(unix), derive(Default))]
pub(super) struct Access {
    /// The permissions, the owner and the group.
    #[cfg(unix)]
    of_existing: Option<(u32, u32, u32)>,
}

#[cfg(unix)]
impl Access {
    /// That of the file with this name.
    pub(super) fn of(directory: &Dir, name: &str) -> Access {
        use cap_std::fs::MetadataExt as _;
        let existing = directory
            .metadata(name)
            .ok()
            .filter(|existing| existing.is_file());
        Access {
            // Not the bits that give a program the rights of its owner.
            of_existing: existing.map(|it| (it.mode() & 0o777, it.uid(), it.gid())),
        }
    }

    /// The permissions of a new file, from which the system takes those of the umask.
    pub(super) fn permissions(self) -> u32 {
        0o666 & self.of_existing.map_or(0o666, |(permissions, ..)| permissions)
    }

    pub(super) fn limit(self, options: &mut OpenOptions) {
        use cap_std::fs::OpenOptionsExt as _;
        options.mode(self.permissions());
    }

    /// The same for a file that its owner opens again.
    pub(super) fn of_owner_at_least(self) -> Access {
        let of_existing = self.of_existing;
        Access {
            of_existing: of_existing.map(|(permissions, owner, group)| (permissions | 0o600, owner, group)),
        }
    }

    /// Gives the file the same. Fewer may read it if the owner or the group cannot be set.
    pub(super) fn give_to(self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
        let Some((mut permissions, owner, group)) = self.of_existing else {
            return Ok(());
        };
        let now = file.metadata()?;
        if now.gid() != group && fchown(file, None, Some(group)).is_err() {
            // The server's group gets no more than everybody has.
            permissions &= 0o707 | (permissions & 0o007) << 3;
        }
        file.set_permissions(std::fs::Permissions::from_mode(permissions))?;
        if now.uid() != owner {
            // Only a privileged process may. Otherwise the file is the server's, as a new one is.
            let _ = fchown(file, Some(owner), None);
        }
        Ok(())
    }
}

#[cfg(not(unix))]
impl Access {
    pub(super) fn of(_: &Dir, _: &str) -> Access {
        Access::default()
    }

    pub(super) fn permissions(self) -> u32 {
        0o666
    }

    pub(super) fn limit(self, _: &mut OpenOptions) {}

    pub(super) fn of_owner_at_least(self) -> Access {
        self
    }

    pub(super) fn give_to(self, _: &File) -> io::Result<()> {
        Ok(())
    }
}
