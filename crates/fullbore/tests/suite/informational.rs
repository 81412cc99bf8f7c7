//! Informational responses (1xx) that handlers send.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fullbore::client::{handshake, on_informational};
use fullbore::server::{Informational, serve_connection, serve_connection_auto, serve_connection_local};
use fullbore::{BoxError, ErrorKind, Incoming};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::frames::{DATA, END_STREAM, HEADERS};
use crate::support::{Local, Peer, Reply, config, empty, full, post, service, soon};

fn informational(status: u16, link: &str) -> Response<()> {
    Response::builder()
        .status(status)
        .header("link", link)
        .body(())
        .expect("a response")
}

/// Sends hints, as the path says: before the first await, after it, or from another task.
async fn answer(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let hint = |link: &str| {
        let handle = Informational::current().expect("a handle");
        handle.send(informational(103, link)).expect("a hint");
        handle
    };
    match request.uri().path() {
        "/ready" => {
            hint("1");
            hint("2");
        }
        "/later" => {
            hint("1");
            tokio::task::yield_now().await;
            hint("2");
            tokio::task::yield_now().await;
        }
        "/elsewhere" => {
            let handle = Informational::current().expect("a handle");
            assert!(tokio::spawn(async { Informational::current() }).await?.is_none());
            tokio::spawn(async move {
                handle.send(informational(103, "1")).expect("a hint");
                handle.send(informational(103, "2")).expect("a hint");
            })
            .await?;
        }
        "/wrong" => {
            let handle = Informational::current().expect("a handle");
            for status in [101, 200, 404] {
                let refused = handle.send(informational(status, "1")).expect_err("refused");
                assert_eq!(refused.kind(), ErrorKind::InvalidMessage);
            }
            for link in ["1", "2"] {
                handle.send(informational(102, link))?;
            }
            // Too late, and for all but the first without effect in any case.
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                for _ in 0..100 {
                    handle.send(informational(103, "late")).expect("ignored");
                }
            });
        }
        _ => {
            let handle = Informational::current().expect("a handle");
            for link in 0..200 {
                handle.send(informational(103, &link.to_string()))?;
            }
        }
    }
    Ok(Response::new(full("the response")))
}

#[tokio::test]
async fn a_handler_sends_informational_responses_ahead_of_its_response() {
    for local in [false, true] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let (client, connection) = handshake(near, config());
        let ask = async move {
            for (path, sent) in [
                ("/ready", 2),
                ("/later", 2),
                ("/elsewhere", 2),
                ("/wrong", 2),
                ("/many", 64),
            ] {
                let seen = Arc::new(Mutex::new(Vec::new()));
                let book = Arc::clone(&seen);
                let mut request = post(path, empty());
                on_informational(&mut request, move |response| {
                    let link = response.headers()["link"].to_str().unwrap().to_owned();
                    book.lock().unwrap().push(link);
                });
                let response = soon(client.send(request)).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                let first = usize::from(sent == 2);
                let expected: Vec<_> = (first..first + sent).map(|link| link.to_string()).collect();
                assert_eq!(*seen.lock().unwrap(), expected, "local: {local}, {path}");
                let body = soon(response.into_body().collect()).await.unwrap();
                assert_eq!(body.to_bytes(), "the response");
            }
        };
        let serve = async {
            match local {
                false => serve_connection(far, service(answer), config()).await,
                true => serve_connection_local(far, Local::new(answer), config()).await,
            }
        };
        let ((), client, server) = tokio::join!(ask, connection, serve);
        client.and(server).unwrap();
    }
}

#[tokio::test]
async fn a_handler_may_say_100_continue_itself_and_it_is_said_once() {
    for early in [false, true] {
        let (near, far) = tokio::io::duplex(64 << 10);
        let handler = service(move |request: Request<Incoming>| async move {
            if early {
                let mut response = Response::new(());
                *response.status_mut() = StatusCode::CONTINUE;
                Informational::current().unwrap().send(response)?;
            }
            let body = request.into_body().collect().await?.to_bytes();
            Ok::<_, BoxError>(Response::new(full(body)))
        });
        let serving = tokio::spawn(serve_connection(far, handler, config()));
        let mut peer = soon(Peer::client(near, &[])).await;
        peer.request(1, false, &[("expect", "100-continue")]).await;
        soon(peer.expect(HEADERS)).await;
        peer.send(DATA, END_STREAM, 1, b"body").await;
        // The next HEADERS are those of the response.
        soon(peer.expect(HEADERS)).await;
        let data = soon(peer.expect(DATA)).await;
        assert_eq!(&data.payload[..], b"body", "early: {early}");
        drop(peer);
        soon(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn over_http_1_there_is_no_handle() {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let handler = service(|_: Request<Incoming>| async {
        let has_handle = Informational::current().is_some();
        Ok::<_, BoxError>(Response::new(full(Bytes::from(format!("handle: {has_handle}")))))
    });
    let serving = tokio::spawn(serve_connection_auto(far, handler, config()));
    let request = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    near.write_all(request).await.unwrap();
    let mut answer = String::new();
    soon(near.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("handle: false"), "{answer}");
    soon(serving).await.unwrap().unwrap();
}
