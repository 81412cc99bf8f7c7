//! What the first SETTINGS carry, the limit before the peer's arrive, and other choices of the owner at the start.

use bytes::Bytes;
use fullbore_proto::frame::Flags;
use fullbore_proto::{
    Config, Connection, ErrorCode, FrameType, Refill, StreamId, Time, UsageError, WindowSize,
};

use crate::support::frames;
use crate::support::peer::{Faced, Heard, id};
use crate::support::{config, fixed};

fn get(faced: &mut Faced) -> Result<StreamId, UsageError> {
    let request = http::Request::get("http://example.com/").body(()).unwrap();
    faced.connection.open(request, true)
}

/// The identifiers of the first SETTINGS, in order.
fn announced(connection: Connection) -> Vec<u16> {
    let mut faced = Faced::new(connection);
    let settings = faced.heard_of(FrameType::SETTINGS);
    let entries = settings[0].payload.chunks_exact(6);
    let mut identifiers: Vec<u16> = entries
        .map(|entry| u16::from_be_bytes([entry[0], entry[1]]))
        .collect();
    identifiers.sort_unstable();
    identifiers
}

#[test]
fn the_first_settings_carry_what_matters_to_the_peer() {
    let clients = announced(Connection::client(Config::default(), Time::ZERO));
    let servers = announced(Connection::server(Config::default(), Time::ZERO));
    assert_eq!(
        (&clients[..], &servers[..]),
        (&[1, 2, 4, 5, 6][..], &[1, 3, 4, 5, 6, 9][..])
    );
    let extended = config(|config| config.set_enable_connect_protocol(true));
    assert!(announced(Connection::server(extended, Time::ZERO)).contains(&8));
}

#[test]
fn a_client_opens_as_many_streams_as_it_may_before_the_servers_settings() {
    for most in [0, 1, 3] {
        let settings = config(|config| config.set_initial_max_send_streams(most));
        let mut faced = Faced::silent_client(settings);
        assert_eq!(faced.connection.peer_max_concurrent_streams(), most);
        for _ in 0..5 {
            get(&mut faced).unwrap();
        }
        assert_eq!(faced.heard_of(FrameType::HEADERS).len(), most as usize);
        assert!(faced.connection.is_waiting(id(9)));
        // The server's SETTINGS name no limit.
        let mut faced = faced.greeted();
        assert!(!faced.connection.is_waiting(id(9)));
        faced.lives();
    }
}

#[test]
fn the_preface_is_received_with_its_last_octet() {
    let mut faced = Faced::silent_server(Config::default());
    let (start, last) = frames::PREFACE.split_at(frames::PREFACE.len() - 1);
    faced.says(start);
    assert!(!faced.connection.preface_received());
    faced.says(last);
    assert!(faced.connection.preface_received());
    assert!(!faced.connection.peer_settings_received());
    assert!(
        Faced::silent_client(Config::default())
            .connection
            .preface_received()
    );
}

#[test]
fn the_debug_data_of_goaway_is_the_owners_choice() {
    let debug = |faced: &mut Faced| -> Vec<u8> {
        let heard: Vec<Heard> = faced.heard_of(FrameType::GOAWAY);
        heard[0].payload[8..].to_vec()
    };
    for describes in [true, false] {
        let settings = config(|config| {
            if !describes {
                config.set_debug_data(|_| "");
            }
        });
        let mut faced = Faced::server(settings.clone());
        faced.says(&frames::data(1, 0, b""));
        assert_eq!(debug(&mut faced).is_empty(), !describes);
        for (reason, expected) in [("enough", true), ("", describes)] {
            let mut faced = Faced::server(settings.clone());
            faced.connection.abort(ErrorCode::NO_ERROR, reason, faced.now);
            assert_eq!(!debug(&mut faced).is_empty(), expected, "{reason:?}");
        }
    }
}

#[test]
fn a_relative_request_has_the_scheme_http_and_no_authority() {
    let relative = || http::Request::get("/path").body(()).unwrap();
    let mut strict = Faced::client(Config::default());
    assert!(strict.connection.open(relative(), true).is_err());
    let mut faced = Faced::client(config(|config| config.set_relative_requests(true)));
    faced.connection.open(relative(), true).unwrap();
    // :method GET, :scheme http, then :path as a literal.
    let block = &faced.heard_of(FrameType::HEADERS)[0].payload;
    assert_eq!(block[..3], [0x82, 0x86, 0x04]);
    let connect = http::Request::connect("/path").body(()).unwrap();
    assert!(faced.connection.open(connect, true).is_err());
}

#[test]
fn credit_that_is_half_of_the_rest_is_returned_and_no_less() {
    let settings = fixed(|config| {
        config.set_stream_window(WindowSize::new(65_535).unwrap());
        config.set_connection_window(WindowSize::new(65_535).unwrap());
        config.set_stream_refill(Refill::HalfRest);
        config.set_connection_refill(Refill::HalfRest);
    });
    let mut faced = Faced::server(settings);
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[0; 16_384]));
    faced.says(&frames::data(1, 0, &[0; 5_460]));
    faced.reads(1);
    assert_eq!(faced.connection.stream_release_until_due(id(1)), Some(1));
    assert!(faced.heard().is_empty(), "21,844 of 43,691");
    faced.says(&frames::data(1, 0, b"."));
    faced.reads(1);
    let updates = faced.heard_of(FrameType::WINDOW_UPDATE);
    let updates: Vec<_> = updates
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(updates, [(0, 21_845), (1, 21_845)]);
    faced.says(&frames::data(1, 0, &[0; 16_384]));
    // 16,384 of 49,151.
    assert_eq!(faced.connection.stream_release_until_due(id(1)), Some(24_575));
    faced.lives();
}

#[test]
fn small_data_frames_are_read_as_one_chunk() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    for piece in [&b"one"[..], b"two", b"three"] {
        faced.says(&frames::data(1, 0, piece));
    }
    let mut chunks = std::collections::VecDeque::new();
    faced.connection.read(id(1), &mut chunks).unwrap();
    assert_eq!(chunks, ["onetwothree"]);
}

#[test]
fn the_data_of_several_calls_and_the_end_share_a_frame() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    for (data, end) in [("one", false), ("two", false), ("", true)] {
        let data = Bytes::from(data);
        faced.connection.send_data(id(1), data, end).unwrap();
    }
    let heard = faced.heard_of(FrameType::DATA);
    assert_eq!((heard.len(), &heard[0].payload[..]), (1, &b"onetwo"[..]));
    assert!(heard[0].header.flags.has(Flags::END_STREAM));
    assert!(!faced.connection.has_unfinished_streams());
}
