//! RFC 9113 section 10.5: what costs us more than the peer is counted, and past a limit the connection ends.

use std::time::Duration;

use fullbore_proto::{Config, ErrorCode, Event, Limit};

use crate::support::config;
use crate::support::frames::{self, END_STREAM};
use crate::support::peer::{Faced, id};

fn limited() -> Config {
    let limit = Limit::new(10, 10);
    config(|config| {
        config.peer_resets = limit;
        config.provoked_resets = limit;
        config.empty_data = limit;
        config.pings = limit;
        config.settings = limit;
        config.priorities = limit;
    })
}

/// The peer may do it as often as the limit says, then it must wait, and then once more is too much.
#[track_caller]
fn is_limited(faced: &mut Faced, mut frame: impl FnMut(u32) -> Vec<u8>) {
    for round in 0..10 {
        faced.says(&frame(round));
        faced.connection.release(id(2 * round + 1));
    }
    assert_eq!(faced.connection.error(), None);
    faced.now = faced.now + Duration::from_millis(100);
    faced.says(&frame(10));
    assert_eq!(
        faced.connection.error(),
        None,
        "a tenth of a second allows another"
    );
    faced.heard();
    faced.says(&frame(11));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn streams_that_the_peer_opens_and_resets_are_limited() {
    // CVE-2023-44487, rapid reset.
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, |round| {
        let stream = 2 * round + 1;
        [frames::get(stream), frames::reset(stream, ErrorCode::CANCEL)].concat()
    });
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn streams_that_the_peer_makes_us_reset_are_limited() {
    // CVE-2025-8671, the same by way of our own resets.
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, |round| {
        let stream = 2 * round + 1;
        [frames::post(stream), frames::window_update(stream, 0)].concat()
    });
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, |round| {
        frames::headers(2 * round + 1, 5, &frames::block(&[]))
    });
}

#[test]
fn bodies_of_a_wrong_length_are_limited_even_within_one_read() {
    let block = frames::request_block_with("POST", &[("content-length", "5")]);
    let one = |round: u32| {
        let stream = 2 * round + 1;
        [
            frames::headers(stream, 4, &block),
            frames::data(stream, END_STREAM, b"four"),
        ]
        .concat()
    };
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, one);
    let mut faced = Faced::server(limited());
    let all: Vec<u8> = (0..20).flat_map(one).collect();
    let error = faced.tries(&all).unwrap_err();
    assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
    let events = faced.events();
    let requests = events
        .iter()
        .filter(|event| matches!(event, Event::Request { .. }));
    assert_eq!(requests.count(), 11, "frames behind the error were taken");
}

#[test]
fn empty_data_is_limited() {
    // CVE-2019-9518.
    for frame in [
        frames::data(1001, 0, b""),
        frames::data(1001, frames::PADDED, b"\x02\0\0"),
    ] {
        let mut faced = Faced::server(limited());
        faced.says(&frames::post(1001));
        is_limited(&mut faced, |_| frame.clone());
    }
}

#[test]
fn pings_are_limited() {
    // CVE-2019-9512.
    is_limited(&mut Faced::server(limited()), |_| frames::ping(0, b"12345678"));
    is_limited(&mut Faced::client(limited()), |_| frames::ping(0, b"12345678"));
}

#[test]
fn settings_are_limited_and_their_entries_count() {
    // CVE-2019-9515 and CVE-2020-11080. The greeting took one.
    let mut faced = Faced::server(limited());
    faced.now = faced.now + Duration::from_millis(100);
    is_limited(&mut faced, |_| frames::settings(&[]));
    let mut faced = Faced::server(limited());
    faced.says(&frames::settings(&[(0x99, 0); 10]));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn priorities_and_unknown_frames_are_limited() {
    // CVE-2019-9513.
    is_limited(&mut Faced::server(limited()), |_| frames::priority(99, 0));
    is_limited(&mut Faced::server(limited()), |_| frames::frame(0x77, 0, 0, b""));
    is_limited(&mut Faced::server(limited()), |_| {
        frames::priority_update(99, "u=1")
    });
}

#[test]
fn a_peer_that_does_not_read_our_replies_is_not_read_either() {
    let mut faced = Faced::server(Config::default());
    let pings: Vec<u8> = (0..482).flat_map(|_| frames::ping(0, b"12345678")).collect();
    faced.connection.receive(pings.clone().into(), faced.now).unwrap();
    assert!(!faced.connection.wants_read(), "8 KiB of replies are owed");
    assert_eq!(faced.heard().len(), 482);
    assert!(faced.connection.wants_read());
    faced.lives();
}

#[test]
fn cookie_crumbs_count_as_fields() {
    let mut faced = Faced::server(config(|config| config.max_header_fields = 10));
    let mut fields = frames::pseudo("GET");
    fields.extend([("cookie", "a=b"); 7]);
    faced.says(&frames::headers(1, 5, &frames::block(&fields)));
    assert!(
        faced.events().is_empty(),
        "seven crumbs and four pseudo-headers are more than ten"
    );
    fields.truncate(10);
    faced.says(&frames::headers(3, 5, &frames::block(&fields)));
    assert_eq!(faced.events().len(), 1);
    faced.lives();
}

#[test]
fn a_field_that_is_repeated_by_its_index_counts_each_time() {
    // A small block that decodes to many times its size: refused by the measure of what it decodes to.
    let mut faced = Faced::server(Config::default());
    let mut block = frames::request_block("GET");
    block.extend([0x40, 1, b'x', 0x7f, 0xd1, 0x0e]);
    block.extend([b'v'; 2_000]);
    block.extend([0x80 | 62; 10_000]);
    faced.says(&frames::headers(1, 5, &block));
    assert!(faced.events().is_empty());
    let heard = faced.heard();
    assert!(
        heard.iter().any(|frame| frame.head.kind.0 == 1),
        "431 is the answer"
    );
    faced.lives();
}
