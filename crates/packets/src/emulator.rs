//! Both directions and their connections, on a clock that the caller moves: packets go in with the time, and come out when
//! they are due. No system call.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::direction::{Counts, Lane};
use crate::flows::{Flow, Flows};
use crate::settings::{Settings, Way};

/// Buffers that are kept for later packets.
const KEPT_BUFFERS: usize = 4096;

/// A packet is late after so many nanoseconds.
const LATE: u64 = 1_000_000;

/// A packet that arrives at an end.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The direction in which it went.
    pub way: Way,
    /// When it was to arrive.
    pub at: u64,
    /// The packet.
    pub packet: Vec<u8>,
}

/// What a path did until now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Packets of the client.
    pub to_server: Counts,
    /// Packets of the server.
    pub to_client: Counts,
    /// The connections, in the order in which they were opened.
    pub flows: Vec<Flow>,
    /// The longest time that a packet arrived after it was due: what a busy machine did to the path.
    pub latest: Duration,
    /// Packets that arrived more than a millisecond after they were due.
    pub late: u64,
    /// The processor time of the thread in between. The kernel's work for the receiving TCP is in it.
    pub processor: Duration,
    /// Packets that a device had no room for, or did not take. A path with any of them is not the one that was asked for.
    pub overrun: u64,
}

impl Report {
    /// How many connections were open when the last payload of all came: those that carried it, or that nobody had closed.
    pub fn open_at_the_end(&self) -> usize {
        let end = self.flows.iter().filter_map(|flow| flow.last_payload).max();
        // The server may end a connection, and send again what was lost before that.
        let open = |flow: &&Flow| flow.closed.is_none() || flow.closed.max(flow.last_payload) >= end;
        end.map_or(0, |_| self.flows.iter().filter(open).count())
    }
}

/// The packets between two ends. Times are nanoseconds of the caller's clock, and never go back.
#[derive(Debug)]
pub struct Emulator {
    lanes: [Lane; 2],
    flows: Flows,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Packets that were taken in, which keeps those that are due at the same time in order.
    taken: u64,
    buffers: Vec<Vec<u8>>,
    mtu: usize,
    latest: u64,
    late: u64,
}

/// The order of the fields is that of the packets.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at: u64,
    number: u64,
    way: Way,
    packet: Vec<u8>,
}

impl Emulator {
    /// A path on which nothing is under way.
    pub fn new(settings: &Settings) -> Self {
        let lane = |direction, salt| {
            let queue = settings.queue(direction);
            Lane::new(
                *direction,
                queue,
                settings.seed.wrapping_mul(2).wrapping_add(salt),
            )
        };
        Self {
            lanes: [lane(&settings.to_server, 0), lane(&settings.to_client, 1)],
            flows: Flows::default(),
            waiting: BinaryHeap::new(),
            taken: 0,
            buffers: Vec::new(),
            mtu: usize::from(settings.mtu),
            latest: 0,
            late: 0,
        }
    }

    /// A buffer for a packet, of the length of the largest.
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(self.mtu, 0);
        buffer
    }

    /// Takes back a buffer.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < KEPT_BUFFERS {
            self.buffers.push(buffer);
        }
    }

    /// Takes in a packet.
    pub fn receive(&mut self, now: u64, way: Way, packet: Vec<u8>) {
        let (flow, payload) = self.flows.note(now, way, &packet);
        match self.lanes[way as usize].admit(now, packet.len() as u64, flow.bucket(way)) {
            Some(at) => {
                flow.passed(way, payload);
                self.taken += 1;
                let number = self.taken;
                self.waiting.push(Reverse(Waiting {
                    at,
                    number,
                    way,
                    packet,
                }));
            }
            None => self.recycle(packet),
        }
    }

    /// When the next packet arrives.
    pub fn next(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(next)| next.at)
    }

    /// The next packet, if it has arrived by `now`.
    pub fn deliver(&mut self, now: u64) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        let Reverse(next) = self.waiting.pop()?;
        self.latest = self.latest.max(now - next.at);
        self.late += u64::from(now - next.at > LATE);
        let Waiting { at, way, packet, .. } = next;
        Some(Due { way, at, packet })
    }

    /// What was done until now.
    pub fn report(&self) -> Report {
        let [to_server, to_client] = &self.lanes;
        Report {
            to_server: to_server.counts(),
            to_client: to_client.counts(),
            flows: self.flows.all(),
            latest: Duration::from_nanos(self.latest),
            late: self.late,
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests;
