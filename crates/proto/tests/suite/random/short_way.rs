//! `respond` and the three calls that it stands for say the same: whatever the peer and the owner do besides, each stream
//! carries the same frames, and the owner hears the same events.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use fullbore_proto::{Config, Connection, ErrorCode, Event, Payload, StreamId, Time, Transmit};
use fullbore_testing::frames::{Frame, PREFACE};
use http::Response;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::scenario::spread;
use crate::support::peer::id;
use crate::support::{frames, patient};

/// What the peer or the owner does. A stream is one of those that were opened, by its index from the last.
#[derive(Debug, Clone)]
enum Step {
    // The peer.
    Get {
        urgency: Option<u8>,
        fields: usize,
    },
    Post,
    Data {
        back: usize,
        length: usize,
        end: bool,
    },
    Reset {
        back: usize,
    },
    WindowUpdate {
        back: Option<usize>,
        increment: u32,
    },
    PriorityUpdate {
        back: usize,
        urgency: u8,
    },
    InitialWindow(u32),
    SecondHeaders {
        back: usize,
    },
    Ping,
    EndOfTransport,
    // The owner.
    Take(usize),
    Respond {
        at: usize,
        length: usize,
        fields: usize,
        malformed: bool,
    },
    Inform {
        at: usize,
    },
    Drop {
        at: usize,
    },
    Transmit(usize),
    Wait(u64),
    ShutDown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let back = || 0usize..6;
    let step = prop_oneof![
        8 => (option::of(0u8..8), prop_oneof![4 => Just(0usize), 1 => 1usize..3_000])
            .prop_map(|(urgency, fields)| Step::Get { urgency, fields }),
        1 => Just(Step::Post),
        1 => (back(), 0usize..2_000, any::<bool>()).prop_map(|(back, length, end)| Step::Data { back, length, end }),
        1 => back().prop_map(|back| Step::Reset { back }),
        2 => (option::of(back()), spread(1 << 16)).prop_map(|(back, increment)| Step::WindowUpdate { back, increment }),
        1 => (back(), 0u8..8).prop_map(|(back, urgency)| Step::PriorityUpdate { back, urgency }),
        1 => prop_oneof![Just(0u32), spread(1 << 17)].prop_map(Step::InitialWindow),
        1 => back().prop_map(|back| Step::SecondHeaders { back }),
        1 => Just(Step::Ping),
        1 => Just(Step::EndOfTransport),
        6 => (1usize..4).prop_map(Step::Take),
        8 => (0usize..3, lengths(), prop_oneof![3 => Just(0usize), 1 => 1usize..400], prop::bool::weighted(0.05))
            .prop_map(|(at, length, fields, malformed)| Step::Respond { at, length, fields, malformed }),
        1 => (0usize..3).prop_map(|at| Step::Inform { at }),
        1 => (0usize..3).prop_map(|at| Step::Drop { at }),
        4 => prop_oneof![Just(usize::MAX), 1usize..5_000].prop_map(Step::Transmit),
        1 => (0u64..2_000).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
    ];
    vec(step, 1..60)
}

/// Lengths of bodies: none, short ones, and those about the limits of the short way.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), 1usize..100, 1_000usize..1_050, 1usize..40_000]
}

/// The settings of a server.
#[derive(Debug, Clone)]
struct Settings {
    streams: u32,
    over_tls: bool,
}

fn settings() -> impl Strategy<Value = Settings> {
    (prop_oneof![Just(100u32), 1u32..4], any::<bool>())
        .prop_map(|(streams, over_tls)| Settings { streams, over_tls })
}

impl Settings {
    fn config(&self) -> Config {
        let mut config = patient(Config::default());
        config.set_max_concurrent_streams(self.streams);
        if self.over_tls {
            config.set_record_size(16_384);
        }
        config
    }
}

/// What a stream carried.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Carried {
    blocks: Vec<Bytes>,
    body: BytesMut,
    ended: bool,
    resets: Vec<u32>,
}

/// A server, and what came of it.
struct Side {
    short: bool,
    connection: Connection,
    now: Time,
    opened: Vec<u32>,
    /// The requests that the owner has taken and not answered.
    taken: Vec<StreamId>,
    events: Vec<String>,
    input: BytesMut,
    carried: BTreeMap<u32, Carried>,
    /// The types of the frames of the connection.
    of_connection: Vec<u8>,
    half_closed: bool,
}

impl Side {
    fn new(short: bool, config: Config) -> Self {
        let mut side = Side {
            short,
            connection: Connection::server(config, Time::ZERO),
            now: Time::ZERO,
            opened: Vec::new(),
            taken: Vec::new(),
            events: Vec::new(),
            input: BytesMut::new(),
            carried: BTreeMap::new(),
            of_connection: Vec::new(),
            half_closed: false,
        };
        side.hear([PREFACE, &frames::settings(&[])[..], &frames::settings_ack()].concat());
        side.transmit(usize::MAX);
        side
    }

    fn hear(&mut self, octets: Vec<u8>) {
        if !self.half_closed {
            let _ = self.connection.receive(octets.into(), self.now);
        }
        if !self.short {
            // Stores the streams of all requests.
            for &stream in &self.opened {
                self.connection.want_room(id(stream), 128 << 10);
            }
        }
    }

    fn next_stream(&mut self) -> u32 {
        let stream = self.opened.last().map_or(1, |last| last + 2);
        self.opened.push(stream);
        stream
    }

    fn back(&self, back: usize) -> Option<u32> {
        self.opened.iter().rev().nth(back).copied()
    }

    fn transmit(&mut self, most: usize) {
        let mut out = Transmit::new();
        self.connection.transmit_within(&mut out, most, self.now);
        while out.has_remaining() {
            let chunk = out.chunk().to_vec();
            out.advance(chunk.len());
            self.input.extend_from_slice(&chunk);
        }
        while let Some(frame) = Frame::split(&mut self.input) {
            self.note(frame);
        }
    }

    fn transmit_all(&mut self) {
        while self.connection.wants_transmit() {
            self.transmit(usize::MAX);
        }
    }

    fn note(&mut self, frame: Frame) {
        if frame.stream == 0 {
            self.of_connection.push(frame.kind);
            return;
        }
        let carried = self.carried.entry(frame.stream).or_default();
        let is_message = matches!(frame.kind, frames::HEADERS | frames::DATA);
        let has_ended = carried.ended || !carried.resets.is_empty();
        assert!(!is_message || !has_ended, "{frame:?} behind the end");
        match frame.kind {
            frames::HEADERS => carried.blocks.push(frame.payload.clone()),
            frames::DATA => carried.body.extend_from_slice(&frame.payload),
            frames::RST_STREAM => carried.resets.push(frame.code()),
            frames::WINDOW_UPDATE => return,
            other => panic!("a frame of type {other} on a stream"),
        }
        carried.ended |= frame.kind != frames::RST_STREAM && frame.ends_stream();
    }

    fn take(&mut self, count: usize) {
        for _ in 0..count {
            let Some(event) = self.connection.poll_event() else {
                break;
            };
            self.events.push(format!("{event:?}"));
            match event {
                Event::Request { stream, .. } => self.taken.push(stream),
                Event::Reset(error) if self.taken.contains(&error.stream) => {
                    self.taken.retain(|&taken| taken != error.stream);
                    self.connection.release(error.stream);
                }
                _ => {}
            }
        }
    }

    fn respond(&mut self, stream: StreamId, length: usize, fields: usize, malformed: bool) {
        let mut response = Response::builder().status(if malformed { 103 } else { 200 });
        if fields > 0 {
            response = response.header("x-long", "y".repeat(fields));
        }
        let response = response.body(()).expect("a response");
        let body = Payload::from(Bytes::from(vec![stream.value() as u8; length]));
        let sent = match self.short {
            true => self.connection.respond(stream, &response, &body),
            false => self.respond_in_parts(stream, &response, body),
        };
        self.events.push(format!("{sent:?}"));
        if sent.is_err() {
            let _ = self.connection.reset(stream, ErrorCode::INTERNAL_ERROR);
            self.connection.release(stream);
        }
    }

    fn respond_in_parts(
        &mut self,
        stream: StreamId,
        response: &Response<()>,
        body: Payload,
    ) -> Result<(), fullbore_proto::UsageError> {
        let end = body.is_empty();
        self.connection.send_response(stream, response, end)?;
        if !end {
            self.connection.send_data(stream, body, true)?;
        }
        self.connection.release(stream);
        Ok(())
    }

    /// Takes a step; false if it may have reset a stream, whose response may have left or not.
    fn step(&mut self, step: &Step) -> bool {
        match *step {
            Step::Get { urgency, fields } => {
                let stream = self.next_stream();
                let (value, long) = (urgency.map(|urgency| format!("u={urgency}")), "z".repeat(fields));
                let mut all = Vec::new();
                all.extend(value.as_deref().map(|value| ("priority", value)));
                all.extend((fields > 0).then_some(("x-long", &long[..])));
                let block = frames::request_block_with("GET", &all);
                self.hear(frames::headers(
                    stream,
                    frames::END_HEADERS | frames::END_STREAM,
                    &block,
                ));
            }
            Step::Post => {
                let stream = self.next_stream();
                self.hear(frames::post(stream));
            }
            Step::Data { back, length, end } => {
                if let Some(stream) = self.back(back) {
                    let flags = if end { frames::END_STREAM } else { 0 };
                    self.hear(frames::data(stream, flags, &vec![7; length]));
                }
            }
            Step::Reset { back } => {
                if let Some(stream) = self.back(back) {
                    self.hear(frames::reset(stream, ErrorCode::CANCEL));
                    return false;
                }
            }
            Step::WindowUpdate { back, increment } => {
                let stream = match back {
                    Some(back) => self.back(back),
                    None => Some(0),
                };
                if let Some(stream) = stream {
                    self.hear(frames::window_update(stream, increment));
                }
            }
            Step::PriorityUpdate { back, urgency } => {
                if let Some(stream) = self.back(back) {
                    self.hear(frames::priority_update(stream, &format!("u={urgency}")));
                }
            }
            // SETTINGS_INITIAL_WINDOW_SIZE.
            Step::InitialWindow(size) => self.hear(frames::settings(&[(4, size)])),
            Step::SecondHeaders { back } => {
                if let Some(stream) = self.back(back) {
                    self.hear(frames::get(stream));
                }
            }
            Step::Ping => self.hear(frames::ping(0, b"12345678")),
            Step::EndOfTransport => {
                self.half_closed = true;
                // It resets streams whose requests are incomplete, in no order: all are taken at once.
                let has_reset = self.connection.end_of_transport(self.now);
                self.take(usize::MAX);
                return !has_reset;
            }
            Step::Take(count) => self.take(count),
            Step::Respond {
                at,
                length,
                fields,
                malformed,
            } => {
                if at < self.taken.len() {
                    let stream = self.taken.remove(at);
                    self.respond(stream, length, fields, malformed);
                }
            }
            Step::Inform { at } => {
                if let Some(&stream) = self.taken.get(at) {
                    let response = Response::builder().status(103).body(()).expect("a response");
                    let _ = self.connection.send_informational(stream, &response);
                }
            }
            Step::Drop { at } => {
                if at < self.taken.len() {
                    let stream = self.taken.remove(at);
                    self.connection.release(stream);
                }
            }
            Step::Transmit(most) => self.transmit(most),
            Step::Wait(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.connection.handle_timeout(self.now);
            }
            Step::ShutDown => self.connection.shutdown(self.now),
        }
        true
    }

    /// The peer opens all windows, and the owner answers all requests.
    fn finish(&mut self) {
        self.half_closed = false;
        self.take(usize::MAX);
        for stream in std::mem::take(&mut self.taken) {
            self.respond(stream, 10, 0, false);
        }
        self.hear(frames::settings(&[(4, 1 << 20)]));
        self.hear(frames::window_update(0, 1 << 28));
        // What waits for a larger frame leaves after a time.
        for _ in 0..3 {
            self.transmit_all();
            self.now = self.now + Duration::from_secs(1);
            self.connection.handle_timeout(self.now);
        }
    }
}

/// Plays the script on both sides, and compares them.
fn compare(settings: &Settings, script: &[Step]) {
    let mut sides = [true, false].map(|short| Side::new(short, settings.config()));
    let mut exact = true;
    for step in script {
        if matches!(step, Step::Get { .. } | Step::Post) {
            // A stream whose response has not left counts against the limit. Either side may have more of them: what is
            // written ahead leaves before an urgent response that waits.
            let [short, long] = sides.each_ref().map(|side| side.connection.stream_count());
            if short != long && short.max(long) >= settings.streams as usize {
                continue;
            }
        }
        if let Step::Data { back, .. } | Step::SecondHeaders { back } = *step {
            // What answers a frame behind END_STREAM depends on whether the response has left, and it drops what has not.
            let unsent = sides.each_mut().map(|side| {
                side.transmit_all();
                let stream = side.back(back).map(id);
                stream.and_then(|stream| side.connection.send_queue_bytes(stream))
            });
            if unsent[0] != unsent[1] {
                continue;
            }
        }
        for side in &mut sides {
            exact &= side.step(step);
        }
        let [short, long] = &sides;
        assert_eq!(short.connection.error(), long.connection.error(), "{step:?}");
    }
    for side in &mut sides {
        side.finish();
    }
    let [short, long] = &mut sides;
    assert_eq!(short.connection.error(), long.connection.error());
    let has_failed = short.connection.error().is_some();
    // What one step does to several streams has no order.
    let sorted = |events: &[String]| {
        let (mut resets, others): (Vec<_>, Vec<_>) = events
            .iter()
            .cloned()
            .partition(|event| event.starts_with("Reset"));
        resets.sort();
        (resets, others)
    };
    assert_eq!(sorted(&short.events), sorted(&long.events));
    for (stream, long) in &long.carried {
        let short = &short.carried[stream];
        assert_eq!(short.blocks, long.blocks, "stream {stream}");
        match exact && !has_failed {
            true => assert_eq!(short, long, "stream {stream}"),
            // What was written ahead has left, and what was queued was dropped; or others were ahead in the window.
            false => assert!(
                short.body.starts_with(&long.body) || long.body.starts_with(&short.body),
                "stream {stream}"
            ),
        }
    }
    assert_eq!(short.carried.len(), long.carried.len());
    if !has_failed {
        assert_eq!(short.connection.stream_count(), long.connection.stream_count());
        assert_eq!(short.connection.leased(), long.connection.leased());
        assert_eq!(short.connection.is_drained(), long.connection.is_drained());
    }
    if exact && !has_failed {
        assert_eq!(
            short.connection.send_window_remaining(),
            long.connection.send_window_remaining()
        );
        assert_eq!(short.of_connection, long.of_connection);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_response_in_one_call_carries_what_it_carries_in_three(settings in settings(), script in steps()) {
        compare(&settings, &script);
    }
}
