//! Counters and reports of a connection.

use core::time::Duration;

use crate::flow::{Arrivals, Ledger, Promise, RoundTrip};
use crate::frame::FrameType;
use crate::tcp::TcpInfo;

/// Frames by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Types 0 to 9, PRIORITY_UPDATE, and all others together.
    counts: [u64; 12],
}

impl FrameCounts {
    /// The number of frames of this type. Unknown types share one count.
    pub fn of(&self, frame_type: FrameType) -> u64 {
        self.counts[Self::slot(frame_type)]
    }

    /// The number of frames of all types.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn add(&mut self, frame_type: FrameType) {
        self.add_many(frame_type, 1);
    }

    pub(crate) fn add_many(&mut self, frame_type: FrameType, frames: u64) {
        self.counts[Self::slot(frame_type)] += frames;
    }

    fn slot(frame_type: FrameType) -> usize {
        match frame_type.0 {
            known @ 0..=9 => usize::from(known),
            0x10 => 10,
            _ => 11,
        }
    }
}

/// The counters of a connection.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes of DATA payload received, padding included.
    pub received_data_bytes: u64,
    /// Frames received.
    pub received_frames: FrameCounts,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes of DATA payload sent.
    pub sent_data_bytes: u64,
    /// Frames sent. HEADERS and its CONTINUATION count as one HEADERS.
    pub sent_frames: FrameCounts,
    /// WINDOW_UPDATE frames sent for the connection.
    pub connection_refills: u64,
    /// WINDOW_UPDATE frames sent for streams.
    pub stream_refills: u64,
    /// The round trip to the peer.
    pub round_trip: RoundTrip,
}

/// The state of a connection: its counters, windows and ledgers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Report {
    /// The counters.
    pub stats: Stats,
    /// What sending has waited for.
    pub sending: Ledger,
    /// What receiving has waited for.
    pub receiving: Ledger,
    /// How data has arrived.
    pub arrivals: Arrivals,
    /// The size of the connection's receive window, in bytes.
    pub receive_window: u32,
    /// The initial receive window of streams, in bytes.
    pub stream_receive_window: u32,
    /// The largest receive window of any stream so far, in bytes.
    pub largest_stream_receive_window: u32,
    /// The bytes that this endpoint may still send on the connection.
    pub send_window: i64,
    /// The largest send window of the connection so far, in bytes.
    pub largest_send_window: u64,
    /// The initial send window of streams, in bytes: the peer's SETTINGS_INITIAL_WINDOW_SIZE.
    pub stream_send_window: u32,
    /// The largest send window of any stream so far, in bytes. Some peers open small windows, and enlarge them with
    /// WINDOW_UPDATE.
    pub largest_stream_send_window: u64,
    /// The memory that the peer can make this endpoint hold.
    pub promise: Promise,
    /// Streams that are not released.
    pub streams: usize,
    /// Requests that wait until the peer allows more streams.
    pub waiting_streams: usize,
    /// The number of streams that the peer allows at once.
    pub peer_max_concurrent_streams: u32,
    /// How long the shortest response took to begin, of a client's connection that does not measure its round trip: one of
    /// HTTP/1.1.
    pub answered_within: Option<Duration>,
    /// What the kernel says of the TCP connection below, if the owner of the transport has asked. The engine leaves it `None`.
    pub tcp: Option<TcpInfo>,
}

impl Report {
    /// Whether its connection has windows: one of HTTP/1.1 has none.
    pub(crate) fn has_windows(&self) -> bool {
        self.receive_window > 0
    }
}

/// The state of a stream: its windows, queues and ledgers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StreamReport {
    /// What sending has waited for since the stream opened.
    pub sending: Ledger,
    /// What receiving has waited for since the stream opened.
    pub receiving: Ledger,
    /// Bytes of DATA sent.
    pub sent_bytes: u64,
    /// Bytes of DATA received, padding included.
    pub received_bytes: u64,
    /// The bytes that its window still allows to send.
    pub send_window: i64,
    /// The size of its receive window, in bytes.
    pub receive_window: u32,
    /// The bytes that the peer may still send on it.
    pub receive_window_remaining: u64,
    /// Bytes in its send queue.
    pub queued: usize,
    /// Bytes received and not consumed.
    pub unread: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_type_of_frame_has_a_count_and_all_others_share_one() {
        let known = || (0..=9).chain([0x10]).map(FrameType);
        let mut counts = FrameCounts::default();
        known().for_each(|frame_type| counts.add(frame_type));
        for unknown in [0xa, 0xf, 0x11, 0xff] {
            counts.add(FrameType(unknown));
        }
        assert!(known().all(|frame_type| counts.of(frame_type) == 1));
        assert_eq!((counts.of(FrameType(0x77)), counts.total()), (4, 15));
    }
}
