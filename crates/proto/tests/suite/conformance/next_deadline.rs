//! When a connection asks to be called next, to the nanosecond, by what it waits for.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, Connection, KeepAlive, Time, Transmit};
use http::Response;

use crate::support::config;
use crate::support::frames;
use crate::support::peer::{Faced, id};

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn server(change: impl FnOnce(&mut Config)) -> Faced {
    Faced::new(Connection::server(config(change), Time::ZERO))
}

fn client(change: impl FnOnce(&mut Config)) -> Faced {
    Faced::new(Connection::client(config(change), Time::ZERO))
}

impl Faced {
    fn next(&self) -> Option<Time> {
        self.connection.next_deadline()
    }

    /// It is so late from now on.
    fn sees(&mut self, now: Time) {
        self.now = now;
        self.connection.advance_time(now);
    }
}

#[test]
fn a_connection_that_begins_waits_for_settings_and_then_for_their_acknowledgement() {
    for mut faced in [server(|_| {}), client(|_| {})] {
        assert_eq!(faced.next(), Some(at(10)));
        if faced.connection.role() == fullbore_proto::Role::Server {
            faced.says(frames::PREFACE);
        }
        faced.says(&frames::settings(&[]));
        assert_eq!(faced.next(), Some(at(30)));
    }
}

#[test]
fn a_server_without_streams_waits_as_long_as_it_may_be_idle_and_a_client_for_nothing() {
    assert_eq!(server(|_| {}).greeted().next(), Some(at(180)));
    assert_eq!(
        server(|config| config.set_idle_timeout(None)).greeted().next(),
        None
    );
    let silence = KeepAlive::Always(Duration::from_secs(20));
    let asks = |config: &mut Config| config.set_keep_alive(silence);
    assert_eq!(server(asks).greeted().next(), Some(at(20)));
    assert_eq!(client(asks).greeted().next(), Some(at(20)));
    assert_eq!(client(|_| {}).greeted().next(), None);
}

#[test]
fn a_stream_is_looked_at_after_a_quarter_of_the_shortest_limit() {
    let after = |faced: Faced| {
        let mut faced = faced.greeted();
        faced.sees(at(5));
        match faced.connection.role() {
            fullbore_proto::Role::Server => faced.says(&frames::post(1)),
            fullbore_proto::Role::Client => drop(faced.opens("GET", true)),
        }
        faced.next()
    };
    let never = |config: &mut Config| config.set_keep_alive(KeepAlive::Never);
    // Keep-alive of a server, and a quarter of `send_timeout`.
    assert_eq!(after(server(|_| {})), Some(at(5 + 60)));
    assert_eq!(after(server(never)), Some(at(5 + 75)));
    assert_eq!(after(client(|_| {})), Some(at(5 + 75)));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        after(client(|config| config.set_response_timeout(seconds(40)))),
        Some(at(5 + 10))
    );
    assert_eq!(
        after(server(|config| config.set_response_timeout(seconds(40)))),
        Some(at(5 + 60))
    );
    assert_eq!(
        after(server(|config| config.set_body_timeout(seconds(80)))),
        Some(at(5 + 20))
    );
}

#[test]
fn a_frame_or_a_header_block_that_is_arriving_is_waited_for() {
    let block = frames::request_block("GET");
    let frame = frames::ping(0, b"12345678");
    for octets in [&frames::headers(1, 1, &block)[..], &frame[..3], &frame[..12]] {
        let mut faced = server(|_| {}).greeted();
        faced.sees(at(3));
        faced.says(octets);
        assert_eq!(faced.next(), Some(at(3 + 30)));
        // What comes later of it moves nothing.
        faced.sees(at(4));
        faced.says(&[]);
        assert_eq!(faced.next(), Some(at(3 + 30)));
    }
}

#[test]
fn requests_that_wait_at_a_peer_that_allows_none_have_a_limit() {
    let mut faced = client(|_| {}).greeted();
    faced.says(&frames::settings(&[(3, 0)]));
    faced.sees(at(1));
    faced.opens("GET", true);
    faced.sees(at(2));
    faced.opens("GET", true);
    assert_eq!(faced.next(), Some(at(1 + 30)));
}

#[test]
fn a_graceful_end_waits_for_a_round_trip() {
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::get(1));
    faced.sees(at(7));
    faced.connection.shutdown(faced.now);
    assert_eq!(faced.next(), Some(at(7 + 1)));
    faced.says(&frames::ping(frames::ACK, &frames::SHUTDOWN));
    // The check for a silent peer: streams have no limit.
    assert_eq!(faced.next(), Some(at(60)));
}

#[test]
fn a_client_that_has_ended_its_half_is_probed_after_a_second() {
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::get(1));
    faced.sees(at(7));
    faced.connection.end_of_transport(faced.now);
    assert_eq!(faced.next(), Some(at(7 + 1)));
    let mut faced = server(|config| config.set_half_close_timeout(Duration::from_millis(250))).greeted();
    faced.says(&frames::get(1));
    faced.connection.end_of_transport(faced.now);
    assert_eq!(faced.next(), Some(Time::from_nanos(250_000_000)));
}

#[test]
fn the_rest_of_a_request_whose_response_is_whole_has_a_second() {
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::post(1));
    faced.sees(at(9));
    faced.answers(1);
    assert_eq!(faced.next(), Some(at(9 + 1)));
    faced.says(&frames::data(1, frames::END_STREAM, b"late"));
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn a_frame_that_a_window_would_cut_tiny_is_held_for_a_millisecond() {
    let body = || Bytes::from(vec![7; 200_000]);
    // By the window of the stream, and by that of the connection.
    for (stream, connection) in [(65_535 + 100, 1 << 20), (1 << 20, 65_535 + 100)] {
        let mut faced = server(|config| config.set_send_timeout(None)).greeted();
        faced.says(&frames::settings(&[(4, stream)]));
        faced.says(&frames::window_update(0, connection - 65_535));
        faced.says(&frames::get(1));
        faced
            .connection
            .send_response(id(1), &Response::new(()), false)
            .unwrap();
        faced.connection.send_data(id(1), body(), true).unwrap();
        faced.sees(at(2));
        faced.listen();
        // 4 frames of 16,384 octets, and 99 that are left of the window.
        assert_eq!(faced.connection.stats().sent_data_bytes, 65_536);
        let until = at(2) + Duration::from_millis(1);
        assert_eq!(faced.next(), Some(until));
        faced.now = until;
        faced.connection.handle_timeout(until);
        faced.listen();
        assert_eq!(faced.connection.stats().sent_data_bytes, 65_635);
        assert_eq!(faced.next(), Some(at(60)), "keep-alive of the server");
    }
}

#[test]
fn a_connection_that_has_failed_asks_for_nothing() {
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::get(1));
    faced.says(&frames::data(0, 0, b""));
    assert_eq!(faced.next(), None);
}

#[test]
fn what_is_due_and_cannot_be_done_is_looked_at_again_after_a_millisecond() {
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::get(1));
    // So many replies are owed that nothing is read, and a peer that may have spoken is not asked.
    let pings = frames::ping(0, b"12345678").repeat(482);
    faced.connection.receive(pings.into(), faced.now).unwrap();
    assert!(!faced.connection.wants_read());
    assert_eq!(faced.next(), Some(at(60)));
    faced.connection.handle_timeout(at(60));
    assert_eq!(faced.next(), Some(at(60) + Duration::from_millis(1)));
}

#[test]
fn every_call_that_is_told_the_time_knows_it_from_then_on() {
    type Call = fn(&mut Faced, Time);
    let calls: [Call; 8] = [
        |faced, now| faced.connection.advance_time(now),
        |faced, now| faced.connection.handle_timeout(now),
        |faced, now| faced.connection.socket_holds(0, now),
        |faced, now| faced.connection.socket_blocked(now),
        |faced, now| faced.connection.socket_idle(now),
        |faced, now| faced.connection.set_requests_kept_back(true, now),
        |faced, now| assert!(faced.connection.measure_round_trip(now)),
        |faced, now| faced.connection.transmit(&mut Transmit::new(), now),
    ];
    for call in calls {
        let mut faced = client(|_| {}).greeted();
        call(&mut faced, at(7));
        faced.opens("GET", true);
        assert_eq!(faced.next(), Some(at(7 + 75)), "a quarter of `send_timeout`");
    }
    let mut faced = server(|_| {}).greeted();
    faced.connection.shutdown(at(7));
    assert_eq!(faced.next(), Some(at(7 + 1)));
    let mut faced = server(|_| {}).greeted();
    faced.says(&frames::get(1));
    faced.connection.end_of_transport(at(7));
    assert_eq!(faced.next(), Some(at(7 + 1)));
}
