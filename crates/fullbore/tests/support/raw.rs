//! A peer that says exactly what it is told to, frame by frame.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The types of frames (RFC 9113 section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
}

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

impl RawFrame {
    /// The code of RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let mut payload = self.payload.clone();
        if self.kind == kind::GOAWAY {
            payload.advance(4);
        }
        payload.get_u32()
    }

    /// The increment of WINDOW_UPDATE.
    pub(crate) fn increment(&self) -> u32 {
        self.payload.clone().get_u32()
    }

    pub(crate) fn ends_stream(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// The peer.
pub(crate) struct Raw<T> {
    pub(crate) io: T,
    input: BytesMut,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Raw<T> {
    /// The server's end: has read the preface and sent SETTINGS with these entries.
    pub(crate) async fn server(io: T, settings: &[(u16, u32)]) -> Self {
        let mut raw = Raw {
            io,
            input: BytesMut::new(),
        };
        let mut preface = [0; 24];
        raw.io.read_exact(&mut preface).await.expect("a preface");
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.settings(settings).await;
        raw
    }

    /// The client's end: has sent the preface and SETTINGS with these entries.
    pub(crate) async fn client(io: T, settings: &[(u16, u32)]) -> Self {
        let mut raw = Raw {
            io,
            input: BytesMut::new(),
        };
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        raw.io.write_all(preface).await.expect("the preface leaves");
        raw.settings(settings).await;
        raw
    }

    async fn settings(&mut self, entries: &[(u16, u32)]) {
        let mut payload = Vec::new();
        for (name, value) in entries {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.send(kind::SETTINGS, 0, 0, &payload).await;
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short payload");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.io.write_all(&frame).await.expect("the frame leaves");
    }

    /// The head of a response with a status of the static table and these literal fields.
    pub(crate) async fn respond(&mut self, stream: u32, end: bool, fields: &[(&str, &str)]) {
        self.send(kind::HEADERS, 4 | u8::from(end), stream, &block(&[0x88], fields))
            .await;
    }

    /// The head of a POST request with these literal fields.
    pub(crate) async fn request(&mut self, stream: u32, end: bool, fields: &[(&str, &str)]) {
        let pseudo = [0x83, 0x86, 0x84, 0x01, 0x04, b't', b'e', b's', b't'];
        self.send(kind::HEADERS, 4 | u8::from(end), stream, &block(&pseudo, fields))
            .await;
    }

    /// The next frame; none at the end of the transport.
    pub(crate) async fn next(&mut self) -> Option<RawFrame> {
        loop {
            if let Some(head) = self.input.first_chunk::<9>() {
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                if self.input.len() >= 9 + length {
                    let mut frame = self.input.split_to(9 + length).freeze();
                    frame.advance(3);
                    return Some(RawFrame {
                        kind: frame.get_u8(),
                        flags: frame.get_u8(),
                        stream: frame.get_u32(),
                        payload: frame,
                    });
                }
            }
            if self.io.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next frame of this kind; SETTINGS are acknowledged and all others passed over.
    pub(crate) async fn expect(&mut self, wanted: u8) -> RawFrame {
        loop {
            let frame = self.next().await.expect("the transport goes on");
            if frame.kind == kind::SETTINGS && frame.flags & 1 == 0 {
                self.send(kind::SETTINGS, 1, 0, &[]).await;
            }
            if frame.kind == wanted {
                return frame;
            }
        }
    }

    /// How many frames follow until the end of the transport, an error of which counts as its end.
    pub(crate) async fn rest(&mut self) -> Vec<RawFrame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

/// A header block: octets as they are, then literal fields without indexing (RFC 7541 section 6.2.2).
fn block(pseudo: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = pseudo.to_vec();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a short text");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
