//! Credit to send that an owner waits for while nothing is queued, and the connection window of a receiver that shrinks.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{Config, ErrorCode, Event, Stall, StreamId, WindowSize};

use crate::support::frames;
use crate::support::peer::{Faced, id};
use crate::support::{config, fixed};

/// The streams whose credit was announced since the last call.
fn credited(faced: &mut Faced) -> Vec<StreamId> {
    let events = faced.events().into_iter();
    let credited = events.filter_map(|event| match event {
        Event::Credit(stream) => Some(stream),
        _ => None,
    });
    credited.collect()
}

/// A client with requests on streams 1, 3 and 5, whose bodies follow.
fn client() -> Faced {
    let mut faced = Faced::client(Config::default());
    for _ in 0..3 {
        faced.opens("POST", false);
    }
    faced.events();
    faced
}

/// Uses up the window of a stream.
fn fill(faced: &mut Faced, stream: u32, bytes: usize) {
    let data = Bytes::from(vec![0; bytes]);
    faced.connection.send_data(id(stream), data, false).unwrap();
    assert_eq!(faced.connection.send_queue_bytes(id(stream)), Some(bytes));
    faced.heard();
    assert_eq!(faced.connection.send_queue_bytes(id(stream)), Some(0));
}

#[test]
fn the_credit_of_a_stream_is_announced_once_to_an_owner_that_waits_for_it() {
    let mut faced = client();
    faced.says(&frames::window_update(0, 1 << 20));
    fill(&mut faced, 1, 65_535);
    faced.says(&frames::window_update(3, 1));
    assert!(credited(&mut faced).is_empty(), "nobody asked");
    faced.connection.want_credit(id(1));
    faced.says(&frames::window_update(0, 1_000));
    assert!(credited(&mut faced).is_empty(), "it waits for its own window");
    faced.says(&frames::window_update(1, 1_000));
    faced.says(&frames::window_update(1, 1_000));
    assert_eq!(credited(&mut faced), [id(1)]);
    assert_eq!(faced.connection.stream_send_window_remaining(id(1)), Some(2_000));
}

#[test]
fn the_credit_of_the_connection_is_announced_to_all_that_wait_for_it() {
    let mut faced = client();
    fill(&mut faced, 1, 65_535);
    assert_eq!(faced.connection.send_window_remaining(), 0);
    faced.connection.want_credit(id(3));
    faced.connection.want_credit(id(3));
    faced.connection.want_credit(id(5));
    faced.says(&frames::window_update(0, 10));
    assert_eq!(credited(&mut faced), [id(3), id(5)]);
    faced.says(&frames::window_update(0, 10));
    assert!(credited(&mut faced).is_empty());
    // Each kind of credit is announced, and then the other no more.
    fill(&mut faced, 3, 20);
    faced.connection.want_credit(id(3));
    faced.says(&frames::window_update(3, 10));
    assert_eq!(credited(&mut faced), [id(3)]);
    faced.says(&frames::window_update(0, 10));
    assert!(credited(&mut faced).is_empty());
}

#[test]
fn credit_that_few_use_up_is_announced_to_no_crowd_and_to_each_in_its_turn() {
    const STREAMS: u32 = 1_000;
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 2 * STREAMS)]));
    let waiting: Vec<StreamId> = (0..STREAMS).map(|_| faced.opens("POST", false)).collect();
    let other = faced.opens("POST", false);
    fill(&mut faced, other.value(), 65_535);
    for &stream in &waiting {
        faced.connection.want_credit(stream);
    }
    faced.events();
    let (mut told, mut sent) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        let update = frames::window_update(0, 1);
        faced.connection.receive(update.into(), faced.now).unwrap();
        let streams = credited(&mut faced);
        assert!(streams.len() <= 64, "{}", streams.len());
        // The first one uses it, and the others wait again.
        fill(&mut faced, streams[0].value(), 1);
        sent.push(streams[0]);
        for &stream in &streams {
            faced.connection.want_credit(stream);
        }
        told.extend(streams);
        faced.heard();
        assert!(credited(&mut faced).is_empty(), "it is used up");
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, waiting, "each is told in its turn");
    sent.sort_unstable();
    sent.dedup();
    assert!(sent.len() >= 15, "{}", sent.len());
}

#[test]
fn credit_that_nobody_uses_is_announced_to_all_by_the_writes_that_follow() {
    let mut faced = Faced::client(Config::default());
    let waiting: Vec<StreamId> = (0..99).map(|_| faced.opens("POST", false)).collect();
    let other = faced.opens("POST", false);
    fill(&mut faced, other.value(), 65_535);
    for &stream in &waiting {
        faced.connection.want_credit(stream);
    }
    faced.events();
    let update = frames::window_update(0, 1);
    faced.connection.receive(update.into(), faced.now).unwrap();
    assert_eq!(credited(&mut faced), waiting[..64]);
    assert!(faced.connection.wants_transmit());
    faced.heard();
    assert_eq!(credited(&mut faced), waiting[64..]);
    assert!(!faced.connection.wants_transmit());
}

#[test]
fn credit_that_is_lent_to_nobody_is_not_announced_to_streams_that_are_gone() {
    let mut faced = client();
    fill(&mut faced, 1, 65_535);
    for stream in [3, 5] {
        faced.connection.want_credit(id(stream));
    }
    faced.connection.release(id(3));
    faced.says(&frames::reset(5, ErrorCode::CANCEL));
    faced.connection.release(id(5));
    faced.connection.want_credit(id(5));
    faced.heard();
    faced.says(&frames::window_update(0, 10));
    assert!(credited(&mut faced).is_empty());
    faced.lives();
}

#[test]
fn an_owner_that_waits_for_credit_shows_in_the_ledger_which_window_is_used_up() {
    for (waits, window) in [(1, Stall::StreamWindow), (3, Stall::ConnectionWindow)] {
        let mut faced = client();
        if window == Stall::StreamWindow {
            faced.says(&frames::window_update(0, 1 << 20));
        }
        fill(&mut faced, 1, 65_535);
        faced.connection.socket_idle(faced.now);
        let spent = |faced: &Faced| faced.connection.sending_ledger(faced.now).spent(window);
        faced.now = faced.now + Duration::from_millis(100);
        faced.connection.advance_time(faced.now);
        assert_eq!(spent(&faced), Duration::ZERO, "nothing is held back");
        faced.connection.want_credit(id(waits));
        faced.now = faced.now + Duration::from_millis(50);
        assert_eq!(spent(&faced), Duration::from_millis(50), "{window:?}");
    }
}

#[test]
fn settings_that_raise_windows_announce_their_credit() {
    let mut faced = client();
    for stream in [1, 3] {
        faced.connection.want_credit(id(stream));
    }
    faced.says(&frames::settings(&[(4, 1_000)]));
    assert!(credited(&mut faced).is_empty());
    faced.says(&frames::settings(&[(4, 1_001)]));
    let mut streams = credited(&mut faced);
    streams.sort_unstable();
    assert_eq!(streams, [id(1), id(3)]);
}

#[test]
fn a_request_that_is_opened_announces_its_credit() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 1)]));
    faced.opens("GET", true);
    let stream = faced.opens("POST", false);
    faced.connection.want_credit(stream);
    assert!(credited(&mut faced).is_empty());
    faced.says(&frames::settings(&[(3, 2)]));
    assert_eq!(credited(&mut faced), [stream]);
}

#[test]
fn a_connection_window_shrinks_below_its_first_size_as_its_credit_is_used() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_connection_window(WindowSize::new(65_535).unwrap());
        config.set_stream_window(WindowSize::new(1 << 20).unwrap());
    }));
    let size = WindowSize::new(20_000).unwrap();
    faced.connection.shrink_receive_window(size);
    assert_eq!(faced.connection.receive_window_size(), size);
    faced.says(&frames::post(1));
    let mut sent = 0;
    for _ in 0..40 {
        let length = faced.connection.receive_window_remaining().min(5_000) as usize;
        faced.says(&frames::data(1, 0, &vec![0; length]));
        sent += length;
        faced.reads(1);
    }
    assert!(sent > 150_000, "{sent}");
    faced.heard();
    let remaining = faced.connection.receive_window_remaining();
    assert!((15_000..=20_000).contains(&remaining), "{remaining}");
    faced.lives();
    for length in [remaining as usize, 1] {
        for chunk in vec![0; length].chunks(16_384) {
            faced.says(&frames::data(1, 0, chunk));
        }
    }
    faced.ended_with(ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_window_that_is_to_shrink_to_a_larger_size_stays() {
    let mut faced = Faced::server(config(|_| ()));
    let before = faced.connection.receive_window_size();
    faced.connection.shrink_receive_window(WindowSize::MAX);
    assert_eq!(faced.connection.receive_window_size(), before);
    assert!(faced.heard().is_empty());
}

#[test]
fn the_window_of_a_stream_that_was_reset_is_not_refilled() {
    let mut faced = Faced::server(fixed(|config| {
        config.set_connection_window(WindowSize::new(1 << 20).unwrap());
        config.set_stream_window(WindowSize::new(20_000).unwrap());
    }));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 16_000]));
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    faced.heard();
    assert_eq!(faced.reads(1).0.len(), 16_000);
    assert!(!faced.connection.wants_transmit());
}
