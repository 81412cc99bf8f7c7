//! The public handle: a builder of settings, and a link that runs until it is dropped.
//!
//! Starts the engine's thread, asks it to stop, reads what it counted; moves no bytes itself.

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

/// How many bytes may wait for the link unless [`Builder::buffer`] says otherwise: 64 MiB.
///
/// It holds a whole 16 MiB window of four connections at once, or half a second of 1 Gbit/s, so that a window is
/// what limits a transfer and not this buffer.
pub const DEFAULT_BUFFER: u64 = 64 << 20;

/// A running link. Dropping it closes its sockets and ends its thread before `drop` returns.
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Settings to begin with: no delay, no limit of rate, a buffer of [`DEFAULT_BUFFER`], 127.0.0.1 and any free port.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What went through so far.
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
            // A panic of the thread was printed when it happened.
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
    /// Where to listen for clients; port 0 is any free port. The default is 127.0.0.1 and port 0.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The round-trip time that the link adds: half of it each way.
    pub fn rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt;
        self
    }

    /// The rate in each direction, in bits a second, shared by all connections. By default there is no limit.
    pub fn rate(mut self, bits: u64) -> Self {
        self.rate = Some(bits);
        self
    }

    /// How many bytes may wait for the link in each direction before it stops reading; what travels on it already does
    /// not count. One connection may also have that many bytes wait for a receiver that does not read.
    ///
    /// The kernel holds up to 4 MiB more in front of it (256 KiB if the buffer is smaller than that).
    pub fn buffer(mut self, bytes: u64) -> Self {
        self.buffer = bytes;
        self
    }

    /// How far each packet's delay may differ from half the round-trip time, either way. A packet never overtakes
    /// another: one that would is delivered together with it.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Where the sequence of delays begins that [`Builder::jitter`] asks for: the same packets under the same seed have
    /// the same delays.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether opening a connection takes the round trip that it takes on a real path. The default is no.
    ///
    /// If it does, the link accepts at once, but reads nothing from the client for one round-trip time, and connects to
    /// the server after one and a half: the server's first bytes arrive after two, as they would.
    pub fn handshake(mut self, takes_time: bool) -> Self {
        self.handshake = takes_time;
        self
    }

    /// Whether HTTP/2 frames are counted on connections in cleartext, see [`Traffic::frames`](crate::Traffic::frames).
    pub fn count_frames(mut self, count: bool) -> Self {
        self.count_frames = count;
        self
    }

    /// Calls `report` with each connection that has ended, and with each that is open when the link stops.
    ///
    /// It is called on the link's only thread: while it runs, nothing is delivered. Send the report elsewhere.
    pub fn on_end(mut self, report: impl FnMut(ConnectionReport) + Send + 'static) -> Self {
        self.on_end = Some(Box::new(report));
        self
    }

    /// Listens, and connects to `server` for each client.
    ///
    /// # Errors
    /// `InvalidInput` for a rate or a buffer of zero; otherwise what the system says about the address to listen on, or
    /// about a new thread. A server that cannot be reached is no error here: it may come later.
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
            // The two directions must not have the same delays: any other seed does.
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
