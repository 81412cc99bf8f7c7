//! What the handles of a connection and the connection itself share, behind one mutex: the engine, the streams, and what each
//! waits for. The mutex is never held during a system call.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf, Bytes};
use fullbore_proto::{
    Connection, ErrorCode, Event, Payload, ReadState, Role, Side, StreamError, StreamErrorKind, StreamId,
    StreamMap, Time, Transmit, WindowSize,
};
use http::{HeaderMap, Request, Response};

use crate::error::Error;
use crate::failure::{Failure, Initiator, UserError};
use crate::incoming::Incoming;
use crate::message::{self, user_error};
use crate::pings::{self, Pings};
use crate::reason::{self, Reason};
use crate::report;
use crate::settings::{self, Settings};
use crate::stream::{Head, Sending, Stream};

/// The most bytes of one buffer: no window could ever take more.
const MAX_PAYLOAD: usize = (1 << 31) - 1;

/// How many requests the engine parses before their events are taken. Its queue of events keeps the room for as many.
const REQUESTS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Shared(Mutex<State>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct State {
    engine: Connection,
    /// The time that the engine counts from.
    origin: Instant,
    streams: StreamMap<Stream>,
    /// The handles that keep the connection open.
    handles: usize,
    /// The task that polls the connection.
    task: Option<Waker>,
    /// Whether a handle has something for the task.
    told: bool,
    /// Whether the task has given way since it took in what handles had told it.
    gave_way: bool,
    incoming: Incoming,
    max_send_buffer: usize,
    max_receive_streams: usize,
    /// The connection's receive window as it was set last, if it may have grown beyond.
    connection_target: Option<WindowSize>,
    /// The connection's receive window as it is to be with the next write, behind the replies to what arrived before.
    next_window: Option<WindowSize>,
    /// The debug data and the code of the peer's GOAWAY.
    go_away: Option<(Bytes, Reason)>,
    /// Why there are no new requests.
    failure: Option<Failure>,
    pings: Pings,
    reported: bool,
}

impl State {
    pub(crate) fn shared(role: Role, settings: &Settings) -> Arc<Shared> {
        let config = settings.to_engine();
        let mut engine = match role {
            Role::Client => Connection::client(config, Time::ZERO),
            Role::Server => Connection::server(config, Time::ZERO),
        };
        if let Some(window) = settings.small_connection_window() {
            engine.shrink_receive_window(window);
        }
        Arc::new(Shared(Mutex::new(State {
            engine,
            origin: Instant::now(),
            streams: StreamMap::default(),
            handles: 0,
            task: None,
            told: false,
            gave_way: false,
            incoming: Incoming::default(),
            max_send_buffer: settings.max_send_buffer_size(),
            max_receive_streams: settings.max_receive_streams(),
            next_window: settings.later_connection_window(),
            connection_target: settings.budget().map(|_| settings.first_connection_window()),
            go_away: None,
            failure: None,
            pings: Pings::default(),
            reported: false,
        })))
    }

    /// The first bytes that are written: see [`Settings::quiet`].
    #[cfg(feature = "unstable")]
    pub(crate) fn first_bytes(&mut self, settings: &Settings, start: usize) -> Bytes {
        let mut list = Transmit::new();
        self.transmit(&mut list);
        settings.quiet(&list.copy_to_bytes(list.remaining()), start)
    }

    fn now(&self) -> Time {
        let nanos = self.origin.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    // The connection.

    pub(crate) fn is_server(&self) -> bool {
        self.engine.role() == Role::Server
    }

    pub(crate) fn register(&mut self, cx: &Context<'_>) {
        match &mut self.task {
            Some(task) => task.clone_from(cx.waker()),
            None => self.task = Some(cx.waker().clone()),
        }
    }

    /// Whether the task lets other tasks run, once, before it does what a handle woke it for. Those that answer other streams may
    /// be ready too, and then all responses leave in one write: tokio's multi-thread runtime runs a task that another one has
    /// woken before those that wait. The published crate, whose tests count polls, writes at once.
    pub(crate) fn gives_way(&mut self) -> bool {
        let told = std::mem::take(&mut self.told);
        let may = !cfg!(feature = "unstable") && self.streams.len() > 1;
        self.gave_way = told && may && !self.gave_way;
        self.gave_way
    }

    /// Wakes the task of the connection if there is something to write.
    fn wake_to_write(&mut self) {
        if self.engine.wants_transmit() {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.told = true;
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    pub(crate) fn wants_read(&self) -> bool {
        self.engine.wants_read()
    }

    pub(crate) fn preface_received(&self) -> bool {
        self.engine.preface_received()
    }

    /// Takes in octets of the transport. An error ends the connection.
    pub(crate) fn receive(&mut self, mut octets: Bytes) -> Result<(), Reason> {
        let now = self.now();
        while !octets.is_empty() {
            let result = self.engine.receive_some(&mut octets, REQUESTS, now);
            self.take_events();
            if let Err(error) = result {
                tracing::debug!(%error, "connection error");
                let reason = reason::of(error.code);
                let debug = Bytes::from_static(reason::debug_data(&error).as_bytes());
                self.fail(&Failure::GoAway(debug, reason, Initiator::Library));
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Fills a write list with what is to be written.
    pub(crate) fn transmit(&mut self, list: &mut Transmit) {
        let now = self.now();
        if self
            .engine
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.engine.handle_timeout(now);
            self.take_events();
        }
        if self.engine.wants_transmit() {
            self.engine.transmit(list, now);
            self.take_events();
            if !list.has_remaining() && self.engine.wants_transmit() {
                // More senders are to learn of credit that the first ones leave.
                self.wake();
            }
        }
    }

    /// Whether nothing keeps the connection open: this client has no handles and streams left, or one side said GOAWAY and the
    /// streams are done.
    pub(crate) fn is_done(&self) -> bool {
        let abandoned = !self.is_server() && self.handles == 0;
        let goes = self.go_away.is_some() || self.engine.has_sent_last_stream();
        (abandoned && self.engine.stream_count() == 0 || goes) && !self.engine.has_unfinished_streams()
    }

    /// Whether the user has ended the connection.
    pub(crate) fn is_aborted(&self) -> bool {
        self.engine.error().is_some()
    }

    /// Says GOAWAY, unless that was said.
    pub(crate) fn say_goodbye(&mut self) {
        if self.engine.has_sent_last_stream() || self.engine.error().is_some() {
            return;
        }
        self.report();
        let now = self.now();
        self.engine.abort(ErrorCode::NO_ERROR, "", now);
    }

    /// The error of the peer's GOAWAY, if it named one. The connection has ended.
    pub(crate) fn take_error_of_peer(&mut self) -> Option<Failure> {
        let (debug, reason) = self.go_away.take_if(|(_, reason)| *reason != Reason::NO_ERROR)?;
        Some(Failure::GoAway(debug, reason, Initiator::Remote))
    }

    pub(crate) fn peer_goes_in_peace(&self) -> bool {
        matches!(&self.go_away, Some((_, Reason::NO_ERROR)))
    }

    /// Ends all streams, and everything that waits for the connection.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.report();
        for stream in self.streams.values_mut() {
            stream.fail_open(failure);
        }
        self.failure = Some(failure.clone());
        self.pings.close();
    }

    /// The peer has closed the transport.
    pub(crate) fn end_of_transport(&mut self) {
        self.report();
        let failure = Failure::broken_pipe("stream closed because of a broken pipe");
        for stream in self.streams.values_mut() {
            stream.fail_open(&failure);
        }
        let failure = Failure::broken_pipe("connection closed because of a broken pipe");
        self.failure.get_or_insert(failure);
        self.pings.close();
    }

    /// The transport takes no more for now.
    pub(crate) fn note_blocked(&mut self) {
        if report::is_wanted() {
            let now = self.now();
            self.engine.socket_blocked(now);
        }
    }

    /// The transport has taken everything.
    pub(crate) fn note_written(&mut self) {
        if report::is_wanted() {
            let now = self.now();
            self.engine.socket_idle(now);
        }
    }

    /// Says what the connection has waited for, once, if that is wanted. It ends.
    fn report(&mut self) {
        if report::is_wanted() && !std::mem::replace(&mut self.reported, true) {
            report::say(self.engine.role(), &self.engine.report(self.now()));
        }
    }

    /// The connection is dropped.
    pub(crate) fn abandon(&mut self) {
        self.end_of_transport();
        while let Some((id, _)) = self.incoming.pop() {
            self.streams.remove(&id);
        }
        let now = self.now();
        self.engine.abort(ErrorCode::NO_ERROR, "", now);
        self.task = None;
    }

    pub(crate) fn shut_down(&mut self) {
        let now = self.now();
        self.engine.shutdown(now);
        self.wake();
    }

    /// Ends the connection at once for the user.
    pub(crate) fn abort(&mut self, reason: Reason) {
        self.report();
        let now = self.now();
        self.engine.abort(reason::code(reason), "", now);
        self.fail(&Failure::GoAway(Bytes::new(), reason, Initiator::User));
        self.wake();
    }

    pub(crate) fn set_connection_window(&mut self, bytes: u32) {
        self.next_window = Some(settings::connection_window(bytes));
        self.wake();
    }

    pub(crate) fn apply_connection_window(&mut self) {
        let Some(size) = self.next_window.take() else {
            return;
        };
        let lowest = self
            .connection_target
            .as_mut()
            .map(|target| std::mem::replace(target, size));
        match size < self.engine.receive_window_size() {
            // It has grown beyond that by itself.
            true if lowest.is_some_and(|lowest| size >= lowest) => {}
            true => self.engine.shrink_receive_window(size),
            // What is set needs no room in a budget.
            false => drop(self.engine.grow_receive_window(size)),
        }
    }

    pub(crate) fn set_stream_window(&mut self, bytes: u32) -> Result<(), Error> {
        self.engine
            .change_stream_window(settings::stream_window(bytes))
            .map_err(|error| user_error(&error))?;
        self.wake();
        Ok(())
    }

    pub(crate) fn accept_extended_connect(&mut self) -> Result<(), Error> {
        self.engine
            .accept_extended_connect()
            .map_err(|error| user_error(&error))?;
        self.wake();
        Ok(())
    }

    pub(crate) fn max_send_streams(&self) -> usize {
        match self.engine.peer_max_concurrent_streams() {
            u32::MAX => usize::MAX,
            most => most as usize,
        }
    }

    pub(crate) fn max_receive_streams(&self) -> usize {
        self.max_receive_streams
    }

    pub(crate) fn allows_extended_connect(&self) -> bool {
        self.engine.peer_allows_extended_connect()
    }

    pub(crate) fn has_streams(&self) -> bool {
        self.engine.has_unfinished_streams()
    }

    // Events.

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Request { stream, request, end } => self.on_request(stream, request, end),
                Event::Response {
                    stream,
                    response,
                    end,
                } => self.on_head(stream, Head::Response(response), end),
                Event::Informational { stream, response } => {
                    self.on_head(stream, Head::Informational(response), false);
                }
                Event::Readable(stream) => self.read(stream),
                Event::Writable(stream) | Event::Credit(stream) => {
                    if let Some(stream) = self.streams.get_mut(&stream) {
                        stream.wake_sender();
                    }
                }
                Event::Reset(error) => self.on_reset(&error),
                Event::Pong(_) => self.pings.answer(),
                Event::GoAway {
                    code, debug: data, ..
                } => {
                    tracing::debug!(reason = ?code, debug_data = ?data, "received GOAWAY");
                    let reason = reason::of(code);
                    self.failure = Some(Failure::GoAway(data.clone(), reason, Initiator::Remote));
                    self.go_away = Some((data, reason));
                }
                _ => {}
            }
        }
    }

    fn on_request(&mut self, id: StreamId, request: Request<()>, end: bool) {
        let mut stream = Stream::new(Sending::Head);
        if end {
            stream.receive_end(None);
        }
        self.streams.insert(id, stream);
        self.incoming.push(id, message::request_from_engine(request));
    }

    fn on_head(&mut self, id: StreamId, head: Head, end: bool) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.receive_head(head, end);
        }
    }

    fn read(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let engine = &mut self.engine;
        let (state, _) = stream.receive_chunks(|chunks| engine.read(id, chunks));
        match state {
            Ok(ReadState::End) => {
                stream.receive_empty_body();
                stream.receive_end(None);
            }
            Ok(ReadState::Trailers(trailers)) => stream.receive_end(Some(trailers)),
            _ => {}
        }
        if stream.discards {
            let unread = stream.drop_unread();
            engine.release_credit(id, unread);
        }
        stream.wake_receiver();
    }

    fn on_reset(&mut self, error: &StreamError) {
        let id = error.stream;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if self.engine.role() == Role::Server && stream.handles == 0 && error.by == Side::Peer {
            // Nobody has seen the request, so nobody has to be told, and nobody returns the credit of its body.
            let held = stream.in_flight();
            self.streams.remove(&id);
            self.incoming.withdraw(id);
            self.engine.release_connection_credit(held);
            self.engine.release(id);
            return;
        }
        let reason = reason::of(error.code);
        let failure = match (error.kind(), error.by) {
            (StreamErrorKind::NotProcessed, _) => {
                let (debug, reason) = self.go_away.clone().unwrap_or((Bytes::new(), reason));
                Failure::GoAway(debug, reason, Initiator::Remote)
            }
            (StreamErrorKind::TransportEnded, _) => {
                Failure::broken_pipe("stream closed because of a broken pipe")
            }
            (_, Side::Peer) => Failure::Reset(reason, Initiator::Remote),
            (_, Side::Local) => Failure::Reset(reason, Initiator::Library),
        };
        tracing::debug!(%error, "stream ended");
        stream.fail(failure);
    }

    // Requests and responses.

    /// The oldest request that nobody has accepted. It has one handle then.
    pub(crate) fn accept(&mut self) -> Option<(StreamId, Request<()>)> {
        self.incoming.pop()
    }

    /// As [`Self::accept`], unless the connection has failed or the user has ended it.
    pub(crate) fn accept_now(&mut self) -> Option<(StreamId, Request<()>)> {
        if self.is_aborted() {
            return None;
        }
        self.accept()
    }

    /// Sends a request that [`message::request_to_engine`] has returned.
    pub(crate) fn send_request(&mut self, request: Request<()>, end: bool) -> Result<StreamId, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        if !self.engine.takes_new_streams() {
            return Err(UserError::OverflowedStreamId.into());
        }
        let id = self
            .engine
            .open(request, end)
            .map_err(|error| user_error(&error))?;
        let sending = if end { Sending::Ended } else { Sending::Body };
        self.streams.insert(id, Stream::new(sending));
        self.wake();
        Ok(id)
    }

    /// Whether a request waits until the peer allows another stream.
    pub(crate) fn is_waiting(&self, id: StreamId) -> bool {
        self.engine.is_waiting(id)
    }

    /// Whether another request may be sent, after `pending`.
    pub(crate) fn poll_ready(
        &mut self,
        cx: &Context<'_>,
        pending: Option<StreamId>,
    ) -> Poll<Result<(), Error>> {
        if let Some(failure) = &self.failure {
            return Poll::Ready(Err(failure.clone().into()));
        }
        if !self.engine.takes_new_streams() {
            return Poll::Ready(Err(UserError::OverflowedStreamId.into()));
        }
        let Some(id) = pending.filter(|&id| self.engine.is_waiting(id)) else {
            return Poll::Ready(Ok(()));
        };
        self.engine.want_credit(id);
        match self.streams.get_mut(&id) {
            Some(stream) => stream.wait_to_open(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    pub(crate) fn send_informational(&mut self, id: StreamId, response: &Response<()>) -> Result<(), Error> {
        if !response.status().is_informational() {
            return Err(UserError::InvalidInformationalStatusCode.into());
        }
        self.engine
            .send_informational(id, response)
            .map_err(|error| user_error(&error))?;
        self.wake();
        Ok(())
    }

    pub(crate) fn send_response(
        &mut self,
        id: StreamId,
        response: &Response<()>,
        end: bool,
    ) -> Result<(), Error> {
        let stream = self.streams.get_mut(&id).ok_or(UserError::InactiveStreamId)?;
        if stream.has_failed() || stream.sending != Sending::Head {
            return Err(UserError::UnexpectedFrameType.into());
        }
        self.engine
            .send_response(id, response, end)
            .map_err(|error| user_error(&error))?;
        stream.sending = if end { Sending::Ended } else { Sending::Body };
        self.wake();
        Ok(())
    }

    // Bodies.

    /// Checks that a buffer of this length may be sent.
    pub(crate) fn check_data(&self, id: StreamId, length: usize) -> Result<(), UserError> {
        if length > MAX_PAYLOAD {
            return Err(UserError::PayloadTooBig);
        }
        match self.streams.get(&id) {
            Some(stream) if stream.can_send_body() => Ok(()),
            Some(stream) if !stream.is_closed() => Err(UserError::UnexpectedFrameType),
            _ => Err(UserError::InactiveStreamId),
        }
    }

    /// Queues a part of a body, after [`Self::check_data`].
    pub(crate) fn send_data(&mut self, id: StreamId, data: Payload, end: bool) -> Result<(), Error> {
        let stream = self.streams.get_mut(&id).ok_or(UserError::InactiveStreamId)?;
        let length = data.len();
        self.engine
            .send_data(id, data, end)
            .map_err(|error| user_error(&error))?;
        stream.reserved = stream.reserved.saturating_sub(length);
        stream.use_known_capacity(length);
        if end {
            stream.sending = Sending::Ended;
            stream.reserved = 0;
        } else {
            let capacity = self.capacity(id);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.lower_known_capacity(capacity);
            }
        }
        self.wake_to_write();
        Ok(())
    }

    pub(crate) fn send_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> Result<(), Error> {
        let stream = self.streams.get_mut(&id).ok_or(UserError::InactiveStreamId)?;
        if !stream.can_send_body() {
            return Err(UserError::UnexpectedFrameType.into());
        }
        self.engine
            .send_trailers(id, trailers)
            .map_err(|error| user_error(&error))?;
        stream.sending = Sending::Ended;
        stream.reserved = 0;
        self.wake_to_write();
        Ok(())
    }

    pub(crate) fn send_reset(&mut self, id: StreamId, reason: Reason) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.has_failed() {
            return;
        }
        // What was received before stays readable, as after a reset of the peer.
        stream.fail(Failure::Reset(reason, Initiator::User));
        // It has ended already if both messages were sent.
        let _ = self.engine.reset(id, reason::code(reason));
        self.take_events();
        self.wake();
    }

    /// What may be queued now: no more than was reserved, than both windows allow, and than fits the buffer. A stream that waits
    /// to be opened has none.
    pub(crate) fn capacity(&self, id: StreamId) -> usize {
        match self.streams.get(&id) {
            Some(stream) if stream.can_send_body() => self.room(id).min(stream.reserved),
            _ => 0,
        }
    }

    /// The same without regard to what was reserved, of a stream whose body may be sent.
    fn room(&self, id: StreamId) -> usize {
        if self.engine.is_waiting(id) {
            return 0;
        }
        let queued = self.engine.send_queue_bytes(id).unwrap_or(0);
        let windows = self
            .engine
            .stream_send_window_remaining(id)
            .unwrap_or(0)
            .min(self.engine.send_window_remaining());
        let windows = usize::try_from(windows).unwrap_or(0);
        windows.min(self.max_send_buffer).saturating_sub(queued)
    }

    pub(crate) fn reserve_capacity(&mut self, id: StreamId, bytes: usize) {
        let room = self.room(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let room = if stream.can_send_body() { room } else { 0 };
        if !stream.can_send_body() && bytes > stream.reserved {
            return;
        }
        let (before, now) = (room.min(stream.reserved), room.min(bytes));
        stream.reserved = bytes;
        stream.lower_known_capacity(before.min(now));
        if now > before {
            stream.wake_sender();
        }
    }

    pub(crate) fn poll_capacity(
        &mut self,
        id: StreamId,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<usize, Error>>> {
        let capacity = self.capacity(id);
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.can_send_body()) else {
            return Poll::Ready(None);
        };
        if let Some(capacity) = stream.take_capacity(capacity) {
            return Poll::Ready(Some(Ok(capacity)));
        }
        self.engine.want_credit(id);
        if let Some(queued) = self.engine.send_queue_bytes(id).filter(|&queued| queued > 0) {
            let low_water = (queued - 1).min(self.max_send_buffer.saturating_sub(1));
            self.engine.want_room(id, low_water);
        }
        stream.wait_to_send(cx)
    }

    pub(crate) fn release_capacity(&mut self, id: StreamId, bytes: u64) -> Result<(), Error> {
        let stream = self
            .streams
            .get_mut(&id)
            .ok_or(UserError::ReleaseCapacityTooBig)?;
        stream.release(bytes)?;
        self.engine.release_credit(id, bytes);
        self.wake_to_write();
        Ok(())
    }

    /// The bytes that the peer may send on the stream if all that is read is released at once.
    pub(crate) fn available_capacity(&self, id: StreamId) -> i64 {
        let size = self.engine.stream_receive_window_size(id);
        let size = size.map_or(0, |size| i64::from(size.bytes()));
        size - i64::try_from(self.used_capacity(id)).unwrap_or(i64::MAX)
    }

    pub(crate) fn used_capacity(&self, id: StreamId) -> u64 {
        self.streams.get(&id).map_or(0, Stream::in_flight)
    }

    // Handles.

    /// The streams that have handles, and how many of them are not complete.
    #[cfg(feature = "unstable")]
    pub(crate) fn stream_counts(&self) -> (usize, usize) {
        let active = self.streams.values().filter(|stream| !stream.is_closed());
        (self.streams.len(), active.count())
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&id)
    }

    /// There is one more handle of the connection.
    pub(crate) fn add_handle(&mut self) {
        self.handles += 1;
    }

    pub(crate) fn drop_handle(&mut self) {
        self.handles -= 1;
        if self.handles == 0 {
            self.wake();
        }
    }

    /// There is one more handle of a stream.
    pub(crate) fn add_stream_handle(&mut self, id: StreamId) {
        self.handles += 1;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.handles += 1;
        }
    }

    /// The last handle of a stream returns what it holds of the windows, and cancels the stream unless it is complete.
    pub(crate) fn drop_stream_handle(&mut self, id: StreamId) {
        self.drop_handle();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.handles -= 1;
        if stream.handles > 0 {
            return;
        }
        let held = stream.in_flight();
        // A sender may wait until this stream is opened, to send another request.
        stream.wake_sender();
        self.streams.remove(&id);
        self.engine.release_connection_credit(held);
        self.engine.release_with(id, ErrorCode::CANCEL);
        self.wake();
    }

    /// Nobody reads the body any more.
    pub(crate) fn discard(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.discards = true;
        let unread = stream.drop_unread();
        self.engine.release_credit(id, unread);
        self.engine.discard_received(id);
        self.wake_to_write();
    }

    // PING.

    /// True for the first caller.
    pub(crate) fn take_ping_pong(&mut self) -> bool {
        self.pings.take()
    }

    pub(crate) fn send_ping(&mut self) -> Result<(), Error> {
        self.pings.check()?;
        self.engine
            .ping(pings::OPAQUE)
            .map_err(|error| user_error(&error))?;
        self.pings.note_sent();
        self.wake();
        Ok(())
    }

    pub(crate) fn poll_pong(&mut self, cx: &Context<'_>) -> Poll<Result<(), Error>> {
        self.pings.poll_pong(cx)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("role", &self.engine.role())
            .field("streams", &self.streams.len())
            .field("handles", &self.handles)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
