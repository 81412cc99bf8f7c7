//! HTTP/2 (RFC 9113) for clients and servers as a pure state machine. Bytes and the time go in; bytes, events and the next
//! deadline come out. The crate has no sockets, clock, threads, async or `unsafe`.
//!
//! # The contract
//! Change one thing, drain, repeat:
//! 1. pass bytes to [`Connection::receive`], call a method that sends, or call [`Connection::handle_timeout`];
//! 2. take all events from [`Connection::poll_event`], and [`Connection::read`] streams that became readable;
//! 3. while [`Connection::wants_transmit`], call [`Connection::transmit`] and write the whole [`Transmit`];
//! 4. wait for the socket, the application, or [`Connection::next_deadline`].
//!
//! ```
//! use std::collections::VecDeque;
//! use bytes::{Buf, Bytes};
//! use fullbore_proto::{Config, Connection, Event, ReadState, Time, Transmit};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! /// Carries everything that `from` has to transmit to `to`.
//! fn carry(from: &mut Connection, to: &mut Connection) {
//!     while from.wants_transmit() {
//!         let mut out = Transmit::new();
//!         from.transmit(&mut out, Time::ZERO);
//!         let octets = out.copy_to_bytes(out.remaining());
//!         to.receive(octets, Time::ZERO).unwrap();
//!     }
//! }
//!
//! let mut client = Connection::client(Config::default(), Time::ZERO);
//! let mut server = Connection::server(Config::default(), Time::ZERO);
//! let request = http::Request::get("http://example.com/").body(())?;
//! let stream = client.open(request, true)?;
//! carry(&mut client, &mut server);
//!
//! while let Some(event) = server.poll_event() {
//!     if let Event::Request { stream, .. } = event {
//!         server.send_response(stream, &http::Response::new(()), false)?;
//!         server.send_data(stream, Bytes::from_static(b"hello"), true)?;
//!     }
//! }
//! carry(&mut server, &mut client);
//!
//! let mut body = VecDeque::new();
//! assert_eq!(client.read(stream, &mut body)?, ReadState::End);
//! assert_eq!(body, ["hello"]);
//! client.release_credit(stream, 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! `unstable` (off by default) makes the modules `frame` and `hpack` public, for tests and fuzzers of this repository. They follow
//! no versioning: any release may change them.
#![forbid(unsafe_code)]

mod cause;
mod config;
mod connection;
mod direction;
mod error;
mod event;
mod flow;
#[cfg(feature = "unstable")]
pub mod frame;
#[cfg(not(feature = "unstable"))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "tests and fuzzers use more of it"
)]
mod frame;
mod guard;
#[cfg(feature = "unstable")]
pub mod hpack;
#[cfg(not(feature = "unstable"))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "tests and fuzzers use more of it"
)]
mod hpack;
mod id;
mod invariant;
mod message;
mod payload;
mod prefetch;
mod priority;
mod role;
mod schedule;
mod stats;
mod stream;
mod tcp;
mod time;
mod transmit;
mod verdict;
mod watched;

pub use self::cause::Cause;
pub use self::config::{Config, FirstWindows, KeepAlive};
pub use self::connection::Connection;
pub use self::direction::Direction;
pub use self::error::{
    ConnectionError, ConnectionErrorKind, ErrorCode, PeerLimit, Side, StreamError, StreamErrorKind,
    UsageError,
};
pub use self::event::{Event, ReadState};
pub use self::flow::{
    Arrivals, DEFAULT_WINDOW, Ledger, MemoryBudget, Promise, Refill, RoundTrip, Share, Stall, StreamBudget,
    WindowSize,
};
pub use self::frame::FrameType;
pub use self::guard::Limit;
pub use self::id::{IdHasher, IdHashing, StreamId, StreamMap};
pub use self::message::{InvalidMessage, InvalidProtocol, Protocol, content_length, decimal};
pub use self::payload::{External, Payload};
pub use self::prefetch::prefetch;
pub use self::priority::Priority;
pub use self::role::Role;
pub use self::schedule::Scheduling;
pub use self::stats::{FrameCounts, Report, Stats, StreamReport};
pub use self::tcp::{CongestionControl, TcpInfo};
pub use self::time::Time;
pub use self::transmit::{Segment, Transmit};
pub use self::verdict::Verdict;
pub use self::watched::{Seen, Watched};
