//! Peers that take their time: they say a little now and then, or do not read what they asked for. The limits on time are
//! proven on a virtual clock in `fullbore-proto`; here they end real connections, and what a peer leaves unread is
//! bounded whatever the time.

use std::sync::atomic::Ordering;

use fullbore::settings::{KeepAlive, Limit, PeerLimit, TcpBuffers};
use fullbore::{Config, ErrorCode};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::attacks::attacker::{
    Attacker, DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, WINDOW_UPDATE, frame, get, nth, post,
};
use crate::attacks::site::Site;
use crate::support::{patiently, soon};

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    change(&mut config);
    config
}

#[tokio::test]
async fn a_preface_that_dribbles() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start(tls, config(|config| config.set_preface_timeout(short))).await;
            let mut attacker = Attacker::new(site.transport().await);
            attacker.say(&PREFACE[..5]).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::PROTOCOL_ERROR);
            site.answers().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_handshake_that_never_begins() {
    patiently(|short| async move {
        let site = Site::start_with(true, |server| server.handshake_timeout(short)).await;
        let mut silent = TcpStream::connect(site.address).await.expect("a connection");
        let mut some = [0; 1];
        assert_eq!(soon(silent.read(&mut some)).await.expect("an end"), 0);
        site.answers().await;
    })
    .await;
}

#[tokio::test]
async fn a_header_block_that_dribbles() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start(tls, config(|config| config.set_header_timeout(short))).await;
            let mut attacker = site.attacker().await;
            attacker.say(&frame(HEADERS, 1, 1, &[0x82])).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::ENHANCE_YOUR_CALM);
            let mut attacker = site.attacker().await;
            attacker.say(&get(1, "/")[..20]).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::ENHANCE_YOUR_CALM);
            site.answers().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_that_never_comes() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| server.body_timeout(Some(short))).await;
            let mut attacker = site.attacker().await;
            attacker.say(&post(1, "/")).await;
            let reset = attacker.expect(RST_STREAM).await;
            assert_eq!((reset.stream, ErrorCode(reset.code())), (1, ErrorCode::CANCEL));
            attacker.lives().await;
            site.answers().await;
            site.is_free().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_that_crawls() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| {
                server.body_timeout(Some(short)).body_rate(1_000_000)
            })
            .await;
            let mut attacker = site.attacker().await;
            attacker.say(&post(1, "/")).await;
            let reset = loop {
                attacker.say(&frame(DATA, 0, 1, b"x")).await;
                attacker.say(&frame(PING, 0, 0, b"answered")).await;
                let heard = soon(attacker.next()).await.expect("the connection lives");
                if heard.kind == RST_STREAM {
                    break heard;
                }
                tokio::time::sleep(short / 30).await;
            };
            assert_eq!((reset.stream, ErrorCode(reset.code())), (1, ErrorCode::CANCEL));
            site.answers().await;
            site.is_free().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_nobody_uses() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| server.idle_timeout(Some(short))).await;
            let mut attacker = site.attacker().await;
            assert_eq!(attacker.expect(GOAWAY).await.word(4), 0);
            let ended = attacker.ended().await;
            assert_eq!(ended.code(), ErrorCode::NO_ERROR);
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_answers_no_ping() {
    patiently(|short| async move {
        for tls in [false, true] {
            let change = |config: &mut Config| {
                config.set_keep_alive(KeepAlive::WithStreams(short));
                config.set_keep_alive_timeout(short);
            };
            let site = Site::start(tls, config(change)).await;
            let mut attacker = site.attacker().await;
            attacker.say(&post(1, "/hang")).await;
            attacker.expect(PING).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::NO_ERROR);
            site.is_free().await;
            site.answers().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_holds_up_the_end_of_the_server() {
    patiently(|short| async move {
        for tls in [false, true] {
            let mut site = Site::start_with(tls, |server| server.drain_timeout(short)).await;
            let mut attacker = site.attacker().await;
            attacker.say(&post(1, "/hang")).await;
            attacker.lives().await;
            site.stop();
            attacker.expect(GOAWAY).await;
            let ended = attacker.ended().await;
            assert_eq!(ended.count(RST_STREAM), 0);
            site.is_free().await;
        }
    })
    .await;
}

#[tokio::test]
async fn windows_that_stay_closed() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| server.send_timeout(Some(short))).await;
            // SETTINGS_INITIAL_WINDOW_SIZE 0: no stream may send anything.
            let mut attacker = Attacker::new(site.transport().await);
            attacker.greet(&[0, 4, 0, 0, 0, 0]).await;
            for round in 0..20 {
                attacker.say(&get(nth(round), "/long")).await;
            }
            for _ in 0..20 {
                assert_eq!(
                    ErrorCode(attacker.expect(RST_STREAM).await.code()),
                    ErrorCode::CANCEL
                );
            }
            attacker.lives().await;
            site.is_free().await;
            let produced = site.seen.produced.load(Ordering::SeqCst);
            assert!(
                produced <= 20 * (257 << 10),
                "{produced} octets wait for closed windows"
            );
            site.answers().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_connections_window_that_stays_closed() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| server.send_timeout(Some(short))).await;
            let mut attacker = Attacker::new(site.transport().await);
            attacker.greet(&[0, 4, 0x40, 0, 0, 0]).await;
            attacker.say(&get(1, "/long")).await;
            let ended = attacker.ended().await;
            assert_eq!(ended.code(), ErrorCode::ENHANCE_YOUR_CALM);
            let data = ended.frames.iter().filter(|frame| frame.kind == DATA);
            assert_eq!(data.map(|frame| frame.payload.len()).sum::<usize>(), 65_535);
            site.answers().await;
            site.is_free().await;
        }
    })
    .await;
}

#[tokio::test]
async fn responses_that_are_never_read() {
    patiently(|short| async move {
        for tls in [false, true] {
            let site = Site::start_with(tls, |server| server.send_timeout(Some(short))).await;
            let mut attacker = Attacker::new(site.transport().await);
            attacker.greet(&[0, 4, 0x40, 0, 0, 0]).await;
            let window = (1_u32 << 30).to_be_bytes();
            attacker.say(&frame(WINDOW_UPDATE, 0, 0, &window)).await;
            for round in 0..10 {
                attacker.say(&get(nth(round), "/long")).await;
            }
            soon(async {
                while site.seen.begun.load(Ordering::SeqCst) < 3 + 10 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            site.is_free().await;
            site.answers().await;
        }
    })
    .await;
}

#[tokio::test]
async fn many_streams_share_the_memory_for_what_is_not_read() {
    for tls in [false, true] {
        let site = Site::start(tls, config(|config| config.set_send_buffer(1 << 20))).await;
        let mut attacker = Attacker::new(site.transport().await);
        attacker.greet(&[0, 4, 0, 0, 0, 0]).await;
        for round in 0..200 {
            attacker.say(&get(nth(round), "/long")).await;
        }
        for _ in 0..200 {
            attacker.expect(HEADERS).await;
        }
        attacker.lives().await;
        // The first few take 256 KiB, and then each its share, 16 KiB at least.
        let produced = site.seen.produced.load(Ordering::SeqCst);
        assert!(produced < 200 * (64 << 10), "{produced} octets wait");
        site.answers().await;
    }
}

/// The server's kernel holds little.
fn small() -> TcpBuffers {
    TcpBuffers {
        send: Some(64 << 10),
        receive: Some(64 << 10),
        ..TcpBuffers::default()
    }
}

#[tokio::test]
async fn replies_that_are_never_read_stop_reading() {
    for tls in [false, true] {
        let pings = Limit::new(u32::MAX, u32::MAX);
        let site = Site::start_with(tls, |server| {
            server
                .config(|config| config.set_limit(PeerLimit::Pings, pings))
                .tcp_buffers(small())
        })
        .await;
        let mut attacker = site.attacker().await;
        let ping = frame(PING, 0, 0, b"12345678");
        let offered = 64 << 20;
        let said = attacker.press(&ping.repeat(10_000), offered).await;
        assert!(said < offered, "all of it was read");
        site.answers().await;
        // Nothing is lost of what was said.
        attacker.lets_go();
        for _ in 0..said / ping.len() {
            assert_eq!(attacker.expect(PING).await.flags, 1);
        }
    }
}

#[tokio::test]
async fn heads_that_are_never_read_stop_reading() {
    for tls in [false, true] {
        let site = Site::start_with(tls, |server| server.tcp_buffers(small())).await;
        let mut attacker = site.attacker().await;
        let offered: Vec<u8> = (0..500_000).flat_map(|round| get(nth(round), "/none")).collect();
        let said = attacker.press(&offered, offered.len()).await;
        assert!(said < offered.len(), "all of it was read");
        site.answers().await;
        let begun = site.seen.begun.load(Ordering::SeqCst) - 6;
        for _ in 0..begun {
            attacker.expect(HEADERS).await;
        }
    }
}
