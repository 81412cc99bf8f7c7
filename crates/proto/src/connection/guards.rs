//! The rate limits on frames of the peer, each a token bucket. A connection that exceeds one ends with
//! ENHANCE_YOUR_CALM. docs/design/limits.md lists them, and [`Config`] has their defaults and reasons.

use crate::config::Config;
use crate::error::{ConnectionError, PeerLimit};
use crate::guard::Bucket;
use crate::time::Time;

/// A frame that visits all streams costs one token for each so many streams. With ten thousand streams, one change of
/// the initial window takes about as long as the frames of 128 requests.
const STREAMS_A_TOKEN: usize = 128;

#[derive(Debug)]
pub(super) struct Guards {
    peer_resets: Bucket,
    refused_streams: Bucket,
    provoked_resets: Bucket,
    empty_data: Bucket,
    pings: Bucket,
    settings: Bucket,
    window_updates: Bucket,
    informational: Bucket,
    priorities: Bucket,
}

type Verdict = Result<(), ConnectionError>;

impl Guards {
    pub(super) fn new(config: &Config, now: Time) -> Self {
        let of = |which| Bucket::new(config.limit(which), now);
        Guards {
            peer_resets: of(PeerLimit::PeerResets),
            refused_streams: of(PeerLimit::RefusedStreams),
            provoked_resets: of(PeerLimit::ProvokedResets),
            empty_data: of(PeerLimit::EmptyData),
            pings: of(PeerLimit::Pings),
            settings: of(PeerLimit::Settings),
            window_updates: of(PeerLimit::WindowUpdates),
            informational: of(PeerLimit::Informational),
            priorities: of(PeerLimit::Priorities),
        }
    }

    pub(super) fn peer_reset(&mut self, now: Time) -> Verdict {
        self.peer_resets
            .charge(now, PeerLimit::PeerResets, "too many streams reset")
    }

    /// A refused stream. That is no error of the peer, which may not know our limits yet.
    pub(super) fn refused_stream(&mut self, now: Time) -> Verdict {
        self.refused_streams
            .charge(now, PeerLimit::RefusedStreams, "too many streams refused")
    }

    /// A header block on a refused or closed stream.
    pub(super) fn refused_block(&mut self, now: Time) -> Verdict {
        let reason = "too many header blocks on refused or closed streams";
        self.refused_streams
            .charge(now, PeerLimit::RefusedStreams, reason)
    }

    /// A stream error that the peer caused.
    pub(super) fn provoked_reset(&mut self, now: Time) -> Verdict {
        self.provoked_resets.charge(
            now,
            PeerLimit::ProvokedResets,
            "too many streams with protocol errors",
        )
    }

    pub(super) fn oversized_section(&mut self, now: Time) -> Verdict {
        let reason = "too many field sections over SETTINGS_MAX_HEADER_LIST_SIZE";
        self.provoked_resets
            .charge(now, PeerLimit::HeaderListSize, reason)
    }

    /// A field section that exceeds the limit `excess` times over.
    pub(super) fn excess_section(&mut self, excess: usize, now: Time) -> Verdict {
        let reason = "field sections many times over SETTINGS_MAX_HEADER_LIST_SIZE";
        self.provoked_resets
            .charge_many(excess, now, PeerLimit::HeaderListSize, reason)
    }

    pub(super) fn empty_data(&mut self, now: Time) -> Verdict {
        self.empty_data
            .charge(now, PeerLimit::EmptyData, "too many empty DATA frames")
    }

    pub(super) fn ping(&mut self, now: Time) -> Verdict {
        self.pings.charge(now, PeerLimit::Pings, "too many PING frames")
    }

    pub(super) fn unexpected_ping_ack(&mut self, now: Time) -> Verdict {
        self.pings.charge(
            now,
            PeerLimit::Pings,
            "too many PING acknowledgements without a PING",
        )
    }

    pub(super) fn settings(&mut self, entries: usize, now: Time) -> Verdict {
        self.settings
            .charge_many(1 + entries, now, PeerLimit::Settings, "too many SETTINGS frames")
    }

    pub(super) fn go_away(&mut self, now: Time) -> Verdict {
        self.settings
            .charge(now, PeerLimit::Settings, "too many SETTINGS and GOAWAY frames")
    }

    /// A frame for which the connection visits `streams` streams.
    pub(super) fn walk(&mut self, streams: usize, now: Time) -> Verdict {
        let reason = "too many changes of SETTINGS_INITIAL_WINDOW_SIZE, or GOAWAY frames, for the number of open streams";
        self.settings
            .charge_many(streams / STREAMS_A_TOKEN, now, PeerLimit::Settings, reason)
    }

    pub(super) fn window_update(&mut self, now: Time) -> Verdict {
        let reason = "too many WINDOW_UPDATE frames for the DATA that was sent";
        self.window_updates.charge(now, PeerLimit::WindowUpdates, reason)
    }

    pub(super) fn informational(&mut self, now: Time) -> Verdict {
        self.informational
            .charge(now, PeerLimit::Informational, "too many informational responses")
    }

    /// PRIORITY, PRIORITY_UPDATE, or a frame of an unknown type.
    pub(super) fn priority(&mut self, now: Time) -> Verdict {
        let reason = "too many PRIORITY, PRIORITY_UPDATE or unknown frames";
        self.priorities.charge(now, PeerLimit::Priorities, reason)
    }

    /// A new stream earns the peer WINDOW_UPDATE frames.
    pub(super) fn earn_by_stream(&mut self) {
        self.window_updates.earn(2);
    }

    /// A request earns the server informational responses.
    pub(super) fn earn_by_request(&mut self) {
        self.informational.earn(8);
    }

    /// A reset by our owner earns the peer the header blocks that cross it.
    pub(super) fn earn_by_cancel(&mut self) {
        self.refused_streams.earn(2);
    }

    /// A DATA frame earns the peer WINDOW_UPDATE frames for it.
    pub(super) fn earn_by_data(&mut self, octets: usize) {
        self.window_updates.earn(4 + octets / 1_024);
    }
}
