//! The limits on time to the nanosecond, and the progress that holds them off to the byte.

use std::time::Duration;

use fullbore_proto::{Config, ConnectionErrorKind, ErrorCode, FrameType, KeepAlive, StreamErrorKind};

use super::{asking, seconds, server, with_body_rate, with_body_timeout};
use crate::support::config;
use crate::support::frames;
use crate::support::peer::Faced;

#[test]
fn a_silent_peer_is_there_if_the_transport_took_a_kib_since_it_was_asked() {
    let gone = Some(ConnectionErrorKind::KeepAliveTimeout);
    for (taken, error) in [(1_024, None), (1_023, gone)] {
        let mut faced = server(Config::default());
        faced.says(&frames::window_update(0, 1 << 30));
        faced.says(&frames::settings(&[(4, 1 << 30)]));
        faced.answers_at_length(1);
        faced.connection.socket_holds(5_000, faced.now);
        faced.waits(seconds(60));
        // The PING of 17 bytes is behind these.
        faced.connection.socket_holds(5_000 + 17 - taken, faced.now);
        faced.waits(seconds(60));
        assert_eq!(
            faced.connection.error().map(|error| error.kind()),
            error,
            "{taken}"
        );
    }
}

#[test]
fn a_stream_that_gets_less_than_a_kib_in_time_is_reset() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.says(&frames::window_update(0, 1 << 30));
    faced.answers_at_length(1);
    faced.waits(seconds(220));
    faced.says(&frames::window_update(1, 1_023));
    faced.waits(seconds(154));
    assert_eq!(faced.connection.stats().sent_data_bytes, 65_535 + 1_023);
    faced.lives();
    faced.waits(seconds(1));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::WindowTimeout);
}

#[test]
fn a_stream_ends_at_the_check_that_finds_its_limit_reached_and_not_a_nanosecond_before() {
    const MOMENT: Duration = Duration::from_nanos(1);
    let stalled = || {
        let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
        faced.says(&frames::window_update(0, 1 << 30));
        faced.answers_at_length(1);
        faced
    };
    let uploading = || {
        let mut faced = server(with_body_timeout());
        faced.says(&frames::post(1));
        faced
    };
    let asked = || asking(|limits| limits.set_response_timeout(Some(seconds(40))));
    // What is sent counts as progress at the first check, after 75 seconds.
    let cases: [(Faced, u64, StreamErrorKind); 3] = [
        (stalled(), 75 + 300, StreamErrorKind::WindowTimeout),
        (uploading(), 60, StreamErrorKind::BodyTimeout),
        (asked(), 40, StreamErrorKind::ResponseTimeout),
    ];
    for (mut faced, limit, kind) in cases {
        faced.waits(seconds(limit) - MOMENT);
        faced.lives();
        assert_eq!(faced.connection.stream_count(), 1);
        faced.waits(MOMENT);
        faced.reset_with(1, ErrorCode::CANCEL);
        faced.timed_out(1, kind);
    }
}

#[test]
fn a_transport_that_takes_a_kib_in_time_is_not_stuck_and_one_that_takes_less_is() {
    let stuck = Some(ConnectionErrorKind::SendTimeout);
    for (taken, error) in [(1_024, None), (1_023, stuck)] {
        let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
        faced.answers_at_length(1);
        faced.says(&frames::settings(&[(4, 1 << 30)]));
        faced.says(&frames::window_update(0, 1 << 30));
        for left in (1..=3).rev() {
            faced.connection.socket_holds(taken * left, faced.now);
            faced.waits(seconds(220));
        }
        assert_eq!(
            faced.connection.error().map(|error| error.kind()),
            error,
            "{taken}"
        );
    }
}

#[test]
fn the_bytes_that_a_transport_has_taken_by_the_first_check_are_progress() {
    // It holds the rest for the whole time from then on.
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.answers_at_length(1);
    faced.connection.socket_holds(5_000, faced.now);
    faced.waits(seconds(75 + 300) - Duration::from_nanos(1));
    assert_eq!(faced.connection.error(), None);
    faced.waits(Duration::from_nanos(1));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::SendTimeout);
}

#[test]
fn a_transport_that_stays_full_is_stuck_although_nothing_is_built_for_it() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.answers_at_length(1);
    faced.connection.socket_full(faced.now);
    faced.waits(seconds(75 + 300) - Duration::from_nanos(1));
    assert_eq!(faced.connection.error(), None);
    faced.waits(Duration::from_nanos(1));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::SendTimeout);
}

#[test]
fn the_rest_of_a_request_whose_response_is_whole_may_have_so_many_bytes() {
    // 256 KiB.
    for (last, is_reset) in [(16_384, false), (16_385, true)] {
        let mut faced = server(config(|config| config.set_max_frame_size(1 << 20)));
        faced.says(&frames::post(1));
        faced.answers(1);
        for length in [15 * 16_384, last] {
            faced.says(&frames::data(1, 0, &vec![7; length]));
        }
        match is_reset {
            true => faced.reset_with(1, ErrorCode::NO_ERROR),
            false => faced.lives(),
        }
    }
}

#[test]
fn a_body_goes_on_with_as_many_bytes_as_its_rate_asks_for_and_not_with_one_less() {
    for (bytes, is_reset) in [(3_000, false), (2_999, true)] {
        let mut faced = server(with_body_rate(50));
        faced.says(&frames::post(1));
        faced.waits(seconds(10));
        faced.says(&frames::data(1, 0, &vec![7; bytes]));
        faced.reads(1);
        faced.waits(seconds(50));
        match is_reset {
            true => faced.reset_with(1, ErrorCode::CANCEL),
            false => faced.lives(),
        }
    }
}

#[test]
fn a_peer_that_was_asked_whether_it_is_there_has_all_its_time_whatever_else_is_checked() {
    let mut faced = server(config(|config| {
        config.set_keep_alive(KeepAlive::WithStreams(seconds(50)));
        config.set_body_timeout(Some(seconds(60)));
    }));
    faced.says(&frames::post(1));
    faced.waits(seconds(50));
    assert_eq!(faced.heard_of(FrameType::PING).len(), 1);
    let limit = Config::default().keep_alive_timeout();
    faced.waits(limit - Duration::from_nanos(1));
    assert_eq!(faced.connection.error(), None);
    assert_eq!(
        faced.heard_of(FrameType::RST_STREAM).len(),
        1,
        "its body does not come"
    );
    faced.waits(Duration::from_nanos(1));
    let ended_by = faced.connection.error().map(|error| error.kind());
    assert_eq!(ended_by, Some(ConnectionErrorKind::KeepAliveTimeout));
}
