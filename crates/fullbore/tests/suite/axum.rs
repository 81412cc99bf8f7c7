//! An axum application, served as it is, and called over cleartext and TLS.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};
use fullbore::server::PeerAddr;
use fullbore::tls::{Roots, client_config, self_signed, server_config};
use fullbore::{Client, Server};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

use crate::support::{Chunks, soon, take};

fn application() -> Router {
    Router::new()
        .route(
            "/hello/{name}",
            get(|Path(name): Path<String>| async move { format!("hello {name}") }),
        )
        .route("/echo", post(|body: Body| async move { body }))
        .route(
            "/length",
            post(|body: String| async move { body.len().to_string() }),
        )
        .route("/peer", get(peer))
        .route("/panic", get(panics))
}

async fn peer(request: Request<Body>) -> Result<String, StatusCode> {
    let peer = request.extensions().get::<PeerAddr>();
    peer.map(|peer| peer.0.ip().to_string())
        .ok_or(StatusCode::NOT_FOUND)
}

async fn panics() -> &'static str {
    panic!("the handler has panicked, as it was to")
}

/// Everything that the application can do.
async fn converse(client: &Client, origin: &str) {
    let text = |path: &str| {
        let url = format!("{origin}{path}");
        async move {
            let response = soon(client.get(&url)).await.expect("a response");
            let status = response.status();
            let body = soon(response.into_body().collect())
                .await
                .expect("a body")
                .to_bytes();
            (status, String::from_utf8(body.to_vec()).expect("text"))
        }
    };
    assert_eq!(
        text("/hello/w%C3%B6rld?x=y").await,
        (StatusCode::OK, "hello wörld".to_owned())
    );
    assert_eq!(text("/nowhere").await.0, StatusCode::NOT_FOUND);
    assert_eq!(text("/echo").await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(text("/peer").await, (StatusCode::OK, "127.0.0.1".to_owned()));

    for total in [0, 1, 100_000, 5_000_000] {
        let request = Request::post(format!("{origin}/echo"))
            .body(Chunks::new(total, 30_000))
            .unwrap();
        let response = soon(client.request(request)).await.expect("a response");
        assert_eq!(
            soon(take(response.into_body())).await.expect("a body").bytes,
            total
        );
    }
    let request = Request::post(format!("{origin}/length"))
        .body("seven ha".to_owned())
        .unwrap();
    let response = soon(client.request(request)).await.expect("a response");
    assert_eq!(response.headers()[header::CONTENT_LENGTH], "1");
    assert_eq!(
        soon(response.into_body().collect())
            .await
            .expect("a body")
            .to_bytes(),
        "8"
    );

    let error = soon(client.get(format!("{origin}/panic")))
        .await
        .expect_err("it panics");
    assert_eq!(error.kind(), fullbore::ErrorKind::Reset, "{error}");
    assert_eq!(text("/hello/again").await.1, "hello again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_axum_router_is_served_over_cleartext() {
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder()
        .peer_addresses(true)
        .bind("127.0.0.1:0")
        .await
        .unwrap()
        .graceful_shutdown(async {
            stopped.await.ok();
        });
    let origin = format!("http://{}", server.local_addr().unwrap());
    let serving = tokio::spawn(server.serve(application()));
    let client = Client::new();
    converse(&client, &origin).await;
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_axum_router_is_served_over_tls() {
    let made = self_signed(&["localhost", "127.0.0.1"]).unwrap();
    let server_tls = server_config(made.cert_pem.as_bytes(), made.key_pem.as_bytes()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder()
        .peer_addresses(true)
        .tls_config(Arc::new(server_tls))
        .bind("127.0.0.1:0")
        .await
        .unwrap()
        .graceful_shutdown(async {
            stopped.await.ok();
        });
    let address = server.local_addr().unwrap();
    let serving = tokio::spawn(server.serve(application()));
    for roots in [Roots::Pem(made.cert_pem.into_bytes()), Roots::InsecureAcceptAny] {
        let tls = Arc::new(client_config(roots).unwrap());
        let client = Client::builder().tls_config(tls).build().unwrap();
        converse(&client, &format!("https://{address}")).await;
        converse(&client, &format!("https://localhost:{}", address.port())).await;
    }
    stop.send(()).unwrap();
    soon(serving).await.unwrap().unwrap();
}
