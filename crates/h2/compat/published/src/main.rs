//! Peers on the published crate h2, for the tests beside this package:
//!
//! - `serve` is a server of hyper, `grpc-serve` one of tonic, and `dns-serve FILE` one of DNS over HTTPS, which writes its certificate
//!   to the file. Each prints its address.
//! - `hyper URL`, `reqwest URL`, `grpc-call ADDRESS`, and `dns-call ADDRESS FILE` with hickory, send requests, compare what comes
//!   back, and print "done".

#![forbid(unsafe_code)]

#[path = "../../tests/parts/dns.rs"]
mod dns;
#[path = "../../../../tonic/tests/support/mod.rs"]
mod grpc;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../../tests/parts/tls.rs"]
mod tls;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Version};
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

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["serve"] => {
            let (address, server) = hyper_server().await;
            println!("listening on {address}");
            server.await.unwrap();
        }
        ["grpc-serve"] => {
            let (echo, _events) = Echo::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!("listening on {}", listener.local_addr().unwrap());
            let router = Server::builder().add_service(echo);
            router
                .serve_with_incoming(TcpIncoming::from(listener))
                .await
                .unwrap();
        }
        ["dns-serve", file] => {
            let tls = Tls::new();
            std::fs::write(file, &tls.pem).unwrap();
            let (address, server) = dns::dns_server(&tls.server).await;
            println!("listening on {address}");
            server.await.unwrap();
        }
        ["dns-call", address, file] => {
            let certificate = CertificateDer::from_pem_file(file).unwrap();
            done(dns::resolves(
                &tls::trusting(certificate),
                address.parse().unwrap(),
            ))
            .await;
        }
        ["hyper", url] => done(by_hyper(url)).await,
        ["reqwest", url] => done(by_reqwest(url)).await,
        ["grpc-call", address] => done(call(address)).await,
        _ => panic!(
            "expected serve, grpc-serve, dns-serve FILE, hyper URL, reqwest URL, grpc-call ADDRESS, or dns-call ADDRESS FILE"
        ),
    }
}

async fn done(work: impl Future<Output = ()>) {
    soon(work).await;
    println!("done");
}

/// Gets bodies of all lengths, and posts each with trailers; all at once.
async fn by_hyper(url: &str) {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let mut tasks = Vec::new();
    for length in LENGTHS {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.push(tokio::spawn(async move {
            let expected = pattern(length);
            let mut trailers = HeaderMap::new();
            trailers.insert("x-length", length.into());
            let body = |octets: Bytes, trailers: Option<HeaderMap>| {
                let trailers = std::future::ready(trailers.map(Ok));
                Full::new(octets).with_trailers(trailers)
            };
            let get = Request::get(format!("{url}/{length}")).body(body(Bytes::new(), None));
            let post = Request::post(&url).body(body(expected.clone(), Some(trailers)));
            for request in [get, post] {
                let response = client.request(request.unwrap()).await.unwrap();
                assert_eq!(
                    (response.status(), response.version()),
                    (StatusCode::OK, Version::HTTP_2)
                );
                let received = response.into_body().collect().await.unwrap().to_bytes();
                assert!(received == expected, "{length}");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

async fn by_reqwest(url: &str) {
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    for length in LENGTHS {
        let expected = pattern(length);
        let get = client.get(format!("{url}/{length}"));
        let post = client.post(url).body(expected.clone());
        for request in [get, post] {
            let response = request.send().await.unwrap();
            assert_eq!(
                (response.status(), response.version()),
                (StatusCode::OK, Version::HTTP_2)
            );
            assert!(response.bytes().await.unwrap() == expected, "{length}");
        }
    }
}

async fn call(address: &str) {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    kinds::all(channel.clone()).await;
    kinds::thousand(channel).await;
}
