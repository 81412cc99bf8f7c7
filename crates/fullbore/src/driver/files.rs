//! Sending what lies in files without a copy of it: for TCP without TLS, on Linux, where the server has chosen to.
//!
//! What is next on a list goes into a pipe by reference, heads and all, and from there to the socket: two calls, and three for
//! the mapping, where `sendfile` takes two for each frame and has each leave by itself. Between two writes the pipe is empty:
//! what the socket does not take stays on the list, and its pages are let go. So each thread needs one pipe, and a slow peer
//! holds none. `transport` calls this, `pages` has the pipe.
//!
//! Every system call here is optional. A sandbox may deny any of them: then nothing of the list has left, and from then on this process
//! reads files instead.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_proto::{Segment, Transmit};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::pages::{Gather, LONGEST, Pipe, Put, State, is_denied, state};
use super::write::Written;
use crate::file;

/// As many slices as one list has.
const SLICES: usize = 64;

/// Octets that are here go into the pipe as a copy when they are no more than this; others are written by a call of their own.
const COPIED: usize = 4 << 10;

/// How much goes into the pipe at a time, at least and at most: about twice what the socket took of the last when it did not
/// take all.
const LEAST: usize = 64 << 10;
const MOST: usize = LONGEST;

/// Whether this process has been denied one of the calls that sending by reference takes. It is not tried again.
static DENIED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// Writes what is next on the list, and advances it. `at_once` is how much is to go into the pipe at once, and is kept from
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
        // What is blocked has the socket asked anew whether it has room, also when it took something.
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

/// Writes what is next, and says in `taken` how much of it the socket took, also when it then failed.
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
        // What is in the pipe goes with it.
        *kept = None;
        return Ok(denied(true));
    }
    *taken = count;
    *at_once = match count < octets {
        true => count * 2,
        false => most * 2,
    };
    if count < octets && pipe.let_go(octets - count).is_err() {
        *kept = None;
    }
    // It is too late for what the socket has taken, but the peer is not to think that all is well.
    check_unchanged(out, count).inspect_err(|_| *taken = 0)?;
    sent.map(|()| Written::Octets(count))
}

/// Remembers whether a call was denied; in either case what is next is to be read.
fn denied(is_denied: bool) -> Written {
    if is_denied {
        DENIED.store(true, Relaxed);
    }
    Written::ToBeRead
}

/// Looks at the files of the next `octets` of the list once more.
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
        let open = file::of_payload(range)?;
        if last.is_some_and(|last| std::ptr::eq(last, open)) {
            continue;
        }
        last = Some(open);
        if state(open, 0)? != State::Unchanged {
            return Err(file::changed());
        }
    }
    Ok(())
}

/// What is in the pipe.
enum Filled {
    /// So many octets from the front of the list.
    Pipe(usize),
    /// Nothing, for what is next is here.
    NoFiles,
    /// Nothing, for the pages of a file cannot be had.
    ToBeRead,
    /// Nothing, for the system denies it.
    Denied,
}

/// Puts what is next on the list into the pipe.
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
            Segment::Memory(octets) => gather.copy(octets),
            Segment::External(range) => {
                let open = file::of_payload(range)?;
                if open.sent_by_reference().is_impossible.load(Relaxed) {
                    return Ok(Filled::ToBeRead);
                }
                let listed = gather.refer(open, range.start(), range.len().min(left));
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
        Put::Changed => Err(file::changed()),
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

/// Writes what is here as far as the next file.
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

#[cfg(test)]
mod tests;
