//! Sending: requests, responses, bodies and trailers. Field blocks become frames at once, in the order in which HPACK
//! encodes them. Bodies are queued by reference until a write takes them.

use core::time::Duration;
use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::Connection;
use super::headers::{changed_priority, priority_of};
use super::ledgers::Ledgers;
use super::settings::Settings;
use super::streams::Entry;
use super::writer::Writer;
use crate::error::{ErrorCode, StreamError, StreamErrorKind, UsageError};
use crate::flow::{SendCredit, Stall};
use crate::id::StreamId;
use crate::message::{self, Protocol};
use crate::payload::Payload;
use crate::priority::Priority;
use crate::role::Role;
use crate::stream::{Content, Phase, Stream, StreamState};
use crate::time::Time;

/// The most requests that may wait until the peer allows them. Then `open` fails.
const MAX_WAITING: usize = 100_000;

/// The most waiting requests that are opened at once. A server may allow ten thousand with one SETTINGS frame.
const MAX_OPENED_AT_ONCE: u32 = 512;

impl Connection {
    /// Opens a stream with a client's request. The request is sent with the next write, or when the peer allows
    /// another stream. With `end` no body follows.
    ///
    /// An extended CONNECT waits for the peer's first SETTINGS, which have to allow it (RFC 8441 section 3). If they do not, the
    /// stream ends with [`StreamErrorKind::ExtendedConnect`].
    ///
    /// # Errors
    /// [`UsageError::NoNewStreams`] if the connection is closing, has failed, is out of identifiers, or too many
    /// requests wait; [`UsageError::BudgetExhausted`]; [`UsageError::InvalidMessage`]; [`UsageError::WrongRole`];
    /// [`UsageError::ExtendedConnect`].
    pub fn open(&mut self, request: Request<()>, end: bool) -> Result<StreamId, UsageError> {
        self.open_cow(Cow::Owned(request), end)
    }

    /// As [`Self::open`], but clones the request only if it has to wait.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_from(&mut self, request: &Request<()>, end: bool) -> Result<StreamId, UsageError> {
        self.open_cow(Cow::Borrowed(request), end)
    }

    fn open_cow(&mut self, request: Cow<'_, Request<()>>, end: bool) -> Result<StreamId, UsageError> {
        if self.role != Role::Client {
            return Err(UsageError::WrongRole);
        }
        message::check_request(
            &request,
            self.config.relative_requests,
            self.settings.most_to_send(),
        )
        .map_err(UsageError::InvalidMessage)?;
        let is_early = is_early(&self.settings, &request);
        if !is_early && !is_allowed(&self.settings, &request) {
            return Err(UsageError::ExtendedConnect);
        }
        let waiting = self.streams.waiting();
        if !self.takes_new_streams() || waiting >= MAX_WAITING {
            return Err(UsageError::NoNewStreams);
        }
        if !self.flow.can_hold_a_body() {
            return Err(UsageError::BudgetExhausted);
        }
        let id = self.streams.take_id().ok_or(UsageError::NoNewStreams)?;
        let mut stream = self.new_stream(id, StreamState::Waiting);
        stream.receive.content = match *request.method() {
            Method::HEAD => Content::None,
            Method::CONNECT => Content::Tunnel,
            _ => Content::Body,
        };
        stream.priority = priority_of(request.headers());
        stream.send.phase = if end { Phase::Done } else { Phase::Body };
        self.update_receiving_ledger();
        self.guards.earn_by_request();
        self.guards.earn_by_stream();
        if waiting == 0 && !is_early && self.streams.active() < self.settings.max_concurrent_streams() {
            self.open_now(stream, &request);
        } else {
            stream.send.waiting = Some(Box::new(request.into_owned()));
            self.ledgers.note_stream_sending(&mut stream, self.now);
            self.note_new_stream();
            let key = self.streams.insert(stream).key();
            self.streams.wait(key);
            self.schedule_wait_check();
        }
        Ok(id)
    }

    /// Opens the stream of a request at once. Nothing is queued yet, so there is nothing to schedule.
    fn open_now(&mut self, mut stream: Box<Stream>, request: &Request<()>) {
        self.streams.note_opened();
        let end = stream.send.phase == Phase::Done;
        self.writer.request(stream.id, end, request);
        begin_request(
            &mut stream,
            end,
            &mut self.writer,
            &self.ledgers,
            self.pings.minimum(),
            self.now,
        );
        self.note_new_stream();
        self.streams.insert(stream);
    }

    /// Opens waiting requests: as many as the peer allows, but for no longer than about a millisecond. The next write
    /// opens more. Those that SETTINGS of the peer which came while they waited do not allow are reset.
    pub(super) fn open_waiting(&mut self) {
        // A peer that has sent GOAWAY would not process them. `on_go_away` ends them.
        if self.shutdown.peer_goes() || self.shutdown.has_failed() {
            return;
        }
        let round_trip = self.pings.minimum();
        let most = self.streams.active().saturating_add(MAX_OPENED_AT_ONCE);
        while self.streams.active() < self.settings.max_concurrent_streams().min(most) {
            let settings = &self.settings;
            let may_leave = |request: &Request<()>| !is_early(settings, request);
            let Some((mut stream, request)) = self.streams.pop_waiting(may_leave) else {
                break;
            };
            let refused = match message::fits(&request, settings.most_to_send()) {
                false => Some(StreamErrorKind::TooLarge),
                true if !is_allowed(settings, &request) => Some(StreamErrorKind::ExtendedConnect),
                true => None,
            };
            if let Some(kind) = refused {
                let key = stream.key();
                self.close_alone(key, StreamError::local(key.id(), ErrorCode::CANCEL, kind), |_| {
                    true
                });
                continue;
            }
            stream.settle_receiving(self.flow.window(), round_trip, self.now);
            stream.note_opened();
            let half = &stream.send;
            let end = half.phase == Phase::Done && half.queue.is_empty() && half.trailers.is_none();
            self.writer.request(stream.id, end, &request);
            begin_request(
                &mut stream,
                end,
                &mut self.writer,
                &self.ledgers,
                round_trip,
                self.now,
            );
            stream.announce_credit(&mut self.events);
            stream.reschedule(&self.ledgers, self.now);
        }
        self.schedule_wait_check();
    }

    /// A new stream. The caller calls [`Self::note_new_stream`] and stores it.
    pub(super) fn new_stream(&self, id: StreamId, state: StreamState) -> Box<Stream> {
        self.new_stream_at(id, state, self.now)
    }

    /// As [`Self::new_stream`], for one that began at `begun`.
    pub(super) fn new_stream_at(&self, id: StreamId, state: StreamState, begun: Time) -> Box<Stream> {
        let credit = SendCredit::new(self.settings.initial_window_size());
        let initial = self.streams.initial_window();
        let round_trip = self.pings.minimum();
        let window = self
            .flow
            .new_stream_window(self.role, &self.config, initial, round_trip);
        Box::new(Stream::new(id, state, window, credit, begun))
    }

    /// Sends a server's final response. With `end` no body follows.
    ///
    /// A [`Priority`] among its extensions becomes that of the stream. Otherwise its `priority` field changes what the client
    /// asked for (RFC 9218 section 8).
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
        self.store_fresh(id);
        let checked = self.check_answer(response);
        // Of two errors that of the stream counts.
        let mut stream = answerable(self.role, self.streams.by_id(id))?;
        let repeats = checked?;
        if !end {
            let asked = stream.priority;
            let priority = match response.extensions().get() {
                Some(&priority) => priority,
                None => changed_priority(asked, response.headers()),
            };
            if priority != asked {
                stream.set_priority(priority);
            }
        }
        stream.send.phase = if end { Phase::Done } else { Phase::Body };
        self.writer.response(id, end, response, repeats);
        if end {
            let after = stream.end_sending(&self.config, &self.ledgers, self.now);
            self.follow_up(after);
        }
        Ok(())
    }

    /// Sends a server's informational response (1xx, but not 101), before the final one.
    ///
    /// # Errors
    /// As [`Self::send_response`].
    pub fn send_informational(&mut self, id: StreamId, response: &Response<()>) -> Result<(), UsageError> {
        self.store_fresh(id);
        answerable(self.role, self.streams.by_id(id))?;
        message::check_response(response, self.settings.most_to_send())
            .map_err(UsageError::InvalidMessage)?;
        if !response.status().is_informational() {
            return Err(UsageError::HeadOrder);
        }
        self.writer.head(id, false, |encoder, out| {
            message::encode_response(encoder, response, None, out);
        });
        Ok(())
    }

    /// Answers a request, which no handler sees, with a status and no body.
    pub(super) fn answer(&mut self, mut stream: Box<Stream>, status: StatusCode) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        stream.send.phase = Phase::Done;
        self.writer.response(stream.id, true, &response, false);
        self.note_new_stream();
        let mut stream = self.streams.insert(stream);
        let after = stream.end_sending(&self.config, &self.ledgers, self.now);
        self.follow_up(after);
    }

    /// Sets the `date` of final responses that have none (RFC 9110 section 6.6.1): the engine has no clock.
    /// [`Self::trim`] removes it again.
    pub fn set_date(&mut self, date: HeaderValue) {
        self.writer.set_date(date);
    }

    /// Queues a part of a body, by reference; with `end` it is the last. The owner decides how much to queue: see
    /// [`Self::want_room`]. [`Payload::External`] is for an owner that knows how to write it.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`] if the stream has ended, [`UsageError::HeadOrder`] before the request or
    /// response, [`UsageError::SendFinished`] after the end.
    pub fn send_data(&mut self, id: StreamId, data: impl Into<Payload>, end: bool) -> Result<(), UsageError> {
        self.store_fresh(id);
        let mut stream = sendable(self.streams.by_id(id))?;
        let data = data.into();
        if end {
            stream.send.phase = Phase::Done;
        }
        stream.send.queue.push(data);
        stream.reschedule(&self.ledgers, self.now);
        Ok(())
    }

    /// Queues the trailers, which end the message after all data.
    ///
    /// # Errors
    /// As [`Self::send_data`], and [`UsageError::InvalidMessage`].
    pub fn send_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> Result<(), UsageError> {
        message::check_trailers(&trailers, self.settings.most_to_send())
            .map_err(UsageError::InvalidMessage)?;
        self.store_fresh(id);
        let mut stream = sendable(self.streams.by_id(id))?;
        stream.send.trailers = Some(Box::new(trailers));
        stream.send.phase = Phase::Done;
        stream.reschedule(&self.ledgers, self.now);
        Ok(())
    }

    /// The bytes in the stream's send queue. If they exceed `low_water`, an [`crate::Event::Writable`] follows once they do not.
    pub fn want_room(&mut self, id: StreamId, low_water: usize) -> usize {
        self.store_fresh(id);
        let Some(mut stream) = self.streams.by_id(id) else {
            return 0;
        };
        let queued = stream.send.queue.bytes();
        stream.send.wants_room = (queued > low_water).then_some(low_water);
        queued
    }

    /// One [`Event::Credit`](crate::Event::Credit) follows when the window of the stream or of the connection grows,
    /// although nothing may be queued, or when a request that waits is opened. For owners that queue no more than the
    /// windows allow.
    pub fn want_credit(&mut self, id: StreamId) {
        self.store_fresh(id);
        let exhausted = self.flow.credit().usable() == 0;
        let Some(mut stream) = self.streams.by_id(id) else {
            return;
        };
        if stream.state.is_closed() {
            return;
        }
        stream.want_credit(exhausted);
        let waits = exhausted || stream.waits_for_credit();
        if waits && self.ledgers.sending_state() == Stall::Application {
            let state = match exhausted {
                true => Stall::ConnectionWindow,
                false => Stall::StreamWindow,
            };
            self.ledgers.enter_sending(state, self.now);
        }
    }

    /// Sets the priority that schedules the stream (RFC 9218). A server may override the client's.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`].
    pub fn prioritize(&mut self, id: StreamId, priority: Priority) -> Result<(), UsageError> {
        self.store_fresh(id);
        let mut stream = self.streams.by_id(id).ok_or(UsageError::UnknownStream)?;
        stream.set_priority(priority);
        Ok(())
    }

    /// Sends PRIORITY_UPDATE with a new priority of a stream (RFC 9218 section 7.1).
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`], [`UsageError::WrongRole`].
    pub fn send_priority_update(&mut self, id: StreamId, priority: Priority) -> Result<(), UsageError> {
        if self.role != Role::Client {
            return Err(UsageError::WrongRole);
        }
        let mut stream = self.streams.by_id(id).ok_or(UsageError::UnknownStream)?;
        if stream.state.is_closed() {
            return Err(UsageError::UnknownStream);
        }
        stream.set_priority(priority);
        self.writer
            .priority_update(id, priority.to_field_value().as_bytes());
        Ok(())
    }
}

/// Whether a request has to wait for the peer's first SETTINGS (RFC 8441 section 3).
fn is_early(settings: &Settings, request: &Request<()>) -> bool {
    !settings.is_received() && is_extended_connect(request)
}

/// Whether the peer's SETTINGS allow a request that is not early.
fn is_allowed(settings: &Settings, request: &Request<()>) -> bool {
    settings.enable_connect_protocol() || !is_extended_connect(request)
}

fn is_extended_connect(request: &Request<()>) -> bool {
    request.method() == Method::CONNECT && request.extensions().get::<Protocol>().is_some()
}

/// Checks that the final response has not been sent.
fn answerable(role: Role, stream: Option<Entry<'_>>) -> Result<Entry<'_>, UsageError> {
    if role != Role::Server {
        return Err(UsageError::WrongRole);
    }
    let stream = stream.ok_or(UsageError::UnknownStream)?;
    if !stream.state.can_send() {
        return Err(UsageError::UnknownStream);
    }
    match stream.send.phase {
        Phase::Headers => Ok(stream),
        Phase::Body | Phase::Done => Err(UsageError::HeadOrder),
    }
}

/// Checks that the body of the message has begun and has not ended.
fn sendable(stream: Option<Entry<'_>>) -> Result<Entry<'_>, UsageError> {
    let stream = stream.ok_or(UsageError::UnknownStream)?;
    if stream.state.is_closed() {
        return Err(UsageError::UnknownStream);
    }
    match stream.send.phase {
        Phase::Headers => Err(UsageError::HeadOrder),
        Phase::Body => Ok(stream),
        Phase::Done => Err(UsageError::SendFinished),
    }
}

/// The stream of a request is open: its HEADERS are written, or next to be. END_STREAM may travel with them; otherwise the
/// stream is to be rescheduled when something is queued.
fn begin_request(
    stream: &mut Stream,
    end: bool,
    writer: &mut Writer,
    ledgers: &Ledgers,
    round_trip: Option<Duration>,
    now: Time,
) {
    stream.state = StreamState::Open;
    stream.refill(writer, now, round_trip);
    match end {
        // The response has not arrived, so this does not close the stream.
        true => stream.note_end_sent(ledgers, now),
        false => ledgers.note_stream_sending(stream, now),
    }
}
