//! Flow control (RFC 9113 section 5.2): send credit, receive windows, and when they are refilled.
//! `docs/design/flow-control.md` states the laws that comments cite by number.
//!
//! The arithmetic uses absolute 64-bit offsets since the start of the stream or connection, so no sequence of
//! updates, SETTINGS and resets makes two counters drift apart.

mod budget;
mod credit;
mod proof;
mod receive;
mod recent;
mod rhythm;
mod size;
mod stall;
mod tuner;

pub use self::budget::{MemoryBudget, Promise, Share, StreamBudget};
pub use self::receive::Refill;
pub use self::rhythm::Arrivals;
pub use self::size::{DEFAULT_WINDOW, WindowSize};
pub use self::stall::{Ledger, Stall};
pub use self::tuner::RoundTrip;

pub(crate) use self::budget::Lease;
pub(crate) use self::credit::{CreditOverflow, SendCredit};
pub(crate) use self::proof::{PRESUMED_TRIP, Proves};
pub(crate) use self::receive::{Overrun, ReceiveWindow};
pub(crate) use self::rhythm::{Awaited, FLOWING, Rhythm};
pub(crate) use self::stall::SendingLedger;
pub(crate) use self::tuner::Pace;
