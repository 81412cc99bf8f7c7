//! What a connection has counted.

use crate::flow::RoundTrip;
use crate::frame::Kind;

/// Frames by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Types 0 to 9, PRIORITY_UPDATE, and all others together.
    counts: [u64; 12],
}

impl FrameCounts {
    /// How many frames of this type; types that the engine does not know are counted together.
    pub fn of(&self, kind: Kind) -> u64 {
        self.counts[Self::slot(kind)]
    }

    /// How many frames of all types.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        self.counts[Self::slot(kind)] += 1;
    }

    fn slot(kind: Kind) -> usize {
        match kind.0 {
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
