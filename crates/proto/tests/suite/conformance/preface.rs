//! RFC 9113 section 3.4: how a connection begins.

use fullbore_proto::frame::{Flags, FrameType};
use fullbore_proto::{Config, ConnectionErrorKind, ErrorCode, Event};

use crate::support::config;
use crate::support::frames::{self, PREFACE};
use crate::support::peer::Faced;

fn entries(payload: &[u8]) -> Vec<(u16, u32)> {
    let entry = |entry: &[u8]| {
        let value = entry[2..].try_into().unwrap();
        (
            u16::from_be_bytes([entry[0], entry[1]]),
            u32::from_be_bytes(value),
        )
    };
    payload.chunks(6).map(entry).collect()
}

#[test]
fn a_server_says_settings_first_and_opens_the_connections_window() {
    let mut faced = Faced::silent_server(Config::default());
    let heard = faced.heard();
    assert_eq!(heard[0].header.frame_type, FrameType::SETTINGS);
    let settings = entries(&heard[0].payload);
    for entry in [(3, 10_000), (4, 48 << 20), (5, 16_384), (6, 64 << 10), (9, 1)] {
        assert!(settings.contains(&entry), "{entry:?} of {settings:?}");
    }
    assert_eq!(heard[1].header.frame_type, FrameType::WINDOW_UPDATE);
    assert_eq!(heard[1].word(0), (64 << 20) - 65_535);
    assert_eq!(heard.len(), 2);
}

#[test]
fn a_client_says_the_preface_and_settings_that_refuse_push() {
    let mut faced = Faced::silent_client(Config::default());
    let heard = faced.heard();
    assert_eq!(heard[0].header.frame_type, FrameType::SETTINGS);
    let settings = entries(&heard[0].payload);
    assert!(settings.contains(&(2, 0)) && settings.contains(&(4, 48 << 20)));
    assert!(!settings.iter().any(|&(identifier, _)| identifier == 3));
}

#[test]
fn a_window_that_is_a_little_larger_than_the_default_is_opened_at_once_too() {
    let mut faced = Faced::silent_server(config(|config| {
        config.set_connection_window(fullbore_proto::WindowSize::new(65_536).unwrap());
    }));
    assert_eq!(faced.heard()[1].word(0), 1);
}

#[test]
fn a_window_of_the_default_size_needs_no_update() {
    let mut faced = Faced::silent_server(config(|config| {
        config.set_connection_window(fullbore_proto::DEFAULT_WINDOW);
    }));
    assert_eq!(faced.heard().len(), 1);
}

#[test]
fn a_preface_is_taken_octet_by_octet() {
    let mut faced = Faced::silent_server(Config::default());
    faced.heard();
    let all = [PREFACE, &frames::settings(&[(4, 100)])[..], &frames::get(1)[..]].concat();
    for (at, octet) in all.into_iter().enumerate() {
        // The nine octets of its head and the six of the entry end the frame.
        let whole = at >= PREFACE.len() + 9 + 6;
        assert_eq!(faced.connection.peer_settings_received(), whole, "at {at}");
        faced.says(&[octet]);
    }
    let events = faced.events();
    assert!(
        matches!(events[..], [Event::PeerSettings, Event::Request { .. }]),
        "{events:?}"
    );
    faced.lives();
}

#[test]
fn an_invalid_preface_is_a_connection_error() {
    for wrong in [
        &b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        b"X",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut faced = Faced::silent_server(Config::default());
        faced.says(wrong);
        faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn the_first_frame_must_be_settings() {
    for first in [
        frames::ping(0, b"12345678"),
        frames::window_update(0, 1),
        frames::get(1),
        frames::settings_ack(),
        frames::frame(0x20, 0, 0, b""),
    ] {
        let mut server = Faced::silent_server(Config::default());
        server.says(&[PREFACE, &first[..]].concat());
        server.ended_with(ErrorCode::PROTOCOL_ERROR);
        let mut client = Faced::silent_client(Config::default());
        client.says(&first);
        client.ended_with(ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_client_that_is_answered_in_http_1_says_so() {
    let mut faced = Faced::silent_client(Config::default());
    let error = faced.tries(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
    assert_eq!(error.kind(), ConnectionErrorKind::NotHttp2);
    assert!(error.is_http1());
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    // Of another protocol it does not know what it is.
    let mut faced = Faced::silent_client(Config::default());
    let error = faced.tries(b"SSH-2.0-OpenSSH_9.9\r\n").unwrap_err();
    assert_eq!(error.kind(), ConnectionErrorKind::NotHttp2);
    assert!(!error.is_http1());
}

#[test]
fn settings_are_acknowledged() {
    let mut faced = Faced::silent_server(Config::default());
    faced.heard();
    faced.says(&[PREFACE, &frames::settings(&[])[..]].concat());
    let heard = faced.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].header.frame_type, FrameType::SETTINGS);
    assert!(heard[0].header.flags.has(Flags::ACK) && heard[0].payload.is_empty());
}

#[test]
fn requests_may_follow_the_preface_without_waiting() {
    let mut faced = Faced::silent_server(Config::default());
    faced.says(&[PREFACE, &frames::settings(&[])[..], &frames::get(1)[..]].concat());
    assert!(
        faced
            .events()
            .iter()
            .any(|event| matches!(event, Event::Request { .. }))
    );
}
