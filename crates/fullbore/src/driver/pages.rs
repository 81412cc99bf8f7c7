//! Pages that go to a socket by reference: of files, and of heads that stand between what is of files.
//!
//! A [`Pipe`] takes references to pages (`vmsplice`), which then go on to a socket (`splice`), and no octet is copied or looked
//! at. A [`Gather`] makes the list of what is to go into it: ranges of files, which are mapped until they are in the pipe, and
//! octets that are copied to pages of their own. The kernel lets go of a page when its octets have been acknowledged, and says
//! so to nobody: so what has been copied is never written over, and pages of which all is used are given up instead.
//!
//! All of this crate's `unsafe` is here. Used by `files`.
#![expect(
    unsafe_code,
    reason = "mapping memory, and handing pages over, is told in addresses"
)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use libc::c_void;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::file::{OpenFile, Stamp};

/// Octets that a pipe has room for, when each of its pages is full: what a process may ask for without privileges
/// (`/proc/sys/fs/pipe-max-size`). A frame of 16 KiB takes up to six of its 256 places.
const PIPE: usize = 1 << 20;

/// The most octets of files that go into it at once.
pub(super) const LONGEST: usize = PIPE;

/// Room for heads. It is given up, and taken anew, when less than `LEAST_ROOM` is left: each 80 MB of files or so.
const ROOM: usize = 64 << 10;
const LEAST_ROOM: usize = 16 << 10;

/// As many pieces as one list of the engine has slices.
const PIECES: usize = 64;

/// And so many mappings: of each file in it one, unless the ranges are not behind one another.
const MAPPINGS: usize = PIECES / 2;

/// A stretch of this process's addresses, given back when it is dropped.
struct Stretch {
    at: NonNull<c_void>,
    length: usize,
}

impl Stretch {
    fn new(length: usize, access: ProtFlags) -> io::Result<Stretch> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the place, so that nothing else is there.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags)? };
        match NonNull::new(at) {
            Some(at) => Ok(Stretch { at, length }),
            None => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// The address of an octet, to be handed to the kernel.
    fn address(&self, offset: usize) -> *mut c_void {
        assert!(offset <= self.length);
        self.at.as_ptr().wrapping_byte_add(offset)
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        // SAFETY: it is this one's own, no reference into it was ever made, and whoever had its addresses is done.
        let unmapped = unsafe { munmap(self.at.as_ptr(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Where heads are copied to.
struct Heads {
    room: Stretch,
    used: usize,
}

impl Heads {
    /// Sees to it that there is some room.
    fn renew(&mut self) -> io::Result<()> {
        if ROOM - self.used >= LEAST_ROOM {
            return Ok(());
        }
        // SAFETY: these pages are this process's alone, and no list refers to them by address; the pipe and the socket hold
        // the pages themselves. What is written next is written to new ones.
        unsafe { madvise(self.room.at.as_ptr(), ROOM, Advice::LinuxDontNeed)? };
        self.used = 0;
        Ok(())
    }

    /// Copies octets to where none have been.
    fn copy(&mut self, octets: &[u8]) -> Option<*mut c_void> {
        if octets.len() > ROOM - self.used {
            return None;
        }
        let at = self.room.address(self.used);
        // SAFETY: `used + octets.len()` is within the room, which is mapped for writing; nobody else has its addresses, and
        // `octets` lie elsewhere, for no reference into the room is ever made.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), at.cast(), octets.len()) };
        self.used += octets.len();
        Some(at)
    }
}

/// Where ranges of files are mapped, one behind another, and all given up at once: what the processor remembers of mappings has
/// to be flushed each time some are.
struct Window {
    room: Stretch,
    used: usize,
}

impl Window {
    fn new(page: usize) -> io::Result<Window> {
        Ok(Window {
            room: Stretch::new(LONGEST + MAPPINGS * 2 * page, ProtFlags::empty())?,
            used: 0,
        })
    }

    /// Maps `length` octets, whole pages of them, of a file from `start` on, where a page begins; where they are.
    fn map(&mut self, file: &File, start: u64, length: usize) -> io::Result<usize> {
        if length > self.room.length - self.used {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let offset = self.used;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it takes the place of a part of the window in which nothing has been mapped since it was cleared.
        unsafe {
            mmap(
                self.room.address(offset),
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

    /// Gives up all that is mapped.
    fn clear(&mut self) -> io::Result<()> {
        if self.used > 0 {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            // SAFETY: this is the window's own, and no reference into it was ever made.
            unsafe { mmap_anonymous(self.room.address(0), self.used, ProtFlags::empty(), flags)? };
            self.used = 0;
        }
        Ok(())
    }
}

/// What has become of a file since it was first sent by reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Unchanged,
    /// It ends before the range does.
    Shorter,
    /// Its length or its time of modification is another.
    Changed,
    /// It is no regular file, so that nobody can tell.
    Unknown,
}

/// Compares a file with what it was when it was first sent by reference.
///
/// # Errors
/// The system does not say.
pub(super) fn state(open: &OpenFile, end: u64) -> io::Result<State> {
    let stat = fstat(open.file())?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Ok(State::Unknown);
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
    Ok(match *open.sent_by_reference().first.get_or_init(|| now) {
        _ if now.length < end => State::Shorter,
        first if first == now => State::Unchanged,
        _ => State::Changed,
    })
}

/// Whether a call failed because the system does not have it, or denies it to this process, and would again.
pub(super) fn is_denied(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PERM | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NOENT)
    )
}

/// A range of a file for as long as its pages go into a pipe.
#[derive(Clone, Copy)]
struct Mapping<'a> {
    open: &'a OpenFile,
    /// Where the range ends in the file.
    end: u64,
}

/// A range of a file of which it is not known yet how far it goes.
struct Run<'a> {
    open: &'a OpenFile,
    range: Range<u64>,
    first_piece: usize,
}

/// What became of a list.
pub(super) enum Put {
    /// So many octets are in the pipe.
    Some(usize),
    /// Nothing: pages of a file cannot be had so.
    Nothing,
    /// Nothing: the system denies it.
    Denied,
    /// A file among them is shorter than its ranges say.
    Shorter,
    /// A file among them is not what it was.
    Changed,
}

/// What is to go into a pipe: a list of pieces in order. Those of files are mapped as long as it is there.
pub(super) struct Gather<'a> {
    pipe: &'a mut Pipe,
    /// Those of files have no address until their run is mapped.
    pieces: [libc::iovec; PIECES],
    count: usize,
    /// Places of the pipe that are left.
    places: usize,
    octets: usize,
    run: Option<Run<'a>>,
    mappings: [Option<Mapping<'a>>; MAPPINGS],
    mapped: usize,
}

impl<'a> Gather<'a> {
    /// An empty list for an empty pipe.
    ///
    /// # Errors
    /// The system has no memory.
    pub(super) fn new(pipe: &'a mut Pipe) -> io::Result<Self> {
        pipe.heads.renew()?;
        // Nothing is left of the list before, unless there was no memory then.
        pipe.window.clear()?;
        Ok(Gather {
            places: pipe.places,
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

    /// How many octets are listed.
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    /// Whether some of them are of files.
    pub(super) fn has_files(&self) -> bool {
        self.run.is_some() || self.mapped > 0
    }

    /// Lists a copy of `octets`; whether there was room for them.
    ///
    /// # Errors
    /// What was listed before cannot be mapped.
    pub(super) fn copy(&mut self, octets: &[u8]) -> io::Result<bool> {
        // They may lie on one page more than they fill.
        let places = octets.len() / self.pipe.page + 2;
        if self.count == PIECES || places > self.places {
            return Ok(false);
        }
        let Some(at) = self.pipe.heads.copy(octets) else {
            return Ok(false);
        };
        self.push(at, octets.len(), places);
        Ok(true)
    }

    /// Lists `length` octets of `file` from `start` on, or as many of them as there is room for; how many.
    ///
    /// # Errors
    /// What was listed before cannot be mapped.
    pub(super) fn refer(&mut self, open: &'a OpenFile, start: u64, length: usize) -> io::Result<usize> {
        let page = self.pipe.page;
        let length = length.min(LONGEST.saturating_sub(self.octets));
        let before = (start % page as u64) as usize;
        let length = length.min((self.places * page).saturating_sub(before));
        if self.count == PIECES || length == 0 {
            return Ok(0);
        }
        match &mut self.run {
            Some(run) if ptr::eq(run.open, open) && run.range.end == start => {
                run.range.end += length as u64;
            }
            _ => {
                self.end_run()?;
                if self.mapped == MAPPINGS {
                    return Ok(0);
                }
                self.run = Some(Run {
                    open,
                    range: start - before as u64..start + length as u64,
                    first_piece: self.count,
                });
            }
        }
        // The address is known when the run is.
        self.push(ptr::null_mut(), length, (before + length).div_ceil(page));
        Ok(length)
    }

    fn push(&mut self, at: *mut c_void, length: usize, places: usize) {
        self.pieces[self.count] = libc::iovec {
            iov_base: at,
            iov_len: length,
        };
        self.count += 1;
        self.octets += length;
        self.places -= places;
    }

    /// Maps the run, and gives its pieces their addresses.
    ///
    /// # Errors
    /// It cannot be mapped. What will not be mapped at another time either is remembered.
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
        let impossible = || run.open.sent_by_reference().is_impossible.store(true, Relaxed);
        // Its state is remembered before any of its pages are taken.
        if state(run.open, run.range.end)? == State::Unknown {
            impossible();
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mapped = window.map(run.open.file(), run.range.start, pages);
        let mapped = mapped.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::NOSYS) => error,
            // Another file may well be mapped.
            _ => {
                impossible();
                io::ErrorKind::Unsupported.into()
            }
        });
        let mut offset = mapped? + length - octets;
        for piece in pieces.iter_mut().filter(|piece| piece.iov_base.is_null()) {
            piece.iov_base = window.room.address(offset);
            offset += piece.iov_len;
        }
        self.mappings[self.mapped] = Some(Mapping {
            open: run.open,
            end: run.range.end,
        });
        self.mapped += 1;
        Ok(())
    }

    /// Puts all of it into the pipe, or as much as it takes.
    ///
    /// # Errors
    /// It cannot be told in which state a file is. Something may be in the pipe, then as when a file is shorter or changed.
    pub(super) fn put(mut self) -> io::Result<Put> {
        if let Err(error) = self.end_run() {
            return Ok(Put::not(&error));
        }
        let put = self.hand_over();
        for mapping in self.mappings[..self.mapped].iter().flatten() {
            match state(mapping.open, mapping.end)? {
                State::Unchanged => {}
                State::Shorter => return Ok(Put::Shorter),
                State::Changed | State::Unknown => return Ok(Put::Changed),
            }
        }
        Ok(match put {
            Ok(0) => Put::Nothing,
            Ok(octets) => Put::Some(octets),
            Err(error) => Put::not(&error),
        })
    }

    /// How many octets went into the pipe.
    fn hand_over(&self) -> io::Result<usize> {
        let pieces = &self.pieces[..self.count];
        loop {
            // SAFETY: each piece lies within the room for heads, where it is not written again before its page is given up, or
            // where its run was mapped, which is there until the window is cleared, when this is dropped. Pages of files are the
            // file's own, and may be written by anybody at any time: nothing here reads them. The kernel answers EFAULT for those behind
            // a file's end.
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
    /// The pipe has the pages, or nobody will. What is mapped still, when there is no memory, is given up next time.
    fn drop(&mut self) {
        let _ = self.pipe.window.clear();
    }
}

/// A pipe that pages go through, and the room for heads between them. Between two uses it is empty.
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// Where goes what no socket has taken.
    nowhere: OwnedFd,
    places: usize,
    page: usize,
    heads: Heads,
    window: Window,
}

impl Pipe {
    /// A pipe.
    ///
    /// # Errors
    /// The process has no descriptors or memory left, or its user has too many pipes for one of this size.
    pub(super) fn open() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let page = page_size();
        let size = fcntl_setpipe_size(&write, PIPE.max(PIECES * page))?;
        Ok(Pipe {
            read,
            write,
            nowhere: open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?,
            places: size / page,
            page,
            heads: Heads {
                room: Stretch::new(ROOM, ProtFlags::READ | ProtFlags::WRITE)?,
                used: 0,
            },
            window: Window::new(page)?,
        })
    }

    /// Has a socket take what is in the pipe, which is `octets`: how many it took, and why not all. With `more` it may wait for
    /// what comes behind them.
    pub(super) fn send(&self, to: impl AsFd, octets: usize, more: bool) -> (usize, io::Result<()>) {
        let flags = match more {
            true => SpliceFlags::NONBLOCK | SpliceFlags::MORE,
            false => SpliceFlags::NONBLOCK,
        };
        self.drain(to, octets, flags)
    }

    /// Lets go of what is in the pipe, which is `octets`.
    ///
    /// # Errors
    /// Something is left in it.
    pub(super) fn let_go(&self, octets: usize) -> io::Result<()> {
        self.drain(&self.nowhere, octets, SpliceFlags::empty()).1
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
