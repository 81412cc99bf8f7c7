//! Sends file ranges without copying them: for TCP without TLS, on Linux, when the server has chosen to.
//!
//! The front of a list, frame headers included, goes into a pipe by reference, and from there to the socket: two system calls,
//! and three for the mapping. `sendfile` takes two for each frame, and sends each frame separately. Between two writes the
//! pipe is empty: what the socket does not take stays on the list, and its pages are released. So each thread needs one pipe,
//! and a slow peer holds none. `write` calls this; the crate `fullbore-pages` has the pipe.
//!
//! A sandbox may deny any of these system calls. Then nothing of the list has left, and the process reads files from then on.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_pages::{Comparison, Gather, LONGEST, Pipe, Put, is_denied};
use fullbore_proto::{Segment, Transmit};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::write::Written;
use crate::file;

/// The most slices of one list.
const SLICES: usize = 64;

/// Up to so many bytes in memory are copied into the pipe; longer slices are written by a separate call.
const COPIED: usize = 4 << 10;

/// The least and the most that goes into the pipe at once: about twice what the socket took last, when it did not take all.
const LEAST: usize = 64 << 10;
const MOST: usize = LONGEST;

/// Whether the kernel has denied this process one of the system calls. They are not tried again.
static DENIED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// Writes the front of the list, and advances it. `at_once` is how much goes into the pipe at once; the caller keeps it from
/// one write to the next.
pub(super) fn write(
    io: &TcpStream,
    cx: &mut Context<'_>,
    out: &mut Transmit,
    at_once: &mut usize,
) -> Poll<io::Result<Written>> {
    loop {
        ready!(io.poll_write_ready(cx))?;
        let mut taken = 0;
        // A write that blocks makes the runtime ask the socket for room again, also when it took something.
        let result = io.try_io(Interest::WRITABLE, || {
            PIPE.with_borrow_mut(|kept| write_now(io, kept, out, at_once, &mut taken))
        });
        out.advance(taken);
        match result {
            _ if taken > 0 => return Poll::Ready(Ok(Written::Octets(taken))),
            Ok(written) => return Poll::Ready(Ok(written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Writes the front of the list. `taken` is how much of it the socket took, also when the write failed then.
fn write_now(
    io: &TcpStream,
    kept: &mut Option<Pipe>,
    out: &Transmit,
    at_once: &mut usize,
    taken: &mut usize,
) -> io::Result<Written> {
    if DENIED.load(Relaxed) {
        return Ok(Written::ToBeRead);
    }
    let pipe = match kept {
        Some(pipe) => pipe,
        None => match Pipe::open() {
            Ok(pipe) => kept.insert(pipe),
            Err(error) => return Ok(denied(is_denied(&error))),
        },
    };
    let most = (*at_once).clamp(LEAST, MOST);
    let octets = match fill(pipe, out, most) {
        Ok(Filled::Pipe(octets)) => octets,
        Ok(Filled::NoFiles) => match write_octets(io, out) {
            Ok(count) => {
                *taken = count;
                return Ok(Written::Octets(count));
            }
            Err(error) if is_denied(&error) => return Ok(denied(true)),
            Err(error) => return Err(error),
        },
        Ok(Filled::ToBeRead) => return Ok(Written::ToBeRead),
        Ok(Filled::Denied) => {
            *kept = None;
            return Ok(denied(true));
        }
        Err(error) => {
            // Something may be in it.
            *kept = None;
            return Err(error);
        }
    };
    let (count, sent) = pipe.send(io, octets, octets < out.remaining());
    if count == 0 && sent.as_ref().is_err_and(is_denied) {
        // The pages in the pipe are dropped with it.
        *kept = None;
        return Ok(denied(true));
    }
    *taken = count;
    *at_once = match count < octets {
        true => count * 2,
        false => most * 2,
    };
    if count < octets && pipe.discard(octets - count).is_err() {
        *kept = None;
    }
    // The socket has taken the bytes already. Ending the connection tells the peer that something is wrong.
    check_unchanged(out, count).inspect_err(|_| *taken = 0)?;
    sent.map(|()| Written::Octets(count))
}

/// Remembers whether a system call was denied. In either case the file is to be read.
fn denied(is_denied: bool) -> Written {
    if is_denied {
        DENIED.store(true, Relaxed);
    }
    Written::ToBeRead
}

/// Checks the files of the next `octets` of the list once more.
///
/// # Errors
/// One has changed since it was first sent by reference.
fn check_unchanged(out: &Transmit, octets: usize) -> io::Result<()> {
    let mut left = octets;
    let mut last = None;
    for part in out.segments() {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(part.len());
        let Segment::External(range) = part else {
            continue;
        };
        let source = file::of_payload(range)?.source();
        if last.is_some_and(|last| std::ptr::eq(last, source.record)) {
            continue;
        }
        last = Some(source.record);
        if source.record.compare(source.file, 0)? != Comparison::Unchanged {
            return Err(changed());
        }
    }
    Ok(())
}

/// What is in the pipe.
enum Filled {
    /// So many bytes from the front of the list.
    Pipe(usize),
    /// Nothing: the front of the list is in memory.
    NoFiles,
    /// Nothing: the pages of a file cannot be mapped.
    ToBeRead,
    /// Nothing: the kernel denies it.
    Denied,
}

/// Puts the front of the list into the pipe.
fn fill(pipe: &mut Pipe, out: &Transmit, most: usize) -> io::Result<Filled> {
    let mut gather = match Gather::new(pipe) {
        Ok(gather) => gather,
        Err(error) => return Ok(Filled::not(&error)),
    };
    for part in out.segments() {
        let left = most.saturating_sub(gather.octets());
        let all = match part {
            _ if left == 0 => Ok(false),
            Segment::Memory([]) => Ok(true),
            Segment::Memory(octets) if octets.len() > COPIED => Ok(false),
            Segment::Memory(octets) => Ok(gather.copy(octets)),
            Segment::External(range) => {
                let source = file::of_payload(range)?.source();
                if source.record.is_unsupported() {
                    return Ok(Filled::ToBeRead);
                }
                let listed = gather.refer(source, range.start(), range.len().min(left));
                listed.map(|listed| listed == range.len())
            }
        };
        match all {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Ok(Filled::not(&error)),
        }
    }
    if !gather.has_files() {
        return Ok(Filled::NoFiles);
    }
    match gather.put()? {
        Put::Some(octets) => Ok(Filled::Pipe(octets)),
        Put::Nothing => Ok(Filled::ToBeRead),
        Put::Denied => Ok(Filled::Denied),
        Put::Shorter => Err(file::became_shorter()),
        Put::Changed => Err(changed()),
    }
}

impl Filled {
    fn not(because: &io::Error) -> Filled {
        match is_denied(because) {
            true => Filled::Denied,
            false => Filled::ToBeRead,
        }
    }
}

/// Writes the bytes in memory before the next file range.
fn write_octets(io: &TcpStream, out: &Transmit) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let count = out.chunks_vectored(&mut slices);
    let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
    Ok(sendmsg(
        io,
        &slices[..count],
        &mut SendAncillaryBuffer::default(),
        flags,
    )?)
}

/// Why a connection ends that sends by reference.
fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a file was changed while it was being sent by reference; what the peer has received of it may be wrong, so that \
         the connection ends",
    )
}

#[cfg(test)]
mod tests;
