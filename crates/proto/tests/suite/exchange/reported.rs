//! What public reports describe of other implementations, staged on this one.

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Event, FrameType, PeerLimit, ReadState};
use http::Response;

use crate::support::frames::{self, END_HEADERS, END_STREAM, block, request_block};
use crate::support::peer::{Faced, id};

#[test]
fn a_continuation_counts_once_however_it_is_split() {
    // nghttp2#2817: a CONTINUATION of which each octet came by itself counted nine times.
    let request = request_block("GET");
    let (last, first) = request.split_last().unwrap();
    for more in [false, true] {
        let mut faced = Faced::server(Config::default());
        let mut octets = frames::headers(1, END_STREAM, first);
        for _ in 0..31 + usize::from(more) {
            octets.extend(frames::continuation(1, 0, b""));
        }
        octets.extend(frames::continuation(1, END_HEADERS, &[*last]));
        for octet in octets {
            faced.says(&[octet]);
        }
        match more {
            false => {
                let events = faced.events();
                assert!(matches!(events[..], [.., Event::Request { .. }]), "{events:?}");
            }
            // bun#36410: empty ones had no limit.
            true => assert!(faced.connection.error().is_some()),
        }
    }
}

#[test]
fn a_continuation_of_no_stream_ends_the_connection() {
    // bun#29962: it was answered with RST_STREAM of stream 0.
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::continuation(0, END_HEADERS, b""));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn trailers_of_a_request_arrive_after_a_graceful_shutdown_has_begun() {
    // bun#43507: they were lost.
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.connection.shutdown(faced.now);
    faced.says(&frames::ping(frames::ACK, &frames::SHUTDOWN));
    faced.says(&frames::data(1, 0, b"body"));
    faced.says(&frames::headers(
        1,
        END_HEADERS | END_STREAM,
        &block(&[("a", "b")]),
    ));
    let (body, state) = faced.reads(1);
    assert_eq!(body, b"body");
    assert!(matches!(state, ReadState::Trailers(trailers) if trailers["a"] == "b"));
}

#[test]
fn the_go_away_of_a_client_names_no_stream_of_its_own() {
    // golang/go#80759: nghttp2 ends a connection whose client names an odd stream.
    let mut faced = Faced::client_with_request(Config::default(), true);
    faced.connection.shutdown(faced.now);
    let said = faced.heard_of(FrameType::GOAWAY);
    assert!(!said.is_empty() && said.iter().all(|frame| frame.word(0) == 0));
}

#[test]
fn the_last_byte_of_the_connections_window_is_held_for_no_stream() {
    // hyper#4003: a stream that waited for more of its body kept it, and the peer refilled an empty window only.
    let mut faced = Faced::client(Config::default());
    let streams = [faced.opens("POST", false), faced.opens("POST", false)];
    for (stream, bytes) in streams.into_iter().zip([65_534, 10]) {
        let data = Bytes::from(vec![7; bytes]);
        faced.connection.send_data(stream, data, false).unwrap();
        faced.heard();
    }
    faced.now = faced.connection.next_deadline().unwrap();
    faced.connection.handle_timeout(faced.now);
    let said = faced.heard_of(FrameType::DATA);
    assert_eq!((said[0].stream(), &said[0].payload[..]), (3, &[7][..]));
}

#[test]
fn a_client_that_gives_up_a_thousand_requests_a_second_is_served() {
    // nodejs/node#56306: a client that aborted some 1,100 streams within seconds was sent GOAWAY.
    let mut faced = Faced::server(Config::default());
    for index in 0..3_000 {
        let stream = 2 * index + 1;
        faced.says(&frames::get(stream));
        let response = Response::new(());
        faced
            .connection
            .send_response(id(stream), &response, false)
            .unwrap();
        faced.says(&frames::reset(stream, ErrorCode::CANCEL));
        faced.connection.release(id(stream));
        faced.now = faced.now + core::time::Duration::from_millis(1);
    }
    faced.lives();
    // CVE-2023-44487: a flood is not.
    for index in 3_000..20_000 {
        let stream = 2 * index + 1;
        faced.says(&[frames::get(stream), frames::reset(stream, ErrorCode::CANCEL)].concat());
    }
    faced.exceeded(PeerLimit::PeerResets);
}

#[test]
fn a_response_without_dynamic_fields_follows_a_table_of_no_size() {
    // apple/swift-nio-http2#374, apache/httpcomponents-core#495, haproxy#1498: the size that the peer set was not obeyed, or not said.
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(1, 0)]));
    for stream in [1, 3, 5] {
        faced.says(&frames::get(stream));
        let response = Response::builder().header("x-field", "value").body(()).unwrap();
        faced
            .connection
            .send_response(id(stream), &response, true)
            .unwrap();
        let head = faced.heard_of(FrameType::HEADERS).remove(0).payload;
        // 0x20 says a table of no size, once; 0x40 and above without 0x80 would add to it, 0xbe and above refer to it.
        assert_eq!(head[0] == 0x20, stream == 1, "{head:x?}");
        assert!(
            !head.contains(&0x40) && head.iter().all(|&octet| octet != 0xbe),
            "{head:x?}"
        );
    }
}
