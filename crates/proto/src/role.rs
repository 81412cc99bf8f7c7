//! The two roles of an endpoint.

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It opens streams.
    Client,
    /// It answers them.
    Server,
}
