//! Queries that the owner may make at any time.

use super::Connection;
use super::reader::Expected;
use crate::config::Config;
use crate::error::ConnectionError;
use crate::flow::{Ledger, Promise, RoundTrip, WindowSize};
use crate::frame::FrameType;
use crate::id::StreamId;
use crate::role::Role;
use crate::stats::{Report, Stats, StreamReport};
use crate::stream::Stream;
use crate::time::Time;

/// The bytes of unsent replies above which nothing more is read (CVE-2019-9512, 9515, 9517).
const MAX_OWED_REPLIES: usize = 8 << 10;

/// The bytes of unsent frames other than DATA, HEADERS included, above which nothing more is read: the HEADERS of some
/// thousand responses (CVE-2019-9517).
const MAX_UNSENT_CONTROL: usize = 256 << 10;

impl Connection {
    /// The role of this endpoint.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The configuration of this endpoint.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The error that ended the connection, if there is one. [`Self::transmit`] still writes its GOAWAY.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.shutdown.error()
    }

    /// Whether the owner should read from the transport. It should not after the end of the transport, while too many
    /// replies or frames wait to be sent, or while the budget has no memory for frames and field sections.
    pub fn wants_read(&self) -> bool {
        let (owed, waiting) = (self.writer.owed(), self.writer.len());
        let may_owe = owed <= MAX_OWED_REPLIES && waiting <= MAX_UNSENT_CONTROL;
        !self.shutdown.has_failed()
            && may_owe
            && !self.shutdown.is_half_closed()
            && self.flow.overhead().is_leased()
    }

    /// Whether a graceful shutdown is complete: no stream is stored and nothing waits to be written.
    pub fn is_drained(&self) -> bool {
        self.shutdown.is_final() && self.streams.is_empty() && self.writer.is_empty()
    }

    /// Whether the peer has closed its half of the transport: see [`Self::end_of_transport`].
    pub fn is_half_closed(&self) -> bool {
        self.shutdown.is_half_closed()
    }

    /// Whether [`Connection::shutdown`] was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.has_begun()
    }

    /// Whether this endpoint has sent the GOAWAY that names the last stream that it processes.
    pub fn has_sent_last_stream(&self) -> bool {
        self.shutdown.is_final()
    }

    /// Whether `open` may succeed: neither side has sent GOAWAY, the connection has not failed, and identifiers are
    /// left.
    pub fn takes_new_streams(&self) -> bool {
        self.shutdown.takes_new_streams() && self.streams.next_id().is_some()
    }

    /// The number of streams that are open or not released.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is not closed.
    pub fn has_unfinished_streams(&self) -> bool {
        !self.streams.fresh().is_empty() || self.streams.iter().any(|stream| !stream.state.is_closed())
    }

    /// Whether a request waits until the peer allows more streams, or for its first SETTINGS. Nothing of it has been sent.
    pub fn is_waiting(&self, stream: StreamId) -> bool {
        self.streams.view(stream).is_some_and(Stream::is_waiting)
    }

    /// The number of requests that wait: see [`Self::is_waiting`].
    pub fn waiting_streams(&self) -> usize {
        self.streams.waiting()
    }

    /// The number of streams that the peer allows at once.
    pub fn peer_max_concurrent_streams(&self) -> u32 {
        self.settings.max_concurrent_streams()
    }

    /// Whether the peer accepts extended CONNECT (RFC 8441 section 3).
    pub fn peer_allows_extended_connect(&self) -> bool {
        self.settings.enable_connect_protocol()
    }

    /// Whether the client's connection preface has arrived (RFC 9113 section 3.4), without its SETTINGS. True on clients,
    /// because a server sends none.
    pub fn preface_received(&self) -> bool {
        !matches!(self.reader.expected(), Expected::Preface(_))
    }

    /// Whether the peer's SETTINGS have arrived.
    pub fn peer_settings_received(&self) -> bool {
        self.settings.is_received()
    }

    /// The round trip to the peer.
    pub fn round_trip(&self) -> RoundTrip {
        self.pings.round_trip()
    }

    /// The memory that the peer can make this endpoint hold with its credit.
    pub fn promise(&self) -> Promise {
        self.flow.promise()
    }

    /// The bytes that are leased from the [`MemoryBudget`](crate::MemoryBudget), for windows and for what frames and
    /// field sections take beyond 16 KiB. Either nothing is leased, or at least [`Self::promise`].
    pub fn leased(&self) -> u64 {
        self.flow.leased()
    }

    /// The current state of the connection.
    pub fn report(&self, now: Time) -> Report {
        let initial = self.streams.initial_window();
        Report {
            stats: self.stats(),
            sending: self.sending_ledger(now),
            receiving: self.receiving_ledger(now),
            arrivals: self.arrivals(now),
            receive_window: self.flow.window().size().bytes(),
            stream_receive_window: initial.bytes(),
            largest_stream_receive_window: self.streams.largest_window().max(initial).bytes(),
            send_window: self.flow.credit().available(),
            largest_send_window: self.flow.credit().largest() as u64,
            stream_send_window: self.settings.initial_window_size(),
            largest_stream_send_window: self
                .streams
                .largest_granted()
                .max(self.settings.initial_window_size())
                .into(),
            promise: self.promise(),
            streams: self.streams.len(),
            waiting_streams: self.streams.waiting(),
            peer_max_concurrent_streams: self.settings.max_concurrent_streams(),
            answered_within: None,
            tcp: None,
        }
    }

    /// The state of a stream, and what it has waited for up to `now`. None if it was removed.
    pub fn stream_report(&self, stream: StreamId, now: Time) -> Option<StreamReport> {
        let (window, round_trip) = (self.flow.window(), self.pings.minimum());
        self.view(stream, |stream| {
            self.ledgers.report(stream, window, round_trip, now)
        })
    }

    /// What sending has waited for, up to `now`.
    pub fn sending_ledger(&self, now: Time) -> Ledger {
        self.ledgers.sending(now)
    }

    /// The work beyond the constant cost of frames and calls: streams that were visited for one frame or one check of
    /// time limits, and list entries that were moved for others. A request counts as 32, for its handler.
    ///
    /// A driver that shares its thread with other connections uses it to detect expensive batches. Tests use it to
    /// show that no peer causes much work with few bytes.
    pub fn work(&self) -> u64 {
        self.streams.work()
    }

    /// The number of stream lookups and visits, in builds with debug assertions, for the tests of what a frame costs.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn streams_touched(&self) -> u64 {
        self.streams.touched()
    }

    /// The counters of the connection.
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

    /// The number of received frames.
    pub fn frames_received(&self) -> u64 {
        self.reader.received_frames().total()
    }

    /// The number of sent HEADERS frames.
    pub fn headers_sent(&self) -> u64 {
        self.writer.sent_frames().of(FrameType::HEADERS)
    }

    /// A measure of progress: the bytes of DATA both ways, and 1 KiB for each HEADERS that was sent.
    pub fn progress(&self) -> u64 {
        self.flow.credit().sent() + self.flow.window().received() + (self.headers_sent() << 10)
    }

    /// The size of the connection's receive window.
    pub fn receive_window_size(&self) -> WindowSize {
        self.flow.window().size()
    }

    /// The bytes that the peer may still send on the connection.
    pub fn receive_window_remaining(&self) -> u64 {
        self.flow.window().remaining()
    }

    /// The bytes that this endpoint may still send on the connection.
    pub fn send_window_remaining(&self) -> i64 {
        self.flow.credit().available()
    }

    /// The size of a stream's receive window. None if the stream was removed.
    pub fn stream_receive_window_size(&self, stream: StreamId) -> Option<WindowSize> {
        self.view(stream, |stream| stream.receive.window.size())
    }

    /// The bytes that the window of a stream still allows to send. None if the stream was removed.
    pub fn stream_send_window_remaining(&self, stream: StreamId) -> Option<i64> {
        self.view(stream, |stream| stream.send.credit.available())
    }

    /// The bytes in a stream's send queue. None if the stream was removed.
    pub fn send_queue_bytes(&self, stream: StreamId) -> Option<usize> {
        self.view(stream, |stream| stream.send.queue.bytes())
    }

    /// The bytes that the owner has read and not released.
    pub fn unreleased(&self) -> u64 {
        self.flow.unreleased()
    }
}
