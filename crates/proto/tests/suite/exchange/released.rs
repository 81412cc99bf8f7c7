//! How an owner lets go of a stream: with a code of its own, or of what it receives alone.

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Event, FrameType, ReadState, StreamErrorKind};
use http::Response;

use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, id};
use crate::support::{config, fixed};

/// Without patience for the rest of an answered request.
fn impatient() -> Config {
    config(Config::set_untimed)
}

#[test]
fn an_incomplete_message_is_reset_with_the_code_of_the_owner() {
    let mut server = Faced::server(Config::default());
    for stream in [1, 3] {
        server.says(&frames::get(stream));
        let connection = &mut server.connection;
        connection
            .send_response(id(stream), &Response::new(()), false)
            .unwrap();
    }
    server.heard();
    server.connection.release_with(id(1), ErrorCode::CANCEL);
    server.reset_with(1, ErrorCode::CANCEL);
    server.connection.release(id(3));
    server.reset_with(3, ErrorCode::INTERNAL_ERROR);

    let mut client = Faced::client_with_request(Config::default(), true);
    client.connection.release_with(id(1), ErrorCode::NO_ERROR);
    client.reset_with(1, ErrorCode::NO_ERROR);
    assert_eq!(client.connection.stream_count(), 0);
}

#[test]
fn a_request_that_is_discarded_after_its_response_ends_soon_or_is_reset() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    let connection = &mut faced.connection;
    connection.send_response(id(1), &Response::new(()), true).unwrap();
    faced.heard();
    faced.connection.discard(id(1));
    faced.lives();
    faced.now = faced.now + std::time::Duration::from_secs(1);
    faced.connection.handle_timeout(faced.now);
    faced.reset_with(1, ErrorCode::NO_ERROR);
}

#[test]
fn a_request_without_a_body_is_read_to_its_end() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    assert_eq!(faced.reads(1), (Vec::new(), ReadState::End));
}

#[test]
fn a_complete_message_is_sent_whatever_the_code() {
    let mut faced = Faced::server(impatient());
    faced.says(&frames::post(1));
    let connection = &mut faced.connection;
    connection
        .send_response(id(1), &Response::new(()), false)
        .unwrap();
    connection
        .send_data(id(1), Bytes::from_static(b"whole"), true)
        .unwrap();
    connection.release_with(id(1), ErrorCode::CANCEL);
    let heard = faced.heard();
    let sent: Vec<_> = heard.iter().map(|frame| frame.header.frame_type).collect();
    // The rest of the request is not waited for.
    assert_eq!(sent, [FrameType::HEADERS, FrameType::DATA, FrameType::RST_STREAM]);
    assert_eq!(heard[2].word(0), ErrorCode::NO_ERROR.0);
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn a_client_that_discards_what_it_receives_goes_on_sending() {
    let mut faced = Faced::client_with_request(fixed(|_| ()), false);
    faced.says(&frames::headers(1, END_HEADERS, &[0x88]));
    faced.says(&frames::data(1, 0, &[0; 10_000]));
    faced.events();
    faced.connection.discard_received(id(1));
    faced.says(&frames::data(1, 0, &[0; 10_000]));
    assert!(faced.events().is_empty(), "nobody reads it");
    assert_eq!(faced.connection.promise().buffered, 0);
    faced
        .connection
        .send_data(id(1), Bytes::from_static(b"more"), true)
        .unwrap();
    let heard = faced.heard_of(FrameType::DATA);
    assert_eq!(heard[0].payload, b"more");
    faced.lives();
    faced.says(&frames::data(1, END_STREAM, b"the end"));
    faced.lives();
    faced.connection.release(id(1));
    assert_eq!(faced.connection.stream_count(), 0);
    assert!(faced.heard().is_empty(), "both messages were complete");
}

#[test]
fn a_client_that_discarded_what_it_receives_resets_the_stream_when_it_releases_it() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.connection.discard_received(id(1));
    faced.lives();
    faced.connection.release_with(id(1), ErrorCode::CANCEL);
    faced.reset_with(1, ErrorCode::CANCEL);
}

#[test]
fn a_server_that_discards_what_it_receives_resets_the_stream_only_when_it_releases_it() {
    let mut faced = Faced::server(impatient());
    faced.says(&frames::post(1));
    faced.connection.discard_received(id(1));
    let connection = &mut faced.connection;
    connection.send_response(id(1), &Response::new(()), true).unwrap();
    faced.heard();
    faced.connection.handle_timeout(faced.now);
    faced.says(&frames::data(1, 0, &[0; 10_000]));
    faced.lives();
    faced.connection.release(id(1));
    faced.connection.handle_timeout(faced.now);
    faced.reset_with(1, ErrorCode::NO_ERROR);
}

/// The streams that the failed connection of a server leaves, with 5 bytes unread on each but the last.
fn failed() -> Faced {
    let mut faced = Faced::server(fixed(|_| ()));
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::post(stream));
    }
    faced.says(&frames::data(1, 0, b"part!"));
    faced.says(&frames::data(3, END_STREAM, b"whole"));
    faced.says(&frames::data(5, 0, b"field"));
    let trailers = frames::block(&[("after", "all")]);
    faced.says(&frames::headers(5, END_HEADERS | END_STREAM, &trailers));
    faced.says(&frames::data(0, 0, b"on no stream"));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    faced
}

#[test]
fn what_streams_had_received_stays_readable_when_the_connection_fails() {
    let mut faced = failed();
    assert_eq!(faced.connection.stream_count(), 0);
    assert_eq!(faced.reads(1), (b"part!".to_vec(), ReadState::Reset));
    assert_eq!(faced.reads(3), (b"whole".to_vec(), ReadState::End));
    let (body, end) = faced.reads(5);
    assert_eq!(body, b"field");
    let ReadState::Trailers(trailers) = end else {
        panic!("{end:?} instead of trailers")
    };
    assert_eq!(trailers["after"], "all");
    let mut none = std::collections::VecDeque::new();
    for stream in [1, 3, 5, 7] {
        let read = faced.connection.read(id(stream), &mut none);
        assert!(read.is_err(), "there is no more on stream {stream}");
    }
    assert!(!faced.connection.wants_transmit());
}

#[test]
fn what_is_released_or_discarded_does_not_stay_readable() {
    let mut faced = failed();
    faced.connection.release(id(1));
    faced.connection.discard(id(3));
    faced.connection.discard_received(id(5));
    let mut none = std::collections::VecDeque::new();
    for stream in [1, 3, 5] {
        assert!(faced.connection.read(id(stream), &mut none).is_err());
    }
    assert!(none.is_empty() && !faced.connection.wants_transmit());
}

#[test]
fn what_stays_readable_after_a_failure_is_leased_until_it_is_read() {
    let budget = fullbore_proto::MemoryBudget::new(64 << 20);
    let mut faced = Faced::server(config(|config| config.set_budget(Some(budget.clone()))));
    for stream in [1, 3] {
        faced.says(&frames::post(stream));
        faced.says(&frames::data(stream, 0, &[0; 10_000]));
    }
    assert!(budget.leased() > 1 << 20);
    faced.connection.abort(ErrorCode::NO_ERROR, "", faced.now);
    assert_eq!(budget.leased(), 20_000);
    assert_eq!(faced.reads(1).0.len(), 10_000);
    assert_eq!(budget.leased(), 10_000);
    faced.connection.release(id(3));
    assert_eq!(budget.leased(), 0);
}

#[test]
fn the_debug_data_of_goaway_comes_before_the_streams_that_it_ends() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    let code = ErrorCode::ENHANCE_YOUR_CALM;
    faced.says(&frames::go_away_with(0, code.0, b"too_many_pings"));
    let events = faced.events();
    let [
        Event::GoAway {
            code: said, debug, ..
        },
        Event::Reset(error),
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((*said, &debug[..]), (code, &b"too_many_pings"[..]));
    assert_eq!(error.kind(), StreamErrorKind::NotProcessed);
}

#[test]
fn a_stream_that_was_reset_lets_go_of_what_it_had_to_send() {
    let secret = || Bytes::from(vec![b'v'; 100]);
    let (head, body, trailer) = (secret(), secret(), secret());
    let fields = |value: &Bytes| {
        let value = http::HeaderValue::from_maybe_shared(value.clone()).unwrap();
        http::HeaderMap::from_iter([(http::HeaderName::from_static("x-a"), value)])
    };
    let mut client = Faced::client(Config::default());
    client.says(&frames::settings(&[(3, 0)]));
    let mut request = http::Request::post("http://example.com/").body(()).unwrap();
    *request.headers_mut() = fields(&head);
    // The request waits, because the server allows no streams.
    let stream = client.connection.open(request, false).unwrap();
    client.connection.send_data(stream, body.clone(), false).unwrap();
    client.connection.send_trailers(stream, fields(&trailer)).unwrap();
    client.heard();
    for part in [&head, &body, &trailer] {
        assert!(!part.is_unique());
    }
    client.connection.reset(stream, ErrorCode::CANCEL).unwrap();
    assert_eq!(
        client.connection.stream_count(),
        1,
        "the owner has not released it"
    );
    for part in [&head, &body, &trailer] {
        assert!(part.is_unique());
    }
    client.lives();
}

#[test]
fn a_message_that_was_discarded_has_no_trailers_any_more() {
    let mut client = Faced::client_with_request(Config::default(), true);
    client.says(&frames::headers(1, END_HEADERS, &[0x88]));
    let trailers = frames::block(&[("x-end", "yes")]);
    client.says(&frames::headers(1, END_HEADERS | END_STREAM, &trailers));
    client.connection.discard(id(1));
    assert!(matches!(client.reads(1), (body, ReadState::End) if body.is_empty()));
    client.lives();
}
