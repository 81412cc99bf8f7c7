//! The end of a connection: in two steps by the server, by the client, by an error, and by nothing being said at all.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Event, FrameType, Side, StreamErrorKind, Time, UsageError};
use http::Request;

use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};
use crate::support::{fixed, frames};

const LONG: u32 = i32::MAX as u32;

fn pair() -> Pair {
    let mut pair = Pair::new(Config::default(), Config::default(), PathConfig::delay_millis(10)).with_apps();
    pair.run();
    pair
}

fn request() -> Request<()> {
    Request::get("http://example.com/100").body(()).unwrap()
}

#[test]
fn a_server_says_goaway_twice_and_what_crossed_the_first_is_served() {
    let mut pair = pair();
    let under_way = pair.get(5 << 20);
    pair.run_while(|pair| pair.client.app().received == 0);
    pair.server.connection.shutdown(pair.now);
    // This request leaves before the GOAWAY has come.
    let crossing = pair.get(1_000);
    pair.run_while(|pair| pair.client.app().go_aways.is_empty());
    assert_eq!(
        pair.client.connection.open(request(), true),
        Err(UsageError::NoNewStreams)
    );
    assert!(!pair.client.connection.takes_new_streams());
    pair.run();
    let app = pair.client.app();
    assert_eq!(
        app.go_aways,
        [
            (LONG, ErrorCode::NO_ERROR),
            (crossing.value(), ErrorCode::NO_ERROR)
        ]
    );
    assert_eq!(app.talk(under_way).received, 5 << 20);
    assert_eq!(app.talk(crossing).received, 1_000);
    assert!(pair.server.connection.is_drained());
    pair.assert_nothing_leaked();
}

#[test]
fn the_second_goaway_comes_a_round_trip_after_the_first() {
    let mut pair = pair();
    let start = pair.now;
    pair.server.connection.shutdown(start);
    assert!(pair.server.connection.is_shutting_down());
    pair.run();
    let times: Vec<_> = pair
        .server
        .tap
        .of(FrameType::GOAWAY)
        .map(|seen| seen.at.since(start))
        .collect();
    assert_eq!(times, [Duration::ZERO, Duration::from_millis(20)]);
    assert!(pair.server.connection.is_drained());
}

#[test]
fn the_second_goaway_comes_after_the_grace_when_the_peer_does_not_answer() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    faced.heard();
    faced.connection.shutdown(faced.now);
    assert!(!faced.connection.has_sent_last_stream());
    let heard = faced.heard();
    assert_eq!(
        (heard[0].header.frame_type, heard[0].word(0)),
        (FrameType::GOAWAY, LONG)
    );
    faced.now = faced.connection.next_deadline().unwrap();
    assert_eq!(faced.now.since(Time::ZERO), Config::default().shutdown_grace());
    faced.connection.handle_timeout(faced.now);
    let heard = faced.heard();
    assert_eq!(
        (heard[0].header.frame_type, heard[0].word(0)),
        (FrameType::GOAWAY, 1)
    );
    assert_eq!(faced.connection.next_deadline(), None);
    assert!(faced.connection.has_sent_last_stream());
    // Streams past the last one are not answered; their octets are taken all the same.
    faced.events();
    faced.says(&frames::get(3));
    faced.says(&frames::post(5));
    faced.says(&frames::data(5, frames::END_STREAM, b"lost"));
    assert!(faced.events().is_empty());
    faced.lives();
    assert!(!faced.connection.is_drained());
    faced.answers(1);
    assert!(faced.connection.is_drained());
}

#[test]
fn a_client_that_shuts_down_opens_no_more_and_drains() {
    let mut pair = pair();
    let stream = pair.get(1 << 20);
    pair.run_while(|pair| pair.client.app().received == 0);
    pair.client.connection.shutdown(pair.now);
    assert_eq!(
        pair.client.connection.open(request(), true),
        Err(UsageError::NoNewStreams)
    );
    assert!(!pair.client.connection.is_drained());
    pair.run();
    assert_eq!(pair.client.app().talk(stream).received, 1 << 20);
    assert!(pair.client.connection.is_drained());
    assert_eq!(pair.server.app().go_aways, [(0, ErrorCode::NO_ERROR)]);
    pair.assert_nothing_leaked();
}

#[test]
fn requests_above_the_last_stream_of_a_goaway_and_waiting_ones_are_refused_and_never_sent() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 3)]));
    for _ in 0..6 {
        faced.opens("GET", true);
    }
    faced.heard();
    faced.says(&frames::go_away(1, ErrorCode::NO_ERROR));
    let events = faced.events();
    let mut refused: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Reset(error) => {
                assert_eq!((error.code, error.by), (ErrorCode::REFUSED_STREAM, Side::Peer));
                assert!(error.kind() == StreamErrorKind::NotProcessed && !error.is_timeout());
                Some(error.stream.value())
            }
            _ => None,
        })
        .collect();
    refused.sort_unstable();
    assert_eq!(refused, [3, 5, 7, 9, 11]);
    assert!(
        faced.heard_of(FrameType::HEADERS).is_empty(),
        "a request left after the GOAWAY"
    );
    // The one below it is served.
    faced.says(&frames::headers(1, 5, &frames::response_block("200", &[])));
    assert!(matches!(faced.events()[0], Event::Response { end: true, .. }));
    faced.lives();
}

#[test]
fn a_goaway_with_an_error_is_told_with_its_code() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::go_away(1, ErrorCode::ENHANCE_YOUR_CALM));
    let events = faced.events();
    assert!(
        matches!(
            events[0],
            Event::GoAway {
                last_stream: 1,
                code: ErrorCode::ENHANCE_YOUR_CALM,
                ..
            }
        ),
        "{events:?}"
    );
}

#[test]
fn after_an_error_nothing_leaves_but_one_goaway_whatever_the_owner_does() {
    let mut faced = Faced::server(Config::default());
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::post(stream));
        faced.says(&frames::data(stream, 0, &[0; 10_000]));
    }
    let response = http::Response::new(());
    faced.connection.send_response(id(3), &response, false).unwrap();
    faced
        .connection
        .send_data(id(3), Bytes::from(vec![0; 100_000]), false)
        .unwrap();
    faced.connection.shutdown(faced.now);
    faced.heard();
    faced.says(&frames::ping(0, b"12345678")[..10]);
    faced.says(&frames::data(0, 0, b"")[..]);
    faced.says(&[0; 100]);
    let error = faced.connection.error().cloned();
    assert!(error.is_some());
    let heard = faced.heard();
    assert_eq!(
        heard
            .iter()
            .filter(|frame| frame.header.frame_type == FrameType::GOAWAY)
            .count(),
        1
    );

    let connection = &mut faced.connection;
    let mut body = Default::default();
    let _ = connection.read(id(1), &mut body);
    connection.release_credit(id(1), 10_000);
    connection.release_credit(id(5), 10_000);
    let _ = connection.send_response(id(1), &response, false);
    let _ = connection.send_data(id(3), Bytes::from_static(b"more"), true);
    let _ = connection.send_trailers(id(3), Default::default());
    let _ = connection.reset(id(5), ErrorCode::CANCEL);
    let _ = connection.grow_receive_window(fullbore_proto::WindowSize::MAX);
    let _ = connection.grow_stream_receive_window(id(1), fullbore_proto::WindowSize::MAX);
    for stream in [1, 3, 5, 7] {
        connection.discard(id(stream));
        connection.release(id(stream));
    }
    connection.shutdown(faced.now);
    faced.now = faced.now + Duration::from_secs(100);
    connection.handle_timeout(faced.now);
    assert_eq!(connection.next_deadline(), None);
    faced.connection.abort(ErrorCode::NO_ERROR, "again", faced.now);
    assert!(faced.tries(&frames::get(9)).is_err());
    assert!(faced.heard().is_empty());
    assert!(!faced.connection.wants_transmit());
    assert_eq!(faced.connection.error().cloned(), error);
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn a_failed_client_opens_nothing_and_sends_nothing() {
    let mut faced = Faced::client_with_request(Config::default(), false);
    faced.says(&frames::data(0, 0, b""));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    assert_eq!(
        faced.connection.open(request(), true),
        Err(UsageError::NoNewStreams)
    );
    let _ = faced.connection.send_data(id(1), Bytes::from_static(b"x"), true);
    let urgent = fullbore_proto::Priority::default();
    let _ = faced.connection.send_priority_update(id(1), urgent);
    faced.connection.release(id(1));
    assert!(faced.heard().is_empty());
}

#[test]
fn a_connection_that_fails_refills_no_window_and_opens_no_request_that_waited() {
    let mut faced = Faced::client_with_request(fixed(|_| {}), true);
    faced.says(&frames::settings(&[(3, 1)]));
    faced.opens("GET", true);
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.says(&frames::headers(1, frames::END_HEADERS, &[0x88]));
    let window = faced.connection.stream_receive_window_size(id(1)).unwrap();
    for _ in 0..window.bytes() / 16_384 / 2 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    faced.heard();
    faced.reads(1);
    assert!(faced.connection.wants_transmit(), "a WINDOW_UPDATE is due");
    faced.connection.abort(ErrorCode::NO_ERROR, "", faced.now);
    assert_eq!(faced.connection.waiting_streams(), 0);
    let types: Vec<_> = faced
        .heard()
        .iter()
        .map(|frame| frame.header.frame_type)
        .collect();
    assert_eq!(types, [FrameType::GOAWAY]);
    assert!(!faced.connection.wants_transmit());
}

#[test]
fn a_goaway_never_names_a_higher_last_stream_than_the_one_before() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    faced.connection.shutdown(faced.now);
    faced.says(&frames::ping(frames::ACK, &frames::SHUTDOWN));
    faced.says(&frames::get(9));
    faced.says(&frames::data(0, 0, b""));
    let last: Vec<_> = faced
        .heard_of(FrameType::GOAWAY)
        .iter()
        .map(|frame| frame.word(0))
        .collect();
    assert_eq!(last, [LONG, 1, 1]);
}

#[test]
fn a_peer_that_says_nothing_is_given_up_after_the_preface_timeout() {
    for mut faced in [
        Faced::silent_server(Config::default()),
        Faced::silent_client(Config::default()),
    ] {
        let deadline = faced.connection.next_deadline().unwrap();
        assert_eq!(deadline.since(Time::ZERO), Config::default().preface_timeout());
        faced.heard();
        faced.now = deadline;
        faced.connection.handle_timeout(deadline);
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
        assert_eq!(faced.connection.next_deadline(), None);
    }
}

#[test]
fn an_abort_tells_the_peer_why() {
    let mut pair = pair();
    pair.get(1 << 20);
    pair.run_while(|pair| pair.client.app().received == 0);
    pair.server
        .connection
        .abort(ErrorCode::INTERNAL_ERROR, "the disk is gone", pair.now);
    pair.run();
    assert_eq!(pair.client.app().go_aways, [(1, ErrorCode::INTERNAL_ERROR)]);
    let error = pair.server.connection.error().unwrap();
    assert_eq!(
        (error.blame, error.code),
        (Side::Local, ErrorCode::INTERNAL_ERROR)
    );
}
