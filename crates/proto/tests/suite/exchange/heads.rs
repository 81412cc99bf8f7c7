//! Heads: informational ones, long ones that need CONTINUATION, and those that are over a limit.

use bytes::Bytes;
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event, StreamErrorKind};
use http::{Request, Response, StatusCode};

use crate::support::app::{Answer, App};
use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, Heard};

fn long_value(length: usize) -> String {
    // No run of it is in a table, and Huffman coding does not make it short.
    (0..length)
        .map(|at| char::from(b'!' + (at * 7 % 90) as u8))
        .collect()
}

#[test]
fn informational_responses_come_before_the_final_one() {
    let mut pair = Pair::connected();
    pair.client.app = Some(App::default());
    let stream = pair.get(0);
    pair.run();
    let server = &mut pair.server.connection;
    for status in [100, 103, 103] {
        let early = Response::builder().status(status).header("link", "</a>").body(());
        server.send_informational(stream, &early.unwrap()).unwrap();
    }
    server.send_response(stream, &Response::new(()), true).unwrap();
    server.release(stream);
    pair.run();
    let talk = pair.client.app().talk(stream);
    let statuses: Vec<_> = talk.informational.iter().map(|early| early.status()).collect();
    assert_eq!(statuses, [100, 103, 103]);
    assert_eq!(talk.informational[1].headers()["link"], "</a>");
    assert_eq!(talk.response.as_ref().unwrap().status(), 200);
    pair.assert_nothing_leaked();
}

#[test]
fn long_heads_travel_in_continuation_frames_in_both_directions_and_in_trailers() {
    for piece in [None, Some(100)] {
        let path = PathConfig {
            cuts: piece.map(|length| (length, 1)),
            ..PathConfig::default()
        };
        let mut pair = Pair::new(Config::default(), Config::default(), path).with_apps();
        let value = long_value(40_000);
        let answer = value.clone();
        pair.server.app = Some(App::answering_with(move |request| {
            assert_eq!(request.headers()["x-long"], answer.as_str());
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-end", answer.parse().unwrap());
            Answer {
                response: Response::builder().header("x-long", &answer).body(()).unwrap(),
                body: 10,
                trailers: Some(trailers),
            }
        }));
        pair.run();
        let request = Request::get("http://example.com/")
            .header("x-long", &value)
            .body(());
        let stream = pair.client.connection.open(request.unwrap(), true).unwrap();
        pair.run();
        let talk = pair.client.app().talk(stream);
        assert_eq!(
            talk.response.as_ref().unwrap().headers()["x-long"],
            value.as_str()
        );
        assert_eq!(talk.trailers.as_ref().unwrap()["x-end"], value.as_str());
        assert_eq!(pair.client.tap.of(FrameType::CONTINUATION).count(), 2);
        assert_eq!(pair.server.tap.of(FrameType::CONTINUATION).count(), 4);
        assert!(
            pair.server
                .tap
                .frames
                .iter()
                .all(|seen| seen.header.length <= 16_384)
        );
        pair.assert_nothing_leaked();
    }
}

#[test]
fn a_peer_that_takes_longer_frames_gets_a_long_head_in_one() {
    let server = config(|config| config.set_max_frame_size(1 << 20));
    let mut pair = Pair::connected_with(Config::default(), server).with_apps();
    let request = Request::get("http://example.com/0")
        .header("x-long", long_value(40_000))
        .body(());
    let stream = pair.client.connection.open(request.unwrap(), true).unwrap();
    pair.run();
    assert!(pair.client.app().talk(stream).ended);
    assert_eq!(pair.client.tap.of(FrameType::CONTINUATION).count(), 0);
    pair.assert_nothing_leaked();
}

#[test]
fn a_request_whose_fields_are_over_the_limit_is_answered_with_431_and_seen_by_nobody() {
    for end in [true, false] {
        let server = config(|config| config.set_max_header_list_size(10_000));
        let mut pair = Pair::connected_with(Config::default(), server).with_apps();
        let request = Request::post("http://example.com/0")
            .header("x-long", long_value(10_000))
            .body(());
        let stream = pair.client.connection.open(request.unwrap(), end).unwrap();
        pair.run();
        let talk = pair.client.app().talk(stream);
        let status = talk.response.as_ref().unwrap().status();
        assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert!(pair.server.app().talks.is_empty());
        // The connection goes on, and the compression of fields with it.
        let next = pair.get(10);
        pair.run();
        assert_eq!(pair.client.app().talk(next).received, 10);
        pair.assert_nothing_leaked();
    }
}

#[test]
fn a_request_with_more_fields_than_are_allowed_is_answered_with_431() {
    let mut pair = Pair::connected().with_apps();
    let mut request = Request::get("http://example.com/0");
    for index in 0..1_001 {
        request = request.header("x-many", index);
    }
    let stream = pair
        .client
        .connection
        .open(request.body(()).unwrap(), true)
        .unwrap();
    pair.run();
    let status = pair.client.app().talk(stream).response.as_ref().unwrap().status();
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    pair.assert_nothing_leaked();
}

#[test]
fn a_response_over_the_limit_ends_its_stream_alone() {
    let client = config(|config| config.set_max_header_list_size(10_000));
    let mut pair = Pair::connected_with(client, Config::default());
    pair.client.app = Some(App::default());
    pair.server.app = Some(App::answering_with(|request| {
        let length = request.uri().path()[1..].parse().unwrap();
        Answer {
            response: Response::builder()
                .header("x", long_value(length))
                .body(())
                .unwrap(),
            ..Answer::default()
        }
    }));
    let long = pair.get(10_000);
    let short = pair.get(10);
    pair.run();
    let app = pair.client.app();
    assert_eq!(
        app.talk(long).reset.as_ref().unwrap().code,
        ErrorCode::PROTOCOL_ERROR
    );
    assert!(app.talk(short).ended && app.talk(short).reset.is_none());
    pair.assert_nothing_leaked();
}

#[test]
fn cookies_come_as_one_field_and_sensitive_values_stay_so() {
    let mut pair = Pair::connected();
    let mut secret = http::HeaderValue::from_static("secret");
    secret.set_sensitive(true);
    let request = Request::get("http://example.com/")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("x-token", secret)
        .body(());
    pair.client.connection.open(request.unwrap(), true).unwrap();
    pair.run();
    let events = pair.server.take_events();
    let Some(Event::Request { request, .. }) = events.last() else {
        panic!("{events:?}")
    };
    let cookies: Vec<_> = request.headers().get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
    assert!(request.headers()["x-token"].is_sensitive());
}

#[test]
fn a_small_or_no_table_for_field_compression_works_from_the_first_request_on() {
    for (client_size, server_size) in [(0, 4_096), (4_096, 0), (100, 200), (0, 0), (65_536, 65_536)] {
        let config = |size| config(|config| config.set_header_table_size(size));
        // A round trip, so that requests leave before the server's SETTINGS have come.
        let path = PathConfig::delay_millis(10);
        let mut pair = Pair::new(config(client_size), config(server_size), path).with_apps();
        let mut request = || {
            let request = Request::get("http://example.com/0").header("x-repeated", long_value(50));
            let stream = pair.client.connection.open(request.body(()).unwrap(), true);
            pair.settle();
            stream.unwrap()
        };
        let streams = [request(), request(), request()];
        pair.run();
        for stream in streams {
            assert_eq!(
                pair.server.connection.error(),
                None,
                "{client_size} and {server_size}"
            );
            assert!(pair.client.app().talk(stream).ended);
        }
        pair.get(0);
        pair.run();
        pair.assert_nothing_leaked();
    }
}

#[test]
fn a_whole_request_that_was_answered_with_431_is_over() {
    let mut faced = Faced::server(config(|config| config.set_max_header_list_size(1_000)));
    let value = long_value(1_000);
    let block = frames::request_block_with("GET", &[("x-long", &value)]);
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    assert_eq!(faced.connection.stream_count(), 0);
    faced.lives();
}

#[test]
fn requests_that_waited_and_are_much_too_large_for_a_later_limit_end_alone_and_the_others_are_sent() {
    let mut faced = Faced::client(Config::default());
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    faced.says(&frames::settings(&[(3, 1)]));
    faced.opens("GET", true);
    let mut large = Vec::new();
    for _ in 0..1_000 {
        let request = Request::post("http://example.com/").header("x-long", long_value(2_000));
        large.push(faced.connection.open(request.body(()).unwrap(), false).unwrap());
    }
    faced
        .connection
        .send_data(large[0], Bytes::from_static(b"body"), true)
        .unwrap();
    let small = faced.opens("GET", true);
    faced.heard();
    // SETTINGS_MAX_HEADER_LIST_SIZE.
    faced.says(&frames::settings(&[(6, 1_000)]));
    assert_eq!(faced.connection.waiting_streams(), 1_001);
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM,
        &frames::response_block("200", &[]),
    ));
    let ended: Vec<_> = faced
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Reset(error) => Some((error.stream, error.kind())),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = large.iter().map(|&id| (id, StreamErrorKind::TooLarge)).collect();
    assert_eq!(ended, expected);
    assert_eq!(faced.connection.waiting_streams(), 0);
    // The peer hears of none of them.
    let heard = faced.heard();
    assert!(
        heard
            .iter()
            .all(|heard| heard.header.frame_type != FrameType::RST_STREAM)
    );
    let opened: Vec<_> = heard
        .iter()
        .filter(|heard| heard.header.frame_type == FrameType::HEADERS)
        .map(Heard::stream)
        .collect();
    assert_eq!(opened, [small.value()]);
}
