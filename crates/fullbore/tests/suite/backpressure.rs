//! A side that does not read stops the other, and no other stream; bodies are asked for little ahead of what leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fullbore::settings::{Refill, Scheduling};
use fullbore::{BoxError, Config};
use http::Response;
use http_body_util::BodyExt;
use tokio::sync::Notify;

use crate::support::{Chunks, Pair, Produced, config, full, get, pair, post, service, soon, take, windows};

/// How much of a body may wait to be sent (384 KiB), and what one write gathers beyond the windows (512 KiB).
const SEND_BUFFER: u64 = 384 << 10;

/// A server whose bodies count what they have given: `/<name>` is ten million octets.
fn counting(client: Config, chunk: usize) -> (Pair, Produced) {
    let produced = Produced::default();
    let count = Arc::clone(&produced);
    let pair = pair(client, config(), move |request| {
        let count = Arc::clone(&count);
        async move {
            Ok(match request.uri().path() {
                "/counted" => Response::new(Chunks::new(10_000_000, chunk).counted(&count).boxed_unsync()),
                _ => Response::new(Chunks::new(300_000, 1_000).boxed_unsync()),
            })
        }
    });
    (pair, produced)
}

/// Lets everybody do what there is to do.
async fn settle(produced: &Produced) {
    let mut before = u64::MAX;
    let mut quiet = 0;
    while quiet < 200 {
        tokio::task::yield_now().await;
        let now = produced.load(Ordering::SeqCst);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

#[tokio::test]
async fn a_response_body_is_asked_for_no_more_than_the_window_and_the_buffer_hold() {
    for chunk in [1_000, 16_384, 100_000] {
        let window = 100_000;
        let (pair, produced) = counting(windows(window, 1 << 20), chunk);
        let response = soon(pair.client.send(get("/counted"))).await.unwrap();
        soon(settle(&produced)).await;
        let ahead = produced.load(Ordering::SeqCst);
        let most = u64::from(window) + SEND_BUFFER + chunk as u64;
        assert!(ahead >= u64::from(window), "the window is used: {ahead}");
        assert!(
            ahead <= most,
            "in chunks of {chunk}: {ahead} octets, more than {most}"
        );
        assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 10_000_000);
        pair.end().await;
    }
}

#[tokio::test]
async fn a_request_body_is_asked_for_no_more_than_the_window_and_the_buffer_hold() {
    let (window, chunk) = (100_000, 30_000);
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let pair = pair(config(), windows(window, 1 << 20), move |request| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(Response::new(full(
                take(request.into_body()).await?.bytes.to_string(),
            )))
        }
    });
    let produced = Produced::default();
    let body = Chunks::new(10_000_000, chunk).counted(&produced);
    let response = tokio::spawn(pair.client.send(post("/", body)));
    soon(settle(&produced)).await;
    let ahead = produced.load(Ordering::SeqCst);
    let most = u64::from(window) + SEND_BUFFER + chunk as u64;
    assert!(
        (u64::from(window)..=most).contains(&ahead),
        "{ahead} octets, more than {most}"
    );
    go.notify_one();
    let response = soon(response).await.unwrap().unwrap();
    assert_eq!(
        soon(response.into_body().collect()).await.unwrap().to_bytes(),
        "10000000"
    );
    pair.end().await;
}

#[tokio::test]
async fn a_transport_that_takes_nothing_stops_the_body_too() {
    let (near, far) = tokio::io::duplex(1_024);
    let produced = Produced::default();
    let count = Arc::clone(&produced);
    let service = service(move |_| {
        let body = Chunks::new(100_000_000, 16_384).counted(&count);
        async move { Ok::<_, BoxError>(Response::new(body)) }
    });
    tokio::spawn(fullbore::server::serve_connection(near, service, config()));
    let mut raw = soon(crate::support::Peer::client(far, &[(4, 1 << 30)])).await;
    raw.send(
        crate::support::frames::WINDOW_UPDATE,
        0,
        0,
        &(1u32 << 30).to_be_bytes(),
    )
    .await;
    raw.request(1, true, &[]).await;
    soon(settle(&produced)).await;
    let ahead = produced.load(Ordering::SeqCst);
    // One list under way, one that waits, and the buffer.
    assert!(ahead <= 2 * (512 << 10) + SEND_BUFFER, "{ahead} octets");
    assert!(ahead > 0);
}

#[tokio::test]
async fn a_reader_that_stalls_does_not_stop_the_others() {
    // The connection's window holds a few streams' windows.
    let (pair, produced) = counting(windows(65_535, 4 * 65_535), 20_000);
    let stalled = [
        soon(pair.client.send(get("/counted"))).await.unwrap(),
        soon(pair.client.send(get("/counted"))).await.unwrap(),
        soon(pair.client.send(get("/counted"))).await.unwrap(),
    ];
    soon(settle(&produced)).await;
    for _ in 0..20 {
        let response = soon(pair.client.send(get("/other"))).await.unwrap();
        assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 300_000);
    }
    for response in stalled {
        assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 10_000_000);
    }
    pair.end().await;
}

#[tokio::test]
async fn a_handler_that_does_not_read_does_not_stop_the_others() {
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let pair = pair(config(), windows(65_535, 4 * 65_535), move |request| {
        let gate = Arc::clone(&gate);
        async move {
            if request.uri().path() == "/stalls" {
                gate.notified().await;
            }
            Ok(Response::new(full(
                take(request.into_body()).await?.bytes.to_string(),
            )))
        }
    });
    let stalled: Vec<_> = (0..3)
        .map(|_| tokio::spawn(pair.client.send(post("/stalls", Chunks::new(1_000_000, 10_000)))))
        .collect();
    for _ in 0..20 {
        let response = soon(pair.client.send(post("/other", Chunks::new(500_000, 10_000))))
            .await
            .unwrap();
        assert_eq!(
            soon(response.into_body().collect()).await.unwrap().to_bytes(),
            "500000"
        );
    }
    for response in stalled {
        go.notify_one();
        let response = soon(response).await.unwrap().unwrap();
        assert_eq!(
            soon(response.into_body().collect()).await.unwrap().to_bytes(),
            "1000000"
        );
    }
    pair.end().await;
}

#[tokio::test]
async fn every_scheduling_and_refill_moves_all_streams() {
    for scheduling in [Scheduling::InOrder, Scheduling::Fair] {
        for refill in [
            Refill::Fraction { divisor: 1 },
            Refill::Fraction { divisor: 2 },
            Refill::Fraction { divisor: 100 },
            Refill::Remaining(0),
            Refill::Remaining(1_000),
            Refill::Remaining(160_000),
        ] {
            let mut settings = windows(30_000, 65_535);
            settings.set_scheduling(scheduling);
            settings.set_stream_refill(refill);
            settings.set_connection_refill(refill);
            let pair = pair(settings.clone(), settings, |request| async {
                let body = request.into_body().map_err(BoxError::from);
                Ok(Response::new(body.boxed_unsync()))
            });
            let tasks: Vec<_> = (0..10u64)
                .map(|index| {
                    let client = pair.client.clone();
                    tokio::spawn(async move {
                        let body = Chunks::new(150_000 + index, 7_000);
                        let response = soon(client.send(post("/", body))).await.expect("a response");
                        take(response.into_body()).await.expect("a body").bytes
                    })
                })
                .collect();
            for (index, task) in (0u64..).zip(tasks) {
                assert_eq!(
                    soon(task).await.unwrap(),
                    150_000 + index,
                    "{scheduling:?} {refill:?}"
                );
            }
            pair.end().await;
        }
    }
}

#[tokio::test]
async fn padding_returns_its_credit_under_every_refill() {
    use crate::support::{Peer, frames};
    for divisor in [1, 2, 4] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let mut settings = windows(1_000, 65_535);
        settings.set_stream_refill(Refill::Fraction { divisor });
        let service = service(|request: http::Request<fullbore::Incoming>| async {
            let bytes = request.into_body().collect().await?.to_bytes();
            Ok::<_, BoxError>(Response::new(http_body_util::Full::new(Bytes::from(
                bytes.len().to_string(),
            ))))
        });
        tokio::spawn(fullbore::server::serve_connection(near, service, settings));
        let mut raw = soon(Peer::client(far, &[])).await;
        raw.request(1, false, &[]).await;
        let (mut window, mut sent) = (1_000, 0);
        for round in 0..100usize {
            while window == 0 {
                let update = soon(raw.expect(frames::WINDOW_UPDATE)).await;
                if update.stream == 1 {
                    window += update.code() as usize;
                }
            }
            // Data, padding and its length, all of which count; what is left of the window may be too small for two.
            let padding = (50 + round).min(window - 1);
            let data = 10.min(window - 1 - padding);
            let payload = [&[padding as u8][..], &vec![b'd'; data], &vec![0; padding]].concat();
            window -= payload.len();
            sent += data;
            raw.send(frames::DATA, 8 | u8::from(round == 99), 1, &payload)
                .await;
        }
        assert_eq!(soon(raw.expect(frames::DATA)).await.payload, sent.to_string());
    }
}
