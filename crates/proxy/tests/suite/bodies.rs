//! Bodies that stream both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get as on_get;
use bytes::Bytes;
use fullbore::settings::HttpVersions;
use fullbore::{BoxError, Incoming, Server};
use fullbore_proxy::Proxy;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;

use crate::support::{Front, Reply, VERSIONS, boxed, client, get, origin, post, soon, text, urls};

/// Sends the body back as it comes, with its trailers.
async fn echo(request: Request<Incoming>) -> Result<Reply, BoxError> {
    let mut response = Response::builder();
    for name in ["content-length", "trailer"] {
        if let Some(value) = request.headers().get(name) {
            response = response.header(name, value);
        }
    }
    Ok(response.body(boxed(request.into_body()))?)
}

fn pattern(bytes: usize) -> Bytes {
    (0..bytes)
        .map(|index| (index % 251) as u8)
        .collect::<Vec<_>>()
        .into()
}

#[tokio::test]
async fn bodies_of_every_length_come_back_whole() {
    let site = origin(echo).await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for version in VERSIONS {
            let client = client(version);
            for bytes in [0, 1, 16_384, 3 << 20] {
                let sent = pattern(bytes);
                let response = soon(client.request(post(&front.url("/"), sent.clone())))
                    .await
                    .unwrap();
                let length = response.headers().get("content-length").cloned();
                let received = soon(response.into_body().collect()).await.unwrap().to_bytes();
                assert!(received == sent, "{url} {version:?} {bytes}");
                if bytes > 0 {
                    assert_eq!(length, Some(HeaderValue::from(bytes)), "{url} {version:?}");
                }
            }
        }
        assert_eq!(front.told(), [""; 0]);
        assert_eq!(front.proxy.stats()[0].requests, 0);
    }
}

#[tokio::test]
async fn what_one_side_says_reaches_the_other_before_the_next_is_said_and_trailers_follow() {
    let site = origin(echo).await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for version in VERSIONS {
            let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
            let request = Request::post(front.url("/"))
                .header("te", "trailers")
                .header("trailer", "x-sum")
                .body(boxed(body))
                .unwrap();
            let mut response = soon(client(version).request(request)).await.unwrap().into_body();
            for word in ["one", "two", "three"] {
                say.send_data(Bytes::from(word)).await.unwrap();
                let frame = soon(response.frame()).await.unwrap().unwrap();
                assert_eq!(frame.into_data().unwrap(), word, "{url} {version:?}");
            }
            let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("42"))]);
            say.send(Frame::trailers(trailers)).await.unwrap();
            drop(say);
            let frame = soon(response.frame()).await.unwrap().unwrap();
            assert_eq!(frame.into_trailers().unwrap()["x-sum"], "42", "{url} {version:?}");
            assert!(soon(response.frame()).await.is_none());
        }
    }
}

#[tokio::test]
async fn responses_without_a_body_have_none() {
    let site = origin(|request: Request<Incoming>| async move {
        let status: u16 = request.uri().path()[1..].parse()?;
        Ok(Response::builder()
            .status(status)
            .header("etag", "\"a\"")
            .body(crate::support::full(""))?)
    })
    .await;
    for url in urls(&site) {
        let front = Front::to(&url).await;
        for version in VERSIONS {
            let client = client(version);
            for status in [204, 304, 200, 500] {
                let response = soon(client.request(get(&front.url(&format!("/{status}")))))
                    .await
                    .unwrap();
                assert_eq!(response.status(), status);
                assert_eq!(response.headers()["etag"], "\"a\"");
                assert_eq!(text(response.into_body()).await, "");
            }
            let mut request = get(&front.url("/200"));
            *request.method_mut() = http::Method::HEAD;
            let response = soon(client.request(request)).await.unwrap();
            assert_eq!(text(response.into_body()).await, "");
        }
    }
}

#[tokio::test]
async fn an_upload_to_an_origin_that_reads_nothing_stops_at_its_windows() {
    let site = origin(|request: Request<Incoming>| async move {
        let _request = request;
        std::future::pending().await
    })
    .await;
    for url in urls(&site) {
        let proxy = Proxy::to(&url).unwrap();
        let server = Server::builder()
            .stream_window(65_535)
            .bind("127.0.0.1:0")
            .await
            .unwrap();
        let front = format!("http://{}/", server.local_addr().unwrap());
        let serving = tokio::spawn(server.serve(proxy));
        for version in VERSIONS {
            let sent = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&sent);
            let (mut say, body) = Channel::<Bytes, BoxError>::new(1);
            let saying = tokio::spawn(async move {
                while say.send_data(Bytes::from_static(&[7; 65_536])).await.is_ok() {
                    count.fetch_add(65_536, Ordering::SeqCst);
                }
            });
            let request = Request::post(&front).body(boxed(body)).unwrap();
            let client = client(version);
            let asking = tokio::spawn(async move { client.request(request).await });
            let mut last = (0, 0);
            while last.1 < 20 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let now = sent.load(Ordering::SeqCst);
                last = if now > 0 && now == last.0 {
                    (now, last.1 + 1)
                } else {
                    (now, 0)
                };
            }
            // 64 KiB are on their way here, as many wait in the window of the request, and 384 KiB in the client. What the proxy
            // takes for an origin of HTTP/1.1 is less than what proves that it keeps up. One of HTTP/2 has a window of its own,
            // and over HTTP/1.1 the kernel takes more from the client.
            let most = match version {
                HttpVersions::Http2 if url.starts_with("http:") && cfg!(target_os = "linux") => {
                    (1 << 20) + (512 << 10)
                }
                _ => 160 << 20,
            };
            assert!(last.0 < most, "{url} {version:?}: {}", last.0);
            asking.abort();
            soon(saying).await.unwrap();
        }
        serving.abort();
    }
}

#[tokio::test]
async fn an_axum_application_routes_to_it() {
    let site = origin(echo).await;
    let application = Router::new()
        .route("/healthz", on_get(|| async { "ok" }))
        .fallback_service(Proxy::to(&urls(&site)[1]).unwrap());
    let server = Server::builder()
        .peer_addresses(true)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(application));
    let client = client(VERSIONS[1]);
    let response = soon(client.request(get(&format!("http://{address}/healthz"))))
        .await
        .unwrap();
    assert_eq!(text(response.into_body()).await, "ok");
    let response = soon(client.request(post(&format!("http://{address}/x"), "body")))
        .await
        .unwrap();
    assert_eq!(text(response.into_body()).await, "body");
    serving.abort();
}

#[cfg(unix)]
#[tokio::test]
async fn an_origin_may_listen_on_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("fullbore-proxy-{}.sock", std::process::id()));
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = Server::builder().build(listener).unwrap();
    let service: tower::util::BoxCloneService<Request<Incoming>, Reply, BoxError> =
        tower::util::BoxCloneService::new(tower::service_fn(echo));
    let serving = tokio::spawn(server.serve(service));
    let front = Front::to(&format!("unix:{}", path.display())).await;
    let response = soon(client(VERSIONS[1]).request(post(&front.url("/"), "body")))
        .await
        .unwrap();
    assert_eq!(text(response.into_body()).await, "body");
    serving.abort();
    std::fs::remove_file(&path).unwrap();
}
