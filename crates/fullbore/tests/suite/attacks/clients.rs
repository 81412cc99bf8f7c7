//! The same against a client: servers that it does not control.

use std::sync::Arc;

use fullbore::client::handshake;
use fullbore::rustls::pki_types::ServerName;
use fullbore::tls::{self, Roots};
use fullbore::{ErrorCode, ErrorKind};
use tokio::io::AsyncWriteExt;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::attacks::attacker::{
    DATA, GOAWAY, HEADERS, PING, PRIORITY, SETTINGS, WINDOW_UPDATE, block, frame,
};
use crate::attacks::site::{LIMIT, Transport, limited};
use crate::support::{Peer, frames, get, soon};

/// Both ends of a transport.
async fn ends_of(tls: bool) -> (Box<dyn Transport>, Box<dyn Transport>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    if !tls {
        return (Box::new(near), Box::new(far));
    }
    let signed = tls::self_signed(&["localhost"]).expect("a certificate");
    let (pem, key) = (signed.cert_pem.as_bytes(), signed.key_pem.as_bytes());
    let server = tls::server_config(pem, key).expect("a configuration");
    let client = tls::client_config(Roots::Pem(pem.to_vec())).expect("a configuration");
    let name = ServerName::try_from("localhost").expect("a name");
    let (near, far) = soon(async {
        tokio::join!(
            TlsConnector::from(Arc::new(client)).connect(name, near),
            TlsAcceptor::from(Arc::new(server)).accept(far),
        )
    })
    .await;
    (
        Box::new(near.expect("a handshake")),
        Box::new(far.expect("a handshake")),
    )
}

/// A server that takes a request and then says these octets: the connection ends with this code, and the request with it.
async fn ends(octets: Vec<u8>, code: ErrorCode) {
    for tls in [false, true] {
        ends_over(ends_of(tls).await, &octets, code).await;
    }
}

async fn ends_over((near, far): (Box<dyn Transport>, Box<dyn Transport>), octets: &[u8], code: ErrorCode) {
    let (sender, connection) = handshake(near, limited());
    let task = tokio::spawn(connection);
    let response = tokio::spawn(sender.send(get("/")));
    let mut raw = soon(Peer::server(far, &[])).await;
    soon(raw.expect(frames::HEADERS)).await;
    // It ends before all is said.
    let _ = soon(raw.io.write_all(octets)).await;
    let goes = soon(raw.expect(frames::GOAWAY)).await;
    assert_eq!(ErrorCode(goes.code()), code);
    drop(raw);
    let error = soon(task)
        .await
        .expect("no panic")
        .expect_err("the attack was borne");
    assert_eq!(error.code(), Some(code), "{error}");
    let failed = soon(response).await.expect("no panic");
    // A response may have come to its head before.
    if let Ok(response) = failed {
        use http_body_util::BodyExt;
        assert!(soon(response.into_body().collect()).await.is_err());
    }
}

fn status(code: &str, flags: u8, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut all: Vec<(&[u8], &[u8])> = vec![(b":status", code.as_bytes())];
    all.extend(fields);
    frame(HEADERS, flags, 1, &block(&all))
}

#[tokio::test]
async fn floods_from_a_server() {
    let rounds = 2 * LIMIT as usize;
    for flood in [
        frame(PING, 0, 0, b"12345678"),
        frame(PING, 1, 0, b"12345678"),
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, 0, 0, &[0, 0x99, 0, 0, 0, 0]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 15]),
        frame(0x77, 0, 0, &[]),
        frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
    ] {
        ends(flood.repeat(rounds), ErrorCode::ENHANCE_YOUR_CALM).await;
    }
    let mut empty = status("200", 4, &[]);
    empty.extend(frame(DATA, 0, 1, &[]).repeat(rounds));
    ends(empty, ErrorCode::ENHANCE_YOUR_CALM).await;
}

#[tokio::test]
async fn informational_responses_without_end() {
    let early = status("103", 4, &[]).repeat(2_000);
    ends(early, ErrorCode::ENHANCE_YOUR_CALM).await;
}

#[tokio::test]
async fn what_a_server_must_not_send() {
    let promise = [&[0, 0, 0, 2][..], &block(&[(b":method", b"GET")])].concat();
    for octets in [
        frame(5, 4, 1, &promise),
        frame(HEADERS, 5, 2, &block(&[(b":status", b"200")])),
        frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1]),
        // A last stream that grows: the request may have been sent again elsewhere.
        [
            frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
        ]
        .concat(),
    ] {
        ends(octets, ErrorCode::PROTOCOL_ERROR).await;
    }
    let window = i32::MAX.to_be_bytes();
    ends(frame(WINDOW_UPDATE, 0, 0, &window), ErrorCode::FLOW_CONTROL_ERROR).await;
}

/// The response is refused on its stream, and the connection lives.
async fn refused(octets: Vec<u8>) {
    for tls in [false, true] {
        refused_over(ends_of(tls).await, &octets, true).await;
    }
}

/// As [`refused`], by a client that says nothing: the response has ended the stream.
async fn dropped(octets: Vec<u8>) {
    for tls in [false, true] {
        refused_over(ends_of(tls).await, &octets, false).await;
    }
}

async fn refused_over((near, far): (Box<dyn Transport>, Box<dyn Transport>), octets: &[u8], resets: bool) {
    let (sender, connection) = handshake(near, limited());
    let task = tokio::spawn(connection);
    let response = tokio::spawn(sender.send(get("/")));
    let mut raw = soon(Peer::server(far, &[])).await;
    soon(raw.expect(frames::HEADERS)).await;
    raw.io.write_all(octets).await.expect("it is read");
    if resets {
        let reset = soon(raw.expect(frames::RST_STREAM)).await;
        assert_eq!(ErrorCode(reset.code()), ErrorCode::PROTOCOL_ERROR);
    }
    let error = soon(response).await.expect("no panic").expect_err("it was taken");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let second = tokio::spawn(sender.send(get("/")));
    let stream = soon(raw.expect(frames::HEADERS)).await.stream;
    raw.respond(stream, true, &[]).await;
    assert_eq!(
        soon(second).await.expect("no panic").expect("an answer").status(),
        200
    );
    drop(sender);
    drop(raw);
    let _ = soon(task).await;
}

#[tokio::test]
async fn responses_that_are_bombs_or_smuggle() {
    let many = vec![(&b"a"[..], &b"b"[..]); 1_001];
    let all = status("200", 4, &many);
    assert!(all.len() < 16_000);
    refused(all).await;
    for (name, value) in [
        (&b"transfer-encoding"[..], &b"chunked"[..]),
        (b"connection", b"close"),
        (b"X", b"y"),
        (b"x", b"a\r\nb: c"),
        (b"x", b"a\0"),
        (b":path", b"/"),
        (b"content-length", b"1, 2"),
    ] {
        refused(status("200", 4, &[(name, value)])).await;
    }
    refused(status("20", 4, &[])).await;
    dropped(status("103", 5, &[])).await;
}
