//! Peers that attack, over raw sockets, cleartext and TLS, against a real [`fullbore::Server`]: each ends with the code
//! that SECURITY.md states, after as many frames as the limit says, and somebody on another connection gets answers all
//! the while. Then what is no attack, however much it looks like one: no guard is to stop that.
//!
//! Limits on time are proven on a virtual clock in `fullbore-proto`; here only that they end a real connection.

#[path = "support/mod.rs"]
mod support;

#[path = "attacks/attacker.rs"]
mod attacker;
#[path = "attacks/clients.rs"]
mod clients;
#[path = "attacks/dawdling.rs"]
mod dawdling;
#[path = "attacks/floods.rs"]
mod floods;
#[path = "attacks/headers.rs"]
mod headers;
#[path = "attacks/legitimate.rs"]
mod legitimate;
#[cfg(target_os = "linux")]
#[path = "attacks/shares.rs"]
mod shares;
#[path = "attacks/site.rs"]
mod site;
#[path = "attacks/smuggling.rs"]
mod smuggling;
