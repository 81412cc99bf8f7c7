//! The server: [`Server`] listens and serves, [`serve_connection`] serves over any transport.

mod connection;
mod date;
mod exchange;
mod listener;

pub use self::connection::{ServeConnection, serve_connection};
pub use self::listener::{PeerAddr, Server};
