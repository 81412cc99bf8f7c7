//! Requests and responses with their bodies, trailers and informational responses, both sides being this crate.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::{Buf, Bytes};
use h2::ext::Protocol;
use h2::{Ping, Reason, client, server};
use http::{HeaderMap, Response, StatusCode, Version};
use tokio::io::duplex;

use crate::support::{drive, get, pair, pair_with, pattern, post, read, soon};

/// Answers each request with its body, and trailers if it has some.
async fn echo(mut served: crate::support::Served) -> Result<(), h2::Error> {
    while let Some(request) = served.accept().await {
        let (request, mut respond) = request?;
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut back = respond.send_response(Response::new(()), false)?;
            while let Some(chunk) = body.data().await {
                let chunk = chunk?;
                body.flow_control().release_capacity(chunk.len())?;
                back.send_data(chunk, false)?;
            }
            match body.trailers().await? {
                Some(trailers) => back.send_trailers(trailers),
                None => back.send_data(Bytes::new(), true),
            }
        });
    }
    Ok(())
}

#[tokio::test]
async fn a_request_and_its_response_have_what_was_sent() {
    let (mut requests, connection, mut served) = pair().await;
    let (response, _) = requests.send_request(get("/path?query"), true).unwrap();
    let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    assert_eq!(request.uri(), "https://example.com/path?query");
    assert_eq!(request.version(), Version::HTTP_2);
    assert!(request.body().is_end_stream());
    let answer = Response::builder()
        .status(201)
        .header("x-kind", "plain")
        .body(())
        .unwrap();
    respond.send_response(answer, true).unwrap();
    let response = drive(&mut served, response).await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(response.headers()["x-kind"], "plain");
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(response.body().is_end_stream());
    assert_eq!(response.body().stream_id().as_u32(), 1);
    drop((response, requests, request, respond));
    assert!(soon(served.accept()).await.is_none());
    soon(connection).await.unwrap().unwrap();
}

#[tokio::test]
async fn bodies_of_every_length_come_back_with_their_trailers() {
    let (requests, connection, served) = pair().await;
    let server = tokio::spawn(echo(served));
    for length in [0, 1, 1_023, 1_024, 16_384, 16_385, 65_536, 1_000_000] {
        for trailed in [false, true] {
            let mut requests = requests.clone().ready().await.unwrap();
            let (response, mut body) = requests.send_request(post("/"), false).unwrap();
            let sent = pattern(length);
            for chunk in sent.chunks(100_000) {
                body.send_data(Bytes::copy_from_slice(chunk), false).unwrap();
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", "7".parse().unwrap());
            match trailed {
                true => body.send_trailers(trailers.clone()).unwrap(),
                false => body.send_data(Bytes::new(), true).unwrap(),
            }
            let mut response = soon(response).await.unwrap();
            let (received, end) = soon(read(response.body_mut())).await.unwrap();
            assert!(received == sent, "{length}");
            assert_eq!(end, trailed.then_some(trailers), "{length}");
        }
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn bodies_of_any_buffer_are_sent() {
    let (near, far) = duplex(10_000);
    let builder = client::Builder::new();
    let (client, served) = tokio::join!(builder.handshake(near), server::handshake(far));
    let (mut requests, connection) = client.unwrap();
    let connection = tokio::spawn(connection);
    let server = tokio::spawn(echo(served.unwrap()));
    let (response, mut body) = requests.send_request(post("/"), false).unwrap();
    let mut expected = Vec::new();
    for round in 0..5 {
        let mut first: VecDeque<u8> = pattern(5_000 * round + 300).into();
        first.rotate_left(100);
        let rest = Bytes::from(pattern(10 * round));
        expected.extend(first.iter());
        expected.extend_from_slice(&rest);
        body.send_data(first.chain(rest), round == 4).unwrap();
    }
    let mut response = soon(response).await.unwrap();
    let (received, _) = soon(read(response.body_mut())).await.unwrap();
    assert!(received == expected);
    drop((requests, response, body));
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn many_requests_at_once_keep_their_bodies_apart() {
    let mut server = server::Builder::new();
    server.max_concurrent_streams(10);
    let (requests, connection, served) = pair_with(&client::Builder::new(), &server).await;
    let server = tokio::spawn(echo(served));
    let mut tasks = Vec::new();
    for number in 0..50 {
        let requests = requests.clone();
        tasks.push(tokio::spawn(async move {
            let mut requests = requests.ready().await.unwrap();
            let (response, mut body) = requests.send_request(post("/"), false).unwrap();
            drop(requests.ready().await.unwrap());
            let sent = Bytes::from(pattern(number * 3_001));
            body.send_data(sent.clone(), true).unwrap();
            let mut response = response.await.unwrap();
            let (received, _) = read(response.body_mut()).await.unwrap();
            assert!(received == sent, "{number}");
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    soon(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn informational_responses_are_read_or_skipped() {
    let (mut requests, _connection, mut served) = pair().await;
    for reads in [true, false] {
        let (mut response, _) = requests.send_request(get("/"), true).unwrap();
        let (_request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
        let hint = |status: u16| Response::builder().status(status).body(()).unwrap();
        respond.send_informational(hint(103)).unwrap();
        respond.send_informational(hint(100)).unwrap();
        let refused = respond.send_informational(hint(200)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "user error: invalid informational status code"
        );
        respond.send_response(hint(204), true).unwrap();
        let mut seen = Vec::new();
        if reads {
            while let Some(next) = drive(&mut served, poll_fn(|cx| response.poll_informational(cx))).await {
                seen.push(next.unwrap().status().as_u16());
            }
        }
        let response = drive(&mut served, response).await.unwrap();
        assert_eq!(response.status(), 204);
        assert_eq!(seen, if reads { vec![103, 100] } else { vec![] });
    }
}

#[tokio::test]
async fn a_tunnel_is_opened_by_extended_connect() {
    let mut server = server::Builder::new();
    server.enable_connect_protocol();
    let (requests, _connection, mut served) = pair_with(&client::Builder::new(), &server).await;
    let mut requests = drive(&mut served, requests.ready()).await.unwrap();
    // The server's SETTINGS arrive with the first response.
    let (response, _) = requests.send_request(get("/"), true).unwrap();
    let (_request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    drive(&mut served, response).await.unwrap();
    assert!(requests.is_extended_connect_protocol_enabled());
    let request = http::Request::connect("https://example.com/chat")
        .extension(Protocol::from_static("websocket"))
        .body(())
        .unwrap();
    let (response, mut up) = requests.send_request(request, false).unwrap();
    let (request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    assert_eq!(request.extensions().get::<Protocol>(), Some(&"websocket".into()));
    assert_eq!(request.uri(), "https://example.com/chat");
    let mut down = respond.send_response(Response::new(()), false).unwrap();
    let mut from_server = drive(&mut served, response).await.unwrap().into_body();
    let mut from_client = request.into_body();
    up.send_data("ping".into(), false).unwrap();
    assert_eq!(
        drive(&mut served, from_client.data()).await.unwrap().unwrap(),
        "ping"
    );
    down.send_data("pong".into(), true).unwrap();
    assert_eq!(
        drive(&mut served, from_server.data()).await.unwrap().unwrap(),
        "pong"
    );
    up.send_data(Bytes::new(), true).unwrap();
    assert!(drive(&mut served, from_client.data()).await.is_none());
}

#[tokio::test]
async fn either_side_pings_the_other() {
    let (requests, connection, mut served) = pair().await;
    let mut pings = served.ping_pong().unwrap();
    assert!(served.ping_pong().is_none(), "there is one");
    for _ in 0..3 {
        drive(&mut served, pings.ping(Ping::opaque())).await.unwrap();
    }
    drop(requests);
    soon(connection).await.unwrap().unwrap();
    assert!(soon(served.accept()).await.is_none());
    drop(served);
    assert!(pings.ping(Ping::opaque()).await.unwrap_err().is_io());
}

#[tokio::test]
async fn a_server_that_shuts_down_answers_what_came_before() {
    let (mut requests, connection, mut served) = pair().await;
    let (first, _) = requests.send_request(get("/1"), true).unwrap();
    let (_request, mut respond) = soon(served.accept()).await.unwrap().unwrap();
    let (second, _) = requests.send_request(get("/2"), true).unwrap();
    tokio::task::yield_now().await;
    served.graceful_shutdown();
    let (_crossing, mut other) = soon(served.accept()).await.unwrap().unwrap();
    let answers = async {
        respond.send_response(Response::new(()), true).unwrap();
        other.send_response(Response::new(()), true).unwrap();
        (first.await, second.await)
    };
    let (first, second) = drive(&mut served, answers).await;
    assert!(first.is_ok() && second.is_ok());
    assert!(soon(served.accept()).await.is_none());
    soon(connection).await.unwrap().unwrap();
    let late = requests.send_request(get("/3"), true).err().unwrap();
    assert!(late.is_go_away() && late.is_remote());
    assert_eq!(late.reason(), Some(Reason::NO_ERROR));
}
