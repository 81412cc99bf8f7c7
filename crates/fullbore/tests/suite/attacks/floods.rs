//! Frames that cost the server more than who sends them, again and again: CVE-2019-9511 to 9518, CVE-2020-11080,
//! CVE-2023-44487, CVE-2025-8671, VU#421644.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use fullbore::server::serve_connection;
use fullbore::{BoxError, Config, ErrorCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::attacks::attacker::{
    CONTINUATION, DATA, Ended, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PRIORITY_UPDATE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, get, nth, post, request,
};
use crate::attacks::site::{LIMIT, Site, limited};
use crate::support::{empty, service, soon};

/// Says `first` and then round after round of the flood, over cleartext and TLS: it must end with ENHANCE_YOUR_CALM,
/// and somebody else get answers.
async fn flood(first: &[u8], round: impl Fn(u32) -> Vec<u8>, check: impl Fn(&Site, &Ended)) {
    for tls in [false, true] {
        let site = Site::start(tls, limited()).await;
        let mut attacker = site.attacker().await;
        attacker.say(first).await;
        let ended = attacker.floods(10 * LIMIT, &round).await;
        assert_eq!(ended.code(), ErrorCode::ENHANCE_YOUR_CALM);
        check(&site, &ended);
        site.answers().await;
        site.is_free().await;
    }
}

fn nothing(_: &Site, _: &Ended) {}

/// To open it would cost the server as much as all that came before.
#[tokio::test]
async fn what_a_peer_sends_that_has_been_thrown_out_is_read_and_never_opened() {
    let site = Site::start(true, limited()).await;
    let mut peer = site.sealed().await;
    peer.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    peer.flush().await.unwrap();
    let mut said = Vec::new();
    soon(peer.read_to_end(&mut said)).await.expect("the last word");
    let settings = 9 + usize::from(said[2]);
    assert_eq!(said[3], SETTINGS);
    assert!(
        said[settings..].windows(17).any(|frame| frame[3] == GOAWAY),
        "no last word in {said:?}"
    );
    // These are no records of TLS: the server would hang up if it looked at one.
    for _ in 0..32 {
        let (tcp, _) = peer.get_mut();
        soon(tcp.write_all(&[0; 64 << 10])).await.expect("it is read");
        site.answers().await;
    }
}

#[tokio::test]
async fn rapid_reset() {
    let round = |round| {
        [
            get(nth(round), "/hang"),
            frame(RST_STREAM, 0, nth(round), &8_u32.to_be_bytes()),
        ]
        .concat()
    };
    flood(&[], round, |site, _| {
        // Three of a bystander's came before.
        let begun = site.seen.begun.load(Ordering::SeqCst) - 3;
        assert!(begun <= LIMIT as usize + 1, "{begun} handlers");
    })
    .await;
}

/// A transport that gives as many octets as are asked for, and notes how many that were and when it was somebody else's turn.
struct Torrent {
    octets: Vec<u8>,
    at: usize,
    reads: Arc<Mutex<Vec<usize>>>,
}

impl AsyncRead for Torrent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let end = self.octets.len().min(self.at + buffer.remaining());
        buffer.put_slice(&self.octets[self.at..end]);
        self.reads.lock().expect("no panic").push(end - self.at);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Torrent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_torrent_of_frames_is_read_in_small_turns() {
    let pairs = (0..9_000).flat_map(|round| {
        let stream = nth(round);
        [
            get(stream, "/"),
            frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()),
        ]
        .concat()
    });
    let octets: Vec<u8> = PREFACE
        .iter()
        .copied()
        .chain(frame(SETTINGS, 0, 0, &[]))
        .chain(pairs)
        .collect();
    let total = octets.len();
    let reads = Arc::new(Mutex::new(Vec::new()));
    let torrent = Torrent {
        octets,
        at: 0,
        reads: Arc::clone(&reads),
    };
    let begun = Arc::new(AtomicUsize::new(0));
    let service = {
        let begun = Arc::clone(&begun);
        service(move |_| {
            begun.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, BoxError>(http::Response::new(empty())) }
        })
    };
    let mut connection = Box::pin(serve_connection(torrent, service, Config::default()));
    let mut turns = 0;
    let ended = std::future::poll_fn(|cx| {
        turns += 1;
        connection.as_mut().poll(cx)
    });
    soon(ended).await.expect("the torrent ends in good order");
    let reads = reads.lock().expect("no panic");
    assert_eq!(reads.iter().sum::<usize>(), total);
    assert!(reads.iter().all(|&bytes| bytes <= 32 << 10), "{reads:?}");
    assert!(
        turns >= reads.len() - 2,
        "{turns} turns for {} reads",
        reads.len()
    );
    // One may be cut off from its reset by the end of a read.
    assert!(begun.load(Ordering::SeqCst) <= reads.len(), "{begun:?} handlers");
}

#[tokio::test]
async fn what_follows_our_last_word_is_read_in_few_calls_and_some_turns_and_only_so_far() {
    let mut octets = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    octets.extend(frame(PING, 0, 0, b"12345678").repeat(LIMIT as usize + 1));
    let ended_at = octets.len();
    octets.resize(ended_at + (8 << 20), 0);
    let reads = Arc::new(Mutex::new(Vec::new()));
    let torrent = Torrent {
        octets,
        at: 0,
        reads: Arc::clone(&reads),
    };
    let service = service(|_| async { Ok::<_, BoxError>(http::Response::new(empty())) });
    let mut connection = Box::pin(serve_connection(torrent, service, limited()));
    let mut turns = 0;
    let ended = std::future::poll_fn(|cx| {
        turns += 1;
        connection.as_mut().poll(cx)
    });
    let code = soon(ended).await.expect_err("the flood was borne").code();
    assert_eq!(code, Some(ErrorCode::ENHANCE_YOUR_CALM));
    let reads = reads.lock().expect("no panic");
    let total: usize = reads.iter().sum();
    assert!(total - ended_at <= 5 << 20, "{total} octets");
    assert!(reads.len() <= 80, "{} reads of {total} octets", reads.len());
    assert!(turns >= 4, "{turns} turns");
}

/// As many streams are reset as the limit says, and the next ends the connection.
fn resets(_: &Site, ended: &Ended) {
    assert_eq!(ended.count(RST_STREAM), LIMIT as usize);
}

#[tokio::test]
async fn resets_provoked_by_a_window_update_of_nothing() {
    let round = |round| {
        [
            post(nth(round), "/hang"),
            frame(WINDOW_UPDATE, 0, nth(round), &[0; 4]),
        ]
        .concat()
    };
    flood(&[], round, resets).await;
}

#[tokio::test]
async fn resets_provoked_by_a_window_that_overflows() {
    let most = i32::MAX.to_be_bytes();
    let round = |round| {
        [
            post(nth(round), "/hang"),
            frame(WINDOW_UPDATE, 0, nth(round), &most),
        ]
        .concat()
    };
    flood(&[], round, resets).await;
}

#[tokio::test]
async fn resets_provoked_by_data_behind_the_end() {
    let round = |round| [get(nth(round), "/hang"), frame(DATA, 0, nth(round), b"x")].concat();
    flood(&[], round, resets).await;
}

#[tokio::test]
async fn resets_provoked_by_a_stream_that_depends_on_itself() {
    let round = |round| {
        let stream = nth(round);
        let fields = [&stream.to_be_bytes()[..], &[16]].concat();
        [post(stream, "/hang"), frame(PRIORITY, 0, stream, &fields)].concat()
    };
    flood(&[], round, resets).await;
}

#[tokio::test]
async fn resets_provoked_by_a_wrong_content_length() {
    let block = request("POST", "/hang", &[("content-length", "5")]);
    let round = |round| {
        [
            frame(HEADERS, 4, nth(round), &block),
            frame(DATA, 1, nth(round), b"four"),
        ]
        .concat()
    };
    flood(&[], round, resets).await;
}

#[tokio::test]
async fn resets_provoked_by_malformed_requests() {
    flood(&[], |round| frame(HEADERS, 5, nth(round), &[0x82]), resets).await;
}

#[tokio::test]
async fn pings() {
    flood(
        &[],
        |_| frame(PING, 0, 0, b"12345678"),
        |_, ended| {
            assert_eq!(ended.count(PING), LIMIT as usize);
        },
    )
    .await;
}

#[tokio::test]
async fn answers_to_pings_that_nobody_sent() {
    flood(&[], |_| frame(PING, 1, 0, b"12345678"), nothing).await;
}

#[tokio::test]
async fn settings() {
    flood(
        &[],
        |_| frame(SETTINGS, 0, 0, &[]),
        |_, ended| {
            // The greeting took one.
            assert_eq!(ended.count(SETTINGS), LIMIT as usize - 1);
        },
    )
    .await;
}

#[tokio::test]
async fn settings_of_many_entries() {
    let entries = [0, 0x99, 0, 0, 0, 0].repeat(LIMIT as usize);
    flood(
        &[],
        |_| frame(SETTINGS, 0, 0, &entries),
        |_, ended| {
            assert_eq!(ended.count(SETTINGS), 0);
        },
    )
    .await;
}

#[tokio::test]
async fn window_updates() {
    flood(&[], |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), nothing).await;
    let opening = post(1, "/hang");
    flood(
        &opening,
        |_| frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()),
        nothing,
    )
    .await;
}

#[tokio::test]
async fn priorities() {
    flood(&[], |_| frame(PRIORITY, 0, 99, &[0, 0, 0, 1, 15]), nothing).await;
    flood(&[], |_| frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x63u=1"), nothing).await;
}

#[tokio::test]
async fn frames_of_unknown_types() {
    flood(&[], |_| frame(0x77, 0xff, 0, &[7; 100]), nothing).await;
}

#[tokio::test]
async fn empty_data() {
    flood(&post(1, "/"), |_| frame(DATA, 0, 1, &[]), nothing).await;
    flood(&post(1, "/"), |_| frame(DATA, 8, 1, &[2, 0, 0]), nothing).await;
}

#[tokio::test]
async fn going_away_again_and_again() {
    flood(&[], |_| frame(GOAWAY, 0, 0, &[0; 8]), nothing).await;
}

#[tokio::test]
async fn continuation_frames_by_count_empty_ones_too() {
    for fragment in [&b""[..], &[0x82]] {
        let opening = frame(HEADERS, 1, 1, &request("GET", "/", &[]));
        flood(
            &opening,
            |_| frame(CONTINUATION, 0, 1, fragment),
            |site, _| {
                assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3, "no handler saw it");
            },
        )
        .await;
    }
}

#[tokio::test]
async fn continuation_frames_by_bytes() {
    let opening = frame(HEADERS, 1, 1, &request("GET", "/", &[]));
    let fragment = [0x82; 16_000];
    flood(&opening, |_| frame(CONTINUATION, 0, 1, &fragment), nothing).await;
}

#[tokio::test]
async fn streams_beyond_the_limit() {
    for tls in [false, true] {
        let mut config = limited();
        config.set_max_concurrent_streams(5);
        let site = Site::start(tls, config).await;
        let ended = site
            .attacker()
            .await
            .floods(10 * LIMIT, |round| get(nth(round), "/hang"))
            .await;
        assert_eq!(ended.code(), ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(ended.count(RST_STREAM), LIMIT as usize);
        let refused = |frame: &&fullbore_testing::frames::Frame| frame.kind == RST_STREAM;
        for reset in ended.frames.iter().filter(refused) {
            assert_eq!(ErrorCode(reset.code()), ErrorCode::REFUSED_STREAM);
        }
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3 + 5);
        site.answers().await;
        site.is_free().await;
    }
}

#[tokio::test]
async fn streams_after_the_last_one_was_named() {
    for tls in [false, true] {
        let mut site = Site::start(tls, limited()).await;
        let mut attacker = site.attacker().await;
        attacker.say(&post(1, "/hang")).await;
        attacker.lives().await;
        site.stop();
        let first = attacker.expect(GOAWAY).await;
        assert_eq!(first.word(0), i32::MAX as u32);
        let ping = attacker.expect(PING).await;
        attacker.say(&frame(PING, 1, 0, &ping.payload)).await;
        assert_eq!(attacker.expect(GOAWAY).await.word(0), 1);
        let ended = attacker
            .floods(10 * LIMIT, |round| get(nth(round + 1), "/"))
            .await;
        assert_eq!(ended.code(), ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(ended.count(RST_STREAM) + ended.count(HEADERS), 0);
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3 + 1);
    }
}

#[tokio::test]
async fn frames_behind_our_last_word_are_not_answered() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        let mut octets = frame(DATA, 0, 99, b"x");
        octets.extend(frame(PING, 0, 0, b"12345678").repeat(100));
        octets.extend(get(101, "/"));
        attacker.say(&octets).await;
        let ended = attacker.ended().await;
        assert_eq!(ended.code(), ErrorCode::PROTOCOL_ERROR);
        assert_eq!(ended.count(PING) + ended.count(HEADERS), 0);
        site.answers().await;
    }
}

#[tokio::test]
async fn a_first_frame_that_is_not_settings() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut firsts = vec![
            frame(PING, 0, 0, b"12345678"),
            frame(SETTINGS, 1, 0, &[]),
            get(1, "/"),
        ];
        if tls {
            // In cleartext this is HTTP/1.1. Here the handshake has chosen HTTP/2.
            firsts.push(b"GET / HTTP/1.1\r\n\r\n".to_vec());
        }
        for first in firsts {
            let mut attacker = crate::attacks::attacker::Attacker::new(site.transport().await);
            if first[0] != b'G' {
                attacker.say(PREFACE).await;
            }
            attacker.say(&first).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::PROTOCOL_ERROR);
        }
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3);
        site.answers().await;
    }
}

#[tokio::test]
async fn settings_out_of_range() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        for (identifier, value, code) in [
            (2_u16, 2_u32, ErrorCode::PROTOCOL_ERROR),
            (4, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
            (5, 16_383, ErrorCode::PROTOCOL_ERROR),
            (5, 1 << 24, ErrorCode::PROTOCOL_ERROR),
            (8, 2, ErrorCode::PROTOCOL_ERROR),
        ] {
            let mut attacker = site.attacker().await;
            let entry = [&identifier.to_be_bytes()[..], &value.to_be_bytes()].concat();
            attacker.say(&frame(SETTINGS, 0, 0, &entry)).await;
            assert_eq!(attacker.ended().await.code(), code, "{identifier}: {value}");
        }
        site.answers().await;
    }
}
