//! Opens many streams on many connections to a server on the loopback, reads nothing of the answers, and prints what memory
//! the server takes then: the attack of docs/design/limits.md, "The most memory that a server takes".
//!
//! ```text
//! head -c 200000 /dev/urandom > DIR/file; fullbore serve DIR --plaintext &
//! cargo run --release -p fullbore --example unread -- 127.0.0.1:8080 /file $! 30 10000 1
//! ```
//!
//! The arguments: address, path, the server's process, connections, streams on each, and from how many addresses
//! (127.0.0.2 and on; Linux).

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// Preface, SETTINGS, and the acknowledgement of the server's.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

/// A HEADERS frame that ends its stream.
fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    let length = u8::try_from(block.len()).unwrap_or(u8::MAX);
    let mut frame = vec![0, 0, length, 1, 5];
    frame.extend(stream.to_be_bytes());
    frame.extend(block);
    frame
}

/// The requests of one connection: the first puts its fields into the table, the others are 13 octets each.
fn requests(path: &str, streams: u32) -> Vec<u8> {
    let mut first = vec![0x82, 0x86, 0x41, 9];
    first.extend(b"localhost");
    first.extend([0x44, u8::try_from(path.len().min(100)).unwrap_or(100)]);
    first.extend(path.bytes().take(100));
    let mut octets = GREETING.to_vec();
    octets.extend(headers(1, &first));
    for stream in 1..streams {
        octets.extend(headers(2 * stream + 1, &[0x82, 0x86, 0xbf, 0xbe]));
    }
    octets
}

/// What a process has in memory, in MiB (Linux).
fn resident(process: u32) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse::<u64>()? / 1024)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "unread ADDRESS PATH PROCESS CONNECTIONS STREAMS ADDRESSES";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, process, connections, streams, addresses] = arguments.as_slice() else {
        return Err(usage.into());
    };
    let (server, process): (SocketAddr, u32) = (address.parse()?, process.parse()?);
    let (connections, addresses): (u32, u8) = (connections.parse()?, addresses.parse()?);
    let octets = requests(path, streams.parse()?);
    println!("{} MiB before", resident(process)?);
    let mut open: Vec<TcpStream> = Vec::new();
    for number in 0..connections {
        let socket = TcpSocket::new_v4()?;
        let last = 2 + u8::try_from(number % u32::from(addresses.max(1)))?;
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into())?;
        let mut stream = socket.connect(server).await?;
        // A server that reads no more of it has what it takes.
        let _ = tokio::time::timeout(Duration::from_secs(20), stream.write_all(&octets)).await;
        open.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    let sent = octets.len() * open.len();
    println!(
        "{} MiB after {sent} octets on {connections} connections",
        resident(process)?
    );
    Ok(())
}
