//! The end of a connection: GOAWAY in two steps, GOAWAY of the peer, and failure (RFC 9113 sections 5.4.1 and 6.8).

use bytes::Bytes;

use super::Connection;
use super::settings::SHUTDOWN_PING;
use crate::error::{ConnectionError, ErrorCode, NOT_PROCESSED, Side, StreamError, TRANSPORT_ENDED};
use crate::event::Event;
use crate::frame::{GoAway, Kind, Ping};
use crate::id::StreamId;
use crate::role::Role;
use crate::stream::State;
use crate::time::Time;

/// How much of the debug data of a GOAWAY the owner is told, in octets.
const DEBUG_DATA: usize = 256;

/// How far our own end of the connection has come.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    stage: Stage,
    /// Whether the peer has sent GOAWAY, and the last stream that it named.
    pub(super) peer_goes: bool,
    peer_last_stream: Option<u32>,
    /// Since when the last stream is named, or the peer has ended its half of the transport.
    final_since: Option<Time>,
    half_closed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// The peer has been told that the end is near, but streams that it opened before it knew are welcome.
    Announced { until: Time },
    /// The peer knows the last stream.
    Final { last_stream: u32 },
}

impl Shutdown {
    /// Whether a new stream of the peer comes too late.
    pub(super) fn refuses(&self, id: StreamId) -> bool {
        matches!(self.stage, Stage::Final { last_stream } if id.value() > last_stream)
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.stage, Stage::Final { .. })
    }

    pub(super) fn takes_new_streams(&self) -> bool {
        self.stage == Stage::None && !self.peer_goes
    }

    /// Whether the transport brings nothing more.
    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Announced { until } => Some(until),
            _ => None,
        }
    }
}

impl Connection {
    /// Begins a graceful end. A server first lets the peer know (GOAWAY with 2^31-1 and a PING), and a round trip later,
    /// or after [`crate::Config::shutdown_grace`], names the last stream that it will see to; a client opens no more
    /// streams. What is under way goes on; [`Connection::is_drained`] says when it is over.
    pub fn shutdown(&mut self, now: Time) {
        self.see(now);
        if self.shutdown.stage != Stage::None || self.failed.is_some() {
            return;
        }
        match self.role {
            Role::Client => self.finalize_shutdown(),
            Role::Server => {
                self.write_go_away(i32::MAX as u32, ErrorCode::NO_ERROR, b"");
                let ping = Ping {
                    ack: false,
                    opaque: SHUTDOWN_PING,
                };
                ping.write(&mut self.control);
                self.stats.sent_frames.add(Kind::PING);
                self.shutdown.stage = Stage::Announced {
                    until: self.now + self.config.shutdown_grace,
                };
            }
        }
    }

    /// The peer has ended its half of the transport in good order, and may still read. Of a server the requests that are
    /// whole are seen to, and [`Connection::is_drained`] says when all has been answered; those that are not whole end
    /// with an error. Whether there were any.
    pub fn end_of_transport(&mut self, now: Time) -> bool {
        self.see(now);
        if self.failed.is_some() || self.shutdown.is_half_closed() {
            return false;
        }
        self.shutdown.half_closed = true;
        let mut cut_short = false;
        for key in self.streams.keys() {
            if self
                .streams
                .get(key)
                .is_some_and(|stream| stream.state.can_receive())
            {
                cut_short = true;
                self.close_with(StreamError {
                    stream: key.id(),
                    code: ErrorCode::CANCEL,
                    by: Side::Peer,
                    reason: TRANSPORT_ENDED,
                });
            }
        }
        if !self.shutdown.is_final() {
            self.finalize_shutdown();
        }
        self.shutdown.final_since = Some(self.now);
        self.watch_half_closed();
        cut_short
    }

    /// Whether [`Connection::shutdown`] was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.stage != Stage::None
    }

    /// Whether `open` may succeed: neither side has said GOAWAY, nothing failed, identifiers are left.
    pub fn takes_new_streams(&self) -> bool {
        self.shutdown.takes_new_streams() && self.failed.is_none() && self.next_stream.is_some()
    }

    pub(super) fn shutdown_reached_peer(&mut self) {
        if matches!(self.shutdown.stage, Stage::Announced { .. }) {
            self.finalize_shutdown();
        }
    }

    pub(super) fn shutdown_timeout(&mut self) {
        if self.shutdown.deadline().is_some_and(|until| until <= self.now) {
            self.finalize_shutdown();
        }
    }

    fn finalize_shutdown(&mut self) {
        let last_stream = self.highest_peer_stream;
        self.shutdown.stage = Stage::Final { last_stream };
        self.write_go_away(last_stream, ErrorCode::NO_ERROR, b"");
        self.shutdown.final_since = Some(self.now);
        self.watch_drain();
    }

    /// Until when streams under way may take.
    pub(super) fn drain_deadline(&self) -> Option<Time> {
        Some(self.shutdown.final_since? + self.config.drain_timeout?)
    }

    /// Until when the responses to a client may take that has ended its half of the transport.
    pub(super) fn half_close_deadline(&self) -> Option<Time> {
        let since = self.shutdown.final_since.filter(|_| self.shutdown.half_closed)?;
        Some(since + self.config.half_close_timeout)
    }

    fn write_go_away(&mut self, last_stream: u32, code: ErrorCode, debug: &[u8]) {
        let frame = GoAway {
            last_stream,
            code,
            debug,
        };
        frame.write(&mut self.control);
        self.stats.sent_frames.add(Kind::GOAWAY);
    }

    /// The peer ends the connection. Requests that it will not see to end with REFUSED_STREAM: they may be repeated.
    pub(super) fn on_go_away(&mut self, frame: GoAway<'_>) -> Result<(), ConnectionError> {
        let reason = "too many SETTINGS and GOAWAY";
        self.guards.settings.charge(self.now, reason)?;
        if self
            .shutdown
            .peer_last_stream
            .is_some_and(|last| frame.last_stream > last)
        {
            // RFC 9113 section 6.8: requests may have been sent again elsewhere.
            return Err(ConnectionError::protocol(
                "a GOAWAY with a higher last stream than one before",
            ));
        }
        let before = self.shutdown.peer_last_stream.replace(frame.last_stream);
        self.shutdown.peer_goes = true;
        self.events.push(Event::GoAway {
            last_stream: frame.last_stream,
            code: frame.code,
            debug: Bytes::copy_from_slice(&frame.debug[..frame.debug.len().min(DEBUG_DATA)]),
        });
        // No stream has been opened since the one before, which has ended those that this one ends.
        if self.role == Role::Server || before == Some(frame.last_stream) {
            return Ok(());
        }
        self.charge_walk()?;
        for key in self.streams.keys() {
            let waiting = self
                .streams
                .get(key)
                .is_some_and(|stream| stream.state == State::Waiting);
            if waiting || key.id().value() > frame.last_stream {
                self.close_with(StreamError {
                    stream: key.id(),
                    code: ErrorCode::REFUSED_STREAM,
                    by: Side::Peer,
                    reason: NOT_PROCESSED,
                });
            }
        }
        Ok(())
    }

    /// The end by an error: everything held is let go of, and GOAWAY tells the peer why.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_some() {
            return;
        }
        // The last stream of a GOAWAY never grows (section 6.8).
        let last_stream = match self.shutdown.stage {
            Stage::Final { last_stream } => last_stream,
            _ => self.highest_peer_stream,
        };
        self.write_go_away(last_stream, error.code, error.reason.as_bytes());
        self.abandon(error);
    }

    /// Ends the connection at once with `code`, for a reason of the owner's.
    pub fn abort(&mut self, code: ErrorCode, reason: &'static str, now: Time) {
        self.see(now);
        self.fail(ConnectionError {
            code,
            blame: Side::Local,
            stream: None,
            reason,
        });
    }

    fn abandon(&mut self, error: ConnectionError) {
        // No call on a stream finds it any more, so that nothing can follow the GOAWAY.
        self.streams.clear();
        self.block = None;
        self.schedule.clear();
        self.held.clear();
        self.held_since = None;
        self.early.clear();
        self.return_all_leases();
        self.waiting.clear();
        self.refills.clear();
        self.refills_due = 0;
        self.window_blocked = 0;
        self.finished = 0;
        self.reset_held = 0;
        self.failed = Some(error);
    }
}
