//! A long path on one machine: a TCP forwarder that adds a round-trip time, a rate and a buffer in each direction.
//!
//! A [`Link`] reads data at once into its own memory. The data waits for the link, takes the time of its bytes at the
//! link's rate, travels for half the round-trip time, and is then written to the other side. The link has no window of its
//! own: throughput is limited by the windows of the client and the server, by the rate, or by the machine. Closes and
//! resets travel behind the data.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! let server = TcpListener::bind("127.0.0.1:0")?;
//! let link = fullbore_link::Link::builder()
//!     .rtt(Duration::from_millis(10))
//!     .rate(1_000_000_000)
//!     .start(server.local_addr()?)?;
//!
//! let mut client = TcpStream::connect(link.local_addr())?;
//! client.write_all(b"five ms later")?;
//! let (mut accepted, _) = server.accept()?;
//! let mut buffer = [0; 13];
//! accepted.read_exact(&mut buffer)?;
//! assert_eq!(&buffer, b"five ms later");
//! assert_eq!(link.stats().to_server.received_bytes, 13);
//! # Ok(())
//! # }
//! ```
//!
//! # The model
//! All connections share one link with one rate in each direction, like the slowest link of a real path. In each direction, with `size` in bytes and `rate` in bits a second:
//!
//! ```text
//! departure begins = max(arrival, departure of the byte before)
//! departure ends   = departure begins + 8 * size / rate
//! delivery         = departure ends + rtt / 2 (+ jitter), never before the byte ahead of it
//! ```
//!
//! - A packet has the bytes that the link carries in a fiftieth of the round trip, within 0.02 to 0.2 ms and 1,448 bytes to
//!   256 KiB. It is delivered with its last byte.
//! - Rates count the bytes of the TCP stream, without headers.
//! - There is no loss. When the buffer of the link is full, the link stops reading, and the sender's TCP waits. The same
//!   applies to a connection whose receiver leaves that many delivered bytes unread.
//! - Data that waits for the link when its receiver closes or resets the connection is dropped, so that it does not delay other
//!   connections.
//! - A TCP handshake takes no time, unless [`Builder::handshake`] is set.
//!
//! # Accuracy
//! One thread does everything. It sleeps until the next delivery (on Linux with `timerfd`; on other systems with the
//! accuracy of `poll`, which may be a millisecond). On Linux it requests the lowest real-time priority, or else a better
//! nice value. An ordinary user usually gets neither; then deliveries are some milliseconds late while other programs keep
//! every processor busy. [`Stats::release_error`] says how late deliveries were, and so whether a measurement is valid.
//! `examples/accuracy.rs` prints it for this machine.
//!
//! Measured on two processors kept busy by other programs, at 1 Gbit/s: half of all deliveries less than 0.01 ms late, and
//! 99 % less than 0.1 ms, for an eighth of one processor. Without a rate, one connection carries 15 to 22 Gbit/s.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod byte_queue;
mod engine;
mod frames;
mod link;
mod path;
mod side;
mod socket;
mod stats;
mod timer;
pub mod units;

pub use frames::FrameCounts;
pub use link::{Builder, DEFAULT_BUFFER, Link};
pub use stats::{ConnectionReport, End, ReleaseError, Stats, Traffic};
