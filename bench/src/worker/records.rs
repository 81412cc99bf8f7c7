//! A relay that counts the TLS records of a server, for the case `servers`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use clap::Args;

use super::{Failure, print_line};

const READ: usize = 256 << 10;
/// RFC 8446 section 5.1: the type, the version and the length of a record.
const HEAD: usize = 5;
const APPLICATION_DATA: u8 = 23;
/// What TLS 1.3 adds to the content of a record: its type and a tag of AES-GCM.
const ADDED: u64 = 17;

#[derive(Args, Clone)]
pub(crate) struct Records {
    /// Where the server listens
    server: SocketAddr,
}

impl Records {
    /// Prints a line for each connection that has ended: the records, and the bytes in them.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        print_line(&format!("listening on {}", listener.local_addr()?))?;
        for client in listener.incoming() {
            let (client, server) = (client?, TcpStream::connect(self.server)?);
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (up_from, up_to) = (client.try_clone()?, server.try_clone()?);
            thread::spawn(move || relay(up_from, up_to, |_| {}));
            thread::spawn(move || {
                let mut counter = Counter::default();
                relay(server, client, |octets| counter.take(octets));
                print_line(&format!("records {} {}", counter.records, counter.bytes))
            });
        }
        Ok(())
    }
}

/// Until either side has ended; whoever ends does not concern the count.
fn relay(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; READ];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let octets = buffer.get(..read).unwrap_or_default();
        look(octets);
        if to.write_all(octets).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Finds the heads of records in a stream that comes in pieces.
#[derive(Default)]
struct Counter {
    head: Vec<u8>,
    /// What is left of the record under way.
    left: usize,
    records: u64,
    bytes: u64,
}

impl Counter {
    fn take(&mut self, octets: &[u8]) {
        let mut octets = octets;
        while !octets.is_empty() {
            if self.left > 0 {
                let now = self.left.min(octets.len());
                self.left -= now;
                octets = octets.get(now..).unwrap_or_default();
                continue;
            }
            let now = (HEAD - self.head.len()).min(octets.len());
            self.head.extend_from_slice(octets.get(..now).unwrap_or_default());
            octets = octets.get(now..).unwrap_or_default();
            if let &[kind, _, _, a, b] = self.head.as_slice() {
                self.left = usize::from(u16::from_be_bytes([a, b]));
                if kind == APPLICATION_DATA {
                    self.records += 1;
                    self.bytes += (self.left as u64).saturating_sub(ADDED);
                }
                self.head.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_however_they_are_cut() {
        let mut octets = Vec::new();
        for (kind, length) in [(22, 100_u16), (23, 29), (20, 1), (23, 16_384 + 17)] {
            octets.extend_from_slice(&[kind, 3, 3]);
            octets.extend_from_slice(&length.to_be_bytes());
            octets.resize(octets.len() + usize::from(length), 0xaa);
        }
        for cut in [1, 2, 4, 5, 7, 1_000, 100_000] {
            let mut counter = Counter::default();
            for piece in octets.chunks(cut) {
                counter.take(piece);
            }
            assert_eq!((counter.records, counter.bytes), (2, 12 + 16_384), "cut at {cut}");
        }
    }
}
