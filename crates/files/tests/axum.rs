//! The service under axum: in a router, and on axum's own server over HTTP/1.1.

use std::error::Error as _;

use axum::Router;
use axum::body::{Body, to_bytes};
use fullbore_files::{Files, Settings, Uploads};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

fn application(root: &std::path::Path) -> Router {
    let mut settings = Settings::default();
    settings.uploads = Uploads::Directory(root.to_owned());
    settings.min_free_bytes = Some(0);
    Router::new().nest_service("/files", Files::open(root, settings).unwrap())
}

#[tokio::test]
async fn a_router_serves_ranges_of_files_and_stores_uploads() {
    let root = tempfile::tempdir().unwrap();
    let application = application(root.path());
    // Larger than the first chunk, so that it is read while it is sent.
    let content: Vec<u8> = (0..1_000_000).map(|at| (at % 251) as u8).collect();
    let upload = Request::put("/files/a.bin")
        .body(Body::from(content.clone()))
        .unwrap();
    let response = application.clone().oneshot(upload).await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    assert_eq!(std::fs::read(root.path().join("a.bin")).unwrap(), content);

    for (range, status, expected) in [
        (None, 200, &content[..]),
        (Some("bytes=1-999998"), 206, &content[1..999_999]),
        (Some("bytes=5-6"), 206, &content[5..7]),
    ] {
        let mut request = Request::get("/files/a.bin");
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = application.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{range:?}");
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(body == expected, "{range:?}");
    }
}

#[tokio::test]
async fn below_a_prefix_every_location_is_one_of_the_service() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("docs")).unwrap();
    std::fs::write(root.path().join("docs/index.html"), "the docs").unwrap();
    let application = application(root.path());
    for (method, path, status, location) in [
        ("GET", "/files/docs?a=b", 308, "./docs/?a=b"),
        ("PUT", "/files/docs/new", 201, "./new"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = application.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        // A path from the root would lack the prefix, which the router takes off the path of the request.
        assert_eq!(response.headers()["location"], location, "{path}");
    }
}

#[tokio::test]
async fn axums_server_sends_a_file_over_http_1() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "hello").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let application = application(root.path());
    let server = tokio::spawn(async move { axum::serve(listener, application).await });
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /files/a.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("accept-ranges: bytes\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nhello"), "{response}");
    server.abort();
}

#[test]
fn a_folder_that_cannot_be_opened_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (missing, uploads) = (root.path().join("missing"), root.path().join("uploads"));
    let settings = |uploads: Uploads| {
        let mut settings = Settings::default();
        settings.uploads = uploads;
        settings
    };
    for (folder, settings, expected) in [
        (missing.as_path(), settings(Uploads::Refuse), &missing),
        (
            root.path(),
            settings(Uploads::Directory(uploads.clone())),
            &uploads,
        ),
    ] {
        let error = Files::open(folder, settings).unwrap_err();
        assert_eq!(error.path(), expected);
        assert_eq!(error.io_error().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            format!("cannot open the folder {}", expected.display())
        );
        assert!(error.source().is_some());
    }
}
