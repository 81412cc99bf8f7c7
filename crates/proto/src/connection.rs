//! A connection: the state machine itself, as its owner sees it.
//!
//! The contract is that of every engine without I/O: change one thing (`receive`, `handle_timeout`, or one of the calls
//! on a stream), take all events, then write what [`Connection::transmit`] gives until it gives nothing, then wait for
//! the socket, the application, or [`Connection::next_deadline`].
//!
//! The state is in parts, each a module with private fields: `reader` and `writer` (frames in and out), `streams`,
//! `flow_control`, `settings`, `ping`, `shutdown`, `guards`, `deadlines` and `ledgers`. No part knows the connection. The other
//! modules are methods of [`Connection`]: on the way in `receive` (octets to frames), `headers`, `data` and `control`; on the
//! way out `send` and `transmit`; `read` for what the owner reads; and `close`, `end`, `timeouts`, `memory`, `stalls` and
//! `report`. `.ci/run house` checks that no modules import each other in a circle.

mod close;
mod control;
mod data;
mod deadlines;
mod end;
mod flow_control;
mod guards;
mod headers;
mod ledgers;
mod memory;
mod overhead;
mod ping;
mod read;
mod reader;
mod receive;
mod report;
mod send;
mod settings;
mod shutdown;
mod stalls;
mod streams;
mod timeouts;
mod transmit;
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
use self::writer::Writer;

/// An HTTP/2 connection as a state machine: see the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    /// The newest time that the owner told us.
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
}

// Ten thousand idle connections are to cost little: what is only needed at work is in boxes that `trim` gives back.
const _: () = assert!(size_of::<Connection>() <= 2_096);

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
        let (flow, stream_window) = FlowControl::new(&config);
        let mut connection = Connection {
            role,
            now,
            reader: Reader::new(role),
            writer: Writer::new(config.encoder_table_size),
            streams: Streams::new(role, &config, stream_window),
            flow,
            settings: Settings::new(now),
            pings: Pings::new(now),
            shutdown: Shutdown::default(),
            events: Events::default(),
            guards: Guards::new(&config, now),
            deadlines: Deadlines::new(now),
            ledgers: Ledgers::new(role, now),
            config,
        };
        let settings = Settings::ours(role, &connection.config, stream_window);
        connection.writer.preface(role, &settings);
        connection.refill_connection();
        connection.schedule_checks();
        connection
    }

    /// The next event, until there are no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// When [`Self::handle_timeout`] is to be called unless something else happens before.
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

    /// To be called when [`Self::next_deadline`] has come.
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

    /// Updates the time before a call that depends on it and takes none.
    pub fn advance_time(&mut self, now: Time) {
        self.now = self.now.max(now);
        if !self.streams.is_empty() {
            self.deadlines.note_use(self.now);
        }
    }

    /// Gives back memory that is kept for the next batch, and that a connection on which nothing happens does not need.
    pub fn trim(&mut self) {
        self.streams.trim();
        self.reader.trim();
        self.writer.trim();
        self.events.trim();
        self.return_spare_leases();
    }
}
