//! How the connection ends: GOAWAY in two steps, the end of the transport, and failure (RFC 9113 sections 5.4.1 and 6.8).

use super::Connection;
use super::ping::Pings;
use crate::error::{ConnectionError, ErrorCode, StreamError, StreamErrorKind};
use crate::role::Role;
use crate::time::Time;

impl Connection {
    /// Begins a graceful end. A server first lets the peer know (GOAWAY with 2^31-1 and a PING), and a round trip later,
    /// or after [`crate::Config::shutdown_grace`], names the last stream that it will see to; a client opens no more
    /// streams. What is under way goes on; [`Connection::is_drained`] says when it is over.
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

    /// The peer has ended its half of the transport in good order, and may still read. Of a server the requests that are
    /// whole are seen to, and [`Connection::is_drained`] says when all has been answered; those that are not whole end
    /// with an error. Whether there were any.
    pub fn end_of_transport(&mut self, now: Time) -> bool {
        self.advance_time(now);
        if self.shutdown.has_failed() || self.shutdown.is_half_closed() {
            return false;
        }
        self.shutdown.half_close();
        let mut cut_short = false;
        for key in self.streams.keys() {
            let kind = StreamErrorKind::TransportEnded;
            let error = StreamError::peer(key.id(), ErrorCode::CANCEL, kind);
            cut_short |= self.close_if(key, error, |stream| stream.state.can_receive());
        }
        if !self.shutdown.is_final() {
            self.finalize_shutdown();
        }
        self.shutdown.restart(self.now);
        self.schedule_half_close_check();
        cut_short
    }

    /// Ends the connection at once with `code`, for a reason of the owner's.
    pub fn abort(&mut self, code: ErrorCode, reason: &'static str, now: Time) {
        self.advance_time(now);
        self.fail(ConnectionError::aborted(code, reason));
    }

    /// The peer knows of the graceful shutdown.
    pub(super) fn shutdown_reached_peer(&mut self) {
        if self.shutdown.is_announced() {
            self.finalize_shutdown();
        }
    }

    /// The peer has had its time to learn of the graceful shutdown.
    pub(super) fn shutdown_timeout(&mut self) {
        if self.shutdown.deadline().is_some_and(|until| until <= self.now) {
            self.finalize_shutdown();
        }
    }

    fn finalize_shutdown(&mut self) {
        let last_stream = self.streams.highest_peer_stream();
        self.writer.go_away(last_stream, ErrorCode::NO_ERROR, b"");
        self.shutdown.finish(last_stream, self.now);
        self.schedule_drain_check();
    }

    /// The end by an error: GOAWAY tells the peer why, and everything that was held is dropped.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.shutdown.has_failed() {
            return;
        }
        let last_stream = self.shutdown.last_stream(self.streams.highest_peer_stream());
        self.writer
            .go_away(last_stream, error.code, error.reason().as_bytes());
        // No call on a stream finds it any more, so that nothing can follow the GOAWAY.
        self.streams.clear();
        self.reader.drop_block();
        self.flow.return_leases();
        self.shutdown.fail(error);
    }
}
