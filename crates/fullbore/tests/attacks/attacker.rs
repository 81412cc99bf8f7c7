//! Who attacks: says any octets, while it reads what is answered.

use bytes::{Buf, Bytes, BytesMut};
use fullbore::ErrorCode;
use fullbore_proto::hpack::{Decoder, FieldLimits, FieldSection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::site::Transport;
use crate::support::soon;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const PRIORITY: u8 = 0x2;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;
pub(crate) const PRIORITY_UPDATE: u8 = 0x10;

/// A frame, whatever is in it.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header block of literals without indexing, whatever octets they have.
pub(crate) fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // RFC 7541 section 5.1: an integer with a prefix of seven bits.
            if text.len() < 127 {
                block.push(text.len() as u8);
            } else {
                block.push(127);
                let mut rest = text.len() - 127;
                while rest >= 128 {
                    block.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                block.push(rest as u8);
            }
            block.extend_from_slice(text);
        }
    }
    block
}

/// The pseudo-headers of a request, and fields behind them.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all: Vec<(&[u8], &[u8])> = vec![
        (b":method", method.as_bytes()),
        (b":scheme", b"http"),
        (b":authority", b"localhost"),
        (b":path", path.as_bytes()),
    ];
    all.extend(
        fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    );
    block(&all)
}

/// A GET without a body.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, 0x5, stream, &request("GET", path, &[]))
}

/// A POST whose body follows.
pub(crate) fn post(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, 0x4, stream, &request("POST", path, &[]))
}

/// The stream of a round, beginning with 1.
pub(crate) fn nth(round: u32) -> u32 {
    2 * round + 1
}

/// A frame that came.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

impl Heard {
    pub(crate) fn word(&self, at: usize) -> u32 {
        (&self.payload[at..at + 4]).get_u32()
    }

    /// The code of RST_STREAM.
    pub(crate) fn reset_code(&self) -> ErrorCode {
        assert_eq!(self.kind, RST_STREAM);
        ErrorCode(self.word(0))
    }
}

/// All that came until the transport ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) frames: Vec<Heard>,
}

impl Ended {
    pub(crate) fn count(&self, kind: u8) -> usize {
        self.frames.iter().filter(|frame| frame.kind == kind).count()
    }

    /// The code of the last GOAWAY, which nothing may follow.
    #[track_caller]
    pub(crate) fn code(&self) -> ErrorCode {
        let last = self.frames.last().expect("something was said");
        assert_eq!(last.kind, GOAWAY, "{:?}", self.frames);
        ErrorCode(last.word(4))
    }
}

pub(crate) struct Attacker {
    read: ReadHalf<Box<dyn Transport>>,
    write: Option<WriteHalf<Box<dyn Transport>>>,
    input: BytesMut,
    decoder: Decoder,
}

impl Attacker {
    pub(crate) fn new(io: Box<dyn Transport>) -> Self {
        let (read, write) = tokio::io::split(io);
        Attacker {
            read,
            write: Some(write),
            input: BytesMut::new(),
            decoder: Decoder::new(4_096),
        }
    }

    /// Preface, SETTINGS, and what comes first from the server: SETTINGS, its acknowledgement, and a WINDOW_UPDATE.
    pub(crate) async fn greet(&mut self, settings: &[u8]) {
        self.say(PREFACE).await;
        self.say(&frame(SETTINGS, 0, 0, settings)).await;
        self.say(&frame(SETTINGS, 1, 0, &[])).await;
        loop {
            let heard = self.next().await.expect("the server answers");
            if heard.kind == SETTINGS && heard.flags & 1 == 1 {
                return;
            }
        }
    }

    /// Says octets; a server that is gone is seen by what it said last.
    pub(crate) async fn say(&mut self, octets: &[u8]) {
        if let Some(write) = &mut self.write {
            let _ = write.write_all(octets).await;
            let _ = write.flush().await;
        }
    }

    /// Says octets while what is answered is read; nothing can be said behind them.
    pub(crate) fn lets_requests_go(&mut self, octets: Vec<u8>) {
        let mut write = self.write.take().expect("nothing was ended before");
        tokio::spawn(async move {
            let _ = write.write_all(&octets).await;
            let _ = write.flush().await;
            // Open for as long as the test runs.
            std::future::pending::<()>().await;
            drop(write);
        });
    }

    /// Says octets up to so many of them, for as long as they are taken; how many were.
    pub(crate) async fn press(&mut self, octets: &[u8], most: usize) -> usize {
        let mut said = 0;
        let Some(write) = &mut self.write else { return 0 };
        while said < most {
            let from = &octets[said % octets.len()..];
            // What is not taken for so long waits for us to read.
            let wait = std::time::Duration::from_millis(500);
            match tokio::time::timeout(wait, write.write(from)).await {
                Ok(Ok(count)) => said += count,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        said
    }

    /// Lets go of what TLS holds yet of what was said, while its answers are read; nothing is said behind it.
    pub(crate) fn lets_go(&mut self) {
        if let Some(mut write) = self.write.take() {
            tokio::spawn(async move { write.flush().await });
        }
    }

    /// The next frame; none at the end of the transport, or its failure.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        soon(async {
            loop {
                if let Some(head) = self.input.first_chunk::<9>() {
                    let length =
                        usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                    if self.input.len() >= 9 + length {
                        let mut octets = self.input.split_to(9 + length).freeze();
                        octets.advance(3);
                        return Some(Heard {
                            kind: octets.get_u8(),
                            flags: octets.get_u8(),
                            stream: octets.get_u32(),
                            payload: octets,
                        });
                    }
                }
                if self.read.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        })
        .await
    }

    /// The next frame of this kind.
    pub(crate) async fn expect(&mut self, kind: u8) -> Heard {
        loop {
            let heard = self.next().await.expect("the connection goes on");
            assert!(heard.kind == kind || heard.kind != GOAWAY, "{heard:?}");
            if heard.kind == kind {
                return heard;
            }
        }
    }

    /// The next response: its stream and its status. To be called for each of them, in order.
    pub(crate) async fn response(&mut self) -> (u32, String) {
        let heard = self.expect(HEADERS).await;
        let limits = FieldLimits {
            max_bytes: 1 << 16,
            max_fields: 100,
        };
        let mut section = FieldSection::new();
        let decoded = self.decoder.decode(&heard.payload, &limits, &mut section);
        decoded.expect("a header block");
        let status = &section.fields()[0];
        assert_eq!(status.name.as_bytes(), b":status");
        (
            heard.stream,
            String::from_utf8_lossy(status.value.as_bytes()).into_owned(),
        )
    }

    /// The connection answers a PING.
    pub(crate) async fn lives(&mut self) {
        self.say(&frame(PING, 0, 0, b"alive?!?")).await;
        let heard = self.expect(PING).await;
        assert_eq!((heard.flags, &heard.payload[..]), (1, &b"alive?!?"[..]));
    }

    /// Reads to the end of the transport.
    pub(crate) async fn ended(&mut self) -> Ended {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        Ended { frames }
    }

    /// Says frames one round after the other, up to `rounds`, and reads all the while, to the end.
    pub(crate) async fn floods(mut self, rounds: u32, mut round: impl FnMut(u32) -> Vec<u8>) -> Ended {
        let mut write = self.write.take().expect("nothing was ended before");
        let octets: Vec<u8> = (0..rounds).flat_map(&mut round).collect();
        let writer = tokio::spawn(async move {
            let _ = write.write_all(&octets).await;
            let _ = write.flush().await;
            // Open to the end: it is the server that ends it.
            write
        });
        let ended = self.ended().await;
        writer.abort();
        ended
    }
}
