//! Where connections come from: TCP, Unix sockets, or a listener of the caller's.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Accepts the connections of a [`Server`](crate::Server), for [`ServerBuilder::build`](crate::ServerBuilder::build).
///
/// Limits, TLS and the graceful shutdown are the same for every listener. Peers without an IP address, such as those
/// of a Unix socket, count as one address ([`ConnectionLimits`](super::ConnectionLimits)).
pub trait Listener: Send + 'static {
    /// The transport of a connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The address of a peer.
    type Address: Clone + Send + 'static;

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Those of kinds ConnectionRefused, ConnectionAborted and ConnectionReset concern one connection, and the server
    /// accepts the next one at once. It waits 50 ms after any other.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Io, Self::Address)>>;

    /// The address that it listens on.
    ///
    /// # Errors
    /// When the system does not tell it.
    fn local_addr(&self) -> io::Result<Self::Address>;

    /// The peer's IP address, if it has one. Limits count the connections of an address, and
    /// [`PeerAddr`](super::PeerAddr) carries it.
    fn peer(address: &Self::Address) -> Option<SocketAddr>;

    /// The TCP connection below a transport, to which the server applies its options. Default: none.
    fn tcp(_: &Self::Io) -> Option<&TcpStream> {
        None
    }
}

impl Listener for TcpListener {
    type Io = TcpStream;
    type Address = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        TcpListener::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }

    fn peer(address: &SocketAddr) -> Option<SocketAddr> {
        Some(*address)
    }

    fn tcp(io: &TcpStream) -> Option<&TcpStream> {
        Some(io)
    }
}

/// Tokio's own listener for TCP, if it is one.
pub(super) fn tcp_listener(listener: &impl Listener) -> Option<&TcpListener> {
    (listener as &dyn Any).downcast_ref()
}

/// Whether the runtime that serves a listener waits for sockets: one of tokio's listeners accepts in no other.
pub(super) fn waits_for_sockets(listener: &impl Listener) -> bool {
    #[cfg(unix)]
    if (listener as &dyn Any).is::<tokio::net::UnixListener>() {
        return true;
    }
    tcp_listener(listener).is_some()
}

#[cfg(unix)]
impl Listener for tokio::net::UnixListener {
    type Io = tokio::net::UnixStream;
    type Address = tokio::net::unix::SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Io, Self::Address)>> {
        tokio::net::UnixListener::poll_accept(self, cx)
    }

    fn local_addr(&self) -> io::Result<Self::Address> {
        tokio::net::UnixListener::local_addr(self)
    }

    fn peer(_: &Self::Address) -> Option<SocketAddr> {
        None
    }
}
