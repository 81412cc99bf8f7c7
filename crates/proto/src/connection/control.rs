//! Received frames that carry no message: SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, GOAWAY and PRIORITY_UPDATE.

use bytes::Bytes;

use super::Connection;
use super::ping::Answer;
use super::settings::WindowChange;
use super::shutdown::GoAwayEffect;
use crate::error::{ConnectionError, ErrorCode, Fault, StreamError, StreamErrorKind};
use crate::event::Event;
use crate::frame::{GoAway, Ping, PriorityUpdate, ResetStream, Settings, WindowUpdate};
use crate::id::StreamId;
use crate::invariant::infallible;
use crate::priority::Priority;
use crate::role::Role;

/// The most bytes of GOAWAY debug data that an event carries.
const DEBUG_DATA: usize = 256;

/// How many owners learn at once that the window of the connection has opened.
const WAITS_AT_ONCE: usize = 64;

impl Connection {
    /// SETTINGS (RFC 9113 section 6.5).
    pub(super) fn on_settings(&mut self, settings: Settings<'_>) -> Result<(), ConnectionError> {
        let entries = match settings {
            Settings::Ack => return self.on_settings_ack(),
            Settings::Values(entries) => entries,
        };
        self.guards.settings(entries.len(), self.now)?;
        // Their windows begin as the settings were when they were opened.
        self.store_all_fresh();
        let change = self.settings.apply(entries, self.role, &mut self.writer)?;
        if let Some(change) = change {
            self.change_initial_window(change)?;
        }
        self.settings.receive();
        self.writer.settings_ack();
        self.events.push(Event::PeerSettings);
        self.open_waiting();
        Ok(())
    }

    fn on_settings_ack(&mut self) -> Result<(), ConnectionError> {
        self.settings.acknowledge()?;
        self.schedule_checks();
        self.reader.allow_table(self.config.header_table_size);
        self.pings
            .settings_acknowledged(self.role, self.settings.sent(), self.now);
        Ok(())
    }

    /// Changes the send window of every stream (section 6.9.2).
    fn change_initial_window(&mut self, change: WindowChange) -> Result<(), ConnectionError> {
        self.charge_walk()?;
        for index in 0..self.streams.len() {
            let found = self.streams.at(index);
            let Some(mut stream) = infallible(found, "no stream is removed in this loop") else {
                break;
            };
            if stream.state.is_closed() {
                continue;
            }
            let credit = &mut stream.send.credit;
            if !credit.has_room_for(change.rise) || credit.adjust(change.delta).is_err() {
                let error = "SETTINGS_INITIAL_WINDOW_SIZE raises the window of a stream above 2^31-1";
                return Err(ConnectionError::violation(ErrorCode::FLOW_CONTROL_ERROR, error).on(stream.id));
            }
            if change.delta > 0 {
                stream.announce_credit(&mut self.events);
            }
            // A stream without data waits for no window.
            if !stream.send.queue.is_empty() {
                stream.reschedule(&self.ledgers, self.now);
            }
        }
        Ok(())
    }

    /// Counts a visit of all streams for one frame, and charges the peer for it.
    fn charge_walk(&mut self) -> Result<(), ConnectionError> {
        self.streams.note_walk();
        self.guards.walk(self.streams.len(), self.now)
    }

    /// PING (section 6.7).
    pub(super) fn on_ping(&mut self, ping: Ping) -> Result<(), ConnectionError> {
        if !ping.ack {
            self.guards.ping(self.now)?;
            self.writer.ping_ack(ping);
            return Ok(());
        }
        let has_begun = self.shutdown.has_begun();
        match self.pings.answer(ping.opaque, has_begun, self.now) {
            Answer::Known => Ok(()),
            Answer::Drained => {
                self.upload_was_on_its_way();
                Ok(())
            }
            Answer::Owner => {
                self.events.push(Event::Pong(ping.opaque));
                Ok(())
            }
            Answer::Shutdown => {
                self.shutdown_reached_peer();
                Ok(())
            }
            Answer::Unexpected => self.guards.unexpected_ping_ack(self.now),
        }
    }

    /// WINDOW_UPDATE (section 6.9).
    pub(super) fn on_window_update(&mut self, update: WindowUpdate) -> Result<(), Fault> {
        self.guards.window_update(self.now)?;
        let Some(id) = update.stream else {
            self.flow.grant(update.increment).map_err(|_| {
                let error = "WINDOW_UPDATE raises the window of the connection above 2^31-1";
                ConnectionError::violation(ErrorCode::FLOW_CONTROL_ERROR, error)
            })?;
            self.announce_credit();
            return Ok(());
        };
        if self.streams.is_unopened(id) {
            return Err(update_on_idle(id).into());
        }
        self.store_fresh(id);
        // On a closed stream it is late and harmless (section 5.1).
        let Some(mut stream) = self.streams.by_id(id) else {
            return Ok(());
        };
        if stream.is_waiting() {
            return Err(update_on_idle(id).into());
        }
        if stream.state.is_closed() {
            return Ok(());
        }
        if stream.grant(update.increment).is_err() {
            let detail = "WINDOW_UPDATE raises the window of the stream above 2^31-1";
            return Err(StreamError::violation(id, ErrorCode::FLOW_CONTROL_ERROR, detail).into());
        }
        stream.announce_credit(&mut self.events);
        stream.reschedule(&self.ledgers, self.now);
        Ok(())
    }

    /// Tells some of the owners that wait for the window of the connection that it has opened, those first that have waited
    /// longest. The next write tells others of what these leave: a window of one byte wakes no thousand tasks.
    pub(super) fn announce_credit(&mut self) {
        for _ in 0..WAITS_AT_ONCE {
            if !self.owes_credit() {
                break;
            }
            let Some(mut stream) = self.streams.first_credit_wait() else {
                break;
            };
            stream.announce_credit(&mut self.events);
        }
    }

    /// Whether owners wait for the window of the connection although it is open.
    pub(super) fn owes_credit(&self) -> bool {
        self.streams.has_credit_waits() && self.flow.credit().usable() > 0
    }

    /// RST_STREAM (section 6.4).
    pub(super) fn on_reset(&mut self, reset: ResetStream) -> Result<(), ConnectionError> {
        if self.streams.is_idle(reset.stream) {
            return Err(ConnectionError::protocol("RST_STREAM on an idle stream").on(reset.stream));
        }
        self.guards.peer_reset(self.now)?;
        let kind = StreamErrorKind::ResetByPeer;
        self.close_with(StreamError::peer(reset.stream, reset.code, kind));
        Ok(())
    }

    /// GOAWAY (section 6.8). Requests that the peer did not process end with REFUSED_STREAM: they may be repeated.
    pub(super) fn on_go_away(&mut self, frame: GoAway<'_>) -> Result<(), ConnectionError> {
        self.guards.go_away(self.now)?;
        let effect = self.shutdown.receive_go_away(frame.last_stream)?;
        self.events.push(Event::GoAway {
            last_stream: frame.last_stream,
            code: frame.code,
            debug: Bytes::copy_from_slice(&frame.debug[..frame.debug.len().min(DEBUG_DATA)]),
        });
        if self.role == Role::Server || effect == GoAwayEffect::None {
            return Ok(());
        }
        self.charge_walk()?;
        for key in self.streams.keys() {
            let is_beyond = key.id().value() > frame.last_stream;
            let kind = StreamErrorKind::NotProcessed;
            let error = StreamError::peer(key.id(), ErrorCode::REFUSED_STREAM, kind);
            self.close_if(key, error, |stream| is_beyond || stream.is_waiting());
        }
        Ok(())
    }

    /// PRIORITY_UPDATE (RFC 9218 section 7.1).
    pub(super) fn on_priority_update(&mut self, update: PriorityUpdate<'_>) -> Result<(), Fault> {
        self.guards.priority(self.now)?;
        if self.role == Role::Client {
            return Err(ConnectionError::protocol("PRIORITY_UPDATE from a server").into());
        }
        let id = update.prioritized;
        if !id.is_client_initiated() {
            let error = "PRIORITY_UPDATE for a stream that a client cannot open";
            return Err(ConnectionError::protocol(error).on(id).into());
        }
        self.store_fresh(id);
        // An update that precedes its stream is dropped, as section 7 allows, because keeping it would cost memory.
        if let Some(mut stream) = self.streams.by_id(id) {
            stream.set_priority(Priority::parse(update.value));
        }
        Ok(())
    }
}

fn update_on_idle(id: StreamId) -> ConnectionError {
    ConnectionError::protocol("WINDOW_UPDATE on an idle stream").on(id)
}
