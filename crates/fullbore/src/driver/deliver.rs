//! From the engine's events to the cells of the streams. Each reader is woken once a batch.

use std::sync::Arc;
use std::task::Context;

use fullbore_proto::{Event, ReadState, StreamError, StreamErrorKind, StreamId};
use http::{HeaderMap, Method, Request, Response, header};
use tokio::io::{AsyncRead, AsyncWrite};

use super::unanswered::{Answer, Unanswered};
use super::{Accept, Driver, spare};
use crate::body::Incoming;
use crate::cell::Cell;
use crate::error::{Error, PeerGoAway};
use crate::observer::Slot;

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Delivers all events, unless requests are left to a later turn.
    pub(super) fn deliver_events(&mut self, cx: &mut Context<'_>) {
        if !self.turn.leaves_events() {
            self.deliver_until(u32::MAX, 0, cx);
        }
    }

    /// Delivers events until `requests` of them have begun a request, or only `keep` are left. Those wait for the next turn that
    /// begins with a read.
    pub(super) fn deliver_until(&mut self, mut requests: u32, keep: usize, cx: &mut Context<'_>) {
        while requests > 0 && self.connection.event_count() > keep {
            // Taken apart where it is: a request is a quarter of a KiB.
            match self.connection.poll_event() {
                None => break,
                Some(Event::Request { stream, request, end }) => {
                    requests -= 1;
                    self.begin(stream, request, end, cx);
                }
                Some(Event::Response {
                    stream,
                    response,
                    end,
                }) => self.deliver_head(stream, response, end),
                Some(Event::Readable(stream)) => self.deliver_data(stream),
                Some(Event::Writable(stream)) => self.deliver_room(stream),
                Some(Event::Reset(error)) => self.deliver_reset(&error),
                Some(Event::GoAway {
                    last_stream,
                    code,
                    debug,
                }) => {
                    let goaway = PeerGoAway {
                        last_stream,
                        code,
                        debug,
                    };
                    // Before the pool looks for another connection.
                    self.mailbox
                        .observe(|observer| observer.refused(&Error::from_go_away(&goaway), None));
                    let leaves_out = || {
                        self.mailbox.has_requests_waiting()
                            || self.cells.keys().any(|id| id.value() > last_stream)
                    };
                    if goaway.is_graceful() && leaves_out() {
                        // Ours have odd numbers (RFC 9113 section 5.1.1).
                        let requests = u64::from(last_stream.div_ceil(2));
                        self.mailbox.observe(|observer| observer.ended_after(requests));
                    }
                    report!(self, peer_goaway(&goaway));
                    self.peer_goaway = Some(Box::new(goaway));
                    self.mailbox.set_closing();
                }
                Some(Event::PeerSettings) => {
                    report!(self, settings(&self.connection));
                    let streams = self.connection.peer_max_concurrent_streams();
                    self.mailbox
                        .observe(|observer| observer.settings_received(streams));
                }
                Some(Event::Informational { stream, response }) => {
                    self.deliver_informational(stream, response)
                }
                Some(_) => {}
            }
        }
        self.turn.leave_events(self.connection.event_count() > 0);
    }

    /// A stream was reset, by either side.
    fn deliver_reset(&mut self, error: &StreamError) {
        report!(self, reset(error));
        let Some(cell) = self.cells.get(&error.stream) else {
            return;
        };
        self.turn.yield_to_tasks();
        let error = match &self.peer_goaway {
            Some(goaway) if error.kind() == StreamErrorKind::NotProcessed => Error::from_go_away(goaway),
            _ => Error::from_stream(error),
        };
        if error.wants_pause() {
            // Before the slot is free, so that no other request takes it.
            let taken = cell.lock().slot.as_ref().map(Slot::taken);
            self.mailbox.observe(|observer| {
                if taken.is_some() {
                    observer.refused(&error, taken);
                }
            });
        }
        cell.fail(error);
    }

    /// A server's new request.
    fn begin(&mut self, id: StreamId, request: Request<()>, end: bool, cx: &mut Context<'_>) {
        report!(self, request(id, &request));
        let (body, cell) = match end {
            true => (Incoming::empty(), None),
            false => {
                let (body, cell) = self.body_of(id, &request);
                (body, Some(cell))
            }
        };
        let mut unanswered = Unanswered {
            id,
            connection: &mut self.connection,
            mailbox: &self.mailbox,
            #[cfg(feature = "tracing")]
            trace: &mut self.trace,
            cell,
            answer: Answer::None,
        };
        self.accept.accept(request.map(|()| body), &mut unanswered, cx);
        if let Answer::None = unanswered.answer {
            // The handler has panicked: a sender that is dropped resets the stream.
            drop(unanswered.sender());
        }
        let Answer::Sender(cell) = unanswered.answer else {
            return;
        };
        // What a handler leaves at once needs neither the list nor a place among the cells.
        cell.unlist();
        match self.apply(&cell) {
            Some(_) => self.keep_spare(cell),
            None => drop(self.cells.insert(id, cell)),
        }
    }

    /// The body of a request that has one, and the cell of its stream, which is held.
    fn body_of(&mut self, id: StreamId, request: &Request<()>) -> (Incoming, Arc<Cell>) {
        let release_at = self.connection.stream_release_until_due(id);
        let share = self.share();
        let cell = spare::cell(&self.mailbox, |state| {
            state.id = Some(id);
            state.inbound.release_at = release_at;
            state.outbound.set_share(share);
        });
        cell.hold();
        let length = match *request.method() == Method::CONNECT {
            // The octets of a tunnel are no content.
            true => None,
            false => received_length(request.headers()),
        };
        let expects_continue = request
            .headers()
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let body = Incoming::new(Arc::clone(&cell), length).expecting_continue(expects_continue);
        (body, cell)
    }

    fn deliver_informational(&mut self, id: StreamId, response: Response<()>) {
        let cell = self.cells.get(&id);
        let callback = cell.and_then(|cell| cell.lock().inbound.on_informational.clone());
        if let Some(callback) = callback {
            callback.call(response);
        }
    }

    fn deliver_head(&mut self, id: StreamId, response: Response<()>, end: bool) {
        report!(self, response(id, response.status()));
        let Some(cell) = self.cells.get(&id) else {
            return;
        };
        let mut state = cell.lock();
        state.inbound.head = Some(response);
        state.inbound.ended = end;
        state.inbound.release_at = self.connection.stream_release_until_due(id);
        let complete = state.inbound.ended;
        let waker = state.inbound.reader.take();
        let slot = state.take_finished_slot();
        drop(state);
        // Before the reader, which may begin another request at once.
        if let Some(slot) = slot {
            slot.complete();
        }
        self.turn.wake_reader(id, waker, complete);
    }

    fn deliver_data(&mut self, id: StreamId) {
        let Some(cell) = self.cells.get(&id).map(Arc::clone) else {
            return;
        };
        let mut state = cell.lock();
        let inbound = &mut state.inbound;
        let read = self.connection.read(id, &mut inbound.chunks);
        match read {
            Ok(ReadState::End) => inbound.ended = true,
            Ok(ReadState::Trailers(trailers)) => {
                inbound.ended = true;
                inbound.trailers = Some(trailers);
            }
            // A separate event reports why a stream was reset.
            Ok(ReadState::Open | ReadState::Reset) | Err(_) => {}
        }
        if inbound.ended {
            inbound.release_at = None;
        } else {
            // The engine has credited padding: the reader has to add less than it was told.
            let consumed = core::mem::take(&mut inbound.consumed);
            self.connection.release_stream_credit(id, consumed);
            inbound.release_at = self.connection.stream_release_until_due(id);
        }
        let unread = match inbound.abandoned {
            // The handle was dropped between two turns. The engine is told in the next.
            true => inbound.chunks.drain(..).map(|chunk| chunk.len() as u64).sum(),
            false => 0,
        };
        let complete = inbound.ended;
        let waker = inbound.reader.take();
        let slot = state.take_finished_slot();
        drop(state);
        if unread > 0 {
            self.mailbox.consume(unread);
        }
        // Before the reader, which may begin another request at once.
        if let Some(slot) = slot {
            slot.complete();
        }
        self.turn.wake_reader(id, waker, complete);
    }

    fn deliver_room(&mut self, id: StreamId) {
        let Some(cell) = self.cells.get(&id).map(Arc::clone) else {
            return;
        };
        let mut state = cell.lock();
        let queued = self.queued(id, &mut state) + state.outbound.waiting_bytes();
        let writer = state.outbound.set_queued(queued);
        drop(state);
        self.turn.wake_handle(writer);
    }
}

/// The `content-length` of a message, which the engine has checked.
pub(crate) fn received_length(headers: &HeaderMap) -> Option<u64> {
    fullbore_proto::content_length(headers).ok().flatten()
}
