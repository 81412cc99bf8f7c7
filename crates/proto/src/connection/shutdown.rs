//! How far the end of the connection has come: GOAWAY of either side, the end of the transport, and failure
//! (RFC 9113 sections 5.4.1 and 6.8).

use core::time::Duration;

use crate::error::ConnectionError;
use crate::id::StreamId;
use crate::time::Time;

/// The end of the connection.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    stage: Stage,
    /// Whether the peer has sent GOAWAY, and the last stream that it named.
    peer_goes: bool,
    peer_last_stream: Option<u32>,
    /// Since when the last stream is named, or the peer has ended its half of the transport.
    final_since: Option<Time>,
    half_closed: bool,
    /// The error that ended the connection.
    error: Option<ConnectionError>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// The peer has been told that the connection ends, and streams that it opens before it knows are still accepted.
    Announced { until: Time },
    /// The peer knows the last stream.
    Final { last_stream: u32 },
}

/// What a GOAWAY of the peer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoAwayEffect {
    /// Streams beyond the last one that it names are over.
    EndsStreams,
    /// Nothing that one before has not: no stream has been opened since.
    None,
}

impl Shutdown {
    /// Whether a graceful shutdown of ours has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::None
    }

    /// Whether it has begun, and the peer does not know the last stream yet.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self.stage, Stage::Announced { .. })
    }

    /// Whether the last stream is named.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.stage, Stage::Final { .. })
    }

    /// Whether a new stream of the peer is beyond the last one that we named.
    pub(super) fn refuses(&self, id: StreamId) -> bool {
        matches!(self.stage, Stage::Final { last_stream } if id.value() > last_stream)
    }

    /// Whether neither side has said GOAWAY, and nothing has failed.
    pub(super) fn takes_new_streams(&self) -> bool {
        self.stage == Stage::None && !self.peer_goes && self.error.is_none()
    }

    /// The graceful shutdown begins. Its last stream is named at `until` at the latest.
    pub(super) fn announce(&mut self, until: Time) {
        self.stage = Stage::Announced { until };
    }

    /// When the last stream is to be named.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Announced { until } => Some(until),
            _ => None,
        }
    }

    /// The last stream is named.
    pub(super) fn finish(&mut self, last_stream: u32, now: Time) {
        self.stage = Stage::Final { last_stream };
        self.final_since = Some(now);
    }

    /// The last stream that was named, or `highest` when none was: that of a GOAWAY never grows (section 6.8).
    pub(super) fn last_stream(&self, highest: u32) -> u32 {
        match self.stage {
            Stage::Final { last_stream } => last_stream,
            _ => highest,
        }
    }

    /// Whether the peer has ended its half of the transport.
    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed
    }

    /// The peer has ended its half of the transport.
    pub(super) fn half_close(&mut self) {
        self.half_closed = true;
    }

    /// What is under way has its full time from now on.
    pub(super) fn restart(&mut self, now: Time) {
        self.final_since = Some(now);
    }

    /// Until when streams under way may take.
    pub(super) fn drain_deadline(&self, timeout: Option<Duration>) -> Option<Time> {
        Some(self.final_since? + timeout?)
    }

    /// Until when the responses to a client may take that has ended its half of the transport.
    pub(super) fn half_close_deadline(&self, timeout: Duration) -> Option<Time> {
        let since = self.final_since.filter(|_| self.half_closed)?;
        Some(since + timeout)
    }

    /// GOAWAY of the peer.
    pub(super) fn receive_go_away(&mut self, last_stream: u32) -> Result<GoAwayEffect, ConnectionError> {
        if self.peer_last_stream.is_some_and(|last| last_stream > last) {
            // Section 6.8: requests beyond the first last stream may have been sent again elsewhere.
            return Err(ConnectionError::protocol(
                "GOAWAY with a higher last stream than an earlier one",
            ));
        }
        let before = self.peer_last_stream.replace(last_stream);
        self.peer_goes = true;
        Ok(match before == Some(last_stream) {
            true => GoAwayEffect::None,
            false => GoAwayEffect::EndsStreams,
        })
    }

    /// Whether the peer has sent GOAWAY.
    pub(super) fn peer_goes(&self) -> bool {
        self.peer_goes
    }

    /// The error that ended the connection, if one did.
    pub(super) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// The connection has failed.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        self.error = Some(error);
    }
}
