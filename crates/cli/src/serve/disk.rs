//! Reading of files, with and without the patience to wait for a disk.
//!
//! A connection's turn must not wait: there, files are opened and read only as far as the system has them in memory. Linux
//! tells (`RESOLVE_CACHED`, `RWF_NOWAIT`); elsewhere, and on file systems that cannot tell, everything goes to a blocking
//! job. Called by `files`, `open` and `file_body`.

use std::fs::File;
use std::io;

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

/// Fills `buffer` from `offset` on, wherever the file's own position is.
///
/// # Errors
/// `UnexpectedEof` when the file ends before: it shrank since it was opened. `WouldBlock` when there is no patience for
/// what it takes.
pub(super) fn read_exact_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    patience: Patience,
) -> io::Result<()> {
    match patience {
        Patience::AtOnce => read_at_once(file, buffer, offset),
        Patience::Wait => read_waiting(file, buffer, offset),
    }
}

/// How far apart octets are looked at to know whether a range is in memory. What is between two that are there and is not
/// itself was given up by the system since they were read, and costs one short read.
const LOOKS_APART: u64 = 128 << 10;

/// Whether the system has a range of a file in memory, and the file reaches so far.
pub(super) fn is_in_memory(file: &File, range: &std::ops::Range<u64>) -> bool {
    let last = range.end.saturating_sub(1);
    let mut at = range.start;
    loop {
        if read_exact_at(file, &mut [0], at.min(last), Patience::AtOnce).is_err() {
            return false;
        }
        if at >= last {
            return true;
        }
        at += LOOKS_APART;
    }
}

#[cfg(target_os = "linux")]
fn read_at_once(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    while !buffer.is_empty() {
        let mut space = [io::IoSliceMut::new(buffer)];
        match preadv2(file, &mut space, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = buffer.get_mut(count..).unwrap_or_default();
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            // Not in memory, or a file system that cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn read_at_once(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::WouldBlock.into())
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
