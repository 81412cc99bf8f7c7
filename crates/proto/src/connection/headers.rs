//! HEADERS and CONTINUATION: header blocks become messages (RFC 9113 sections 6.2, 6.10 and 8).

use http::{HeaderMap, HeaderName, Method, StatusCode, header};

use super::Connection;
use super::data::end_receiving;
use super::last_request::Received;
use super::reader::BlockHeader;
use super::streams::ClosedBy;
use crate::error::{ConnectionError, ErrorCode, Fault, Side, StreamError};
use crate::event::Event;
use crate::frame::{Continuation, Headers};
use crate::hpack::FieldName;
use crate::id::{Key, StreamId};
use crate::invariant::infallible;
use crate::message::{self, Malformed};
use crate::priority::Priority;
use crate::role::Role;
use crate::stream::{Cause, Content, Discards, Phase, StreamState};
use crate::time::ProgressMark;

/// The memory of a field besides its size by RFC 9113 section 6.5.2, in bytes: about that of a map entry.
const FIELD_COST: usize = 64;

static PRIORITY: HeaderName = HeaderName::from_static("priority");

/// The memory of a stream's field sections that is not counted, in bytes: enough for an ordinary request.
const FREE_HEADERS: usize = 2 << 10;

impl Connection {
    pub(super) fn on_headers(&mut self, headers: Headers<'_>) -> Result<(), Fault> {
        match self.reader.headers(headers, &self.config)? {
            Some(block) => self.on_block(block),
            None => Ok(()),
        }
    }

    pub(super) fn on_continuation(&mut self, frame: Continuation<'_>) -> Result<(), Fault> {
        match self.reader.continuation(frame, &self.config)? {
            Some(block) => self.on_block(block),
            None => Ok(()),
        }
    }

    /// A complete header block, whose fields the reader has.
    fn on_block(&mut self, block: BlockHeader) -> Result<(), Fault> {
        if self.reader.section().over_limit() {
            self.charge_excess()?;
        }
        let (id, end_stream) = (block.stream, block.end_stream);
        let is_new = self.role == Role::Server && block.stream.value() > self.streams.highest_peer_stream();
        match is_new {
            true => self.on_new_stream(block),
            false => match self.on_other_block(block) {
                Err(Fault::Stream(error)) if end_stream && self.has_only_to_end(id) => {
                    // Both sides have ended the stream, and nothing is sent on a closed one (section 5.1).
                    self.guards.provoked_reset(self.now)?;
                    self.close_with(error);
                    Ok(())
                }
                result => result,
            },
        }
    }

    /// A header block that is no request.
    fn on_other_block(&mut self, block: BlockHeader) -> Result<(), Fault> {
        self.store_fresh(block.stream);
        if block.repeats {
            self.reader.decode_repeated(block.stream, &self.config)?;
        }
        self.on_known_stream(block)
    }

    /// Whether this endpoint has ended the stream, and the peer has not.
    fn has_only_to_end(&self, id: StreamId) -> bool {
        let stream = self.streams.view(id);
        stream.is_some_and(|stream| stream.state == StreamState::HalfClosedLocal)
    }

    /// A header block on a stream that is not stored: idle, or closed.
    fn on_unstored_stream(&mut self, id: StreamId) -> Result<(), Fault> {
        if self.streams.is_unopened(id) {
            return Err(headers_on_idle(id).into());
        }
        match self.streams.closed_by(id) {
            ClosedBy::Reset(Side::Local) | ClosedBy::Unknown => Ok(self.guards.refused_block(self.now)?),
            ClosedBy::Reset(Side::Peer) => {
                let detail = "HEADERS on a stream that the peer had reset";
                Err(StreamError::violation(id, ErrorCode::STREAM_CLOSED, detail).into())
            }
            ClosedBy::LaterStream => {
                let error = "HEADERS on a stream below one that the client opened before";
                Err(ConnectionError::protocol(error).on(id).into())
            }
            ClosedBy::EndStream => Err(headers_on_closed(id).into()),
        }
    }

    /// A request opens a stream (RFC 9113 section 5.1.1).
    fn on_new_stream(&mut self, block: BlockHeader) -> Result<(), Fault> {
        let id = block.stream;
        if !id.is_client_initiated() {
            let error = "a client opened a stream with an even identifier";
            return Err(ConnectionError::protocol(error).on(id).into());
        }
        self.streams.open_by_peer(id);
        if self.shutdown.refuses(id) {
            self.guards.refused_block(self.now)?;
            // The peer sent it before it received our GOAWAY, which tells it that it may repeat the request.
            self.streams.remember_reset(id, Side::Local);
            return Ok(());
        }
        let result = self.on_request(block);
        let is_refused = |error: &StreamError| error.code == ErrorCode::REFUSED_STREAM;
        if !matches!(&result, Err(Fault::Stream(error)) if is_refused(error)) {
            self.streams.note_processed(id);
        }
        result
    }

    fn on_request(&mut self, block: BlockHeader) -> Result<(), Fault> {
        let BlockHeader {
            stream: id,
            end_stream,
            on_itself,
            repeats,
        } = block;
        let violation = |detail| Err(StreamError::protocol(id, detail).into());
        let refused = |detail| Err(StreamError::refused(id, detail).into());
        if on_itself {
            return violation("a stream depends on itself");
        }
        if let Err(detail) = self.streams.check_room(&self.config) {
            return refused(detail);
        }
        if self.reader.section().over_limit() {
            return self.answer_431(id, end_stream);
        }
        let memory = self.section_memory();
        if self.streams.header_memory() + memory > self.config.max_header_memory {
            return refused("the fields of the open requests exceed the limit of the connection");
        }
        if !self.can_hold_headers(memory) {
            return refused("the memory budget has no room for the fields of a request");
        }
        let known = self.reader.repeated().filter(|_| repeats);
        let received = match known {
            Some(received) => received.clone(),
            None => match self.read_request() {
                Ok(received) => received,
                Err(malformed) => return violation(malformed.reason()),
            },
        };
        if end_stream && received.expected.unwrap_or(0) != 0 {
            return Err(StreamError::short_body(id).into());
        }
        if !end_stream && !self.flow.can_hold_a_body() {
            return refused("the memory budget has no room for a body");
        }
        self.guards.earn_by_stream();
        self.streams.note_request();
        self.note_new_stream();
        if end_stream {
            self.open_complete(id, received, memory);
            return Ok(());
        }
        let Received {
            request,
            expected,
            priority,
        } = received;
        let mut stream = self.new_stream(id, StreamState::Open);
        stream.receive.phase = Phase::Body;
        stream.receive.expected = expected;
        if request.method() == Method::CONNECT {
            stream.receive.content = Content::Tunnel;
        }
        stream.priority = priority.unwrap_or_default();
        stream.header_memory = memory;
        self.ledgers.note_stream_sending(&mut stream, self.now);
        let end = false;
        let event = Event::Request {
            stream: id,
            request,
            end,
        };
        stream.request_event = Some(self.events.push(event));
        // Its window may be larger than that of our SETTINGS.
        self.streams.insert(stream).list_refill();
        Ok(())
    }

    /// The request of the section.
    fn read_request(&mut self) -> Result<Received, Malformed> {
        // Looked up in the section, where that is cheap: few requests have them.
        let (mut has_length, mut has_priority) = (false, false);
        for field in self.reader.section().fields() {
            if let FieldName::Field(name) = &field.name {
                has_length |= *name == header::CONTENT_LENGTH;
                has_priority |= *name == PRIORITY;
            }
        }
        let allows_connect = self.settings.accepts_extended_connect();
        let request = message::receive_request(self.reader.section_mut(), allows_connect)?;
        let is_connect = request.method() == Method::CONNECT;
        let expected = match has_length {
            // DATA of a tunnel is no body.
            true if is_connect => None,
            true => message::received_length(request.headers())?,
            false => None,
        };
        let received = Received {
            priority: has_priority.then(|| priority_of(request.headers())),
            request,
            expected,
        };
        if self.section_memory() == 0 {
            self.reader.keep(&received);
        }
        Ok(received)
    }

    /// Answers a field section over the limit with 431 (RFC 6585 section 5). No handler sees the request.
    fn answer_431(&mut self, id: StreamId, end_stream: bool) -> Result<(), Fault> {
        self.guards.oversized_section(self.now)?;
        let mut stream = self.new_stream(id, StreamState::Open);
        stream.released = true;
        stream.receive.discards = Discards::All;
        stream.receive.phase = Phase::Body;
        if end_stream {
            stream.receive.phase = Phase::Done;
            stream.state = stream.state.after_receive_end();
        }
        self.answer(stream, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        Ok(())
    }

    /// Charges a section for each time that it exceeds the limit beyond the first, which its stream error is charged
    /// for.
    fn charge_excess(&mut self) -> Result<(), ConnectionError> {
        let section = self.reader.section();
        let limit = self.config.max_header_list_size as usize;
        let bytes = section.size() / limit.max(1);
        let fields = section.lines() / (self.config.max_header_fields as usize).max(1);
        let excess = bytes.max(fields).saturating_sub(1);
        self.guards.excess_section(excess, self.now)
    }

    /// The memory of the decoded section beyond the free part of a stream, in bytes.
    fn section_memory(&self) -> usize {
        let section = self.reader.section();
        let octets = section.size() + section.lines() * FIELD_COST;
        octets.saturating_sub(FREE_HEADERS)
    }

    /// A response, or trailers.
    fn on_known_stream(&mut self, block: BlockHeader) -> Result<(), Fault> {
        let (id, end_stream) = (block.stream, block.end_stream);
        let over_limit = self.reader.section().over_limit();
        let memory = self.section_memory();
        let held = self.streams.header_memory();
        let Some(mut stream) = self.streams.by_id(id) else {
            return self.on_unstored_stream(id);
        };
        let violation = |detail| Err(StreamError::protocol(id, detail).into());
        if block.on_itself {
            return violation("a stream depends on itself");
        }
        match stream.state {
            StreamState::Open | StreamState::HalfClosedLocal => {}
            StreamState::Closed(Cause::Reset { by: Side::Local, .. }) => {
                return Ok(self.guards.refused_block(self.now)?);
            }
            StreamState::Waiting => {
                return Err(headers_on_idle(id).into());
            }
            StreamState::Closed(Cause::Finished) => return Err(headers_on_closed(id).into()),
            StreamState::HalfClosedRemote | StreamState::Closed(_) => {
                let detail = "HEADERS after END_STREAM";
                return Err(StreamError::violation(id, ErrorCode::STREAM_CLOSED, detail).into());
            }
        }
        if over_limit {
            return violation("a field section over SETTINGS_MAX_HEADER_LIST_SIZE");
        }
        if held + memory > self.config.max_header_memory {
            let detail = "the fields of the open messages exceed the limit of the connection";
            return Err(StreamError::limit(id, detail).into());
        }
        stream.hold_headers(memory);
        match stream.receive.phase {
            Phase::Headers => {
                let key = stream.key();
                return self.on_response(key, end_stream);
            }
            Phase::Body if !end_stream => {
                return violation("trailers without END_STREAM, or a second response");
            }
            // RFC 9113 section 8.5.
            Phase::Body if stream.receive.content == Content::Tunnel => {
                return violation("HEADERS within a tunnel");
            }
            Phase::Body => {}
            Phase::Done => return Ok(()),
        }
        match message::receive_trailers(self.reader.section_mut(), self.role) {
            Ok(trailers) if stream.receive.is_discarded() => drop(trailers),
            Ok(trailers) => stream.receive.trailers = Some(Box::new(trailers)),
            Err(malformed) => return violation(malformed.reason()),
        }
        let (flow, events) = (&self.flow, &mut self.events);
        let after = end_receiving(&mut stream, flow, events, self.pings.minimum(), self.now)?;
        self.follow_up(after);
        Ok(())
    }

    fn on_response(&mut self, key: Key, end_stream: bool) -> Result<(), Fault> {
        let id = key.id();
        let violation = |detail| Err(StreamError::protocol(id, detail).into());
        let response = match message::receive_response(self.reader.section_mut()) {
            Ok(response) => response,
            Err(malformed) => return violation(malformed.reason()),
        };
        // This samples all streams, and so ends the borrow of this one.
        self.update_receiving_ledger();
        let status = response.status();
        if !status.is_informational() && self.streams.len() == 1 {
            // It may overtake the answer to the PING behind the upload, and be all that the owner waits for.
            self.upload_was_on_its_way();
        }
        let found = self.streams.get(key);
        let Some(mut stream) = infallible(found, "`on_known_stream` has found it") else {
            return Ok(());
        };
        stream.settle_receiving(self.flow.window(), self.pings.minimum(), self.now);
        if status.is_informational() {
            if end_stream {
                return violation("an informational response with END_STREAM");
            }
            self.guards.informational(self.now)?;
            self.events.push(Event::Informational { stream: id, response });
            return Ok(());
        }
        let half = &mut stream.receive;
        half.phase = Phase::Body;
        // The time limit of the body starts now.
        half.mark = ProgressMark::new(self.now);
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            half.content = Content::None;
        }
        if half.content == Content::Tunnel && !status.is_success() {
            // CONNECT was refused: the response is like any other.
            half.content = Content::Body;
        }
        if half.content == Content::Body {
            match message::received_length(response.headers()) {
                Ok(expected) => half.expected = expected,
                Err(malformed) => return violation(malformed.reason()),
            }
        }
        if end_stream && half.expected.unwrap_or(0) != 0 {
            return Err(StreamError::short_body(id).into());
        }
        self.events.push(Event::Response {
            stream: id,
            response,
            end: end_stream,
        });
        if end_stream {
            let (flow, events) = (&self.flow, &mut self.events);
            let after = end_receiving(&mut stream, flow, events, self.pings.minimum(), self.now)?;
            self.follow_up(after);
        }
        Ok(())
    }
}

fn headers_on_idle(id: StreamId) -> ConnectionError {
    ConnectionError::protocol("HEADERS on an idle stream").on(id)
}

fn headers_on_closed(id: StreamId) -> ConnectionError {
    ConnectionError::violation(ErrorCode::STREAM_CLOSED, "HEADERS on a closed stream").on(id)
}

/// The `priority` field (RFC 9218 section 5). Several lines form one list.
pub(super) fn priority_of(headers: &HeaderMap) -> Priority {
    changed_priority(Priority::default(), headers)
}

/// What the `priority` field of a message makes of a priority.
pub(super) fn changed_priority(priority: Priority, headers: &HeaderMap) -> Priority {
    let mut values = headers.get_all(&PRIORITY).iter();
    let Some(first) = values.next() else {
        return priority;
    };
    let Some(second) = values.next() else {
        return priority.changed_by(first.as_bytes());
    };
    let mut joined = [first.as_bytes(), b", ", second.as_bytes()].concat();
    for value in values {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(value.as_bytes());
    }
    priority.changed_by(&joined)
}
