//! A client and a server of HTTP/2, over the engine `fullbore-proto`, and of HTTP/1.1, by hyper, on tokio.
//!
//! Receive windows fit long paths from the first byte. Bodies are sent and received without a copy. Each transfer can tell
//! what it waited for ([`stats::Verdict`]).
//!
//! # A client
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = fullbore::Client::new();
//! let response = client.get("https://example.com/").header("accept", "text/plain").await?;
//! println!("{}", response.error_for_status()?.text().await?);
//! # Ok(()) }
//! ```
//!
//! # A server
//! A [`Server`] serves any [`tower_service::Service`], such as an `axum::Router`.
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # use axum::routing::get;
//! let app = axum::Router::new().route("/", get(|| async { "hello" }));
//! let server = fullbore::Server::bind("127.0.0.1:8080").await?;
//! server.serve(app).await?;
//! # Ok(()) }
//! ```
//!
//! # Modules by subject
//! | module | has |
//! |---|---|
//! | [`client`], [`server`] | requests and responses; handlers, addresses of peers, limits |
//! | [`body`] | received bodies, and the files that a server's bodies may contain |
//! | [`settings`] | the types of the builders' settings. [`Config`] has those of the engine |
//! | [`stats`] | reports of connections and streams: counters, windows, and what they waited for |
//! | [`ext`] | extensions of requests: priorities, extended CONNECT |
//! | [`tls`], [`tcp`] | certificates and trust; what the kernel says of a connection |
//!
//! Some types, such as [`Config`] and [`stats::Verdict`], come from the engine. Their examples import them from
//! `fullbore_proto`. In a program that depends on `fullbore`, import them from these modules.
//!
//! # Windows and the kernel
//! Throughput is at most the window divided by the round-trip time. The default windows fit a gigabit over 230 ms; both
//! builders have options for them. The kernel's TCP buffers are a limit too (on Linux the third figure of
//! `net.ipv4.tcp_rmem` and `tcp_wmem`): a larger window does not help.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `tls` | on | TLS by rustls |
//! | `ring`, `aws-lc-rs` | `ring` | the crypto provider of rustls |
//! | `json` | off | [`RequestBuilder::json`](client::RequestBuilder), [`Response::json`](client::Response) |
//! | `form` | off | [`RequestBuilder::query` and `form`](client::RequestBuilder) |
//! | `multipart` | off | forms with files: `RequestBuilder::multipart`, `client::multipart` |
//! | `redirect` | off | requests of [`RequestBuilder`](client::RequestBuilder) follow redirects |
//! | `gzip`, `brotli`, `deflate`, `zstd` | off | requests of [`RequestBuilder`](client::RequestBuilder) ask for these content codings, and decode them |
//! | `cookies` | off | requests of [`RequestBuilder`](client::RequestBuilder) send and keep cookies (`ClientBuilder::cookie_store`) |
//! | `charset` | off | [`Response::text`](client::Response::text) knows all charsets |
//! | `url` | off | internationalised host names (IDNA); a `url::Url` as a URL |
//! | `proxy` | off | HTTP proxies and SOCKS5 for clients (`ClientBuilder::proxies`) |
//! | `self-signed` | off | `tls::self_signed`, for tests |
//! | `tracing` | off | spans and events of connections and streams, for a subscriber of the crate `tracing` |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod alarm;
mod authority;
pub mod body;
mod cell;
pub mod client;
mod congestion;
mod connection_fields;
mod content_length;
mod driver;
mod error;
pub mod ext;
mod file;
mod http1;
mod informational;
mod linger;
mod mailbox;
mod observer;
mod sender;
mod sent_bytes;
pub mod server;
pub mod settings;
mod slices;
pub mod stats;
mod sync;
pub mod tcp;
#[cfg(feature = "tls")]
pub mod tls;
mod turns;

pub use fullbore_proto::{Config, ErrorCode};

pub use self::body::Incoming;
pub use self::client::{Client, ClientBuilder};
pub use self::error::{BoxError, Error, ErrorKind};
pub use self::server::{Server, ServerBuilder};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

/// The guide's snippets, compiled.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/library.md")]
    mod library {}
    #[doc = include_str!("../../../docs/guide/from-reqwest.md")]
    mod from_reqwest {}
    #[doc = include_str!("../../../docs/guide/many-clients.md")]
    mod many_clients {}
    #[doc = include_str!("../../../docs/guide/memory.md")]
    mod memory {}
    #[doc = include_str!("../../../docs/guide/metrics.md")]
    mod metrics {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_can_be_sent_and_shared_between_threads() {
        fn sent<T: Send + 'static>() {}
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Error>();
        shared::<Client>();
        shared::<ClientBuilder>();
        shared::<Incoming>();
        shared::<ServerBuilder>();
        shared::<client::SendRequest>();
        shared::<client::ResponseFuture>();
        shared::<server::ConnectionLimits>();
        sent::<Server>();
        sent::<client::Connection<tokio::net::TcpStream>>();
    }
}
