//! What the windows of a connection promise, and so may cost: law 5.

/// The memory that a peer may make us hold, in bytes, by the credit that it has.
///
/// Within one connection the sum never passes the size of the connection's window, since a refill advertises only what
/// was consumed.
///
/// ```
/// use fullbore_proto::{Config, Connection, Time};
///
/// let connection = Connection::client(Config::default(), Time::ZERO);
/// let window = u64::from(connection.receive_window_size().bytes());
/// assert_eq!(connection.promise().total(), window);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    /// Credit outstanding: what the peer may send and has not.
    pub outstanding: u64,
    /// What it has sent and nobody has consumed.
    pub buffered: u64,
}

impl Promise {
    /// Both together.
    pub const fn total(self) -> u64 {
        self.outstanding + self.buffered
    }
}
