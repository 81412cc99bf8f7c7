//! A peer that is a few frames by hand, for what no decent server does.

use fullbore_testing::frames::{
    self, END_HEADERS, END_STREAM, HEADERS, MAX_CONCURRENT_STREAMS, SETTINGS, headers,
};
use fullbore_testing::peer::Peer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// `:status: 200` in the static table of RFC 7541.
const STATUS_200: &[u8] = &[0x88];

/// One connection of a client's, seen from the other end.
pub(crate) struct Raw(Peer<TcpStream>);

impl Raw {
    /// Takes the client's preface and says how many streams it may open.
    pub(crate) async fn accept(stream: TcpStream, streams: u32) -> Raw {
        Raw(Peer::server(stream, &[(MAX_CONCURRENT_STREAMS, streams)]).await)
    }

    /// The stream of the next HEADERS; `None` at the end. SETTINGS are acknowledged on the way.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        loop {
            let frame = self.0.next().await?;
            match frame.kind {
                HEADERS => return Some(frame.stream),
                SETTINGS if !frame.is_ack() => self.write(&frames::settings_ack()).await,
                _ => {}
            }
        }
    }

    /// Status 200 and no body.
    pub(crate) async fn answer(&mut self, stream: u32) {
        self.write(&headers(stream, END_HEADERS | END_STREAM, STATUS_200))
            .await;
    }

    /// The stream was not processed: REFUSED_STREAM.
    pub(crate) async fn refuse(&mut self, stream: u32) {
        self.write(&frames::reset(stream, 7)).await;
    }

    /// The stream was processed, and then given up: INTERNAL_ERROR.
    pub(crate) async fn give_up(&mut self, stream: u32) {
        self.write(&frames::reset(stream, 2)).await;
    }

    /// Streams above `last_stream` are not processed.
    pub(crate) async fn go_away(&mut self, last_stream: u32) {
        self.go_away_with(last_stream, 0, b"").await;
    }

    /// As [`Self::go_away`], with an error code and debug data.
    pub(crate) async fn go_away_with(&mut self, last_stream: u32, code: u32, debug: &[u8]) {
        self.write(&frames::go_away_with(last_stream, code, debug)).await;
    }

    /// Status 200, and so much of a body that does not end.
    pub(crate) async fn begin_answer(&mut self, stream: u32, body: &[u8]) {
        self.write(&headers(stream, END_HEADERS, STATUS_200)).await;
        self.write(&frames::data(stream, 0, body)).await;
    }

    /// Reads until the client has gone.
    pub(crate) async fn drain(&mut self) {
        while self.next_request().await.is_some() {}
    }

    async fn write(&mut self, octets: &[u8]) {
        // A client that has gone is seen by the next read.
        let _ = self.0.io.write_all(octets).await;
    }
}
