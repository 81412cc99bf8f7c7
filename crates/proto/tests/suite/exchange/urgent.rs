//! Who is sent when, to the frame, in front of a transport that takes little at a time (RFC 9218, law 9).

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, FrameType, Priority, StreamId, Time, Transmit};
use http::{Request, Response};
use proptest::prelude::*;

use crate::support::tap::Tap;

const FRAME: usize = 16_384;

/// A server whose transport drains as the test says, and its client, which receives everything at once.
struct Sender {
    client: Connection,
    server: Connection,
    tap: Tap,
}

impl Sender {
    fn new() -> Self {
        Self::of(Config::default())
    }

    /// One with these settings of the server.
    fn of(config: Config) -> Self {
        let mut sender = Sender::silent(config);
        sender.ask();
        sender.send(usize::MAX);
        sender
    }

    /// One whose server has sent nothing yet.
    fn silent(config: Config) -> Self {
        Sender {
            client: Connection::client(Config::default(), Time::ZERO),
            server: Connection::server(config, Time::ZERO),
            tap: Tap::new(false),
        }
    }

    /// What the client has to say reaches the server.
    fn ask(&mut self) {
        let said = written(&mut self.client, usize::MAX);
        self.server.receive(said, Time::ZERO).unwrap();
    }

    /// A request of this priority, which the server answers with so many bytes; without any the body is open.
    fn get(&mut self, urgency: u8, incremental: bool, bytes: usize) -> StreamId {
        let priority = Priority::new(urgency, incremental).unwrap().to_field_value();
        let request = Request::get("http://a/").header("priority", priority).body(());
        let id = self.client.open(request.unwrap(), true).unwrap();
        self.ask();
        self.server.send_response(id, &Response::new(()), false).unwrap();
        let body = Bytes::from(vec![7; bytes]);
        self.server.send_data(id, body, bytes > 0).unwrap();
        id
    }

    fn update(&mut self, id: StreamId, urgency: u8, incremental: bool) {
        let priority = Priority::new(urgency, incremental).unwrap();
        self.client.send_priority_update(id, priority).unwrap();
        self.ask();
    }

    /// Sends a list of about `most` bytes: how many it has, and whose DATA frames.
    fn send(&mut self, most: usize) -> (usize, Vec<StreamId>) {
        let list = written(&mut self.server, most);
        let before = self.tap.frames.len();
        self.tap.write(&list, Time::ZERO);
        let octets = list.len();
        self.client.receive(list, Time::ZERO).unwrap();
        let frames = self.tap.frames[before..].iter();
        let data = frames.filter(|seen| seen.is(FrameType::DATA) && seen.header.length > 0);
        (octets, data.filter_map(|seen| seen.header.stream).collect())
    }

    /// Sends lists of one frame each.
    fn frames(&mut self, count: usize) -> Vec<StreamId> {
        (0..count).flat_map(|_| self.send(FRAME).1).collect()
    }
}

fn written(connection: &mut Connection, most: usize) -> Bytes {
    let mut out = Transmit::new();
    connection.transmit_within(&mut out, most, Time::ZERO);
    out.copy_to_bytes(out.remaining())
}

#[test]
fn each_urgency_is_served_before_the_next_in_order_or_by_turns() {
    let mut sender = Sender::new();
    let mut expected = Vec::new();
    // The least urgent are asked for first.
    for urgency in (0..8).rev() {
        let incremental = urgency % 2 == 1;
        let [one, two] = [0; 2].map(|_| sender.get(urgency, incremental, 3 * FRAME));
        let turns = match incremental {
            true => [one, two, one, two, one, two],
            false => [one, one, one, two, two, two],
        };
        expected.splice(0..0, turns);
    }
    assert_eq!(sender.frames(expected.len()), expected);
    assert!(!sender.server.wants_transmit());
}

#[test]
fn incremental_streams_share_by_bytes() {
    let mut sender = Sender::new();
    let streams = [0; 3].map(|_| sender.get(3, true, 40 * FRAME));
    let sent = sender.frames(60);
    for stream in streams {
        assert_eq!(sent.iter().filter(|id| **id == stream).count(), 20);
    }
}

#[test]
fn a_list_is_as_long_as_the_owner_allows() {
    let mut sender = Sender::new();
    sender.get(3, false, 4 << 20);
    let overhead = |frames: usize| 9 * frames;
    let (first, _) = sender.send(FRAME);
    assert!(
        first > FRAME && first < 2 * FRAME,
        "its HEADERS come on top: {first}"
    );
    assert_eq!(sender.send(FRAME).0, FRAME + overhead(1));
    assert_eq!(sender.send(4 * FRAME).0, 4 * FRAME + overhead(4));
    // Also the engine's own limit holds.
    let (most, _) = sender.send(usize::MAX);
    assert_eq!(most, 32 * FRAME + overhead(32));
}

#[test]
fn a_stream_that_becomes_ready_is_in_the_next_list_and_what_it_interrupts_continues() {
    let mut sender = Sender::new();
    let bulk = sender.get(7, true, 20 * FRAME);
    assert_eq!(sender.frames(2), [bulk; 2]);
    let urgent = sender.get(0, false, 2 * FRAME);
    let usual = sender.get(3, false, FRAME);
    assert_eq!(sender.frames(5), [urgent, urgent, usual, bulk, bulk]);
}

#[test]
fn a_new_priority_counts_from_the_next_frame() {
    let mut sender = Sender::new();
    let [one, two] = [0; 2].map(|_| sender.get(3, false, 40 * FRAME));
    assert_eq!(sender.frames(2), [one; 2]);
    sender.update(two, 0, false);
    assert_eq!(sender.frames(2), [two; 2]);
    sender.update(two, 7, false);
    assert_eq!(sender.frames(2), [one; 2]);
    sender.update(one, 7, true);
    sender.update(two, 7, true);
    let turns = sender.frames(6);
    assert!(turns.windows(2).all(|two| two[0] != two[1]), "{turns:?}");
    sender.update(one, 2, false);
    assert_eq!(sender.frames(3), [one; 3]);
}

#[test]
fn the_response_changes_what_the_client_asked_for() {
    let mut sender = Sender::new();
    let mut answer = |urgency: u8, incremental: bool, change: fn(&mut Response<()>)| {
        let priority = Priority::new(urgency, incremental).unwrap().to_field_value();
        let request = Request::get("http://a/").header("priority", priority).body(());
        let id = sender.client.open(request.unwrap(), true).unwrap();
        sender.ask();
        let mut response = Response::new(());
        change(&mut response);
        sender.server.send_response(id, &response, false).unwrap();
        let body = Bytes::from(vec![7; 2 * FRAME]);
        sender.server.send_data(id, body, true).unwrap();
        id
    };
    let usual = answer(3, false, |_| {});
    // The urgency is the server's, and that it is incremental the client's.
    let turns = [0; 2].map(|_| {
        answer(7, true, |response| {
            response.headers_mut().append("priority", "x".parse().unwrap());
            response.headers_mut().append("priority", "u=1".parse().unwrap());
        })
    });
    let last = answer(0, false, |response| {
        response.headers_mut().insert("priority", "u=6".parse().unwrap());
    });
    // An extension is not sent, and counts for more than the field.
    let first = answer(7, false, |response| {
        response.headers_mut().insert("priority", "u=7".parse().unwrap());
        response.extensions_mut().insert(Priority::new(0, false).unwrap());
    });
    let [one, two] = turns;
    let expected = [first, first, one, two, one, two, usual, usual, last, last];
    assert_eq!(sender.frames(10), expected);
}

/// Over a transport that seals records, short lists are whole records too.
#[test]
fn short_lists_are_whole_records() {
    let mut config = Config::default();
    config.set_record_size(FRAME);
    let mut sender = Sender::of(config);
    sender.get(3, false, 4 << 20);
    for records in [1, 2, 3, 1] {
        assert_eq!(sender.send(records * FRAME).0, records * FRAME);
    }
}

/// A record is of no use to the peer until its end has arrived.
#[test]
fn over_a_transport_that_seals_records_nothing_less_urgent_shares_the_record_of_the_urgent() {
    let mut config = Config::default();
    config.set_record_size(FRAME);
    let mut sender = Sender::of(config);
    let bulk = sender.get(7, true, 1 << 20);
    assert_eq!(sender.frames(2), [bulk; 2]);
    let urgent = sender.get(0, false, 9);
    let (octets, data) = sender.send(FRAME);
    assert!(octets < 200, "{octets}");
    assert_eq!(data, [urgent]);
    assert_eq!(sender.send(FRAME), (FRAME, vec![bulk]));
    // A response without a body, too.
    let request = Request::head("http://a/").header("priority", "u=0").body(());
    let id = sender.client.open(request.unwrap(), true).unwrap();
    sender.ask();
    sender.server.send_response(id, &Response::new(()), true).unwrap();
    let (octets, data) = sender.send(FRAME);
    assert!(octets < 200, "{octets}");
    assert_eq!(data, []);
    assert_eq!(sender.frames(1), [bulk]);
    // What begins together leaves together.
    let both = [0; 2].map(|_| sender.get(3, true, 100));
    assert_eq!(sender.send(FRAME).1, both);
}

#[test]
fn the_first_list_of_a_connection_ends_before_what_is_less_urgent_too() {
    let mut config = Config::default();
    config.set_record_size(FRAME);
    let mut sender = Sender::silent(config);
    let urgent = sender.get(0, false, 9);
    let bulk = sender.get(7, true, 1 << 20);
    assert_eq!(sender.send(FRAME).1, [urgent]);
    assert_eq!(sender.send(FRAME).1, [bulk]);
}

#[test]
fn lists_that_no_record_seals_or_nothing_limits_have_what_is_less_urgent_too() {
    for (record_size, most) in [(0, FRAME), (FRAME, usize::MAX)] {
        let mut config = Config::default();
        config.set_record_size(record_size);
        let mut sender = Sender::of(config);
        let bulk = sender.get(7, true, 10_000);
        let urgent = sender.get(0, false, 9);
        assert_eq!(sender.send(most).1, [urgent, bulk], "{record_size}");
    }
}

/// Otherwise requests without an end would starve it.
#[test]
fn no_two_lists_in_a_row_end_before_what_is_less_urgent() {
    let mut config = Config::default();
    config.set_record_size(FRAME);
    let mut sender = Sender::of(config);
    let bulk = sender.get(7, true, 1 << 20);
    assert_eq!(sender.frames(1), [bulk]);
    for _ in 0..10 {
        let urgent = sender.get(0, false, 9);
        assert_eq!(sender.send(FRAME).1, [urgent]);
        let urgent = sender.get(0, false, 9);
        assert_eq!(sender.send(FRAME).1, [urgent, bulk]);
    }
}

/// Nothing of it waits for the data that follows.
#[test]
fn a_body_that_pauses_leaves_in_a_short_list() {
    let mut config = Config::default();
    config.set_record_size(FRAME);
    let mut sender = Sender::of(config);
    let id = sender.get(3, false, 0);
    for bytes in [5, FRAME - 10, FRAME - 9, FRAME - 1] {
        let body = Bytes::from(vec![7; bytes]);
        sender.server.send_data(id, body, false).unwrap();
        let mut sent = 0;
        while sender.server.wants_transmit() {
            let (octets, _) = sender.send(FRAME);
            assert!(octets > 0, "{bytes}: the rest is held back");
            sent += octets;
        }
        assert!(sent >= bytes + 9, "{bytes}: {sent}");
    }
}

/// What happens in front of a transport.
#[derive(Debug, Clone)]
enum Step {
    /// A response of this priority becomes ready.
    Ready(u8, bool, usize),
    /// The stream of this number has another priority.
    Update(usize, u8, bool),
    /// The transport sends this much of what it holds.
    Drain(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..8_u8, any::<bool>(), 1..200_000_usize).prop_map(|(u, i, bytes)| Step::Ready(u, i, bytes)),
        (0..40_usize, 0..8_u8, any::<bool>()).prop_map(|(stream, u, i)| Step::Update(stream, u, i)),
        (1..100_000_usize).prop_map(Step::Drain),
        (1..100_000_usize).prop_map(Step::Drain),
    ]
}

/// A response as the test knows it.
struct Body {
    id: StreamId,
    urgency: u8,
    left: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An owner that builds a list when half of the limit is unsent, as long as the other half, sends nothing that is less
    /// urgent while something more urgent is ready; so that the most urgent waits for no more than the limit.
    #[test]
    fn the_most_urgent_waits_for_no_more_than_what_is_unsent(
        limit in (2..9_usize).prop_map(|halves| halves * 2 * FRAME),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut sender = Sender::new();
        let mut bodies: Vec<Body> = Vec::new();
        let mut unsent = 0_usize;
        for step in steps {
            match step {
                Step::Ready(urgency, incremental, left) => {
                    let id = sender.get(urgency, incremental, left);
                    bodies.push(Body { id, urgency, left });
                }
                Step::Update(number, urgency, incremental) => {
                    if let Some(body) = bodies.get_mut(number).filter(|body| body.left > 0) {
                        sender.update(body.id, urgency, incremental);
                        body.urgency = urgency;
                    }
                }
                Step::Drain(bytes) => unsent = unsent.saturating_sub(bytes),
            }
            while unsent < limit / 2 && sender.server.wants_transmit() {
                let frames = sender.tap.frames.len();
                let (octets, _) = sender.send(limit / 2);
                let mut others = 0;
                for seen in &sender.tap.frames[frames..] {
                    if !seen.is(FrameType::DATA) {
                        others += 9 + seen.header.length as usize;
                        continue;
                    }
                    let most_urgent = bodies.iter().filter(|body| body.left > 0).map(|body| body.urgency).min();
                    let body = bodies.iter_mut().find(|body| Some(body.id) == seen.header.stream).unwrap();
                    prop_assert_eq!(Some(body.urgency), most_urgent);
                    body.left -= seen.header.length as usize;
                }
                unsent += octets;
                prop_assert!(unsent.saturating_sub(others) < limit + FRAME + 9, "{} of {}", unsent, limit);
            }
        }
    }
}
