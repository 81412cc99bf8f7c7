//! A long path on one machine: a TCP forwarder that adds a round-trip time, a rate and a buffer in each direction.
//!
//! What arrives at a [`Link`] is read at once into memory of its own, waits its turn for the link, takes the time
//! that its bytes need at the link's rate, travels for half the round-trip time, and is then written to the other
//! side. No window of the link's own stands in the way: between a client and a server that are connected through it,
//! throughput is bounded by *their* windows, by the rate, or by the machine. Closes and resets travel the same path
//! as the bytes, behind them.
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
//! One link, with one rate in each direction, is shared by all connections through it, as the slowest link of a real
//! path is. In each direction, with `size` in bytes and `rate` in bits a second:
//!
//! ```text
//! departure begins = max(arrival, departure of the byte before)
//! departure ends   = departure begins + 8 * size / rate
//! delivery         = departure ends + rtt / 2 (+ jitter), never before the byte that went ahead of it
//! ```
//!
//! - Bytes are delivered in packets of what the link carries in a fiftieth of the round trip, but in no less than 0.02 ms and
//!   no more than 0.2 ms, at least 1,448 bytes and at most 256 KiB; a packet is delivered when its last byte is.
//! - Rates count the bytes of the TCP stream; no header is added to them.
//! - TCP has no loss here. When as many bytes wait for the link as its buffer holds, the link stops reading, and the
//!   sender's own TCP holds the rest back. The same happens to one connection whose receiver leaves that many
//!   delivered bytes unread.
//! - A TCP handshake takes no time, unless [`Builder::handshake`] asks for it.
//!
//! # How true it is
//! One thread does everything: it sleeps until the very nanosecond of the next delivery (`timerfd` on Linux; other
//! systems sleep as exactly as their `poll` does, which may be a millisecond). On Linux it asks to be a real-time thread
//! of the lowest priority, or else for a better nice value; who may have neither (an ordinary user, as a rule) finds
//! deliveries some milliseconds late while other programs keep every processor busy. [`Stats::release_error`] tells how
//! late deliveries were, so a figure that was measured while the machine was too busy can be known as such;
//! `examples/accuracy.rs` prints it for this machine.
//!
//! Measured with two processors that other programs kept busy: at 1 Gbit/s half of all deliveries less than 0.01 ms
//! late and 99 % less than 0.1 ms, for an eighth of one processor; 15 to 22 Gbit/s through one connection without a
//! rate.

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
