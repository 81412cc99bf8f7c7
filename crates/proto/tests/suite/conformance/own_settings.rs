//! RFC 9113 sections 6.5.3 and 6.9.2, and RFC 8441 section 3: SETTINGS that this endpoint sends after the first.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{
    Config, DEFAULT_WINDOW, ErrorCode, Event, FirstWindows, FrameType, UsageError, WindowSize,
};

use crate::support::frames::{self, END_HEADERS, END_STREAM};
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};
use crate::support::{fixed, patient};

fn window(bytes: u32) -> WindowSize {
    WindowSize::new(bytes).unwrap()
}

fn small(bytes: u32) -> Config {
    fixed(|config| config.set_stream_window(window(bytes)))
}

/// The entries of the only SETTINGS frame that was sent.
fn entries(faced: &mut Faced) -> Vec<(u16, u32)> {
    let heard = faced.heard_of(FrameType::SETTINGS);
    assert_eq!(heard.len(), 1);
    let entries = heard[0].payload.chunks_exact(6);
    let entry = |octets: &[u8]| {
        let value = u32::from_be_bytes(octets[2..6].try_into().unwrap());
        (u16::from_be_bytes([octets[0], octets[1]]), value)
    };
    entries.map(entry).collect()
}

#[test]
fn settings_are_sent_one_at_a_time_until_they_are_acknowledged() {
    let mut faced = Faced::silent_server(small(65_535));
    faced.says(frames::PREFACE);
    faced.says(&frames::settings(&[]));
    assert!(!faced.connection.settings_acknowledged());
    let early = faced.connection.change_stream_window(window(1_000));
    assert_eq!(early, Err(UsageError::SettingsUnacknowledged));
    faced.says(&frames::settings_ack());
    faced.heard();
    faced.connection.change_stream_window(window(100_000)).unwrap();
    let second = faced.connection.accept_extended_connect();
    assert_eq!(second, Err(UsageError::SettingsUnacknowledged));
    assert_eq!(entries(&mut faced), [(4, 100_000)]);
    faced.says(&frames::settings_ack());
    faced.connection.accept_extended_connect().unwrap();
    assert_eq!(entries(&mut faced), [(8, 1)]);
    faced.says(&frames::settings_ack());
    faced.lives();
    // One acknowledgement for each frame.
    faced.says(&frames::settings_ack());
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    let late = faced.connection.change_stream_window(window(1_000));
    assert_eq!(late, Err(UsageError::ConnectionFailed));
}

#[test]
fn a_raised_window_counts_at_once_for_streams_that_exist_and_later_ones() {
    let mut faced = Faced::server(small(20_000));
    faced.says(&frames::post(1));
    faced.connection.change_stream_window(window(30_000)).unwrap();
    assert_eq!(
        faced.connection.stream_receive_window_size(id(1)),
        Some(window(30_000))
    );
    faced.says(&frames::data(1, 0, &[0; 15_000]));
    faced.says(&frames::data(1, 0, &[0; 15_000]));
    faced.says(&frames::post(3));
    faced.says(&frames::data(3, 0, &[0; 15_000]));
    faced.says(&frames::data(3, 0, &[0; 15_000]));
    faced.lives();
    faced.says(&frames::data(1, 0, b"."));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
    // What is read comes back up to the new size.
    assert_eq!(faced.reads(3).0.len(), 30_000);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let credit: u32 = updates
        .iter()
        .filter(|frame| frame.stream() == 3)
        .map(|frame| frame.word(0))
        .sum();
    assert!((29_000..=30_000).contains(&credit), "{credit}");
}

#[test]
fn a_lowered_window_may_be_exceeded_until_it_is_acknowledged() {
    let mut faced = Faced::server(small(30_000));
    for stream in [1, 3] {
        faced.says(&frames::post(stream));
    }
    faced.connection.change_stream_window(window(10_000)).unwrap();
    faced.heard();
    faced.says(&frames::data(1, 0, &[0; 15_000]));
    faced.says(&frames::data(1, 0, &[0; 15_000]));
    faced.says(&frames::settings_ack());
    faced.lives();
    // Stream 1 has a window of -20,000 now.
    assert_eq!(faced.reads(1).0.len(), 30_000);
    faced.says(&frames::data(3, 0, &[0; 10_000]));
    faced.lives();
    faced.says(&frames::data(3, 0, b"."));
    faced.reset_with(3, ErrorCode::FLOW_CONTROL_ERROR);
    faced.says(&frames::data(1, 0, &[0; 10_000]));
    faced.lives();
    faced.says(&frames::data(1, 0, b"."));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_change_that_would_pass_the_largest_window_is_refused_and_changes_nothing() {
    let mut faced = Faced::server(small(65_535));
    faced.says(&frames::post(1));
    let largest = WindowSize::MAX;
    faced
        .connection
        .grow_stream_receive_window(id(1), largest)
        .unwrap();
    faced.heard();
    let refused = faced.connection.change_stream_window(window(65_536));
    assert_eq!(refused, Err(UsageError::WindowOutOfRange));
    assert!(faced.heard().is_empty());
    faced.connection.change_stream_window(window(65_535)).unwrap();
    assert_eq!(entries(&mut faced), [(4, 65_535)]);
}

#[test]
fn a_change_in_a_transfer_loses_no_byte_and_sets_its_rate() {
    let path = PathConfig::delay_millis(50);
    let mut pair = Pair::new(small(65_536), Config::default(), path).with_apps();
    pair.run();
    let stream = pair.get(20 << 20);
    pair.run_for(Duration::from_secs(3));
    let received = |pair: &mut Pair| pair.client.app().talk(stream).received;
    let before = received(&mut pair);
    assert!(
        before < 3 << 20,
        "65,536 bytes in 100 ms are 655,360 a second: {before}"
    );
    let connection = &mut pair.client.connection;
    connection.change_stream_window(window(1 << 20)).unwrap();
    pair.run_for(Duration::from_secs(1));
    let raised = received(&mut pair) - before;
    assert!(raised > 6 << 20, "{raised}");
    let connection = &mut pair.client.connection;
    connection.change_stream_window(window(65_536)).unwrap();
    pair.run_for(Duration::from_secs(1));
    let before = received(&mut pair);
    pair.run_for(Duration::from_secs(1));
    let lowered = received(&mut pair) - before;
    assert!((500_000..700_000).contains(&lowered), "{lowered}");
    pair.run();
    assert_eq!(received(&mut pair), 20 << 20);
    pair.assert_nothing_leaked();
}

#[test]
fn the_acknowledgement_of_later_settings_has_the_same_time_limit() {
    let mut faced = Faced::server(patient(Config::default()));
    faced.now = faced.now + Duration::from_secs(100);
    faced.connection.advance_time(faced.now);
    faced.connection.change_stream_window(window(100_000)).unwrap();
    faced.heard();
    let limit = Duration::from_secs(30);
    assert_eq!(faced.connection.next_deadline(), Some(faced.now + limit));
    faced.now = faced.now + limit;
    faced.connection.handle_timeout(faced.now);
    faced.ended_with(ErrorCode::SETTINGS_TIMEOUT);
}

#[test]
fn extended_connect_is_accepted_from_the_settings_that_allow_it() {
    let mut faced = Faced::server(Config::default());
    let mut fields = frames::pseudo("CONNECT");
    fields.push((":protocol", "websocket"));
    let block = frames::block(&fields);
    faced.says(&frames::headers(1, END_HEADERS, &block));
    faced.reset_with(1, ErrorCode::PROTOCOL_ERROR);
    faced.connection.accept_extended_connect().unwrap();
    faced.heard();
    faced.says(&frames::headers(3, END_HEADERS, &block));
    faced.lives();
    let events = faced.events();
    assert!(matches!(events.last(), Some(Event::Request { stream, .. }) if *stream == id(3)));
    let mut client = Faced::client(Config::default());
    assert_eq!(
        client.connection.accept_extended_connect(),
        Err(UsageError::WrongRole)
    );
}

#[test]
fn a_clients_window_changes_for_responses_on_the_way() {
    let mut faced = Faced::client_with_request(small(20_000), true);
    faced.says(&frames::headers(1, END_HEADERS, &[0x88]));
    faced.connection.change_stream_window(window(40_000)).unwrap();
    faced.heard();
    for _ in 0..4 {
        faced.says(&frames::data(1, 0, &[7; 10_000]));
    }
    faced.lives();
    faced.says(&frames::settings_ack());
    assert_eq!(faced.reads(1).0, Bytes::from(vec![7; 40_000]));
    faced.heard();
    faced.says(&frames::data(1, END_STREAM, b"the end"));
    assert_eq!(faced.reads(1).0, b"the end");
    faced.lives();
}

#[test]
fn a_closed_window_takes_nothing_until_it_is_opened_again() {
    let mut faced = Faced::server(small(30_000));
    for stream in [1, 3] {
        faced.says(&frames::post(stream));
    }
    faced.says(&frames::data(1, 0, &[0; 10_000]));
    let closed = WindowSize::CLOSED;
    faced.connection.change_stream_window(closed).unwrap();
    assert_eq!(entries(&mut faced), [(4, 0)]);
    assert_eq!(faced.connection.stream_receive_window_size(id(1)), Some(closed));
    faced.says(&frames::settings_ack());
    faced.says(&frames::data(3, 0, b"."));
    faced.reset_with(3, ErrorCode::FLOW_CONTROL_ERROR);
    // What is read comes back, and that makes it 0.
    assert_eq!(faced.reads(1).0.len(), 10_000);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert_eq!(updates.len(), 1);
    assert_eq!((updates[0].stream(), updates[0].word(0)), (1, 10_000));
    faced.connection.change_stream_window(window(5_000)).unwrap();
    faced.says(&frames::settings_ack());
    faced.heard();
    faced.says(&frames::data(1, 0, &[0; 5_000]));
    faced.lives();
    faced.says(&frames::data(1, 0, b"."));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_window_that_begins_closed_does_not_grow_by_itself() {
    let mut config = Config::default();
    config.set_first_windows(Some(FirstWindows {
        stream: WindowSize::CLOSED,
        connection: DEFAULT_WINDOW,
    }));
    let mut faced = Faced::server(config);
    faced.says(&frames::post(1));
    let window = faced.connection.stream_receive_window_size(id(1));
    assert_eq!(window, Some(WindowSize::CLOSED));
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    assert!(updates.iter().all(|update| update.stream() == 0), "{updates:?}");
    faced.says(&frames::data(1, 0, b"."));
    faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn the_window_of_a_connection_is_at_least_an_octet() {
    let mut faced = Faced::server(small(30_000));
    faced.connection.shrink_receive_window(WindowSize::CLOSED);
    assert_eq!(Some(faced.connection.receive_window_size()), WindowSize::new(1));
}

#[test]
fn settings_that_lower_no_window_let_the_peer_exceed_none() {
    for raises in [false, true] {
        let mut faced = Faced::server(small(10_000));
        faced.says(&frames::post(1));
        let connection = &mut faced.connection;
        match raises {
            true => connection.change_stream_window(window(10_001)).unwrap(),
            false => connection.accept_extended_connect().unwrap(),
        }
        faced.says(&frames::data(1, 0, &vec![0; 10_000 + usize::from(raises)]));
        faced.lives();
        // The peer has not acknowledged them.
        faced.says(&frames::data(1, 0, b"."));
        faced.reset_with(1, ErrorCode::FLOW_CONTROL_ERROR);
    }
}
