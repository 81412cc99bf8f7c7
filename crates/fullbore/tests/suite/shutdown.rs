//! How connections end: in good order, whoever asks for it, and whatever is under way.

use std::time::Duration;

use bytes::Bytes;
use fullbore::client::handshake;
use fullbore::server::serve_connection;
use fullbore::{Client, ErrorKind, Server};
use http::Response;
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};

use crate::support::{Chunks, Peer, config, empty, frames, full, get, pair, post, service, soon, take};

#[tokio::test]
async fn dropping_all_handles_ends_both_ends_well() {
    let pair = pair(config(), config(), |_| async { Ok(Response::new(full("hello"))) });
    let response = soon(pair.client.send(get("/"))).await.unwrap();
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body, "hello");
    pair.end().await;
}

#[tokio::test]
async fn a_connection_that_was_never_used_ends_well() {
    pair(config(), config(), |_| async { Ok(Response::new(empty())) })
        .end()
        .await;
}

#[tokio::test]
async fn a_handle_that_goes_while_the_connection_idles_ends_it() {
    let pair = pair(config(), config(), |_| async { Ok(Response::new(empty())) });
    soon(pair.client.send(get("/"))).await.unwrap();
    // Both drivers have nothing to do any more.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    pair.end().await;
}

#[tokio::test]
async fn a_body_that_is_being_read_outlives_the_last_handle() {
    let pair = pair(config(), config(), |_| async {
        Ok(Response::new(Chunks::new(3_000_000, 10_000).boxed_unsync()))
    });
    let response = soon(pair.client.send(get("/"))).await.unwrap();
    drop(pair.client);
    assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 3_000_000);
    soon(pair.client_task).await.unwrap().unwrap();
    soon(pair.server_task).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handle_that_goes_at_any_moment_ends_the_connection() {
    for round in 0..2_000u32 {
        let (near, far) = tokio::io::duplex(64 << 10);
        let server = tokio::spawn(serve_connection(
            far,
            service(|_| async { Ok::<_, std::convert::Infallible>(Response::new(empty())) }),
            config(),
        ));
        let (sender, connection) = handshake(near, config());
        let client = tokio::spawn(connection);
        for _ in 0..round % 64 {
            std::hint::spin_loop();
        }
        drop(sender);
        soon(client).await.unwrap().unwrap();
        soon(server).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_request_that_was_sent_before_the_last_handle_went_is_answered() {
    for _ in 0..2_000 {
        let pair = pair(config(), config(), |_| async { Ok(Response::new(full("here"))) });
        let response = pair.client.send(get("/"));
        drop(pair.client);
        let response = soon(response).await.expect("it was sent in time");
        assert_eq!(
            soon(response.into_body().collect()).await.unwrap().to_bytes(),
            "here"
        );
        soon(pair.client_task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_graceful_end_that_is_asked_for_at_any_moment_comes() {
    for round in 0..2_000u32 {
        let (near, far) = tokio::io::duplex(64 << 10);
        let service = service(|_| async { Ok::<_, std::convert::Infallible>(Response::new(empty())) });
        let server = tokio::spawn(serve_connection(far, service, config()));
        let (sender, connection) = handshake(near, config());
        let client = tokio::spawn(connection);
        soon(sender.send(get("/"))).await.unwrap();
        for _ in 0..round % 64 {
            std::hint::spin_loop();
        }
        sender.shutdown();
        soon(client).await.unwrap().unwrap();
        soon(server).await.unwrap().unwrap();
        assert!(!sender.is_open());
    }
}

#[tokio::test]
async fn after_a_graceful_end_was_asked_for_what_runs_goes_on_and_nothing_new_begins() {
    let (go, mut gate) = mpsc::channel::<()>(1);
    let (near, far) = tokio::io::duplex(64 << 10);
    let (seen, mut arrived) = mpsc::channel::<()>(1);
    let gate = std::sync::Arc::new(tokio::sync::Mutex::new(gate_of(&mut gate)));
    let service = service(move |_| {
        let (gate, seen) = (std::sync::Arc::clone(&gate), seen.clone());
        async move {
            seen.send(()).await.ok();
            gate.lock().await.recv().await;
            Ok::<_, std::convert::Infallible>(Response::new(full("finished")))
        }
    });
    let server = tokio::spawn(serve_connection(far, service, config()));
    let (sender, connection) = handshake(near, config());
    let client = tokio::spawn(connection);
    let under_way = tokio::spawn(sender.send(get("/slow")));
    soon(arrived.recv()).await.unwrap();
    sender.shutdown();
    let error = soon(sender.send(get("/late"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    go.send(()).await.unwrap();
    let response = soon(under_way).await.unwrap().unwrap();
    assert_eq!(
        soon(response.into_body().collect()).await.unwrap().to_bytes(),
        "finished"
    );
    soon(client).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

/// Takes a receiver out of its place, so that a closure can own it.
fn gate_of(gate: &mut mpsc::Receiver<()>) -> mpsc::Receiver<()> {
    std::mem::replace(gate, mpsc::channel(1).1)
}

#[tokio::test]
async fn a_servers_graceful_end_finishes_what_runs_and_refuses_new_connections() {
    let (stop, stopped) = oneshot::channel::<()>();
    let (go, gate) = oneshot::channel::<()>();
    let (seen, arrived) = oneshot::channel::<()>();
    let once = std::sync::Arc::new(std::sync::Mutex::new(Some((seen, gate))));
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    let server = server.graceful_shutdown(async {
        stopped.await.ok();
    });
    let service = service(move |_| {
        let once = once.lock().unwrap().take();
        async move {
            if let Some((seen, gate)) = once {
                seen.send(()).ok();
                gate.await.ok();
            }
            Ok::<_, std::convert::Infallible>(Response::new(Chunks::new(1_000_000, 1_000).boxed_unsync()))
        }
    });
    let serving = tokio::spawn(server.serve(service));
    let client = Client::new();
    let url = format!("http://{address}/");
    let under_way = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { client.get(&url).await }
    });
    soon(arrived).await.unwrap();
    stop.send(()).unwrap();
    // The listener is gone once connecting fails.
    soon(async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!serving.is_finished(), "a request is still under way");
    go.send(()).unwrap();
    let response = soon(under_way).await.unwrap().unwrap();
    assert_eq!(soon(take(response.into_body())).await.unwrap().bytes, 1_000_000);
    soon(serving).await.unwrap().unwrap();
    let error = soon(client.get(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
}

#[tokio::test]
async fn what_is_not_done_within_the_drain_timeout_is_dropped() {
    let (stop, stopped) = oneshot::channel::<()>();
    let (seen, mut arrived) = mpsc::channel::<()>(1);
    let builder = Server::builder().drain_timeout(Duration::from_millis(50));
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let server = server.graceful_shutdown(async {
        stopped.await.ok();
    });
    let service = service(move |_| {
        let seen = seen.clone();
        async move {
            seen.send(()).await.ok();
            std::future::pending::<()>().await;
            Ok::<_, std::convert::Infallible>(Response::new(empty()))
        }
    });
    let serving = tokio::spawn(server.serve(service));
    let request = tokio::spawn(async move { Client::new().get(&url).await });
    soon(arrived.recv()).await.unwrap();
    stop.send(()).unwrap();
    let error = soon(serving).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let error = soon(request).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    // The handler has gone with its connection.
    assert!(soon(arrived.recv()).await.is_none());
}

#[tokio::test]
async fn a_client_connects_anew_after_the_servers_goaway() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new();
    for round in 0..5 {
        let request = tokio::spawn({
            let (client, url) = (client.clone(), url.clone());
            async move { client.get(&url).await }
        });
        let (io, _) = soon(listener.accept()).await.unwrap();
        let service = service(|_| async { Ok::<_, std::convert::Infallible>(Response::new(full("hello"))) });
        let mut connection = Box::pin(serve_connection(io, service, config()));
        let response = soon(async {
            tokio::select! {
                response = request => response.unwrap().unwrap(),
                ended = &mut connection => panic!("the connection of round {round} ended: {ended:?}"),
            }
        })
        .await;
        connection.graceful_shutdown();
        let body = tokio::spawn(response.into_body().collect());
        soon(connection).await.unwrap();
        assert_eq!(soon(body).await.unwrap().unwrap().to_bytes(), "hello");
    }
}

#[tokio::test]
async fn a_clients_shutdown_ends_its_connections_and_the_next_request_opens_another() {
    let (stop, stopped) = oneshot::channel::<()>();
    let (connected, mut connections) = mpsc::unbounded_channel();
    let builder = Server::builder().peer_addresses(true);
    let server = builder.bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let service = service(move |request: http::Request<fullbore::Incoming>| {
        let peer = request.extensions().get::<fullbore::server::PeerAddr>().copied();
        connected.send(peer).ok();
        async { Ok::<_, std::convert::Infallible>(Response::new(full("hello"))) }
    });
    let server = server.graceful_shutdown(async {
        stopped.await.ok();
    });
    let serving = tokio::spawn(server.serve(service));
    let client = Client::new();
    for _ in 0..2 {
        soon(client.get(&url)).await.unwrap();
    }
    soon(client.shutdown()).await;
    soon(client.get(&url)).await.unwrap();
    let peers = [
        connections.recv().await.unwrap().expect("an address"),
        connections.recv().await.unwrap().expect("an address"),
        connections.recv().await.unwrap().expect("an address"),
    ];
    assert_eq!(peers[0], peers[1]);
    assert_ne!(peers[1], peers[2]);
    soon(client.shutdown()).await;
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_servers_graceful_end_waits_for_an_upload() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let service = service(|request: http::Request<fullbore::Incoming>| async {
        let taken = take(request.into_body()).await?;
        Ok::<_, fullbore::Error>(Response::new(full(taken.bytes.to_string())))
    });
    let mut connection = Box::pin(serve_connection(far, service, config()));
    let (sender, client) = handshake(near, config());
    let client = tokio::spawn(client);
    let (mut body, receiver) = http_body_util::channel::Channel::<Bytes, fullbore::BoxError>::new(4);
    let response = tokio::spawn(sender.send(post("/", receiver)));
    soon(async {
        tokio::select! {
            sent = body.send_data(crate::support::pattern(0, 1_000)) => sent.unwrap(),
            _ = &mut connection => panic!("it ended"),
        }
    })
    .await;
    soon(async {
        for _ in 0..50 {
            tokio::select! { biased; _ = &mut connection => panic!("it ended"), () = tokio::task::yield_now() => {} }
        }
    })
    .await;
    connection.graceful_shutdown();
    let server = tokio::spawn(connection);
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    soon(body.send_data(crate::support::pattern(1_000, 5_000)))
        .await
        .unwrap();
    drop(body);
    let response = soon(response).await.unwrap().unwrap();
    assert_eq!(
        soon(response.into_body().collect()).await.unwrap().to_bytes(),
        "6000"
    );
    soon(server).await.unwrap().unwrap();
    soon(client).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_clients_shutdown_returns_when_goaway_was_sent_and_its_requests_are_complete() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = Client::new();
    soon(client.shutdown()).await;
    let request = tokio::spawn({
        let client = client.clone();
        async move { client.get(&url).await?.into_body().collect().await }
    });
    let (io, _) = soon(listener.accept()).await.unwrap();
    let mut raw = soon(Peer::server(io, &[])).await;
    assert_eq!(soon(raw.expect(frames::HEADERS)).await.stream, 1);
    raw.respond(1, false, &[]).await;
    let mut shutdown = tokio::spawn(async move { client.shutdown().await });
    soon(raw.expect(frames::GOAWAY)).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!shutdown.is_finished(), "the body is not complete");
    raw.send(frames::DATA, 1, 1, b"hello").await;
    assert_eq!(soon(request).await.unwrap().unwrap().to_bytes(), "hello");
    soon(&mut shutdown).await.unwrap();
    assert!(soon(raw.next()).await.is_none(), "the connection is closed");
}
