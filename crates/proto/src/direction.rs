//! The two directions of a transfer.

use crate::flow::Ledger;
use crate::stats::Report;

/// A direction of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To this endpoint.
    Receiving,
    /// From this endpoint.
    Sending,
}

impl Direction {
    /// The name of the direction.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Receiving => "receiving",
            Direction::Sending => "sending",
        }
    }

    /// What connections waited for in this direction.
    pub fn ledger(self, report: &Report) -> &Ledger {
        match self {
            Direction::Receiving => &report.receiving,
            Direction::Sending => &report.sending,
        }
    }

    /// The bytes of DATA that a connection carried in this direction.
    pub fn data_bytes(self, report: &Report) -> u64 {
        match self {
            Direction::Receiving => report.stats.received_data_bytes,
            Direction::Sending => report.stats.sent_data_bytes,
        }
    }
}
