//! What a connection has counted.

use crate::flow::{Ledger, Promise, RoundTrip};
use crate::frame::FrameType;

/// Frames by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Types 0 to 9, PRIORITY_UPDATE, and all others together.
    counts: [u64; 12],
}

impl FrameCounts {
    /// How many frames of this type; types that the engine does not know are counted together.
    pub fn of(&self, frame_type: FrameType) -> u64 {
        self.counts[Self::slot(frame_type)]
    }

    /// How many frames of all types.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn add(&mut self, frame_type: FrameType) {
        self.counts[Self::slot(frame_type)] += 1;
    }

    fn slot(frame_type: FrameType) -> usize {
        match frame_type.0 {
            known @ 0..=9 => usize::from(known),
            0x10 => 10,
            _ => 11,
        }
    }
}

/// The counters of a connection since it began.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Octets that came in, all of them.
    pub received_bytes: u64,
    /// Octets of DATA payload that came in, padding counted.
    pub received_data_bytes: u64,
    /// Frames that came in.
    pub received_frames: FrameCounts,
    /// Octets that went out, all of them.
    pub sent_bytes: u64,
    /// Octets of DATA payload that went out.
    pub sent_data_bytes: u64,
    /// Frames that went out. HEADERS and their CONTINUATION count as one HEADERS.
    pub sent_frames: FrameCounts,
    /// WINDOW_UPDATE frames for the connection that went out.
    pub connection_refills: u64,
    /// WINDOW_UPDATE frames for streams that went out.
    pub stream_refills: u64,
    /// The round trip to the peer.
    pub round_trip: RoundTrip,
}

/// A connection at one moment: its counters, its windows by the side that they belong to, and its ledgers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Report {
    /// The counters.
    pub stats: Stats,
    /// What sending has waited for.
    pub sending: Ledger,
    /// What receiving has waited for.
    pub receiving: Ledger,
    /// The receive window of the connection, in bytes, as refills restore it.
    pub receive_window: u32,
    /// The receive window that streams begin with, in bytes.
    pub stream_receive_window: u32,
    /// The largest receive window that a stream had come to when it ended or now, in bytes.
    pub largest_stream_receive_window: u32,
    /// What we may still send on the connection, in bytes.
    pub send_window: i64,
    /// The send window that streams begin with, in bytes: the peer's SETTINGS_INITIAL_WINDOW_SIZE.
    pub stream_send_window: u32,
    /// What the peer may make us hold.
    pub promise: Promise,
    /// Streams that are not released.
    pub streams: usize,
    /// Requests that wait for the peer to allow more streams.
    pub waiting_streams: usize,
    /// How many streams the peer allows.
    pub peer_max_concurrent_streams: u32,
}

/// One stream at one moment: its windows by the side that they belong to, what lies in its queues, and its ledgers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StreamReport {
    /// What sending has waited for since the stream began: data in its queue, or none where some is to come.
    pub sending: Ledger,
    /// What receiving has waited for since the stream began.
    pub receiving: Ledger,
    /// Octets of DATA that it has sent.
    pub sent_bytes: u64,
    /// Octets of DATA that it has received, padding counted.
    pub received_bytes: u64,
    /// What it may still send by its own window, in bytes.
    pub send_window: i64,
    /// Its receive window, in bytes, as refills restore it.
    pub receive_window: u32,
    /// What the peer may still send on it, in bytes.
    pub receive_window_remaining: u64,
    /// Bytes that wait to be sent.
    pub queued: usize,
    /// Bytes that were received and not consumed.
    pub unread: u64,
}
