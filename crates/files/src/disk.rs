//! Reading of files, with and without the patience to wait for a disk.
//!
//! A connection's turn must not wait: there, files are read only as far as the system has them in memory. How it tells depends
//! on the file system, which is a [`Volume`]. What would have to wait goes to a blocking job, which either reads, or brings a
//! long range into the page cache so that it can be read without waiting afterwards. Called by `files`, `source` and
//! `file_body`.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;

/// Whether to wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Fail with `WouldBlock` rather than wait.
    AtOnce,
    /// In a blocking job.
    Wait,
}

impl Patience {
    /// Whether this system can do anything at once.
    pub(crate) const AT_ONCE_IS_POSSIBLE: bool = cfg!(target_os = "linux");
}

/// How the file system of a file lets it be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    /// It reads what is in the page cache and fails when something is not (`RWF_NOWAIT`): ext4, XFS, Btrfs and others.
    Tells,
    /// It has no disk to wait for: tmpfs.
    Memory,
    /// It cannot tell, but keeps what was read lately in the page cache of this machine: overlayfs, and all local file systems
    /// where `preadv2` is denied.
    Caches,
    /// It cannot tell, and any read may wait for another process or machine: FUSE, NFS, and what is not known here.
    Waits,
}

/// How far apart octets are looked at to know whether a range is in memory. What is between two that are there and is not
/// itself was given up by the system since they were read, and costs one short read.
const LOOKS_APART: u64 = 128 << 10;

impl Volume {
    /// Fills `buffer` from `offset` on, wherever the file's own position is.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before: it shrank since it was opened. `WouldBlock` when there is no patience for
    /// what it takes.
    pub(crate) fn read_exact_at(
        self,
        file: &File,
        buffer: &mut [u8],
        offset: u64,
        patience: Patience,
    ) -> io::Result<()> {
        match (patience, self) {
            (Patience::Wait, _) | (Patience::AtOnce, Volume::Memory) => read_waiting(file, buffer, offset),
            (Patience::AtOnce, Volume::Tells) => read_at_once(file, buffer, offset),
            (Patience::AtOnce, Volume::Caches | Volume::Waits) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether the system has a range of a file in memory, and the file reaches so far.
    pub(crate) fn is_in_memory(self, file: &File, range: &Range<u64>) -> bool {
        let last = range.end.saturating_sub(1);
        let mut at = range.start;
        loop {
            let looked = self.read_exact_at(file, &mut [0], at.min(last), Patience::AtOnce);
            if looked.is_err() {
                return false;
            }
            if at >= last {
                return true;
            }
            at += LOOKS_APART;
        }
    }

    /// Whether what was read lately can be read again without waiting.
    pub(crate) fn keeps_what_was_read(self) -> bool {
        self != Volume::Waits
    }
}

/// Has the system bring a range into the page cache, and waits until it is there, as far as one octet in 128 KiB tells. Blocks.
///
/// # Errors
/// `UnexpectedEof` when the file ends before; otherwise a read failed.
pub(crate) fn warm(file: &File, range: &Range<u64>) -> io::Result<()> {
    match read_ahead(file, range) {
        true => for_each_look(range, |at| read_waiting(file, &mut [0], at)),
        false => for_each_stretch(range, |space, at| read_waiting(file, space, at)),
    }
}

/// Looks at one octet in 128 KiB, the last one among them, from the front on. What was asked for first comes first: the last octet
/// of a stretch is there when the others are.
fn for_each_look(range: &Range<u64>, mut look: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        at = at.saturating_add(LOOKS_APART).min(range.end);
        look(at - 1)?;
    }
    Ok(())
}

/// Reads all octets, 128 KiB at a time.
fn for_each_stretch(
    range: &Range<u64>,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut space = vec![0; LOOKS_APART as usize];
    let mut at = range.start;
    while at < range.end {
        let length = LOOKS_APART.min(range.end - at);
        read(space.get_mut(..length as usize).unwrap_or_default(), at)?;
        at += length;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::volume_of;
#[cfg(target_os = "linux")]
use linux::{read_ahead, read_at_once};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{PoisonError, RwLock};

    use rustix::fs::{Advice, fadvise, fstatfs};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::*;
    use crate::optional::Optional;

    /// `preadv2` with `RWF_NOWAIT`, whatever the file system.
    static NOWAIT: Optional = Optional::new();

    /// `posix_fadvise`.
    static ADVICE: Optional = Optional::new();

    /// Devices whose files have been found not to be read so, and what they are instead. None is looked for before one is known.
    static STRANGE: RwLock<Vec<(u64, Volume)>> = RwLock::new(Vec::new());
    static SOME_ARE_STRANGE: AtomicBool = AtomicBool::new(false);

    /// As many are remembered. Whoever mounts more costs one more failing call a file.
    const MOST_STRANGE: usize = 64;

    /// Local file systems whose reads go through the page cache (`statfs(2)`, `linux/magic.h`).
    const CACHING: [u32; 12] = [
        0x794c_7630, // overlayfs
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // XFS
        0x9123_683e, // Btrfs
        0xf2f5_2010, // F2FS
        0xca45_1a4e, // bcachefs
        0x2fc1_2fc1, // ZFS
        0xe0f5_e1e2, // EROFS
        0x7371_7368, // squashfs
        0x0000_9660, // ISO 9660
        0x4d44,      // FAT
        0x2011_bab0, // exFAT
    ];

    /// tmpfs and ramfs.
    const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

    /// How an open file can be read.
    pub(crate) fn volume_of(file: &File, metadata: &Metadata) -> Volume {
        if !SOME_ARE_STRANGE.load(Ordering::Relaxed) {
            return Volume::Tells;
        }
        match known(metadata.dev()) {
            Some(volume) => volume,
            None if NOWAIT.is_denied() => learn(file),
            None => Volume::Tells,
        }
    }

    fn known(device: u64) -> Option<Volume> {
        let strange = STRANGE.read().unwrap_or_else(PoisonError::into_inner);
        strange.iter().find(|row| row.0 == device).map(|row| row.1)
    }

    /// Remembers what the file system of a file is, on which `RWF_NOWAIT` failed.
    fn learn(file: &File) -> Volume {
        // The type has another width and sign on each architecture.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::unnecessary_cast
        )]
        let volume = match fstatfs(file).map(|stat| stat.f_type as u32) {
            Ok(kind) if MEMORY.contains(&kind) => Volume::Memory,
            Ok(kind) if CACHING.contains(&kind) => Volume::Caches,
            _ => Volume::Waits,
        };
        if let Ok(metadata) = file.metadata() {
            let mut strange = STRANGE.write().unwrap_or_else(PoisonError::into_inner);
            remember(&mut strange, metadata.dev(), volume);
        }
        SOME_ARE_STRANGE.store(true, Ordering::Relaxed);
        volume
    }

    /// Adds a device that is not there yet, in place of the oldest one when there are as many as are remembered.
    fn remember(strange: &mut Vec<(u64, Volume)>, device: u64, volume: Volume) {
        if !strange.iter().any(|row| row.0 == device) {
            if strange.len() == MOST_STRANGE {
                strange.remove(0);
            }
            strange.push((device, volume));
        }
    }

    pub(super) fn read_at_once(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let mut space = [io::IoSliceMut::new(buffer)];
            match preadv2(file, &mut space, offset, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) if error == Errno::OPNOTSUPP || NOWAIT.denies(error) => {
                    return match learn(file) {
                        Volume::Memory => read_waiting(file, buffer, offset),
                        _ => Err(io::ErrorKind::WouldBlock.into()),
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the system has begun to read a range.
    pub(super) fn read_ahead(file: &File, range: &Range<u64>) -> bool {
        advise(&ADVICE, file, range)
    }

    /// The same by `call`, which may have been denied.
    fn advise(call: &Optional, file: &File, range: &Range<u64>) -> bool {
        let Some(length) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) else {
            return true;
        };
        if call.is_denied() {
            return false;
        }
        match fadvise(file, range.start, Some(length), Advice::WillNeed) {
            Ok(()) => true,
            Err(error) => {
                call.denies(error);
                false
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        use super::*;

        #[test]
        fn a_range_is_read_ahead_unless_the_call_is_denied_or_fails() {
            let file = tempfile::tempfile().unwrap();
            let call = Optional::new();
            assert!(advise(&call, &file, &(0..1)));
            assert!(read_ahead(&file, &(0..1)));
            // No file system reads a FIFO ahead (ESPIPE), and that is no denial.
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("fifo");
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let pipe = File::options().read(true).write(true).open(path).unwrap();
            assert!(!advise(&call, &pipe, &(0..1)));
            assert!(!read_ahead(&pipe, &(0..1)));
            assert!(!call.is_denied());
            assert!(advise(&call, &pipe, &(7..7)), "nothing is to be read");

            assert!(call.denies(Errno::NOSYS));
            assert!(!advise(&call, &file, &(0..1)));
            assert!(advise(&call, &file, &(7..7)), "nothing is to be read");
        }

        #[test]
        fn the_kind_of_a_file_system_is_remembered_once_by_its_device() {
            // A file system that is neither local nor in memory.
            let file = File::open("/proc/self/status").unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!(known(metadata.dev()), None);
            assert_eq!(volume_of(&file, &metadata), Volume::Tells, "nothing is known yet");
            for _ in 0..2 {
                assert_eq!(learn(&file), Volume::Waits);
                assert_eq!(known(metadata.dev()), Some(Volume::Waits));
                assert_eq!(volume_of(&file, &metadata), Volume::Waits);
            }
            let strange = STRANGE.read().unwrap();
            assert_eq!(strange.iter().filter(|row| row.0 == metadata.dev()).count(), 1);
        }

        #[test]
        fn the_last_64_devices_are_remembered() {
            let mut strange = Vec::new();
            for device in (0..64).chain(0..64) {
                remember(&mut strange, device, Volume::Memory);
            }
            let devices = |strange: &[(u64, Volume)]| strange.iter().map(|row| row.0).collect::<Vec<_>>();
            assert_eq!(devices(&strange), (0..64).collect::<Vec<_>>());
            remember(&mut strange, 99, Volume::Caches);
            assert_eq!(devices(&strange), (1..64).chain([99]).collect::<Vec<_>>());
            assert_eq!(strange.last(), Some(&(99, Volume::Caches)));
        }

        #[test]
        fn what_is_read_at_once_is_what_the_file_has_or_the_end_of_it() {
            let file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &file, b"0123456789").unwrap();
            let mut buffer = [0; 4];
            match read_at_once(&file, &mut buffer, 3) {
                Ok(()) => assert_eq!(&buffer, b"3456"),
                // It cannot tell without waiting (overlayfs).
                Err(error) => return assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            let beyond = read_at_once(&file, &mut buffer, 8).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(&buffer[..2], b"89");
            assert!(read_at_once(&file, &mut [], 100).is_ok());
        }
    }
}

/// How an open file can be read.
#[cfg(not(target_os = "linux"))]
pub(crate) fn volume_of(_: &File, _: &Metadata) -> Volume {
    Volume::Waits
}

#[cfg(not(target_os = "linux"))]
fn read_at_once(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(not(target_os = "linux"))]
fn read_ahead(_: &File, _: &Range<u64>) -> bool {
    false
}

#[cfg(unix)]
fn read_waiting(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_waiting(file: &File, mut buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                buffer = buffer.get_mut(n..).unwrap_or_default();
                at += n as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: u64 = 131_072;

    #[test]
    fn a_range_is_looked_at_every_128_kib_and_at_its_last_octet() {
        let looks = |range: Range<u64>| {
            let mut looks = Vec::new();
            for_each_look(&range, |at| {
                looks.push(at);
                Ok(())
            })
            .unwrap();
            looks
        };
        assert_eq!(looks(7..7), [0_u64; 0]);
        assert_eq!(looks(7..8), [7]);
        assert_eq!(looks(0..APART), [APART - 1]);
        assert_eq!(looks(0..APART + 1), [APART - 1, APART]);
        assert_eq!(looks(5..300_000), [APART + 4, 2 * APART + 4, 299_999]);
    }

    #[test]
    fn a_range_is_read_whole_in_stretches_of_128_kib() {
        let stretches = |range: Range<u64>| {
            let mut stretches = Vec::new();
            for_each_stretch(&range, |space, at| {
                stretches.push((at, space.len() as u64));
                Ok(())
            })
            .unwrap();
            stretches
        };
        assert_eq!(stretches(7..7), []);
        assert_eq!(stretches(7..8), [(7, 1)]);
        assert_eq!(stretches(0..APART), [(0, APART)]);
        assert_eq!(
            stretches(5..300_000),
            [
                (5, APART),
                (APART + 5, APART),
                (2 * APART + 5, 299_995 - 2 * APART)
            ]
        );
    }

    #[test]
    fn a_failure_ends_the_reading_of_a_range() {
        let mut count = 0;
        let mut fail_second = || {
            count += 1;
            match count {
                2 => Err(io::ErrorKind::Other.into()),
                _ => Ok(()),
            }
        };
        assert!(for_each_look(&(0..4 * APART), |_| fail_second()).is_err());
        assert_eq!(count, 2);
        count = 0;
        let mut fail_second = || {
            count += 1;
            match count {
                2 => Err(io::ErrorKind::Other.into()),
                _ => Ok(()),
            }
        };
        assert!(for_each_stretch(&(0..4 * APART), |_, _| fail_second()).is_err());
        assert_eq!(count, 2);
    }

    fn file(length: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn a_range_that_reaches_beyond_the_file_is_neither_brought_into_memory_nor_there() {
        for length in [1, APART, APART + 1, 300_000] {
            let file = file(length);
            warm(&file, &(0..length)).unwrap();
            let error = warm(&file, &(0..length + 1)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
            assert!(Volume::Memory.is_in_memory(&file, &(0..length)), "{length}");
            assert!(
                Volume::Memory.is_in_memory(&file, &(length - 1..length)),
                "{length}"
            );
            assert!(!Volume::Memory.is_in_memory(&file, &(0..length + 1)), "{length}");
            assert!(!Volume::Caches.is_in_memory(&file, &(0..length)), "{length}");
            assert!(!Volume::Waits.is_in_memory(&file, &(0..length)), "{length}");
        }
    }

    #[test]
    fn only_a_file_system_that_can_tell_is_read_without_patience() {
        let file = file(10);
        let read = |volume: Volume, offset, patience| {
            let read = volume.read_exact_at(&file, &mut [1; 4], offset, patience);
            read.map_err(|error| error.kind())
        };
        for volume in [Volume::Tells, Volume::Memory, Volume::Caches, Volume::Waits] {
            assert_eq!(read(volume, 6, Patience::Wait), Ok(()), "{volume:?}");
            let beyond = read(volume, 7, Patience::Wait);
            assert_eq!(beyond, Err(io::ErrorKind::UnexpectedEof), "{volume:?}");
        }
        assert_eq!(read(Volume::Memory, 6, Patience::AtOnce), Ok(()));
        for volume in [Volume::Caches, Volume::Waits] {
            let at_once = read(volume, 6, Patience::AtOnce);
            assert_eq!(at_once, Err(io::ErrorKind::WouldBlock), "{volume:?}");
        }
        assert!(Volume::Caches.keeps_what_was_read() && Volume::Tells.keeps_what_was_read());
        assert!(!Volume::Waits.keeps_what_was_read());
    }
}
