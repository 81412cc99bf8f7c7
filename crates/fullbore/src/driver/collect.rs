//! From handles to the engine: what is to be sent, which credit returns, and which handles were dropped.

use std::sync::Arc;

use fullbore_proto::{Connection, StreamId, Time, UsageError};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Accept, Driver, spare};
use crate::authority;
use crate::cell::{Cell, CellState, LEAST_SEND_BUFFER, SEND_BUFFER, StreamCommand};
use crate::connection_fields;
use crate::error::{Error, ErrorKind};
use crate::mailbox::ConnectionCommand;
use crate::sent_bytes::SentBytes;

/// A stream is filled again once no more than so many bytes of it wait in the engine.
const LOW_WATER: usize = 128 << 10;

/// The most streams whose handles are heard in one turn, some 100 us.
const MOST_COLLECTED: usize = 1_024;

/// What handles left.
pub(super) struct Collected {
    /// There was something.
    pub(super) some: bool,
    /// Nothing was left to the next turn.
    pub(super) all: bool,
}

/// Up to so many streams share all of the send buffer; more share half of it.
const FEW_STREAMS: usize = 4;

impl<T, A> Driver<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin,
    A: Accept,
{
    /// Collects what handles left, of a bounded number of streams.
    pub(super) fn collect(&mut self) -> Collected {
        let now = self.look();
        self.connection.advance_time(now);
        let mut streams = 0;
        while streams < MOST_COLLECTED {
            let Some(cell) = self.mailbox.take() else { break };
            if streams == 0 {
                self.renew_date(now);
            }
            streams += 1;
            cell.unlist();
            if let Some(id) = self.apply(&cell) {
                self.cells.remove(&id);
                self.keep_spare(cell);
            }
        }
        // What they leave to be sent leaves in this turn.
        for command in self.mailbox.take_commands() {
            self.execute_for_connection(command);
        }
        let waiting = self.mailbox.has_requests_waiting();
        self.connection.set_requests_kept_back(waiting, now);
        let mut some = streams > 0;
        some |= self.release_credit();
        if self.mailbox.wants_shutdown() && !self.connection.is_shutting_down() {
            report!(self, shutdown());
            self.connection.shutdown(now);
            some = true;
        }
        Collected {
            some,
            all: streams < MOST_COLLECTED,
        }
    }

    /// Sets the `date` field of the responses that follow, once it is no longer right.
    pub(super) fn renew_date(&mut self, now: Time) {
        if now < self.dated_until {
            return;
        }
        if let Some((date, valid)) = self.accept.date() {
            self.connection.set_date(date);
            self.dated_until = now + valid;
        }
    }

    fn execute_for_connection(&mut self, command: ConnectionCommand) {
        // The handle that asked may have been dropped.
        match command {
            ConnectionCommand::Report(answer) => {
                let _ = answer.send(self.report());
            }
            ConnectionCommand::GrowWindow(size, answer) => {
                let grown = self.connection.grow_receive_window(size);
                let _ = answer.send(grown.map_err(Error::from_usage));
            }
        }
    }

    /// Releases the connection's credit of consumed bytes; whether there were any.
    fn release_credit(&mut self) -> bool {
        let consumed = self.mailbox.take_consumed();
        if consumed > 0 {
            self.connection.release_connection_credit(consumed);
        }
        consumed > 0
    }

    /// Has readers wake the driver when a WINDOW_UPDATE of the connection is due; false when it is due already.
    pub(super) fn wake_when_due(&self) -> bool {
        self.mailbox
            .wake_at(self.connection.connection_release_until_due())
    }

    /// Keeps the cell of a stream that is over, for one that the peer opens.
    pub(super) fn keep_spare(&self, cell: Arc<Cell>) {
        if !self.is_client() {
            spare::keep(cell);
        }
    }

    /// Collects what the handles of one stream left. Returns the stream if it is over.
    pub(super) fn apply(&mut self, cell: &Arc<Cell>) -> Option<StreamId> {
        let mut state = cell.lock();
        let state = &mut *state;
        let Some(id) = state.id.or_else(|| self.open(cell, state)) else {
            state.slot = None;
            return None;
        };
        while let Some(command) = state.outbound.commands.pop_front() {
            if let Err(error) = self.execute(id, command, state) {
                self.reject(id, error, state);
                break;
            }
        }
        let queued = self.queued(id, state);
        self.turn.wake_handle(state.outbound.set_queued(queued));
        let inbound = &mut state.inbound;
        if inbound.consumed > 0 {
            let bytes = core::mem::take(&mut inbound.consumed);
            self.connection.release_stream_credit(id, bytes);
            if inbound.release_at.is_some() {
                inbound.release_at = self.connection.stream_release_until_due(id);
            }
        }
        if inbound.abandoned && !inbound.discarded {
            inbound.discarded = true;
            self.connection.discard(id);
        }
        if let Some(slot) = state.take_finished_slot() {
            slot.complete();
        }
        if state.inbound.abandoned && state.outbound.finished && !self.is_counted(id) {
            report!(self, released(id, &self.connection));
            self.connection.release(id);
            state.slot = None;
            return Some(id);
        }
        None
    }

    /// How many bytes of the stream wait in the engine, which reports when there is room.
    pub(super) fn queued(&mut self, id: StreamId, state: &mut CellState) -> usize {
        let share = self.share();
        state.outbound.set_share(share);
        self.connection.want_room(id, LOW_WATER.min(share / 2))
    }

    /// How many bytes each stream may queue. Streams without a body count too. A stream whose window is closed has as much as
    /// the others: with less its queue would be empty whenever the window opens, in the middle of a frame, and short frames
    /// make peers refill out of step.
    pub(super) fn share(&self) -> usize {
        share(&self.connection)
    }

    /// Opens a stream with its request.
    fn open(&mut self, cell: &Arc<Cell>, state: &mut CellState) -> Option<StreamId> {
        // Without one the stream was rejected before, and its handles are being dropped.
        let (mut request, end) = state.outbound.request.take()?;
        if state.inbound.abandoned {
            // The request was canceled before it was sent. Its body may be waiting for room.
            state.outbound.commands.clear();
            self.fail_in_lock(
                state,
                Error::new(ErrorKind::Canceled, "it was dropped before it was sent"),
            );
            return None;
        }
        let sent = SentBytes::of(&request).cloned();
        let mut opened = self.open_with(&mut request, end);
        if authority::is_reason(&opened) && authority::take_host(Arc::make_mut(&mut request)) {
            opened = self.open_with(&mut request, end);
        }
        match opened {
            Ok(id) => {
                state.id = Some(id);
                self.cells.insert(id, Arc::clone(cell));
                if let Some(sent) = sent {
                    self.begin_to_count(id, cell, &sent, end);
                }
                Some(id)
            }
            Err(error) => {
                if !self.connection.takes_new_streams() && self.connection.error().is_none() {
                    // The stream identifiers may be used up, which nothing else reports.
                    self.mailbox.set_closing();
                }
                self.fail_in_lock(state, Error::from_usage(error));
                None
            }
        }
    }

    /// Passes a request to the engine, without the fields that HTTP/2 does not have.
    fn open_with(&mut self, request: &mut Arc<Request<()>>, end: bool) -> Result<StreamId, UsageError> {
        connection_fields::send(
            request,
            |request| match connection_fields::asks_for_upgrade(request.headers()) {
                true => None,
                false => Some(Arc::make_mut(request).headers_mut()),
            },
            |request| {
                let id = self.connection.open_from(request, end)?;
                report!(self, request(id, request));
                Ok(id)
            },
        )
    }

    fn execute(
        &mut self,
        id: StreamId,
        command: StreamCommand,
        state: &mut CellState,
    ) -> Result<(), UsageError> {
        match command {
            StreamCommand::Response(mut response, end) => {
                report!(self, response(id, response.status()));
                connection_fields::send(
                    &mut response,
                    |response| Some(response.headers_mut()),
                    |response| self.connection.send_response(id, response, end),
                )
            }
            StreamCommand::Informational(mut response) => {
                // After the final response, informational ones have no effect.
                let sent = connection_fields::send(
                    &mut *response,
                    |response| Some(response.headers_mut()),
                    |response| self.connection.send_informational(id, response),
                );
                match sent {
                    Err(UsageError::HeadOrder) => Ok(()),
                    other => other,
                }
            }
            StreamCommand::Data(data, end) => self.connection.send_data(id, data, end),
            StreamCommand::GrowWindow(size, answer) => {
                let grown = self.connection.grow_stream_receive_window(id, size);
                let _ = answer.send(grown.map_err(Error::from_usage));
                Ok(())
            }
            StreamCommand::Report(answer) => {
                if let Some(report) = self.connection.stream_report(id, self.now()) {
                    let _ = answer.send(report);
                }
                Ok(())
            }
            StreamCommand::Trailers(trailers) => self.connection.send_trailers(id, *trailers),
            StreamCommand::Reset(code) => {
                // The sending handle was dropped already.
                state.outbound.finished = true;
                report!(self, given_up(id, state.error.as_ref()));
                self.connection.reset(id, code)
            }
        }
    }

    /// A command that failed. If the stream has ended meanwhile, an event reports that.
    fn reject(&mut self, id: StreamId, error: UsageError, state: &mut CellState) {
        state.outbound.commands.clear();
        if error == UsageError::UnknownStream {
            return;
        }
        let _ = self
            .connection
            .reset(id, fullbore_proto::ErrorCode::INTERNAL_ERROR);
        // Nobody else tells the author of a handler.
        report!(self, rejected(id, &error));
        self.fail_in_lock(state, Error::from_usage(error));
    }

    fn fail_in_lock(&mut self, state: &mut CellState, error: Error) {
        state.error.get_or_insert(error);
        self.turn.wake_handle(state.inbound.reader.take());
        self.turn.wake_handle(state.outbound.writer.take());
    }
}

/// As [`Driver::share`].
pub(super) fn share(connection: &Connection) -> usize {
    let all = connection.config().send_buffer();
    let streams = connection.stream_count().max(1);
    let share = match streams > FEW_STREAMS {
        true => all / 2 / streams,
        false => all / streams,
    };
    share.clamp(LEAST_SEND_BUFFER, SEND_BUFFER)
}

#[cfg(test)]
mod tests;
