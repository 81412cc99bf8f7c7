//! How long a peer may take, on a virtual clock: each limit ends what it is about, no sooner than it says and at most a
//! quarter later, and a peer that stays within it is left alone.

mod boundaries;

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{
    Config, Connection, ConnectionErrorKind, ErrorCode, Event, FrameType, KeepAlive, Side, StreamError,
    StreamErrorKind, Time,
};
use http::Response;

use crate::support::config;
use crate::support::frames::{self, END_STREAM};
use crate::support::peer::{Faced, id};

/// A server that a client has greeted, with all its limits.
fn server(config: Config) -> Faced {
    Faced::new(Connection::server(config, Time::ZERO)).greeted()
}

/// A client that a server has greeted, with all its limits.
fn client(config: Config) -> Faced {
    Faced::new(Connection::client(config, Time::ZERO)).greeted()
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Faced {
    /// Lets time pass, and has the connection act on its deadlines as they come.
    fn waits(&mut self, wait: Duration) {
        let until = self.now + wait;
        let mut looks = 0;
        while let Some(deadline) = self.connection.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(deadline);
            self.connection.handle_timeout(self.now);
            self.listen();
            looks += 1;
            assert!(looks < 1_000, "the deadline does not move on");
        }
        self.now = until;
        self.connection.handle_timeout(self.now);
        self.listen();
    }

    /// The stream on which a server answers a GET with more than the peer's window takes.
    fn answers_at_length(&mut self, stream: u32) {
        self.says(&frames::get(stream));
        self.connection
            .send_response(id(stream), &Response::new(()), false)
            .unwrap();
        let body = Bytes::from(vec![7; 1 << 20]);
        self.connection.send_data(id(stream), body, true).unwrap();
        self.heard();
    }

    fn timed_out(&mut self, stream: u32, kind: StreamErrorKind) {
        let events = self.events();
        let is_it = |event: &Event| match event {
            Event::Reset(error @ StreamError { by: Side::Local, .. }) => {
                error.stream == id(stream) && error.is_timeout() && error.kind() == kind
            }
            _ => false,
        };
        assert!(events.iter().any(is_it), "{events:?}");
    }

    #[track_caller]
    fn ended_by(&self, kind: ConnectionErrorKind) {
        let error = self.connection.error().expect("the connection lives");
        assert_eq!(error.kind(), kind);
        let is_local = kind == ConnectionErrorKind::HalfCloseTimeout;
        assert_eq!(error.is_timeout(), !is_local, "{error}");
        assert_eq!(error.blame == Side::Local, is_local, "{error}");
    }
}

#[test]
fn settings_have_to_be_acknowledged() {
    let mut faced = Faced::new(Connection::server(Config::default(), Time::ZERO));
    faced.says(frames::PREFACE);
    faced.says(&frames::settings(&[]));
    faced.says(&frames::post(1));
    faced.waits(seconds(29));
    faced.lives();
    faced.waits(seconds(1));
    faced.ended_with(ErrorCode::SETTINGS_TIMEOUT);
    faced.ended_by(ConnectionErrorKind::SettingsTimeout);

    let mut faced = Faced::new(Connection::client(Config::default(), Time::ZERO));
    faced.says(&frames::settings(&[]));
    faced.waits(seconds(31));
    faced.ended_with(ErrorCode::SETTINGS_TIMEOUT);
}

#[test]
fn a_header_block_that_dribbles_ends_the_connection() {
    let mut faced = server(Config::default());
    let block = frames::request_block("GET");
    faced.says(&frames::headers(1, END_STREAM, &block[..3]));
    faced.waits(seconds(20));
    faced.says(&frames::continuation(1, 0, &block[3..5]));
    faced.waits(seconds(9));
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(1));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::HeaderTimeout);
}

#[test]
fn a_frame_that_dribbles_ends_the_connection() {
    for frame in [frames::get(1), frames::ping(0, b"12345678")] {
        let mut faced = server(Config::default());
        for octet in frame.iter().take(15) {
            faced.says(&[*octet]);
            faced.waits(seconds(2));
        }
        faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
        faced.ended_by(ConnectionErrorKind::HeaderTimeout);
    }
}

#[test]
fn the_time_for_a_header_block_is_cleared_when_it_is_whole() {
    let mut faced = server(Config::default());
    let block = frames::request_block("GET");
    for stream in [1, 3, 5] {
        faced.says(&frames::headers(stream, END_STREAM, &block[..3]));
        faced.waits(seconds(29));
        faced.says(&frames::continuation(stream, frames::END_HEADERS, &block[3..]));
        faced.waits(seconds(25));
        assert!(matches!(faced.events()[..], [Event::Request { .. }]));
    }
    // Batch after batch may end within a frame, as long as the frames come to their ends.
    let all: Vec<u8> = (0..40).flat_map(|_| frames::ping(0, b"12345678")).collect();
    faced.says(&all[..5]);
    for batch in all[5..].chunks(17) {
        faced.waits(seconds(2));
        faced.says(batch);
    }
    assert_eq!(faced.connection.error(), None);
}

#[test]
fn data_may_take_its_time() {
    let mut faced = server(Config::default());
    faced.says(&frames::post(1));
    let frame = frames::data(1, END_STREAM, b"slowly");
    faced.says(&frame[..9]);
    for octet in &frame[9..] {
        faced.waits(seconds(50));
        faced.says(&[*octet]);
    }
    assert_eq!(faced.reads(1).0, b"slowly");
    assert_eq!(faced.connection.error(), None);
}

#[test]
fn a_connection_without_streams_is_ended_gracefully() {
    let mut faced = server(Config::default());
    faced.waits(seconds(100));
    faced.says(&frames::get(1));
    faced.answers(1);
    faced.waits(seconds(100));
    // PING is no use of a connection.
    faced.says(&frames::ping(0, b"12345678"));
    faced.heard();
    faced.waits(seconds(79));
    assert!(!faced.connection.is_shutting_down());
    faced.waits(seconds(1));
    let goes = faced.heard_of(FrameType::GOAWAY);
    assert_eq!(ErrorCode(goes[0].word(4)), ErrorCode::NO_ERROR);
    faced.waits(seconds(1));
    assert!(faced.connection.is_drained());
    assert_eq!(faced.connection.error(), None);
}

#[test]
fn a_connection_is_unused_from_the_end_of_its_last_stream_on() {
    let mut faced = server(Config::default());
    faced.waits(seconds(5));
    faced.says(&frames::get(1));
    faced.waits(seconds(50));
    faced.answers(1);
    faced.waits(seconds(179));
    assert!(!faced.connection.is_shutting_down());
    faced.waits(seconds(1));
    assert!(faced.connection.is_shutting_down());
}

#[test]
fn a_connection_with_a_stream_is_not_idle_and_a_clients_never_is() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.says(&frames::get(1));
    faced.waits(seconds(10_000));
    faced.lives();
    let mut faced = client(Config::default());
    faced.waits(seconds(40_000));
    assert!(faced.connection.takes_new_streams());
    assert_eq!(
        faced.connection.next_deadline(),
        None,
        "an idle client is never woken"
    );
}

#[test]
fn a_server_asks_a_silent_client_with_streams_whether_it_is_there() {
    let mut faced = server(Config::default());
    faced.says(&frames::get(1));
    for _ in 0..5 {
        faced.waits(seconds(59));
        assert_eq!(faced.heard(), []);
        faced.waits(seconds(1));
        let asked = faced.heard_of(FrameType::PING);
        assert_eq!(asked.len(), 1);
        faced.waits(seconds(59));
        faced.says(&frames::frame(0x6, frames::ACK, 0, &asked[0].payload));
    }
    faced.lives();
    faced.waits(seconds(60));
    faced.says(&frames::data(1, 0, b""));
    faced.waits(seconds(60));
    assert_eq!(faced.connection.error(), None, "any octet is an answer");
    faced.waits(seconds(60));
    faced.ended_by(ConnectionErrorKind::KeepAliveTimeout);
}

#[test]
fn a_peer_that_still_takes_octets_over_a_slow_link_is_there() {
    let mut faced = server(Config::default());
    faced.says(&frames::window_update(0, 1 << 30));
    faced.says(&frames::settings(&[(4, 1 << 30)]));
    faced.answers_at_length(1);
    for left in (1..=10).rev() {
        faced.connection.socket_holds(100_000 * left, faced.now);
        faced.waits(seconds(59));
    }
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(120));
    faced.ended_by(ConnectionErrorKind::KeepAliveTimeout);
}

#[test]
fn a_client_asks_only_when_it_is_told_to() {
    let silence = seconds(10);
    let asked = |keep_alive, requests: u32| {
        let mut faced = client(config(|config| config.set_keep_alive(keep_alive)));
        for _ in 0..requests {
            faced.opens("GET", true);
        }
        faced.waits(silence);
        faced.heard_of(FrameType::PING).len()
    };
    assert_eq!(asked(KeepAlive::ByRole, 1), 0);
    assert_eq!(asked(KeepAlive::Never, 1), 0);
    assert_eq!(asked(KeepAlive::WithStreams(silence), 0), 0);
    assert_eq!(asked(KeepAlive::WithStreams(silence), 1), 1);
    assert_eq!(asked(KeepAlive::Always(silence), 0), 1);
}

#[test]
fn the_silence_before_a_request_is_not_the_servers() {
    let keep_alive = KeepAlive::WithStreams(seconds(10));
    let mut faced = client(config(|config| {
        config.set_keep_alive(keep_alive);
        // It is looked at each five seconds.
        config.set_response_timeout(Some(seconds(20)));
    }));
    faced.waits(seconds(1_000));
    faced.opens("GET", true);
    faced.waits(seconds(9));
    assert_eq!(faced.heard(), []);
    faced.waits(seconds(1));
    assert_eq!(faced.heard_of(FrameType::PING).len(), 1);
}

fn with_body_timeout() -> Config {
    config(|config| {
        config.set_body_timeout(Some(seconds(60)));
        config.set_keep_alive(KeepAlive::Never);
    })
}

#[test]
fn a_body_that_comes_to_a_halt_is_reset() {
    let mut faced = server(with_body_timeout());
    faced.says(&frames::post(1));
    faced.says(&frames::post(3));
    for _ in 0..10 {
        faced.waits(seconds(40));
        faced.says(&frames::data(1, 0, b"x"));
        faced.says(&frames::data(3, 0, b"x"));
        faced.reads(1);
        faced.reads(3);
    }
    faced.says(&frames::data(3, END_STREAM, b""));
    faced.lives();
    faced.waits(seconds(59));
    faced.lives();
    faced.waits(seconds(17));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::BodyTimeout);
}

#[test]
fn a_body_waits_for_its_reader_as_long_as_that_takes() {
    let mut faced = server(with_body_timeout());
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, b"unread"));
    faced.waits(seconds(1_000));
    faced.lives();
    let mut faced = server(config(|config| {
        config.set_body_timeout(Some(seconds(60)));
        config.set_keep_alive(KeepAlive::Never);
        config.set_adaptive(false);
        config.set_stream_window(fullbore_proto::WindowSize::new(10).unwrap());
    }));
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, b"0123456789"));
    // Taken, but not released: the window stays closed.
    faced
        .connection
        .read(id(1), &mut std::collections::VecDeque::new())
        .unwrap();
    faced.waits(seconds(1_000));
    faced.lives();
}

fn with_body_rate(bytes_per_second: u32) -> Config {
    let mut config = with_body_timeout();
    config.set_body_rate(bytes_per_second);
    config
}

#[test]
fn a_body_that_crawls_is_reset() {
    let mut faced = server(with_body_rate(50));
    faced.says(&frames::post(1));
    faced.says(&frames::post(3));
    // 40 bytes a second on stream 1, 60 on stream 3, and a limit of 50 over 60 s.
    for round in 0..8 {
        faced.says(&frames::data(1, 0, &[0; 400]));
        faced.says(&frames::data(3, 0, &[0; 600]));
        faced.reads(1);
        faced.reads(3);
        if round < 6 {
            faced.lives();
        }
        faced.waits(seconds(10));
    }
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::BodyTimeout);
    faced.says(&frames::data(3, END_STREAM, b""));
    faced.lives();
}

#[test]
fn bodies_at_the_least_rate_go_on_however_they_are_cut() {
    for (every, bytes) in [(1, 51), (5, 255), (20, 1_020), (50, 3_000)] {
        let mut faced = server(with_body_rate(50));
        faced.says(&frames::post(1));
        for _ in 0..600 / every {
            faced.says(&frames::data(1, 0, &vec![0; bytes]));
            faced.reads(1);
            faced.waits(seconds(every));
        }
        faced.lives();
    }
}

#[test]
fn a_small_window_asks_for_no_more_than_it_lets_through() {
    let mut config = with_body_rate(50);
    config.set_adaptive(false);
    config.set_stream_window(fullbore_proto::WindowSize::new(10).unwrap());
    let mut faced = server(config);
    faced.says(&frames::post(1));
    for _ in 0..20 {
        faced.says(&frames::data(1, 0, &[0; 10]));
        faced.reads(1);
        faced.waits(seconds(30));
    }
    faced.lives();
}

#[test]
fn a_body_is_not_waited_for_while_the_connections_window_is_closed() {
    for rate in [0, 50] {
        let mut config = with_body_rate(rate);
        config.set_adaptive(false);
        config.set_connection_window(fullbore_proto::WindowSize::new(65_535).unwrap());
        let mut faced = server(config);
        faced.says(&frames::post(1));
        faced.says(&frames::post(3));
        // Stream 3's reader has left all of the window unread.
        for _ in 0..4 {
            faced.says(&frames::data(3, 0, &[0; 16_000]));
        }
        faced.says(&frames::data(3, 0, &[0; 1_535]));
        faced.waits(seconds(1_000));
        faced.lives();
    }
}

#[test]
fn a_tunnel_may_be_silent() {
    let mut faced = server(with_body_timeout());
    let connect = frames::block(&[(":method", "CONNECT"), (":authority", "a.example:1")]);
    faced.says(&frames::headers(1, frames::END_HEADERS, &connect));
    faced.waits(seconds(1_000));
    faced.lives();
}

#[test]
fn a_stream_whose_window_stays_closed_is_reset() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.says(&frames::window_update(0, 1 << 30));
    faced.answers_at_length(1);
    // An octet now and then is no progress.
    for _ in 0..10 {
        faced.waits(seconds(29));
        faced.says(&frames::window_update(1, 1));
    }
    faced.waits(seconds(9));
    faced.lives();
    faced.waits(seconds(76));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::WindowTimeout);
}

#[test]
fn a_stream_that_gets_a_kib_in_time_goes_on() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.says(&frames::window_update(0, 1 << 30));
    faced.answers_at_length(1);
    for _ in 0..50 {
        faced.waits(seconds(220));
        faced.says(&frames::window_update(1, 1_024));
        faced.waits(seconds(1));
    }
    faced.lives();
    assert_eq!(faced.connection.stats().sent_data_bytes, 65_535 + 50 * 1_024);
}

#[test]
fn a_connection_whose_window_stays_closed_ends() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.says(&frames::settings(&[(4, 1 << 30)]));
    faced.answers_at_length(1);
    faced.waits(seconds(299));
    faced.lives();
    faced.waits(seconds(77));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::SendTimeout);
}

#[test]
fn a_transport_that_takes_nothing_ends_the_connection() {
    let mut faced = server(config(|config| config.set_keep_alive(KeepAlive::Never)));
    faced.answers_at_length(1);
    faced.says(&frames::settings(&[(4, 1 << 30)]));
    faced.says(&frames::window_update(0, 1 << 30));
    // What was built waits for the transport, of which more and more is taken, and then no more.
    for left in (0..10).rev() {
        faced.connection.socket_holds(17 + 2_000 * left, faced.now);
        faced.waits(seconds(220));
        faced.heard();
    }
    faced.connection.socket_holds(16, faced.now);
    faced.waits(seconds(79));
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(150));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::SendTimeout);
}

#[test]
fn a_transport_that_takes_nothing_is_watched_without_streams_too() {
    let mut faced = client(Config::default());
    faced.says(&frames::ping(0, b"12345678"));
    faced.heard();
    assert_eq!(faced.connection.next_deadline(), None);
    faced.connection.socket_holds(0, faced.now);
    assert_eq!(faced.connection.next_deadline(), None);
    faced.connection.socket_holds(17, faced.now);
    assert_eq!(faced.connection.next_deadline(), Some(Time::ZERO + seconds(75)));
    faced.waits(seconds(299));
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(76));
    faced.ended_with(ErrorCode::ENHANCE_YOUR_CALM);
    faced.ended_by(ConnectionErrorKind::SendTimeout);
}

/// A client that has sent a GET on stream 1.
fn asking(change: impl FnOnce(&mut Config)) -> Faced {
    let mut limits = Config::default();
    change(&mut limits);
    let mut faced = client(limits);
    ask(&mut faced);
    faced
}

fn ask(faced: &mut Faced) {
    faced.opens("GET", true);
    faced.heard();
}

fn response(stream: u32, flags: u8) -> Vec<u8> {
    let block = frames::response_block("200", &[]);
    frames::headers(stream, flags | frames::END_HEADERS, &block)
}

#[test]
fn a_response_whose_head_does_not_come_is_given_up() {
    let mut faced = asking(|limits| limits.set_response_timeout(Some(seconds(40))));
    faced.waits(seconds(39));
    faced.lives();
    faced.waits(seconds(11));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::ResponseTimeout);
    faced.lives();
}

#[test]
fn a_server_without_a_word_is_waited_for_unless_there_is_a_limit() {
    let mut faced = asking(|_| {});
    faced.waits(seconds(40_000));
    faced.lives();
    assert_eq!(faced.connection.stream_count(), 1);
}

#[test]
fn the_time_for_a_body_begins_with_its_head() {
    let mut faced = asking(|limits| {
        limits.set_response_timeout(Some(seconds(40)));
        limits.set_body_timeout(Some(seconds(20)));
    });
    faced.waits(seconds(35));
    faced.says(&response(1, 0));
    faced.waits(seconds(19));
    faced.lives();
    assert_eq!(faced.connection.stream_count(), 1);
    faced.waits(seconds(6));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::BodyTimeout);
}

#[test]
fn the_time_for_a_response_begins_when_the_request_has_left() {
    let mut limits = Config::default();
    limits.set_response_timeout(Some(seconds(40)));
    let mut faced = client(limits);
    let stream = faced.opens("POST", false);
    faced.heard();
    faced.waits(seconds(1_000));
    faced.lives();
    faced
        .connection
        .send_data(stream, Bytes::from_static(b"late"), true)
        .unwrap();
    faced.heard();
    faced.waits(seconds(29));
    faced.lives();
    assert_eq!(faced.connection.stream_count(), 1);
    faced.waits(seconds(21));
    faced.reset_with(1, ErrorCode::CANCEL);
    faced.timed_out(1, StreamErrorKind::ResponseTimeout);
}

#[test]
fn requests_that_wait_at_a_peer_that_allows_no_stream_fail() {
    let mut faced = client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    for _ in 0..3 {
        ask(&mut faced);
    }
    faced.waits(seconds(29));
    assert_eq!(faced.connection.waiting_streams(), 3);
    faced.waits(seconds(1));
    assert_eq!(faced.connection.waiting_streams(), 0);
    let events = faced.events();
    let late = |event: &Event| matches!(event, Event::Reset(error) if error.is_timeout() && error.kind() == StreamErrorKind::StreamWaitTimeout);
    assert_eq!(events.iter().filter(|event| late(event)).count(), 3, "{events:?}");
    faced.lives();
}

#[test]
fn a_check_of_another_limit_does_not_delay_the_end_of_the_wait_for_a_stream() {
    let mut faced = client(config(|config| {
        config.set_keep_alive(KeepAlive::Always(seconds(13)))
    }));
    faced.says(&frames::settings(&[(3, 0)]));
    ask(&mut faced);
    let since = faced.now;
    while faced.connection.waiting_streams() > 0 {
        faced.now = faced
            .connection
            .next_deadline()
            .expect("a deadline while a request waits");
        faced.connection.handle_timeout(faced.now);
        for ping in faced
            .heard()
            .iter()
            .filter(|frame| frame.header.frame_type == FrameType::PING)
        {
            let opaque = ping.payload[..].try_into().unwrap();
            faced.says(&frames::ping(frames::ACK, &opaque));
        }
    }
    assert_eq!(faced.now, since + seconds(30));
}

#[test]
fn a_check_after_which_nothing_is_sent_does_not_delay_the_end_of_the_wait_for_a_stream() {
    // Streams are checked every 13 seconds.
    let mut faced = client(config(|config| config.set_response_timeout(Some(seconds(52)))));
    faced.says(&frames::settings(&[(3, 0)]));
    ask(&mut faced);
    faced.waits(seconds(29));
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.waits(seconds(1));
    assert_eq!(faced.connection.waiting_streams(), 0);
}

#[test]
fn the_wait_for_a_stream_begins_anew_once_no_request_waits() {
    let mut faced = client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    let given_up = faced.opens("GET", true);
    faced.waits(seconds(25));
    faced.connection.reset(given_up, ErrorCode::CANCEL).unwrap();
    faced.waits(seconds(10));
    assert_eq!(faced.connection.waiting_streams(), 0);
    ask(&mut faced);
    faced.waits(seconds(29));
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.waits(seconds(1));
    assert_eq!(faced.connection.waiting_streams(), 0);
}

#[test]
fn a_stream_that_is_allowed_now_and_then_lets_the_others_wait() {
    let mut faced = client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    for _ in 0..3 {
        ask(&mut faced);
    }
    for stream in [1, 3] {
        faced.waits(seconds(25));
        faced.says(&frames::settings(&[(3, 1)]));
        // A long response: the limit counts no time in which a stream is under way.
        faced.waits(seconds(100));
        faced.says(&frames::settings(&[(3, 0)]));
        faced.says(&response(stream, END_STREAM));
        faced.heard();
    }
    faced.waits(seconds(25));
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.waits(seconds(5));
    assert_eq!(faced.connection.waiting_streams(), 0);
    faced.lives();
}

#[test]
fn a_client_that_ends_its_half_is_answered_and_probed_and_given_up_in_time() {
    let mut faced = server(Config::default());
    faced.says(&[frames::get(1), frames::get(3), frames::post(5)].concat());
    faced.heard();
    assert!(!faced.connection.is_half_closed());
    assert!(
        faced.connection.end_of_transport(faced.now),
        "stream 5 is cut short"
    );
    let events = faced.events();
    let cut = |event: &Event| matches!(event, Event::Reset(error) if error.stream == id(5));
    assert!(events.iter().any(cut), "{events:?}");
    assert!(!faced.connection.wants_read() && faced.connection.is_half_closed());
    faced.listen();
    faced.answers(1);
    let heard = faced.heard();
    let of = |kind| {
        heard
            .iter()
            .filter(|frame| frame.header.frame_type == kind)
            .count()
    };
    assert_eq!(
        (
            of(FrameType::GOAWAY),
            of(FrameType::HEADERS),
            of(FrameType::RST_STREAM)
        ),
        (1, 1, 0),
        "{heard:?}"
    );
    faced.waits(seconds(5));
    assert_eq!(faced.heard_of(FrameType::PING).len(), 5);
    assert!(!faced.connection.is_drained(), "stream 3 is under way");
    faced.waits(seconds(24));
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(1));
    faced.ended_with(ErrorCode::NO_ERROR);
    faced.ended_by(ConnectionErrorKind::HalfCloseTimeout);
}

#[test]
fn the_time_for_answers_begins_when_the_client_ends_its_half_though_the_last_stream_was_named_before() {
    let mut faced = server(Config::default());
    faced.says(&frames::get(1));
    faced.connection.shutdown(faced.now);
    faced.says(&frames::ping(frames::ACK, &frames::SHUTDOWN));
    assert_eq!(faced.heard_of(FrameType::GOAWAY).len(), 2);
    faced.waits(seconds(20));
    assert!(!faced.connection.end_of_transport(faced.now));
    faced.waits(seconds(29));
    assert_eq!(faced.connection.error(), None);
    faced.waits(seconds(1));
    faced.ended_with(ErrorCode::NO_ERROR);
}

#[test]
fn the_transport_of_a_client_ends_once() {
    let mut faced = server(Config::default());
    faced.says(&frames::post(1));
    assert!(
        faced.connection.end_of_transport(faced.now),
        "the request is incomplete"
    );
    assert!(!faced.connection.end_of_transport(faced.now));
}
