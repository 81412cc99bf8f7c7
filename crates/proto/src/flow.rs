//! Flow control (RFC 9113 section 5.2): the credit to send, the window that is advertised, and when it is refilled.
//!
//! All of it is arithmetic on absolute 64-bit offsets since the stream or connection began, so that no sequence of
//! updates, settings and resets can make two counters drift apart. `connection` calls it; it knows no frames.

mod budget;
mod credit;
mod receive;
mod size;
mod stall;
mod tuner;

pub use self::budget::{MemoryBudget, Promise, Share, StreamBudget};
pub use self::receive::Refill;
pub use self::size::{DEFAULT_WINDOW, WindowSize};
pub use self::stall::{Ledger, Stall};
pub use self::tuner::RoundTrip;

pub(crate) use self::budget::Lease;
pub(crate) use self::credit::{CreditOverflow, SendCredit};
pub(crate) use self::receive::{Overrun, ReceiveWindow};
pub(crate) use self::stall::SendingLedger;
pub(crate) use self::tuner::Pace;
