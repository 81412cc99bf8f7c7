//! The peer: what it has allowed and been allowed, what it has heard and said, and its habits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, Flags, FrameHeader, FrameType};
use fullbore_proto::{ErrorCode, Role, StreamId, Time};

use crate::support::{frames, pattern};

const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// When a window that the peer advertises is refilled: once it is at `below` or under that, up to `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refilling {
    pub(super) below: u32,
    pub(super) to: u32,
}

/// How a peer behaves.
#[derive(Debug, Clone)]
pub(super) struct Habits {
    /// What its SETTINGS say of windows and streams.
    pub(super) initial_window: u32,
    pub(super) max_streams: Option<u32>,
    /// When its SETTINGS come.
    pub(super) settings_after: Duration,
    pub(super) stream: Refilling,
    pub(super) connection: Refilling,
    /// How long it leaves a window empty before it refills it.
    pub(super) refill_after: Duration,
    /// Whether it leaves the windows of streams alone until its plan is over.
    pub(super) holds_back: bool,
    /// How long it takes to acknowledge our SETTINGS, and whether it goes by them no sooner.
    pub(super) ack_after: Duration,
    pub(super) applies_late: bool,
    /// How much DATA of its own is in one frame at most, and the padding of each.
    pub(super) piece: u32,
    pub(super) padding: Option<u8>,
    /// Whether it answers a request before that is whole.
    pub(super) answers_early: bool,
}

/// What the peer changes on its way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    InitialWindow(u32),
    MaxFrameSize(u32),
    MaxStreams(u32),
    Ping,
}

/// What no peer may do, and the error that RFC 9113 names for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wrong {
    /// Section 6.9.1.
    ConnectionWindowOverflow,
    /// Section 6.5.2.
    InitialWindowTooLarge,
    /// Section 6.5.2.
    MaxFrameSizeTooSmall,
    /// Section 6.9.
    EmptyUpdate,
    /// Section 4.2.
    LongFrame,
}

impl Wrong {
    pub(super) fn code(self) -> ErrorCode {
        match self {
            Wrong::ConnectionWindowOverflow | Wrong::InitialWindowTooLarge => ErrorCode::FLOW_CONTROL_ERROR,
            Wrong::MaxFrameSizeTooSmall | Wrong::EmptyUpdate => ErrorCode::PROTOCOL_ERROR,
            Wrong::LongFrame => ErrorCode::FRAME_SIZE_ERROR,
        }
    }
}

/// One stream, as the peer knows it.
#[derive(Debug)]
pub(super) struct Known {
    /// What we may still send on it.
    window: i64,
    pub(super) received: u64,
    /// How much is to come.
    pub(super) expected: u64,
    /// Our END_STREAM has come.
    pub(super) whole: bool,
    /// What the peer may still send.
    credit: i64,
    length: u64,
    pub(super) sent: u64,
    headed: bool,
    pub(super) finished: bool,
    /// Either side has reset it.
    pub(super) reset: Option<ErrorCode>,
}

impl Known {
    fn is_open(&self) -> bool {
        self.reset.is_none() && !(self.whole && self.finished)
    }
}

/// The peer of a connection that has the role `faces`.
#[derive(Debug)]
pub(super) struct Peer {
    faces: Role,
    habits: Habits,
    pub(super) streams: BTreeMap<u32, Known>,
    /// Of streams that our client opens: how much comes and how much is to be answered.
    pub(super) promised: BTreeMap<u32, (u64, u64)>,
    window: i64,
    credit: i64,
    /// What our SETTINGS say of streams' windows, as far as the peer goes by them.
    their_initial: i64,
    their_max_frame: usize,
    /// What its own SETTINGS say, as far as they are acknowledged, and those that are not.
    initial: i64,
    max_frame: u32,
    max_streams: u32,
    unacknowledged: VecDeque<Vec<(u16, u32)>>,
    /// SETTINGS of ours that it has not acknowledged: when it will.
    owes: VecDeque<(Time, Vec<(u16, u32)>)>,
    settings_at: Option<Time>,
    refill_at: Option<Time>,
    relented: bool,
    incoming: Vec<u8>,
    preface: usize,
    out: Vec<u8>,
    pub(super) go_away: Option<ErrorCode>,
    /// After what it must not do it says nothing more.
    silent: bool,
}

impl Peer {
    pub(super) fn new(faces: Role, habits: Habits) -> Self {
        Peer {
            faces,
            streams: BTreeMap::new(),
            promised: BTreeMap::new(),
            window: 65_535,
            credit: 65_535,
            their_initial: 65_535,
            their_max_frame: 16_384,
            initial: 65_535,
            max_frame: 16_384,
            max_streams: u32::MAX,
            unacknowledged: VecDeque::new(),
            owes: VecDeque::new(),
            settings_at: Some(Time::ZERO + habits.settings_after),
            refill_at: None,
            relented: false,
            incoming: Vec::new(),
            preface: if faces == Role::Client { 24 } else { 0 },
            out: Vec::new(),
            go_away: None,
            silent: false,
            habits,
        }
    }

    /// What we may send by the connection's window, and what the peer may.
    pub(super) fn windows(&self) -> (i64, i64) {
        (self.window, self.credit)
    }

    /// When it does something by itself.
    pub(super) fn next_time(&self) -> Option<Time> {
        if self.silent {
            return None;
        }
        let owes = self.owes.front().map(|&(at, _)| at);
        let later = [owes, self.refill_at].into_iter().flatten().min();
        self.settings_at.or(later)
    }

    /// Opens a stream with a body of `length`, and expects `answer`.
    pub(super) fn open(&mut self, stream: u32, length: u64, answer: u64) {
        let path = format!("/{answer}");
        let method = if length == 0 { "GET" } else { "POST" };
        let block = frames::block(&[
            (":method", method),
            (":scheme", "http"),
            (":authority", "example.com"),
            (":path", &path),
        ]);
        let end = if length == 0 { frames::END_STREAM } else { 0 };
        self.say(&frames::headers(stream, frames::END_HEADERS | end, &block));
        let known = self.known(answer, length);
        self.streams.insert(stream, known);
        self.stream(stream).headed = true;
        self.stream(stream).finished = length == 0;
    }

    /// Resets a stream, if it is under way.
    pub(super) fn reset(&mut self, stream: u32) {
        let open = self.streams.get_mut(&stream).filter(|known| known.is_open());
        if let Some(known) = open {
            known.reset = Some(ErrorCode::CANCEL);
            self.say(&frames::reset(stream, ErrorCode::CANCEL));
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        if self.settings_at.is_some() {
            return; // The first SETTINGS come first.
        }
        match change {
            Change::InitialWindow(size) => self.set(vec![(INITIAL_WINDOW_SIZE, size)]),
            Change::MaxFrameSize(size) => self.set(vec![(MAX_FRAME_SIZE, size)]),
            Change::MaxStreams(count) => self.set(vec![(MAX_CONCURRENT_STREAMS, count)]),
            Change::Ping => self.say(&frames::ping(0, b"hostile!")),
        }
    }

    /// Its plan is over: what it has held back it gives.
    pub(super) fn relent(&mut self) {
        self.relented = true;
        self.say_settings();
        self.change(Change::MaxStreams(100));
        self.change(Change::InitialWindow(self.habits.stream.to));
    }

    /// Does what it must not, as its last act.
    pub(super) fn err(&mut self, wrong: Wrong) {
        let octets = match wrong {
            Wrong::ConnectionWindowOverflow => {
                // The first of them is right where the window is empty, and may be used before the second comes.
                self.window += i64::from(i32::MAX);
                frames::window_update(0, i32::MAX as u32).repeat(2)
            }
            Wrong::InitialWindowTooLarge => frames::settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]),
            Wrong::MaxFrameSizeTooSmall => frames::settings(&[(MAX_FRAME_SIZE, 16_383)]),
            Wrong::EmptyUpdate => frames::window_update(0, 0),
            Wrong::LongFrame => frames::ping(0, b"12345678")
                .iter()
                .enumerate()
                .map(|(at, &octet)| if at == 0 { 0xff } else { octet })
                .collect(),
        };
        self.say_settings();
        self.say(&octets);
        self.silent = true;
    }

    /// Takes in octets.
    pub(super) fn hear(&mut self, octets: &[u8], now: Time) {
        self.incoming.extend_from_slice(octets);
        let skip = self.preface.min(self.incoming.len());
        assert_eq!(
            self.incoming[..skip],
            frames::PREFACE[24 - self.preface..][..skip]
        );
        self.preface -= skip;
        let mut rest = &self.incoming.split_off(0)[skip..];
        while let Some(header) = rest.first_chunk::<FRAME_HEADER_LENGTH>() {
            let header = FrameHeader::parse(header);
            let length = FRAME_HEADER_LENGTH + header.length as usize;
            if rest.len() < length {
                break;
            }
            let payload = &rest[FRAME_HEADER_LENGTH..length];
            self.on_frame(header, payload, now);
            rest.advance(length);
        }
        self.incoming = rest.to_vec();
    }

    /// Its turn: what it says now.
    pub(super) fn speak(&mut self, now: Time) -> Bytes {
        if self.settings_at.is_some_and(|at| at <= now) {
            self.say_settings();
        }
        if self.settings_at.is_none() && !self.silent {
            while self.owes.front().is_some_and(|&(at, _)| at <= now) {
                self.acknowledge();
            }
            self.refill(now);
            let streams: Vec<_> = self.streams.keys().copied().collect();
            for stream in streams {
                self.answer(stream);
                self.send(stream);
            }
        }
        Bytes::from(std::mem::take(&mut self.out))
    }

    fn say(&mut self, octets: &[u8]) {
        if !self.silent {
            self.say_settings();
            self.out.extend_from_slice(octets);
        }
    }

    /// Its first words, unless they have been said.
    fn say_settings(&mut self) {
        if self.settings_at.take().is_none() {
            return;
        }
        if self.faces == Role::Server {
            self.out.extend_from_slice(frames::PREFACE);
        }
        let mut entries = vec![(INITIAL_WINDOW_SIZE, self.habits.initial_window)];
        entries.extend(
            self.habits
                .max_streams
                .map(|count| (MAX_CONCURRENT_STREAMS, count)),
        );
        self.set(entries);
    }

    fn set(&mut self, entries: Vec<(u16, u32)>) {
        self.say(&frames::settings(&entries));
        self.unacknowledged.push_back(entries);
    }

    fn known(&self, expected: u64, length: u64) -> Known {
        Known {
            window: self.initial,
            received: 0,
            expected,
            whole: false,
            credit: self.their_initial,
            length,
            sent: 0,
            headed: false,
            finished: false,
            reset: None,
        }
    }

    #[track_caller]
    fn stream(&mut self, stream: u32) -> &mut Known {
        self.streams
            .get_mut(&stream)
            .expect("a stream that was not opened")
    }

    fn on_frame(&mut self, header: FrameHeader, payload: &[u8], now: Time) {
        assert!(self.go_away.is_none(), "{header:?} after GOAWAY");
        let stream = header.stream.map_or(0, StreamId::value);
        let word = payload
            .first_chunk::<4>()
            .map_or(0, |octets| u32::from_be_bytes(*octets));
        let most = self.most(MAX_FRAME_SIZE, self.max_frame);
        assert!(header.length <= most, "{header:?} of {most}");
        let end = header.flags.has(Flags::END_STREAM);
        match header.frame_type {
            FrameType::HEADERS => self.on_headers(stream, end),
            FrameType::DATA => self.on_data(stream, payload, end),
            FrameType::RST_STREAM => {
                let known = self.stream(stream);
                known.reset.get_or_insert(ErrorCode(word));
            }
            FrameType::SETTINGS if header.flags.has(Flags::ACK) => self.on_acknowledgement(),
            FrameType::SETTINGS => {
                let entries = payload.chunks(6).map(|entry| {
                    let value = u32::from_be_bytes(entry[2..].try_into().unwrap());
                    (u16::from_be_bytes([entry[0], entry[1]]), value)
                });
                let entries: Vec<_> = entries.collect();
                if !self.habits.applies_late {
                    self.apply(&entries);
                }
                self.owes.push_back((now + self.habits.ack_after, entries));
            }
            FrameType::PING if !header.flags.has(Flags::ACK) => {
                self.say(&frames::ping(frames::ACK, payload.first_chunk().unwrap()));
            }
            FrameType::WINDOW_UPDATE if stream == 0 => self.credit += i64::from(word),
            FrameType::WINDOW_UPDATE => self.stream(stream).credit += i64::from(word),
            FrameType::GOAWAY => {
                self.go_away = Some(ErrorCode(u32::from_be_bytes(payload[4..8].try_into().unwrap())))
            }
            _ => {}
        }
    }

    fn on_headers(&mut self, stream: u32, end: bool) {
        if self.faces == Role::Client && !self.streams.contains_key(&stream) {
            let (expected, length) = self.promised[&stream];
            let known = self.known(expected, length);
            let open = self.streams.values().filter(|known| known.is_open()).count();
            let most = self.most(MAX_CONCURRENT_STREAMS, self.max_streams);
            assert!(
                (open as u64) < u64::from(most),
                "stream {stream} is one too many: {open} of {most}"
            );
            self.streams.insert(stream, known);
        }
        self.stream(stream).whole |= end;
    }

    fn on_data(&mut self, stream: u32, payload: &[u8], end: bool) {
        let length = payload.len() as i64;
        assert!(
            length == 0 || length <= self.window,
            "{length} on a connection's window of {}",
            self.window
        );
        self.window -= length;
        let known = self.stream(stream);
        if known.reset.is_some() {
            return;
        }
        assert!(
            length == 0 || length <= known.window,
            "{length} on a window of {}",
            known.window
        );
        known.window -= length;
        assert!(!known.whole, "DATA on stream {stream} after its end");
        let id = StreamId::new(stream).unwrap();
        assert!(
            pattern::matches(id, known.received, payload),
            "other octets than were sent"
        );
        known.received += payload.len() as u64;
        known.whole |= end;
    }

    /// The most that a setting allows: what is acknowledged, or what is still to be.
    fn most(&self, setting: u16, now: u32) -> u32 {
        let entries = self.unacknowledged.iter().flatten();
        let later = entries
            .filter(|&&(name, _)| name == setting)
            .map(|&(_, value)| value);
        later.fold(now, u32::max)
    }

    fn on_acknowledgement(&mut self) {
        for (name, value) in self
            .unacknowledged
            .pop_front()
            .expect("nothing is to be acknowledged")
        {
            match name {
                MAX_FRAME_SIZE => self.max_frame = value,
                MAX_CONCURRENT_STREAMS => self.max_streams = value,
                _ => {
                    let delta = i64::from(value) - self.initial;
                    self.initial = i64::from(value);
                    self.streams.values_mut().for_each(|known| known.window += delta);
                }
            }
        }
    }

    fn acknowledge(&mut self) {
        let (_, entries) = self.owes.pop_front().expect("it owes nothing");
        if self.habits.applies_late {
            self.apply(&entries);
        }
        self.say(&frames::settings_ack());
    }

    fn apply(&mut self, entries: &[(u16, u32)]) {
        for &(name, value) in entries {
            match name {
                MAX_FRAME_SIZE => self.their_max_frame = value as usize,
                INITIAL_WINDOW_SIZE => {
                    let delta = i64::from(value) - self.their_initial;
                    self.their_initial = i64::from(value);
                    self.streams.values_mut().for_each(|known| known.credit += delta);
                }
                _ => {}
            }
        }
    }

    /// Refills what is low, once it has been so for long enough.
    fn refill(&mut self, now: Time) {
        let Habits {
            stream: of_streams,
            connection,
            ..
        } = self.habits;
        let is_low = |window: i64, refilling: Refilling| window <= i64::from(refilling.below);
        let leaves_streams = self.habits.holds_back && !self.relented;
        let low_stream = |known: &Known| {
            !leaves_streams && known.is_open() && !known.whole && is_low(known.window, of_streams)
        };
        let low_connection = is_low(self.window, connection);
        if !low_connection && !self.streams.values().any(low_stream) {
            self.refill_at = None;
            return;
        }
        let at = *self.refill_at.get_or_insert(now + self.habits.refill_after);
        if at > now {
            return;
        }
        self.refill_at = None;
        if low_connection {
            let increment = (i64::from(connection.to) - self.window) as u32;
            self.window = i64::from(connection.to);
            self.say(&frames::window_update(0, increment));
        }
        let low: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, known)| low_stream(known))
            .map(|(&id, _)| id)
            .collect();
        for id in low {
            let known = self.stream(id);
            let increment = (i64::from(of_streams.to) - known.window) as u32;
            known.window = i64::from(of_streams.to);
            self.say(&frames::window_update(id, increment));
        }
    }

    /// The response HEADERS, once it is time for it.
    fn answer(&mut self, stream: u32) {
        let early = self.habits.answers_early;
        let known = self.stream(stream);
        if known.headed || known.reset.is_some() || !(known.whole || early) {
            return;
        }
        known.headed = true;
        known.finished = known.length == 0;
        let end = if known.finished { frames::END_STREAM } else { 0 };
        let block = frames::response_block("200", &[]);
        self.say(&frames::headers(stream, frames::END_HEADERS | end, &block));
    }

    /// As much DATA as the windows allow.
    fn send(&mut self, stream: u32) {
        loop {
            let (piece, padding, connection) = (self.habits.piece, self.habits.padding, self.credit);
            let max_frame = self.their_max_frame as u64;
            let known = self.stream(stream);
            if !known.headed || known.finished || known.reset.is_some() {
                return;
            }
            let Ok(credit @ 1..) = u64::try_from(known.credit.min(connection)) else {
                return;
            };
            // Padding and its length count as DATA does (section 6.9.1).
            let room = credit.min(max_frame);
            let framing = padding.map_or(0, |padding| u64::from(padding) + 1);
            let framing = if framing < room { framing } else { 0 };
            let length = (known.length - known.sent)
                .min(room - framing)
                .min(u64::from(piece));
            let id = StreamId::new(stream).unwrap();
            let data = pattern::slice(id, known.sent, length);
            let length = data.len() as u64;
            known.sent += length;
            known.finished = known.sent == known.length;
            known.credit -= (length + framing) as i64;
            self.credit -= (length + framing) as i64;
            let end = if self.stream(stream).finished {
                frames::END_STREAM
            } else {
                0
            };
            let octets = match framing {
                0 => frames::data(stream, end, &data),
                _ => {
                    let zeros = vec![0; framing as usize - 1];
                    let payload = [&[zeros.len() as u8], &data[..], &zeros].concat();
                    frames::data(stream, end | frames::PADDED, &payload)
                }
            };
            self.say(&octets);
        }
    }
}
