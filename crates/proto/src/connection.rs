//! A connection: the state machine itself, as its owner sees it.
//!
//! The contract is that of every engine without I/O: change one thing (`receive`, `handle_timeout`, or one of the calls
//! on a stream), take all events, then write what [`Connection::transmit`] gives until it gives nothing, then wait for
//! the socket, the owner's own wishes, or [`Connection::next_deadline`]. The parts: `receive` parses, `headers` makes
//! messages, `streams` keeps states and credit, `send` takes in what the owner wants sent and builds frames, `settings`
//! and `shutdown` are what they say.

mod account;
mod deadlines;
mod headers;
mod memory;
mod receive;
mod send;
mod settings;
mod shutdown;
mod streams;
mod transmit;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use http::HeaderValue;

use crate::config::Config;
use crate::error::ConnectionError;
use crate::event::{Event, Events};
use crate::flow::{
    DEFAULT_WINDOW, Lease, Ledger, Pace, Promise, ReceiveWindow, RoundTrip, SendCredit, WindowSize,
};
use crate::frame::{DEFAULT_MAX_FRAME_SIZE, Kind, LARGEST_MAX_FRAME_SIZE};
use crate::guard::Bucket;
use crate::hpack::{DEFAULT_TABLE_SIZE, Decoder, Encoder, FieldSection};
use crate::id::{Key, StreamId};
use crate::role::Role;
use crate::schedule::{Ranked, Schedule};
use crate::stats::{Report, Stats};
use crate::stream::{ClosedLog, State, Store};
use crate::time::Time;

use self::deadlines::Deadlines;
use self::headers::Block;
use self::memory::Overhead;
use self::receive::Reader;
use self::settings::{LocalSettings, PeerSettings};
use self::shutdown::Shutdown;

/// An HTTP/2 connection as a state machine: see the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    /// The newest time that the owner told us.
    now: Time,
    reader: Reader,
    block: Option<Block>,
    decoder: Decoder,
    section: FieldSection,
    encoder: Encoder,
    /// The time of day, for responses.
    date: Option<HeaderValue>,
    streams: Store,
    closed: ClosedLog,
    /// The next stream that we open; none when identifiers are used up.
    next_stream: Option<StreamId>,
    /// The highest stream that the peer has opened; 0 for none.
    highest_peer_stream: u32,
    /// Streams that have finished well and are not released: they count against no limit.
    finished: usize,
    /// Streams that were reset and are not released: they count against [`Config::reset_stream_grace`].
    reset_held: u32,
    /// Streams of ours that are open or half closed.
    active: u32,
    /// Streams of ours that wait for the peer to allow them, in order.
    waiting: Ranked,
    /// Whether the owner keeps more of them back for the same reason.
    requests_kept_back: bool,
    receive_window: ReceiveWindow,
    /// What the connection has leased from the budget.
    lease: Lease,
    /// What it has leased for frames and field sections, and how it stands with that.
    overhead: Overhead,
    /// How many streams it has leased.
    stream_lease: Lease,
    /// The window that streams begin with, as our SETTINGS say.
    stream_window: WindowSize,
    /// The largest window that a stream of ours has grown to.
    largest_stream_window: WindowSize,
    /// How fast the connection's window is used up.
    pace: Pace,
    /// A PING of ours that measures the round trip, and when it left.
    probe: Option<Time>,
    /// Bytes that the owner has read and not released.
    lent: u64,
    send_credit: SendCredit,
    /// Streams whose windows may be due for a refill.
    refills: Vec<Key>,
    /// How many of them are due without a write to join.
    refills_due: usize,
    /// Everything that leaves before DATA, already as frames and in order.
    control: Vec<u8>,
    /// How many octets of `control` are replies that the peer made us owe.
    owed: usize,
    schedule: Schedule,
    /// Streams that lack nothing but END_STREAM or trailers.
    ends: Vec<Key>,
    /// Streams with a frame held back (law 6), by since when, and since when the connection's own window holds one back.
    held: BTreeSet<(Time, Key)>,
    held_since: Option<Time>,
    /// Streams whose response is whole and whose request is not, and until when that is borne.
    early: VecDeque<(Time, Key)>,
    local: LocalSettings,
    peer: PeerSettings,
    shutdown: Shutdown,
    failed: Option<ConnectionError>,
    events: Events,
    guards: Guards,
    deadlines: Deadlines,
    sending: Ledger,
    receiving: Ledger,
    /// Streams whose data waits for their own windows.
    window_blocked: usize,
    /// See [`Self::work`].
    work: u64,
    stats: Stats,
}

// Ten thousand that are idle are to cost little: what is only needed at work is in boxes that `trim` gives back.
const _: () = assert!(size_of::<Connection>() <= 2_096);

/// The state of the limits on the peer.
#[derive(Debug)]
struct Guards {
    peer_resets: Bucket,
    refused_streams: Bucket,
    provoked_resets: Bucket,
    empty_data: Bucket,
    pings: Bucket,
    settings: Bucket,
    window_updates: Bucket,
    informational: Bucket,
    priorities: Bucket,
}

impl Guards {
    fn new(config: &Config, now: Time) -> Self {
        Guards {
            peer_resets: Bucket::new(config.peer_resets, now),
            refused_streams: Bucket::new(config.refused_streams, now),
            provoked_resets: Bucket::new(config.provoked_resets, now),
            empty_data: Bucket::new(config.empty_data, now),
            pings: Bucket::new(config.pings, now),
            settings: Bucket::new(config.settings, now),
            window_updates: Bucket::new(config.window_updates, now),
            informational: Bucket::new(config.informational, now),
            priorities: Bucket::new(config.priorities, now),
        }
    }
}

impl Connection {
    /// The client's end of a new connection; the preface waits to be transmitted at once. Many connections may share their
    /// settings.
    pub fn client(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::new(Role::Client, config.into(), now)
    }

    /// The server's end of a new connection.
    pub fn server(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::new(Role::Server, config.into(), now)
    }

    fn new(role: Role, mut config: Arc<Config>, now: Time) -> Self {
        // What is out of range would end the connection, or make frames without end that carry nothing.
        let sizes = DEFAULT_MAX_FRAME_SIZE..=LARGEST_MAX_FRAME_SIZE;
        if !sizes.contains(&config.max_frame_size) || config.send_frame_size == 0 {
            let config = Arc::make_mut(&mut config);
            config.max_frame_size = config.max_frame_size.clamp(*sizes.start(), *sizes.end());
            config.send_frame_size = config.send_frame_size.max(1);
        }
        let mut lease = Lease::of_memory(config.budget.as_ref(), config.share.as_ref());
        let (window, stream_window) = memory::open(&config, &mut lease);
        let receive_window = ReceiveWindow::new(DEFAULT_WINDOW.bytes(), window, config.connection_refill);
        let receive_window = match config.adaptive {
            true => receive_window,
            false => receive_window.fixed(),
        };
        let mut connection = Connection {
            role,
            now,
            reader: Reader::new(role),
            block: None,
            decoder: Decoder::new(DEFAULT_TABLE_SIZE),
            section: FieldSection::default(),
            encoder: Encoder::new(config.encoder_table_size as usize),
            date: None,
            streams: Store::default(),
            closed: ClosedLog::default(),
            next_stream: (role == Role::Client).then_some(StreamId::FIRST_CLIENT),
            highest_peer_stream: 0,
            finished: 0,
            reset_held: 0,
            active: 0,
            waiting: Ranked::default(),
            requests_kept_back: false,
            receive_window,
            lease,
            overhead: Overhead::new(&config),
            stream_lease: Lease::of_streams(config.stream_budget.as_ref(), config.share.as_ref()),
            stream_window,
            largest_stream_window: stream_window,
            pace: Pace::default(),
            probe: None,
            lent: 0,
            send_credit: SendCredit::new(DEFAULT_WINDOW.bytes()),
            refills: Vec::new(),
            refills_due: 0,
            control: Vec::new(),
            owed: 0,
            schedule: Schedule::new(config.scheduling),
            ends: Vec::new(),
            held: BTreeSet::new(),
            held_since: None,
            early: VecDeque::new(),
            local: LocalSettings::new(now),
            peer: PeerSettings::default(),
            shutdown: Shutdown::default(),
            failed: None,
            events: Events::default(),
            guards: Guards::new(&config, now),
            deadlines: Deadlines::new(now),
            sending: Ledger::new(now),
            receiving: Ledger::new(now),
            window_blocked: 0,
            work: 0,
            stats: Stats::default(),
            config,
        };
        connection.write_preface();
        connection.watch_beginning();
        connection
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The next event, until there are no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The error that ended the connection, if one did. What [`Self::transmit`] still gives is its GOAWAY.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.failed.as_ref()
    }

    /// Whether the owner should read from the transport: not behind its end, and not while the peer leaves replies that
    /// it made us owe, or too many heads, unread, nor while frames and field sections take more memory than the budget has for them.
    pub fn wants_read(&self) -> bool {
        let may_owe =
            self.owed <= self.config.max_owed_replies && self.control.len() <= self.config.max_unsent_control;
        self.failed.is_none() && may_owe && !self.shutdown.is_half_closed() && self.overhead.is_covered()
    }

    /// Whether a graceful shutdown has come to its end: nothing is under way and nothing waits to be written.
    pub fn is_drained(&self) -> bool {
        self.shutdown.is_final() && self.streams.len() == 0 && self.control.is_empty()
    }

    /// Whether the peer has ended its half of the transport, by [`Self::end_of_transport`].
    pub fn is_half_closed(&self) -> bool {
        self.shutdown.is_half_closed()
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
        let stream = self.streams.find(stream).and_then(|key| self.streams.get(key));
        stream.is_some_and(|stream| stream.state == State::Waiting)
    }

    /// How many of our requests wait because the peer allows no more streams at once.
    pub fn waiting_streams(&self) -> usize {
        self.waiting.len()
    }

    /// How many streams the peer lets us have open at once.
    pub fn peer_max_concurrent_streams(&self) -> u32 {
        self.peer.max_concurrent_streams
    }

    /// Whether the peer takes extended CONNECT (RFC 8441 section 3).
    pub fn peer_allows_extended_connect(&self) -> bool {
        self.peer.enable_connect_protocol
    }

    /// Whether the peer's SETTINGS have come.
    pub fn peer_settings_received(&self) -> bool {
        self.peer.received
    }

    /// The round trip to the peer.
    pub fn round_trip(&self) -> RoundTrip {
        self.stats.round_trip
    }

    /// What the peer may make us hold by the credit that it has (law 5).
    pub fn promise(&self) -> Promise {
        self.receive_window.promise()
    }

    /// What it has leased from the budget, in bytes, for windows and for what frames and field sections take beyond 16 KiB:
    /// never less than it promises, unless that is nothing at all; see [`MemoryBudget`](crate::MemoryBudget).
    pub fn leased(&self) -> u64 {
        self.lease.held() + self.overhead.leased()
    }

    /// The connection as it is now.
    pub fn report(&self, now: Time) -> Report {
        Report {
            stats: self.stats,
            sending: self.sending_ledger(now),
            receiving: self.receiving_ledger(now),
            receive_window: self.receive_window.size().bytes(),
            stream_receive_window: self.stream_window.bytes(),
            largest_stream_receive_window: self.largest_stream_window.max(self.stream_window).bytes(),
            send_window: self.send_credit.available(),
            stream_send_window: self.peer.initial_window_size,
            promise: self.promise(),
            streams: self.streams.len(),
            waiting_streams: self.waiting.len(),
            peer_max_concurrent_streams: self.peer.max_concurrent_streams,
        }
    }

    /// How much the connection has worked beyond what each frame and each call takes by itself: streams that it went through
    /// for one frame, or at one look at its limits on time, and entries of its lists that were moved for others. A request counts
    /// as 32, for its handler.
    ///
    /// It is counted where such a walk begins, and costs other frames nothing. A driver that shares its thread with others sees by it
    /// that a batch was a heavy one, and the tests of the engine that no peer can have much of it for few octets.
    pub fn work(&self) -> u64 {
        self.work + self.schedule.moved()
    }

    /// How many streams were looked up or gone through, in builds with debug assertions: for the tests of what a frame costs.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn streams_touched(&self) -> u64 {
        self.streams.touched()
    }

    /// What the connection has counted.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// A measure of what the connection has got done: octets of DATA both ways, and 1 KiB for each head that was sent.
    pub fn progress(&self) -> u64 {
        let heads = self.stats.sent_frames.of(Kind::HEADERS);
        self.stats.sent_data_bytes + self.stats.received_data_bytes + (heads << 10)
    }

    /// The receive window of the connection, as refills restore it.
    pub fn receive_window_size(&self) -> WindowSize {
        self.receive_window.size()
    }

    /// What the peer may still send on the connection, in bytes.
    pub fn receive_window_remaining(&self) -> u64 {
        self.receive_window.remaining()
    }

    /// What we may still send on the connection, in bytes.
    pub fn send_window_remaining(&self) -> i64 {
        self.send_credit.available()
    }

    /// The receive window of a stream, as refills restore it; none when the stream is gone.
    pub fn stream_receive_window_size(&self, stream: StreamId) -> Option<WindowSize> {
        let key = self.streams.find(stream)?;
        Some(self.streams.get(key)?.receive.window.size())
    }

    /// What we may still send on a stream by its own window, in bytes; none when the stream is gone.
    pub fn stream_send_window_remaining(&self, stream: StreamId) -> Option<i64> {
        let key = self.streams.find(stream)?;
        Some(self.streams.get(key)?.send.credit.available())
    }

    /// The settings that this end was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When [`Self::handle_timeout`] is to be called unless something else happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.failed.is_some() {
            return None;
        }
        let wait = self.config.tiny_frame_wait;
        let connection_hold = self
            .held_since
            .map(|since| since + wait)
            .filter(|&until| until > self.now);
        let stream_hold = self.held.first().map(|&(since, _)| since + wait);
        [
            connection_hold,
            stream_hold,
            self.early.front().map(|&(until, _)| until),
            self.shutdown.deadline(),
            self.preface_deadline(),
            self.deadlines.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// To be called when [`Self::next_deadline`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        self.see(now);
        if self.failed.is_some() {
            return;
        }
        self.cover_again();
        self.release_held_frames();
        self.reset_early_answered();
        self.shutdown_timeout();
        self.preface_timeout();
        self.watch_deadlines();
    }

    /// Takes note of the time.
    fn see(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.note_use();
    }
}
