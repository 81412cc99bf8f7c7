//! Where one stream's handle and the driver meet: a small lock that nobody else takes.
//!
//! The driver puts in what was received and takes out what is to be sent; a handle does the reverse, and puts the stream
//! on the connection's list when the driver has to know. `body` and `sender` are the handles.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fullbore_proto::{ErrorCode, Payload, StreamId, StreamReport, WindowSize};
use http::{HeaderMap, Request, Response};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::watch::Slot;

/// How many bytes of a body may wait in a stream at most before its producer is asked to pause. 384 KiB: of one that hands
/// over 256 KiB at a time, two pieces fill one write.
pub(crate) const SEND_BUFFER: usize = 384 << 10;

/// How many may wait at least, however many streams share the memory. 4 KiB.
pub(crate) const LEAST_SEND_BUFFER: usize = 4 << 10;

/// Lists that have grown beyond this are not kept for the next stream.
const KEPT_CAPACITY: usize = 16;

/// A wish of the sending handle.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Informational(Box<Response<()>>),
    Response(Response<()>, bool),
    Data(Payload, bool),
    Trailers(Box<HeaderMap>),
    GrowWindow(WindowSize, oneshot::Sender<Result<(), Error>>),
    Report(oneshot::Sender<StreamReport>),
    Reset(ErrorCode),
}

/// One stream.
pub(crate) struct Cell {
    mailbox: Arc<Mailbox>,
    /// Whether it stands on the mailbox's list.
    listed: AtomicBool,
    state: Mutex<State>,
}

/// What the two sides leave for each other.
#[derive(Default)]
pub(crate) struct State {
    /// The stream's identifier, once the driver has given it one.
    pub(crate) id: Option<StreamId>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    /// What ended the stream before its time.
    pub(crate) error: Option<Error>,
    /// The stream's place among those that the peer allows, when the connection is pooled.
    pub(crate) slot: Option<Slot>,
}

impl State {
    /// The slot, for the taking, once both sides have ended the stream.
    pub(crate) fn spent_slot(&mut self) -> Option<Slot> {
        match self.inbound.ended && self.outbound.gone {
            true => self.slot.take(),
            false => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Inbound {
    pub(crate) head: Option<Response<()>>,
    pub(crate) chunks: VecDeque<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether the message is whole; chunks and trailers may still be here.
    pub(crate) ended: bool,
    pub(crate) reader: Option<Waker>,
    /// Bytes consumed and not yet reported for the stream's window.
    pub(crate) consumed: u64,
    /// How many of those make a WINDOW_UPDATE due; none once the peer has ended its half.
    pub(crate) report_at: Option<u64>,
    /// Nobody reads any more, and whether the driver has been told.
    pub(crate) gone: bool,
    pub(crate) gone_told: bool,
}

#[derive(Default)]
pub(crate) struct Outbound {
    /// The request that a client's stream begins with, and whether it is whole; before all wishes.
    pub(crate) request: Option<(Arc<Request<()>>, bool)>,
    pub(crate) wishes: VecDeque<Outgoing>,
    /// Bytes of body in `wishes` and in the engine's queue.
    pub(crate) queued: usize,
    /// Who waits: for room when `full`, otherwise for the stream to fail.
    pub(crate) writer: Option<Waker>,
    pub(crate) full: bool,
    /// Nobody sends any more.
    pub(crate) gone: bool,
    /// This stream's share of [`fullbore_proto::Config::send_buffer`], once the driver has said it.
    share: Option<usize>,
}

impl Outbound {
    /// Sets how much may wait.
    pub(crate) fn set_share(&mut self, bytes: usize) {
        self.share = Some(bytes);
    }

    /// Nothing of it is wanted any more.
    pub(crate) fn clear(&mut self) {
        self.request = None;
        self.wishes.clear();
    }

    /// Whether more may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queued < self.share.unwrap_or(SEND_BUFFER)
    }

    /// Takes note of how much is queued; whom to wake, when there is room again.
    pub(crate) fn set_queued(&mut self, bytes: usize) -> Option<Waker> {
        self.queued = bytes;
        if self.full && self.has_room() {
            self.full = false;
            return self.writer.take();
        }
        None
    }

    /// Bytes of body in `wishes`.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let bytes = |wish: &Outgoing| match wish {
            Outgoing::Data(data, _) => data.len(),
            _ => 0,
        };
        self.wishes.iter().map(bytes).sum()
    }
}

impl Cell {
    pub(crate) fn new(mailbox: Arc<Mailbox>, state: State) -> Arc<Self> {
        Arc::new(Cell {
            mailbox,
            listed: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// A cell that nobody else holds any more, for another stream: what it had gathered of memory serves again.
    pub(crate) fn reuse(self: &mut Arc<Self>) -> Option<&mut State> {
        let cell = Arc::get_mut(self)?;
        *cell.listed.get_mut() = false;
        let state = cell.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut chunks = std::mem::take(&mut state.inbound.chunks);
        let mut wishes = std::mem::take(&mut state.outbound.wishes);
        chunks.clear();
        wishes.clear();
        *state = State::default();
        if chunks.capacity() <= KEPT_CAPACITY {
            state.inbound.chunks = chunks;
        }
        if wishes.capacity() <= KEPT_CAPACITY {
            state.outbound.wishes = wishes;
        }
        Some(state)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics, and the state is sound between any two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the stream on the driver's list, once.
    pub(crate) fn post(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::SeqCst) {
            self.mailbox.post(Arc::clone(self));
        }
    }

    /// The driver takes the stream off its list, before it looks at the state.
    pub(crate) fn unlist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Ends the stream for both handles. Data that was received before can still be read.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        let wakers = [state.inbound.reader.take(), state.outbound.writer.take()];
        state.outbound.clear();
        let slot = state.slot.take();
        drop(state);
        drop(slot);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
    }

    /// The next chunk for the reader. Its credit returns now: to the connection at once, to the stream once enough has
    /// come together.
    pub(crate) fn poll_chunk(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Inflow, Error>>> {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        if let Some(chunk) = inbound.chunks.pop_front() {
            let bytes = chunk.len() as u64;
            inbound.consumed += bytes;
            let due = inbound.report_at.is_some_and(|at| inbound.consumed >= at);
            drop(state);
            if due {
                self.post();
            }
            self.mailbox.consume(bytes);
            return Poll::Ready(Some(Ok(Inflow::Data(chunk))));
        }
        if inbound.ended {
            let trailers = inbound.trailers.take();
            return Poll::Ready(trailers.map(|trailers| Ok(Inflow::Trailers(trailers))));
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        register(&mut state.inbound.reader, cx);
        Poll::Pending
    }

    /// The response's head, for a client.
    pub(crate) fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, Error>> {
        let mut state = self.lock();
        if let Some(head) = state.inbound.head.take() {
            return Poll::Ready(Ok(head));
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        register(&mut state.inbound.reader, cx);
        Poll::Pending
    }

    /// The reading handle is gone: what it did not read is credited here, what comes by the engine.
    pub(crate) fn drop_reader(self: &Arc<Self>) {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        inbound.gone = true;
        let unread: usize = inbound.chunks.drain(..).map(|chunk| chunk.len()).sum();
        inbound.trailers = None;
        let tell = !inbound.ended || state.outbound.gone;
        drop(state);
        if unread > 0 {
            self.mailbox.consume(unread as u64);
        }
        if tell {
            self.post();
        }
    }
}

/// What a reader gets.
pub(crate) enum Inflow {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// Keeps the task's waker, without cloning one that is there.
pub(crate) fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}
