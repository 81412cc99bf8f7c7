//! Law 8, stream by stream: what each waited for, to the nanosecond, and what its windows and queues hold.

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::FrameType;
use fullbore_proto::{
    Config, Connection, ErrorCode, Ledger, Stall, StreamId, StreamReport, Time, WindowSize,
};

use crate::support::app::Pace;
use crate::support::pair::{End, Pair};
use crate::support::path::PathConfig;
use crate::support::peer::{Faced, id};
use crate::support::{fixed, frames};

/// One way.
const DELAY: Duration = Duration::from_millis(50);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn windows(stream: u32, connection: u32) -> Config {
    fixed(|config| {
        config.set_stream_window(WindowSize::new(stream).unwrap());
        config.set_connection_window(WindowSize::new(connection).unwrap());
    })
}

/// Past the handshake, over a path without a limit to its rate; and when that was.
fn pair(client: Config, server: Config) -> (Pair, Time) {
    let mut pair = Pair::new(client, server, PathConfig::delay_millis(50)).with_apps();
    pair.run();
    let now = pair.now;
    (pair, now)
}

/// The report of a stream, whose ledgers leave out no moment of it since `since`.
#[track_caller]
fn report(end: &End, stream: StreamId, since: Time, now: Time) -> StreamReport {
    let report = end.connection.stream_report(stream, now);
    let report = report.expect("the stream is gone");
    for ledger in [report.sending, report.receiving] {
        let all: Duration = Stall::ALL.iter().map(|&state| ledger.spent(state)).sum();
        assert_eq!(all, now.since(since), "{ledger:?}");
    }
    report
}

/// Asserts that all the time was spent so, and none otherwise.
#[track_caller]
fn assert_spent(ledger: &Ledger, expected: &[(Stall, Duration)]) {
    for state in Stall::ALL {
        let due = expected.iter().find(|&&(one, _)| one == state);
        let due = due.map_or(Duration::ZERO, |&(_, spent)| spent);
        assert_eq!(ledger.spent(state), due, "{state:?} of {ledger:?}");
    }
}

#[test]
fn a_stream_that_its_window_holds_says_for_how_long() {
    let (mut pair, start) = pair(windows(65_535, 16 << 20), Config::default());
    let stream = pair.get(1 << 50);
    pair.run_until(start + millis(430));
    let sent = report(&pair.server, stream, start + DELAY, pair.now);
    assert_spent(&sent.sending, &[(Stall::StreamWindow, millis(380))]);
    // A refill that is not worth a frame yet waits for the next (law 2), and each ends at a multiple of 256.
    let four_windows = 4 * 64_000..=4 * 65_535;
    assert!(four_windows.contains(&sent.sent_bytes), "{sent:?}");
    assert_eq!(sent.send_window, 0);
    assert!(sent.queued > 0);
    let received = report(&pair.client, stream, start, pair.now);
    // Its head takes a round trip; so does each window.
    let expected = [(Stall::Peer, millis(100)), (Stall::StreamWindow, millis(330))];
    assert_spent(&received.receiving, &expected);
    assert_spent(&received.sending, &[(Stall::Peer, millis(430))]);
    assert_eq!(received.received_bytes, sent.sent_bytes);
    assert_eq!((received.receive_window, received.unread), (65_535, 0));
    assert!(received.receive_window_remaining > 64_000, "{received:?}");
}

#[test]
fn streams_that_the_connection_s_window_holds_say_so_all_of_them() {
    let (mut pair, start) = pair(windows(16 << 20, 65_535), Config::default());
    let streams = [pair.get(1 << 50), pair.get(1 << 50)];
    pair.run_until(start + millis(430));
    for stream in streams {
        let sent = report(&pair.server, stream, start + DELAY, pair.now);
        assert_spent(&sent.sending, &[(Stall::ConnectionWindow, millis(380))]);
    }
    let received = report(&pair.client, streams[0], start, pair.now);
    let expected = [(Stall::Peer, millis(100)), (Stall::ConnectionWindow, millis(330))];
    assert_spent(&received.receiving, &expected);
}

#[test]
fn a_stream_that_waits_for_another_s_end_says_so() {
    let (mut pair, start) = pair(
        Config::default(),
        fixed(|config| config.set_max_concurrent_streams(1)),
    );
    pair.get(1_000);
    let second = pair.get(1 << 50);
    pair.run_until(start + millis(250));
    let waited = report(&pair.client, second, start, pair.now);
    let expected = [(Stall::StreamCount, millis(100)), (Stall::Peer, millis(150))];
    assert_spent(&waited.sending, &expected);
    // Its first window was full after a round trip.
    let windows = (Stall::StreamWindow, millis(50));
    let expected = [expected[0], (Stall::Peer, millis(100)), windows];
    assert_spent(&waited.receiving, &expected);
}

#[test]
fn a_stream_that_was_reset_keeps_nobody_waiting() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced
        .connection
        .send_response(id(1), &http::Response::new(()), false)
        .unwrap();
    faced.heard();
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    faced.connection.socket_idle(faced.now);
    faced.now = faced.now + millis(50);
    let ledger = faced.connection.sending_ledger(faced.now);
    assert_spent(&ledger, &[(Stall::Idle, millis(50))]);
}

#[test]
fn an_upload_whose_application_takes_its_time_says_so() {
    let (mut pair, start) = pair(Config::default(), Config::default());
    let request = http::Request::post("http://example.com/1000000000").body(());
    let stream = pair.client.connection.open(request.unwrap(), false).unwrap();
    pair.run_until(start + millis(70));
    pair.client.connection.advance_time(pair.now);
    let data = Bytes::from(vec![7; 1_000]);
    pair.client.app().compares = false;
    pair.server.app().compares = false;
    pair.client.connection.send_data(stream, data, true).unwrap();
    pair.run_until(start + millis(90));
    let sent = report(&pair.client, stream, start, pair.now);
    let expected = [(Stall::Application, millis(70)), (Stall::Peer, millis(20))];
    assert_spent(&sent.sending, &expected);
    assert_eq!((sent.sent_bytes, sent.queued), (1_000, 0));
}

#[test]
fn a_body_that_nobody_reads_says_so_and_how_much_lies_there() {
    let (mut pair, start) = pair(windows(65_535, 16 << 20), Config::default());
    pair.client.app().pace = Pace::Never;
    let [stalled, whole] = [pair.get(1 << 50), pair.get(1_000)];
    pair.run_until(start + millis(600));
    let first = report(&pair.client, stalled, start, pair.now);
    let expected = [(Stall::Peer, millis(100)), (Stall::Application, millis(500))];
    assert_spent(&first.receiving, &expected);
    assert_eq!((first.unread, first.receive_window_remaining), (65_535, 0));
    // So does one of which all has come.
    let second = report(&pair.client, whole, start, pair.now);
    assert_spent(&second.receiving, &expected);
    assert_eq!(second.unread, 1_000);
}

#[test]
fn after_a_window_has_opened_it_is_the_peer_that_is_waited_for() {
    let at = |count| Time::ZERO + millis(count);
    let mut faced = Faced::silent_client(windows(65_535, 16 << 20));
    // The answer to our SETTINGS takes 100 ms, and so does all that a WINDOW_UPDATE lets the peer send.
    faced.now = at(100);
    let mut faced = faced.greeted();
    let stream = faced.opens("GET", true);
    faced.now = at(200);
    let head = frames::response_block("200", &[]);
    faced.says(&frames::headers(1, frames::END_HEADERS, &head));
    for length in [16_384, 16_384, 16_384, 16_383] {
        faced.says(&frames::data(1, 0, &vec![0; length]));
    }
    faced.reads(1);
    assert_eq!(faced.heard_of(FrameType::WINDOW_UPDATE).len(), 1);
    let expected = [
        (Stall::Idle, millis(100)),
        (Stall::Peer, millis(250)),
        (Stall::StreamWindow, millis(100)),
    ];
    // As it is judged without anything that came, and when something has.
    for frame in [vec![], frames::data(1, 0, b"late")] {
        faced.now = at(450);
        faced.says(&frame);
        let report = faced.connection.stream_report(stream, faced.now).unwrap();
        assert_spent(&report.receiving, &expected[1..]);
        assert_spent(&faced.connection.receiving_ledger(faced.now), &expected);
    }
}

#[test]
fn requests_that_the_owner_keeps_back_are_told_as_a_lack_of_streams() {
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut faced = Faced::client(Config::default());
    for (second, kept_back) in [(1, true), (2, true), (4, false), (7, false)] {
        faced.connection.set_requests_kept_back(kept_back, at(second));
    }
    let expected = [
        (Stall::Idle, Duration::from_secs(1 + 4)),
        (Stall::StreamCount, Duration::from_secs(3)),
    ];
    assert_spent(&faced.connection.receiving_ledger(at(8)), &expected);
}

#[test]
fn a_request_that_is_not_answered_yet_waits_for_the_application() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::get(1));
    let second = Duration::from_secs(1);
    let report = faced
        .connection
        .stream_report(id(1), Time::ZERO + second)
        .unwrap();
    assert_spent(&report.sending, &[(Stall::Application, second)]);
    assert_spent(&report.receiving, &[(Stall::Idle, second)]);
}

#[test]
fn a_stream_that_was_reset_waits_for_nothing_any_more() {
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.now = at(1);
    faced.says(&frames::reset(1, ErrorCode::CANCEL));
    let report = faced.connection.stream_report(id(1), at(3)).unwrap();
    let second = Duration::from_secs(1);
    assert_spent(
        &report.sending,
        &[(Stall::Application, second), (Stall::Idle, 2 * second)],
    );
    assert_spent(
        &report.receiving,
        &[(Stall::Peer, second), (Stall::Idle, 2 * second)],
    );
}

#[test]
fn what_sending_waits_for_is_judged_by_64_streams() {
    for (whole, state) in [(63, Stall::Application), (64, Stall::Peer)] {
        let mut faced = Faced::client(Config::default());
        for _ in 0..whole {
            faced.opens("GET", true);
        }
        faced.opens("POST", false);
        let now = Time::ZERO + Duration::from_secs(1);
        assert_spent(
            &faced.connection.sending_ledger(now),
            &[(state, now.since(Time::ZERO))],
        );
    }
}

#[test]
fn what_receiving_waits_for_is_judged_by_64_streams() {
    let now = Time::ZERO + Duration::from_secs(1);
    let head = frames::response_block("200", &[]);
    let judged = |faced: &Faced, state| {
        let spent = [(state, now.since(Time::ZERO))];
        assert_spent(&faced.connection.receiving_ledger(now), &spent);
    };
    for (others, state) in [(63, Stall::Peer), (64, Stall::Idle)] {
        let mut faced = Faced::client(Config::default());
        for _ in 0..others {
            let stream = faced.opens("GET", true).value();
            faced.says(&frames::headers(
                stream,
                frames::END_HEADERS | frames::END_STREAM,
                &head,
            ));
        }
        faced.opens("GET", true);
        judged(&faced, state);
    }
    // The windows of the others are closed, because nobody reads.
    for (others, state) in [(63, Stall::Peer), (64, Stall::Application)] {
        let mut faced = Faced::client(windows(1_000, 16 << 20));
        for _ in 0..others {
            let stream = faced.opens("GET", true).value();
            faced.says(&frames::headers(stream, frames::END_HEADERS, &head));
            faced.says(&frames::data(stream, 0, &[7; 1_000]));
        }
        let stream = faced.opens("GET", true).value();
        faced.says(&frames::headers(stream, frames::END_HEADERS, &head));
        judged(&faced, state);
    }
}

#[test]
fn data_that_comes_less_than_4_ms_behind_other_data_flows() {
    let head = frames::response_block("200", &[]);
    for (nanos, state) in [(3_999_999, Stall::Moving), (4_000_000, Stall::Peer)] {
        let mut faced = Faced::client(Config::default());
        let stream = faced.opens("GET", true);
        faced.says(&frames::headers(1, frames::END_HEADERS, &head));
        faced.says(&frames::data(1, 0, b"first"));
        faced.now = Time::from_nanos(nanos);
        faced.says(&frames::data(1, 0, b"second"));
        let expected = [(state, Duration::from_nanos(nanos))];
        assert_spent(&faced.connection.receiving_ledger(faced.now), &expected);
        let report = faced.connection.stream_report(stream, faced.now).unwrap();
        assert_spent(&report.receiving, &expected);
    }
}

/// A client that has asked for stream 1, and gets these frames, each at its time in milliseconds.
fn gets(frames: &[(u64, Vec<u8>)]) -> Faced {
    let mut faced = Faced::client(Config::default());
    faced.opens("GET", true);
    for (at, frame) in frames {
        faced.now = Time::ZERO + millis(*at);
        faced.says(frame);
    }
    faced
}

fn head(flags: u8) -> Vec<u8> {
    frames::headers(
        1,
        frames::END_HEADERS | flags,
        &frames::response_block("200", &[]),
    )
}

/// Asserts that the connection and its stream spent their time alike.
#[track_caller]
fn both_spent(faced: &Faced, at: u64, expected: &[(Stall, Duration)]) {
    let now = Time::ZERO + millis(at);
    assert_spent(&faced.connection.receiving_ledger(now), expected);
    let report = faced.connection.stream_report(id(1), now).unwrap();
    assert_spent(&report.receiving, expected);
}

#[test]
fn a_response_that_is_whole_waits_for_its_reader_and_then_for_nothing() {
    // Without a body there is nothing to read.
    let empty = gets(&[(1_000, head(frames::END_STREAM))]);
    both_spent(
        &empty,
        3_000,
        &[(Stall::Peer, millis(1_000)), (Stall::Idle, millis(2_000))],
    );
    let mut whole = gets(&[
        (1_000, head(0)),
        (1_000, frames::data(1, frames::END_STREAM, b"body")),
    ]);
    let mut chunks = Default::default();
    whole.connection.read(id(1), &mut chunks).unwrap();
    let until_then = [(Stall::Peer, millis(1_000)), (Stall::Application, millis(2_000))];
    both_spent(&whole, 3_000, &until_then);
    whole.now = Time::ZERO + millis(3_000);
    whole.connection.advance_time(whole.now);
    whole.connection.release_credit(id(1), 4);
    both_spent(
        &whole,
        7_000,
        &[until_then[0], until_then[1], (Stall::Idle, millis(4_000))],
    );
}

#[test]
fn trailers_end_the_wait_for_the_peer() {
    let trailers = frames::headers(
        1,
        frames::END_HEADERS | frames::END_STREAM,
        &frames::block(&[("x-a", "1")]),
    );
    let faced = gets(&[(0, head(0)), (1_000, trailers)]);
    let report = faced
        .connection
        .stream_report(id(1), Time::ZERO + millis(3_000))
        .unwrap();
    assert_spent(
        &report.receiving,
        &[(Stall::Peer, millis(1_000)), (Stall::Idle, millis(2_000))],
    );
}

#[test]
fn the_wait_for_a_head_is_for_the_peer_however_short_it_is() {
    let faced = gets(&[(1, head(0)), (2, frames::data(1, 0, b"body"))]);
    let report = faced
        .connection
        .stream_report(id(1), Time::ZERO + millis(2))
        .unwrap();
    assert_spent(
        &report.receiving,
        &[(Stall::Peer, millis(1)), (Stall::Moving, millis(1))],
    );
}

#[test]
fn a_reader_that_takes_what_has_come_changes_nothing_of_the_wait_for_more() {
    let mut faced = gets(&[(0, head(0)), (0, frames::data(1, 0, b"some"))]);
    faced.now = Time::ZERO + millis(2);
    faced.connection.advance_time(faced.now);
    faced.reads(1);
    faced.now = Time::ZERO + millis(5);
    faced.says(&frames::data(1, 0, b"more"));
    both_spent(&faced, 5, &[(Stall::Peer, millis(5))]);
}

#[test]
fn a_frame_that_comes_in_pieces_flows() {
    let frame = frames::data(1, 0, &[7; 30]);
    let mut pieces = vec![(0, head(0)), (0, frame[..10].to_vec())];
    pieces.extend((1..10).map(|piece| (3 * piece, frame[10..][..3].to_vec())));
    both_spent(&gets(&pieces), 27, &[(Stall::Moving, millis(27))]);
}

/// A server with a body to send, of which the window of the stream leaves 99 octets for the last frame.
fn before_a_tiny_frame() -> Faced {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 65_535 + 100)]));
    faced.says(&frames::window_update(0, 1 << 20));
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    let body = Bytes::from(vec![7; 200_000]);
    faced.connection.send_data(id(1), body, true).unwrap();
    faced
}

#[test]
fn a_tiny_frame_that_is_held_back_waits_for_the_window_of_its_stream() {
    let mut faced = before_a_tiny_frame();
    faced.heard();
    let spent = |faced: &Faced, micros| {
        let now = Time::ZERO + Duration::from_micros(micros);
        let report = faced.connection.stream_report(id(1), now).unwrap();
        assert_spent(&report.sending, &[(Stall::StreamWindow, now.since(Time::ZERO))]);
    };
    spent(&faced, 500);
    faced.now = Time::ZERO + millis(1);
    faced.connection.handle_timeout(faced.now);
    faced.heard();
    spent(&faced, 1_000_000);
}

#[test]
fn a_connection_that_failed_waits_for_nothing() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::settings(&[(4, 0)]));
    faced.says(&frames::get(1));
    let response = http::Response::new(());
    faced.connection.send_response(id(1), &response, false).unwrap();
    faced
        .connection
        .send_data(id(1), Bytes::from_static(b"body"), true)
        .unwrap();
    faced.listen();
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    faced.now = at(1);
    // WINDOW_UPDATE of nothing (RFC 9113 section 6.9).
    faced.says(&frames::window_update(0, 0));
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    let second = Duration::from_secs(1);
    assert_spent(
        &faced.connection.report(at(3)).sending,
        &[(Stall::StreamWindow, second), (Stall::Idle, 2 * second)],
    );
}

#[test]
fn a_connection_that_failed_while_a_frame_was_held_back_waits_for_nothing() {
    let mut faced = before_a_tiny_frame();
    faced.listen();
    faced.connection.socket_idle(faced.now);
    assert!(
        faced.connection.next_deadline().is_some(),
        "99 bytes are held back"
    );
    faced.connection.abort(ErrorCode::NO_ERROR, "", faced.now);
    faced.listen();
    faced.connection.socket_idle(faced.now);
    let spent = faced.connection.report(faced.now + millis(1)).sending;
    assert_spent(&spent, &[(Stall::Idle, millis(1))]);
}

#[test]
fn a_new_connection_has_counted_nothing_but_what_it_says_first() {
    let client = Connection::client(Config::default(), Time::ZERO);
    let server = Connection::server(Config::default(), Time::ZERO);
    for connection in [client, server] {
        let report = connection.report(Time::ZERO);
        let stats = report.stats;
        assert_eq!((stats.received_bytes, stats.received_frames.total()), (0, 0));
        assert_eq!((stats.received_data_bytes, stats.sent_data_bytes), (0, 0));
        assert_eq!(stats.sent_bytes, 0, "nothing was taken yet");
        let sent = |frame_type| stats.sent_frames.of(frame_type);
        assert_eq!(
            (sent(FrameType::SETTINGS), sent(FrameType::WINDOW_UPDATE)),
            (1, 1)
        );
        assert_eq!(stats.sent_frames.total(), 2);
        assert_eq!((stats.connection_refills, stats.stream_refills), (1, 0));
        assert_eq!((report.streams, report.waiting_streams), (0, 0));
        assert_eq!(
            (report.sending.busy(), report.receiving.busy()),
            (Duration::ZERO, Duration::ZERO)
        );
        assert_eq!((connection.work(), connection.streams_touched()), (0, 0));
        assert_eq!((connection.progress(), connection.unreleased()), (0, 0));
    }
}

#[test]
fn a_connection_waits_for_streams_if_one_request_does() {
    let mut faced = Faced::client(Config::default());
    faced.says(&frames::settings(&[(3, 0)]));
    faced.opens("GET", true);
    assert_eq!(faced.connection.waiting_streams(), 1);
    faced.connection.socket_idle(faced.now);
    let report = faced.connection.report(faced.now + millis(5));
    for ledger in [report.sending, report.receiving] {
        assert_spent(&ledger, &[(Stall::StreamCount, millis(5))]);
    }
}

#[test]
fn the_bytes_of_an_error_and_those_behind_it_count_as_received() {
    let mut faced = Faced::server(Config::default());
    let before = faced.connection.stats().received_bytes;
    let octets = [frames::get(1), frames::window_update(0, 0), frames::get(3)].concat();
    faced.says(&octets);
    faced.ended_with(ErrorCode::PROTOCOL_ERROR);
    let received = faced.connection.stats().received_bytes - before;
    assert_eq!(received, octets.len() as u64);
}

#[test]
fn what_was_read_is_unreleased_until_its_credit_returns() {
    let mut faced = Faced::server(Config::default());
    faced.says(&frames::post(1));
    faced.says(&frames::data(1, 0, &[7; 100]));
    faced.connection.read(id(1), &mut Default::default()).unwrap();
    assert_eq!(faced.connection.unreleased(), 100);
    faced.connection.release_credit(id(1), 99);
    assert_eq!(faced.connection.unreleased(), 1);
}
