//! What the link counted: bytes and frames each way, and how late its deliveries were.
//!
//! The engine's thread writes, once a read and once a write, under a lock that nobody else holds for long; `Link::stats`
//! takes a copy.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frames::FrameCounts;
use crate::side::{Pair, Side};

/// Everything since the link began, from [`Link::stats`](crate::Link::stats).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Connections that clients opened.
    pub connections: u64,
    /// Those of them that have not ended.
    pub open: u64,
    /// From clients to the server.
    pub to_server: Traffic,
    /// From the server to clients.
    pub to_client: Traffic,
    /// How late deliveries were.
    pub release_error: ReleaseError,
}

/// One direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes that the sender sent and the link read.
    pub received_bytes: u64,
    /// Bytes that the link wrote to the receiver. The rest is on its way, or was lost to a reset.
    pub delivered_bytes: u64,
    /// The HTTP/2 frames among the bytes received: `None` if they were not to be counted, or if nothing was HTTP/2 in
    /// cleartext.
    pub frames: Option<FrameCounts>,
}

/// How long after its time each delivery was written, leaving out what had to wait for its receiver.
///
/// A link whose 99th percentile is above a millisecond was starved of the processor: figures that were measured through
/// it say more about the machine than about the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReleaseError {
    /// Packets delivered.
    pub deliveries: u64,
    /// Half of them were no later than this, to within an eighth.
    pub median: Duration,
    /// 99 % of them were no later than this, to within an eighth.
    pub p99: Duration,
    /// The latest.
    pub max: Duration,
}

/// One connection, when it has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionReport {
    /// The client's address.
    pub client: SocketAddr,
    /// How it ended.
    pub end: End,
    /// From the client to the server.
    pub to_server: Traffic,
    /// From the server to the client.
    pub to_client: Traffic,
}

/// Called with each connection that ended.
pub(crate) type OnEnd = Box<dyn FnMut(ConnectionReport) + Send>;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// Both sides closed it.
    Closed,
    /// One side reset it, and so the link reset the other.
    Reset,
    /// The server could not be reached, for this reason; the client saw a reset.
    Unreachable(io::ErrorKind),
    /// The link was stopped.
    Stopped,
}

/// The counts that the engine's thread and the link's owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    counts: Mutex<Counts>,
}

impl Shared {
    /// A panic elsewhere leaves numbers that are still numbers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let counts = self.lock();
        Stats {
            connections: counts.connections,
            open: counts.open,
            to_server: counts.traffic[Side::Client],
            to_client: counts.traffic[Side::Server],
            release_error: counts.late.summary(),
        }
    }
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) open: u64,
    pub(crate) traffic: Pair<Traffic>,
    pub(crate) late: Histogram,
}

/// Times in buckets that grow by an eighth.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [u64; Self::BUCKETS],
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; Self::BUCKETS],
            count: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Eight for each power of two of a 64-bit number; the lowest eight numbers have a bucket each.
    const BUCKETS: usize = 8 * 62;

    pub(crate) fn add(&mut self, nanoseconds: u64) {
        self.count += 1;
        self.max = self.max.max(nanoseconds);
        if let Some(bucket) = self.buckets.get_mut(Self::bucket(nanoseconds)) {
            *bucket += 1;
        }
    }

    fn bucket(value: u64) -> usize {
        if value < 8 {
            return value as usize;
        }
        let power = value.ilog2();
        let eighth = (value >> (power - 3)) & 7;
        (power as usize - 2) * 8 + eighth as usize
    }

    /// The largest number that falls into a bucket.
    fn top(bucket: usize) -> u64 {
        if bucket < 8 {
            return bucket as u64;
        }
        let power = bucket / 8 + 2;
        let width = 1_u64 << (power - 3);
        (8 + bucket as u64 % 8) * width + (width - 1)
    }

    /// The value that so many of a hundred do not pass.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::top(index).min(self.max);
            }
        }
        self.max
    }

    fn summary(&self) -> ReleaseError {
        ReleaseError {
            deliveries: self.count,
            median: Duration::from_nanos(self.percentile(50)),
            p99: Duration::from_nanos(self.percentile(99)),
            max: Duration::from_nanos(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_bucket_whose_top_is_within_an_eighth() {
        for power in 0..64 {
            for value in [
                1_u64 << power,
                (1_u64 << power) + (1_u64 << power) / 3,
                u64::MAX >> power,
            ] {
                let bucket = Histogram::bucket(value);
                assert!(bucket < Histogram::BUCKETS, "{value} is in bucket {bucket}");
                let top = Histogram::top(bucket);
                assert!(
                    top >= value && top - value <= value / 8,
                    "{value} goes up to {top}"
                );
            }
        }
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), ReleaseError::default());
        for value in 1..=1_000 {
            histogram.add(value * 1_000);
        }
        let summary = histogram.summary();
        assert_eq!(summary.deliveries, 1_000);
        assert_eq!(summary.max, Duration::from_millis(1));
        assert!((500_000..=562_500).contains(&summary.median.as_nanos()));
        assert!((990_000..=1_000_000).contains(&summary.p99.as_nanos()));
    }
}
