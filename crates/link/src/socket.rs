//! The sockets of the link, configured so that none of them is the slowest part of the path.
//!
//! Options that the system refuses are ignored: the path's data is in the queue behind a socket, and the socket holds only
//! what arrives between two reads.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// The size of the kernel's buffers: more than 3 ms at 10 Gbit/s, within which the link's thread runs again.
/// `net.core.rmem_max` and `wmem_max` may limit it.
const LARGEST_KERNEL_BUFFER: usize = 4 << 20;
/// The kernel doubles what it is asked for (socket(7)).
const SMALLEST_KERNEL_BUFFER: usize = 32 << 10;

/// Enough for a burst of clients. The system has its own limit.
const BACKLOG: i32 = 4096;

/// Congestion control for local sockets, the first that the system allows. These do not pace, as the system's default may
/// (BBR).
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

/// Starts to connect to the server. The socket is writable when it is connected.
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

/// Sets the options that an accepted socket does not inherit on every system.
pub(crate) fn prepare_accepted(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
}

/// Closes with a reset, so that the receiver sees an error and not an end.
pub(crate) fn reset(socket: TcpStream) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

/// Sets the buffers before a socket listens or connects: the handshake fixes the window scale (RFC 7323 section 2.2).
fn new(address: SocketAddr, buffer: u64) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Not larger than the link's buffer, so that a small buffer has an effect.
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

/// Unix returns `EINPROGRESS`, for which `ErrorKind` has no stable name. Windows returns `WouldBlock`.
fn in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}
