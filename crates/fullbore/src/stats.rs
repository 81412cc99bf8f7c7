//! Reports of connections and streams: counters, windows, and what was waited for.
//!
//! [`Client::reports`](crate::Client::reports), [`SendRequest::report`](crate::client::SendRequest::report),
//! [`Incoming::report`](crate::Incoming::report), and [`ServerBuilder::on_end`](crate::ServerBuilder::on_end) give them.

pub use fullbore_proto::{
    Arrivals, Cause, CongestionControl, Direction, FrameCounts, FrameType, Ledger, Report, Role, RoundTrip,
    Stall, Stats, StreamReport, TcpInfo, Verdict,
};

pub use crate::client::OriginStats;
