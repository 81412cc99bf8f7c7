//! The short way of a response: a request that is complete and was not touched since is answered by one call, and its stream
//! is never stored.

use bytes::Bytes;
use http::{Method, Response};

use super::Connection;
use super::last_request::Received;
use super::streams::Fresh;
use super::transmit::LARGEST_DATA;
use crate::error::UsageError;
use crate::event::Event;
use crate::id::StreamId;
use crate::message;
use crate::payload::Payload;
use crate::role::Role;
use crate::stream::{Content, Phase, Stream, StreamState};

/// So many bytes at most wait ahead of the next list once DATA is among them: they are past all scheduling (law 9).
const MOST_AHEAD: usize = 16 << 10;

impl Connection {
    /// Sends a server's whole response, and releases the stream: as [`Self::send_response`], [`Self::send_data`] with the
    /// end, and [`Self::release`]. A response without a body has an empty one.
    ///
    /// This is the fast way to answer a request without a body whose event the owner has just taken: if the response fits
    /// the windows and a frame, and no other DATA waits, its frames are written at once.
    ///
    /// # Errors
    /// As [`Self::send_response`]. The stream is still there.
    pub fn respond(
        &mut self,
        id: StreamId,
        response: &Response<()>,
        body: &Payload,
    ) -> Result<(), UsageError> {
        if let Some(index) = self.streams.fresh().find(id) {
            if let Some(body) = self.fits_at_once(body) {
                let repeats = self.check_answer(response)?;
                self.streams.fresh_mut().take(index);
                self.writer.whole_response(id, response, repeats, body);
                if !body.is_empty() {
                    self.flow.spend(body.len());
                    self.guards.earn_by_data(body.len());
                }
                self.return_unused_leases();
                return Ok(());
            }
        }
        let end = body.is_empty();
        self.send_response(id, response, end)?;
        if !end {
            self.send_data(id, body.clone(), true)?;
        }
        self.release(id);
        Ok(())
    }

    /// A body that can be written ahead of the next list, in one frame. `None` if it has to wait its turn.
    fn fits_at_once<'a>(&self, body: &'a Payload) -> Option<&'a Bytes> {
        let Payload::Memory(body) = body else {
            return None;
        };
        let length = body.len();
        let fits = length <= LARGEST_DATA
            && length <= self.settings.initial_window_size() as usize
            && length <= self.flow.credit().usable()
            && self.streams.has_nothing_to_send()
            && !self.streams.has_ends()
            && self.writer.waiting() + length <= MOST_AHEAD
            && !self.shutdown.has_failed();
        fits.then_some(body)
    }

    /// A complete request opens a stream. Its field section has `memory` bytes beyond the free part.
    pub(super) fn open_complete(&mut self, id: StreamId, received: Received, memory: usize) {
        let Received {
            request, priority, ..
        } = received;
        let tunnel = request.method() == Method::CONNECT;
        let event = self.events.push(Event::Request {
            stream: id,
            request,
            end: true,
        });
        self.streams.fresh_mut().push(Fresh {
            id,
            priority,
            header_memory: memory,
            tunnel,
            begun: self.now,
            event,
        });
    }

    /// Stores the stream of a complete request, if it is not stored.
    #[inline]
    pub(super) fn store_fresh(&mut self, id: StreamId) {
        if !self.streams.fresh().is_empty() {
            self.store_found(id);
        }
    }

    fn store_found(&mut self, id: StreamId) {
        let index = self.streams.fresh().find(id);
        if let Some(fresh) = index.and_then(|index| self.streams.fresh_mut().take(index)) {
            self.store(&fresh);
        }
    }

    /// Stores the streams of all complete requests.
    pub(super) fn store_all_fresh(&mut self) {
        while let Some(fresh) = self.streams.fresh_mut().take(0) {
            self.store(&fresh);
        }
    }

    fn store(&mut self, fresh: &Fresh) {
        let stream = self.stream_of(fresh);
        self.streams.insert(stream);
    }

    /// What `look` finds in a stream, stored or not. None if there is none.
    pub(super) fn view<R>(&self, id: StreamId, look: impl FnOnce(&Stream) -> R) -> Option<R> {
        if let Some(stream) = self.streams.view(id) {
            return Some(look(stream));
        }
        let fresh = self.streams.fresh().get(self.streams.fresh().find(id)?)?;
        Some(look(&self.stream_of(fresh)))
    }

    /// The stream of a complete request.
    fn stream_of(&self, fresh: &Fresh) -> Box<Stream> {
        let mut stream = self.new_stream_at(fresh.id, StreamState::Open, fresh.begun);
        stream.receive.phase = Phase::Done;
        stream.state = stream.state.after_receive_end();
        if fresh.tunnel {
            stream.receive.content = Content::Tunnel;
        }
        stream.priority = fresh.priority.unwrap_or_default();
        stream.header_memory = fresh.header_memory;
        stream.request_event = Some(fresh.event);
        // It waits for the owner, whatever the connection did meanwhile.
        self.ledgers.note_stream_sending(&mut stream, fresh.begun);
        stream
    }

    /// Checks a final response; whether it repeats the last one, which was checked.
    pub(super) fn check_answer(&self, response: &Response<()>) -> Result<bool, UsageError> {
        if self.role != Role::Server {
            return Err(UsageError::WrongRole);
        }
        if self.writer.repeats(response) {
            return Ok(true);
        }
        message::check_response(response, self.settings.most_to_send())
            .map_err(UsageError::InvalidMessage)?;
        match response.status().is_informational() {
            true => Err(UsageError::HeadOrder),
            false => Ok(false),
        }
    }
}
