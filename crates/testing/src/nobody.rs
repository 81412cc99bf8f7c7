//! An address at which nobody listens, for as long as the test runs.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 that is bound and not listened on. The port of a listener that was dropped may be another test's at
/// once; and a connection from an unbound port may even be made with itself.
#[derive(Debug)]
pub struct Nobody {
    _socket: TcpSocket,
    address: SocketAddr,
}

impl Nobody {
    /// Takes a port.
    pub fn bind() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(any).expect("a port");
        let address = socket.local_addr().expect("an address");
        Self {
            _socket: socket,
            address,
        }
    }

    /// What refuses connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Display for Nobody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_refused_and_the_port_is_taken() {
        let nobody = Nobody::bind();
        let error = std::net::TcpStream::connect(nobody.address()).expect_err("nobody listens");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(std::net::TcpListener::bind(nobody.address()).is_err());
    }
}
