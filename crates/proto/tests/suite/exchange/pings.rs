//! PING frames that the owner of a connection sends.

use std::time::Duration;

use fullbore_proto::{Config, ErrorCode, Event, FrameType, UsageError};

use crate::support::frames::{self, ACK};
use crate::support::pair::Pair;
use crate::support::path::PathConfig;
use crate::support::peer::Faced;

fn pongs(events: &[Event]) -> Vec<[u8; 8]> {
    let pongs = events.iter().filter_map(|event| match event {
        Event::Pong(opaque) => Some(*opaque),
        _ => None,
    });
    pongs.collect()
}

#[test]
fn a_ping_of_the_owner_is_answered_after_a_round_trip_on_either_side() {
    let path = PathConfig::delay_millis(10);
    let mut pair = Pair::new(Config::default(), Config::default(), path);
    pair.run();
    pair.client.take_events();
    pair.server.take_events();
    let start = pair.now;
    pair.client.connection.ping(*b"client's").unwrap();
    pair.server.connection.ping(*b"server's").unwrap();
    pair.run_for(Duration::from_millis(19));
    assert!(pongs(&pair.client.take_events()).is_empty());
    pair.run();
    assert_eq!(pair.now.since(start), Duration::from_millis(20));
    assert_eq!(pongs(&pair.client.take_events()), [*b"client's"]);
    assert_eq!(pongs(&pair.server.take_events()), [*b"server's"]);
    pair.assert_nothing_leaked();
}

#[test]
fn one_ping_of_the_owner_is_unanswered_at_a_time() {
    let mut faced = Faced::server(Config::default());
    faced.connection.ping(*b"the-1st!").unwrap();
    assert_eq!(
        faced.connection.ping(*b"the-2nd!"),
        Err(UsageError::PingUnanswered)
    );
    let heard = faced.heard_of(FrameType::PING);
    assert_eq!((heard.len(), &heard[0].payload[..]), (1, &b"the-1st!"[..]));
    faced.says(&frames::ping(ACK, b"the-2nd!"));
    assert!(pongs(&faced.events()).is_empty(), "it was never sent");
    faced.says(&frames::ping(ACK, b"the-1st!"));
    assert_eq!(pongs(&faced.events()), [*b"the-1st!"]);
    faced.says(&frames::ping(ACK, b"the-1st!"));
    assert!(pongs(&faced.events()).is_empty(), "it was answered before");
    faced.connection.ping(*b"the-2nd!").unwrap();
    faced.says(&frames::ping(ACK, b"the-2nd!"));
    assert_eq!(pongs(&faced.events()), [*b"the-2nd!"]);
    faced.lives();
}

#[test]
fn pings_of_the_connection_and_of_its_owner_are_never_confused() {
    let mut faced = Faced::server(Config::default());
    for own in [*b"roundtri", *b"areuthr?", frames::SHUTDOWN] {
        assert_eq!(faced.connection.ping(own), Err(UsageError::PingReserved));
    }
    assert!(faced.heard().is_empty());
    faced.connection.ping(*b"of owner").unwrap();
    assert!(faced.connection.measure_round_trip(faced.now));
    faced.connection.shutdown(faced.now);
    let heard = faced.heard();
    let sent = heard
        .iter()
        .filter(|frame| frame.header.frame_type == FrameType::PING);
    let sent: Vec<_> = sent.map(|frame| &frame.payload[..]).collect();
    assert_eq!(sent, [&b"of owner"[..], b"roundtri", &frames::SHUTDOWN]);
    faced.says(&frames::ping(ACK, b"roundtri"));
    assert!(pongs(&faced.events()).is_empty());
    faced.says(&frames::ping(ACK, b"of owner"));
    assert_eq!(pongs(&faced.events()), [*b"of owner"]);
    assert!(
        faced.heard().is_empty(),
        "the first GOAWAY is not known to have arrived"
    );
    faced.says(&frames::ping(ACK, &frames::SHUTDOWN));
    assert!(pongs(&faced.events()).is_empty());
    assert_eq!(faced.heard_of(FrameType::GOAWAY).len(), 1);
}

#[test]
fn a_failed_connection_sends_no_ping() {
    let mut faced = Faced::client(Config::default());
    faced.connection.abort(ErrorCode::NO_ERROR, "", faced.now);
    faced.heard();
    assert_eq!(
        faced.connection.ping(*b"anybody?"),
        Err(UsageError::ConnectionFailed)
    );
    assert!(faced.heard().is_empty());
}
