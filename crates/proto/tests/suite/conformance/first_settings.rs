//! What the first SETTINGS carry, the limit before the peer's arrive, and other choices of the owner at the start.

use bytes::Bytes;
use fullbore_proto::frame::Flags;
use fullbore_proto::{
    Config, Connection, ErrorCode, Event, FrameType, Limit, Priority, Refill, StreamErrorKind, StreamId,
    Time, UsageError, WindowSize,
};

use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, Heard, id};
use crate::support::{config, fixed};

fn get(faced: &mut Faced) -> Result<StreamId, UsageError> {
    let request = http::Request::get("http://example.com/").body(()).unwrap();
    faced.connection.open(request, true)
}

/// The identifiers of the first SETTINGS, in order.
fn announced(connection: Connection) -> Vec<u16> {
    let mut faced = Faced::new(connection);
    let settings = faced.heard_of(FrameType::SETTINGS);
    let entries = settings[0].payload.chunks_exact(6);
    let mut identifiers: Vec<u16> = entries
        .map(|entry| u16::from_be_bytes([entry[0], entry[1]]))
        .collect();
    identifiers.sort_unstable();
    identifiers
}

#[test]
fn the_first_settings_carry_just_what_is_to_be_announced() {
    for list in [vec![], vec![4], vec![1, 2, 3, 4, 5, 6, 8], vec![9, 3]] {
        let settings = config(|config| {
            config.announced_settings = Some(list.clone());
            config.enable_connect_protocol = true;
        });
        let client = announced(Connection::client(settings.clone(), Time::ZERO));
        let server = announced(Connection::server(settings, Time::ZERO));
        let mut known = list.clone();
        known.sort_unstable();
        assert_eq!((client, server), (known.clone(), known), "{list:?}");
    }
    assert_eq!(
        announced(Connection::client(Config::default(), Time::ZERO)),
        [1, 2, 4, 5, 6]
    );
    assert_eq!(
        announced(Connection::server(Config::default(), Time::ZERO)),
        [1, 3, 4, 5, 6, 9]
    );
}

#[test]
fn what_is_announced_of_all_has_the_values_that_are_in_force() {
    let settings = config(|config| {
        config.announced_settings = Some(vec![2, 3, 8, 9]);
        config.max_concurrent_streams = 7;
    });
    for connection in [
        Connection::client(settings.clone(), Time::ZERO),
        Connection::server(settings.clone(), Time::ZERO),
    ] {
        let mut faced = Faced::new(connection);
        let heard = faced.heard_of(FrameType::SETTINGS);
        let entries: Vec<_> = heard[0]
            .payload
            .chunks_exact(6)
            .map(|entry| (entry[1], entry[5]))
            .collect();
        // No push, 7 streams, no RFC 7540 priorities, no extended CONNECT.
        assert_eq!(entries, [(2, 0), (3, 7), (9, 1), (8, 0)]);
    }
}

#[test]
fn settings_that_are_left_out_have_the_values_of_the_rfc() {
    let connection = Connection::server(
        config(|config| {
            config.announced_settings = Some(vec![3]);
            config.max_frame_size = 1 << 20;
            config.header_table_size = 65_536;
            config.enable_connect_protocol = true;
        }),
        Time::ZERO,
    );
    let config = connection.config();
    assert_eq!((config.max_frame_size, config.header_table_size), (16_384, 4_096));
    assert_eq!(
        (config.stream_window.bytes(), config.enable_connect_protocol),
        (65_535, false)
    );
    let mut faced = Faced::new(connection).greeted();
    faced.says(&frames::post(1));
    for _ in 0..3 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    faced.says(&frames::data(1, 0, &[0; 16_383]));
    faced.lives();
    faced.says(&frames::data(1, 0, b"."));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
    faced.says(&frames::data(1, 0, &[0; 16_385]));
    faced.ended_with(ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn a_client_opens_as_many_streams_as_it_may_before_the_servers_settings() {
    for most in [0, 1, 3] {
        let settings = config(|config| config.initial_max_send_streams = most);
        let mut faced = Faced::silent_client(settings);
        assert_eq!(faced.connection.peer_max_concurrent_streams(), most);
        for _ in 0..5 {
            get(&mut faced).unwrap();
        }
        assert_eq!(faced.heard_of(FrameType::HEADERS).len(), most as usize);
        assert!(faced.connection.is_waiting(id(9)));
        // The server's SETTINGS name no limit.
        let mut faced = faced.greeted();
        assert!(!faced.connection.is_waiting(id(9)));
        faced.lives();
    }
}

#[test]
fn a_client_opens_the_first_stream_that_it_was_told_to() {
    let with = |first| config(|config| config.first_stream = id(first));
    let mut faced = Faced::client(with(3));
    assert_eq!(get(&mut faced), Ok(id(3)));
    // The streams below are not idle, but closed.
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    faced.lives();
    let mut faced = Faced::client(with(i32::MAX as u32));
    assert_eq!(get(&mut faced), Ok(id(i32::MAX as u32)));
    assert_eq!(get(&mut faced), Err(UsageError::NoNewStreams));
    assert!(!faced.connection.takes_new_streams());
    let mut faced = Faced::client(with(2));
    assert_eq!(get(&mut faced), Ok(id(1)), "streams of a server");
}

#[test]
fn the_preface_is_received_with_its_last_octet() {
    let mut faced = Faced::silent_server(Config::default());
    let (start, last) = frames::PREFACE.split_at(frames::PREFACE.len() - 1);
    faced.says(start);
    assert!(!faced.connection.preface_received());
    faced.says(last);
    assert!(faced.connection.preface_received());
    assert!(!faced.connection.peer_settings_received());
    assert!(
        Faced::silent_client(Config::default())
            .connection
            .preface_received()
    );
}

#[test]
fn the_debug_data_of_goaway_is_the_owners_choice() {
    let debug = |faced: &mut Faced| -> Vec<u8> {
        let heard: Vec<Heard> = faced.heard_of(FrameType::GOAWAY);
        heard[0].payload[8..].to_vec()
    };
    for describes in [true, false] {
        let settings = config(|config| {
            if !describes {
                config.debug_data = |_| "";
            }
        });
        let mut faced = Faced::server(settings.clone());
        faced.says(&frames::data(1, 0, b""));
        assert_eq!(debug(&mut faced).is_empty(), !describes);
        for (reason, expected) in [("enough", true), ("", describes)] {
            let mut faced = Faced::server(settings.clone());
            faced.connection.abort(ErrorCode::NO_ERROR, reason, faced.now);
            assert_eq!(!debug(&mut faced).is_empty(), expected, "{reason:?}");
        }
    }
}

#[test]
fn a_late_head_follows_the_replies_and_precedes_all_else_of_its_stream() {
    let kinds = |faced: &mut Faced| -> Vec<FrameType> {
        let heard = faced.heard().into_iter();
        heard.map(|frame| frame.header.frame_type).collect()
    };
    let (headers, reset, ping) = (FrameType::HEADERS, FrameType::RST_STREAM, FrameType::PING);
    let mut faced = Faced::client(config(|config| config.late_heads = true));
    let stream = get(&mut faced).unwrap();
    assert!(faced.connection.wants_transmit());
    faced.says(&frames::ping(0, b"question"));
    assert_eq!(kinds(&mut faced), [ping, headers]);
    let other = get(&mut faced).unwrap();
    faced.connection.reset(other, ErrorCode::CANCEL).unwrap();
    faced.says(&frames::ping(0, b"question"));
    assert_eq!(kinds(&mut faced), [ping, headers, reset], "{stream}");
    // A stream whose head has left is reset at once.
    faced.connection.reset(stream, ErrorCode::CANCEL).unwrap();
    let last = get(&mut faced).unwrap();
    let urgent = Priority::new(0, false).unwrap();
    faced.connection.send_priority_update(last, urgent).unwrap();
    let expected = [reset, headers, FrameType::PRIORITY_UPDATE];
    assert_eq!(kinds(&mut faced), expected);
}

#[test]
fn a_request_that_waited_follows_the_late_heads_before_it() {
    let mut faced = Faced::client(config(|config| config.late_heads = true));
    faced.says(&frames::settings(&[(3, 1)]));
    faced.heard();
    let streams = [(); 2].map(|()| get(&mut faced).unwrap());
    assert!(faced.connection.is_waiting(streams[1]));
    faced.says(&frames::settings(&[(3, 2)]));
    let heads = faced.heard_of(FrameType::HEADERS);
    let heads: Vec<_> = heads.iter().map(|head| head.header.stream.unwrap()).collect();
    assert_eq!(heads, streams);
}

#[test]
fn a_late_head_has_the_fields_of_one_that_is_encoded_at_once() {
    let heads = [true, false].map(|late| {
        let mut faced = Faced::client(config(|config| config.late_heads = late));
        get(&mut faced).unwrap();
        faced.heard_of(FrameType::HEADERS)
    });
    assert_eq!(heads[0].len(), 1);
    assert_eq!(heads[0], heads[1]);
}

#[test]
fn late_heads_wait_again_when_settings_allow_fewer_streams() {
    let mut faced = Faced::client(config(|config| config.late_heads = true));
    let streams: Vec<StreamId> = (0..4).map(|_| get(&mut faced).unwrap()).collect();
    let post = http::Request::post("http://example.com/").body(()).unwrap();
    let upload = faced.connection.open(post, false).unwrap();
    faced
        .connection
        .send_data(upload, Bytes::from("body"), true)
        .unwrap();
    faced.connection.reset(streams[3], ErrorCode::CANCEL).unwrap();
    faced.says(&frames::settings(&[(3, 1)]));
    let heads = |faced: &mut Faced| -> Vec<u32> {
        let heard = faced
            .heard()
            .into_iter()
            .filter(|frame| frame.header.frame_type != FrameType::SETTINGS);
        heard
            .map(|frame| frame.header.stream.map_or(0, StreamId::value))
            .collect()
    };
    assert_eq!(heads(&mut faced), [1]);
    assert!(!faced.connection.is_waiting(streams[0]));
    // Each response makes room for the next; the body follows its head.
    let mut left = vec![upload, streams[2], streams[1]];
    for answered in [1, 3, 5] {
        let next = left.pop().unwrap();
        assert!(faced.connection.is_waiting(next));
        let block = frames::response_block("204", &[]);
        faced.says(&frames::headers(answered, END_HEADERS | END_STREAM, &block));
        let expected = match next == upload {
            true => vec![upload.value(); 2],
            false => vec![next.value()],
        };
        assert_eq!(heads(&mut faced), expected);
    }
    faced.lives();
}

#[test]
fn late_heads_that_are_much_too_large_for_the_settings_are_not_sent() {
    let mut faced = Faced::client(config(|config| config.late_heads = true));
    let first = get(&mut faced).unwrap();
    let request = http::Request::get("http://example.com/").header("x-long", "x".repeat(1_000));
    let large = faced.connection.open(request.body(()).unwrap(), true).unwrap();
    let last = get(&mut faced).unwrap();
    // SETTINGS_MAX_HEADER_LIST_SIZE.
    faced.says(&frames::settings(&[(6, 400)]));
    let opened = faced.heard_of(FrameType::HEADERS);
    let opened: Vec<_> = opened.iter().map(Heard::stream).collect();
    assert_eq!(opened, [first.value(), last.value()]);
    let is_its_end = |event: &Event| matches!(event, Event::Reset(error) if error.stream == large && error.kind() == StreamErrorKind::TooLarge);
    assert!(faced.events().iter().any(is_its_end));
    faced.lives();
}

#[test]
fn a_lower_limit_of_heads_costs_a_token_more_for_each_128_late_heads() {
    // The frame and its entry cost one each, and so did the SETTINGS of the greeting.
    for (heads, limit, tokens) in [(127, 400, 3), (128, 400, 4), (256, 400, 5), (256, u32::MAX, 3)] {
        let with_tokens = |tokens| {
            let mut faced = Faced::client(config(|config| {
                config.late_heads = true;
                config.settings = Limit::new(tokens, 0);
            }));
            for _ in 0..heads {
                get(&mut faced).unwrap();
            }
            faced.tries(&frames::settings(&[(6, limit)]))
        };
        assert_eq!(with_tokens(tokens), Ok(()));
        let error = with_tokens(tokens - 1).unwrap_err();
        assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn a_request_whose_end_was_listed_sends_it_behind_its_head_if_it_waits_again() {
    let trailers = || http::HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]);
    for trailers in [None, Some(trailers())] {
        let mut faced = Faced::client(config(|config| config.late_heads = true));
        get(&mut faced).unwrap();
        let post = http::Request::post("http://example.com/").body(()).unwrap();
        let upload = faced.connection.open(post, false).unwrap();
        match trailers {
            None => faced.connection.send_data(upload, Bytes::new(), true).unwrap(),
            Some(trailers) => faced.connection.send_trailers(upload, trailers).unwrap(),
        }
        faced.says(&frames::settings(&[(3, 1)]));
        let of_upload = |frame: &Heard| frame.stream() == upload.value();
        assert!(!faced.heard().iter().any(of_upload));
        assert!(faced.connection.is_waiting(upload));
        let block = frames::response_block("204", &[]);
        faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
        let heard = faced.heard();
        let heard: Vec<_> = heard.iter().filter(|frame| of_upload(frame)).collect();
        assert_eq!(heard[0].header.frame_type, FrameType::HEADERS);
        let ends = |frame: &&Heard| frame.header.flags.has(Flags::END_STREAM);
        assert_eq!(heard.iter().copied().filter(|frame| ends(frame)).count(), 1);
        assert!(ends(heard.last().unwrap()));
        faced.lives();
    }
}

#[test]
fn a_relative_request_has_the_scheme_http_and_no_authority() {
    let relative = || http::Request::get("/path").body(()).unwrap();
    let mut strict = Faced::client(Config::default());
    assert!(strict.connection.open(relative(), true).is_err());
    let mut faced = Faced::client(config(|config| config.relative_requests = true));
    faced.connection.open(relative(), true).unwrap();
    // :method GET, :scheme http, then :path as a literal.
    let block = &faced.heard_of(FrameType::HEADERS)[0].payload;
    assert_eq!(block[..3], [0x82, 0x86, 0x04]);
    let connect = http::Request::connect("/path").body(()).unwrap();
    assert!(faced.connection.open(connect, true).is_err());
}

#[test]
fn credit_that_is_half_of_the_rest_is_returned_and_no_less() {
    let settings = fixed(|config| {
        config.stream_window = WindowSize::new(65_535).unwrap();
        config.connection_window = WindowSize::new(65_535).unwrap();
        config.stream_refill = Refill::HalfRest;
        config.connection_refill = Refill::HalfRest;
    });
    let mut faced = Faced::server(settings);
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 16_384]));
    faced.says(&frames::data(1, 0, &[0; 5_460]));
    faced.reads(1);
    assert_eq!(faced.connection.stream_release_until_due(id(1)), Some(1));
    assert!(faced.heard().is_empty(), "21,844 of 43,691");
    faced.says(&frames::data(1, 0, b"."));
    faced.reads(1);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(0, 21_845), (1, 21_845)]);
    faced.says(&frames::data(1, 0, &[0; 16_384]));
    // 16,384 of 49,151.
    assert_eq!(faced.connection.stream_release_until_due(id(1)), Some(24_575));
    faced.lives();
}

#[test]
fn small_data_frames_are_read_as_they_came_when_asked() {
    for gathers in [true, false] {
        let mut faced = Faced::server(config(|config| config.gather_small_data = gathers));
        faced.says(&frames::post(1));
        for piece in [&b"one"[..], b"two", b"three"] {
            faced.says(&frames::data(1, 0, piece));
        }
        let mut chunks = std::collections::VecDeque::new();
        faced.connection.read(id(1), &mut chunks).unwrap();
        match gathers {
            true => assert_eq!(chunks, ["onetwothree"]),
            false => assert_eq!(chunks, ["one", "two", "three"]),
        }
    }
}

#[test]
fn the_data_of_each_call_has_frames_of_its_own_when_asked() {
    for (joins, expected) in [
        (true, &[("onetwo", END_STREAM)][..]),
        (false, &[("one", 0), ("two", 0), ("", END_STREAM)][..]),
    ] {
        let mut faced = Faced::server(config(|config| config.join_data = joins));
        faced.says(&frames::get(1));
        let response = http::Response::new(());
        faced.connection.send_response(id(1), &response, false).unwrap();
        faced
            .connection
            .send_data(id(1), Bytes::from("one"), false)
            .unwrap();
        faced
            .connection
            .send_data(id(1), Bytes::from("two"), false)
            .unwrap();
        faced.connection.send_data(id(1), Bytes::new(), true).unwrap();
        let heard = faced.heard_of(FrameType::DATA);
        let frames: Vec<_> = heard
            .iter()
            .map(|frame| (&frame.payload[..], frame.header.flags.has(Flags::END_STREAM)))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|&(data, flags)| (data.as_bytes(), flags == END_STREAM))
            .collect();
        assert_eq!(frames, expected);
        assert!(!faced.connection.has_unfinished_streams());
    }
    // The end may be said with the data.
    let mut faced = Faced::server(config(|config| config.join_data = false));
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced
        .connection
        .send_data(id(1), Bytes::from("all"), true)
        .unwrap();
    let heard = faced.heard_of(FrameType::DATA);
    assert_eq!(heard.len(), 1);
    assert!(heard[0].header.flags.has(Flags::END_STREAM));
}
