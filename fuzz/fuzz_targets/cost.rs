//! The most work for the fewest octets: a connection with many streams, and a peer that sends it anything. What it works is
//! bounded by the octets, and by what the peer has paid for out of a limit.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::{Buf, Bytes};
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType};
use fullbore_proto::{
    Config, Connection, Event, KeepAlive, Limit, PeerLimit, Priority, StreamId, Time, Transmit,
};
use http::{Request, Response};
use libfuzzer_sys::fuzz_target;

/// Streams looked up, and entries moved, for an octet: what a frame of nine octets takes at most, by its ninth.
const TOUCHED_AN_OCTET: u64 = 40;
const WORK_AN_OCTET: u64 = 16;

/// The same for a stream that is opened, for a frame that is sent, and for a turn in which nothing happens.
const FOR_A_STREAM: u64 = 64;
const FOR_A_FRAME_SENT: u64 = 16;
const FOR_A_TURN: u64 = 400;

/// What the peer may pay for: so many tokens, and 128 streams for each.
const SETTINGS: u32 = 50;
const STREAMS_PAID: u64 = SETTINGS as u64 * 128;
const TOUCHED_A_STREAM_PAID: u64 = 24;

/// What the streams of a server wait for.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Wait {
    Bodies,
    Turn,
    IncrementalTurn,
    Windows,
}

#[derive(Arbitrary, Debug)]
enum Piece {
    Octets(Vec<u8>),
    /// A frame of this kind on a stream, and the same on others.
    Frames {
        kind: u8,
        flags: u8,
        stream: u16,
        step: u16,
        count: u8,
        payload: Vec<u8>,
    },
    Settings(Vec<(u8, u16)>),
    Windows {
        stream: u16,
        step: u16,
        count: u8,
        increment: u16,
    },
    /// Time passes, so that frames are held back no longer.
    Micros(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    client: bool,
    wait: Wait,
    /// 1, 8, 64 or 512 streams.
    streams: u8,
    pieces: Vec<Piece>,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        frame_type: FrameType(kind),
        flags: Flags(flags),
        stream: StreamId::new(stream),
    };
    [&header.to_octets()[..], payload].concat()
}

struct Run {
    connection: Connection,
    out: Transmit,
    now: Time,
    octets: u64,
    turns: u64,
}

impl Run {
    fn new(connection: Connection) -> Self {
        Run {
            connection,
            out: Transmit::new(),
            now: Time::ZERO,
            octets: 0,
            turns: 0,
        }
    }

    /// Everything that a driver does with a read.
    fn hear(&mut self, octets: &[u8]) {
        self.octets += octets.len() as u64;
        self.turns += 1;
        let connection = &mut self.connection;
        let _ = connection.receive(Bytes::copy_from_slice(octets), self.now);
        while let Some(event) = connection.poll_event() {
            if let Event::Reset(error) = event {
                connection.release(error.stream);
            }
        }
        while connection.wants_transmit() {
            connection.transmit(&mut self.out, self.now);
            self.out.advance(self.out.remaining());
            self.turns += 1;
        }
        if connection.next_deadline().is_some_and(|at| at <= self.now) {
            connection.handle_timeout(self.now);
        }
    }

    /// The same frame on streams that follow each other by `step`.
    fn hear_all(&mut self, count: u8, stream: u16, step: u16, frame: impl Fn(u32) -> Vec<u8>) {
        let octets = (0..=u32::from(count)).flat_map(|index| {
            let number = u32::from(stream) + index * (2 * u32::from(step) + 2);
            frame(number % 0x2000)
        });
        self.hear(&octets.collect::<Vec<u8>>());
    }

    fn greet(&mut self, client: bool, first_settings: &[u8]) {
        if !client {
            self.hear(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        self.hear(&frame(4, 0, 0, first_settings));
        self.hear(&frame(4, 1, 0, &[]));
    }

    /// A server with streams that wait.
    fn serve(&mut self, streams: u32, wait: Wait) {
        let window: &[u8] = match wait {
            Wait::Windows => &[0, 4, 0, 0, 0, 0],
            _ => &[],
        };
        self.greet(false, window);
        for index in 0..streams {
            let number = 2 * index + 1;
            let Some(stream) = StreamId::new(number) else {
                continue;
            };
            let with_body = matches!(wait, Wait::Bodies);
            let block = [0x82, 0x86, 0x84, 0x41, 1, b'h'];
            self.hear(&frame(1, 4 | u8::from(!with_body), number, &block));
            if with_body {
                continue;
            }
            if let (Wait::IncrementalTurn, Some(priority)) = (wait, Priority::new(3, true)) {
                let _ = self.connection.prioritize(stream, priority);
            }
            let _ = self.connection.send_response(stream, &Response::new(()), false);
            let _ = self
                .connection
                .send_data(stream, Bytes::from_static(&[0; 20_000]), true);
        }
        self.hear(&[]);
    }

    /// A client with requests under way, and as many that wait.
    fn request(&mut self, streams: u32) {
        let [a, b, c, d] = streams.to_be_bytes();
        self.greet(true, &[0, 3, a, b, c, d]);
        for _ in 0..2 * streams {
            if let Ok(request) = Request::builder().uri("http://h/").body(()) {
                let _ = self.connection.open(request, true);
            }
        }
        self.hear(&[]);
    }

    fn perform(&mut self, piece: &Piece) {
        match piece {
            Piece::Octets(octets) => self.hear(octets),
            Piece::Frames {
                kind,
                flags,
                stream,
                step,
                count,
                payload,
            } => self.hear_all(*count, *stream, *step, |number| {
                frame(kind % 18, *flags, number, payload)
            }),
            Piece::Settings(entries) => {
                let entry = |&(identifier, value): &(u8, u16)| {
                    let [high, low] = value.to_be_bytes();
                    [0, identifier % 10, 0, 0, high, low]
                };
                let payload: Vec<u8> = entries.iter().flat_map(entry).collect();
                self.hear(&frame(4, 0, 0, &payload));
            }
            Piece::Windows {
                stream,
                step,
                count,
                increment,
            } => self.hear_all(*count, *stream, *step, |number| {
                frame(8, 0, number, &u32::from(*increment).to_be_bytes())
            }),
            Piece::Micros(micros) => {
                self.now = self.now + Duration::from_micros(u64::from(*micros));
                self.hear(&[]);
            }
        }
    }
}

/// Levels of work for an octet, each of which is code of its own: whoever reaches a new one is kept by the fuzzer, which so
/// climbs from one to the next.
macro_rules! levels {
    ($($level:ident)*) => {
        $(#[inline(never)] fn $level(seen: u64) { std::hint::black_box((stringify!($level), seen)); })*
        const LEVELS: &[fn(u64)] = &[$($level),*];
    };
}
levels!(l0 l1 l2 l3 l4 l5 l6 l7 l8 l9 l10 l11 l12 l13 l14 l15 l16 l17 l18 l19 l20 l21 l22 l23);

/// Two levels for each doubling.
fn climb(worked: u64, octets: u64) {
    let ratio = worked * worked * 16 / (octets * octets).max(1);
    let level = ratio.checked_ilog2().map_or(0, |level| level as usize);
    if let Some(reached) = LEVELS.get(level) {
        reached(worked);
    }
}

fuzz_target!(|input: Input| {
    let mut config = Config::default();
    config.set_limit(PeerLimit::Settings, Limit::new(SETTINGS, 0));
    config.set_idle_timeout(None);
    config.set_keep_alive(KeepAlive::Never);
    config.set_send_timeout(None);
    let streams = 1 << (3 * u32::from(input.streams % 4));
    let mut run = Run::new(match input.client {
        true => Connection::client(config, Time::ZERO),
        false => Connection::server(config, Time::ZERO),
    });
    match input.client {
        true => run.request(streams),
        false => run.serve(streams, input.wait),
    }
    let opened = u64::from(2 * streams);
    let before = run.connection.stats().sent_frames.total();
    let (touched, work) = (run.connection.streams_touched(), run.connection.work());
    (run.octets, run.turns) = (0, 0);
    for piece in &input.pieces {
        run.perform(piece);
        if run.connection.error().is_some() {
            break;
        }
    }
    let connection = &run.connection;
    let touched = connection.streams_touched() - touched;
    let work = connection.work() - work;
    let sent = connection.stats().sent_frames.total() - before;
    climb(touched, run.octets + FRAME_HEADER_LENGTH as u64);
    climb(work, run.octets + FRAME_HEADER_LENGTH as u64);
    let most_work = WORK_AN_OCTET * run.octets + 2 * opened + 2 * STREAMS_PAID;
    assert!(work <= most_work, "{work} for {} octets", run.octets);
    let most_touched = TOUCHED_AN_OCTET * run.octets
        + FOR_A_STREAM * opened
        + FOR_A_FRAME_SENT * sent
        + FOR_A_TURN * run.turns
        + TOUCHED_A_STREAM_PAID * STREAMS_PAID;
    assert!(touched <= most_touched, "{touched} for {} octets", run.octets);
});
