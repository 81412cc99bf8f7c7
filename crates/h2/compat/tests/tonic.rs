//! tonic on `crates/h2`: unary calls, a stream of the server, keep-alive, and errors.

use std::time::Duration;

use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Seen;
use tonic_health::pb::health_client::HealthClient;

fn about(service: &str) -> Request<HealthCheckRequest> {
    let service = service.to_owned();
    Request::new(HealthCheckRequest { service })
}

async fn soon<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, future).await.expect("it hangs")
}

#[tokio::test]
async fn calls_streams_and_errors_of_tonic_come_through() {
    let (reporter, service) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_millis(20)))
        .add_service(service)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
            let _ = stopped.await;
        });
    let server = tokio::spawn(serving);
    let channel = Endpoint::try_from(format!("http://{address}"))
        .unwrap()
        .http2_keep_alive_interval(Duration::from_millis(20))
        .keep_alive_while_idle(true)
        .connect()
        .await
        .unwrap();
    let mut health = HealthClient::new(channel);
    let status = soon(health.check(about(""))).await.unwrap().into_inner().status();
    assert_eq!(status, Seen::Serving);
    let error = soon(health.check(about("nobody"))).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);

    reporter.set_service_status("one", ServingStatus::Serving).await;
    let mut watched = soon(health.watch(about("one"))).await.unwrap().into_inner();
    let mut expected = Seen::Serving;
    for round in 0..20 {
        let seen = soon(watched.message()).await.unwrap().unwrap();
        assert_eq!(seen.status(), expected, "round {round}");
        let next;
        (expected, next) = match expected {
            Seen::Serving => (Seen::NotServing, ServingStatus::NotServing),
            _ => (Seen::Serving, ServingStatus::Serving),
        };
        reporter.set_service_status("one", next).await;
    }
    let mut calls = Vec::new();
    for _ in 0..300 {
        let mut health = health.clone();
        calls.push(tokio::spawn(async move { health.check(about("")).await }));
    }
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    drop((watched, health));
    stop.send(()).unwrap();
    soon(server).await.unwrap().unwrap();
}
