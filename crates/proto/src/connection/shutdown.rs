//! The progress of a shutdown: GOAWAY of either side, the end of the transport, and failure (RFC 9113 sections 5.4.1
//! and 6.8).

use core::time::Duration;

use crate::error::ConnectionError;
use crate::id::StreamId;
use crate::time::Time;

#[derive(Debug, Default)]
pub(super) struct Shutdown {
    stage: Stage,
    /// Whether the peer has sent GOAWAY, and its last stream.
    peer_goes: bool,
    peer_last_stream: Option<u32>,
    /// Since when the peer's half of the transport is closed.
    half_closed: Option<Time>,
    error: Option<ConnectionError>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// The first GOAWAY was sent. Streams that the peer opens before it receives it are accepted.
    Announced { until: Time },
    /// The GOAWAY with the last stream was sent.
    Final { last_stream: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoAwayEffect {
    /// Streams above its last stream end.
    EndsStreams,
    /// It repeats an earlier GOAWAY. No stream has been opened since.
    None,
}

impl Shutdown {
    pub(super) fn has_begun(&self) -> bool {
        self.stage != Stage::None
    }

    pub(super) fn is_announced(&self) -> bool {
        matches!(self.stage, Stage::Announced { .. })
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.stage, Stage::Final { .. })
    }

    /// Whether a new stream of the peer is above the last stream of our GOAWAY.
    pub(super) fn refuses(&self, id: StreamId) -> bool {
        matches!(self.stage, Stage::Final { last_stream } if id.value() > last_stream)
    }

    pub(super) fn takes_new_streams(&self) -> bool {
        self.stage == Stage::None && !self.peer_goes && self.error.is_none()
    }

    /// The first GOAWAY was sent. The final one follows at `until` at the latest.
    pub(super) fn announce(&mut self, until: Time) {
        self.stage = Stage::Announced { until };
    }

    /// When to send the final GOAWAY.
    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Announced { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn finish(&mut self, last_stream: u32) {
        self.stage = Stage::Final { last_stream };
    }

    /// The last stream of our GOAWAY, or `highest` if none was sent. It must never grow (section 6.8).
    pub(super) fn last_stream(&self, highest: u32) -> u32 {
        match self.stage {
            Stage::Final { last_stream } => last_stream,
            _ => highest,
        }
    }

    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed.is_some()
    }

    pub(super) fn half_close(&mut self, now: Time) {
        self.half_closed = Some(now);
    }

    /// When the responses to a client that closed its half of the transport have to be complete.
    pub(super) fn half_close_deadline(&self, timeout: Duration) -> Option<Time> {
        Some(self.half_closed? + timeout)
    }

    pub(super) fn receive_go_away(&mut self, last_stream: u32) -> Result<GoAwayEffect, ConnectionError> {
        if self.peer_last_stream.is_some_and(|last| last_stream > last) {
            // Section 6.8: the client may have repeated requests above the first last stream on another connection.
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

    pub(super) fn peer_goes(&self) -> bool {
        self.peer_goes
    }

    pub(super) fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn fail(&mut self, error: ConnectionError) {
        self.error = Some(error);
    }
}
