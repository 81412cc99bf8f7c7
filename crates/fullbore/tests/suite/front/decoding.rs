//! Content codings: what is asked for, and what is decoded.

use std::io::Write;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use fullbore::Client;
use fullbore::settings::HttpVersions;
use http::{Response, StatusCode, header};

use super::{Site, echo};
use crate::support::soon;

const TEXT: &str = "content of some length, content of some length";

fn gzip() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(TEXT.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

fn deflate() -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(TEXT.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

fn coded(coding: &'static str, body: Vec<u8>) -> Response<axum::body::Body> {
    Response::builder()
        .header(header::CONTENT_ENCODING, coding)
        .body(Bytes::from(body).into())
        .expect("a response")
}

async fn site() -> Site {
    let gzip_in_half = || {
        let whole = gzip();
        whole[..whole.len() / 2].to_vec()
    };
    let app = Router::new()
        .route("/gzip", any(|| async { coded("gzip", gzip()) }))
        .route("/deflate", any(|| async { coded("deflate", deflate()) }))
        .route("/half", any(move || async move { coded("gzip", gzip_in_half()) }))
        .route(
            "/broken",
            any(|| async { coded("gzip", b"no gzip at all, but text".to_vec()) }),
        )
        .route("/empty", any(|| async { coded("gzip", Vec::new()) }))
        .route("/unknown", any(|| async { coded("x-own", b"own".to_vec()) }))
        .route("/plain", any(|| async { TEXT }))
        .fallback(any(echo));
    Site::start(app).await
}

#[tokio::test]
async fn codings_are_asked_for_and_decoded() {
    let (site, client) = (site().await, Client::new());
    let asked = soon(soon(client.get(site.url("/"))).await.unwrap().text())
        .await
        .unwrap();
    for coding in ["gzip", "br", "deflate", "zstd"] {
        assert!(
            asked.contains("accept-encoding:") && asked.contains(coding),
            "{asked}"
        );
    }
    for path in ["/gzip", "/deflate", "/plain"] {
        let response = soon(client.get(site.url(path))).await.expect("a response");
        assert_eq!(response.headers().get(header::CONTENT_ENCODING), None);
        if path != "/plain" {
            assert_eq!(response.headers().get(header::CONTENT_LENGTH), None);
            assert_eq!(response.content_length(), None);
        }
        assert!(soon(response.body().report()).await.is_some());
        assert_eq!(soon(response.text()).await.expect("text"), TEXT, "{path}");
    }
}

#[tokio::test]
async fn over_http1_codings_and_limits_on_time_are_the_same() {
    let site = site().await;
    let client = Client::builder().http_versions(HttpVersions::Http1);
    let client = client.timeout(Duration::from_secs(600)).build().unwrap();
    for path in ["/gzip", "/plain"] {
        let response = soon(client.get(site.url(path))).await.expect("a response");
        assert!(soon(response.body().grow_receive_window(1 << 20)).await.is_err());
        assert_eq!(soon(response.text()).await.expect("text"), TEXT, "{path}");
    }
    let response = soon(client.get(site.url("/half"))).await.expect("a response");
    assert!(soon(response.bytes()).await.expect_err("half").is_decode());
}

#[tokio::test]
async fn what_cannot_be_decoded_is_an_error_of_the_body() {
    let (site, client) = (site().await, Client::new());
    for path in ["/half", "/broken"] {
        let response = soon(client.get(site.url(path))).await.expect("a response");
        assert_eq!(response.status(), StatusCode::OK);
        let error = soon(response.bytes()).await.expect_err(path);
        assert!(error.is_decode() && error.is_body(), "{path}: {error}");
        assert_eq!(error.url(), Some(&*site.url(path)));
    }
    let unknown = soon(client.get(site.url("/unknown"))).await.expect("a response");
    assert_eq!(unknown.headers()[header::CONTENT_ENCODING], "x-own");
    assert_eq!(soon(unknown.text()).await.expect("text"), "own");
}

#[tokio::test]
async fn a_response_without_a_body_has_nothing_to_decode() {
    let (site, client) = (site().await, Client::new());
    for request in [client.head(site.url("/gzip")), client.get(site.url("/empty"))] {
        let response = soon(request).await.expect("a response");
        assert_eq!(soon(response.bytes()).await.expect("no body"), Bytes::new());
    }
}

#[tokio::test]
async fn a_caller_who_names_codings_or_a_range_gets_the_body_as_it_comes() {
    let (site, client) = (site().await, Client::new());
    let plain = Client::builder().decompression(false).build().unwrap();
    for request in [
        client.get(site.url("/gzip")).header("accept-encoding", "gzip"),
        client.get(site.url("/gzip")).header("range", "bytes=0-"),
        plain.get(site.url("/gzip")),
    ] {
        let response = soon(request).await.expect("a response");
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(soon(response.bytes()).await.expect("a body"), gzip());
    }
    let sent = soon(plain.get(site.url("/"))).await.expect("a response");
    assert_eq!(soon(sent.text()).await.expect("text"), "GET /\n\n");
    let own = client.get(site.url("/")).header("accept-encoding", "identity");
    let sent = soon(own).await.expect("a response");
    assert_eq!(
        soon(sent.text()).await.expect("text"),
        "GET /\naccept-encoding: identity\n\n"
    );
}
