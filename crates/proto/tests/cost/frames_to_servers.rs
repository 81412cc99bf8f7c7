//! What a client's frames cost a server.

use bytes::Bytes;
use fullbore_proto::ErrorCode;
use http::Response;

use super::crowd::{CROWDS, Counting, Wait, scattered, server};
use crate::support::frames::{self, ACK, END_HEADERS, END_STREAM, PADDED, WITH_PRIORITY};
use crate::support::peer::id;

/// So many frames of a type: enough to see what each of them costs, and fewer than any limit allows.
const FRAMES: u32 = 200;

/// Counts a type of frame on streams that wait for this; `frame` makes the octets for the frame of that number on that stream.
#[track_caller]
fn counted(what: &str, waits: &[Wait], frame: impl Fn(u32, u32) -> Vec<u8>) {
    let counting = Counting::begin();
    for streams in CROWDS {
        for &wait in waits {
            let mut faced = server(streams, wait);
            let frames = (0..FRAMES).map(|index| frame(index, scattered(index, streams)));
            let (cost, result) = counting.frames(&mut faced, frames);
            cost.is_bounded(&format!("{what} ({wait:?})"), streams);
            // What ends a crowd of one is no cost.
            assert!(streams == 1 || result.is_ok(), "{what} ({wait:?}): {result:?}");
        }
    }
}

const ALL: [Wait; 4] = [Wait::Bodies, Wait::Turn, Wait::IncrementalTurn, Wait::Windows];

#[test]
fn data_costs_the_same_however_many_streams_are_open() {
    let bodies = [Wait::Bodies];
    counted("DATA", &bodies, |_, stream| frames::data(stream, 0, b"x"));
    counted("padded DATA", &bodies, |_, stream| {
        frames::data(stream, PADDED, &[3, b'x', 0, 0, 0])
    });
    counted("empty DATA", &bodies, |_, stream| frames::data(stream, 0, b""));
    counted("DATA that ends the stream", &bodies, |_, stream| {
        frames::data(stream, END_STREAM, b"")
    });
    // WINDOW_UPDATE of nothing has the server reset the stream.
    counted("DATA behind a reset", &bodies, |_, stream| {
        [frames::window_update(stream, 0), frames::data(stream, 0, b"x")].concat()
    });
}

#[test]
fn header_blocks_cost_the_same_however_many_streams_are_open() {
    let next = |index: u32| 20_001 + 2 * index;
    counted("a request", &ALL, |index, _| frames::get(next(index)));
    counted("a request that leaves streams out", &ALL, |index, _| {
        frames::get(next(40 * index))
    });
    counted("a request with a priority", &ALL, |index, _| {
        let block = frames::request_block_with("GET", &[("priority", "u=1, i")]);
        frames::headers(next(index), END_HEADERS | END_STREAM, &block)
    });
    counted("a request of HTTP/2's first priorities", &ALL, |index, _| {
        let block = [&[0, 0, 0, 1, 9][..], &frames::request_block("GET")].concat();
        frames::headers(next(index), END_HEADERS | END_STREAM | WITH_PRIORITY, &block)
    });
    counted("a request in two frames", &ALL, |index, _| {
        let block = frames::request_block("GET");
        let first = frames::headers(next(index), END_STREAM, &block[..9]);
        [first, frames::continuation(next(index), END_HEADERS, &block[9..])].concat()
    });
    counted("a malformed request", &ALL, |index, _| {
        frames::headers(next(index), END_HEADERS, &frames::block(&[("a", "b")]))
    });
    counted("trailers", &[Wait::Bodies], |_, stream| {
        frames::headers(stream, END_HEADERS | END_STREAM, &frames::block(&[("a", "b")]))
    });
    // WINDOW_UPDATE of nothing has the server reset the stream.
    counted("trailers behind a reset", &[Wait::Bodies], |_, stream| {
        let trailers = frames::headers(stream, END_HEADERS | END_STREAM, &frames::block(&[("a", "b")]));
        [frames::window_update(stream, 0), trailers].concat()
    });
}

#[test]
fn a_reset_costs_the_same_however_many_streams_are_open() {
    counted("RST_STREAM", &ALL, |_, stream| {
        frames::reset(stream, ErrorCode::CANCEL)
    });
    counted("a request and its RST_STREAM", &ALL, |index, _| {
        let stream = 20_001 + 2 * index;
        [frames::get(stream), frames::reset(stream, ErrorCode::CANCEL)].concat()
    });
}

#[test]
fn a_window_update_costs_the_same_however_many_streams_are_open() {
    counted("WINDOW_UPDATE of a stream", &ALL, |_, stream| {
        frames::window_update(stream, 1)
    });
    counted(
        "WINDOW_UPDATE of a stream and of the connection",
        &ALL,
        |_, stream| {
            [
                frames::window_update(stream, 3_000),
                frames::window_update(0, 3_000),
            ]
            .concat()
        },
    );
    counted("WINDOW_UPDATE of the connection", &ALL, |_, _| {
        frames::window_update(0, 1)
    });
    counted("WINDOW_UPDATE of nothing", &ALL, |_, stream| {
        frames::window_update(stream, 0)
    });
}

#[test]
fn a_window_update_wakes_no_crowd_that_waits_for_it() {
    let _counting = Counting::begin();
    for streams in CROWDS {
        let mut faced = server(streams, Wait::Bodies);
        let ids: Vec<_> = (0..streams).map(|index| id(2 * index + 1)).collect();
        for &stream in &ids {
            let response = Response::new(());
            faced.connection.send_response(stream, &response, false).unwrap();
        }
        let last = *ids.last().unwrap();
        let all = Bytes::from_static(&[0; 65_535]);
        faced.connection.send_data(last, all, false).unwrap();
        faced.heard();
        for &stream in &ids {
            faced.connection.want_credit(stream);
        }
        let connection = &mut faced.connection;
        let touched = connection.streams_touched();
        let update = Bytes::from(frames::window_update(0, 1));
        connection.receive(update, faced.now).unwrap();
        assert!(
            connection.streams_touched() - touched <= 100,
            "with {streams} streams"
        );
        assert_eq!(connection.event_count(), 64.min(streams as usize));
    }
}

#[test]
fn a_priority_costs_the_same_however_many_streams_are_open() {
    counted("PRIORITY", &ALL, |_, stream| frames::priority(stream, 0));
    counted("PRIORITY_UPDATE of the urgency", &ALL, |index, stream| {
        frames::priority_update(stream, ["u=1", "u=6"][index as usize % 2])
    });
    counted("PRIORITY_UPDATE of the increment", &ALL, |index, stream| {
        frames::priority_update(stream, ["i", "i=?0"][index as usize % 2])
    });
    counted("PRIORITY_UPDATE of one stream", &ALL, |index, _| {
        frames::priority_update(1, ["i", "i=?0"][index as usize % 2])
    });
}

#[test]
fn frames_of_the_connection_cost_the_same_however_many_streams_are_open() {
    counted("PING", &ALL, |_, _| frames::ping(0, b"how long"));
    counted("an answer to no PING", &ALL, |_, _| {
        frames::ping(ACK, b"how long")
    });
    counted("an unknown frame", &ALL, |_, stream| {
        frames::frame(0x77, 0xff, stream, b"x")
    });
    counted("GOAWAY", &ALL, |_, _| frames::go_away(0, ErrorCode::NO_ERROR));
    for setting in [1, 2, 3, 5, 6, 9, 0x99] {
        counted(&format!("setting {setting}"), &ALL, |index, _| {
            let value = match setting {
                5 => 16_384 + index,
                2 | 9 => index % 2,
                _ => index % 3 * 2_000,
            };
            frames::settings(&[(setting, value)])
        });
    }
}

#[test]
fn streams_that_have_ended_leave_nothing_behind_that_costs_the_rest_anything() {
    let counting = Counting::begin();
    for streams in CROWDS {
        let mut faced = server(streams, Wait::Bodies);
        for index in 0..streams - 1 {
            faced.says(&frames::data(2 * index + 1, END_STREAM, b""));
            faced.answers(2 * index + 1);
        }
        assert_eq!(faced.connection.stream_count(), 1);
        let last = 2 * streams - 1;
        let frames = (0..FRAMES).map(|_| frames::data(last, 0, b"x"));
        let (cost, result) = counting.frames(&mut faced, frames);
        assert_eq!(result, Ok(()));
        cost.is_bounded("DATA on the last stream", streams);
    }
}
