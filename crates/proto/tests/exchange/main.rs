//! Requests and responses between two connections: every kind of message, limits on streams, priorities, and the end.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod heads;
mod limits;
mod messages;
mod priorities;
mod shutdown;
mod tunnels;
