//! What waits unsent in the kernel follows the path, so that an urgent message is not behind all that a bulk one has
//! written (RFC 9218). Loopback to a reader that does not read is the slowest path.
#![cfg(target_os = "linux")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fullbore::settings::TcpBuffers;
use fullbore::{BoxError, Client};
use fullbore_testing::frames::{
    DATA, END_HEADERS, END_STREAM, HEADERS, block, headers, settings_ack, window_update,
};
use http::Request;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::attacks::site::Site;
use crate::support::{Chunks, Peer, Produced, full, soon};

/// SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: (u16, u32) = (4, i32::MAX as u32);

/// What the peer's kernel takes without being read, and what may wait before the pace of a path is known; without a limit
/// some megabytes do.
const MOST: usize = 512 << 10;

/// Waits until the body gives no more.
async fn settled(produced: &Produced) {
    let mut last = (0, 0);
    while last.1 < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = produced.load(Ordering::SeqCst);
        last = match now > 0 && now == last.0 {
            true => (now, last.1 + 1),
            false => (now, 0),
        };
    }
}

/// The DATA bytes of stream 1 that come before the HEADERS of stream 3.
async fn ahead<T: AsyncRead + AsyncWrite + Unpin>(peer: &mut Peer<T>) -> usize {
    let mut ahead = 0;
    loop {
        let frame = soon(peer.next()).await.expect("the transport goes on");
        match (frame.kind, frame.stream) {
            (HEADERS, 3) => return ahead,
            (DATA, 1) => ahead += frame.payload.len(),
            _ => {}
        }
    }
}

/// A request of this priority.
fn get(stream: u32, path: &str, priority: &str) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("priority", priority),
    ];
    headers(stream, END_HEADERS | END_STREAM, &block(&fields))
}

/// How much of a bulk response is ahead of an urgent one.
async fn ahead_of_a_response(tls: bool, buffers: TcpBuffers) -> usize {
    let site = Site::start_with(tls, |server| server.tcp_buffers(buffers)).await;
    let mut peer = Peer::client(site.transport().await, &[WINDOW]).await;
    peer.write(&window_update(0, 1 << 30)).await;
    peer.write(&get(1, "/long", "u=7, i")).await;
    settled(&site.seen.produced).await;
    peer.write(&get(3, "/", "u=0")).await;
    ahead(&mut peer).await
}

/// Sends a request that is never answered.
fn send<B>(client: &Client, request: Request<B>) -> JoinHandle<()>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let client = client.clone();
    tokio::spawn(async move { drop(client.request(request).await) })
}

/// How much of a bulk request is ahead of an urgent one.
async fn ahead_of_a_request(buffers: TcpBuffers) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let client = Client::builder().max_connections(1).tcp_buffers(buffers);
    let client = client
        .http_versions(fullbore::settings::HttpVersions::Http2)
        .build()
        .expect("a client");
    let put = |priority: &str| Request::put(&url).header("priority", priority);
    let produced = Produced::default();
    let body = Chunks::new(1 << 30, 1 << 10).counted(&produced);
    let bulk = send(&client, put("u=7, i").body(body).expect("a request"));
    let (io, _) = soon(listener.accept()).await.expect("a connection");
    let mut peer = Peer::server(io, &[WINDOW]).await;
    peer.write(&settings_ack()).await;
    peer.write(&window_update(0, 1 << 30)).await;
    settled(&produced).await;
    let urgent = send(&client, put("u=0").body(full("small")).expect("a request"));
    let ahead = ahead(&mut peer).await;
    bulk.abort();
    urgent.abort();
    ahead
}

#[tokio::test]
async fn an_urgent_response_waits_for_little_of_a_bulk_one() {
    for tls in [false, true] {
        let ahead = ahead_of_a_response(tls, TcpBuffers::default()).await;
        assert!(ahead < MOST, "{ahead}");
    }
}

#[tokio::test]
async fn an_urgent_request_waits_for_little_of_a_bulk_one() {
    let ahead = ahead_of_a_request(TcpBuffers::default()).await;
    assert!(ahead < MOST, "{ahead}");
}

#[tokio::test]
async fn a_limit_of_zero_leaves_what_waits_to_the_kernel() {
    let buffers = TcpBuffers {
        unsent: Some(0),
        ..TcpBuffers::default()
    };
    let ahead = ahead_of_a_response(false, buffers).await;
    assert!(ahead > MOST, "{ahead}");
    let ahead = ahead_of_a_request(buffers).await;
    assert!(ahead > MOST, "{ahead}");
}
