//! WebSockets through `fullbore proxy`: a list of exchanges after the sections of Autobahn's test suite, with octets that
//! follow RFC 6455 and octets that break it. The servers are `websockets` of Python, under uvicorn, and `ws` of Node. What they
//! answer through the proxy is, octet for octet, what they answer without it: over HTTP/1.1, and over HTTP/2 (RFC 8441) between
//! two proxies.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use libtest_mimic::Trial;

use crate::fullbore;
use crate::peers::{Peer, node_modules, sources, trial};
use crate::process::{DEADLINE, Daemon, Outcome, ensure};
use crate::proxied_pages::application;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
/// The bit of the last frame of a message.
const FIN: u8 = 0x80;

/// All trials of this file.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |peer: Peer| {
        let name = format!(
            "WebSockets of {} answer through fullbore proxy as without it",
            peer.name()
        );
        trial(&[peer], name, move || same(peer))
    };
    vec![of(Peer::Uvicorn), of(Peer::Ws)]
}

/// How often an exchange is tried whose answers differ: a server drops the echo of a text if the close behind it arrives before
/// its application has answered.
const TRIES: usize = 20;

/// What a client sends, and in which pieces.
struct Case {
    name: String,
    octets: Vec<u8>,
    piece: usize,
    /// Sent once the first frame of the answer has come. Pieces may become one on their way through a proxy: a close behind them
    /// would always arrive with the text, and the server would drop the echo in each of the [`TRIES`].
    close: Option<Vec<u8>>,
}

/// A frame of a client, whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes()[..], reason].concat())
}

/// All exchanges. Those that the server itself does not end are closed with 1000.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, frames: Vec<Vec<u8>>, ends: bool| {
        let mut octets = frames.concat();
        if !ends {
            octets.extend(close(1_000, b""));
        }
        cases.push(Case {
            name,
            octets,
            piece: usize::MAX,
            close: None,
        });
    };
    for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 200_000, 4 << 20] {
        add(
            format!("text of {length}"),
            vec![frame(TEXT, &vec![b'*'; length])],
            false,
        );
        add(
            format!("binary of {length}"),
            vec![frame(BINARY, &vec![0xfe; length])],
            false,
        );
    }
    for (name, payload) in [("without a payload", 0), ("of 5", 5), ("of 125", 125)] {
        add(
            format!("ping {name}"),
            vec![frame(PING, &vec![0xff; payload])],
            false,
        );
        add(
            format!("pong {name}"),
            vec![frame(PONG, &vec![b'x'; payload])],
            false,
        );
    }
    add("ping that is too long".into(), vec![frame(PING, &[0; 126])], true);
    add(
        "ten pings".into(),
        (0..10).map(|number| frame(PING, &[number])).collect(),
        false,
    );
    for reserved in 1..8_u8 {
        add(
            format!("reserved bits {reserved}"),
            vec![frame(TEXT | reserved << 4, b"hello")],
            true,
        );
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        add(
            format!("opcode {opcode}"),
            vec![frame(FIN | opcode, b"hello")],
            true,
        );
        add(
            format!("opcode {opcode} behind a text"),
            vec![frame(TEXT, b"hello"), frame(FIN | opcode, b"")],
            true,
        );
    }
    fragments(&mut add);
    texts(&mut add);
    closes(&mut add);
    add(
        "a frame without a mask".into(),
        vec![b"\x81\x05hello".to_vec()],
        true,
    );
    add(
        "a length of 64 bits with the first one set".into(),
        vec![vec![BINARY, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
        true,
    );
    for length in [100, 70_000] {
        for piece in [1, 7, 997] {
            // Each octet apart is slow.
            if piece > 1 || length < 1_000 {
                cases.push(Case {
                    name: format!("text of {length} in pieces of {piece}"),
                    octets: frame(TEXT, &vec![b'*'; length]),
                    piece,
                    close: Some(close(1_000, b"")),
                });
            }
        }
    }
    cases
}

type Add<'a> = dyn FnMut(String, Vec<Vec<u8>>, bool) + 'a;

fn fragments(add: &mut Add<'_>) {
    let (first, next, last) = (TEXT & !FIN, 0, FIN);
    add(
        "ping in fragments".into(),
        vec![frame(PING & !FIN, b"a"), frame(last, b"b")],
        true,
    );
    add(
        "pong in fragments".into(),
        vec![frame(PONG & !FIN, b"a"), frame(last, b"b")],
        true,
    );
    add(
        "two fragments".into(),
        vec![frame(first, b"one"), frame(last, b"two")],
        false,
    );
    add(
        "three fragments".into(),
        vec![frame(first, b"one"), frame(next, b""), frame(last, b"two")],
        false,
    );
    add(
        "a ping between fragments".into(),
        vec![frame(first, b"one"), frame(PING, b"p"), frame(last, b"two")],
        false,
    );
    add(
        "a continuation of nothing".into(),
        vec![frame(last, b"two")],
        true,
    );
    add(
        "a continuation of nothing that goes on".into(),
        vec![frame(next, b"two")],
        true,
    );
    add(
        "a text within a text".into(),
        vec![frame(first, b"one"), frame(TEXT, b"two")],
        true,
    );
    add(
        "a continuation behind the last".into(),
        vec![frame(first, b"one"), frame(last, b"two"), frame(last, b"three")],
        true,
    );
    let many = (0..300).map(|number| frame(if number == 0 { BINARY & !FIN } else { next }, &[7; 1_000]));
    add(
        "many fragments".into(),
        many.chain([frame(last, b"")]).collect(),
        false,
    );
}

fn texts(add: &mut Add<'_>) {
    for text in [
        "Hello-µ@ßöäüàá-UTF-8!!",
        "κόσμε",
        "\u{10ffff}",
        "\u{0}",
        "\u{fffe}",
        "\u{7ff}\u{800}\u{ffff}\u{10000}",
    ] {
        add(
            format!("text {text:?}"),
            vec![frame(TEXT, text.as_bytes())],
            false,
        );
        let octets = text.as_bytes().iter();
        let mut pieces: Vec<_> = octets.map(|octet| frame(0, &[*octet])).collect();
        pieces[0][0] = TEXT & !FIN;
        pieces.push(frame(FIN, b""));
        add(format!("text {text:?}, each octet a fragment"), pieces, false);
    }
    for octets in [
        &b"\x80"[..],
        b"\xff",
        b"\xce",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ] {
        add(
            format!("text that is no UTF-8 {octets:x?}"),
            vec![frame(TEXT, octets)],
            true,
        );
    }
    add(
        "binary that is no UTF-8".into(),
        vec![frame(BINARY, b"\xff\xfe")],
        false,
    );
}

fn closes(add: &mut Add<'_>) {
    add("close without a code".into(), vec![frame(CLOSE, b"")], true);
    add("close of one octet".into(), vec![frame(CLOSE, b"a")], true);
    add(
        "close with a reason".into(),
        vec![close(1_000, b"Hello World!")],
        true,
    );
    add(
        "close with the longest reason".into(),
        vec![close(1_000, &[b'*'; 123])],
        true,
    );
    add(
        "close that is too long".into(),
        vec![close(1_000, &[b'*'; 124])],
        true,
    );
    add(
        "close whose reason is no UTF-8".into(),
        vec![close(1_000, b"\xce\xba\xff")],
        true,
    );
    add(
        "text behind the close".into(),
        vec![close(1_000, b""), frame(TEXT, b"late")],
        true,
    );
    add(
        "ping behind the close".into(),
        vec![close(1_000, b""), frame(PING, b"late")],
        true,
    );
    add(
        "two closes".into(),
        vec![close(1_000, b""), close(1_001, b"")],
        true,
    );
    for code in [
        1_000, 1_001, 1_002, 1_003, 1_007, 1_008, 1_009, 1_010, 1_011, 3_000, 3_999, 4_000, 4_999,
    ] {
        add(format!("close with {code}"), vec![close(code, b"why")], true);
    }
    for code in [
        0, 999, 1_004, 1_005, 1_006, 1_016, 1_100, 2_000, 2_999, 5_000, 65_535,
    ] {
        add(
            format!("close with {code}, which no one may send"),
            vec![close(code, b"")],
            true,
        );
    }
}

fn same(peer: Peer) -> Outcome {
    let (_application, origin) = match peer {
        Peer::Uvicorn => application(peer)?,
        _ => {
            let mut command = Peer::Node.command()?;
            command
                .arg(sources().join("node/web-sockets.mjs"))
                .env("FULLBORE_MODULES", node_modules());
            let mut daemon = Daemon::spawn(&mut command)?;
            let url = daemon.wait_line("listening on ")?;
            (daemon, url.trim().to_owned())
        }
    };
    let address = |url: &str| url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let proxy = |to: &str| -> Outcome<(Daemon, String)> {
        let mut command = std::process::Command::new(fullbore::program());
        command.args(["proxy", to, "--plaintext", "--listen", "127.0.0.1:0"]);
        let mut daemon = Daemon::spawn(&mut command)?;
        let url = daemon.wait_line("listening on ")?;
        Ok((daemon, address(url.trim())))
    };
    let origin = address(&origin);
    let (mut near, near_address) = proxy(&format!("http://{origin}"))?;
    // Between these two a WebSocket is a stream of HTTP/2.
    let (mut far, far_address) = proxy(&format!("h2c://{near_address}"))?;
    let cases = cases();
    ensure(cases.len() >= 100, || format!("only {} cases", cases.len()))?;
    let mut failed = Vec::new();
    for case in &cases {
        let blame = |fault| format!("{}: {fault}", case.name);
        for (way, address) in [("HTTP/1.1", &near_address), ("HTTP/2", &far_address)] {
            let mut differing = None;
            for _ in 0..TRIES {
                let expected = case.answer(&origin).map_err(blame)?;
                let answer = case.answer(address).map_err(blame)?;
                differing = (answer != expected).then(|| (shown(&answer), shown(&expected)));
                if differing.is_none() {
                    break;
                }
            }
            if let Some((answer, expected)) = differing {
                failed.push(format!("{} over {way}: {answer}, not {expected}", case.name));
            }
        }
    }
    near.check_alive()?;
    far.check_alive()?;
    ensure(failed.is_empty(), || {
        format!(
            "{} of {} cases:\n{}",
            failed.len(),
            cases.len(),
            failed.join("\n")
        )
    })
}

fn shown(answer: &[u8]) -> String {
    format!("{} octets {:x?}", answer.len(), &answer[..answer.len().min(40)])
}

impl Case {
    /// What the server sends after its head, up to the end of the connection.
    fn answer(&self, address: &str) -> Outcome<Vec<u8>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )?;
        let (mut head, mut octet) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut octet)?;
            head.push(octet[0]);
        }
        ensure(head.starts_with(b"HTTP/1.1 101 "), || {
            String::from_utf8_lossy(&head).into_owned()
        })?;
        // The server sends what it has to say while it is still read from.
        let (octets, piece, mut writer) = (self.octets.clone(), self.piece, stream.try_clone()?);
        let mut close = self.close.as_ref();
        let writing = std::thread::spawn(move || {
            let _ = octets
                .chunks(piece.min(octets.len()))
                .try_for_each(|piece| writer.write_all(piece));
        });
        let mut frames = Vec::new();
        let mut buffer = [0; 65_536];
        let mut is_closed = false;
        loop {
            // A server that closes with octets unread resets the connection behind its last frame.
            let count = stream.read(&mut buffer).unwrap_or(0);
            if count == 0 {
                break;
            }
            frames.extend_from_slice(&buffer[..count]);
            let kinds = whole_frames(&frames);
            if !kinds.is_empty()
                && let Some(close) = close.take()
            {
                stream.write_all(close)?;
            }
            if !is_closed && kinds.contains(&CLOSE) {
                is_closed = true;
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        let _ = writing.join();
        Ok(frames)
    }
}

/// The first octet of each frame that has come whole.
fn whole_frames(mut frames: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [first, second, rest @ ..] = frames {
        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, [a, b, c, d, e, f, g, h, rest @ ..]) => (
                u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize,
                rest,
            ),
            (126 | 127, _) => break,
            (length, rest) => (usize::from(length), rest),
        };
        let Some(behind) = rest.get(length..) else { break };
        kinds.push(*first);
        frames = behind;
    }
    kinds
}
