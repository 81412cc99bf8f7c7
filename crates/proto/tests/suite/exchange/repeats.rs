//! Messages that repeat the one before them, which are not decoded, checked and encoded again.

use fullbore_proto::{Config, ErrorCode, Event, FrameType, StreamId};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::pair::Pair;
use crate::support::peer::{Faced, id};

/// The newest entry of the dynamic table.
const NEWEST: u8 = 0x80 | 62;

/// A request whose `x-a` enters the dynamic table.
fn inserting(value: u8) -> Vec<u8> {
    let field = [0x40, 3, b'x', b'-', b'a', 1, value];
    [&frames::request_block("GET")[..], &field].concat()
}

/// A request with the newest entry of the dynamic table.
fn referring() -> Vec<u8> {
    [&frames::request_block("GET")[..], &[NEWEST]].concat()
}

/// Says requests on the next streams. What each has for `x-a`.
fn values(faced: &mut Faced, first: u32, blocks: &[Vec<u8>]) -> Vec<HeaderValue> {
    for (stream, block) in (first..).step_by(2).zip(blocks) {
        faced.says(&frames::headers(stream, END_HEADERS | END_STREAM, block));
    }
    let requests = faced.events().into_iter().filter_map(|event| match event {
        Event::Request { request, .. } => Some(request),
        _ => None,
    });
    requests
        .map(|request| {
            assert_eq!(request.method(), "GET");
            assert_eq!(request.uri(), "http://example.com/");
            assert_eq!(request.headers().len(), 1);
            request.headers()["x-a"].clone()
        })
        .collect()
}

#[test]
fn a_block_means_what_the_dynamic_table_makes_of_it() {
    let mut faced = Faced::server(Config::default());
    let again = || std::iter::repeat_n(referring(), 4);
    let mut blocks: Vec<_> = std::iter::once(inserting(b'1')).chain(again()).collect();
    assert_eq!(values(&mut faced, 1, &blocks), ["1"; 5]);
    blocks[0] = inserting(b'2');
    assert_eq!(values(&mut faced, 101, &blocks), ["2"; 5]);
    // Each of these adds an entry.
    let blocks = vec![inserting(b'3'); 4];
    assert_eq!(values(&mut faced, 201, &blocks), ["3"; 4]);
    let oldest = [&frames::request_block("GET")[..], &[NEWEST + 3]].concat();
    assert_eq!(values(&mut faced, 301, &[referring(), oldest]), ["3"; 2]);
    // An entry that was evicted is gone.
    let empties = [&[0x20][..], &frames::request_block("GET")].concat();
    faced.says(&frames::headers(401, END_HEADERS | END_STREAM, &empties));
    faced.says(&frames::headers(403, END_HEADERS | END_STREAM, &referring()));
    faced.ended_with(ErrorCode::COMPRESSION_ERROR);
}

#[test]
fn a_block_that_repeats_needs_a_size_update_that_is_due() {
    for reduced in [false, true] {
        let mut faced = Faced::silent_server(config(|config| {
            config.set_header_table_size(if reduced { 0 } else { 4_096 });
        }));
        faced.says(frames::PREFACE);
        faced.says(&frames::settings(&[]));
        let request =
            |stream| frames::headers(stream, END_HEADERS | END_STREAM, &frames::request_block("GET"));
        for stream in [1, 3, 5] {
            faced.says(&request(stream));
        }
        faced.lives();
        faced.says(&frames::settings_ack());
        faced.says(&request(7));
        match reduced {
            true => faced.ended_with(ErrorCode::COMPRESSION_ERROR),
            false => faced.lives(),
        }
    }
}

#[test]
fn trailers_with_the_block_of_a_request_are_malformed() {
    let mut faced = Faced::server(Config::default());
    for stream in [1, 3, 5] {
        faced.says(&frames::post(stream));
    }
    let block = frames::request_block("POST");
    faced.says(&frames::headers(5, END_HEADERS | END_STREAM, &block));
    faced.reset_with(5, ErrorCode::PROTOCOL_ERROR);
    // The next request is known still.
    faced.says(&frames::post(7));
    assert!(matches!(faced.events().last(), Some(Event::Request { .. })));
}

#[test]
fn a_request_that_repeats_has_its_length() {
    let mut faced = Faced::server(Config::default());
    let block = frames::request_block_with("POST", &[("content-length", "3")]);
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::headers(stream, END_HEADERS, &block));
        faced.says(&frames::data(stream, END_STREAM, b"four"));
        faced.reset_with(stream, ErrorCode::PROTOCOL_ERROR);
    }
    faced.says(&frames::headers(9, END_HEADERS | END_STREAM, &block));
    faced.reset_with(9, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn a_request_that_repeats_has_its_priority() {
    let mut faced = Faced::server(Config::default());
    let urgent = frames::request_block_with("GET", &[("priority", "u=1")]);
    faced.says(&frames::get(1));
    for stream in [3, 5, 7, 9] {
        faced.says(&frames::headers(stream, END_HEADERS | END_STREAM, &urgent));
    }
    for stream in [1, 3, 5, 7, 9] {
        let response = Response::new(());
        faced
            .connection
            .send_response(id(stream), &response, false)
            .unwrap();
        faced
            .connection
            .send_data(id(stream), bytes::Bytes::from_static(b"body"), true)
            .unwrap();
    }
    let data = faced.heard_of(FrameType::DATA);
    let order: Vec<_> = data.iter().map(|frame| frame.stream()).collect();
    assert_eq!(order, [3, 5, 7, 9, 1]);
}

/// Opens a stream, lets the server answer, and returns what the client receives: the response and the trailers.
fn answered(pair: &mut Pair, response: &Response<()>, trailers: bool) -> Response<()> {
    let request = Request::get("http://example.com/").body(()).unwrap();
    let stream = pair.client.connection.open(request, true).unwrap();
    pair.run();
    let server = &mut pair.server.connection;
    server.send_response(stream, response, !trailers).unwrap();
    if trailers {
        let fields = [("x-trailer".parse().unwrap(), HeaderValue::from(stream.value()))];
        server
            .send_trailers(stream, fields.into_iter().collect())
            .unwrap();
    }
    pair.run();
    pair.server.connection.release(stream);
    pair.server.take_events();
    let received = response_of(pair, stream);
    pair.client.connection.release(stream);
    pair.run();
    received
}

fn response_of(pair: &mut Pair, wanted: StreamId) -> Response<()> {
    let events = pair.client.take_events();
    let response = events.into_iter().find_map(|event| match event {
        Event::Response { stream, response, .. } if stream == wanted => Some(response),
        _ => None,
    });
    response.expect("the response has come")
}

#[test]
fn responses_that_repeat_and_differ_in_turns_arrive_as_they_were_sent() {
    let mut pair = Pair::connected();
    let response = |number: u64| {
        let mut response = Response::builder().status(200 + (number / 4 % 2) as u16);
        response = response.header("etag", format!("\"{}\"", number % 2));
        if number % 4 == 1 {
            response = response.header("date", "Thu, 01 Jan 1970 00:00:00 GMT");
        }
        for field in 0..number % 3 {
            response = response.header("x-several", field.to_string());
        }
        response.body(()).unwrap()
    };
    let (mut seed, mut number, mut date) = (7_u64, 0, None);
    for _ in 0..1_500 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let dice = seed >> 40;
        if dice % 5 == 0 {
            number = dice / 5 % 12;
        }
        if dice % 37 == 0 {
            let value = HeaderValue::from(dice % 3);
            pair.server.connection.set_date(value.clone());
            date = Some(value);
        }
        let sent = response(number);
        let received = answered(&mut pair, &sent, dice % 11 == 0);
        let mut expected = sent.headers().clone();
        if let (Some(date), false) = (&date, expected.contains_key("date")) {
            expected.insert("date", date.clone());
        }
        assert_eq!(received.status(), sent.status());
        assert_eq!(received.headers(), &expected);
    }
    pair.assert_nothing_leaked();
}

#[test]
fn responses_that_differ_in_one_thing_are_told_apart() {
    let response = |status: u16, fields: &[(&str, &str)]| {
        let fields = fields.iter().map(|(name, value)| {
            let value: HeaderValue = value.parse().unwrap();
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
        });
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        *response.headers_mut() = fields.collect();
        response
    };
    let repeated = response(200, &[("x-a", "1"), ("x-b", "2")]);
    for other in [
        response(404, &[("x-a", "1"), ("x-b", "2")]),
        response(200, &[("x-a", "1"), ("x-c", "2")]),
        response(200, &[("x-a", "1"), ("x-b", "3")]),
        response(200, &[("x-a", "1"), ("x-b", "22")]),
        response(200, &[("x-a", "1")]),
        response(200, &[("x-a", "1"), ("x-b", "2"), ("x-c", "3")]),
    ] {
        let mut pair = Pair::connected();
        let repeats = std::iter::repeat_n(&repeated, 4);
        for sent in repeats.clone().chain([&other]).chain(repeats) {
            let received = answered(&mut pair, sent, false);
            assert_eq!(received.status(), sent.status());
            assert_eq!(received.headers(), sent.headers());
        }
    }
}

#[test]
fn a_response_that_repeats_tells_the_change_of_the_table_s_size_and_what_is_secret() {
    let mut faced = Faced::answering(1);
    let mut stream = 3;
    let mut block = |faced: &mut Faced, sensitive: bool| {
        let mut response = Response::new(());
        let mut value = HeaderValue::from_static("a value");
        value.set_sensitive(sensitive);
        response.headers_mut().insert("x-a", value);
        faced.says(&frames::get(stream));
        faced
            .connection
            .send_response(id(stream), &response, true)
            .unwrap();
        faced.connection.release(id(stream));
        stream += 2;
        let heads = faced.heard_of(FrameType::HEADERS);
        assert_eq!(heads.len(), 1);
        heads[0].payload.clone()
    };
    let blocks: Vec<_> = (0..5).map(|_| block(&mut faced, false)).collect();
    assert_eq!(blocks[1..], vec![vec![0x88, NEWEST]; 4]);
    // 0x1.: never indexed.
    assert_eq!(block(&mut faced, true)[..2], [0x88, 0x1f]);
    assert_eq!(block(&mut faced, false), [0x88, NEWEST]);
    assert_eq!(block(&mut faced, false), [0x88, NEWEST]);
    assert_eq!(block(&mut faced, false), [0x88, NEWEST]);
    // SETTINGS_HEADER_TABLE_SIZE of 0, and of 4,096 again: the entry is gone.
    faced.says(&frames::settings(&[(1, 0), (1, 4_096)]));
    let after = block(&mut faced, false);
    assert_eq!(after[..6], [0x20, 0x3f, 0xe1, 0x1f, 0x88, 0x40]);
    assert_eq!(block(&mut faced, false), [0x88, NEWEST]);
    assert_eq!(block(&mut faced, false), [0x88, NEWEST]);
    // Trailers that enter no table tell the next change.
    faced.says(&frames::settings(&[(1, 0), (1, 4_096)]));
    let secret = (header::AUTHORIZATION, HeaderValue::from_static("secret"));
    faced
        .connection
        .send_trailers(id(1), [secret].into_iter().collect())
        .unwrap();
    assert_eq!(faced.heard_of(FrameType::HEADERS)[0].payload[0], 0x20);
    assert_eq!(block(&mut faced, false)[..2], [0x88, 0x40]);
}

#[test]
fn a_response_that_may_not_be_sent_is_told_each_time() {
    let mut faced = Faced::server(Config::default());
    let bad = Response::builder()
        .header("connection", "close")
        .body(())
        .unwrap();
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::get(stream));
        faced
            .connection
            .send_response(id(stream), &bad, true)
            .unwrap_err();
        faced.answers(stream);
    }
    faced.lives();
}
