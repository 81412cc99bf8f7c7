//! The limits on uploads: how many are in progress, the memory of their batches, and the free space of the disk. Called
//! by `uploads` and `writer`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::budget::{Budget, Share};
use crate::jobs::Jobs;
use crate::peer::Peer;
use crate::settings::Settings;

/// The shortest batch, in bytes, when many uploads share the memory: a page.
const SMALLEST_BATCH: usize = 4 * 1024;

/// The memory of the batches of all uploads, which may exceed it by the frame that fills each.
const ALL_BATCHES_BYTES: usize = 64 << 20;

/// How much of a disk stays free by default: this many bytes, or this share of a smaller disk. The share applies to
/// inodes too.
const LEAST_FREE_BYTES: u64 = 1 << 30;
const LEAST_FREE_SHARE: u64 = 20;

/// The limits that all uploads of a service share.
#[derive(Debug)]
pub(crate) struct UploadLimits {
    /// One for each upload that holds memory or a descriptor.
    slots: Arc<Budget>,
    batch_bytes: usize,
    flush_after: Duration,
    least_free: Option<u64>,
    /// Locked from when an upload's preconditions are checked until it has its name.
    publishing: Mutex<()>,
    /// What writes to the disk, with the share of each peer.
    jobs: Arc<Jobs>,
    /// Replaces the answer of the file system.
    #[cfg(test)]
    pub(crate) simulated: std::sync::Mutex<Option<Space>>,
}

/// The space of a file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Bytes that this process can still allocate.
    pub(crate) free: u64,
    pub(crate) total: u64,
    /// 0 of 0 where the file system has no limit on files.
    pub(crate) free_inodes: u64,
    pub(crate) inodes: u64,
}

impl UploadLimits {
    pub(crate) fn new(settings: &Settings, jobs: Arc<Jobs>) -> Arc<UploadLimits> {
        Arc::new(UploadLimits {
            slots: Budget::of_slots(settings.max_uploads),
            batch_bytes: settings.limits.batch_bytes,
            flush_after: settings.limits.flush_after,
            least_free: settings.min_free_bytes,
            publishing: Mutex::new(()),
            jobs,
            #[cfg(test)]
            simulated: std::sync::Mutex::new(None),
        })
    }

    /// Admits an upload; `None` when all slots are taken, or the peer has half of them.
    pub(crate) fn admit(&self, peer: Option<Peer>) -> Option<Share> {
        self.slots.slot(peer)
    }

    /// Whether an upload of this peer would not be admitted now.
    pub(crate) fn is_full(&self, peer: Option<Peer>) -> bool {
        self.admit(peer).is_none()
    }

    /// Waits for the turn of an upload with preconditions to be published. Blocks.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The blocking jobs, which uploads share with responses.
    pub(crate) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// How many uploads hold memory or a descriptor.
    pub(crate) fn in_progress(&self) -> usize {
        self.slots.used()
    }

    /// How many bytes an upload gathers before it writes them. Each upload may have two batches: one gathers while the
    /// other is written.
    pub(crate) fn batch_bytes(&self) -> usize {
        let share = ALL_BATCHES_BYTES / (2 * self.in_progress().max(1));
        share.max(SMALLEST_BATCH).min(self.batch_bytes)
    }

    /// How long gathered bytes may wait to be written.
    pub(crate) fn flush_after(&self) -> Duration {
        self.flush_after
    }

    /// Checks that the disk has space for a new file of this size. Blocks.
    ///
    /// # Errors
    /// `StorageFull`: it has not.
    pub(crate) fn check_new(&self, directory: &impl OnDisk, bytes: u64) -> io::Result<()> {
        let space = self.space(directory);
        let enough = space.is_none_or(|space| {
            let few_inodes = space.free_inodes < space.inodes / LEAST_FREE_SHARE;
            space.leaves(self.least_free, bytes) && (!few_inodes || self.least_free == Some(0))
        });
        full_unless(enough)
    }

    /// Checks that the disk has space for this many more bytes of a file. Blocks.
    ///
    /// # Errors
    /// `StorageFull`: it has not.
    pub(crate) fn check_more(&self, file: &impl OnDisk, bytes: u64) -> io::Result<()> {
        let space = self.space(file);
        full_unless(space.is_none_or(|space| space.leaves(self.least_free, bytes)))
    }

    fn space(&self, destination: &impl OnDisk) -> Option<Space> {
        #[cfg(test)]
        if let Some(simulated) = *self.simulated.lock().unwrap() {
            return Some(simulated);
        }
        Space::of(destination)
    }
}

fn full_unless(enough: bool) -> io::Result<()> {
    enough
        .then_some(())
        .ok_or_else(|| io::ErrorKind::StorageFull.into())
}

/// A handle on a file system, to ask for its free space.
#[cfg(unix)]
pub(crate) use std::os::fd::AsFd as OnDisk;

#[cfg(not(unix))]
pub(crate) trait OnDisk {}

#[cfg(not(unix))]
impl<T> OnDisk for T {}

impl Space {
    /// `None` when the system does not say. Then only a full disk ends an upload.
    #[cfg(unix)]
    fn of(destination: &impl OnDisk) -> Option<Space> {
        let stat = rustix::fs::fstatvfs(destination).ok()?;
        // Some network file systems report zeros.
        (stat.f_blocks > 0).then(|| Space {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_inodes: stat.f_favail,
            inodes: stat.f_files,
        })
    }

    #[cfg(not(unix))]
    fn of(_: &impl OnDisk) -> Option<Space> {
        None
    }

    /// Whether enough stays free after this many more bytes.
    fn leaves(self, least: Option<u64>, bytes: u64) -> bool {
        let least = least.unwrap_or(LEAST_FREE_BYTES.min(self.total / LEAST_FREE_SHARE));
        least == 0 || self.free >= least.saturating_add(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(change: impl FnOnce(&mut Settings)) -> Arc<UploadLimits> {
        let mut settings = Settings::default();
        change(&mut settings);
        UploadLimits::new(&settings, Jobs::new(1))
    }

    #[test]
    fn what_uploads_gather_stays_within_the_bound_for_all_of_them() {
        let limits = limits(|settings| settings.max_uploads = 10_000);
        let mut slots = Vec::new();
        for _ in 0..10_000 {
            slots.extend(limits.admit(None));
            let batches = 2 * limits.batch_bytes() * slots.len();
            let least = 2 * SMALLEST_BATCH * slots.len();
            assert!(batches <= least.max(64 << 20), "{batches} for {}", slots.len());
            assert!(limits.batch_bytes() <= 256 << 10);
        }
        assert_eq!(limits.batch_bytes(), SMALLEST_BATCH);
        slots.clear();
        assert_eq!(limits.batch_bytes(), 256 << 10);
    }

    fn space(free: u64, total: u64) -> Space {
        Space {
            free,
            total,
            free_inodes: 0,
            inodes: 0,
        }
    }

    #[test]
    fn a_disk_keeps_a_gib_or_a_twentieth_unless_told_otherwise() {
        const GIB: u64 = 1 << 30;
        for (free, total, least, bytes, leaves) in [
            (2 * GIB, 100 * GIB, None, GIB, true),
            (2 * GIB, 100 * GIB, None, GIB + 1, false),
            (GIB, 10 * GIB, None, GIB / 2, true),
            (GIB, 10 * GIB, None, GIB / 2 + 1, false),
            (GIB, 10 * GIB, Some(0), 5 * GIB, true),
            (GIB, 10 * GIB, Some(GIB), 0, true),
            (GIB, 10 * GIB, Some(GIB), 1, false),
            (u64::MAX, u64::MAX, Some(u64::MAX), u64::MAX, true),
            (0, 10 * GIB, None, 0, false),
        ] {
            let found = space(free, total).leaves(least, bytes);
            assert_eq!(found, leaves, "{free} {total} {least:?} {bytes}");
        }
    }

    #[test]
    fn inodes_are_kept_as_bytes_are_where_they_are_counted() {
        let directory = tempfile::tempfile().unwrap();
        let of = |free_inodes, inodes, least| {
            let limits = limits(|settings| settings.min_free_bytes = least);
            *limits.simulated.lock().unwrap() = Some(Space {
                free_inodes,
                inodes,
                ..space(1 << 40, 1 << 40)
            });
            (
                limits.check_new(&directory, 0).is_ok(),
                limits.check_more(&directory, 0).is_ok(),
            )
        };
        assert_eq!(of(50, 1_000, None), (true, true));
        assert_eq!(of(49, 1_000, None), (false, true));
        assert_eq!(of(49, 1_000, Some(0)), (true, true));
        assert_eq!(of(0, 0, None), (true, true));
    }

    #[cfg(unix)]
    #[test]
    fn the_system_says_how_much_is_free() {
        let file = tempfile::tempfile().unwrap();
        let space = Space::of(&file).unwrap();
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        let limits = limits(|settings| settings.min_free_bytes = Some(u64::MAX));
        let error = limits.check_more(&file, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
