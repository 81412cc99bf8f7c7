//! What the kernel says of a TCP connection: see [`TcpInfo`]. Linux only; elsewhere nothing is known.

use std::net::SocketAddr;

use fullbore_proto::TcpInfo;
use tokio::net::TcpStream;

#[cfg(target_os = "linux")]
mod diag;
#[cfg(target_os = "linux")]
mod message;

/// The TCP connection below a transport.
pub(crate) type TcpBelow<T> = fn(&T) -> Option<&TcpStream>;

/// A transport that may have a TCP connection below.
pub(crate) trait OverTcp {
    fn tcp(&self) -> Option<&TcpStream>;
}

impl OverTcp for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

#[cfg(feature = "tls")]
impl<T: OverTcp> OverTcp for tokio_rustls::client::TlsStream<T> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().0.tcp()
    }
}

/// Connections that have carried fewer bytes are not asked about: what limited them is no property of TCP, and a server ends
/// many of them.
pub(crate) const LEAST_BYTES: u64 = 256 << 10;

/// Reads what the kernel says of a connection. `None` where it cannot be had: on other systems than Linux, without a socket
/// of `NETLINK_SOCK_DIAG` (some sandboxes refuse it), and after the connection has ended.
///
/// It takes about ten system calls: a socket with a question and its answer, and two files. Ask when a transfer ends, or
/// some times a second while it lasts.
pub fn info(stream: &TcpStream) -> Option<TcpInfo> {
    Ends::of(stream)?.info()
}

/// The two addresses of a connection, by which the kernel knows it while somebody else has its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    local: SocketAddr,
    peer: SocketAddr,
}

impl Ends {
    pub(crate) fn of(stream: &TcpStream) -> Option<Self> {
        Some(Ends {
            local: stream.local_addr().ok()?,
            peer: stream.peer_addr().ok()?,
        })
    }

    /// What the kernel says of the connection. Ask only while it is open: another one may have its addresses later.
    pub(crate) fn info(self) -> Option<TcpInfo> {
        #[cfg(target_os = "linux")]
        return diag::info(self.local, self.peer);
        #[cfg(not(target_os = "linux"))]
        {
            let Ends { .. } = self;
            None
        }
    }
}
