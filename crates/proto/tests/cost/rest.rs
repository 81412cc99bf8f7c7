//! The memory of a connection at rest: once it is trimmed, one that was busy holds no more than one that never was.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, WindowSize};
use http::{Request, Response};

use crate::crowd::Counting;
use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, id};

/// How many streams are open at once, in each of two waves.
const STREAMS: u32 = 300;

/// Windows that are refilled after a few hundred bytes.
fn small_windows() -> Config {
    config(|config| {
        config.set_adaptive(false);
        config.set_stream_window(WindowSize::new(1_000).unwrap());
    })
}

/// A pause after which no time limit runs, and the end of all work.
fn settle(faced: &mut Faced) {
    faced.now = faced.now + Duration::from_secs(2);
    faced.connection.handle_timeout(faced.now);
    faced.heard();
    faced.events();
    assert_eq!(faced.connection.stream_count(), 0);
    assert_eq!(faced.connection.error(), None);
}

/// The peer says octets in two reads, so that a frame has to be put together.
fn says_in_two(faced: &mut Faced, octets: &[u8]) {
    let (first, second) = octets.split_at(octets.len() - 1);
    faced.says(first);
    faced.says(second);
}

fn busy_server() -> Faced {
    let mut faced = Faced::server(small_windows());
    faced.says(&frames::window_update(0, 1 << 30));
    for wave in 0..2 {
        let streams = (0..STREAMS).map(|index| 2 * (wave * STREAMS + index) + 1);
        let requests: Vec<u8> = streams.clone().flat_map(frames::post).collect();
        says_in_two(&mut faced, &requests);
        for stream in streams.clone() {
            faced.says(&frames::data(stream, 0, &[7; 300]));
            faced.reads(stream);
        }
        for stream in streams.clone() {
            let connection = &mut faced.connection;
            connection
                .send_response(id(stream), &Response::new(()), false)
                .unwrap();
            let body = Bytes::from_static(&[7; 2_000]);
            connection.send_data(id(stream), body, true).unwrap();
        }
        faced.heard();
        // The requests end behind their responses, and behind the interest of the owner.
        for stream in streams {
            faced.connection.release(id(stream));
            faced.says(&frames::data(stream, END_STREAM, b"late"));
        }
    }
    settle(&mut faced);
    faced
}

/// A client that has made so many requests, of which all waited for a while.
fn client(requests: u32) -> Faced {
    let mut faced = Faced::client(small_windows());
    faced.says(&frames::settings(&[(3, 0)]));
    for _ in 0..requests {
        faced.opens("GET", true);
    }
    faced.says(&frames::settings(&[(3, 1_000)]));
    let head = frames::response_block("200", &[]);
    let streams = (0..requests).map(|index| 2 * index + 1);
    for stream in streams.clone() {
        says_in_two(&mut faced, &frames::headers(stream, END_HEADERS, &head));
    }
    for stream in streams {
        faced.says(&frames::data(stream, END_STREAM, &[7; 300]));
        faced.reads(stream);
        faced.connection.release(id(stream));
    }
    settle(&mut faced);
    faced
}

#[test]
fn a_server_at_rest_holds_no_more_than_one_that_had_no_stream() {
    let counting = Counting::begin();
    let unused = counting.held_at_rest(|| Faced::server(small_windows()));
    assert_eq!(counting.held_at_rest(busy_server), unused);
}

#[test]
fn a_client_at_rest_holds_no_more_than_one_that_had_a_stream() {
    let counting = Counting::begin();
    let one = counting.held_at_rest(|| client(1));
    assert_eq!(counting.held_at_rest(|| client(STREAMS)), one);
}

#[test]
fn a_client_at_rest_holds_the_fields_of_its_table_without_their_indexes() {
    /// The least that the indexes take: a number for each bucket of names and of fields.
    const INDEXES: usize = 2 * 64 * 4;
    let counting = Counting::begin();
    let none = counting.held_at_rest(|| client(0));
    let one = counting.held_at_rest(|| client(1));
    assert!(one - none < INDEXES, "{none}, {one}");
}

#[test]
fn a_client_at_rest_holds_no_room_for_fields_that_the_table_has_evicted() {
    let counting = Counting::begin();
    let large = "v".repeat(2_005);
    let held = |names: &[String]| {
        counting.held_at_rest(|| {
            let mut faced = Faced::client(small_windows());
            let requests = [(names, "1"), (&["x-a".into(), "x-b".into()], &large)];
            for (names, value) in requests {
                let mut request = Request::get("http://example.com/");
                for name in names {
                    request = request.header(name, value);
                }
                let request = request.body(()).unwrap();
                let stream = faced.connection.open(request, true).unwrap();
                faced.heard();
                let head = frames::response_block("200", &[]);
                faced.says(&frames::headers(stream.value(), END_HEADERS | END_STREAM, &head));
                faced.connection.release(stream);
            }
            settle(&mut faced);
            faced
        })
    };
    let names: Vec<_> = (0..50).map(|number| format!("x-{number}")).collect();
    // The two fields of the last request fill the table.
    assert_eq!(held(&names), held(&[]));
}
