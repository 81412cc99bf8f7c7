//! Cookies that servers set, and what comes back.

use axum::Router;
use axum::extract::Path;
use axum::http::Uri;
use axum::response::AppendHeaders;
use axum::routing::any;
use fullbore::Client;
use http::{HeaderMap, StatusCode, header};

use super::Site;
use crate::support::soon;

/// A site that sets what the query says, redirects, and tells the cookies that it gets.
async fn site() -> Site {
    let told = |headers: HeaderMap| async move {
        // Over HTTP/2 each comes alone (RFC 9113 section 8.2.3).
        let values = headers.get_all(header::COOKIE).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap_or("no text")).collect();
        match values.is_empty() {
            true => "none".to_owned(),
            false => values.join("; "),
        }
    };
    let set = |uri: Uri| async move {
        let value = uri.query().unwrap_or_default().replace('_', " ");
        ([(header::SET_COOKIE, value)], "set")
    };
    let moved = || async {
        let fields = [(header::SET_COOKIE, "key=value"), (header::LOCATION, "/told")];
        (StatusCode::FOUND, fields)
    };
    let many = |Path(count): Path<usize>| async move {
        let set = (0..count).map(|number| (header::SET_COOKIE, format!("k{number}=v; Path=/")));
        AppendHeaders(set.collect::<Vec<_>>())
    };
    let app = Router::new()
        .route("/set", any(set))
        .route("/moved", any(moved))
        .route("/many/{count}", any(many))
        .fallback(any(told));
    Site::start(app).await
}

fn keeping() -> Client {
    Client::builder().cookie_store(true).build().unwrap()
}

async fn get(client: &Client, url: String) -> String {
    let response = soon(client.get(url)).await.expect("a response");
    soon(response.text()).await.expect("text")
}

#[tokio::test]
async fn a_cookie_comes_back_until_it_is_replaced_or_ends() {
    let (site, client) = (site().await, keeping());
    assert_eq!(get(&client, site.url("/told")).await, "none");
    for (set, told) in [
        ("key=val", "key=val"),
        ("key=val2", "key=val2"),
        ("key=val3;_Max-Age=0", "none"),
        ("key=val4;_Max-Age=100", "key=val4"),
        ("key=val5;_Expires=Wed,_21_Oct_2015_07:28:00_GMT", "none"),
        ("path=val;_Path=/below", "none"),
        ("other=val;_Domain=example.com", "none"),
        ("no-cookie", "none"),
        ("=", "none"),
        ("", "none"),
    ] {
        get(&client, site.url(&format!("/set?{set}"))).await;
        assert_eq!(get(&client, site.url("/told")).await, told, "{set}");
    }
    assert_eq!(get(&client, site.url("/below/told")).await, "path=val");
}

#[tokio::test]
async fn a_client_keeps_no_cookies_unless_it_is_told_to() {
    let (site, client) = (site().await, Client::new());
    get(&client, site.url("/set?key=val")).await;
    assert_eq!(get(&client, site.url("/told")).await, "none");
}

#[tokio::test]
async fn a_cookie_of_a_redirect_goes_to_its_target() {
    let (site, client) = (site().await, keeping());
    assert_eq!(get(&client, site.url("/moved")).await, "key=value");
}

#[tokio::test]
async fn cookies_of_the_caller_take_the_place_of_those_that_are_kept() {
    let (site, client) = (site().await, keeping());
    get(&client, site.url("/set?key=val")).await;
    let own = soon(client.get(site.url("/told")).header("cookie", "own=1"))
        .await
        .unwrap();
    assert_eq!(soon(own.text()).await.unwrap(), "own=1");
}

#[tokio::test]
async fn a_server_cannot_fill_the_memory_with_cookies() {
    let (site, client) = (site().await, keeping());
    get(&client, site.url("/many/400")).await;
    let told = get(&client, site.url("/told")).await;
    assert_eq!(told.split("; ").count(), 50, "{told}");
    let long = "x".repeat(4_096);
    get(&client, site.url(&format!("/set?{long}=1"))).await;
    assert!(!get(&client, site.url("/told")).await.contains(&long));
    // One that is kept can still be replaced.
    let first = told.split('=').next().unwrap();
    get(&client, site.url(&format!("/set?{first}=new"))).await;
    assert!(
        get(&client, site.url("/told"))
            .await
            .contains(&format!("{first}=new"))
    );
}
