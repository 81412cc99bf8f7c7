//! Whole messages: heads, bodies, trailers, and what becomes of the stream.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, Event, ReadState, UsageError};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::support::app::{Answer, App};
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "abc".parse().unwrap());
    trailers
}

fn pair() -> Pair {
    Pair::connected().with_apps()
}

#[test]
fn a_get_is_answered_with_head_and_body() {
    let mut pair = pair();
    let stream = pair.get(100_000);
    pair.run();
    let talk = pair.client.app().talk(stream);
    assert_eq!(talk.response.as_ref().unwrap().status(), StatusCode::OK);
    assert_eq!((talk.received, talk.ended), (100_000, true));
    let request = pair.server.app().talk(stream).request.as_ref().unwrap();
    assert_eq!(request.method(), "GET");
    assert_eq!(request.uri(), "http://example.com/100000");
    assert_eq!(request.version(), http::Version::HTTP_2);
    pair.assert_nothing_leaked();
}

#[test]
fn a_response_without_a_body_is_one_headers_frame() {
    let mut pair = pair();
    let before = pair.server.tap.frames.len();
    let stream = pair.get(0);
    pair.run();
    assert!(pair.client.app().talk(stream).ended);
    let frames = &pair.server.tap.frames[before..];
    assert_eq!(frames.len(), 1);
    assert!(frames[0].is(FrameType::HEADERS) && frames[0].ends_stream());
    pair.assert_nothing_leaked();
}

#[test]
fn a_short_response_leaves_in_one_write() {
    let mut pair = pair();
    let before = pair.server.tap.writes();
    pair.get(1_000);
    pair.run();
    assert_eq!(pair.server.tap.writes(), before + 1);
    let frames = pair.server.tap.frames.iter().filter(|seen| seen.write == before);
    let kinds: Vec<_> = frames
        .map(|seen| (seen.header.frame_type, seen.ends_stream()))
        .collect();
    assert_eq!(kinds, [(FrameType::HEADERS, false), (FrameType::DATA, true)]);
}

#[test]
fn a_post_sends_its_body_and_gets_an_answer_before_or_after_it_is_whole() {
    for late in [false, true] {
        let mut pair = pair();
        pair.server.app().answers_late = late;
        let stream = pair.post(3_000_000, 2_000_000);
        pair.run();
        let received = pair.server.app().talk(stream);
        assert_eq!((received.received, received.ended), (3_000_000, true));
        let answer = pair.client.app().talk(stream);
        assert_eq!((answer.received, answer.ended), (2_000_000, true));
        pair.assert_nothing_leaked();
    }
}

#[test]
fn a_body_whose_end_comes_after_its_data_is_ended_by_an_empty_frame() {
    let mut pair = Pair::connected();
    pair.server.app = Some(App::answering());
    let request = Request::post("http://example.com/0").body(()).unwrap();
    let client = &mut pair.client.connection;
    let stream = client.open(request, false).unwrap();
    client.send_data(stream, Bytes::from_static(b""), false).unwrap();
    pair.run();
    assert_eq!(
        pair.client.tap.data_lengths(1),
        [0u32; 0],
        "an empty chunk makes no frame"
    );
    let client = &mut pair.client.connection;
    client.send_data(stream, Bytes::new(), true).unwrap();
    assert_eq!(
        client.send_data(stream, Bytes::new(), true),
        Err(UsageError::SendFinished)
    );
    pair.run();
    assert_eq!(pair.client.tap.data_lengths(1), [0]);
    assert!(pair.server.app().talk(stream).ended);
}

#[test]
fn a_window_that_opens_before_the_end_leaves_does_not_send_it_twice() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced
        .connection
        .send_response(id(1), &Response::new(()), false)
        .unwrap();
    faced.heard();
    faced.connection.send_data(id(1), Bytes::new(), true).unwrap();
    faced.says(&frames::window_update(1, 10));
    let heard = faced.heard_of(FrameType::DATA);
    let ends: Vec<_> = heard
        .iter()
        .map(|frame| (frame.payload.len(), frame.header.flags.0))
        .collect();
    assert_eq!(ends, [(0, frames::END_STREAM)]);
}

#[test]
fn the_response_to_head_has_a_length_and_no_body() {
    let mut pair = Pair::connected();
    let request = Request::head("http://example.com/").body(()).unwrap();
    let stream = pair.client.connection.open(request, true).unwrap();
    pair.run();
    let response = Response::builder()
        .header("content-length", "1000")
        .body(())
        .unwrap();
    pair.server
        .connection
        .send_response(stream, &response, true)
        .unwrap();
    pair.run();
    let events = pair.client.take_events();
    assert!(
        matches!(&events[0], Event::Response { end: true, response, .. }
            if response.headers()["content-length"] == "1000"),
        "{events:?}"
    );
    assert_eq!(pair.client.connection.error(), None);
}

#[test]
fn statuses_without_a_body_may_declare_a_length() {
    for status in [204, 304] {
        let mut pair = Pair::connected();
        let stream = {
            let request = Request::get("http://example.com/").body(()).unwrap();
            pair.client.connection.open(request, true).unwrap()
        };
        pair.run();
        let response = Response::builder()
            .status(status)
            .header("content-length", "5")
            .body(());
        pair.server
            .connection
            .send_response(stream, &response.unwrap(), true)
            .unwrap();
        pair.run();
        let events = pair.client.take_events();
        assert!(
            matches!(events[0], Event::Response { end: true, .. }),
            "{events:?}"
        );
    }
}

#[test]
fn trailers_follow_the_body_in_both_directions() {
    let mut pair = pair();
    pair.server.app = Some(App::answering_with(|_| Answer {
        body: 70_000,
        trailers: Some(trailers()),
        ..Answer::default()
    }));
    let request = Request::post("http://example.com/").body(()).unwrap();
    let end = &mut pair.client;
    let stream = end.connection.open(request, false).unwrap();
    let app = end.app.as_mut().unwrap();
    app.send_body(&mut end.connection, stream, 50_000, Some(trailers()));
    pair.run();
    for (end, length) in [(&mut pair.client, 70_000), (&mut pair.server, 50_000)] {
        let talk = end.app().talk(stream);
        assert_eq!((talk.received, talk.ended), (length, true));
        assert_eq!(talk.trailers, Some(trailers()));
    }
    pair.assert_nothing_leaked();
}

#[test]
fn trailers_may_follow_no_body_at_all() {
    let mut pair = Pair::connected();
    pair.client.app = Some(App::default());
    let stream = pair.get(0);
    pair.run();
    let server = &mut pair.server.connection;
    server.send_response(stream, &Response::new(()), false).unwrap();
    server.send_trailers(stream, trailers()).unwrap();
    assert_eq!(
        server.send_trailers(stream, trailers()),
        Err(UsageError::SendFinished)
    );
    server.release(stream);
    pair.run();
    let talk = pair.client.app().talk(stream);
    assert_eq!((talk.received, &talk.trailers), (0, &Some(trailers())));
    assert_eq!(pair.server.tap.data_lengths(stream.value()), [0u32; 0]);
    pair.assert_nothing_leaked();
}

#[test]
fn trailers_need_no_credit() {
    let mut pair = pair();
    pair.client.app().pace = crate::support::app::Pace::Hoards;
    pair.server.app = Some(App::answering_with(|_| Answer {
        body: 16 << 20,
        trailers: Some(trailers()),
        ..Answer::default()
    }));
    let stream = pair.get(0);
    pair.run();
    let window = pair.server.connection.stream_send_window_remaining(stream);
    assert_eq!(window, None, "the server has let go of it");
    assert!(pair.client.app().talk(stream).trailers.is_some());
}

#[test]
fn many_streams_at_once_keep_their_bytes_apart() {
    let mut pair = Pair::new(
        Default::default(),
        Default::default(),
        PathConfig::delay_millis(10),
    )
    .with_apps();
    let streams: Vec<_> = (0..50)
        .map(|index| match index % 2 {
            0 => pair.get(index * 31_337),
            _ => pair.post(index * 10_007, index * 5_003),
        })
        .collect();
    pair.run();
    for (index, stream) in (0u64..).zip(streams) {
        let expected = if index % 2 == 0 {
            index * 31_337
        } else {
            index * 5_003
        };
        let talk = pair.client.app().talk(stream);
        assert_eq!((talk.received, talk.ended), (expected, true));
    }
    pair.assert_nothing_leaked();
}

#[test]
fn a_response_that_is_whole_ends_an_upload_that_nobody_reads_with_no_error() {
    let mut pair = Pair::new(
        Default::default(),
        Default::default(),
        PathConfig::delay_millis(10),
    );
    pair.client.app = Some(App::default());
    let stream = pair.post(100 << 20, 0);
    pair.run_while(|pair| pair.server.events.is_empty());
    pair.run_for(std::time::Duration::from_millis(1));
    let server = &mut pair.server.connection;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::FORBIDDEN;
    server.send_response(stream, &response, true).unwrap();
    server.release(stream);
    pair.run();
    let resets: Vec<_> = pair
        .server
        .tap
        .of(FrameType::RST_STREAM)
        .map(|seen| seen.word)
        .collect();
    assert_eq!(resets, [ErrorCode::NO_ERROR.0]);
    let talk = pair.client.app().talk(stream);
    assert_eq!(talk.response.as_ref().unwrap().status(), StatusCode::FORBIDDEN);
    assert!(
        talk.ended,
        "the response is whole, whatever became of the request"
    );
    pair.assert_nothing_leaked();
}

/// A client that has begun to send a body, and a server that has answered and let go.
fn answered_early(length: u64) -> Pair {
    let path = PathConfig {
        nanos_per_byte: 80,
        ..PathConfig::delay_millis(10)
    };
    let mut pair = Pair::new(Default::default(), Default::default(), path);
    pair.client.app = Some(App::default());
    let stream = pair.post(length, 0);
    let has_request = |pair: &Pair| {
        pair.server
            .events
            .iter()
            .any(|event| matches!(event, Event::Request { .. }))
    };
    pair.run_while(|pair| !has_request(pair));
    let server = &mut pair.server.connection;
    server.send_response(stream, &Response::new(()), true).unwrap();
    server.release(stream);
    pair
}

#[test]
fn an_upload_that_is_almost_done_may_end_behind_its_response() {
    let mut pair = answered_early(200_000);
    pair.run();
    assert_eq!(pair.server.tap.of(FrameType::RST_STREAM).count(), 0);
    assert_eq!(pair.client.tap.data_lengths(1).iter().sum::<u32>(), 200_000);
    pair.assert_nothing_leaked();
}

#[test]
fn an_upload_that_goes_on_behind_its_response_is_reset_after_so_many_bytes() {
    let mut pair = answered_early(10 << 20);
    let most = 256 << 10;
    let before = pair.server.connection.stats().received_data_bytes;
    pair.run_while(|pair| pair.server.tap.of(FrameType::RST_STREAM).count() == 0);
    let borne = pair.server.connection.stats().received_data_bytes - before;
    // A frame may have been under way when the response was.
    let frame = 16 << 10;
    assert!(
        borne + frame > most && borne <= most + 4 * frame,
        "{borne} of {most}"
    );
    pair.run();
    pair.assert_nothing_leaked();
}

#[test]
fn an_upload_that_pauses_behind_its_response_is_reset_after_a_while() {
    let mut pair = Pair::connected();
    let request = Request::post("http://example.com/").body(()).unwrap();
    let stream = pair.client.connection.open(request, false).unwrap();
    pair.run();
    let start = pair.now;
    let server = &mut pair.server.connection;
    server.send_response(stream, &Response::new(()), true).unwrap();
    server.release(stream);
    let wait = Duration::from_secs(1);
    pair.run();
    let reset = pair.server.tap.of(FrameType::RST_STREAM).next().unwrap();
    assert_eq!((reset.at.since(start), reset.word), (wait, ErrorCode::NO_ERROR.0));
    pair.client.connection.release(stream);
    pair.assert_nothing_leaked();
}

#[test]
fn the_head_of_a_request_that_waited_leaves_ahead_of_its_body_and_behind_the_trailers_before_it() {
    // The end of one upload lets the next request out, within the very write that it is part of.
    let mut server = fullbore_proto::Config::default();
    server.set_max_concurrent_streams(1);
    let mut pair = Pair::connected_with(Default::default(), server).with_apps();
    let uploads = |pair: &mut Pair, with_trailers: bool| {
        let request = Request::post("http://example.com/0")
            .header("x-table", "entry")
            .body(());
        let crate::support::pair::End { connection, app, .. } = &mut pair.client;
        let stream = connection.open(request.unwrap(), false).unwrap();
        let app = app.as_mut().unwrap();
        app.send_body(connection, stream, 100_000, with_trailers.then(trailers));
        stream
    };
    let streams: Vec<_> = (0..6).map(|index| uploads(&mut pair, index % 2 == 0)).collect();
    pair.run();
    let mut opened = 0;
    for seen in &pair.client.tap.frames {
        if seen.is(FrameType::HEADERS) {
            opened = opened.max(seen.stream());
        }
        assert!(
            !seen.is(FrameType::DATA) || seen.stream() <= opened,
            "DATA ahead of HEADERS"
        );
    }
    for stream in streams {
        assert_eq!(pair.server.app().talk(stream).received, 100_000);
    }
    pair.assert_nothing_leaked();
}

#[test]
fn a_client_that_wants_no_more_cancels_and_a_server_that_fails_says_so() {
    let mut pair = Pair::new(
        Default::default(),
        Default::default(),
        PathConfig::delay_millis(10),
    )
    .with_apps();
    let stream = pair.get(50 << 20);
    pair.run_while(|pair| pair.client.app().received == 0);
    pair.client.connection.release(stream);
    pair.run();
    let reset = pair.server.app().talk(stream).reset.clone().unwrap();
    assert_eq!(reset.code, ErrorCode::CANCEL);
    pair.assert_nothing_leaked();

    let mut pair = Pair::connected();
    pair.client.app = Some(App::default());
    let stream = pair.get(0);
    pair.run();
    let server = &mut pair.server.connection;
    server.send_response(stream, &Response::new(()), false).unwrap();
    server.send_data(stream, Bytes::from_static(b"x"), false).unwrap();
    server.release(stream);
    pair.client.app().pace = crate::support::app::Pace::Never;
    pair.run();
    let reset = pair.client.app().talk(stream).reset.clone().unwrap();
    assert_eq!(reset.code, ErrorCode::INTERNAL_ERROR);
}

#[test]
fn what_came_before_a_reset_can_still_be_read() {
    let mut pair = Pair::connected();
    let stream = pair.get(0);
    pair.run();
    let server = &mut pair.server.connection;
    server.send_response(stream, &Response::new(()), false).unwrap();
    server
        .send_data(stream, Bytes::from_static(b"half"), false)
        .unwrap();
    pair.run();
    pair.server
        .connection
        .reset(stream, ErrorCode::INTERNAL_ERROR)
        .unwrap();
    pair.server.connection.release(stream);
    pair.run();
    let events = pair.client.take_events();
    assert!(matches!(events.last(), Some(Event::Reset(error)) if error.code == ErrorCode::INTERNAL_ERROR));
    let mut body = Default::default();
    let client = &mut pair.client.connection;
    assert_eq!(client.read(stream, &mut body), Ok(ReadState::Reset));
    assert_eq!(body, ["half"]);
    client.release_credit(stream, 4);
    client.release(stream);
    pair.assert_nothing_leaked();
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let mut pair = Pair::connected();
    let stream = pair.get(0);
    let data = Bytes::from_static(b"x");
    let client = &mut pair.client.connection;
    assert_eq!(
        client.send_response(stream, &Response::new(()), true),
        Err(UsageError::WrongRole)
    );
    pair.run();
    let server = &mut pair.server.connection;
    let request = Request::get("http://example.com/").body(()).unwrap();
    assert_eq!(server.open(request, true), Err(UsageError::WrongRole));
    assert_eq!(
        server.send_data(stream, data.clone(), true),
        Err(UsageError::HeadOrder)
    );
    assert_eq!(
        server.send_trailers(stream, trailers()),
        Err(UsageError::HeadOrder)
    );
    let early = Response::builder().status(103).body(()).unwrap();
    assert_eq!(
        server.send_response(stream, &early, false),
        Err(UsageError::HeadOrder)
    );
    assert_eq!(
        server.send_informational(stream, &Response::new(())),
        Err(UsageError::HeadOrder)
    );
    server.send_response(stream, &Response::new(()), false).unwrap();
    assert_eq!(
        server.send_informational(stream, &early),
        Err(UsageError::HeadOrder)
    );
    assert_eq!(
        server.send_response(stream, &Response::new(()), true),
        Err(UsageError::HeadOrder)
    );
    server.send_data(stream, data.clone(), true).unwrap();
    server.release(stream);
    pair.run();
    assert_eq!(
        pair.server.connection.send_data(stream, data, true),
        Err(UsageError::UnknownStream)
    );
    pair.client.app = Some(App::default());
    pair.client.connection.release(stream);
    pair.assert_nothing_leaked();
}
