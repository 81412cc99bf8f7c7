//! A request while its handler is called for the first time. Most have no body and are answered at once: their streams need
//! no cells.

use std::sync::Arc;

use fullbore_proto::{Connection, ErrorCode, Payload, StreamId, UsageError};
use http::Response;

use super::collect::share;
use super::spare;
#[cfg(feature = "tracing")]
use super::trace::Trace;
use crate::cell::{Cell, Mailbox};
use crate::connection_fields;
use crate::sender::Sender;

/// A stream that a request has opened. [`Self::respond`] or [`Self::sender`] answers it.
pub(crate) struct Unanswered<'a> {
    pub(super) id: StreamId,
    pub(super) connection: &'a mut Connection,
    pub(super) mailbox: &'a Arc<Mailbox>,
    #[cfg(feature = "tracing")]
    pub(super) trace: &'a mut Option<Box<Trace>>,
    /// The cell of a request with a body.
    pub(super) cell: Option<Arc<Cell>>,
    pub(super) answer: Answer,
}

/// How a request was answered.
pub(super) enum Answer {
    /// Not yet.
    None,
    /// Completely: nothing is left to do.
    Whole,
    /// By the sender of this cell.
    Sender(Arc<Cell>),
}

impl Unanswered<'_> {
    /// Whether [`Self::respond`] may answer: the request has no body.
    pub(crate) fn is_complete(&self) -> bool {
        self.cell.is_none()
    }

    /// Sends the whole response to a [complete](Self::is_complete) request. One that is malformed resets the stream.
    pub(crate) fn respond(&mut self, mut response: Response<()>, body: &Payload) {
        let id = self.id;
        report!(self, response(id, response.status()));
        let sent = connection_fields::send(
            &mut response,
            |response| Some(response.headers_mut()),
            |response| self.connection.respond(id, response, body),
        );
        if let Err(error) = sent {
            self.reject(&error);
        }
        self.answer = Answer::Whole;
        report!(self, released(id, self.connection));
    }

    #[cold]
    fn reject(&mut self, error: &UsageError) {
        // An error for a stream that has ended says nothing new.
        if *error != UsageError::UnknownStream {
            report!(self, rejected(self.id, error));
            let _ = self.connection.reset(self.id, ErrorCode::INTERNAL_ERROR);
        }
        self.connection.release(self.id);
    }

    /// The handle of an answer that is not complete yet, or that is a reset.
    pub(crate) fn sender(&mut self) -> Sender {
        let cell = self.cell.clone().unwrap_or_else(|| self.new_cell());
        self.answer = Answer::Sender(Arc::clone(&cell));
        Sender::new(cell)
    }

    /// A cell without a reader, which is held: what the handler leaves at once needs no place on the mailbox's list.
    fn new_cell(&self) -> Arc<Cell> {
        let share = share(self.connection);
        let cell = spare::cell(self.mailbox, |state| {
            state.id = Some(self.id);
            state.inbound.ended = true;
            state.inbound.abandoned = true;
            state.outbound.set_share(share);
        });
        cell.hold();
        cell
    }
}
