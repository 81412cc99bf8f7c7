//! Reports of connections and streams: counters, windows, and what was waited for.
//!
//! [`Client::reports`](crate::Client::reports), [`SendRequest::report`](crate::client::SendRequest::report),
//! [`Incoming::report`](crate::Incoming::report), and [`ServerBuilder::on_end`](crate::ServerBuilder::on_end) give them. A [`Verdict`] says in a sentence what limited the
//! transfers:
//!
//! ```no_run
//! # async fn run(client: fullbore::Client) {
//! use fullbore::stats::{Direction, Role, Verdict};
//!
//! if let Some(verdict) = Verdict::of(Role::Client, Direction::Receiving, &client.reports().await) {
//!     println!("{verdict}");
//! }
//! # }
//! ```

pub use fullbore_proto::{
    Arrivals, Cause, CongestionControl, Direction, FrameCounts, FrameType, Ledger, Report, Role, RoundTrip,
    Stall, Stats, StreamReport, TcpInfo, Verdict,
};

pub use crate::client::OriginStats;
