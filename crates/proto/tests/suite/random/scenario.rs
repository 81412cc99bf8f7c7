//! A random scenario: the settings of both ends, the path between them, what is asked for, and what their owners do to
//! streams on the way.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore_proto::UsageError;
use fullbore_proto::{
    Config, ErrorCode, MemoryBudget, Priority, Refill, Scheduling, Stall, StreamId, Time, WindowSize,
};
use http::{HeaderMap, Request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::support::app::{Answer, App, Pace};
use crate::support::config;
use crate::support::pair::{End, Pair};
use crate::support::path::PathConfig;

/// One request and its response.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    at: Duration,
    /// The length of the request's body; none for a GET.
    upload: Option<u32>,
    download: u32,
    trailers: (bool, bool),
    priority: Option<(u8, bool)>,
}

/// What an owner does in the middle of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Reset,
    Discard,
    Release,
    Grow(u32),
    GrowConnection(u32),
    Prioritize(u8, bool),
    /// It reads at another pace from now on.
    Pace(Pace),
    Shutdown,
}

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    client: Config,
    server: Config,
    up: PathConfig,
    down: PathConfig,
    paces: (Pace, Pace),
    answers_late: bool,
    chunks: (u32, u32),
    exchanges: Vec<Exchange>,
    /// When, whether by the client, which exchange, and what.
    deeds: Vec<(Duration, bool, usize, Deed)>,
}

/// A number from 1 to `most`, small ones as likely as large ones.
pub(crate) fn spread(most: u32) -> impl Strategy<Value = u32> {
    let bits = 32 - most.leading_zeros();
    (0..bits, any::<u32>())
        .prop_map(move |(bits, number)| (1u32 << bits | number & ((1 << bits) - 1)).clamp(1, most))
}

fn refills() -> impl Strategy<Value = Refill> {
    prop_oneof![
        (0u32..20).prop_map(|divisor| Refill::Fraction { divisor }),
        Just(Refill::default()),
        Just(Refill::Remaining(0)),
        spread(1 << 22).prop_map(Refill::Remaining),
    ]
}

pub(crate) fn configs() -> impl Strategy<Value = Config> {
    let windows = (spread(1 << 20), spread(1 << 22), refills(), refills());
    let frames = spread(1 << 18);
    let streams = (0u32..10_000, spread(30), any::<bool>());
    let memory = (any::<bool>(), option::of(spread(1 << 23)));
    (windows, frames, streams, memory).prop_map(|(windows, frames, streams, memory)| {
        config(|config| {
            config.set_stream_window(WindowSize::new(windows.0).unwrap());
            config.set_connection_window(WindowSize::new(windows.1).unwrap());
            config.set_stream_refill(windows.2);
            config.set_connection_refill(windows.3);
            config.set_max_frame_size(frames.max(16_384));
            config.set_header_table_size(streams.0);
            config.set_max_concurrent_streams(streams.1);
            if streams.2 {
                config.set_scheduling(Scheduling::Fair);
            }
            config.set_adaptive(memory.0);
            config.set_largest_window(WindowSize::from_mebibytes(4));
            config.set_budget(memory.1.map(|bytes| MemoryBudget::new(u64::from(bytes))));
        })
    })
}

fn paths() -> impl Strategy<Value = PathConfig> {
    let cuts = option::of((1usize..20_000, any::<u64>()));
    (0u64..50_000, 0u64..200, spread(1 << 20), spread(1 << 18), cuts).prop_map(
        |(delay, nanos_per_byte, buffer, read_size, cuts)| PathConfig {
            delay: Duration::from_micros(delay),
            nanos_per_byte,
            buffer: u64::from(buffer),
            read_size: read_size as usize + 10,
            cuts,
        },
    )
}

fn paces() -> impl Strategy<Value = Pace> {
    prop_oneof![
        4 => Just(Pace::Eager),
        2 => (spread(1 << 20), 1u64..5_000).prop_map(|(bytes, every)| Pace::Slow {
            bytes: u64::from(bytes) + 500,
            every: Duration::from_micros(every),
        }),
        1 => Just(Pace::Hoards),
        1 => Just(Pace::Never),
    ]
}

fn times() -> impl Strategy<Value = Duration> {
    (0u64..300_000).prop_map(Duration::from_micros)
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let lengths = (option::of(spread(1 << 18)), spread(1 << 18), any::<bool>());
    let trailers = any::<(bool, bool)>();
    let priority = option::of((0u8..8, any::<bool>()));
    (times(), lengths, trailers, priority).prop_map(|(at, (upload, download, empty), trailers, priority)| {
        Exchange {
            at,
            upload,
            download: if empty { 0 } else { download },
            trailers,
            priority,
        }
    })
}

fn deeds() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => Just(Deed::Reset),
        3 => Just(Deed::Discard),
        3 => Just(Deed::Release),
        2 => spread(1 << 22).prop_map(Deed::Grow),
        1 => spread(1 << 24).prop_map(Deed::GrowConnection),
        2 => (0u8..8, any::<bool>()).prop_map(|(urgency, incremental)| Deed::Prioritize(urgency, incremental)),
        1 => paces().prop_map(Deed::Pace),
        1 => Just(Deed::Shutdown),
    ]
}

pub(crate) fn scenarios() -> impl Strategy<Value = Scenario> {
    let ends = (configs(), configs(), paths(), paths());
    let owners = (paces(), paces(), any::<bool>(), spread(60_000), spread(60_000));
    let deeds = vec((times(), any::<bool>(), 0usize..12, deeds()), 0..8);
    (ends, owners, vec(exchanges(), 1..12), deeds).prop_map(|(ends, owners, exchanges, deeds)| Scenario {
        client: ends.0,
        server: ends.1,
        up: ends.2,
        down: ends.3,
        paces: (owners.0, owners.1),
        answers_late: owners.2,
        chunks: (owners.3, owners.4),
        exchanges,
        deeds,
    })
}

/// What a peer may make an end hold never passes what the end has leased, nor the leases of all the budget: so does no
/// sum over ends. One that could lease nothing has the window that every connection begins with, and holds nothing.
fn keeps_its_budget(end: &End) {
    let connection = &end.connection;
    let Some(budget) = &connection.config().budget() else {
        return;
    };
    assert!(budget.leased() <= budget.limit());
    if connection.error().is_some() {
        return;
    }
    let promise = connection.promise();
    match connection.leased() {
        // What of a frame has not come counts as buffered, since it may not be sent again; what has come was dropped.
        0 => assert!(
            promise.total() <= 65_535 && connection.unreleased() == 0,
            "{promise:?}"
        ),
        leased => assert!(promise.total() <= leased, "{promise:?} of {leased}"),
    }
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    trailers
}

/// A scenario that is being played.
pub(crate) struct Play {
    pub(crate) pair: Pair,
    scenario: Scenario,
    /// The stream of each exchange, once it has begun.
    streams: Vec<Option<StreamId>>,
    /// Streams that an owner interfered with.
    spoiled: Vec<u32>,
    /// What is still to come: when, of which exchange, and which deed; without one it begins.
    plan: VecDeque<(Duration, usize, Option<usize>)>,
}

impl Play {
    pub(crate) fn new(mut scenario: Scenario) -> Self {
        scenario.shorten();
        let Scenario {
            client,
            server,
            up,
            down,
            ..
        } = scenario.clone();
        let mut pair = Pair::with_paths(client, server, up, down);
        pair.most_steps = 3_000_000;
        pair.invariant = keeps_its_budget;
        let wanted: Vec<_> = scenario
            .exchanges
            .iter()
            .map(|one| (one.download, one.trailers.1))
            .collect();
        let mut app = App::default();
        app.pace = scenario.paces.0;
        app.chunk = u64::from(scenario.chunks.0);
        pair.client.app = Some(app);
        let mut app = App::answering_with(move |request| {
            let index: usize = request.uri().path()[1..].parse().unwrap();
            let (body, with_trailers) = wanted[index];
            Answer {
                body: u64::from(body),
                trailers: with_trailers.then(trailers),
                ..Answer::default()
            }
        });
        app.pace = scenario.paces.1;
        app.chunk = u64::from(scenario.chunks.1);
        app.answers_late = scenario.answers_late;
        pair.server.app = Some(app);
        let streams = vec![None; scenario.exchanges.len()];
        let begins = scenario.exchanges.iter().enumerate();
        let mut plan: Vec<_> = begins.map(|(index, one)| (one.at, index, None)).collect();
        let deeds = scenario.deeds.iter().enumerate();
        plan.extend(deeds.map(|(index, deed)| (deed.0, deed.2 % streams.len(), Some(index))));
        plan.sort();
        Play {
            pair,
            streams,
            plan: plan.into(),
            scenario,
            spoiled: Vec::new(),
        }
    }

    /// Plays what is planned up to a time.
    pub(crate) fn run_until(&mut self, end: Duration) {
        while self.plan.front().is_some_and(|&(at, _, _)| at <= end) {
            self.take_step();
        }
        self.pair.run_until(Time::ZERO + end);
    }

    fn take_step(&mut self) {
        if let Some((at, exchange, deed)) = self.plan.pop_front() {
            self.pair.run_until(Time::ZERO + at);
            match deed {
                None => self.begin(exchange),
                Some(deed) => self.perform(exchange, deed),
            }
        }
    }

    /// Plays it to the end: first what is planned, and then all that is left unread.
    pub(crate) fn run(&mut self) {
        while !self.plan.is_empty() {
            self.take_step();
        }
        self.pair.run();
        for _ in 0..2 {
            let now = self.pair.now;
            for End { connection, app, .. } in [&mut self.pair.client, &mut self.pair.server] {
                let app = app.as_mut().unwrap();
                app.pace = Pace::Eager;
                app.catch_up(connection, now);
                app.let_go_of_resets(connection);
            }
            self.pair.run();
        }
    }

    fn begin(&mut self, index: usize) {
        let exchange = &self.scenario.exchanges[index];
        let mut request = Request::post(format!("http://example.com/{index}"));
        if let Some((urgency, incremental)) = exchange.priority {
            let priority = Priority::new(urgency, incremental).unwrap();
            request = request.header("priority", priority.to_field_value());
        }
        let request = request.body(()).unwrap();
        let whole = exchange.upload.is_none();
        let End { connection, app, .. } = &mut self.pair.client;
        let stream = match connection.open(request, whole) {
            Ok(stream) => stream,
            Err(UsageError::NoNewStreams) if !connection.takes_new_streams() => return,
            Err(UsageError::BudgetExhausted) if connection.config().budget().is_some() => return,
            Err(error) => panic!("{error}"),
        };
        self.streams[index] = Some(stream);
        if let Some(length) = exchange.upload {
            let trailers = exchange.trailers.0.then(trailers);
            let app = app.as_mut().unwrap();
            app.send_body(connection, stream, u64::from(length), trailers);
        }
    }

    fn perform(&mut self, exchange: usize, deed: usize) {
        let (_, by_client, _, deed) = self.scenario.deeds[deed];
        let now = self.pair.now;
        let end = match by_client {
            true => &mut self.pair.client,
            false => &mut self.pair.server,
        };
        let End { connection, app, .. } = end;
        let app = app.as_mut().unwrap();
        match deed {
            Deed::Shutdown => return connection.shutdown(now),
            Deed::Pace(pace) => {
                app.release_hoard(connection);
                app.pace = pace;
                return;
            }
            Deed::GrowConnection(size) => {
                let _ = connection.grow_receive_window(WindowSize::new(size).unwrap());
                return;
            }
            _ => {}
        }
        // A server's owner acts on no stream before it has heard of it.
        let stream =
            self.streams[exchange].filter(|stream| by_client || app.talks.contains_key(&stream.value()));
        let Some(stream) = stream else {
            return;
        };
        match deed {
            Deed::Reset => app.reset(connection, stream, ErrorCode::CANCEL),
            Deed::Discard => app.discard(connection, stream),
            Deed::Release => app.release(connection, stream),
            Deed::Grow(size) => {
                let _ = connection.grow_stream_receive_window(stream, WindowSize::new(size).unwrap());
                return;
            }
            Deed::Prioritize(urgency, incremental) => {
                let priority = Priority::new(urgency, incremental).unwrap();
                let _ = match by_client {
                    true => connection.send_priority_update(stream, priority),
                    false => connection.prioritize(stream, priority),
                };
                return;
            }
            Deed::Pace(_) | Deed::GrowConnection(_) | Deed::Shutdown => return,
        }
        self.spoiled.push(stream.value());
    }

    /// At every moment each direction of each end was in one state.
    pub(crate) fn assert_time_is_accounted_for(&self) {
        let now = self.pair.now;
        for end in [&self.pair.client, &self.pair.server] {
            for ledger in [
                end.connection.sending_ledger(now),
                end.connection.receiving_ledger(now),
            ] {
                let all: Duration = Stall::ALL.iter().map(|&state| ledger.spent(state)).sum();
                assert_eq!(all, now.since(Time::ZERO));
            }
        }
    }

    /// What was leased for the connections comes back with them.
    pub(crate) fn assert_budgets_are_whole(self) {
        let Play { pair, scenario, .. } = self;
        drop(pair);
        for budget in [scenario.client.budget(), scenario.server.budget()]
            .into_iter()
            .flatten()
        {
            assert_eq!(budget.leased(), 0);
        }
    }

    /// Every exchange that nobody interfered with is whole on both sides.
    pub(crate) fn assert_all_arrived(&mut self) {
        for (exchange, stream) in self.scenario.exchanges.iter().zip(&self.streams) {
            let Some(stream) = stream.filter(|stream| !self.spoiled.contains(&stream.value())) else {
                continue;
            };
            let answer = self.pair.client.app().talk(stream);
            if let Some(reset) = &answer.reset {
                assert_eq!(reset.code, ErrorCode::REFUSED_STREAM, "{reset}");
                continue;
            }
            assert!(answer.ended, "stream {stream} has no end");
            assert_eq!(
                answer.received,
                u64::from(exchange.download),
                "of the response on {stream}"
            );
            assert_eq!(
                answer.trailers.is_some(),
                exchange.trailers.1,
                "trailers on {stream}"
            );
            let request = self.pair.server.app().talk(stream);
            assert!(request.ended && request.reset.is_none(), "{stream}: {request:?}");
            let upload = exchange.upload.unwrap_or(0);
            assert_eq!(request.received, u64::from(upload), "of the request on {stream}");
            let with_trailers = exchange.upload.is_some() && exchange.trailers.0;
            assert_eq!(request.trailers.is_some(), with_trailers);
        }
    }
}

impl Scenario {
    /// Both ends lease from this budget.
    pub(crate) fn share(&mut self, budget: &MemoryBudget) {
        self.client.set_budget(Some(budget.clone()));
        self.server.set_budget(Some(budget.clone()));
    }

    /// Through a window of a few bytes only a short body passes in a reasonable number of round trips.
    fn shorten(&mut self) {
        let down = self.client.stream_window().bytes().saturating_mul(200);
        let up = self.server.stream_window().bytes().saturating_mul(200);
        let frames = self.chunks.0.min(self.chunks.1).saturating_mul(500);
        for exchange in &mut self.exchanges {
            exchange.download = exchange.download.min(down).min(frames);
            exchange.upload = exchange.upload.map(|length| length.min(up).min(frames));
        }
    }
}
