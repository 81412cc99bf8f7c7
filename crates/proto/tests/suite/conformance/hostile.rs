//! RFC 9113 section 10.5: what costs us more than the peer is counted, and past a limit the connection ends.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Event, Limit, PeerLimit, WindowSize};

use crate::support::config;
use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::peer::{Faced, id};

fn limited() -> Config {
    let limit = Limit::new(10, 10);
    config(|config| {
        config.set_limit(PeerLimit::PeerResets, limit);
        config.set_limit(PeerLimit::ProvokedResets, limit);
        config.set_limit(PeerLimit::EmptyData, limit);
        config.set_limit(PeerLimit::Pings, limit);
        config.set_limit(PeerLimit::Settings, limit);
        config.set_limit(PeerLimit::RefusedStreams, limit);
        config.set_limit(PeerLimit::WindowUpdates, limit);
        config.set_limit(PeerLimit::Informational, limit);
        config.set_limit(PeerLimit::Priorities, limit);
    })
}

/// The peer may do it as often as the limit says, then it must wait, and then once more is too much.
#[track_caller]
fn is_limited(faced: &mut Faced, limit: PeerLimit, mut frame: impl FnMut(u32) -> Vec<u8>) {
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
    faced.exceeded(limit);
}

#[test]
fn streams_that_the_peer_opens_and_resets_are_limited() {
    // CVE-2023-44487, rapid reset.
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, PeerLimit::PeerResets, |round| {
        let stream = 2 * round + 1;
        [frames::get(stream), frames::reset(stream, ErrorCode::CANCEL)].concat()
    });
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn streams_that_the_peer_makes_us_reset_are_limited() {
    // CVE-2025-8671, the same by way of our own resets.
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, PeerLimit::ProvokedResets, |round| {
        let stream = 2 * round + 1;
        [frames::post(stream), frames::window_update(stream, 0)].concat()
    });
    let mut faced = Faced::server(limited());
    is_limited(&mut faced, PeerLimit::ProvokedResets, |round| {
        frames::headers(2 * round + 1, 5, &[])
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
    is_limited(&mut faced, PeerLimit::ProvokedResets, one);
    let mut faced = Faced::server(limited());
    let all: Vec<u8> = (0..20).flat_map(one).collect();
    let error = faced.tries(&all).unwrap_err();
    assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM);
    assert_eq!(
        requests(&faced.events()).len(),
        11,
        "frames behind the error were taken"
    );
}

/// The streams of the requests that the owner is told of.
fn requests(events: &[Event]) -> Vec<u32> {
    let requests = events.iter().filter_map(|event| match event {
        Event::Request { stream, .. } => Some(stream.value()),
        _ => None,
    });
    requests.collect()
}

#[test]
fn a_request_that_is_reset_in_the_read_that_brought_it_is_nobodys_work() {
    let mut faced = Faced::server(config(|config| {
        config.set_connection_window(WindowSize::new(100_000).unwrap());
        config.set_adaptive(false);
    }));
    // Each brings half of the connection's window, which must come back.
    for round in 0..20 {
        let [gone, other] = [4 * round + 1, 4 * round + 3];
        let chunk = frames::data(gone, 0, &[0; 10_000]);
        let both = [
            frames::post(gone),
            chunk.repeat(5),
            frames::get(other),
            frames::reset(gone, ErrorCode::CANCEL),
        ];
        assert_eq!(faced.tries(&both.concat()), Ok(()));
        let events = faced.events();
        assert_eq!(requests(&events), [other]);
        let resets = events.iter().filter(|event| matches!(event, Event::Reset(_)));
        assert_eq!(resets.count(), 0, "of a stream that nobody has heard of");
        faced.answers(other);
    }
    assert_eq!(faced.connection.stream_count(), 0);
    faced.lives();
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
        is_limited(&mut faced, PeerLimit::EmptyData, |_| frame.clone());
    }
}

#[test]
fn pings_are_limited() {
    // CVE-2019-9512.
    is_limited(&mut Faced::server(limited()), PeerLimit::Pings, |_| {
        frames::ping(0, b"12345678")
    });
    is_limited(&mut Faced::client(limited()), PeerLimit::Pings, |_| {
        frames::ping(0, b"12345678")
    });
}

#[test]
fn settings_are_limited_and_their_entries_count() {
    // CVE-2019-9515 and CVE-2020-11080. The greeting took one.
    let mut faced = Faced::server(limited());
    faced.now = faced.now + Duration::from_millis(100);
    is_limited(&mut faced, PeerLimit::Settings, |_| frames::settings(&[]));
    let mut faced = Faced::server(limited());
    faced.says(&frames::settings(&[(0x99, 0); 10]));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn a_change_of_the_initial_window_costs_a_token_more_for_each_128_streams() {
    // The frame and its entry cost one each, and so did the SETTINGS of the greeting.
    for (streams, tokens) in [(127, 3), (128, 4), (255, 4), (256, 5)] {
        let with_tokens = |tokens| {
            let mut faced = Faced::server(config(|config| {
                config.set_limit(PeerLimit::Settings, Limit::new(tokens, 0))
            }));
            for index in 0..streams {
                faced.says(&frames::get(2 * index + 1));
            }
            faced.heard();
            faced.says(&frames::settings(&[(4, 0)]));
            faced
        };
        with_tokens(tokens).lives();
        with_tokens(tokens - 1).ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn priorities_and_unknown_frames_are_limited() {
    // CVE-2019-9513.
    is_limited(&mut Faced::server(limited()), PeerLimit::Priorities, |_| {
        frames::priority(99, 0)
    });
    is_limited(&mut Faced::server(limited()), PeerLimit::Priorities, |_| {
        frames::frame(0x77, 0, 0, b"")
    });
    is_limited(&mut Faced::server(limited()), PeerLimit::Priorities, |_| {
        frames::priority_update(99, "u=1")
    });
}

#[test]
fn a_peer_that_does_not_read_our_replies_is_not_read_either() {
    // The replies to PING have 17 octets, and those to SETTINGS nine: so many are 8 KiB.
    for (frame, most) in [(frames::ping(0, b"12345678"), 481), (frames::settings(&[]), 910)] {
        let mut faced = Faced::server(Config::default());
        faced
            .connection
            .receive(frame.repeat(most).into(), faced.now)
            .unwrap();
        assert!(faced.connection.wants_read());
        faced.connection.receive(frame.into(), faced.now).unwrap();
        assert!(!faced.connection.wants_read(), "8 KiB of replies are owed");
        assert_eq!(faced.heard().len(), most + 1);
        assert!(faced.connection.wants_read());
    }
}

#[test]
fn a_peer_that_is_owed_exactly_8_kib_of_replies_is_read() {
    let mut faced = Faced::server(Config::default());
    let said = [
        frames::ping(0, b"12345678").repeat(7),
        frames::settings(&[]).repeat(897),
    ]
    .concat();
    faced.connection.receive(said.into(), faced.now).unwrap();
    assert!(faced.connection.wants_read());
    let more = frames::settings(&[]);
    faced.connection.receive(more.into(), faced.now).unwrap();
    assert!(!faced.connection.wants_read());
    let octets: usize = faced.heard().iter().map(|reply| 9 + reply.payload.len()).sum();
    assert_eq!(octets, 8_192 + 9);
}

#[test]
fn each_request_allows_eight_more_informational_responses() {
    let mut faced = Faced::client(config(|config| {
        config.set_limit(PeerLimit::Informational, Limit::new(20, 0))
    }));
    let early = frames::headers(1, 4, &frames::response_block("103", &[]));
    faced.opens("GET", true);
    for _ in 0..20 {
        faced.says(&early);
    }
    faced.opens("GET", true);
    for _ in 0..8 {
        faced.says(&early);
    }
    faced.lives();
    faced.says(&early);
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

/// Uses up a burst of 20, lets something happen, and counts the WINDOW_UPDATEs that are taken after it.
#[track_caller]
fn allows_window_updates(mut faced: Faced, what: impl FnOnce(&mut Faced), more: usize) {
    for _ in 0..20 {
        faced.says(&frames::window_update(0, 1));
    }
    what(&mut faced);
    for _ in 0..more {
        faced.says(&frames::window_update(0, 1));
    }
    assert_eq!(faced.connection.error(), None);
    faced.says(&frames::window_update(0, 1));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn streams_frames_and_data_each_allow_a_number_of_window_updates() {
    let limits = || config(|config| config.set_limit(PeerLimit::WindowUpdates, Limit::new(20, 0)));
    let open = |faced: &mut Faced| {
        faced.opens("GET", true);
    };
    allows_window_updates(Faced::client(limits()), open, 2);
    allows_window_updates(Faced::server(limits()), |faced| faced.says(&frames::get(1)), 2);
    for (octets, more) in [(1, 4), (1_023, 4), (1_024, 5), (4_096, 8)] {
        let mut faced = Faced::server(limits());
        faced.says(&frames::get(1));
        faced
            .connection
            .send_response(id(1), &http::Response::new(()), false)
            .unwrap();
        faced.heard();
        let send = |faced: &mut Faced| {
            let body = Bytes::from(vec![7; octets]);
            faced.connection.send_data(id(1), body, true).unwrap();
            assert_eq!(faced.heard().len(), 1);
        };
        allows_window_updates(faced, send, more);
    }
}

#[test]
fn a_limit_of_nothing_on_field_sections_counts_every_octet_or_field() {
    // By RFC 9113 section 6.5.2 the request has 176 octets: 4 fields of 48 octets, and 32 for each.
    for (octets, fields, charged) in [
        (0, 1_000, 176),
        (1, 1_000, 176),
        (2, 1_000, 88),
        (65_536, 0, 4),
        (65_536, 2, 2),
    ] {
        let limits = |tokens| {
            config(|config| {
                config.set_max_header_list_size(octets);
                config.set_max_header_fields(fields);
                config.set_limit(PeerLimit::ProvokedResets, Limit::new(tokens, 0));
            })
        };
        let mut faced = Faced::server(limits(charged));
        faced.says(&frames::get(1));
        assert_eq!(faced.heard_of(fullbore_proto::FrameType::HEADERS).len(), 1, "431");
        assert_eq!(faced.connection.error(), None);
        let mut faced = Faced::server(limits(charged - 1));
        faced.says(&frames::get(1));
        faced.exceeded(PeerLimit::HeaderListSize);
    }
}

#[test]
fn cookie_crumbs_count_as_fields() {
    let mut faced = Faced::server(config(|config| config.set_max_header_fields(10)));
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
        heard.iter().any(|frame| frame.header.frame_type.0 == 1),
        "431 is the answer"
    );
    faced.lives();
}

#[test]
fn goaway_names_the_last_stream_that_was_not_refused() {
    let limits = config(|config| {
        config.set_max_concurrent_streams(1);
        config.set_limit(PeerLimit::RefusedStreams, Limit::new(1, 0));
    });
    let mut faced = Faced::server(limits);
    for stream in [1, 3, 5] {
        faced.says(&frames::get(stream));
    }
    let heard = faced.heard_of(fullbore_proto::FrameType::GOAWAY);
    assert_eq!(heard[0].word(0), 1);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_limited() {
    let mut faced = Faced::server(config(|config| {
        config.set_max_concurrent_streams(1);
        config.set_limit(PeerLimit::RefusedStreams, Limit::new(10, 10));
        config.set_limit(PeerLimit::ProvokedResets, Limit::new(0, 0));
    }));
    faced.says(&frames::get(999));
    for round in 0..10 {
        faced.says(&frames::get(1_001 + 2 * round));
        faced.reset_with(1_001 + 2 * round, ErrorCode::REFUSED_STREAM);
    }
    faced.says(&frames::get(1_021));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn window_updates_are_limited_but_those_that_data_accounts_for() {
    // CVE-2019-9511 and CVE-2019-9517.
    is_limited(&mut Faced::server(limited()), PeerLimit::WindowUpdates, |_| {
        frames::window_update(0, 1)
    });
    let mut faced = Faced::server(limited());
    faced.says(&frames::post(1001));
    // Opening the stream accounts for two, and a burst is full already.
    is_limited(&mut faced, PeerLimit::WindowUpdates, |_| {
        frames::window_update(1001, 1)
    });

    let mut faced = Faced::server(limited());
    faced.says(&frames::get(1));
    faced
        .connection
        .send_response(id(1), &http::Response::new(()), false)
        .unwrap();
    for _ in 0..1_000 {
        faced
            .connection
            .send_data(id(1), Bytes::from(vec![7]), false)
            .unwrap();
        faced.heard();
        faced.says(&frames::window_update(0, 1));
        faced.says(&frames::window_update(1, 1));
    }
    faced.lives();
}

#[test]
fn answers_to_pings_that_were_not_sent_are_limited() {
    is_limited(&mut Faced::server(limited()), PeerLimit::Pings, |_| {
        frames::ping(frames::ACK, b"12345678")
    });
    is_limited(&mut Faced::client(limited()), PeerLimit::Pings, |_| {
        frames::ping(frames::ACK, &frames::SHUTDOWN)
    });
}

#[test]
fn going_away_again_and_again_is_limited() {
    let mut faced = Faced::server(limited());
    faced.now = faced.now + Duration::from_millis(100);
    is_limited(&mut faced, PeerLimit::Settings, |_| {
        frames::go_away(0, ErrorCode::NO_ERROR)
    });
}

#[test]
fn a_go_away_that_takes_back_what_it_said_is_an_error() {
    // RFC 9113 section 6.8: the last stream never grows.
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::go_away(5, ErrorCode::NO_ERROR));
    faced.says(&frames::go_away(5, ErrorCode::NO_ERROR));
    faced.lives();
    faced.says(&frames::go_away(7, ErrorCode::NO_ERROR));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn streams_opened_after_the_end_was_named_are_limited() {
    let mut faced = Faced::server(limited());
    faced.connection.shutdown(faced.now);
    faced.says(&frames::ping(frames::ACK, &frames::SHUTDOWN));
    assert_eq!(faced.heard_of(fullbore_proto::FrameType::GOAWAY).len(), 2);
    is_limited(&mut faced, PeerLimit::RefusedStreams, |round| {
        frames::get(2 * round + 1)
    });
}

#[test]
fn header_blocks_on_streams_that_were_reset_are_limited_whether_these_are_released_or_not() {
    let block = frames::block(&[("a", "b")]);
    for released in [false, true] {
        let mut faced = Faced::server(limited());
        faced.says(&frames::post(101));
        faced.connection.reset(id(101), ErrorCode::CANCEL).unwrap();
        if released {
            faced.connection.release(id(101));
        }
        is_limited(&mut faced, PeerLimit::RefusedStreams, |_| {
            frames::headers(101, END_HEADERS | END_STREAM, &block)
        });
    }
}

#[test]
fn responses_that_cross_the_resets_of_a_client_are_no_fault_of_the_server() {
    // h2#856, grpc-rust#2708: a client that canceled many requests ended its own connection.
    let head = frames::response_block("200", &[]);
    let trailers = frames::block(&[("a", "b")]);
    for released in [false, true] {
        let mut faced = Faced::client(limited());
        for _ in 0..100 {
            let stream = faced.opens("GET", true);
            faced.connection.reset(stream, ErrorCode::CANCEL).unwrap();
            if released {
                faced.connection.release(stream);
            }
            faced.says(&frames::headers(stream.value(), END_HEADERS, &head));
            faced.says(&frames::data(stream.value(), 0, b"late"));
            faced.says(&frames::headers(
                stream.value(),
                END_HEADERS | END_STREAM,
                &trailers,
            ));
            faced.connection.release(stream);
        }
        faced.heard();
        faced.lives();
        // More than that is.
        let stream = faced.opens("GET", true);
        faced.connection.reset(stream, ErrorCode::CANCEL).unwrap();
        for _ in 0..13 {
            faced.says(&frames::headers(stream.value(), END_HEADERS, &head));
        }
        faced.exceeded(PeerLimit::RefusedStreams);
    }
}

#[test]
fn informational_responses_are_limited() {
    let mut faced = Faced::client(limited());
    let stream = faced.opens("GET", true);
    let early = frames::headers(stream.value(), 4, &frames::response_block("103", &[]));
    for _ in 0..10 {
        faced.says(&early);
    }
    faced.lives();
    faced.says(&early);
    faced.exceeded(PeerLimit::Informational);
}

#[test]
fn field_sections_over_the_limit_are_limited() {
    let mut limits = limited();
    limits.set_max_header_fields(5);
    let mut block = frames::pseudo("GET");
    block.extend([("a", "b"); 2]);
    let block = frames::block(&block);
    is_limited(&mut Faced::server(limits), PeerLimit::HeaderListSize, |round| {
        frames::headers(2 * round + 1, 5, &block)
    });
}

#[test]
fn a_field_section_of_many_times_the_limit_counts_as_many() {
    let bomb = |fields: usize| {
        let mut block = frames::request_block("GET");
        // `a: b` enters the table, and each octet behind it is that field again.
        block.extend([0x40, 1, b'a', 1, b'b']);
        block.extend(vec![0x80 | 62; fields - 5]);
        block
    };
    let limits = |streams| {
        let mut limits = limited();
        limits.set_max_header_fields(100);
        limits.set_max_concurrent_streams(streams);
        limits
    };
    // By their number, on streams that are answered; and on ones that are refused, which are counted elsewhere.
    for (streams, half) in [(100, 500), (0, 600)] {
        let mut faced = Faced::server(limits(streams));
        for round in 0..2 {
            faced.says(&frames::headers(2 * round + 1, 5, &bomb(half)));
        }
        assert_eq!(faced.connection.error(), None);
        faced.says(&frames::headers(5, 5, &bomb(200)));
        faced.exceeded(PeerLimit::HeaderListSize);
    }
    let mut faced = Faced::server(limits(100));
    faced.says(&frames::headers(1, 5, &bomb(1_200)));
    faced.exceeded(PeerLimit::HeaderListSize);
    // By their size: a field of 2,000 octets, of which the limit is half.
    let mut small = limited();
    small.set_max_header_list_size(1_000);
    let mut block = frames::request_block("GET");
    block.extend([0x40, 1, b'x', 0x7f, 0xd1, 0x0e]);
    block.extend([b'v'; 2_000]);
    let mut faced = Faced::server(small);
    for round in 0..5 {
        faced.says(&frames::headers(2 * round + 1, 5, &block));
    }
    assert_eq!(faced.connection.error(), None);
    faced.says(&frames::headers(11, 5, &block));
    faced.exceeded(PeerLimit::HeaderListSize);
    // By the size of what it only refers to.
    let mut small = limited();
    small.set_max_header_list_size(1_000);
    let mut faced = Faced::server(small);
    faced.says(&frames::headers(1, 5, &[&block[..], &[0x80 | 62; 20]].concat()));
    faced.exceeded(PeerLimit::HeaderListSize);
}

#[test]
fn fields_of_many_requests_together_are_bounded() {
    // The bomb that keeps below the limit of one section: 60,000 octets by a block of 40, on stream after stream.
    let mut faced = Faced::server(Config::default());
    let mut first = frames::request_block("GET");
    first.extend([0x40, 1, b'x', 0x7f, 0xd1, 0x0e]);
    first.extend([b'v'; 2_000]);
    faced.says(&frames::headers(1, 5, &first));
    let mut bomb = frames::request_block("GET");
    bomb.extend([0x80 | 62; 29]);
    let mut taken = faced.events().len() - 1;
    for round in 1..200 {
        faced.says(&frames::headers(2 * round + 1, 5, &bomb));
        taken += faced.events().len();
    }
    // (29 * (2,033 + 64) + 4 pseudo-headers - 2,048) octets each, of 4 MiB.
    assert_eq!(taken, 70);
    faced.connection.reset(id(3), ErrorCode::CANCEL).unwrap();
    faced.connection.release(id(3));
    faced.heard();
    faced.events();
    faced.says(&frames::headers(1_001, 5, &bomb));
    assert!(
        matches!(faced.events()[..], [Event::Request { .. }]),
        "there is room again"
    );
}

#[test]
fn heads_that_a_peer_does_not_read_stop_reading() {
    let mut faced = Faced::server(Config::default());
    let mut answered = 0;
    while faced.connection.wants_read() {
        let stream = 2 * answered + 1;
        faced
            .connection
            .receive(frames::get(stream).into(), faced.now)
            .unwrap();
        faced
            .connection
            .send_response(id(stream), &http::Response::new(()), true)
            .unwrap();
        faced.connection.release(id(stream));
        answered += 1;
        assert!(answered < 100_000, "nothing stops it");
    }
    assert_eq!(
        faced.connection.stream_count(),
        0,
        "finished streams count against nothing"
    );
    faced.heard();
    assert!(faced.connection.wants_read());
}

#[test]
fn field_sections_are_taken_up_to_the_last_octet_of_their_memory() {
    // 3,000 octets and what names, pseudo-headers and the cost of five fields come to, of which 2,048 are free.
    let value: &'static str = Box::leak("v".repeat(3_000).into_boxed_str());
    let of_request = 176 + 38 + 3_000 + 5 * 64 - 2_048;
    let block = frames::request_block_with("GET", &[("x-long", value)]);
    let of_response = 42 + 38 + 3_000 + 2 * 64 - 2_048;
    let response = frames::response_block("200", &[("x-long", value)]);
    for missing in [0, 1] {
        let mut faced = Faced::server(config(|config| {
            config.set_max_header_memory(of_request - missing)
        }));
        faced.says(&frames::headers(1, 5, &block));
        match missing {
            0 => faced.lives(),
            _ => faced.reset_with(1, ErrorCode::REFUSED_STREAM),
        }
        let limits = config(|config| config.set_max_header_memory(of_response - missing));
        let mut faced = Faced::client_with_request(limits, true);
        faced.says(&frames::headers(1, 4, &response));
        match missing {
            0 => faced.lives(),
            _ => faced.reset_with(1, ErrorCode::ENHANCE_YOUR_CALM),
        }
    }
}
