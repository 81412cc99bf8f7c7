//! An axum application with the peer's address, WebSockets and server-sent events: `cargo run --example web`, then
//! `curl http://127.0.0.1:8080/`, `curl http://127.0.0.1:8080/clock`, or a WebSocket to `ws://127.0.0.1:8080/echo`, over
//! HTTP/1.1 or HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::response::sse::{Event, Sse};
use axum::routing::{any, get};
use fullbore::server::WebSockets;
use futures_util::stream::{self, Stream};
use tower::ServiceExt;

async fn hello(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
    format!("hello {peer}\n")
}

/// One event a second.
async fn clock() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::unfold(0, |seconds| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok(Event::default().data(seconds.to_string())), seconds + 1))
    }))
}

/// A WebSocket costs a client a few bytes, over HTTP/2 without a connection of its own. By default `axum` has a buffer of 128 KiB
/// for each, and takes messages of 64 MiB.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    let upgrade = upgrade.read_buffer_size(4 << 10).max_message_size(64 << 10);
    upgrade.on_upgrade(|mut socket: WebSocket| async move {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), fullbore::Error> {
    let app = Router::new()
        .route("/", get(hello))
        .route("/clock", get(clock))
        // Over HTTP/2 a WebSocket begins with CONNECT, over HTTP/1.1 with GET.
        .route("/echo", any(echo));
    let server = fullbore::Server::builder()
        .config(|config| config.set_enable_connect_protocol(true))
        .bind("127.0.0.1:8080")
        .await?;
    println!("listening on http://127.0.0.1:8080");
    let make = app.into_make_service_with_connect_info::<SocketAddr>();
    let make = ServiceExt::<SocketAddr>::map_response(make, WebSockets::new);
    server.serve_make_service(make).await
}
