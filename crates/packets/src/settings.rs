//! What a path does to packets, and how the TCP of its two ends is set.

use std::time::Duration;

/// The queue of a link is one bandwidth-delay product unless it is stated, and never less than this by itself.
const LEAST_QUEUE: u64 = 64 << 10;

/// Linux's own `tcp_rmem`: least, default and most bytes.
pub const STOCK_RECEIVE_BUFFER: [u32; 3] = [4096, 131_072, 6_291_456];
/// Linux's own `tcp_wmem`.
pub const STOCK_SEND_BUFFER: [u32; 3] = [4096, 16_384, 4_194_304];

/// A direction of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the client's end to the server's.
    ToServer = 0,
    /// From the server's end to the client's.
    ToClient = 1,
}

impl Way {
    /// Both of them.
    pub const BOTH: [Way; 2] = [Way::ToServer, Way::ToClient];
}

/// What one direction does to its packets, in this order: policer, queue, link, loss, delay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Direction {
    /// How long a packet travels, its transmission and its wait in the queue not counted.
    pub delay: Duration,
    /// Bits a second of whole IP packets; `None` for a link that takes no time.
    pub rate: Option<u64>,
    /// Bytes that the queue in front of the link holds; it drops what comes when it is full. `None` for the
    /// bandwidth-delay product of the path ([`Settings::queue`]).
    pub queue: Option<u64>,
    /// The share of packets that the link loses, from 0 to 1.
    pub loss: f64,
    /// How many packets in a row are lost on average (Gilbert's model). Up to 1, each packet is lost by itself.
    pub burst: f64,
    /// A further delay, drawn evenly from 0 to this for each packet. The order of the packets stays.
    pub jitter: Duration,
    /// The share of packets that others overtake, from 0 to 1.
    pub reorder: f64,
    /// By how much such a packet is late.
    pub reorder_by: Duration,
    /// A limit on each flow.
    pub policer: Option<Policer>,
}

/// A token bucket for each flow of a direction. What finds too few tokens is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policer {
    /// Bits a second.
    pub rate: u64,
    /// Bytes that the bucket holds: what may pass at once.
    pub burst: u64,
}

impl Policer {
    /// A policer with a bucket of 100 ms of its rate.
    pub fn new(rate: u64) -> Self {
        Self {
            rate,
            burst: rate / 80,
        }
    }
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            rate: None,
            queue: None,
            loss: 0.0,
            burst: 1.0,
            jitter: Duration::ZERO,
            reorder: 0.0,
            reorder_by: Duration::from_millis(2),
            policer: None,
        }
    }
}

/// A path: both directions, the TCP of both ends, and the seed of all that is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// From the client's end to the server's.
    pub to_server: Direction,
    /// From the server's end to the client's.
    pub to_client: Direction,
    /// The server's end.
    pub server: Tcp,
    /// The client's end.
    pub client: Tcp,
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    /// Whether 127.0.0.1 at the client's end is the server's end, for servers that listen only there. The client's end has
    /// no loopback address of its own then.
    pub loopback: bool,
    /// The same seed gives the n-th packet of a direction the same fate, as far as it is drawn.
    pub seed: u64,
}

/// How TCP is set at one end. The defaults are Linux's own, whatever the host has.
#[derive(Debug, Clone, PartialEq)]
pub struct Tcp {
    /// The congestion control (`net.ipv4.tcp_congestion_control`).
    pub congestion_control: String,
    /// `net.ipv4.tcp_rmem`.
    pub receive_buffer: [u32; 3],
    /// `net.ipv4.tcp_wmem`.
    pub send_buffer: [u32; 3],
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            congestion_control: "cubic".to_owned(),
            receive_buffer: STOCK_RECEIVE_BUFFER,
            send_buffer: STOCK_SEND_BUFFER,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Direction::default(), Tcp::default())
    }
}

impl Settings {
    /// A path that is the same in both directions and at both ends.
    pub fn new(direction: Direction, tcp: Tcp) -> Self {
        Self {
            to_server: direction,
            to_client: direction,
            server: tcp.clone(),
            client: tcp,
            mtu: 1500,
            loopback: false,
            seed: 1,
        }
    }

    /// The round trip of a packet that meets an empty queue and takes no time to send.
    pub fn round_trip(&self) -> Duration {
        self.to_server.delay + self.to_client.delay
    }

    /// Bytes that the queue of a direction of this path holds.
    pub fn queue(&self, direction: &Direction) -> u64 {
        direction
            .queue
            .unwrap_or_else(|| self.bandwidth_delay_product(direction).max(LEAST_QUEUE))
    }

    /// Bytes that a direction carries in a round trip; 0 without a rate.
    pub fn bandwidth_delay_product(&self, direction: &Direction) -> u64 {
        (direction.rate.unwrap_or(0) as f64 / 8.0 * self.round_trip().as_secs_f64()) as u64
    }
}
