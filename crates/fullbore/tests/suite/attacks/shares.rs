//! One address that takes all it can get: connections, streams, memory. Others are served beside it, and what it took
//! comes back.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;

use fullbore::settings::MemoryBudget;
use fullbore::{Client, ErrorCode};
use http::Request;
use http_body_util::BodyExt;

use crate::attacks::attacker::{Attacker, GOAWAY, RST_STREAM, get, nth, post};
use crate::attacks::site::Site;
use crate::support::{full, soon};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Attackers from another address than everybody else's.
async fn attackers(site: &Site, count: usize) -> Vec<Attacker> {
    let mut attackers = Vec::new();
    for _ in 0..count {
        let mut attacker = Attacker::new(site.transport_from(ATTACKER).await);
        attacker.greet(&[]).await;
        attackers.push(attacker);
    }
    attackers
}

/// Somebody who is not connected yet uploads as much as this.
async fn uploads(site: &Site, octets: usize) -> Result<(), fullbore::Error> {
    let client = Client::builder().build().expect("a client");
    let request = Request::post(site.url("/")).body(full("u".repeat(octets)));
    let response = soon(client.request(request.expect("a request"))).await?;
    let body = soon(response.into_body().collect()).await?.to_bytes();
    assert_eq!(body, "hello");
    Ok(())
}

#[tokio::test]
async fn an_address_that_opens_streams_without_end_leaves_some_to_others() {
    for tls in [false, true] {
        let site = Site::start_with(tls, |server| server.max_total_streams(64)).await;
        let mut many = attackers(&site, 4).await;
        let mut refused = 0;
        for attacker in &mut many {
            let requests: Vec<u8> = (0..20).flat_map(|n| get(nth(n), "/hang")).collect();
            attacker.say(&requests).await;
            attacker.lives().await;
        }
        // Those that were not refused hang, and the answer to PING came behind the refusals.
        let hanging = site.seen.running.load(Ordering::SeqCst);
        assert!((16..=32).contains(&hanging), "{hanging} streams of 80");
        site.answers().await;
        // All of them end, and the streams can be had again.
        drop(many);
        site.is_free().await;
        let mut again = attackers(&site, 1).await;
        again[0].say(&get(1, "/")).await;
        assert_eq!(again[0].response().await, (1, "200".to_owned()));
        for n in 1..40 {
            again[0].say(&get(nth(n), "/hang")).await;
        }
        while refused == 0 {
            let heard = again[0].expect(RST_STREAM).await;
            assert_eq!(ErrorCode(heard.code()), ErrorCode::REFUSED_STREAM);
            refused += 1;
        }
        site.answers().await;
    }
}

#[tokio::test]
async fn an_address_that_leases_all_memory_it_can_get_leaves_some_to_uploads_of_others() {
    let site = Site::start_with(false, |server| server.memory_budget(MemoryBudget::new(2 << 20))).await;
    let mut many = attackers(&site, 60).await;
    for attacker in &mut many {
        attacker.say(&post(1, "/hang")).await;
        attacker.lives().await;
    }
    let hanging = site.seen.running.load(Ordering::SeqCst);
    assert!((4..=20).contains(&hanging), "{hanging} uploads of 60");
    uploads(&site, 1 << 20).await.expect("an upload beside them");
    site.answers().await;
    drop(many);
    site.is_free().await;
    uploads(&site, 1 << 20).await.expect("an upload behind them");
}

#[tokio::test]
async fn newcomers_take_the_place_of_connections_that_are_not_used() {
    for tls in [false, true] {
        let site = Site::start_with(tls, |server| server.max_connections(8)).await;
        // The one of the bystander and seven others; then five in the place of the first five.
        let mut many = attackers(&site, 12).await;
        for (number, attacker) in many.iter_mut().enumerate() {
            if number < 5 {
                assert_eq!(attacker.ended().await.code(), ErrorCode::NO_ERROR, "{number}");
            } else {
                attacker.lives().await;
            }
        }
        newcomer_is_answered(&site).await;
        site.answers().await;
    }
}

/// Somebody who is not connected yet gets an answer.
async fn newcomer_is_answered(site: &Site) {
    let mut newcomer = Attacker::new(site.transport().await);
    newcomer.greet(&[]).await;
    newcomer.say(&get(1, "/")).await;
    assert_eq!(newcomer.response().await, (1, "200".to_owned()));
}

#[tokio::test]
async fn an_address_whose_connections_are_all_in_use_gives_way_to_others_and_has_no_more_itself() {
    let site = Site::start_with(false, |server| server.max_connections(8)).await;
    let mut many = attackers(&site, 7).await;
    for attacker in &mut many {
        attacker.say(&get(1, "/hang")).await;
        attacker.lives().await;
    }
    let mut refused = Attacker::new(site.transport_from(ATTACKER).await);
    assert!(refused.next().await.is_none(), "all of its own are in use");
    newcomer_is_answered(&site).await;
    let mut ended = 0;
    for attacker in &mut many {
        attacker.say(&get(3, "/none")).await;
        // The first answer is to the request, or it is the end.
        let mut heard = attacker.next().await;
        while heard
            .as_ref()
            .is_some_and(|heard| heard.kind != GOAWAY && heard.kind != 1)
        {
            heard = attacker.next().await;
        }
        if let Some(heard) = heard.filter(|heard| heard.kind == GOAWAY) {
            assert_eq!(heard.word(4), ErrorCode::ENHANCE_YOUR_CALM.0);
            ended += 1;
        }
    }
    assert_eq!(ended, 1);
    site.answers().await;
    drop(many);
    site.is_free().await;
}

#[tokio::test]
async fn one_client_with_ten_thousand_requests_at_once_is_no_attack() {
    for connections in [1, 3] {
        let site = Site::start_with(false, |server| server).await;
        let mut all = Vec::new();
        for _ in 0..connections {
            let mut client = site.attacker().await;
            let requests: Vec<u8> = (0..10_000).flat_map(|n| get(nth(n), "/none")).collect();
            client.lets_requests_go(requests);
            all.push(client);
        }
        for client in &mut all {
            for _ in 0..10_000 {
                let (_, status) = client.response().await;
                assert_eq!(status, "200");
            }
        }
    }
}
