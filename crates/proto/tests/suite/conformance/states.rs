//! RFC 9113 sections 5.1, 5.1.1 and 5.1.2: what a stream may be sent in each of its states.

use fullbore_proto::{Config, ErrorCode, Event};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, id};

fn server() -> Faced {
    Faced::server(Config::default())
}

fn client(end: bool) -> Faced {
    Faced::client_with_request(Config::default(), end)
}

fn trailers(stream: u32) -> Vec<u8> {
    let block = frames::block(&[("x", "1")]);
    frames::headers(stream, END_HEADERS | END_STREAM, &block)
}

fn response(stream: u32, flags: u8) -> Vec<u8> {
    frames::headers(stream, END_HEADERS | flags, &frames::response_block("200", &[]))
}

#[test]
fn idle_any_frame_but_headers_and_priority_is_a_connection_error() {
    for frame in [
        frames::data(3, 0, b"x"),
        frames::reset(3, ErrorCode::CANCEL),
        frames::window_update(3, 1),
        frames::continuation(3, END_HEADERS, b""),
    ] {
        for mut faced in [server(), client(true)] {
            faced.says(&frame);
            faced.ended_with(ErrorCode::PROTOCOL_ERROR);
        }
    }
    for mut faced in [server(), client(true)] {
        faced.says(&frames::priority(3, 1));
        faced.lives();
    }
}

#[test]
fn idle_headers_of_a_server_on_a_stream_that_no_request_opened_is_a_connection_error() {
    for stream in [2, 3] {
        let mut faced = client(true);
        faced.says(&response(stream, END_STREAM));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn idle_a_stream_whose_request_still_waits_is_idle_to_the_peer() {
    for frame in [
        response(1, 0),
        frames::data(1, 0, b"x"),
        frames::reset(1, ErrorCode::CANCEL),
        frames::window_update(1, 1),
    ] {
        let mut faced = Faced::client(Config::default());
        faced.says(&frames::settings(&[(3, 0)]));
        faced.opens("GET", true);
        faced.says(&frame);
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn open_before_the_head_of_the_response_data_is_a_stream_error() {
    let mut faced = client(true);
    faced.says(&frames::data(1, 0, b"x"));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn half_closed_remote_data_or_headers_is_a_stream_error() {
    for frame in [
        frames::data(1, END_STREAM, b"x"),
        frames::data(1, 0, b""),
        trailers(1),
    ] {
        let mut faced = server();
        faced.says(&frames::get(1));
        faced.says(&frame);
        faced.reset_with(1, ErrorCode::STREAM_CLOSED);
        let events = faced.events();
        assert!(
            matches!(&events[..], [Event::Request { .. }, Event::Reset(error)]
            if error.code == ErrorCode::STREAM_CLOSED),
            "{events:?}"
        );
        let mut faced = client(false);
        faced.says(&response(1, END_STREAM));
        faced.says(&frame);
        faced.reset_with(1, ErrorCode::STREAM_CLOSED);
    }
}

#[test]
fn half_closed_remote_window_update_priority_and_rst_stream_are_taken() {
    let mut faced = server();
    faced.says(&frames::get(1));
    faced.says(&frames::window_update(1, 100));
    faced.says(&frames::priority(1, 0));
    faced.lives();
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(65_635));
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    faced.lives();
    assert!(matches!(faced.events().last(), Some(Event::Reset(error)) if error.code == ErrorCode::CANCEL));
}

#[test]
fn half_closed_local_any_frame_is_taken() {
    let mut faced = client(true);
    faced.says(&frames::window_update(1, 5));
    faced.says(&frames::priority(1, 0));
    faced.says(&response(1, 0));
    faced.says(&frames::data(1, 0, b"x"));
    faced.says(&trailers(1));
    faced.lives();
    assert_eq!(faced.reads(1).0, b"x");
}

#[test]
fn closed_by_the_peers_reset_data_or_headers_is_a_stream_error() {
    for released in [false, true] {
        for frame in [frames::data(1, END_STREAM, b"x"), trailers(1)] {
            let mut faced = server();
            faced.says(&frames::post(1));
            faced.says(&frames::reset(1, ErrorCode::CANCEL));
            if released {
                faced.connection.release(id(1));
            }
            faced.says(&frame);
            faced.reset_with(1, ErrorCode::STREAM_CLOSED);
        }
    }
}

#[test]
fn closed_by_our_reset_frames_that_crossed_it_are_ignored() {
    for released in [false, true] {
        let mut faced = server();
        faced.says(&frames::post(1));
        faced.connection.reset(id(1), ErrorCode::CANCEL).unwrap();
        if released {
            faced.connection.release(id(1));
        }
        faced.heard();
        faced.events();
        faced.says(&frames::data(1, 0, &[0; 1_000]));
        faced.says(&frames::window_update(1, 1));
        faced.says(&trailers(1));
        faced.says(&frames::reset(1, ErrorCode::CANCEL));
        faced.says(&frames::priority(1, 0));
        assert!(faced.events().is_empty());
        faced.lives();
    }
}

#[test]
fn closed_after_both_sides_ended_data_or_headers_is_a_connection_error() {
    for released in [false, true] {
        for frame in [frames::data(1, END_STREAM, b"x"), trailers(1), frames::get(1)] {
            let mut faced = server();
            faced.says(&frames::get(1));
            let response = http::Response::new(());
            faced.connection.send_response(id(1), &response, true).unwrap();
            if released {
                faced.connection.release(id(1));
            }
            faced.lives();
            faced.says(&frame);
            faced.ended_with(ErrorCode::STREAM_CLOSED);
        }
        for frame in [frames::data(1, 0, b"x"), response(1, 0)] {
            let mut faced = Faced::client_with_request(Config::default(), true);
            faced.says(&response(1, END_STREAM));
            if released {
                faced.connection.release(id(1));
            }
            faced.lives();
            faced.says(&frame);
            faced.ended_with(ErrorCode::STREAM_CLOSED);
        }
    }
}

#[test]
fn closed_by_our_resets_frames_are_ignored_however_many_resets_followed() {
    let mut faced = server();
    for stream in (1..=4_001).step_by(2) {
        faced.says(&frames::post(stream));
        faced.connection.reset(id(stream), ErrorCode::CANCEL).unwrap();
        faced.connection.release(id(stream));
    }
    faced.heard();
    faced.events();
    faced.says(&frames::data(1, 0, b"late"));
    faced.says(&trailers(3));
    faced.says(&frames::data(4_001, 0, b"late"));
    assert!(faced.events().is_empty());
    faced.lives();
}

#[test]
fn closed_after_both_sides_ended_late_window_update_rst_stream_and_priority_are_ignored() {
    for released in [false, true] {
        let mut faced = server();
        faced.says(&frames::get(1));
        let response = http::Response::new(());
        faced.connection.send_response(id(1), &response, true).unwrap();
        if released {
            faced.connection.release(id(1));
        }
        faced.heard();
        faced.events();
        faced.says(&frames::window_update(1, 1));
        faced.says(&frames::window_update(1, i32::MAX as u32));
        faced.says(&frames::reset(1, ErrorCode::NO_ERROR));
        faced.says(&frames::priority(1, 0));
        faced.says(&frames::priority_update(1, "u=1"));
        assert!(faced.events().is_empty());
        faced.lives();
    }
}

#[test]
fn identifiers_of_a_client_are_odd() {
    let mut faced = server();
    faced.says(&frames::get(2));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn identifiers_only_grow() {
    let mut faced = server();
    faced.says(&frames::get(5));
    faced.says(&frames::get(3));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn streams_that_were_left_out_are_closed() {
    let mut faced = server();
    faced.says(&frames::get(7));
    faced.says(&frames::window_update(3, 1));
    faced.says(&frames::reset(5, ErrorCode::CANCEL));
    faced.lives();
}

#[test]
fn identifiers_up_to_the_largest_are_taken() {
    let mut faced = server();
    faced.says(&frames::get(0x7fff_ffff));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.answers(0x7fff_ffff);
    faced.lives();
}

#[test]
fn streams_over_the_limit_are_refused() {
    let mut faced = Faced::server(config(|config| config.set_max_concurrent_streams(2)));
    faced.says(&frames::get(1));
    faced.says(&frames::post(3));
    faced.says(&frames::get(5));
    faced.reset_with(5, ErrorCode::REFUSED_STREAM);
    assert_eq!(faced.events().len(), 2);
    faced.answers(1);
    faced.heard();
    faced.says(&frames::get(7));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.lives();
}

/// Section 5.1.2 counts no closed streams.
#[test]
fn streams_that_the_peer_reset_make_room_for_new_ones_at_once() {
    let mut faced = Faced::server(config(|config| config.set_max_concurrent_streams(2)));
    faced.says(&[frames::get(1), frames::get(3)].concat());
    assert_eq!(faced.events().len(), 2);
    // Nobody has released the first two.
    let resets = [1, 3]
        .map(|stream| frames::reset(stream, ErrorCode::CANCEL))
        .concat();
    faced.says(&[resets, frames::get(5), frames::get(7)].concat());
    faced.lives();
    let events = faced.events();
    assert!(
        matches!(
            events[..],
            [
                Event::Reset(_),
                Event::Reset(_),
                Event::Request { .. },
                Event::Request { .. }
            ]
        ),
        "{events:?}"
    );
    faced.says(&frames::get(9));
    faced.reset_with(9, ErrorCode::REFUSED_STREAM);
}

#[test]
fn streams_that_were_reset_and_are_held_have_a_limit_of_their_own() {
    let mut faced = Faced::server(config(|config| config.set_max_concurrent_streams(2)));
    // 1,002 are held, none of them open.
    const HELD: u32 = 1_002;
    for stream in (0..HELD).map(|number| 2 * number + 1) {
        faced.says(&frames::get(stream));
        assert!(
            matches!(faced.events()[..], [Event::Request { .. }]),
            "stream {stream}"
        );
        faced.says(&frames::reset(stream, ErrorCode::CANCEL));
        assert!(matches!(faced.events()[..], [Event::Reset(_)]));
    }
    let next = |number: u32| 2 * (HELD + number) + 1;
    faced.says(&frames::get(next(0)));
    faced.reset_with(next(0), ErrorCode::REFUSED_STREAM);
    faced.connection.release(id(1));
    faced.says(&frames::get(next(1)));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.says(&frames::get(next(2)));
    faced.reset_with(next(2), ErrorCode::REFUSED_STREAM);
    // Those that are given up before their owner hears of them are not held.
    for stream in [3, 5, 7, 9] {
        faced.connection.release(id(stream));
    }
    let unheard = (3..53).flat_map(|number| {
        let stream = next(number);
        [frames::get(stream), frames::reset(stream, ErrorCode::CANCEL)].concat()
    });
    faced.says(&unheard.collect::<Vec<_>>());
    assert!(faced.events().is_empty());
    faced.says(&frames::get(next(53)));
    assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    faced.lives();
}

#[test]
fn data_of_a_refused_stream_is_dropped_and_its_credit_returned() {
    let mut faced = Faced::server(config(|config| config.set_max_concurrent_streams(0)));
    let full = faced.connection.receive_window_remaining();
    faced.says(&frames::post(1));
    faced.reset_with(1, ErrorCode::REFUSED_STREAM);
    let frame = frames::data(1, 0, &[0; 16_384]);
    let mut updates = Vec::new();
    for _ in 0..(full / 16_384) {
        faced.says(&frame);
        updates.extend(faced.heard_of(fullbore_proto::FrameType::WINDOW_UPDATE));
    }
    assert!((1..=4).contains(&updates.len()) && updates.iter().all(|frame| frame.stream() == 0));
    faced.lives();
}
