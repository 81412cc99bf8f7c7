//! The cost of the same bytes without HTTP: a writer of 256 KiB at a time, from memory or from a file, and a reader that
//! discards them. The case `servers` loads them like its servers.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::{Failure, print_line};

static WRITE: [u8; 256 << 10] = [b'x'; 256 << 10];
const READ: usize = 256 << 10;
/// In the number that a reader sends: it is the one that writes so many bytes.
const UP: u64 = 1 << 63;

#[derive(Args, Clone)]
pub(crate) struct FloorWriter {
    /// Write what this file holds, again and again, read 256 KiB at a time; without it, octets in memory
    #[arg(long)]
    file: Option<PathBuf>,
}

impl FloorWriter {
    /// Serves one connection after another: eight bytes come, a number, and so many bytes go; or come, with [`UP`].
    pub(super) fn run(&self) -> Result<(), Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        print_line(&format!("listening on {}", listener.local_addr()?))?;
        let mut file = self.file.as_ref().map(File::open).transpose()?;
        for socket in listener.incoming() {
            let mut socket = socket?;
            let mut asked = [0; 8];
            match socket.read_exact(&mut asked) {
                Ok(()) => match (u64::from_be_bytes(asked), &mut file) {
                    (asked, _) if asked & UP != 0 => read(&mut socket, asked & !UP)?,
                    (asked, Some(file)) => send(&mut socket, asked, file)?,
                    (asked, None) => write(&mut socket, asked)?,
                },
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn write(socket: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let now = left.min(WRITE.len() as u64);
        socket.write_all(WRITE.get(..now as usize).unwrap_or(&WRITE))?;
        left -= now;
    }
    Ok(())
}

/// Reads so many bytes, or until the end before that.
fn read(socket: &mut TcpStream, bytes: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut left = bytes;
    while left > 0 {
        match socket.read(&mut buffer)? {
            0 => break,
            now => left = left.saturating_sub(now as u64),
        }
    }
    Ok(())
}

fn send(socket: &mut TcpStream, bytes: u64, file: &mut File) -> std::io::Result<()> {
    let mut buffer = vec![0; WRITE.len()];
    let mut left = bytes;
    file.rewind()?;
    while left > 0 {
        let now = left.min(buffer.len() as u64) as usize;
        let piece = buffer.get_mut(..now).unwrap_or_default();
        match file.read(piece)? {
            0 => file.rewind()?,
            read => {
                socket.write_all(piece.get(..read).unwrap_or_default())?;
                left -= read as u64;
            }
        }
    }
    Ok(())
}

#[derive(Args, Clone)]
pub(crate) struct FloorReader {
    writer: SocketAddr,
    /// How many bytes to ask for
    bytes: u64,
    /// Write them instead, until the other end has read all
    #[arg(long)]
    up: bool,
}

impl FloorReader {
    /// Prints the seconds from the connection to the last byte.
    pub(super) fn run(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut socket = TcpStream::connect(self.writer)?;
        if self.up {
            socket.write_all(&(self.bytes | UP).to_be_bytes())?;
            write(&mut socket, self.bytes)?;
            return match socket.read(&mut [0])? {
                0 => print_line(&begun.elapsed().as_secs_f64().to_string()),
                _ => Err("an answer that nobody asked for".into()),
            };
        }
        socket.write_all(&self.bytes.to_be_bytes())?;
        let mut buffer = vec![0; READ];
        let mut read = 0;
        loop {
            match socket.read(&mut buffer)? {
                0 => break,
                now => read += now as u64,
            }
        }
        if read != self.bytes {
            return Err(format!("{read} bytes, not {}", self.bytes).into());
        }
        print_line(&begun.elapsed().as_secs_f64().to_string())
    }
}
