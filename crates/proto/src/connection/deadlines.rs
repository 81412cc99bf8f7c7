//! How long the peer may take, and what happens when it takes longer: SETTINGS acknowledged, header blocks whole, bodies
//! that go on, output that is read, a connection that is used, and a peer that is there at all.
//!
//! Nothing of this is kept up to date while data flows. One coarse time, `watch`, says when to look; it only ever moves
//! nearer between two looks, so that the owner's timer is seldom set anew. A look compares counters with what they were
//! at the last one, so that a limit acts up to a quarter later than it says.

use core::time::Duration;

use super::Connection;
use super::settings::KEEP_ALIVE_PING;
use crate::error::{
    BODY_HALTED, ConnectionError, ErrorCode, HALF_CLOSED, HEADERS_DRIBBLE, NO_RESPONSE, NO_STREAMS,
    NOT_TAKEN, PEER_GONE, StreamError, WINDOW_CLOSED,
};
use crate::frame::{Kind, Ping};
use crate::id::Key;
use crate::role::Role;
use crate::stream::{Phase, State, Stream};
use crate::time::{Mark, Time};

/// What counts as progress of what the peer has to take, in bytes: a window opened octet by octet is none.
const LEAST_PROGRESS: u64 = 1_024;

/// How often a PING is written to a client that has ended its half of the transport.
const HALF_CLOSE_PROBE: Duration = Duration::from_secs(1);

/// What the limits on time have to know.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// When to look next.
    watch: Option<Time>,
    /// Since when a frame other than DATA, or a header block, has been arriving.
    arriving: Option<Time>,
    /// When octets came last.
    heard: Time,
    /// When the last stream was seen.
    busy: Time,
    /// Since when a PING asks whether the peer is there, and what had left by then.
    asked: Option<(Time, u64)>,
    /// Since when requests wait although no stream is under way: the peer allows none.
    denied: Option<Time>,
    /// What has left of all that was written, when it last was enough.
    taken: Mark,
    /// How many octets of the last write the transport has not taken.
    pub(super) unsent: u64,
}

impl Deadlines {
    pub(super) fn new(now: Time) -> Self {
        Deadlines {
            watch: None,
            arriving: None,
            heard: now,
            busy: now,
            asked: None,
            denied: None,
            taken: Mark::new(now),
            unsent: 0,
        }
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.watch
    }

    fn look_at(&mut self, at: Time) {
        self.watch = Some(self.watch.map_or(at, |watch| watch.min(at)));
    }
}

impl Connection {
    /// How many octets of what [`Self::transmit`] gave the transport has not taken yet. An owner that says it, whenever
    /// a write was cut short, has a peer that does not read ended by [`crate::Config::send_timeout`].
    pub fn socket_holds(&mut self, octets: usize, now: Time) {
        self.see(now);
        self.deadlines.unsent = octets as u64;
        if let Some(limit) = self.config.send_timeout.filter(|_| octets > 0) {
            self.deadlines.look_at(self.now + limit / 4);
        }
    }

    /// Octets came: the peer is there.
    pub(super) fn note_heard(&mut self) {
        self.deadlines.heard = self.now;
        self.deadlines.asked = None;
    }

    /// A frame or a header block is whole.
    pub(super) fn note_whole(&mut self) {
        if self.block.is_none() {
            self.deadlines.arriving = None;
        }
    }

    /// A batch of octets ends here, within a frame other than DATA or a header block, or not.
    pub(super) fn note_batch_end(&mut self) {
        if self.block.is_some() || self.reader.is_within_frame() {
            if self.deadlines.arriving.is_none() {
                self.deadlines.arriving = Some(self.now);
                self.deadlines.look_at(self.now + self.config.header_timeout);
            }
        } else {
            self.deadlines.arriving = None;
        }
    }

    /// While there are streams the connection is in use.
    pub(super) fn note_use(&mut self) {
        if self.streams.len() > 0 {
            self.deadlines.busy = self.now;
        }
    }

    /// A stream begins: its limits run from now.
    pub(super) fn watch_streams(&mut self) {
        if self.streams.len() == 0 {
            // The silence before it was not that of a stream.
            self.deadlines.heard = self.deadlines.heard.max(self.now);
        }
        let least = [self.stream_look(), self.keep_alive().map(|(silence, _)| silence)]
            .into_iter()
            .flatten()
            .min();
        if let Some(wait) = least {
            self.deadlines.look_at(self.now + wait);
        }
    }

    /// Says when to look first, as things stand now.
    pub(super) fn watch_beginning(&mut self) {
        self.deadlines.watch = self.next_look();
    }

    /// A graceful shutdown has named the last stream.
    pub(super) fn watch_drain(&mut self) {
        if let Some(until) = self.drain_deadline() {
            self.deadlines.look_at(until);
        }
    }

    /// The peer has ended its half of the transport.
    pub(super) fn watch_half_closed(&mut self) {
        if let Some(until) = self.half_close_deadline() {
            self.deadlines.look_at(until.min(self.now + HALF_CLOSE_PROBE));
        }
    }

    fn keep_alive(&self) -> Option<(Duration, bool)> {
        self.config.keep_alive.resolve(self.role == Role::Server)
    }

    /// How often streams are looked at.
    fn stream_look(&self) -> Option<Duration> {
        let limits = [
            self.config.body_timeout,
            self.config.send_timeout,
            self.response_limit(),
        ];
        limits.into_iter().flatten().min().map(|limit| limit / 4)
    }

    /// How long a server may take for the head of a response.
    fn response_limit(&self) -> Option<Duration> {
        self.config.response_timeout.filter(|_| self.role == Role::Client)
    }

    /// A request waits for the peer to allow another stream.
    pub(super) fn watch_waiting(&mut self) {
        if let Some(until) = self.note_denied() {
            self.deadlines.look_at(until);
        }
    }

    /// The peer allowed another stream.
    pub(super) fn note_stream_allowed(&mut self) {
        self.deadlines.denied = None;
    }

    /// Takes note whether requests wait although no stream is under way; until when they may.
    fn note_denied(&mut self) -> Option<Time> {
        if self.waiting.is_empty() || self.active > 0 {
            self.deadlines.denied = None;
            return None;
        }
        let since = *self.deadlines.denied.get_or_insert(self.now);
        Some(since + self.config.stream_wait_timeout?)
    }

    /// Ends the requests that wait at a peer that allows no stream.
    fn end_denied_streams(&mut self) {
        if self.note_denied().is_none_or(|until| until > self.now) {
            return;
        }
        while let Some(key) = self.waiting.pop_first() {
            self.reset_with(StreamError::local(key.id(), ErrorCode::CANCEL, NO_STREAMS));
        }
    }

    /// When the first limit could pass, as things stand; conditions that begin later look for themselves.
    fn next_look(&self) -> Option<Time> {
        let now = self.now;
        let used = self.streams.len() > 0;
        let settings = (!self.local.acknowledged).then(|| self.local.sent + self.config.settings_timeout);
        let arriving = self
            .deadlines
            .arriving
            .map(|since| since + self.config.header_timeout);
        let idle = self.idle_limit().map(|limit| match used {
            true => now + limit,
            false => self.deadlines.busy + limit,
        });
        let alive = self.keep_alive().and_then(|(silence, always)| {
            if let Some((asked, _)) = self.deadlines.asked {
                return Some(asked + self.config.keep_alive_timeout);
            }
            (used || always).then(|| self.deadlines.heard + silence)
        });
        let moving = used || self.deadlines.unsent > 0;
        let streams = self.stream_look().filter(|_| moving).map(|wait| now + wait);
        let drain = self.drain_deadline();
        let denied = self
            .deadlines
            .denied
            .and_then(|since| Some(since + self.config.stream_wait_timeout?));
        let half_closed = self
            .half_close_deadline()
            .map(|at| at.min(now + HALF_CLOSE_PROBE));
        [
            settings,
            arriving,
            idle,
            alive,
            streams,
            drain,
            denied,
            half_closed,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// How long a client may leave its connection unused.
    fn idle_limit(&self) -> Option<Duration> {
        let ours = self.role == Role::Server && !self.is_shutting_down();
        self.config.idle_timeout.filter(|_| ours)
    }

    /// Looks whether a limit has passed, when it is time to look.
    pub(super) fn watch_deadlines(&mut self) {
        if self.deadlines.watch.is_none_or(|watch| watch > self.now) {
            return;
        }
        let checks = [
            Self::settings_overdue,
            Self::headers_overdue,
            Self::peer_is_gone,
            Self::output_is_stuck,
            Self::drain_overdue,
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
        // Never at once again: what is due and was not acted on has to wait for something else.
        let next = self.next_look();
        self.deadlines.watch = next.map(|next| next.max(self.now + Duration::from_millis(1)));
    }

    fn settings_overdue(&mut self) -> Option<ConnectionError> {
        let overdue = !self.local.acknowledged && self.local.sent + self.config.settings_timeout <= self.now;
        overdue.then(|| {
            let error = "our SETTINGS were not acknowledged in time";
            ConnectionError::peer(ErrorCode::SETTINGS_TIMEOUT, error)
        })
    }

    fn headers_overdue(&mut self) -> Option<ConnectionError> {
        let since = self.deadlines.arriving?;
        let overdue = since + self.config.header_timeout <= self.now;
        overdue.then(|| ConnectionError::peer(ErrorCode::ENHANCE_YOUR_CALM, HEADERS_DRIBBLE))
    }

    /// Asks a silent peer by PING; ends the connection when it stays silent.
    fn peer_is_gone(&mut self) -> Option<ConnectionError> {
        let (silence, always) = self.keep_alive()?;
        if let Some((asked, taken)) = self.deadlines.asked {
            if self.taken() >= taken + LEAST_PROGRESS {
                // Over a slow link the PING stands behind what the transport still takes: so long the peer is there.
                self.deadlines.asked = Some((self.now, self.taken()));
                return None;
            }
            let gone = asked + self.config.keep_alive_timeout <= self.now && self.wants_read();
            return gone.then(|| ConnectionError::peer(ErrorCode::NO_ERROR, PEER_GONE));
        }
        let used = self.streams.len() > 0 || always;
        // Unless we read, it may have spoken.
        if used && self.deadlines.heard + silence <= self.now && self.wants_read() {
            self.write_keep_alive_ping();
            self.deadlines.asked = Some((self.now, self.taken()));
        }
        None
    }

    /// Everything waits for the peer, by the transport or by the connection's window, and it takes too little.
    fn output_is_stuck(&mut self) -> Option<ConnectionError> {
        let limit = self.config.send_timeout?;
        let unsent = self.deadlines.unsent;
        let waits = unsent > 0 || (!self.schedule.is_empty() && self.send_credit.usable() == 0);
        let taken = self.taken();
        let since = self.deadlines.taken.look(waits, taken, LEAST_PROGRESS, self.now);
        (since + limit <= self.now).then(|| ConnectionError::peer(ErrorCode::ENHANCE_YOUR_CALM, NOT_TAKEN))
    }

    /// The octets that the transport has taken.
    fn taken(&self) -> u64 {
        self.stats.sent_bytes.saturating_sub(self.deadlines.unsent)
    }

    /// Writes to a peer that has ended its half of the transport: one that is gone altogether makes a write fail.
    fn half_close_overdue(&mut self) -> Option<ConnectionError> {
        if self.half_close_deadline()? <= self.now {
            return Some(ConnectionError {
                blame: crate::error::Side::Local,
                ..ConnectionError::peer(ErrorCode::NO_ERROR, HALF_CLOSED)
            });
        }
        if self.deadlines.unsent == 0 {
            self.write_keep_alive_ping();
        }
        None
    }

    fn write_keep_alive_ping(&mut self) {
        let ping = Ping {
            ack: false,
            opaque: KEEP_ALIVE_PING,
        };
        ping.write(&mut self.control);
        self.stats.sent_frames.add(Kind::PING);
    }

    fn drain_overdue(&mut self) -> Option<ConnectionError> {
        let overdue = self.drain_deadline().is_some_and(|until| until <= self.now);
        overdue.then(|| ConnectionError {
            blame: crate::error::Side::Local,
            ..ConnectionError::peer(
                ErrorCode::NO_ERROR,
                "what was under way took longer than a graceful shutdown may",
            )
        })
    }

    /// Streams whose heads or bodies do not come, or whose windows stay closed.
    fn end_halted_streams(&mut self) {
        if self.stream_look().is_none() {
            return;
        }
        let now = self.now;
        // While the connection's window is closed, a reader of another stream may be what everybody waits for.
        let reads = self.wants_read() && self.receive_window.remaining() > 0;
        let least = self.config.least_body_bytes();
        let (body, send) = (self.config.body_timeout, self.config.send_timeout);
        let response = self.response_limit();
        let mut halted = Vec::new();
        self.work += self.streams.len() as u64;
        for stream in self.streams.iter_mut() {
            let late = |since: Time, limit: Option<Duration>| limit.is_some_and(|limit| since + limit <= now);
            let (awaits_head, awaits_body) = (awaits_head(stream), awaits_body(stream));
            let received = half_received(stream);
            // More than its window at once is asked of nobody.
            let least = least.min(u64::from(stream.receive.window.size().bytes())).max(1);
            let waits = reads && (awaits_body || awaits_head);
            let since = stream.receive.mark.look(waits, received, least, now);
            let no_head = awaits_head && late(since, response);
            let no_body = awaits_body && late(since, body);
            let sent = stream.send.credit.sent();
            let blocked = stream.send.window_blocked || stream.send.held_since.is_some();
            let since = stream.send.mark.look(blocked, sent, LEAST_PROGRESS, now);
            if no_head {
                halted.push((stream.id, NO_RESPONSE));
            } else if no_body {
                halted.push((stream.id, BODY_HALTED));
            } else if late(since, send) {
                halted.push((stream.id, WINDOW_CLOSED));
            }
        }
        for (id, reason) in halted {
            self.reset_with(StreamError::local(id, ErrorCode::CANCEL, reason));
        }
    }

    /// A server's connection that nobody uses.
    fn end_unused(&mut self) {
        let unused = self.streams.len() == 0;
        let overdue = |limit| self.deadlines.busy + limit <= self.now;
        if unused && self.idle_limit().is_some_and(overdue) {
            self.shutdown(self.now);
        }
    }

    /// Takes a new stream in, and sees to it that it is looked after.
    pub(super) fn insert_stream(&mut self, stream: Box<Stream>) -> Key {
        self.watch_streams();
        self.deadlines.busy = self.now;
        self.streams.insert(stream)
    }
}

/// The octets of DATA that came on a stream.
fn half_received(stream: &Stream) -> u64 {
    stream.receive.window.consumed() + stream.receive.window.unconsumed()
}

/// Whether it is the server's turn to answer: the whole request has left.
fn awaits_head(stream: &Stream) -> bool {
    stream.receive.phase == Phase::Head && stream.state == State::HalfClosedLocal
}

/// Whether it is the peer's turn to go on with a body.
fn awaits_body(stream: &Stream) -> bool {
    let half = &stream.receive;
    half.phase == Phase::Body
        && !half.tunnel
        && !half.discard
        && stream.state.can_receive()
        && half.queue.is_empty()
        && half.window.remaining() > 0
}
