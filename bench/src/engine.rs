//! The engine alone: a client and a server face each other in memory, without sockets, threads or a clock, so that what
//! they do is the same in every run. `worker` runs it as a program of its own, which the case `engine` times, counts the
//! allocations of, and hands to callgrind.
//!
//! What is not the engine's is kept apart by name: callgrind counts what happens in [`Client::turn`] and [`Server::turn`]
//! and leaves out what happens in the functions of [`Outside`].

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, Event, ReadState, StreamId, Time, Transmit, WindowSize};
use http::{HeaderValue, Request, Response, header};

use crate::heap::Heap;

/// The most that one read gives: what a driver reads at once.
const READ: usize = 256 << 10;
/// What an application hands over at once of a long body.
static PIECE: [u8; 256 << 10] = [b'x'; 256 << 10];
/// What the library lets wait of a body before it hands over more.
const LOW_WATER: usize = 128 << 10;
/// What a turn takes on the virtual clock.
const TURN: Duration = Duration::from_micros(10);

/// Which of a request's two bodies is long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Download,
    Upload,
}

/// The requests of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    /// Of the long body.
    pub(crate) bytes: u64,
    pub(crate) at_once: u64,
    /// Of each stream and of the connection, on both sides; the defaults where there is none.
    window: Option<u32>,
    /// How many make a run under callgrind.
    pub(crate) requests: u64,
}

impl Shape {
    const fn new(name: &'static str, bytes: u64, at_once: u64, requests: u64) -> Self {
        Self {
            name,
            way: Way::Download,
            bytes,
            at_once,
            window: None,
            requests,
        }
    }

    const fn windowed(self, window: u32) -> Self {
        Self {
            window: Some(window),
            ..self
        }
    }

    const fn upload(self) -> Self {
        Self {
            way: Way::Upload,
            ..self
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.set_max_concurrent_streams(1_000);
        if let Some(window) = self.window.and_then(WindowSize::new) {
            config.set_adaptive(false);
            config.set_stream_window(window);
            config.set_connection_window(window);
        }
        config
    }
}

const KIB_64: u64 = 64 << 10;

pub(crate) const SHAPES: [Shape; 7] = [
    Shape::new("12 bytes, 1 at once", 12, 1, 4_000),
    Shape::new("12 bytes, 100 at once", 12, 100, 10_000),
    Shape::new("10 KB, 100 at once", 10_000, 100, 4_000),
    Shape::new("64 KiB, 32 at once, windows of 65,535 B", KIB_64, 32, 1_000).windowed(65_535),
    Shape::new("64 KiB, 32 at once, windows of 16 MiB", KIB_64, 32, 1_000).windowed((16 << 20) - 1),
    Shape::new("256 MiB, 1 at once", 256 << 20, 1, 1),
    Shape::new("64 MiB up, 1 at once", 64 << 20, 1, 2).upload(),
];

/// A client and a server, and the octets between them.
pub(crate) struct Pair {
    client: Client,
    server: Server,
    outside: Outside,
    now: Time,
    pub(crate) spent: Spent,
}

/// What each end has allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    pub(crate) client: Heap,
    pub(crate) server: Heap,
}

impl Pair {
    pub(crate) fn new(shape: Shape) -> Self {
        let now = Time::ZERO;
        Self {
            client: Client {
                end: End::new(Connection::client(shape.config(), now)),
                shape,
                to_open: 0,
                open: 0,
            },
            server: Server {
                end: End::new(Connection::server(shape.config(), now)),
                shape,
            },
            outside: Outside::new(shape),
            now,
            spent: Spent::default(),
        }
    }

    /// Carries so many more requests from their opening to their last byte.
    ///
    /// # Errors
    /// In words, when an end fails or nothing moves any more.
    pub(crate) fn carry(&mut self, requests: u64) -> Result<(), String> {
        self.client.to_open = requests;
        while self.client.to_open > 0 || self.client.open > 0 {
            let (before, outside) = (Heap::now(), self.outside.heap);
            let mut moved = self
                .client
                .turn(&mut self.server.end.out, &mut self.outside, self.now)?;
            let (middle, between) = (Heap::now(), self.outside.heap);
            moved |= self
                .server
                .turn(&mut self.client.end.out, &mut self.outside, self.now)?;
            let (after, beyond) = (Heap::now(), self.outside.heap);
            self.spent.client += middle - before - (between - outside);
            self.spent.server += after - middle - (beyond - between);
            self.now = match moved {
                true => self.now + TURN,
                false => self.next_deadline().ok_or("nothing moves any more")?,
            };
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<Time> {
        let ends = [&self.client.end, &self.server.end];
        let next = ends.into_iter().filter_map(|end| end.connection.next_deadline());
        next.min().map(|next| next.max(self.now))
    }
}

/// What is the application's or the network's: made, copied and counted apart from the engine.
struct Outside {
    request: Request<()>,
    response: Response<()>,
    heap: Heap,
}

impl Outside {
    fn new(shape: Shape) -> Self {
        let (method, octets) = match shape.way {
            Way::Download => (http::Method::GET, shape.bytes),
            Way::Upload => (http::Method::PUT, 0),
        };
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = http::Uri::from_static("http://127.0.0.1:8080/12");
        let fields = request.headers_mut();
        fields.insert(
            header::USER_AGENT,
            HeaderValue::from_static("fullbore-bench/0.1.0"),
        );
        fields.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        let mut response = Response::new(());
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(octets));
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        fields.insert(
            header::DATE,
            HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"),
        );
        Self {
            request,
            response,
            heap: Heap::default(),
        }
    }

    #[inline(never)]
    fn request(&mut self) -> Request<()> {
        self.counted(|outside| outside.request.clone())
    }

    #[inline(never)]
    fn response(&mut self) -> Response<()> {
        self.counted(|outside| outside.response.clone())
    }

    /// What the next read gives of the octets that the other end has written.
    #[inline(never)]
    fn read(&mut self, from: &mut Transmit) -> Option<Bytes> {
        let octets = from.remaining().min(READ);
        (octets > 0).then(|| self.counted(|_| from.copy_to_bytes(octets)))
    }

    fn counted<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = Heap::now();
        let made = make(self);
        self.heap += Heap::now() - before;
        made
    }
}

/// What both ends have.
struct End {
    connection: Connection,
    out: Transmit,
    /// Bodies of which something has not been handed over yet.
    bodies: Vec<(StreamId, u64)>,
    chunks: VecDeque<Bytes>,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            out: Transmit::new(),
            bodies: Vec::new(),
            chunks: VecDeque::new(),
        }
    }

    /// What has come, applied; whether anything has.
    fn take_in(&mut self, from: &mut Transmit, outside: &mut Outside, now: Time) -> Result<bool, String> {
        let mut moved = self.connection.next_deadline().is_some_and(|at| at <= now);
        if moved {
            self.connection.handle_timeout(now);
        }
        if self.connection.wants_read() {
            if let Some(octets) = outside.read(from) {
                moved = true;
                self.connection
                    .receive(octets, now)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(moved)
    }

    fn write(&mut self, now: Time) -> bool {
        if self.out.has_remaining() || !self.connection.wants_transmit() {
            return false;
        }
        self.connection.transmit(&mut self.out, now);
        true
    }

    /// Reads and forgets what a stream has; whether that was the last of it. Of a stream that was let go of before its
    /// event came there is nothing.
    fn drain(&mut self, stream: StreamId) -> bool {
        let state = self.connection.read(stream, &mut self.chunks);
        let bytes = self.chunks.drain(..).map(|chunk| chunk.len() as u64).sum();
        self.connection.release_credit(stream, bytes);
        matches!(state, Ok(ReadState::End | ReadState::Trailers(_)))
    }

    fn send_body(&mut self, stream: StreamId, bytes: u64) -> Result<(), String> {
        self.bodies.push((stream, bytes));
        self.send_more(stream)
    }

    /// Hands over as much of a body as the library does.
    fn send_more(&mut self, stream: StreamId) -> Result<(), String> {
        let Some(at) = self.bodies.iter().position(|(one, _)| *one == stream) else {
            return Ok(());
        };
        let Some((_, left)) = self.bodies.get_mut(at) else {
            return Ok(());
        };
        while *left > 0 && self.connection.want_room(stream, LOW_WATER) <= LOW_WATER {
            let now = (*left).min(PIECE.len() as u64);
            *left -= now;
            let piece = Bytes::from_static(PIECE.get(..now as usize).unwrap_or(&PIECE));
            self.connection
                .send_data(stream, piece, *left == 0)
                .map_err(|error| error.to_string())?;
        }
        if *left == 0 {
            self.bodies.swap_remove(at);
        }
        Ok(())
    }
}

struct Client {
    end: End,
    shape: Shape,
    to_open: u64,
    open: u64,
}

impl Client {
    /// One read, what comes of it, new requests, one write; whether anything happened.
    #[inline(never)]
    fn turn(&mut self, from: &mut Transmit, outside: &mut Outside, now: Time) -> Result<bool, String> {
        let mut moved = self.end.take_in(from, outside, now)?;
        while let Some(event) = self.end.connection.poll_event() {
            moved = true;
            match event {
                Event::Response {
                    stream, end: true, ..
                } => self.finish(stream),
                Event::Readable(stream) => {
                    let whole = self.end.drain(stream);
                    if whole {
                        self.finish(stream);
                    }
                }
                Event::Writable(stream) => self.end.send_more(stream)?,
                Event::Reset(error) => return Err(error.to_string()),
                _ => {}
            }
        }
        while self.to_open > 0 && self.open < self.shape.at_once {
            self.to_open -= 1;
            self.open += 1;
            let up = self.shape.way == Way::Upload;
            let stream = self
                .end
                .connection
                .open(outside.request(), !up)
                .map_err(|error| error.to_string())?;
            if up {
                self.end.send_body(stream, self.shape.bytes)?;
            }
        }
        Ok(moved | self.end.write(now))
    }

    fn finish(&mut self, stream: StreamId) {
        self.end.connection.release(stream);
        self.open -= 1;
    }
}

struct Server {
    end: End,
    shape: Shape,
}

impl Server {
    /// One read, what comes of it, one write; whether anything happened.
    #[inline(never)]
    fn turn(&mut self, from: &mut Transmit, outside: &mut Outside, now: Time) -> Result<bool, String> {
        let mut moved = self.end.take_in(from, outside, now)?;
        while let Some(event) = self.end.connection.poll_event() {
            moved = true;
            match event {
                Event::Request {
                    stream, end: true, ..
                } => {
                    self.respond(stream, self.shape.bytes, outside)?;
                }
                Event::Readable(stream) => {
                    let whole = self.end.drain(stream);
                    if whole {
                        self.respond(stream, 0, outside)?;
                    }
                }
                Event::Writable(stream) => {
                    self.end.send_more(stream)?;
                    self.release_sent(stream);
                }
                Event::Reset(error) => return Err(error.to_string()),
                _ => {}
            }
        }
        Ok(moved | self.end.write(now))
    }

    fn respond(&mut self, stream: StreamId, bytes: u64, outside: &mut Outside) -> Result<(), String> {
        let response = outside.response();
        // As the driver does with a body of one chunk.
        if let Some(piece) = PIECE.get(..usize::try_from(bytes).unwrap_or(usize::MAX)) {
            return self
                .end
                .connection
                .respond(stream, &response, &Bytes::from_static(piece).into())
                .map_err(|error| error.to_string());
        }
        self.end
            .connection
            .send_response(stream, &response, false)
            .map_err(|error| error.to_string())?;
        self.end.send_body(stream, bytes)?;
        self.release_sent(stream);
        Ok(())
    }

    /// Lets go of a stream whose body has been handed over.
    fn release_sent(&mut self, stream: StreamId) {
        if !self.end.bodies.iter().any(|(one, _)| *one == stream) {
            self.end.connection.release(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_carried_to_its_end_and_leaves_no_stream() {
        for shape in SHAPES {
            let short = Shape {
                bytes: shape.bytes.min(1 << 20),
                ..shape
            };
            let mut pair = Pair::new(short);
            let requests = 2 * shape.at_once;
            pair.carry(requests).expect("it ends");
            let stats = pair.client.end.connection.stats();
            let moved = stats.received_data_bytes.max(stats.sent_data_bytes);
            assert_eq!(moved, requests * short.bytes, "{}", shape.name);
            assert_eq!(pair.client.end.connection.stream_count(), 0, "{}", shape.name);
        }
    }
}
