//! Each channel against each server: all kinds of calls, 1,000 calls at once, cancellation, graceful shutdown.

use bytes::Bytes;
use fullbore_tonic::{Channel, GrpcService};
use http::HeaderValue;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Known;
use tonic_health::pb::health_client::HealthClient;

use crate::sites::{Site, soon};
use crate::support::client::{Client, Transport};
use crate::support::echo::{Echo, Event};
use crate::support::kinds;

#[tokio::test]
async fn the_channel_calls_fullbores_server() {
    let site = Site::fullbore().await;
    soon(kinds::all(site.channel())).await;
}

#[tokio::test]
async fn the_channel_calls_fullbores_server_over_tls() {
    let site = Site::fullbore_over_tls().await;
    soon(kinds::all(site.channel())).await;
}

#[tokio::test]
async fn the_channel_calls_tonics_server() {
    let site = Site::tonic().await;
    soon(kinds::all(site.channel())).await;
}

#[tokio::test]
async fn the_channel_calls_tonics_server_over_tls() {
    let site = Site::tonic_over_tls().await;
    soon(kinds::all(site.channel())).await;
}

#[tokio::test]
async fn tonics_channel_calls_fullbores_server() {
    let site = Site::fullbore().await;
    soon(kinds::all(site.tonic_channel())).await;
}

#[tokio::test]
async fn tonics_channel_calls_fullbores_server_over_tls() {
    let site = Site::fullbore_over_tls().await;
    soon(kinds::all(site.tonic_channel())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pair_makes_1000_calls_at_once() {
    let (ours, theirs) = (Site::fullbore().await, Site::tonic().await);
    soon(kinds::thousand(ours.channel())).await;
    soon(kinds::thousand(theirs.channel())).await;
    soon(kinds::thousand(ours.tonic_channel())).await;
}

/// A call that is dropped before its response, and one whose messages are dropped before their end.
async fn cancel<T: Transport>(mut site: Site, channel: T) {
    let mut client = Client::new(channel);
    let mut waiting = client.clone();
    let call = tokio::spawn(async move { waiting.wait(Bytes::new()).await });
    site.began("Wait").await;
    call.abort();
    site.dropped().await;

    let mut messages = client
        .drip(Bytes::from("one"))
        .await
        .expect("a head")
        .into_inner();
    assert_eq!(messages.message().await.expect("no error").expect("one"), "one");
    drop(messages);
    site.dropped().await;
    // Only those calls have ended.
    client.unary(Bytes::new()).await.expect("an answer");
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_on_fullbores_server() {
    let site = Site::fullbore().await;
    let channel = site.channel();
    soon(cancel(site, channel)).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_on_tonics_server() {
    let site = Site::tonic().await;
    let channel = site.channel();
    soon(cancel(site, channel)).await;
}

#[tokio::test]
async fn a_call_that_tonics_channel_drops_ends_on_fullbores_server() {
    let site = Site::fullbore().await;
    let channel = site.tonic_channel();
    soon(cancel(site, channel)).await;
}

#[tokio::test]
async fn a_handler_knows_the_address_of_its_client() {
    for tls in [false, true] {
        let mut site = match tls {
            true => Site::fullbore_over_tls().await,
            false => Site::fullbore().await,
        };
        let mut client = Client::new(site.channel());
        let call = tokio::spawn(async move { client.wait(Bytes::new()).await });
        let address = site.began("Wait").await.expect("an address");
        assert!(address.ip().is_loopback() && address != site.address, "{address}");
        call.abort();
    }
}

#[tokio::test]
async fn what_a_hook_tells_of_a_connection_is_kept() {
    let told: std::net::SocketAddr = "192.0.2.1:1".parse().expect("an address");
    let builder = fullbore::Server::builder().on_connect(move |_, extensions| {
        extensions.insert(TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(told),
        });
    });
    let server = builder.bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    let (echo, mut events) = Echo::new();
    tokio::spawn(server.serve(GrpcService::new(Routes::new(echo))));
    let builder = Channel::builder(origin.parse().expect("a URL"));
    let mut client = Client::new(builder.connect_lazy().expect("a channel"));
    let call = tokio::spawn(async move { client.wait(Bytes::new()).await });
    let event = soon(events.recv()).await.expect("a call");
    assert_eq!(event, Event::Began("Wait".to_owned(), Some(told)));
    call.abort();
}

#[tokio::test]
async fn a_graceful_shutdown_completes_the_calls_in_progress() {
    let mut site = Site::fullbore().await;
    let mut client = Client::new(site.channel());
    let (send, messages) = tokio::sync::mpsc::unbounded_channel();
    let messages = tokio_stream::wrappers::UnboundedReceiverStream::new(messages);
    send.send(Bytes::from("before")).expect("open");
    let mut answers = soon(client.both(messages)).await.expect("a head").into_inner();
    assert_eq!(
        soon(answers.message()).await.expect("no error").expect("one"),
        "before"
    );
    soon(client.unary(Bytes::new())).await.expect("an answer");
    site.began("Unary").await;

    let origin = site.origin();
    let serving = site.shut_down();
    send.send(Bytes::from("after")).expect("open");
    assert_eq!(
        soon(answers.message()).await.expect("no error").expect("one"),
        "after"
    );
    drop(send);
    assert!(soon(answers.message()).await.expect("a good end").is_none());
    soon(serving).await.expect("no panic").expect("a graceful end");
    // The port is closed.
    let status = soon(client.unary(Bytes::new())).await.expect_err("no server");
    assert_eq!(status.code(), Code::Unavailable, "{origin}: {status:?}");
}

#[tokio::test]
async fn a_channel_connects_at_once_or_when_it_is_needed() {
    let site = Site::fullbore().await;
    let origin = || site.origin().parse().expect("a URL");
    let channel = Channel::builder(origin()).connect_lazy().expect("a channel");
    assert_eq!(channel.client().connections(&site.origin()), 0);
    let connected = soon(Channel::builder(origin()).connect())
        .await
        .expect("a channel");
    assert_eq!(connected.client().connections(&site.origin()), 1);
    soon(Client::new(connected).unary(Bytes::new()))
        .await
        .expect("an answer");
}

#[tokio::test]
async fn a_channel_that_cannot_connect_says_so_and_tries_again_later() {
    let nobody = fullbore_testing::nobody::Nobody::bind();
    let address = nobody.address();
    let builder = || Channel::builder(format!("http://{address}").parse().expect("a URL"));
    let status = soon(builder().connect()).await.expect_err("no server");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains(&address.to_string()), "{status:?}");
    let mut client = Client::new(builder().connect_lazy().expect("a channel"));
    let status = soon(client.unary(Bytes::new())).await.expect_err("no server");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test]
async fn what_is_no_origin_is_an_invalid_argument() {
    for origin in [
        "",
        "127.0.0.1:50051",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:50051/path",
        "http://127.0.0.1:50051/?query",
        "no url",
    ] {
        let status = Channel::from_static(origin)
            .connect_lazy()
            .expect_err("no origin");
        assert_eq!(status.code(), Code::InvalidArgument, "{origin:?}: {status:?}");
    }
    Channel::from_static("http://127.0.0.1:50051/")
        .connect_lazy()
        .expect("an origin");
    assert!(Channel::from_shared("no url".to_owned()).is_err());
    let shared = Channel::from_shared("http://127.0.0.1:50051".to_owned()).expect("a URL");
    shared.connect_lazy().expect("an origin");
    let builder = || Channel::from_static("http://127.0.0.1");
    for builder in [
        builder().client(|client| client.max_connections(0)),
        builder().concurrency_limit(0),
    ] {
        let status = builder.connect_lazy().expect_err("a setting out of range");
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    }
}

#[tokio::test]
async fn no_more_calls_are_in_progress_than_the_limit_allows() {
    let mut site = Site::fullbore().await;
    let builder = Channel::builder(site.origin().parse().expect("a URL"));
    let channel = builder.concurrency_limit(1).connect_lazy().expect("a channel");
    let mut client = Client::new(channel);
    let messages = soon(client.drip(Bytes::from("one")))
        .await
        .expect("a head")
        .into_inner();
    site.began("Drip").await;
    // Its deadline includes the wait.
    let mut request = Request::new(Bytes::new());
    request.set_timeout(std::time::Duration::from_millis(50));
    let status = soon(client.unary(request)).await.expect_err("the place is taken");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    drop(messages);
    soon(client.unary(Bytes::new())).await.expect("an answer");
    let mut events = [soon(site.events.recv()).await, soon(site.events.recv()).await];
    // The two come from two tasks.
    events.sort_by_key(|event| *event == Some(Event::Dropped));
    assert_eq!(
        events,
        [Some(Event::Began("Unary".to_owned(), None)), Some(Event::Dropped)]
    );
    assert!(site.events.try_recv().is_err(), "the second call never left");
}

#[tokio::test]
async fn a_call_that_has_ended_takes_no_place_while_its_stream_is_kept() {
    let site = Site::fullbore().await;
    let builder = Channel::builder(site.origin().parse().expect("a URL"));
    let channel = builder.concurrency_limit(1).connect_lazy().expect("a channel");
    let mut client = Client::new(channel);
    let answer = soon(client.expand(Bytes::from("1 5"))).await.expect("a head");
    let mut messages = answer.into_inner();
    while soon(messages.message()).await.expect("no error").is_some() {}
    soon(client.unary(Bytes::new())).await.expect("an answer");
    drop(messages);
}

#[tokio::test]
async fn each_request_names_the_application_and_the_library() {
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", server.local_addr().expect("an address"));
    let (heads, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(server.serve(tower::service_fn(
        move |request: http::Request<fullbore::Incoming>| {
            let _ = heads.send(request.into_parts().0);
            std::future::pending::<Result<http::Response<String>, fullbore::BoxError>>()
        },
    )));
    let builder = Channel::builder(origin.parse().expect("a URL"));
    let channel = builder
        .user_agent(HeaderValue::from_static("greeter/1.0"))
        .connect_lazy();
    let mut client = Client::new(channel.expect("a channel"));
    let mut request = Request::new(Bytes::new());
    request
        .metadata_mut()
        .insert("user-agent", "page/2".parse().expect("a value"));
    let call = tokio::spawn(async move { client.unary(request).await });
    let head = soon(received.recv()).await.expect("a request");
    assert_eq!(head.uri.to_string(), format!("{origin}/test.Echo/Unary"));
    let head = head.headers;
    let own = concat!(
        "page/2 greeter/1.0 grpc-rust-fullbore/",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(head.get("user-agent").expect("a name"), own);
    assert_eq!(head.get("te").expect("te"), "trailers");
    assert_eq!(head.get("content-type").expect("a type"), "application/grpc");
    assert!(!head.contains_key("content-length"), "gRPC has none");
    call.abort();
}

/// Interceptors are part of what tonic's generator makes.
#[tokio::test]
async fn an_interceptor_adds_metadata_and_refuses_calls() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("known", tonic_health::ServingStatus::Serving)
        .await;
    let demand = |request: Request<()>| match request.metadata().get("x-key") {
        Some(_) => Ok(request),
        None => Err(Status::unauthenticated("no key")),
    };
    let service = InterceptedService::new(health, demand);
    let server = fullbore::Server::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", server.local_addr().expect("an address"));
    let serving = tokio::spawn(server.serve(GrpcService::new(Routes::new(service))));
    let channel = Channel::builder(url.parse().expect("a URL"))
        .connect_lazy()
        .expect("a channel");
    let ask = || HealthCheckRequest {
        service: "known".to_owned(),
    };
    let with_key = |mut request: Request<()>| {
        request
            .metadata_mut()
            .insert("x-key", MetadataValue::from_static("1"));
        Ok(request)
    };
    let mut client = HealthClient::with_interceptor(channel.clone(), with_key);
    let answer = soon(client.check(ask())).await.expect("an answer");
    assert_eq!(answer.into_inner().status(), Known::Serving);
    let mut client = HealthClient::new(channel.clone());
    let refused = soon(client.check(ask()))
        .await
        .expect_err("refused by the server");
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refuse = |_: Request<()>| Err::<Request<()>, _>(Status::permission_denied("not today"));
    let mut client = HealthClient::with_interceptor(channel, refuse);
    let refused = soon(client.check(ask()))
        .await
        .expect_err("refused by the client");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::PermissionDenied, "not today")
    );
    serving.abort();
}
