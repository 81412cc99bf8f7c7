//! A connection that faces a peer of hand-made frames: what is said to it, what it answers, and whether it lives.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, FrameHeader, FrameType};
use fullbore_proto::{
    Config, Connection, ConnectionError, ErrorCode, Event, PeerLimit, ReadState, Role, StreamId, Time,
    Transmit,
};

use super::{frames, patient};

/// A frame that the connection sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) header: FrameHeader,
    pub(crate) payload: Vec<u8>,
}

impl Heard {
    pub(crate) fn stream(&self) -> u32 {
        self.header.stream.map_or(0, StreamId::value)
    }

    /// The four octets at `at` as a number.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A connection and what was heard from it.
pub(crate) struct Faced {
    pub(crate) connection: Connection,
    pub(crate) now: Time,
    /// Everything since [`Faced::heard`] was called last.
    unheard: Vec<Heard>,
    events: VecDeque<Event>,
    skip_preface: bool,
}

fn request(method: &str) -> http::Request<()> {
    let request = http::Request::builder().method(method);
    request.uri("http://example.com/").body(()).unwrap()
}

/// The stream of this number.
pub(crate) fn id(stream: u32) -> StreamId {
    StreamId::new(stream).unwrap()
}

impl Faced {
    /// A server that has been greeted by a client: preface, SETTINGS and the acknowledgement are past.
    pub(crate) fn server(config: Config) -> Self {
        Self::silent_server(config).greeted()
    }

    /// The peer has said what comes first.
    pub(crate) fn greeted(mut self) -> Self {
        if self.connection.role() == Role::Server {
            self.says(frames::PREFACE);
        }
        self.says(&frames::settings(&[]));
        self.says(&frames::settings_ack());
        self.heard();
        self.events();
        self
    }

    /// A server to which nothing has been said.
    pub(crate) fn silent_server(config: Config) -> Self {
        Self::new(Connection::server(patient(config), Time::ZERO))
    }

    /// A client that has been greeted by a server.
    pub(crate) fn client(config: Config) -> Self {
        Self::silent_client(config).greeted()
    }

    /// A client to which nothing has been said.
    pub(crate) fn silent_client(config: Config) -> Self {
        Self::new(Connection::client(patient(config), Time::ZERO))
    }

    /// Whatever this connection is, before anything was said to it.
    pub(crate) fn new(connection: Connection) -> Self {
        let skip_preface = connection.role() == Role::Client;
        let mut faced = Faced {
            connection,
            now: Time::ZERO,
            unheard: Vec::new(),
            events: VecDeque::new(),
            skip_preface,
        };
        faced.listen();
        faced
    }

    /// A client that has sent a GET on stream 1, of which it awaits the response.
    pub(crate) fn client_with_request(config: Config, end: bool) -> Self {
        let mut faced = Self::client(config);
        let method = if end { "GET" } else { "POST" };
        faced.opens(method, end);
        faced
    }

    /// The client opens the next stream.
    pub(crate) fn opens(&mut self, method: &str, end: bool) -> StreamId {
        let request = request(method);
        let stream = self.connection.open(request, end).unwrap();
        self.listen();
        self.heard();
        stream
    }

    /// As [`Self::opens`]; what the client says is still to be heard.
    pub(crate) fn opens_loudly(&mut self, method: &str) -> StreamId {
        self.connection.open(request(method), true).unwrap()
    }

    /// A server that has answered a GET with the head of a response, whose body follows.
    pub(crate) fn answering(stream: u32) -> Self {
        let mut faced = Self::server(Config::default());
        faced.says(&frames::get(stream));
        let response = http::Response::new(());
        faced
            .connection
            .send_response(id(stream), &response, false)
            .unwrap();
        faced.heard();
        faced.events();
        faced
    }

    /// The server answers and ends the stream.
    pub(crate) fn answers(&mut self, stream: u32) {
        self.connection
            .send_response(id(stream), &http::Response::new(()), true)
            .unwrap();
        self.connection.release(id(stream));
        self.listen();
    }

    /// The peer says octets, in one read.
    pub(crate) fn tries(&mut self, octets: &[u8]) -> Result<(), ConnectionError> {
        let result = self.connection.receive(Bytes::copy_from_slice(octets), self.now);
        while let Some(event) = self.connection.poll_event() {
            self.events.push_back(event);
        }
        self.listen();
        result
    }

    /// The peer says octets, whatever comes of it.
    pub(crate) fn says(&mut self, octets: &[u8]) {
        let _ = self.tries(octets);
    }

    /// Takes in all that the connection has to transmit.
    pub(crate) fn listen(&mut self) {
        let mut rounds = 0;
        while self.connection.wants_transmit() {
            let mut out = Transmit::new();
            self.connection.transmit(&mut out, self.now);
            let mut octets = out.copy_to_bytes(out.remaining());
            if std::mem::take(&mut self.skip_preface) {
                assert!(octets.starts_with(frames::PREFACE));
                octets.advance(frames::PREFACE.len());
            }
            while octets.has_remaining() {
                let header = FrameHeader::parse(octets.first_chunk::<FRAME_HEADER_LENGTH>().unwrap());
                octets.advance(FRAME_HEADER_LENGTH);
                let payload = octets.split_to(header.length as usize).to_vec();
                self.unheard.push(Heard { header, payload });
            }
            rounds += 1;
            assert!(rounds < 100_000, "the connection never stops transmitting");
        }
    }

    /// The frames that were sent since the last call.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        self.listen();
        std::mem::take(&mut self.unheard)
    }

    /// The frames of one type that were sent since the last call.
    pub(crate) fn heard_of(&mut self, frame_type: FrameType) -> Vec<Heard> {
        let mut heard = self.heard();
        heard.retain(|frame| frame.header.frame_type == frame_type);
        heard
    }

    /// The events since the last call.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        while let Some(event) = self.connection.poll_event() {
            self.events.push_back(event);
        }
        self.events.drain(..).collect()
    }

    /// Everything that can be read from a stream now; its credit is released.
    pub(crate) fn reads(&mut self, stream: u32) -> (Vec<u8>, ReadState) {
        let mut chunks = VecDeque::new();
        let state = self.connection.read(id(stream), &mut chunks).unwrap();
        let body: Vec<u8> = chunks.into_iter().flatten().collect();
        self.connection.release_credit(id(stream), body.len() as u64);
        (body, state)
    }

    /// Asserts that what the peer said ended the connection: GOAWAY with this code, and nothing after it.
    #[track_caller]
    pub(crate) fn ended_with(&mut self, code: ErrorCode) {
        let error = self.connection.error().expect("the connection lives").clone();
        assert_eq!(error.code, code, "{error}");
        let heard = self.heard();
        let last = heard.last().expect("nothing was sent");
        assert_eq!(last.header.frame_type, FrameType::GOAWAY);
        assert_eq!(ErrorCode(last.word(4)), code);
        assert!(!self.connection.wants_transmit());
        assert!(!self.connection.wants_read());
    }

    /// As [`Self::ended_with`], because the peer exceeded this limit.
    #[track_caller]
    pub(crate) fn exceeded(&mut self, limit: PeerLimit) {
        let error = self.connection.error().expect("the connection lives");
        assert_eq!(error.exceeded(), Some(limit), "{error}");
        self.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    }

    /// Asserts that what the peer said ended one stream, by RST_STREAM with this code, and that the connection lives.
    #[track_caller]
    pub(crate) fn reset_with(&mut self, stream: u32, code: ErrorCode) {
        let resets: Vec<_> = self
            .heard_of(FrameType::RST_STREAM)
            .iter()
            .map(|frame| (frame.stream(), ErrorCode(frame.word(0))))
            .collect();
        assert_eq!(resets, [(stream, code)], "error: {:?}", self.connection.error());
        self.lives();
    }

    /// Asserts that the connection answers a PING, and has said neither RST_STREAM nor GOAWAY since it was heard last.
    #[track_caller]
    pub(crate) fn lives(&mut self) {
        let before = self.heard();
        let fatal =
            |frame: &Heard| matches!(frame.header.frame_type, FrameType::GOAWAY | FrameType::RST_STREAM);
        assert!(!before.iter().any(fatal), "{before:?}");
        assert_eq!(self.connection.error(), None);
        self.says(&frames::ping(0, b"alive?!?"));
        let heard = self.heard();
        let pong = heard
            .iter()
            .find(|frame| frame.header.frame_type == FrameType::PING);
        let pong = pong.expect("no answer to PING");
        assert!(pong.header.flags.0 & frames::ACK != 0 && pong.payload == b"alive?!?");
    }
}
