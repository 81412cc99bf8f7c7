//! The client as users of reqwest know one: requests that are put together step by step, and their responses.

mod bad_input;
mod cookies;
mod decoding;
mod multipart;
mod redirects;
mod requests;

use std::net::SocketAddr;

use axum::Router;
use axum::routing::any;
use fullbore::{Client, ClientBuilder, Server};
use http::{Request, Response};
use http_body_util::BodyExt;

/// A server on loopback, for as long as the runtime of its test.
struct Site {
    address: SocketAddr,
}

impl Site {
    async fn start(app: Router) -> Self {
        let server = Server::bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        tokio::spawn(server.serve(app));
        Site { address }
    }

    /// One that answers with what it was sent.
    async fn echo() -> Self {
        Self::start(Router::new().fallback(any(echo))).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// The request as text: its line, its fields in their order, an empty line and the body.
async fn echo(request: Request<axum::body::Body>) -> Response<String> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let mut text = format!("{} {target}\n", head.method);
    for (name, value) in &head.headers {
        text.push_str(&format!("{name}: {}\n", value.as_bytes().escape_ascii()));
    }
    let body = body.collect().await.expect("a body").to_bytes();
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&body));
    Response::new(text)
}

/// A client that asks for no content codings, so that a request has the fields that its test gives it.
fn client() -> Client {
    builder().build().expect("a client")
}

fn builder() -> ClientBuilder {
    Client::builder().decompression(false)
}
