//! The fate of each packet of one direction: passed by the policer or not, queued or dropped, lost or delivered, and when.
//! Times are nanoseconds of the caller's clock.

use crate::draws::{Draws, Purpose};
use crate::settings::{Direction, Policer};

/// What the packets of one direction met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came in.
    pub packets: u64,
    /// Bytes that came in, IP headers included.
    pub bytes: u64,
    /// Packets that were passed on.
    pub delivered: u64,
    /// Packets that the link lost.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that the policer of their flow dropped.
    pub policed: u64,
    /// Packets that were held back so that others overtake them.
    pub reordered: u64,
    /// The most bytes that the queue held.
    pub longest_queue: u64,
}

/// The bucket of one flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    /// Bits times 10^9 that are missing in it: it begins full.
    missing: u128,
    filled_at: u64,
}

/// One direction under way.
#[derive(Debug)]
pub(crate) struct Lane {
    direction: Direction,
    queue: u64,
    draws: Draws,
    counts: Counts,
    /// When the link has sent all that it took.
    free_at: u64,
    /// When the last packet in order arrives.
    last_due: u64,
    /// Whether Gilbert's model is in its bad state.
    bad: bool,
}

impl Lane {
    pub(crate) fn new(direction: Direction, queue: u64, seed: u64) -> Self {
        Self {
            direction,
            queue,
            draws: Draws::new(seed),
            counts: Counts::default(),
            free_at: 0,
            last_due: 0,
            bad: false,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// When a packet that came at `now` arrives at the other end; `None` if it does not.
    pub(crate) fn admit(&mut self, now: u64, bytes: u64, bucket: &mut Bucket) -> Option<u64> {
        let number = self.counts.packets;
        self.counts.packets += 1;
        self.counts.bytes += bytes;
        let lost = self.draw_loss(number);
        if let Some(policer) = self.direction.policer {
            if !bucket.passes(policer, now, bytes) {
                self.counts.policed += 1;
                return None;
            }
        }
        let Some(sent) = self.send(now, bytes) else {
            self.counts.dropped += 1;
            return None;
        };
        if lost {
            self.counts.lost += 1;
            return None;
        }
        self.counts.delivered += 1;
        Some(self.arrival(number, sent))
    }

    /// When the link has sent the packet; `None` when its queue is full.
    fn send(&mut self, now: u64, bytes: u64) -> Option<u64> {
        let Some(rate) = self.direction.rate.filter(|&rate| rate > 0) else {
            return Some(now);
        };
        let wait = self.free_at.saturating_sub(now);
        let waiting = (u128::from(wait) * u128::from(rate) / 8_000_000_000) as u64;
        if waiting + bytes > self.queue.max(bytes) {
            return None;
        }
        self.counts.longest_queue = self.counts.longest_queue.max(waiting + bytes);
        self.free_at = now.max(self.free_at) + bytes * 8_000_000_000 / rate;
        Some(self.free_at)
    }

    /// One draw a packet, whatever else befalls it.
    fn draw_loss(&mut self, number: u64) -> bool {
        let Direction { loss, burst, .. } = self.direction;
        let drawn = self.draws.unit(Purpose::Loss, number);
        if burst <= 1.0 {
            return drawn < loss;
        }
        // Gilbert: the bad state loses each packet and lasts `burst` packets on average; the good state loses none.
        self.bad = match self.bad {
            true => drawn >= 1.0 / burst,
            false => drawn < loss / (burst * (1.0 - loss).max(f64::EPSILON)),
        };
        self.bad
    }

    fn arrival(&mut self, number: u64, sent: u64) -> u64 {
        let Direction {
            delay,
            jitter,
            reorder,
            reorder_by,
            ..
        } = self.direction;
        let drawn = self.draws.unit(Purpose::Jitter, number);
        let due = sent + nanoseconds(delay) + (drawn * nanoseconds(jitter) as f64) as u64;
        if reorder > 0.0 && self.draws.unit(Purpose::Reordering, number) < reorder {
            self.counts.reordered += 1;
            return due + nanoseconds(reorder_by);
        }
        self.last_due = self.last_due.max(due);
        self.last_due
    }
}

impl Bucket {
    fn passes(&mut self, policer: Policer, now: u64, bytes: u64) -> bool {
        let came = u128::from(now.saturating_sub(self.filled_at)) * u128::from(policer.rate);
        self.filled_at = now;
        self.missing = self.missing.saturating_sub(came);
        let taken = self.missing + u128::from(bytes) * 8_000_000_000;
        let passes = taken <= u128::from(policer.burst) * 8_000_000_000;
        if passes {
            self.missing = taken;
        }
        passes
    }
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
