//! The client: a pooled [`Client`] that takes URLs, and a [`Connection`] over any transport. Both are
//! [`tower_service::Service`]s.
//!
//! [`Client::get`] and its like put a request together step by step ([`RequestBuilder`], [`Response`]).
//! [`Client::request`] and the services take a [`http::Request`], and send it as it is.

mod connect;
mod connection;
mod connector;
#[cfg(feature = "cookies")]
mod cookies;
#[cfg(feature = "__decode")]
mod decode;
mod dial;
mod download;
mod erased;
mod experiment;
mod front;
mod handle;
mod http1;
mod limited;
#[cfg(feature = "multipart")]
#[cfg_attr(docsrs, doc(cfg(feature = "multipart")))]
pub mod multipart;
mod pool;
#[cfg(feature = "proxy")]
mod proxy;
pub mod range;
#[cfg(feature = "redirect")]
mod redirect;
mod request;
mod request_body;
mod response;
mod send;
mod service;
mod url;

pub use self::connection::{Connection, ResponseFuture, SendRequest, handshake};
pub use self::http1::Http1Report;
pub use crate::informational::on_informational;
pub use crate::sent_bytes::SentBytes;

pub use self::dial::AddressFamily;
pub use self::download::{Download, DownloadReport};
pub use self::pool::{Client, ClientBuilder, OriginStats};
#[cfg(feature = "proxy")]
pub use self::proxy::Proxies;
pub use self::request::RequestBuilder;
pub use self::request_body::Body;
pub use self::response::Response;
pub use self::service::RequestFuture;
pub use self::url::IntoUrl;
