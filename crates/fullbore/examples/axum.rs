//! An axum application over HTTP/2, in cleartext: `cargo run --example axum`, then
//! `curl --http2-prior-knowledge http://127.0.0.1:8080/hello/world`.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};

#[tokio::main]
async fn main() -> Result<(), fullbore::Error> {
    let app = Router::new()
        .route(
            "/hello/{name}",
            get(|Path(name): Path<String>| async move { format!("hello {name}\n") }),
        )
        // What comes in goes out, chunk by chunk and by reference.
        .route("/echo", post(|body: Body| async move { body }));
    let server = fullbore::Server::bind("127.0.0.1:8080").await?;
    println!("listening on http://127.0.0.1:8080");
    server.serve(app).await
}
