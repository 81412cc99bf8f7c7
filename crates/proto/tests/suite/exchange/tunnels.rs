//! CONNECT and extended CONNECT (RFC 9113 section 8.5, RFC 8441).

use std::time::Duration;

use bytes::Bytes;
use fullbore_proto::{
    Config, ErrorCode, Event, FrameType, Protocol, ReadState, StreamErrorKind, StreamId, UsageError,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};

use crate::support::config;
use crate::support::frames;
use crate::support::pair::{End, Pair};
use crate::support::peer::{Faced, Heard};

fn read(end: &mut End, stream: StreamId) -> (Vec<u8>, ReadState) {
    let mut chunks = Default::default();
    let state = end.connection.read(stream, &mut chunks).unwrap();
    let body: Vec<u8> = chunks.into_iter().flatten().collect();
    end.connection.release_credit(stream, body.len() as u64);
    (body, state)
}

/// A pair whose server has received CONNECT.
fn asked() -> (Pair, StreamId) {
    let mut pair = Pair::connected();
    let request = Request::connect("example.com:443").body(()).unwrap();
    let stream = pair.client.connection.open(request, false).unwrap();
    pair.run();
    (pair, stream)
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("1"))])
}

#[test]
fn connect_makes_a_tunnel_whose_halves_end_one_by_one() {
    let (mut pair, stream) = asked();
    let events = pair.server.take_events();
    let Some(Event::Request {
        request, end: false, ..
    }) = events.last()
    else {
        panic!("{events:?}")
    };
    assert_eq!(request.method(), "CONNECT");
    assert_eq!(request.uri(), "example.com:443");
    let server = &mut pair.server.connection;
    // A length says nothing of a tunnel.
    let response = Response::builder()
        .header("content-length", "1")
        .body(())
        .unwrap();
    server.send_response(stream, &response, false).unwrap();
    pair.run();
    pair.client
        .connection
        .send_data(stream, Bytes::from_static(b"ping"), true)
        .unwrap();
    pair.run();
    assert_eq!(read(&mut pair.server, stream), (b"ping".to_vec(), ReadState::End));
    pair.server
        .connection
        .send_data(stream, Bytes::from_static(b"pong"), false)
        .unwrap();
    pair.run();
    assert_eq!(
        read(&mut pair.client, stream),
        (b"pong".to_vec(), ReadState::Open)
    );
    pair.server
        .connection
        .send_data(stream, Bytes::new(), true)
        .unwrap();
    pair.run();
    assert_eq!(read(&mut pair.client, stream), (vec![], ReadState::End));
    pair.client.connection.release(stream);
    pair.server.connection.release(stream);
    pair.assert_nothing_leaked();
}

#[test]
fn connect_that_is_refused_is_an_ordinary_response() {
    let (mut pair, stream) = asked();
    let response = Response::builder()
        .status(403)
        .header("content-length", "2")
        .body(())
        .unwrap();
    let server = &mut pair.server.connection;
    server.send_response(stream, &response, false).unwrap();
    server.send_data(stream, Bytes::from_static(b"no"), true).unwrap();
    server.release(stream);
    pair.run();
    assert_eq!(read(&mut pair.client, stream), (b"no".to_vec(), ReadState::End));
    pair.client.connection.release(stream);
    pair.run();
    pair.assert_nothing_leaked();
}

/// RFC 9113 section 8.5. Both halves: a server's, and a client's once the tunnel exists.
#[test]
fn headers_within_a_tunnel_are_an_error_of_the_stream() {
    for client_sends in [true, false] {
        let (mut pair, stream) = asked();
        let server = &mut pair.server.connection;
        server.send_response(stream, &Response::new(()), false).unwrap();
        pair.run();
        pair.client.take_events();
        pair.server.take_events();
        let sender = match client_sends {
            true => &mut pair.client,
            false => &mut pair.server,
        };
        sender.connection.send_trailers(stream, trailers()).unwrap();
        pair.run();
        let receiver = match client_sends {
            true => &mut pair.server,
            false => &mut pair.client,
        };
        let events = receiver.take_events();
        assert!(
            matches!(events.last(), Some(Event::Reset(error)) if error.code == ErrorCode::PROTOCOL_ERROR),
            "{client_sends}: {events:?}"
        );
        pair.client.connection.release(stream);
        pair.server.connection.release(stream);
        pair.run();
        pair.assert_nothing_leaked();
    }
}

#[test]
fn the_response_that_refuses_connect_may_have_trailers() {
    let (mut pair, stream) = asked();
    let response = Response::builder().status(403).body(()).unwrap();
    let server = &mut pair.server.connection;
    server.send_response(stream, &response, false).unwrap();
    server.send_trailers(stream, trailers()).unwrap();
    server.release(stream);
    pair.run();
    assert_eq!(
        read(&mut pair.client, stream),
        (vec![], ReadState::Trailers(trailers()))
    );
    pair.client.connection.release(stream);
    pair.run();
    pair.assert_nothing_leaked();
}

fn websocket() -> Request<()> {
    let mut request = Request::connect("http://example.com/chat").body(()).unwrap();
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    request
}

#[test]
fn extended_connect_carries_its_protocol_where_the_server_allows_it() {
    let server = config(|config| config.set_enable_connect_protocol(true));
    let mut pair = Pair::connected_with(Config::default(), server);
    assert!(pair.client.connection.peer_allows_extended_connect());
    let stream = pair.client.connection.open(websocket(), false).unwrap();
    pair.run();
    let events = pair.server.take_events();
    let Some(Event::Request { request, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(request.uri(), "http://example.com/chat");
    let protocol = request.extensions().get::<Protocol>();
    assert_eq!(protocol, Some(&Protocol::from_static("websocket")));
    pair.server
        .connection
        .send_response(stream, &Response::new(()), false)
        .unwrap();
    pair.server
        .connection
        .send_data(stream, Bytes::from_static(b"hi"), false)
        .unwrap();
    pair.run();
    assert_eq!(read(&mut pair.client, stream).0, b"hi");
    pair.client.connection.release(stream);
    pair.run();
    pair.server.connection.release(stream);
    pair.assert_nothing_leaked();
}

#[test]
fn extended_connect_waits_for_settings_and_what_comes_after_it_leaves_in_order() {
    let mut client = Faced::silent_client(Config::default());
    let stream = client.connection.open(websocket(), false).unwrap();
    let sent = client
        .connection
        .send_data(stream, Bytes::from_static(b"hi"), false);
    assert_eq!(sent, Ok(()));
    client.opens_loudly("GET");
    let early = client.heard();
    assert!(early.iter().all(|frame| frame.stream() == 0), "{early:?}");
    client.says(&frames::settings(&[(8, 1)]));
    let sent = client.heard();
    let kinds: Vec<_> = sent
        .iter()
        .filter(|frame| frame.stream() > 0)
        .map(|frame| (frame.stream(), frame.header.frame_type))
        .collect();
    let expected = [
        (1, FrameType::HEADERS),
        (3, FrameType::HEADERS),
        (1, FrameType::DATA),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn extended_connect_that_waits_for_settings_is_not_denied_a_stream() {
    let limit = Duration::from_secs(1);
    let config = config(|config| config.set_stream_wait_timeout(Some(limit)));
    let mut client = Faced::silent_client(config);
    client.connection.open(websocket(), true).unwrap();
    client.now = client.now + 5 * limit;
    client.connection.handle_timeout(client.now);
    let events = client.events();
    assert!(events.is_empty(), "{events:?}");
    client.says(&frames::settings(&[(8, 1)]));
    let heads = client.heard_of(FrameType::HEADERS);
    assert_eq!(heads.len(), 1, "{heads:?}");
}

#[test]
fn extended_connect_is_not_sent_to_a_server_whose_settings_do_not_allow_it() {
    let mut client = Faced::silent_client(Config::default());
    let stream = client.connection.open(websocket(), false).unwrap();
    client.opens_loudly("GET");
    client.says(&frames::settings(&[]));
    let events = client.events();
    let reset = events.iter().find_map(|event| match event {
        Event::Reset(error) => Some((error.stream, error.kind())),
        _ => None,
    });
    assert_eq!(
        reset,
        Some((stream, StreamErrorKind::ExtendedConnect)),
        "{events:?}"
    );
    let again = client.connection.open(websocket(), false);
    assert_eq!(again, Err(UsageError::ExtendedConnect));
    let streams: Vec<_> = client.heard().iter().map(Heard::stream).collect();
    assert!(streams.contains(&3) && !streams.contains(&1), "{streams:?}");
}

#[test]
fn extended_connect_that_was_not_allowed_is_malformed() {
    let mut server = Faced::server(Config::default());
    let fields = [
        (":method", "CONNECT"),
        (":scheme", "http"),
        (":authority", "example.com"),
        (":path", "/chat"),
        (":protocol", "websocket"),
    ];
    let block = frames::block(&fields);
    server.says(&frames::headers(1, 4, &block));
    let resets = server.heard_of(FrameType::RST_STREAM);
    let codes: Vec<_> = resets
        .iter()
        .map(|frame| (frame.stream(), frame.word(0)))
        .collect();
    assert_eq!(codes, [(1, ErrorCode::PROTOCOL_ERROR.0)]);
}
