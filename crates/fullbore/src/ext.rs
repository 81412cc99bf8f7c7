//! Extensions of requests and responses: put one into [`http::Request::extensions_mut`], or find it there.

use std::time::Duration;

pub use fullbore_proto::{InvalidProtocol, Priority, Protocol};

/// How long a proxy waited for the server behind it: from the end of the request, or from its begin if the answer came first, to
/// the head of the response. A proxy leaves it in the response, for those who log it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTime(pub Duration);
