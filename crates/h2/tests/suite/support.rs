//! A client and a server that face each other, and a peer whose frames are written by hand.

use std::future::Future;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::client::SendRequest;
use h2::{RecvStream, client, server};
use http::{HeaderMap, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

/// Buffers of the transport in each direction.
const TRANSPORT: usize = 64 << 10;

pub(crate) type Served = server::Connection<DuplexStream, Bytes>;

/// Fails a test that hangs.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, future).await.expect("it hangs")
}

/// A client whose connection is polled by a task, and a server that the test polls.
pub(crate) async fn pair() -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>, Served) {
    pair_with(&client::Builder::new(), &server::Builder::new()).await
}

pub(crate) async fn pair_with(
    client: &client::Builder,
    server: &server::Builder,
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>, Served) {
    let (near, far) = duplex(TRANSPORT);
    let (client, served) = tokio::join!(client.handshake(near), server.handshake(far));
    let (requests, connection) = client.unwrap();
    (requests, tokio::spawn(connection), served.unwrap())
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("https://example.com{path}"))
        .body(())
        .unwrap()
}

pub(crate) fn post(path: &str) -> Request<()> {
    Request::post(format!("https://example.com{path}"))
        .body(())
        .unwrap()
}

/// Reads a body to its end and returns its credit.
pub(crate) async fn read(body: &mut RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        all.extend_from_slice(&chunk);
    }
    Ok((all, body.trailers().await?))
}

/// Octets that differ at every place of a long body.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// A peer whose frames are written by hand.
pub(crate) struct Peer {
    transport: DuplexStream,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// `:status: 200`.
pub(crate) const OK: &[u8] = &[0x88];

impl Frame {
    /// The number at an offset of the payload.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

impl Peer {
    pub(crate) fn new(transport: DuplexStream) -> Self {
        Peer { transport }
    }

    /// A peer that has read a client's preface.
    pub(crate) async fn after_preface(mut transport: DuplexStream) -> Self {
        let mut preface = [0; 24];
        transport.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, PREFACE);
        Peer { transport }
    }

    /// Says a client's preface.
    pub(crate) async fn preface(&mut self) {
        self.transport.write_all(PREFACE).await.unwrap();
    }

    pub(crate) async fn says(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.tries(kind, flags, stream, payload).await.unwrap();
    }

    /// As [`Self::says`], to an endpoint that may have closed the transport.
    pub(crate) async fn tries(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.transport.write_all(&frame).await
    }

    pub(crate) async fn hears(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        if soon(self.transport.read_exact(&mut head)).await.is_err() {
            return None;
        }
        let mut rest = &head[..];
        let mut payload = vec![0; rest.get_uint(3) as usize];
        let (kind, flags, stream) = (rest.get_u8(), rest.get_u8(), rest.get_u32());
        self.transport.read_exact(&mut payload).await.unwrap();
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// The next frame of one kind.
    pub(crate) async fn hears_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.hears().await.expect("the transport ended");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Whether a PING is answered before any RST_STREAM or GOAWAY.
    pub(crate) async fn is_content(&mut self) -> bool {
        self.is_content_without(GOAWAY).await
    }

    /// As [`Self::is_content`], and before any frame of this kind.
    pub(crate) async fn is_content_without(&mut self, kind: u8) -> bool {
        self.says(PING, 0, 0, b"alive?!?").await;
        loop {
            let frame = self.hears().await.expect("the transport ended");
            match frame.kind {
                RST_STREAM | GOAWAY => return false,
                PING if frame.payload == b"alive?!?" => return true,
                other if other == kind => return false,
                _ => {}
            }
        }
    }
}

/// A client before a peer that has said SETTINGS with these entries, and acknowledged the client's.
pub(crate) async fn client_before_peer(
    builder: &client::Builder,
    entries: &[(u16, u32)],
) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>, Peer) {
    let (near, transport) = duplex(TRANSPORT);
    let (requests, connection) = builder.handshake(near).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut peer = Peer::after_preface(transport).await;
    greet(&mut peer, entries).await;
    (requests, connection, peer)
}

/// A server before such a peer.
pub(crate) async fn server_before_peer(builder: &server::Builder, entries: &[(u16, u32)]) -> (Served, Peer) {
    let (transport, far) = duplex(TRANSPORT);
    let greeting = async {
        let mut peer = Peer { transport };
        peer.preface().await;
        peer.says(SETTINGS, 0, 0, &payload(entries)).await;
        assert_eq!(peer.hears_of(SETTINGS).await.flags, 0);
        peer.says(SETTINGS, ACK, 0, b"").await;
        peer
    };
    let (served, peer) = tokio::join!(builder.handshake(far), greeting);
    (served.unwrap(), peer)
}

async fn greet(peer: &mut Peer, entries: &[(u16, u32)]) {
    peer.says(SETTINGS, 0, 0, &payload(entries)).await;
    assert_eq!(peer.hears_of(SETTINGS).await.flags, 0);
    peer.says(SETTINGS, ACK, 0, b"").await;
    assert_eq!(peer.hears_of(SETTINGS).await.flags, ACK);
}

fn payload(entries: &[(u16, u32)]) -> Vec<u8> {
    let entry =
        |&(identifier, value): &(u16, u32)| [&identifier.to_be_bytes()[..], &value.to_be_bytes()].concat();
    entries.iter().flat_map(entry).collect()
}

/// The field block of a request, as literals.
pub(crate) fn request_block(method: &str) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "example.com"),
        (":path", "/"),
    ];
    block(&fields)
}

/// A field block of literals.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The server goes on while the future does.
pub(crate) async fn drive<T>(served: &mut Served, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    soon(std::future::poll_fn(|cx| {
        let _ = served.poll_closed(cx);
        future.as_mut().poll(cx)
    }))
    .await
}
