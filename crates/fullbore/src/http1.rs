//! HTTP/1.1 by hyper: what its server and its client share.

mod body;
mod measured;
mod meter;
mod noted;
mod record;
mod target;
mod transport;
mod waiting;

pub(crate) use self::body::{BodyEnd, BodyWatch, Http1Body};
pub(crate) use self::measured::{Measured, Next};
pub(crate) use self::meter::{Exchange, Meter, Traffic};
pub(crate) use self::record::Record;
pub(crate) use self::transport::{HyperIo, Transport, WRITE_TURN};
pub(crate) use self::waiting::Waiting;
