//! Sends file ranges without copying them: for TCP without TLS, on Linux, when the server has chosen to.
//!
//! The front of a list goes into a pipe: frame headers by `write`, ranges by `splice`, which takes references to the pages of
//! the page cache. One more `splice` passes all of it on to the socket. `sendfile` takes as many calls, and sends each frame
//! separately. Between two writes the pipe is empty: what the socket does not take stays on the list, and its pages are
//! released. So each thread needs one pipe, and a slow peer holds none. `write` calls this.
//!
//! Whatever fails before the socket has taken something is left to reading and writing, which fails with the same error, or
//! works where a sandbox or a file system denies these calls.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_proto::{Segment, Transmit};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::file;

/// The capacity of a pipe in bytes, when each of its pages is full: what a process may ask for without privileges
/// (`/proc/sys/fs/pipe-max-size`). A frame of 16 KiB takes up to six of its 256 slots.
const PIPE_SIZE: usize = 1 << 20;

/// The least and the most that goes into the pipe at once: about twice what the socket took last, when it did not take all.
const LEAST: usize = 64 << 10;
const MOST: usize = PIPE_SIZE;

thread_local! {
    /// An empty pipe.
    static PIPE: Cell<Option<Pipe>> = const { Cell::new(None) };
}

/// Writes the front of the list, and advances it; 0 if its files are to be read instead. `at_once` is how much goes into the
/// pipe at once; the caller keeps it from one write to the next.
pub(super) fn write(
    io: &TcpStream,
    cx: &mut Context<'_>,
    out: &mut Transmit,
    at_once: &mut usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(io.poll_write_ready(cx))?;
        let mut taken = 0;
        // A write that blocks makes the runtime ask the socket for room again, also when it took something.
        let result = io.try_io(Interest::WRITABLE, || write_now(io, out, at_once, &mut taken));
        out.advance(taken);
        match result {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            Err(_) if taken == 0 => {}
            _ => return Poll::Ready(Ok(taken)),
        }
    }
}

/// Writes the front of the list. `taken` is how much of it the socket took, also when it has no room for more.
///
/// # Errors
/// `WouldBlock`; or a file has changed.
fn write_now(io: &TcpStream, out: &Transmit, at_once: &mut usize, taken: &mut usize) -> io::Result<()> {
    let Ok(pipe) = PIPE.take().map_or_else(Pipe::open, Ok) else {
        return Ok(());
    };
    let most = (*at_once).clamp(LEAST, MOST);
    check_unchanged(out, most)?;
    let octets = pipe.fill(out, most);
    let (count, sent) = drain(&pipe.read, io, octets, octets < out.remaining());
    *at_once = match count < octets {
        true => count * 2,
        false => most * 2,
    };
    // A pipe that something is left in is dropped, with its pages.
    if drain(&pipe.read, &pipe.null, octets - count, false).1.is_ok() {
        PIPE.set(Some(pipe));
    }
    // The socket has taken the bytes already. Ending the connection tells the peer that something is wrong.
    check_unchanged(out, count)?;
    *taken = count;
    match sent {
        Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Checks the files of the next `octets` of the list.
///
/// # Errors
/// One has changed since its first range was sent by reference.
fn check_unchanged(out: &Transmit, octets: usize) -> io::Result<()> {
    let mut left = octets;
    let mut last: Option<&file::OpenFile> = None;
    for part in out.segments() {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(part.len());
        let Segment::External(range) = part else {
            continue;
        };
        let file = file::of_payload(range)?;
        if !last.is_some_and(|last| std::ptr::eq(last, file)) {
            file.check_unchanged()?;
            last = Some(file);
        }
    }
    Ok(())
}

/// Passes `octets` in a pipe on: how many, and why not all. With `more` a socket may wait for what follows.
fn drain(from: &OwnedFd, to: impl AsFd, octets: usize, more: bool) -> (usize, rustix::io::Result<()>) {
    let mut flags = SpliceFlags::NONBLOCK;
    flags.set(SpliceFlags::MORE, more);
    let mut taken = 0;
    while taken < octets {
        match splice(from, None, &to, None, octets - taken, flags) {
            Ok(0) => return (taken, Err(Errno::PIPE)),
            Ok(count) => taken += count,
            Err(Errno::INTR) => {}
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// `/dev/null`, for what no socket has taken.
    null: File,
}

impl Pipe {
    /// # Errors
    /// The process has no descriptors left, its user has too many pipes of this size, or a sandbox denies it.
    fn open() -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&write, PIPE_SIZE)?;
        let null = File::options().write(true).open("/dev/null")?;
        Ok(Pipe { read, write, null })
    }

    /// Takes in the front of the list, up to `most` bytes or what there is room for; returns how many. What cannot be spliced
    /// ends it.
    fn fill(&self, out: &Transmit, most: usize) -> usize {
        let mut octets = 0;
        for part in out.segments().filter(|part| !part.is_empty()) {
            let length = part.len().min(most - octets);
            let put = match part {
                Segment::Memory(part) => rustix::io::write(&self.write, &part[..length]),
                Segment::External(range) => match file::of_payload(range) {
                    Ok(file) => {
                        let mut start = range.start();
                        let flags = SpliceFlags::NONBLOCK;
                        splice(file.file(), Some(&mut start), &self.write, None, length, flags)
                    }
                    Err(_) => break,
                },
            };
            octets += put.unwrap_or(0);
            if put != Ok(part.len()) {
                break;
            }
        }
        octets
    }
}

#[cfg(test)]
mod tests;
