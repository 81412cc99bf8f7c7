//! A client and a server that face each other over a simulated path, on a virtual clock. Every figure is exact and every
//! run the same.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Buf;
use fullbore_proto::FrameType;
use fullbore_proto::{Config, Connection, Event, StreamId, Time, Transmit};

use super::app::App;
use super::path::{Path, PathConfig};
use super::tap::Tap;

/// One end: the connection, its owner, and the direction of the path that leads away from it.
pub(crate) struct End {
    pub(crate) connection: Connection,
    /// Takes the events; without one they gather in `events`.
    pub(crate) app: Option<App>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) path: Path,
    pub(crate) tap: Tap,
    /// Whether the socket was found full.
    blocked: bool,
}

impl End {
    fn new(connection: Connection, path: PathConfig, of_client: bool) -> Self {
        End {
            connection,
            app: None,
            events: VecDeque::new(),
            path: Path::new(path),
            tap: Tap::new(of_client),
            blocked: false,
        }
    }

    /// The events that no owner took, in order.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// The owner that was given to this end.
    pub(crate) fn app(&mut self) -> &mut App {
        self.app.as_mut().expect("this end has no owner")
    }

    /// Takes in what arrived in one read; whether there was something.
    fn read(&mut self, from: &mut Path, now: Time) -> bool {
        if !self.connection.wants_read() {
            // What a failed connection does not read is lost.
            return self.connection.error().is_some() && from.read(now).is_some();
        }
        let Some(octets) = from.read(now) else {
            return false;
        };
        // The error is kept by the connection, where a test finds it.
        let _ = self.connection.receive(octets, now);
        true
    }

    fn tell_owner(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.connection.poll_event() {
            any = true;
            match &mut self.app {
                Some(app) => app.on_event(&mut self.connection, event, now),
                None => self.events.push_back(event),
            }
        }
        if let Some(app) = &mut self.app {
            any |= app.on_time(&mut self.connection, now);
        }
        any
    }

    fn write(&mut self, now: Time) -> bool {
        if !self.connection.wants_transmit() {
            return false;
        }
        if self.path.writable_at() > now {
            if !std::mem::replace(&mut self.blocked, true) {
                self.connection.socket_blocked(now);
            }
            return false;
        }
        self.blocked = false;
        let mut out = Transmit::new();
        self.connection.transmit(&mut out, now);
        let octets = out.copy_to_bytes(out.remaining());
        if !octets.is_empty() {
            self.tap.write(&octets, now);
            self.path.write(octets, now);
        }
        if !self.connection.wants_transmit() {
            self.connection.socket_idle(now);
        }
        true
    }

    fn timeout(&mut self, now: Time) -> bool {
        let due = self.connection.next_deadline().is_some_and(|at| at <= now);
        if due {
            self.connection.handle_timeout(now);
            assert!(
                self.connection.next_deadline().is_none_or(|at| at > now),
                "a deadline that has passed and stays"
            );
        }
        due
    }

    /// When something happens at this end without anything arriving.
    fn next_time(&self) -> Option<Time> {
        let deadline = self.connection.next_deadline();
        let owner = self.app.as_ref().and_then(App::next_time);
        let socket = self.connection.wants_transmit().then(|| self.path.writable_at());
        [deadline, owner, socket].into_iter().flatten().min()
    }
}

/// Both ends.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) now: Time,
    /// How often something happened: a bound on it proves that a run ends.
    pub(crate) steps: u64,
    pub(crate) most_steps: u64,
    /// What must hold of both ends after every step.
    pub(crate) invariant: fn(&End),
}

impl Pair {
    /// Both with these settings, over the same path in both directions.
    pub(crate) fn new(client: Config, server: Config, path: PathConfig) -> Self {
        Self::with_paths(client, server, path.clone(), path)
    }

    /// The path of the client's octets and that of the server's may differ.
    pub(crate) fn with_paths(client: Config, server: Config, up: PathConfig, down: PathConfig) -> Self {
        let (client, server) = (super::patient(client), super::patient(server));
        Pair {
            client: End::new(Connection::client(client, Time::ZERO), up, true),
            server: End::new(Connection::server(server, Time::ZERO), down, false),
            now: Time::ZERO,
            steps: 0,
            most_steps: 10_000_000,
            invariant: |_| (),
        }
    }

    /// Both with default settings and without a delay; the handshake is past.
    pub(crate) fn connected() -> Self {
        Self::connected_with(Config::default(), Config::default())
    }

    /// Without a delay; the handshake is past.
    pub(crate) fn connected_with(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server, PathConfig::default());
        pair.run();
        pair.client.take_events();
        pair.server.take_events();
        pair
    }

    /// Gives the server an owner that answers as [`App::answering`], and the client one that reads.
    pub(crate) fn with_apps(mut self) -> Self {
        self.client.app = Some(App::default());
        self.server.app = Some(App::answering());
        self
    }

    /// The client asks for a body of so many octets, which its owner reads.
    pub(crate) fn get(&mut self, length: u64) -> StreamId {
        let request = http::Request::get(format!("http://example.com/{length}")).body(());
        self.client
            .connection
            .open(request.unwrap(), true)
            .expect("the client opens no stream")
    }

    /// The client sends a body of so many octets; the server is asked for `answer` octets.
    pub(crate) fn post(&mut self, length: u64, answer: u64) -> StreamId {
        let request = http::Request::post(format!("http://example.com/{answer}")).body(());
        let End { connection, app, .. } = &mut self.client;
        let stream = connection.open(request.unwrap(), false).unwrap();
        app.as_mut()
            .expect("this end has no owner")
            .send_body(connection, stream, length, None);
        stream
    }

    /// Goes on until nothing is under way, nothing waits to be sent and no deadline is set.
    pub(crate) fn run(&mut self) {
        self.run_while(|_| true);
    }

    /// Goes on until `end`, and no further than what happens by then.
    pub(crate) fn run_until(&mut self, end: Time) {
        loop {
            self.settle();
            match self.next_time() {
                Some(next) if next <= end => self.now = next,
                _ => break,
            }
        }
        self.now = end;
    }

    /// Goes on for so long.
    pub(crate) fn run_for(&mut self, wait: Duration) {
        self.run_until(self.now + wait);
    }

    /// Goes on as long as `condition` holds and anything happens.
    pub(crate) fn run_while(&mut self, mut condition: impl FnMut(&mut Pair) -> bool) {
        loop {
            self.settle();
            if !condition(self) {
                return;
            }
            match self.next_time() {
                Some(next) => self.now = next,
                None => return,
            }
        }
    }

    /// Everything that happens at this time.
    pub(crate) fn settle(&mut self) {
        while self.step() {
            self.steps += 1;
            (self.invariant)(&self.client);
            (self.invariant)(&self.server);
            assert!(self.steps < self.most_steps, "no end of it at {:?}", self.now);
        }
    }

    /// Each end takes one read, hears of it, and writes once: a turn of a driver.
    fn step(&mut self) -> bool {
        let Pair {
            client, server, now, ..
        } = self;
        let now = *now;
        let mut any = false;
        any |= client.timeout(now) | server.timeout(now);
        any |= client.read(&mut server.path, now);
        any |= client.tell_owner(now);
        any |= client.write(now);
        any |= server.read(&mut client.path, now);
        any |= server.tell_owner(now);
        any |= server.write(now);
        any
    }

    fn next_time(&self) -> Option<Time> {
        let arrivals = |end: &End, from: &Path| {
            let reads = end.connection.wants_read() || end.connection.error().is_some();
            from.next_arrival().filter(|_| reads)
        };
        [
            self.client.next_time(),
            self.server.next_time(),
            arrivals(&self.client, &self.server.path),
            arrivals(&self.server, &self.client.path),
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|at| at.max(self.now))
    }

    /// Asserts that each end has counted what it sent, and the other one what came of it.
    #[track_caller]
    fn assert_counted(&self) {
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let (sent, received) = (from.connection.stats(), to.connection.stats());
            for kind in (0..=9).chain([0x10]).map(FrameType) {
                let count = from.tap.of(kind).count() as u64;
                // HEADERS and their CONTINUATION are one when they are sent.
                let blocks = if kind == FrameType::CONTINUATION { 0 } else { count };
                assert_eq!(sent.sent_frames.of(kind), blocks, "{kind:?} sent");
                assert_eq!(received.received_frames.of(kind), count, "{kind:?} received");
            }
            assert_eq!(sent.sent_bytes, from.tap.octets() as u64);
            assert_eq!(received.received_bytes, sent.sent_bytes);
            let data = from
                .tap
                .of(FrameType::DATA)
                .map(|seen| u64::from(seen.header.length));
            assert_eq!(sent.sent_data_bytes, data.sum::<u64>());
            assert_eq!(received.received_data_bytes, sent.sent_data_bytes);
            let updates = from.tap.of(FrameType::WINDOW_UPDATE);
            let connection = updates.filter(|seen| seen.stream() == 0).count() as u64;
            assert_eq!(sent.connection_refills, connection);
            let both = sent.sent_frames.of(FrameType::WINDOW_UPDATE);
            assert_eq!(sent.stream_refills, both - connection);
        }
    }

    /// Asserts that nothing leaked: both ends forgot every stream, were given back all that they lent, and have their
    /// windows but for what a refill waits for.
    #[track_caller]
    pub(crate) fn assert_nothing_leaked(&mut self) {
        self.assert_counted();
        for (name, end) in [("client", &mut self.client), ("server", &mut self.server)] {
            let connection = &mut end.connection;
            assert_eq!(connection.error(), None, "{name}");
            assert_eq!(connection.stream_count(), 0, "streams at the {name}");
            assert_eq!(connection.waiting_streams(), 0, "waiting at the {name}");
            assert_eq!(connection.unreleased(), 0, "lent at the {name}");
            assert!(!connection.wants_transmit(), "the {name} has more to say");
            let size = u64::from(connection.receive_window_size().bytes());
            let remaining = connection.receive_window_remaining();
            let most = size - remaining.min(size);
            // All but what is not worth an update yet: asking for one more would make it due.
            let due = match connection.config().connection_refill() {
                fullbore_proto::Refill::Fraction { divisor } => {
                    // Up to 255 bytes are withheld, so that offsets are multiples of 256.
                    let grain = if (16_384..1 << 20).contains(&size) { 255 } else { 0 };
                    (size / u64::from(divisor.max(1))).max((size / 4).clamp(1, 16_384)) + grain
                }
                fullbore_proto::Refill::HalfRest => size.div_ceil(3),
                fullbore_proto::Refill::Remaining(bytes) => {
                    let floor = (size / 4).clamp(1, 16_384);
                    size.saturating_sub(u64::from(bytes)).max(floor)
                }
            };
            assert!(
                most < due.max(1),
                "{name}: {remaining} of {size} remain, an update was due at {due}"
            );
        }
    }
}
