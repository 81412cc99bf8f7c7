//! The meeting point of one stream's handles and the driver: a small lock that nobody else takes.
//!
//! The driver puts in what was received and takes out what is to be sent. A handle does the reverse, and lists the stream
//! in the connection's mailbox when the driver has something to do. `body` and `sender` are the handles.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fullbore_proto::{ErrorCode, Payload, StreamId, StreamReport, WindowSize};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::informational::OnInformational;
use crate::mailbox::Listed;
use crate::observer::Slot;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// The mailbox of a connection.
pub(crate) type Mailbox = crate::mailbox::Mailbox<Cell>;

/// The most bytes of a body that may wait in a stream before its producer has to pause: 384 KiB. Two pieces of a producer
/// of 256 KiB pieces fill one write.
pub(crate) const SEND_BUFFER: usize = 384 << 10;

/// The least, however many streams share the memory: 4 KiB.
pub(crate) const LEAST_SEND_BUFFER: usize = 4 << 10;

/// Lists with a larger capacity are not kept for the next stream.
const KEPT_CAPACITY: usize = 16;

/// A request of a handle that concerns one stream.
#[derive(Debug)]
pub(crate) enum StreamCommand {
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
    /// Whether it is on the mailbox's list.
    listed: AtomicBool,
    state: Mutex<CellState>,
}

/// What handles and driver leave for each other.
#[derive(Default)]
pub(crate) struct CellState {
    /// The stream's identifier, once the driver has opened it.
    pub(crate) id: Option<StreamId>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    /// What ended the stream early.
    pub(crate) error: Option<Error>,
    /// The stream's slot, when the connection is pooled.
    pub(crate) slot: Option<Slot>,
}

impl CellState {
    /// Makes it that of another stream. The lists keep their memory, unless it is much.
    fn reset(&mut self) {
        // Field by field: most of them are empty already, and a new state would be moved here. None can be forgotten.
        let CellState {
            id,
            inbound,
            outbound,
            error,
            slot,
        } = self;
        let Inbound {
            head,
            on_informational,
            chunks,
            trailers,
            ended,
            reader,
            consumed,
            release_at,
            abandoned,
            discarded,
        } = inbound;
        let Outbound {
            request,
            commands,
            queued,
            writer,
            full,
            finished,
            continued,
            share,
        } = outbound;
        *id = None;
        *error = None;
        *slot = None;
        *head = None;
        *on_informational = None;
        empty(chunks);
        *trailers = None;
        *reader = None;
        (*ended, *abandoned, *discarded) = (false, false, false);
        (*consumed, *release_at) = (0, None);
        *request = None;
        empty(commands);
        *writer = None;
        (*full, *finished, *continued) = (false, false, false);
        (*queued, *share) = (0, None);
    }

    /// Takes the slot once both sides have ended the stream.
    pub(crate) fn take_finished_slot(&mut self) -> Option<Slot> {
        match self.inbound.ended && self.outbound.finished {
            true => self.slot.take(),
            false => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct Inbound {
    pub(crate) head: Option<Response<()>>,
    /// The caller's callback for informational responses.
    pub(crate) on_informational: Option<Box<OnInformational>>,
    pub(crate) chunks: VecDeque<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether the message is complete; chunks and trailers may still be here.
    pub(crate) ended: bool,
    pub(crate) reader: Option<Waker>,
    /// Bytes that were consumed and whose credit the driver has not released for the stream's window.
    pub(crate) consumed: u64,
    /// The value of `consumed` at which a WINDOW_UPDATE is due; none once the peer has ended its half.
    pub(crate) release_at: Option<u64>,
    /// Whether the reading handle was dropped.
    pub(crate) abandoned: bool,
    /// Whether the engine has been told to discard what still comes.
    pub(crate) discarded: bool,
}

#[derive(Default)]
pub(crate) struct Outbound {
    /// The request that opens a client's stream, and whether it is complete; it precedes all commands.
    pub(crate) request: Option<(Arc<Request<()>>, bool)>,
    pub(crate) commands: VecDeque<StreamCommand>,
    /// Bytes of body in `commands` and in the engine's queue.
    pub(crate) queued: usize,
    /// Waits for room when `full`, otherwise for the stream to fail.
    pub(crate) writer: Option<Waker>,
    pub(crate) full: bool,
    /// Whether nothing follows: the message is complete, or the sending handle was dropped.
    pub(crate) finished: bool,
    /// Whether a handler has sent 100 (Continue) itself.
    pub(crate) continued: bool,
    /// The stream's share of [`fullbore_proto::Config::send_buffer`], once the driver has set it.
    share: Option<usize>,
}

impl Outbound {
    pub(crate) fn set_share(&mut self, bytes: usize) {
        self.share = Some(bytes);
    }

    /// Drops what has not been sent.
    pub(crate) fn clear(&mut self) {
        self.request = None;
        self.commands.clear();
    }

    /// Whether more may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queued < self.share.unwrap_or(SEND_BUFFER)
    }

    /// Sets how many bytes are queued; returns the writer to wake when there is room again.
    pub(crate) fn set_queued(&mut self, bytes: usize) -> Option<Waker> {
        self.queued = bytes;
        if self.full && self.has_room() {
            self.full = false;
            return self.writer.take();
        }
        None
    }

    /// Bytes of body in `commands`.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let bytes = |command: &StreamCommand| match command {
            StreamCommand::Data(data, _) => data.len(),
            _ => 0,
        };
        self.commands.iter().map(bytes).sum()
    }
}

impl Cell {
    pub(crate) fn new(mailbox: Arc<Mailbox>, state: CellState) -> Arc<Self> {
        Arc::new(Cell {
            mailbox,
            listed: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Clears a cell for [`Self::reuse`], unless a handle still holds it; whether it did. It keeps the memory of its lists.
    pub(crate) fn clear(self: &mut Arc<Self>) -> bool {
        let Some(cell) = Arc::get_mut(self) else {
            return false;
        };
        *cell.listed.get_mut() = false;
        let state = cell.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.reset();
        true
    }

    /// Makes a cell that was cleared that of another stream, perhaps of another connection.
    pub(crate) fn reuse(self: &mut Arc<Self>, mailbox: &Arc<Mailbox>) -> Option<&mut CellState> {
        let cell = Arc::get_mut(self)?;
        if !Arc::ptr_eq(&cell.mailbox, mailbox) {
            cell.mailbox = Arc::clone(mailbox);
        }
        Some(cell.state.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CellState> {
        // No code that holds the lock panics, and the state is sound between any two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the stream on the driver's list, once.
    pub(crate) fn post(self: &Arc<Self>) {
        // Most callers find it listed and only read the flag. The driver clears the flag before it looks at the state: if it
        // does not see what they left, they see that the flag is clear.
        if !self.listed.load(Ordering::SeqCst) && !self.listed.swap(true, Ordering::SeqCst) {
            self.mailbox.post(Arc::clone(self));
        }
    }

    /// Asks the driver for the stream's report. `None` if the stream has failed, or the driver has forgotten it.
    pub(crate) fn ask_report(self: &Arc<Self>) -> Option<oneshot::Receiver<StreamReport>> {
        let mut state = self.lock();
        let is_released = state.inbound.abandoned && state.outbound.finished;
        if state.error.is_some() || is_released {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        state.outbound.commands.push_back(StreamCommand::Report(answer));
        drop(state);
        self.post();
        Some(answered)
    }

    /// The mailbox of the connection.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Keeps a new stream off the list until [`Self::unlist`], after which the driver looks at its state. Called before there
    /// are handles.
    pub(crate) fn hold(&self) {
        self.listed.store(true, Ordering::Relaxed);
    }

    /// Takes the stream off the list. The driver calls this before it looks at the state.
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

    /// The next chunk or the trailers, for the reader. A chunk's credit returns now: the connection's at once, the stream's
    /// when a WINDOW_UPDATE is due.
    pub(crate) fn poll_frame(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        if let Some(chunk) = inbound.chunks.pop_front() {
            let bytes = chunk.len() as u64;
            inbound.consumed += bytes;
            let due = inbound.release_at.is_some_and(|at| inbound.consumed >= at);
            drop(state);
            if due {
                self.post();
            }
            self.mailbox.consume(bytes);
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if inbound.ended {
            return Poll::Ready(
                inbound
                    .trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers))),
            );
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Some(Err(error.clone())));
        }
        register(&mut state.inbound.reader, cx);
        Poll::Pending
    }

    /// The header section of the response, for a client.
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

    /// The reading handle was dropped. The credit of what it did not read returns here; the engine releases that of what
    /// still comes.
    pub(crate) fn drop_reader(self: &Arc<Self>) {
        let mut state = self.lock();
        let inbound = &mut state.inbound;
        inbound.abandoned = true;
        let unread: usize = match inbound.chunks.is_empty() {
            true => 0,
            false => inbound.chunks.drain(..).map(|chunk| chunk.len()).sum(),
        };
        inbound.trailers = None;
        let tell = !inbound.ended || state.outbound.finished;
        drop(state);
        if unread > 0 {
            self.mailbox.consume(unread as u64);
        }
        if tell {
            self.post();
        }
    }
}

impl Listed for Cell {
    fn connection_ended(&self, error: Error) {
        self.fail(error);
    }
}

/// Empties a list, and frees its memory if that is much.
fn empty<T>(list: &mut VecDeque<T>) {
    if !list.is_empty() {
        list.clear();
    }
    if list.capacity() > KEPT_CAPACITY {
        *list = VecDeque::new();
    }
}

/// Keeps the task's waker, without cloning one that is there.
pub(crate) fn register(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}
