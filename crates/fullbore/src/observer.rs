//! What a connection reports to the pool that it belongs to: limits, the round trip, the end, and every stream that is over.
//!
//! The driver knows no pools. It calls the [`Observer`] in its mailbox, if there is one, and drops the [`Slot`] in a
//! stream's cell when the stream has ended on both sides. `client::pool` implements it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::error::Error;

/// The observer of one connection. Calls come from the driver's turn and from handles: none may block.
pub(crate) trait Observer: Send + Sync {
    /// The connection is about to begin over this TCP connection.
    fn over_tcp(&self, tcp: &TcpStream);

    /// The peer's SETTINGS came or changed: it allows this many concurrent streams.
    fn settings_received(&self, max_streams: u32);

    /// The smallest round trip that was measured.
    fn round_trip_measured(&self, minimum: Duration);

    /// Whether the round trip is to be measured once more.
    fn wants_round_trip(&self) -> bool;

    /// A PING was sent to measure it, all earlier ones being acknowledged.
    fn round_trip_asked(&self);

    /// Whether requests wait for a slot, on this connection or another.
    fn requests_wait(&self) -> bool;

    /// The peer refused a stream, whose slot was taken then, or the whole connection (no slot), and processed nothing of
    /// what it refused.
    fn refused(&self, error: &Error, slot_taken: Option<Instant>);

    /// The peer ends the connection after so many requests without an error, and leaves out others that were sent or wait.
    fn ended_after(&self, requests: u64);

    /// The peer has answered a request.
    fn answered(&self);

    /// The first response says that the server takes no further connections. Called before the slot is free.
    fn turned_away(&self);

    /// Whether it said so, and others of the pool can carry its request.
    fn is_turned_away(&self) -> bool;

    /// No new streams may be opened. Open streams continue.
    fn closing(&self);

    /// The connection has ended. Its streams are told afterwards.
    fn closed(&self, error: &Error);

    /// Why no connection can be had, when it ended before the peer sent anything in HTTP/2: another attempt would end the
    /// same way.
    fn failure(&self) -> Option<Error>;

    /// Whether the peer has proved to speak the version of this connection.
    fn is_version_proven(&self) -> bool;

    /// Completes when the peer has proved to speak the version of this connection, or the connection has ended.
    fn version_proven(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Completes when the peer has said something in the version of this connection, or the connection has ended.
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Whether the peer speaks another version of HTTP, in which the pool has to send the requests of this connection. It
    /// processed none of them.
    fn is_other_version(&self) -> bool;

    /// A slot is free again. An exchange that completed says how long it took.
    fn slot_freed(&self, exchange: Option<Duration>);
}

/// One of the concurrent streams that the peer allows on a connection. It is in the stream's cell from the request until
/// both sides have ended the stream. Dropping it frees it, so that none is lost.
pub(crate) struct Slot {
    observer: Option<Arc<dyn Observer>>,
    taken: Instant,
}

impl Slot {
    pub(crate) fn new(observer: Arc<dyn Observer>, taken: Instant) -> Self {
        Slot {
            observer: Some(observer),
            taken,
        }
    }

    /// When it was taken.
    pub(crate) fn taken(&self) -> Instant {
        self.taken
    }

    /// The exchange completed.
    pub(crate) fn complete(self) {
        self.complete_at(Instant::now());
    }

    /// The exchange completed at this time.
    pub(crate) fn complete_at(mut self, now: Instant) {
        if let Some(observer) = self.observer.take() {
            observer.slot_freed(Some(now.saturating_duration_since(self.taken)));
        }
    }

    /// Drops it without freeing it: the caller does that.
    pub(crate) fn forget(mut self) {
        self.observer = None;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.slot_freed(None);
        }
    }
}
