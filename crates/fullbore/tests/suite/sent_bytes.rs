//! `SentBytes` counts what has left of a request's body, and not what waits to be sent.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};

use fullbore::client::SentBytes;
use fullbore::settings::HttpVersions;
use fullbore::{Client, Incoming};
use fullbore_testing::frames;
use fullbore_testing::peer::Peer;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::support::{Chunks, soon};

/// The bytes that a pipe holds and nobody has read.
const PIPE: usize = 10_000;

/// A client of this version whose only connection is served by `serve`.
fn client<F>(versions: HttpVersions, serve: impl FnOnce(DuplexStream) -> F) -> Client
where
    F: Future<Output = ()> + Send + 'static,
{
    let (near, far) = tokio::io::duplex(PIPE);
    tokio::spawn(serve(far));
    let near = Arc::new(Mutex::new(Some(near)));
    let connector = tower::service_fn(move |_: Uri| {
        let near = near.lock().unwrap().take();
        std::future::ready(near.ok_or(io::Error::other("there is one connection")))
    });
    let builder = Client::builder().http_versions(versions).connector(connector);
    builder.build().unwrap()
}

/// Sends 200,000 bytes in pieces of 16,000, of a length that the client knows or not.
fn put(client: &Client, length: Option<usize>) -> (SentBytes, JoinHandle<Response<Incoming>>) {
    let sent = SentBytes::new();
    let mut request = Request::put("http://test.example/");
    if let Some(length) = length {
        request = request.header("content-length", length);
    }
    let mut request = request.body(Chunks::new(200_000, 16_000)).unwrap();
    request.extensions_mut().insert(sent.clone());
    let client = client.clone();
    let response = tokio::spawn(async move { client.request(request).await.expect("a response") });
    (sent, response)
}

async fn until_sent(sent: &SentBytes, bytes: u64) {
    soon(async {
        while sent.get() < bytes {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn over_http2_what_waits_for_a_window_is_not_counted() {
    let client = client(HttpVersions::Http2, async |io| {
        let mut peer = Peer::server(io, &[]).await;
        let stream = peer.expect(frames::HEADERS).await.stream;
        let mut left = 65_535;
        while left > 0 {
            left -= peer.expect(frames::DATA).await.payload.len();
        }
        peer.respond(stream, true, &[]).await;
        peer.write(&frames::reset(stream, 0)).await;
        peer.rest().await;
    });
    let (sent, response) = put(&client, None);
    let response = soon(response).await.unwrap();
    soon(sent.ended()).await;
    assert_eq!((response.status().as_u16(), sent.get()), (200, 65_535));
}

#[tokio::test]
async fn over_http2_a_whole_body_is_counted_also_when_its_response_came_before() {
    let client = client(HttpVersions::Http2, async |io| {
        let mut peer = Peer::server(io, &[]).await;
        let stream = peer.expect(frames::HEADERS).await.stream;
        peer.respond(stream, true, &[]).await;
        peer.write(&frames::window_update(0, 200_000)).await;
        peer.write(&frames::window_update(stream, 200_000)).await;
        peer.rest().await;
    });
    let (sent, response) = put(&client, None);
    let response = soon(response).await.unwrap();
    drop(response);
    soon(sent.ended()).await;
    assert_eq!(sent.get(), 200_000);
}

#[tokio::test]
async fn over_http1_what_waits_in_a_buffer_is_not_counted() {
    // Chunks of 16,000 have six octets before them and two behind them.
    for (length, of_body) in [
        (Some(200_000), 20_000 + PIPE),
        (None, 20_000 + PIPE - (6 + 2) - 6),
    ] {
        let client = client(HttpVersions::Http1, async |mut io| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(io.read_u8().await.unwrap());
            }
            io.read_exact(&mut [0; 20_000]).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let response = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            io.write_all(response).await.unwrap();
            std::future::pending::<()>().await;
        });
        let (sent, response) = put(&client, length);
        until_sent(&sent, of_body as u64).await;
        let response = soon(response).await.unwrap();
        assert_eq!(response.status(), 403);
        soon(response.into_body().collect()).await.unwrap();
        soon(sent.ended()).await;
        assert_eq!(sent.get(), of_body as u64);
    }
}

#[tokio::test]
async fn over_http1_a_whole_body_is_counted() {
    for length in [Some(200_000), None] {
        let client = client(HttpVersions::Http1, async |io| {
            let (mut reader, mut writer) = tokio::io::split(io);
            let mut octets = vec![0; 200_000];
            reader.read_exact(&mut octets).await.unwrap();
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            writer.write_all(response).await.unwrap();
            tokio::io::copy(&mut reader, &mut tokio::io::sink())
                .await
                .unwrap();
        });
        let (sent, response) = put(&client, length);
        let response = soon(response).await.unwrap();
        assert_eq!(response.status(), 200);
        soon(sent.ended()).await;
        assert_eq!(sent.get(), 200_000);
    }
}
