//! One direction of the link: when arriving data is delivered, and how much more may arrive.
//!
//! This has no I/O and no clock: the time is an argument, in nanoseconds since the link began. The engine has one path for
//! each direction. All connections share it, and it keeps the order.

use std::collections::VecDeque;

use crate::byte_queue::MOST_READ;

/// The longest time of a packet. A packet takes a fiftieth of the round trip, so that it delays a window by at most 2 %, but
/// no more than this: 5,000 wake-ups a second at 1 Gbit/s.
const LONGEST_PACKET_NANOSECONDS: u64 = 200_000;
const PACKETS_A_ROUND_TRIP: u64 = 50;
/// The shortest time of a packet: 50,000 wake-ups a second at 1 Gbit/s. A slower thread delivers several packets at once.
const SHORTEST_PACKET_NANOSECONDS: u64 = 20_000;

/// The smallest packet: the payload of a TCP segment on Ethernet.
const SMALLEST_PACKET: u64 = 1_448;

const BITS: u64 = 8;
const SECOND: u64 = 1_000_000_000;

/// The settings of one direction.
#[derive(Clone, Debug)]
pub(crate) struct PathSettings {
    /// Nanoseconds from the end of a departure to its delivery.
    pub(crate) delay: u64,
    /// Bits a second; `None` is no limit. Never zero.
    pub(crate) rate: Option<u64>,
    /// How many bytes may wait for the link. Never zero.
    pub(crate) buffer: u64,
    /// Each delay differs from `delay` by at most this, in nanoseconds.
    pub(crate) jitter: u64,
    pub(crate) seed: u64,
}

/// The content of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cargo {
    /// The next bytes of the connection's queue.
    Bytes(usize),
    /// The end of the sender's data.
    End,
    /// The sender has reset the connection.
    Reset,
    /// The three packets of an emulated TCP handshake: from the client,
    Syn,
    /// from the server,
    SynAck,
    /// and from the client again.
    Ack,
}

/// A packet and its time of delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) delivery: u64,
    pub(crate) connection: usize,
    pub(crate) cargo: Cargo,
    /// When it arrived, when its departure begins, and its delay after the departure: [`Path::drop_waiting`] computes the
    /// deliveries again from them.
    arrival: u64,
    begins: u64,
    delay: u64,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Path {
    settings: PathSettings,
    packet_size: usize,
    /// When the last byte has departed.
    free_at: u64,
    /// The fraction of a nanosecond beyond `free_at`, in 1/rate, so that rounding does not accumulate.
    remainder: u64,
    last_delivery: u64,
    random: u64,
    packets: VecDeque<Packet>,
}

impl Path {
    pub(crate) fn new(settings: PathSettings) -> Self {
        let most = MOST_READ as u64;
        let packet_time = (settings.delay.saturating_mul(2) / PACKETS_A_ROUND_TRIP)
            .clamp(SHORTEST_PACKET_NANOSECONDS, LONGEST_PACKET_NANOSECONDS);
        let packet_size = settings.rate.map_or(most, |rate| {
            let carried = u128::from(rate) * u128::from(packet_time) / u128::from(BITS * SECOND);
            u64::try_from(carried)
                .unwrap_or(most)
                .clamp(SMALLEST_PACKET, most)
        });
        Self {
            packet_size: usize::try_from(packet_size).unwrap_or(MOST_READ),
            free_at: 0,
            remainder: 0,
            last_delivery: 0,
            random: settings.seed,
            packets: VecDeque::new(),
            settings,
        }
    }

    /// `count` bytes arrive; returns how many packets they are.
    pub(crate) fn send_bytes(&mut self, now: u64, connection: usize, count: usize) -> usize {
        let mut left = count;
        let mut packets = 0;
        while left > 0 {
            let size = left.min(self.packet_size);
            left -= size;
            packets += 1;
            self.send(now, connection, Cargo::Bytes(size));
        }
        packets
    }

    /// Cargo arrives. Cargo without bytes takes no time on the link, but follows the bytes.
    pub(crate) fn send(&mut self, now: u64, connection: usize, cargo: Cargo) {
        let delay = self.next_delay();
        self.queue(now, delay, connection, cargo);
    }

    fn queue(&mut self, arrival: u64, delay: u64, connection: usize, cargo: Cargo) {
        if self.free_at < arrival {
            self.free_at = arrival;
            self.remainder = 0;
        }
        let begins = self.free_at;
        if let (Some(rate), Cargo::Bytes(size)) = (self.settings.rate, cargo) {
            let work = size as u128 * u128::from(BITS * SECOND) + u128::from(self.remainder);
            let rate = u128::from(rate);
            self.free_at = self.free_at.saturating_add((work / rate) as u64);
            self.remainder = (work % rate) as u64;
        }
        let delivery = self.last_delivery.max(self.free_at.saturating_add(delay));
        self.last_delivery = delivery;
        self.packets.push_back(Packet {
            delivery,
            connection,
            cargo,
            arrival,
            begins,
            delay,
        });
    }

    /// Drops the bytes of a connection that wait for the link, since nobody will receive them: what is behind them departs
    /// earlier. Returns how many packets they were. A packet whose departure has begun is delivered.
    pub(crate) fn drop_waiting(&mut self, now: u64, connection: usize) -> usize {
        let is_dropped =
            |packet: &Packet| packet.connection == connection && matches!(packet.cargo, Cargo::Bytes(_));
        // Departures begin in the order of the queue.
        let departed = self.packets.partition_point(|packet| packet.begins <= now);
        let Some(first) = self.packets.range(departed..).position(is_dropped) else {
            return 0;
        };
        let first = departed + first;
        let behind = self.packets.split_off(first);
        // The link is free when the dropped packet would have begun, or now if it began as soon as it arrived.
        self.free_at = behind.front().map_or(now, |packet| packet.begins);
        self.remainder = 0;
        self.last_delivery = self.packets.back().map_or(0, |packet| packet.delivery);
        let before = behind.len();
        for packet in behind.into_iter().filter(|packet| !is_dropped(packet)) {
            self.queue(packet.arrival, packet.delay, packet.connection, packet.cargo);
        }
        before - (self.packets.len() - first)
    }

    /// The next packet, if it is due.
    pub(crate) fn receive(&mut self, now: u64) -> Option<Packet> {
        if self.packets.front()?.delivery > now {
            return None;
        }
        self.packets.pop_front()
    }

    /// When the next packet is due.
    pub(crate) fn next_delivery(&self) -> Option<u64> {
        self.packets.front().map(|packet| packet.delivery)
    }

    /// How many bytes may arrive now before the buffer is full.
    pub(crate) fn space(&self, now: u64) -> u64 {
        let Some(rate) = self.settings.rate else {
            return u64::MAX;
        };
        let busy = u128::from(self.free_at.saturating_sub(now));
        let waiting = (busy * u128::from(rate)).div_ceil(u128::from(BITS * SECOND));
        self.settings
            .buffer
            .saturating_sub(u64::try_from(waiting).unwrap_or(u64::MAX))
    }

    /// The space worth waiting for: a whole read, or the whole of a smaller buffer.
    pub(crate) fn enough_space(&self) -> u64 {
        self.settings.buffer.min(MOST_READ as u64)
    }

    /// When there is that much space, if nothing more arrives.
    pub(crate) fn space_at(&self) -> u64 {
        let Some(rate) = self.settings.rate else {
            return 0;
        };
        let may_wait = u128::from(self.settings.buffer - self.enough_space());
        let time = may_wait * u128::from(BITS * SECOND) / u128::from(rate);
        self.free_at
            .saturating_sub(u64::try_from(time).unwrap_or(u64::MAX))
    }

    fn next_delay(&mut self) -> u64 {
        let PathSettings { delay, jitter, .. } = self.settings;
        if jitter == 0 {
            return delay;
        }
        // The high half of the product maps 64 random bits to the width almost evenly, without a division.
        let width = u128::from(jitter) * 2 + 1;
        let drawn = (u128::from(self.next_random()) * width) >> 64;
        delay.saturating_add(drawn as u64).saturating_sub(jitter)
    }

    /// SplitMix64: the same seed gives the same delays in every version and on every machine.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GBIT: u64 = 1_000_000_000;

    fn settings() -> PathSettings {
        PathSettings {
            delay: 50 * MS,
            rate: Some(GBIT),
            buffer: 1 << 20,
            jitter: 0,
            seed: 1,
        }
    }

    fn all(path: &mut Path) -> Vec<Packet> {
        std::iter::from_fn(|| path.receive(u64::MAX)).collect()
    }

    #[test]
    fn a_byte_is_delivered_when_it_has_departed_and_travelled() {
        let mut path = Path::new(settings());
        path.send_bytes(0, 7, 1_000);
        // 8 us on an idle link; the second waits for the first; the third finds the link idle again.
        path.send_bytes(0, 7, 1_000);
        path.send_bytes(MS, 7, 1_000);
        let at: Vec<u64> = all(&mut path).iter().map(|packet| packet.delivery).collect();
        assert_eq!(at, [50 * MS + 8_000, 50 * MS + 16_000, 51 * MS + 8_000]);
    }

    #[test]
    fn nothing_is_delivered_before_its_time() {
        let mut path = Path::new(settings());
        path.send_bytes(0, 7, 1_000);
        let time = 50 * MS + 8_000;
        assert_eq!(path.next_delivery(), Some(time));
        assert_eq!(path.receive(time - 1), None);
        assert!(path.receive(time).is_some());
        assert_eq!(path.next_delivery(), None);
    }

    #[test]
    fn a_large_read_is_delivered_in_packets_of_a_fifth_of_a_millisecond() {
        let mut path = Path::new(settings());
        path.send_bytes(0, 7, MOST_READ);
        let packets = all(&mut path);
        let mut total = 0;
        for packet in &packets {
            let Cargo::Bytes(size) = packet.cargo else {
                panic!("{packet:?}");
            };
            total += size;
            assert!(size <= 25_000);
            assert_eq!(packet.delivery, 50 * MS + total as u64 * 8);
        }
        assert_eq!((packets.len(), total), (11, MOST_READ));
    }

    #[test]
    fn a_short_path_delivers_in_smaller_packets_and_a_shorter_one_in_none_that_are_smaller_still() {
        for (delay, packet) in [(50 * MS, 25_000), (2 * MS, 10_000), (MS / 2, 2_500), (0, 2_500)] {
            let mut path = Path::new(PathSettings { delay, ..settings() });
            path.send_bytes(0, 7, MOST_READ);
            assert_eq!(
                path.receive(u64::MAX).map(|first| first.cargo),
                Some(Cargo::Bytes(packet)),
                "{delay} ns each way"
            );
        }
    }

    #[test]
    fn odd_rates_add_up_to_the_nanosecond() {
        // A byte takes 8/3 of a nanosecond; after three million, no third of one is lost.
        let mut path = Path::new(PathSettings {
            delay: 0,
            rate: Some(3 * GBIT),
            ..settings()
        });
        for _ in 0..3_000_000 {
            path.send_bytes(0, 7, 1);
        }
        assert_eq!(path.last_delivery, 8_000_000);
    }

    #[test]
    fn an_end_waits_behind_the_bytes() {
        let mut path = Path::new(settings());
        path.send_bytes(0, 7, 1_250);
        path.send(0, 7, Cargo::End);
        let packets = all(&mut path);
        assert_eq!(packets[1].cargo, Cargo::End);
        assert_eq!(packets[1].delivery, packets[0].delivery);
    }

    #[test]
    fn what_waits_for_a_dead_connection_no_longer_delays_the_others() {
        let mut path = Path::new(settings());
        for connection in [1, 2, 1] {
            path.send_bytes(0, connection, 100_000);
        }
        path.send(0, 1, Cargo::Reset);
        path.send_bytes(0, 3, 1_000);
        // Of the twelve packets of 25,000 bytes one has departed, and half of the second.
        let now = 300_000;
        assert_eq!(path.drop_waiting(now, 1), 2 + 4);
        assert_eq!(path.drop_waiting(now, 1), 0);
        assert_eq!(path.drop_waiting(now, 7), 0);
        assert_eq!(path.space(now), (1 << 20) - (12_500 + 100_000 + 1_000));
        let packets = all(&mut path);
        let of = |connection| {
            packets
                .iter()
                .filter(move |packet| packet.connection == connection)
        };
        let last = |connection| of(connection).next_back().map(|packet| packet.delivery);
        assert_eq!(of(1).count(), 2 + 1, "two packets and the reset");
        assert_eq!(of(2).count(), 4);
        assert_eq!(last(2), Some(50 * MS + (50_000 + 100_000) * 8));
        assert_eq!(last(3), Some(50 * MS + (50_000 + 100_000 + 1_000) * 8));
        assert!(packets.windows(2).all(|two| two[0].delivery <= two[1].delivery));
    }

    #[test]
    fn the_buffer_holds_what_waits_for_the_link_not_what_travels() {
        let mut path = Path::new(settings());
        assert_eq!(path.space(0), 1 << 20);
        for _ in 0..4 {
            path.send_bytes(0, 7, MOST_READ);
        }
        assert_eq!(path.space(0), 0);
        // All has departed after 8.39 ms, 42 ms before the first byte is delivered.
        assert_eq!(path.space(9 * MS), 1 << 20);
        let time = path.space_at();
        assert!(path.space(time) >= path.enough_space());
        assert!(path.space(time - 1_000) < path.enough_space());
    }

    #[test]
    fn a_buffer_smaller_than_a_read_is_waited_for_as_a_whole() {
        let mut path = Path::new(PathSettings {
            buffer: 1_000,
            ..settings()
        });
        assert_eq!(path.enough_space(), 1_000);
        path.send_bytes(0, 7, 1_000);
        assert_eq!(path.space(0), 0);
        assert_eq!(path.space_at(), 8_000);
        assert_eq!(path.space(8_000), 1_000);
    }

    #[test]
    fn without_a_rate_there_is_only_the_delay() {
        let mut path = Path::new(PathSettings {
            rate: None,
            ..settings()
        });
        for _ in 0..1_000 {
            path.send_bytes(5, 7, MOST_READ);
        }
        assert_eq!(path.space(5), u64::MAX);
        let packets = all(&mut path);
        assert_eq!(packets.len(), 1_000);
        assert!(packets.iter().all(|packet| packet.delivery == 50 * MS + 5));
    }

    #[test]
    fn jitter_keeps_its_bounds_and_the_order_and_repeats_with_its_seed() {
        let jittery = |seed| {
            let mut path = Path::new(PathSettings {
                jitter: 2 * MS,
                seed,
                ..settings()
            });
            for turn in 0..1_000 {
                path.send_bytes(turn * 10 * MS, 7, 125);
            }
            let at: Vec<u64> = all(&mut path).iter().map(|packet| packet.delivery).collect();
            at
        };
        let first = jittery(1);
        assert_eq!(first, jittery(1));
        assert_ne!(first, jittery(2));
        let delays: Vec<u64> = (0..)
            .zip(&first)
            .map(|(turn, at)| at - turn * 10 * MS - 1_000)
            .collect();
        assert!(delays.iter().all(|delay| (48 * MS..=52 * MS).contains(delay)));
        assert!(delays.iter().any(|delay| *delay < 49 * MS));
        assert!(delays.iter().any(|delay| *delay > 51 * MS));
    }

    #[test]
    fn jitter_never_reorders() {
        let mut path = Path::new(PathSettings {
            delay: MS,
            jitter: 5 * MS,
            ..settings()
        });
        for connection in 0..1_000 {
            path.send_bytes(connection as u64 * 1_000, connection, 1);
        }
        let packets = all(&mut path);
        assert!(
            packets
                .windows(2)
                .all(|two| two[0].delivery <= two[1].delivery && two[0].connection < two[1].connection)
        );
    }
}
