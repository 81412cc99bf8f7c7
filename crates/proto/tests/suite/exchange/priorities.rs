//! Who sends first (RFC 9218).

use fullbore_proto::FrameType;
use fullbore_proto::{Config, Priority, Scheduling};
use http::Request;

use crate::support::config;
use crate::support::pair::Pair;
use crate::support::path::PathConfig;

const LENGTH: u64 = 2_000_000;

/// A path whose rate makes the server choose: one frame fits the socket at a time.
fn narrow() -> PathConfig {
    PathConfig {
        nanos_per_byte: 80,
        buffer: 1,
        ..PathConfig::delay_millis(5)
    }
}

/// The server's owner keeps more queued than one write takes, so that no other stream fills a gap.
fn pair(server: Config) -> Pair {
    let mut pair =
        Pair::with_paths(Config::default(), server, PathConfig::delay_millis(5), narrow()).with_apps();
    pair.server.app().low_water = 1 << 20;
    pair.run();
    pair
}

fn get_with(pair: &mut Pair, priority: &str) -> u32 {
    get_with_lines(pair, &[priority])
}

fn get_with_lines(pair: &mut Pair, lines: &[&str]) -> u32 {
    let mut request = Request::get(format!("http://example.com/{LENGTH}"));
    for line in lines {
        request = request.header("priority", *line);
    }
    let request = request.body(());
    pair.client
        .connection
        .open(request.unwrap(), true)
        .unwrap()
        .value()
}

/// The streams in the order in which they ended, from the server's side.
fn order(pair: &Pair) -> Vec<u32> {
    let ended = pair.server.tap.frames.iter().filter(|seen| seen.ends_stream());
    ended.map(|seen| seen.stream()).collect()
}

/// How often the stream of the DATA frames changes.
fn turns(pair: &Pair) -> usize {
    let streams: Vec<_> = pair
        .server
        .tap
        .of(FrameType::DATA)
        .map(|seen| seen.stream())
        .collect();
    streams.windows(2).filter(|two| two[0] != two[1]).count()
}

#[test]
fn responses_come_one_after_the_other_by_default() {
    let mut pair = pair(Config::default());
    for _ in 0..4 {
        pair.get(LENGTH);
    }
    pair.run();
    assert_eq!(order(&pair), [1, 3, 5, 7]);
    assert_eq!(turns(&pair), 3);
    pair.assert_nothing_leaked();
}

#[test]
fn responses_share_where_the_server_was_told_to_be_fair() {
    let mut pair = pair(config(|config| config.set_scheduling(Scheduling::Fair)));
    for _ in 0..4 {
        pair.get(LENGTH);
    }
    pair.run();
    let frames = pair.server.tap.of(FrameType::DATA).count();
    assert!(turns(&pair) > frames * 9 / 10, "{} of {frames}", turns(&pair));
}

#[test]
fn the_priority_field_puts_the_urgent_first_and_lets_incremental_ones_share() {
    let mut pair = pair(Config::default());
    let idle = get_with(&mut pair, "u=7");
    let usual = get_with(&mut pair, "u=3");
    let urgent = get_with(&mut pair, "u=0");
    pair.run();
    assert_eq!(order(&pair), [urgent, usual, idle]);

    let mut pair = self::pair(Config::default());
    get_with(&mut pair, "i");
    get_with(&mut pair, "u=3, i");
    pair.run();
    let frames = pair.server.tap.of(FrameType::DATA).count();
    assert!(turns(&pair) > frames * 9 / 10);
}

#[test]
fn several_priority_fields_are_one_list_of_which_the_last_value_counts() {
    let mut pair = pair(Config::default());
    let usual = pair.get(LENGTH).value();
    let two = get_with_lines(&mut pair, &["u=7", "u=2"]);
    let three = get_with_lines(&mut pair, &["u=7", "i", "u=1"]);
    let four = get_with_lines(&mut pair, &["u=7", "i", "u=6", "u=0"]);
    pair.run();
    assert_eq!(order(&pair), [four, three, two, usual]);
    pair.assert_nothing_leaked();
}

#[test]
fn priority_update_moves_a_response_that_is_under_way() {
    let mut pair = pair(Config::default());
    let streams: Vec<_> = (0..3).map(|_| pair.get(LENGTH)).collect();
    pair.run_while(|pair| pair.client.app().received == 0);
    let last = streams[2];
    let urgent = Priority::new(0, false).unwrap();
    pair.client.connection.send_priority_update(last, urgent).unwrap();
    pair.run();
    assert_eq!(order(&pair), [5, 1, 3]);
    assert_eq!(pair.client.tap.of(FrameType::PRIORITY_UPDATE).count(), 1);
    pair.assert_nothing_leaked();
}

#[test]
fn a_server_may_overrule_the_client() {
    let mut pair = pair(Config::default());
    let streams: Vec<_> = (0..3).map(|_| pair.get(LENGTH)).collect();
    pair.run_while(|pair| pair.server.app().talks.len() < 3);
    let last = Priority::new(7, false).unwrap();
    pair.server.connection.prioritize(streams[0], last).unwrap();
    pair.run();
    assert_eq!(order(&pair), [3, 5, 1]);
}

#[test]
fn a_client_sends_its_own_bodies_by_the_priority_that_it_named() {
    let up = narrow();
    let mut pair = Pair::with_paths(
        Config::default(),
        Config::default(),
        up,
        PathConfig::delay_millis(5),
    );
    pair = pair.with_apps();
    pair.run();
    pair.post(LENGTH, 0);
    let request = Request::post("http://example.com/0")
        .header("priority", "u=1")
        .body(());
    let end = &mut pair.client;
    let urgent = end.connection.open(request.unwrap(), false).unwrap();
    let app = end.app.as_mut().unwrap();
    app.send_body(&mut end.connection, urgent, LENGTH, None);
    pair.run();
    let first = pair.client.tap.of(FrameType::DATA).next().unwrap();
    assert_eq!(first.stream(), urgent.value());
    pair.assert_nothing_leaked();
}
