//! Sending what lies in files without a copy of it: for TCP without TLS, on Linux.
//!
//! What is next on a list goes into a pipe by reference, heads and all, and from there to the socket: two calls, and three for
//! the mapping, where `sendfile` takes two for each frame and has each leave by itself. Between two writes the pipe is empty:
//! what the socket does not take stays on the list, and its pages are let go. So each thread needs one pipe, and a slow peer
//! holds none. `transport` calls this, `pages` has the pipe.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_proto::{Part, Transmit};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Written;
use super::pages::{Gather, LONGEST, Pipe, Put};
use crate::file;

/// As many slices as one list has.
const SLICES: usize = 64;

/// Octets that are here go into the pipe as a copy when they are no more than this; others are written by a call of their own.
const COPIED: usize = 4 << 10;

/// How much goes into the pipe at a time, at least and at most: about twice what the socket took of the last when it did not
/// take all.
const LEAST: usize = 64 << 10;
const MOST: usize = LONGEST;

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
    let pipe = match kept {
        Some(pipe) => pipe,
        None => match Pipe::open() {
            Ok(pipe) => kept.insert(pipe),
            Err(_) => return Ok(Written::ToBeRead),
        },
    };
    let most = (*at_once).clamp(LEAST, MOST);
    let octets = match fill(pipe, out, most) {
        Ok(Filled::Pipe(octets)) => octets,
        Ok(Filled::NoFiles) => {
            *taken = write_octets(io, out)?;
            return Ok(Written::Octets(*taken));
        }
        Ok(Filled::ToBeRead) => return Ok(Written::ToBeRead),
        Err(error) => {
            // Something may be in it.
            *kept = None;
            return Err(error);
        }
    };
    let (count, sent) = pipe.send(io, octets, octets < out.remaining());
    *taken = count;
    *at_once = match count < octets {
        true => count * 2,
        false => most * 2,
    };
    if count < octets && pipe.let_go(octets - count).is_err() {
        *kept = None;
    }
    sent.map(|()| Written::Octets(count))
}

/// What is in the pipe.
enum Filled {
    /// So many octets from the front of the list.
    Pipe(usize),
    /// Nothing, for what is next is here.
    NoFiles,
    /// Nothing, for the pages of a file cannot be had.
    ToBeRead,
}

/// Puts what is next on the list into the pipe.
fn fill(pipe: &mut Pipe, out: &Transmit, most: usize) -> io::Result<Filled> {
    let Ok(mut gather) = Gather::new(pipe) else {
        return Ok(Filled::ToBeRead);
    };
    for part in out.parts() {
        let left = most.saturating_sub(gather.octets());
        let all = match part {
            _ if left == 0 => Ok(false),
            Part::Here([]) => Ok(true),
            Part::Here(octets) if octets.len() > COPIED => Ok(false),
            Part::Here(octets) => gather.copy(octets),
            Part::Elsewhere(range) => {
                let file = file::of_payload(range)?;
                let listed = gather.refer(file, range.start(), range.len().min(left));
                listed.map(|listed| listed == range.len())
            }
        };
        match all {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => return Ok(Filled::ToBeRead),
        }
    }
    if !gather.has_files() {
        return Ok(Filled::NoFiles);
    }
    match gather.put()? {
        Put::Some(octets) => Ok(Filled::Pipe(octets)),
        Put::Nothing => Ok(Filled::ToBeRead),
        Put::Shorter => Err(file::became_shorter()),
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
