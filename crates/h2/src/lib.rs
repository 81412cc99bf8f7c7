//! HTTP/2 for clients and servers: the interface of the crate `h2` 0.4 over the engine of fullbore.
//!
//! A connection needs a transport, any `AsyncRead + AsyncWrite` of tokio's traits, and a task that polls it. Nothing moves
//! otherwise: the crate spawns no task, sets no timer and needs no runtime.
//!
//! * [`client`] opens requests: [`client::handshake`] returns a sender of requests and the connection to poll.
//! * [`server`] accepts them: [`server::handshake`] returns the connection, which yields requests as it is polled.
//!
//! # Handshake
//! HTTP/2 is negotiated by ALPN over TLS (protocol `h2`), or spoken at once with prior knowledge (RFC 9113 section 3). Either is
//! past before a transport comes here: both `handshake` functions begin with the connection preface.
//!
//! # Flow control
//! A receiver grants credit to the sender, of each stream and of the connection (RFC 9113 section 5.2).
//!
//! Receiving: the bytes that [`RecvStream`] hands out count against the windows until [`FlowControl::release_capacity`]. An
//! application that does not release them stops the peer, in the end on all streams.
//!
//! Sending: [`SendStream::send_data`] takes any amount and keeps what the windows do not allow yet. An application that wants
//! to hold no more than can leave asks by [`SendStream::reserve_capacity`] and [`SendStream::poll_capacity`].
//!
//! # Features
//! `stream` implements `futures_core::Stream` for [`RecvStream`], [`server::Connection`] and [`client::PushPromises`].
//!
//! `fixed-windows` keeps receive windows as the builder sets them; otherwise they grow with the path, within a budget of the
//! process.
//!
//! `unstable` is for the tests of the published crate alone.
#![forbid(unsafe_code)]

mod bodies;
pub mod client;
mod driver;
mod error;
pub mod ext;
mod failure;
mod handle;
mod incoming;
mod message;
mod options;
mod pings;
mod reason;
mod report;
pub mod server;
mod settings;
mod share;
mod state;
mod stream;
mod windows;

/// The frames of the published crate, which tests of it speak.
#[cfg(feature = "unstable")]
pub use h2_upstream::{Codec, SendError, UserError, frame, proto};

pub use self::error::Error;
pub use self::reason::Reason;
pub use self::share::{FlowControl, Ping, PingPong, Pong, RecvStream, SendStream, StreamId};
