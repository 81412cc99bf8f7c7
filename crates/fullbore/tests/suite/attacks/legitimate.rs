//! What looks like an attack and is none: with the default settings no guard stops it.

use std::sync::atomic::Ordering;

use fullbore::{Config, ErrorCode};
use http::Request;
use http_body_util::BodyExt;
use tokio::task::JoinSet;

use crate::attacks::attacker::{
    DATA, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, frame, get, nth, post, request,
};
use crate::attacks::site::Site;
use crate::support::{empty, soon};

/// A stream of messages of one octet each, in frames of their own, both ways; and a receiver that grants each octet of
/// them anew, for the stream and for the connection.
#[tokio::test]
async fn messages_of_one_octet() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        attacker.say(&post(1, "/echo")).await;
        let mut echoed = 0;
        for round in 0..20_000_u32 {
            attacker.say(&frame(DATA, 0, 1, &[round as u8])).await;
            loop {
                let heard = attacker.next().await.expect("the connection lives");
                assert!(![GOAWAY, RST_STREAM].contains(&heard.kind), "{heard:?}");
                if heard.kind == DATA {
                    assert_eq!(heard.payload[..], [round as u8]);
                    echoed += 1;
                    let one = 1_u32.to_be_bytes();
                    let both = [frame(WINDOW_UPDATE, 0, 0, &one), frame(WINDOW_UPDATE, 0, 1, &one)];
                    attacker.say(&both.concat()).await;
                    break;
                }
            }
        }
        assert_eq!(echoed, 20_000);
        attacker.lives().await;
    }
}

/// A page that is left while it loads, three times over.
#[tokio::test]
async fn a_page_with_500_cancelled_requests() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        for visit in 1..=3 {
            let mut page = JoinSet::new();
            for _ in 0..500 {
                let client = site.bystander().clone();
                let url = site.url("/hang");
                page.spawn(async move { client.get(&url).await.map(drop) });
            }
            soon(async {
                while site.seen.begun.load(Ordering::SeqCst) < 3 * visit + 500 * visit {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            soon(page.shutdown()).await;
            site.answers().await;
        }
        assert_eq!(
            site.bystander().connections(&site.url("/")),
            1,
            "the connection was lost"
        );
        site.is_free().await;
    }
}

#[tokio::test]
async fn ten_thousand_downloads_with_a_quarter_of_them_cancelled() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut downloads = JoinSet::new();
        for number in 0..10_000 {
            let client = site.bystander().clone();
            let cancelled = number % 4 == 0;
            let url = site.url(if cancelled { "/long" } else { "/" });
            downloads.spawn(async move {
                let response = client.get(&url).await.expect("an answer");
                if cancelled {
                    // With its head read the rest is not wanted.
                    return drop(response);
                }
                let body = response.into_body().collect().await.expect("a body");
                assert_eq!(body.to_bytes(), "hello");
            });
        }
        while let Some(download) = soon(downloads.join_next()).await {
            download.expect("a download that is whole");
        }
        assert_eq!(
            site.bystander().connections(&site.url("/")),
            1,
            "the connection was lost"
        );
        site.answers().await;
        site.is_free().await;
    }
}

#[tokio::test]
async fn a_client_that_resets_each_stream_after_the_headers_of_the_answer() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let mut attacker = site.attacker().await;
        for round in 0..3_000 {
            attacker.say(&get(nth(round), "/long")).await;
            let head = attacker.expect(HEADERS).await;
            assert_eq!(head.stream, nth(round));
            let cancel = ErrorCode::CANCEL.0.to_be_bytes();
            attacker.say(&frame(RST_STREAM, 0, nth(round), &cancel)).await;
            // What came of the body is granted again, as by a client that is still there.
            let granted = frame(WINDOW_UPDATE, 0, 0, &65_535_u32.to_be_bytes());
            attacker.say(&granted).await;
        }
        attacker.lives().await;
        site.is_free().await;
    }
}

/// Two requests are cancelled and two others sent, in one segment and at the limit of streams.
#[tokio::test]
async fn requests_in_the_place_of_cancelled_ones_at_the_limit_of_streams() {
    for tls in [false, true] {
        let mut config = Config::default();
        config.set_max_concurrent_streams(2);
        let site = Site::start(tls, config).await;
        let mut refused = 0;
        for round in 1..=5 {
            let mut peer = site.attacker().await;
            peer.say(&[get(1, "/hang"), get(3, "/hang")].concat()).await;
            soon(async {
                // Three of a bystander's came before.
                while site.seen.begun.load(Ordering::SeqCst) < 3 + 4 * round - 2 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let cancel = ErrorCode::CANCEL.0.to_be_bytes();
            let resets = [1, 3]
                .map(|stream| frame(RST_STREAM, 0, stream, &cancel))
                .concat();
            peer.say(&[resets, get(5, "/none"), get(7, "/none")].concat())
                .await;
            let mut answers = 0;
            while answers < 2 {
                let heard = peer.next().await.expect("the connection lives");
                assert_ne!(heard.kind, GOAWAY, "{heard:?}");
                let refusal = heard.kind == RST_STREAM;
                answers += u32::from(refusal || heard.kind == HEADERS);
                refused += u32::from(refusal);
            }
            soon(async {
                while site.seen.begun.load(Ordering::SeqCst) < 3 + 4 * round && refused == 0 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            if refused > 0 {
                break;
            }
        }
        assert_eq!(refused, 0, "requests were refused");
        site.is_free().await;
    }
}

#[tokio::test]
async fn two_hundred_cookies() {
    for tls in [false, true] {
        let site = Site::start(tls, Config::default()).await;
        let crumbs: Vec<String> = (0..200)
            .map(|number| format!("name-{number:03}=a-value-of-some-length"))
            .collect();
        let joined = crumbs.join("; ");
        // As crumbs, and as one field.
        let fields: Vec<(&str, &str)> = crumbs.iter().map(|crumb| ("cookie", crumb.as_str())).collect();
        let mut attacker = site.attacker().await;
        attacker
            .say(&frame(HEADERS, 5, 1, &request("GET", "/cookie", &fields)))
            .await;
        let answer = attacker.expect(DATA).await;
        assert_eq!(answer.payload, joined.len().to_string());
        let request = Request::get(site.url("/cookie"))
            .header("cookie", &joined)
            .body(empty())
            .expect("a request");
        for _ in 0..200 {
            let response = soon(site.bystander().request(request_again(&request))).await;
            let body = soon(response.expect("an answer").into_body().collect()).await;
            assert_eq!(body.expect("a body").to_bytes(), joined.len().to_string());
        }
    }
}

/// The same request once more.
fn request_again<B>(
    request: &Request<B>,
) -> Request<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, fullbore::BoxError>> {
    let mut again = Request::new(empty());
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    again
}
