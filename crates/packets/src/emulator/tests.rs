//! The pure part: exact figures on a clock that the tests move.

use super::*;
use crate::flows::tests::packet;
use crate::settings::{Direction, Policer, Tcp};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const ACK: u8 = 16;
const FIN: u8 = 1;

/// A packet of 1000 bytes from the server to this port of the client.
fn thousand_bytes(port: u16) -> Vec<u8> {
    packet((1, 80), (2, port), ACK, 960)
}

fn emulator(to_client: Direction, seed: u64) -> Emulator {
    let mut settings = Settings::new(to_client, Tcp::default());
    settings.seed = seed;
    Emulator::new(&settings)
}

/// Sends one packet each `gap`, and gives the numbers of those that arrived, in the order of their arrival, with the times.
fn send(emulator: &mut Emulator, count: u32, gap: u64) -> Vec<(u32, u64)> {
    for number in 0..count {
        let mut packet = thousand_bytes(4000);
        packet[960..964].copy_from_slice(&number.to_be_bytes());
        emulator.receive(u64::from(number) * gap, Way::ToClient, packet);
    }
    let mut arrived = Vec::new();
    while let Some(due) = emulator.deliver(u64::MAX) {
        let number = due.packet[960..].first_chunk().expect("the number is there");
        arrived.push((u32::from_be_bytes(*number), due.at));
    }
    arrived
}

fn delayed(milliseconds: u64) -> Direction {
    Direction {
        delay: Duration::from_millis(milliseconds),
        ..Direction::default()
    }
}

#[test]
fn the_same_seed_gives_each_packet_the_same_fate() {
    let all_at_once = Direction {
        loss: 0.05,
        burst: 3.0,
        jitter: Duration::from_millis(4),
        reorder: 0.1,
        rate: Some(80_000_000),
        ..delayed(10)
    };
    let fates = |seed| send(&mut emulator(all_at_once, seed), 5_000, MS);
    assert_eq!(fates(1), fates(1));
    assert_ne!(fates(1), fates(2));
}

#[test]
fn which_packets_are_lost_depends_on_their_number_and_not_on_the_time() {
    let lossy = Direction {
        loss: 0.03,
        ..delayed(1)
    };
    let arrived = |gap| -> Vec<u32> {
        let arrived = send(&mut emulator(lossy, 7), 2_000, gap);
        arrived.iter().map(|(number, _)| *number).collect()
    };
    assert_eq!(arrived(MS), arrived(17));
}

#[test]
fn packets_take_the_links_rate_and_then_the_delay() {
    // 1000 bytes at 8 Mbit/s take a millisecond.
    let slow = Direction {
        rate: Some(8_000_000),
        queue: Some(1 << 20),
        ..delayed(50)
    };
    let arrived = send(&mut emulator(slow, 1), 10, 0);
    let expected: Vec<(u32, u64)> = (0..10).map(|n| (n, u64::from(n + 1) * MS + 50 * MS)).collect();
    assert_eq!(arrived, expected);
}

#[test]
fn a_full_queue_drops_what_comes_last() {
    let short = Direction {
        rate: Some(8_000_000),
        queue: Some(3_000),
        ..delayed(0)
    };
    let mut emulator = emulator(short, 1);
    let arrived = send(&mut emulator, 10, 0);
    assert_eq!(arrived.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2]);
    let counts = emulator.report().to_client;
    assert_eq!(
        (counts.packets, counts.dropped, counts.longest_queue),
        (10, 7, 3_000)
    );
}

#[test]
fn losses_come_alone_or_in_bursts_and_as_often_as_stated() {
    const PACKETS: u32 = 200_000;
    for burst in [1.0, 6.0] {
        let lossy = Direction {
            loss: 0.02,
            burst,
            ..delayed(0)
        };
        let arrived = send(&mut emulator(lossy, 3), PACKETS, 1);
        let gaps = arrived.windows(2).filter_map(|pair| match pair {
            [(before, _), (after, _)] => (after - before > 1).then_some(after - before - 1),
            _ => None,
        });
        let (mut bursts, mut lost) = (0_u32, 0_u32);
        gaps.for_each(|gap| {
            bursts += 1;
            lost += gap;
        });
        let share = f64::from(lost) / f64::from(PACKETS);
        let length = f64::from(lost) / f64::from(bursts);
        assert!((0.017..0.023).contains(&share), "{burst}: {share}");
        assert!((0.9 * burst..1.1 * burst).contains(&length), "{burst}: {length}");
    }
}

#[test]
fn a_policer_limits_each_flow_by_itself() {
    let policed = Direction {
        policer: Some(Policer {
            rate: 8_000_000,
            burst: 10_000,
        }),
        ..delayed(0)
    };
    let mut emulator = emulator(policed, 1);
    // Each of two flows sends at twice its rate for a second: 2,000 packets, of which the bucket and the rate pass 1,010.
    for half in 0..2_000 {
        for port in [4000, 4001] {
            emulator.receive(half * MS / 2, Way::ToClient, thousand_bytes(port));
        }
    }
    let report = emulator.report();
    let delivered = report.to_client.delivered;
    assert!((2_018..=2_020).contains(&delivered), "{delivered}");
    assert_eq!(report.to_client.policed, 4_000 - delivered);
    for flow in report.flows {
        assert_eq!(flow.from_server, 2_000 * 960);
        assert!(
            (1_009 * 960..=1_010 * 960).contains(&flow.to_client),
            "{}",
            flow.to_client
        );
    }
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let jittery = Direction {
        jitter: Duration::from_millis(20),
        ..delayed(5)
    };
    let arrived = send(&mut emulator(jittery, 1), 1_000, MS);
    assert!(arrived.is_sorted());
    let spread = arrived
        .iter()
        .map(|(number, at)| at - u64::from(*number) * MS - 5 * MS);
    assert!(spread.clone().max() > Some(10 * MS) && spread.min() < Some(10 * MS));

    let reordering = Direction {
        reorder: 0.05,
        reorder_by: Duration::from_millis(3),
        ..delayed(5)
    };
    let mut emulator = emulator(reordering, 1);
    let arrived = send(&mut emulator, 1_000, MS / 2);
    let overtaken = arrived.windows(2).filter(|pair| pair[0].0 > pair[1].0).count() as u64;
    assert_eq!(arrived.len(), 1_000);
    assert!(overtaken > 20 && overtaken <= emulator.report().to_client.reordered);
}

#[test]
fn a_packet_that_is_not_due_waits_and_the_late_one_is_reported() {
    let mut emulator = emulator(delayed(10), 1);
    emulator.receive(0, Way::ToServer, packet((2, 4000), (1, 80), ACK, 0));
    assert_eq!(emulator.next(), Some(10 * MS));
    assert_eq!(emulator.deliver(10 * MS - 1), None);
    let due = emulator.deliver(13 * MS).expect("it is due");
    assert_eq!((due.way, due.at), (Way::ToServer, 10 * MS));
    let report = emulator.report();
    assert_eq!((report.late, report.latest), (1, Duration::from_millis(3)));
}

#[test]
fn connections_that_were_closed_before_the_last_payload_are_not_open_at_the_end() {
    let mut emulator = emulator(delayed(0), 1);
    for port in [4000, 4001, 4002] {
        emulator.receive(0, Way::ToClient, thousand_bytes(port));
    }
    emulator.receive(SECOND, Way::ToServer, packet((2, 4001), (1, 80), ACK | FIN, 0));
    emulator.receive(2 * SECOND, Way::ToClient, thousand_bytes(4000));
    for port in [4000, 4002] {
        emulator.receive(
            3 * SECOND,
            Way::ToServer,
            packet((2, port), (1, 80), ACK | FIN, 0),
        );
    }
    let report = emulator.report();
    assert_eq!((report.flows.len(), report.open_at_the_end()), (3, 2));
}
