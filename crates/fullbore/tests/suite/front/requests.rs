//! What a request has, and what a response gives.

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get, post};
use bytes::Bytes;
use fullbore::ErrorKind;
use fullbore::client::Body;
use fullbore::settings::HttpVersions;
use futures_util::StreamExt;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};

use super::{Site, builder, client, echo};
use crate::support::{Chunks, empty, soon};

async fn text(request: fullbore::client::RequestBuilder) -> String {
    let response = soon(request.send()).await.expect("a response");
    soon(response.text()).await.expect("text")
}

#[tokio::test]
async fn each_method_is_sent_and_what_is_not_asked_for_is_not() {
    let (site, client) = (Site::echo().await, client());
    let url = site.url("/a?b=c#d");
    for (request, line) in [
        (client.get(&url), "GET /a?b=c\n\n"),
        (client.post(&url), "POST /a?b=c\ncontent-length: 0\n\n"),
        (client.put(&url), "PUT /a?b=c\ncontent-length: 0\n\n"),
        (client.patch(&url), "PATCH /a?b=c\ncontent-length: 0\n\n"),
        (client.delete(&url), "DELETE /a?b=c\n\n"),
        (client.request_to(Method::OPTIONS, &url), "OPTIONS /a?b=c\n\n"),
    ] {
        assert_eq!(text(request).await, line);
    }
    let response = soon(client.head(&url)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(soon(response.bytes()).await.expect("no body"), Bytes::new());
}

#[tokio::test]
async fn a_response_tells_its_head_and_its_url() {
    let (site, client) = (Site::echo().await, client());
    let url = site.url("/path");
    let response = soon(client.get(url.replace("//", "//me:secret@")))
        .await
        .expect("a response");
    assert_eq!(response.url().to_string(), url);
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(response.headers().contains_key(header::CONTENT_LENGTH));
    let length = response.content_length().expect("a length");
    let response: Response<fullbore::Incoming> = response.into();
    let body = soon(response.into_body().collect()).await.expect("a body");
    assert_eq!(body.to_bytes().len() as u64, length);
}

#[tokio::test]
async fn fields_are_added_or_take_the_place_of_others() {
    let (site, client) = (Site::echo().await, client());
    let mut others = HeaderMap::new();
    others.append("x-two", HeaderValue::from_static("3"));
    others.append("x-two", HeaderValue::from_static("4"));
    let request = client
        .get(site.url("/"))
        .header("x-one", "1")
        .header("x-one", 2)
        .header("x-two", "gone")
        .headers(others);
    assert_eq!(
        text(request).await,
        "GET /\nx-one: 1\nx-one: 2\nx-two: 3\nx-two: 4\n\n"
    );
}

#[tokio::test]
async fn default_fields_are_sent_unless_the_request_has_them() {
    let site = Site::echo().await;
    let defaults = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("text/plain"))]);
    let client = builder()
        .user_agent("probe/1")
        .default_headers(defaults)
        .build()
        .unwrap();
    let mut lines: Vec<_> = text(client.get(site.url("/")))
        .await
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    assert_eq!(lines, ["", "GET /", "accept: text/plain", "user-agent: probe/1"]);
    let own = text(client.get(site.url("/")).header("user-agent", "own")).await;
    assert!(
        own.contains("user-agent: own\n") && !own.contains("probe"),
        "{own}"
    );
    let refused = builder().user_agent("a\nb").build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn names_and_passwords_authorize_a_request() {
    let (site, client) = (Site::echo().await, client());
    let url = site.url("/");
    for (request, value) in [
        (
            client.get(&url).basic_auth("me", Some("pass:word")),
            "Basic bWU6cGFzczp3b3Jk",
        ),
        (client.get(&url).basic_auth("me", None::<&str>), "Basic bWU6"),
        (client.get(&url).bearer_auth("token"), "Bearer token"),
        (
            client.get(url.replace("//", "//me:pass%3Aword@")),
            "Basic bWU6cGFzczp3b3Jk",
        ),
        (
            client.get(url.replace("//", "//me@")).bearer_auth("token"),
            "Bearer token",
        ),
    ] {
        let sent = text(request).await;
        assert_eq!(sent, format!("GET /\nauthorization: {value}\n\n"));
    }
}

#[tokio::test]
async fn pairs_are_added_to_a_query() {
    let (site, client) = (Site::echo().await, client());
    let pairs = [("q", "a b&c"), ("é", "1")];
    for (path, line) in [
        ("/", "/?q=a+b%26c&%C3%A9=1"),
        ("", "/?q=a+b%26c&%C3%A9=1"),
        ("/a?", "/a?q=a+b%26c&%C3%A9=1"),
        ("/a?x=y#z", "/a?x=y&q=a+b%26c&%C3%A9=1"),
    ] {
        let sent = text(client.get(site.url(path)).query(&pairs)).await;
        assert_eq!(sent, format!("GET {line}\n\n"));
    }
    let none: [(&str, &str); 0] = [];
    assert_eq!(text(client.get(site.url("/a")).query(&none)).await, "GET /a\n\n");
}

#[tokio::test]
async fn forms_and_json_are_bodies_with_their_types() {
    let (site, client) = (Site::echo().await, client());
    let url = site.url("/");
    let form = text(client.post(&url).form(&[("a", "b c"), ("d", "&")])).await;
    assert_eq!(
        form,
        "POST /\ncontent-type: application/x-www-form-urlencoded\ncontent-length: 11\n\na=b+c&d=%26"
    );
    let value = HashMap::from([("key", [1, 2])]);
    let json = text(client.put(&url).json(&value)).await;
    assert_eq!(
        json,
        "PUT /\ncontent-type: application/json\ncontent-length: 13\n\n{\"key\":[1,2]}"
    );
    let own = client
        .post(&url)
        .header("content-type", "application/vnd.api+json")
        .json("text");
    assert!(
        text(own)
            .await
            .contains("content-type: application/vnd.api+json\ncontent-length: 6\n\n")
    );
}

#[tokio::test]
async fn json_is_parsed_and_what_is_none_is_an_error_with_the_url() {
    let app = Router::new()
        .route("/json", get(|| async { "{\"a\":[1,2]}" }))
        .route("/text", get(|| async { "text" }));
    let (site, client) = (Site::start(app).await, client());
    let response = soon(client.get(site.url("/json"))).await.expect("a response");
    let parsed: HashMap<String, Vec<u8>> = soon(response.json()).await.expect("JSON");
    assert_eq!(parsed["a"], [1, 2]);
    let response = soon(client.get(site.url("/text?secret")))
        .await
        .expect("a response");
    let error = soon(response.json::<u8>()).await.expect_err("no JSON");
    assert!(
        error.is_decode() && error.is_body() && !error.is_retryable(),
        "{error:?}"
    );
    assert_eq!(error.url(), Some(&*site.url("/text")));
}

#[tokio::test]
async fn bodies_are_bytes_or_streams_of_any_kind() {
    let (site, client) = (Site::echo().await, client());
    let url = site.url("/");
    let chunks = || futures_util::stream::iter([Ok::<_, std::io::Error>("stream"), Ok("ed")]);
    for (body, length) in [
        (Body::from("streamed"), Some(8)),
        (Body::from("streamed".to_owned()), Some(8)),
        (Body::from(b"streamed".to_vec()), Some(8)),
        (Body::from(&b"streamed"[..]), Some(8)),
        (Body::from(Bytes::from("streamed")), Some(8)),
        (Body::wrap(Full::<Bytes>::from("streamed")), Some(8)),
        (Body::wrap_stream(chunks()), None),
    ] {
        let sent = text(client.post(&url).body(body)).await;
        let field = length.map_or(String::new(), |length| format!("content-length: {length}\n"));
        assert_eq!(sent, format!("POST /\n{field}\nstreamed"));
    }
}

#[tokio::test]
async fn the_last_body_that_is_set_is_sent() {
    let (site, client) = (Site::echo().await, client());
    let request = client
        .post(site.url("/"))
        .form(&[("a", "b")])
        .json(&1)
        .body("last");
    let sent = text(request).await;
    assert!(sent.ends_with("content-length: 4\n\nlast"), "{sent}");
}

#[tokio::test]
async fn a_response_is_the_body_of_the_next_request() {
    let (site, client) = (Site::echo().await, client());
    let response = soon(client.get(site.url("/one"))).await.expect("a response");
    let sent = text(client.post(site.url("/two")).body(response)).await;
    assert_eq!(sent, "POST /two\ncontent-length: 10\n\nGET /one\n\n");
}

#[tokio::test]
async fn a_body_comes_whole_in_chunks_and_as_a_stream() {
    let app = Router::new().route(
        "/",
        get(|| async { axum::body::Body::new(Chunks::new(300_000, 7_000)) }),
    );
    let (site, client) = (Site::start(app).await, client());
    let get = async || soon(client.get(site.url("/"))).await.expect("a response");
    let whole = soon(get().await.bytes()).await.expect("a body");
    assert_eq!(whole.len(), 300_000);
    let (mut response, mut in_chunks) = (get().await, Vec::new());
    while let Some(chunk) = soon(response.chunk()).await.expect("a chunk") {
        in_chunks.extend_from_slice(&chunk);
    }
    let mut stream = get().await.bytes_stream();
    let mut streamed = Vec::new();
    while let Some(chunk) = soon(stream.next()).await {
        streamed.extend_from_slice(&chunk.expect("a chunk"));
    }
    assert!(whole == in_chunks && whole == streamed);
}

#[tokio::test]
async fn text_is_decoded_from_its_charset() {
    let latin = || async {
        (
            [(header::CONTENT_TYPE, "text/html; charset=ISO-8859-1")],
            &b"caf\xe9"[..],
        )
    };
    let unknown = || async { ([(header::CONTENT_TYPE, "text/html; charset=nothing")], "text") };
    let app = Router::new()
        .route("/latin", get(latin))
        .route("/unknown", get(unknown));
    let (site, client) = (Site::start(app).await, client());
    assert_eq!(text(client.get(site.url("/latin"))).await, "café");
    let response = soon(client.get(site.url("/unknown"))).await.expect("a response");
    let error = soon(response.text()).await.expect_err("no charset");
    assert!(error.is_decode(), "{error}");
}

#[tokio::test]
async fn an_error_status_is_an_error_when_it_is_asked_for() {
    let app = Router::new()
        .route("/missing", any(|| async { (StatusCode::NOT_FOUND, "why") }))
        .route("/down", any(|| async { StatusCode::SERVICE_UNAVAILABLE }))
        .route("/fine", any(|| async { StatusCode::NO_CONTENT }));
    let (site, client) = (Site::start(app).await, client());
    let response = soon(client.get(site.url("/missing?secret")))
        .await
        .expect("a response");
    assert!(response.error_for_status_ref().is_err());
    let error = response.error_for_status().expect_err("404");
    assert!(error.is_status() && !error.is_retryable());
    assert_eq!(error.status(), Some(StatusCode::NOT_FOUND));
    let url = site.url("/missing");
    assert_eq!(
        error.to_string(),
        format!("{url}: the server answered with an error: 404 Not Found")
    );
    let down = soon(client.get(site.url("/down"))).await.expect("a response");
    assert_eq!(
        down.error_for_status().expect_err("503").status(),
        Some(StatusCode::SERVICE_UNAVAILABLE)
    );
    let fine = soon(client.get(site.url("/fine"))).await.expect("a response");
    assert_eq!(
        fine.error_for_status().expect("204").status(),
        StatusCode::NO_CONTENT
    );
}

/// A site that never ends its answers, or never begins them.
async fn slow() -> Site {
    let endless = || async {
        let first = futures_util::stream::iter([Ok::<_, std::io::Error>("first")]);
        axum::body::Body::from_stream(first.chain(futures_util::stream::pending()))
    };
    let app = Router::new()
        .route("/silent", any(std::future::pending::<()>))
        .route("/endless", any(endless))
        .route("/", any(echo));
    Site::start(app).await
}

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_limit_on_time_ends_the_wait_for_a_response_and_its_body() {
    let site = slow().await;
    let limited = builder().timeout(SHORT).build().unwrap();
    let plain = client();
    for silent in [
        plain.get(site.url("/silent")).timeout(SHORT),
        plain.post(site.url("/silent")).body("content").timeout(SHORT),
        limited.get(site.url("/silent")),
    ] {
        let error = soon(silent).await.expect_err("no response");
        assert!(
            error.is_timeout() && !error.is_connect() && !error.is_body(),
            "{error}"
        );
        assert_eq!(error.url(), Some(&*site.url("/silent")));
    }
    // On a busy machine the head takes longer.
    let mut begun = None;
    for limit in [1, 5, 30].map(Duration::from_secs) {
        match soon(plain.get(site.url("/endless")).timeout(limit)).await {
            Ok(response) => begun = Some(response),
            Err(error) => assert!(error.is_timeout(), "{error}"),
        }
        if begun.is_some() {
            break;
        }
    }
    let response = begun.expect("a response");
    let error = soon(response.bytes()).await.expect_err("no end");
    assert!(error.is_timeout() && error.is_body(), "{error}");
    assert_eq!(error.url(), Some(&*site.url("/endless")));
    // A limit of the request takes the place of the client's.
    let patient = limited.get(site.url("/")).timeout(Duration::from_secs(600));
    assert_eq!(text(patient).await, "GET /\n\n");
    let most = plain.get(site.url("/")).timeout(Duration::MAX);
    assert_eq!(text(most).await, "GET /\n\n");
}

#[tokio::test]
async fn the_report_of_a_stream_is_there_behind_a_limit_on_time() {
    let site = slow().await;
    let response = soon(
        client()
            .get(site.url("/endless"))
            .timeout(Duration::from_secs(600)),
    );
    let response = response.await.expect("a response");
    assert!(soon(response.body().report()).await.is_some());
    assert!(soon(response.body().grow_receive_window(1 << 30)).await.is_ok());
}

#[tokio::test]
async fn errors_say_where_a_request_failed() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let error = soon(client().get(&url)).await.expect_err("nobody listens");
    assert!(
        error.is_connect() && error.is_retryable() && !error.is_builder(),
        "{error}"
    );
    assert_eq!(error.url(), Some(&*url));
    let site = Site::start(Router::new().route("/", post(|body: Bytes| async { body }))).await;
    let broken = futures_util::stream::iter([Ok("first"), Err(std::io::Error::other("broken"))]);
    let upload = client().post(site.url("/")).body(Body::wrap_stream(broken));
    let error = soon(upload).await.expect_err("a broken body");
    assert!(
        error.is_body() && error.kind() == ErrorKind::Body && !error.is_retryable(),
        "{error}"
    );
    assert_eq!(error.url(), Some(&*site.url("/")));
}

#[tokio::test]
async fn a_request_may_name_its_version() {
    let (site, client) = (Site::echo().await, client());
    for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_11] {
        let response = soon(client.get(site.url("/")).version(version)).await;
        let response = response.expect("a response");
        assert_eq!(response.version(), version);
        soon(response.bytes()).await.expect("a body");
    }
    // Each has a connection of its own, of which the client tells.
    assert_eq!(client.connections(&site.url("/")), 2);
    assert_eq!(soon(client.reports()).await.len(), 1);
    assert!(client.http1_report().is_some());
    let refused = soon(client.get(site.url("/")).version(Version::HTTP_3)).await;
    assert!(refused.expect_err("HTTP/3").is_builder());
    soon(client.shutdown()).await;
    assert_eq!(client.connections(&site.url("/")), 0);
}

#[tokio::test]
async fn a_server_of_http1_is_an_error_for_a_request_in_http2() {
    let server = fullbore::Server::builder().http_versions(HttpVersions::Http1);
    let server = server.bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", server.local_addr().expect("an address"));
    tokio::spawn(server.serve(Router::new().fallback(any(echo))));
    let client = client();
    let refused = soon(client.get(&url).version(Version::HTTP_2)).await;
    assert_eq!(refused.expect_err("no HTTP/2").kind(), ErrorKind::NotHttp2);
    let response = soon(client.get(&url)).await.expect("a response");
    assert_eq!(response.version(), Version::HTTP_11);
}

#[tokio::test]
async fn a_request_is_copied_unless_its_body_is_a_stream() {
    let (site, client) = (Site::echo().await, client());
    let request = client.post(site.url("/")).header("x-one", "1").body("twice");
    let copy = request.try_clone().expect("a copy");
    assert_eq!(text(request).await, text(copy).await);
    let streamed = client.post(site.url("/")).body(Body::wrap(empty()));
    assert!(streamed.try_clone().is_none());
}

#[tokio::test]
async fn a_built_request_is_sent_by_the_client_as_it_is() {
    let (site, client) = (Site::echo().await, client());
    let request: Request<Body> = client
        .post(site.url("/"))
        .bearer_auth("token")
        .body("content")
        .build()
        .unwrap();
    let response = soon(client.request(request)).await.expect("a response");
    let body = soon(response.into_body().collect())
        .await
        .expect("a body")
        .to_bytes();
    assert_eq!(
        body,
        "POST /\nauthorization: Bearer token\ncontent-length: 7\n\ncontent"
    );
}

#[tokio::test]
async fn a_url_is_any_of_its_types() {
    let (site, client) = (Site::echo().await, client());
    let text_of = |url: &str| url.to_owned();
    let url = site.url("/a b?é");
    let typed = url::Url::parse(&url).unwrap();
    let parsed: http::Uri = site.url("/a%20b?%C3%A9").parse().unwrap();
    for request in [
        client.get(&*url),
        client.get(&url),
        client.get(text_of(&url)),
        client.get(format!(" {url}\n")),
        client.get(&parsed),
        client.get(parsed.clone()),
        client.get(typed.clone()),
        client.get(&typed),
    ] {
        assert_eq!(text(request).await, "GET /a%20b?%C3%A9\n\n");
    }
}
