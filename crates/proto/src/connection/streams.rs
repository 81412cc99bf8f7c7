//! The states of streams, what their owner reads, and the credit that goes back to the peer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Connection;
use super::receive::WORK_OF_A_REQUEST;
use crate::error::{ConnectionError, ErrorCode, Fault, Side, StreamError, UsageError};
use crate::event::{Event, ReadState};
use crate::flow::{Stall, WindowSize};
use crate::frame::{Kind, ResetStream, WindowUpdate};
use crate::id::{Key, StreamId};
use crate::priority::Priority;
use crate::role::Role;
use crate::stream::{Cause, Phase, RefillListing, State};
use crate::time::Time;

impl Connection {
    /// Takes everything that a stream has received, by reference. The bytes count against the windows until they are
    /// released by [`Self::release_credit`].
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`].
    pub fn read(&mut self, stream: StreamId, into: &mut VecDeque<Bytes>) -> Result<ReadState, UsageError> {
        let (_, stream) = self.streams.by_id(stream).ok_or(UsageError::UnknownStream)?;
        let half = &mut stream.receive;
        half.announced = false;
        self.lent += half.queue.drain_into(into) as u64;
        Ok(match (half.phase, stream.state) {
            (Phase::Done, _) => match half.trailers.take() {
                Some(trailers) => ReadState::Trailers(*trailers),
                None => ReadState::End,
            },
            (_, State::Closed(_)) => ReadState::Reset,
            _ => ReadState::Open,
        })
    }

    /// Gives back the credit of `bytes` that were read from `stream`, for the stream and for the connection. Of a
    /// stream that is gone only the connection's counts.
    pub fn release_credit(&mut self, stream: StreamId, bytes: u64) {
        self.release_stream_credit(stream, bytes);
        self.release_connection_credit(bytes);
    }

    /// Gives back the credit of `bytes` for the stream alone; the connection's follows by
    /// [`Self::release_connection_credit`].
    pub fn release_stream_credit(&mut self, stream: StreamId, bytes: u64) {
        if let Some((key, stream)) = self.streams.by_id(stream) {
            if stream.receive.phase == Phase::Done {
                // All has come, and lay there until now.
                let round_trip = self.stats.round_trip.minimum();
                stream.settle_receiving(&self.receive_window, round_trip, self.now);
            }
            stream.receive.window.consume(bytes);
            self.list_refill(key);
        }
    }

    /// Gives back the credit of `bytes` for the connection alone, of whatever streams they were; never more than were
    /// read.
    pub fn release_connection_credit(&mut self, bytes: u64) {
        let bytes = bytes.min(self.lent);
        self.account_reading();
        self.lent -= bytes;
        self.credit_connection(bytes);
        self.balance();
        self.rest();
    }

    /// Gives back memory that is kept for the next batch, and that a connection on which nothing happens does not need.
    pub fn trim(&mut self) {
        self.streams.trim();
        self.schedule.trim();
        self.encoder.rest();
        self.date = None;
        self.section.trim();
        self.events.trim();
        self.control.shrink_to_fit();
        self.refills.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.early.shrink_to_fit();
        self.waiting.trim();
        self.return_spare_leases();
    }

    /// How many bytes the owner has read and not released.
    pub fn unreleased(&self) -> u64 {
        self.lent
    }

    /// How many bytes have to be released before a WINDOW_UPDATE for the connection is due.
    pub fn connection_release_until_due(&self) -> u64 {
        let until = self.receive_window.until_due();
        match self.receive_window.until_unchoked() {
            // Nothing is due before something more is released.
            Some(earlier) => until.min(earlier.max(1)),
            None => until,
        }
    }

    /// How many bytes of a stream have to be released before its WINDOW_UPDATE is due; none when no more are needed.
    pub fn stream_release_until_due(&self, stream: StreamId) -> Option<u64> {
        let stream = self.streams.get(self.streams.find(stream)?)?;
        (stream.receive.phase != Phase::Done).then(|| stream.receive.window.until_due())
    }

    /// Raises the receive window of the connection, at once and for good.
    ///
    /// # Errors
    /// [`UsageError::WindowShrinks`] when `size` is smaller than it is, [`UsageError::BudgetExhausted`] when the budget
    /// has no room for it; nothing happens when it is the same.
    pub fn grow_receive_window(&mut self, size: WindowSize) -> Result<(), UsageError> {
        if size < self.receive_window.size() {
            return Err(UsageError::WindowShrinks);
        }
        if size > self.receive_window.size() && self.failed.is_none() {
            // Without a lease the window that it has is owed as well.
            let leased = match self.lease.held() {
                0 => 0,
                _ => self.receive_window.size().bytes(),
            };
            let more = size.bytes() - leased;
            if !self.lease.grow(u64::from(more)) {
                return Err(UsageError::BudgetExhausted);
            }
            self.receive_window.resize(size);
            self.refill_connection();
        }
        Ok(())
    }

    /// Raises the receive window of one stream, at once and for good.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`], or [`UsageError::WindowShrinks`] when `size` is smaller than it is.
    pub fn grow_stream_receive_window(
        &mut self,
        stream: StreamId,
        size: WindowSize,
    ) -> Result<(), UsageError> {
        let (key, stream) = self.streams.by_id(stream).ok_or(UsageError::UnknownStream)?;
        let window = &mut stream.receive.window;
        if size < window.size() {
            return Err(UsageError::WindowShrinks);
        }
        if size > window.size() {
            window.resize(size);
            self.largest_stream_window = self.largest_stream_window.max(size);
            self.refill_stream(key);
        }
        Ok(())
    }

    /// Writes a stream's WINDOW_UPDATE for all that may be advertised, unless the peer does not know the stream or has ended
    /// it.
    pub(super) fn refill_stream(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if !stream.state.can_receive() {
            return;
        }
        if let Some(increment) = stream
            .receive
            .window
            .refill(self.now, self.stats.round_trip.minimum())
        {
            let update = WindowUpdate {
                stream: Some(key.id()),
                increment,
            };
            update.write(&mut self.control);
            self.stats.sent_frames.add(Kind::WINDOW_UPDATE);
            self.stats.stream_refills += 1;
        }
    }

    /// Says that nobody reads the stream any more: what has come and what comes is credited and dropped (law 3). A
    /// client's stream is reset with CANCEL unless its response is whole; a server's is reset with NO_ERROR when its response
    /// is and the request does not end soon (RFC 9113 section 8.1).
    pub fn discard(&mut self, id: StreamId) {
        let Some((key, stream)) = self.streams.by_id(id) else {
            return;
        };
        let half = &mut stream.receive;
        half.discard = true;
        half.trailers = None;
        let unread = half.queue.clear() as u64;
        half.window.consume(unread);
        let state = stream.state;
        let sent_all = stream.send.ended;
        self.credit_connection(unread);
        self.list_refill(key);
        if !state.can_receive() && state != State::Waiting {
            return;
        }
        match self.role {
            Role::Client => self.reset_with(StreamError::local(
                id,
                ErrorCode::CANCEL,
                "it is not wanted any more",
            )),
            Role::Server if sent_all => self.tolerate_rest(key),
            Role::Server => {}
        }
    }

    /// Lets go of a stream: it is forgotten as soon as it is closed. What was queued and finished still leaves; a
    /// message that was not finished is reset.
    pub fn release(&mut self, id: StreamId) {
        let Some((_, stream)) = self.streams.by_id(id) else {
            return;
        };
        // From here on it is forgotten as soon as it is closed, and its owner hears of it no more.
        stream.released = true;
        self.discard(id);
        let Some((key, stream)) = self.streams.by_id(id) else {
            return;
        };
        if stream.state.is_closed() {
            match stream.state == State::Closed(Cause::Finished) {
                true => self.finished -= 1,
                false => self.reset_held -= 1,
            }
            self.streams.remove(key);
            self.rest();
        } else if stream.send.phase != Phase::Done {
            let code = match self.role {
                Role::Client => ErrorCode::CANCEL,
                Role::Server => ErrorCode::INTERNAL_ERROR,
            };
            self.reset_with(StreamError::local(
                id,
                code,
                "it was let go of before it was whole",
            ));
        }
    }

    /// Ends a stream at once with RST_STREAM.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`] when it has ended already.
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) -> Result<(), UsageError> {
        match self.streams.by_id(id) {
            Some((_, stream)) if !stream.state.is_closed() => {
                self.reset_with(StreamError::local(id, code, "this endpoint gave it up"));
                Ok(())
            }
            _ => Err(UsageError::UnknownStream),
        }
    }

    /// The priority by which we schedule the stream (RFC 9218); a server may override what the client asked for.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`].
    pub fn prioritize(&mut self, id: StreamId, priority: Priority) -> Result<(), UsageError> {
        let key = self.streams.find(id).ok_or(UsageError::UnknownStream)?;
        self.set_priority(key, priority);
        Ok(())
    }

    pub(super) fn set_priority(&mut self, key: Key, priority: Priority) {
        if let Some(stream) = self.streams.get_mut(key) {
            let old = core::mem::replace(&mut stream.priority, priority);
            if let Some(turn) = stream.send.scheduled {
                self.schedule.remove(turn, old);
                stream.send.scheduled = Some(self.schedule.insert(key, priority));
            }
        }
    }

    /// Whether the identifier belongs to no stream yet (RFC 9113 section 5.1, idle).
    pub(super) fn is_idle(&self, id: StreamId) -> bool {
        match (self.role, id.is_client_initiated()) {
            (Role::Server, true) => id.value() > self.highest_peer_stream,
            // Identifiers that wait for their turn have not been used on the wire.
            (Role::Client, true) => {
                let unused = self.next_stream.is_some_and(|next| id >= next);
                let waits = || {
                    let stream = self.streams.find(id).and_then(|key| self.streams.get(key));
                    stream.is_some_and(|stream| stream.state == State::Waiting)
                };
                unused || waits()
            }
            // Push is refused, so that no server's stream ever leaves this state.
            (_, false) => true,
        }
    }

    /// Tells the owner once that there is something to read.
    pub(super) fn announce(&mut self, key: Key) {
        if let Some(stream) = self.streams.get_mut(key) {
            if !stream.receive.announced {
                stream.receive.announced = true;
                self.events.push(Event::Readable(key.id()));
            }
        }
    }

    /// Bytes of the connection's window were consumed.
    pub(super) fn credit_connection(&mut self, bytes: u64) {
        self.receive_window.consume(bytes);
    }

    /// Puts a stream on the list of windows to refill when that is near: never after END_STREAM (law 2).
    pub(super) fn list_refill(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let half = &mut stream.receive;
        if half.refill == RefillListing::Due || half.phase == Phase::Done || !stream.state.can_receive() {
            return;
        }
        if half.window.refill_due(false) {
            if half.refill == RefillListing::None {
                self.refills.push(key);
            }
            half.refill = RefillListing::Due;
            self.refills_due += 1;
        } else if half.refill == RefillListing::None && half.window.refill_due(true) {
            half.refill = RefillListing::InCompany;
            self.refills.push(key);
        }
    }

    /// WINDOW_UPDATE of the peer (RFC 9113 section 6.9).
    pub(super) fn on_window_update(&mut self, update: WindowUpdate) -> Result<(), Fault> {
        let reason = "too many WINDOW_UPDATE for what was sent";
        self.guards.window_updates.charge(self.now, reason)?;
        let Some(id) = update.stream else {
            self.held_since = None;
            return self.send_credit.grant(update.increment).map_err(|_| {
                let error = "WINDOW_UPDATE puts the connection's window over 2^31-1";
                ConnectionError::peer(ErrorCode::FLOW_CONTROL_ERROR, error).into()
            });
        };
        if self.is_idle(id) {
            return Err(
                ConnectionError::protocol("WINDOW_UPDATE on a stream that is idle")
                    .on(id)
                    .into(),
            );
        }
        // On a closed stream it is late and harmless (section 5.1).
        let Some((key, stream)) = self.streams.by_id(id) else {
            return Ok(());
        };
        if stream.state.is_closed() {
            return Ok(());
        }
        if stream.send.credit.grant(update.increment).is_err() {
            let reason = "WINDOW_UPDATE puts the stream's window over 2^31-1";
            return Err(StreamError::local(id, ErrorCode::FLOW_CONTROL_ERROR, reason).into());
        }
        self.reschedule(key);
        Ok(())
    }

    /// Ends a stream from our side: RST_STREAM, when the peer knows the stream at all.
    pub(super) fn reset_with(&mut self, error: StreamError) {
        let waiting = self
            .streams
            .by_id(error.stream)
            .is_some_and(|(_, stream)| stream.state == State::Waiting);
        if !waiting {
            let frame = ResetStream {
                stream: error.stream,
                code: error.code,
            };
            frame.write(&mut self.control);
            self.stats.sent_frames.add(Kind::RST_STREAM);
        }
        self.close_with(error);
    }

    /// The response is whole, and the rest of the request is not wanted: it may end by itself, within bounds.
    pub(super) fn tolerate_rest(&mut self, key: Key) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.receive.patience = Some(self.config.early_response_bytes);
            let until = self.now + self.config.early_response_wait;
            self.early.push_back((until, key));
            self.reset_early_answered();
        }
    }

    /// More of such a request came.
    pub(super) fn drop_rest(&mut self, key: Key, bytes: u64) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if let Some(patience) = &mut stream.receive.patience {
            match patience.checked_sub(bytes) {
                Some(left) => *patience = left,
                None => self.reset_after_response(key.id()),
            }
        }
    }

    /// Streams whose requests took too long to end behind their responses.
    pub(super) fn reset_early_answered(&mut self) {
        while let Some(&(until, key)) = self.early.front() {
            let open = self
                .streams
                .get(key)
                .is_some_and(|stream| !stream.state.is_closed());
            if open && until > self.now {
                return;
            }
            self.early.pop_front();
            if open {
                self.reset_after_response(key.id());
            }
        }
    }

    fn reset_after_response(&mut self, id: StreamId) {
        let reason = "the response is whole and the rest of the request is not needed";
        self.reset_with(StreamError::local(id, ErrorCode::NO_ERROR, reason));
    }

    pub(super) fn closed_by_peer(&mut self, frame: ResetStream) {
        self.close_with(StreamError {
            stream: frame.stream,
            code: frame.code,
            by: Side::Peer,
            reason: "it gave no reason but the code",
        });
    }

    /// Closes a stream by a reset of either side, and lets go of what it held.
    pub(super) fn close_with(&mut self, error: StreamError) {
        let cause = Cause::Reset {
            by: error.by,
            code: error.code,
        };
        let Some((key, stream)) = self.streams.by_id(error.stream) else {
            self.closed.remember(error.stream, error.by);
            return;
        };
        if stream.state.is_closed() {
            return;
        }
        let waited = stream.state == State::Waiting;
        let round_trip = self.stats.round_trip.minimum();
        stream.settle_receiving(&self.receive_window, round_trip, self.now);
        stream
            .send
            .ledger
            .enter(Some(Stall::Idle), &self.sending, self.now);
        stream.state = State::Closed(cause);
        stream.send.queue.clear();
        stream.send.waiting = None;
        stream.send.trailers = None;
        let unread = match error.by {
            // What the peer sent before is still worth reading.
            Side::Peer if !stream.receive.discard => 0,
            _ => stream.receive.queue.clear() as u64,
        };
        if let Some(turn) = stream.send.scheduled.take() {
            self.schedule.remove(turn, stream.priority);
            if self.schedule.is_empty() {
                self.held_since = None;
            }
        }
        if let Some(since) = stream.send.held_since.take() {
            self.held.remove(&(since, key));
        }
        self.window_blocked -= usize::from(core::mem::take(&mut stream.send.window_blocked));
        self.credit_connection(unread);
        self.closed.remember(error.stream, error.by);
        if waited {
            self.work += self.waiting.remove(u64::from(key.id().value())) as u64;
        } else if self.role == Role::Client {
            self.active -= 1;
        }
        if let Some(stream) = self.streams.get(key) {
            if stream.released {
                self.streams.remove(key);
                self.rest();
            } else if error.by == Side::Peer
                && stream
                    .request_event
                    .is_some_and(|place| self.events.withdraw(place))
            {
                // The peer gave up what nobody has heard of, and nobody will.
                self.work = self.work.saturating_sub(WORK_OF_A_REQUEST);
                self.reset_held += 1;
                self.release(error.stream);
            } else {
                self.reset_held += 1;
                self.events.push(Event::Reset(error));
            }
        }
        self.open_waiting();
    }

    /// A half has ended: perhaps the stream is closed now, and perhaps it can be forgotten.
    pub(super) fn after_state_change(&mut self, key: Key) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        if !stream.state.is_closed() {
            return;
        }
        match stream.released {
            true => {
                self.streams.remove(key);
                self.rest();
            }
            false => self.finished += 1,
        }
        if self.role == Role::Client {
            self.active -= 1;
            self.open_waiting();
        }
    }

    /// Takes note of the time before a call that depends on it.
    pub fn advance_time(&mut self, now: Time) {
        self.see(now);
    }
}
