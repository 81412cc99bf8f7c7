//! RFC 9113 sections 4.3, 6.2 and 6.10: a header block is one run of frames of one stream.

use fullbore_proto::{Config, ErrorCode, Event, PeerLimit};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::Faced;

/// A server that has got the beginning of a header block on stream 1.
fn in_a_block() -> Faced {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(101));
    faced.events();
    let begun = &frames::request_block("GET")[..20];
    faced.says(&frames::headers(103, END_STREAM, begun));
    faced.lives_not_asked();
    faced
}

impl Faced {
    /// Nothing has gone wrong, as far as can be told without a PING, which would interrupt a header block.
    #[track_caller]
    fn lives_not_asked(&mut self) {
        assert_eq!(self.connection.error(), None);
        assert!(self.heard().is_empty());
    }
}

#[test]
fn a_block_may_come_in_any_number_of_fragments() {
    let block = frames::request_block("GET");
    for size in [3, 4, 10, 60] {
        let mut faced = Faced::server(Config::default());
        let mut fragments = block.chunks(size).peekable();
        faced.says(&frames::headers(1, END_STREAM, fragments.next().unwrap()));
        while let Some(fragment) = fragments.next() {
            assert!(faced.events().is_empty());
            let flags = if fragments.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            faced.says(&frames::continuation(1, flags, fragment));
        }
        if size == 60 {
            faced.says(&frames::continuation(1, END_HEADERS, b""));
        }
        assert!(matches!(faced.events()[..], [Event::Request { end: true, .. }]));
        faced.lives();
    }
}

#[test]
fn end_stream_counts_when_the_block_is_whole() {
    let mut faced = Faced::client_with_request(Config::default(), true);
    let block = frames::response_block("200", &[]);
    faced.says(&frames::headers(1, END_STREAM, &block[..3]));
    faced.says(&frames::continuation(1, 0, b""));
    faced.says(&frames::continuation(1, END_HEADERS, &block[3..]));
    assert!(matches!(faced.events()[0], Event::Response { end: true, .. }));
    faced.lives();
}

#[test]
fn any_other_frame_within_a_block_is_a_connection_error() {
    for other in [
        frames::data(101, 0, b"x"),
        frames::get(105),
        frames::headers(103, END_HEADERS, &frames::request_block("GET")),
        frames::priority(103, 0),
        frames::reset(103, ErrorCode::CANCEL),
        frames::settings(&[]),
        frames::ping(0, b"12345678"),
        frames::go_away(0, ErrorCode::NO_ERROR),
        frames::window_update(0, 1),
        frames::window_update(103, 1),
        frames::continuation(101, END_HEADERS, b""),
        frames::priority_update(101, "u=1"),
        frames::frame(0x20, 0, 0, b""),
    ] {
        let mut faced = in_a_block();
        faced.says(&other);
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn continuation_must_follow_a_block_that_is_not_whole() {
    let block = frames::request_block("GET");
    let before: [Vec<u8>; 6] = [
        vec![],
        frames::get(1),
        frames::post(1),
        [frames::post(1), frames::data(1, 0, b"x")].concat(),
        [
            frames::headers(1, END_STREAM, &block[..10]),
            frames::continuation(1, END_HEADERS, &block[10..]),
        ]
        .concat(),
        [frames::post(1), frames::reset(1, ErrorCode::CANCEL)].concat(),
    ];
    for before in before {
        let mut faced = Faced::server(Config::default());
        faced.says(&before);
        faced.says(&frames::continuation(1, END_HEADERS, b""));
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn continuation_on_stream_0_is_a_connection_error() {
    let mut faced = in_a_block();
    faced.says(&frames::continuation(0, END_HEADERS, b""));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::continuation(0, END_HEADERS, b""));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn too_many_continuation_frames_end_the_connection() {
    // CVE-2024-27316 and its like: fragments without end, empty or not.
    for fragment in [&b""[..], b"a"] {
        let mut faced = in_a_block();
        for _ in 0..32 {
            faced.says(&frames::continuation(103, 0, fragment));
            faced.lives_not_asked();
        }
        faced.says(&frames::continuation(103, 0, fragment));
        faced.exceeded(PeerLimit::Continuations);
    }
}

#[test]
fn a_block_longer_than_the_limit_ends_the_connection_in_however_many_frames() {
    let mut faced = in_a_block();
    for _ in 0..7 {
        faced.says(&frames::continuation(103, 0, &[0; 16_384]));
        faced.lives_not_asked();
    }
    faced.says(&frames::continuation(103, 0, &[0; 16_384]));
    faced.exceeded(PeerLimit::HeaderBlock);

    let mut faced = Faced::server(config(|config| config.set_max_frame_size(1 << 20)));
    let value = "v".repeat(200_000);
    let mut block = frames::request_block("GET");
    block.extend(frames::block(&[("x", &value)]));
    faced.says(&frames::headers(1, END_HEADERS | END_STREAM, &block));
    faced.exceeded(PeerLimit::HeaderBlock);
}

#[test]
fn trailers_may_be_continued() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::headers(1, END_STREAM, b""));
    faced.says(&frames::continuation(
        1,
        END_HEADERS,
        &frames::block(&[("x", "1")]),
    ));
    let fullbore_proto::ReadState::Trailers(trailers) = faced.reads(1).1 else {
        panic!("no trailers")
    };
    assert_eq!(trailers["x"], "1");
    faced.lives();
}
