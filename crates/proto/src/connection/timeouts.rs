//! Time limits: the SETTINGS acknowledgement, header blocks, responses, bodies, sending, idle connections, keep-alive
//! and shutdown.
//!
//! A check compares counters with their values at the previous check, so a limit may act up to a quarter of its time
//! late.

use core::time::Duration;

use super::Connection;
use super::deadlines::LEAST_PROGRESS;
use super::ping::Pings;
use crate::error::{
    ConnectionError, ConnectionErrorKind, ErrorCode, SILENCE, StreamError, StreamErrorKind, UsageError,
};
use crate::role::Role;
use crate::stream::{Content, Phase, Stream, StreamState};
use crate::time::Time;

/// The interval of PING frames to a client that has closed its half of the transport.
const HALF_CLOSE_PROBE: Duration = Duration::from_secs(1);

impl Connection {
    /// Says how many bytes of the last [`Self::transmit`] the transport has not taken. An owner that calls this after
    /// each partial write has [`crate::Config::send_timeout`] end connections whose peer does not read.
    pub fn socket_holds(&mut self, octets: usize, now: Time) {
        self.advance_time(now);
        self.deadlines.hold(octets as u64);
        if let Some(limit) = self.config.send_timeout.filter(|_| octets > 0) {
            self.deadlines.check_by(self.now + limit / 4);
        }
    }

    /// Says that the transport takes nothing more and that nothing is built for it: what is to be sent stays in the
    /// schedule until there is room, so that what becomes urgent meanwhile is the first of the next list. For an owner
    /// that limits what waits in the transport. It has the effects of [`Self::socket_blocked`] and
    /// [`Self::socket_holds`].
    pub fn socket_full(&mut self, now: Time) {
        self.socket_blocked(now);
        self.deadlines.fill();
        if let Some(limit) = self.config.send_timeout {
            self.deadlines.check_by(self.now + limit / 4);
        }
    }

    /// Sends a PING to measure [`Self::round_trip`] again (RFC 9113 section 6.7). Returns whether it did: it does not
    /// while another is unanswered, before the peer's SETTINGS have arrived, or after the connection has failed.
    ///
    /// A connection that refills its windows measures every ten seconds by itself. This call is for owners that need
    /// more samples.
    pub fn measure_round_trip(&mut self, now: Time) -> bool {
        self.advance_time(now);
        if self.shutdown.has_failed() || !self.settings.is_received() {
            return false;
        }
        self.pings.measure(&mut self.writer, self.now)
    }

    /// Sends a PING of the owner with this opaque data (RFC 9113 section 6.7). [`Event::Pong`](crate::Event::Pong)
    /// follows when the peer answers it. One may be unanswered at a time.
    ///
    /// # Errors
    /// [`UsageError::PingUnanswered`]; [`UsageError::PingReserved`] if the opaque data is that of a PING that the
    /// connection sends by itself; [`UsageError::ConnectionFailed`].
    pub fn ping(&mut self, opaque: [u8; 8]) -> Result<(), UsageError> {
        if self.shutdown.has_failed() {
            return Err(UsageError::ConnectionFailed);
        }
        self.pings.ask(&mut self.writer, opaque)
    }

    /// A frame or header block is complete.
    #[inline]
    pub(super) fn note_whole(&mut self) {
        if !self.reader.is_within_block() {
            self.deadlines.frame_ends();
        }
    }

    /// The end of a batch of bytes, which may be within a frame or header block.
    pub(super) fn note_batch_end(&mut self) {
        match self.reader.is_within_frame() {
            true => self
                .deadlines
                .frame_continues(self.config.header_timeout, self.now),
            false => self.deadlines.frame_ends(),
        }
    }

    /// A stream is about to be stored. Its time limits start now.
    pub(super) fn note_new_stream(&mut self) {
        self.deadlines.note_use(self.now);
        if self.streams.is_empty() {
            self.pings.restart_silence(self.now);
        }
        if let Some(wait) = self.deadlines.stream_wait() {
            self.deadlines.check_by(self.now + wait);
        }
    }

    /// How long after a stream was opened the first limit on it could expire.
    pub(super) fn stream_wait(&self) -> Option<Duration> {
        let silence = self.keep_alive().map(|(silence, _)| silence);
        [self.stream_check_interval(), silence]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sets the time of the next check anew.
    pub(super) fn schedule_checks(&mut self) {
        self.deadlines.set_next_check(self.next_check());
    }

    /// The peer has closed its half of the transport.
    pub(super) fn schedule_half_close_check(&mut self) {
        if let Some(until) = self.half_close_deadline() {
            self.deadlines.check_by(until.min(self.now + HALF_CLOSE_PROBE));
        }
    }

    /// A request waits until the peer allows more streams.
    pub(super) fn schedule_wait_check(&mut self) {
        if let Some(until) = self.note_denied() {
            self.deadlines.check_by(until);
        }
    }

    fn keep_alive(&self) -> Option<(Duration, bool)> {
        self.config.keep_alive.resolve(self.role == Role::Server)
    }

    /// The interval of the checks of all streams.
    fn stream_check_interval(&self) -> Option<Duration> {
        let limits = [
            self.config.body_timeout,
            self.config.send_timeout,
            self.response_limit(),
        ];
        limits.into_iter().flatten().min().map(|limit| limit / 4)
    }

    fn response_limit(&self) -> Option<Duration> {
        self.config.response_timeout.filter(|_| self.role == Role::Client)
    }

    fn idle_limit(&self) -> Option<Duration> {
        let ours = self.role == Role::Server && !self.shutdown.has_begun();
        self.config.idle_timeout.filter(|_| ours)
    }

    fn half_close_deadline(&self) -> Option<Time> {
        self.shutdown.half_close_deadline(self.config.half_close_timeout)
    }

    /// When the peer's SETTINGS have to arrive.
    pub(super) fn preface_deadline(&self) -> Option<Time> {
        let waits = !self.settings.is_received() && !self.shutdown.has_failed();
        waits.then(|| self.settings.sent() + self.config.preface_timeout)
    }

    pub(super) fn preface_timeout(&mut self) {
        if self.preface_deadline().is_some_and(|until| until <= self.now) {
            self.fail(ConnectionError::not_http2(SILENCE));
        }
    }

    /// Updates since when requests wait while no stream is open, because the peer allows none. Returns until when they may.
    fn note_denied(&mut self) -> Option<Time> {
        let denied = self.streams.active() == 0 && self.settings.max_concurrent_streams() == 0;
        if self.streams.waiting() == 0 || !denied {
            self.deadlines.allow();
            return None;
        }
        let since = self.deadlines.deny(self.now);
        Some(since + self.config.stream_wait_timeout?)
    }

    /// When the first limit could expire. Conditions that start later schedule their own check.
    fn next_check(&self) -> Option<Time> {
        let (now, config) = (self.now, &self.config);
        let used = !self.streams.is_empty();
        let settings =
            (!self.settings.is_acknowledged()).then(|| self.settings.sent() + config.settings_timeout);
        let idle = self.idle_limit().map(|limit| match used {
            true => now + limit,
            false => self.deadlines.idle_deadline(limit),
        });
        let alive = self.keep_alive().and_then(|(silence, always)| {
            if let Some((asked, _)) = self.pings.unanswered() {
                return Some(asked + config.keep_alive_timeout);
            }
            (used || always).then(|| self.pings.last_received() + silence)
        });
        let moving = used || self.deadlines.waits_for_transport();
        let streams = self
            .stream_check_interval()
            .filter(|_| moving)
            .map(|wait| now + wait);
        let half_closed = self.half_close_deadline();
        [
            settings,
            self.deadlines.frame_deadline(config.header_timeout),
            idle,
            alive,
            streams,
            self.deadlines.denied_deadline(config.stream_wait_timeout),
            half_closed.map(|at| at.min(now + HALF_CLOSE_PROBE)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Checks all limits if it is time to.
    pub(super) fn check_deadlines(&mut self) {
        if !self.deadlines.is_due(self.now) {
            return;
        }
        let checks = [
            Self::settings_overdue,
            Self::headers_overdue,
            Self::peer_is_gone,
            Self::output_is_stuck,
            Self::half_close_overdue,
        ];
        for check in checks {
            if let Some(error) = check(self) {
                return self.fail(error);
            }
        }
        self.end_halted_streams();
        self.end_denied_streams();
        self.end_unused();
        // At least 1 ms from now: a limit that is due and had no effect waits for something else.
        let next = self.next_check();
        let least = self.now + Duration::from_millis(1);
        self.deadlines.set_next_check(next.map(|next| next.max(least)));
    }

    fn settings_overdue(&mut self) -> Option<ConnectionError> {
        let until = self.settings.sent() + self.config.settings_timeout;
        let overdue = !self.settings.is_acknowledged() && until <= self.now;
        overdue.then(|| ConnectionError::timeout(ConnectionErrorKind::SettingsTimeout))
    }

    fn headers_overdue(&mut self) -> Option<ConnectionError> {
        let until = self.deadlines.frame_deadline(self.config.header_timeout)?;
        let overdue = until <= self.now;
        overdue.then(|| ConnectionError::timeout(ConnectionErrorKind::HeaderTimeout))
    }

    /// Sends PING to a silent peer, and ends the connection if it does not answer.
    fn peer_is_gone(&mut self) -> Option<ConnectionError> {
        let (silence, always) = self.keep_alive()?;
        if let Some((asked, taken)) = self.pings.unanswered() {
            if self.taken() >= taken + LEAST_PROGRESS {
                // Over a slow link the PING waits behind bytes that the transport still takes: the peer is alive.
                self.pings.start_probe(self.now, self.taken());
                return None;
            }
            let gone = asked + self.config.keep_alive_timeout <= self.now && self.wants_read();
            return gone.then(|| ConnectionError::timeout(ConnectionErrorKind::KeepAliveTimeout));
        }
        let used = !self.streams.is_empty() || always;
        // While we do not read, bytes of the peer may wait.
        if used && self.pings.last_received() + silence <= self.now && self.wants_read() {
            Pings::keep_alive(&mut self.writer);
            self.pings.start_probe(self.now, self.taken());
        }
        None
    }

    /// All output waits for the transport or for the connection's window, and the peer takes too little.
    fn output_is_stuck(&mut self) -> Option<ConnectionError> {
        let limit = self.config.send_timeout?;
        let closed = !self.streams.has_nothing_to_send() && self.flow.credit().usable() == 0;
        let waits = self.deadlines.waits_for_transport() || closed;
        let since = self.deadlines.stuck_since(waits, self.taken(), self.now);
        (since + limit <= self.now).then(|| ConnectionError::timeout(ConnectionErrorKind::SendTimeout))
    }

    fn taken(&self) -> u64 {
        self.writer.sent_bytes().saturating_sub(self.deadlines.unsent())
    }

    /// Sends PING to a peer that has closed its half of the transport: if the peer is gone, the write fails.
    fn half_close_overdue(&mut self) -> Option<ConnectionError> {
        if self.half_close_deadline()? <= self.now {
            return Some(ConnectionError::timeout(ConnectionErrorKind::HalfCloseTimeout));
        }
        if !self.deadlines.waits_for_transport() {
            Pings::keep_alive(&mut self.writer);
        }
        None
    }

    /// Resets streams whose response or body does not arrive, or whose window stays closed.
    fn end_halted_streams(&mut self) {
        if self.stream_check_interval().is_none() {
            return;
        }
        let now = self.now;
        // While the connection's window is closed, all streams may wait for the reader of one.
        let reads = self.wants_read() && self.flow.window().remaining() > 0;
        let least = self.config.least_body_bytes();
        let (body, send) = (self.config.body_timeout, self.config.send_timeout);
        let response = self.response_limit();
        let mut halted = Vec::new();
        for stream in self.streams.visit_all() {
            let late = |since: Time, limit: Option<Duration>| limit.is_some_and(|limit| since + limit <= now);
            let (awaits_head, awaits_body) = (awaits_head(stream), awaits_body(stream));
            let received = stream.receive.window.received();
            // No more progress than the size of the window is required.
            let least = least.min(u64::from(stream.receive.window.size().bytes())).max(1);
            let waits = reads && (awaits_body || awaits_head);
            let since = stream.receive.mark.waiting_since(waits, received, least, now);
            let no_head = awaits_head && late(since, response);
            let no_body = awaits_body && late(since, body);
            let sent = stream.send.credit.sent();
            let blocked = stream.send.window_blocked || stream.send.held_since.is_some();
            let since = stream.send.mark.waiting_since(blocked, sent, LEAST_PROGRESS, now);
            if no_head {
                halted.push((stream.id, StreamErrorKind::ResponseTimeout));
            } else if no_body {
                halted.push((stream.id, StreamErrorKind::BodyTimeout));
            } else if late(since, send) {
                halted.push((stream.id, StreamErrorKind::WindowTimeout));
            }
        }
        for (id, kind) in halted {
            self.reset_with(StreamError::local(id, ErrorCode::CANCEL, kind));
        }
    }

    /// Resets the requests that wait if the peer allows no stream.
    fn end_denied_streams(&mut self) {
        if self.note_denied().is_none_or(|until| until > self.now) {
            return;
        }
        while let Some((stream, _)) = self.streams.pop_waiting(|_| true) {
            let (id, kind) = (stream.id, StreamErrorKind::StreamWaitTimeout);
            self.reset_with(StreamError::local(id, ErrorCode::CANCEL, kind));
        }
    }

    /// Shuts an idle connection of a server down.
    fn end_unused(&mut self) {
        let now = self.now;
        let overdue = |limit| self.deadlines.idle_deadline(limit) <= now;
        if self.streams.is_empty() && self.idle_limit().is_some_and(overdue) {
            self.shutdown(now);
        }
    }

    /// Releases frames that were held back long enough.
    pub(super) fn release_held_frames(&mut self) {
        let wait = self.config.tiny_frame_wait;
        while let Some(since) = self.streams.held_since() {
            if self.now.since(since) < wait {
                return;
            }
            if let Some(mut stream) = self.streams.pop_held() {
                stream.reschedule(&self.ledgers, self.now);
            }
        }
    }
}

/// Whether the whole request was sent and the response has not arrived.
fn awaits_head(stream: &Stream) -> bool {
    stream.receive.phase == Phase::Headers && stream.state == StreamState::HalfClosedLocal
}

/// Whether the peer has to send more of a body.
fn awaits_body(stream: &Stream) -> bool {
    let half = &stream.receive;
    half.phase == Phase::Body
        && half.content != Content::Tunnel
        && !half.is_discarded()
        && stream.state.can_receive()
        && half.queue.is_empty()
        && half.window.remaining() > 0
}
