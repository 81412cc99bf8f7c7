//! Sends pages to a socket by reference: the pages of files, and copies of the frame headers between them.
//!
//! A [`Pipe`] takes references to pages (`vmsplice`), which then go on to a socket (`splice`). No byte of a file is copied or
//! read. A [`Gather`] is the list of what goes into the pipe: ranges of files, which stay mapped until they are in the pipe,
//! and bytes that are copied to pages of their own. The kernel does not report when the peer has acknowledged the bytes of a
//! page. So a page with copies is never written again: pages that are used up are released instead.
//!
//! This crate contains all `unsafe` of fullbore, and nothing else. It makes no reference to mapped memory. Its interface is
//! for the crate `fullbore`, and is not stable. On systems other than Linux it is empty.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "mappings and vmsplice take addresses")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::c_void;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// The capacity of a pipe in bytes, when each of its pages is full: what a process may ask for without privileges
/// (`/proc/sys/fs/pipe-max-size`). A frame of 16 KiB takes up to six of its 256 slots.
const PIPE: usize = 1 << 20;

/// The most bytes that go into a pipe at once.
pub const LONGEST: usize = PIPE;

/// The memory for copies. Its pages are released when less than `LEAST_COPIES` is left: every 80 MB of files or so.
const COPIES: usize = 64 << 10;
const LEAST_COPIES: usize = 16 << 10;

/// The most pieces on one list: as many as a write list of the engine has slices.
const PIECES: usize = 64;

/// The most mappings of one list. Consecutive ranges of a file share one.
const MAPPINGS: usize = PIECES / 2;

/// A range of this process's addresses.
struct AddressRange {
    at: NonNull<c_void>,
    length: usize,
}

impl AddressRange {
    fn new(length: usize, access: ProtFlags) -> io::Result<AddressRange> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags)? };
        match NonNull::new(at) {
            Some(at) => Ok(AddressRange { at, length }),
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// The address of a byte, for the kernel.
    fn address(&self, offset: usize) -> *mut c_void {
        assert!(offset <= self.length);
        self.at.as_ptr().wrapping_byte_add(offset)
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: the range belongs to `self`, no reference into it exists, and the kernel no longer uses its addresses.
        let unmapped = unsafe { munmap(self.at.as_ptr(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The pages with copies.
struct Copies {
    range: AddressRange,
    used: usize,
}

impl Copies {
    /// Makes sure that some space is left.
    fn renew(&mut self) -> io::Result<()> {
        if COPIES - self.used >= LEAST_COPIES {
            return Ok(());
        }
        // SAFETY: the pages are private to this process, and no list has their addresses: the pipe and the socket hold the
        // pages themselves. Later copies go to new pages.
        unsafe { madvise(self.range.at.as_ptr(), COPIES, Advice::LinuxDontNeed)? };
        self.used = 0;
        Ok(())
    }

    /// Copies `octets` to memory that was not written since its page is new.
    fn copy(&mut self, octets: &[u8]) -> Option<*mut c_void> {
        if octets.len() > COPIES - self.used {
            return None;
        }
        let at = self.range.address(self.used);
        // SAFETY: `used + octets.len()` is within the range, which is mapped for writing and which nothing else writes. It
        // does not overlap `octets`: no reference into the range exists.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), at.cast(), octets.len()) };
        self.used += octets.len();
        Some(at)
    }
}

/// The addresses at which ranges of files are mapped, one after another. They are unmapped together, since each unmapping
/// flushes the translation cache of the processor.
struct Window {
    range: AddressRange,
    used: usize,
}

impl Window {
    fn new(page: usize) -> io::Result<Window> {
        Ok(Window {
            range: AddressRange::new(LONGEST + MAPPINGS * 2 * page, ProtFlags::empty())?,
            used: 0,
        })
    }

    /// Maps `length` bytes of a file, whole pages, from the page at `start` on; returns their offset.
    fn map(&mut self, file: &File, start: u64, length: usize) -> io::Result<usize> {
        if length > self.range.length - self.used {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let offset = self.used;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it replaces a part of the window in which nothing was mapped since it was cleared.
        unsafe {
            mmap(
                self.range.address(offset),
                length,
                ProtFlags::READ,
                flags,
                file,
                start,
            )?
        };
        self.used += length;
        Ok(offset)
    }

    /// Unmaps everything.
    fn clear(&mut self) -> io::Result<()> {
        if self.used > 0 {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: the range belongs to the window, and no reference into it exists.
            unsafe { mmap_anonymous(self.range.address(0), self.used, ProtFlags::empty(), flags)? };
            self.used = 0;
        }
        Ok(())
    }
}

/// What is remembered of a file whose pages are sent.
#[derive(Debug, Default)]
pub struct Record {
    /// Its state when its pages were first sent.
    first: OnceLock<Stamp>,
    /// Its pages cannot be sent.
    unsupported: AtomicBool,
}

/// The state of a file, as far as it tells whether the content has changed. The status change time (ctime) is no part of it:
/// renaming a file changes that too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// How a file compares with its state when its pages were first sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The length and the modification time are the same.
    Unchanged,
    /// The file ends before the range does.
    Shorter,
    /// The length or the modification time is another.
    Changed,
    /// It is no regular file, so that a change cannot be noticed.
    Unknown,
}

impl Record {
    /// Whether the pages of the file cannot be sent.
    pub fn is_unsupported(&self) -> bool {
        self.unsupported.load(Relaxed)
    }

    /// Compares `file` with its state at the first call. A range of it that is sent ends at `end`.
    ///
    /// # Errors
    /// `fstat` failed.
    pub fn compare(&self, file: &File, end: u64) -> io::Result<Comparison> {
        let stat = fstat(file)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(Comparison::Unknown);
        }
        // The widths of these differ from one system to the next.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        let now = Stamp {
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (
                stat.st_mtime as i64,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX),
            ),
        };
        Ok(match *self.first.get_or_init(|| now) {
            _ if now.length < end => Comparison::Shorter,
            first if first == now => Comparison::Unchanged,
            _ => Comparison::Changed,
        })
    }
}

/// Whether a system call failed because the kernel does not have it, or denies it to this process, and would again.
pub fn is_denied(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PERM | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NOENT)
    )
}

/// An open file and what is remembered of it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file.
    pub file: &'a File,
    /// The record that belongs to it.
    pub record: &'a Record,
}

/// A range of a file that is mapped.
#[derive(Clone, Copy)]
struct Mapping<'a> {
    source: Source<'a>,
    /// Where the range ends in the file.
    end: u64,
}

/// Consecutive ranges of a file that are not mapped yet.
struct Run<'a> {
    source: Source<'a>,
    range: Range<u64>,
    first_piece: usize,
}

/// The result of putting a list into a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// So many bytes are in the pipe.
    Some(usize),
    /// Nothing: the pages of a file cannot be mapped.
    Nothing,
    /// Nothing: the kernel denies it.
    Denied,
    /// A file on the list is shorter than its ranges. Something may be in the pipe.
    Shorter,
    /// A file on the list has changed. Something may be in the pipe.
    Changed,
}

/// What goes into a pipe: a list of pieces, in order. Pieces of files are mapped until it is dropped.
pub struct Gather<'a> {
    pipe: &'a mut Pipe,
    /// Pieces of files have no address until their run is mapped.
    pieces: [libc::iovec; PIECES],
    count: usize,
    /// Slots of the pipe that are left.
    slots: usize,
    octets: usize,
    run: Option<Run<'a>>,
    mappings: [Option<Mapping<'a>>; MAPPINGS],
    mapped: usize,
}

impl<'a> Gather<'a> {
    /// An empty list for an empty pipe.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn new(pipe: &'a mut Pipe) -> io::Result<Self> {
        pipe.copies.renew()?;
        // The list before has left nothing, unless the kernel had no memory to unmap it.
        pipe.window.clear()?;
        Ok(Gather {
            slots: pipe.slots,
            pipe,
            pieces: [libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: 0,
            }; PIECES],
            count: 0,
            octets: 0,
            run: None,
            mappings: [None; MAPPINGS],
            mapped: 0,
        })
    }

    /// The number of bytes on the list.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Whether some of them belong to files.
    pub fn has_files(&self) -> bool {
        self.run.is_some() || self.mapped > 0
    }

    /// Adds a copy of `octets`; whether there was space for them.
    pub fn copy(&mut self, octets: &[u8]) -> bool {
        // They may touch one page more than they fill.
        let slots = octets.len() / self.pipe.page + 2;
        if self.count == PIECES || slots > self.slots {
            return false;
        }
        let Some(at) = self.pipe.copies.copy(octets) else {
            return false;
        };
        self.push(at, octets.len(), slots);
        true
    }

    /// Adds `length` bytes of a file from `start` on, or as many as there is space for; how many.
    ///
    /// # Errors
    /// A range that was added before cannot be mapped.
    pub fn refer(&mut self, source: Source<'a>, start: u64, length: usize) -> io::Result<usize> {
        let page = self.pipe.page;
        let length = length.min(LONGEST.saturating_sub(self.octets));
        let before = (start % page as u64) as usize;
        let length = length.min((self.slots * page).saturating_sub(before));
        if self.count == PIECES || length == 0 {
            return Ok(0);
        }
        match &mut self.run {
            Some(run) if ptr::eq(run.source.record, source.record) && run.range.end == start => {
                run.range.end += length as u64;
            }
            _ => {
                self.end_run()?;
                if self.mapped == MAPPINGS {
                    return Ok(0);
                }
                self.run = Some(Run {
                    source,
                    range: start - before as u64..start + length as u64,
                    first_piece: self.count,
                });
            }
        }
        // The address is set when the run is mapped.
        self.push(ptr::null_mut(), length, (before + length).div_ceil(page));
        Ok(length)
    }

    fn push(&mut self, at: *mut c_void, length: usize, slots: usize) {
        self.pieces[self.count] = libc::iovec {
            iov_base: at,
            iov_len: length,
        };
        self.count += 1;
        self.octets += length;
        self.slots -= slots;
    }

    /// Maps the run, and sets the addresses of its pieces.
    ///
    /// # Errors
    /// It cannot be mapped. If it never can, its record says so.
    fn end_run(&mut self) -> io::Result<()> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let pieces = &mut self.pieces[run.first_piece..self.count];
        let of_file = || pieces.iter().filter(|piece| piece.iov_base.is_null());
        let octets: usize = of_file().map(|piece| piece.iov_len).sum();
        let length = usize::try_from(run.range.end - run.range.start).map_err(io::Error::other)?;
        let pages = length.next_multiple_of(self.pipe.page);
        let window = &mut self.pipe.window;
        let Source { file, record } = run.source;
        let unsupported = || record.unsupported.store(true, Relaxed);
        // The state is recorded before the first pages are taken.
        if record.compare(file, run.range.end)? == Comparison::Unknown {
            unsupported();
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mapped = window.map(file, run.range.start, pages);
        let mapped = mapped.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::NOSYS) => error,
            // Another file may be mapped all the same.
            _ => {
                unsupported();
                io::ErrorKind::Unsupported.into()
            }
        });
        let mut offset = mapped? + length - octets;
        for piece in pieces.iter_mut().filter(|piece| piece.iov_base.is_null()) {
            piece.iov_base = window.range.address(offset);
            offset += piece.iov_len;
        }
        self.mappings[self.mapped] = Some(Mapping {
            source: run.source,
            end: run.range.end,
        });
        self.mapped += 1;
        Ok(())
    }

    /// Puts the list into the pipe, or as much of it as the pipe takes.
    ///
    /// # Errors
    /// `fstat` failed. Something may be in the pipe.
    pub fn put(mut self) -> io::Result<Put> {
        if let Err(error) = self.end_run() {
            return Ok(Put::not(&error));
        }
        let put = self.hand_over();
        for mapping in self.mappings[..self.mapped].iter().flatten() {
            let Source { file, record } = mapping.source;
            match record.compare(file, mapping.end)? {
                Comparison::Unchanged => {}
                Comparison::Shorter => return Ok(Put::Shorter),
                Comparison::Changed | Comparison::Unknown => return Ok(Put::Changed),
            }
        }
        Ok(match put {
            Ok(0) => Put::Nothing,
            Ok(octets) => Put::Some(octets),
            Err(error) => Put::not(&error),
        })
    }

    /// How many bytes went into the pipe.
    fn hand_over(&self) -> io::Result<usize> {
        let pieces = &self.pieces[..self.count];
        loop {
            // SAFETY: each piece is within the pages with copies, which are not written again before they are released, or
            // within its mapped run, which exists until the window is cleared when `self` is dropped. Other processes may
            // write the pages of a file at any time, but nothing here reads them. The kernel returns EFAULT for pages after a
            // file's end.
            let count = unsafe {
                libc::vmsplice(
                    self.pipe.write.as_raw_fd(),
                    pieces.as_ptr(),
                    pieces.len(),
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            if let Ok(count) = usize::try_from(count) {
                return Ok(count);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Put {
    fn not(because: &io::Error) -> Put {
        match is_denied(because) {
            true => Put::Denied,
            false => Put::Nothing,
        }
    }
}

impl Drop for Gather<'_> {
    /// The pipe has taken the pages. What cannot be unmapped for want of memory is unmapped by the next list.
    fn drop(&mut self) {
        let _ = self.pipe.window.clear();
    }
}

/// A pipe for pages, with the memory for copies. It is empty between two uses.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// `/dev/null`, for what no socket has taken.
    null: OwnedFd,
    slots: usize,
    page: usize,
    copies: Copies,
    window: Window,
}

impl Pipe {
    /// Opens a pipe.
    ///
    /// # Errors
    /// The process has no descriptors or memory left, or its user has too many pipes for one of this size.
    pub fn open() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let page = page_size();
        let size = fcntl_setpipe_size(&write, PIPE.max(PIECES * page))?;
        Ok(Pipe {
            read,
            write,
            null: open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?,
            slots: size / page,
            page,
            copies: Copies {
                range: AddressRange::new(COPIES, ProtFlags::READ | ProtFlags::WRITE)?,
                used: 0,
            },
            window: Window::new(page)?,
        })
    }

    /// Sends the `octets` in the pipe to a socket: how many it took, and why not all. With `more` the socket may wait for what
    /// follows.
    pub fn send(&self, to: impl AsFd, octets: usize, more: bool) -> (usize, io::Result<()>) {
        let flags = match more {
            true => SpliceFlags::NONBLOCK | SpliceFlags::MORE,
            false => SpliceFlags::NONBLOCK,
        };
        self.drain(to, octets, flags)
    }

    /// Discards the `octets` in the pipe.
    ///
    /// # Errors
    /// Something is left in it.
    pub fn discard(&self, octets: usize) -> io::Result<()> {
        self.drain(&self.null, octets, SpliceFlags::empty()).1
    }

    fn drain(&self, to: impl AsFd, octets: usize, flags: SpliceFlags) -> (usize, io::Result<()>) {
        let mut taken = 0;
        while taken < octets {
            match splice(&self.read, None, &to, None, octets - taken, flags) {
                Ok(0) => return (taken, Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => taken += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return (taken, Err(error.into())),
            }
        }
        (taken, Ok(()))
    }
}

#[cfg(test)]
mod tests;
