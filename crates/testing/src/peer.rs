//! Raw HTTP/2 peers: they send exactly what a test tells them to, and return the frames that arrive.

use std::io::{self, Read, Write};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frames::{self, END_HEADERS, Frame, PING, PREFACE, SETTINGS};

/// One end of a connection, asynchronous.
#[derive(Debug)]
pub struct Peer<T> {
    /// The transport.
    pub io: T,
    input: BytesMut,
}

impl<T> Peer<T> {
    /// A peer that has sent and read nothing yet.
    pub fn new(io: T) -> Self {
        Self {
            io,
            input: BytesMut::new(),
        }
    }
}

impl<T: AsyncRead + Unpin> Peer<T> {
    /// The next frame; `None` at the end or at an error of the transport.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::split(&mut self.input) {
                return Some(frame);
            }
            if self.io.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// All frames until the end of the transport.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Peer<T> {
    /// A server: reads the client's preface and sends SETTINGS.
    pub async fn server(io: T, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self::new(io);
        let mut preface = [0; PREFACE.len()];
        peer.io.read_exact(&mut preface).await.expect("a preface");
        assert_eq!(preface, PREFACE);
        peer.write(&frames::settings(settings)).await;
        peer
    }

    /// A client: sends the preface and SETTINGS.
    pub async fn client(io: T, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self::new(io);
        peer.write(&[PREFACE, &frames::settings(settings)].concat()).await;
        peer
    }

    /// Writes octets; panics when the transport takes them no longer.
    pub async fn write(&mut self, octets: &[u8]) {
        self.io.write_all(octets).await.expect("the octets leave");
    }

    /// Writes a frame of any type.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&frames::frame(kind, flags, stream, payload)).await;
    }

    /// The header of a 200 response with these fields.
    pub async fn respond(&mut self, stream: u32, end: bool, fields: &[(&str, &str)]) {
        let block = [&[0x88], &frames::block(fields)[..]].concat();
        self.write(&frames::headers(stream, END_HEADERS | u8::from(end), &block))
            .await;
    }

    /// The header of a POST request with these fields.
    pub async fn request(&mut self, stream: u32, end: bool, fields: &[(&str, &str)]) {
        let pseudo = [0x83, 0x86, 0x84, 0x01, 0x04, b't', b'e', b's', b't'];
        let block = [&pseudo, &frames::block(fields)[..]].concat();
        self.write(&frames::headers(stream, END_HEADERS | u8::from(end), &block))
            .await;
    }

    /// The next frame of this type. Acknowledges SETTINGS and skips all other frames.
    pub async fn expect(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.expect("the transport goes on");
            if frame.kind == SETTINGS && !frame.is_ack() {
                self.write(&frames::settings_ack()).await;
            }
            if frame.kind == kind {
                return frame;
            }
        }
    }
}

/// One end of a connection, blocking.
#[derive(Debug)]
pub struct BlockingPeer<T>(pub T);

impl<T: Read + Write> BlockingPeer<T> {
    /// A client: sends the preface, SETTINGS and the acknowledgement of the server's.
    ///
    /// # Errors
    /// Those of the transport, here and in every other method.
    pub fn client(io: T) -> io::Result<Self> {
        let mut peer = Self(io);
        peer.send(&[PREFACE, &frames::settings(&[]), &frames::settings_ack()].concat())?;
        Ok(peer)
    }

    /// A server: reads the client's preface, sends SETTINGS and the acknowledgement of the client's.
    pub fn server(io: T) -> io::Result<Self> {
        let mut peer = Self(io);
        peer.0.read_exact(&mut [0; PREFACE.len()])?;
        peer.send(&[frames::settings(&[]), frames::settings_ack()].concat())?;
        Ok(peer)
    }

    /// Writes octets.
    pub fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        self.0.write_all(octets)
    }

    /// The next frame.
    pub fn receive(&mut self) -> io::Result<Frame> {
        Frame::read(&mut self.0)
    }

    /// The next frame of this type. Answers PING and skips all other frames.
    pub fn expect(&mut self, kind: u8) -> io::Result<Frame> {
        loop {
            let frame = self.receive()?;
            if frame.kind == PING && !frame.is_ack() {
                self.send(&frames::frame(PING, frames::ACK, 0, &frame.payload))?;
            } else if frame.kind == kind {
                return Ok(frame);
            }
        }
    }
}
