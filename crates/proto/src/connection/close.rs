//! The end of a stream: END_STREAM of both sides, a reset of either side, or a release by the owner.

use core::time::Duration;

use super::Connection;
use super::flow_control::FlowControl;
use super::ledgers::Ledgers;
use super::streams::{AfterEnd, Entry, Reset};
use crate::error::{ErrorCode, Side, StreamError, StreamErrorKind, UsageError};
use crate::event::{Event, Events};
use crate::id::{Key, StreamId};
use crate::role::Role;
use crate::stream::{Discards, Phase, Stream, StreamState};
use crate::time::Time;

/// What follows when the owner discards or releases an unclosed stream.
enum AfterDiscard {
    /// Nothing: the stream ends later.
    Nothing,
    /// The rest of the request is discarded for a limited time.
    Tolerate,
    /// The stream is reset.
    Reset(ErrorCode),
}

impl Connection {
    /// Discards what the stream has received and what still arrives, and returns its credit (law 3). A client resets
    /// the stream with CANCEL unless the response is complete. A server resets it with NO_ERROR if the response is
    /// complete and the request does not end soon (RFC 9113 section 8.1).
    pub fn discard(&mut self, id: StreamId) {
        self.store_fresh(id);
        let Some(mut stream) = self.streams.by_id(id) else {
            return self.drop_unread(id);
        };
        self.flow.consume(stream.discard(Discards::All));
        let then = after_discard(&stream, self.role);
        if let AfterDiscard::Tolerate = then {
            stream.tolerate_rest(&self.config, self.now);
        }
        self.follow_discard(id, then);
    }

    /// Discards what the stream has received and what still arrives, and returns its credit (law 3). The stream is not
    /// reset: this endpoint goes on sending until [`Self::release`].
    pub fn discard_received(&mut self, id: StreamId) {
        self.store_fresh(id);
        let Some(mut stream) = self.streams.by_id(id) else {
            return self.drop_unread(id);
        };
        self.flow.consume(stream.discard(Discards::ForOwner));
    }

    /// Drops what a stream had received before the connection failed.
    fn drop_unread(&mut self, id: StreamId) {
        let bytes = self.unread.drop_stream(id);
        self.flow.return_unread(bytes);
    }

    /// Releases a stream: it is removed as soon as it is closed. A complete message that is queued is still sent. If
    /// the message is incomplete, the stream is reset: by a client with CANCEL, by a server with INTERNAL_ERROR.
    pub fn release(&mut self, id: StreamId) {
        self.release_with(
            id,
            match self.role {
                Role::Client => ErrorCode::CANCEL,
                Role::Server => ErrorCode::INTERNAL_ERROR,
            },
        );
    }

    /// As [`Self::release`], with another code if the message is incomplete.
    pub fn release_with(&mut self, id: StreamId, code: ErrorCode) {
        self.store_fresh(id);
        let Some(mut stream) = self.streams.by_id(id) else {
            return self.drop_unread(id);
        };
        // From now on there are no events of the stream, and it is removed when it is closed.
        stream.released = true;
        self.flow.consume(stream.discard(Discards::All));
        if let StreamState::Closed(cause) = stream.state {
            let key = stream.key();
            self.streams.forget(key, cause);
            return self.return_unused_leases();
        }
        let mut then = after_discard(&stream, self.role);
        match then {
            AfterDiscard::Tolerate => stream.tolerate_rest(&self.config, self.now),
            AfterDiscard::Reset(_) => then = AfterDiscard::Reset(code),
            AfterDiscard::Nothing if stream.send.phase != Phase::Done => then = AfterDiscard::Reset(code),
            AfterDiscard::Nothing => {}
        }
        self.follow_discard(id, then);
    }

    fn follow_discard(&mut self, id: StreamId, then: AfterDiscard) {
        match then {
            AfterDiscard::Nothing => {}
            AfterDiscard::Tolerate => self.reset_early_answered(),
            AfterDiscard::Reset(code) => self.cancel(id, code),
        }
    }

    /// Ends a stream at once with RST_STREAM.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`] when it has ended already.
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) -> Result<(), UsageError> {
        self.store_fresh(id);
        match self.streams.view(id) {
            Some(stream) if !stream.state.is_closed() => {
                self.cancel(id, code);
                Ok(())
            }
            _ => Err(UsageError::UnknownStream),
        }
    }

    /// Resets a stream for its owner. A peer that is not at its end may have sent a response and trailers by now.
    fn cancel(&mut self, id: StreamId, code: ErrorCode) {
        if self
            .streams
            .view(id)
            .is_some_and(|stream| stream.state.can_receive())
        {
            self.guards.earn_by_cancel();
        }
        self.reset_with(StreamError::local(id, code, StreamErrorKind::Canceled));
    }

    /// Resets a stream. RST_STREAM is sent if the peer knows the stream.
    pub(super) fn reset_with(&mut self, error: StreamError) {
        self.store_fresh(error.stream);
        let key = self.streams.find(error.stream);
        let stream = key.and_then(|key| self.streams.get(key));
        if !stream.is_some_and(|stream| stream.is_waiting()) {
            self.writer.reset(error.stream, error.code);
        }
        self.close_found(key, error);
    }

    /// Closes a stream by a reset of either side, and frees what it held.
    pub(super) fn close_with(&mut self, error: StreamError) {
        self.store_fresh(error.stream);
        let key = self.streams.find(error.stream);
        self.close_found(key, error);
    }

    /// Closes the stream of `error` if it is stored at `key`, or remembers the reset of one that is not stored.
    fn close_found(&mut self, key: Option<Key>, error: StreamError) {
        match key {
            Some(key) => {
                self.close_if(key, error, |_| true);
            }
            None => self.streams.remember_reset(error.stream, error.by),
        }
    }

    /// As [`Self::close_with`], if the stream is stored and `wanted` accepts it. Returns whether that is so.
    pub(super) fn close_if(
        &mut self,
        key: Key,
        error: StreamError,
        wanted: impl FnOnce(&Stream) -> bool,
    ) -> bool {
        let closed = self.close_alone(key, error, wanted);
        if closed {
            self.open_waiting();
        }
        closed
    }

    /// As [`Self::close_if`], but opens no request that waits for the place.
    pub(super) fn close_alone(
        &mut self,
        key: Key,
        error: StreamError,
        wanted: impl FnOnce(&Stream) -> bool,
    ) -> bool {
        let Some(mut stream) = self.streams.get(key).filter(|stream| wanted(stream)) else {
            return false;
        };
        let closed = close(
            &mut stream,
            &error,
            &mut self.flow,
            &self.ledgers,
            &mut self.events,
            self.pings.minimum(),
            self.now,
        );
        if let Some(reset) = closed {
            self.after_reset(reset, error);
        }
        true
    }

    fn after_reset(&mut self, reset: Reset, error: StreamError) {
        match self.streams.finish_reset(reset, &error) {
            true => self.return_unused_leases(),
            false => {
                self.events.push(Event::Reset(error));
            }
        }
    }

    /// Completes the end of one half of a stream.
    #[inline]
    pub(super) fn follow_up(&mut self, after: AfterEnd) {
        match after {
            AfterEnd::Nothing => {}
            AfterEnd::Tolerated => self.reset_early_answered(),
            AfterEnd::Closed { key, released } => self.after_finish(key, released),
        }
    }

    fn after_finish(&mut self, key: Key, released: bool) {
        self.streams.finish(key, released);
        if released {
            self.return_unused_leases();
        }
        if self.role == Role::Client {
            self.open_waiting();
        }
    }

    /// Resets streams whose requests did not end in time after their responses.
    pub(super) fn reset_early_answered(&mut self) {
        while let Some(id) = self.streams.pop_early(self.now) {
            self.reset_after_response(id);
        }
    }

    pub(super) fn reset_after_response(&mut self, id: StreamId) {
        let kind = StreamErrorKind::EarlyResponse;
        self.reset_with(StreamError::local(id, ErrorCode::NO_ERROR, kind));
    }
}

fn after_discard(stream: &Stream, role: Role) -> AfterDiscard {
    if !stream.state.can_receive() && !stream.is_waiting() {
        return AfterDiscard::Nothing;
    }
    match role {
        Role::Client => AfterDiscard::Reset(ErrorCode::CANCEL),
        Role::Server if stream.send.ended => AfterDiscard::Tolerate,
        Role::Server => AfterDiscard::Nothing,
    }
}

fn close(
    stream: &mut Entry<'_>,
    error: &StreamError,
    flow: &mut FlowControl,
    ledgers: &Ledgers,
    events: &mut Events,
    round_trip: Option<Duration>,
    now: Time,
) -> Option<Reset> {
    if stream.state.is_closed() {
        return None;
    }
    let waited = stream.is_waiting();
    stream.settle_receiving(flow.window(), round_trip, now);
    ledgers.note_stream_closed(stream, now);
    let (unread, nothing_to_send) = stream.close(error);
    if nothing_to_send {
        flow.release_hold();
    }
    flow.consume(unread);
    if stream.released {
        return Some(stream.after_close(waited, false));
    }
    // The peer reset a request whose event the owner has not taken: the event is withdrawn.
    let event = stream.request_event.filter(|_| error.by == Side::Peer);
    let withdrawn = event.is_some_and(|id| events.withdraw(id));
    if withdrawn {
        flow.consume(stream.discard(Discards::All));
    }
    Some(stream.after_close(waited, withdrawn))
}
