//! Requests and responses between two connections: every kind of message, limits on streams, priorities, and the end.

mod calls;
mod heads;
mod limits;
mod messages;
mod pings;
mod priorities;
mod released;
mod repeats;
mod reported;
mod responses;
mod shutdown;
mod tunnels;
mod urgent;
