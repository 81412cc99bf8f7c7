//! What cannot be sent is an error of `send`, with its kind and without secrets.

use std::collections::HashMap;
use std::time::Duration;

use fullbore::ErrorKind;
use fullbore::client::{Body, RequestBuilder};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::{Site, client};
use crate::support::soon;

/// The error, which names nothing of what may be secret.
async fn refused(request: RequestBuilder) -> fullbore::Error {
    let shown = format!("{request:?}");
    let error = soon(request.send()).await.expect_err(&shown);
    let mut text = format!("{error} {:?} {shown}", error.url());
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    assert!(!text.contains("secret"), "{text}");
    error
}

#[tokio::test]
async fn urls_of_every_wrong_kind_are_refused() {
    let client = client();
    let long = format!("http://localhost/{}", "x".repeat(100_000));
    for url in [
        "",
        "   ",
        "/path?secret",
        "example.com",
        "localhost:80/path",
        "//example.com/",
        "ftp://me:secret@example.com/",
        "file:///etc/hosts",
        "mailto:me@example.com",
        "javascript:alert(1)",
        "data:text/plain,hello",
        "http:",
        "http://",
        "http:///path",
        "http://?secret",
        "http://#secret",
        "http://me:secret@/",
        "http://:80/",
        "http://example.com:99999/?secret",
        "http://example.com:-1/",
        "http://example.com:port/",
        "http://exa mple.com/",
        "http://example.com\\path",
        "http://[::1/",
        "http://[::1]path/",
        "http://me:secret@exa<mple/",
        "http://example.com/\r\nhost: other",
        "http://example.com/\0",
        "ht\ttp://example.com/",
        "http://%/",
        "http://\u{7f}/",
        &long,
    ] {
        let error = refused(client.get(url)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url:?}: {error}");
        assert!(error.is_builder() && error.is_usage() && !error.is_retryable());
        assert!(error.to_string().len() < 1_000, "{error}");
    }
}

#[tokio::test]
async fn hosts_that_are_letters_of_any_kind_are_looked_up_in_ascii() {
    let client = fullbore::Client::builder()
        .resolve("xn--mnchen-3ya.example", 9, [[127, 0, 0, 1].into()])
        .connect_timeout(Duration::from_secs(30))
        .build()
        .unwrap();
    let error = refused(client.get("http://münchen.example:9/a b")).await;
    assert_eq!(error.url(), Some("http://xn--mnchen-3ya.example:9/a%20b"));
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
}

#[tokio::test]
async fn fields_that_cannot_be_are_refused_and_the_first_error_stays() {
    let client = client();
    let get = || client.get("http://me:secret@localhost/?secret");
    for request in [
        get().header("", "value"),
        get().header("a name", "value"),
        get().header("na\r\nme", "secret"),
        get().header("näme", "secret"),
        get().header(":path", "secret"),
        get().header("name", "secret\r\nother: secret"),
        get().header("name", "secret\0"),
        get().header("name", "secret\n"),
        get().header(vec![0xff], "secret"),
        get().bearer_auth("secret\nsecret"),
        get().basic_auth("a:b", Some("secret")),
        get()
            .header("a name", "value")
            .header("fine", "value")
            .body("text"),
    ] {
        let error = refused(request).await;
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
        assert!(error.is_builder(), "{error}");
        assert_eq!(error.url(), Some("http://localhost/"));
    }
    let first = refused(client.get("no URL").header("a name", "value").json(&1)).await;
    assert_eq!(first.kind(), ErrorKind::InvalidUrl);
    assert!(client.get("no URL").try_clone().unwrap().build().is_err());
}

#[tokio::test]
async fn the_error_of_a_field_says_which_one_and_what_is_wrong() {
    let get = || client().get("http://localhost/");
    for (request, expected) in [
        (get().header("a name", "value"), "the name of a field is invalid"),
        (
            get().header("X-Id", "1\n2"),
            "the value of the field x-id is invalid",
        ),
        (
            get().bearer_auth("1\n2"),
            "the token has a character that no field may have",
        ),
        (
            client().get("localhost:80/path"),
            "it does not begin with http:// or https://",
        ),
    ] {
        let error = refused(request).await.to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[tokio::test]
async fn more_fields_than_a_map_holds_are_refused() {
    let mut request = client().get("http://localhost/");
    for number in 0..40_000 {
        request = request.header(format!("x-{number}"), "value");
    }
    let error = soon(request.send()).await.expect_err("too many");
    assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused() {
    let client = client();
    let get = || client.post("http://localhost/");
    let nested = HashMap::from([("key", HashMap::from([("secret", 1)]))]);
    let no_json = HashMap::from([(vec![1, 2], "secret")]);
    for request in [
        get().query(&nested),
        get().query(&1),
        get().form(&nested),
        get().form("secret"),
        get().json(&no_json),
        get().query(&[("a", "x".repeat(100_000))]),
    ] {
        let error = refused(request).await;
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{error}");
        assert_eq!(error.url(), Some("http://localhost/"));
    }
}

#[tokio::test]
async fn contradictions_are_errors_and_never_another_message() {
    let (site, client) = (Site::echo().await, client());
    let post = || client.post(site.url("/"));
    for (request, kind) in [
        (
            post().header("content-length", "5").body("four"),
            ErrorKind::InvalidMessage,
        ),
        (
            post().header("content-length", "3").body("four"),
            ErrorKind::InvalidMessage,
        ),
        (
            post().header("content-length", "no number").body("four"),
            ErrorKind::InvalidMessage,
        ),
    ] {
        let error = refused(request).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(error.url(), Some(&*site.url("/")));
    }
    // What HTTP/2 has no place for is left out.
    let request = post().header("connection", "secret").header("te", "gzip");
    let response = soon(request).await.expect("a response");
    assert_eq!(
        soon(response.text()).await.expect("text"),
        "POST /\ncontent-length: 0\n\n"
    );
}

#[tokio::test]
async fn a_limit_of_no_time_is_a_timeout() {
    let site = Site::echo().await;
    let error = refused(client().get(site.url("/")).timeout(Duration::ZERO)).await;
    assert!(error.is_timeout(), "{error}");
}

#[tokio::test]
async fn a_map_of_fields_with_any_octets_is_sent() {
    let (site, client) = (Site::echo().await, client());
    let mut headers = HeaderMap::new();
    headers.insert(
        HeaderName::from_static("x-octets"),
        HeaderValue::from_bytes(b"\xe9\t\xff").unwrap(),
    );
    let request = client.post(site.url("/")).headers(headers).body(Body::default());
    let response = soon(request).await.expect("a response");
    let text = soon(response.text()).await.expect("text");
    assert!(text.contains("x-octets: \\xe9\\t\\xff\n"), "{text}");
}
