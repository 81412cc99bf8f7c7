//! HEADERS and CONTINUATION: from fragments to header blocks to messages (RFC 9113 sections 6.2, 6.10 and 8).

use http::{HeaderMap, HeaderName, Method, StatusCode, header};

use super::Connection;
use super::receive::WORK_OF_A_REQUEST;
use crate::error::{ConnectionError, ErrorCode, Fault, SHORT_BODY, Side, StreamError};
use crate::event::Event;
use crate::frame::{Continuation, Headers, PriorityUpdate};
use crate::hpack::FieldLimits;
use crate::id::{Key, StreamId};
use crate::message::{self, Malformed};
use crate::priority::Priority;
use crate::role::Role;
use crate::stream::{Cause, Past, Phase, State, Stream};
use crate::time::Mark;

/// What a field takes of memory beside its size by RFC 9113 section 6.5.2, in octets: a map's entry takes about that.
const FIELD_COST: usize = 64;

/// The field of RFC 9218.
static PRIORITY: HeaderName = HeaderName::from_static("priority");

/// What the field sections of a stream take without being counted, in octets: an ordinary request.
const FREE_HEADERS: usize = 2 << 10;

/// A header block whose CONTINUATION frames are arriving.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: StreamId,
    end_stream: bool,
    on_itself: bool,
    continuations: u32,
    fragments: Vec<u8>,
}

impl Block {
    /// How many octets of it have come.
    pub(super) fn len(&self) -> usize {
        self.fragments.len()
    }
}

impl Connection {
    pub(super) fn on_headers(&mut self, headers: Headers<'_>) -> Result<(), Fault> {
        let on_itself = headers.priority.is_some_and(|fields| fields.on_itself);
        self.check_block_size(headers.stream, headers.fragment.len())?;
        if headers.end_headers {
            return self.on_block(headers.stream, headers.end_stream, on_itself, headers.fragment);
        }
        self.block = Some(Block {
            stream: headers.stream,
            end_stream: headers.end_stream,
            on_itself,
            continuations: 0,
            fragments: headers.fragment.to_vec(),
        });
        Ok(())
    }

    pub(super) fn on_continuation(&mut self, frame: Continuation<'_>) -> Result<(), Fault> {
        // `on_head` has made sure that it belongs to the block, when there is one.
        let Some(mut block) = self.block.take() else {
            let error = "CONTINUATION without a header block that it continues";
            return Err(ConnectionError::protocol(error).on(frame.stream).into());
        };
        block.continuations += 1;
        if block.continuations > self.config.max_continuations {
            let error = "too many CONTINUATION frames for one header block";
            return Err(ConnectionError::peer(ErrorCode::ENHANCE_YOUR_CALM, error)
                .on(block.stream)
                .into());
        }
        self.check_block_size(block.stream, block.fragments.len() + frame.fragment.len())?;
        block.fragments.extend_from_slice(frame.fragment);
        if !frame.end_headers {
            self.block = Some(block);
            return Ok(());
        }
        self.on_block(block.stream, block.end_stream, block.on_itself, &block.fragments)
    }

    fn check_block_size(&self, stream: StreamId, bytes: usize) -> Result<(), ConnectionError> {
        if bytes <= self.config.max_header_block {
            return Ok(());
        }
        let error = "a header block is longer than the limit";
        Err(ConnectionError::peer(ErrorCode::ENHANCE_YOUR_CALM, error).on(stream))
    }

    /// A whole header block. It is decoded whatever becomes of its stream, since the table depends on it.
    fn on_block(
        &mut self,
        id: StreamId,
        end_stream: bool,
        on_itself: bool,
        block: &[u8],
    ) -> Result<(), Fault> {
        let limits = FieldLimits {
            max_bytes: self.config.max_header_list_size as usize,
            max_fields: self.config.max_header_fields as usize,
        };
        self.section.clear();
        if self.decoder.decode(block, &limits, &mut self.section).is_err() {
            let error = "a header block that cannot be decompressed";
            return Err(ConnectionError::peer(ErrorCode::COMPRESSION_ERROR, error)
                .on(id)
                .into());
        }
        if self.section.over_limit() {
            self.charge_excess()?;
        }
        let known = self.streams.find(id);
        if known.is_none() && self.role == Role::Server && id.value() > self.highest_peer_stream {
            return self.on_new_stream(id, end_stream, on_itself);
        }
        if on_itself && known.is_some() {
            let reason = "a stream that depends on itself";
            return Err(StreamError::local(id, ErrorCode::PROTOCOL_ERROR, reason).into());
        }
        match known {
            Some(key) => self.on_known_stream(key, end_stream),
            None if self.is_idle(id) => Err(ConnectionError::protocol("HEADERS on a stream that is idle")
                .on(id)
                .into()),
            None => match self.closed.past(id) {
                Past::Reset(Side::Local) | Past::Forgotten => Ok(self.count_refused()?),
                Past::Reset(Side::Peer) => {
                    let reason = "HEADERS on a stream that the peer had reset";
                    Err(StreamError::local(id, ErrorCode::STREAM_CLOSED, reason).into())
                }
                Past::Skipped => {
                    let error = "a client opened a stream below one that it had opened before";
                    Err(ConnectionError::protocol(error).on(id).into())
                }
                Past::Finished => {
                    let error = "HEADERS on a stream that is closed";
                    Err(ConnectionError::peer(ErrorCode::STREAM_CLOSED, error)
                        .on(id)
                        .into())
                }
            },
        }
    }

    /// A request opens a stream (RFC 9113 section 5.1.1).
    fn on_new_stream(&mut self, id: StreamId, end_stream: bool, on_itself: bool) -> Result<(), Fault> {
        if !id.is_client_initiated() {
            let error = "a client opened a stream with an even identifier";
            return Err(ConnectionError::protocol(error).on(id).into());
        }
        self.closed.open(self.highest_peer_stream, id);
        self.highest_peer_stream = id.value();
        if self.shutdown.refuses(id) {
            self.count_refused()?;
            // Sent before the peer knew of our GOAWAY, which tells it that this stream may be repeated elsewhere.
            self.closed.remember(id, Side::Local);
            return Ok(());
        }
        let error = |code, reason| Err(StreamError::local(id, code, reason).into());
        if on_itself {
            return error(ErrorCode::PROTOCOL_ERROR, "a stream that depends on itself");
        }
        // Section 5.1.2 counts no closed streams, but the owner may not have let go of them yet.
        let held = self.streams.len() - self.finished;
        let (limit, grace) = (self.config.max_concurrent_streams, self.config.reset_stream_grace);
        if held - self.reset_held as usize >= limit as usize {
            return error(ErrorCode::REFUSED_STREAM, "more streams than are allowed at once");
        }
        if held >= (limit as usize).saturating_add(grace as usize) {
            let reason = "streams were reset faster than their handlers could end";
            return error(ErrorCode::REFUSED_STREAM, reason);
        }
        if !self.can_have_a_stream() {
            let reason = "the streams of all connections, or of this peer's, are as many as they may be";
            return error(ErrorCode::REFUSED_STREAM, reason);
        }
        if self.section.over_limit() {
            return self.answer_431(id, end_stream);
        }
        let memory = self.section_memory();
        if self.streams.header_memory() + memory > self.config.max_header_memory {
            let reason = "the requests under way have more header fields than the connection may hold";
            return error(ErrorCode::REFUSED_STREAM, reason);
        }
        if !self.can_hold_headers(memory) {
            let reason = "the memory budget has no room for the header fields of a request";
            return error(ErrorCode::REFUSED_STREAM, reason);
        }
        // Looked up where they are cheap to find: few requests have them.
        let has = |name: &HeaderName| self.section.has(name);
        let (has_length, has_priority) = (has(&header::CONTENT_LENGTH), has(&PRIORITY));
        let request = match message::receive_request(&mut self.section, self.config.enable_connect_protocol) {
            Ok(request) => request,
            Err(malformed) => return error(ErrorCode::PROTOCOL_ERROR, malformed.reason()),
        };
        let is_connect = request.method() == Method::CONNECT;
        let expected = match has_length {
            true => expected_length(request.headers(), is_connect),
            false => Ok(None),
        };
        let expected = match expected {
            Ok(expected) => expected,
            Err(malformed) => return error(ErrorCode::PROTOCOL_ERROR, malformed.reason()),
        };
        if end_stream && expected.unwrap_or(0) != 0 {
            return error(ErrorCode::PROTOCOL_ERROR, SHORT_BODY);
        }
        if !end_stream && !self.can_hold_a_body() {
            return error(
                ErrorCode::REFUSED_STREAM,
                "the memory budget has no room for a body",
            );
        }
        let mut stream = self.new_stream(id, State::Open);
        stream.receive.phase = Phase::Body;
        stream.receive.expected = expected;
        stream.receive.tunnel = is_connect;
        if has_priority {
            stream.priority = priority_of(request.headers());
        }
        if end_stream {
            stream.receive.phase = Phase::Done;
            stream.state = stream.state.after_receive_end();
        }
        let key = self.insert_stream(stream);
        self.streams.hold_headers(key, memory);
        self.account_stream_sending(key);
        self.guards.window_updates.earn(2);
        self.work += WORK_OF_A_REQUEST;
        let place = self.events.push(Event::Request {
            stream: id,
            request,
            end: end_stream,
        });
        if let Some(stream) = self.streams.get_mut(key) {
            stream.request_event = Some(place);
        }
        Ok(())
    }

    /// A field section over the limit: the client is told by 431 (RFC 6585 section 5), and no handler sees it.
    fn answer_431(&mut self, id: StreamId, end_stream: bool) -> Result<(), Fault> {
        let reason = "too many field sections over the limit";
        self.guards.provoked_resets.charge(self.now, reason)?;
        let mut stream = self.new_stream(id, State::Open);
        stream.released = true;
        stream.receive.discard = true;
        stream.receive.phase = Phase::Body;
        if end_stream {
            stream.receive.phase = Phase::Done;
            stream.state = stream.state.after_receive_end();
        }
        let key = self.insert_stream(stream);
        self.send_status(key, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        Ok(())
    }

    /// A section of many times the limit counts as so many, whatever becomes of its stream, which is for the first of them.
    fn charge_excess(&mut self) -> Result<(), ConnectionError> {
        let bytes = self.section.size() / (self.config.max_header_list_size as usize).max(1);
        let fields = self.section.lines() / (self.config.max_header_fields as usize).max(1);
        let excess = bytes.max(fields).saturating_sub(1);
        let reason = "field sections of many times the limit";
        self.guards.provoked_resets.charge_many(excess, self.now, reason)
    }

    /// A header block that comes to nothing.
    fn count_refused(&mut self) -> Result<(), ConnectionError> {
        let reason = "too many header blocks on streams that are refused or gone";
        self.guards.refused_streams.charge(self.now, reason)
    }

    /// What the section that was decoded takes of memory beyond what is free to a stream, in octets.
    fn section_memory(&self) -> usize {
        let octets = self.section.size() + self.section.lines() * FIELD_COST;
        octets.saturating_sub(FREE_HEADERS)
    }

    /// A response, or trailers.
    fn on_known_stream(&mut self, key: Key, end_stream: bool) -> Result<(), Fault> {
        let id = key.id();
        let over_limit = self.section.over_limit();
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        let error = |code, reason| Err(StreamError::local(id, code, reason).into());
        match stream.state {
            State::Open | State::HalfClosedLocal => {}
            State::Closed(Cause::Reset { by: Side::Local, .. }) => return Ok(()),
            State::Waiting => {
                return Err(ConnectionError::protocol("HEADERS on a stream that is idle")
                    .on(id)
                    .into());
            }
            State::Closed(Cause::Finished) => {
                let error = "HEADERS on a stream that is closed";
                return Err(ConnectionError::peer(ErrorCode::STREAM_CLOSED, error)
                    .on(id)
                    .into());
            }
            State::HalfClosedRemote | State::Closed(_) => {
                return error(
                    ErrorCode::STREAM_CLOSED,
                    "HEADERS on a stream that the peer had ended",
                );
            }
        }
        if over_limit {
            return error(
                ErrorCode::PROTOCOL_ERROR,
                "a field section over the limit SETTINGS_MAX_HEADER_LIST_SIZE",
            );
        }
        let memory = self.section_memory();
        if self.streams.header_memory() + memory > self.config.max_header_memory {
            let reason = "the messages under way have more header fields than the connection may hold";
            return error(ErrorCode::ENHANCE_YOUR_CALM, reason);
        }
        self.streams.hold_headers(key, memory);
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        match stream.receive.phase {
            Phase::Head => self.on_response(key, end_stream),
            Phase::Body if !end_stream => error(
                ErrorCode::PROTOCOL_ERROR,
                "trailers without END_STREAM, or a second head",
            ),
            Phase::Body => match message::receive_trailers(&mut self.section) {
                Ok(trailers) => {
                    if !stream.receive.discard {
                        stream.receive.trailers = Some(Box::new(trailers));
                    }
                    self.receive_end(key)
                }
                Err(malformed) => error(ErrorCode::PROTOCOL_ERROR, malformed.reason()),
            },
            Phase::Done => Ok(()),
        }
    }

    fn on_response(&mut self, key: Key, end_stream: bool) -> Result<(), Fault> {
        let id = key.id();
        let error = |code, reason| Err(StreamError::local(id, code, reason).into());
        let response = match message::receive_response(&mut self.section) {
            Ok(response) => response,
            Err(malformed) => return error(ErrorCode::PROTOCOL_ERROR, malformed.reason()),
        };
        self.account_receiving();
        self.account_stream_receiving(key);
        let status = response.status();
        if status.is_informational() {
            if end_stream {
                return error(
                    ErrorCode::PROTOCOL_ERROR,
                    "an informational response that ends the stream",
                );
            }
            let reason = "too many informational responses";
            self.guards.informational.charge(self.now, reason)?;
            self.events.push(Event::Informational { stream: id, response });
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        let half = &mut stream.receive;
        half.phase = Phase::Body;
        // The time for the body begins here.
        half.mark = Mark::new(self.now);
        half.bodiless |= matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if !half.bodiless {
            let tunnel = half.tunnel && status.is_success();
            match expected_length(response.headers(), tunnel) {
                Ok(expected) => half.expected = expected,
                Err(malformed) => return error(ErrorCode::PROTOCOL_ERROR, malformed.reason()),
            }
        }
        if end_stream && half.expected.unwrap_or(0) != 0 {
            return error(ErrorCode::PROTOCOL_ERROR, SHORT_BODY);
        }
        self.events.push(Event::Response {
            stream: id,
            response,
            end: end_stream,
        });
        if end_stream {
            return self.receive_end(key);
        }
        Ok(())
    }

    /// END_STREAM came, with DATA or with trailers or a head.
    pub(super) fn receive_end(&mut self, key: Key) -> Result<(), Fault> {
        self.account_stream_receiving(key);
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        if !stream.state.can_receive() {
            return Ok(());
        }
        if stream.receive.expected.unwrap_or(0) != 0 {
            return Err(StreamError::local(key.id(), ErrorCode::PROTOCOL_ERROR, SHORT_BODY).into());
        }
        stream.receive.phase = Phase::Done;
        stream.state = stream.state.after_receive_end();
        if !stream.receive.discard {
            self.announce(key);
        }
        self.after_state_change(key);
        Ok(())
    }

    /// PRIORITY_UPDATE (RFC 9218 section 7.1).
    pub(super) fn on_priority_update(&mut self, update: PriorityUpdate<'_>) -> Result<(), Fault> {
        self.count_priority()?;
        if self.role == Role::Client {
            return Err(ConnectionError::protocol("PRIORITY_UPDATE from a server").into());
        }
        let id = update.prioritized;
        if !id.is_client_initiated() {
            let error = "PRIORITY_UPDATE for a stream that a client cannot open";
            return Err(ConnectionError::protocol(error).on(id).into());
        }
        // One that comes before its stream is dropped, as section 7 allows: keeping it would cost memory for nothing.
        if let Some(key) = self.streams.find(id) {
            self.set_priority(key, Priority::parse(update.value));
        }
        Ok(())
    }

    pub(super) fn new_stream(&self, id: StreamId, state: State) -> Box<Stream> {
        use crate::flow::{ReceiveWindow, SendCredit};
        let window = self.stream_window;
        let window = ReceiveWindow::new(window.bytes(), window, self.config.stream_refill);
        let window = match self.config.adaptive {
            true => window,
            false => window.fixed(),
        };
        let credit = SendCredit::new(self.peer.initial_window_size);
        Box::new(Stream::new(id, state, window, credit, self.now))
    }
}

/// What `content-length` says of a body; nothing for a tunnel, whose DATA is no body.
fn expected_length(headers: &HeaderMap, tunnel: bool) -> Result<Option<u64>, Malformed> {
    if tunnel {
        return Ok(None);
    }
    message::content_length(headers)
}

/// The `priority` field (RFC 9218 section 5); several lines are one list.
pub(super) fn priority_of(headers: &HeaderMap) -> Priority {
    let mut values = headers.get_all(&PRIORITY).iter();
    let Some(first) = values.next() else {
        return Priority::default();
    };
    let Some(second) = values.next() else {
        return Priority::parse(first.as_bytes());
    };
    let mut joined = [first.as_bytes(), b", ", second.as_bytes()].concat();
    for value in values {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(value.as_bytes());
    }
    Priority::parse(&joined)
}
