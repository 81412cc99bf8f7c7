//! The connection state machine.
//!
//! The state is in parts, each a module with private fields: `reader` and `writer` (frames in and out), `streams`,
//! `flow_control`, `settings`, `ping`, `shutdown`, `guards`, `deadlines`, `ledgers` and `unread`. No part knows the connection.
//! The other modules are methods of [`Connection`]: `receive`, `headers`, `data` and `control` for received frames;
//! `send` and `transmit` for sent ones; `respond` for responses whose streams are not stored;
//! `settings_changes` for later SETTINGS; `read` for the owner's reads; and `close`, `end`, `timeouts`, `memory`,
//! `stalls` and `report`. `.ci/run house` checks that no modules import each other in a circle.
//!
//! Comments cite the laws of `docs/design/flow-control.md` by number.

mod close;
mod control;
mod data;
mod deadlines;
mod end;
mod flow_control;
mod guards;
mod headers;
mod last_request;
mod last_response;
mod ledgers;
mod memory;
mod overhead;
mod ping;
mod read;
mod reader;
mod receive;
mod refills;
mod report;
mod respond;
mod send;
mod settings;
mod settings_changes;
mod shutdown;
mod stalls;
mod streams;
mod timeouts;
mod transmit;
mod unread;
mod writer;

use std::sync::Arc;

use crate::config::Config;
use crate::event::{Event, Events};
use crate::frame::{DEFAULT_MAX_FRAME_SIZE, LARGEST_MAX_FRAME_SIZE};
use crate::role::Role;
use crate::time::Time;

use self::deadlines::Deadlines;
use self::flow_control::FlowControl;
use self::guards::Guards;
use self::ledgers::Ledgers;
use self::ping::Pings;
use self::reader::Reader;
use self::settings::Settings;
use self::shutdown::Shutdown;
use self::streams::Streams;
use self::unread::UnreadMessages;
use self::writer::Writer;

/// An HTTP/2 connection as a state machine. The crate's documentation shows how to drive it.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    /// The newest time that a call has passed.
    now: Time,
    reader: Reader,
    writer: Writer,
    streams: Streams,
    flow: FlowControl,
    settings: Settings,
    pings: Pings,
    shutdown: Shutdown,
    events: Events,
    guards: Guards,
    deadlines: Deadlines,
    ledgers: Ledgers,
    unread: UnreadMessages,
    /// The DATA that was sent when the last list was complete, in bytes.
    listed_data: u64,
}

// Idle connections should cost little memory. State that only busy connections need is boxed, and `trim` frees it.
const _: () = assert!(size_of::<Connection>() <= 2_272);

impl Connection {
    /// A new client connection. Its preface is ready to be transmitted. Connections may share a configuration.
    pub fn client(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::new(Role::Client, config.into(), now)
    }

    /// A new server connection. Its SETTINGS are ready to be transmitted. Connections may share a configuration.
    pub fn server(config: impl Into<Arc<Config>>, now: Time) -> Self {
        Self::new(Role::Server, config.into(), now)
    }

    fn new(role: Role, mut config: Arc<Config>, now: Time) -> Self {
        // Values out of range would end the connection.
        let sizes = DEFAULT_MAX_FRAME_SIZE..=LARGEST_MAX_FRAME_SIZE;
        if !sizes.contains(&config.max_frame_size) {
            let config = Arc::make_mut(&mut config);
            config.max_frame_size = config.max_frame_size.clamp(*sizes.start(), *sizes.end());
        }
        let (flow, stream_window) = FlowControl::new(role, &config);
        let mut connection = Connection {
            role,
            now,
            reader: Reader::new(role),
            writer: Writer::new(),
            streams: Streams::new(role, &config, stream_window),
            flow,
            settings: Settings::new(&config, stream_window, now),
            pings: Pings::new(now),
            shutdown: Shutdown::default(),
            events: Events::default(),
            guards: Guards::new(&config, now),
            deadlines: Deadlines::new(now),
            ledgers: Ledgers::new(role, now),
            unread: UnreadMessages::default(),
            listed_data: 0,
            config,
        };
        let settings = Settings::ours(role, &connection.config, stream_window);
        connection.writer.preface(role, &settings);
        connection.refill_connection();
        connection.deadlines.set_stream_wait(connection.stream_wait());
        connection.schedule_checks();
        connection
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// How many events wait. Requests that the peer reset before the owner took them may be counted.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// When to call [`Self::handle_timeout`].
    pub fn next_deadline(&self) -> Option<Time> {
        if self.shutdown.has_failed() {
            return None;
        }
        let connection_hold = self.flow.held_until(&self.config);
        let stream_hold = self.streams.held_since();
        [
            connection_hold.filter(|&until| until > self.now),
            stream_hold.map(|since| since + self.config.tiny_frame_wait),
            self.streams.early_deadline(),
            self.shutdown.deadline(),
            self.preface_deadline(),
            self.deadlines.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Call this at [`Self::next_deadline`], or later.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance_time(now);
        if self.shutdown.has_failed() {
            return;
        }
        self.renew_overhead_lease();
        self.release_held_frames();
        self.reset_early_answered();
        self.shutdown_timeout();
        self.preface_timeout();
        self.check_deadlines();
    }

    /// Updates the time, for calls that depend on it and take none.
    pub fn advance_time(&mut self, now: Time) {
        self.now = self.now.max(now);
        if !self.streams.is_empty() {
            self.deadlines.note_use(self.now);
        }
    }

    /// Has the processor fetch most of what the next request touches behind pointers: the last request and response, and
    /// the memory of lists. Call it before a read that may bring a request, and [`prefetch`](crate::prefetch) with the
    /// connection itself before it: the memory comes while the transport is asked. It changes nothing.
    #[inline]
    pub fn prefetch(&self) {
        self.reader.prefetch();
        self.writer.prefetch();
        self.events.prefetch();
        self.streams.prefetch();
    }

    /// Frees memory that an idle connection does not need.
    pub fn trim(&mut self) {
        self.streams.trim();
        self.reader.trim();
        self.writer.trim();
        self.events.trim();
        self.return_spare_leases();
    }
}
