//! Reading files, with and without blocking.
//!
//! A connection's task must not block: it reads only what the kernel has in memory. How the kernel tells depends on the
//! file system ([`FileSystem`]). Everything else goes to a blocking job, which reads a range, or brings it into the page
//! cache for a later read that does not block. Called by `files`, `source` and `file_body`.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;

/// Whether an operation may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It fails with `WouldBlock` instead.
    Forbidden,
    /// It runs in a blocking job.
    Allowed,
}

impl Blocking {
    /// Whether this system has calls that do not block.
    pub(crate) const CAN_BE_AVOIDED: bool = cfg!(target_os = "linux");
}

/// How files of a file system can be read without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// `RWF_NOWAIT` reads what is in the page cache and fails otherwise: ext4, XFS, Btrfs and others.
    Nowait,
    /// There is no disk to wait for: tmpfs.
    Memory,
    /// There is no such read, but recently read ranges stay in the page cache: overlayfs, and all local file systems where
    /// `preadv2` is denied.
    PageCache,
    /// Any read may wait for another process or machine: FUSE, NFS and unknown file systems.
    Unknown,
}

/// A range is taken to be in memory when one byte in this many is. A page between two such bytes may have been evicted;
/// that costs one short blocking read.
const PROBE_DISTANCE: u64 = 128 << 10;

impl FileSystem {
    /// Fills `buffer` from `offset` on. The position of the file does not matter.
    ///
    /// # Errors
    /// `UnexpectedEof`: the file has become shorter. `WouldBlock`: the read would block and may not.
    pub(crate) fn read_exact_at(
        self,
        file: &File,
        buffer: &mut [u8],
        offset: u64,
        blocking: Blocking,
    ) -> io::Result<()> {
        match (blocking, self) {
            (Blocking::Allowed, _) | (Blocking::Forbidden, FileSystem::Memory) => {
                read_blocking(file, buffer, offset)
            }
            (Blocking::Forbidden, FileSystem::Nowait) => read_nonblocking(file, buffer, offset),
            (Blocking::Forbidden, FileSystem::PageCache | FileSystem::Unknown) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    /// Whether a range of a file is in memory, and the file is long enough.
    pub(crate) fn is_in_memory(self, file: &File, range: &Range<u64>) -> bool {
        let last = range.end.saturating_sub(1);
        let mut at = range.start;
        loop {
            let looked = self.read_exact_at(file, &mut [0], at.min(last), Blocking::Forbidden);
            if looked.is_err() {
                return false;
            }
            if at >= last {
                return true;
            }
            at += PROBE_DISTANCE;
        }
    }

    /// Whether a recently read range can be read again without blocking.
    pub(crate) fn has_page_cache(self) -> bool {
        self != FileSystem::Unknown
    }
}

/// Reads a range into the page cache, and waits until every 128 KiB of it is there. Blocks.
///
/// # Errors
/// `UnexpectedEof`: the file is shorter. Otherwise a read failed.
pub(crate) fn read_ahead(file: &File, range: &Range<u64>) -> io::Result<()> {
    match request_read_ahead(file, range) {
        true => for_each_probe(range, |at| read_blocking(file, &mut [0], at)),
        false => for_each_block(range, |space, at| read_blocking(file, space, at)),
    }
}

/// Visits one byte in 128 KiB, and the last byte, in order. The last byte of a stretch arrives after the others.
fn for_each_probe(range: &Range<u64>, mut look: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        at = at.saturating_add(PROBE_DISTANCE).min(range.end);
        look(at - 1)?;
    }
    Ok(())
}

/// Visits all bytes, 128 KiB at a time.
fn for_each_block(
    range: &Range<u64>,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut space = vec![0; PROBE_DISTANCE as usize];
    let mut at = range.start;
    while at < range.end {
        let length = PROBE_DISTANCE.min(range.end - at);
        read(space.get_mut(..length as usize).unwrap_or_default(), at)?;
        at += length;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::file_system_of;
#[cfg(target_os = "linux")]
use linux::{read_nonblocking, request_read_ahead};

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

    /// Devices on which `RWF_NOWAIT` failed, and what their file systems are. Nothing is looked up while there is none.
    static KNOWN: RwLock<Vec<(u64, FileSystem)>> = RwLock::new(Vec::new());
    static ANY_KNOWN: AtomicBool = AtomicBool::new(false);

    /// The most devices remembered. With more, a file costs one more failing call.
    const MAX_KNOWN: usize = 64;

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

    /// The file system of an open file.
    pub(crate) fn file_system_of(file: &File, metadata: &Metadata) -> FileSystem {
        if !ANY_KNOWN.load(Ordering::Relaxed) {
            return FileSystem::Nowait;
        }
        match known(metadata.dev()) {
            Some(file_system) => file_system,
            None if NOWAIT.is_denied() => learn(file),
            None => FileSystem::Nowait,
        }
    }

    fn known(device: u64) -> Option<FileSystem> {
        let known_devices = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        known_devices.iter().find(|row| row.0 == device).map(|row| row.1)
    }

    /// Remembers the file system of a file on which `RWF_NOWAIT` failed.
    fn learn(file: &File) -> FileSystem {
        // The width and sign of the type depend on the architecture.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::unnecessary_cast
        )]
        let file_system = match fstatfs(file).map(|stat| stat.f_type as u32) {
            Ok(kind) if MEMORY.contains(&kind) => FileSystem::Memory,
            Ok(kind) if CACHING.contains(&kind) => FileSystem::PageCache,
            _ => FileSystem::Unknown,
        };
        if let Ok(metadata) = file.metadata() {
            let mut known_devices = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
            remember(&mut known_devices, metadata.dev(), file_system);
        }
        ANY_KNOWN.store(true, Ordering::Relaxed);
        file_system
    }

    /// Adds a new device, in place of the oldest one when the list is full.
    fn remember(known_devices: &mut Vec<(u64, FileSystem)>, device: u64, file_system: FileSystem) {
        if !known_devices.iter().any(|row| row.0 == device) {
            if known_devices.len() == MAX_KNOWN {
                known_devices.remove(0);
            }
            known_devices.push((device, file_system));
        }
    }

    pub(super) fn read_nonblocking(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
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
                        FileSystem::Memory => read_blocking(file, buffer, offset),
                        _ => Err(io::ErrorKind::WouldBlock.into()),
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Asks the kernel to read a range. Returns whether it will.
    pub(super) fn request_read_ahead(file: &File, range: &Range<u64>) -> bool {
        advise(&ADVICE, file, range)
    }

    /// The same with `call`, which may be denied.
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
            assert!(request_read_ahead(&file, &(0..1)));
            // No file system reads a FIFO ahead (ESPIPE), and that is no denial.
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("fifo");
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let pipe = File::options().read(true).write(true).open(path).unwrap();
            assert!(!advise(&call, &pipe, &(0..1)));
            assert!(!request_read_ahead(&pipe, &(0..1)));
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
            assert_eq!(
                file_system_of(&file, &metadata),
                FileSystem::Nowait,
                "nothing is known yet"
            );
            for _ in 0..2 {
                assert_eq!(learn(&file), FileSystem::Unknown);
                assert_eq!(known(metadata.dev()), Some(FileSystem::Unknown));
                assert_eq!(file_system_of(&file, &metadata), FileSystem::Unknown);
            }
            let known_devices = KNOWN.read().unwrap();
            assert_eq!(
                known_devices.iter().filter(|row| row.0 == metadata.dev()).count(),
                1
            );
        }

        #[test]
        fn the_last_64_devices_are_remembered() {
            let mut known_devices = Vec::new();
            for device in (0..64).chain(0..64) {
                remember(&mut known_devices, device, FileSystem::Memory);
            }
            let devices = |known_devices: &[(u64, FileSystem)]| {
                known_devices.iter().map(|row| row.0).collect::<Vec<_>>()
            };
            assert_eq!(devices(&known_devices), (0..64).collect::<Vec<_>>());
            remember(&mut known_devices, 99, FileSystem::PageCache);
            assert_eq!(devices(&known_devices), (1..64).chain([99]).collect::<Vec<_>>());
            assert_eq!(known_devices.last(), Some(&(99, FileSystem::PageCache)));
        }

        #[test]
        fn what_is_read_at_once_is_what_the_file_has_or_the_end_of_it() {
            let file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &file, b"0123456789").unwrap();
            let mut buffer = [0; 4];
            match read_nonblocking(&file, &mut buffer, 3) {
                Ok(()) => assert_eq!(&buffer, b"3456"),
                // It cannot tell without waiting (overlayfs).
                Err(error) => return assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            let beyond = read_nonblocking(&file, &mut buffer, 8).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(&buffer[..2], b"89");
            assert!(read_nonblocking(&file, &mut [], 100).is_ok());
        }
    }
}

/// The file system of an open file.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system_of(_: &File, _: &Metadata) -> FileSystem {
    FileSystem::Unknown
}

#[cfg(not(target_os = "linux"))]
fn read_nonblocking(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(not(target_os = "linux"))]
fn request_read_ahead(_: &File, _: &Range<u64>) -> bool {
    false
}

#[cfg(unix)]
fn read_blocking(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_blocking(file: &File, mut buffer: &mut [u8], offset: u64) -> io::Result<()> {
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
            for_each_probe(&range, |at| {
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
            for_each_block(&range, |space, at| {
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
        assert!(for_each_probe(&(0..4 * APART), |_| fail_second()).is_err());
        assert_eq!(count, 2);
        count = 0;
        let mut fail_second = || {
            count += 1;
            match count {
                2 => Err(io::ErrorKind::Other.into()),
                _ => Ok(()),
            }
        };
        assert!(for_each_block(&(0..4 * APART), |_, _| fail_second()).is_err());
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
            read_ahead(&file, &(0..length)).unwrap();
            let error = read_ahead(&file, &(0..length + 1)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
            assert!(FileSystem::Memory.is_in_memory(&file, &(0..length)), "{length}");
            assert!(
                FileSystem::Memory.is_in_memory(&file, &(length - 1..length)),
                "{length}"
            );
            assert!(
                !FileSystem::Memory.is_in_memory(&file, &(0..length + 1)),
                "{length}"
            );
            assert!(
                !FileSystem::PageCache.is_in_memory(&file, &(0..length)),
                "{length}"
            );
            assert!(!FileSystem::Unknown.is_in_memory(&file, &(0..length)), "{length}");
        }
    }

    #[test]
    fn only_a_file_system_that_can_tell_is_read_without_patience() {
        let file = file(10);
        let read = |file_system: FileSystem, offset, blocking| {
            let read = file_system.read_exact_at(&file, &mut [1; 4], offset, blocking);
            read.map_err(|error| error.kind())
        };
        for file_system in [
            FileSystem::Nowait,
            FileSystem::Memory,
            FileSystem::PageCache,
            FileSystem::Unknown,
        ] {
            assert_eq!(read(file_system, 6, Blocking::Allowed), Ok(()), "{file_system:?}");
            let beyond = read(file_system, 7, Blocking::Allowed);
            assert_eq!(beyond, Err(io::ErrorKind::UnexpectedEof), "{file_system:?}");
        }
        assert_eq!(read(FileSystem::Memory, 6, Blocking::Forbidden), Ok(()));
        for file_system in [FileSystem::PageCache, FileSystem::Unknown] {
            let at_once = read(file_system, 6, Blocking::Forbidden);
            assert_eq!(at_once, Err(io::ErrorKind::WouldBlock), "{file_system:?}");
        }
        assert!(FileSystem::PageCache.has_page_cache() && FileSystem::Nowait.has_page_cache());
        assert!(!FileSystem::Unknown.has_page_cache());
    }
}
