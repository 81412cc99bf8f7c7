//! A stream: its identifier, its state (RFC 9113 section 5.1), what it has received, and what it has to send.

mod receive_queue;
mod send_queue;
mod state;

pub(crate) use self::receive_queue::ReceiveQueue;
pub(crate) use self::send_queue::SendQueue;
pub(crate) use self::state::{Cause, Phase, StreamState};

use http::HeaderMap;

use crate::event::EventId;
use crate::flow::{Ledger, Pace, ReceiveWindow, SendCredit, SendingLedger};
use crate::id::StreamId;
use crate::priority::Priority;
use crate::schedule::Turn;
use crate::time::{ProgressMark, Time};

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Its index in the list of the store.
    pub(crate) index: u32,
    pub(crate) state: StreamState,
    /// Whether the owner has released it. A stream is stored until it is closed and released.
    pub(crate) released: bool,
    pub(crate) receive: ReceiveHalf,
    pub(crate) send: SendHalf,
    pub(crate) priority: Priority,
    /// The memory of its field sections beyond the free part, in bytes.
    pub(crate) header_memory: usize,
    /// The event of its request, on a server.
    pub(crate) request_event: Option<EventId>,
}

#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub(crate) window: ReceiveWindow,
    /// How fast the peer uses the window.
    pub(crate) pace: Pace,
    /// The received bytes at the last check of time limits.
    pub(crate) mark: ProgressMark,
    pub(crate) queue: ReceiveQueue,
    pub(crate) phase: Phase,
    /// The bytes that `content-length` announced and that have not arrived.
    pub(crate) expected: Option<u64>,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    pub(crate) discards: Discards,
    /// A `Readable` event is queued, or the owner has not read since it took one.
    pub(crate) announced: bool,
    /// Whether it is on the list of windows to refill.
    pub(crate) refill: RefillListing,
    pub(crate) content: Content,
    pub(crate) ledger: Ledger,
}

impl ReceiveHalf {
    /// Whether nobody reads what arrives.
    pub(crate) fn is_discarded(&self) -> bool {
        self.discards != Discards::Nothing
    }
}

/// What is discarded of a message that arrives. Its credit is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discards {
    /// The owner reads it.
    Nothing,
    /// All, for the owner's sake alone: the stream stays as it is.
    ForOwner,
    /// All: once the response is complete, the stream is to end.
    All,
    /// The response is complete, and this many more bytes are discarded before the stream is reset.
    Rest(u64),
}

/// What DATA of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Body,
    /// The request was HEAD, or the response cannot have a body (RFC 9110 section 6.4.1).
    None,
    /// The request was CONNECT: DATA is that of a tunnel, and `content-length` does not apply.
    Tunnel,
}

/// Whether a window is on the list of those to refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefillListing {
    None,
    /// It is refilled with the next write.
    InCompany,
    /// It is due, even without another write.
    Due,
}

/// Whether the owner of a stream waits for credit to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WantsCredit {
    No,
    /// For that of the stream.
    OfStream,
    /// For that of the stream, and, at this place of a list, for that of the connection, which has none.
    OfBoth(u64),
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) credit: SendCredit,
    /// The sent bytes at the last check of time limits.
    pub(crate) mark: ProgressMark,
    pub(crate) queue: SendQueue,
    pub(crate) phase: Phase,
    /// The request, while the stream waits until the peer allows it.
    pub(crate) waiting: Option<Box<http::Request<()>>>,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    /// Its turn, if it is in the schedule.
    pub(crate) scheduled: Option<Turn>,
    /// Whether data waits for the stream's own window.
    pub(crate) window_blocked: bool,
    /// Whether END_STREAM was sent.
    pub(crate) ended: bool,
    /// Whether the owner waits for credit.
    pub(crate) wants_credit: WantsCredit,
    /// The owner waits until the queue has fallen to this many bytes.
    pub(crate) wants_room: Option<usize>,
    /// Since when a frame is held back because the window would make it tiny (law 6).
    pub(crate) held_since: Option<Time>,
    pub(crate) ledger: SendingLedger,
}

impl Stream {
    pub(crate) fn new(
        id: StreamId,
        state: StreamState,
        receive: ReceiveWindow,
        send: SendCredit,
        now: Time,
    ) -> Self {
        Stream {
            id,
            index: 0,
            state,
            released: false,
            receive: ReceiveHalf {
                window: receive,
                pace: Pace::default(),
                mark: ProgressMark::new(now),
                queue: ReceiveQueue::default(),
                phase: Phase::Headers,
                expected: None,
                trailers: None,
                discards: Discards::Nothing,
                announced: false,
                refill: RefillListing::None,
                content: Content::Body,
                ledger: Ledger::new(now),
            },
            send: SendHalf {
                credit: send,
                mark: ProgressMark::new(now),
                queue: SendQueue::default(),
                phase: Phase::Headers,
                waiting: None,
                trailers: None,
                scheduled: None,
                window_blocked: false,
                ended: false,
                wants_credit: WantsCredit::No,
                wants_room: None,
                held_since: None,
                ledger: SendingLedger::new(now),
            },
            priority: Priority::default(),
            header_memory: 0,
            request_event: None,
        }
    }

    /// Whether the stream waits until the peer allows more streams.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == StreamState::Waiting
    }

    /// Whether only END_STREAM or trailers are left to send, which need no credit.
    pub(crate) fn only_end_is_missing(&self) -> bool {
        self.send.phase == Phase::Done && self.send.queue.is_empty() && !self.send.ended
    }
}

/// The memory of an idle stream, of which a connection may have ten thousand.
const _: () = assert!(size_of::<Stream>() <= 680);
