//! One HTTP/1.1 connection of a server, on hyper: what fullbore adds are limits, checks and bodies of files.

mod connection;
mod limits;
mod pieces;
mod request;
mod response;
mod service;
#[cfg(feature = "tracing")]
mod trace;

pub(super) use self::connection::{Http1, serve_http1};
