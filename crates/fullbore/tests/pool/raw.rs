//! A peer that is a few frames by hand, for what no decent server does.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// One connection of a client's, seen from the other end.
pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Takes the client's preface and says how many streams it may open.
    pub(crate) async fn accept(mut stream: TcpStream, streams: u32) -> Raw {
        let mut preface = [0; PREFACE];
        stream.read_exact(&mut preface).await.unwrap();
        let mut raw = Raw { stream };
        let mut setting = vec![0, 3];
        setting.extend(streams.to_be_bytes());
        raw.write(SETTINGS, 0, 0, &setting).await;
        raw
    }

    /// The stream of the next HEADERS; `None` at the end. SETTINGS are acknowledged on the way.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).await.ok()?;
            match head[3] {
                HEADERS => return Some(stream),
                SETTINGS if head[4] == 0 => self.write(SETTINGS, 1, 0, &[]).await,
                _ => {}
            }
        }
    }

    /// Status 200 and no body.
    pub(crate) async fn answer(&mut self, stream: u32) {
        // END_STREAM and END_HEADERS; 0x88 is `:status: 200` in the static table of RFC 7541.
        self.write(HEADERS, 0x5, stream, &[0x88]).await;
    }

    /// The stream was not processed: REFUSED_STREAM.
    pub(crate) async fn refuse(&mut self, stream: u32) {
        self.write(RST_STREAM, 0, stream, &7_u32.to_be_bytes()).await;
    }

    /// The stream was processed, and then given up: INTERNAL_ERROR.
    pub(crate) async fn give_up(&mut self, stream: u32) {
        self.write(RST_STREAM, 0, stream, &2_u32.to_be_bytes()).await;
    }

    /// Streams above `last_stream` are not processed.
    pub(crate) async fn go_away(&mut self, last_stream: u32) {
        self.go_away_with(last_stream, 0, b"").await;
    }

    /// As [`Self::go_away`], with an error code and debug data.
    pub(crate) async fn go_away_with(&mut self, last_stream: u32, code: u32, debug: &[u8]) {
        let mut payload = last_stream.to_be_bytes().to_vec();
        payload.extend(code.to_be_bytes());
        payload.extend(debug);
        self.write(GOAWAY, 0, 0, &payload).await;
    }

    /// Status 200, and so much of a body that does not end.
    pub(crate) async fn begin_answer(&mut self, stream: u32, body: &[u8]) {
        self.write(HEADERS, 0x4, stream, &[0x88]).await;
        self.write(DATA, 0, stream, body).await;
    }

    /// Reads until the client has gone.
    pub(crate) async fn drain(&mut self) {
        while self.next_request().await.is_some() {}
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // A client that has gone is seen by the next read.
        let _ = self.stream.write_all(&frame).await;
    }
}
