//! hyper, reqwest, tonic and hickory on `crates/h2`, each with the same on the published crate: a program that this test builds, since a
//! package has only one crate `h2` of a version.

#[path = "parts/dns.rs"]
mod dns;
#[path = "../../../tonic/tests/support/mod.rs"]
mod grpc;
#[path = "parts/pingora.rs"]
mod pingora;
mod support;
#[path = "parts/tls.rs"]
mod tls;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use bytes::Bytes;
use fullbore_testing::process::{Daemon, run_text};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

use grpc::echo::Echo;
use grpc::kinds;
use support::{LENGTHS, hyper_server, pattern, soon};
use tls::Tls;

/// The program on the published crate, which takes as long to build as it takes: no limit on time of a test counts it.
async fn published() -> &'static Path {
    tokio::task::spawn_blocking(built).await.unwrap()
}

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("published");
        let mut build = Command::new("cargo");
        build
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("published"))
            .args(["build", "--locked", "--target-dir"])
            .arg(&target);
        run_text(&mut build).unwrap();
        target.join("debug/h2-published")
    })
}

/// One of its servers, and the server's address.
async fn server(arguments: &[&str]) -> (Daemon, String) {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let program = published().await;
    let start = move || {
        let mut server = Daemon::spawn(Command::new(program).args(arguments)).unwrap();
        let address = server.wait_line("listening on ").unwrap();
        (server, address.trim().to_owned())
    };
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// Runs one of its clients to the end.
async fn client(arguments: &[&str]) {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let program = published().await;
    let run = move || run_text(Command::new(program).args(arguments)).unwrap();
    let told = soon(tokio::task::spawn_blocking(run)).await.unwrap();
    assert_eq!(told.trim(), "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_hyper_and_our_reqwest_reach_the_published_server() {
    let (_server, address) = server(&["serve"]).await;
    let url = format!("http://{address}");
    let hyper = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let reqwest = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    for length in LENGTHS {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-length", length.into());
        let expected = pattern(length);
        let sent = Full::new(expected.clone()).with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        let request = Request::post(&url).body(sent).unwrap();
        let response = soon(hyper.request(request)).await.unwrap();
        let echoed = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(echoed.trailers(), Some(&trailers));
        assert!(echoed.to_bytes() == expected, "{length}");

        let response = soon(reqwest.get(format!("{url}/{length}")).send()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(soon(response.bytes()).await.unwrap() == expected, "{length}");
        let response = soon(reqwest.post(&url).body(expected.clone()).send())
            .await
            .unwrap();
        assert!(soon(response.bytes()).await.unwrap() == expected, "{length}");
    }
    // Downloads that are dropped leave room for others.
    for _ in 0..50 {
        let request = Request::get(format!("{url}/3000000"))
            .body(Full::<Bytes>::default().with_trailers(std::future::ready(None)));
        let response = soon(hyper.request(request.unwrap())).await.unwrap();
        assert!(soon(response.into_body().frame()).await.unwrap().is_ok());
    }
    let response = soon(reqwest.get(format!("{url}/3000000")).send()).await.unwrap();
    assert!(soon(response.bytes()).await.unwrap() == pattern(3_000_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_hyper_and_reqwest_reach_our_servers() {
    let (address, hyper) = hyper_server().await;
    let (proxy, forwards) = pingora::proxy(address).await;
    for address in [address, proxy] {
        client(&["hyper", &format!("http://{address}")]).await;
        client(&["reqwest", &format!("http://{address}")]).await;
    }
    forwards.abort();
    hyper.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_pingora_reaches_the_published_server() {
    let (_server, address) = server(&["serve"]).await;
    let (proxy, forwards) = pingora::proxy(address.parse().unwrap()).await;
    client(&["hyper", &format!("http://{proxy}")]).await;
    forwards.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_tonic_come_through_both_ways() {
    let (_server, address) = server(&["grpc-serve"]).await;
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    let channel = soon(endpoint.connect()).await.unwrap();
    soon(kinds::all(channel.clone())).await;
    soon(kinds::thousand(channel)).await;

    let (echo, _events) = Echo::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Server::builder().add_service(echo);
    let server = tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    client(&["grpc-call", &address.to_string()]).await;
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hickory_resolves_names_both_ways() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("published-dns.pem");
    let path = file.to_str().unwrap();
    let (_server, address) = server(&["dns-serve", path]).await;
    let certificate = CertificateDer::from_pem_file(&file).unwrap();
    dns::resolves(&tls::trusting(certificate), address.parse().unwrap()).await;

    let tls = Tls::new();
    std::fs::write(&file, &tls.pem).unwrap();
    let (address, server) = dns::dns_server(&tls.server).await;
    client(&["dns-call", &address.to_string(), path]).await;
    server.abort();
    std::fs::remove_file(file).unwrap();
}
