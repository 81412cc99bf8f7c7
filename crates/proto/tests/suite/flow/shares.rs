//! What the connections of one peer take of the budgets for memory and streams, and what that leaves to others.

use bytes::{Buf, Bytes};
use fullbore_proto::{Config, ErrorCode, MemoryBudget, Share, StreamBudget, Transmit, WindowSize};

use crate::support::config;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::peer::{Faced, id};

const RST_STREAM: u8 = 0x3;

/// The settings of one peer's connections.
fn of(share: &Share, change: impl FnOnce(&mut Config)) -> Config {
    config(|config| {
        config.set_share(Some(share.clone()));
        change(config);
    })
}

/// Opens so many streams from the first one on; how many of them were refused.
fn opens(faced: &mut Faced, streams: u32) -> usize {
    let requests: Vec<u8> = (0..streams).flat_map(|n| frames::get(2 * n + 1)).collect();
    faced.says(&requests);
    let resets = faced
        .heard()
        .into_iter()
        .filter(|frame| frame.header.frame_type.0 == RST_STREAM);
    let codes: Vec<u32> = resets.map(|frame| frame.word(0)).collect();
    assert!(
        codes.iter().all(|&code| code == ErrorCode::REFUSED_STREAM.0),
        "{codes:?}"
    );
    codes.len()
}

#[test]
fn one_peer_has_half_of_all_streams_however_many_connections_it_opens() {
    let budget = StreamBudget::new(200);
    let settings = |share: &Share| of(share, |config| config.set_stream_budget(Some(budget.clone())));
    let (one, two) = (Share::new(), Share::new());
    let mut faced: Vec<Faced> = (0..10).map(|_| Faced::server(settings(&one))).collect();
    let refused: usize = faced.iter_mut().map(|faced| opens(faced, 50)).sum();
    // Two connections lease all, up to 15 streams ahead each; each of the others has one stream without a lease.
    assert!((390..=415).contains(&refused), "{refused}");
    assert_eq!((one.leased_streams(), budget.leased()), (100, 100));
    // Another peer is served beside it.
    let mut other = Faced::server(settings(&two));
    assert_eq!(opens(&mut other, 50), 0);
    drop(other);
    // Streams that end make room for others.
    faced[0].answers(1);
    faced.iter_mut().for_each(|faced| faced.connection.trim());
    let streams: usize = faced.iter().map(|faced| faced.connection.stream_count()).sum();
    assert_eq!(streams, 500 - 1 - refused);
    assert!(budget.leased() <= 100, "{}", budget.leased());
    drop(faced);
    assert_eq!(
        (one.leased_streams(), two.leased_streams(), budget.leased()),
        (0, 0, 0)
    );
}

#[test]
fn a_connection_has_one_stream_at_a_time_however_many_others_hold() {
    let budget = StreamBudget::new(100);
    let settings = || config(|config| config.set_stream_budget(Some(budget.clone())));
    let mut greedy = Faced::server(settings());
    assert_eq!(opens(&mut greedy, 110), 10);
    assert_eq!(budget.leased(), 100);
    let mut late = Faced::server(settings());
    assert_eq!(opens(&mut late, 3), 2);
    late.answers(1);
    late.says(&frames::get(7));
    late.answers(7);
    assert_eq!(budget.leased(), 100);
}

#[test]
fn a_connection_that_fails_or_rests_gives_its_streams_back() {
    let budget = StreamBudget::new(1_000);
    let mut faced = Faced::server(config(|config| config.set_stream_budget(Some(budget.clone()))));
    assert_eq!(opens(&mut faced, 100), 0);
    assert!((100..=116).contains(&budget.leased()), "{}", budget.leased());
    (0..100).for_each(|n| faced.answers(2 * n + 1));
    assert!(budget.leased() <= 32, "{}", budget.leased());
    faced.connection.trim();
    assert_eq!(budget.leased(), 0);
    let mut faced = Faced::server(config(|config| config.set_stream_budget(Some(budget.clone()))));
    assert_eq!(opens(&mut faced, 100), 0);
    faced.tries(&frames::frame(0x6, 0, 1, &[0; 8])).unwrap_err();
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_client_may_have_ten_thousand_streams_at_once_by_default() {
    let budget = StreamBudget::new(65_536);
    let share = Share::new();
    for _ in 0..2 {
        let config = of(&share, |config| config.set_stream_budget(Some(budget.clone())));
        let mut faced = Faced::server(config);
        assert_eq!(opens(&mut faced, 10_000), 0);
    }
    assert_eq!(share.leased_streams(), 0);
}

#[test]
fn uploads_of_one_peer_leave_memory_for_those_of_others() {
    let budget = MemoryBudget::new(2 << 20);
    let settings = |share: &Share| of(share, |config| config.set_budget(Some(budget.clone())));
    let (one, two) = (Share::new(), Share::new());
    // Of each connection a stream is open, and its peer says nothing more.
    let mut hoard: Vec<Faced> = (0..100).map(|_| Faced::server(settings(&one))).collect();
    for faced in &mut hoard {
        faced.says(&frames::post(1));
    }
    assert!(one.leased_bytes() <= budget.limit() / 2, "{}", one.leased_bytes());
    assert!(one.leased_bytes() > budget.limit() / 3, "{}", one.leased_bytes());
    let mut pair = Pair::connected_with(Config::default(), settings(&two)).with_apps();
    let upload = pair.post(3 << 20, 10);
    pair.run();
    assert_eq!(pair.server.app().talk(upload).received, 3 << 20);
    drop((hoard, pair));
    assert_eq!(
        (one.leased_bytes(), two.leased_bytes(), budget.leased()),
        (0, 0, 0)
    );
}

#[test]
fn idle_connections_of_a_peer_leave_memory_for_a_body_on_each_of_them() {
    // A reverse proxy: one address, and many connections that it keeps.
    let budget = MemoryBudget::new(512 << 20);
    let share = Share::new();
    let settings = || of(&share, |config| config.set_budget(Some(budget.clone())));
    let mut kept: Vec<Faced> = (0..200).map(|_| Faced::server(settings())).collect();
    let widest = kept[0].connection.receive_window_size().bytes();
    assert_eq!(widest, 64 << 20, "the first ones still open wide");
    for faced in &mut kept {
        faced.says(&frames::post(1));
        let heard = faced.heard();
        assert!(heard.iter().all(|frame| frame.header.frame_type.0 != RST_STREAM));
    }
    assert!(share.leased_bytes() <= budget.limit() / 2);
}

#[test]
fn header_fields_and_unread_heads_are_leased_from_the_budget_and_come_back() {
    let budget = MemoryBudget::new(1 << 20);
    let share = Share::new();
    let settings = || of(&share, |config| config.set_budget(Some(budget.clone())));
    let value: &'static str = Box::leak("v".repeat(30_000).into_boxed_str());
    let block = frames::request_block_with("GET", &[("x-long", value)]);
    let request = |stream| {
        let flags = frames::END_STREAM;
        let (first, rest) = block.split_at(16_000);
        let mut octets = frames::headers(stream, flags, first);
        octets.extend(frames::continuation(stream, frames::END_HEADERS, rest));
        octets
    };
    let mut hoard: Vec<Faced> = (0..20).map(|_| Faced::server(settings())).collect();
    let before = share.leased_bytes();
    let mut refused = 0;
    for faced in &mut hoard {
        for n in 0..10 {
            faced.says(&request(2 * n + 1));
        }
        let resets = faced
            .heard()
            .into_iter()
            .filter(|frame| frame.header.frame_type.0 == RST_STREAM);
        refused += resets.count();
    }
    // 20 connections of 10 streams of 28 KB each come to 5.6 MB.
    assert!(refused > 150, "{refused} were refused");
    assert!(share.leased_bytes() > before, "nothing was leased for them");
    let leased: u64 = hoard.iter().map(|faced| faced.connection.leased()).sum();
    assert_eq!(leased, share.leased_bytes());
    assert!(
        share.leased_bytes() <= budget.limit() / 2,
        "{}",
        share.leased_bytes()
    );
    drop(hoard);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn frames_that_nobody_reads_are_leased_or_no_more_is_read() {
    let budget = MemoryBudget::new(100_000);
    let settings = config(|config| config.set_budget(Some(budget.clone())));
    // Heads are made, and not written, until they are more than can be leased.
    let mut connection = Faced::server(settings).connection;
    let octets: Vec<u8> = (0..2_000).flat_map(|n| frames::get(2 * n + 1)).collect();
    connection
        .receive(octets.into(), fullbore_proto::Time::ZERO)
        .unwrap();
    let mut answered = 0;
    for n in 0..2_000 {
        let mut response = http::Response::new(());
        response.headers_mut().insert(
            "x-fill",
            format!("{n}-{}", "0123456789".repeat(10)).parse().unwrap(),
        );
        connection.send_response(id(2 * n + 1), &response, true).unwrap();
        answered += 1;
        connection
            .receive(frames::priority(1, 3).into(), fullbore_proto::Time::ZERO)
            .unwrap();
        if !connection.wants_read() {
            break;
        }
    }
    assert!((100..1_999).contains(&answered), "{answered} heads wait");
    assert!(budget.leased() <= budget.limit());
    // Once they have been written it reads on.
    let mut out = fullbore_proto::Transmit::new();
    connection.transmit(&mut out, fullbore_proto::Time::ZERO);
    connection.socket_idle(fullbore_proto::Time::ZERO);
    assert!(connection.wants_read());
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_connection_that_lacked_memory_reads_on_at_a_deadline_once_there_is_some() {
    let budget = MemoryBudget::new(2 * 65_535);
    let settings = || {
        crate::support::fixed(|config| {
            config.set_budget(Some(budget.clone()));
            config.set_connection_window(fullbore_proto::DEFAULT_WINDOW);
        })
    };
    let now = fullbore_proto::Time::ZERO;
    let other = Faced::server(settings());
    let mut connection = Faced::server(settings()).connection;
    let octets: Vec<u8> = (0..60).flat_map(|n| frames::get(2 * n + 1)).collect();
    connection.receive(octets.into(), now).unwrap();
    for n in 0..60 {
        let mut response = http::Response::new(());
        let value = format!("{n}-{}", "0123456789".repeat(100));
        response.headers_mut().insert("x-fill", value.parse().unwrap());
        connection.send_response(id(2 * n + 1), &response, true).unwrap();
    }
    let ping = frames::ping(0, b"12345678");
    connection.receive(ping.into(), now).unwrap();
    assert!(!connection.wants_read(), "the other one holds all memory");
    drop(other);
    connection.handle_timeout(now);
    assert!(connection.wants_read());
}

#[test]
fn a_budget_is_scarce_when_less_than_an_eighth_of_it_is_left() {
    let budget = StreamBudget::new(1_600);
    let mut faced = Faced::server(config(|config| config.set_stream_budget(Some(budget.clone()))));
    // Sixteen are leased at a time.
    assert_eq!(opens(&mut faced, 1_392), 0);
    assert_eq!((budget.leased(), budget.is_scarce()), (1_392, false));
    faced.says(&frames::get(2_785));
    assert_eq!((budget.leased(), budget.is_scarce()), (1_408, true));
    let budget = MemoryBudget::new(80_000);
    let lease = |size| {
        let config = crate::support::fixed(|config| {
            config.set_budget(Some(budget.clone()));
            config.set_connection_window(WindowSize::new(size).unwrap());
        });
        let faced = Faced::server(config);
        (faced.connection.leased(), budget.free(), budget.is_scarce())
    };
    assert_eq!(lease(70_000), (70_000, 10_000, false));
    assert_eq!(lease(70_001), (70_001, 9_999, true));
}

/// A server whose windows have a fixed lease, and its budget.
fn with_budget() -> (Faced, MemoryBudget) {
    let budget = MemoryBudget::new(64 << 20);
    let config = crate::support::fixed(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_connection_window(WindowSize::from_mebibytes(1));
    });
    (Faced::server(config), budget)
}

/// What the server has leased beyond its window.
fn overhead(budget: &MemoryBudget) -> u64 {
    budget.leased() - (1 << 20)
}

#[test]
fn the_lease_for_header_fields_follows_them_in_steps_and_shrinks_by_two_at_least() {
    let (mut faced, budget) = with_budget();
    let value: &'static str = Box::leak("v".repeat(30_000).into_boxed_str());
    let block = frames::request_block_with("GET", &[("x-long", value)]);
    let (first, rest) = block.split_at(16_000);
    // Each takes 28,486 octets: 30,214 by RFC 9113 section 6.5.2, 64 for each field, and 2,048 are free.
    let mut leased = Vec::new();
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::headers(stream, frames::END_STREAM, first));
        faced.says(&frames::continuation(stream, frames::END_HEADERS, rest));
        leased.push(overhead(&budget));
    }
    assert_eq!(leased, [16_384, 49_152, 81_920, 98_304]);
    leased.clear();
    for stream in [1, 3, 5, 7] {
        faced.says(&frames::reset(stream, ErrorCode::CANCEL));
        faced.connection.release(id(stream));
        leased.push(overhead(&budget));
    }
    assert_eq!(leased, [98_304, 49_152, 16_384, 0]);
}

#[test]
fn a_request_whose_fields_the_budget_cannot_hold_is_refused_and_the_connection_goes_on() {
    let window = WindowSize::new(65_535).unwrap();
    // Beside the window there is room for one step of 16 KiB.
    let budget = MemoryBudget::new(u64::from(window.bytes()) + 16_384);
    let mut faced = Faced::server(crate::support::fixed(|config| {
        config.set_budget(Some(budget.clone()));
        config.set_connection_window(window);
    }));
    let value: &'static str = Box::leak("v".repeat(16_000).into_boxed_str());
    let block = frames::request_block_with("GET", &[("x-long", value)]);
    let flags = frames::END_HEADERS | frames::END_STREAM;
    // Each takes 14,486 bytes, and 16 KiB need no lease.
    for stream in [1, 3] {
        faced.says(&frames::headers(stream, flags, &block));
        faced.lives();
    }
    assert_eq!(budget.free(), 0);
    faced.says(&frames::headers(5, flags, &block));
    faced.reset_with(5, ErrorCode::REFUSED_STREAM);
    assert!(faced.connection.wants_read());
}

#[test]
fn frames_on_the_list_of_the_transport_are_leased_until_it_has_taken_them() {
    let (mut faced, budget) = with_budget();
    for n in 0..100 {
        faced
            .connection
            .receive(frames::get(2 * n + 1).into(), faced.now)
            .unwrap();
        let mut response = http::Response::new(());
        let value = format!("{n}-{}", "0123456789".repeat(100));
        response.headers_mut().insert("x-fill", value.parse().unwrap());
        let stream = id(2 * n + 1);
        faced.connection.send_response(stream, &response, true).unwrap();
        faced.connection.release(stream);
    }
    let mut out = Transmit::new();
    faced.connection.transmit(&mut out, faced.now);
    let listed = out.remaining() as u64;
    faced.connection.socket_holds(out.remaining(), faced.now);
    faced
        .connection
        .receive(frames::ping(0, b"12345678").into(), faced.now)
        .unwrap();
    // 16 KiB are free, and the reply to PING has 17 octets.
    let due = (listed + 17 - 16_384).next_multiple_of(16_384);
    assert!(due >= 3 * 16_384);
    assert_eq!(overhead(&budget), due);
    faced.connection.socket_idle(faced.now);
    assert_eq!(overhead(&budget), 0);
}

#[test]
fn a_connection_that_fails_within_a_header_block_holds_no_memory_for_it() {
    let (mut faced, budget) = with_budget();
    faced.says(&frames::headers(1, frames::END_STREAM, &[0; 16_000]));
    faced.says(&frames::continuation(1, 0, &[0; 16_000]));
    assert_eq!(overhead(&budget), 16_384);
    faced.says(&frames::ping(0, b"12345678"));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    faced.connection.trim();
    assert_eq!(budget.leased(), 0);
}

#[test]
fn a_connection_that_fails_holds_no_memory_for_the_fields_of_its_streams() {
    let (mut faced, budget) = with_budget();
    let value = "v".repeat(40_000);
    let block = frames::request_block_with("GET", &[("x-long", &value)]);
    let mut octets = Vec::new();
    for (index, part) in block.chunks(16_384).enumerate() {
        match index {
            0 => octets.extend(frames::headers(1, frames::END_STREAM, part)),
            _ => octets.extend(frames::continuation(1, 0, part)),
        }
    }
    octets.extend(frames::continuation(1, frames::END_HEADERS, &[]));
    faced.says(&octets);
    faced.lives();
    assert!(overhead(&budget) > 0);
    faced.says(&frames::window_update(0, 0));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    assert_eq!(budget.leased(), 0);
}

#[test]
fn streams_that_end_leave_16_leased_ahead() {
    let budget = StreamBudget::new(1_000);
    let mut faced = Faced::server(config(|config| config.set_stream_budget(Some(budget.clone()))));
    assert_eq!(opens(&mut faced, 100), 0);
    assert_eq!(budget.leased(), 112);
    let mut leased = Vec::new();
    for n in 0..100 {
        faced.answers(2 * n + 1);
        leased.push((99 - n, budget.leased()));
    }
    leased.dedup_by_key(|&mut (_, leased)| leased);
    // As soon as more than 32 are ahead of the streams that are left.
    assert_eq!(
        leased,
        [(99, 112), (79, 95), (62, 78), (45, 61), (28, 44), (11, 27)]
    );
}

#[test]
fn streams_that_were_released_before_they_end_leave_16_leased_ahead_too() {
    let budget = StreamBudget::new(1_000);
    let mut faced = Faced::server(config(|config| config.set_stream_budget(Some(budget.clone()))));
    assert_eq!(budget.limit(), 1_000);
    assert_eq!(opens(&mut faced, 100), 0);
    for n in 0..100 {
        let response = http::Response::new(());
        faced
            .connection
            .send_response(id(2 * n + 1), &response, false)
            .unwrap();
        let body = Bytes::from_static(b"body");
        faced.connection.send_data(id(2 * n + 1), body, true).unwrap();
        faced.connection.release(id(2 * n + 1));
    }
    assert_eq!(budget.leased(), 112, "nothing has left");
    faced.listen();
    assert_eq!((faced.connection.stream_count(), budget.leased()), (0, 27));
}
