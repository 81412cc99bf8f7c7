//! The public handle: a builder, and a link that runs until it is dropped.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::engine::{Engine, EngineSettings, Stop};
use crate::path::PathSettings;
use crate::side::Pair;
use crate::stats::{ConnectionReport, OnEnd, Shared, Stats};

/// The default of [`Builder::buffer`]: 64 MiB.
///
/// It holds the 16 MiB windows of four connections, or half a second of 1 Gbit/s, so that windows limit a transfer and
/// not this buffer.
pub const DEFAULT_BUFFER: u64 = 64 << 20;

/// A running link. Dropping it closes its sockets and ends its thread before `drop` returns.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// A builder without delay and rate, with a buffer of [`DEFAULT_BUFFER`], on a free port of 127.0.0.1.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.snapshot()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.now();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has printed its message.
            let _ = thread.join();
        }
    }
}

/// The settings of a [`Link`], from [`Link::builder`].
#[must_use]
pub struct Builder {
    listen: SocketAddr,
    rtt: Duration,
    rate: Option<u64>,
    buffer: u64,
    jitter: Duration,
    seed: u64,
    handshake: bool,
    count_frames: bool,
    on_end: Option<OnEnd>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            rtt: Duration::ZERO,
            rate: None,
            buffer: DEFAULT_BUFFER,
            jitter: Duration::ZERO,
            seed: 0,
            handshake: false,
            count_frames: false,
            on_end: None,
        }
    }
}

impl Builder {
    /// The address to listen on; port 0 is any free port. Default: 127.0.0.1 and port 0.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The round-trip time to add, half of it each way. Default: 0.
    pub fn rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt;
        self
    }

    /// The rate in each direction in bits a second, shared by all connections. Default: no limit.
    pub fn rate(mut self, bits: u64) -> Self {
        self.rate = Some(bits);
        self
    }

    /// How many bytes may wait for the link in each direction before it stops reading. Bytes that travel on the link do not
    /// count. A connection may also have this many bytes wait for a receiver that does not read. Default:
    /// [`DEFAULT_BUFFER`].
    ///
    /// The kernel holds up to 8 MiB more in front of the buffer: twice the buffer, at least 64 KiB.
    pub fn buffer(mut self, bytes: u64) -> Self {
        self.buffer = bytes;
        self
    }

    /// The maximum difference of a packet's delay from half the round-trip time, up or down. Packets keep their order: one
    /// that would overtake another is delivered together with it. Default: 0.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// The seed of the delays of [`Builder::jitter`]: the same packets with the same seed have the same delays. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the TCP handshake takes a round trip, as on a real path. Default: no.
    ///
    /// The link then accepts at once, but reads nothing from the client for one round-trip time, and connects to the server
    /// after one and a half. The server's first bytes arrive after two, as on a real path.
    pub fn handshake(mut self, takes_time: bool) -> Self {
        self.handshake = takes_time;
        self
    }

    /// Whether to count HTTP/2 frames on cleartext connections: [`Traffic::frames`](crate::Traffic::frames). Default: no.
    pub fn count_frames(mut self, count: bool) -> Self {
        self.count_frames = count;
        self
    }

    /// Calls `report` for each connection that ends, and for each that is open when the link stops.
    ///
    /// The call is on the link's only thread and delays all deliveries. Send the report to another thread.
    pub fn on_end(mut self, report: impl FnMut(ConnectionReport) + Send + 'static) -> Self {
        self.on_end = Some(Box::new(report));
        self
    }

    /// Starts to listen, and connects to `server` for each client.
    ///
    /// # Errors
    /// `InvalidInput` for a rate or a buffer of zero. Otherwise the system cannot listen on the address, or start a thread. A
    /// server that cannot be reached is no error here, since it may start later.
    pub fn start(self, server: SocketAddr) -> io::Result<Link> {
        if self.rate == Some(0) || self.buffer == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the rate and the buffer of a link are at least 1",
            ));
        }
        let shared = Arc::new(Shared::default());
        let (engine, stop, address) = Engine::new(
            EngineSettings {
                listen: self.listen,
                server,
                paths: self.paths(),
                buffer: self.buffer,
                handshake: self.handshake,
                count_frames: self.count_frames,
            },
            self.on_end,
            Arc::clone(&shared),
        )?;
        let thread = thread::Builder::new()
            .name("fullbore-link".to_owned())
            .spawn(move || engine.run())?;
        Ok(Link {
            address,
            shared,
            stop,
            thread: Some(thread),
        })
    }

    fn paths(&self) -> Pair<PathSettings> {
        let rtt = nanoseconds(self.rtt);
        let path = |delay, seed| PathSettings {
            delay,
            rate: self.rate,
            buffer: self.buffer,
            jitter: nanoseconds(self.jitter),
            seed,
        };
        Pair {
            client: path(rtt / 2, self.seed),
            // The two directions must have different delays, so another seed.
            server: path(rtt - rtt / 2, !self.seed),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("listen", &self.listen)
            .field("rtt", &self.rtt)
            .field("rate", &self.rate)
            .field("buffer", &self.buffer)
            .field("jitter", &self.jitter)
            .field("seed", &self.seed)
            .field("handshake", &self.handshake)
            .field("count_frames", &self.count_frames)
            .finish_non_exhaustive()
    }
}

/// 584 years at most.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
