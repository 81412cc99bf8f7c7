//! The server: [`Server`] listens. [`serve_connection`] serves one connection over any transport, and
//! [`serve_connection_local`] does so with handlers that need not be `Send`.

mod admission;
mod builder;
mod connection;
mod date;
mod exchange;
mod listener;
mod local;

pub use self::admission::{
    ConnectionLimits, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS, address_group,
};
pub use self::builder::ServerBuilder;
pub use self::connection::{ServeConnection, serve_connection};
pub use self::listener::{PeerAddr, Server};
pub use self::local::{ServeConnectionLocal, serve_connection_local};
