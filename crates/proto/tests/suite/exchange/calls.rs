//! What the calls of a connection say of it, and how much each does at once.

use bytes::{Buf, Bytes};
use fullbore_proto::{
    Config, ConnectionErrorKind, ErrorCode, Event, FrameType, Priority, StreamErrorKind, Transmit, UsageError,
};
use http::{HeaderValue, Response};

use crate::support::config;
use crate::support::frames;
use crate::support::peer::{Faced, id};

#[test]
fn a_report_says_what_stands_at_this_end() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 2), (4, 1_000)]));
    faced.says(&frames::window_update(0, 65));
    for _ in 0..5 {
        faced.opens("POST", false);
    }
    let body = Bytes::from(vec![7; 900]);
    faced.connection.send_data(id(1), body, true).unwrap();
    faced.heard();
    let head = frames::response_block("200", &[]);
    faced.says(&frames::headers(1, frames::END_HEADERS, &head));
    faced.says(&frames::data(1, 0, &[0; 300]));
    let report = faced.connection.report(faced.now);
    assert_eq!((report.streams, report.waiting_streams), (5, 3));
    assert_eq!(report.peer_max_concurrent_streams, 2);
    assert_eq!(
        (report.send_window, report.stream_send_window),
        (65_600 - 900, 1_000)
    );
    assert_eq!(
        (report.receive_window, report.stream_receive_window),
        (64 << 20, 48 << 20)
    );
    assert_eq!(
        (report.promise.outstanding, report.promise.buffered),
        ((64 << 20) - 300, 300)
    );
    let connection = &faced.connection;
    assert_eq!(connection.send_window_remaining(), 65_600 - 900);
    assert_eq!(connection.stream_send_window_remaining(id(1)), Some(100));
    assert_eq!(connection.stream_send_window_remaining(id(99)), None);
    // Two heads of requests have left.
    assert_eq!(connection.progress(), 900 + 300 + (2 << 10));
    assert!(connection.is_waiting(id(5)) && !connection.is_waiting(id(3)) && !connection.is_waiting(id(99)));
}

#[test]
fn a_stream_that_is_whole_and_not_released_is_there_and_finished() {
    let mut faced = Faced::server(Config::default());
    assert!(!faced.connection.has_unfinished_streams());
    faced.says(&frames::get(1));
    assert!(faced.connection.has_unfinished_streams());
    faced
        .connection
        .send_response(id(1), &Response::new(()), true)
        .unwrap();
    assert!(!faced.connection.has_unfinished_streams());
    assert_eq!(faced.connection.stream_count(), 1);
    faced.connection.release(id(1));
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn a_stream_that_is_gone_is_unknown_to_every_call() {
    let mut faced = Faced::answering(1);
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    let connection = &mut faced.connection;
    let usual = Priority::default();
    assert_eq!(
        connection.reset(id(1), ErrorCode::CANCEL),
        Err(UsageError::UnknownStream)
    );
    assert_eq!(
        connection.send_data(id(1), Bytes::new(), true),
        Err(UsageError::UnknownStream)
    );
    assert_eq!(connection.prioritize(id(1), usual), Ok(()), "it is not released");
    connection.release(id(1));
    assert_eq!(
        connection.prioritize(id(1), usual),
        Err(UsageError::UnknownStream)
    );
    assert_eq!(
        connection.send_priority_update(id(1), usual),
        Err(UsageError::WrongRole)
    );
    assert_eq!(connection.want_room(id(1), 0), 0);
    assert_eq!(connection.stream_receive_window_size(id(1)), None);
    assert_eq!(connection.stream_release_until_due(id(1)), None);
    assert!(connection.stream_report(id(1), faced.now).is_none());
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    let result = faced.connection.send_priority_update(id(1), usual);
    assert_eq!(result, Err(UsageError::UnknownStream));
    assert_eq!(faced.heard(), []);
}

#[test]
fn room_is_told_when_no_more_than_the_low_water_mark_waits() {
    let mut faced = Faced::answering(1);
    faced.says(&frames::settings(&[(4, 3)]));
    let writable = |faced: &mut Faced| {
        let events = faced.events();
        events
            .iter()
            .filter(|event| matches!(event, Event::Writable(_)))
            .count()
    };
    let body = Bytes::from(vec![7; 104]);
    faced.connection.send_data(id(1), body, false).unwrap();
    assert_eq!(faced.connection.want_room(id(1), 100), 104);
    faced.heard();
    assert_eq!(writable(&mut faced), 0, "101 octets wait");
    faced.says(&frames::window_update(1, 1));
    faced.heard();
    assert_eq!(writable(&mut faced), 1, "100 octets wait");
    // So many are no more than the mark, and nothing is told of them.
    assert_eq!(faced.connection.want_room(id(1), 100), 100);
    faced.says(&frames::window_update(1, 1));
    faced.heard();
    assert_eq!(writable(&mut faced), 0);
}

#[test]
fn a_date_is_in_every_final_response_that_has_none_until_the_connection_rests() {
    let mut faced = Faced::server(Config::default());
    let mut lengths = Vec::new();
    for n in 0..4 {
        match n {
            1 => faced
                .connection
                .set_date(HeaderValue::from_static("Mon, 23 Nov 2026 10:00:00 GMT")),
            3 => faced.connection.trim(),
            _ => {}
        }
        faced.says(&frames::get(2 * n + 1));
        faced.answers(2 * n + 1);
        lengths.push(faced.heard_of(FrameType::HEADERS)[0].payload.len());
    }
    // `:status` is one octet, and so is the date once it stands in the table.
    assert_eq!((lengths[0], lengths[2], lengths[3]), (1, 2, 1));
    assert!(lengths[1] > 2, "{lengths:?}");
}

#[test]
fn one_list_has_frames_of_1024_turns_at_most() {
    let mut faced = Faced::server(Config::default());
    for n in 0..1_030 {
        let stream = id(2 * n + 1);
        let octets = frames::get(stream.value());
        faced.connection.receive(octets.into(), faced.now).unwrap();
        faced
            .connection
            .send_response(stream, &Response::new(()), false)
            .unwrap();
        faced
            .connection
            .send_data(stream, Bytes::from_static(b"x"), true)
            .unwrap();
    }
    let sent = [1_024, 1_030].map(|_| {
        let mut out = Transmit::new();
        faced.connection.transmit(&mut out, faced.now);
        assert!(out.has_remaining());
        faced.connection.stats().sent_frames.of(FrameType::DATA)
    });
    assert_eq!(sent, [1_024, 1_030]);
    assert!(!faced.connection.wants_transmit());
}

#[test]
fn requests_that_waited_leave_512_at_a_time() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    for _ in 0..1_200 {
        faced.opens("GET", true);
    }
    let octets = frames::settings(&[(3, 10_000)]);
    faced.connection.receive(octets.into(), faced.now).unwrap();
    let mut waiting = vec![faced.connection.waiting_streams()];
    while faced.connection.wants_transmit() {
        let mut out = Transmit::new();
        faced.connection.transmit(&mut out, faced.now);
        waiting.push(faced.connection.waiting_streams());
    }
    assert_eq!(waiting, [688, 176, 0, 0]);
}

#[test]
fn resets_that_the_peer_provokes_are_replies_that_it_owes_us_to_read() {
    // An RST_STREAM has 13 octets, and 630 of them are less than 8 KiB.
    let mut faced = Faced::server(Config::default());
    for n in 0..631 {
        assert!(faced.connection.wants_read(), "{n} are owed");
        let stream = 2 * n + 1;
        let octets = [frames::post(stream), frames::window_update(stream, 0)].concat();
        faced.connection.receive(octets.into(), faced.now).unwrap();
        faced.connection.release(id(stream));
    }
    assert!(!faced.connection.wants_read());
    assert_eq!(faced.heard().len(), 631);
    assert!(faced.connection.wants_read());
}

/// The field block of the next response, which has one field of its own.
fn responds(faced: &mut Faced, stream: u32) -> Vec<u8> {
    faced.says(&frames::get(stream));
    let mut response = Response::new(());
    let value = HeaderValue::from_static("a value");
    response.headers_mut().insert("x-field", value);
    faced
        .connection
        .send_response(id(stream), &response, true)
        .unwrap();
    faced.heard_of(FrameType::HEADERS).remove(0).payload
}

#[test]
fn a_field_that_the_peer_knows_is_named_by_its_index_after_a_rest_too() {
    let mut faced = Faced::server(Config::default());
    let blocks = [1, 3, 5, 7].map(|stream| {
        if stream == 7 {
            faced.connection.trim();
        }
        responds(&mut faced, stream)
    });
    assert!(blocks[0].len() > 10);
    // `:status` 200, and the first entry of the dynamic table.
    assert_eq!(blocks[2], [0x88, 0xbe]);
    assert_eq!(blocks[3], [0x88, 0xbe]);
}

#[test]
fn the_next_head_begins_with_the_size_of_the_table_once_the_peer_has_changed_it() {
    let mut faced = Faced::server(Config::default());
    responds(&mut faced, 1);
    faced.says(&frames::settings(&[(1, 0), (1, 100)]));
    let block = responds(&mut faced, 3);
    // RFC 7541 section 4.2: the smallest size since the last block, and the one in force.
    assert_eq!(block[..4], [0x20, 0x3f, 69, 0x88]);
    assert_eq!(responds(&mut faced, 5)[0], 0x88);
}

#[test]
fn a_message_that_cannot_be_sent_is_refused_by_the_call_and_takes_no_stream() {
    let wrong = HeaderValue::from_static("close");
    let is_invalid = |result: Result<(), UsageError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, UsageError::InvalidMessage(_)), "{error:?}");
        assert!(std::error::Error::source(&error).is_some(), "it says why");
    };
    let mut faced = Faced::client(Config::default());
    let mut request = http::Request::get("http://example.com/").body(()).unwrap();
    request.headers_mut().insert("connection", wrong.clone());
    is_invalid(faced.connection.open(request, true).map(drop));
    assert_eq!(faced.opens("GET", true), id(1));

    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let mut response = Response::new(());
    response.headers_mut().insert("connection", wrong.clone());
    is_invalid(faced.connection.send_response(id(1), &response, false));
    *response.status_mut() = http::StatusCode::EARLY_HINTS;
    is_invalid(faced.connection.send_informational(id(1), &response));
    response.headers_mut().clear();
    faced.connection.send_informational(id(1), &response).unwrap();
    faced
        .connection
        .send_response(id(1), &Response::new(()), false)
        .unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("connection", wrong);
    is_invalid(faced.connection.send_trailers(id(1), trailers));
    assert_eq!(faced.heard_of(FrameType::HEADERS).len(), 2);
}

#[test]
fn an_error_says_who_erred_and_how_and_what_kind_it_is() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.says(&frames::reset(1, ErrorCode::REFUSED_STREAM));
    let events = faced.events();
    let [Event::Reset(error)] = &events[..] else {
        panic!("{events:?}");
    };
    let told = "stream 1 (REFUSED_STREAM): reset by the peer";
    assert_eq!(error.to_string(), told);
    assert_eq!(error.kind(), StreamErrorKind::ResetByPeer);
    let error = faced.tries(&frames::ping(0, b"12345678")[..9]).and_then(|()| {
        faced
            .connection
            .abort(ErrorCode::INTERNAL_ERROR, "over", faced.now);
        faced.tries(b"x")
    });
    let told = "connection error (INTERNAL_ERROR): this endpoint ended the connection: over";
    let error = error.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ConnectionErrorKind::Aborted, told.into())
    );
    let mut faced = Faced::server(Config::default());
    let error = faced.tries(&frames::data(5, 0, b"")).unwrap_err();
    let told =
        "connection error (PROTOCOL_ERROR, stream 5): the peer violated the protocol: DATA on an idle stream";
    assert_eq!(
        (error.kind(), error.to_string()),
        (ConnectionErrorKind::Protocol, told.into())
    );
}

#[test]
fn a_stream_is_announced_once_until_it_is_read() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.events();
    for _ in 0..2 {
        faced.says(&frames::data(1, 0, b"some").repeat(3));
        let events = faced.events();
        assert!(matches!(events[..], [Event::Readable(_)]), "{events:?}");
        assert_eq!(faced.reads(1).0.len(), 12);
    }
}

#[test]
fn the_body_of_a_request_over_the_limit_is_dropped_and_nobody_hears_of_it() {
    let mut faced = Faced::server(config(|config| config.set_max_header_fields(3)));
    faced.says(&frames::post(1));
    assert_eq!(faced.heard_of(FrameType::HEADERS).len(), 1, "431");
    faced.says(&frames::data(1, 0, &[0; 16_384]));
    assert!(faced.events().is_empty());
    assert_eq!(faced.connection.promise().buffered, 0);
    faced.now = faced.connection.next_deadline().expect("the rest has a limit");
    faced.connection.handle_timeout(faced.now);
    faced.reset_with(1, ErrorCode::NO_ERROR);
    assert_eq!(faced.connection.stream_count(), 0);
}
