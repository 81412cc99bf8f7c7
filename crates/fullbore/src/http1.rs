//! HTTP/1.1 by hyper: what its server and its client share.

mod body;
mod transport;
mod waiting;

pub(crate) use self::body::{BodyWatch, Http1Body};
pub(crate) use self::transport::{HyperIo, Traffic, Transport};
pub(crate) use self::waiting::Waiting;
