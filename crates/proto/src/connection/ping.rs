//! PING (RFC 9113 section 6.7): the measured round trip, and whether the peer is alive.
//!
//! This endpoint sends PING for three purposes, each with its own opaque data.

use core::time::Duration;

use super::writer::Writer;
use crate::flow::RoundTrip;
use crate::time::Time;

/// Its acknowledgement shows that the peer has received the first GOAWAY of a graceful shutdown.
const SHUTDOWN: [u8; 8] = *b"shutdown";

/// Measures the round trip.
const PROBE: [u8; 8] = *b"roundtri";

/// Keep-alive: asks a silent peer for an answer.
const KEEP_ALIVE: [u8; 8] = *b"areuthr?";

#[derive(Debug)]
pub(super) struct Pings {
    round_trip: RoundTrip,
    /// When the unanswered PING that measures the round trip was written.
    probe: Option<Time>,
    /// When bytes last arrived.
    last_received: Time,
    /// When the unanswered keep-alive PING was written, and how many bytes the transport had taken by then.
    unanswered: Option<(Time, u64)>,
}

/// What a PING acknowledgement answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The PING of the graceful shutdown.
    Shutdown,
    /// Another PING of this endpoint.
    Known,
    /// No PING of this endpoint.
    Unexpected,
}

impl Pings {
    pub(super) fn new(now: Time) -> Self {
        Pings {
            round_trip: RoundTrip::default(),
            probe: None,
            last_received: now,
            unanswered: None,
        }
    }

    pub(super) fn round_trip(&self) -> RoundTrip {
        self.round_trip
    }

    #[inline]
    pub(super) fn minimum(&self) -> Option<Duration> {
        self.round_trip.minimum()
    }

    /// A frame sent at `sent` was acknowledged at `now`.
    pub(super) fn sample(&mut self, sent: Time, now: Time) {
        self.round_trip.sample(sent, now);
    }

    /// Starts to measure the round trip, unless a measurement is in progress.
    pub(super) fn measure(&mut self, writer: &mut Writer, now: Time) -> bool {
        if self.probe.is_some() {
            return false;
        }
        self.probe = Some(now);
        writer.ping(PROBE);
        true
    }

    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.round_trip.is_stale(now)
    }

    pub(super) fn announce_shutdown(writer: &mut Writer) {
        writer.ping(SHUTDOWN);
    }

    pub(super) fn keep_alive(writer: &mut Writer) {
        writer.ping(KEEP_ALIVE);
    }

    pub(super) fn answer(&mut self, opaque: [u8; 8], is_shutting_down: bool, now: Time) -> Answer {
        match opaque {
            SHUTDOWN if is_shutting_down => Answer::Shutdown,
            PROBE => match self.probe.take() {
                Some(sent) => {
                    self.round_trip.sample(sent, now);
                    Answer::Known
                }
                None => Answer::Unexpected,
            },
            // Any bytes since have already answered it.
            KEEP_ALIVE => Answer::Known,
            _ => Answer::Unexpected,
        }
    }

    /// Bytes arrived: the peer is alive.
    pub(super) fn note_received(&mut self, now: Time) {
        self.last_received = now;
        self.unanswered = None;
    }

    /// A stream opens: the silence before it does not count.
    pub(super) fn restart_silence(&mut self, now: Time) {
        self.last_received = self.last_received.max(now);
    }

    pub(super) fn last_received(&self) -> Time {
        self.last_received
    }

    pub(super) fn unanswered(&self) -> Option<(Time, u64)> {
        self.unanswered
    }

    /// A keep-alive PING was written, or the transport still takes what precedes it.
    pub(super) fn start_probe(&mut self, now: Time, taken: u64) {
        self.unanswered = Some((now, taken));
    }
}
