//! Which redirects are followed, with what, and what stays at home.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::routing::any;
use fullbore::client::Body;
use fullbore::settings::HttpVersions;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, ErrorKind};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};

use super::{Site, builder, client, echo};
use crate::support::{Chunks, soon};

/// A redirect to what the query names, with the status that the path names.
async fn redirect(Path(status): Path<u16>, request: Request<axum::body::Body>) -> Response<String> {
    let to = request.uri().query().unwrap_or_default();
    let response = Response::builder().status(status).header(header::LOCATION, to);
    response.body("moved".to_owned()).expect("a response")
}

async fn site() -> Site {
    let app = Router::new()
        .route("/to/{status}", any(redirect))
        .fallback(any(echo));
    Site::start(app).await
}

async fn text(request: fullbore::client::RequestBuilder) -> (String, String) {
    let response = soon(request.send()).await.expect("a response");
    let url = response.url().to_string();
    (soon(response.text()).await.expect("text"), url)
}

#[tokio::test]
async fn a_post_becomes_a_get_where_browsers_make_it_one() {
    let (site, client) = (site().await, client());
    for (status, method, line) in [
        (301, Method::POST, "GET"),
        (302, Method::POST, "GET"),
        (303, Method::POST, "GET"),
        (303, Method::PUT, "GET"),
        (301, Method::PUT, "PUT"),
        (302, Method::DELETE, "DELETE"),
        (301, Method::GET, "GET"),
    ] {
        let request = client
            .request_to(method.clone(), site.url(&format!("/to/{status}?/dst")))
            .header("content-type", "text/plain")
            .header("content-language", "en")
            .header("x-other", "kept")
            .body("Hello");
        let (sent, url) = text(request).await;
        let expected = match line {
            "GET" if method != Method::GET => "GET /dst\nx-other: kept\n\n".to_owned(),
            _ => format!(
                "{line} /dst\ncontent-type: text/plain\ncontent-language: en\nx-other: kept\ncontent-length: 5\n\nHello"
            ),
        };
        assert_eq!(sent, expected, "{status} {method}");
        assert_eq!(url, site.url("/dst"));
    }
    let response = soon(client.head(site.url("/to/303?/dst")))
        .await
        .expect("a response");
    assert_eq!(
        (response.status(), response.url().path()),
        (StatusCode::OK, "/dst")
    );
}

#[tokio::test]
async fn a_redirect_that_keeps_the_method_sends_the_body_again_if_it_can() {
    let (site, client) = (site().await, client());
    for status in [307, 308] {
        let url = site.url(&format!("/to/{status}?/dst"));
        let (sent, _) = text(client.post(&url).body("Hello")).await;
        assert_eq!(sent, "POST /dst\ncontent-length: 5\n\nHello");
        let (sent, _) = text(client.get(&url)).await;
        assert_eq!(sent, "GET /dst\n\n");
        let streamed = client.post(&url).body(Body::wrap(Chunks::new(10, 5)));
        let response = soon(streamed).await.expect("a response");
        assert_eq!(response.status(), status);
        assert_eq!(response.url().to_string(), url);
    }
}

/// What must not come along: two fields of the caller's, one of the client's and one that is marked.
fn with_secrets(client: &Client, url: String) -> fullbore::client::RequestBuilder {
    let mut marked = HeaderValue::from_static("secret");
    marked.set_sensitive(true);
    client
        .get(url)
        .bearer_auth("secret")
        .header(header::COOKIE, "secret")
        .header(header::PROXY_AUTHORIZATION, "secret")
        .header(header::WWW_AUTHENTICATE, "secret")
        .header("x-key", marked)
        .header("x-plain", "plain")
}

#[tokio::test]
async fn secrets_do_not_leave_their_origin_and_do_not_come_back() {
    let (home, other) = (site().await, site().await);
    let hidden = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("secret default"))]);
    let client = builder().default_headers(hidden).build().unwrap();
    let kept = text(with_secrets(&client, home.url("/to/302?/dst"))).await.0;
    assert_eq!(kept.matches("secret").count(), 5, "{kept}");
    assert!(!kept.contains("referer"), "{kept}");
    // To another origin; from there to the same one; and home.
    let there = other.url("/to/302?/dst");
    let back = other.url(&format!("/to/302?{}", home.url("/dst")));
    for url in [other.url("/dst"), there, back] {
        let request = with_secrets(&client, home.url(&format!("/to/307?{url}")));
        let (sent, _) = text(request).await;
        assert_eq!(sent, "GET /dst\nx-plain: plain\n\n", "{url}");
        // The default field of the client too.
        let (sent, _) = text(client.get(home.url(&format!("/to/301?{url}")))).await;
        assert_eq!(sent, "GET /dst\n\n", "{url}");
        // And the name and password of a URL.
        let named = home
            .url(&format!("/to/301?{url}"))
            .replacen("//", "//me:secret@", 1);
        assert_eq!(text(client.get(named)).await.0, "GET /dst\n\n", "{url}");
    }
}

#[tokio::test]
async fn a_redirect_from_https_to_http_and_back_is_followed_without_secrets() {
    let made = self_signed(&["localhost"]).unwrap();
    let tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
    let server = fullbore::Server::builder().tls_config(Arc::new(tls));
    let server = server.bind("127.0.0.1:0").await.expect("a port");
    let port = server.local_addr().expect("an address").port();
    let app = Router::new()
        .route("/to/{status}", any(redirect))
        .fallback(any(echo));
    tokio::spawn(server.serve(app));
    let secure = |path: &str| format!("https://localhost:{port}{path}");
    let plain = site().await;
    let trust = client_config(Roots::InsecureAcceptAny).unwrap();
    let client = builder().tls_config(Arc::new(trust)).build().unwrap();
    let there = plain.url("/dst");
    let (sent, url) = text(with_secrets(&client, secure(&format!("/to/302?{there}")))).await;
    assert_eq!((&*sent, url), ("GET /dst\nx-plain: plain\n\n", there));
    let back = plain.url(&format!("/to/302?{}", secure("/dst")));
    let (sent, url) = text(with_secrets(&client, back)).await;
    assert_eq!((&*sent, url), ("GET /dst\nx-plain: plain\n\n", secure("/dst")));
}

#[tokio::test]
async fn over_http1_redirects_are_the_same() {
    let (home, other) = (site().await, site().await);
    let client = builder().http_versions(HttpVersions::Http1).build().unwrap();
    let request = client.post(home.url(&format!("/to/303?{}", other.url("/dst"))));
    let (sent, _) = text(request.bearer_auth("secret").body("Hello")).await;
    assert_eq!(sent, format!("GET /dst\nhost: {}\n\n", other.address));
    let (sent, _) = text(client.post(home.url("/to/307?/dst")).body("Hello")).await;
    let expected = format!("POST /dst\nhost: {}\ncontent-length: 5\n\nHello", home.address);
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_user_that_a_redirect_names_is_not_acted_for() {
    let (site, client) = (site().await, client());
    let to = site.url("/dst").replace("//", "//me:secret@");
    let (sent, url) = text(client.get(site.url(&format!("/to/302?{to}")))).await;
    assert_eq!((sent, url), ("GET /dst\n\n".to_owned(), site.url("/dst")));
}

#[tokio::test]
async fn more_redirects_than_are_allowed_are_an_error() {
    let client = client();
    let turning = Site::start(Router::new().route(
        "/{number}",
        any(|Path(number): Path<u32>| async move {
            let to = format!("/{}", number + 1);
            (StatusCode::FOUND, [(header::LOCATION, to)])
        }),
    ))
    .await;
    let error = soon(client.get(turning.url("/0?secret")))
        .await
        .expect_err("a loop");
    assert!(error.is_redirect() && !error.is_retryable(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Redirect);
    // The eleventh redirect.
    assert_eq!(error.url(), Some(&*turning.url("/10")));
    for (most, last, is_of_request) in [
        (0, "/0", false),
        (3, "/3", false),
        (0, "/0", true),
        (3, "/3", true),
    ] {
        let of_client = if is_of_request { 7 } else { most };
        let client = builder().max_redirects(of_client).build().unwrap();
        let mut request = client.get(turning.url("/0"));
        if is_of_request {
            request = request.max_redirects(most);
        }
        let ended = soon(request).await;
        match ended {
            Ok(response) => assert_eq!(
                (most, response.status(), response.url().path()),
                (0, StatusCode::FOUND, last)
            ),
            Err(error) => assert_eq!((most, error.url()), (3, Some(&*turning.url(last)))),
        }
    }
}

#[tokio::test]
async fn a_redirect_from_http_1_in_cleartext_to_https_negotiates_http_2() {
    let made = self_signed(&["localhost"]).expect("a certificate");
    let (cert, key) = (made.cert_pem.as_bytes(), made.key_pem.as_bytes());
    let config = server_config(cert, key).expect("a configuration");
    let secure = fullbore::Server::builder().tls_config(Arc::new(config));
    let secure = secure.bind("127.0.0.1:0").await.expect("a port");
    let port = secure.local_addr().expect("an address").port();
    let app = Router::new().fallback(any(|request: Request<axum::body::Body>| async move {
        format!("{:?}", request.version())
    }));
    tokio::spawn(secure.serve(app));
    let (site, roots) = (site().await, Roots::Pem(cert.to_vec()));
    let tls = Arc::new(client_config(roots).expect("a configuration"));
    let builder = builder().tls_config(tls).cleartext_versions(HttpVersions::Http1);
    let client = builder.build().expect("a client");
    let direct = soon(client.get(site.url("/"))).await.expect("a response");
    assert_eq!(direct.version(), Version::HTTP_11);
    let url = site.url(&format!("/to/302?https://localhost:{port}/"));
    let response = soon(client.get(url)).await.expect("a response");
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(soon(response.text()).await.expect("text"), "HTTP/2.0");
}

#[tokio::test]
async fn a_location_that_is_no_url_is_the_response_and_one_of_another_scheme_an_error() {
    let (site, client) = (site().await, client());
    for to in ["http://[", "http://:99999/", "http://a%00b/", "file:///etc/hosts"] {
        let response = soon(client.get(site.url(&format!("/to/302?{to}")))).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), StatusCode::FOUND, "{to}");
    }
    for to in ["ftp://example.com/", "javascript:alert(1)", "data:,text"] {
        let error = soon(client.get(site.url(&format!("/to/302?{to}")))).await;
        let error = error.expect_err(to);
        assert!(error.is_redirect(), "{to}: {error}");
        assert_eq!(error.url(), Some(&*site.url("/to/302")));
    }
    // A failure at the target names the target.
    let error = soon(client.get(site.url("/to/302?http://127.0.0.1:1/gone"))).await;
    let error = error.expect_err("nobody listens");
    assert_eq!(error.url(), Some("http://127.0.0.1:1/gone"), "{error}");
}

#[tokio::test]
async fn locations_are_resolved_as_browsers_do() {
    let (site, client) = (site().await, client());
    let host = site.address;
    for (to, expected) in [
        ("/a/../b", "/b"),
        ("../c/./d", "/c/d"),
        ("../../e?f=g#h", "/e?f=g"),
        (&format!("//{host}/i"), "/i"),
    ] {
        let (sent, _) = text(client.get(site.url(&format!("/to/302?{to}")))).await;
        assert!(sent.starts_with(&format!("GET {expected}\n")), "{to}: {sent}");
    }
}

#[tokio::test]
async fn a_request_of_http_is_sent_as_it_is() {
    let (site, client) = (site().await, client());
    let request = client.get(site.url("/to/302?/dst")).build().unwrap();
    let response = soon(client.request(request)).await.expect("a response");
    assert_eq!(response.status(), StatusCode::FOUND);
}
