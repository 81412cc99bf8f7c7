//! How many connections to an origin are worth it, where each may be held back by TCP: by its congestion window after a loss,
//! by its buffers over a long round trip, or by a shaper's limit on each flow.
//!
//! `judge` decides, `meter` counts the bytes that came lately, and `facts` is what TCP says of the path. A download uses them
//! for its body (`download`), a pool for many requests (`pool::origin::spreading`).

mod facts;
mod judge;
mod meter;

pub(super) use self::facts::{TcpReport, Watch};
pub(super) use self::judge::{Advice, Judge, View};
pub(super) use self::meter::Meter;
