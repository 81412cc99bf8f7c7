//! The whole connection, client or server: a list of operations of its owner and of its peer, in any order, with any
//! octets between. It must neither panic nor run for ever nor lose credit, and after an error say nothing but GOAWAY.
#![no_main]

use std::collections::VecDeque;
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::{Buf, Bytes};
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, FrameHeader, FrameType};
use fullbore_proto::{
    Config, Connection, ErrorCode, Event, MemoryBudget, Priority, Refill, Role, StreamId, Time, Transmit,
    WindowSize,
};
use http::{HeaderMap, Method, Request, Response};
use libfuzzer_sys::fuzz_target;

/// One thing that happens to a connection.
#[derive(Arbitrary, Debug)]
enum Operation {
    /// The peer sends these octets.
    Octets(Vec<u8>),
    /// The peer sends a frame with a header that fits its payload.
    Frame {
        kind: u8,
        flags: u8,
        stream: u8,
        payload: Vec<u8>,
    },
    /// The peer sends a request or a response that is well formed.
    Head {
        stream: u8,
        end: bool,
        status: u8,
    },
    /// The peer sends so many octets of DATA, in pieces.
    Data {
        stream: u8,
        end: bool,
        length: u16,
        cut: u16,
    },
    WindowUpdate {
        stream: u8,
        increment: u32,
    },
    Settings(Vec<(u8, u32)>),
    Reset {
        stream: u8,
        code: u8,
    },
    GoAway {
        last_stream: u8,
        code: u8,
    },
    Ping {
        ack: bool,
    },
    /// The owner, on a stream.
    Open {
        end: bool,
        connect: bool,
    },
    SendResponse {
        stream: u8,
        status: u16,
        end: bool,
    },
    Respond {
        stream: u8,
        length: u16,
    },
    SendInformational {
        stream: u8,
    },
    SendData {
        stream: u8,
        length: u16,
        end: bool,
    },
    SendTrailers {
        stream: u8,
    },
    Read {
        stream: u8,
        release: bool,
    },
    ReleaseCredit {
        stream: u8,
        bytes: u32,
        halves: u8,
    },
    Discard {
        stream: u8,
    },
    Release {
        stream: u8,
    },
    ResetOurs {
        stream: u8,
        code: u8,
    },
    Prioritize {
        stream: u8,
        urgency: u8,
        incremental: bool,
        tell: bool,
    },
    Grow {
        stream: u8,
        size: u32,
    },
    GrowConnection {
        size: u32,
    },
    WantRoom {
        stream: u8,
    },
    Shutdown,
    Abort,
    Timeout {
        micros: u32,
    },
    /// What is to be said is said; otherwise it waits.
    Transmit,
}

#[derive(Arbitrary, Debug)]
struct Input {
    client: bool,
    greeted: bool,
    stream_window: u32,
    connection_window: u32,
    divisor: Option<u8>,
    max_concurrent_streams: u8,
    adaptive: bool,
    budget: Option<u32>,
    operations: Vec<Operation>,
}

struct Run {
    connection: Connection,
    now: Time,
    /// How many octets were read and not released.
    held: u64,
    /// What was leased of the budget after the connection had failed: for what is unread.
    leased_in_failure: Option<u64>,
    said_goaway_in_failure: bool,
}

fn id(stream: u8) -> StreamId {
    // Near each other, so that operations meet.
    StreamId::new(u32::from(stream % 16) + 1).unwrap_or(StreamId::FIRST_CLIENT)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        length: payload.len() as u32,
        frame_type: FrameType(kind),
        flags: fullbore_proto::frame::Flags(flags),
        stream: StreamId::new(stream),
    };
    [&header.to_octets()[..], payload].concat()
}

impl Run {
    fn hear(&mut self, octets: &[u8]) {
        if self.connection.error().is_none() && !self.connection.wants_read() {
            self.transmit();
        }
        let failed = self.connection.error().is_some();
        let result = self.connection.receive(Bytes::copy_from_slice(octets), self.now);
        assert_eq!(result.is_err(), self.connection.error().is_some());
        assert!(!failed || result.is_err());
        while let Some(event) = self.connection.poll_event() {
            if let Event::Request { end: false, .. } = event {
                assert_eq!(self.connection.role(), Role::Server);
            }
        }
    }

    /// Everything that is to be said: whole frames, and after a failure nothing but one GOAWAY.
    fn transmit(&mut self) {
        let mut rounds = 0;
        while self.connection.wants_transmit() {
            let mut out = Transmit::new();
            self.connection.transmit(&mut out, self.now);
            let mut octets = out.copy_to_bytes(out.remaining());
            if octets.starts_with(b"PRI * HTTP/2.0") {
                octets.advance(24);
            }
            assert!(!self.said_goaway_in_failure || octets.is_empty());
            let mut last = None;
            while octets.has_remaining() {
                let header = FrameHeader::parse(
                    octets
                        .first_chunk::<FRAME_HEADER_LENGTH>()
                        .expect("a frame header"),
                );
                octets.advance(FRAME_HEADER_LENGTH + header.length as usize);
                assert!(header.length <= 16_384 || header.frame_type == FrameType::GOAWAY);
                last = Some(header.frame_type);
            }
            if self.connection.error().is_some() && last.is_some() {
                assert_eq!(last, Some(FrameType::GOAWAY));
                self.said_goaway_in_failure = true;
            }
            rounds += 1;
            assert!(rounds < 100_000, "it never stops transmitting");
        }
    }

    fn perform(&mut self, operation: Operation) {
        let connection = &mut self.connection;
        match operation {
            Operation::Octets(octets) => self.hear(&octets),
            Operation::Frame {
                kind,
                flags,
                stream,
                payload,
            } => {
                let octets = frame(kind % 18, flags, u32::from(stream % 17), &payload);
                self.hear(&octets);
            }
            Operation::Head { stream, end, status } => {
                let mut block = match connection.role() {
                    Role::Server => vec![0x83, 0x86, 0x84, 0x41, 1, b'h'],
                    Role::Client => vec![0x88 + status % 7],
                };
                if status & 0x80 != 0 {
                    // Trailers, or a response without its status.
                    block = vec![0, 1, b'x', 1, b'y'];
                }
                let octets = frame(1, 4 | u8::from(end), id(stream).value(), &block);
                self.hear(&octets);
            }
            Operation::Data {
                stream,
                end,
                length,
                cut,
            } => {
                let octets = frame(
                    0,
                    u8::from(end),
                    id(stream).value(),
                    &vec![7; usize::from(length % 16_385)],
                );
                let (first, second) = octets.split_at(octets.len().min(usize::from(cut)));
                self.hear(first);
                self.hear(second);
            }
            Operation::WindowUpdate { stream, increment } => {
                let octets = frame(8, 0, u32::from(stream % 17), &increment.to_be_bytes());
                self.hear(&octets);
            }
            Operation::Settings(entries) => {
                let entry = |&(identifier, value): &(u8, u32)| {
                    let [a, b, c, d] = value.to_be_bytes();
                    [0, identifier % 10, a, b, c, d]
                };
                let payload: Vec<u8> = entries.iter().flat_map(entry).collect();
                let octets = frame(4, 0, 0, &payload);
                self.hear(&octets);
            }
            Operation::Reset { stream, code } => {
                let octets = frame(3, 0, id(stream).value(), &u32::from(code).to_be_bytes());
                self.hear(&octets);
            }
            Operation::GoAway { last_stream, code } => {
                let payload = [
                    u32::from(last_stream).to_be_bytes(),
                    u32::from(code).to_be_bytes(),
                ]
                .concat();
                self.hear(&frame(7, 0, 0, &payload));
            }
            Operation::Ping { ack } => {
                self.hear(&frame(6, u8::from(ack), 0, b"\x0b\x7b\xa2\xf0\x8b\x9b\xfe\x54"))
            }
            Operation::Open { end, connect } => {
                let (method, uri) = match connect {
                    true => (Method::CONNECT, "h:1"),
                    false => (Method::POST, "http://h/"),
                };
                let request = Request::builder().method(method).uri(uri).body(());
                let _ = connection.open(request.expect("a request"), end);
            }
            Operation::SendResponse { stream, status, end } => {
                let response = Response::builder().status(200 + status % 400).body(());
                let _ = connection.send_response(id(stream), &response.expect("a response"), end);
            }
            Operation::Respond { stream, length } => {
                let body = Bytes::from(vec![1; usize::from(length)]).into();
                let _ = connection.respond(id(stream), &Response::new(()), &body);
            }
            Operation::SendInformational { stream } => {
                let response = Response::builder().status(103).body(()).expect("a response");
                let _ = connection.send_informational(id(stream), &response);
            }
            Operation::SendData { stream, length, end } => {
                let _ = connection.send_data(id(stream), Bytes::from(vec![1; usize::from(length)]), end);
            }
            Operation::SendTrailers { stream } => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x", http::HeaderValue::from_static("y"));
                let _ = connection.send_trailers(id(stream), trailers);
            }
            Operation::Read { stream, release } => {
                let mut chunks = VecDeque::new();
                let _ = connection.read(id(stream), &mut chunks);
                // What a connection had received before it failed counts against no window.
                if connection.error().is_some() {
                    return;
                }
                let bytes = chunks.iter().map(Bytes::len).sum::<usize>() as u64;
                self.held += bytes;
                assert_eq!(connection.unreleased(), self.held);
                if release {
                    connection.release_credit(id(stream), bytes);
                    self.held -= bytes;
                }
            }
            Operation::ReleaseCredit {
                stream,
                bytes,
                halves,
            } => {
                let bytes = u64::from(bytes % 100_000);
                if halves & 1 != 0 {
                    connection.release_stream_credit(id(stream), bytes);
                }
                if halves & 2 != 0 {
                    connection.release_connection_credit(bytes);
                    self.held -= bytes.min(self.held);
                }
            }
            Operation::Discard { stream } => connection.discard(id(stream)),
            Operation::Release { stream } => connection.release(id(stream)),
            Operation::ResetOurs { stream, code } => {
                let _ = connection.reset(id(stream), ErrorCode(u32::from(code)));
            }
            Operation::Prioritize {
                stream,
                urgency,
                incremental,
                tell,
            } => {
                let Some(priority) = Priority::new(urgency % 8, incremental) else {
                    return;
                };
                let _ = match tell {
                    true => connection.send_priority_update(id(stream), priority),
                    false => connection.prioritize(id(stream), priority),
                };
            }
            Operation::Grow { stream, size } => {
                if let Some(size) = WindowSize::new(size) {
                    let _ = connection.grow_stream_receive_window(id(stream), size);
                }
            }
            Operation::GrowConnection { size } => {
                if let Some(size) = WindowSize::new(size) {
                    let _ = connection.grow_receive_window(size);
                }
            }
            Operation::WantRoom { stream } => {
                connection.want_room(id(stream), 128 << 10);
            }
            Operation::Shutdown => connection.shutdown(self.now),
            Operation::Abort => connection.abort(ErrorCode::INTERNAL_ERROR, "the fuzzer said so", self.now),
            Operation::Timeout { micros } => {
                self.now = self.now + Duration::from_micros(u64::from(micros % 20_000_000));
                connection.handle_timeout(self.now);
                assert!(connection.next_deadline().is_none_or(|at| at > self.now));
            }
            Operation::Transmit => self.transmit(),
        }
        let connection = &self.connection;
        assert_eq!(connection.unreleased(), self.held);
        let promise = connection.promise();
        match connection.config().budget() {
            None => {
                let size = u64::from(connection.receive_window_size().bytes());
                assert!(promise.outstanding <= size, "credit was given twice");
            }
            Some(budget) if connection.error().is_none() => {
                assert!(budget.leased() <= budget.limit());
                assert!(
                    promise.total() <= budget.leased().max(65_535),
                    "more than was leased"
                );
            }
            Some(budget) => {
                let before = self.leased_in_failure.replace(budget.leased());
                assert!(before.is_none_or(|before| budget.leased() <= before));
            }
        }
    }

    /// Everything is let go of: nothing stays.
    fn end(mut self) {
        self.connection.release_connection_credit(self.held);
        for stream in 1..=2_000 {
            if let Some(stream) = StreamId::new(stream) {
                self.connection.release(stream);
            }
        }
        self.transmit();
        if self.connection.error().is_some() {
            assert_eq!(self.connection.stream_count(), 0);
            assert_eq!(self.connection.next_deadline(), None);
            let budget = self.connection.config().budget();
            assert_eq!(budget.map_or(0, |budget| budget.leased()), 0);
        }
        assert_eq!(self.connection.unreleased(), 0);
    }
}

fuzz_target!(|input: Input| {
    let window = |bytes: u32| WindowSize::new((bytes & (u32::MAX >> (bytes & 31))).clamp(1, i32::MAX as u32));
    let (Some(stream_window), Some(connection_window)) =
        (window(input.stream_window), window(input.connection_window))
    else {
        return;
    };
    let mut config = Config::default();
    config.set_stream_window(stream_window);
    config.set_connection_window(connection_window);
    config.set_max_concurrent_streams(u32::from(input.max_concurrent_streams));
    if let Some(divisor) = input.divisor {
        config.set_stream_refill(Refill::Fraction {
            divisor: u32::from(divisor),
        });
        config.set_connection_refill(Refill::Remaining(u32::from(divisor) << 8));
    }
    config.set_adaptive(input.adaptive);
    config.set_budget(input.budget.map(|bytes| MemoryBudget::new(u64::from(bytes))));
    let connection = match input.client {
        true => Connection::client(config, Time::ZERO),
        false => Connection::server(config, Time::ZERO),
    };
    let mut run = Run {
        connection,
        now: Time::ZERO,
        held: 0,
        leased_in_failure: None,
        said_goaway_in_failure: false,
    };
    if input.greeted {
        if !input.client {
            run.hear(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        run.hear(&frame(4, 0, 0, &[]));
        run.hear(&frame(4, 1, 0, &[]));
    }
    for operation in input.operations {
        run.perform(operation);
    }
    run.end();
});
