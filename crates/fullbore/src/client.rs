//! The client: a pooled [`Client`] that takes URLs, and a [`Connection`] over any transport. Both are
//! [`tower_service::Service`]s.

mod connect;
mod connection;
mod connector;
mod dial;
mod download;
mod handle;
mod http1;
mod pool;
#[cfg(feature = "proxy")]
mod proxy;
pub mod range;
mod service;

pub use self::connection::{Connection, ResponseFuture, SendRequest, handshake};
pub use self::http1::Http1Report;
pub use crate::informational::on_informational;
pub use crate::sent_bytes::SentBytes;

pub use self::dial::AddressFamily;
pub use self::download::{Download, DownloadReport};
pub use self::pool::{Client, ClientBuilder, OriginStats};
#[cfg(feature = "proxy")]
pub use self::proxy::Proxies;
pub use self::service::RequestFuture;
