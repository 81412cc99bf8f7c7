//! The end of a connection: GOAWAY in two steps, the end of the transport, and failure (RFC 9113 sections 5.4.1 and
//! 6.8).

use super::Connection;
use super::ping::Pings;
use crate::error::{ConnectionError, ErrorCode, StreamError, StreamErrorKind};
use crate::role::Role;
use crate::time::Time;

impl Connection {
    /// Starts a graceful shutdown. A server sends GOAWAY with 2^31-1 and a PING. One round trip later, or after
    /// [`crate::Config::shutdown_grace`], it sends a GOAWAY with the last stream that it processes. A client opens no
    /// more streams. Open streams continue; [`Connection::is_drained`] tells when all are complete.
    pub fn shutdown(&mut self, now: Time) {
        self.advance_time(now);
        if self.shutdown.has_begun() || self.shutdown.has_failed() {
            return;
        }
        match self.role {
            Role::Client => self.finalize_shutdown(),
            Role::Server => {
                self.writer.go_away(i32::MAX as u32, ErrorCode::NO_ERROR, b"");
                Pings::announce_shutdown(&mut self.writer);
                self.shutdown.announce(self.now + self.config.shutdown_grace);
            }
        }
    }

    /// The peer has closed its half of the transport, and may still read. A server answers the complete requests;
    /// [`Connection::is_drained`] tells when all are answered. Incomplete messages end with an error. Returns whether
    /// there were any.
    pub fn end_of_transport(&mut self, now: Time) -> bool {
        self.advance_time(now);
        if self.shutdown.has_failed() || self.shutdown.is_half_closed() {
            return false;
        }
        self.shutdown.half_close(self.now);
        // Complete requests are not cut short.
        let mut cut_short = false;
        for key in self.streams.keys() {
            let kind = StreamErrorKind::TransportEnded;
            let error = StreamError::peer(key.id(), ErrorCode::CANCEL, kind);
            cut_short |= self.close_if(key, error, |stream| stream.state.can_receive());
        }
        if !self.shutdown.is_final() {
            self.finalize_shutdown();
        }
        self.schedule_half_close_check();
        cut_short
    }

    /// Ends the connection at once with `code`, for a reason of the owner. GOAWAY carries the reason as debug data.
    pub fn abort(&mut self, code: ErrorCode, reason: &'static str, now: Time) {
        self.advance_time(now);
        self.fail(ConnectionError::aborted(code, reason));
    }

    /// Frees the memory of up to `count` streams; whether none is left. The connection is over: from the first call on it
    /// has no streams.
    ///
    /// To drop a connection frees all streams at once, which takes milliseconds if there are 10,000 of them. An owner that
    /// shares its thread with other connections frees some in each of its turns before it drops the connection.
    pub fn free_streams(&mut self, count: usize) -> bool {
        self.streams.clear();
        self.streams.free(count)
    }

    /// The peer has received the first GOAWAY.
    pub(super) fn shutdown_reached_peer(&mut self) {
        if self.shutdown.is_announced() {
            self.finalize_shutdown();
        }
    }

    /// The time for the first GOAWAY to reach the peer is over.
    pub(super) fn shutdown_timeout(&mut self) {
        if self.shutdown.deadline().is_some_and(|until| until <= self.now) {
            self.finalize_shutdown();
        }
    }

    fn finalize_shutdown(&mut self) {
        let last_stream = self.streams.highest_processed();
        self.writer.go_away(last_stream, ErrorCode::NO_ERROR, b"");
        self.shutdown.finish(last_stream);
    }

    /// The connection fails: GOAWAY tells the peer why, and everything is dropped but what the owner has not read.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.shutdown.has_failed() {
            return;
        }
        let last_stream = self.shutdown.last_stream(self.streams.highest_processed());
        let debug = match error.reason_of_owner() {
            "" => (self.config.debug_data)(&error),
            reason => reason,
        };
        self.writer.go_away(last_stream, error.code, debug.as_bytes());
        let mut unread = 0;
        for stream in self.streams.iter_mut().filter(|stream| !stream.released) {
            unread += self.unread.keep(stream.id, &mut stream.receive);
        }
        // No stream can be looked up any more, so nothing can follow the GOAWAY.
        self.streams.clear();
        self.reader.drop_block();
        self.flow.return_leases(unread);
        self.shutdown.fail(error);
    }
}
