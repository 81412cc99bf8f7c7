//! The identity of a file in one state, compared to detect changes.

use std::fs::Metadata;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cap_std::fs::Dir;

/// One state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    length: u64,
    /// mtime and ctime: seconds and nanoseconds since the epoch.
    modified: (i64, i64),
    changed: (i64, i64),
}

#[cfg(unix)]
impl Identity {
    /// Of an open file; `None` where files have no such identity.
    pub(crate) fn of(metadata: &Metadata) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt as _;
        Some(Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Of the file that has a path now. This follows links out of the root too. That is safe: the caller only compares the
    /// result with the identity of a file that was opened beneath the root.
    pub(crate) fn now_of(root: &Dir, path: &str) -> Option<Identity> {
        use rustix::fs::{AtFlags, statat};
        let stat = statat(root, path, AtFlags::empty()).ok()?;
        // The widths of these differ between systems.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        Some(Identity {
            device: u64::try_from(stat.st_dev).ok()?,
            inode: stat.st_ino as u64,
            length: u64::try_from(stat.st_size).ok()?,
            modified: (stat.st_mtime as i64, i64::try_from(stat.st_mtime_nsec).ok()?),
            changed: (stat.st_ctime as i64, i64::try_from(stat.st_ctime_nsec).ok()?),
        })
    }
}

#[cfg(not(unix))]
impl Identity {
    /// Of an open file; `None` where files have no such identity.
    pub(crate) fn of(_: &Metadata) -> Option<Identity> {
        None
    }

    /// Of the file that has a path now.
    pub(crate) fn now_of(_: &Dir, _: &str) -> Option<Identity> {
        None
    }
}

impl Identity {
    /// Whether this is the same file with the same content, as far as mtime tells. ctime is not compared: a new hard link
    /// changes it too.
    pub(crate) fn has_same_content(&self, other: &Identity) -> bool {
        let content = |of: &Identity| (of.device, of.inode, of.length, of.modified);
        content(self) == content(other)
    }

    /// Whether nothing has changed for `time`.
    pub(crate) fn is_unchanged_for(&self, now: SystemTime, time: Duration) -> bool {
        let Some(limit) = now
            .checked_sub(time)
            .and_then(|limit| limit.duration_since(UNIX_EPOCH).ok())
        else {
            return false;
        };
        let last = self.modified.max(self.changed);
        i64::try_from(limit.as_secs()).is_ok_and(|secs| last <= (secs, i64::from(limit.subsec_nanos())))
    }
}
