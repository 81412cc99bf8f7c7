//! Sending what lies in files by the system, without reading it: for TCP without TLS, on Linux.
//!
//! Frame heads are written with the mark that more follows, so that a head of nine octets is no packet of its own.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use fullbore_proto::Transmit;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::file;

/// As many slices as one list has.
const SLICES: usize = 64;

/// Writes what is next on the list, and advances it.
pub(super) fn write(io: &TcpStream, cx: &mut Context<'_>, out: &mut Transmit) -> Poll<io::Result<usize>> {
    loop {
        ready!(io.poll_write_ready(cx))?;
        match io.try_io(Interest::WRITABLE, || write_now(io, out)) {
            Ok(count) => {
                out.advance(count);
                return Poll::Ready(Ok(count));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn write_now(io: &TcpStream, out: &Transmit) -> io::Result<usize> {
    let Some(elsewhere) = out.elsewhere() else {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let count = out.chunks_vectored(&mut slices);
        let flags = match out.leads_elsewhere() {
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            false => SendFlags::NOSIGNAL,
        };
        let sent = sendmsg(io, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
        return Ok(sent?);
    };
    let mut start = elsewhere.start();
    match sendfile(
        io,
        file::of_payload(elsewhere)?,
        Some(&mut start),
        elsewhere.len(),
    ) {
        Ok(0) => Err(file::became_shorter()),
        Ok(count) => Ok(count),
        Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error.into()),
    }
}
