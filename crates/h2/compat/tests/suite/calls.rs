//! tonic on `crates/h2`: calls of all kinds, keep-alive, and errors, against itself and against grpc-go.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use fullbore_testing::process::{Daemon, Outcome, run_text};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Seen;
use tonic_health::pb::health_client::HealthClient;

use crate::grpc::client::Client;
use crate::grpc::echo::{Echo, Event};
use crate::grpc::kinds;

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

/// A server of tonic with the service of all kinds.
async fn echo_server() -> (SocketAddr, UnboundedReceiver<Event>) {
    let (echo, events) = Echo::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Server::builder()
        .add_service(echo)
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serving);
    (address, events)
}

async fn channel(address: &str) -> Channel {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

/// Waits for the beginning of a call of this method.
async fn began(events: &mut UnboundedReceiver<Event>, method: &str) {
    let is_it = |event: Event| matches!(event, Event::Began(begun, _) if begun == method);
    while !is_it(soon(events.recv()).await.unwrap()) {}
}

#[tokio::test]
async fn calls_of_all_kinds_come_through() {
    let (address, mut events) = echo_server().await;
    let channel = channel(&address.to_string()).await;
    soon(kinds::all(channel.clone())).await;
    soon(kinds::thousand(channel.clone())).await;
    // A call that is dropped is canceled.
    let mut client = Client::new(channel);
    let mut waiting = client.clone();
    let call = tokio::spawn(async move { waiting.wait(Bytes::new()).await });
    began(&mut events, "Wait").await;
    call.abort();
    assert_eq!(soon(events.recv()).await, Some(Event::Dropped));
    let messages = soon(client.drip(Bytes::from("one"))).await.unwrap().into_inner();
    began(&mut events, "Drip").await;
    drop(messages);
    assert_eq!(soon(events.recv()).await, Some(Event::Dropped));
}

/// The program in Go, compiled once. None, with a message, if there is no Go, unless peers are required.
fn grpc_go() -> Option<&'static Path> {
    static BUILT: OnceLock<Outcome<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc-go-peer");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tonic/tests/peers/go");
        let mut command = Command::new("go");
        command
            .current_dir(source)
            .args(["build", "-buildvcs=false", "-o"]);
        command.arg(&built).arg(".");
        // A Go that is too old must say so, not fetch another one.
        run_text(command.env("GOTOOLCHAIN", "local"))?;
        Ok(built)
    });
    match built {
        Ok(built) => Some(built),
        Err(fault) => {
            let required = std::env::var_os("FULLBORE_PEERS").is_some_and(|value| value == "required");
            assert!(!required, "needs grpc-go: {fault}");
            eprintln!("skipped: needs grpc-go: {fault}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_go_serves_and_calls() {
    let Some(go) = grpc_go() else { return };
    let mut server = Daemon::spawn(Command::new(go).arg("serve")).unwrap();
    let address = server.wait_line("listening on ").unwrap();
    let connected = channel(address.trim()).await;
    soon(kinds::all(connected.clone())).await;
    soon(kinds::thousand(connected)).await;
    server.check_alive().unwrap();

    let (address, _events) = echo_server().await;
    let mut call = Command::new(go);
    call.arg("call").arg(address.to_string());
    let called = tokio::task::spawn_blocking(move || run_text(&mut call));
    let called = soon(called).await.unwrap();
    // Its last call is one whose deadline passes. A server of tonic may end it first, with CANCELLED.
    if let Err(fault) = called {
        assert!(
            fault
                .to_string()
                .contains("the deadline: rpc error: code = Canceled"),
            "{fault}"
        );
    }
}

/// The server ends a connection that sends PING too often, and says why.
#[tokio::test]
async fn who_pings_grpc_go_too_often_is_told() {
    let Some(go) = grpc_go() else { return };
    let mut server = Daemon::spawn(Command::new(go).arg("serve")).unwrap();
    let address = server.wait_line("listening on ").unwrap();
    let stream = TcpStream::connect(address.trim()).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(5))
        .keep_alive_while_idle(true);
    let io = TokioIo::new(stream);
    let (_requests, connection) = builder.handshake::<_, Full<Bytes>>(io).await.unwrap();
    let told = format!("{:?}", soon(connection).await.unwrap_err());
    assert!(
        told.contains("ENHANCE_YOUR_CALM") && told.contains("too_many_pings"),
        "{told}"
    );
}
