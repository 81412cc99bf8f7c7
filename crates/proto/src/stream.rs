//! One stream: its identifier, its state (RFC 9113 section 5.1), what it has received and not handed on, and what it has to
//! send.

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

/// A stream of the connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Its place among the streams of the store, which keeps it.
    pub(crate) index: u32,
    pub(crate) state: StreamState,
    /// Whether the owner above has let go of it. A stream lives until it is closed and released.
    pub(crate) released: bool,
    pub(crate) receive: ReceiveHalf,
    pub(crate) send: SendHalf,
    pub(crate) priority: Priority,
    /// How much memory its field sections take beyond what is free, in octets.
    pub(crate) header_memory: usize,
    /// Where the event that tells of its request stands, of a server's.
    pub(crate) request_event: Option<EventId>,
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    pub(crate) window: ReceiveWindow,
    /// How fast it is used up.
    pub(crate) pace: Pace,
    /// What had come when it was looked at last.
    pub(crate) mark: ProgressMark,
    pub(crate) queue: ReceiveQueue,
    pub(crate) phase: Phase,
    /// What `content-length` promised and has not come yet.
    pub(crate) expected: Option<u64>,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    /// Nobody reads any more: what comes is credited and dropped.
    pub(crate) discard: bool,
    /// How much more is dropped before the stream is reset, the response being whole.
    pub(crate) early_bytes_left: Option<u64>,
    /// An event that says there is something to read is under way.
    pub(crate) announced: bool,
    /// Where it stands with the list of windows to refill.
    pub(crate) refill: RefillListing,
    /// The request was HEAD, or the response cannot have a body (RFC 9110 section 6.4.1).
    pub(crate) bodiless: bool,
    /// The request was CONNECT: what comes is a tunnel's, and `content-length` says nothing of it.
    pub(crate) tunnel: bool,
    /// What it has waited for.
    pub(crate) ledger: Ledger,
}

/// Whether a window stands on the list of those to refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefillListing {
    None,
    /// It is refilled when a write is leaving anyway.
    InCompany,
    /// It is due.
    Due,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct SendHalf {
    pub(crate) credit: SendCredit,
    /// What had left when it was looked at last.
    pub(crate) mark: ProgressMark,
    pub(crate) queue: SendQueue,
    pub(crate) phase: Phase,
    /// The request of a stream that waits for the peer to allow it.
    pub(crate) waiting: Option<Box<http::Request<()>>>,
    pub(crate) trailers: Option<Box<HeaderMap>>,
    /// Its turn, when the schedule knows it as ready.
    pub(crate) scheduled: Option<Turn>,
    /// Whether data waits for the stream's own window.
    pub(crate) window_blocked: bool,
    /// Whether END_STREAM has left.
    pub(crate) ended: bool,
    /// The owner waits for the queue to fall to this many bytes.
    pub(crate) wants_room: Option<usize>,
    /// Since when a frame is held back because the window would cut it tiny (law 6).
    pub(crate) held_since: Option<Time>,
    /// What it has waited for.
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
                discard: false,
                early_bytes_left: None,
                announced: false,
                refill: RefillListing::None,
                bodiless: false,
                tunnel: false,
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
                wants_room: None,
                held_since: None,
                ledger: SendingLedger::new(now),
            },
            priority: Priority::default(),
            header_memory: 0,
            request_event: None,
        }
    }

    /// Whether all that was queued has left and only END_STREAM or trailers are missing, which need no credit.
    pub(crate) fn only_end_is_missing(&self) -> bool {
        self.send.phase == Phase::Done && self.send.queue.is_empty() && !self.send.ended
    }
}

/// What it costs that a stream is there at all, and ten thousand may be.
const _: () = assert!(size_of::<Stream>() <= 680);
