//! A WebSocket over HTTP/2 (RFC 8441), with axum on the server and tungstenite on the client. Both sides are in this program.
//!
//! ```sh
//! cargo run -p fullbore --example websocket
//! ```

use std::io;

use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::routing::any;
use fullbore::client::Body;
use fullbore::ext::Protocol;
use fullbore::server::WebSockets;
use fullbore::{BoxError, Client, Server};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::io::{ReaderStream, StreamReader};

/// The bytes that a WebSocket may write before the connection takes them.
const UNSENT_BYTES: usize = 16 << 10;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // `any`, because over HTTP/2 the method is CONNECT.
    let upgrade = |upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) };
    let app = Router::new().route("/echo", any(upgrade));
    let builder = Server::builder().config(|config| config.set_enable_connect_protocol(true));
    let server = builder.bind("127.0.0.1:0").await?;
    let url = format!("http://{}/echo", server.local_addr()?);
    tokio::spawn(server.serve(WebSockets::new(app)));

    let mut socket = connect(&Client::new(), &url).await?;
    socket.send("hello".into()).await?;
    let answer = socket.next().await.ok_or("the server closed the WebSocket")??;
    println!("{answer}");
    socket.close(None).await?;
    Ok(())
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Opens a WebSocket. What it writes is the body of the request, and what it reads is the body of the response.
async fn connect(
    client: &Client,
    url: &str,
) -> Result<WebSocketStream<impl AsyncRead + AsyncWrite + Unpin + use<>>, BoxError> {
    let (writer, written) = tokio::io::duplex(UNSENT_BYTES);
    let mut request = http::Request::connect(url)
        .header("sec-websocket-version", "13")
        .body(Body::wrap_stream(ReaderStream::new(written)))?;
    request
        .extensions_mut()
        .insert(Protocol::from_static("websocket"));
    let response = client.request(request).await?;
    if !response.status().is_success() {
        return Err(format!("the server refused the WebSocket: {}", response.status()).into());
    }
    let reader = StreamReader::new(response.into_body().into_data_stream().map_err(io::Error::other));
    Ok(WebSocketStream::from_raw_socket(tokio::io::join(reader, writer), Role::Client, None).await)
}
