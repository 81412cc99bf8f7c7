//! PING (RFC 9113 section 6.7): the round trip as measured, and whether the peer is still there.
//!
//! This endpoint sends PING for three purposes, each with an opaque payload of its own.

use core::time::Duration;

use super::writer::Writer;
use crate::flow::RoundTrip;
use crate::time::Time;

/// The payload of the PING that tells when the peer knows of a graceful shutdown.
const SHUTDOWN: [u8; 8] = *b"shutdown";

/// The payload of the PING that measures the round trip.
const PROBE: [u8; 8] = *b"roundtri";

/// The payload of the PING that asks a silent peer whether it is there.
const KEEP_ALIVE: [u8; 8] = *b"areuthr?";

/// What the connection knows by PING.
#[derive(Debug)]
pub(super) struct Pings {
    round_trip: RoundTrip,
    /// When the PING that measures the round trip was written.
    probe: Option<Time>,
    /// When octets came last.
    last_received: Time,
    /// Since when a PING asks whether the peer is there, and how many octets the transport had taken by then.
    unanswered: Option<(Time, u64)>,
}

/// What a PING with ACK answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The peer knows of the graceful shutdown.
    Shutdown,
    /// A PING of ours.
    Known,
    /// None that was sent.
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

    /// The smallest round trip of late.
    #[inline]
    pub(super) fn minimum(&self) -> Option<Duration> {
        self.round_trip.minimum()
    }

    /// A frame that was sent at `sent` was acknowledged.
    pub(super) fn sample(&mut self, sent: Time, now: Time) {
        self.round_trip.sample(sent, now);
    }

    /// Measures the round trip anew, unless a measurement is under way.
    pub(super) fn measure(&mut self, writer: &mut Writer, now: Time) -> bool {
        if self.probe.is_some() {
            return false;
        }
        self.probe = Some(now);
        writer.ping(PROBE);
        true
    }

    /// Whether the newest sample is so old that another is worth a PING.
    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.round_trip.is_stale(now)
    }

    /// Asks the peer to say that it knows of the graceful shutdown.
    pub(super) fn announce_shutdown(writer: &mut Writer) {
        writer.ping(SHUTDOWN);
    }

    /// Asks the peer whether it is there.
    pub(super) fn keep_alive(writer: &mut Writer) {
        writer.ping(KEEP_ALIVE);
    }

    /// A PING with ACK has come.
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
            // Any octets that came since have answered it already.
            KEEP_ALIVE => Answer::Known,
            _ => Answer::Unexpected,
        }
    }

    /// Octets came: the peer is there.
    pub(super) fn note_received(&mut self, now: Time) {
        self.last_received = now;
        self.unanswered = None;
    }

    /// A stream begins: the silence before it does not count.
    pub(super) fn restart_silence(&mut self, now: Time) {
        self.last_received = self.last_received.max(now);
    }

    /// When octets came last.
    pub(super) fn last_received(&self) -> Time {
        self.last_received
    }

    /// Since when a PING asks whether the peer is there, and how many octets the transport had taken by then.
    pub(super) fn unanswered(&self) -> Option<(Time, u64)> {
        self.unanswered
    }

    /// The peer is asked from now on, or the transport still takes what precedes the PING.
    pub(super) fn start_probe(&mut self, now: Time, taken: u64) {
        self.unanswered = Some((now, taken));
    }
}
