//! The server: [`Server`] listens. [`serve_connection_auto`] serves one connection over any transport. [`serve_connection`]
//! does so over HTTP/2 alone, and [`serve_connection_local`] with handlers that need not be `Send`.

mod accept;
mod admission;
mod auto;
mod builder;
mod connection;
mod date;
mod exchange;
#[cfg(feature = "tls")]
mod handshakes;
mod http1;
mod http_service;
mod informational;
mod listener;
mod local;
mod memory;
mod peer;
mod rules;
mod serving;
#[cfg(all(feature = "tls", feature = "tracing"))]
mod trace;
mod verdict;
mod websockets;

pub use self::accept::Listener;
pub use self::admission::{
    ConnectionLimits, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_TOTAL_STREAMS, address_group,
};
pub use self::auto::{ServeConnectionAuto, serve_connection_auto};
pub use self::builder::ServerBuilder;
pub use self::connection::{ServeConnection, serve_connection};
pub use self::exchange::SendDeadline;
pub use self::http_service::HttpService;
pub use self::informational::Informational;
pub use self::listener::Server;
pub use self::local::{ServeConnectionLocal, serve_connection_local};
pub use self::peer::{Accepted, Ended, PeerAddr};
pub use self::verdict::ExchangeVerdict;
pub use self::websockets::{
    DEFAULT_MAX_WEB_SOCKETS, WebSocketLimit, WebSockets, WebSocketsBody, WebSocketsFuture,
};
