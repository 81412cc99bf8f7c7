//! How an exchange ends early: resets travel both ways, what breaks off never ends well, and an answer that is early arrives
//! whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, ErrorCode, Incoming};
use fullbore_testing::frames::{DATA, END_STREAM, HEADERS, RST_STREAM};
use fullbore_testing::peer::Peer;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{
    Front, VERSIONS, boxed, client, full, get, head, origin, raw_origin, says, soon, text, urls,
};

#[tokio::test]
async fn a_client_that_gives_up_ends_the_request_at_the_origin() {
    for early in [true, false] {
        let ended = Arc::new(tokio::sync::Notify::new());
        let begun = Arc::new(tokio::sync::Notify::new());
        let (told, started) = (Arc::clone(&ended), Arc::clone(&begun));
        let site = origin(move |mut request: Request<Incoming>| {
            let (ended, begun) = (Arc::clone(&told), Arc::clone(&started));
            async move {
                struct Tell(Arc<tokio::sync::Notify>);
                impl Drop for Tell {
                    fn drop(&mut self) {
                        self.0.notify_one();
                    }
                }
                let tell = Tell(ended);
                begun.notify_one();
                if early {
                    let failed = request.body_mut().frame().await;
                    assert!(failed.is_none_or(|frame| frame.is_err()));
                    std::future::pending::<()>().await;
                }
                let silence = futures_util::stream::once(async move {
                    let _tell = tell;
                    std::future::pending::<Result<http_body::Frame<Bytes>, BoxError>>().await
                });
                Ok(Response::new(boxed(http_body_util::StreamBody::new(silence))))
            }
        })
        .await;
        // Over HTTP/1.1 a client that closes its half may wait for the answer: it has half a minute.
        let front = Front::to(&urls(&site)[1]).await;
        let client = client(VERSIONS[1]);
        let request = get(&front.url("/"));
        let asking = tokio::spawn(async move { client.request(request).await });
        soon(begun.notified()).await;
        if early {
            asking.abort();
        } else {
            drop(soon(asking).await.unwrap().unwrap());
        }
        soon(ended.notified()).await;
        soon(unused(&front)).await;
    }
}

async fn unused(front: &Front) {
    while front.proxy.stats()[0].requests > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_gives_up_ends_the_connection_to_an_origin_of_http_1() {
    let (send, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let begun = Arc::new(tokio::sync::Notify::new());
    let started = Arc::clone(&begun);
    let site = raw_origin(move |number, mut stream| {
        let (send, begun) = (send.clone(), Arc::clone(&started));
        async move {
            head(&mut stream).await;
            if number > 0 {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
                stream.write_all(answer).await.unwrap();
            }
            begun.notify_one();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            let _ = send.send(());
        }
    })
    .await;
    let front = Front::to(&urls(&site)[0]).await;
    for answers in [false, true] {
        let client = client(VERSIONS[1]);
        let request = get(&front.url("/"));
        let asking = tokio::spawn(async move { client.request(request).await });
        soon(begun.notified()).await;
        if answers {
            drop(soon(asking).await.unwrap().unwrap());
        } else {
            asking.abort();
        }
        soon(ended.recv()).await.unwrap();
        soon(unused(&front)).await;
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_does_not_end_well_at_the_origin() {
    let whole = Arc::new(AtomicBool::new(false));
    let (send, mut failed) = tokio::sync::mpsc::unbounded_channel();
    let seen = Arc::clone(&whole);
    let site = origin(move |request: Request<Incoming>| {
        let (whole, send) = (Arc::clone(&seen), send.clone());
        async move {
            match request.into_body().collect().await {
                Ok(_) => whole.store(true, Ordering::SeqCst),
                Err(error) => drop(send.send(error)),
            }
            Ok(Response::new(full("")))
        }
    })
    .await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for request in [
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            let mut stream = TcpStream::connect(front.site.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(stream);
            soon(failed.recv()).await.unwrap();
        }
        let stream = TcpStream::connect(front.site.address).await.unwrap();
        let mut peer = soon(Peer::client(stream, &[])).await;
        peer.request(1, false, &[]).await;
        peer.send(DATA, 0, 1, b"hello").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // CANCEL.
        peer.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]).await;
        soon(failed.recv()).await.unwrap();
        assert!(!whole.load(Ordering::SeqCst), "{url}");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_does_not_end_well_at_the_client() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ] {
        let site = says(answer).await;
        let front = Front::to(&urls(&site)[0]).await;
        for version in VERSIONS {
            let response = soon(client(version).request(get(&front.url("/")))).await;
            let body = match response {
                Ok(response) => soon(response.into_body().collect())
                    .await
                    .map(|body| body.to_bytes()),
                Err(error) => Err(error),
            };
            assert!(body.is_err(), "{answer} {version:?}: {body:?}");
        }
        let told = front.told();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("the response broke off: http://127.0.0.1:"),
            "{told:?}"
        );
    }
}

/// Without an error too: a client that is told of none takes a part for the whole (connect-es#1751).
#[tokio::test]
async fn a_reset_of_the_origin_is_a_reset_for_the_client() {
    // NO_ERROR, INTERNAL_ERROR and CANCEL.
    for code in [0, 2, 8] {
        let site = raw_origin(move |_, stream| async move {
            let mut peer = Peer::server(stream, &[]).await;
            peer.expect(HEADERS).await;
            peer.respond(1, false, &[]).await;
            peer.send(DATA, 0, 1, b"hello").await;
            peer.send(RST_STREAM, 0, 1, &[0, 0, 0, code]).await;
            peer.rest().await;
        })
        .await;
        for version in VERSIONS {
            let front = Front::to(&urls(&site)[1]).await;
            let body = match soon(client(version).request(get(&front.url("/")))).await {
                Ok(response) => soon(response.into_body().collect()).await.map(drop),
                Err(error) => Err(error),
            };
            let error = body.expect_err("it breaks off");
            assert_ne!(error.code(), Some(ErrorCode::NO_ERROR), "{code} {version:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_comes_during_the_upload_arrives_whole_and_then_the_upload_is_reset() {
    let http1 = raw_origin(|_, mut stream| async move {
        head(&mut stream).await;
        let answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo much";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let http2 = raw_origin(|_, stream| async move {
        let mut peer = Peer::server(stream, &[]).await;
        while let Some(frame) = peer.next().await {
            if frame.kind == HEADERS {
                let fields = fullbore_testing::frames::block(&[(":status", "413")]);
                peer.send(HEADERS, 4, frame.stream, &fields).await;
                peer.send(DATA, END_STREAM, frame.stream, b"too much").await;
                // NO_ERROR.
                peer.send(RST_STREAM, 0, frame.stream, &[0; 4]).await;
            }
        }
    })
    .await;
    for url in [&urls(&http1)[0], &urls(&http2)[1]] {
        let front = Front::to(url).await;
        for version in VERSIONS {
            let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
            let saying = tokio::spawn(async move {
                while say.send_data(Bytes::from_static(&[7; 16_384])).await.is_ok() {}
            });
            let request = Request::post(front.url("/")).body(boxed(body)).unwrap();
            let response = soon(client(version).request(request)).await.unwrap();
            assert_eq!(
                response.status(),
                StatusCode::PAYLOAD_TOO_LARGE,
                "{url} {version:?}"
            );
            assert_eq!(text(response.into_body()).await, "too much");
            soon(saying).await.unwrap();
        }
        let stream = TcpStream::connect(front.site.address).await.unwrap();
        let mut peer = soon(Peer::client(stream, &[])).await;
        peer.request(1, false, &[]).await;
        let head = soon(peer.expect(HEADERS)).await;
        assert_eq!(head.stream, 1);
        let mut body = Vec::new();
        loop {
            let frame = soon(peer.next()).await.expect("the connection goes on");
            match frame.kind {
                DATA => body.extend_from_slice(&frame.payload),
                RST_STREAM => {
                    assert_eq!(frame.payload[..], [0; 4], "NO_ERROR");
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(body, b"too much", "{url}");
    }
}
