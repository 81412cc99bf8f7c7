//! What a server's frames cost a client, of whose requests many are under way and many wait.

use bytes::Bytes;
use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode};
use http::Request;

use super::crowd::{CROWDS, Counting};
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, Heard, id};

const FRAMES: u32 = 100;

/// A client of whose requests so many are under way, and as many wait.
fn client(streams: u32) -> Faced {
    let config = Config::default();
    let mut faced = Faced::client(config);
    faced.says(&frames::settings(&[(3, streams)]));
    for _ in 0..2 * streams {
        let request = Request::builder().uri("http://example.com/").body(()).unwrap();
        faced.connection.open(request, true).unwrap();
    }
    faced.heard();
    faced.events();
    assert_eq!(faced.connection.waiting_streams(), streams as usize);
    faced
}

#[test]
fn responses_and_resets_cost_the_same_however_many_requests_are_under_way() {
    let counting = Counting::begin();
    for streams in CROWDS {
        let stream = |index: u32| 2 * (index.wrapping_mul(7_919) % streams) + 1;
        let count = FRAMES.min(streams);
        let responses = (0..count).map(|index| {
            let block = frames::response_block("200", &[]);
            frames::headers(stream(index), END_HEADERS | END_STREAM, &block)
        });
        let resets = (0..count).map(|index| frames::reset(stream(index), ErrorCode::CANCEL));
        for (what, all) in [
            ("a response", responses.collect::<Vec<_>>()),
            ("RST_STREAM", resets.collect()),
        ] {
            let mut faced = client(streams);
            let (cost, result) = counting.frames(&mut faced, all);
            assert_eq!(result, Ok(()));
            cost.is_bounded(what, streams);
        }
    }
}

#[test]
fn requests_that_wait_are_given_up_for_the_same_however_many_they_are() {
    let counting = Counting::begin();
    for streams in CROWDS {
        let mut faced = client(streams);
        let work = faced.connection.work();
        let touched = faced.connection.streams_touched();
        for index in 0..streams {
            let waits = streams + index.wrapping_mul(7_919) % streams;
            faced
                .connection
                .reset(id(2 * waits + 1), ErrorCode::CANCEL)
                .unwrap();
        }
        assert_eq!(faced.connection.waiting_streams(), 0);
        let work = faced.connection.work() - work;
        let touched = faced.connection.streams_touched() - touched;
        assert!(work <= 130 * u64::from(streams), "{work} with {streams} streams");
        assert!(
            touched <= 20 * u64::from(streams),
            "{touched} with {streams} streams"
        );
    }
    drop(counting);
}

#[test]
fn requests_that_a_server_allows_all_at_once_leave_a_part_at_a_time_and_in_order() {
    let counting = Counting::begin();
    let mut faced = client(10_000);
    let touched = faced.connection.streams_touched();
    let frame = frames::settings(&[(3, 20_000)]);
    faced.connection.receive(Bytes::from(frame), faced.now).unwrap();
    let touched = faced.connection.streams_touched() - touched;
    assert!(touched <= 30 * 512, "{touched}");
    assert!(faced.connection.waiting_streams() > 9_000);
    let heads: Vec<u32> = faced
        .heard_of(FrameType::HEADERS)
        .iter()
        .map(Heard::stream)
        .collect();
    let expected: Vec<u32> = (10_000..20_000).map(|index| 2 * index + 1).collect();
    assert_eq!(heads, expected);
    assert_eq!(faced.connection.waiting_streams(), 0);
    drop(counting);
}

#[test]
fn a_goaway_that_ends_all_requests_costs_each_of_them_the_same() {
    let counting = Counting::begin();
    for streams in CROWDS {
        let mut faced = client(streams);
        let (cost, result) = counting.frames(&mut faced, [frames::go_away(0, ErrorCode::NO_ERROR)]);
        assert_eq!(result, Ok(()));
        assert_eq!(faced.connection.waiting_streams(), 0);
        let all = 2 * u64::from(streams);
        assert!(cost.work <= 4 * all, "{streams} streams: {cost:?}");
        assert!(cost.touched <= 30 * all, "{streams} streams: {cost:?}");
    }
}

#[test]
fn goaways_that_take_back_more_and_more_are_paid_for_and_repetitions_cost_nothing() {
    let counting = Counting::begin();
    for streams in CROWDS {
        let mut faced = client(streams);
        let same = (0..FRAMES).map(|_| frames::go_away(u32::MAX >> 1, ErrorCode::NO_ERROR));
        let (cost, result) = counting.frames(&mut faced, same);
        assert_eq!(result, Ok(()));
        assert!(
            cost.work <= 4 * 2 * u64::from(streams),
            "{streams} streams: {cost:?}"
        );

        let mut faced = client(streams);
        let less = (0..2_000).map(|index| frames::go_away((u32::MAX >> 1) - index, ErrorCode::NO_ERROR));
        let (cost, result) = counting.frames(&mut faced, less);
        assert_eq!(result.unwrap_err().code, ErrorCode::ENHANCE_YOUR_CALM);
        assert!(
            cost.work <= 128 * 1_000 + 8 * u64::from(streams),
            "{streams} streams: {cost:?}"
        );
    }
}
