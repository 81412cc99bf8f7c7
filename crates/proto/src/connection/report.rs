//! What the owner may ask of the connection at any time.

use super::Connection;
use crate::config::Config;
use crate::error::ConnectionError;
use crate::flow::{Ledger, Promise, RoundTrip, WindowSize};
use crate::frame::FrameType;
use crate::id::StreamId;
use crate::role::Role;
use crate::stats::{Report, Stats, StreamReport};
use crate::stream::Stream;
use crate::time::Time;

impl Connection {
    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The settings that this end was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The error that ended the connection, if one did. What [`Self::transmit`] still gives is its GOAWAY.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.shutdown.error()
    }

    /// Whether the owner should read from the transport: not behind its end, and not while the peer leaves replies that
    /// it made us owe, or too many heads, unread, nor while frames and field sections take more memory than the budget has for them.
    pub fn wants_read(&self) -> bool {
        let (owed, waiting) = (self.writer.owed(), self.writer.len());
        let may_owe = owed <= self.config.max_owed_replies && waiting <= self.config.max_unsent_control;
        !self.shutdown.has_failed()
            && may_owe
            && !self.shutdown.is_half_closed()
            && self.flow.overhead().is_leased()
    }

    /// Whether a graceful shutdown has come to its end: nothing is under way and nothing waits to be written.
    pub fn is_drained(&self) -> bool {
        self.shutdown.is_final() && self.streams.is_empty() && self.writer.is_empty()
    }

    /// Whether the peer has ended its half of the transport, by [`Self::end_of_transport`].
    pub fn is_half_closed(&self) -> bool {
        self.shutdown.is_half_closed()
    }

    /// Whether [`Connection::shutdown`] was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.has_begun()
    }

    /// Whether `open` may succeed: neither side has said GOAWAY, nothing failed, identifiers are left.
    pub fn takes_new_streams(&self) -> bool {
        self.shutdown.takes_new_streams() && self.streams.next_id().is_some()
    }

    /// How many streams are under way or not released.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is under way, one that is only not released being none.
    pub fn has_unfinished_streams(&self) -> bool {
        self.streams.iter().any(|stream| !stream.state.is_closed())
    }

    /// Whether a request of ours waits because the peer allows no more streams at once: nothing of it has been sent.
    pub fn is_waiting(&self, stream: StreamId) -> bool {
        self.streams.view(stream).is_some_and(Stream::is_waiting)
    }

    /// How many of our requests wait because the peer allows no more streams at once.
    pub fn waiting_streams(&self) -> usize {
        self.streams.waiting()
    }

    /// How many streams the peer lets us have open at once.
    pub fn peer_max_concurrent_streams(&self) -> u32 {
        self.settings.max_concurrent_streams()
    }

    /// Whether the peer takes extended CONNECT (RFC 8441 section 3).
    pub fn peer_allows_extended_connect(&self) -> bool {
        self.settings.enable_connect_protocol()
    }

    /// Whether the peer's SETTINGS have come.
    pub fn peer_settings_received(&self) -> bool {
        self.settings.is_received()
    }

    /// The round trip to the peer.
    pub fn round_trip(&self) -> RoundTrip {
        self.pings.round_trip()
    }

    /// What the peer may make us hold by the credit that it has (law 5).
    pub fn promise(&self) -> Promise {
        self.flow.promise()
    }

    /// What it has leased from the budget, in bytes, for windows and for what frames and field sections take beyond 16 KiB:
    /// never less than it promises, unless that is nothing at all; see [`MemoryBudget`](crate::MemoryBudget).
    pub fn leased(&self) -> u64 {
        self.flow.leased()
    }

    /// The connection as it is now.
    pub fn report(&self, now: Time) -> Report {
        let initial = self.streams.initial_window();
        Report {
            stats: self.stats(),
            sending: self.sending_ledger(now),
            receiving: self.receiving_ledger(now),
            receive_window: self.flow.window().size().bytes(),
            stream_receive_window: initial.bytes(),
            largest_stream_receive_window: self.streams.largest_window().max(initial).bytes(),
            send_window: self.flow.credit().available(),
            stream_send_window: self.settings.initial_window_size(),
            promise: self.promise(),
            streams: self.streams.len(),
            waiting_streams: self.streams.waiting(),
            peer_max_concurrent_streams: self.settings.max_concurrent_streams(),
        }
    }

    /// A stream and what it has waited for, up to `now`; none when it is gone.
    pub fn stream_report(&self, stream: StreamId, now: Time) -> Option<StreamReport> {
        let stream = self.streams.view(stream)?;
        let (window, round_trip) = (self.flow.window(), self.pings.minimum());
        Some(self.ledgers.report(stream, window, round_trip, now))
    }

    /// What sending has waited for, up to `now`.
    pub fn sending_ledger(&self, now: Time) -> Ledger {
        self.ledgers.sending(now)
    }

    /// How much the connection has worked beyond what each frame and each call takes by itself: streams that it went through
    /// for one frame, or at one look at its limits on time, and entries of its lists that were moved for others. A request counts
    /// as 32, for its handler.
    ///
    /// It is counted where such a walk begins, and costs other frames nothing. A driver that shares its thread with others sees by it
    /// that a batch was a heavy one, and the tests of the engine that no peer can have much of it for few octets.
    pub fn work(&self) -> u64 {
        self.streams.work()
    }

    /// How many streams were looked up or gone through, in builds with debug assertions: for the tests of what a frame costs.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn streams_touched(&self) -> u64 {
        self.streams.touched()
    }

    /// What the connection has counted.
    pub fn stats(&self) -> Stats {
        let sent_frames = *self.writer.sent_frames();
        let connection_refills = self.flow.refills();
        Stats {
            received_bytes: self.reader.received_bytes(),
            received_data_bytes: self.flow.window().received(),
            received_frames: *self.reader.received_frames(),
            sent_bytes: self.writer.sent_bytes(),
            sent_data_bytes: self.flow.credit().sent(),
            sent_frames,
            connection_refills,
            stream_refills: sent_frames.of(FrameType::WINDOW_UPDATE) - connection_refills,
            round_trip: self.pings.round_trip(),
        }
    }

    /// A measure of what the connection has got done: octets of DATA both ways, and 1 KiB for each head that was sent.
    pub fn progress(&self) -> u64 {
        let heads = self.writer.sent_frames().of(FrameType::HEADERS);
        self.flow.credit().sent() + self.flow.window().received() + (heads << 10)
    }

    /// The receive window of the connection, as refills restore it.
    pub fn receive_window_size(&self) -> WindowSize {
        self.flow.window().size()
    }

    /// What the peer may still send on the connection, in bytes.
    pub fn receive_window_remaining(&self) -> u64 {
        self.flow.window().remaining()
    }

    /// What we may still send on the connection, in bytes.
    pub fn send_window_remaining(&self) -> i64 {
        self.flow.credit().available()
    }

    /// The receive window of a stream, as refills restore it; none when the stream is gone.
    pub fn stream_receive_window_size(&self, stream: StreamId) -> Option<WindowSize> {
        Some(self.streams.view(stream)?.receive.window.size())
    }

    /// What we may still send on a stream by its own window, in bytes; none when the stream is gone.
    pub fn stream_send_window_remaining(&self, stream: StreamId) -> Option<i64> {
        Some(self.streams.view(stream)?.send.credit.available())
    }

    /// How many bytes the owner has read and not released.
    pub fn unreleased(&self) -> u64 {
        self.flow.unreleased()
    }
}
