//! A download through the engine alone: a client and a server with a path of a delay and a rate between them, on a virtual
//! clock, so that every figure is exact.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, Event, StreamId, Time, Transmit, WindowSize};

/// What a socket and the path's bottleneck take before a writer waits.
const BUFFER: u64 = 1 << 20;
/// The most that one read gives: what a driver reads at once.
const READ: usize = 256 << 10;
/// A path gives its bytes in pieces as small as a packet or two.
const PIECE: usize = 4096;
const CHUNK: usize = 64 << 10;
/// More turns than any transfer here takes: a simulation that stands still must end too.
const MOST_TURNS: u64 = 50_000_000;

/// The seconds that a download takes with a window that does not move, of the stream and of the connection; `None` when
/// it does not come to its end.
pub(crate) fn download(window: u32, rtt: Duration, bytes_a_second: f64, bytes: u64) -> Option<f64> {
    let mut config = Config::default();
    config.adaptive = false;
    config.stream_window = WindowSize::new(window)?;
    config.connection_window = WindowSize::new(window)?;
    let path = || Path::new(rtt / 2, 1e9 / bytes_a_second);
    let mut client = End::new(Connection::client(config, Time::ZERO), path(), 0);
    let mut server = End::new(Connection::server(Config::default(), Time::ZERO), path(), bytes);
    let request = http::Request::get("http://simulated/body").body(()).ok()?;
    client.connection.open(request, true).ok()?;

    let mut now = Time::ZERO;
    for _ in 0..MOST_TURNS {
        let moved = client.turn(&mut server.path, now) | server.turn(&mut client.path, now);
        if client.received == bytes {
            return Some(now.since(Time::ZERO).as_secs_f64());
        }
        if !moved {
            let next = [client.next_time(&server.path), server.next_time(&client.path)];
            now = next.into_iter().flatten().min()?.max(now);
        }
    }
    None
}

/// One direction: what was written leaves at the rate, and arrives a delay later.
struct Path {
    delay: Duration,
    nanos_a_byte: f64,
    /// When the last byte that was written will have left.
    free: Time,
    under_way: VecDeque<(Time, Bytes)>,
}

impl Path {
    fn new(delay: Duration, nanos_a_byte: f64) -> Self {
        Self {
            delay,
            nanos_a_byte,
            free: Time::ZERO,
            under_way: VecDeque::new(),
        }
    }

    fn takes(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * self.nanos_a_byte) as u64)
    }

    fn writable_at(&self) -> Time {
        let full = u64::try_from(self.takes(BUFFER).as_nanos()).unwrap_or(u64::MAX);
        Time::from_nanos(self.free.as_nanos().saturating_sub(full))
    }

    fn write(&mut self, mut octets: Bytes, now: Time) {
        self.free = self.free.max(now);
        while !octets.is_empty() {
            let piece = octets.split_to(octets.len().min(PIECE));
            self.free = self.free + self.takes(piece.len() as u64);
            self.under_way.push_back((self.free + self.delay, piece));
        }
    }

    fn next_arrival(&self) -> Option<Time> {
        self.under_way.front().map(|&(at, _)| at)
    }

    /// All that has arrived, up to the size of a read.
    fn read(&mut self, now: Time) -> Option<Bytes> {
        let mut slab = Vec::new();
        while self.next_arrival().is_some_and(|at| at <= now) && slab.len() + PIECE <= READ {
            let (_, piece) = self.under_way.pop_front()?;
            slab.extend_from_slice(&piece);
        }
        (!slab.is_empty()).then(|| slab.into())
    }
}

/// One end, its owner and the direction that leads away from it.
struct End {
    connection: Connection,
    path: Path,
    /// What a server still has to send, and on which stream.
    left: u64,
    stream: Option<StreamId>,
    received: u64,
    blocked: bool,
}

impl End {
    fn new(connection: Connection, path: Path, left: u64) -> Self {
        Self {
            connection,
            path,
            left,
            stream: None,
            received: 0,
            blocked: false,
        }
    }

    /// One read, what comes of it, one write; whether anything happened.
    fn turn(&mut self, from: &mut Path, now: Time) -> bool {
        let mut moved = self.connection.next_deadline().is_some_and(|at| at <= now);
        if moved {
            self.connection.handle_timeout(now);
        }
        if self.connection.wants_read() {
            if let Some(octets) = from.read(now) {
                moved = true;
                // An engine that failed moves no more bytes, and that is seen in the end.
                let _ = self.connection.receive(octets, now);
            }
        }
        while let Some(event) = self.connection.poll_event() {
            moved = true;
            self.hear(event);
        }
        moved | self.write(now)
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Request { stream, .. } => {
                let sent = self
                    .connection
                    .send_response(stream, &http::Response::new(()), false);
                self.stream = sent.ok().map(|()| stream);
                self.send();
            }
            Event::Writable(_) => self.send(),
            Event::Readable(stream) => {
                let mut chunks = VecDeque::new();
                let _ = self.connection.read(stream, &mut chunks);
                let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
                self.connection.release_credit(stream, bytes);
                self.received += bytes;
            }
            _ => {}
        }
    }

    /// Hands over as much of the body as the engine has room for.
    fn send(&mut self) {
        static ZEROS: [u8; CHUNK] = [0; CHUNK];
        let Some(stream) = self.stream else { return };
        let low_water = self.connection.config().send_low_water;
        while self.left > 0 && self.connection.want_room(stream) <= low_water {
            let bytes = self.left.min(CHUNK as u64);
            self.left -= bytes;
            let chunk = Bytes::from_static(&ZEROS).slice(..bytes as usize);
            if self.connection.send_data(stream, chunk, self.left == 0).is_err() {
                self.left = 0;
            }
        }
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
        self.path.write(octets, now);
        if !self.connection.wants_transmit() {
            self.connection.socket_idle(now);
        }
        true
    }

    /// When something happens here next.
    fn next_time(&self, from: &Path) -> Option<Time> {
        let socket = self.connection.wants_transmit().then(|| self.path.writable_at());
        let arrival = from.next_arrival().filter(|_| self.connection.wants_read());
        [self.connection.next_deadline(), socket, arrival]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: f64 = 125e6;

    #[test]
    fn a_wide_window_reaches_the_links_rate_to_the_percent() {
        let bytes = 32 << 20;
        let seconds = download(64 << 20, Duration::from_millis(100), GIGABIT, bytes).expect("it ends");
        let limit = 0.1 + bytes as f64 / GIGABIT;
        assert!(seconds > limit && seconds < 1.01 * limit, "{seconds} of {limit}");
    }

    #[test]
    fn a_small_window_is_the_limit_but_for_the_quarter_that_a_refill_waits_for() {
        let window = 4 << 20;
        let (rtt, bytes) = (Duration::from_millis(230), 10 * u64::from(window));
        let seconds = download(window, rtt, GIGABIT, bytes).expect("it ends");
        let limit = 10.0 * rtt.as_secs_f64();
        assert!(seconds >= limit && seconds < 1.4 * limit, "{seconds} of {limit}");
    }

    #[test]
    fn the_same_download_takes_the_same_time_again() {
        let once = || download(65_535, Duration::from_millis(20), GIGABIT, 1 << 20);
        assert!(once().is_some());
        assert_eq!(once(), once());
    }
}
