//! Peers that attack, over raw sockets, cleartext and TLS, against a real [`fullbore::Server`]: each ends with the code
//! that docs/design/limits.md states, after as many frames as the limit says, and somebody on another connection gets answers all
//! the while. Then what is no attack, however much it looks like one: no guard is to stop that.
//!
//! Limits on time are proven on a virtual clock in `fullbore-proto`; here only that they end a real connection.

mod attacker;
mod clients;
mod dawdling;
mod floods;
mod headers;
mod legitimate;
#[cfg(target_os = "linux")]
mod shares;
pub(crate) mod site;
mod smuggling;
