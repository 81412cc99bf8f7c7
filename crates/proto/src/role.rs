//! The two roles of an endpoint.

/// The role of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The endpoint opens streams.
    Client,
    /// The endpoint answers streams.
    Server,
}
