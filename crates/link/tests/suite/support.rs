//! What every test of the link needs: a client and a server with a link between them, bytes, and a wait without a clock.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use fullbore_link::{Builder, Link};
use fullbore_testing::random::Random;

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
    Random::new(seed).bytes(count)
}
