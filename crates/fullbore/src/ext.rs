//! Extensions of requests: put one into [`http::Request::extensions_mut`], or find it there.

pub use fullbore_proto::{InvalidProtocol, Priority, Protocol};
