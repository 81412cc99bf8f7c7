//! Files under an axum application: `cargo run -p fullbore-files --example axum -- FOLDER`, then
//! `curl http://127.0.0.1:8080/files/NAME`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use axum::routing::get;
use axum::{Router, middleware};
use fullbore_files::{Files, PeerAddr, Settings};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let application = Router::new()
        .route("/", get(|| async { "files are under /files/\n" }))
        .nest_service("/files", Files::open(folder, Settings::default())?)
        // The shares of each peer need its address.
        .layer(middleware::map_request(
            |ConnectInfo(peer): ConnectInfo<SocketAddr>, mut request: Request| async move {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            },
        ));
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let service = application.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
