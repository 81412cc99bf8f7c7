//! Receive windows grow while the connection runs, and only grow; the window to send by is another thing.

use fullbore_proto::FrameType;
use fullbore_proto::{Config, DEFAULT_WINDOW, UsageError, WindowSize};

use crate::support::fixed;
use crate::support::frames;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};

fn client() -> Faced {
    Faced::client_with_request(
        fixed(|config| {
            config.set_stream_window(DEFAULT_WINDOW);
            config.set_connection_window(DEFAULT_WINDOW);
        }),
        true,
    )
}

#[test]
fn the_connections_window_grows_at_once_by_one_update() {
    let mut faced = client();
    let size = WindowSize::from_mebibytes(16);
    faced.connection.grow_receive_window(size).unwrap();
    let heard = faced.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].stream(), heard[0].word(0)), (0, (16 << 20) - 65_535));
    assert_eq!(faced.connection.receive_window_size(), size);
    assert_eq!(faced.connection.receive_window_remaining(), 16 << 20);
    faced.connection.grow_receive_window(size).unwrap();
    assert!(faced.heard().is_empty(), "the same size is no news");
}

#[test]
fn a_streams_window_grows_at_once_by_one_update() {
    for size in [65_536, 70_000, 4 << 20] {
        let mut faced = client();
        let window = WindowSize::new(size).unwrap();
        faced
            .connection
            .grow_stream_receive_window(id(1), window)
            .unwrap();
        let heard = faced.heard();
        assert_eq!(heard.len(), 1, "to {size}");
        assert_eq!((heard[0].stream(), heard[0].word(0)), (1, size - 65_535));
        assert_eq!(faced.connection.stream_receive_window_size(id(1)), Some(window));
    }
}

#[test]
fn a_window_never_shrinks() {
    let mut faced = client();
    let smaller = WindowSize::new(65_534).unwrap();
    assert_eq!(
        faced.connection.grow_receive_window(smaller),
        Err(UsageError::WindowShrinks)
    );
    assert_eq!(
        faced.connection.grow_stream_receive_window(id(1), smaller),
        Err(UsageError::WindowShrinks)
    );
    assert_eq!(
        faced
            .connection
            .grow_stream_receive_window(id(3), WindowSize::MAX),
        Err(UsageError::UnknownStream)
    );
    assert!(faced.heard().is_empty());
}

#[test]
fn a_window_grows_to_the_largest_there_is_even_when_it_is_in_use() {
    let mut faced = client();
    faced.says(&frames::headers(1, 4, &frames::response_block("200", &[])));
    for _ in 0..3 {
        faced.says(&frames::data(1, 0, &[0; 16_384]));
    }
    faced.connection.grow_receive_window(WindowSize::MAX).unwrap();
    faced
        .connection
        .grow_stream_receive_window(id(1), WindowSize::MAX)
        .unwrap();
    let increments: Vec<_> = faced
        .heard()
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    let most = i32::MAX as u32 - 65_535;
    assert_eq!(increments, [(0, most), (1, most)]);
    assert_eq!(
        faced.connection.receive_window_remaining(),
        i32::MAX as u64 - 3 * 16_384
    );
    // What is read is refilled up to the same size, so that the peer's window never passes the limit.
    faced.reads(1);
    faced.says(&frames::ping(0, b"12345678"));
    assert!(faced.connection.receive_window_remaining() <= i32::MAX as u64);
}

#[test]
fn a_request_that_waits_gets_its_larger_window_when_it_leaves() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    let stream = faced.opens("GET", true);
    let size = WindowSize::from_mebibytes(64);
    faced.connection.grow_stream_receive_window(stream, size).unwrap();
    assert!(
        faced.heard().is_empty(),
        "an update for a stream that the peer does not know"
    );
    faced.says(&frames::settings(&[(3, 1)]));
    let heard = faced.heard();
    let kinds: Vec<_> = heard
        .iter()
        .map(|frame| frame.header.frame_type)
        .filter(|&kind| kind != FrameType::SETTINGS)
        .collect();
    assert_eq!(kinds, [FrameType::HEADERS, FrameType::WINDOW_UPDATE]);
    let update = heard.last().unwrap();
    assert_eq!((update.stream(), update.word(0)), (1, 16 << 20));
}

#[test]
fn the_window_to_send_by_is_the_peers() {
    let server = fixed(|config| {
        config.set_stream_window(WindowSize::from_mebibytes(2));
        config.set_connection_window(WindowSize::from_mebibytes(3));
    });
    let mut pair = Pair::connected_with(Config::default(), server);
    pair.client.app = Some(Default::default());
    assert_eq!(pair.client.connection.send_window_remaining(), 3 << 20);
    let stream = pair.post(10 << 20, 0);
    let remaining = |pair: &Pair| pair.client.connection.stream_send_window_remaining(stream);
    assert_eq!(remaining(&pair), Some(2 << 20));
    pair.run();
    assert_eq!(remaining(&pair), Some(0), "nobody reads");
    assert_eq!(pair.client.connection.send_window_remaining(), 1 << 20);
    assert_eq!(pair.server.connection.receive_window_remaining(), 1 << 20);
}

#[test]
fn growing_in_the_middle_of_a_transfer_speeds_it_up() {
    let client = fixed(|config| {
        config.set_stream_window(DEFAULT_WINDOW);
    });
    let mut pair = Pair::new(client, Config::default(), PathConfig::delay_millis(50)).with_apps();
    pair.run();
    let stream = pair.get(1 << 40);
    let second = std::time::Duration::from_secs(1);
    pair.run_for(second);
    let slow = pair
        .client
        .app()
        .received_between(pair.now + std::time::Duration::ZERO, pair.now);
    assert_eq!(slow, 0);
    let from = pair.now;
    pair.run_for(second);
    let before = pair.client.app().received_between(from, pair.now);
    let size = WindowSize::from_mebibytes(4);
    pair.client
        .connection
        .grow_stream_receive_window(stream, size)
        .unwrap();
    pair.run_for(second);
    let from = pair.now;
    pair.run_for(second);
    let after = pair.client.app().received_between(from, pair.now);
    assert!(after > 40 * before, "{before} and then {after}");
}
