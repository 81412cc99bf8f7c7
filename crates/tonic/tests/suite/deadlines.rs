//! Deadlines: the client's own, and those that a server enforces.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use fullbore_tonic::{Channel, GrpcService, RequestBody};
use http_body::Body;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::{Code, Request};
use tower_service::Service;

use crate::sites::{Site, soon};
use crate::support::client::Client;

/// Deadlines that are waited for, in seconds. A call reaches its handler before that: the longer ones are for a busy machine.
const DEADLINES: [u64; 3] = [1, 5, 30];

fn with_deadline(deadline: Duration) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from("message"));
    request.set_timeout(deadline);
    request
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_on_both_sides() {
    for mut site in [Site::fullbore().await, Site::tonic().await] {
        let mut client = Client::new(site.channel());
        for seconds in DEADLINES {
            let request = with_deadline(Duration::from_secs(seconds));
            let status = soon(client.wait(request)).await.expect_err("no answer");
            // The server's answer may come first. tonic's server says CANCELLED, where gRPC says DEADLINE_EXCEEDED.
            assert!(
                matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
                "{status:?}"
            );
            if site.has_begun("Wait") {
                break;
            }
        }
        site.dropped().await;
    }
}

#[tokio::test]
async fn a_stream_of_messages_ends_at_the_deadline_of_its_call() {
    for mut site in [Site::fullbore().await, Site::tonic().await] {
        let mut client = Client::new(site.channel());
        let mut messages = None;
        for seconds in DEADLINES {
            let request = with_deadline(Duration::from_secs(seconds));
            let Ok(answer) = soon(client.drip(request)).await else {
                continue;
            };
            let mut answer = answer.into_inner();
            if let Ok(first) = soon(answer.message()).await {
                assert_eq!(first.expect("one"), "message");
                messages = Some(answer);
                break;
            }
        }
        let mut messages = messages.expect("a message before a deadline");
        let status = soon(messages.message()).await.expect_err("no second message");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        site.dropped().await;
    }
}

#[tokio::test]
async fn the_limit_of_a_channel_is_the_deadline_of_its_calls() {
    let mut site = Site::fullbore().await;
    for seconds in DEADLINES {
        let builder = Channel::builder(site.origin().parse().expect("a URL"));
        let builder = builder.timeout(Duration::from_secs(seconds));
        let mut client = Client::new(builder.connect_lazy().expect("a channel"));
        // A later deadline of the call's own does not count.
        let request = with_deadline(Duration::from_secs(3_600));
        let status = soon(client.wait(request)).await.expect_err("no answer");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        if site.has_begun("Wait") {
            break;
        }
    }
    site.dropped().await;
}

#[tokio::test]
async fn a_call_in_time_is_not_disturbed_by_its_deadline() {
    let site = Site::fullbore().await;
    let mut client = Client::new(site.channel());
    let mut request = Request::new(Bytes::from("message"));
    request.set_timeout(Duration::from_secs(3_600));
    assert_eq!(
        soon(client.unary(request)).await.expect("an answer").into_inner(),
        "message"
    );
    let mut request = Request::new(Bytes::from("3 5"));
    request.set_timeout(Duration::from_secs(3_600));
    let mut messages = soon(client.expand(request)).await.expect("a head").into_inner();
    for _ in 0..3 {
        assert_eq!(
            soon(messages.message()).await.expect("no error").expect("one"),
            "xxxxx"
        );
    }
    assert!(soon(messages.message()).await.expect("a good end").is_none());
}

#[tokio::test]
async fn messages_that_came_in_time_are_read_after_the_deadline() {
    for site in [Site::fullbore().await, Site::tonic().await] {
        let mut client = Client::new(site.channel());
        let mut read = None;
        for seconds in DEADLINES {
            let mut request = Request::new(Bytes::from("3 100000"));
            request.set_timeout(Duration::from_secs(seconds));
            let Ok(answer) = soon(client.expand(request)).await else {
                continue;
            };
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let mut messages = answer.into_inner();
            let mut lengths = Vec::new();
            let ended = loop {
                match soon(messages.message()).await {
                    Ok(Some(message)) => lengths.push(message.len()),
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status.code()),
                }
            };
            read = Some((lengths, ended));
            if ended.is_ok() {
                break;
            }
        }
        assert_eq!(read, Some((vec![100_000; 3], Ok(()))));
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_call_that_has_missed_its_deadline() {
    // A server that knows no deadlines, with a message and no end.
    let silent = tower::service_fn(|_: http::Request<fullbore::Incoming>| async {
        let message =
            Ok::<_, fullbore::BoxError>(http_body::Frame::data(Bytes::from_static(&[0, 0, 0, 0, 1, b'm'])));
        let messages = tokio_stream::once(message).chain(tokio_stream::pending());
        Ok::<_, fullbore::BoxError>(http::Response::new(StreamBody::new(messages)))
    });
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    tokio::spawn(server.serve(silent));
    for seconds in DEADLINES {
        let builder = Channel::builder(origin.parse().expect("a URL"));
        let builder = builder.timeout(Duration::from_secs(seconds));
        let mut channel = builder.connect_lazy().expect("a channel");
        let request = http::Request::post("/test.Echo/Drip").body(tonic::body::Body::empty());
        let Ok(response) = soon(channel.call(request.expect("a request"))).await else {
            continue;
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let mut body = response.into_body();
        let status = soon(body.frame())
            .await
            .expect("an error")
            .expect_err("no message");
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        assert!(body.is_end_stream());
        return;
    }
    panic!("no response in time");
}

/// A client that says a deadline and does not keep it.
async fn call(site: &Site, method: &str, seconds: u64) -> (http::HeaderMap, Option<http::HeaderMap>, usize) {
    let message = Bytes::from_static(&[0, 0, 0, 0, 1, b'm']);
    let request = http::Request::post(format!("{}/test.Echo/{method}", site.origin()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{seconds}S"))
        .body(Full::new(message))
        .expect("a request");
    let client = fullbore::Client::new();
    let response = soon(client.request(request)).await.expect("a response");
    assert_eq!(response.status(), 200);
    let (head, body) = response.into_parts();
    let body = soon(body.collect()).await.expect("a body");
    let trailers = body.trailers().cloned();
    (head.headers, trailers, body.to_bytes().len())
}

#[tokio::test]
async fn a_server_ends_a_call_at_the_deadline_that_the_client_named() {
    let mut site = Site::fullbore().await;
    // Trailers alone, before anything was sent.
    let (head, trailers, length) = call(&site, "Wait", 1).await;
    assert_eq!(head["grpc-status"], "4");
    assert_eq!(head["content-type"], "application/grpc");
    assert_eq!((trailers, length), (None, 0));
    site.dropped().await;
    // Behind the messages that were sent in time.
    let mut answer = call(&site, "Drip", DEADLINES[0]).await;
    for seconds in &DEADLINES[1..] {
        if answer.2 > 0 {
            break;
        }
        answer = call(&site, "Drip", *seconds).await;
    }
    let (head, trailers, length) = answer;
    assert!(!head.contains_key("grpc-status") && !head.contains_key("content-length"));
    assert_eq!(trailers.expect("trailers")["grpc-status"], "4");
    assert_eq!(length, 6);
    site.dropped().await;
}

#[tokio::test]
async fn a_call_whose_client_opens_no_window_is_reset_at_its_deadline() {
    let site = Site::fullbore().await;
    for seconds in DEADLINES {
        let io = tokio::net::TcpStream::connect(site.address)
            .await
            .expect("a connection");
        let mut peer = Peer::client(io, &[]).await;
        let timeout = format!("{seconds}S");
        let fields = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", &*timeout),
        ];
        let block = frames::request_block("POST", "test.example", "/test.Echo/Expand", &fields);
        peer.write(&frames::headers(1, frames::END_HEADERS, &block)).await;
        let text = b"100 100000";
        let message = [&[0, 0, 0, 0, text.len() as u8], &text[..]].concat();
        peer.send(frames::DATA, frames::END_STREAM, 1, &message).await;
        let head = soon(peer.expect(frames::HEADERS)).await;
        // On a busy machine the deadline may pass before the head.
        if head.flags & frames::END_STREAM != 0 {
            continue;
        }
        let reset = soon(peer.expect(frames::RST_STREAM)).await;
        // CANCEL.
        assert_eq!((reset.stream, &reset.payload[..]), (1, &[0, 0, 0, 8][..]));
        return;
    }
    panic!("no head before a deadline");
}

#[tokio::test]
async fn an_error_of_a_layer_is_the_status_of_the_call() {
    let failing = tower::service_fn(|_: http::Request<RequestBody>| async {
        let status = tonic::Status::resource_exhausted("no room");
        Err::<http::Response<tonic::body::Body>, _>(fullbore::BoxError::from(status))
    });
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    tokio::spawn(server.serve(GrpcService::new(failing)));
    let channel = Channel::builder(origin.parse().expect("a URL")).connect_lazy();
    let status = soon(Client::new(channel.expect("a channel")).unary(Bytes::new())).await;
    let status = status.expect_err("an error");
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "no room")
    );
}

/// A service that is never ready: it fails.
#[derive(Clone)]
struct Unready;

impl Service<http::Request<RequestBody>> for Unready {
    type Response = http::Response<tonic::body::Body>;
    type Error = tonic::Status;
    type Future = std::future::Pending<Result<Self::Response, tonic::Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tonic::Status>> {
        Poll::Ready(Err(tonic::Status::resource_exhausted("no room")))
    }

    fn call(&mut self, _: http::Request<RequestBody>) -> Self::Future {
        panic!("a service is not called before it is ready")
    }
}

#[tokio::test]
async fn an_error_of_a_layer_that_is_not_ready_is_the_status_of_the_call() {
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    tokio::spawn(server.serve(GrpcService::new(Unready)));
    let channel = Channel::builder(origin.parse().expect("a URL")).connect_lazy();
    let mut client = Client::new(channel.expect("a channel"));
    for _ in 0..2 {
        let status = soon(client.unary(Bytes::new())).await.expect_err("an error");
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, "no room")
        );
    }
}

#[tokio::test]
async fn a_server_without_services_implements_nothing() {
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    tokio::spawn(server.serve(GrpcService::new(Routes::default())));
    let channel = Channel::builder(origin.parse().expect("a URL")).connect_lazy();
    let status = soon(Client::new(channel.expect("a channel")).unary(Bytes::new())).await;
    assert_eq!(status.expect_err("an error").code(), Code::Unimplemented);
}
