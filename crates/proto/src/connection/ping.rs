//! PING (RFC 9113 section 6.7): the measured round trip, and whether the peer is alive.
//!
//! This endpoint sends PING for four purposes, each with its own opaque data. Its owner may send another.

use core::time::Duration;

use super::writer::Writer;
use crate::error::UsageError;
use crate::flow::RoundTrip;
use crate::role::Role;
use crate::time::Time;

/// Measures the round trip.
const PROBE: [u8; 8] = *b"roundtri";

/// Keep-alive: asks a silent peer for an answer.
const KEEP_ALIVE: [u8; 8] = *b"areuthr?";

/// Follows a large upload. The peer reads it behind the upload, so that its answer tells when buffers of the path have drained.
const DRAIN: [u8; 8] = *b"drained?";

/// Follows the first GOAWAY of a graceful shutdown. Servers of hyper send the same, so that tools know it.
const SHUTDOWN: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

#[derive(Debug)]
pub(super) struct Pings {
    round_trip: RoundTrip,
    /// When the unanswered PING that measures the round trip was written.
    probe: Option<Time>,
    /// The opaque data of the owner's unanswered PING. Boxed, because few owners send one.
    owner: Option<Box<[u8; 8]>>,
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
    /// The PING of the owner.
    Owner,
    /// The PING behind a large upload.
    Drained,
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
            owner: None,
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

    /// Our SETTINGS, sent at `sent`, were acknowledged at `now`.
    pub(super) fn settings_acknowledged(&mut self, role: Role, sent: Time, now: Time) {
        match role {
            Role::Client => self.round_trip.sample(sent, now),
            Role::Server => self.round_trip.guess(sent, now),
        }
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

    /// Asks whether the peer has read all that was sent before.
    pub(super) fn ask_whether_drained(writer: &mut Writer) {
        writer.ping(DRAIN);
    }

    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.round_trip.is_stale(now)
    }

    /// Its acknowledgement shows that the peer has received the first GOAWAY of a graceful shutdown.
    pub(super) fn announce_shutdown(writer: &mut Writer) {
        writer.ping(SHUTDOWN);
    }

    /// Sends a PING of the owner, whose opaque data must be none of this endpoint's own.
    pub(super) fn ask(&mut self, writer: &mut Writer, opaque: [u8; 8]) -> Result<(), UsageError> {
        if self.owner.is_some() {
            return Err(UsageError::PingUnanswered);
        }
        if [PROBE, KEEP_ALIVE, DRAIN, SHUTDOWN].contains(&opaque) {
            return Err(UsageError::PingReserved);
        }
        self.owner = Some(Box::new(opaque));
        writer.ping(opaque);
        Ok(())
    }

    pub(super) fn keep_alive(writer: &mut Writer) {
        writer.ping(KEEP_ALIVE);
    }

    pub(super) fn answer(&mut self, opaque: [u8; 8], shuts_down: bool, now: Time) -> Answer {
        match opaque {
            SHUTDOWN if shuts_down => Answer::Shutdown,
            _ if self.owner.as_deref() == Some(&opaque) => {
                self.owner = None;
                Answer::Owner
            }
            PROBE => match self.probe.take() {
                Some(sent) => {
                    self.round_trip.sample(sent, now);
                    Answer::Known
                }
                None => Answer::Unexpected,
            },
            // Any bytes since have already answered it.
            KEEP_ALIVE => Answer::Known,
            DRAIN => Answer::Drained,
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
