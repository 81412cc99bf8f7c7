//! The link's sockets: made, and set so that none of them is ever the slowest part of the path.
//!
//! The engine and the builder call this. A setting that the system refuses is left as it is: the queue behind the socket is
//! what holds the path, and the socket only what comes between two reads.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// What the kernel may hold in front of the queue, and behind it: at 10 Gbit/s more than 3 ms, in which the link's thread
/// surely gets the processor. (`net.core.rmem_max` and `wmem_max` are the system's own limits.)
const LARGEST_KERNEL_BUFFER: usize = 4 << 20;
const SMALLEST_KERNEL_BUFFER: usize = 256 << 10;

/// Enough for a burst of clients that all connect at once; the system has its own limit.
const BACKLOG: i32 = 4096;

/// Congestion control for sockets of one machine, the first that the system allows: these do not pace, as the
/// system's default (BBR, for one) may.
#[cfg(target_os = "linux")]
const CONGESTION_CONTROLS: [&[u8]; 2] = [b"reno", b"cubic"];

/// Listens for clients.
pub(crate) fn listen(address: SocketAddr, buffer: u64) -> io::Result<TcpListener> {
    let socket = new(address, buffer)?;
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Begins to connect to the server; the socket is writable when it is connected.
pub(crate) fn connect(address: SocketAddr, buffer: u64) -> io::Result<TcpStream> {
    let socket = new(address, buffer)?;
    let _ = socket.set_tcp_nodelay(true);
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// What an accepted socket does not inherit from its listener on every system.
pub(crate) fn prepare_accepted(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
}

/// Closes with a reset: the receiver learns that the connection broke, not that it ended.
pub(crate) fn reset(socket: TcpStream) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

/// Buffers are set before a socket listens or connects: the window scale is settled in the handshake (RFC 7323
/// section 2.2).
fn new(address: SocketAddr, buffer: u64) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // No larger than the link's buffer, so that a small one is felt.
    let size = usize::try_from(buffer)
        .unwrap_or(LARGEST_KERNEL_BUFFER)
        .clamp(SMALLEST_KERNEL_BUFFER, LARGEST_KERNEL_BUFFER);
    let _ = socket.set_recv_buffer_size(size);
    let _ = socket.set_send_buffer_size(size);
    #[cfg(target_os = "linux")]
    for name in CONGESTION_CONTROLS {
        if socket.set_tcp_congestion(name).is_ok() {
            break;
        }
    }
    Ok(socket)
}

/// Unix says `EINPROGRESS`, which `ErrorKind` has no stable name for; Windows says that it would block.
fn in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}
