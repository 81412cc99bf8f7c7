//! Requests that one program reads otherwise than the next (RFC 9113 section 10.3): each is refused on its stream, no
//! handler sees it, and the connection lives.

use std::sync::atomic::Ordering;

use fullbore::{Config, ErrorCode};

use crate::attacks::attacker::{DATA, HEADERS, RST_STREAM, block, frame, nth, post};
use crate::attacks::site::Site;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn field(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> (Vec<u8>, Vec<u8>) {
    (name.as_ref().to_vec(), value.as_ref().to_vec())
}

fn pseudo() -> Fields {
    vec![
        field(":method", "POST"),
        field(":scheme", "http"),
        field(":authority", "localhost"),
        field(":path", "/"),
    ]
}

/// An ordinary request and one more field.
fn with(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Fields {
    let mut fields = pseudo();
    fields.push(field(name, value));
    fields
}

/// An ordinary request but for one pseudo-header.
fn but(name: &str, value: Option<&str>) -> Fields {
    let mut fields = pseudo();
    fields.retain(|(other, _)| other != name.as_bytes());
    fields.extend(value.map(|value| field(name, value)));
    fields
}

fn malformed() -> Vec<(&'static str, Fields)> {
    let mut all = Vec::new();
    for octet in ['\r', '\n', '\0'] {
        all.push(("a value with a control octet", with("x", format!("a{octet}b"))));
        all.push(("a name with a control octet", with(format!("a{octet}b"), "x")));
        all.push((
            "a path with a control octet",
            but(":path", Some(&format!("/{octet}"))),
        ));
    }
    all.push((
        "a whole field in a value",
        with("x", "a\r\ntransfer-encoding: chunked"),
    ));
    all.push(("a space in a name", with("a b", "x")));
    all.push(("a colon in a name", with("a:b", "x")));
    all.push(("an empty name", with("", "x")));
    all.push(("space around a value", with("x", " a")));
    all.push(("space around a value", with("x", "a\t")));
    all.push(("an upper-case name", with("Accept", "x")));
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        all.push(("a field of the connection", with(name, "chunked")));
    }
    all.push(("te other than trailers", with("te", "gzip")));
    all.push(("no content-length", with("content-length", "+5")));
    all.push(("no content-length", with("content-length", "0x5")));
    all.push(("no content-length", with("content-length", "-1")));
    let mut twice = with("content-length", "5");
    twice.push(field("content-length", "6"));
    all.push(("content-lengths that differ", twice));
    all.push(("content-lengths that differ", with("content-length", "5, 6")));
    for name in [":method", ":scheme", ":path"] {
        all.push(("a pseudo-header that is missing", but(name, None)));
        let mut twice = pseudo();
        twice.push(field(name, "/"));
        all.push(("a pseudo-header that is there twice", twice));
    }
    let mut twice = pseudo();
    twice.push(field(":authority", "elsewhere"));
    all.push((":authority twice", twice));
    all.push(("a space in a method", but(":method", Some("GET /elsewhere"))));
    all.push(("a space in a scheme", but(":scheme", Some("http x"))));
    all.push(("a space in an authority", but(":authority", Some("localhost x"))));
    all.push(("a space in a path", but(":path", Some("/a HTTP/1.1"))));
    all.push(("an empty method", but(":method", Some(""))));
    all.push(("an empty path", but(":path", Some(""))));
    all.push(("a path without a slash", but(":path", Some("x"))));
    all.push(("another host", with("host", "elsewhere.example")));
    let mut twice = with("host", "localhost");
    twice.push(field("host", "localhost"));
    all.push(("host twice", twice));
    all.push(("userinfo", but(":authority", Some("user@localhost"))));
    all.push(("a pseudo-header of responses", with(":status", "200")));
    all.push(("an unknown pseudo-header", with(":smuggled", "x")));
    all.push((":protocol that was not allowed", with(":protocol", "websocket")));
    let mut behind = with("x", "y");
    behind.swap(3, 4);
    all.push(("a pseudo-header behind a field", behind));
    all
}

fn encode(fields: &Fields) -> Vec<u8> {
    let borrowed: Vec<(&[u8], &[u8])> = fields
        .iter()
        .map(|(name, value)| (&name[..], &value[..]))
        .collect();
    block(&borrowed)
}

#[tokio::test]
async fn malformed_requests_are_refused_on_their_streams() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        let mut stream = 1;
        for (what, fields) in malformed() {
            attacker.say(&frame(HEADERS, 4, stream, &encode(&fields))).await;
            let reset = attacker.expect(RST_STREAM).await;
            assert_eq!(
                (reset.stream, ErrorCode(reset.code())),
                (stream, ErrorCode::PROTOCOL_ERROR),
                "{what}"
            );
            stream += 2;
        }
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3, "no handler saw one");
        attacker.say(&frame(HEADERS, 5, stream, &encode(&pseudo()))).await;
        assert_eq!(attacker.expect(HEADERS).await.stream, stream);
        attacker.lives().await;
        site.answers().await;
    }
}

#[tokio::test]
async fn malformed_trailers_and_bodies_of_another_length_are_refused_on_their_streams() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        let declared = |length: &str| encode(&with("content-length", length));
        let ends: Vec<(Vec<u8>, u8, u8, Vec<u8>)> = vec![
            (encode(&pseudo()), HEADERS, 5, block(&[(b":path", b"/")])),
            (
                encode(&pseudo()),
                HEADERS,
                5,
                block(&[(b"transfer-encoding", b"chunked")]),
            ),
            (encode(&pseudo()), HEADERS, 5, block(&[(b"X", b"y")])),
            // Trailers that do not end the stream.
            (encode(&pseudo()), HEADERS, 4, block(&[(b"x", b"y")])),
            (declared("3"), DATA, 1, b"four".to_vec()),
            (declared("3"), DATA, 1, b"2!".to_vec()),
            (declared("3"), HEADERS, 5, block(&[(b"x", b"y")])),
        ];
        for (round, (head, kind, flags, payload)) in (0..).zip(ends) {
            let stream = nth(round);
            attacker.say(&frame(HEADERS, 4, stream, &head)).await;
            attacker.say(&frame(kind, flags, stream, &payload)).await;
            let reset = attacker.expect(RST_STREAM).await;
            assert_eq!(
                (reset.stream, ErrorCode(reset.code())),
                (stream, ErrorCode::PROTOCOL_ERROR)
            );
        }
        attacker.say(&post(99, "/")).await;
        attacker.say(&frame(DATA, 1, 99, b"a body")).await;
        assert_eq!(attacker.expect(HEADERS).await.stream, 99);
        attacker.lives().await;
        site.answers().await;
    }
}
