//! Responses by one call: which are written at once, and which wait like any other.

use bytes::Bytes;
use fullbore_proto::{
    Config, Connection, ErrorCode, FrameType, Payload, Segment, Time, Transmit, UsageError,
};
use http::{Request, Response};

use crate::support::peer::{Faced, id};
use crate::support::{config, frames};

fn body(length: usize) -> Payload {
    Bytes::from(vec![b'x'; length]).into()
}

fn asked(config: Config) -> Faced {
    let mut faced = Faced::server(config);
    faced.says(&frames::get(1));
    faced.events();
    faced
}

fn respond(faced: &mut Faced, stream: u32, length: usize) -> Result<(), UsageError> {
    faced
        .connection
        .respond(id(stream), &Response::new(()), &body(length))
}

/// The lengths of the DATA frames that leave, and whether the last has END_STREAM.
fn data(faced: &mut Faced) -> (Vec<u32>, bool) {
    let frames = faced.heard_of(FrameType::DATA);
    let ends = frames
        .last()
        .is_some_and(|frame| frame.header.flags.0 & frames::END_STREAM != 0);
    (frames.iter().map(|frame| frame.header.length).collect(), ends)
}

#[test]
fn a_response_that_fits_is_complete_before_the_next_list() {
    for length in [0, 1, 1_024, 1_025, 16_384] {
        let mut faced = asked(Config::default());
        assert_eq!(faced.connection.stream_count(), 1);
        assert!(faced.connection.has_unfinished_streams());
        respond(&mut faced, 1, length).unwrap();
        assert_eq!(faced.connection.stream_count(), 0, "{length}");
        assert!(!faced.connection.has_unfinished_streams());
        let heard = faced.heard();
        let types: Vec<_> = heard.iter().map(|frame| frame.header.frame_type).collect();
        let expected = [FrameType::HEADERS, FrameType::DATA];
        assert_eq!(types, expected[..1 + usize::from(length > 0)]);
        let last = heard.last().unwrap();
        assert!(last.header.flags.0 & frames::END_STREAM != 0);
        assert_eq!(faced.connection.stats().sent_data_bytes, length as u64);
        faced.lives();
    }
}

#[test]
fn a_long_body_leaves_as_it_is_and_a_short_one_behind_its_frame_header() {
    for (length, is_copied) in [(1_024, true), (1_025, false)] {
        let mut faced = asked(Config::default());
        let octets = Bytes::from(vec![b'x'; length]);
        let body = Payload::from(octets.clone());
        faced
            .connection
            .respond(id(1), &Response::new(()), &body)
            .unwrap();
        let mut out = Transmit::new();
        faced.connection.transmit(&mut out, faced.now);
        let is_there = out
            .segments()
            .any(|segment| matches!(segment, Segment::Memory(slice) if slice.as_ptr() == octets.as_ptr()));
        assert_eq!(is_there, !is_copied, "{length}");
    }
}

#[test]
fn a_response_that_does_not_fit_leaves_with_the_list_as_the_windows_allow() {
    // The frames that leave at once.
    for (length, window, at_once) in [
        (16_385, 65_535, vec![16_384, 1]),
        (2_000, 1_999, vec![1_999]),
        (1_024, 1_000, vec![1_000]),
        (1_024, 0, vec![]),
    ] {
        let mut faced = Faced::server(Config::default());
        // SETTINGS_INITIAL_WINDOW_SIZE.
        faced.says(&frames::settings(&[(4, window)]));
        faced.says(&frames::get(1));
        faced.events();
        respond(&mut faced, 1, length).unwrap();
        assert_eq!(faced.connection.stream_count(), 1);
        let is_whole = at_once.iter().sum::<u32>() as usize == length;
        assert_eq!(data(&mut faced), (at_once, is_whole));
        assert_eq!(faced.connection.stream_count(), usize::from(!is_whole));
        faced.says(&frames::window_update(1, 2_000));
        assert_eq!(data(&mut faced).1, !is_whole);
        assert_eq!(faced.connection.stream_count(), 0);
        faced.lives();
    }
}

#[test]
fn no_response_is_written_ahead_of_data_that_waits() {
    let mut faced = Faced::server(Config::default());
    faced.says(&[frames::get(1), frames::get(3)].concat());
    faced.events();
    respond(&mut faced, 1, 20_000).unwrap();
    respond(&mut faced, 3, 5).unwrap();
    let streams: Vec<_> = faced
        .heard_of(FrameType::DATA)
        .iter()
        .map(|frame| frame.stream())
        .collect();
    assert_eq!(streams, [1, 1, 3]);
}

#[test]
fn no_more_than_16_kib_are_written_ahead_of_a_list_with_data() {
    let mut faced = Faced::server(Config::default());
    let requests: Vec<u8> = (0..60).flat_map(|index| frames::get(2 * index + 1)).collect();
    faced.says(&requests);
    faced.events();
    for index in 0..60 {
        respond(&mut faced, 2 * index + 1, 1_024).unwrap();
    }
    // HEADERS, DATA and its frame header are some 1,045 octets.
    assert_eq!(faced.connection.stream_count(), 60 - 15);
    assert_eq!(data(&mut faced).0, [1_024; 60]);
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn the_window_of_the_connection_bounds_what_is_written_at_once() {
    let mut faced = Faced::server(Config::default());
    for index in 0..64 {
        faced.says(&frames::get(2 * index + 1));
        respond(&mut faced, 2 * index + 1, 1_024).unwrap();
    }
    // 65,535 octets: the last response lacks one, and a frame that the window would shorten is held back.
    assert_eq!(data(&mut faced).0, [1_024; 63]);
    faced.says(&frames::window_update(0, 1));
    assert_eq!(data(&mut faced), (vec![1_024], true));
}

#[test]
fn a_response_that_is_refused_leaves_the_request_to_its_owner() {
    let mut faced = asked(Config::default());
    let mut informational = Response::new(());
    *informational.status_mut() = http::StatusCode::EARLY_HINTS;
    let refused = faced.connection.respond(id(1), &informational, &body(1));
    assert_eq!(refused, Err(UsageError::HeadOrder));
    let mut malformed = Response::new(());
    malformed
        .headers_mut()
        .insert("connection", "close".parse().unwrap());
    let refused = faced.connection.respond(id(1), &malformed, &body(1));
    assert!(
        matches!(refused, Err(UsageError::InvalidMessage(_))),
        "{refused:?}"
    );
    respond(&mut faced, 1, 1).unwrap();
    assert_eq!(respond(&mut faced, 1, 1), Err(UsageError::UnknownStream));
    assert_eq!(respond(&mut faced, 3, 1), Err(UsageError::UnknownStream));
    assert_eq!(data(&mut faced), (vec![1], true));
    let mut client = Connection::client(Config::default(), Time::ZERO);
    let request = Request::get("http://example.com/").body(()).unwrap();
    let stream = client.open(request, true).unwrap();
    let refused = client.respond(stream, &Response::new(()), &body(0));
    assert_eq!(refused, Err(UsageError::WrongRole));
}

#[test]
fn whatever_concerns_a_request_before_its_response_finds_its_stream() {
    // A reset takes the event back, and the memory of the fields with it.
    let long = "z".repeat(10_000);
    let block = frames::request_block_with("GET", &[("x-long", &long)]);
    let get = frames::headers(1, frames::END_HEADERS | frames::END_STREAM, &block);
    let mut faced = Faced::server(Config::default());
    let mut input = Bytes::from([get.clone(), frames::reset(1, ErrorCode::CANCEL)].concat());
    faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
    assert!(faced.connection.poll_event().is_none());
    assert_eq!(faced.connection.stream_count(), 0);

    // A second message, or DATA, is an error of the stream.
    for octets in [frames::get(1), frames::data(1, 0, b"x")] {
        let mut faced = asked(Config::default());
        faced.says(&octets);
        faced.reset_with(1, ErrorCode::STREAM_CLOSED);
        assert_eq!(respond(&mut faced, 1, 1), Err(UsageError::UnknownStream));
    }

    // A window that would overflow is one, too.
    let mut faced = asked(Config::default());
    faced.says(&frames::window_update(1, i32::MAX as u32));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);

    // SETTINGS_INITIAL_WINDOW_SIZE changes its window by the difference (section 6.9.2).
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 0)]));
    faced.says(&[frames::get(1), frames::settings(&[(4, 1)])].concat());
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(1));
    respond(&mut faced, 1, 10).unwrap();
    assert_eq!(data(&mut faced), (vec![1], false));

    // Queries answer for it.
    let faced = asked(Config::default());
    let report = faced.connection.stream_report(id(1), faced.now).unwrap();
    assert_eq!((report.sent_bytes, report.send_window), (0, 65_535));
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(65_535));
    assert_eq!(faced.connection.send_queue_bytes(id(1)), Some(0));
    assert_eq!(faced.connection.stream_release_until_due(id(1)), None);
    assert!(!faced.connection.is_waiting(id(1)));
}

#[test]
fn requests_that_are_not_stored_count_as_streams() {
    let mut faced = Faced::server(config(|config| {
        config.set_max_concurrent_streams(2);
        config.set_max_header_memory(15_000);
    }));
    faced.says(&[frames::get(1), frames::get(3), frames::get(5)].concat());
    faced.reset_with(5, ErrorCode::REFUSED_STREAM);
    respond(&mut faced, 1, 1).unwrap();
    let long = "z".repeat(10_000);
    let block = frames::request_block_with("GET", &[("x-long", &long)]);
    let get = |stream| frames::headers(stream, frames::END_HEADERS | frames::END_STREAM, &block);
    faced.says(&get(7));
    respond(&mut faced, 3, 1).unwrap();
    faced.says(&get(9));
    faced.reset_with(9, ErrorCode::REFUSED_STREAM);
    respond(&mut faced, 7, 1).unwrap();
    faced.says(&get(11));
    respond(&mut faced, 11, 1).unwrap();
    faced.lives();
}
