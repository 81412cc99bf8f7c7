//! What the owner wants sent: requests, responses, bodies, trailers. Heads become frames at once, so that they stand in
//! the order in which the field compression saw them; bodies wait by reference until a write takes them.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::Connection;
use crate::error::UsageError;
use crate::frame::{Kind, PriorityUpdate, patch_header_block, reserve_header_block};
use crate::hpack::Encoder;
use crate::id::{Key, StreamId};
use crate::message;
use crate::payload::Payload;
use crate::priority::Priority;
use crate::role::Role;
use crate::stream::{Phase, State};

/// So many requests that waited leave at once. A server lets ten thousand of them go by one entry of SETTINGS.
const LAUNCHES_AT_ONCE: u32 = 512;

impl Connection {
    /// A client's request. It leaves with the next write, or when the peer allows another stream. With `end` it is
    /// whole: no body follows.
    ///
    /// # Errors
    /// [`UsageError::NoNewStreams`] when the connection is closing, has failed, is out of identifiers, or too many
    /// requests wait; [`UsageError::BudgetExhausted`]; [`UsageError::InvalidMessage`]; [`UsageError::WrongRole`].
    pub fn open(&mut self, request: Request<()>, end: bool) -> Result<StreamId, UsageError> {
        self.open_from(&request, end)
    }

    /// As [`Self::open`], with a request that the owner keeps: it is cloned only when it has to wait.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_from(&mut self, request: &Request<()>, end: bool) -> Result<StreamId, UsageError> {
        if self.role != Role::Client {
            return Err(UsageError::WrongRole);
        }
        message::check_request(request).map_err(UsageError::InvalidMessage)?;
        if !self.takes_new_streams() || self.waiting.len() >= self.config.max_waiting_streams {
            return Err(UsageError::NoNewStreams);
        }
        if !self.can_hold_a_body() {
            return Err(UsageError::BudgetExhausted);
        }
        let id = self.next_stream.ok_or(UsageError::NoNewStreams)?;
        self.next_stream = id.next();
        let mut stream = self.new_stream(id, State::Waiting);
        stream.receive.bodiless = request.method() == Method::HEAD;
        stream.receive.tunnel = request.method() == Method::CONNECT;
        stream.priority = super::headers::priority_of(request.headers());
        stream.send.phase = if end { Phase::Done } else { Phase::Body };
        self.account_receiving();
        let key = self.insert_stream(stream);
        self.guards.informational.earn(8);
        self.guards.window_updates.earn(2);
        if self.waiting.is_empty() && self.active < self.peer.max_concurrent_streams {
            self.launch(key, request);
        } else {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.send.waiting = Some(Box::new(request.clone()));
            }
            self.waiting.insert(u64::from(id.value()), key);
            self.watch_waiting();
            self.account_stream_sending(key);
        }
        Ok(id)
    }

    /// Requests that waited, as far as the peer's limit allows now, and as many as take about a millisecond: the next write is
    /// followed by more.
    pub(super) fn open_waiting(&mut self) {
        // After its GOAWAY the peer would not process them; `on_go_away` ends them instead.
        if self.shutdown.peer_goes || self.failed.is_some() {
            return;
        }
        let most = self.active.saturating_add(LAUNCHES_AT_ONCE);
        while self.active < self.peer.max_concurrent_streams.min(most) {
            let Some(key) = self.waiting.pop_first() else {
                return;
            };
            let request = self
                .streams
                .get_mut(key)
                .and_then(|stream| stream.send.waiting.take());
            if let Some(request) = request {
                self.launch(key, &request);
            }
        }
        self.watch_waiting();
    }

    /// Writes a request's HEADERS.
    fn launch(&mut self, key: Key, request: &Request<()>) {
        self.account_stream_receiving(key);
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        // Nothing queued and nothing to come: END_STREAM may travel with the head.
        let end = stream.send.phase == Phase::Done
            && stream.send.queue.is_empty()
            && stream.send.trailers.is_none();
        stream.state = State::Open;
        self.active += 1;
        self.note_stream_allowed();
        self.write_head(key, end, |encoder, out| {
            message::encode_request(encoder, request, out)
        });
        self.refill_stream(key);
        if end {
            self.send_ended(key);
        } else {
            self.reschedule(key);
        }
    }

    /// A server's final response. With `end` it is whole: no body follows.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`], [`UsageError::HeadOrder`], [`UsageError::InvalidMessage`],
    /// [`UsageError::WrongRole`].
    pub fn send_response(
        &mut self,
        id: StreamId,
        response: &Response<()>,
        end: bool,
    ) -> Result<(), UsageError> {
        let key = self.answerable(id)?;
        message::check_response(response).map_err(UsageError::InvalidMessage)?;
        if response.status().is_informational() {
            return Err(UsageError::HeadOrder);
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send.phase = if end { Phase::Done } else { Phase::Body };
        }
        self.write_response(key, response, end);
        if end {
            self.send_ended(key);
        }
        Ok(())
    }

    /// A server's informational response (1xx, but not 101), before the final one.
    ///
    /// # Errors
    /// As [`Self::send_response`].
    pub fn send_informational(&mut self, id: StreamId, response: &Response<()>) -> Result<(), UsageError> {
        let key = self.answerable(id)?;
        message::check_response(response).map_err(UsageError::InvalidMessage)?;
        if !response.status().is_informational() {
            return Err(UsageError::HeadOrder);
        }
        self.write_head(key, false, |encoder, out| {
            message::encode_response(encoder, response, None, out)
        });
        Ok(())
    }

    /// A response of the engine's own: a status, no body.
    pub(super) fn send_status(&mut self, key: Key, status: StatusCode) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send.phase = Phase::Done;
        }
        self.write_response(key, &response, true);
        self.send_ended(key);
    }

    /// Writes the HEADERS of a final response, with a `date`.
    fn write_response(&mut self, key: Key, response: &Response<()>, end: bool) {
        let date = self.date.take();
        self.write_head(key, end, |encoder, out| {
            message::encode_response(encoder, response, date.as_ref(), out);
        });
        self.date = date;
    }

    /// The `date` of final responses that have none, from now on (RFC 9110 section 6.6.1): the engine has no clock of its
    /// own. Without one they go without, and so they do again after [`Self::trim`].
    pub fn set_date(&mut self, date: HeaderValue) {
        self.date = Some(date);
    }

    /// The stream of a request that has no final response yet.
    fn answerable(&mut self, id: StreamId) -> Result<Key, UsageError> {
        if self.role != Role::Server {
            return Err(UsageError::WrongRole);
        }
        let (key, stream) = self.streams.by_id(id).ok_or(UsageError::UnknownStream)?;
        if !stream.state.can_send() {
            return Err(UsageError::UnknownStream);
        }
        match stream.send.phase {
            Phase::Head => Ok(key),
            Phase::Body | Phase::Done => Err(UsageError::HeadOrder),
        }
    }

    /// More of a body, by reference; with `end` the last of it. How much may be queued is for the owner to decide: see
    /// [`Self::want_room`]. What lies [`Payload::Elsewhere`] is for an owner that knows how to write it.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`] when the stream has ended, [`UsageError::HeadOrder`] before the head,
    /// [`UsageError::SendFinished`] after the end.
    pub fn send_data(&mut self, id: StreamId, data: impl Into<Payload>, end: bool) -> Result<(), UsageError> {
        let key = self.sendable(id)?;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send.queue.push(data.into());
            if end {
                stream.send.phase = Phase::Done;
            }
        }
        self.reschedule(key);
        Ok(())
    }

    /// The trailers, which end the message; they leave behind all data.
    ///
    /// # Errors
    /// As [`Self::send_data`], and [`UsageError::InvalidMessage`].
    pub fn send_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> Result<(), UsageError> {
        message::check_trailers(&trailers).map_err(UsageError::InvalidMessage)?;
        let key = self.sendable(id)?;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send.trailers = Some(Box::new(trailers));
            stream.send.phase = Phase::Done;
        }
        self.reschedule(key);
        Ok(())
    }

    fn sendable(&mut self, id: StreamId) -> Result<Key, UsageError> {
        let (key, stream) = self.streams.by_id(id).ok_or(UsageError::UnknownStream)?;
        if stream.state.is_closed() {
            return Err(UsageError::UnknownStream);
        }
        match stream.send.phase {
            Phase::Head => Err(UsageError::HeadOrder),
            Phase::Body => Ok(key),
            Phase::Done => Err(UsageError::SendFinished),
        }
    }

    /// How many bytes of the stream's body wait. When they are more than [`crate::Config::send_low_water`], an
    /// [`crate::Event::Writable`] comes once they are not.
    pub fn want_room(&mut self, id: StreamId) -> usize {
        self.want_room_at(id, self.config.send_low_water)
    }

    /// As [`Self::want_room`], with another low-water mark in bytes: for an owner that divides its memory among streams.
    pub fn want_room_at(&mut self, id: StreamId, low_water: usize) -> usize {
        let Some((_, stream)) = self.streams.by_id(id) else {
            return 0;
        };
        let queued = stream.send.queue.bytes();
        stream.send.wants_room = (queued > low_water).then_some(low_water);
        queued
    }

    /// Tells the server the priority of a stream of ours anew (RFC 9218 section 7.1).
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`], [`UsageError::WrongRole`].
    pub fn send_priority_update(&mut self, id: StreamId, priority: Priority) -> Result<(), UsageError> {
        if self.role != Role::Client {
            return Err(UsageError::WrongRole);
        }
        let (key, stream) = self.streams.by_id(id).ok_or(UsageError::UnknownStream)?;
        if stream.state.is_closed() {
            return Err(UsageError::UnknownStream);
        }
        self.set_priority(key, priority);
        let value = priority.to_field_value();
        let frame = PriorityUpdate {
            prioritized: id,
            value: value.as_bytes(),
        };
        frame.write(&mut self.control);
        self.stats.sent_frames.add(Kind::PRIORITY_UPDATE);
        Ok(())
    }

    fn write_head(&mut self, key: Key, end: bool, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let out = &mut self.control;
        let start = reserve_header_block(out);
        encode(&mut self.encoder, out);
        patch_header_block(out, start, key.id(), end, self.peer.max_frame_size as usize);
        self.stats.sent_frames.add(Kind::HEADERS);
    }

    /// END_STREAM has left, or stands in `control`.
    pub(super) fn send_ended(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.send.ended = true;
        stream.state = stream.state.after_send_end();
        self.account_stream_sending(key);
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let unwanted = stream.receive.discard && stream.state == State::HalfClosedLocal;
        if unwanted && self.role == Role::Server {
            return self.tolerate_rest(key);
        }
        self.after_state_change(key);
    }
}
