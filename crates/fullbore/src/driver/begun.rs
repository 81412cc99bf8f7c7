//! A connection that has no transport yet.

use std::sync::Arc;

use fullbore_proto::{Config, Connection, Time, Transmit};
use tokio::time::Instant;

/// An engine, and since when its time counts.
pub(crate) struct Begun {
    pub(super) connection: Connection,
    pub(super) origin: Instant,
    /// What is to be sent first.
    pub(super) out: Transmit,
}

impl Begun {
    pub(super) fn client(config: Arc<Config>) -> Self {
        Self::new(Connection::client(config, Time::ZERO))
    }

    pub(crate) fn server(config: Arc<Config>) -> Self {
        Self::new(Connection::server(config, Time::ZERO))
    }

    fn new(connection: Connection) -> Self {
        Begun {
            connection,
            origin: Instant::now(),
            out: Transmit::new(),
        }
    }

    /// Gives what is sent first, SETTINGS and the window of the connection, to `take`, which says how many octets it has taken.
    /// The driver sends the rest.
    #[cfg(feature = "tls")]
    pub(crate) fn take_first(&mut self, take: impl FnOnce(&[u8]) -> usize) {
        use bytes::Buf as _;
        self.connection.transmit(&mut self.out, Time::ZERO);
        let taken = take(self.out.chunk());
        self.out.advance(taken);
    }
}
