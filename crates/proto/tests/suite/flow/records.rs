//! Over a transport that seals records, writes of long bodies end where a record does, and nothing is kept for good.

use crate::support::peer::id;
use bytes::{Buf, Bytes};
use fullbore_proto::{Config, Connection, Scheduling, Time, Transmit};

const RECORD: usize = 16_384;

/// A server that has a request on stream 1, whose client has room for everything.
fn asked() -> Connection {
    asked_with(Config::default().write_size())
}

/// One whose lists have so many bytes at most.
fn asked_with(write_size: usize) -> Connection {
    let mut config = Config::default();
    config.set_write_size(write_size);
    asked_by(config, RECORD, 1)
}

/// A server that has begun to answer so many requests.
fn asked_by(mut config: Config, record_size: usize, requests: u32) -> Connection {
    config.set_record_size(record_size);
    let mut server = Connection::server(config, Time::ZERO);
    let mut client = Connection::client(Config::default(), Time::ZERO);
    for _ in 0..requests {
        let request = http::Request::get("http://a/").body(()).unwrap();
        client.open(request, true).unwrap();
    }
    server.receive(written(&mut client), Time::ZERO).unwrap();
    for request in 0..requests {
        server
            .send_response(id(2 * request + 1), &http::Response::new(()), false)
            .unwrap();
    }
    written(&mut server);
    server
}

fn written(connection: &mut Connection) -> Bytes {
    let mut out = Transmit::new();
    connection.transmit(&mut out, Time::ZERO);
    out.copy_to_bytes(out.remaining())
}

fn send(server: &mut Connection, bytes: usize, end: bool) {
    let body = Bytes::from(vec![7; bytes]);
    server.send_data(id(1), body, end).unwrap();
}

#[test]
fn a_body_that_goes_on_leaves_in_whole_records() {
    let mut server = asked();
    let mut sent = 0;
    for _ in 0..40 {
        send(&mut server, 256 << 10, false);
        let write = written(&mut server);
        assert_eq!(write.len() % RECORD, 0);
        sent += write.len();
    }
    assert!(sent > 39 * (256 << 10));
    // What is left leaves alone when there is nothing more.
    assert!(server.wants_transmit());
    let rest = written(&mut server);
    assert!(!rest.is_empty() && rest.len() < RECORD, "{}", rest.len());
    assert!(!server.wants_transmit());
}

#[test]
fn a_body_that_ends_leaves_whole() {
    let mut server = asked();
    send(&mut server, 256 << 10, true);
    let write = written(&mut server);
    assert_eq!(write.len(), (256 << 10) + 16 * 9);
    assert!(!server.wants_transmit());
}

#[test]
fn a_full_list_ends_with_a_record_and_the_rest_follows() {
    let mut server = asked();
    send(&mut server, 2 << 20, true);
    let mut lists = Vec::new();
    while server.wants_transmit() {
        lists.push(written(&mut server).len());
    }
    let last = lists.pop().unwrap();
    assert!(
        lists
            .iter()
            .all(|list| list % RECORD == 0 && *list >= 28 * RECORD),
        "{lists:?}"
    );
    // Frames cut at a list's end cost a head each.
    let frames = (lists.iter().sum::<usize>() + last - (2 << 20)) / 9;
    assert!(frames <= 128 + lists.len() + 1, "{frames}");
}

#[test]
fn a_shorter_list_ends_with_a_record_too() {
    let mut server = asked_with(5 * RECORD);
    send(&mut server, 1 << 20, true);
    for _ in 0..12 {
        assert_eq!(written(&mut server).len(), 5 * RECORD);
    }
    for records in 1..5 {
        let mut server = asked_with(records * RECORD);
        send(&mut server, 1 << 20, true);
        assert_eq!(written(&mut server).len(), records * RECORD);
    }
}

#[test]
fn a_list_that_is_full_of_slices_ends_with_a_record() {
    // A frame header and a payload are a slice each, and a list has 64.
    for (record_size, length) in [(RECORD, 32 * RECORD), (0, 32 * (16_384 + 9))] {
        let mut config = Config::default();
        config.set_write_size(1 << 20);
        let mut server = asked_by(config, record_size, 1);
        send(&mut server, 1 << 20, true);
        assert_eq!(written(&mut server).len(), length);
    }
}

#[test]
fn a_list_has_one_frame_however_short_it_is_to_be() {
    for write_size in [0, 1, 1_000] {
        let mut server = asked_with(write_size);
        send(&mut server, 100_000, true);
        let mut lists = Vec::new();
        while server.wants_transmit() {
            lists.push(written(&mut server).len());
        }
        assert_eq!(
            lists,
            [[16_393; 6].as_slice(), &[100_000 - 6 * 16_384 + 9]].concat()
        );
    }
}

#[test]
fn a_list_ends_with_the_record_at_which_a_body_pauses_though_another_one_goes_on() {
    let mut config = Config::default();
    config.set_scheduling(Scheduling::Fair);
    let mut server = asked_by(config, RECORD, 2);
    for (stream, bytes, end) in [(1, 50_000, false), (3, 200_000, true)] {
        let body = Bytes::from(vec![7; bytes]);
        server.send_data(id(stream), body, end).unwrap();
    }
    // Two frames of each, and what the record has room for of the third one of stream 1.
    assert_eq!(written(&mut server).len(), 5 * RECORD);
    assert!(server.wants_transmit());
}

#[test]
fn a_full_list_ends_with_a_frame_of_one_octet_if_its_record_has_room_for_no_more() {
    let mut config = Config::default();
    config.set_write_size(RECORD);
    let mut server = asked_by(config, RECORD, 2);
    // The first frame leaves room for a frame header and one octet.
    for (stream, bytes) in [(1, RECORD - 9 - 10), (3, 100_000)] {
        let body = Bytes::from(vec![7; bytes]);
        server.send_data(id(stream), body, true).unwrap();
    }
    assert_eq!(written(&mut server).len(), RECORD);
    assert!(server.wants_transmit());
}

#[test]
fn a_body_whose_end_is_that_of_a_full_list_is_over() {
    let mut server = asked_with(5 * RECORD);
    // Five frame headers are in the list too.
    send(&mut server, 5 * (RECORD - 9), true);
    server.release(id(1));
    assert_eq!(written(&mut server).len(), 5 * RECORD);
    assert_eq!((server.stream_count(), server.wants_transmit()), (0, false));
}

#[test]
fn a_short_frame_that_reaches_into_another_record_is_in_the_full_list() {
    let mut config = Config::default();
    config.set_write_size(RECORD);
    let mut server = asked_by(config, RECORD, 2);
    // The first frame leaves room for no frame header.
    for (stream, bytes) in [(1, RECORD - 9 - 5), (3, 100)] {
        let body = Bytes::from(vec![7; bytes]);
        server.send_data(id(stream), body, true).unwrap();
    }
    assert_eq!(written(&mut server).len(), RECORD - 5 + 9 + 100);
    assert!(!server.wants_transmit());
}

#[test]
fn a_short_list_that_is_just_full_ends_with_a_record() {
    for (queued, written) in [(1_490, 1_499), (1_491, 1_000)] {
        let mut server = asked_by(Config::default(), 1_000, 1);
        send(&mut server, queued, false);
        let mut out = Transmit::new();
        server.transmit_within(&mut out, 1_500, Time::ZERO);
        assert_eq!(out.remaining(), written, "{queued}");
    }
}
