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
pub(super) enum Patience {
    /// Fail with `WouldBlock` rather than wait.
    AtOnce,
    /// In a blocking job.
    Wait,
}

impl Patience {
    /// Whether this system can do anything at once.
    pub(super) const AT_ONCE_IS_POSSIBLE: bool = cfg!(target_os = "linux");
}

/// How the file system of a file lets it be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Volume {
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
    pub(super) fn read_exact_at(
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
    pub(super) fn is_in_memory(self, file: &File, range: &Range<u64>) -> bool {
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
    pub(super) fn keeps_what_was_read(self) -> bool {
        self != Volume::Waits
    }
}

/// Has the system bring a range into the page cache, and waits until it is there, as far as one octet in 128 KiB tells. Blocks.
///
/// # Errors
/// `UnexpectedEof` when the file ends before; otherwise a read failed.
pub(super) fn warm(file: &File, range: &Range<u64>) -> io::Result<()> {
    if !read_ahead(file, range) {
        let mut space = vec![0; LOOKS_APART as usize];
        let mut at = range.start;
        while at < range.end {
            let length = LOOKS_APART.min(range.end - at);
            read_waiting(file, space.get_mut(..length as usize).unwrap_or_default(), at)?;
            at += length;
        }
        return Ok(());
    }
    // What was asked for first comes first: the last octet of a stretch is there when the others are.
    let mut at = range.start;
    while at < range.end {
        at = at.saturating_add(LOOKS_APART).min(range.end);
        read_waiting(file, &mut [0], at - 1)?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
pub(super) use linux::volume_of;
#[cfg(target_os = "linux")]
use linux::{read_ahead, read_at_once};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{PoisonError, RwLock};

    use rustix::fs::{Advice, fadvise, fstatfs};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::super::optional::Optional;
    use super::*;

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
    pub(in super::super) fn volume_of(file: &File, metadata: &Metadata) -> Volume {
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
            if !strange.iter().any(|row| row.0 == metadata.dev()) {
                if strange.len() == MOST_STRANGE {
                    strange.remove(0);
                }
                strange.push((metadata.dev(), volume));
            }
        }
        SOME_ARE_STRANGE.store(true, Ordering::Relaxed);
        volume
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
        let Some(length) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) else {
            return true;
        };
        if ADVICE.is_denied() {
            return false;
        }
        match fadvise(file, range.start, Some(length), Advice::WillNeed) {
            Ok(()) => true,
            Err(error) => {
                ADVICE.denies(error);
                false
            }
        }
    }
}

/// How an open file can be read.
#[cfg(not(target_os = "linux"))]
pub(super) fn volume_of(_: &File, _: &Metadata) -> Volume {
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
