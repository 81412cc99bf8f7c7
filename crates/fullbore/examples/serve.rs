//! A server over TLS without a framework: a `tower` service, a certificate made on the spot, and a graceful end when
//! standard input ends. `cargo run --example serve --features self-signed`, then
//! `curl --insecure --data-binary @file https://127.0.0.1:8443/`.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use fullbore::{BoxError, Error, Incoming, Server, tls};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::AsyncReadExt;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let made = tls::self_signed(&["localhost", "127.0.0.1"])?;
    let config = tls::server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes())?;
    let server = Server::builder()
        .tls_config(Arc::new(config))
        .bind("127.0.0.1:8443")
        .await?
        .graceful_shutdown(end_of_input());
    println!("listening on https://127.0.0.1:8443; end it with Ctrl+D");
    server.serve(tower::service_fn(answer)).await?;
    Ok(())
}

/// Says how long the body of the request was.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = match count(request.into_body()).await {
        Ok(bytes) => format!("{bytes} bytes\n"),
        Err(error) => return Ok(failed(&error)),
    };
    Ok(Response::new(Full::from(text)))
}

async fn count(mut body: Incoming) -> Result<usize, Error> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(bytes)
}

fn failed(error: &Error) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{error}\n")));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

async fn end_of_input() {
    let mut rest = Vec::new();
    // However it ends, it has ended.
    let _ = tokio::io::stdin().read_to_end(&mut rest).await;
}
