//! Who attacks: says any octets, while it reads what is answered.

use fullbore::ErrorCode;
use fullbore_proto::hpack::{Decoder, FieldLimits, FieldSection};
pub(crate) use fullbore_testing::frames::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PRIORITY_UPDATE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use fullbore_testing::frames::{END_HEADERS, END_STREAM, Frame, headers, request_block};
use fullbore_testing::peer::Peer;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use crate::attacks::site::Transport;
use crate::support::soon;

/// The field block of a request, with these fields behind the pseudo-header fields.
pub(crate) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    request_block(method, "localhost", path, fields)
}

/// A GET without a body.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &request("GET", path, &[]))
}

/// A POST whose body follows.
pub(crate) fn post(stream: u32, path: &str) -> Vec<u8> {
    headers(stream, END_HEADERS, &request("POST", path, &[]))
}

/// The stream of a round, beginning with 1.
pub(crate) fn nth(round: u32) -> u32 {
    2 * round + 1
}

/// All that came until the transport ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) frames: Vec<Frame>,
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
        ErrorCode(last.code())
    }
}

pub(crate) struct Attacker {
    read: Peer<ReadHalf<Box<dyn Transport>>>,
    write: Option<WriteHalf<Box<dyn Transport>>>,
    decoder: Decoder,
}

impl Attacker {
    pub(crate) fn new(io: Box<dyn Transport>) -> Self {
        let (read, write) = tokio::io::split(io);
        Attacker {
            read: Peer::new(read),
            write: Some(write),
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
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        soon(self.read.next()).await
    }

    /// The next frame of this kind.
    pub(crate) async fn expect(&mut self, kind: u8) -> Frame {
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
