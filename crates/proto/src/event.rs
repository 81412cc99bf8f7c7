//! What a connection tells its owner, and the queue in which events wait for it.

mod happened;
mod queue;

pub use self::happened::{Event, ReadState};
pub(crate) use self::queue::{EventId, Events};
