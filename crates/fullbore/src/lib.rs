//! HTTP/2 that moves at the speed of the path: a client and a server on tokio, over the engine `fullbore-proto`.
//!
//! Windows fit long paths from the first byte, refills are few and well timed, bodies leave without being copied, and
//! no handle takes a lock that the whole connection shares.
//!
//! # A client
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = fullbore::Client::new()?;
//! let response = client.get("https://example.com/").await?;
//! println!("{}", response.status());
//! # Ok(()) }
//! ```
//!
//! # A server
//! Any [`tower_service::Service`] is served as it is, an `axum::Router` among them.
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # use axum::routing::get;
//! let app = axum::Router::new().route("/", get(|| async { "hello" }));
//! let server = fullbore::Server::bind("127.0.0.1:8080").await?;
//! server.serve(app).await?;
//! # Ok(()) }
//! ```
//!
//! # Windows and the kernel
//! Throughput cannot pass window / round trip. The defaults are wide; [`Config`] sets them. A window larger than the
//! kernel's TCP buffers (on Linux `net.ipv4.tcp_rmem` and `tcp_wmem`, third figure) does not help beyond those.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod body;
mod cell;
pub mod client;
mod driver;
mod error;
mod file;
mod informational;
mod mailbox;
mod observer;
mod sender;
pub mod server;
mod settings;
mod sync;
#[cfg(feature = "tls")]
pub mod tls;

pub use fullbore_proto::{
    Config, ErrorCode, KeepAlive, Ledger, Limit, MemoryBudget, Priority, Protocol, Refill, Report,
    Scheduling, Share, Stall, StreamBudget, StreamReport, WindowSize,
};

pub use fullbore_proto::FrameCounts;
pub use fullbore_proto::FrameType;

pub use self::body::Incoming;
pub use self::client::{Client, ClientBuilder, OriginStats};
pub use self::error::{BoxError, Error, ErrorKind};
pub use self::file::{Chunk, FileRange, OpenFile};
pub use self::server::{Server, ServerBuilder};
pub use self::settings::{DEFAULT_MEMORY_BUDGET, TcpBuffers};
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
