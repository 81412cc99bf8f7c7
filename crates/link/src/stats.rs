//! The counts of the link: bytes and frames in each direction, and how late deliveries were.
//!
//! The engine's thread writes once for each read and write, under a lock that others hold only to copy.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::frames::FrameCounts;
use crate::side::{Pair, Side};

/// The counts since the link began, from [`Link::stats`](crate::Link::stats).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Connections that clients opened.
    pub connections: u64,
    /// Connections that have not ended.
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
    /// Bytes read from the sender.
    pub received_bytes: u64,
    /// Bytes written to the receiver. The other bytes are on their way, or were lost to a reset.
    pub delivered_bytes: u64,
    /// The HTTP/2 frames of the received bytes; `None` without [`Builder::count_frames`](crate::Builder::count_frames), or if
    /// nothing was HTTP/2 in cleartext.
    pub frames: Option<FrameCounts>,
}

/// How late deliveries were written, without those that waited for their receiver.
///
/// A 99th percentile above a millisecond means that the link had too little processor time. Figures measured through it
/// are then not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ReleaseError {
    /// Packets delivered.
    pub deliveries: u64,
    /// The median, to within an eighth.
    pub median: Duration,
    /// The 99th percentile, to within an eighth.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

/// A connection that has ended.
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

/// Called for each connection that ends.
pub(crate) type OnEnd = Box<dyn FnMut(ConnectionReport) + Send>;

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// Both sides closed it.
    Closed,
    /// One side reset it, and the link reset the other.
    Reset,
    /// The server could not be reached for this reason, and the link reset the client.
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
    /// The counts are valid even after a panic of another thread.
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

    /// The largest number of a bucket.
    fn top(bucket: usize) -> u64 {
        if bucket < 8 {
            return bucket as u64;
        }
        let power = bucket / 8 + 2;
        let width = 1_u64 << (power - 3);
        (8 + bucket as u64 % 8) * width + (width - 1)
    }

    /// The value of a percentile.
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
