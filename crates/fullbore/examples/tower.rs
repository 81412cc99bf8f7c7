//! The client under middleware of tower and tower-http: redirects, decompression, authorization, a timeout and a limit on
//! concurrency. `cargo run --example tower -- https://example.com/`.

use std::time::Duration;

use bytes::Bytes;
use fullbore::{BoxError, Client};
use http::Request;
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt};
use tower_http::auth::AddAuthorizationLayer;
use tower_http::decompression::DecompressionLayer;
use tower_http::follow_redirect::FollowRedirectLayer;
use tower_http::trace::TraceLayer;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args().nth(1).ok_or("usage: tower <URL>")?;
    let service = ServiceBuilder::new()
        // The client itself is always ready: this bounds the requests in progress.
        .concurrency_limit(100)
        .timeout(Duration::from_secs(30))
        .layer(FollowRedirectLayer::new())
        .layer(TraceLayer::new_for_http())
        .layer(AddAuthorizationLayer::basic("user", "password"))
        .layer(DecompressionLayer::new())
        .service(Client::new());
    let request = Request::get(url).body(Full::<Bytes>::default())?;
    let response = service.oneshot(request).await?;
    eprintln!("{}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    print!("{}", String::from_utf8_lossy(&body));
    Ok(())
}
