//! Origins that require HTTP/1.1 for a request (HTTP_1_1_REQUIRED).

use tokio::io::AsyncReadExt;

use super::http1::{Unsized, answer};
use super::*;

/// The stream of the next request over HTTP/2. SETTINGS and PING are answered.
async fn next_request(peer: &mut Peer<End>) -> Option<u32> {
    loop {
        let frame = peer.next().await?;
        match frame.kind {
            frames::SETTINGS | frames::PING if frame.flags & 1 == 0 => {
                let answer = match frame.kind {
                    frames::PING => &frame.payload[..],
                    _ => &[],
                };
                peer.send(frame.kind, 1, 0, answer).await;
            }
            frames::HEADERS => return Some(frame.stream),
            _ => {}
        }
    }
}

async fn require_http1(peer: &mut Peer<End>, stream: u32) {
    // HTTP_1_1_REQUIRED.
    peer.send(frames::RST_STREAM, 0, stream, &[0, 0, 0, 0xd]).await;
}

#[tokio::test(start_paused = true)]
async fn an_origin_that_requires_http1_for_a_request_gets_all_in_http1_from_then_on() {
    // The first request waits. At the next one the peer requires HTTP/1.1, by RST_STREAM or by a GOAWAY that leaves it out.
    for with_go_away in [false, true] {
        let serve = move |site: Arc<Site>, io: End| async move {
            if site.dials() > 1 {
                return answer(site, io).await;
            }
            let mut peer = Peer::server(io, &[(MAX_STREAMS, 10)]).await;
            next_request(&mut peer).await;
            while let Some(stream) = next_request(&mut peer).await {
                match with_go_away {
                    true => peer.send(frames::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0xd]).await,
                    false => require_http1(&mut peer, stream).await,
                }
                peer.respond(1, true, &[]).await;
            }
        };
        let (site, client) = Site::start_with(plan(MS, 10), Client::builder(), serve);
        let begun = begin(&client, 1).await;
        all(begin(&client, 2).await).await;
        // The request that was under way has its response too.
        all(begun).await;
        assert_eq!((site.dials(), site.requests.load(Ordering::SeqCst)), (3, 2));
        for _ in 0..2 {
            let response = client.get("http://one.example/").await.expect("a response");
            assert_eq!(response.version(), http::Version::HTTP_11);
        }
        assert_eq!(site.dials(), 3);
        let state = stats(&client);
        assert_eq!((state.connections, state.in_flight, state.waiting), (2, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_that_is_opened_after_http1_was_required_takes_no_request() {
    // The peer says so while the second connection is opened.
    let serve = |site: Arc<Site>, mut io: End| async move {
        let is_first = site.dials() == 1;
        let mut preface = [0; 24];
        if io.read_exact(&mut preface).await.is_err() || !preface.starts_with(b"PRI") {
            return answer(site, io).await;
        }
        site.open.fetch_add(1, Ordering::SeqCst);
        let mut peer = Peer::new(io);
        peer.write(&frames::settings(&[(MAX_STREAMS, 2)])).await;
        while let Some(stream) = next_request(&mut peer).await {
            assert!(is_first, "a request on the second one");
            match site.dials() {
                1 => peer.respond(stream, true, &[]).await,
                _ => require_http1(&mut peer, stream).await,
            }
        }
        site.open.fetch_sub(1, Ordering::SeqCst);
    };
    let slow = Plan {
        opening: MS * 1_000,
        ..plan(MS * 50, 2)
    };
    let (site, client) = Site::start_with(slow, Client::builder().max_connections(2), serve);
    keep_busy(&client, 40, MS * 5_000).await;
    assert!(site.requests.load(Ordering::SeqCst) > 40, "in HTTP/1.1");
    assert_eq!(stats(&client).connections, 2);
    assert_eq!((site.dials(), site.open.load(Ordering::SeqCst)), (4, 2));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_needs_http1_fails_where_it_is_not_allowed_and_if_its_body_is_gone() {
    let serve = |site: Arc<Site>, io: End| async move {
        if site.dials() > 1 {
            return answer(site, io).await;
        }
        let mut peer = Peer::server(io, &[(MAX_STREAMS, 10)]).await;
        while let Some(stream) = next_request(&mut peer).await {
            require_http1(&mut peer, stream).await;
        }
    };
    let http2 = Client::builder().http_versions(HttpVersions::Http2);
    let (site, client) = Site::start_with(plan(MS, 10), http2, serve);
    for _ in 0..2 {
        let error = client.get("http://one.example/").await.expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::Reset, "{error}");
    }
    assert_eq!(site.dials(), 1);

    let (site, client) = Site::start_with(plan(MS, 10), Client::builder(), serve);
    let body = || Unsized(Some(Bytes::from_static(b"body")));
    let error = client
        .post("http://one.example/")
        .body(RequestBody::wrap(body()))
        .await
        .expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("requires HTTP/1.1"), "{error}");
    client
        .post("http://one.example/")
        .body(RequestBody::wrap(body()))
        .await
        .expect("in HTTP/1.1");
    assert_eq!(site.dials(), 2);
}
