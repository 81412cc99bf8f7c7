//! A connection and its owner before a hostile peer, on a virtual clock: the plan of both, and how it has to end.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, ErrorCode, Role, StreamId, Time, Transmit, UsageError};

use super::peer::{Change, Habits, Peer, Wrong};
use crate::support::app::{App, Pace};
use crate::support::patient;

/// More turns than any run takes: a peer that gives leave for some hundred octets a round trip takes its millions.
const MOST_TURNS: u64 = 10_000_000;

/// One request and its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) at: Duration,
    pub(super) upload: u32,
    pub(super) download: u32,
}

/// What the peer does at a time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Change(Change),
    /// It resets the stream of this exchange.
    Reset(usize),
    Err(Wrong),
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Which end is ours.
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) pace: Pace,
    pub(super) chunk: u64,
    /// One way, for both directions, and in what pieces what the peer says comes.
    pub(super) delay: Duration,
    pub(super) cut: usize,
    pub(super) habits: Habits,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) deeds: Vec<(Duration, Deed)>,
    /// The peer resets every stream that is under way when it has spoken so many times.
    pub(super) resets_all_after: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Begin(usize),
    Deed(Deed),
    Relent,
}

/// A plan that is being carried out.
pub(super) struct Run {
    plan: Plan,
    steps: VecDeque<(Time, Step)>,
    connection: Connection,
    app: App,
    peer: Peer,
    now: Time,
    to_connection: VecDeque<(Time, Bytes)>,
    to_peer: VecDeque<(Time, Bytes)>,
    streams: Vec<Option<StreamId>>,
    resets_done: bool,
    /// How often the peer spoke.
    pub(super) spoken: usize,
    expected: Option<ErrorCode>,
}

impl Run {
    pub(super) fn new(mut plan: Plan) -> Self {
        plan.shorten();
        let begins = plan.exchanges.iter().enumerate();
        let begins = begins.map(|(index, one)| (Time::ZERO + one.at, Step::Begin(index)));
        let deeds = plan
            .deeds
            .iter()
            .map(|&(at, deed)| (Time::ZERO + at, Step::Deed(deed)));
        let mut steps: Vec<_> = begins.chain(deeds).collect();
        steps.sort_by_key(|&(at, _)| at);
        let last = steps.last().map_or(Time::ZERO, |&(at, _)| at) + Duration::from_millis(1);
        let last = last.max(Time::ZERO + plan.habits.settings_after);
        steps.push((last, Step::Relent));
        let (connection, mut app) = match plan.role {
            Role::Client => (
                Connection::client(patient(plan.config.clone()), Time::ZERO),
                App::default(),
            ),
            Role::Server => (
                Connection::server(patient(plan.config.clone()), Time::ZERO),
                App::answering(),
            ),
        };
        app.pace = plan.pace;
        app.chunk = plan.chunk;
        Run {
            steps: steps.into(),
            connection,
            app,
            peer: Peer::new(plan.role, plan.habits.clone()),
            now: Time::ZERO,
            to_connection: VecDeque::new(),
            to_peer: VecDeque::new(),
            streams: vec![None; plan.exchanges.len()],
            resets_done: false,
            spoken: 0,
            expected: None,
            plan,
        }
    }

    /// Goes on until nothing is left that could happen.
    pub(super) fn run(&mut self) {
        let mut turns = 0;
        loop {
            while self.turn() {
                turns += 1;
            }
            turns += 1;
            assert!(turns < MOST_TURNS, "no end of it at {:?}", self.now);
            match self.next_time() {
                Some(next) => self.now = next.max(self.now),
                None => return,
            }
        }
    }

    /// What ended by itself was whole, octet by octet; the windows are the same on both sides.
    pub(super) fn assert_right(&mut self) {
        if let Some(code) = self.expected {
            let error = self
                .connection
                .error()
                .expect("the connection bore what no peer may do");
            assert_eq!(error.code, code, "{error}");
            assert_eq!(self.peer.go_away, Some(code));
            return;
        }
        assert_eq!(self.connection.error(), None);
        for (exchange, stream) in self.plan.exchanges.iter().zip(&self.streams) {
            let Some(stream) = *stream else {
                continue;
            };
            let Some(known) = self.peer.streams.get(&stream.value()) else {
                panic!("stream {stream} never began");
            };
            if known.reset.is_some() {
                continue;
            }
            assert!(
                known.whole,
                "stall: stream {stream} is at {} of {}",
                known.received, known.expected
            );
            assert!(
                known.finished,
                "stall: the peer is at {} on stream {stream}",
                known.sent
            );
            assert_eq!(known.received, known.expected);
            let talk = self.app.talk(stream);
            let length = match self.plan.role {
                Role::Client => exchange.download,
                Role::Server => exchange.upload,
            };
            assert!(talk.ended, "stream {stream} has no end");
            assert_eq!(talk.received, u64::from(length), "on stream {stream}");
        }
        assert_eq!(self.connection.stream_count(), 0);
        assert_eq!(self.connection.unreleased(), 0);
        let (window, credit) = self.peer.windows();
        assert_eq!(
            self.connection.send_window_remaining(),
            window,
            "what we may send"
        );
        assert_eq!(
            self.connection.receive_window_remaining() as i64,
            credit,
            "what the peer may send"
        );
        assert_eq!(self.connection.promise().buffered, 0, "what nobody consumed");
    }

    fn turn(&mut self) -> bool {
        let mut any = self.take_step();
        any |= self.tell_connection();
        any |= self.tell_owner();
        any |= self.transmit();
        while self.to_peer.front().is_some_and(|&(at, _)| at <= self.now) {
            let (_, octets) = self.to_peer.pop_front().unwrap();
            self.peer.hear(&octets, self.now);
            any = true;
        }
        if self
            .plan
            .resets_all_after
            .is_some_and(|after| self.spoken > after)
            && !self.resets_done
        {
            self.resets_done = true;
            let streams: Vec<_> = self.peer.streams.keys().copied().collect();
            streams.into_iter().for_each(|stream| self.peer.reset(stream));
        }
        let mut octets = self.peer.speak(self.now);
        if !octets.is_empty() {
            self.spoken += 1;
            any = true;
        }
        while !octets.is_empty() {
            let piece = octets.split_to(self.plan.cut.min(octets.len()));
            self.to_connection.push_back((self.now + self.plan.delay, piece));
        }
        any
    }

    fn take_step(&mut self) -> bool {
        let due = self.steps.front().filter(|&&(at, _)| at <= self.now);
        let Some(&(_, step)) = due else {
            return false;
        };
        self.steps.pop_front();
        match step {
            Step::Relent => self.peer.relent(),
            Step::Begin(index) => self.begin(index),
            Step::Deed(Deed::Change(change)) => self.peer.change(change),
            Step::Deed(Deed::Reset(index)) => {
                if let Some(stream) = self.streams[index % self.streams.len()] {
                    self.peer.reset(stream.value());
                }
            }
            Step::Deed(Deed::Err(wrong)) => {
                self.expected.get_or_insert(wrong.code());
                self.peer.err(wrong);
            }
        }
        true
    }

    fn begin(&mut self, index: usize) {
        let Exchange { upload, download, .. } = self.plan.exchanges[index];
        let (upload, download) = (u64::from(upload), u64::from(download));
        if self.plan.role == Role::Server {
            // Identifiers grow in the order in which streams begin.
            let begun = self.streams.iter().flatten().count() as u32;
            let stream = StreamId::new(2 * begun + 1).unwrap();
            self.streams[index] = Some(stream);
            return self.peer.open(stream.value(), upload, download);
        }
        let request = http::Request::post("http://example.com/").body(()).unwrap();
        let stream = match self.connection.open(request, upload == 0) {
            Ok(stream) => stream,
            Err(UsageError::NoNewStreams) if self.connection.error().is_some() => return,
            Err(UsageError::BudgetExhausted) => return,
            Err(error) => panic!("{error}"),
        };
        self.streams[index] = Some(stream);
        self.peer.promised.insert(stream.value(), (upload, download));
        if upload > 0 {
            self.app.send_body(&mut self.connection, stream, upload, None);
        }
    }

    fn tell_connection(&mut self) -> bool {
        let mut any = false;
        if self.connection.next_deadline().is_some_and(|at| at <= self.now) {
            self.connection.handle_timeout(self.now);
            any = true;
        }
        let reads = self.connection.wants_read() || self.connection.error().is_some();
        if reads && self.to_connection.front().is_some_and(|&(at, _)| at <= self.now) {
            let (_, octets) = self.to_connection.pop_front().unwrap();
            let _ = self.connection.receive(octets, self.now);
            any = true;
        }
        any
    }

    fn tell_owner(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.connection.poll_event() {
            any = true;
            self.app.on_event(&mut self.connection, event, self.now);
        }
        any | self.app.on_time(&mut self.connection, self.now)
    }

    fn transmit(&mut self) -> bool {
        if !self.connection.wants_transmit() {
            return false;
        }
        let mut out = Transmit::new();
        self.connection.transmit(&mut out, self.now);
        let octets = out.copy_to_bytes(out.remaining());
        if !octets.is_empty() {
            self.to_peer.push_back((self.now + self.plan.delay, octets));
        }
        true
    }

    fn next_time(&self) -> Option<Time> {
        let reads = self.connection.wants_read() || self.connection.error().is_some();
        [
            self.connection.next_deadline(),
            self.app.next_time(),
            self.peer.next_time(),
            self.steps.front().map(|&(at, _)| at),
            self.to_connection.front().map(|&(at, _)| at).filter(|_| reads),
            self.to_peer.front().map(|&(at, _)| at),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Plan {
    /// Through a window of a few bytes only a short body passes in a reasonable number of turns.
    fn shorten(&mut self) {
        let by_windows = self
            .habits
            .stream
            .to
            .min(self.habits.connection.to)
            .saturating_mul(300);
        let ours = by_windows.min(self.chunk as u32 * 300);
        let window = self.config.stream_window().bytes();
        let theirs = self.habits.piece.min(window).saturating_mul(300);
        for exchange in &mut self.exchanges {
            let (sent, received) = match self.role {
                Role::Client => (&mut exchange.upload, &mut exchange.download),
                Role::Server => (&mut exchange.download, &mut exchange.upload),
            };
            *sent = (*sent).min(ours);
            *received = (*received).min(theirs);
        }
    }
}
