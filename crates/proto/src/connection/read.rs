//! Reading, and the return of credit to the peer.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Connection;
use crate::error::UsageError;
use crate::event::ReadState;
use crate::flow::WindowSize;
use crate::id::StreamId;
use crate::stream::{Phase, StreamState};

impl Connection {
    /// Takes everything that a stream has received, by reference. The bytes count against the windows until
    /// [`Self::release_credit`]. What was received before the connection failed can be read once, up to
    /// [`ReadState::End`], or [`ReadState::Reset`] if the message is incomplete.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`].
    pub fn read(&mut self, stream: StreamId, into: &mut VecDeque<Bytes>) -> Result<ReadState, UsageError> {
        self.store_fresh(stream);
        let Some(mut stream) = self.streams.by_id(stream) else {
            return self.read_after_failure(stream, into);
        };
        let state = stream.state;
        let half = &mut stream.receive;
        half.announced = false;
        self.flow.note_read(half.queue.drain_into(into) as u64);
        Ok(match (half.phase, state) {
            (Phase::Done, _) => match half.trailers.take() {
                Some(trailers) => ReadState::Trailers(*trailers),
                None => ReadState::End,
            },
            (_, StreamState::Closed(_)) => ReadState::Reset,
            _ => ReadState::Open,
        })
    }

    /// Takes what a stream had received before the connection failed.
    #[cold]
    fn read_after_failure(
        &mut self,
        stream: StreamId,
        into: &mut VecDeque<Bytes>,
    ) -> Result<ReadState, UsageError> {
        let (state, bytes) = self.unread.read(stream, into).ok_or(UsageError::UnknownStream)?;
        self.flow.return_unread(bytes);
        Ok(state)
    }

    /// Returns the credit of `bytes` that were read from `stream`, for the stream and for the connection. If the
    /// stream was removed, only the connection's counts.
    pub fn release_credit(&mut self, stream: StreamId, bytes: u64) {
        self.release_stream_credit(stream, bytes);
        self.release_connection_credit(bytes);
    }

    /// Returns the credit of `bytes` for the stream alone. [`Self::release_connection_credit`] returns the
    /// connection's.
    pub fn release_stream_credit(&mut self, stream: StreamId, bytes: u64) {
        self.store_fresh(stream);
        if let Some(mut stream) = self.streams.by_id(stream) {
            if stream.receive.phase == Phase::Done {
                // The peer has sent everything: until now the message waited for the owner.
                stream.settle_receiving(self.flow.window(), self.pings.minimum(), self.now);
            }
            stream.receive.window.consume(bytes);
            stream.list_refill();
        }
    }

    /// Returns the credit of `bytes` of any streams for the connection alone, at most as many as were read.
    pub fn release_connection_credit(&mut self, bytes: u64) {
        self.update_ledger_after_read();
        self.flow.release(bytes);
        self.balance();
        self.return_unused_leases();
    }

    /// The number of bytes to release before a WINDOW_UPDATE for the connection is due.
    pub fn connection_release_until_due(&self) -> u64 {
        self.flow.until_refill_due()
    }

    /// The number of bytes to release before a WINDOW_UPDATE for the stream is due. None if the stream needs no more.
    pub fn stream_release_until_due(&self, stream: StreamId) -> Option<u64> {
        let half = &self.streams.view(stream)?.receive;
        (half.phase != Phase::Done).then(|| half.window.until_due())
    }

    /// Raises the receive window of the connection, at once and permanently. Does nothing if `size` is the current
    /// size.
    ///
    /// # Errors
    /// [`UsageError::WindowShrinks`] if `size` is smaller than the window, [`UsageError::BudgetExhausted`] if the
    /// budget has no room for it.
    pub fn grow_receive_window(&mut self, size: WindowSize) -> Result<(), UsageError> {
        let before = self.flow.window().size();
        if size < before {
            return Err(UsageError::WindowShrinks);
        }
        if size > before && !self.shutdown.has_failed() {
            if !self.flow.grow(size) {
                return Err(UsageError::BudgetExhausted);
            }
            self.refill_connection();
        }
        Ok(())
    }

    /// Lowers the receive window of the connection: credit is withheld until the window has the new size (RFC 9113
    /// section 6.9 has no way to take credit back). The size may be below 65,535 bytes. Streams whose windows are
    /// larger can use up all of it. Does nothing if `size` is not smaller than the window.
    ///
    /// An adaptive window ([`crate::Config::adaptive`]) may grow again.
    pub fn shrink_receive_window(&mut self, size: WindowSize) {
        let size = WindowSize::new(size.bytes().max(1)).unwrap_or(size);
        if size < self.flow.window().size() && !self.shutdown.has_failed() {
            self.flow.shrink(size);
        }
    }

    /// Raises the receive window of one stream, at once and permanently.
    ///
    /// # Errors
    /// [`UsageError::UnknownStream`], or [`UsageError::WindowShrinks`] if `size` is smaller than the window.
    pub fn grow_stream_receive_window(
        &mut self,
        stream: StreamId,
        size: WindowSize,
    ) -> Result<(), UsageError> {
        self.store_fresh(stream);
        let mut stream = self.streams.by_id(stream).ok_or(UsageError::UnknownStream)?;
        let before = stream.receive.window.size();
        if size < before {
            return Err(UsageError::WindowShrinks);
        }
        if size > before {
            stream.resize_window(size);
            stream.refill(&mut self.writer, self.now, self.pings.minimum());
        }
        Ok(())
    }

    /// Writes a WINDOW_UPDATE of the connection for all credit that is available.
    pub(super) fn refill_connection(&mut self) {
        if !self.shutdown.has_failed() {
            self.flow.refill(&mut self.writer, self.now, self.pings.minimum());
        }
    }
}
