//! Servers that follow a script: what they do with a call, once its request has come.

use std::net::SocketAddr;

use fullbore_testing::frames::{self, END_HEADERS, END_STREAM};
use fullbore_testing::peer::Peer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The first half of a message of eight octets, and all of it.
const HALF: &[u8] = &[0, 0, 0, 0, 8, b'h', b'a', b'l', b'f'];
const MESSAGE: &[u8] = &[0, 0, 0, 0, 5, b'w', b'h', b'o', b'l', b'e'];

type Fields = &'static [(&'static str, &'static str)];

/// One thing that a server does.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// Sends the head of a good response.
    Head,
    /// Sends this head, with or without END_STREAM.
    HeadOf(&'static str, Fields, bool),
    /// Sends a message.
    Message,
    /// Sends half a message.
    Half,
    /// Sends this body, with END_STREAM.
    Body(&'static [u8]),
    /// Sends these trailers.
    Trailers(Fields),
    /// Sends RST_STREAM.
    Reset(u32),
    /// Sends GOAWAY with the last stream and a code.
    GoAway(u32, u32),
    /// Violates the protocol: DATA on stream 0.
    Violate,
    /// Closes the connection.
    Close,
    /// Resets the TCP connection.
    Abort,
    /// Reads no more.
    Sleep,
}

use Step::*;

/// What a server does with a connection.
#[derive(Clone, Copy)]
pub(crate) enum Script {
    /// Follows these steps when a request has come, and waits for the next one then.
    Steps(&'static [Step]),
    /// Closes the connection at once.
    CloseAtOnce,
    /// Answers in HTTP/1.1.
    Http1,
    /// Reads, and never says anything.
    Silence,
}

/// Serves every connection by a script.
pub(crate) async fn serve(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            tokio::spawn(follow(script, io));
        }
    });
    address
}

async fn follow(script: Script, mut io: TcpStream) {
    match script {
        Script::Steps(steps) => {
            let mut peer = Peer::server(io, &[]).await;
            while let Some(stream) = next_request(&mut peer).await {
                for step in steps {
                    if perform(*step, &mut peer, stream).await {
                        return;
                    }
                }
            }
        }
        Script::CloseAtOnce => {}
        Script::Http1 => {
            let mut request = [0; frames::PREFACE.len()];
            let _ = io.read_exact(&mut request).await;
            let answer = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = io.write_all(answer.as_bytes()).await;
            let _ = io.read_to_end(&mut Vec::new()).await;
        }
        Script::Silence => drop(io.read_to_end(&mut Vec::new()).await),
    }
}

/// The stream of the next request, unless the client has closed the connection.
async fn next_request(peer: &mut Peer<TcpStream>) -> Option<u32> {
    loop {
        let frame = peer.next().await?;
        match frame.kind {
            frames::HEADERS => return Some(frame.stream),
            frames::SETTINGS if !frame.is_ack() => peer.write(&frames::settings_ack()).await,
            _ => {}
        }
    }
}

/// Takes a step. Returns whether it was the last one.
async fn perform(step: Step, peer: &mut Peer<TcpStream>, stream: u32) -> bool {
    match step {
        Head => {
            let fields = [("content-type", "application/grpc")];
            peer.respond(stream, false, &fields).await;
        }
        HeadOf(status, fields, end) => {
            let block = frames::response_block(status, fields);
            let flags = END_HEADERS | if end { END_STREAM } else { 0 };
            peer.write(&frames::headers(stream, flags, &block)).await;
        }
        Message => peer.write(&frames::data(stream, 0, MESSAGE)).await,
        Half => peer.write(&frames::data(stream, 0, HALF)).await,
        Body(octets) => peer.write(&frames::data(stream, END_STREAM, octets)).await,
        Trailers(fields) => {
            let block = frames::block(fields);
            let flags = END_HEADERS | END_STREAM;
            peer.write(&frames::headers(stream, flags, &block)).await;
        }
        Reset(code) => peer.write(&frames::reset(stream, code)).await,
        GoAway(last, code) => peer.write(&frames::go_away(last, code)).await,
        Violate => peer.write(&frames::data(0, 0, b"?")).await,
        Close => {
            let _ = peer.io.shutdown().await;
            peer.rest().await;
            return true;
        }
        Abort => {
            // What waits unread resets the connection by itself on some systems; this does it on all.
            let _ = peer.io.set_zero_linger();
            return true;
        }
        Sleep => {
            std::future::pending::<()>().await;
        }
    }
    false
}
