//! What every test of the link needs: a client and a server with a link between them, bytes, and a wait without a clock.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fullbore_link::{Builder, Link};

/// A listener on any free port.
pub(crate) fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A link, and the two ends of one connection through it: the client's and the server's.
pub(crate) fn pair(builder: Builder) -> io::Result<(Link, TcpStream, TcpStream)> {
    let (listener, address) = listen()?;
    let link = builder.start(address)?;
    let client = TcpStream::connect(link.local_addr())?;
    let (server, _) = listener.accept()?;
    Ok((link, client, server))
}

/// Reads to the end.
pub(crate) fn read_all(mut socket: &TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns once `done` says so. What never comes is ended by who runs the tests, not by a time in here.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    while !done() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that no shift or swap leaves the same.
pub(crate) fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Xorshift: the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
