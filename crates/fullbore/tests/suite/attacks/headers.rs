//! Field sections that are small on the wire and large in memory: CVE-2016-6581 and its kin.

use std::sync::atomic::Ordering;

use fullbore::{Config, ErrorCode};

use crate::attacks::attacker::{Attacker, CONTINUATION, HEADERS, RST_STREAM, frame, get, nth, request};
use crate::attacks::site::{LIMIT, Site, limited};

/// A literal `x` of two thousand octets that enters the table as its newest entry.
fn entry() -> Vec<u8> {
    let mut octets = vec![0x40, 1, b'x', 0x7f, 0xd1, 0x0e];
    octets.extend([b'v'; 2_000]);
    octets
}

/// A header block as HEADERS and as many CONTINUATION frames as it takes.
fn head(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = block.chunks(16_000).collect();
    let last = parts.len() - 1;
    let mut out = Vec::new();
    for (index, part) in parts.drain(..).enumerate() {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        let flags = u8::from(index == 0) | if index == last { 4 } else { 0 };
        out.extend(frame(kind, flags, stream, part));
    }
    out
}

/// The answer is 431, no handler saw the request, and the connection lives.
async fn is_refused(site: &Site, attacker: &mut Attacker, stream: u32, block: &[u8]) {
    attacker.say(&head(stream, block)).await;
    assert_eq!(attacker.response().await, (stream, "431".to_owned()));
    attacker.lives().await;
    assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3, "no handler saw it");
}

#[tokio::test]
async fn one_request_that_is_too_large_is_answered_with_431() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        let base = request("GET", "/", &[]);
        let many: Vec<(&str, &str)> = vec![("a", "b"); 1_000];
        let crumbs: Vec<(&str, &str)> = vec![("cookie", "a=b"); 1_000];
        let long = "x".repeat(66_000);
        let bombs = [
            // A table entry, over and over by a single octet.
            [base, entry(), vec![0x80 | 62; 20_000]].concat(),
            request("GET", "/", &many),
            request("GET", "/", &crumbs),
            request("GET", "/", &[("long", &long)]),
        ];
        for (round, bomb) in (0..).zip(bombs) {
            is_refused(&site, &mut attacker, nth(round), &bomb).await;
        }
        attacker.say(&get(99, "/")).await;
        assert_eq!(attacker.response().await, (99, "200".to_owned()));
        site.answers().await;
    }
}

#[tokio::test]
async fn too_large_requests_again_and_again() {
    for tls in [false, true] {
        let site = Site::start(tls, limited()).await;
        let many: Vec<(&str, &str)> = vec![("a", "b"); 1_000];
        let block = request("GET", "/", &many);
        let ended = site
            .attacker()
            .await
            .floods(2 * LIMIT, |round| head(nth(round), &block))
            .await;
        assert_eq!(ended.code(), ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(ended.count(HEADERS), LIMIT as usize);
        site.answers().await;
    }
}

#[tokio::test]
async fn one_request_of_a_hundred_times_the_limit_is_one_too_many() {
    for tls in [false, true] {
        let site = Site::start(tls, limited()).await;
        let mut attacker = site.attacker().await;
        let bomb = [request("GET", "/", &[]), entry(), vec![0x80 | 62; 100_000]].concat();
        attacker.say(&head(1, &bomb)).await;
        assert_eq!(attacker.ended().await.code(), ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3, "no handler saw it");
        site.answers().await;
    }
}

#[tokio::test]
async fn many_requests_that_are_large_together_are_refused() {
    // Each is below the limit of one: 60 KB by a block of 100 octets. All together may hold 4 MiB.
    for tls in [false, true] {
        let site = Site::start(tls, limited()).await;
        let mut attacker = site.attacker().await;
        let base = request("GET", "/hang", &[]);
        attacker.say(&head(1, &[base.clone(), entry()].concat())).await;
        let bomb = [base, vec![0x80 | 62; 29]].concat();
        for round in 1..=110 {
            attacker.say(&head(nth(round), &bomb)).await;
        }
        let mut refused = 0;
        while refused < 40 {
            let reset = attacker.expect(RST_STREAM).await;
            assert_eq!(ErrorCode(reset.code()), ErrorCode::REFUSED_STREAM);
            refused += 1;
        }
        attacker.lives().await;
        assert_eq!(site.seen.begun.load(Ordering::SeqCst), 3 + 1 + 70);
        site.answers().await;
    }
}

#[tokio::test]
async fn what_cannot_be_decompressed_ends_the_connection() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        for block in [
            &[0x80_u8][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0x3f, 0xe2, 0x1f],
            &[0x00, 0x85, b'a'],
        ] {
            let mut attacker = site.attacker().await;
            attacker.say(&frame(HEADERS, 5, 1, block)).await;
            assert_eq!(attacker.ended().await.code(), ErrorCode::COMPRESSION_ERROR);
        }
        site.answers().await;
    }
}
