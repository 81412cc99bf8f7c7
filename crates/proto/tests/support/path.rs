//! One direction of a path: a delay, a rate, the sender's socket buffer, and the pieces in which the octets come out.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::Time;

use super::random::Random;

/// How a path is to be.
#[derive(Debug, Clone)]
pub(crate) struct PathConfig {
    /// One way, without what the rate takes.
    pub(crate) delay: Duration,
    /// The rate, as nanoseconds a byte, so that every time is a whole number; 0 for no limit. 8 is 125 MB/s.
    pub(crate) nanos_per_byte: u64,
    /// How many octets may wait to leave: what a socket takes before it blocks.
    pub(crate) buffer: u64,
    /// The most that one read gives.
    pub(crate) read_size: usize,
    /// Cuts the octets at random places, into pieces of this length on average, with this seed.
    pub(crate) cuts: Option<(usize, u64)>,
}

impl Default for PathConfig {
    fn default() -> Self {
        PathConfig {
            delay: Duration::ZERO,
            nanos_per_byte: 0,
            buffer: 1 << 20,
            read_size: 64 << 10,
            cuts: None,
        }
    }
}

impl PathConfig {
    pub(crate) fn delay_millis(millis: u64) -> Self {
        PathConfig {
            delay: Duration::from_millis(millis),
            ..Self::default()
        }
    }
}

/// One direction of a path.
#[derive(Debug)]
pub(crate) struct Path {
    config: PathConfig,
    random: Random,
    /// When the last octet that was written will have left.
    free: Time,
    /// For how long nothing left although the path was free.
    idle: Duration,
    under_way: VecDeque<(Time, Bytes)>,
}

impl Path {
    pub(crate) fn new(config: PathConfig) -> Self {
        let seed = config.cuts.map_or(0, |(_, seed)| seed);
        Path {
            config,
            random: Random::new(seed),
            free: Time::ZERO,
            idle: Duration::ZERO,
            under_way: VecDeque::new(),
        }
    }

    /// From when on the socket takes another write.
    pub(crate) fn writable_at(&self) -> Time {
        let full = self.config.buffer * self.config.nanos_per_byte;
        Time::from_nanos(self.free.as_nanos().saturating_sub(full))
    }

    /// Writes octets at `now`: each piece arrives when its last octet has crossed.
    pub(crate) fn write(&mut self, mut octets: Bytes, now: Time) {
        self.idle += now.since(self.free);
        self.free = self.free.max(now);
        while !octets.is_empty() {
            let most = match self.config.cuts {
                Some((average, _)) => self.random.between(1, 2 * average as u64) as usize,
                None => self.config.read_size,
            };
            let piece = octets.split_to(octets.len().min(most));
            let takes = piece.len() as u64 * self.config.nanos_per_byte;
            self.free = self.free + Duration::from_nanos(takes);
            self.under_way.push_back((self.free + self.config.delay, piece));
        }
    }

    /// When the next piece arrives.
    pub(crate) fn next_arrival(&self) -> Option<Time> {
        self.under_way.front().map(|&(at, _)| at)
    }

    /// The next piece that has arrived by `now`. What arrived at the same time comes in one read, up to its size,
    /// unless the octets are to be cut.
    pub(crate) fn read(&mut self, now: Time) -> Option<Bytes> {
        if self.next_arrival()? > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, piece)| piece)
    }

    /// For how long in all the path was free and nothing left, up to the last write.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Drops what is under way: the path broke.
    pub(crate) fn cut(&mut self) {
        self.under_way.clear();
    }
}
