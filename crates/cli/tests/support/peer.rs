//! Servers on 127.0.0.1 that do as a script says, right or wrong.
//!
//! Each connection has a thread, which ends when the program closes its end.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use fullbore_testing::frames::HEADERS;
use fullbore_testing::peer::BlockingPeer;

use super::PATIENCE;

/// Listens on a free port and hands each connection to `talk`. Returns the address.
pub(crate) fn listen(
    talk: impl Fn(&mut TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let talk = talk.clone();
            thread::spawn(move || {
                // So that no test leaves a thread behind.
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = talk(&mut stream);
            });
        }
    });
    Ok(address.to_string())
}

/// A peer that says `words` to whoever connects, then ends its side and listens to the end.
pub(crate) fn says(words: &'static [u8]) -> io::Result<String> {
    listen(move |stream| {
        // The client speaks first; answering earlier would tell nothing about what it makes of an answer.
        let mut some = [0; 1];
        stream.read_exact(&mut some)?;
        stream.write_all(words)?;
        close(stream)
    })
}

/// A peer that accepts and never says anything.
pub(crate) fn is_silent() -> io::Result<String> {
    listen(drain)
}

/// What an HTTP/2 peer does after it has sent its script.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Ends its side.
    Close,
    /// Says no more, until the client ends.
    Wait,
}

/// An HTTP/2 peer that exchanges SETTINGS, waits for a request and answers each with the script for its stream.
pub(crate) fn http2(
    script: impl Fn(u32) -> Vec<u8> + Clone + Send + 'static,
    then: Then,
) -> io::Result<String> {
    listen(move |stream| {
        let mut peer = BlockingPeer::server(stream)?;
        loop {
            let frame = peer.receive()?;
            if frame.kind == HEADERS {
                peer.send(&script(frame.stream))?;
                if matches!(then, Then::Close) {
                    return close(peer.0);
                }
            }
        }
    })
}

/// Ends this side, and reads on: a socket closed with octets unread resets the connection, and with it what was sent.
pub(crate) fn close(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    drain(stream)
}

/// Closes both sides at once, which resets a connection with octets unread.
pub(crate) fn close_now(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Both)
}

fn drain(stream: &mut TcpStream) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(|_| ())
}
