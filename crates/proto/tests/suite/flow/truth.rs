//! Law 3: credit is never lost, and never given twice.

use fullbore_proto::FrameType;
use fullbore_proto::{Config, ErrorCode, PeerLimit, WindowSize};

use crate::support::app::Pace;
use crate::support::fixed;
use crate::support::frames::{self, END_STREAM, PADDED};
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

/// A server whose connection window is its only one that matters.
fn server() -> Faced {
    Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(1));
        config.set_connection_window(WindowSize::from_mebibytes(1));
        config.set_limit(PeerLimit::EmptyData, fullbore_proto::Limit::new(1 << 20, 1));
        config.set_limit(PeerLimit::ProvokedResets, fullbore_proto::Limit::new(1 << 20, 1));
    }))
}

/// Says a frame of `length` octets of payload, as often as is needed to use the connection's window ten times over.
#[track_caller]
fn ten_windows_of(faced: &mut Faced, frame: &[u8], mut after: impl FnMut(&mut Faced)) {
    let length = frame.len() as u64 - 9;
    for _ in 0..(10 << 20) / length + 1 {
        faced.tries(frame).expect("credit was lost");
        after(faced);
        faced.listen();
    }
    faced.heard();
    let remaining = faced.connection.receive_window_remaining();
    assert!(remaining > (1 << 20) - (1 << 18), "{remaining} remain");
    assert_eq!(faced.connection.unreleased(), 0);
    faced.lives();
}

#[test]
fn padding_returns_its_credit_by_itself() {
    let mut faced = server();
    faced.says(&frames::post(1));
    let mut payload = vec![0; 256];
    payload[0] = 255;
    ten_windows_of(&mut faced, &frames::data(1, PADDED, &payload), |_| {});
}

#[test]
fn data_that_is_read_and_released_returns_its_credit() {
    let mut faced = server();
    faced.says(&frames::post(1));
    ten_windows_of(&mut faced, &frames::data(1, 0, &[0; 16_384]), |faced| {
        faced.reads(1);
    });
}

#[test]
fn data_of_a_stream_that_nobody_reads_returns_its_credit() {
    let mut faced = server();
    faced.says(&frames::post(1));
    faced.connection.discard(id(1));
    ten_windows_of(&mut faced, &frames::data(1, 0, &[0; 16_384]), |_| {});
}

#[test]
fn what_was_unread_of_a_stream_that_is_discarded_is_credit_again_at_once() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_stream_window(WindowSize::new(1_000).unwrap());
    }));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 1_000]));
    assert_eq!(faced.heard_of(FrameType::WINDOW_UPDATE), []);
    faced.connection.discard(id(1));
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(1, 1_000)]);
}

#[test]
fn data_on_a_stream_that_we_reset_returns_the_connections_credit() {
    for released in [false, true] {
        let mut faced = server();
        faced.says(&frames::post(1));
        faced.connection.reset(id(1), ErrorCode::CANCEL).unwrap();
        if released {
            faced.connection.release(id(1));
        }
        faced.heard();
        ten_windows_of(&mut faced, &frames::data(1, 0, &[0; 16_384]), |_| {});
    }
}

#[test]
fn data_on_a_stream_that_the_peer_reset_returns_the_connections_credit() {
    let mut faced = server();
    faced.says(&frames::post(1));
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    ten_windows_of(&mut faced, &frames::data(1, 0, &[0; 16_384]), |faced| {
        faced.heard();
    });
}

#[test]
fn data_that_breaks_a_rule_of_its_stream_returns_the_connections_credit() {
    let mut faced = server();
    let block = frames::request_block_with("POST", &[("content-length", "5")]);
    let mut stream = 1;
    for _ in 0..1_000 {
        faced.says(&frames::headers(stream, frames::END_HEADERS, &block));
        faced.says(&frames::data(stream, END_STREAM, &[0; 16_000]));
        faced.connection.release(id(stream));
        stream += 2;
    }
    faced.heard();
    assert!(faced.connection.receive_window_remaining() > (1 << 20) - (1 << 18));
    assert_eq!(faced.connection.stream_count(), 0);
    faced.lives();
}

#[test]
fn what_was_not_read_of_a_stream_returns_when_it_is_let_go_of_however_it_ended() {
    for (index, end) in [
        frames::data(1, END_STREAM, b""),
        frames::reset(1, ErrorCode::CANCEL),
        frames::window_update(1, 0),
        vec![],
    ]
    .iter()
    .enumerate()
    {
        let mut faced = server();
        faced.says(&frames::post(1));
        for _ in 0..60 {
            faced.says(&frames::data(1, 0, &[0; 16_384]));
        }
        faced.says(end);
        let mut chunks = Default::default();
        if index % 2 == 0 {
            let _ = faced.connection.read(id(1), &mut chunks);
            let bytes = chunks.iter().map(bytes::Bytes::len).sum::<usize>() as u64;
            faced.connection.release_connection_credit(bytes);
        }
        faced.connection.release(id(1));
        faced.heard();
        let remaining = faced.connection.receive_window_remaining();
        assert!(
            remaining > (1 << 20) - (1 << 18),
            "{remaining} remain, case {index}"
        );
        assert_eq!(faced.connection.stream_count(), 0);
        assert_eq!(faced.connection.unreleased(), 0);
    }
}

#[test]
fn a_frame_that_is_cut_short_by_a_reset_counts_once() {
    // Half of the payload has come when the owner gives the stream up.
    let mut faced = server();
    for round in 0..200 {
        let stream = 2 * round + 1;
        faced.says(&frames::post(stream));
        let frame = frames::data(stream, END_STREAM, &[0; 16_384]);
        let (first, second) = frame.split_at(5_000);
        faced.says(first);
        match round % 4 {
            0 => faced.connection.reset(id(stream), ErrorCode::CANCEL).unwrap(),
            1 => faced.connection.discard(id(stream)),
            2 => faced.connection.release(id(stream)),
            _ => {
                faced.reads(stream);
            }
        }
        faced.says(second);
        faced.connection.release(id(stream));
        faced.events();
    }
    faced.heard();
    let remaining = faced.connection.receive_window_remaining();
    assert!(
        remaining <= 1 << 20 && remaining > (1 << 20) - (1 << 18),
        "{remaining}"
    );
    assert_eq!(faced.connection.unreleased(), 0);
    assert_eq!(faced.connection.stream_count(), 0);
}

#[test]
fn releasing_more_than_was_read_gives_nothing_away() {
    let mut faced = server();
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 1_000]));
    faced.reads(1);
    for _ in 0..100 {
        faced.connection.release_credit(id(1), 1 << 30);
        faced.connection.release_connection_credit(1 << 30);
        faced.connection.release_stream_credit(id(1), 1 << 30);
    }
    faced.says(&frames::ping(0, b"12345678"));
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert!(updates.is_empty(), "{updates:?}");
    assert!(faced.connection.receive_window_remaining() <= 1 << 20);
}

#[test]
fn a_reader_that_stalls_costs_its_window_and_leaves_other_streams_theirs() {
    let client = fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(1));
        config.set_connection_window(WindowSize::from_mebibytes(4));
    });
    let mut pair = Pair::new(client, Config::default(), PathConfig::delay_millis(10)).with_apps();
    pair.client.app().pace = Pace::Never;
    pair.run();
    let stalled = [pair.get(10 << 20), pair.get(10 << 20)];
    pair.run();
    let remaining = pair.client.connection.receive_window_remaining();
    assert_eq!(remaining, 2 << 20);
    pair.client.app().pace = Pace::Eager;
    let lively = pair.get(20 << 20);
    pair.run();
    assert_eq!(pair.client.app().talk(lively).received, 20 << 20);
    let now = pair.now;
    let end = &mut pair.client;
    end.app.as_mut().unwrap().catch_up(&mut end.connection, now);
    pair.run();
    for stream in stalled {
        assert_eq!(pair.client.app().talk(stream).received, 10 << 20);
    }
    pair.assert_nothing_leaked();
}

#[test]
fn what_a_stream_had_received_before_its_peer_reset_it_counts_until_it_is_read() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.events();
    faced.says(&frames::data(1, 0, &[7; 10_000]));
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    assert_eq!(faced.connection.promise().buffered, 10_000);
    assert_eq!(faced.reads(1).0.len(), 10_000);
    assert_eq!(faced.connection.promise().buffered, 0);
}

#[test]
fn what_a_stream_had_received_before_its_owner_reset_it_is_credit_again_at_once() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.events();
    faced.says(&frames::data(1, 0, &[7; 10_000]));
    assert_eq!(faced.connection.promise().buffered, 10_000);
    faced.connection.reset(id(1), ErrorCode::CANCEL).unwrap();
    assert_eq!(faced.connection.promise().buffered, 0);
    assert!(faced.reads(1).0.is_empty());
}
