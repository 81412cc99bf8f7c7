//! What a pool of connections hears from the driver of each: limits, the round trip, the end, and every stream that is
//! over.
//!
//! The driver knows nothing of pools. It tells the [`Watch`] in its mailbox, if there is one, and lets go of the [`Slot`]
//! in a stream's cell when the stream has ended on both sides. `client::pool` is who watches.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// Who wants to hear of one connection. Calls come from the driver's turn and from handles: none may block.
pub(crate) trait Watch: Send + Sync {
    /// The peer's SETTINGS came or changed: it allows this many streams at once.
    fn settings_received(&self, max_streams: u32);

    /// The least round trip that was measured.
    fn round_trip_measured(&self, minimum: Duration);

    /// Whether the round trip is to be measured once more.
    fn wants_round_trip(&self) -> bool;

    /// It is being measured once more, all measures before having come back.
    fn round_trip_asked(&self);

    /// Whether requests wait for a slot, on this connection or another: what its ledgers cannot know by themselves.
    fn requests_wait(&self) -> bool;

    /// The peer has refused a stream that took its slot then, or with no slot the connection as a whole, and has not
    /// processed what it refused.
    fn refused(&self, error: &Error, slot_taken: Option<Instant>);

    /// The peer has answered a request.
    fn answered(&self);

    /// No new streams may be opened. Streams under way go on.
    fn closing(&self);

    /// The connection is over, before its streams hear of it.
    fn closed(&self, error: &Error);

    /// Why the connection cannot be had, when it ended before the peer had said anything in HTTP/2: to try again would
    /// end the same.
    fn failure(&self) -> Option<Error>;

    /// A slot is free again. An exchange that ended well says how long it took, everything included.
    fn slot_freed(&self, exchange: Option<Duration>);
}

/// One of the streams that the peer allows on a connection. It lies in the stream's cell from the request until both
/// sides have ended the stream; letting go of it in any way frees it, so that none is lost.
pub(crate) struct Slot {
    watch: Option<Arc<dyn Watch>>,
    taken: Instant,
}

impl Slot {
    pub(crate) fn new(watch: Arc<dyn Watch>, taken: Instant) -> Self {
        Slot {
            watch: Some(watch),
            taken,
        }
    }

    /// When it was taken.
    pub(crate) fn taken(&self) -> Instant {
        self.taken
    }

    /// The exchange ended well.
    pub(crate) fn complete(mut self) {
        if let Some(watch) = self.watch.take() {
            watch.slot_freed(Some(self.taken.elapsed()));
        }
    }

    /// Whoever calls this frees it by itself.
    pub(crate) fn forget(mut self) {
        self.watch = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.slot_freed(None);
        }
    }
}
