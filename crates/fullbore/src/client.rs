//! The client: a pooled [`Client`] that takes URLs, and a [`Connection`] over any transport.

mod connect;
mod connection;
mod pool;

pub use self::connection::{Connection, ResponseFuture, SendRequest, handshake};
pub use crate::informational::on_informational;

pub use self::pool::{Client, ClientBuilder, OriginStats};
