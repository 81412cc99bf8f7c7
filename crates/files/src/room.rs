//! What uploads may take: how many are under way at once, the memory that their batches share, and how much of the disk
//! stays free. Called by `uploads` and `writer`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Settings;

/// Batches are never shorter than this however many uploads share the memory, in bytes: a page.
const SMALLEST_BATCH: usize = 4 * 1024;

/// How much of a disk stays free unless a setting says otherwise: this many bytes, or this share of a smaller disk. The
/// share holds for its inodes too.
const LEAST_FREE_BYTES: u64 = 1 << 30;
const LEAST_FREE_SHARE: u64 = 20;

/// What all uploads of a service share.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    batch_bytes: usize,
    all_batches_bytes: usize,
    flush_after: Duration,
    least_free: Option<u64>,
    /// How many uploads hold memory or a descriptor; changed with `of_address` locked.
    under_way: AtomicUsize,
    /// How many of them are those of one address, where addresses are known.
    of_address: Mutex<HashMap<IpAddr, usize>>,
    /// What the disk says, in its place.
    #[cfg(test)]
    pub(crate) simulated: std::sync::Mutex<Option<Space>>,
}

/// One upload's place among those that may be under way. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    room: Arc<Room>,
    address: Option<IpAddr>,
}

/// What a file system says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Bytes that this process may still take.
    pub(crate) free: u64,
    pub(crate) total: u64,
    /// 0 of 0 where files are not counted.
    pub(crate) free_inodes: u64,
    pub(crate) inodes: u64,
}

impl Room {
    pub(crate) fn new(settings: &Settings) -> Arc<Room> {
        Arc::new(Room {
            most: settings.max_uploads,
            batch_bytes: settings.upload_batch_bytes,
            all_batches_bytes: settings.all_batches_bytes,
            flush_after: settings.upload_flush_after,
            least_free: settings.min_free_bytes,
            under_way: AtomicUsize::new(0),
            of_address: Mutex::new(HashMap::new()),
            #[cfg(test)]
            simulated: std::sync::Mutex::new(None),
        })
    }

    /// Takes an upload from this address in; none when there are as many as there may be, or its address has half of
    /// that already.
    pub(crate) fn admit(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Slot> {
        let address = peer.map(group);
        let mut of_address = self.lock();
        if !self.has_slot(&of_address, address) {
            return None;
        }
        if let Some(address) = address {
            *of_address.entry(address).or_default() += 1;
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Some(Slot {
            room: Arc::clone(self),
            address,
        })
    }

    /// Whether no upload from this address would be admitted now.
    pub(crate) fn is_full(&self, peer: Option<IpAddr>) -> bool {
        !self.has_slot(&self.lock(), peer.map(group))
    }

    fn has_slot(&self, of_address: &HashMap<IpAddr, usize>, address: Option<IpAddr>) -> bool {
        let of_this = address.and_then(|address| of_address.get(&address));
        self.under_way() < self.most && of_this.is_none_or(|&count| count < self.most.div_ceil(2))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // No code that holds the lock panics, and the counts are sound between any two steps.
        self.of_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many uploads hold memory or a descriptor.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// How many bytes an upload gathers before it writes them: each may have two batches, one of them at the disk.
    pub(crate) fn batch_bytes(&self) -> usize {
        let share = self.all_batches_bytes / (2 * self.under_way().max(1));
        share.max(SMALLEST_BATCH).min(self.batch_bytes)
    }

    /// How long what was gathered may wait to be written.
    pub(crate) fn flush_after(&self) -> Duration {
        self.flush_after
    }

    /// Whether the disk has room for a new file of so many bytes. Blocks.
    ///
    /// # Errors
    /// `StorageFull` when it has not.
    pub(crate) fn check_new(&self, directory: &impl OnDisk, bytes: u64) -> io::Result<()> {
        let space = self.space(directory);
        let enough = space.is_none_or(|space| {
            let few_inodes = space.free_inodes < space.inodes / LEAST_FREE_SHARE;
            space.leaves(self.least_free, bytes) && (!few_inodes || self.least_free == Some(0))
        });
        full_unless(enough)
    }

    /// Whether the disk has room for so many bytes more of a file. Blocks.
    ///
    /// # Errors
    /// `StorageFull` when it has not.
    pub(crate) fn check_more(&self, file: &impl OnDisk, bytes: u64) -> io::Result<()> {
        let space = self.space(file);
        full_unless(space.is_none_or(|space| space.leaves(self.least_free, bytes)))
    }

    fn space(&self, place: &impl OnDisk) -> Option<Space> {
        #[cfg(test)]
        if let Some(simulated) = *self.simulated.lock().unwrap() {
            return Some(simulated);
        }
        Space::of(place)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut of_address = self.room.lock();
        self.room.under_way.fetch_sub(1, Ordering::Relaxed);
        if let Some(Entry::Occupied(mut count)) = self.address.map(|address| of_address.entry(address)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The addresses that count as one: an IPv4 address, written as IPv6 or not, and the /64 of an IPv6 address, which a
/// single host usually has.
fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

fn full_unless(enough: bool) -> io::Result<()> {
    match enough {
        true => Ok(()),
        false => Err(io::ErrorKind::StorageFull.into()),
    }
}

/// Something on a file system that can be asked how much of it is free.
#[cfg(unix)]
pub(crate) use std::os::fd::AsFd as OnDisk;

#[cfg(not(unix))]
pub(crate) trait OnDisk {}

#[cfg(not(unix))]
impl<T> OnDisk for T {}

impl Space {
    /// None when the system does not say; then only a full disk ends an upload.
    #[cfg(unix)]
    fn of(place: &impl OnDisk) -> Option<Space> {
        let said = rustix::fs::fstatvfs(place).ok()?;
        // Some network file systems say zero of everything.
        (said.f_blocks > 0).then(|| Space {
            free: said.f_bavail.saturating_mul(said.f_frsize),
            total: said.f_blocks.saturating_mul(said.f_frsize),
            free_inodes: said.f_favail,
            inodes: said.f_files,
        })
    }

    #[cfg(not(unix))]
    fn of(_: &impl OnDisk) -> Option<Space> {
        None
    }

    /// Whether as much as must stay free does, once so many more bytes are taken.
    fn leaves(self, least: Option<u64>, bytes: u64) -> bool {
        let least = least.unwrap_or(LEAST_FREE_BYTES.min(self.total / LEAST_FREE_SHARE));
        least == 0 || self.free >= least.saturating_add(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(change: impl FnOnce(&mut Settings)) -> Arc<Room> {
        let mut settings = Settings::default();
        change(&mut settings);
        Room::new(&settings)
    }

    #[test]
    fn no_more_are_admitted_than_may_be_and_each_gives_its_place_back() {
        let room = room(|settings| settings.max_uploads = 2);
        let first = room.admit(None).unwrap();
        let second = room.admit(None).unwrap();
        assert!(room.is_full(None));
        assert!(room.admit(None).is_none());
        assert_eq!(room.under_way(), 2);
        drop(first);
        assert!(!room.is_full(None));
        let third = room.admit(None).unwrap();
        assert!(room.admit(None).is_none());
        drop((second, third));
        assert_eq!(room.under_way(), 0);
    }

    #[test]
    fn one_address_has_half_of_the_slots_at_most() {
        let room = room(|settings| settings.max_uploads = 5);
        let at = |address: &str| Some(address.parse().unwrap());
        let mut slots = Vec::new();
        // The addresses of a row are one host's.
        for row in [
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"],
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:1::1"],
        ] {
            let before = slots.len();
            slots.extend(row.iter().filter_map(|address| room.admit(at(address))));
            assert_eq!(slots.len() - before, (5 - before).min(3));
            assert!(room.is_full(at(row[0])));
        }
        assert!(room.is_full(at("192.0.2.2")) && room.is_full(None));
        slots.pop();
        assert!(!room.is_full(at("192.0.2.2")) && !room.is_full(at("2001:db8:0:1::1")));
        assert!(room.is_full(at("192.0.2.1")));
        slots.clear();
        assert_eq!(room.under_way(), 0);
        assert!(room.lock().is_empty());
    }

    #[test]
    fn what_uploads_gather_stays_within_the_bound_for_all_of_them() {
        let room = room(|settings| settings.max_uploads = 10_000);
        let mut slots = Vec::new();
        for _ in 0..10_000 {
            slots.extend(room.admit(None));
            let batches = 2 * room.batch_bytes() * slots.len();
            let least = 2 * SMALLEST_BATCH * slots.len();
            assert!(batches <= least.max(64 << 20), "{batches} for {}", slots.len());
            assert!(room.batch_bytes() <= 256 << 10);
        }
        assert_eq!(room.batch_bytes(), SMALLEST_BATCH);
        slots.clear();
        assert_eq!(room.batch_bytes(), 256 << 10);
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
            let room = room(|settings| settings.min_free_bytes = least);
            *room.simulated.lock().unwrap() = Some(Space {
                free_inodes,
                inodes,
                ..space(1 << 40, 1 << 40)
            });
            (
                room.check_new(&directory, 0).is_ok(),
                room.check_more(&directory, 0).is_ok(),
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
        let room = room(|settings| settings.min_free_bytes = Some(u64::MAX));
        let error = room.check_more(&file, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
