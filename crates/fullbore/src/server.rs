//! The server: [`Server`] listens and serves, [`serve_connection`] serves over any transport, and
//! [`serve_connection_local`] with handlers that need not be `Send`.

mod connection;
mod date;
mod exchange;
mod listener;
mod local;
mod shares;

pub use self::connection::{ServeConnection, serve_connection};
pub use self::listener::{PeerAddr, Server};
pub use self::local::{ServeConnectionLocal, serve_connection_local};
pub use self::shares::{DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS, Shares, address_group};
