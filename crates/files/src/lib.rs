//! A file server as a [`tower_service::Service`]: GET and HEAD of the files under a folder, PUT and POST into a folder.
//!
//! [`Files`] takes an [`http::Request`] and returns an [`http::Response`]. It runs under any HTTP server that takes such a
//! service, such as axum, hyper or [`fullbore::Server`]. Listening, TLS and HTTP are the server's.
//!
//! ```no_run
//! use axum::Router;
//! use fullbore_files::{Files, Settings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let files = Files::open("/srv/www", Settings::default())?;
//! let application = Router::new().nest_service("/static", files);
//! axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8080").await?, application).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | feature | behaviour |
//! |---|---|
//! | files | regular files under the root that the process can read; symbolic links, if they stay under the root |
//! | folders | answered with `index.html`; listed if [`Settings::listing`] is set: HTML, or JSON by `accept` |
//! | paths without a file | 404, with [`Settings::error_page`] if there is one; [`Settings::spa`] for applications |
//! | encodings | siblings `.br`, `.zst`, `.gz` ([`Settings::precompressed`]); gzip while sending ([`Settings::compress`]) |
//! | names that begin with a dot | 404, unless [`Settings::hidden`] is set; `/.well-known` is always served |
//! | conditional requests | RFC 9110 section 13, with strong `etag` and `last-modified` |
//! | ranges | RFC 9110 section 14, up to 16 in a request |
//! | a path that comes to name another folder | followed within a second (Unix): the root and the folder for uploads |
//! | uploads | refused, discarded or stored: [`Uploads`]; unless [`Settings::overwrite`] is set, files are kept, and no other path changes its answer |
//! | resumable uploads | [draft 12](https://datatracker.ietf.org/doc/draft-ietf-httpbis-resumable-upload/12/), also after a restart; over HTTP/2 announced by 104 under [`fullbore::Server`]. Insert [`LogUser`] into the requests of users: an upload is continued by the user who began it |
//! | pages that were uploaded | sandboxed: `content-security-policy` |
//! | digests | where uploads are stored, HEAD with `want-repr-digest: sha-256=10` is answered with `repr-digest` (RFC 9530) of a file |
//! | forms | POST of multipart/form-data stores the files of the form |
//! | access log | [`Log`] wraps this or any other service |
//!
//! The settings limit memory, file descriptors and blocking jobs, for all requests together. A share for each peer
//! needs the peer's address: the extension [`PeerAddr`] of the request. [`fullbore::Server`] provides it. Under another
//! server, insert it into each request.
//!
//! A call needs the context of a tokio runtime with timers.
//!
//! Under [`fullbore::Server`], [`Files::open_with_ranges`] hands over ranges of files instead of bytes. The server reads
//! them just before it writes them, so responses hold no memory.

#![forbid(unsafe_code)]

mod accept;
#[doc(hidden)]
mod archive;
pub mod aside;
mod body_length;
mod budget;
mod buffers;
mod cache;
mod compress;
mod conditional;
mod destination;
mod digest;
mod disk;
mod encoding;
mod entry;
mod file_body;
mod files;
mod folders;
mod form;
mod head;
mod identity;
mod jobs;
mod json_list;
mod listing;
mod log;
mod name_order;
mod open;
#[cfg(target_os = "linux")]
mod optional;
mod origin;
mod output;
mod page;
mod peer;
mod random;
mod range;
mod refusal;
mod report;
mod representation;
mod reserved;
mod resolve;
mod respond;
mod resumable;
mod service;
mod settings;
mod shared;
mod source;
mod store;
mod sublists;
#[cfg(test)]
mod tests;
mod turns;
mod unfinished;
mod upload_limits;
mod upload_reference;
mod uploads;
mod watch;
mod writer;

pub use file_body::ServeBody;
pub use fullbore::server::PeerAddr;
pub use log::{Log, LogBody, LogFormat, LogFuture, LogLimits, LogUser, LogWriter};
pub use service::{Files, ServeFuture};
pub use settings::{Settings, Uploads};
pub use shared::FolderError;
pub use upload_reference::is_upload_resource;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
