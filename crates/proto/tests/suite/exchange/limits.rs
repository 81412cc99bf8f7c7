//! How many streams there may be at once, on both sides of the limit.

use std::time::Duration;

use bytes::Buf;
use fullbore_proto::frame::FrameHeader;
use fullbore_proto::{Config, ErrorCode, Side, Transmit, UsageError};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use crate::support::config;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

fn allowing(streams: u32) -> Config {
    config(|config| config.set_max_concurrent_streams(streams))
}

#[test]
fn requests_over_the_limit_of_the_peer_wait_and_leave_in_order() {
    let mut pair = Pair::connected_with(Config::default(), allowing(3)).with_apps();
    assert_eq!(pair.client.connection.peer_max_concurrent_streams(), 3);
    let streams: Vec<_> = (0..10).map(|_| pair.get(1_000)).collect();
    assert_eq!(pair.client.connection.waiting_streams(), 7);
    let posted = pair.post(100_000, 5);
    pair.run();
    for stream in streams {
        assert_eq!(pair.client.app().talk(stream).received, 1_000);
    }
    assert_eq!(pair.server.app().talk(posted).received, 100_000);
    assert_eq!(pair.client.app().talk(posted).received, 5);
    pair.assert_nothing_leaked();
}

#[test]
fn no_more_streams_than_allowed_are_ever_open() {
    let path = PathConfig {
        nanos_per_byte: 80,
        buffer: 1,
        ..PathConfig::delay_millis(10)
    };
    let mut pair = Pair::new(Config::default(), allowing(4), path).with_apps();
    pair.run();
    for index in 0..40 {
        match index % 3 {
            0 => pair.post(70_000, 1_000),
            _ => pair.get(1_000_000 + index * 1_000),
        };
    }
    let mut most = 0;
    pair.run_while(|pair| {
        most = most.max(pair.server.connection.stream_count());
        true
    });
    assert_eq!(most, 4);
    assert!(
        pair.client
            .app()
            .talks
            .values()
            .all(|talk| talk.reset.is_none() && talk.ended)
    );
    pair.assert_nothing_leaked();
}

#[test]
fn requests_that_left_before_the_limit_was_known_are_refused_and_may_be_repeated() {
    let path = PathConfig::delay_millis(10);
    let mut pair = Pair::new(Config::default(), allowing(2), path).with_apps();
    let streams: Vec<_> = (0..5).map(|_| pair.get(100)).collect();
    pair.server.app().pace = crate::support::app::Pace::Eager;
    // The server answers at once, but its streams are open until it has; they come in one read.
    pair.run();
    let app = pair.client.app();
    let refused: Vec<_> = streams
        .iter()
        .filter_map(|&stream| app.talk(stream).reset.clone())
        .collect();
    assert_eq!(refused.len(), 3);
    assert!(
        refused
            .iter()
            .all(|error| error.code == ErrorCode::REFUSED_STREAM && error.by == Side::Peer)
    );
    let again = pair.get(100);
    pair.run();
    assert_eq!(pair.client.app().talk(again).received, 100);
    pair.assert_nothing_leaked();
}

#[test]
fn an_owner_that_shares_its_thread_gets_requests_64_at_a_time_and_none_is_lost() {
    let mut faced = Faced::server(Config::default());
    let octets: Vec<u8> = (0..150).flat_map(|index| frames::get(2 * index + 1)).collect();
    let mut input = bytes::Bytes::from(octets);
    let mut begun = Vec::new();
    while !input.is_empty() {
        let before = faced.connection.stream_count();
        faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
        begun.push(faced.connection.stream_count() - before);
    }
    assert_eq!(begun, [64, 64, 22]);
}

/// A server that was asked to take these octets with so many requests at once, and how many octets it took.
fn takes_at_once(octets: &[u8], requests: u32) -> (Faced, usize) {
    let mut faced = Faced::server(Config::default());
    let mut input = bytes::Bytes::copy_from_slice(octets);
    faced
        .connection
        .receive_some(&mut input, requests, faced.now)
        .unwrap();
    (faced, octets.len() - input.len())
}

#[test]
fn an_owner_that_shares_its_thread_may_ask_for_fewer_requests_at_a_time() {
    let octets: Vec<u8> = (0..150).flat_map(|index| frames::get(2 * index + 1)).collect();
    for (requests, begun) in [(0, 1), (1, 1), (4, 4), (65, 64), (u32::MAX, 64)] {
        let (faced, _) = takes_at_once(&octets, requests);
        assert_eq!(faced.connection.stream_count(), begun, "{requests}");
    }
}

#[test]
fn an_owner_that_shares_its_thread_gets_16_other_frames_in_place_of_a_request() {
    let update = frames::window_update(0, 1);
    for (requests, updates) in [(0, 16), (1, 16), (4, 64), (64, 1_024), (u32::MAX, 1_024)] {
        let (_, taken) = takes_at_once(&update.repeat(1_100), requests);
        assert_eq!(taken, updates * update.len(), "{requests}");
    }
}

#[test]
fn the_streams_of_a_connection_that_is_over_are_freed_some_at_a_time() {
    let octets: Vec<u8> = (0..100).flat_map(|index| frames::post(2 * index + 1)).collect();
    for fails in [false, true] {
        let mut faced = Faced::server(Config::default());
        faced
            .connection
            .receive(octets.clone().into(), faced.now)
            .unwrap();
        if fails {
            faced
                .connection
                .abort(ErrorCode::INTERNAL_ERROR, "no more", faced.now);
        }
        let freed = [64, 35, 1, 1].map(|count| faced.connection.free_streams(count));
        assert_eq!(freed, [false, false, true, true]);
        assert_eq!(faced.connection.stream_count(), 0);
    }
    assert!(Faced::server(Config::default()).connection.free_streams(0));
}

#[test]
fn requests_that_are_reset_before_their_owner_hears_of_them_do_not_count_for_its_turn() {
    let mut faced = Faced::server(Config::default());
    let pair = |index: u32| {
        [
            frames::get(2 * index + 1),
            frames::reset(2 * index + 1, ErrorCode::CANCEL),
        ]
        .concat()
    };
    let mut input = bytes::Bytes::from((0..150).flat_map(pair).collect::<Vec<u8>>());
    faced.connection.receive_some(&mut input, 64, faced.now).unwrap();
    assert!(input.is_empty());
    assert!(faced.connection.poll_event().is_none());
}

#[test]
fn a_waiting_request_can_be_given_up_without_a_word_on_the_wire() {
    let mut pair = Pair::connected_with(Config::default(), allowing(1)).with_apps();
    let first = pair.get(100);
    let second = pair.get(100);
    let third = pair.get(100);
    pair.client.connection.release(second);
    assert_eq!(pair.client.connection.waiting_streams(), 1);
    pair.run();
    let app = pair.client.app();
    assert_eq!((app.talk(first).received, app.talk(third).received), (100, 100));
    assert!(!pair.server.app().talks.contains_key(&second.value()));
    pair.assert_nothing_leaked();
}

#[test]
fn a_limit_of_none_holds_all_back_until_it_is_raised() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    faced.heard();
    assert!(faced.opens("GET", true).value() == 1 && faced.heard().is_empty());
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.says(&frames::settings(&[(3, 1)]));
    let heard = faced.heard_of(fullbore_proto::FrameType::HEADERS);
    assert_eq!(heard.len(), 1);
}

#[test]
fn too_many_waiting_requests_are_refused_at_once() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    let request = Request::get("http://example.com/").body(()).unwrap();
    for _ in 0..100_000 {
        faced.connection.open_from(&request, true).unwrap();
    }
    assert_eq!(
        faced.connection.open(request, true),
        Err(UsageError::NoNewStreams)
    );
    faced.lives();
}

#[test]
fn a_peer_whose_first_settings_name_no_limit_has_none_until_it_names_one() {
    let mut faced = Faced::silent_client(Config::default());
    let limit = |faced: &Faced| faced.connection.peer_max_concurrent_streams();
    assert_eq!(limit(&faced), 100);
    for (entries, expected) in [(&[][..], u32::MAX), (&[(3, 7)], 7), (&[], 7)] {
        faced.says(&frames::settings(entries));
        assert_eq!(limit(&faced), expected);
    }
}

#[test]
fn before_the_peers_limit_is_known_a_hundred_requests_leave() {
    let path = PathConfig::delay_millis(10);
    let mut pair = Pair::new(Config::default(), Config::default(), path).with_apps();
    for _ in 0..150 {
        pair.get(0);
    }
    pair.run_for(Duration::from_millis(1));
    let sent = pair.client.tap.of(fullbore_proto::FrameType::HEADERS).count();
    assert_eq!(sent, 100);
    pair.run();
    assert!(pair.client.app().talks.values().all(|talk| talk.ended));
    pair.assert_nothing_leaked();
}

#[test]
fn trailers_of_thousands_of_streams_leave_in_lists_that_are_as_long_as_any_other() {
    const STREAMS: u32 = 3_000;
    let value = HeaderValue::from_bytes(&[b'~'; 500]).unwrap();
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x"), value)]);
    for (length, most) in [(usize::MAX, 512 << 10), (80_000, 80_000)] {
        let mut faced = Faced::server(Config::default());
        let streams: Vec<_> = (0..STREAMS).map(|index| id(2 * index + 1)).collect();
        for &stream in &streams {
            faced.says(&frames::get(stream.value()));
            let response = Response::new(());
            faced.connection.send_response(stream, &response, false).unwrap();
        }
        faced.heard();
        for &stream in &streams {
            let mut trailers = trailers.clone();
            trailers.insert("y", HeaderValue::from(stream.value()));
            faced.connection.send_trailers(stream, trailers).unwrap();
        }
        let (mut lists, mut ended) = (0, Vec::new());
        while faced.connection.wants_transmit() {
            let mut out = Transmit::new();
            faced.connection.transmit_within(&mut out, length, faced.now);
            assert!(out.remaining() < most + 1_000, "{}", out.remaining());
            while out.has_remaining() {
                let header = FrameHeader::parse(&out.copy_to_bytes(9)[..].try_into().unwrap());
                out.advance(header.length as usize);
                ended.extend(header.stream);
            }
            lists += 1;
        }
        assert!(lists > 2, "{lists}");
        assert_eq!(ended, streams);
    }
}
